"""What a flow proposes, class by class, and who of a class goes where for the sake of its data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flowsched.builder.locality import Near
from flowsched.builder.machines import MachineArcs
from flowsched.cluster.records import Group, TaskClass

__all__ = ["ClassFlow", "lead", "racks_of"]


@dataclass(frozen=True, slots=True)
class ClassFlow:
    """What the flow proposes for a class.

    Attributes
    ----------
    groups : list of (Group, int)
        How many tasks of each group start.
    rows : list of (int, int)
        How many of them on which machines.
    near : list of (Group, int, int, int)
        How many more of a group start on which machine, since their data is near, and what the distance to it costs.
    displacing : list of int
        Machines that take one more each, if somebody makes room.
    """

    cls: TaskClass
    groups: list[tuple[Group, int]]
    rows: list[tuple[int, int]]
    near: list[tuple[Group, int, int, int]]
    displacing: list[int]


def racks_of(near: Near, places: MachineArcs) -> list[int]:
    """Racks that flow enters otherwise than by the class's aggregator."""
    return [rack for rack, _, _ in near.racks] + [places.rack(row) for row, _, _ in near.rows]


def lead(
    led: Iterable[tuple[Group, Near]], rows: list[tuple[int, int]], places: MachineArcs
) -> tuple[list[tuple[Group, int, int, int]], list[tuple[int, int]]]:
    """Who goes to which machine for the sake of its data, and how many places of the class that leaves."""
    left = dict(rows)
    pairs: list[tuple[Group, int, int, int]] = []
    for group, near in led:
        for row, cost, units in near.rows:
            left[row] -= units
            pairs.append((group, row, units, cost))
    in_rack: dict[int, list[int]] = {}
    for row, units in left.items():
        if units:
            in_rack.setdefault(places.rack(row), []).append(row)
    for group, near in led:
        for rack, cost, units in near.racks:
            while units:
                row = in_rack[rack][-1]
                some = min(units, left[row])
                pairs.append((group, row, some, cost))
                units -= some
                left[row] -= some
                if not left[row]:
                    in_rack[rack].pop()
    return pairs, [(row, units) for row, units in left.items() if units]
