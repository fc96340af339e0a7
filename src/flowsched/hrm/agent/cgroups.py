"""Control groups (version 2) of units and containers: what affinity and process groups cannot do.

A unit's group holds its processes to its CPUs and memory, where the kernel gives it the controllers for that.  A
container's group, inside, also holds what has left its process group: it is frozen, and ends, with it.

A group's name is made from an id so that every id has one, no two ids have the same, and none is the name of a file of the
kernel's, of another folder, or longer than a name may be: see `group_name`.
A unit's group is one agent's at a time.  What another one has left in it is ended before it is used.
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
"""Bytes that stand for themselves.  A dot does not: the kernel's files all have one, and so have "." and ".."."""

_LONGEST = 200


class Cgroups:
    """A control group for each unit, and inside it one for each container.

    Parameters
    ----------
    root : path
        An existing group whose subgroups this process may make.  Of the controllers cpuset and memory those that it
        hands down are used.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._locks: dict[Path, FolderLock] = {}

    @staticmethod
    def find() -> Cgroups | None:
        """Those of the system, if there are any that this process may use."""
        for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
            if (root / "cgroup.controllers").exists() and os.access(root / "cgroup.procs", os.W_OK):
                return Cgroups(root)
        return None

    @property
    def controllers(self) -> set[str]:
        """Those that subgroups have."""
        return set((self.root / "cgroup.subtree_control").read_text().split())

    def prepare(self, unit: ResourceUnit) -> None:
        """Make the unit's group, and end what is left in it.

        Raises
        ------
        InputError
            It is another agent's.
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
        }
        for controller in limits.keys() & self.controllers:
            name, limit = limits[controller]
            if limit:
                (group / name).write_text(limit)

    def enter(self, unit: ResourceUnit, id: str, pid: int) -> None:
        """A process, and what it starts from now on, is the container."""
        group = self.group(unit, id)
        group.mkdir(exist_ok=True)
        # It may have ended by now.
        with suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))

    def freeze(self, unit: ResourceUnit, id: str, pause: bool) -> None:
        """Stop all of the container, or let it go on."""
        (self.group(unit, id) / "cgroup.freeze").write_text(str(int(pause)))

    def leave(self, unit: ResourceUnit, id: str) -> None:
        """The container has ended: what it left behind is killed."""
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
        """The folder of a unit's group, or of a container's."""
        mine = self.root / f"flowsched-{group_name(unit.id)}"
        return mine if id is None else mine / group_name(id)


def group_name(id: object) -> str:
    """A folder's name for an id.

    Letters, digits, "_" and "-" stand for themselves, other bytes of its UTF-8 are "%" and two hexadecimal digits; the empty
    id is "%", and one that would be long is "%h" and its SHA-256, which no other id can be written as.
    """
    raw = str(id).encode(errors="surrogatepass")
    name = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)
    if len(name) > _LONGEST:
        return f"%h{hashlib.sha256(raw).hexdigest()}"
    return name or "%"


def end_group(group: Path) -> None:
    """Kill all that is in a group and remove it."""
    if group.exists():
        (group / "cgroup.kill").write_text("1")
        _remove(group)


def _remove(group: Path) -> None:
    """The kernel is done with those that were killed a moment later."""
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
