"""Cost scaling alone: cold against OR-tools' and LEMON's, and incremental (ICS) against itself from scratch and a random queue.

The claim of the source (Sirius, Figures 12 and 13): on 5,000 and 10,000 machines the decision latency of incremental cost scaling is up to ten times below that of
cost scaling from scratch, and below that of a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import thread_time
from typing import Final

import numpy as np

from bench.solver import general, peers
from bench.solver.findings import Findings, Goal, median
from bench.solver.instances import Ints, LiveNetwork, Rounds, SchedFamily
from bench.solver.peers import Measured
from flowsched.network.problem import FlowProblem

__all__ = ["RandomQueue", "cold", "incremental"]

SCALING: Final = "cost_scaling"
_RIVALS = ("OR-tools", "LEMON scaling")


def cold(
    findings: Findings,
    sizes: list[tuple[int, int, int]],
    seed: int,
    repeats: int,
    quick: bool,
    data: Path | None,
) -> None:
    """Add rows of cost scaling from scratch, build included; ``sizes`` are machines, slots and tasks of scheduling networks.

    The goal is against OR-tools' cost scaling; LEMON's is among the details.
    """
    ratios: dict[str, float] = {}
    makers: dict[str, Callable[[], FlowProblem]] = {
        f"{machines:,} x {slots}, {tasks:,} tasks": partial(_sched, machines, slots, tasks, seed)
        for machines, slots, tasks in sizes
    }
    makers |= general.named(quick, seed, data)
    rivals = {name: solve for name, solve in peers.cold_peers().items() if name in _RIVALS}
    for name, make in makers.items():
        problem, setting = make(), f"{name}, cost scaling, cold"
        others = peers.in_turn(problem, {SCALING: _ours}, rivals, repeats)
        ours = others.pop(SCALING)
        findings.check(setting, ours.cost, others)
        if ours.stats["algorithm"] != SCALING:
            findings.wrong.append(f"{setting}: answered by {ours.stats['algorithm']}")
        totals = {peer: measured.total for peer, measured in others.items()}
        note = f"{ours.stats['refines']} phases, {ours.stats['scans'] / len(problem.tail):.0f} scans an arc"
        findings.compare(setting, "build included", ours.total, totals, None, note)
        if "OR-tools" in totals:
            ratios[name] = totals["OR-tools"] / ours.total
    setting = f"{len(ratios)} networks, cost scaling, cold, against OR-tools"
    findings.summary(setting, ratios, Goal(0.8, 1.2), Goal(1.3, 2))


def incremental(findings: Findings, sizes: list[tuple[int, int, int]], seed: int, rounds: int) -> None:
    """Add rows of rounds in which 1 % of the tasks change, and one task; ``sizes`` are machines, slots and tasks."""
    for machines, slots, tasks in sizes:
        for k in (tasks // 100, 1):
            drawn = Rounds(SchedFamily(machines, slots=slots, tasks=tasks, seed=seed), k, rounds)
            setting = f"{machines:,} x {slots}, {tasks:,} tasks, {'1 %' if k > 1 else 'one task'} changed"
            live = LiveNetwork(drawn.family, drawn.first, drawn.first_jobs)
            live.net.solve(algorithm=SCALING)
            queue = RandomQueue(drawn.family, seed)
            warm: list[float] = []
            scratch: list[float] = []
            placed: list[float] = []
            for number, change in enumerate(drawn.changes):
                live.apply(live.prepare(change))
                begin = thread_time()
                solution = live.net.solve(algorithm=SCALING)
                warm.append(thread_time() - begin)
                placed.append(queue.round(change.rows))
                if solution.stats["algorithm"] != SCALING:
                    findings.wrong.append(f"{setting}: answered by {solution.stats['algorithm']}")
                if number < max(rounds // 3, 2):
                    restarted = peers.flowsched_network(drawn.family.problem(drawn.tasks_after(number + 1)), SCALING)
                    scratch.append(restarted.seconds["solve"])
                    findings.check(setting, solution.cost, {"cost scaling from scratch": restarted})
            findings.times(setting, "ICS (solve only)", warm, {"our cost scaling from scratch": scratch}, Goal(10, 100))
            note = f"ICS takes {median(warm) / median(placed):.2g} of it"
            findings.times(setting, "random queue, all its decisions", placed, note=note)


class RandomQueue:
    """Each task in turn goes to a random machine with a free slot; it waits if there is none.

    Parameters
    ----------
    family : SchedFamily
        Its machines and slots; its tasks take their places first.
    seed : int
    """

    def __init__(self, family: SchedFamily, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.free = [family.slots] * family.machines
        self.open = list(range(family.machines))  # machines with a free slot
        self.where = list(range(family.machines))  # their places in `open`, -1 without a free slot
        self.machine = [-1] * len(family.tasks)
        self.waiting: list[int] = []
        self.round(np.arange(len(family.tasks)))

    def round(self, rows: Ints) -> float:
        """Replace the tasks of these rows by others; return the seconds of all decisions."""
        tasks = rows.tolist()
        draws = self.rng.random(len(tasks) + len(self.waiting)).tolist()
        begin = thread_time()
        for task in tasks:
            self._leave(task)
        left = set(tasks)
        queue = [task for task in self.waiting if task not in left] + tasks
        self.waiting = [task for task, draw in zip(queue, draws, strict=False) if not self._place(task, draw)]
        return thread_time() - begin

    def _leave(self, task: int) -> None:
        machine = self.machine[task]
        if machine < 0:
            return
        self.machine[task] = -1
        self.free[machine] += 1
        if self.free[machine] == 1:
            self.where[machine] = len(self.open)
            self.open.append(machine)

    def _place(self, task: int, draw: float) -> bool:
        if not self.open:
            return False
        place = int(draw * len(self.open))
        machine = self.open[place]
        self.machine[task] = machine
        self.free[machine] -= 1
        if not self.free[machine]:
            last = self.open.pop()
            if last != machine:
                self.open[place], self.where[last] = last, place
            self.where[machine] = -1
        return True


def _ours(problem: FlowProblem) -> Measured:
    return peers.flowsched_once(problem, SCALING)


def _sched(machines: int, slots: int, tasks: int, seed: int) -> FlowProblem:
    return SchedFamily(machines, slots=slots, tasks=tasks, seed=seed).problem()
