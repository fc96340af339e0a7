"""Control groups (version 2) of units and containers, beyond affinity and process groups.

A unit's group limits its processes to its CPUs and memory, where the kernel provides the controllers.  A container's
group, inside it, also contains processes that have left the process group: they are frozen, and end, with it.

A unit's group belongs to one agent at a time.  The remains of another agent in it are ended before it is used.
"""

from __future__ import annotations

from pathlib import Path

from flowsched.boundary import control_groups
from flowsched.exceptions import InputError
from flowsched.hrm.agent.custody import FolderLock
from flowsched.hrm.units import ResourceUnit


class Cgroups:
    """A control group for each unit, and inside it one for each container.

    `root` is an existing group in which this process may make subgroups.  The controllers cpuset, memory and cpu are
    used if it delegates them.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._locks: dict[Path, FolderLock] = {}

    @staticmethod
    def find() -> Cgroups | None:
        """Return the control groups of the system, None if this process may not use them."""
        root = control_groups.find()
        return None if root is None else Cgroups(root)

    def prepare(self, unit: ResourceUnit) -> None:
        """Make the unit's group, and end all remains in it; raise InputError if it is another agent's."""
        group = self.group(unit)
        control_groups.make(group)
        if group not in self._locks:
            lock = FolderLock.take(group)
            if lock is None:
                raise InputError(f"unit {unit.id!r}: its control group is another agent's: {group}")
            self._locks[group] = lock
        for left in group.iterdir():
            if left.is_dir():
                control_groups.end(left)
        limits = {
            "cpuset.cpus": ",".join(map(str, unit.cpus)),
            "memory.max": str(int(unit.mem * 2**20)) if unit.mem else "",
            # On shared cores GPU containers go before CPU containers: the largest weight that there is.
            "cpu.weight": "10000" if unit.shared else "",
        }
        control_groups.limit(group, limits)

    def enter(self, unit: ResourceUnit, id: str, pid: int) -> None:
        """Put a process, with all that it will start, into the container's group."""
        group = self.group(unit, id)
        control_groups.make(group)
        control_groups.enter(group, pid)

    def freeze(self, unit: ResourceUnit, id: str, pause: bool) -> None:
        """Pause all processes of the container, or resume them."""
        control_groups.freeze(self.group(unit, id), pause)

    def leave(self, unit: ResourceUnit, id: str) -> None:
        """Kill the remains of a container that has ended."""
        control_groups.end(self.group(unit, id))

    def remove(self, unit: ResourceUnit) -> None:
        """Remove the unit's group, when no container is left in it."""
        group = self.group(unit)
        lock = self._locks.pop(group, None)
        try:
            control_groups.remove(group)
        finally:
            if lock is not None:
                lock.release()

    def group(self, unit: ResourceUnit, id: str | None = None) -> Path:
        """Return the folder of a unit's group, or of a container's."""
        mine = self.root / f"flowsched-{control_groups.name(unit.id)}"
        return mine if id is None else mine / control_groups.name(id)
