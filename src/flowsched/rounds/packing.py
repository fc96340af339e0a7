"""The order in which tasks of one priority and age start on the machines that the flow proposes for them.

A flow may propose more for one machine than fits together, since an arc is one whole number and a machine has several
resources.  Such a machine is *contested*.  If there is room for all that is proposed, seen as a whole, the largest tasks
go first, since they find room in the fewest places.  If there is not, some must wait whatever is done, and the contested
machines are filled task by task:

1. Tasks are in line by arrival.  Of those that came at the same time, the one whose job came first is ahead, then the
   largest.  So the order of tasks in an event does not matter.
2. The first in line that finds room chooses its machine, of the contested ones that the flow proposes for its class: the
   one where it leaves most of the resource of which it leaves least.
3. The first task of a machine is the one that chose it.  Each further task is, of the few first in line that fit there,
   the one that leaves the best room: much of the resource of which it leaves least, and little more of the others.

Room is measured in parts of the machine.  Uneven room, such as memory without a core, serves no further task; so vector
bin packing balances it (Panigrahy et al., "Heuristics for Vector Bin Packing", 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flowsched._pairs as _pairs
from flowsched.builder.class_arcs import ClassArcs
from flowsched.builder.proposals import ClassFlow
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.records import TaskRecord

__all__ = ["fill", "scarce", "start_all"]

Ints = NDArray[np.int64]

_CHOICE = 8
"""Number of tasks, of different classes, of which the one that leaves the best room is next.

A small number keeps to the order of arrival, a great one starts more tasks.
"""

Start = Callable[[Sequence[TaskRecord], int], int]
"""Starts as many of some tasks as it can on a machine, the first ones, and returns their number."""

Refuse = Callable[[Sequence[int], int], None]
"""Refuses tasks of classes (by index) at a machine that has too little room for them."""


class _Queue:
    """Tasks of one class that are to start, the oldest first; those in front of `first` are out.

    Attributes
    ----------
    proposal : ClassFlow
    index : int
        Of the class.
    tasks : list of TaskRecord
    first : int
    """

    __slots__ = ("_standing", "first", "index", "proposal", "tasks")

    def __init__(self, proposal: ClassFlow, tasks: list[TaskRecord]) -> None:
        self.proposal, self.index, self.tasks, self.first = proposal, proposal.cls.index, tasks, 0
        self._standing: tuple[Any, ...] | None = None

    @property
    def empty(self) -> bool:
        """True if no task is left."""
        return self.first == len(self.tasks)

    @property
    def standing(self) -> tuple[Any, ...]:
        """Orders the queue among others: by arrival of its first task, and what came at the same time by job and size.

        That of the last task once there is none.
        """
        if self._standing is None:
            task, of = self.tasks[self.first], self.proposal
            self._standing = task.since, task.group.job.serial, -of.size, of.rank, task.turn
        return self._standing

    def pop(self, count: int) -> None:
        """Take the first tasks away."""
        self._standing = self.standing if self.first + count == len(self.tasks) else None
        self.first += count


class _Offers:
    """Machines to which the flow sends tasks of queues.

    Parameters
    ----------
    start : callable
        See `Start`.
    of : iterable of (_Queue, int, int)
        Queue, machine, and the number of tasks.

    Attributes
    ----------
    queues : list of _Queue
    rows : list of int
    units : list of int
        The three of each offer, by its position; the offers of a queue are beside each other.
    """

    __slots__ = ("_start", "queues", "rows", "units")

    def __init__(self, start: Start, of: Iterable[tuple[_Queue, int, int]] = ()) -> None:
        self._start = start
        self.queues: list[_Queue] = []
        self.rows: list[int] = []
        self.units: list[int] = []
        for queue, row, units in of:
            self.add(queue, row, units)

    def add(self, queue: _Queue, row: int, units: int) -> None:
        """Append an offer."""
        self.queues.append(queue)
        self.rows.append(row)
        self.units.append(units)

    def at_row(self) -> dict[int, list[int]]:
        """Return the positions of the offers by machine."""
        found: dict[int, list[int]] = {}
        for at, row in enumerate(self.rows):
            found.setdefault(row, []).append(at)
        return found

    def asked(self) -> tuple[Ints, Ints]:
        """Return the classes, and how many tasks of each are to start."""
        found: dict[int, int] = {}
        for queue, units in zip(self.queues, self.units, strict=True):
            found[queue.index] = found.get(queue.index, 0) + units
        return np.array(list(found)), np.array(list(found.values()))

    def start(self, at: int, most: int) -> None:
        """Start some tasks of an offer; it is over where one is refused."""
        queue, units = self.queues[at], self.units[at]
        some = queue.tasks[queue.first : queue.first + min(most, units)]
        done = self._start(some, self.rows[at])
        if done:
            queue.pop(done)
        self.units[at] = units - done if done == len(some) else 0


def fill(
    proposals: Sequence[ClassFlow],
    classes: ClassArcs,
    start: Start,
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
    preempts : callable or None
        Returns True if tasks of worse priority may have to go for these.  None where these and others, all refused, contest
        one machine, and some must wait.
    refuse : callable, optional
        See `Refuse`.
    """
    inventory = classes.cluster.inventory
    if len(proposals) == 1 and not proposals[0].near:  # no machine is contested
        start_all(proposals[0], start)
        return
    offers, displacing = _Offers(start), _Offers(start)
    for proposal in proposals:
        taken: dict[int, int] = {}
        for group, row, units, _ in proposal.near:
            first = taken.get(group.serial, 0)
            taken[group.serial] = first + units
            offers.add(_Queue(proposal, group.waiting[first : first + units]), row, units)
        if len(proposal.groups) == 1 and not taken:
            ((group, units),) = proposal.groups
            tasks = [group.waiting[0]] if units == 1 else group.waiting[:units]
        else:
            tasks = []
            for group, units in proposal.groups:
                first = taken.get(group.serial, 0)
                tasks += group.waiting[first : first + units]
            tasks.sort(key=attrgetter("turn"))
        queue = _Queue(proposal, tasks)
        for row, units in proposal.rows:
            offers.add(queue, row, units)
        for row in proposal.displacing:
            displacing.add(queue, row, 1)
    at_row = offers.at_row()
    worse_leave = False
    if preempts is None:
        contested = set(at_row)
    else:
        contested = {row for row, some in at_row.items() if len(some) > 1 and _contested(offers, some, row, inventory)}
        worse_leave = bool(contested) and preempts()
        if contested and not scarce(*offers.asked(), classes, worse_leave):
            contested = set()
    if len(contested) < len(at_row):
        for at, row in enumerate(offers.rows):
            if row not in contested:
                offers.start(at, offers.units[at])
        sent = zip(offers.queues, offers.rows, offers.units, strict=True)
        offers = _Offers(start, (offer for offer in sent if offer[1] in contested))
    if contested:
        _fill_together(offers, inventory, None if worse_leave else refuse)
    for at in range(len(displacing.rows)):
        displacing.start(at, 1)


def start_all(proposal: ClassFlow, start: Start) -> None:
    """Start the tasks of a proposal, none of them near their data, on the machines in their order."""
    groups, rows = proposal.groups, proposal.rows
    if len(groups) == 1:
        ((group, units),) = groups
        tasks = [group.waiting[0]] if units == 1 else group.waiting[:units]
    else:
        tasks = [task for group, units in groups for task in group.waiting[:units]]
        tasks.sort(key=attrgetter("turn"))
    if proposal.displacing:
        rows = [*rows, *((row, 1) for row in proposal.displacing)]
    first = 0
    for row, units in rows:
        if first == len(tasks):
            break
        first += start(tasks[first : first + units], row)


def _contested(offers: _Offers, some: Sequence[int], row: int, inventory: Inventory) -> bool:
    """Return True if the resources of a machine may not suffice for all of several offers."""
    if inventory.rule is not None:
        return True
    free = inventory.free[row].tolist()
    for at in some:
        units = offers.units[at]
        for d, need in enumerate(offers.queues[at].proposal.cls.demand.tolist()):
            free[d] -= units * need
            if free[d] < 0:
                return True
    return False


def scarce(index: Ints, units: Ints, classes: ClassArcs, preempts: bool) -> bool:
    """Return True if so many tasks of classes ask for more of a resource than is free where any of it has room.

    What tasks of worse priority have counts as free where these may have to go.
    """
    inventory = classes.cluster.inventory
    demand = inventory.demand[index]
    asked = units @ demand
    if preempts:
        running = inventory.tasks.class_id[inventory.tasks.row >= 0]
        worse = running[inventory.priority[running] > inventory.priority[index].min()]
        asked = asked - inventory.demand[worse].sum(axis=0)
    free = inventory.free[: inventory.rows]
    # Few machines have that much where much waits, and no others have room.
    known = inventory.rule is None and classes.cursors(index).min() == inventory.clock
    if known and (asked > _pairs.spacious(inventory, demand.min(axis=0))).any():
        return True
    free = free[classes.offers(index).any(axis=0)].sum(axis=0)
    return bool((asked > free).any())


class _Rooms:
    """Rooms that the first task of each offer would leave.

    A start changes the rooms of its machine, and no others.

    Attributes
    ----------
    offers : _Offers
    at_row : dict of int to list of int
        By machine, the positions of offers that may start a task; none is empty.
    least : ndarray of float64
        Part of the machine that is left of the resource of which least is left; negative where the task may not start.
    room : ndarray of float64
        `least`, minus the difference between the resources of which most and least is left.
    """

    def __init__(self, offers: _Offers, inventory: Inventory) -> None:
        self.inventory = inventory
        self.offers = offers
        self.at_row = offers.at_row()
        rows = np.array(offers.rows)
        whole = inventory.capacity[rows]
        self._whole = np.where(whole > 0, whole, np.nan)
        self._demand = inventory.demand[[queue.index for queue in offers.queues]]
        self._begun: set[int] = set()
        self.least, self.room = self._look(slice(None), rows)

    def _look(self, at: Ints | slice, row: int | Ints) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        part = (self.inventory.free[row] - self._demand[at]) / self._whole[at]
        least = np.fmin.reduce(part, 1)
        room = 2 * least - np.fmax.reduce(part, 1)
        return least if self.inventory.rule is None else np.fmax(least, 0.0), room

    def start(self, at: int) -> None:
        """Start the task of an offer on its machine, or another one that goes first there."""
        row = self.offers.rows[at]
        if row in self._begun:
            at = self._next(self.at_row[row])
        self._begun.add(row)
        self.offers.start(at, 1)
        same = self.at_row[row]
        if not self.offers.units[at]:
            same.remove(at)
            self.least[at] = -1.0
        if same:
            some = np.array(same)
            self.least[some], self.room[some] = least, _ = self._look(some, row)
            self.at_row[row] = same = some[least >= 0].tolist()
        if not same:
            del self.at_row[row]

    def _next(self, same: list[int]) -> int:
        """Return, of the first few in line on a machine, the one that leaves the best room."""
        line = [
            (queue.standing, room, at)
            for at, room in zip(same, self.room[same].tolist(), strict=True)
            if not (queue := self.offers.queues[at]).empty
        ]
        line.sort()
        return max(line[:_CHOICE], key=itemgetter(1))[2]


def _fill_together(offers: _Offers, inventory: Inventory, refuse: Refuse | None) -> None:
    """Fill machines with the tasks in line, as long as one fits."""
    rooms, queues = _Rooms(offers, inventory), offers.queues
    line = []
    begin = 0
    for end in range(1, len(queues) + 1):
        if end == len(queues) or queues[end] is not queues[begin]:
            line.append((queues[begin].standing, begin, end))
            begin = end
    heapify(line)
    while line and rooms.at_row:
        standing, begin, end = line[0]
        queue = queues[begin]
        at = begin if end == begin + 1 else begin + int(rooms.least[begin:end].argmax())
        if queue.empty or rooms.least[at] < 0:
            heappop(line)
            continue
        if standing == queue.standing:
            rooms.start(at)
        if queue.standing != standing:
            heapreplace(line, (queue.standing, begin, end))
    left: dict[int, list[int]] = {}
    for at, (queue, row, units) in enumerate(zip(queues, offers.rows, offers.units, strict=True)):
        if units and not queue.empty:
            left.setdefault(row, []).append(at)
    for row, some in left.items():
        if refuse is not None:
            refuse([queues[at].index for at in some], row)
        else:  # of these, some may find room where tasks of worse priority leave
            for at in sorted(some, key=lambda at: queues[at].standing):
                offers.start(at, offers.units[at])
