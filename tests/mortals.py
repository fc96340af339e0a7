"""A process that makes others, which live a scheduler's life and may be killed at any moment.

Reads lines ``SEED COUNT JOURNAL NOTES``; answers each by the number of a new process, which writes a line into NOTES for
every call that has returned to it.
"""

from __future__ import annotations

import os
import sys

from lives import POLICIES, operations

import flowsched as fs


def live(seed: int, count: int, journal: str, notes: str) -> None:
    """Live until killed."""
    out = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sched = fs.Scheduler(POLICIES[seed % len(POLICIES)](), journal=journal)
    os.write(out, b"begun\n")
    for name in operations(seed, sched, count):
        os.write(out, f"{name}\n".encode())


if __name__ == "__main__":
    for line in sys.stdin:
        seed, count, journal, notes = line.split()
        child = os.fork()
        if not child:
            live(int(seed), int(count), journal, notes)
            os._exit(0)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)
