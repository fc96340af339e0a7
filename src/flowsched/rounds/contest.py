"""One machine to which the flow sends tasks of many classes: the few classes of which any can start there.

In a full cluster the tasks of nearly all waiting classes fit on a machine where one task has ended, each by itself, and
the flow sends them all there.  The rules of `flowsched.rounds.packing` let one of them start, and the others have no room
then.  Which one that is follows from the first tasks in line, so the other classes need not be tried one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import flowsched._pairs as _pairs
from flowsched.builder.builder import Builder
from flowsched.builder.scope import RoundScope

__all__ = ["Contest", "contest"]

_MANY = 8
"""Fewer classes are tried one by one."""

_FIRST = 2
"""What `_pairs.contest` says of the class of the first task."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Classes whose tasks the flow sends to one machine.

    Attributes
    ----------
    row : int
        The machine.
    kept : list of int
        Classes to try: that of the first task in line, and those that find room beside it.
    dropped : list of int
        The others.
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
    """Return which classes to try; None where that does not follow from the first tasks, so that all are to be tried.

    Parameters
    ----------
    builder : Builder
    scope : RoundScope
    sent : mapping of int to sequence of (int, int)
        By class, the machines to which the flow sends tasks, and how many.
    preempts : callable
        Returns True if others may have to go for tasks of a priority.
    """
    inventory, heads = builder.cluster.inventory, builder.heads
    if len(sent) < _MANY or inventory.rule is not None or inventory.constraints:
        return None
    if scope.urged or scope.now < heads.latest:
        return None
    machines = {row for there in sent.values() for row, _ in there}
    if len(machines) > 1 or any(group.cls.index in sent for group in scope.withheld):
        return None
    index = np.fromiter(sent, np.int64, len(sent))
    if preempts(int(inventory.priority[index].min())) or not heads.look(index, builder.class_of):
        return None
    units, (row,) = np.array([there[0][1] for there in sent.values()]), machines
    tried = _pairs.contest(inventory, builder.classes, heads, index, units, heads.ends, row, scope.now)
    if tried is None:
        return None
    kept: list[int] = []
    dropped: list[int] = []
    for class_id, how in zip(sent, tried, strict=True):
        (kept if how else dropped).append(class_id)
        if how == _FIRST and (inventory.affinity.heeds(class_id) or inventory.device_share(class_id)):
            return None  # there may be no room for it after all
    return Contest(row, kept, dropped)
