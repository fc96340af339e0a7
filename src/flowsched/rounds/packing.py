"""Order in which tasks of one priority and age start on the machines that the flow proposes for them.

A flow may propose more for one machine than fits together, since an arc has one number and a machine several
resources.  Such a machine is *contested*.  If the total room suffices for all proposals, the largest tasks go first,
since they find room in the fewest places.  If it does not, some must wait in any case, and the contested
machines are filled task by task:

1. Tasks are in line by arrival.  Of tasks that came at the same time, the one whose job came first is ahead, then the
   largest.  So the order of tasks in an event does not matter.
2. The first in line that finds room chooses a contested machine that the flow proposes for its class: the machine where
   the scarcest remaining resource is largest.
3. The first task of a machine is the one that chose it.  Each further task is one of the few first in line that fit there:
   the one that leaves most of the scarcest resource.  In case of a tie it is the one that leaves least of the most
   plentiful resource.

The rest is measured in parts of the machine.  The scarcest resource decides, since the machine is full without it,
whatever the rest of the others.  If it does not distinguish tasks, the more even room is better: memory without a core,
for example, serves no further task.  Other measures are in Panigrahy et al., "Heuristics for Vector Bin
Packing", 2011.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.class_arcs import ClassArcs
from flowsched.builder.proposals import ClassFlow, tasks_of
from flowsched.cluster._room import spacious
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.records import TaskRecord

__all__ = ["Refuse", "fill"]

Ints = NDArray[np.int64]

_CHOICE = 8
"""Number of tasks of different classes from which the next one is chosen (rule 3).

A small number keeps to the order of arrival, a large one starts more tasks.
"""

Start = Callable[[Sequence[TaskRecord], int], int]
"""Function that starts the given tasks on a machine in their order, as many as fit, and returns their number."""

StartRows = Callable[[list[TaskRecord], list[tuple[int, int]], int], int]
"""Function that starts tasks from a position on, at most the given number on each machine in turn.  It returns the
position of the first remaining task."""

StartApart = Callable[[list[TaskRecord], list[tuple[int, int]]], None]
"""Function that starts the given number of tasks on each machine; a task that one refuses goes to no other."""

Refuse = Callable[[Sequence[int], int], None]
"""Function that refuses tasks of classes (by index) at a machine with too little room for them."""


@dataclass(slots=True)
class _Queue:
    """Tasks of one class that are to start, the oldest first; tasks before `first` are done."""

    proposal: ClassFlow
    tasks: list[TaskRecord]
    first: int = 0
    _standing: tuple[Any, ...] | None = None

    @property
    def index(self) -> int:
        """Index of the class."""
        return self.proposal.cls.index

    @property
    def empty(self) -> bool:
        """True if no task is left."""
        return self.first == len(self.tasks)

    @property
    def standing(self) -> tuple[Any, ...]:
        """Sort key among queues: arrival of the first task, then job and size.

        The last task decides once the queue is empty.
        """
        if self._standing is None:
            task, of = self.tasks[self.first if self.first < len(self.tasks) else -1], self.proposal
            self._standing = task.since, task.group.job.serial, -of.size, of.rank, task.turn
        return self._standing

    def pop(self, count: int) -> None:
        """Remove the first tasks."""
        self._standing = None
        self.first += count

    def start(self, rows: list[tuple[int, int]], start_rows: StartRows) -> None:
        """Start the first tasks, with the given number on each machine."""
        self.pop(start_rows(self.tasks, rows, self.first) - self.first)


@dataclass(slots=True)
class _Offer:
    """Number of tasks of a queue that the flow sends to one machine."""

    queue: _Queue
    units: int

    def start(self, row: int, most: int, start: Start) -> None:
        """Start up to `most` of the tasks; a refusal ends the offer."""
        first = self.queue.first
        some = self.queue.tasks[first : first + min(most, self.units)]
        done = start(some, row)
        if done:
            self.queue.pop(done)
        self.units = self.units - done if done == len(some) else 0


def fill(
    proposals: Sequence[ClassFlow],
    classes: ClassArcs,
    start: Start,
    start_rows: StartRows,
    start_apart: StartApart,
    preempts: Callable[[], bool] | None,
    refuse: Refuse | None = None,
) -> None:
    """Start the tasks of proposals, which are of one priority and age, as far as they fit.

    Parameters
    ----------
    proposals : sequence of ClassFlow
        The largest tasks first.
    classes : ClassArcs
    start : callable
        See `Start`.
    start_rows : callable
        See `StartRows`.
    start_apart : callable
        See `StartApart`.
    preempts : callable or None
        Returns True if tasks of worse priority may have to stop for these.  None if these and others, which are refused,
        contest one machine.
    refuse : callable, optional
        See `Refuse`.
    """
    inventory = classes.cluster.inventory
    if len(proposals) == 1 and not proposals[0].near:  # no machine is contested
        start_rows(*proposals[0].in_line(), 0)
        return
    queues: list[tuple[_Queue, list[tuple[int, int]]]] = []
    for proposal in proposals:
        taken: dict[int, int] = {}
        for group, row, units, _ in proposal.near:
            first = taken.get(group.serial, 0)
            taken[group.serial] = first + units
            queues.append((_Queue(proposal, group.waiting[first : first + units]), [(row, units)]))
        queues.append((_Queue(proposal, tasks_of(proposal.groups, taken)), proposal.rows))
    rows = [row for _, there in queues for row, _ in there]
    contested, worse_leave = set(rows), False
    if preempts is not None:
        contested = _contested(queues, inventory) if len(contested) < len(rows) else set()
        worse_leave = bool(contested) and preempts()
        if contested and not _scarce(queues, classes, worse_leave):
            contested = set()
    apart: list[TaskRecord] = []
    where: list[tuple[int, int]] = []
    for queue, there in queues:
        own = [sent for sent in there if sent[0] not in contested] if contested else there
        if len(own) == 1 and own[0][1] == len(queue.tasks) and not queue.proposal.displacing:
            apart += queue.tasks  # no other machine remains for them
            where += own
            continue
        if where:
            start_apart(apart, where)
            apart, where = [], []
        queue.start(own, start_rows)
    start_apart(apart, where)
    if contested:
        some = [(row, _Offer(queue, units)) for queue, there in queues for row, units in there if row in contested]
        _fill_together(some, inventory, start, None if worse_leave else refuse)
    for queue, _ in queues:
        if queue.proposal.displacing:
            queue.start([(row, 1) for row in queue.proposal.displacing], start_rows)


def _contested(queues: Sequence[tuple[_Queue, list[tuple[int, int]]]], inventory: Inventory) -> set[int]:
    """Return the machines of several proposals whose resources may not suffice for all of them."""
    offers: dict[int, list[tuple[int, list[int]]]] = {}
    last, demand = None, []
    for queue, there in queues:
        if queue.proposal.cls is not last:
            last = queue.proposal.cls
            demand = last.demand.tolist()
        for row, units in there:
            offers.setdefault(row, []).append((units, demand))
    several = {row: some for row, some in offers.items() if len(some) > 1}
    if inventory.rule is not None:
        return set(several)
    found = set()
    for (row, some), free in zip(several.items(), inventory.free[list(several)].tolist(), strict=True):
        for units, demand in some:
            free = [amount - units * need for amount, need in zip(free, demand, strict=True)]
        if min(free) < 0:
            found.add(row)
    return found


def _scarce(queues: Sequence[tuple[_Queue, list[tuple[int, int]]]], classes: ClassArcs, preempts: bool) -> bool:
    """Return True if the proposals together need more of a resource than is free where any of them has room.

    Amounts of tasks of worse priority count as free if these may have to stop.
    """
    inventory = classes.cluster.inventory
    units: dict[int, int] = {}
    for queue, there in queues:
        units[queue.index] = units.get(queue.index, 0) + sum([some for _, some in there])
    index = np.array(list(units), np.int64)
    demand = inventory.demand[index]
    asked = np.array(list(units.values())) @ demand
    if preempts:
        running = inventory.tasks.class_id[inventory.tasks.row >= 0]
        worse = running[inventory.priority[running] > inventory.priority[index].min()]
        asked = asked - inventory.demand[worse].sum(axis=0)
    free = inventory.free[: inventory.rows]
    # Few machines have room for so large a demand, and others have none.
    known = inventory.rule is None and classes.cursors(index).min() == inventory.clock
    if known and (asked > spacious(inventory, demand.min(axis=0))).any():
        return True
    return bool((asked > free[classes.roomy_rows(index)].sum(axis=0)).any())


class _Rooms:
    """Room that the first task of each offer would leave.

    A start changes the room of its machine only.

    Attributes
    ----------
    offers : list of _Offer
    rows : list of int
        Machine of each offer.
    at_row : dict of int to list of int
        Offers that may start a task, by machine; none is empty.
    least : ndarray of float64
        Remaining part of the scarcest resource of the machine; negative where the task may not start.
    low, most : ndarray of float64
        Remaining parts of the scarcest and of the most plentiful resource.  If a rule lets tasks exceed the capacity,
        `low` is negative and `least` is 0; otherwise they are equal.
    """

    def __init__(self, offers: Sequence[tuple[int, _Offer]], inventory: Inventory) -> None:
        self.inventory = inventory
        self.offers = [offer for _, offer in offers]
        self.rows = [row for row, _ in offers]
        self.at_row: dict[int, list[int]] = {}
        for at, row in enumerate(self.rows):
            self.at_row.setdefault(row, []).append(at)
        whole = inventory.capacity[self.rows]
        self._whole = np.where(whole > 0, whole, np.nan)
        self._demand = inventory.demand[[offer.queue.index for offer in self.offers]]
        self._begun: set[int] = set()
        self.least, self.low, self.most = self._look(np.arange(len(offers)), np.array(self.rows))

    def _look(self, at: Ints, row: int | Ints) -> tuple[NDArray[np.float64], ...]:
        part = (self.inventory.free[row] - self._demand[at]) / self._whole[at]
        low = np.fmin.reduce(part, 1)
        return low if self.inventory.rule is None else np.fmax(low, 0.0), low, np.fmax.reduce(part, 1)

    def start(self, at: int, start: Start) -> None:
        """Start the task of an offer on its machine, or another one that goes first there."""
        row = self.rows[at]
        if row in self._begun:
            at = self._next(self.at_row[row])
        self._begun.add(row)
        self.offers[at].start(row, 1, start)
        same = self.at_row[row]
        if not self.offers[at].units:
            same.remove(at)
            self.least[at] = -1.0
        if same:
            some = np.array(same)
            self.least[some], self.low[some], self.most[some] = least, _, _ = self._look(some, row)
            self.at_row[row] = same = some[least >= 0].tolist()
        if not same:
            del self.at_row[row]

    def _next(self, same: list[int]) -> int:
        """Return the task that leaves the best room, of the first few in line on a machine."""
        line = [
            (self.offers[at].queue.standing, low, -most, at)
            for at, low, most in zip(same, self.low[same].tolist(), self.most[same].tolist(), strict=True)
            if not self.offers[at].queue.empty
        ]
        line.sort()
        return max(line[:_CHOICE], key=itemgetter(1, 2))[3]


def _fill_together(
    offers: Sequence[tuple[int, _Offer]], inventory: Inventory, start: Start, refuse: Refuse | None
) -> None:
    """Fill machines with the tasks in line, as long as one fits."""
    rooms = _Rooms(offers, inventory)
    line = []
    begin = 0
    for end, offer in enumerate(rooms.offers, 1):
        if end == len(offers) or rooms.offers[end].queue is not offer.queue:
            line.append((offer.queue.standing, begin, end))
            begin = end
    heapify(line)
    while line and rooms.at_row:
        standing, begin, end = line[0]
        queue = rooms.offers[begin].queue
        at = begin if end == begin + 1 else begin + int(rooms.least[begin:end].argmax())
        if queue.empty or rooms.least[at] < 0:
            heappop(line)
            continue
        if standing == queue.standing:
            rooms.start(at, start)
        if queue.standing != standing:
            heapreplace(line, (queue.standing, begin, end))
    left: dict[int, list[_Offer]] = {}
    for row, offer in offers:
        if offer.units and not offer.queue.empty:
            left.setdefault(row, []).append(offer)
    for row, some in left.items():
        if refuse is not None:
            refuse([offer.queue.index for offer in some], row)
        else:  # some may find room where tasks of worse priority leave
            for offer in sorted(some, key=lambda offer: offer.queue.standing):
                offer.start(row, offer.units, start)
