"""True execution of tasks: stages that only the simulator knows, contention, failure, and foreign load.

Without an `Execution` a simulated task runs for its duration, independently of others.  With one it goes through its
true stages.  While the demand for a compressible resource exceeds the machine's capacity, every task gets the same
fraction of its demand, and proceeds at (1 - r)(1 - g r) of its speed: r is the largest compression among the resources
that it uses, g the contention (FGM, equations 1, 4 and 5).  Where an incompressible resource is short, the task that uses
most of it fails (of equals the one that started last), as Linux chooses, and starts again from scratch.

This is written apart from the prediction in `flowsched.fgm`, so that each can be checked against the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from flowsched.boundary.validate import number, quoted, whole
from flowsched.cluster.events import Event, MachineSampled, UsageSampled
from flowsched.cluster.model import MICRO, Machine, Resources
from flowsched.exceptions import InputError
from flowsched.fgm.stages import Stages
from flowsched.sim.clock import Clock
from flowsched.sim.workload import LATEST, SHORTEST

_SAME = 4e-6
"""Seconds within which events on one machine count as simultaneous."""

_SLOWEST = 1e-3


@dataclass(frozen=True, slots=True)
class ForeignLoad:
    """Foreign load: amounts of a machine's resources that other work uses from `time` on."""

    time: float
    machine: Hashable
    usage: Mapping[str, float]


@dataclass(frozen=True)
class Execution:
    """Model of the execution of tasks.

    Parameters
    ----------
    stages : mapping of task to Stages
        True needs; a task that is not in it uses its demand, for its duration in the workload.
    compressible : sequence of str
        Resources of which tasks can run with less.
    contention : float
        g: slowdown beyond sharing, per unit of compression.
    foreign : sequence of ForeignLoad
        Each holds until the next one for the same machine.
    speed : callable, optional
        ``speed(task, machine)``: speed of a task on a machine where no resource is short; 1 by default.  For machines that
        suit some tasks more than others: the right GPU, near data.
    sample : float or None
        Seconds between samples (`UsageSampled`, `MachineSampled`) for the scheduler; None for none.
    noise : float
        Standard deviation of a sample, as a part of it.
    progress : bool
        Samples contain the progress of tasks, as of MapReduce's and Spark's.
    restart : float
        Seconds from the failure of a task until its event, after which it may start again; more than 0, or a task whose
        needs no machine can meet would fail for ever at one instant.
    seed : int
    """

    stages: Mapping[Hashable, Stages] = field(default_factory=dict)
    compressible: Sequence[str] = ("cpu", "disk", "net")
    contention: float = 0.0
    foreign: Sequence[ForeignLoad] = ()
    speed: Callable[[Hashable, Hashable], float] | None = None
    sample: float | None = None
    noise: float = 0.0
    progress: bool = False
    restart: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("contention", "noise"):
            number(f"Execution: {name}", getattr(self, name), 0, 1e6)
        for name, value in (("restart", self.restart), ("sample", self.sample)):
            if value is None and name == "sample":
                continue
            if not number(f"Execution: {name}", value, most=LATEST) >= SHORTEST:
                raise InputError(
                    f"Execution: {name}: a number of seconds > 0 (at least {SHORTEST:g}) expected, got {quoted(value)}"
                )
        for i, load in enumerate(self.foreign):
            number(f"Execution: foreign[{i}]: time", load.time, 0, LATEST)
        whole("Execution: seed", self.seed, 0, 2**128 - 1)


@dataclass(slots=True, eq=False)
class _Run:
    """One run of a task; `left` seconds of work in `stage`, at most at speed `pace`."""

    task: Hashable
    seconds: list[float]
    wants: list[list[int]]
    stage: int
    left: float
    speed: float = 1.0
    pace: float = 1.0

    @property
    def want(self) -> list[int]:
        return self.wants[self.stage]

    @property
    def progress(self) -> float | None:
        """Fraction of the work that is done; None if the work is unknown."""
        whole = sum(self.seconds)
        return 1 - (self.left + sum(self.seconds[self.stage + 1 :])) / whole if 0 < whole < math.inf else None


@dataclass(slots=True, eq=False)
class _MachineState:
    """State of one machine; `plan` counts the plans made, so that a stale one is recognised."""

    total: list[int]
    foreign: list[int]
    runs: dict[Hashable, _Run] = field(default_factory=dict)
    compression: list[float] = field(default_factory=list)
    time: float = 0.0
    plan: int = 0


class Runner:
    """Executes tasks; with `resume`, a stopped task keeps its progress.

    `ended` and `failed` are called with the task, `tell` with samples.
    """

    def __init__(
        self,
        execution: Execution,
        clock: Clock,
        resources: Resources,
        resume: bool,
        ended: Callable[[Hashable], None],
        failed: Callable[[Hashable], None],
        tell: Callable[[Sequence[Event]], None],
    ) -> None:
        self._execution = execution
        self._clock = clock
        self._resources = resources
        self._resume = resume
        self._ended, self._failed, self._tell = ended, failed, tell
        unknown = [name for name in execution.compressible if name == resources.device]
        if unknown:
            raise InputError(f"Execution: compressible: {unknown[0]!r} is counted device by device")
        d = resources.device_index
        self._soft = [name in execution.compressible for name in resources.names]
        self._hard = [i for i, soft in enumerate(self._soft) if not soft and i != d]
        self._machines: dict[Hashable, _MachineState] = {}
        self._where: dict[Hashable, Hashable] = {}  # task in _machines[_where[task]].runs
        # By stopped task that keeps its progress: stage, seconds left.
        self._paused: dict[Hashable, tuple[int, float]] = {}
        # By task whose failure is not reported yet: the token of that report.
        self._failing: dict[Hashable, object] = {}
        self._loads: dict[Hashable, list[int]] = {}  # by machine, up or not: its present foreign load
        self._random = np.random.default_rng(execution.seed)
        self._sampling = False
        for load in execution.foreign:
            clock.after(load.time, load, self._load)

    # -- machines -----------------------------------------------------------------------------------------------

    def add_machine(self, machine: Machine) -> None:
        """Add a machine."""
        total = self._resources.capacity(f"machine {machine.id!r}", machine.capacity).tolist()
        nothing = [0] * len(total)
        self._machines[machine.id] = _MachineState(total, self._loads.get(machine.id, nothing), time=self._clock.now)
        self._machines[machine.id].compression = [0.0] * len(total)

    def remove_machine(self, machine: Hashable) -> None:
        """Remove a machine, whose tasks have been stopped."""
        self._machines.pop(machine, None)

    def update_machine(self, machine: Machine) -> None:
        """Change the capacity of a machine; its tasks go on."""
        state = self._machines[machine.id]
        self._advance(state)
        state.total = self._resources.capacity(f"machine {machine.id!r}", machine.capacity).tolist()
        self._replan(machine.id)

    def _load(self, load: ForeignLoad) -> None:
        usage = self._resources.usage(f"foreign load on machine {load.machine!r}", load.usage).tolist()
        self._loads[load.machine] = usage
        state = self._machines.get(load.machine)
        if state is not None:
            self._advance(state)
            state.foreign = usage
            self._replan(load.machine)

    # -- tasks --------------------------------------------------------------------------------------------------

    def start(
        self, task: Hashable, machine: Hashable, demand: Sequence[int], duration: float, pace: float = 1.0
    ) -> None:
        """Start a task; `demand` and `duration` stand in for unknown stages, `pace` is its speed on this machine."""
        true = self._execution.stages.get(task)
        if true is None:
            run = _Run(task, [duration], [list(demand)], 0, duration)
        else:
            wants = np.floor(true.demand * MICRO + 1e-3).astype(np.int64).tolist()
            run = _Run(task, true.seconds.tolist(), wants, 0, float(true.seconds[0]))
        if task in self._paused:
            run.stage, run.left = self._paused.pop(task)
        run.pace = pace
        if self._execution.speed is not None:
            speed = self._execution.speed(task, machine)
            if not 0 < speed < math.inf:
                raise InputError(f"Execution: speed of {task!r} on {machine!r}: a number > 0 expected, got {speed!r}")
            run.pace *= speed
        state = self._machines[machine]
        self._advance(state)
        state.runs[task] = run
        self._where[task] = machine
        self._replan(machine)
        if self._execution.sample is not None and not self._sampling:
            self._sampling = True
            self._clock.after(self._execution.sample, None, self._sample)

    def stop(self, task: Hashable) -> None:
        """Stop a task."""
        if self._failing.pop(task, None) is not None:
            return
        machine = self._where.pop(task)
        state = self._machines.get(machine)
        if state is None:
            return
        self._advance(state)
        run = state.runs.pop(task)
        if self._resume:
            self._paused[task] = (min(run.stage, len(run.seconds) - 1), run.left)
        self._replan(machine)

    def _advance(self, state: _MachineState) -> None:
        """Advance the tasks of a machine up to now; one at the end of its last stage stays until `_replan`."""
        now = self._clock.now
        passed, state.time = now - state.time, now
        for run in state.runs.values():
            run.left -= run.speed * passed
            while run.left <= _SAME * run.speed and run.stage < len(run.seconds):
                run.stage += 1
                run.left = run.seconds[run.stage] if run.stage < len(run.seconds) else 0.0
                if run.left > 0:
                    break

    def _replan(self, machine: Hashable) -> None:
        """Compute the speeds, and plan the next end of a stage."""
        state = self._machines[machine]
        state.plan += 1
        going = [run for run in state.runs.values() if run.stage < len(run.seconds)]
        for i, soft in enumerate(self._soft):
            wanted = state.foreign[i] + sum(run.want[i] for run in going)
            state.compression[i] = (wanted - state.total[i]) / wanted if soft and wanted > state.total[i] else 0.0
        step = math.inf
        for run in going:
            squeezed = max((r for r, want in zip(state.compression, run.want, strict=True) if want), default=0.0)
            run.speed = run.pace * max((1 - squeezed) * (1 - self._execution.contention * squeezed), _SLOWEST)
            step = min(step, run.left / run.speed)
        if len(going) < len(state.runs) or self._short(state, going) is not None:
            step = 0.0
        if step < math.inf:
            self._clock.after(step, (machine, state, state.plan), self._step)

    def _short(self, state: _MachineState, going: Collection[_Run]) -> int | None:
        """Return a resource that is short and that these tasks use, else None."""
        for i in self._hard:
            used = sum(run.want[i] for run in going)
            if used and state.foreign[i] + used > state.total[i]:
                return i
        return None

    def _step(self, plan: tuple[Hashable, _MachineState, int]) -> None:
        """End stages and tasks that are due, and fail tasks where a resource is short."""
        machine, state, number = plan
        if state.plan != number or self._machines.get(machine) is not state:
            return
        self._advance(state)
        done = [run.task for run in state.runs.values() if run.stage >= len(run.seconds)]
        for task in done:
            del state.runs[task], self._where[task]
        lost = []
        while state.runs and (short := self._short(state, state.runs.values())) is not None:
            task = max(reversed(state.runs.values()), key=lambda run: run.want[short]).task
            del state.runs[task], self._where[task]
            lost.append(task)
        self._replan(machine)
        for task in done:
            self._ended(task)
        for task in lost:
            self._failing[task] = token = object()
            self._clock.after(self._execution.restart, (task, token), self._fail)

    def _fail(self, failure: tuple[Hashable, object]) -> None:
        """Report the failure of a task, unless it was stopped before."""
        task, token = failure
        if self._failing.get(task) is token:
            del self._failing[task]
            self._failed(task)

    # -- samples ------------------------------------------------------------------------------------------------

    def _sample(self, _: None) -> None:
        """Sample tasks and machines, and again later while tasks run."""
        samples: list[Event] = []
        now, names = self._clock.now, self._resources.names
        running = False
        for machine, state in self._machines.items():
            self._advance(state)
            used = [f * (1 - r) for f, r in zip(state.foreign, state.compression, strict=True)]
            for run in state.runs.values():
                if run.stage < len(run.seconds):
                    running = True
                    usage = [want * (1 - r) for want, r in zip(run.want, state.compression, strict=True)]
                    used = [a + b for a, b in zip(used, usage, strict=True)]
                    progress = run.progress if self._execution.progress else None
                    samples.append(UsageSampled(run.task, self._measured(names, usage), progress, time=now))
            samples.append(MachineSampled(machine, self._measured(names, used), time=now))
            self._replan(machine)
        self._sampling = running
        if running:
            assert self._execution.sample is not None
            self._clock.after(self._execution.sample, None, self._sample)
        self._tell(samples)

    def _measured(self, names: Sequence[str], usage: Sequence[float]) -> dict[str, float]:
        noise = self._execution.noise
        factors = np.maximum(1 + noise * self._random.standard_normal(len(names)), 0.0) if noise else [1.0] * len(names)
        return {name: float(f) * amount / MICRO for name, amount, f in zip(names, usage, factors, strict=True)}
