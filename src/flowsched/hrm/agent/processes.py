"""Processes of containers: started, recognised, and ended together.

A container's first process waits at a gate until it is released; it ends there if the agent dies.  So it is recorded before
it can do anything.
A process is identified by its pid and its start time; another process may have the same pid later.
Signals go through a descriptor of the process, which is checked after it was opened, so that the pid's next owner gets none.
The processes of a container are its first one; the session of that, for as long as that process holds the session's number;
and all that have the container's token in their environment, wherever they moved.  Only a control group catches a process that
leaves the session *and* clears its environment, or forks faster than it can be observed.
Processes are stopped before they are killed: a stopped one makes no others, so a look that finds nothing new has found all.

Linux only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from flowsched.exceptions import TimeLimitError

__all__ = ["TOKEN", "Family", "Held", "boot_id", "end", "hold", "signal_group", "start_time"]

TOKEN = "FLOWSCHED_CONTAINER"
"""Environment variable that marks the processes of a container."""

_LOOKS = 20
"""Empty looks in a row that suffice on a machine where other processes end all the time."""

_GATE = """
import os, sys, _signal
gate, cpus, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
if not os.read(gate, 1):
    os._exit(125)
os.close(gate)
try:
    if cpus:
        os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])
    # What an interpreter ignores a program expects at its default.
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
    os.execvp(command[0], command)
except (OSError, ValueError) as error:
    os.write(2, f"flowsched: {command[0]!r} cannot be run: {error}\\n".encode(errors="replace"))
    os._exit(127 if isinstance(error, FileNotFoundError) else 126)
"""


@dataclass(frozen=True, slots=True)
class Family:
    """The processes of one container: the first one's pid and start time (clock ticks since boot), and the token of all."""

    pid: int
    start: int
    token: str


@dataclass(slots=True)
class Held:
    """A container's first process at its gate."""

    process: subprocess.Popen[bytes]
    family: Family
    _key: int

    def release(self) -> None:
        """Let the process become the command."""
        try:
            os.write(self._key, b"g")
        finally:
            self._close()

    def abandon(self) -> None:
        """End the process, which has done nothing."""
        self._close()
        self.process.kill()
        self.process.wait()

    def _close(self) -> None:
        key, self._key = self._key, -1
        if key >= 0:
            os.close(key)


def hold(command: Sequence[str], cpus: Sequence[int], environment: Mapping[str, str]) -> Held:
    """Start the first process of a container, in a session of its own, and keep it at its gate.

    It exits with 127 if there is no such program, with 126 if that cannot be run or bound to the CPUs.

    Raises
    ------
    OSError, ValueError
        There is no process, no descriptor or no memory left, or the command is none.
    """
    token = uuid4().hex
    gate, key = os.pipe()
    try:
        allowed = ",".join(map(str, cpus))
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GATE, str(gate), allowed, *command],
            start_new_session=True,
            env={**environment, TOKEN: token},
            pass_fds=(gate,),
        )
    except BaseException:
        os.close(key)
        raise
    finally:
        os.close(gate)
    try:
        start = start_time(process.pid)
        if start is None:
            raise ProcessLookupError(f"process {process.pid} is not in /proc")
        return Held(process, Family(process.pid, start, token), key)
    except BaseException:
        os.close(key)
        process.kill()
        process.wait()
        raise


def boot_id() -> str:
    """Return the id of this boot; pids and start times are valid within one boot only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if there is no such process."""
    stat = _stat(pid)
    return None if stat is None else stat.start


def signal_group(pid: int, number: int) -> None:
    """Signal the process group of a child that was not waited for, so that its pid is still its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def end(families: Sequence[Family], patience: float = 30.0) -> None:
    """End all processes of some containers; return when only zombies are left, which wait for their parents.

    Raises
    ------
    TimeLimitError
        A process is still there after `patience` seconds.
    """
    deadline = time.monotonic() + patience
    stopped: set[tuple[int, int]] = set()
    doubts: frozenset[int] = frozenset()
    empty = 0
    while families:
        there, doubt = _look(families)
        new = there - stopped
        for pid, start in new or there:
            _signal(pid, start, signal.SIGSTOP if new else signal.SIGKILL)
        stopped |= new
        empty = 0 if there else empty + 1
        # A process that ended during the look may have left a child that was not there at its begin.
        if not there and (doubt <= doubts or empty == _LOOKS):
            return
        if time.monotonic() > deadline:
            pids = ", ".join(str(pid) for pid, _ in sorted(there))
            raise TimeLimitError(f"processes of containers do not end within {patience:g} s: {pids}")
        doubts = doubt
        if there and not new:
            time.sleep(0.002)


@dataclass(frozen=True, slots=True)
class _Stat:
    """Data of a process from /proc."""

    state: str
    session: int
    start: int


def _stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # A name may have blanks and brackets, but it ends at the last one.
            fields = file.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return _Stat(fields[0].decode(), int(fields[3]), int(fields[19])) if len(fields) > 19 else None


def _look(families: Sequence[Family]) -> tuple[set[tuple[int, int]], frozenset[int]]:
    """Return the running processes (pid, start) of the containers, and the pids that ended during the look."""
    oldest = min(family.start for family in families)
    first = {(family.pid, family.start) for family in families}
    # The number of a session is not used again as long as the process that made it is there.
    sessions = {family.pid for family in families if start_time(family.pid) == family.start}
    tokens = {f"{TOKEN}={family.token}".encode() for family in families}
    me, there, ending = os.getpid(), set(), set()
    for name in os.listdir("/proc"):
        if not name.isdigit() or (pid := int(name)) == me:
            continue
        stat = _stat(pid)
        if stat is None or (stat.state in "ZX" and stat.start >= oldest and (pid, stat.start) not in first):
            ending.add(pid)
        elif stat.state not in "ZX" and stat.start >= oldest:
            known = (pid, stat.start) in first or stat.session in sessions
            if known or not tokens.isdisjoint(_environment(pid)):
                there.add((pid, stat.start))
    return there, frozenset(ending)


def _environment(pid: int) -> Sequence[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ()


def _signal(pid: int, start: int, number: int) -> None:
    """Signal this process, but no later one with its pid."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if start_time(pid) == start:
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(process, number)
    finally:
        os.close(process)
