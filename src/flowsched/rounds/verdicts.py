"""Reasons for waiting: recorded at the end of a round, and put into words on request.

The cost of a round depends on its changes, although all waiting tasks have a reason.  To keep it low:

* The tasks of a class are a *queue*, see `flowsched.builder.queues`.  The queues stand in a *line*, which is kept for many
  rounds.  A round brings the classes that have changed up to date there, and copies the line.
* The blockers of a class on all machines are a *sight*, which is kept for many rounds.  A round records the blockers
  on the few machines that have changed since, as a patch.
* Prices are recorded as differences of reduced costs.

A record has no reference to anything that changes, and hence gives the same reasons at any later time.

The module is compiled; its types are in ``verdicts.pxd``.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from itertools import islice
from math import inf

import numpy as np
from numpy.typing import NDArray

from flowsched.builder._arcs import look
from flowsched.builder.builder import Builder
from flowsched.builder.queues import ClassQueue, QueuedTasks, Queues
from flowsched.builder.quotas import QuotaAccounts
from flowsched.cluster.limits import DEADLINE, FAILED, SPREAD, Blockers
from flowsched.cluster.model import Resources
from flowsched.cluster.records import JobRecord, TaskClass
from flowsched.cluster.shapes import Shapes
from flowsched.cluster.state import Cluster
from flowsched.rounds.reasons import Groups, Rest, Verdict, Waiting, judge
from flowsched.rounds.values import Reason, ReasonCode

__all__ = ["NOBODY", "Verdicts"]

Ints = NDArray[np.int64]

_PATCH = 128
"""Largest number of machines in a patch; after more changes, the sights are made again."""

_ALL = 1 << 62
"""No limit of that number."""

_NEVER = (ReasonCode.NEVER_FITS, ReasonCode.FILTERED)

_NOWHERE = array("q")
_NO_PRICES: NDArray[np.int64] = np.zeros(0, np.int64)
NOBODY = Waiting([])
"""No waiting tasks."""


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

    def __init__(self, shapes: Shapes, blockers: Blockers, resources: Resources, looks: int) -> None:
        self.shapes, self.blockers, self.resources, self.looks = shapes, blockers, resources, looks


class _Sight:
    """Blockers of one class on all machines of a scene, as of a value of `Inventory.clock`.

    Attributes
    ----------
    why : ndarray of uint32, shape (rows,)
    ever : ndarray of uint8, shape (shapes,)
        See `Suitability.ever`.
    since : int
        That value of the clock.
    patch : bytes
        Differences for which `verdicts` are.
    verdicts : dict of ReasonCode or None to Verdict
        Last verdicts.
    """

    def __init__(self, why: NDArray[np.uint32], ever: NDArray[np.uint8], since: int) -> None:
        self.why, self.ever, self.since = why, ever, since
        self.patch = b""
        self.verdicts: dict[ReasonCode | None, Verdict] = {}


class _Line:
    """Queues of all classes with waiting tasks, in the order of `Cluster.waiting`.

    Attributes
    ----------
    classes : list of TaskClass
    ids : list of int
    index : ndarray of int64, shape (classes,)
        Both are the indices of the classes.
    queues : list of ClassQueue
    tasks : list of QueuedTasks
    units, arcs : list of array of int64
        `QueuedTasks.units` and `ClassQueue.arcs`.
    count : int
        Number of all tasks.
    sights : list of _Sight or None
        Sights of the classes, never altered but replaced; None if they must be looked up.
    since : int
        Least `since` of them.
    rows : array of int64
        Machines that have changed since then, ascending, as of the value `upto` of the clock.
    """

    def __init__(self, queues: list[ClassQueue]) -> None:
        self.queues = queues
        self.classes = [queue.cls for queue in queues]
        self.ids = [queue.cls.index for queue in queues]
        self.index = np.array(self.ids, np.int64)
        self.tasks = [queue.tasks for queue in queues]
        self.units = [tasks.units for tasks in self.tasks]
        self.arcs = [queue.arcs for queue in queues]
        self.count = sum([tasks.count for tasks in self.tasks])
        self.sights: list[_Sight] | None = None
        self.since = self.upto = 0
        self.rows = _NOWHERE

    def holds(self, cluster: Cluster) -> bool:
        """Return True if the line has the classes of the cluster, and its queues are the cluster's."""
        if len(cluster.waiting) != len(self.classes) or cluster.queues.get(self.classes[0]) is not self.queues[0]:
            return False
        for i, cls in enumerate(cluster.waiting):
            if cls is not self.classes[i]:
                return False
        return True

    def refresh(self, queues: Queues) -> None:
        """Bring the classes that have changed up to date; the queue of one that has left and come again has changes."""
        for i, queue in enumerate(self.queues):
            if queue.changed or queue.cached is not self.tasks[i]:
                queue = queues.of(queue.cls)
                tasks = queue.tasks
                self.count += tasks.count - self.tasks[i].count
                self.queues[i], self.tasks[i], self.units[i], self.arcs[i] = queue, tasks, tasks.units, queue.arcs


class _Record:
    """Record of a round.

    Attributes
    ----------
    scene : _Scene
    queues : list of QueuedTasks
    sights : list of _Sight
    rows : array of int64, length n
        Machines of the patch.
    patch : ndarray of uint32, shape (queues, n)
        Blockers on these machines.
    roomy : list of bool
        True for each queue whose class had room at some time in the round.
    taken : list of int
        Rows where tasks started in the round.
    late : bool
        True if the time limit passed.
    prices : ndarray of int64
        Prices of the groups of roomy queues, one after the other; empty in a round that was late.
    resolution : int
        Price of a whole load.
    held : dict of (int, int) to ReasonCode or Rest
        Groups, by queue and position there, that wait for another reason than their class.
    limited : set of int
        Queues with groups that wait for a quota.
    """

    def __init__(
        self,
        scene: _Scene,
        queues: list[QueuedTasks],
        sights: list[_Sight],
        rows: array[int],
        patch: NDArray[np.uint32],
    ) -> None:
        self.scene, self.queues, self.sights, self.rows, self.patch = scene, queues, sights, rows, patch
        self.roomy: list[bool] = []
        self.taken: list[int] = []
        self.late = False
        self.prices, self.resolution = _NO_PRICES, 1
        self.held: dict[tuple[int, int], ReasonCode | Rest] = {}
        self.limited: set[int] = set()

    def groups(self) -> list[tuple[tuple[Hashable, ...], Verdict | Rest, float | None]]:
        """Return the tasks of each group, with their common verdict and price."""
        found: list[tuple[tuple[Hashable, ...], Verdict | Rest, float | None]] = []
        prices, at = (self.prices / self.resolution).tolist(), 0
        for i, queue in enumerate(self.queues):
            priced = self.roomy[i] and not self.late
            if not (self.roomy[i] or self.late or i in self.limited):
                found.append((queue.ids, self._verdict(i), None))
                continue
            verdict, ids = self._of_class(i), iter(queue.ids)
            sizes = queue.sizes
            for j, size in enumerate(sizes):
                code = self.held.get((i, j))
                some = tuple(islice(ids, size))
                why = verdict if code is None else self._of_group(i, code, verdict)
                found.append((some, why, prices[at + j] if priced else None))
            at += len(sizes) if priced else 0
        return found

    def codes(self) -> dict[str, int]:
        """Return the number of tasks by reason code."""
        found: Counter[str] = Counter()
        for i, queue in enumerate(self.queues):
            found[self._of_class(i).said.value] += queue.count
        for (i, j), code in self.held.items():
            size, verdict = self.queues[i].sizes[j], self._of_class(i)
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
        why, rows = self.sights[i].why, np.array(self.rows, np.int64)
        other = self.patch[i] != why[rows]
        if not other.any():
            return why, b""
        rows, patch = rows[other], self.patch[i, other]
        why = why.copy()
        why[rows] = patch
        return why, rows.tobytes() + patch.tobytes()

    def _verdict(self, i: int, code: ReasonCode | None = None) -> Verdict:
        """Return the verdict on a class, from an earlier round if nothing has changed for it."""
        sight, scene = self.sights[i], self.scene
        why, patch = self._why(i)
        if sight.patch != patch:
            sight.patch, sight.verdicts = patch, {}
        verdict = sight.verdicts.get(code)
        if verdict is None:
            cls = self.queues[i].cls
            verdict = Verdict(cls, why, scene.blockers, scene.shapes, sight.ever, scene.resources, code)
            sight.verdicts[code] = verdict
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
        self._sights_of: _Line | None = None
        """The line whose classes have exactly these sights."""
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
        record, count = self._taken_down(had_room, late, short, taken)
        if rest:
            return Waiting(lambda: [*_without(withheld, record.groups()), *rest], count + len(self.cluster.resting))
        return Waiting(record.groups, count, record.codes)

    def _taken_down(
        self, had_room: set[int], late: bool, short: Collection[JobRecord], taken: Callable[[], list[int]]
    ) -> tuple[_Record, int]:
        """Return a record of the tasks that wait for room, and their number."""
        builder, line = self.builder, self._line
        if line is not None and line.holds(self.cluster):
            line.refresh(builder.queues)
        else:
            line = self._line = _Line(builder.queues.all())
        roomy = [class_id in had_room for class_id in line.ids]
        outbid = [i for i, had in enumerate(roomy) if had or late]
        record = self._look(line, outbid)
        record.roomy, record.late = roomy, late
        if short or (not late and builder.shares.limit):
            record.held = self._held([(i, line.queues[i]) for i in outbid], late, short)
        if builder.quotas is not None:
            record.limited = self._hold_by_quotas(builder.quotas, line.queues, record.held)
        if outbid:
            record.taken = taken()
            if not late:
                arcs, units = line.arcs, line.units
                if len(outbid) < len(arcs):
                    arcs, units = [arcs[i] for i in outbid], [units[i] for i in outbid]
                record.prices = builder.batch.price_differences(arcs, units)
                record.resolution = builder.policy.resolution
        return record, line.count

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

    def _look(self, line: _Line, outbid: list[int]) -> _Record:
        """Return a record of the tasks and of their blockers; those of outbid classes are as of now.

        Blockers of the other classes are as of the last `ClassArcs.refresh`.
        """
        scene, arcs = self._scene_now(), self.builder.classes
        if self._sights_of is not line or line.sights is None:
            self._see(line)
        clock = self.cluster.inventory.clock
        seen = look(arcs, line.index, outbid, line.since, line.rows, line.upto, _PATCH)
        if seen is None:
            self._sights.clear()
            self._see(line)
            seen = look(arcs, line.index, outbid, line.since, line.rows, line.upto, _ALL)
            assert seen is not None
        line.rows, line.upto = seen[0], clock
        assert line.sights is not None
        return _Record(scene, line.tasks[:], line.sights, *seen)

    def _scene_now(self) -> _Scene:
        inventory, looks, scene = self.cluster.inventory, self.builder.classes.looks, self._scene
        shapes = inventory.shapes()
        if (
            scene is None
            or scene.shapes is not shapes
            or scene.blockers is not inventory.blockers
            or scene.looks != looks
        ):
            scene = self._scene = _Scene(shapes, inventory.blockers, inventory.resources, looks)
            self._sights.clear()
            self._sights_of = None
        return scene

    def _see(self, line: _Line) -> None:
        """Look the sights of classes up; make those that are missing, and forget the others."""
        known, inventory, arcs = self._sights, self.cluster.inventory, self.builder.classes
        sights: dict[TaskClass, _Sight] = {}
        for cls in line.classes:
            sight = known.get(cls)
            if sight is None:
                cursor = int(arcs.typed.cursor[cls.index])
                sight = _Sight(arcs.why(cls.index), inventory.suitability.ever(cls.index), cursor)
            sights[cls] = sight
        self._sights, self._sights_of = sights, line
        line.sights = list(sights.values())
        line.since = line.upto = min([sight.since for sight in line.sights])
        line.rows = _NOWHERE

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
