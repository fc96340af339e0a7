"""Control groups (version 2) of units and containers, beyond affinity and process groups.

A unit's group limits its processes to its CPUs and memory, where the kernel provides the controllers.  A container's
group, inside it, also contains processes that have left the process group: they are frozen, and end, with it.

A group's name is made from an id so that every id has one, no two ids have the same, and none is the name of a file of the
kernel's, of another folder, or longer than a name may be: see `group_name`.
A unit's group belongs to one agent at a time.  The remains of another agent in it are ended before it is used.
"""

from __future__ import annotations

import errno
import hashlib
import os
import string
import time
from contextlib import suppress
from pathlib import Path

from flowsched.exceptions import InputError
from flowsched.hrm.agent.folder_lock import FolderLock
from flowsched.hrm.units import ResourceUnit

__all__ = ["Cgroups", "end_group", "group_name"]

_PLAIN = frozenset((string.ascii_letters + string.digits + "_-").encode())
"""Bytes that stand for themselves; a dot does not, because the kernel's files and "." and ".." have one."""

_LONGEST = 200


class Cgroups:
    """A control group for each unit, and inside it one for each container.

    Parameters
    ----------
    root : path
        An existing group in which this process may make subgroups.  The controllers cpuset, memory and cpu are used if
        it delegates them.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._locks: dict[Path, FolderLock] = {}

    @staticmethod
    def find() -> Cgroups | None:
        """Return the control groups of the system, None if this process may not use them."""
        for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
            if (root / "cgroup.controllers").exists() and os.access(root / "cgroup.procs", os.W_OK):
                return Cgroups(root)
        return None

    @property
    def controllers(self) -> set[str]:
        """Names of the controllers that subgroups have."""
        return set((self.root / "cgroup.subtree_control").read_text().split())

    def prepare(self, unit: ResourceUnit) -> None:
        """Make the unit's group, and end all remains in it.

        Raises
        ------
        InputError
            The group is another agent's.
        """
        group = self.group(unit)
        group.mkdir(parents=True, exist_ok=True)
        if group not in self._locks:
            lock = FolderLock.take(group)
            if lock is None:
                raise InputError(f"unit {unit.id!r}: its control group is another agent's: {group}")
            self._locks[group] = lock
        for left in group.iterdir():
            if left.is_dir():
                end_group(left)
        limits = {
            "cpuset": ("cpuset.cpus", ",".join(map(str, unit.cpus))),
            "memory": ("memory.max", str(int(unit.mem * 2**20)) if unit.mem else ""),
            # On shared cores GPU containers go before CPU containers: the largest weight that there is.
            "cpu": ("cpu.weight", "10000" if unit.shared else ""),
        }
        for controller in limits.keys() & self.controllers:
            name, limit = limits[controller]
            if limit:
                (group / name).write_text(limit)

    def enter(self, unit: ResourceUnit, id: str, pid: int) -> None:
        """Put a process, with all that it will start, into the container's group."""
        group = self.group(unit, id)
        group.mkdir(exist_ok=True)
        # The process may have ended by now.
        with suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))

    def freeze(self, unit: ResourceUnit, id: str, pause: bool) -> None:
        """Stop all processes of the container, or let them go on."""
        (self.group(unit, id) / "cgroup.freeze").write_text(str(int(pause)))

    def leave(self, unit: ResourceUnit, id: str) -> None:
        """Kill the remains of a container that has ended."""
        end_group(self.group(unit, id))

    def remove(self, unit: ResourceUnit) -> None:
        """Remove the unit's group, when no container is left in it."""
        group = self.group(unit)
        lock = self._locks.pop(group, None)
        try:
            _remove(group)
        finally:
            if lock is not None:
                lock.release()

    def group(self, unit: ResourceUnit, id: str | None = None) -> Path:
        """Return the folder of a unit's group, or of a container's."""
        mine = self.root / f"flowsched-{group_name(unit.id)}"
        return mine if id is None else mine / group_name(id)


def group_name(id: object) -> str:
    """Return a folder's name for an id.

    Letters, digits, "_" and "-" stand for themselves, other bytes of its UTF-8 are "%" and two hexadecimal digits; the empty
    id is "%", and one that would be long is "%h" and its SHA-256, which no other id can be written as.
    """
    raw = str(id).encode(errors="surrogatepass")
    name = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)
    if len(name) > _LONGEST:
        return f"%h{hashlib.sha256(raw).hexdigest()}"
    return name or "%"


def end_group(group: Path) -> None:
    """Kill all processes in a group and remove it."""
    if group.exists():
        (group / "cgroup.kill").write_text("1")
        _remove(group)


def _remove(group: Path) -> None:
    """Remove a group; the kernel frees it a moment after its processes were killed."""
    with suppress(FileNotFoundError):
        for below in list(group.iterdir()):
            if below.is_dir():
                _remove(below)
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
