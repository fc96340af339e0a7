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
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import sqlalchemy as sa

from flowsched._guard import Exclusive, interruptible
from flowsched.boundary.validate import mapping, number, ordered, whole
from flowsched.exceptions import InputError
from flowsched.hrm.clocks import Clock, Forward, Steady
from flowsched.hrm.containers import Container
from flowsched.hrm.ids import name as name_of
from flowsched.hrm.ids import names
from flowsched.hrm.run_times import RunTimes
from flowsched.hrm.state import ownership, queries
from flowsched.hrm.state.administration import MOST_INTEGER, Administration
from flowsched.hrm.state.claims import Claim, Granted, JobState, Lost, Report, Status, UnitState
from flowsched.hrm.state.heartbeats import MachineHeartbeats
from flowsched.hrm.state.history import History
from flowsched.hrm.state.liveness import SchedulerHeartbeats, lost_machine, lost_scheduler
from flowsched.hrm.state.locks import Leases
from flowsched.hrm.state.optimistic import FairShares, Optimistic
from flowsched.hrm.state.pessimistic import Pessimistic, Place
from flowsched.hrm.state.store import Store
from flowsched.hrm.state.unit_rows import OvertakenError

__all__ = ["Negotiator"]


class Negotiator(Administration):
    """The protocol on a `Store`.  Any number of negotiators, in any threads and processes, may work on the same state.

    Parameters
    ----------
    store : Store, optional
        By default one in this process.
    ttl : float
        Seconds without a heartbeat after which a scheduler or a lock counts as lost; up to an eighth less for a
        scheduler or a machine, because not every heartbeat is written (see `liveness`).  The negotiator that declares it
        lost must have watched for so long: call `expire` regularly, on one that lives.
    machine_ttl : float, optional
        The same for machines; by default `ttl`.
    max_wait : float
        A queue takes a task only if its predicted wait is below this.
    patience : float
        A launched container that waits on a machine, with a predicted wait of at least so long, moves to an idle unit at
        its machine's heartbeat, if there is one.
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
        machine_ttl = ttl if machine_ttl is None else machine_ttl
        for name, value in (("ttl", ttl), ("machine_ttl", machine_ttl), ("max_wait", max_wait)):
            if not number(name, value, finite=name != "max_wait") > 0:
                raise InputError(f"{name}: a number of seconds > 0 expected, got {value!r}")
        number("patience", patience, 0, finite=False)
        if store is not None and not isinstance(store, Store):
            raise InputError(f"store: a Store expected, got {store!r}")
        self.store = Store() if store is None else store
        if clock is None or clock is time.time:
            clock, own = Steady(time.time, time.monotonic), time.monotonic
        else:
            own = Forward(clock)
        own = own if monotonic is None else monotonic
        self.ttl, self.machine_ttl, self.max_wait, self.clock = ttl, machine_ttl, max_wait, clock
        self.leases = Leases(self.store, ttl, own)
        self._calls = Exclusive("Negotiator")
        if run_times is not None and not isinstance(run_times, RunTimes):
            raise InputError(f"run_times: a RunTimes expected, got {run_times!r}")
        self._history = history = History(self.store, RunTimes() if run_times is None else run_times)
        self._shares = bounds = FairShares(self.store, shares, in_turn)
        self._schedulers = SchedulerHeartbeats(self.store, ttl, clock, own)
        self._optimistic = Optimistic(self.store, bounds, max_wait, clock)
        self._pessimistic = Pessimistic(self.store, self._schedulers, self.leases)
        self._machines = MachineHeartbeats(
            self.store, self._schedulers, bounds, self.machine_ttl, patience, clock, own, history
        )

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
            return queries.units(self.store, self._now(), known)

    def jobs(self, scheduler: str | None = None) -> list[JobState]:
        """Return jobs with tasks that are not done, of one scheduler or all; oldest first."""
        owner = None if scheduler is None else name_of("scheduler", scheduler)
        with self._calls, interruptible(), self.store.named("Negotiator.jobs"):
            return queries.jobs(self.store, owner)

    def tasks(self, job: str, *statuses: Status) -> list[Container]:
        """Return the tasks of a job in these states (default: OPEN), in the order of their ids."""
        name_of("job", job)
        with self._calls, interruptible(), self.store.named("Negotiator.tasks"):
            return queries.tasks(self.store, job, statuses or (Status.OPEN,))

    def on_machine(self, machine: str) -> list[tuple[str, Container]]:
        """Return unit and container of all tasks that were launched on a machine; running ones first."""
        name_of("machine", machine)
        with self._calls, interruptible(), self.store.named("Negotiator.on_machine"):
            return queries.on_machine(self.store, machine)

    def adopt(self, scheduler: str, most: int = 1 << 20, kinds: Sequence[str] = ("batch", "stream")) -> list[str]:
        """Take over jobs of these kinds without a scheduler; return their ids."""

        name_of("scheduler", scheduler)
        kinds = names("kinds", kinds)
        whole("most", most, 0, MOST_INTEGER)

        def work(db: sa.Connection) -> list[str]:
            self._schedulers.hold(db, scheduler)
            return ownership.adopt(self.store, db, scheduler, most, kinds)

        with self._calls, interruptible(), self.store.named("Negotiator.adopt"):
            self._schedulers.hear(scheduler)
            return self.store.transact(work) if ownership.has_free_jobs(self.store, kinds) else []

    # -- batch: optimistic --------------------------------------------------------------------------------------

    def commit(self, scheduler: str, claims: Iterable[Claim], *, launch: bool = False) -> Granted:
        """Claim units for open batch tasks.

        Each unit's claims are granted or refused together, independently of other units.  A task that is refused for
        want of room stays open, and the unit remembers it: see `heartbeat`.

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
            if not isinstance(claim, Claim):
                raise InputError(f"claims[{i}]: a Claim expected, got {claim!r}")
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

        Before their launch they are opened again if the scheduler is lost.  Afterwards they belong to the machine, which
        learns of them at its next heartbeat, too, if the scheduler could not tell it.
        """
        given = names("tasks", tasks)
        name_of("scheduler", scheduler)

        def work(db: sa.Connection) -> list[str]:
            self._schedulers.hold(db, scheduler)
            return ownership.launch(self.store, db, scheduler, given)

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
            tasks = queries.tasks(self.store, job, (Status.OPEN,))
            where = place(tasks, queries.units(self.store, self._now())) if tasks else {}
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
            Tasks that ended there since the last one.  A mapping tells their run times in seconds for the history, None for
            one that tells nothing, such as a failed one's; else they count from the start that the shared state knows.
        present : iterable of str, optional
            All tasks that are there now.
        waiting : iterable of str
            Present tasks that have not started.  The machine starts none of them before it has the answer, because they
            may be moved away: then they are stale here, and missing on their new machine at its next heartbeat.

        Returns
        -------
        Report
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
                    work = partial(give_up, self.store, name=name, count=count, now=self._now())
                    opened += self.store.transact(work)
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
