"""Processes of containers: started, recognised, and ended together.

A container's first process is a shell that waits at a gate until it is released; it ends there if the agent dies.  So it is
recorded before it can do anything.  The command's own environment is set as it begins, so that nothing before it or around it
depends on a PATH or a library that is meant for the command.
A process is identified by its pid and its start time; another process may have the same pid later.
Signals go through a descriptor of the process, which is checked after it was opened, so that the pid's next owner gets none.
The processes of a container are its first one; the session of that, for as long as that process holds the session's number;
and all that have the container's token in their environment, wherever they moved.  Only a control group catches a process that
leaves the session *and* clears its environment, or forks faster than it can be observed.
Processes are stopped before they are killed: a stopped one makes no others, so once a scan finds no new process, all have been found.

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
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from flowsched.exceptions import TimeLimitError

TOKEN = "FLOWSCHED_CONTAINER"
"""Environment variable that marks the processes of a container."""

_LOOKS = 20
"""Consecutive empty scans that suffice on a machine where other processes end all the time."""

_OWN = "FLOWSCHED_SET_"
"""Prefix of variables that carry the command's own ones, as NAME=value, past the programs before it."""

_GATE = """
read -r go || exit 125
exec "$@" </dev/null
"""
"""Waits to be released, and becomes its arguments."""

BECOME = """
import os, sys, _signal
def become(why, cpus, folder, output, errors, command, environment, own):
    def fail(status, reason):
        reason = f"{reason}"
        if why:
            with open(why, "w", errors="surrogateescape") as file:
                file.write(" ".join(reason.split()) + "\\n")
        if not why or errors:
            os.write(2, f"flowsched: {reason}\\n".encode(errors="surrogateescape"))
        os._exit(status)
    try:
        # Signals to its group do not reach the shell that waits for it.
        if os.getpgrp() != os.getpid():
            os.setpgid(0, 0)
        if cpus:
            os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])
    except OSError as error:
        fail(126, f"cannot be bound to CPUs {cpus}: {error.strerror}")
    for path, stream in ((output, 1), (errors, 2)):
        if path:
            try:
                file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                os.dup2(file, stream)
                os.close(file)
            except OSError as error:
                errors = ""
                fail(126, f"cannot write {path}: {error.strerror}")
    if folder:
        try:
            os.chdir(folder)
            environment["PWD"] = folder
        except OSError as error:
            fail(126, f"cannot enter folder {folder}: {error.strerror}")
    environment.update((name, value) for name, value in own if name != "FLOWSCHED_CONTAINER")
    # What an interpreter ignores a program expects at its default.
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
    program, refused = command[0], None
    paths = environment.get("PATH", os.defpath).split(":")
    for path in [program] if "/" in program else [f"{path or '.'}/{program}" for path in paths]:
        try:
            os.execve(path, command, environment)
        except ValueError as error:
            fail(126, f"cannot run {program}: {error}")
        except OSError as error:
            if error.errno == 8:  # a script that does not say by what it is to be run
                command[:1] = ["/bin/sh", path]
                os.execve("/bin/sh", command, environment)
            if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                refused = refused or error
    if refused is not None:
        fail(126, f"cannot run {program}: {refused.strerror}")
    fail(127, f"command not found: {program}")
"""
"""Defines a function that becomes a command in its folder, with its files and its environment.

If it cannot, it writes the reason to a file or a stream.
"""

_ENTER = (
    BECOME
    + """
environment, own = {}, []
for name, value in os.environ.items():
    if name.startswith("FLOWSCHED_SET_"):
        own.append(value.partition("=")[::2])
    else:
        environment[name] = value
become(*sys.argv[1:6], sys.argv[6:], environment, own)
"""
)
"""Becomes a command, by its arguments and its environment."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The environment, folder and output files of a command.

    Variables of `environment` are added; no program that runs before the command sees them, and no list of processes
    shows them.  `directory` is the absolute path of its folder, or "".  Its streams are appended to the files `output`
    and `errors`, or "" for this process's; a file that is not there is its owner's alone.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    output: str = ""
    errors: str = ""

    def arguments(self, command: Sequence[str], cpus: Sequence[int] = (), why: str = "") -> list[str]:
        """Return the arguments of a process that becomes the command; if it cannot, it writes the reason to the file `why`."""
        bound = ",".join(map(str, cpus))
        program = [sys.executable, "-I", "-S", "-c", _ENTER]
        return [*program, why, bound, self.directory, self.output, self.errors, *command]

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an environment for `arguments`, in which the command's own variables have no effect yet.

        A shell drops variables whose names are none of its own, so these are carried past it, too.
        """
        dropped = {name: value for name, value in environment.items() if not (name.isascii() and name.isidentifier())}
        own = (f"{name}={value}" for name, value in (dropped | dict(self.environment)).items())
        return {**environment, **{f"{_OWN}{i}": one for i, one in enumerate(own)}}


@dataclass(frozen=True, slots=True)
class Family:
    """The processes of one container: the first one's pid and start time (clock ticks since boot), and the token of all."""

    pid: int
    start: int
    token: str


@dataclass(slots=True)
class Gate:
    """A first process at its gate: it has done nothing."""

    family: Family
    _key: int

    def release(self) -> None:
        """Release the process, which then makes or becomes the command."""
        try:
            os.write(self._key, b"go\n")
        finally:
            self._close()

    def abandon(self) -> None:
        """Close the gate; a process that was not released ends there."""
        self._close()

    def _close(self) -> None:
        key, self._key = self._key, -1
        if key >= 0:
            os.close(key)


@dataclass(slots=True)
class Held(Gate):
    """A container's first process at its gate, a child of this process."""

    process: subprocess.Popen[bytes]

    def abandon(self) -> None:
        """End the process, and wait for it."""
        self._close()
        self.process.kill()
        self.process.wait()


def hold(
    command: Sequence[str],
    cpus: Sequence[int],
    environment: Mapping[str, str],
    entry: Entry = Entry(),
) -> Held:
    """Start the first process of a container, in a session of its own, and keep it at its gate.

    It exits with 127 if there is no such program, with 126 if that cannot be run or bound to the CPUs.

    Raise OSError or ValueError if there is no process, no descriptor or no memory left, or the command is none.
    """
    token = uuid4().hex
    gate, key = os.pipe()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _GATE, "/bin/sh", *entry.arguments(command, cpus)],
            start_new_session=True,
            env={**entry.variables(environment), TOKEN: token},
            stdin=gate,
            stderr=None if is_open(2) else subprocess.DEVNULL,
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
        return Held(Family(process.pid, start, token), key, process)
    except BaseException:
        os.close(key)
        process.kill()
        process.wait()
        raise


def is_open(fd: int) -> bool:
    """Return True if a descriptor is open."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


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


def signal_session(family: Family, number: int) -> None:
    """Signal all process groups of the session that the first process of a container has made, while it is there."""
    if start_time(family.pid) != family.start:
        return
    stats = (_stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    for group in {stat.group for stat in stats if stat is not None and stat.session == family.pid}:
        signal_group(group, number)


def end(families: Sequence[Family], patience: float = 30.0) -> None:
    """End all processes of some containers; return when only zombies are left, which wait for their parents.

    Raise TimeLimitError if a process is still there after `patience` seconds.
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
        # A process that ended during the scan may have left a child that was not there at its begin.
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
    group: int
    session: int
    start: int


def _stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # A name may have blanks and brackets, but it ends at the last one.
            fields = file.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return _Stat(fields[0].decode(), int(fields[2]), int(fields[3]), int(fields[19])) if len(fields) > 19 else None


def _look(families: Sequence[Family]) -> tuple[set[tuple[int, int]], frozenset[int]]:
    """Return the running processes (pid, start) of the containers, and the pids that ended during the scan."""
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
