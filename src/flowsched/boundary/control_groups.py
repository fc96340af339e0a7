"""Control groups of Linux (version 2): processes that are limited, frozen and ended together, whatever they do.

A group is a folder of the kernel's, and its subgroups are folders in it.  A process that is put into a group stays there
with all that it starts, also if that leaves its session or its parent.

A group's name is made from an id so that every id has one, no two ids have the same, and none is the name of a file of the
kernel's, of another folder, or longer than a name may be: see `name`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import string
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import ceil
from pathlib import Path

_PLAIN = frozenset((string.ascii_letters + string.digits + "_-").encode())
"""Bytes that stand for themselves; a dot does not, because the kernel's files and "." and ".." have one."""

_LONGEST = 200


def find() -> Path | None:
    """Return the control group of the whole system, None if this process may not use it."""
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (root / "cgroup.controllers").exists() and os.access(root / "cgroup.procs", os.W_OK):
            return root
    return None


def name(id: object) -> str:
    """Return a folder's name for an id.

    Letters, digits, "_" and "-" stand for themselves, other bytes of its UTF-8 are "%" and two hexadecimal digits; the empty
    id is "%", and one that would be long is "%h" and its SHA-256, which no other id can be written as.
    """
    raw = str(id).encode(errors="surrogatepass")
    text = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)
    if len(text) > _LONGEST:
        return f"%h{hashlib.sha256(raw).hexdigest()}"
    return text or "%"


def make(group: Path) -> None:
    """Make a group, unless it is there."""
    group.mkdir(parents=True, exist_ok=True)


def controllers(group: Path) -> set[str]:
    """Return the names of the controllers that the subgroups of a group have."""
    return set((group / "cgroup.subtree_control").read_text().split())


def provide(group: Path, wanted: Iterable[str]) -> set[str]:
    """Give the subgroups of a group controllers, as far as the group has them itself; return those that they have."""
    there = set((group / "cgroup.controllers").read_text().split())
    new = there.intersection(wanted) - controllers(group)
    if new:
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in sorted(new)))
    return controllers(group)


def limit(group: Path, limits: Mapping[str, str]) -> None:
    """Set limits of a group, by the name of their file, where its parent provides their controllers; "" sets none."""
    provided = controllers(group.parent)
    for file, text in limits.items():
        if text and file.partition(".")[0] in provided:
            (group / file).write_text(text)


_PERIOD = 100_000
"""Microseconds in which a group has its share of the CPUs; the kernel's default."""

_LEAST = 1_000
"""The smallest share that the kernel takes, in microseconds."""


def cpu_max(cores: float) -> str:
    """Return the text of ``cpu.max`` for an amount of cores; 0 for no limit."""
    return f"{max(ceil(cores * _PERIOD), _LEAST) if cores else 'max'} {_PERIOD}"


def enter(group: Path, pid: int) -> None:
    """Put a process, with all that it will start, into a group."""
    # The process may have ended by now.
    with suppress(ProcessLookupError):
        (group / "cgroup.procs").write_text(str(pid))


def freeze(group: Path, pause: bool) -> None:
    """Pause all processes of a group, or resume them."""
    (group / "cgroup.freeze").write_text(str(int(pause)))


def ran_out(group: Path) -> bool:
    """Return True if the kernel has killed a process of a group for lack of memory."""
    try:
        events = (group / "memory.events").read_text().splitlines()
    except OSError:  # it has no such controller
        return False
    return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in events)


def kill(group: Path) -> None:
    """Kill all processes in a group and below it."""
    if group.exists():
        (group / "cgroup.kill").write_text("1")


def end(group: Path) -> None:
    """Kill all processes in a group and remove it."""
    kill(group)
    remove(group)


def remove(group: Path) -> None:
    """Remove a group with those below it; the kernel frees it a moment after its processes were killed."""
    with suppress(FileNotFoundError):
        for below in list(group.iterdir()):
            if below.is_dir():
                remove(below)
    for _ in range(200):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            time.sleep(0.005)
        else:
            return
    group.rmdir()
