"""The simulation: arrivals, departures and machine events drive a scheduler through simulated time.

What happens at one instant is told to the scheduler together, and decided in one round.  The engine never looks into
the scheduler: it hears deltas, and keeps and audits books of its own (`flowsched.sim.audit`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from flowsched.cluster.events import (
    Event,
    JobSubmitted,
    MachineAdded,
    MachineDrained,
    MachineFailed,
    MachineRemoved,
    MachineUpdated,
    TaskCompleted,
    TaskSubmitted,
)
from flowsched.cluster.model import Machine, Resources
from flowsched.exceptions import InputError
from flowsched.sim.audit import AuditBooks, AuditError
from flowsched.sim.metrics import Metrics, Recorder, reason_counts
from flowsched.sim.workload import Arrival, Workload

try:
    import simpy
except ImportError as missing:  # pragma: no cover
    raise ImportError("the simulator needs SimPy: pip install 'flowsched[sim]'", name="simpy") from missing

if TYPE_CHECKING:
    from flowsched.scheduler import Commit, Delta, Round, RoundStats

__all__ = ["UNDECIDED", "Progress", "Schedules", "Simulation"]

UNDECIDED = "UNDECIDED"
"""Reason code of the tasks that have waited through no round yet when the run ends."""

_PATIENCE = 10
"""Rounds in a row that may change nothing, with nothing left to happen, before the run ends."""

_NOT_ARRIVED, _WAITING, _RUNNING, _COMPLETED = range(4)
_KINDS = ("place", "preempt", "migrate")


class Schedules(Protocol):
    """What the engine asks of a scheduler; `flowsched.Scheduler` is one."""

    def apply(self, *events: Event) -> Any:
        """Hear what happened."""

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide."""

    def commit(self, round: Round) -> Commit:
        """Make the decision so, but for what has become stale."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a simulation is; `time` in simulated seconds."""

    time: float
    rounds: int
    tasks: int
    completed: int
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class _Decision:
    """A round that is not committed yet: made when, on how much news, in how many seconds."""

    round: Round
    time: float
    news: int
    apply: float
    schedule: float


@dataclass(slots=True)
class _TaskState:
    """One task.  `left` is the run time that is still needed; `attempt` counts starts, so that a stale end is known."""

    id: Hashable
    arrived: float
    left: float
    state: int = _NOT_ARRIVED
    attempt: int = 0
    started: float = math.nan
    first_start: float = math.nan


class Simulation:
    """One run of a workload under a scheduler.

    Parameters
    ----------
    scheduler : Scheduler
        Fresh: the simulation adds the machines.
    workload : Workload
    machines : sequence of Machine, optional
        Instead of the workload's.
    interval : float or None
        Rounds at multiples of so many seconds, whenever something happened since the last one or tasks wait.
    on_events : bool
        Rounds at once after everything that happens.
    charge_solver : bool, float or callable
        Whether deciding takes simulated time: False, none; True, as long as it took on this computer (so that two runs
        differ); a number, so many seconds; a function of the round's stats, what it returns.  What is decided takes
        effect when that time is over; parts that are stale by then are refused by the commit.
    preempted : {"restart", "resume"}
        What becomes of the work of a task that is preempted or migrated, or whose machine fails.
    time_limit : float or None
        Passed to every ``schedule``.
    seed : int
        Recorded in the metrics; the engine itself draws nothing at random.
    facts : mapping, optional
        More to record (name of the policy, ...).

    Raises
    ------
    InputError
        An argument out of range.

    Examples
    --------
    >>> import flowsched as fs
    >>> work = fs.sim.Workload.model(tasks=200, scale=0.02)
    >>> metrics = fs.sim.Simulation(fs.Scheduler(), work).run()
    >>> sum(metrics.account().values())
    200
    """

    def __init__(
        self,
        scheduler: Schedules,
        workload: Workload,
        machines: Sequence[Machine] | None = None,
        *,
        interval: float | None = None,
        on_events: bool = True,
        charge_solver: bool | float | Callable[[RoundStats], float] = False,
        preempted: Literal["restart", "resume"] = "restart",
        time_limit: float | None = None,
        seed: int = 0,
        facts: dict[str, Any] | None = None,
    ) -> None:
        if interval is not None and not (math.isfinite(interval) and interval > 0):
            raise InputError(f"interval: a finite number of seconds > 0 or None expected, got {interval!r}")
        if interval is None and not on_events:
            raise InputError("on_events: without an interval, rounds on events are the only ones; got False")
        if preempted not in ("restart", "resume"):
            raise InputError(f"preempted: 'restart' or 'resume' expected, got {preempted!r}")
        if not callable(charge_solver) and not (math.isfinite(charge_solver) and charge_solver >= 0):
            raise InputError(f"charge_solver: a bool, a number of seconds >= 0 or a function expected, got {charge_solver!r}")
        self.scheduler = scheduler
        self.workload = workload if machines is None else replace(workload, machines=machines)
        self._interval = interval
        self._on_events = on_events
        self._charge = charge_solver
        self._resume = preempted == "resume"
        self._time_limit = time_limit
        self._facts = {
            "interval": interval,
            "on_events": on_events,
            "charge_solver": bool(charge_solver),
            "preempted": preempted,
            "seed": seed,
            **(facts or {}),
        }
        self._env = simpy.Environment()
        self._books = AuditBooks(Resources(self.workload.resources))
        self._recorder = Recorder(self.workload.resources)
        self._tasks: dict[Hashable, _TaskState] = {}
        self._jobs: set[Hashable] = set()
        self._n_state = [self.workload.n_tasks, 0, 0, 0]
        self._news: list[Event] = []
        self._round_at = math.inf
        self._last_round_at = -math.inf
        self._idle_rounds = 0
        self._deciding = False
        self._last_round: Round | None = None
        self._counts: dict[str, float] = dict.fromkeys(("placements", "preemptions", "migrations", "conflicts", "machine_failures"), 0)
        self._lost = 0.0
        self._progress: Callable[[Progress], None] | None = None
        self._wall = 0.0
        self._end = math.nan

    def run(self, until: float | None = None, progress: Callable[[Progress], None] | None = None) -> Metrics:
        """Run to the end.

        Parameters
        ----------
        until : float or None
            Simulated seconds; None for the workload's horizon, or for when nothing is left to happen.
        progress : callable, optional
            Called with a `Progress` after every round.

        Returns
        -------
        Metrics

        Raises
        ------
        AuditError
            The scheduler put a machine, a GPU or a slot above its capacity.
        InputError
            `until` is negative, or the simulation has run before.
        """
        end = self.workload.horizon if until is None else until
        if end is not None and not end >= 0:
            raise InputError(f"until: a number of seconds >= 0 expected, got {until!r}")
        if not math.isnan(self._end):
            raise InputError("run: a simulation runs once; make a new one with a fresh scheduler")
        last = math.inf if end is None else end
        self._end = 0.0
        self._progress = progress
        clock = time.perf_counter()
        try:
            self._open()
            while self._env.peek() <= last and math.isfinite(self._env.peek()):
                self._env.step()
            if math.isfinite(self._env.peek()):
                self._end = last
        finally:
            self._wall = time.perf_counter() - clock
        return self.metrics()

    def metrics(self) -> Metrics:
        """What was measured so far; for a run that was interrupted."""
        waiting = [t.id for t in self._tasks.values() if t.state == _WAITING]
        reasons = self._last_round.waiting if self._last_round else {}
        reasons = {task: reasons[task] for task in waiting if task in reasons}
        codes = [reasons[task].code.value if task in reasons else UNDECIDED for task in waiting]
        never = codes.count("NEVER_FITS")
        arrivals = self.workload.arrivals
        first, last = (arrivals[0].time, arrivals[-1].time) if arrivals else (0.0, 0.0)
        first_starts = np.array([t.first_start - t.arrived for t in self._tasks.values()], np.float64)
        return Metrics(
            facts={
                "workload": self.workload.name,
                **self.workload.facts,
                "machines": len(self.workload.machines),
                "tasks": self.workload.n_tasks,
                **self._facts,
                "end": self._end,
                "nothing_left": math.isinf(self._env.peek()),
            },
            tasks={
                "completed": self._n_state[_COMPLETED],
                "running": self._n_state[_RUNNING],
                "waiting": len(waiting) - never,
                "never_fits": never,
                "not_arrived": self._n_state[_NOT_ARRIVED],
            },
            placed=int(np.isfinite(first_starts).sum()),
            waiting=reason_counts(codes),
            reasons=reasons,
            usage=self._recorder.usage(first, last, self._end),
            counts={"rounds": self._recorder.n_rounds, **self._counts, "lost_seconds": self._lost},
            waits=first_starts[np.isfinite(first_starts)],
            series=self._recorder.series(),
            rounds=self._recorder.rounds(),
            wall_seconds=self._wall,
        )

    # What happens

    def _open(self) -> None:
        for machine in self.workload.machines:
            self._machine_event(MachineAdded(machine.id, machine.capacity, machine.rack, machine.labels, machine.slots))
        self._env.process(self._machine_events())
        self._env.process(self._arrivals())

    def _machine_events(self) -> Generator[simpy.Event, Any, None]:
        for when, events in groupby(self.workload.machine_events, key=lambda e: e.time):
            assert when is not None
            yield self._env.timeout(max(when - self._env.now, 0.0))
            for event in events:
                self._machine_event(event)

    def _arrivals(self) -> Generator[simpy.Event, Any, None]:
        for when, arrivals in groupby(self.workload.arrivals, key=lambda a: a.time):
            yield self._env.timeout(max(when - self._env.now, 0.0))
            for arrival in arrivals:
                self._arrive(arrival)

    def _arrive(self, arrival: Arrival) -> None:
        now, job = self._env.now, arrival.job
        self._books.register(job.tasks)
        for task, duration in zip(job.tasks, arrival.durations, strict=True):
            self._tasks[task.id] = state = _TaskState(task.id, now, duration)
            self._turn(state, _WAITING)
        if job.id in self._jobs:
            self._tell(*(TaskSubmitted(job.id, task, time=now) for task in job.tasks))
        else:
            self._jobs.add(job.id)
            self._tell(replace(job, time=now))

    def _machine_event(self, event: Event) -> None:
        now = self._env.now
        if isinstance(event, MachineAdded):
            self._books.add_machine(Machine(event.id, event.capacity, event.rack, event.labels, event.slots))
        elif isinstance(event, MachineUpdated):
            old = self._books.machine(event.id)
            changes = {k: getattr(event, k) for k in ("capacity", "rack", "labels", "slots") if getattr(event, k) is not None}
            if old is not None and not self._books.update_machine(replace(old, **changes)):
                # What runs there would not fit any more: the machine restarts with its new properties.
                new = replace(old, **changes)
                self._machine_event(MachineFailed(event.id))
                event = MachineAdded(new.id, new.capacity, new.rack, new.labels, new.slots)
                self._books.add_machine(new)
        elif isinstance(event, MachineFailed | MachineRemoved):
            self._counts["machine_failures"] += isinstance(event, MachineFailed)
            for task in self._books.remove_machine(event.id):
                self._stop(self._tasks[task])
        elif not isinstance(event, MachineDrained):
            raise InputError(f"machine_events: a machine's event expected, got {event!r}")
        self._tell(replace(event, time=now))

    def _on_end(self, event: simpy.Event) -> None:
        task, attempt = event.value
        if task.attempt != attempt or task.state != _RUNNING:
            return
        self._books.release(task.id, self._env.now)
        self._books.forget(task.id)
        self._turn(task, _COMPLETED)
        self._tell(TaskCompleted(task.id, time=self._env.now))

    def _tell(self, *events: Event) -> None:
        """Keep news for the scheduler, and have a round decide on it."""
        self._news += events
        self._idle_rounds = 0
        self._sample()
        if not self._deciding:
            self._plan(self._env.now if self._on_events else self._tick())

    # Rounds

    def _tick(self, skip: int = 0) -> float:
        """The next multiple of the interval that has had no round yet, or the one `skip` later."""
        assert self._interval is not None
        tick = math.ceil(self._env.now / self._interval)
        tick += tick * self._interval <= self._last_round_at
        return max((tick + skip) * self._interval, self._env.now)

    def _plan(self, at: float) -> None:
        """A round at this time, unless an earlier one is planned."""
        if at < self._round_at:
            self._round_at = at
            # Whatever else happens at the same instant was put into the queue before this.
            self._on(at - self._env.now, at, self._on_round)

    def _on(self, delay: float, value: Any, callback: Callable[[simpy.Event], None]) -> None:
        callbacks = self._env.timeout(delay, value).callbacks
        assert callbacks is not None
        callbacks.append(callback)

    def _on_round(self, event: simpy.Event) -> None:
        if event.value != self._round_at:
            return
        self._round_at, self._last_round_at = math.inf, event.value
        self._deciding = True
        news = len(self._news)
        begin = time.perf_counter()
        self._flush()
        told = time.perf_counter()
        decided = self.scheduler.schedule(self._env.now, self._time_limit)
        done = time.perf_counter()
        decision = _Decision(decided, self._env.now, news, told - begin, done - told)
        delay = self._price(decision)
        if delay > 0:
            self._on(delay, decision, lambda e: self._commit(e.value))
        else:
            self._commit(decision)

    def _price(self, decision: _Decision) -> float:
        """Simulated seconds until the decision takes effect."""
        if callable(self._charge):
            return self._charge(decision.round.stats)
        if isinstance(self._charge, bool):
            return decision.apply + decision.schedule if self._charge else 0.0
        return self._charge

    def _flush(self) -> None:
        if self._news:
            news, self._news = self._news, []
            self.scheduler.apply(*news)

    def _commit(self, decision: _Decision) -> None:
        late = bool(self._news)
        begin = time.perf_counter()
        self._flush()
        commit = self.scheduler.commit(decision.round)
        seconds = time.perf_counter() - begin
        done = self._carry_out(commit.accepted, decision.round)
        self._last_round = decision.round
        self._deciding = False
        self._record(decision, done, len(commit.conflicts), seconds)
        self._sample()
        if late:
            self._plan(self._env.now if self._on_events else self._tick())
        elif self._interval is not None:
            self._plan_next(idle=not decision.news and not any(done))
        if self._progress is not None:
            n = self._n_state
            self._progress(Progress(self._env.now, self._recorder.n_rounds, sum(n), n[_COMPLETED], n[_RUNNING], n[_WAITING]))

    def _plan_next(self, idle: bool) -> None:
        """Another round at the interval while tasks wait; every idle one in a row doubles the pause to the next."""
        self._idle_rounds = self._idle_rounds + 1 if idle else 0
        if self._n_state[_WAITING] and (self._idle_rounds < _PATIENCE or math.isfinite(self._env.peek())):
            self._plan(self._tick(skip=2**self._idle_rounds - 1))

    def _carry_out(self, deltas: Sequence[Delta], decided: Round) -> tuple[int, int, int]:
        """Make the accepted deltas so, in their order, and audit the machines that took tasks; counts by kind."""
        now, filled = self._env.now, {}
        done = [0, 0, 0]
        for delta in deltas:
            task = self._tasks.get(delta.task)
            if task is None:
                raise AuditError(f"at {now:g} s: {delta!r} concerns no task in the system")
            if delta.kind != "place":
                self._books.release(task.id, now)
                self._stop(task)
            if delta.kind != "preempt":
                self._books.place(task.id, delta.machine, decided.devices.get(task.id, ()), now)
                self._start(task)
                filled[delta.machine] = None
            done[_KINDS.index(delta.kind)] += 1
        self._books.check(filled, now)
        for name, n in zip(("placements", "preemptions", "migrations"), done, strict=True):
            self._counts[name] += n
        return done[0], done[1], done[2]

    def _record(self, decision: _Decision, done: tuple[int, int, int], conflicts: int, seconds: float) -> None:
        stats = decision.round.stats
        self._counts["conflicts"] += conflicts
        self._recorder.round(
            decision.time, decision.news, stats.nodes, stats.arcs, stats.changes, stats.solves, *done, conflicts,
            decision.apply, stats.seconds_update, stats.seconds_solve, stats.seconds_read, decision.schedule, seconds,
        )  # fmt: skip

    # Tasks

    def _start(self, task: _TaskState) -> None:
        now = self._env.now
        self._turn(task, _RUNNING)
        task.attempt += 1
        task.started = now
        if math.isnan(task.first_start):
            task.first_start = now
        if math.isfinite(task.left):
            self._on(task.left, (task, task.attempt), self._on_end)

    def _stop(self, task: _TaskState) -> None:
        ran = self._env.now - task.started
        if self._resume:
            task.left = max(task.left - ran, 0.0)
        else:
            self._lost += ran
        self._turn(task, _WAITING)

    def _turn(self, task: _TaskState, state: int) -> None:
        self._n_state[task.state] -= 1
        self._n_state[state] += 1
        task.state = state

    def _sample(self) -> None:
        now = self._env.now
        self._end = now
        self._recorder.sample(now, self._n_state[_RUNNING], self._n_state[_WAITING], self._books.used, self._books.capacity)
