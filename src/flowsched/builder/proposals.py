"""A proposal of the flow: tasks of a class to start."""

from __future__ import annotations

from dataclasses import dataclass

from flowsched.cluster.records import Group, TaskClass

__all__ = ["ClassFlow"]


@dataclass(slots=True)
class ClassFlow:
    """Proposal for a class.

    Attributes
    ----------
    cls : TaskClass
    groups : list of (Group, int)
        Groups, and tasks of each that start anywhere.
    rows : list of (int, int)
        Machines, and how many of these tasks each takes.
    near : list of (Group, int, int, int)
        Group, machine, how many more tasks start there since their data is near, and the cost of the distance.
    displacing : list of int
        Machines that take one more task each, if others make room.
    standing : (int, int)
        Priority and age: of two proposals for one machine, the one of lower standing goes first at any cost.
    size : float
        Largest part of any resource of the whole cluster that a task takes; 0 for a proposal that is alone.
    rank : int
        Orders proposals of one standing and size as `TaskClass.rank` does; 0 for a proposal that is alone.
    """

    cls: TaskClass
    groups: list[tuple[Group, int]]
    rows: list[tuple[int, int]]
    near: list[tuple[Group, int, int, int]]
    displacing: list[int]
    standing: tuple[int, int]
    size: float = 0.0
    rank: int = 0
