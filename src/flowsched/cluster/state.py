"""The one owner of what is: `Cluster.apply(event)`.

An event is checked whole before anything moves, so a refused event leaves the cluster as it was.  The cluster also
remembers what changed, so that a mirror of it (the network) pays for changes only: see `Cluster.changes`.

Rule: `Cluster.midway` is true from before the first change of an event, commit or trial until after its last one.  An
exception that nothing could foresee (out of memory) leaves it true, and later calls are refused: `TornStateError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import Any

from flowsched.boundary.collector import MANY, uncollected
from flowsched.boundary.validate import number, ordered, quoted
from flowsched.cluster import events as ev
from flowsched.cluster._records import fetch
from flowsched.cluster.images import become, kept
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.joining import joins
from flowsched.cluster.model import Resources
from flowsched.cluster.rehearsal import take_part
from flowsched.cluster.task_events import TaskEvents
from flowsched.cluster.transitions import Changes
from flowsched.exceptions import FlowschedError, InputError, TornStateError

__all__ = ["Cluster", "Moment"]

Moment = tuple[int, int, int]
"""Stands for the state of a cluster between two calls; see `Cluster.moment`."""

IDLE_CLASSES = 64
"""So many classes without tasks are kept for the next task of their kind, the others forgotten."""


_FETCHED, _FEW = 32, 8
"""Memory is fetched for so many events at once, but for so few."""


class Cluster(TaskEvents):
    """Machines, jobs, tasks and users, and what runs where.

    Parameters
    ----------
    resources : Resources or sequence of str
        What machines have and tasks take; a resource called "gpu" is counted device by device.

    Attributes
    ----------
    inventory, by_row, waiting, machines, tasks
        See `Views`.
    jobs, by_class, attempts, resting, midway
        See `Membership`.
    stopping
        See `Stopping`.
    events : int
        How many have happened.
    runs : int
        How many runs have begun, so the number of the last one (`TaskRecord.run`).  Every start that happens begins one:
        that of a delta of a commit, or of `TaskStarted`.  What is tried and taken back begins none.
    stale_events : int
        How many of the events told of a run that was over, and so changed nothing.
    """

    def __init__(self, resources: Resources | Sequence[str] = ("cpu", "mem", "gpu")) -> None:
        known = resources if isinstance(resources, Resources) else Resources(ordered("resources", resources))
        super().__init__(Inventory(known))
        self.events = 0

    # -- images -------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Return what an image keeps of it."""
        return kept(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become the cluster that `__getstate__` told of."""
        become(vars(self), state)
        if any(hasattr(Cluster, name) for name in vars(self)):
            raise ValueError("an attribute that hides what a cluster does")

    # -- what changed --------------------------------------------------------------------------------------------

    def changes(self, now: float | None = None) -> Changes:
        """Return what changed since the last call, and forget it; tasks submitted at no stated time wait since `now`."""
        if now is not None:
            self.date(now)
        changes, self._changes = self._changes, Changes()
        while len(self._idle) > IDLE_CLASSES:
            key = next(iter(self._idle))
            del self._idle[key]
            changes.classes.append(self._classes.pop(key).index)
        for cls in changes.classes:
            self.inventory.drop_class(cls)
            del self.by_class[cls]
        for row in changes.gone:
            self.inventory.drop_machine(row)
        return changes

    def forget_tries(self, turn: int) -> None:
        """After moves that were all taken back: every order is as if nothing had been tried, and all counts as changed.

        Parameters
        ----------
        turn : int
            The largest turn given before.
        """
        self._turn = turn
        for record in self.machines.values():
            record.tasks.sort()
        for job in self.jobs.values():
            for group in job.each_group():
                group.on = {row: tuple(sorted(group.on[row])) for row in sorted(group.on)}
        queues = sorted(self.waiting.items(), key=lambda queue: queue[0].index)
        self.waiting = {cls: dict.fromkeys(sorted(groups, key=attrgetter("serial"))) for cls, groups in queues}
        self._waiting_ids.clear()
        self.queues.clear()
        self.everything()  # now, since it gives back the rows of machines that are gone

    @property
    def serial(self) -> int:
        """The largest serial of a job or group given so far."""
        return self._serial

    def everything(self) -> None:
        """Let all that is count as changed, for a mirror that begins with nothing."""
        self.changes()
        groups = {group: dict.fromkeys(group.on) for job in self.jobs.values() for group in job.each_group()}
        self._changes.groups, self._changes.machines = groups, dict.fromkeys(self.by_row)

    # -- events -------------------------------------------------------------------------------------------------

    def apply(self, *events: ev.Event, atomic: bool = False) -> tuple[ev.EndedRun, ...]:
        """Let events happen, one after the other.

        Parameters
        ----------
        *events : Event
        atomic : bool
            All of them happen, or none.  Several ones happen in a small cluster first, which costs about 0.1 ms for the
            call and 10 microseconds for each event.  Not with a fit rule.

        Returns
        -------
        tuple of EndedRun
            The runs that they ended, in that order.

        Raises
        ------
        FlowschedError
            An event names something unknown, a duplicate, or something impossible.  It then did nothing; the events
            before it stand unless the call is atomic, those after it did not happen.  ``error.index`` is its position, and
            ``error.ended`` are the runs that those before it ended.
        """
        self.check_whole()
        if atomic:
            self._rehearse(events)
            atomic = len(events) > 1  # a single one is refused whole anyway
        before = self.events
        ended: list[ev.EndedRun] = []
        try:
            if len(events) < MANY:
                self._apply(events, ended, atomic)
            else:
                with uncollected():
                    self._apply(events, ended, atomic)
        except FlowschedError as error:
            if atomic:
                raise TornStateError("an event was refused that had happened in a small cluster") from error
            error.ended, error.index = tuple(ended), self.events - before
            raise
        return tuple(ended)

    def _rehearse(self, events: Sequence[ev.Event]) -> None:
        """Raise the error of the first of these events that would be refused; nothing changes."""
        if self.inventory.rule is not None:
            raise InputError("atomic: a fit rule decides what fits, so events happen one after the other only")
        if len(events) < 2:
            return
        small = Cluster(self.resources)
        take_part(small, self, events)
        try:
            small.apply(*events)
        except FlowschedError as error:
            error.ended = ()
            error.add_note(f"event {error.index} of {len(events)}, of which none has happened")
            raise

    def _apply(self, events: Sequence[ev.Event], ended: list[ev.EndedRun], together: bool) -> None:
        """Let events happen; note the runs that they end.

        The cluster is `midway` during each event, and if they happen `together` also in between.
        """
        many, rest = len(events) > _FEW, 0
        for position, event in enumerate(events):
            if position < rest:  # it has happened with another one
                continue
            if many and not position % _FETCHED:
                self._fetch(events[position : position + _FETCHED])
            kind = type(event)
            if kind is ev.MachineAdded:
                rest = position + self._join(events, position, together)
            elif many and kind is ev.TaskCompleted:
                rest = position + self._complete(events, position, ended, together)
            if rest > position:
                continue
            handler = _HANDLERS.get(kind)
            if handler is None:
                raise InputError(f"event: an event expected, got {quoted(event)}")
            if event.time is not None:
                time = number(f"{type(event).__name__}: time", event.time)
                if time is not event.time:  # one of NumPy's, which may overflow where it meets others
                    event = replace(event, time=time)
            self.midway = True
            try:
                over = handler(self, event)
            except FlowschedError:
                self.midway = together  # it was refused, and had not changed anything
                raise
            self.events += 1  # before the mark goes: the journal counts by it
            self.midway = together
            if over is not None:
                ended += over
        if together:
            self.midway = False

    def _join(self, events: Sequence[ev.Event], position: int, together: bool) -> int:
        """Let machines join at once that are described alike, from this position on; return how many."""
        run = None
        if position + 1 < len(events) and events[position].time is None:
            run = joins(events, position, self.machines, self.resources)
        if run is None or not self.inventory.takes_devices(run[1], len(run[-1])):
            return 0
        self.midway = True
        self._machines_added(*run)
        self.events += len(run[-1])
        self.midway = together
        return len(run[-1])

    def _complete(self, events: Sequence[ev.Event], position: int, ended: list[ev.EndedRun], together: bool) -> int:
        """Let tasks end at once that completions from this position on name, as far as memory is fetched; return how many."""
        tasks = self._done(events[position : position + _FETCHED - position % _FETCHED])
        if tasks:
            self.midway = True
            ended += self._tasks_completed(tasks)
            self.events += len(tasks)
            self.midway = together
        return len(tasks)

    def _fetch(self, events: Sequence[ev.Event]) -> None:
        """Let the processor fetch what completions are about to change."""
        with suppress(Exception):  # of an id that is none; its event is refused in its turn
            fetch(self.inventory, self.tasks, [event.task for event in events if type(event) is ev.TaskCompleted])

    def moment(self) -> Moment:
        """Return numbers of which one differs after each event, commit and trial, and at the end of a rest."""
        return self.events, self._turn, self.inventory.clock

    def check_whole(self) -> None:
        """Refuse to go on after a change that did not come to its end."""
        if self.midway:
            raise TornStateError(
                "an exception ended an earlier call in the middle of a change; go on from a journal, snapshot or export"
            )


_HANDLERS: dict[type[ev.Event], Callable[[Cluster, Any], list[ev.EndedRun] | None]] = {
    ev.MachineAdded: Cluster._machine_added,
    ev.MachineUpdated: Cluster._machine_updated,
    ev.MachineDrained: Cluster._machine_drained,
    ev.MachineFailed: Cluster._machine_failed,
    ev.MachineRemoved: Cluster._machine_removed,
    ev.JobSubmitted: Cluster._job_submitted,
    ev.TaskSubmitted: Cluster._task_submitted,
    ev.TaskStarted: Cluster._task_started,
    ev.TaskCompleted: Cluster._task_completed,
    ev.TaskFailed: Cluster._task_failed,
    ev.TaskStopped: Cluster._task_stopped,
    ev.TaskRemoved: Cluster._task_removed,
    ev.JobRemoved: Cluster._job_removed,
    ev.UserAdded: Cluster._user_added,
    ev.UserUpdated: Cluster._user_updated,
    ev.UserRemoved: Cluster._user_removed,
    ev.UsageSampled: Cluster._usage_sampled,
    ev.MachineSampled: Cluster._machine_sampled,
}
