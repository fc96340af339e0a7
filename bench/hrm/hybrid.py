"""Simulated resource units under one scheduler or several: decisions that take time, heartbeats, queues, conflicts.

Every unit has two queues.  The machine's queue is the truth.  The queue of the shared state is the known part of it: claims
enter it at once, ends only with the machine's next heartbeat, and schedulers decide on copies that are as old as a decision
takes.  The difference causes the two costs that HRM is about: a free place that is not known yet (feedback delay), and a claim
that another scheduler has overtaken (conflict).
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from flowsched.exceptions import InputError
from flowsched.hrm.adapter import Hybrid
from flowsched.hrm.containers import Admission, Container, Outcome
from flowsched.hrm.queues import StackedQueue, share_cores
from flowsched.hrm.rebalancing import rebalance
from flowsched.hrm.run_times import RunTimes
from flowsched.hrm.state.claims import Claim, Granted, Refusal, UnitState
from flowsched.hrm.units import ResourceUnit
from flowsched.sim.clock import Clock

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BatchJob:
    """A job that arrives at a time, with its containers and their true durations; and the name under which it recurs."""

    id: str
    time: float
    containers: tuple[Container, ...]
    name: str = ""


@dataclass
class HybridMetrics:
    """Measurements of a simulation; arrays by job, in the order in which the jobs were given.

    Attributes
    ----------
    delay : ndarray of float64
        From arrival until the last container was assigned to a unit, to run or to wait in its queue.
    start : ndarray of float64
        From arrival until the last container ran.
    completion : ndarray of float64
        From arrival until the last container ended.
    claims, conflicts : int
    busy : list of (time, waiting jobs, jobs that have not ended)
    used : float
        Mean part of the cores that ran something between the first arrival and the last end.
    """

    delay: Floats
    start: Floats
    completion: Floats
    claims: int = 0
    conflicts: int = 0
    busy: list[tuple[float, int, int]] = field(default_factory=list)
    used: float = 0.0

    @property
    def conflict_ratio(self) -> float:
        """Conflicts divided by claims."""
        return self.conflicts / self.claims if self.claims else 0.0

    @property
    def busyness(self) -> float:
        """Waiting jobs divided by registered jobs, mean over time."""
        if len(self.busy) < 2:
            return 0.0
        time, waiting, registered = np.array(self.busy, np.float64).T
        part = waiting[:-1] / np.maximum(registered[:-1], 1.0)
        return float(np.average(part, weights=np.maximum(np.diff(time), 1e-12)))


@dataclass
class _Scheduler:
    """One scheduler: its network, and its jobs that it has not looked at; `deciding` during a decision, `asking` for its turn."""

    hybrid: Hybrid
    queue: deque[int] = field(default_factory=deque)
    deciding: bool = False
    asking: bool = False
    seen: dict[str, int] = field(default_factory=dict)


class HybridSimulation:
    """Batch jobs on resource units.

    Parameters
    ----------
    units : sequence of ResourceUnit
    jobs : sequence of BatchJob
    schedulers : int
        Job i goes to scheduler i modulo this.
    length : int
        Places in each unit's batch queue.
    heartbeat : float
        Seconds between a machine's heartbeats; the machines' are spread evenly.
    round_cost, claim_cost : float
        Simulated seconds of a decision, and of each claim in it.
    measured : bool
        A decision takes, in addition, the CPU time that it needs here: results differ from run to run.
    expected : float or RunTimes, optional
        Run time that the schedulers and queues expect of every container; by the history of its job's name, which
        learns from the heartbeats; None for the true one.
    max_wait : float
        A queue takes a container only if its predicted wait is below this.
    patience : float
        Seconds.  At a machine's heartbeat, its containers with a predicted wait of at least this move to idle units.
    same_taste : bool
        All schedulers prefer the same units among equally good ones.
    in_turn : bool
        As long as containers may run at once, a scheduler leaves those places to jobs that came before its own, as far as
        they need them.  So the last places make some jobs whole, not many jobs parts.  Afterwards the jobs that came first queue,
        half as many at once as there are schedulers.

    Raises
    ------
    InputError
        An argument is out of range, or a container never fits.
    """

    def __init__(
        self,
        units: Sequence[ResourceUnit],
        jobs: Sequence[BatchJob],
        *,
        schedulers: int = 1,
        length: int = 0,
        heartbeat: float = 3.0,
        round_cost: float = 0.0,
        claim_cost: float = 4e-5,
        measured: bool = False,
        expected: float | RunTimes | None = None,
        max_wait: float = math.inf,
        patience: float = math.inf,
        same_taste: bool = False,
        in_turn: bool = False,
    ) -> None:
        if schedulers < 1 or length < 0 or not heartbeat > 0 or round_cost < 0 or claim_cost < 0:
            raise InputError(
                "HybridSimulation: schedulers >= 1, length >= 0, heartbeat > 0 and costs >= 0 expected, "
                f"got {schedulers=}, {length=}, {heartbeat=}, {round_cost=}, {claim_cost=}"
            )
        self._clock = Clock()
        self._jobs = jobs
        # By unit: the machine's queue, and that of the shared state, which lags behind it by ends only.
        self._real = {str(unit.id): StackedQueue(unit) for unit in units}
        self._known = {str(unit.id): StackedQueue(unit, length=length) for unit in units}
        share_cores([*self._real.values()])
        share_cores([*self._known.values()])
        self._states: dict[str, tuple[float, UnitState]] = {}  # by unit: when it was computed, see `_state`
        self._measured = measured
        self._idle = dict.fromkeys(self._known)  # units whose known queue has room for the least container
        machines: dict[str, list[str]] = {}
        for unit in units:
            machines.setdefault(str(unit.machine), []).append(str(unit.id))
        self._ended: dict[str, list[str]] = {machine: [] for machine in machines}  # tasks since the last heartbeat
        self._units_of = machines
        self._machine_of = {unit: machine for machine, mine in machines.items() for unit in mine}
        self._due: set[str] = set()  # machines with a planned heartbeat
        # By machine: its heartbeats are at the offset plus multiples of `heartbeat`.
        self._offset = {machine: heartbeat * i / len(machines) for i, machine in enumerate(machines)}
        self._patience, self._max_wait = patience, max_wait
        self._beat, self._round_cost, self._claim_cost = heartbeat, round_cost, claim_cost
        self._schedulers = [
            _Scheduler(Hybrid(max_wait=max_wait, seed=0 if same_taste else i)) for i in range(schedulers)
        ]
        # By task: its index in `jobs`, its container with the true run time, and with the expected one.
        self._job_of = {str(c.id): j for j, job in enumerate(jobs) for c in job.containers}
        self._true = {str(c.id): c for job in jobs for c in job.containers}
        self._times = np.array([job.time for job in jobs])
        self._in_turn = in_turn
        self._expected = expected
        self._submitted: dict[str, Container] = {}
        self._needs = [{c.need for c in job.containers} for job in jobs]
        self._least = tuple(min((c.need[i] for c in self._true.values()), default=0) for i in range(4))
        capacity = [queue.capacity for queue in self._real.values()]
        for id, container in self._true.items():
            if not any(all(a <= b for a, b in zip(container.need, have, strict=True)) for have in capacity):
                raise InputError(f"container {id!r} fits on no unit, even an empty one")
        if measured:
            # A scheduler has its copy and its network before the first job comes.
            for scheduler in self._schedulers:
                scheduler.hybrid.refresh(self._changes(scheduler), 0.0)
                scheduler.hybrid.claims(0.0)
        n = len(jobs)
        # By job: containers that were not assigned, that have not started, that have not ended.
        self._unassigned = np.array([len(job.containers) for job in jobs])
        self._unstarted, self._running = self._unassigned.copy(), self._unassigned.copy()
        self._metrics = HybridMetrics(np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan))
        self._registered = 0
        self._core_seconds = 0.0

    def run(self) -> HybridMetrics:
        """Run until the last job has ended."""
        for j, job in enumerate(self._jobs):
            self._clock.after(job.time, j, self._arrive)
        while not self._clock.quiet and np.isnan(self._metrics.completion).any():
            self._clock.step()
        metrics = self._metrics
        first = min((job.time for job in self._jobs), default=0.0)
        cores = sum(queue.capacity[0] for queue in self._real.values()) / 1e6
        span = self._clock.now - first
        metrics.used = self._core_seconds / (cores * span) if span > 0 and cores else 0.0
        return metrics

    # -- schedulers ---------------------------------------------------------------------------------------------

    def _arrive(self, j: int) -> None:
        scheduler = self._schedulers[j % len(self._schedulers)]
        scheduler.queue.append(j)
        self._registered += 1
        self._note()
        self._decide(scheduler)

    def _note(self) -> None:
        waiting = int((self._unassigned[: len(self._jobs)] > 0).sum()) - (len(self._jobs) - self._arrived())
        self._metrics.busy.append((self._clock.now, waiting, self._registered))

    def _arrived(self) -> int:
        return sum(job.time <= self._clock.now for job in self._jobs)

    def _decide(self, scheduler: _Scheduler, again: bool = False) -> None:
        """Decide on all open jobs, by the known state; on the next job, too, unless `again`."""
        if scheduler.deciding or not (scheduler.queue or scheduler.hybrid.open):
            return
        hybrid, begin = scheduler.hybrid, time.thread_time()
        hybrid.refresh(self._changes(scheduler), self._clock.now)
        if scheduler.queue and not again:
            job = self._jobs[scheduler.queue.popleft()]
            for container in job.containers:
                self._submitted[str(container.id)] = self._expect(job, container)
            hybrid.submit(job.id, [self._submitted[str(c.id)] for c in job.containers])
        allowed = self._turn(hybrid) if self._in_turn else None
        if allowed is not None and not any(allowed.values()):
            if not scheduler.asking:
                scheduler.asking = True
                self._clock.after(self._beat, scheduler, self._ask)
            return
        claims = hybrid.claims(self._clock.now, allowed)
        scheduler.deciding = True
        cost = self._round_cost + self._claim_cost * len(claims)
        if self._measured:
            cost += time.thread_time() - begin
        self._clock.after(cost, (scheduler, claims), self._commit)

    def _ask(self, scheduler: _Scheduler) -> None:
        scheduler.asking = False
        self._decide(scheduler, again=True)

    def _turn(self, hybrid: Hybrid) -> dict[Hashable, int]:
        """Return the number of containers of each open job that may run next to older jobs' ones, or else that may queue."""
        room = Counter(self._known[unit].room for unit in self._idle)
        places = sum(n * min(a // b for a, b in zip(have, self._least, strict=True) if b) for have, n in room.items())
        open_ = np.where(self._times <= self._clock.now, self._unassigned, 0)
        mine = {job: self._job_of[str(task)] for task, job in hybrid.open.items()}
        if places:
            # Places that no container of an older job can use are not withheld for it.
            for j in np.flatnonzero(open_).tolist():
                if not any(
                    all(a <= b for a, b in zip(need, have, strict=True)) for need in self._needs[j] for have in room
                ):
                    open_[j] = 0
            before = np.cumsum(open_) - open_
            return {job: max(places - int(before[j]), 0) for job, j in mine.items()}
        older: NDArray[np.int64] = np.cumsum(open_ > 0) - (open_ > 0)
        return {job: int(open_[j]) * (2 * older[j] < len(self._schedulers)) for job, j in mine.items()}

    def _expect(self, job: BatchJob, container: Container) -> Container:
        expected = self._expected
        if expected is None:
            return container
        return replace(container, duration=expected.expect(job.name) if isinstance(expected, RunTimes) else expected)

    def _changes(self, scheduler: _Scheduler) -> Iterable[UnitState]:
        for unit, queue in self._known.items():
            if scheduler.seen.get(unit) != queue.version:
                scheduler.seen[unit] = queue.version
                yield self._state(unit)

    def _state(self, unit: str) -> UnitState:
        """Return a unit's known state.  Its predicted wait is as of its last change, as in the shared state: it has a column."""
        now, queue = self._clock.now, self._known[unit]
        then, state = self._states.get(unit, (now, None))
        if state is None or state.version != queue.version:
            then, state = self._states[unit] = (now, Hybrid.state_of(queue, now))
        return state if then == now else replace(state, wait=max(then + state.wait - now, 0.0))

    def _commit(self, decision: tuple[_Scheduler, list[Claim]]) -> None:
        """Optimistically: a unit's claims are granted together, or refused."""
        scheduler, claims = decision
        scheduler.deciding = False
        by_unit: dict[str, list[Claim]] = {}
        for claim in claims:
            by_unit.setdefault(claim.unit, []).append(claim)
        accepted: list[Claim] = []
        refused: list[tuple[Claim, Refusal]] = []
        for unit, those in by_unit.items():
            # Earlier grants reduce the room of units that share cores.
            if not self._has_room(unit, those):
                refused += [(claim, Refusal.CONFLICT) for claim in those]
                continue
            accepted += those
            for claim in those:
                self._known[unit].submit(self._submitted[claim.task], self._clock.now)
                self._note_room(unit)
                if claim.queued and self._patience < math.inf:
                    self._expect_beat(self._machine_of[unit])
                self._assigned(claim.task)
                self._carry_out(unit, self._real[unit].submit(self._true[claim.task], self._clock.now))
        scheduler.hybrid.settle(Granted(tuple(accepted), tuple(refused)))
        self._metrics.claims += len(claims)
        self._metrics.conflicts += len(refused)
        self._note()
        if accepted:
            # It may be the turn of others now.
            for other in self._schedulers:
                if other.asking:
                    self._decide(other, again=True)
        # Refused containers go before the next job, and so do those without room: there may be queues now.
        if refused or (accepted and scheduler.hybrid.open):
            self._decide(scheduler, again=True)
        elif scheduler.queue:
            self._decide(scheduler)
        elif scheduler.hybrid.open and scheduler.hybrid.next_opening < math.inf:
            self._clock.after(max(scheduler.hybrid.next_opening - self._clock.now, 0.0) + 1e-6, scheduler, self._decide)

    def _has_room(self, unit: str, claims: Sequence[Claim]) -> bool:
        run, wait = ([self._submitted[c.task] for c in claims if c.queued == queued] for queued in (False, True))
        expected = min((claim.wait for claim in claims if claim.queued), default=math.inf)
        behind = self._state(unit).wait if wait else 0.0
        return behind <= expected and self._known[unit].grants(run, wait, behind, self._max_wait)

    def _assigned(self, task: str) -> None:
        j = self._job_of[task]
        self._unassigned[j] -= 1
        if not self._unassigned[j]:
            self._metrics.delay[j] = self._clock.now - self._jobs[j].time

    # -- machines -----------------------------------------------------------------------------------------------

    def _carry_out(self, unit: str, admission: Admission) -> None:
        if admission.outcome not in (Outcome.STARTED, Outcome.QUEUED):
            raise AssertionError(f"at {self._clock.now:g} s: unit {unit!r} refused what was granted: {admission}")
        for other, further in admission.elsewhere:
            self._carry_out(str(other), further)
        for container in admission.started:
            j = self._job_of[str(container.id)]
            self._unstarted[j] -= 1
            if not self._unstarted[j]:
                self._metrics.start[j] = self._clock.now - self._jobs[j].time
            self._core_seconds += container.need[0] / 1e6 * container.duration
            self._clock.after(container.duration, (unit, str(container.id)), self._end)

    def _end(self, what: tuple[str, str]) -> None:
        """End a container: the next follows at once, the shared state learns of it with the next heartbeat."""
        unit, task = what
        queue = self._real[unit]
        j = self._job_of[task]
        self._running[j] -= 1
        if not self._running[j]:
            self._metrics.completion[j] = self._clock.now - self._jobs[j].time
            self._registered -= 1
            self._note()
        self._carry_out(unit, queue.finish(self._true[task].id, self._clock.now))
        self._ended[self._machine_of[unit]].append(task)
        self._expect_beat(self._machine_of[unit])

    def _expect_beat(self, machine: str) -> None:
        """Plan the machine's next heartbeat, which will report changes."""
        if machine not in self._due:
            self._due.add(machine)
            offset, now = self._offset[machine], self._clock.now
            # A heartbeat of this very moment does not count, whatever is rounded.
            turns = math.floor((now - offset) / self._beat + 1e-6) + 1
            self._clock.after(offset + turns * self._beat - now, machine, self._heartbeat)

    def _heartbeat(self, machine: str) -> None:
        self._due.remove(machine)
        ended, self._ended[machine] = self._ended[machine], []
        if isinstance(self._expected, RunTimes):
            for task in ended:
                self._expected.observe(self._jobs[self._job_of[task]].name, self._true[task].duration)
        units = self._units_of[machine]
        # Containers that followed others run by now; the shared state has them waiting until the heartbeat.
        left = {unit: [id for id in ended if id in self._known[unit]] for unit in units}
        while any(
            (now := {unit: [id for id in left[unit] if id in self._known[unit].running] for unit in units}).values()
        ):
            for unit, ids in now.items():
                if ids:
                    self._known[unit].finish([*ids], self._clock.now)
                    left[unit] = [id for id in left[unit] if id not in ids]
        for unit in units:
            # On units that share cores others may have followed than those that the shared state expects.
            for id in left[unit]:
                self._known[unit].remove(id, self._clock.now)
            self._note_room(unit)
        self._rebalance(machine)
        for scheduler in self._schedulers:
            self._decide(scheduler)

    def _rebalance(self, machine: str) -> None:
        """Move containers that wait too long on the machine to units that are known to be idle."""
        mine = [self._known[unit] for unit in self._units_of[machine] if self._known[unit].waiting]
        if not mine or self._patience == math.inf:
            return
        idle = [self._known[unit] for unit in self._idle]
        # Only containers that wait on the machine may move: one that waits in the shared state may run there by now.
        waits = {str(c.id) for unit in self._units_of[machine] for c in self._real[unit].waiting}
        for move in rebalance(
            mine, self._clock.now, self._patience, onto=idle, may=lambda container: str(container.id) in waits
        ):
            task, old, new = str(move.container), str(move.old), str(move.new)
            self._carry_out(old, self._real[old].remove(task, self._clock.now))
            self._carry_out(new, self._real[new].submit(self._true[task], self._clock.now))
            self._note_room(new)
        if any(queue.waiting for queue in mine):
            self._expect_beat(machine)

    def _note_room(self, unit: str) -> None:
        """Keep the list of units with room, in the order in which they got it."""
        for one in self._units_of[self._machine_of[unit]] if self._known[unit].shares_cores else (unit,):
            if all(a <= b for a, b in zip(self._least, self._known[one].room, strict=True)):
                self._idle.setdefault(one)
            else:
                self._idle.pop(one, None)
