"""Control groups (version 2) of units and containers: what affinity and process groups cannot do.

A unit's group holds its processes to its CPUs and memory, where the kernel gives it the controllers for that.  A
container's group, inside, also holds what has left its process group: it is frozen, and ends, with it.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from pathlib import Path

from flowsched.hrm.units import ResourceUnit

__all__ = ["Cgroups"]


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
        """Make the unit's group."""
        group = self.group(unit)
        group.mkdir(parents=True, exist_ok=True)
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
        group = self.group(unit, id)
        if group.exists():
            (group / "cgroup.kill").write_text("1")
            _remove(group)

    def remove(self, unit: ResourceUnit) -> None:
        """Remove the unit's group, when no container is left in it."""
        _remove(self.group(unit))

    def group(self, unit: ResourceUnit, id: str | None = None) -> Path:
        """The folder of a unit's group, or of a container's."""
        mine = self.root / f"flowsched-{_name(unit.id)}"
        return mine if id is None else mine / _name(id)


def _name(id: object) -> str:
    return str(id).replace("%", "%25").replace("/", "%2F")


def _remove(group: Path) -> None:
    """The kernel is done with those that were killed a moment later."""
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
