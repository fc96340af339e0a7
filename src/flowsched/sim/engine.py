"""The simulation: a scheduler that decides round after round in a simulated world.

Events of one instant reach the scheduler together, and are decided in one round.  The engine never looks into the
scheduler: it takes deltas, and its world keeps and audits an inventory of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

import numpy as np

from flowsched.boundary.validate import instance, mapping, number, quoted
from flowsched.cluster.events import Event
from flowsched.cluster.model import Machine
from flowsched.exceptions import InputError
from flowsched.rounds.values import Commit, Reason, ReasonCode, Round, RoundStats
from flowsched.sim.audit import AuditError
from flowsched.sim.clock import Clock, simpy
from flowsched.sim.execution import Execution
from flowsched.sim.fragmentation import meter
from flowsched.sim.inputs import WHERE
from flowsched.sim.links import NetworkModel
from flowsched.sim.metrics import Metrics
from flowsched.sim.power import PowerModel
from flowsched.sim.recorder import Recorder, reason_counts
from flowsched.sim.workload import LATEST, SHORTEST, Workload, in_order
from flowsched.sim.world import COMPLETED, NOT_ARRIVED, RUNNING, WAITING, World

_PATIENCE = 10
"""Rounds in a row without a change, and without events to come, after which the run ends."""
UNDECIDED: Final = "UNDECIDED"
"""Reason code of the tasks that have waited through no round yet when the run ends."""
_NEVER_STARTS = (ReasonCode.NEVER_FITS, ReasonCode.FILTERED)


def _misplaced(i: int, message: str) -> InputError:
    return InputError(f"machine_events[{i}]: {message}")


class Simulation:
    """One run of a workload under a scheduler.

    Parameters
    ----------
    scheduler : Scheduler
        Fresh: the simulation adds the machines.
    workload : Workload
    machines : sequence of Machine, optional
        Instead of the workload's.
    machine_events : sequence of Event, optional
        Failures, maintenance and changes of machines, instead of the workload's; each has its ``time``.  One that comes
        back (`MachineAdded`) without a capacity has its former one.
    interval : float or None
        Seconds; rounds are at its multiples, if there were events since the last one, and while tasks wait (then every
        round in a row without events and changes doubles the pause to the next).  One without events before the last
        one's `Round.again_at` is skipped if decisions take no time: it would decide the same.
    on_events : bool
        A round at every event.
    charge_solver : bool, float or callable
        Simulated time of a decision: False, none; True, the time that it took on this computer (so two runs differ); a
        number of seconds; or the result of a function of the round's stats.  The decision takes effect when that time is
        over; the commit refuses the parts that are stale by then.
    preempted : {"restart", "resume"}
        A task that is preempted or migrated, or whose machine fails, loses its work ("restart") or keeps it ("resume").
    time_limit : float or None
        Passed to every ``schedule``.
    execution : Execution, optional
        True stages of tasks, contention, foreign load; without it every task runs for its duration.
    power : PowerModel, optional
        Power draw of the machines; with one, `Metrics.energy` has the energy of the run.
    network : NetworkModel, optional
        Links over which tasks read their input (`Task.data`) before they work; without one, reading takes no time.
    seed : int
        Recorded in the metrics; the engine itself draws nothing at random.
    facts : mapping, optional
        Further facts to record (name of the policy, ...).
    env : simpy.Environment, optional
        The environment to run in, together with other processes.  Times of the workload are times there; events that were
        due before its present time happen at once.  `start` adds the simulation to it, and ``env.run`` runs both.

    Attributes
    ----------
    stopped : bool
        True if `stop` was called.

    Raises
    ------
    InputError
        An argument out of range; an event of a machine that is not there at its time, or one that adds a machine that is.

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
        machine_events: Sequence[Event] | None = None,
        interval: float | None = None,
        on_events: bool = True,
        charge_solver: bool | float | Callable[[RoundStats], float] = False,
        preempted: Literal["restart", "resume"] = "restart",
        time_limit: float | None = None,
        execution: Execution | None = None,
        power: PowerModel | None = None,
        network: NetworkModel | None = None,
        seed: int = 0,
        facts: Mapping[str, Any] | None = None,
        env: simpy.Environment | None = None,
    ) -> None:
        instance("workload", workload, Workload)
        instance("execution", execution, Execution, none=True)
        instance("power", power, PowerModel, none=True)
        instance("network", network, NetworkModel, none=True)
        if interval is not None and not number("interval", interval, most=LATEST) >= SHORTEST:
            raise InputError(
                f"interval: a finite number of seconds > 0 (at least {SHORTEST:g}) or None expected, got {quoted(interval)}"
            )
        if interval is None and not on_events:
            raise InputError("on_events: without an interval, rounds on events are the only ones; got False")
        if preempted not in ("restart", "resume"):
            raise InputError(f"preempted: 'restart' or 'resume' expected, got {quoted(preempted)}")
        if not callable(charge_solver) and not isinstance(charge_solver, bool):
            number("charge_solver", charge_solver, 0, LATEST)
        self.scheduler = scheduler
        if machines is not None:
            workload = replace(workload, machines=machines)
        if machine_events is not None:
            workload = replace(workload, machine_events=machine_events)
        events = in_order(workload.machines, workload.machine_events, _misplaced)
        self.workload = replace(workload, machine_events=events) if events else workload
        self._interval = interval
        self._on_events = on_events
        self._charge = charge_solver
        self._time_limit = time_limit
        self._facts = {
            "interval": interval,
            "on_events": on_events,
            "charge_solver": bool(charge_solver),
            "preempted": preempted,
            "seed": seed,
            **({} if power is None else {"power": str(power)}),
            **({} if network is None else {"network": str(network)}),
            **mapping("facts", {} if facts is None else facts),
        }
        if env is not None and not isinstance(env, simpy.Environment):
            raise InputError(f"env: a simpy.Environment or None expected, got {quoted(env)}")
        self._clock = Clock(env)
        self._world = World(
            self._clock, self.workload, preempted == "resume", execution, power, network, self._happened
        )
        self._recorder = Recorder(
            self.workload.resources, meter(self._world.inventory, self.workload), power is not None
        )
        self._round_at = math.inf
        self._last_round_at = -math.inf
        self._same_until = -math.inf
        self._idle_rounds = 0
        self._deciding = self._uninformed = False
        self._sampled = True
        self._last: tuple[Round, Commit] | None = None
        self._progress: Callable[[Progress], None] | None = None
        self._wall = 0.0
        self._end = math.nan
        self._ended = False
        self.stopped = False

    def stop(self) -> None:
        """End `run` after the present event, with the measurements so far; a signal handler may call it."""
        self.stopped = True

    def run(self, until: float | None = None, progress: Callable[[Progress], None] | None = None) -> Metrics:
        """Run to the end.

        Parameters
        ----------
        until : float or None
            Simulated seconds; None for the workload's horizon, or the last event.
        progress : callable, optional
            Called with a `Progress` after every round.

        Raises
        ------
        AuditError
            The scheduler overcommitted a machine, a GPU or a slot, or gave no reason for a waiting task.
        InputError
            `until` is negative, or the simulation has run before.
        """
        last = self._last_time(until)
        if self._ended:
            raise InputError("run: a simulation runs once; make a new one with a fresh scheduler")
        self._ended = True
        self._progress = progress
        begin = time.perf_counter()
        try:
            self.start()
            self._advance(last)
            if not self.stopped:
                self._finish(last)
        finally:
            self._wall += time.perf_counter() - begin
        return self.metrics()

    def start(self) -> None:
        """Add the machines, and begin the arrivals; `run` and `step` call it if the caller has not."""
        if math.isnan(self._end):
            self._clock.synchronise()
            self._end = self._clock.now
            self._world.open()

    def step(self, until: float | None = None) -> Progress | None:
        """Process all events of the next time at which anything happens.

        A run by steps is that of `run`; `run` runs the rest after some steps.

        Parameters
        ----------
        until : float or None
            As in `run`.

        Returns
        -------
        Progress or None
            The state after it; None at the end, where nothing is left to happen by then.

        Raises
        ------
        AuditError, InputError
            As `run`.
        """
        last = self._last_time(until)
        begin = time.perf_counter()
        try:
            self.start()
            now = self._clock.peek()
            if self._ended or self.stopped or self._clock.quiet or now > last:
                if not (self._ended or self.stopped):
                    self._ended = True
                    self._finish(last)
                return None
            self._advance(now)
        finally:
            self._wall += time.perf_counter() - begin
        return self._state()

    def _last_time(self, until: float | None) -> float:
        if until is not None:
            number("until", until, 0, LATEST, finite=False)
        last = self.workload.horizon if until is None else until
        return math.inf if last is None else last

    def _finish(self, last: float) -> None:
        """End a run that was not stopped at this time, or at its last event if nothing is left to happen."""
        if not self._clock.quiet:
            self._end = last
        else:
            self._end = max(self._end, self._world.inputs.time)
        self._check_reasons()

    def _state(self) -> Progress:
        count = self._world.count
        return Progress(
            self._clock.now, self._recorder.n_rounds, sum(count), count[COMPLETED], count[RUNNING], count[WAITING]
        )

    def _advance(self, last: float) -> None:
        """Process all events up to a time."""
        while not self.stopped and self._clock.step(last):
            pass

    def metrics(self) -> Metrics:
        """Return the measurements so far, also of a run that was stopped, or interrupted at any moment.

        The event at which a run was interrupted may be counted in part.
        """
        if not self._sampled:
            self._sample()
        world, recorder, end = self._world, self._recorder, self._end
        states = list(world.tasks.values())
        count = world.counted()
        waiting = [t.id for t in states if t.state == WAITING]
        reasons = {task: reason for task in waiting if (reason := self._reason(task)) is not None}
        infeasible = sum(reason.code in _NEVER_STARTS for reason in reasons.values())
        waits = np.array([t.first_start - t.arrived for t in states], np.float64)
        unstarted = end - np.array([t.arrived for t, w in zip(states, waits, strict=True) if math.isnan(w)], np.float64)
        waits = waits[np.isfinite(waits)]
        arrivals = self.workload.arrivals
        table = world.task_table(end)
        rounds = recorder.rounds()
        on_machine, in_rack, elsewhere = (math.fsum(table[f"read_{where}"]) for where in WHERE)
        first, last = (arrivals[0].time, arrivals[-1].time) if arrivals else (0.0, 0.0)
        last = max(last, states[-1].arrived if states else 0.0)  # some wait for others before they arrive
        return Metrics(
            facts={
                "workload": self.workload.name,
                **self.workload.facts,
                "machines": len(self.workload.machines),
                "tasks": self.workload.n_tasks,
                "units": dict(self.workload.units),
                **self._facts,
                "end": end,
                "nothing_left": world.clock.quiet,
            },
            tasks={
                "completed": count[COMPLETED],
                "running": count[RUNNING],
                "waiting": len(waiting) - infeasible,
                "never_fits": infeasible,
                "not_arrived": count[NOT_ARRIVED],
            },
            placed=len(waits),
            waiting=reason_counts([reasons[task].code.value if task in reasons else UNDECIDED for task in waiting]),
            reasons=reasons,
            usage=recorder.usage(first, last, end),
            offered=self.workload.load(),
            counts={
                "rounds": recorder.n_rounds,
                "rounds_skipped": recorder.skipped,
                "placements": int(rounds["placed"].sum()),
                "preemptions": int(rounds["preempted"].sum()),
                "migrations": int(rounds["migrated"].sum()),
                "conflicts": int(rounds["conflicts"].sum()),
                "machine_failures": world.failures,
                "task_failures": world.task_failures,
                "lost_seconds": world.lost_seconds,
                "data_read": on_machine + in_rack + elsewhere,
                "data_on_machine": on_machine,
                "data_in_rack": in_rack,
            },
            waits=waits,
            ends=np.array([t.ended for t in states], np.float64),
            series=recorder.series(),
            rounds=rounds,
            wall_seconds=self._wall,
            unstarted=np.maximum(unstarted, 0.0),
            table=table,
            runs=world.run_table(),
            machines=world.runs.machines(),
            absences=world.runs.absences(),
            queue=recorder.queues(),
            fragmentation=recorder.fragmentation(end),
            energy=None if world.power is None else recorder.energy(end, world.power.lost),
        )

    def task_table(self) -> dict[str, list[Any]]:
        """Return `Metrics.table` so far."""
        return self._world.task_table(self._end)

    def _check_reasons(self) -> None:
        """Raise AuditError unless every waiting task that the last round knew of has a reason from it."""
        if self._last is None or self._deciding or self._uninformed or self._world.pending:
            return
        for task in self._world.tasks.values():
            if task.state == WAITING and self._reason(task.id) is None:
                raise AuditError(
                    f"at {self._end:g} s: task {task.id!r} waits, but the last round gives no reason for it"
                )

    def _reason(self, task: Hashable) -> Reason | None:
        """Return the reason of a waiting task, by the last round or its commit."""
        if self._last is None:
            return None
        decided, commit = self._last
        return commit.conflicts.get(task) or decided.waiting.get(task)

    def _happened(self) -> None:
        self._idle_rounds = 0
        self._end = self._clock.now
        if self._deciding:
            self._sample()
        elif self._on_events:
            self._sampled = False  # the round at this time does
            self._plan(self._end)
        else:
            self._sample()
            self._plan(self._tick())

    def _sample(self) -> None:
        """Record the state since the last change."""
        inventory, count, power = self._world.inventory, self._world.count, self._world.power
        milliwatts = () if power is None else (power.idle + power.used, power.idle)
        self._recorder.sample(self._end, count[RUNNING], count[WAITING], inventory.used, inventory.capacity, milliwatts)
        self._sampled = True

    def _tick(self, skip: int = 0) -> float:
        """Return the next multiple of the interval that has had no round yet, or the one `skip` later."""
        assert self._interval is not None
        tick = math.ceil(self._clock.now / self._interval)
        tick += tick * self._interval <= self._last_round_at
        return max((tick + skip) * self._interval, self._clock.now)

    def _plan(self, at: float) -> None:
        """Plan a round at this time, unless an earlier one is planned."""
        if at < self._round_at:
            self._round_at = at
            self._clock.after(at - self._clock.now, at, self._wait_for_instant)

    def _wait_for_instant(self, at: float) -> None:
        """Decide after all other events of the same time, which are in the queue by now."""
        if at == self._round_at:
            if self._clock.peek() > at:
                self._decide(at)
            else:
                self._clock.after(0.0, at, self._decide)

    def _decide(self, at: float) -> None:
        if at != self._round_at:
            return
        self._round_at, self._last_round_at = math.inf, at
        if at < self._same_until and not self._world.pending:
            assert self._last is not None, "a round has said until when"
            self._recorder.skipped += 1
            self._settle(self._last[0])
            self._plan_again(idle=True)
            return
        self._deciding = True
        now, events = self._clock.now, len(self._world.pending)
        begin = time.perf_counter()
        self._tell()
        told = time.perf_counter()
        decided = self.scheduler.schedule(now, self._time_limit)
        done = time.perf_counter()
        decision = decided, now, events, told - begin, done - told
        delay = self._charge
        if callable(delay):
            delay = delay(decided.stats)
        elif delay is True:
            delay = done - begin
        if delay > 0:
            if not self._sampled:
                self._sample()
            self._clock.after(delay, decision, self._commit)
        else:
            self._commit(decision)

    def _tell(self) -> None:
        """Apply the pending events to the scheduler."""
        if self._world.pending:
            events, self._world.pending = self._world.pending, []
            self.scheduler.apply(*events)

    def _commit(self, decision: tuple[Round, float, int, float, float]) -> None:
        """Put a decision into effect: a round, its time, the events before it, and the seconds of apply and schedule."""
        round, decided_at, events, applied, scheduled = decision
        world, recorder, stats = self._world, self._recorder, round.stats
        late = self._uninformed = bool(world.pending)
        begin = time.perf_counter()
        if late:
            self._tell()
        commit = self.scheduler.commit(round)
        seconds = time.perf_counter() - begin
        done = world.carry_out(commit.accepted)
        self._last = round, commit
        self._deciding = False
        recorder.round((
            decided_at, events, stats.nodes, stats.arcs, stats.changes, stats.solves, *done, len(commit.conflicts),
            applied, stats.seconds_update, stats.seconds_solve, stats.seconds_read, scheduled, seconds,
        ))  # fmt: skip
        self._same_until = -math.inf if late or commit.conflicts or self._charge else round.again_at
        self._settle(round)
        if late:
            self._plan(self._end if self._on_events else self._tick())
        elif self._interval is not None:
            self._plan_again(idle=not events and not any(done))
        if self._progress is not None:
            self._progress(self._state())

    def _settle(self, round: Round) -> None:
        """Record the state after a round, or after one that was skipped since this one is still true."""
        self._end = self._clock.now
        self._recorder.queue(self._end, round.waiting)
        self._sample()

    def _plan_again(self, idle: bool) -> None:
        """Plan another round at the interval while tasks wait."""
        self._idle_rounds = self._idle_rounds + 1 if idle else 0
        if self._world.count[WAITING] and not (self._idle_rounds >= _PATIENCE and self._clock.quiet):
            self._plan(self._tick(skip=2**self._idle_rounds - 1))


class Schedules(Protocol):
    """A scheduler that the engine can drive; `flowsched.Scheduler` is one."""

    def apply(self, *events: Event) -> Any:
        """Take events."""

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide on a round."""

    def commit(self, round: Round, /) -> Commit:
        """Put a round into effect, except its stale parts."""


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a simulation after a round; `time` in simulated seconds."""

    time: float
    rounds: int
    tasks: int
    completed: int
    running: int
    waiting: int
