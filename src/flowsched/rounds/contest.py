"""One machine to which the flow sends tasks of many classes: the few classes of which any can start there.

In a full cluster the tasks of nearly all waiting classes fit on a machine where one task has ended, each by itself, and
the flow sends them all there.  The rules of `flowsched.rounds.packing` let one of them start, and the others have no room
then.  Which one that is follows from the first tasks in line, so the other classes need not be tried one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.builder import Builder
from flowsched.builder.scope import RoundScope
from flowsched.rounds.packing import scarce

__all__ = ["Contest", "contest"]

Ints = NDArray[np.int64]

_MANY = 8
"""Fewer classes are tried one by one."""


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
    inventory = builder.cluster.inventory
    if len(sent) < _MANY or scope.urged or inventory.rule is not None:
        return None
    (row, _), *_ = next(iter(sent.values()))
    if {sent_to for there in sent.values() for sent_to, _ in there} != {row}:
        return None
    if any(group.cls.index in sent for group in scope.withheld):
        return None
    index = np.fromiter(sent, np.int64, len(sent))
    units = np.array([there[0][1] for there in sent.values()])
    priority, demand, free = inventory.priority[index], inventory.demand[index], inventory.free[row]
    if preempts(int(priority.min())):
        return None
    ages = builder.heads.ages(index, units, builder.class_of, scope.policy.waiting, scope.now)
    if ages is None:
        return None
    best = priority == priority.min()
    best &= ages == ages[best].max()
    first = _first(builder, index, np.flatnonzero(best))
    class_id = int(index[first])
    if inventory.device_share(class_id) or inventory.affinity.heeds(class_id):
        return None  # there may be no room for it after all
    fits = (demand <= free - demand[first]).all(axis=1)
    if (fits & ~best).any():
        return None
    # If there is room for all of them, the largest go first.
    if not (units[best] @ demand[best] > free).any() or not scarce(index[best], units[best], builder.classes, False):
        return None
    fits[first] = True
    return Contest(row, index[fits].tolist(), index[~fits].tolist())


def _first(builder: Builder, index: Ints, among: Ints) -> int:
    """Return the position of the class whose task is first in line; see `flowsched.rounds.packing`."""
    heads, inventory = builder.heads, builder.cluster.inventory
    for column in (heads.since, heads.job):
        some = column[index[among]]
        among = among[some == some.min()]
    if len(among) == 1:
        return int(among[0])
    ranks, found = builder.ranks(), index[among]
    rank = [ranks[builder.class_of[class_id]] for class_id in found.tolist()]
    size = [-part for part in inventory.sizes(found)]
    _, _, _, first = min(zip(size, rank, heads.turn[found].tolist(), among.tolist(), strict=True))
    return int(first)
