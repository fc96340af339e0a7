"""The owner of the cluster's state: `Cluster.apply(event)`.

An event is checked whole before anything changes, so a refused event leaves the cluster unchanged.  The cluster also
records changes, so that the cost of updating a mirror (the network) depends on the changes: see `Cluster.changes`.

Rule: `Cluster.midway` is true from before the first change of an event, commit or trial until after its last one.  An
unforeseen exception (out of memory) leaves it true, and later calls are refused: `TornStateError`.
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
from flowsched.cluster.images import become, kept
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.joining import joins
from flowsched.cluster.model import Resources
from flowsched.cluster.records import Changes, complete, fetch
from flowsched.cluster.rehearsal import take_part
from flowsched.cluster.task_events import TaskEvents, job_submitted, task_completed
from flowsched.exceptions import FlowschedError, InputError, TornStateError

__all__ = ["Cluster"]

IDLE_CLASSES = 64
"""Number of classes without tasks that are kept for later tasks of their kind."""


_FETCHED, _FEW = 32, 8
"""Number of events for which memory is fetched at once, and the number of events from which on it is fetched."""


class Cluster(TaskEvents):
    """Machines, jobs, tasks and users, and the runs of tasks on machines.

    Parameters
    ----------
    resources : Resources or sequence of str
        Resources of machines and tasks; a resource called "gpu" is counted device by device.

    Attributes
    ----------
    inventory, by_row, waiting, machines, tasks
        See `Views`.
    jobs, by_class, attempts, resting, midway
        See `Membership`.
    stopping
        See `Stopping`.
    events : int
        Number of events that have happened.
    runs : int
        Number of runs that have begun, and so the number of the last one (`TaskRecord.run`).  Each real start begins a
        run: a delta of a commit, or `TaskStarted`.  A trial start begins none.
    stale_events : int
        Number of events about a former run, which changed nothing.
    """

    def __init__(self, resources: Resources | Sequence[str] = ("cpu", "mem", "gpu")) -> None:
        known = resources if isinstance(resources, Resources) else Resources(ordered("resources", resources))
        super().__init__(Inventory(known))

    # -- images -------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for an image."""
        return kept({**self.fields(), **vars(self)})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the cluster from the state of `__getstate__`."""
        attributes: dict[str, Any] = {}
        become(attributes, state)
        for name, value in attributes.items():
            setattr(self, name, value)
        if any(hasattr(Cluster, name) for name in vars(self)):
            raise ValueError("an attribute that hides what a cluster does")

    # -- changes -------------------------------------------------------------------------------------------------

    def _drop_unused(self, changes: Changes) -> None:
        """Drop the classes without tasks that are too many, and the machines that are gone."""
        while len(self._idle) > IDLE_CLASSES:
            key = next(iter(self._idle))
            del self._idle[key]
            changes.classes.append(self._classes.pop(key).index)
        for cls in changes.classes:
            self.inventory.drop_class(cls)
            del self.by_class[cls]
        for row in changes.gone:
            self.inventory.drop_machine(row)

    def forget_tries(self, turn: int) -> None:
        """Restore every order as before trial moves that were all taken back, and mark everything as changed.

        Parameters
        ----------
        turn : int
            Largest turn given before.
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
        self.everything()  # now, since it gives back the rows of removed machines

    @property
    def serial(self) -> int:
        """Largest serial of a job or group so far."""
        return self._serial

    def everything(self) -> None:
        """Mark everything as changed, for a mirror that starts empty."""
        self.changes()
        groups = {group: dict.fromkeys(group.on) for job in self.jobs.values() for group in job.each_group()}
        self._changes.groups, self._changes.machines = groups, dict.fromkeys(self.by_row)

    # -- events -------------------------------------------------------------------------------------------------

    def apply(self, *events: ev.Event, atomic: bool = False) -> tuple[ev.EndedRun, ...]:
        """Apply events, one after the other.

        Parameters
        ----------
        *events : Event
        atomic : bool
            All events happen, or none.  Several events are tried in a small cluster first, which costs about 0.1 ms for the
            call and 10 microseconds for each event.  Not available with a fit rule.

        Returns
        -------
        tuple of EndedRun
            Runs that they ended, in that order.

        Raises
        ------
        FlowschedError
            An event names something unknown, a duplicate, or something impossible.  It then did nothing.  Unless the call is
            atomic, the events before it stand; those after it did not happen.  ``error.index`` is its position, and
            ``error.ended`` has the runs that the events before it ended.
        """
        if self.midway:
            self.check_whole()
        if atomic:
            self._rehearse(events)
            atomic = len(events) > 1  # a single event is refused whole in any case
        before = self.events
        ended: list[ev.EndedRun] = []
        try:
            if len(events) < MANY:
                _apply(self, events, ended, atomic)
            else:
                with uncollected():
                    _apply(self, events, ended, atomic)
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

    def _join(self, events: Sequence[ev.Event], position: int, together: bool) -> int:
        """Add machines with equal descriptions at once, from this position on; return their number."""
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
        """Apply a series of completions from this position on at once, within the fetched part; return their number."""
        tasks = self._done(events[position : position + _FETCHED - position % _FETCHED])
        if tasks:
            self.midway = True
            ended += complete(self, tasks, ev.EndedRun)
            self.events += len(tasks)
            self.midway = together
        return len(tasks)

    def _fetch(self, events: Sequence[ev.Event]) -> None:
        """Prefetch the memory that completions are about to change."""
        with suppress(Exception):  # for an invalid id; its event is refused in its turn
            fetch(self.inventory, self.tasks, [event.task for event in events if type(event) is ev.TaskCompleted])

    def check_whole(self) -> None:
        """Refuse to go on after an incomplete change."""
        if self.midway:
            raise TornStateError(
                "an exception ended an earlier call in the middle of a change; go on from a journal, snapshot or export"
            )


def _apply(cluster: Cluster, events: tuple[ev.Event, ...], ended: list[ev.EndedRun], together: bool) -> None:
    """Apply events; record the runs that they end.

    The cluster is `midway` during each event, and with `together` also between them.
    """
    position, many = 0, len(events) > _FEW
    while position < len(events):
        event = events[position]
        kind, done = type(event), 0
        if many and not position % _FETCHED:
            cluster._fetch(events[position : position + _FETCHED])
        if kind is _MACHINE_ADDED:
            done = cluster._join(events, position, together)
        elif many and kind is _COMPLETED:
            done = cluster._complete(events, position, ended, together)
        position += done or 1
        if done:
            continue
        handler = _HANDLERS.get(kind)
        if handler is None:
            hint = "; apply takes events as arguments: apply(*events)" if issubclass(kind, list | tuple) else ""
            raise InputError(f"event: an event expected, got {quoted(event)}{hint}")
        if event.time is not None:
            time = number(f"{kind.__name__}: time", event.time)
            if time is not event.time:  # a NumPy number, which may overflow in arithmetic
                event = replace(event, time=time)
        cluster.midway = True
        try:
            over: list[ev.EndedRun] | None = None
            if kind is _COMPLETED:  # the most frequent two are calls without a look-up
                over = task_completed(cluster, event)  # type: ignore[arg-type]
            elif kind is _SUBMITTED:
                job_submitted(cluster, event)  # type: ignore[arg-type]
            else:
                over = handler(cluster, event)
        except FlowschedError:
            cluster.midway = together  # it was refused before it changed anything
            raise
        cluster.events += 1  # before `midway` is reset: the journal counts by it
        cluster.midway = together
        if over is not None:
            ended += over
    if together:
        cluster.midway = False


_MACHINE_ADDED, _SUBMITTED, _COMPLETED = ev.MachineAdded, ev.JobSubmitted, ev.TaskCompleted

_HANDLERS: dict[type[ev.Event], Callable[[Cluster, Any], list[ev.EndedRun] | None]] = {
    ev.MachineAdded: Cluster._machine_added,
    ev.MachineUpdated: Cluster._machine_updated,
    ev.MachineDrained: Cluster._machine_drained,
    ev.MachineFailed: Cluster._machine_failed,
    ev.MachineRemoved: Cluster._machine_removed,
    ev.JobSubmitted: job_submitted,
    ev.TaskSubmitted: Cluster._task_submitted,
    ev.TaskStarted: Cluster._task_started,
    ev.TaskCompleted: task_completed,
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
