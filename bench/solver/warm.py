"""Rounds of change: k tasks leave and k arrive, or machines fail; the time of mutation, solve and reading the changes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from time import thread_time

import numpy as np
from numpy.typing import NDArray

from bench.solver import peers
from bench.solver.findings import Findings, Goal, median
from bench.solver.instances import LiveNetwork, Rounds, SchedFamily
from flowsched.network.problem import FlowProblem

__all__ = ["WarmCase", "cases", "failures", "growth", "measure", "spread"]

Times = NDArray[np.float64]
PHASES = ("mutate", "solve", "read")


@dataclass(frozen=True)
class WarmCase:
    """A load, a size of change and the goal; the warm peer runs `shared` rounds too, flowsched `alone` more."""

    machines: int
    slots: int
    tasks: int
    k: int
    goal: Goal
    shared: int
    alone: int
    cold_only: bool = False

    @property
    def setting(self) -> str:
        """Name in the table."""
        return f"{self.machines:,} x {self.slots}, {self.tasks:,} tasks, k = {self.k}"


def cases(quick: bool) -> list[WarmCase]:
    """Return the loads that matter: half full, 97 %, exactly full, oversubscribed, and the size of the Google trace."""
    half, high = {1: Goal(100, 500), 10: Goal(40, 150), 100: Goal(40, 150)}, {1: Goal(20, 150), 10: Goal(20, 100)}
    high[100] = Goal(30, 150)
    full, over = {1: Goal(300, 2000), 100: Goal(15, 100)}, dict.fromkeys((1, 10, 100), Goal(40, 250))
    big = {1: Goal(5000, 20000), 100: Goal(150, 500), 1000: Goal(25, 100)}
    if quick:
        shared, alone = {1: 10, 10: 5, 100: 2}, {1: 50, 10: 20, 100: 8}
        chosen = [(20_000, 1, half), (20_000, 100, half), (39_000, 10, high)]
        return [WarmCase(10_000, 4, tasks, k, goals[k], shared[k], alone[k]) for tasks, k, goals in chosen]
    shared, alone = {1: 20, 10: 10, 100: 5, 1000: 2}, {1: 300, 10: 150, 100: 40, 1000: 12}
    found = []
    for tasks, goals in ((20_000, half), (39_000, high), (40_000, full), (60_000, over)):
        goals = goals | ({} if tasks == 40_000 else {1000: Goal(8, 50)})
        for k, goal in goals.items():
            found.append(WarmCase(10_000, 4, tasks, k, goal, shared[k], alone[k], cold_only=tasks == 40_000))
    for k, goal in big.items():
        found.append(WarmCase(12_500, 12, 145_000, k, goal, 2, alone[k], cold_only=True))
    return found


def measure(findings: Findings, found: list[WarmCase], seed: int, repeats: int) -> None:
    """Add rows of rounds against the best peer; a peer's cold solves count for all sizes of change of one load."""
    cold: dict[tuple[int, int], dict[str, list[float]]] = {}
    for case in found:
        family = SchedFamily(case.machines, slots=case.slots, tasks=case.tasks, seed=seed)
        rounds = Rounds(family, case.k, case.shared + case.alone)
        ours, theirs, costs = _replay(findings, case, rounds, repeats)
        samples = cold.setdefault((case.machines, case.tasks), {})
        _sample_cold(findings, case, rounds, costs, samples)
        total = ours.sum(axis=1)
        rivals = samples | ({"pylmcf warm": theirs.tolist()} if len(theirs) else {})
        findings.times(case.setting, "round", total, rivals, case.goal)
        for phase, times in zip(PHASES, ours.T, strict=True):
            findings.times(case.setting, phase, times)
        findings.figure(case.setting, "mean round", float(total.mean()), "s")
        findings.figure(case.setting, "p99 round", float(np.percentile(total, 99)), "s")
        if len(theirs):
            findings.figure(case.setting, "p99 round of pylmcf warm", float(np.percentile(theirs, 99)), "s")


def growth(findings: Findings, machines: list[int], seed: int, rounds: int, repeats: int, check: bool) -> None:
    """Measure rounds in which one task leaves and one arrives at 97 % load, on more and more machines."""
    times = []
    for size in machines:
        family = SchedFamily(size, tasks=round(3.9 * size), seed=seed)
        drawn = Rounds(family, 1, rounds)
        ours, costs = _alone(drawn, repeats)
        times.append(median(ours.sum(axis=1)))
        setting = f"{size:,} x 4, 97 % load, k = 1"
        findings.times(setting, "round by size", ours.sum(axis=1))
        if check:
            _check_by_one(findings, setting, drawn, rounds, costs[-1])
    setting = f"{machines[0]:,} -> {machines[-1]:,} machines, 97 % load, k = 1"
    steps = ", ".join(f"{after / before:.2f}" for before, after in pairwise(times))
    findings.figure(
        setting, "growth of the round", times[-1] / times[0], "", Goal(20, 3, most=True), f"step by step {steps}"
    )


def spread(findings: Findings, machines: int, seed: int, rounds: int, repeats: int) -> None:
    """Measure the ratio of the 99th percentile of rounds to the median, at 97 %, k = 10."""
    family = SchedFamily(machines, tasks=round(3.9 * machines), seed=seed)
    ours, _ = _alone(Rounds(family, 10, rounds), repeats)
    total = ours.sum(axis=1)
    setting = f"{machines:,} x 4, 97 % load, k = 10"
    p99 = float(np.percentile(total, 99))
    note = f"median {median(total) * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms, {rounds} rounds"
    findings.figure(setting, "p99 over median", p99 / median(total), "", Goal(10, 4, most=True), note)


def failures(findings: Findings, machines: int, tasks: int, counts: list[int], seed: int, rounds: int) -> None:
    """Add rows for machines of one network that lose their slots at once; then they come back, unmeasured."""
    family = SchedFamily(machines, tasks=tasks, seed=seed)
    problem = family.problem()
    rng = np.random.default_rng(seed)
    for count in counts:
        live = LiveNetwork(family, family.tasks, family.jobs)
        live.net.solve()
        ours: list[float] = []
        setting = f"{machines:,} x {family.slots}, {tasks:,} tasks, {count} machines fail"
        for number in range(rounds):
            places = live.static.machine_arcs(rng.choice(machines, count, replace=False))
            arcs, none = live.static_arcs[places], np.zeros(len(places), np.int64)
            begin = thread_time()
            live.net.set_capacity(arcs, none)
            solution = live.net.solve()
            live.net.flow(solution.changed)
            ours.append(thread_time() - begin)
            if number < rounds - 1:
                live.net.set_capacity(arcs, problem.capacity[places])
                live.net.solve()
        capacity = problem.capacity.copy()
        capacity[places] = 0
        left = FlowProblem(problem.tail, problem.head, capacity, problem.cost, problem.supply)
        theirs = {peer: solve(left) for peer, solve in peers.cold_peers().items()}
        findings.check(setting, solution.cost, theirs)
        findings.times(setting, "round of failures", ours, {peer: [found.total] for peer, found in theirs.items()})
        findings.figure(setting, "worst round of failures", max(ours), "s", note=f"of {rounds}")


def _timed(live: LiveNetwork, number: int, rounds: Rounds) -> tuple[tuple[float, float, float], int]:
    prepared = live.prepare(rounds.changes[number])
    begin = thread_time()
    live.apply(prepared)
    mutated = thread_time()
    solution = live.net.solve()
    solved = thread_time()
    live.net.flow(solution.changed)
    return (mutated - begin, solved - mutated, thread_time() - solved), solution.cost


def _alone(rounds: Rounds, repeats: int) -> tuple[Times, list[int]]:
    """Return the times of each round (the least of equal repetitions) by phase, and the costs."""
    least = np.full((len(rounds.changes), len(PHASES)), np.inf)
    costs: list[int] = []
    for _ in range(repeats):
        live = LiveNetwork(rounds.family, rounds.first, rounds.first_jobs)
        live.net.solve()
        costs.clear()
        for number in range(len(rounds.changes)):
            times, cost = _timed(live, number, rounds)
            least[number] = _lesser(least[number], times)
            costs.append(cost)
    return least, costs


def _replay(findings: Findings, case: WarmCase, rounds: Rounds, repeats: int) -> tuple[Times, Times, list[int]]:
    """Measure as `_alone`, with the warm peer taking turns in the first rounds; the peer's times come second."""
    warm = not case.cold_only and "pylmcf" not in peers.absent()
    least = np.full((len(rounds.changes), len(PHASES)), np.inf)
    theirs = np.full(case.shared if warm else 0, np.inf)
    costs: list[int] = []
    for _ in range(repeats):
        live = LiveNetwork(rounds.family, rounds.first, rounds.first_jobs)
        live.net.solve()
        warm = warm and not 1 < theirs.min() < np.inf  # a slow peer has had its turns
        peer = peers.SchedWarm(rounds, case.shared) if warm else None
        costs.clear()
        for number in range(len(rounds.changes)):
            times, cost = _timed(live, number, rounds)
            least[number] = _lesser(least[number], times)
            costs.append(cost)
            if peer and number < case.shared:
                measured = peer.step()
                theirs[number] = min(theirs[number], measured.total)
                findings.check(f"{case.setting}, round {number}", cost, {"pylmcf warm": measured})
    return least, theirs, costs


def _lesser(old: Times, new: tuple[float, float, float]) -> Times:
    """Return the repetition with the lesser total, whole: phases of different repetitions are not mixed."""
    return np.array(new) if sum(new) < old.sum() else old


def _sample_cold(
    findings: Findings, case: WarmCase, rounds: Rounds, costs: list[int], samples: dict[str, list[float]]
) -> None:
    """Solve cold once more by each peer that is not far behind, and check the cost."""
    problem = rounds.family.problem(rounds.tasks_after(case.shared))
    best = min((min(seconds) for seconds in samples.values()), default=np.inf)
    for name, solve in peers.cold_peers().items():
        if name in samples and min(samples[name]) > 2 * best:
            continue
        measured = solve(problem)
        samples.setdefault(name, []).append(measured.total)
        findings.check(f"{case.setting}, round {case.shared - 1}", costs[case.shared - 1], {name: measured})


def _check_by_one(findings: Findings, setting: str, rounds: Rounds, count: int, cost: int) -> None:
    for name, solve in list(peers.cold_peers().items())[:1]:
        findings.check(setting, cost, {name: solve(rounds.family.problem(rounds.tasks_after(count)))})
