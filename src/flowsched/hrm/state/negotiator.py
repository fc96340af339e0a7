"""The negotiator: the protocol of schedulers and machines on the shared state.

Batch jobs claim optimistically.  A scheduler decides on a copy of the state and sends claims; each unit is one conditional
update, and stale claims are refused while the rest stands.  Stream jobs claim pessimistically: under a lock, on fresh state,
all or nothing.  Every call is one transaction (for streams, one that changes anything), so a process may die at any point.
Source: HRM, sections 4.3 to 4.5.

Ids are checked here, before a database could refuse them: see `ids`.
A negotiator serves one call at a time; a second one, by a thread, a signal handler, a finaliser or a `Place`, is refused.
Signal handlers run while a call waits for the store; an exception of theirs undoes the transaction.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import sqlalchemy as sa

from flowsched._guard import Exclusive, interruptible
from flowsched.boundary.validate import instance, mapping, number, ordered, seconds, whole
from flowsched.exceptions import DuplicateIdError, StoreError
from flowsched.hrm.clocks import Clock, Forward, Steady
from flowsched.hrm.containers import Container, Trigger
from flowsched.hrm.ids import name as name_of
from flowsched.hrm.ids import names
from flowsched.hrm.rebalancing import Elastic
from flowsched.hrm.run_times import RunTimes
from flowsched.hrm.state.claims import Claim, Granted, JobState, Lost, Report, Status, UnitState
from flowsched.hrm.state.heartbeats import MachineHeartbeats, SchedulerHeartbeats, lost_machine, lost_scheduler
from flowsched.hrm.state.history import History
from flowsched.hrm.state.locks import Leases, Pessimistic, Place
from flowsched.hrm.state.optimistic import FairShares, Optimistic
from flowsched.hrm.state.queue_manager import (
    change_units,
    checked_containers,
    delete_units,
    insert_tasks,
    insert_units,
    resize,
    rows_of_units,
)
from flowsched.hrm.state.schema import JS, RS, RT
from flowsched.hrm.state.store import Store, among, packed
from flowsched.hrm.state.unit_rows import OvertakenError, container_of, state_of
from flowsched.hrm.units import ResourceUnit

_T = TypeVar("_T")

_UNLIMITED = 1 << 40

MOST_INTEGER = 2**31 - 1
"""Largest number of a column INTEGER of PostgreSQL, and so of every store."""


_FREE = sa.select(JS.c.job_id).where(JS.c.scheduler.is_(None), JS.c.open + JS.c.held > 0)
_GONE = -1
"""Version of a unit that was deleted."""

_UNITS = sa.select(RS).order_by(RS.c.ru_id)

_VERSIONS = sa.select(RS.c.ru_id, RS.c.version)


class Negotiator:
    """The protocol on a `Store`.  Any number of negotiators, in any threads and processes, may work on the same state.

    Parameters
    ----------
    store : Store, optional
        By default one in this process.
    ttl : float
        Seconds without a heartbeat after which a scheduler or a lock counts as lost; up to an eighth less for a
        scheduler or a machine, because not every heartbeat is written (see `heartbeats`).  The negotiator that declares it
        lost must have watched for all that time: call `expire` regularly, on one that lives.
    machine_ttl : float, optional
        The same for machines; by default `ttl`.
    max_wait : float
        A queue takes a task only if its predicted wait is below this.
    patience : float
        Predicted wait in seconds from which on a launched container that waits on a machine moves to an idle unit, if there
        is one, at its machine's heartbeat.
    shares : bool
        True: the fair shares of batch jobs bind.
    in_turn : bool
        `allowed` leaves the places where tasks may run at once to the jobs that came first, as far as they want them.  So the
        last places make some jobs whole, not many jobs parts.  Afterwards the jobs that came first may queue, half as many as
        there are schedulers.
    run_times : RunTimes, optional
        For containers without a duration: by the history of their job's name, which the store keeps; its default is for a
        store without history.
    clock : callable, optional
        The time in seconds: of a simulation, or by default of the system when this was made, and steadily on.
    monotonic : callable, optional
        The clock that measures silence; by default the system's monotonic clock or, in a simulation, `clock` where it
        moves forward.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        ttl: float = 30.0,
        machine_ttl: float | None = None,
        max_wait: float = math.inf,
        patience: float = math.inf,
        shares: bool = True,
        in_turn: bool = False,
        run_times: RunTimes | None = None,
        clock: Clock | None = None,
        monotonic: Clock | None = None,
    ) -> None:
        self.ttl = seconds("ttl", ttl)
        self.machine_ttl = ttl if machine_ttl is None else seconds("machine_ttl", machine_ttl)
        self.max_wait = seconds("max_wait", max_wait, finite=False)
        number("patience", patience, 0, finite=False)
        instance("store", store, Store, none=True)
        self.store = Store() if store is None else store
        if clock is None or clock is time.time:
            clock, own = Steady(time.time, time.monotonic), time.monotonic
        else:
            own = Forward(clock)
        own = own if monotonic is None else monotonic
        self.clock = clock
        self.leases = Leases(self.store, ttl, own)
        self._calls = Exclusive("Negotiator")
        instance("run_times", run_times, RunTimes, none=True)
        self._history = history = History(self.store, RunTimes() if run_times is None else run_times)
        self._shares = bounds = FairShares(self.store, shares, in_turn)
        self._schedulers = SchedulerHeartbeats(self.store, ttl, clock, own)
        self._optimistic = Optimistic(self.store, bounds, max_wait, clock)
        self._pessimistic = Pessimistic(self.store, self._schedulers, self.leases)
        self._machines = MachineHeartbeats(
            self.store, self._schedulers, bounds, self.machine_ttl, patience, clock, own, history
        )

    # -- units, schedulers and jobs that join, change and leave ----------------------------------------------------------

    def add_units(self, units: Iterable[ResourceUnit], *, length: int = 0, most: int | None = None) -> None:
        """Add units; their machines count as alive from now.

        Parameters
        ----------
        length : int
            Places in the batch queue of each.
        most : int, optional
            Containers that each runs at once.
        """
        whole("length", length, 0, _UNLIMITED)
        now, places = self._now(), _UNLIMITED if most is None else whole("most", most, 1, _UNLIMITED)
        rows = rows_of_units(units, length, places, now)

        def work(db: sa.Connection) -> None:
            fresh[:] = insert_units(self.store, db, rows, now)

        fresh: list[str] = []
        with self._calls, interruptible(), self.store.named("Negotiator.add_units"):
            begin = self._machines.beats.monotonic()
            self._insert(work, "add_units: a unit of that id is already there")
            for machine in fresh:
                self._machines.beats.note(machine, 0, begin)

    def set_units(self, units: Iterable[str], *, length: int | None = None, most: int | None = None) -> list[str]:
        """Set attributes of units' queues; return the tasks that start thereby.

        Nothing that runs or waits beyond a smaller number is taken back.

        Parameters
        ----------
        length, most : int, optional
            As of `add_units`; None leaves it.

        Raises
        ------
        UnknownIdError
            There is no such unit; nothing was changed.
        """
        given = names("units", units)
        if length is not None:
            whole("length", length, 0, _UNLIMITED)
        if most is not None:
            whole("most", most, 1, _UNLIMITED)
        now = self._now()
        with self._calls, interruptible(), self.store.named("Negotiator.set_units"):
            return self.store.transact(lambda db: change_units(self.store, db, given, length, most, now))

    def remove_units(self, units: Iterable[str]) -> list[str]:
        """Delete units with their queues; return their tasks, which are open again.

        Tasks that a machine runs there are stale at its next heartbeat.

        Raises
        ------
        UnknownIdError
            There is no such unit; nothing was changed.
        """
        given, now = names("units", units), self._now()
        with self._calls, interruptible(), self.store.named("Negotiator.remove_units"):
            return self.store.transact(lambda db: delete_units(self.store, db, given, now))

    def add_scheduler(self, name: str) -> None:
        """Add a scheduler, or bring it back; its claims from before it was lost are open again."""
        name = name_of("scheduler", name)
        with self._calls, interruptible(), self.store.named("Negotiator.add_scheduler"):
            self._schedulers.join(name)

    def submit(
        self,
        job: str,
        containers: Sequence[Container],
        *,
        scheduler: str | None = None,
        stages: int = 1,
        trigger: Trigger | None = None,
        name: str | None = None,
        work: str | None = None,
    ) -> None:
        """Add a job, or more tasks of a known job.

        Parameters
        ----------
        containers : sequence of Container
            All batch or all stream.
        scheduler : str, optional
            Owner of the job; None leaves it to the first one that calls `adopt`.
        trigger : {"once", "window", "continuous"}, optional
            The trigger of the job, which decides its kind (see `sense`); by default the kind is that of the containers.
        name : str, optional
            The name under which the job recurs, for the history of run times; by default its id.
        work : str, optional
            The command that agents run for each task, see `flowsched.hrm.state.work`.

        Raises
        ------
        InputError, DuplicateIdError
            The containers are of both kinds, or one is already there.
        """
        job = name_of("job", job)
        owner = None if scheduler is None else name_of("scheduler", scheduler)
        title = job if name is None else name_of("name", name)
        containers = checked_containers(job, containers, trigger)
        whole(f"job {job!r}: stages", stages, 1, MOST_INTEGER)
        now = self._now()

        def insert(db: sa.Connection) -> None:
            insert_tasks(db, job, self._history.expect(db, title, containers), owner, stages, now, name, work)

        with self._calls, interruptible(), self.store.named("Negotiator.submit"):
            self._insert(
                insert, f"job {job!r}: a task of that id, or the job as one of the other kind, is already there"
            )

    def resize(self, job: str, load: float, elastic: Elastic) -> tuple[list[str], list[str]]:
        """Grow or shrink a stream job by its load.

        Parameters
        ----------
        load : float
            Time that a micro-batch takes, divided by the time between two of them.

        Returns
        -------
        opened, ended : list of str
            New containers like the job's others, which its scheduler places by `stream`, all or none; and containers that
            are not needed any more: they are stale at their machines' next heartbeats.

        Raises
        ------
        UnknownIdError
            There is no such stream job, or all its containers have ended.
        """
        name_of("job", job)
        instance("elastic", elastic, Elastic)
        now = self._now()

        def work(db: sa.Connection) -> tuple[list[str], list[str]]:
            more, ended = resize(self.store, db, job, load, elastic, now)
            for container in more:
                name_of("container", container.id)
            if more:
                insert_tasks(db, job, more, None, 1, now)
            return [str(container.id) for container in more], ended

        with self._calls, interruptible(), self.store.named("Negotiator.resize"):
            return self._insert(work, f"job {job!r}: a task with the id of a new one is already there")

    # -- queries ------------------------------------------------------------------------------------------------

    def units(self, known: Mapping[str, int] | None = None) -> list[UnitState]:
        """Return the units that changed.

        Parameters
        ----------
        known : mapping of str to int, optional
            Version by unit of the caller's copy; units that are not in it are returned, too.  None for all.
        """

        if known is not None:
            mapping("known", known)
        with self._calls, interruptible(), self.store.named("Negotiator.units"):
            return self._units(known)

    def _units(self, known: Mapping[str, int] | None = None) -> list[UnitState]:
        """Return units by id, then those that were deleted, as lost ones."""
        now = self._now()
        if known is None:
            return [state_of(row, now) for row in self.store.look(_UNITS)]
        versions = {row.ru_id: row.version for row in self.store.look(_VERSIONS)}
        changed = [unit for unit, version in versions.items() if known.get(unit) != version]
        gone = [_gone(unit) for unit in sorted(known.keys() - versions.keys()) if known[unit] != _GONE]
        if not changed:
            return gone
        query = _UNITS.where(among(self.store.dialect, RS.c.ru_id))
        return [state_of(row, now) for row in self.store.look(query, ids=packed(changed))] + gone

    def jobs(self, scheduler: str | None = None) -> list[JobState]:
        """Return jobs with tasks that are not done, of one scheduler or all; oldest first."""
        owner = None if scheduler is None else name_of("scheduler", scheduler)
        with self._calls, interruptible(), self.store.named("Negotiator.jobs"):
            query = sa.select(JS).where(JS.c.open + JS.c.held > 0).order_by(JS.c.start, JS.c.job_id)
            if owner is not None:
                query = query.where(JS.c.scheduler == owner)
            return [
                JobState(r.job_id, r.kind, r.scheduler, r.start, r.stages, r.tasks, r.open, r.held, r.done)
                for r in self.store.look(query)
            ]

    def tasks(self, job: str, *statuses: Status) -> list[Container]:
        """Return the tasks of a job in these states (default: OPEN), in the order of their ids."""
        name_of("job", job)
        with self._calls, interruptible(), self.store.named("Negotiator.tasks"):
            return self._tasks(job, statuses or (Status.OPEN,))

    def _tasks(self, job: str, statuses: Sequence[Status]) -> list[Container]:
        where = [RT.c.job_id == job, RT.c.status.in_(statuses)]
        return [container_of(row) for row in self.store.look(sa.select(RT).where(*where).order_by(RT.c.task_id))]

    def on_machine(self, machine: str) -> list[tuple[str, Container]]:
        """Return unit and container of all tasks that were launched on a machine; running ones first."""
        name_of("machine", machine)
        with self._calls, interruptible(), self.store.named("Negotiator.on_machine"):
            launched = sa.select(RT).join(RS, RS.c.ru_id == RT.c.queue_id)
            found = self.store.look(launched.where(RS.c.machine_id == machine, RT.c.launched == 1))
            rows = sorted(found, key=lambda r: (r.status == Status.WAITING, r.seq, r.task_id))
            return [(row.queue_id, container_of(row)) for row in rows]

    def adopt(self, scheduler: str, most: int = 1 << 20, kinds: Sequence[str] = ("batch", "stream")) -> list[str]:
        """Take over jobs of these kinds without a scheduler; return their ids."""

        name_of("scheduler", scheduler)
        kinds = names("kinds", kinds)
        whole("most", most, 0, MOST_INTEGER)
        of_kinds = _FREE.where(JS.c.kind.in_(kinds))

        def work(db: sa.Connection) -> list[str]:
            self._schedulers.hold(db, scheduler)
            free = of_kinds.order_by(JS.c.job_id).limit(most)
            found = list(db.execute(self.store.lock_rows(free, skip=True)).scalars())
            db.execute(sa.update(JS).where(JS.c.job_id.in_(found)).values(scheduler=scheduler))
            return found

        with self._calls, interruptible(), self.store.named("Negotiator.adopt"):
            self._schedulers.hear(scheduler)
            return self.store.transact(work) if self.store.look(of_kinds.limit(1)) else []

    # -- batch: optimistic --------------------------------------------------------------------------------------

    def commit(self, scheduler: str, claims: Iterable[Claim], *, launch: bool = False) -> Granted:
        """Claim units for open batch tasks.

        Each unit's claims are granted or refused together, independently of other units.  A task that is refused for
        lack of room stays open, and the unit remembers it: see `heartbeat`.

        Parameters
        ----------
        launch : bool
            Launch the granted tasks in the same transaction, see `launch`.

        Raises
        ------
        ExpiredError
            The scheduler had sent no heartbeat for too long.
        """
        asked = ordered("claims", claims)
        for i, claim in enumerate(asked):
            instance(f"claims[{i}]", claim, Claim)
            name_of(f"claims[{i}]: task", claim.task)
            name_of(f"claims[{i}]: unit", claim.unit)

        def work(db: sa.Connection) -> Granted:
            late.append(self._schedulers.hold(db, scheduler))
            return self._optimistic.claim(db, scheduler, asked, launch=launch)

        late: list[bool] = []
        with self._calls, interruptible(), self.store.named("Negotiator.commit"):
            while True:
                try:
                    granted = self.store.transact(work)
                    break
                except OvertakenError:
                    continue
            if late[-1]:
                self._schedulers.renew(scheduler)
        return granted

    def allowed(self, jobs: Iterable[str]) -> dict[str, int]:
        """Return the number of further tasks that batch jobs may hold by their shares and turns; others are left out."""
        wanted = names("jobs", jobs)
        with self._calls, interruptible(), self.store.named("Negotiator.allowed"):
            return self._shares.left(wanted)

    def launch(self, scheduler: str, tasks: Iterable[str]) -> list[str]:
        """Hand granted tasks over to their machines; return those that are the scheduler's and were not launched before.

        Before their launch they are opened again if the scheduler is lost.  Afterwards they belong to the machine.  If the
        scheduler could not notify the machine, it gets them at its next heartbeat.
        """
        given = names("tasks", tasks)
        name_of("scheduler", scheduler)

        def work(db: sa.Connection) -> list[str]:
            self._schedulers.hold(db, scheduler)
            chosen = among(self.store.dialect, RT.c.task_id)
            ready = sa.select(RT.c.task_id).where(
                chosen, RT.c.scheduler == scheduler, RT.c.queue_id.is_not(None), RT.c.launched == 0
            )
            # In the order of their ids, in which all transactions take rows.
            found = list(
                db.execute(self.store.lock_rows(ready.order_by(RT.c.task_id)), {"ids": packed(given)}).scalars()
            )
            db.execute(sa.update(RT).where(chosen).values(launched=1), {"ids": packed(found)})
            return found

        with self._calls, interruptible(), self.store.named("Negotiator.launch"):
            return self.store.transact(work)

    # -- stream: pessimistic ------------------------------------------------------------------------------------

    def stream(self, scheduler: str, job: str, place: Place, timeout: float = 60.0) -> Granted:
        """Place all open tasks of a stream job at wait 0, or none: first come, first served.

        Batch containers that are in the way are paused or evicted (see `queues`).

        Parameters
        ----------
        place : callable
            Given the open tasks and the fresh state of all units; returns unit by task, or None if there is no way.
            Called under the lock, so it should be quick.
        timeout : float
            Seconds to wait for the lock.

        Raises
        ------
        ExpiredError
            The scheduler, or its lock, had expired.
        """
        name_of("scheduler", scheduler)
        name_of("job", job)
        with (
            self._calls,
            interruptible(),
            self.store.named("Negotiator.stream"),
            self.leases.hold("stream", scheduler, timeout) as lease,
        ):
            tasks = self._tasks(job, (Status.OPEN,))
            where = place(tasks, self._units()) if tasks else {}
            for unit in () if where is None else mapping("place", where).values():
                name_of("place: unit", unit)
            return self._pessimistic.claim(scheduler, tasks, where, lease)

    # -- progress -----------------------------------------------------------------------------------------------

    def finish(self, tasks: Iterable[str]) -> list[str]:
        """Record the end of running tasks; return the tasks of their units' queues that start in their place.

        Tasks that do not run (any more) are passed over.
        """
        given = names("tasks", tasks)
        with self._calls, interruptible(), self.store.named("Negotiator.finish"):
            return self._machines.finish(given) if given else []

    def beat(self, scheduler: str) -> list[str]:
        """Take a scheduler's heartbeat; return the tasks that it was granted and has not launched, among them granted wishes.

        Raises
        ------
        ExpiredError
            The heartbeat comes too late.
        """

        with self._calls, interruptible(), self.store.named("Negotiator.beat"):
            return self._schedulers.hear(scheduler)

    def heartbeat(
        self,
        machine: str,
        finished: Iterable[str] | Mapping[str, float | None] = (),
        present: Iterable[str] | None = None,
        waiting: Iterable[str] = (),
    ) -> Report:
        """Take a machine's heartbeat.

        Parameters
        ----------
        finished : iterable of str, or mapping of str to float
            Tasks that ended there since the last one.  A mapping gives their run times in seconds for the history; None
            excludes one, such as a failed task's.  Without a mapping they count from the start in the shared state.
        present : iterable of str, optional
            All tasks that are there now.
        waiting : iterable of str
            Present tasks that have not started.  The machine starts none of them before it has the answer, because they
            may be moved away: then they are stale here, and missing on their new machine at its next heartbeat.
        """
        name_of("machine", machine)
        there = None if present is None else set(names("present", present))
        seconds = finished if isinstance(finished, Mapping) else {}
        for task, took in seconds.items():
            if took is not None:
                number(f"finished[{task!r}]", took, 0)
        ended, waits = names("finished", list(finished) if seconds else finished), names("waiting", waiting)
        with self._calls, interruptible(), self.store.named("Negotiator.heartbeat"):
            return self._machines.heartbeat(machine, ended, there, waits, seconds)

    def expire(self) -> Lost:
        """Declare silent schedulers and machines lost, and open their tasks.

        All tasks of a lost machine are open again.  Of a lost scheduler, the tasks that it had claimed but not launched are
        open again; its jobs have no scheduler (see `adopt`), and its place in the lock's queue is given up.
        """
        opened: list[str] = []
        lost: list[Sequence[str]] = []
        with self._calls, interruptible(), self.store.named("Negotiator.expire"):
            for beats, give_up in ((self._schedulers.beats, lost_scheduler), (self._machines.beats, lost_machine)):
                silent = beats.silent()
                lost.append(list(silent))
                for name, count in silent.items():
                    opened += self.store.transact(partial(give_up, self.store, name=name, count=count, now=self._now()))
            self.leases.sweep()
        return Lost(tuple(lost[0]), tuple(lost[1]), tuple(sorted(opened)))

    def leave(self, *, scheduler: str | None = None, machine: str | None = None) -> list[str]:
        """Declare a scheduler or a machine lost that ends now, as `expire` does after its ttl; return the tasks that are open again.

        A machine runs none of its tasks any more when it leaves.
        """
        opened: list[str] = []
        with self._calls, interruptible(), self.store.named("Negotiator.leave"):
            for beats, give_up, name in (
                (self._schedulers.beats, lost_scheduler, scheduler),
                (self._machines.beats, lost_machine, machine),
            ):
                query = sa.select(beats.key.table.c.beats).where(beats.key == name)
                for row in () if name is None else self.store.look(query):
                    work = partial(give_up, self.store, name=name_of("name", name), count=row.beats, now=self._now())
                    opened += self.store.transact(work)
        return opened

    def _insert(self, work: Callable[[sa.Connection], _T], message: str) -> _T:
        try:
            return self.store.transact(work)
        except StoreError as error:
            if isinstance(error.__cause__, sa.exc.IntegrityError):
                raise DuplicateIdError(message) from None
            raise

    def _now(self) -> float:
        return number("clock", self.clock())


def _gone(unit: str) -> UnitState:
    """Return the state of a unit that was deleted."""
    nothing = (0, 0, 0, 0)
    return UnitState(unit, "", nothing, nothing, nothing, 0, alive=False, version=_GONE)
