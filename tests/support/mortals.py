"""A process that forks children, each of which drives a scheduler and may be killed at any moment.

Reads lines ``KIND SEED COUNT JOURNAL NOTES``; answers each by the number of a new process, which writes a line into NOTES
for every call that has returned to it.
"""

from __future__ import annotations

import os
import sys

from fgm_lives import born, fine_operations
from lives import POLICIES, operations
from quota_lives import limited, limited_operations

import flowsched as fs


def scheduler(seed: int, journal: str | os.PathLike[str] | None = None) -> fs.Scheduler:
    return fs.Scheduler(POLICIES[seed % len(POLICIES)](), journal=journal)


def with_quotas(seed: int, journal: str | os.PathLike[str] | None = None) -> fs.Scheduler:
    return fs.Scheduler(limited(seed), journal=journal)


BORN = {
    "Scheduler": (scheduler, operations),
    "FineGrained": (born, fine_operations),
    "Quotas": (with_quotas, limited_operations),
}
"""How they begin, and how they live."""


def live(kind: str, seed: int, count: int, journal: str, notes: str) -> None:
    """Live until killed."""
    out = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    begin, life = BORN[kind]
    sched = begin(seed, journal)
    os.write(out, b"begun\n")
    for name in life(seed, sched, count):
        os.write(out, f"{name}\n".encode())


if __name__ == "__main__":
    for line in sys.stdin:
        kind, seed, count, journal, notes = line.split()
        child = os.fork()
        if not child:
            live(kind, int(seed), int(count), journal, notes)
            os._exit(0)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)
