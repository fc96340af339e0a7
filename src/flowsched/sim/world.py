"""The simulated world: tasks that arrive, run and end, machines that come and go, and an inventory of both.

It makes events for the scheduler, and carries the scheduler's deltas out.  It does not know about rounds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.events import (
    Event,
    JobSubmitted,
    MachineAdded,
    MachineDrained,
    MachineFailed,
    MachineRemoved,
    MachineUpdated,
    TaskCompleted,
    TaskFailed,
    TaskSubmitted,
)
from flowsched.cluster.model import GPU_MODEL, Machine, Resources, Task
from flowsched.rounds.values import Delta, Migrate, Place, Preempt
from flowsched.sim import runs
from flowsched.sim.audit import AuditError, AuditInventory
from flowsched.sim.clock import Clock
from flowsched.sim.execution import Execution, Runner
from flowsched.sim.inputs import WHERE, Inputs
from flowsched.sim.links import NetworkModel
from flowsched.sim.power import PowerMeter, PowerModel
from flowsched.sim.runs import FAILED, STOPPED, Runs
from flowsched.sim.workload import Arrival, Workload

NOT_ARRIVED, WAITING, RUNNING, COMPLETED = range(4)
_STATES = ("not arrived", "waiting", "running", "completed")


@dataclass(slots=True, eq=False)
class TaskState:
    """State of a task.

    `row` numbers the tasks in order of arrival; `left` is the remaining run time.  `attempt` counts starts, so that a stale
    end is recognised; `machine` and `devices` are those of the last start, `run` is its number among all runs.  `waited`
    counts the waits before each start, `since` is when the present one began; `lost` is lost work.  `ready` is when the
    present run had read its input, infinite while it reads, and `reading` are the seconds of earlier runs for that.
    """

    id: Hashable
    task: Task
    job: JobSubmitted
    row: int
    arrived: float
    duration: float
    left: float
    since: float
    state: int = WAITING
    attempt: int = 0
    started: float = math.nan
    first_start: float = math.nan
    ended: float = math.nan
    machine: Hashable = None
    devices: Sequence[int] | None = None
    preempted: int = 0
    waited: float = 0.0
    lost: float = 0.0
    run: int = -1
    ready: float = math.nan
    reading: float = 0.0

    def read_until(self, now: float) -> float:
        """Return the seconds for which the present run has read its input."""
        return max(min(self.ready, now) - self.started, 0.0)


class World:
    """Tasks and machines of a simulation, and the events that change them.

    With `resume`, a stopped task keeps its progress; otherwise it starts again from scratch.  Without an `execution`,
    tasks take the workload's durations; with one, machines may be overcommitted.  `happened` is called after every
    event; the events for the scheduler gather in `pending`.

    `tasks` has all that have arrived, in order of arrival, and `count` their numbers by state: `NOT_ARRIVED`,
    `WAITING`, `RUNNING`, `COMPLETED`.  `lost_seconds` of work are lost; `task_failures` tasks failed because a resource
    was short.
    """

    def __init__(
        self,
        clock: Clock,
        workload: Workload,
        resume: bool,
        execution: Execution | None,
        power: PowerModel | None,
        network: NetworkModel | None,
        happened: Callable[[], None],
    ) -> None:
        self.clock = clock
        self.inventory = AuditInventory(Resources(workload.resources), overcommit=execution is not None)
        self.tasks: dict[Hashable, TaskState] = {}
        self.runs = Runs(workload.resources)
        self.power = None if power is None else PowerMeter(power, self.inventory.resources)
        self.count = [workload.n_tasks, 0, 0, 0]
        self.pending: list[Event] = []
        self.failures = 0
        self.task_failures = 0
        self.lost_seconds = 0.0
        self.inputs = Inputs(network, clock, self.inventory.machine, lambda task: self._work(self.tasks[task]))
        self._workload = workload
        self._resume = resume
        self._happened = happened
        self._jobs: set[Hashable] = set()
        arrivals = Counter(arrival.job.id for arrival in workload.arrivals)
        self._paces: dict[Hashable, float] = {}
        """By task whose run time depends on the machine: seconds of its duration done in a second, since its last start."""
        self._held: dict[Hashable, list[Arrival]] = {}
        """Arrivals whose time has come, by one of the tasks that they wait for."""
        self._open = {job for job, times in arrivals.items() if times > 1}  # the others leave with their last task
        self._runner: Runner | None = None
        if execution is not None:
            self._runner = Runner(
                execution, clock, self.inventory.resources, resume, self._finish, self._fail, self._sampled
            )

    def open(self) -> None:
        """Add the machines, and plan the first events and arrivals."""
        for machine in self._workload.machines:
            self._machine_event(MachineAdded(machine.id, machine.capacity, machine.rack, machine.labels, machine.slots))
        self._wait_for((list(reversed(self._workload.machine_events)), self._machine_event))
        self._wait_for((list(reversed(self._workload.arrivals)), self._arrive))

    def carry_out(self, deltas: Sequence[Delta]) -> tuple[int, int, int]:
        """Carry deltas out in their order, and audit the machines that took tasks.

        Returns the numbers of placements, preemptions and migrations; raise AuditError if a delta is impossible.
        """
        now = self.clock.now
        count = {Place: 0, Preempt: 0, Migrate: 0}
        filled: dict[Hashable, None] = {}
        for delta in deltas:
            task = self.tasks.get(delta.task)
            if task is None:
                raise AuditError(f"at {now:g} s: {delta!r} concerns no task in the system")
            kind = type(delta)
            count[kind] += 1
            if kind is not Place:
                self.inventory.release(delta.task, now)
                self._stop(task)
                task.preempted += kind is Preempt
            if not isinstance(delta, Preempt):
                self.inventory.place(delta.task, delta.machine, delta.devices, now)
                task.machine, task.devices = delta.machine, delta.devices
                self._start(task)
                filled[delta.machine] = None
        self.inventory.check(filled, now)
        return count[Place], count[Preempt], count[Migrate]

    def _wait_for(self, coming: tuple[list[Any], Callable[[Any], None]]) -> None:
        """Plan the next of the events or arrivals, which are in reverse order."""
        if coming[0]:
            self.clock.after(max(coming[0][-1].time - self.clock.now, 0.0), coming, self._come)

    def _come(self, coming: tuple[list[Any], Callable[[Any], None]]) -> None:
        """Let those of one time happen."""
        things, happen = coming
        when = things[-1].time
        while things and things[-1].time == when:
            happen(things.pop())
        self._wait_for(coming)

    def _arrive(self, arrival: Arrival) -> None:
        """Add tasks that arrive, or hold them back until the next task that they wait for has completed."""
        for task in arrival.after:
            state = self.tasks.get(task)
            if state is None or state.state != COMPLETED:
                self._held.setdefault(task, []).append(arrival)
                return
        now, job = self.clock.now, arrival.job
        self.inventory.register(job.tasks)
        for task, duration in zip(job.tasks, arrival.durations, strict=True):
            self.tasks[task.id] = TaskState(task.id, task, job, len(self.tasks), now, duration, duration, now)
        self.count[NOT_ARRIVED] -= len(job.tasks)
        self.count[WAITING] += len(job.tasks)
        if job.id in self._jobs:
            self._tell(*(TaskSubmitted(job.id, task, time=now) for task in job.tasks))
        else:
            self._jobs.add(job.id)
            closed = job.closed or (bool(job.tasks) and job.id not in self._open)
            self._tell(
                JobSubmitted(job.id, job.tasks, job.user, job.priority, job.gang, job.deadline, closed, time=now)
            )

    def _machine_event(self, event: Event) -> None:
        if isinstance(event, MachineAdded):
            machine = Machine(event.id, event.capacity, event.rack, event.labels, event.slots, event.taints)
            self._add_machine(machine)
        elif isinstance(event, MachineUpdated):
            event = self._updated(event)
        elif isinstance(event, MachineFailed | MachineRemoved):
            self.failures += isinstance(event, MachineFailed)
            self.runs.away(event.id, self.clock.now)
            if self.power is not None:
                self.power.away(event.id)
            for task in self.inventory.remove_machine(event.id):
                self._stop(self.tasks[task])
            self.inputs.gone(event.id)
            if self._runner is not None:
                self._runner.remove_machine(event.id)
        elif isinstance(event, MachineDrained):
            self.runs.away(event.id, self.clock.now, drained=True)
        self._tell(replace(event, time=self.clock.now))

    def _add_machine(self, machine: Machine) -> None:
        self.inventory.add_machine(machine)
        self._there(machine)
        if self._runner is not None:
            self._runner.add_machine(machine)

    def _there(self, machine: Machine) -> None:
        capacity = self.inventory.capacity_of(machine.id)
        self.runs.there(machine.id, machine.rack, capacity, self.clock.now)
        if self.power is not None:
            self.power.there(machine, capacity)

    def _updated(self, event: MachineUpdated) -> Event:
        """Change a machine; if its tasks would not fit any more, it fails and comes back with the new properties."""
        old = self.inventory.machine(event.id)
        assert old is not None, "the simulation has checked the events of its machines"
        changes = {k: v for k in ("capacity", "rack", "labels", "slots") if (v := getattr(event, k)) is not None}
        new = replace(old, **changes)
        if self.inventory.update_machine(new):
            self._there(new)
            if self._runner is not None:
                self._runner.update_machine(new)
            return event
        self._machine_event(MachineFailed(event.id))
        self._add_machine(new)
        return MachineAdded(new.id, new.capacity, new.rack, new.labels, new.slots)

    def _start(self, task: TaskState) -> None:
        now = self.clock.now
        self._set_state(task, RUNNING)
        task.attempt += 1
        task.started = now
        task.waited += now - task.since
        if task.attempt == 1:
            task.first_start = now
        task.run = self.runs.begin(task.row, task.machine, now)
        if self.power is not None:
            self.power.begin(task.id, task.machine, self.inventory.demand(task.id))
        data = task.task.data
        assert isinstance(data, tuple), "a task keeps pairs"
        if data and self.inputs.begin(task.id, data, task.machine):
            task.ready = math.inf
        else:
            self._work(task)

    def _work(self, task: TaskState) -> None:
        """Start the work of a task that has all its input."""
        task.ready = self.clock.now
        self.runs.ready(task.run, task.ready)
        pace = self._pace(task) if task.id in self._workload.run_times else 1.0
        if self._runner is not None:
            self._runner.start(task.id, self.inventory.where(task.id), self.inventory.demand(task.id), task.left, pace)
        elif math.isfinite(task.left):
            self.clock.after(task.left / pace, (task, task.attempt), self._end)

    def _pace(self, task: TaskState) -> float:
        """Return the ratio of a task's duration to its run time on its machine."""
        machine = self.inventory.machine(task.machine)
        model = None if machine is None else machine.labels.get(GPU_MODEL)
        times = self._workload.run_times[task.id]
        pace = self._paces[task.id] = task.duration / times.get(model or "", task.duration)
        return pace

    def _stop(self, task: TaskState) -> None:
        now = self.clock.now
        read = task.read_until(now)
        self.runs.end(task.run, now, STOPPED)
        if math.isinf(task.ready):
            self.inputs.stop(task.id)
        elif self._runner is not None:
            self._runner.stop(task.id)
        if self._resume:
            worked = now - task.started - read
            task.left = max(task.left - worked * self._paces.get(task.id, 1.0), 0.0)
        lost = read if self._resume else now - task.started
        self._lose(task, lost)
        task.reading += read
        if self.power is not None:
            self.power.end(task.id, lost)
        task.since = self.clock.now
        self._set_state(task, WAITING)

    def _lose(self, task: TaskState, seconds: float) -> None:
        """Throw away `seconds` of a task's work."""
        task.lost += seconds
        self.lost_seconds += seconds

    def _end(self, attempt: tuple[TaskState, int]) -> None:
        task, number = attempt
        if task.attempt == number and task.state == RUNNING:
            self._finish(task.id)

    def _finish(self, task: Hashable) -> None:
        state = self.tasks[task]
        state.ended = self.clock.now
        state.reading += state.read_until(state.ended)
        self.runs.end(state.run, state.ended, runs.COMPLETED)
        if self.power is not None:
            self.power.end(task)
        self.inventory.release(task, self.clock.now)
        self.inventory.forget(task)
        self._set_state(state, COMPLETED)
        self._tell(TaskCompleted(task, time=self.clock.now))
        for arrival in self._held.pop(task, ()):
            self._arrive(arrival)

    def _fail(self, task: Hashable) -> None:
        """End a task that failed because a resource is short: it waits again, and its work is lost."""
        state = self.tasks[task]
        self.task_failures += 1
        self.runs.end(state.run, self.clock.now, FAILED)
        self._lose(state, self.clock.now - state.started)
        state.reading += state.read_until(self.clock.now)
        if self.power is not None:
            self.power.end(task, self.clock.now - state.started)
        state.since = self.clock.now
        self.inventory.release(task, self.clock.now)
        self._set_state(state, WAITING)
        self._tell(TaskFailed(task, time=self.clock.now))

    def _sampled(self, samples: Sequence[Event]) -> None:
        """Keep samples for the next round; decide at once if tasks wait."""
        self.pending += samples
        if self.count[WAITING]:
            self._happened()

    def run_table(self) -> Mapping[str, NDArray[Any]]:
        """Return `Metrics.runs`."""
        demand_of, resources = self.inventory.resources.demand_of, self.inventory.resources.names
        demands = np.array([demand_of(state.task) for state in self.tasks.values()], np.int64)
        return self.runs.columns(demands.reshape(len(demands), len(resources)))

    def task_table(self, end: float) -> dict[str, list[Any]]:
        """Return a row per task that has arrived, by columns; waiting tasks are counted as waiting until `end`."""
        states = list(self.tasks.values())
        read = [self.inputs.read(task.id, end) for task in states]
        return {
            "task": [task.id for task in states],
            "job": [task.job.id for task in states],
            "user": [task.job.user for task in states],
            "arrival": [task.arrived for task in states],
            "starts": [task.attempt for task in states],
            "first_start": [task.first_start for task in states],
            "last_start": [task.started for task in states],
            "machine": [task.machine for task in states],
            "devices": [None if task.devices is None else tuple(task.devices) for task in states],
            "end": [task.ended for task in states],
            "preempted": [task.preempted for task in states],
            "state": [_STATES[task.state] for task in states],
            "duration": [task.duration for task in states],
            "waited": [task.waited + (max(end - task.since, 0.0) if task.state == WAITING else 0.0) for task in states],
            "lost": [task.lost for task in states],
            "reading": [task.reading + (task.read_until(end) if task.state == RUNNING else 0.0) for task in states],
            **{f"read_{where}": [amounts[i] for amounts in read] for i, where in enumerate(WHERE)},
        }

    def counted(self) -> list[int]:
        """Return `count` from the tasks themselves, which is right also in the middle of a change."""
        count = [0, 0, 0, 0]
        for task in list(self.tasks.values()):
            count[task.state] += 1
        count[NOT_ARRIVED] += self._workload.n_tasks - sum(count)
        return count

    def _set_state(self, task: TaskState, state: int) -> None:
        self.count[task.state] -= 1
        self.count[state] += 1
        task.state = state

    def _tell(self, *events: Event) -> None:
        self.pending += events
        self._happened()
