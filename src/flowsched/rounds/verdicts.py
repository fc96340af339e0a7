"""Reasons for waiting: recorded at the end of a round, and put into words on request.

The cost of a round depends on its changes, although all waiting tasks have a reason.  To keep it low:

* The tasks of a class are a *queue*, see `flowsched.builder.queues`.
* The blockers of a class on all machines are a *sight*, which is kept for many rounds.  A round records the blockers
  on the few machines that have changed since, as a patch.
* Prices are recorded as reduced costs.

A record has no reference to anything that changes, and hence gives the same reasons at any later time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.builder import Builder
from flowsched.builder.queues import ClassQueue, QueuedTasks
from flowsched.builder.quotas import QuotaAccounts
from flowsched.cluster.limits import DEADLINE, FAILED, SPREAD, Blockers
from flowsched.cluster.model import Resources
from flowsched.cluster.records import JobRecord, TaskClass
from flowsched.cluster.shapes import Shapes
from flowsched.rounds.reasons import Groups, Rest, Verdict, Waiting, judge
from flowsched.rounds.values import Reason, ReasonCode

__all__ = ["NOBODY", "Verdicts"]

Ints = NDArray[np.int64]

_PATCH = 64
"""Largest number of machines in a patch; after more changes, the sights are made again."""

_COUNT, _SINCE = attrgetter("count"), attrgetter("since")

_NEVER = (ReasonCode.NEVER_FITS, ReasonCode.FILTERED)

_NO_PRICES: NDArray[np.float64] = np.zeros(0)
NOBODY = Waiting([])
"""No waiting tasks."""


@dataclass(frozen=True, slots=True)
class _Scene:
    """Machines and limits at one time.

    Attributes
    ----------
    shapes : Shapes
    blockers : Blockers
    resources : Resources
    looks : int
        See `ClassArcs.looks`.
    """

    shapes: Shapes
    blockers: Blockers
    resources: Resources
    looks: int


@dataclass(slots=True, eq=False)
class _Sight:
    """Blockers of one class on all machines of a scene, as of a value of `Inventory.clock`.

    Attributes
    ----------
    why : ndarray of uint32, shape (rows,)
    ever : ndarray of uint8, shape (shapes,)
        See `Suitability.ever`.
    since : int
        That value of the clock.
    known : tuple of (bytes, dict of ReasonCode or None to Verdict)
        Last verdicts, and the patch that they were for.
    """

    why: NDArray[np.uint32]
    ever: NDArray[np.uint8]
    since: int
    known: tuple[bytes, dict[ReasonCode | None, Verdict]]


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """Queues of all classes with waiting tasks, and data of them for each round.

    Attributes
    ----------
    queues : list of ClassQueue
    classes : list of TaskClass
    ids : list of int
    index : ndarray of int64, shape (queues,)
        Both are the indices of the classes.
    """

    queues: list[ClassQueue]
    classes: list[TaskClass]
    ids: list[int]
    index: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Record:
    """Record of a round.

    Attributes
    ----------
    scene : _Scene
    queues : list of QueuedTasks
    sights : list of _Sight
    rows : ndarray of int64, shape (n,)
        Machines of the patch.
    patch : ndarray of uint32, shape (queues, n)
        Blockers on these machines.
    roomy : list of bool
        True for each queue whose class had room at some time in the round.
    taken : list of int
        Rows where tasks started in the round.
    late : bool
        True if the time limit passed.
    prices : ndarray of float64
        Prices of the groups of roomy queues, one after the other; empty in a round that was late.
    held : dict of (int, int) to ReasonCode or Rest
        Groups, by queue and position there, that wait for another reason than their class.
    limited : set of int
        Queues with groups that wait for a quota.
    """

    scene: _Scene
    queues: list[QueuedTasks]
    sights: list[_Sight]
    rows: Ints
    patch: NDArray[np.uint32]
    roomy: list[bool]
    taken: list[int]
    late: bool
    prices: NDArray[np.float64]
    held: dict[tuple[int, int], ReasonCode | Rest]
    limited: set[int]

    def groups(self) -> list[tuple[tuple[Hashable, ...], Verdict | Rest, float | None]]:
        """Return the tasks of each group, with their common verdict and price."""
        found: list[tuple[tuple[Hashable, ...], Verdict | Rest, float | None]] = []
        prices, at = self.prices.tolist(), 0
        for i, queue in enumerate(self.queues):
            priced = self.roomy[i] and not self.late
            if not (self.roomy[i] or self.late or i in self.limited):
                found.append((queue.ids, self._verdict(i), None))
                continue
            verdict, ids = self._of_class(i), iter(queue.ids)
            for j, size in enumerate(queue.sizes.tolist()):
                code = self.held.get((i, j))
                some = tuple(islice(ids, size))
                why = verdict if code is None else self._of_group(i, code, verdict)
                found.append((some, why, prices[at + j] if priced else None))
            at += len(queue.sizes) if priced else 0
        return found

    def codes(self) -> dict[str, int]:
        """Return the number of tasks by reason code."""
        found: Counter[str] = Counter()
        for i, queue in enumerate(self.queues):
            found[self._of_class(i).said.value] += queue.count
        for (i, j), code in self.held.items():
            size, verdict = int(self.queues[i].sizes[j]), self._of_class(i)
            found[verdict.said.value] -= size
            found[self._of_group(i, code, verdict).said.value] += size
        return dict(+found)

    def _of_class(self, i: int) -> Verdict:
        return self._verdict(i, self._code(i) if self.roomy[i] or self.late else None)

    def _of_group(self, i: int, code: ReasonCode | Rest, verdict: Verdict) -> Verdict | Rest:
        """Return the verdict on a group that waits for another reason than its class, which has this verdict."""
        if isinstance(code, ReasonCode):
            return self._verdict(i, code)
        return verdict if verdict.said in _NEVER else code

    def _code(self, i: int) -> ReasonCode | None:
        """Return the code of a class that had room; None if its blockers determine it."""
        why = self._why(i)[0]
        if (why == 0).any():
            return ReasonCode.TIME_LIMIT if self.late else ReasonCode.WAIT_CHEAPER
        # Otherwise the room was there only for a while, made by stops for tasks that did not start after all.
        outbid = self.roomy[i] and (self.sights[i].ever[self.scene.shapes.of_row[self.taken]] == 2).any()
        return ReasonCode.OUTBID if outbid and not np.isin(why, (SPREAD, DEADLINE, FAILED)).any() else None

    def _why(self, i: int) -> tuple[NDArray[np.uint32], bytes]:
        """Return the blockers of a class on all machines, and the differences from its sight."""
        why = self.sights[i].why
        other = self.patch[i] != why[self.rows]
        if not other.any():
            return why, b""
        rows, patch = self.rows[other], self.patch[i, other]
        why = why.copy()
        why[rows] = patch
        return why, rows.tobytes() + patch.tobytes()

    def _verdict(self, i: int, code: ReasonCode | None = None) -> Verdict:
        """Return the verdict on a class, from an earlier round if nothing has changed for it."""
        sight, scene = self.sights[i], self.scene
        why, patch = self._why(i)
        known = sight.known
        if known[0] != patch:
            known = sight.known = patch, {}
        verdict = known[1].get(code)
        if verdict is None:
            cls = self.queues[i].cls
            verdict = Verdict(cls, why, scene.blockers, scene.shapes, sight.ever, scene.resources, code)
            known[1][code] = verdict
        return verdict


class Verdicts:
    """Reasons why tasks wait.

    Parameters
    ----------
    builder : Builder
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.cluster = builder.cluster
        self._line: _Line | None = None
        self._sights: dict[TaskClass, _Sight] = {}
        self._scene: _Scene | None = None

    def waiting(
        self,
        had_room: set[int],
        late: bool,
        short: Collection[JobRecord],
        withheld: Collection[Hashable] = (),
        taken: Callable[[], list[int]] = list,
    ) -> Waiting:
        """Return the tasks that wait at the end of the transaction, and their reasons.

        Parameters
        ----------
        had_room : set of int
            Classes, by index, that had room at some time in the round.
        late : bool
            True if the time limit passed.
        short : collection of JobRecord
            Gangs that fell short.
        withheld : collection of hashable
            Tasks that start after runs have stopped.
        taken : callable
            Returns the rows where tasks started.
        """
        rest = self._rest(withheld) if withheld or self.cluster.resting else []
        if not self.cluster.waiting:
            self._line = None
            return Waiting(rest, sum([len(ids) for ids, _, _ in rest])) if rest else NOBODY
        return self._taken_down(had_room, late, short, withheld, rest, taken)

    def _taken_down(
        self,
        had_room: set[int],
        late: bool,
        short: Collection[JobRecord],
        withheld: Collection[Hashable],
        rest: Groups,
        taken: Callable[[], list[int]],
    ) -> Waiting:
        """Record the result of `waiting`, where some tasks wait for room."""
        line = self._in_line()
        queues = line.queues
        roomy = [class_id in had_room for class_id in line.ids]
        outbid = list(range(len(queues))) if late else [i for i, had in enumerate(roomy) if had]
        scene, sights, rows, patch = self._look(line, outbid)
        held, quotas = self._held([(i, queues[i]) for i in outbid], late, short), self.builder.quotas
        limited = set() if quotas is None else self._hold_by_quotas(quotas, queues, held)
        prices = _NO_PRICES
        if outbid and not late:
            prices = self.builder.prices(np.concatenate([queues[i].arcs for i in outbid]))
        tasks = [queue.cached or queue.tasks for queue in queues]
        started = taken() if outbid else []
        record = _Record(scene, tasks, sights, rows, patch, roomy, started, late, prices, held, limited)
        count = sum(map(_COUNT, tasks))
        if rest:
            count += len(self.cluster.resting)
            return Waiting(lambda: [*_without(withheld, record.groups()), *rest], count)
        return Waiting(record.groups, count, record.codes)

    def _rest(self, withheld: Collection[Hashable]) -> Groups:
        """Return the resting tasks, and those withheld."""
        resting = self.cluster.resting
        stopping = (*withheld, *(id for id, due in resting.items() if due == inf))
        backing_off = tuple(id for id, due in resting.items() if due != inf)
        codes = ((backing_off, ReasonCode.BACKOFF), (stopping, ReasonCode.STOPPING))
        return [(ids, Rest(code), None) for ids, code in codes if ids]

    def _held(
        self, queues: Sequence[tuple[int, ClassQueue]], late: bool, short: Collection[JobRecord]
    ) -> dict[tuple[int, int], ReasonCode | Rest]:
        shares = self.builder.shares
        if not short and (late or not shares.limit):
            return {}
        held: dict[tuple[int, int], ReasonCode | Rest] = {}
        for i, queue in queues:
            for j, group in enumerate(queue.groups):
                if group.job in short:
                    held[i, j] = ReasonCode.GANG_SHORT
                elif not late and shares.full(group.job):
                    held[i, j] = ReasonCode.SHARE
        return held

    @staticmethod
    def _hold_by_quotas(
        quotas: QuotaAccounts, queues: Sequence[ClassQueue], held: dict[tuple[int, int], ReasonCode | Rest]
    ) -> set[int]:
        """Record the groups that quotas keep waiting, with priority over other reasons; return their queues."""
        quotas.look()
        limited: set[int] = set()
        for i, queue in enumerate(queues):
            for j, group in enumerate(queue.groups):
                if lacks := quotas.short(group):
                    held[i, j] = Rest(ReasonCode.QUOTA, tuple(lacks))
                    limited.add(i)
        return limited

    def _in_line(self) -> _Line:
        queues, known = self.builder.queues.all(), self._line
        if known is None or queues != known.queues:
            classes = [queue.cls for queue in queues]
            ids = [cls.index for cls in classes]
            known = self._line = _Line(queues, classes, ids, np.array(ids, np.int64))
        return known

    def _look(self, line: _Line, outbid: Sequence[int]) -> tuple[_Scene, list[_Sight], Ints, NDArray[np.uint32]]:
        """Return sights of the classes, and the blockers that have changed since; for outbid classes at the present time.

        Blockers of the other classes are as of the last `ClassArcs.refresh`.
        """
        inventory, arcs = self.cluster.inventory, self.builder.classes
        scene, index, some = self._scene_now(), line.index, np.array(outbid, np.int64)
        cursors = arcs.cursors(index)
        now = int(cursors[some].min()) if outbid else inventory.clock
        for again in (False, True):
            sights = self._sights_of(line.classes, cursors)
            rows = inventory.changed_since(min(now, *map(_SINCE, sights)))
            if again or len(rows) <= _PATCH:
                break
            self._sights.clear()
        patch = arcs.blockers(index, rows)
        later = inventory.newer(rows, now)
        if outbid and later.any():
            columns = np.flatnonzero(later)
            patch[some[:, None], columns] = inventory.room(index[some], rows[columns])[1]
        return scene, sights, rows, patch

    def _scene_now(self) -> _Scene:
        inventory, looks = self.cluster.inventory, self.builder.classes.looks
        scene, shapes = self._scene, inventory.shapes()
        if (
            scene is None
            or scene.shapes is not shapes
            or scene.blockers is not inventory.blockers
            or scene.looks != looks
        ):
            scene = self._scene = _Scene(shapes, inventory.blockers, inventory.resources, looks)
            self._sights.clear()
        return scene

    def _sights_of(self, classes: Sequence[TaskClass], cursors: Ints) -> list[_Sight]:
        known, inventory = self._sights, self.cluster.inventory
        if list(known) == classes:
            return list(known.values())
        sights: dict[TaskClass, _Sight] = {}
        for i, cls in enumerate(classes):
            sight = known.get(cls)
            if sight is None:
                why, ever = self.builder.classes.why(cls.index), inventory.suitability.ever(cls.index)
                sight = _Sight(why, ever, int(cursors[i]), (b"", {}))
            sights[cls] = sight
        self._sights = sights
        return list(sights.values())

    def explain(self, task: Hashable, machine: Hashable | None = None) -> Reason:
        """Explain why a task waits, see `Scheduler.explain`."""
        record = self.cluster.task(task)
        row = None if machine is None else self.cluster.machine(machine).row
        if record.place is not None and row in (None, record.place.row):
            return Reason(ReasonCode.RUNNING)
        if task in self.cluster.resting:
            stops = self.cluster.resting[task] == inf
            return Rest(ReasonCode.STOPPING if stops else ReasonCode.BACKOFF).reason()
        inventory, cls = self.cluster.inventory, record.group.cls
        shapes = inventory.shapes()
        if row is None:
            (why,) = self.builder.classes.blockers_now([cls.index])
        else:
            shapes = Shapes(shapes.of_row[[row]], shapes.keys)
            why = inventory.room(np.array([cls.index]), np.array([row]))[1][0]
        code = None
        if (why[shapes.of_row >= 0] == 0).any():
            code = ReasonCode.SHARE if self.builder.shares.full(record.group.job) else ReasonCode.PENDING
            code = ReasonCode.GANG_SHORT if record.group in self.builder.left_out else code
        verdict, quotas = judge(inventory, cls, why, code, shapes), self.builder.quotas
        if quotas is not None and verdict.said not in _NEVER:
            quotas.look()
            if lacks := quotas.short(record.group):
                return Rest(ReasonCode.QUOTA, tuple(lacks)).reason()
        return verdict.reason()


def _without(withheld: Collection[Hashable], groups: Groups) -> Groups:
    """Return groups without these tasks."""
    if not withheld:
        return groups
    return [(tuple(id for id in ids if id not in withheld), verdict, price) for ids, verdict, price in groups]
