"""Selection of the few classes that can start on one machine to which the flow sends tasks of many.

In a full cluster the tasks of nearly all waiting classes fit on a machine where one task has ended, each alone, and
the flow sends them all there.  The rules of `flowsched.rounds.packing` start one of them, and the others then have no
room.  The first tasks in line determine it, so the other classes need not be tried one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import flowsched.rounds._contest as _contest
from flowsched.builder.builder import Builder
from flowsched.builder.scope import RoundScope

__all__ = ["Contest", "contest"]

_MANY = 8
"""Number of classes below which all are tried one by one."""

_FIRST = 2
"""Result of `_contest.contest` for the class of the first task."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Classes whose tasks the flow sends to one machine.

    Attributes
    ----------
    row : int
        The machine.
    kept : list of int
        Classes to try: that of the first task in line, and those with room next to it.
    dropped : list of int
        The other classes.
    """

    row: int
    kept: list[int]
    dropped: list[int]


def contest(
    builder: Builder,
    scope: RoundScope,
    sent: Mapping[int, Sequence[tuple[int, int]]],
    preempts: Callable[[int], bool],
) -> Contest | None:
    """Return the classes to try; None if the first tasks do not determine them, so that all must be tried.

    Parameters
    ----------
    builder : Builder
    scope : RoundScope
    sent : mapping of int to sequence of (int, int)
        Machines to which the flow sends tasks, and their numbers, by class.
    preempts : callable
        Returns True if others may have to stop for tasks of a priority.
    """
    inventory, heads = builder.cluster.inventory, builder.heads
    if len(sent) < _MANY or inventory.rule is not None or inventory.constraints:
        return None
    if scope.urged or scope.now < builder.latest:
        return None
    machines = {row for there in sent.values() for row, _ in there}
    if len(machines) > 1 or any(group.cls.index in sent for group in scope.withheld):
        return None
    index = np.fromiter(sent, np.int64, len(sent))
    if preempts(int(inventory.priority[index].min())) or not heads.look(index, builder.class_of):
        return None
    units, (row,) = np.array([there[0][1] for there in sent.values()]), machines
    tried = _contest.contest(inventory, builder.classes, heads, index, units, heads.ends, row, scope.now)
    if tried is None:
        return None
    kept: list[int] = []
    dropped: list[int] = []
    for class_id, how in zip(sent, tried, strict=True):
        (kept if how else dropped).append(class_id)
        if how == _FIRST and (inventory.affinity.heeds(class_id) or inventory.device_share(class_id)):
            return None  # it may have no room after all
    return Contest(row, kept, dropped)
