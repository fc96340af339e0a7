"""A proposal of the flow: tasks of a class to start."""

from __future__ import annotations

from typing import Any

from flowsched.cluster.records import Group, TaskClass, TaskRecord

__all__ = ["ClassFlow", "tasks_of"]


class ClassFlow:
    """Proposal for a class.

    Attributes
    ----------
    cls : TaskClass
    groups : list of (Group, int)
        Groups, and the number of tasks of each that may start anywhere.
    rows : list of (int, int)
        Machines, and the number of these tasks that each takes.
    near : list of (Group, int, int, int)
        Group, machine, number of further tasks that start there near their data, and the cost of the distance.
    displacing : list of int
        Machines that take one more task each if others make room.
    standing : (int, int)
        Priority and age: of two proposals for one machine, the one of lower standing goes first at any cost.
    size : float
        Largest part of any resource of the whole cluster that a task takes; 0 for a single proposal.
    rank : int
        Order of proposals of one standing and size, like `TaskClass.rank`; 0 for a single proposal.
    """

    def __init__(
        self,
        cls: TaskClass,
        groups: list[tuple[Group, int]],
        rows: list[tuple[int, int]],
        near: list[tuple[Group, int, int, int]],
        displacing: list[int],
        standing: tuple[int, int],
        size: float = 0.0,
        rank: int = 0,
    ) -> None:
        self.cls, self.groups, self.rows, self.near, self.displacing = cls, groups, rows, near, displacing
        self.standing, self.size, self.rank = standing, size, rank

    def replace(self, **other: Any) -> ClassFlow:
        """Return a copy in which some attributes have other values."""
        names = "cls", "groups", "rows", "near", "displacing", "standing", "size", "rank"
        return ClassFlow(**{name: other.get(name, getattr(self, name)) for name in names})

    def in_line(self) -> tuple[list[TaskRecord], list[tuple[int, int]]]:
        """Return its tasks, none of them near data, and the machines in their order."""
        rows = [*self.rows, *[(row, 1) for row in self.displacing]] if self.displacing else self.rows
        return tasks_of(self.groups, {}), rows


def flow_of(
    cls: TaskClass,
    groups: list[tuple[Group, int]],
    rows: list[tuple[int, int]],
    near: list[tuple[Group, int, int, int]],
    displacing: list[int],
    standing: tuple[int, int],
) -> ClassFlow:
    """Return a single proposal, by fewer steps than its constructor."""
    flow = ClassFlow.__new__(ClassFlow)
    flow.cls, flow.groups, flow.rows, flow.near, flow.displacing = cls, groups, rows, near, displacing
    flow.standing, flow.size, flow.rank = standing, 0.0, 0
    return flow


def tasks_of(groups: list[tuple[Group, int]], taken: dict[int, int]) -> list[TaskRecord]:
    """Return `units` waiting tasks of each group by arrival, after those of the group (by serial) that are taken."""
    tasks: list[TaskRecord] = []
    for group, units in groups:
        first = taken.get(group.serial, 0) if taken else 0
        tasks += group.waiting.some(first, first + units)
    if len(groups) > 1:
        tasks.sort()
    return tasks
