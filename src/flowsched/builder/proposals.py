"""Proposals of a flow: tasks to start, class by class, and the machines for those near their data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flowsched.builder.locality import Near
from flowsched.builder.racks import RackArcs
from flowsched.cluster.records import Group, TaskClass

__all__ = ["ClassFlow", "lead", "racks_of"]


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


def racks_of(near: Near, racks: RackArcs) -> list[int]:
    """Return the racks that flow enters otherwise than by the class's aggregator."""
    return [rack for rack, _, _ in near.racks] + [int(racks.of[row]) for row, _, _ in near.rows]


def lead(
    near: Iterable[tuple[Group, Near]], rows: list[tuple[int, int]], racks: RackArcs
) -> tuple[list[tuple[Group, int, int, int]], list[tuple[int, int]]]:
    """Divide the tasks of a class on machines into those that are near their data and the others.

    Parameters
    ----------
    near : iterable of (Group, Near)
    rows : list of (int, int)
        Machines, and tasks of the class there.
    racks : RackArcs

    Returns
    -------
    pairs : list of (Group, int, int, int)
        As `ClassFlow.near`.
    rows : list of (int, int)
        As `ClassFlow.rows`.
    """
    left = dict(rows)
    pairs: list[tuple[Group, int, int, int]] = []
    for group, flow in near:
        for row, cost, units in flow.rows:
            left[row] -= units
            pairs.append((group, row, units, cost))
    in_rack: dict[int, list[int]] = {}
    for row, units in left.items():
        if units:
            in_rack.setdefault(int(racks.of[row]), []).append(row)
    for group, flow in near:
        for rack, cost, units in flow.racks:
            while units:
                row = in_rack[rack][-1]
                some = min(units, left[row])
                pairs.append((group, row, some, cost))
                units -= some
                left[row] -= some
                if not left[row]:
                    in_rack[rack].pop()
    return pairs, [(row, units) for row, units in left.items() if units]
