"""Units, schedulers and jobs that join the shared state, change and leave: the part of the negotiator that users call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import sqlalchemy as sa

from flowsched._guard import Exclusive, interruptible
from flowsched.boundary.validate import number, whole
from flowsched.exceptions import DuplicateIdError, InputError, StoreError
from flowsched.hrm.clocks import Clock
from flowsched.hrm.containers import Container, Trigger
from flowsched.hrm.ids import name as name_of
from flowsched.hrm.ids import names
from flowsched.hrm.rebalancing import Elastic
from flowsched.hrm.state.arrivals import checked_containers, insert_tasks, insert_units, rows_of_units
from flowsched.hrm.state.heartbeats import MachineHeartbeats
from flowsched.hrm.state.history import History
from flowsched.hrm.state.liveness import SchedulerHeartbeats
from flowsched.hrm.state.queue_manager import change_units, delete_units, resize
from flowsched.hrm.state.store import Store
from flowsched.hrm.units import ResourceUnit

__all__ = ["MOST_INTEGER", "Administration"]

T = TypeVar("T")

_UNLIMITED = 1 << 40

MOST_INTEGER = 2**31 - 1
"""Largest number of a column INTEGER of PostgreSQL, and so of every store."""


class Administration:
    """Calls that add, change and remove; the attributes are the negotiator's."""

    store: Store
    clock: Clock
    _calls: Exclusive
    _history: History
    _machines: MachineHeartbeats
    _schedulers: SchedulerHeartbeats

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
        """Add a scheduler, or let it come back; its claims from before it was lost are open again."""
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
            The trigger of the job, from which its kind is sensed (see `sense`); by default the containers tell it.
        name : str, optional
            The name under which the job recurs, for the history of run times; by default its id.
        work : str, optional
            What agents run for each task, see `flowsched.hrm.state.work`.

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
        """Let a stream job grow or shrink by its load.

        Parameters
        ----------
        load : float
            Time that a micro-batch takes, divided by the time between two of them.
        elastic : Elastic

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
        if not isinstance(elastic, Elastic):
            raise InputError(f"elastic: an Elastic expected, got {elastic!r}")
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

    def _insert(self, work: Callable[[sa.Connection], T], message: str) -> T:
        try:
            return self.store.transact(work)
        except StoreError as error:
            if isinstance(error.__cause__, sa.exc.IntegrityError):
                raise DuplicateIdError(message) from None
            raise

    def _now(self) -> float:
        return number("clock", self.clock())
