"""Lines of jobs: the order of arrival, and backfilling that delays no reservation; beside AccaSim and a model of processors alone."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import flowsched as fs
from flowsched.sim.lines import Queue

Job = tuple[float, float, int, float]
"""Arrival, run time, processors, estimate."""


def batch(count: int, processors: Sequence[int], gap: float, seed: int = 0) -> list[Job]:
    """Jobs of `accasim_flow`: lognormal run times, which the estimates exceed threefold."""
    rng = np.random.default_rng(seed)
    submitted = np.cumsum(rng.exponential(gap, count)).astype(int)
    jobs = []
    for at in submitted:
        procs, run = int(rng.choice(processors)), int(rng.lognormal(5.8, 1.2)) + 1
        jobs.append((float(at), float(run), procs, 3.0 * run))
        rng.integers(5)
    return jobs


def model(jobs: Sequence[Job], processors: int, easy: bool) -> list[float]:
    """The waits of jobs on a pool of processors, in the order of arrival or by EASY, told directly."""
    free, line, ends = processors, list[int](), list[tuple[float, int]]()
    begun: dict[int, float] = {}
    moments = [(at, 1, i) for i, (at, *_) in enumerate(jobs)]
    heapq.heapify(moments)

    def start(i: int) -> None:
        nonlocal free
        free -= jobs[i][2]
        begun[i] = now
        line.remove(i)
        heapq.heappush(moments, (now + jobs[i][1], 0, i))

    while moments:
        now = moments[0][0]
        while moments and moments[0][0] == now:
            _, arrives, i = heapq.heappop(moments)
            if arrives:
                line.append(i)
            else:
                free += jobs[i][2]
                ends = [(end, j) for end, j in ends if j != i]
        while line and jobs[line[0]][2] <= free:
            ends.append((now + jobs[line[0]][3], line[0]))
            start(line[0])
        if not line or not easy:
            continue
        shadow, spare = now, free
        for end, group in sorted((max(end, now), jobs[j][2]) for end, j in ends):
            if spare >= jobs[line[0]][2] and end > shadow:
                break
            shadow, spare = end, spare + group
        spare -= jobs[line[0]][2]
        for i in line[1:]:
            _, _, size, estimate = jobs[i]
            if size <= free and (now + estimate <= shadow or size <= spare):
                spare -= size if now + estimate > shadow else 0
                ends.append((now + estimate, i))
                start(i)
    return [begun[i] - jobs[i][0] for i in range(len(jobs))]


def workload(jobs: Sequence[Job], machines: int, each: int) -> fs.sim.Workload:
    arrivals = []
    for i, (at, run, procs, estimate) in enumerate(jobs):
        tasks = [fs.Task((i, j), {"cpu": 1}, duration=estimate) for j in range(procs)]
        gang = procs if procs > 1 else None
        arrivals.append(fs.sim.Arrival(at, fs.JobSubmitted(i, tasks, gang=gang), (run,) * procs))
    nodes = [fs.Machine(f"m{i}", {"cpu": each}) for i in range(machines)]
    return fs.sim.Workload("jobs", arrivals, nodes, resources=("cpu",))


def waits(scheduler: fs.sim.Schedules, work: fs.sim.Workload) -> list[float]:
    """The waits of the jobs, whose tasks start together."""
    run = fs.sim.Simulation(scheduler, work)
    assert run.run().tasks["completed"] == work.n_tasks
    table = run.task_table()
    found: dict[object, float] = {}
    for job, arrival, start in zip(table["job"], table["arrival"], table["first_start"], strict=True):
        assert found.setdefault(job, start - arrival) == start - arrival, "tasks of a job start together"
    return list(found.values())


def held_model(jobs: Sequence[Job], processors: int) -> list[float]:
    """The waits by AccaSim's EASY: the first that does not fit is set aside until the time reserved for it."""
    begun: dict[int, float] = {}
    running: dict[int, tuple[float, float]] = {}  # ends in truth and by the estimate
    line: list[int] = []
    coming = list(range(len(jobs)))
    aside: tuple[int, float] | None = None

    def free() -> int:
        return processors - sum(jobs[i][2] for i in running)

    def fits(i: int) -> bool:
        if jobs[i][2] > free():
            return False
        begun[i], running[i] = now, (now + jobs[i][1], now + jobs[i][3])
        return True

    while coming or running:
        now = min([jobs[i][0] for i in coming[:1]] + [end for end, _ in running.values()])
        running = {i: ends for i, ends in running.items() if ends[0] > now}
        while coming and jobs[coming[0]][0] == now:
            line.append(coming.pop(0))
        if aside is not None and (now >= aside[1] or not running) and fits(aside[0]):
            aside = None
        if aside is None:
            while line and fits(line[0]):
                line.pop(0)
            if line:
                first, room = line.pop(0), free()
                for end, size in sorted((ends[1], jobs[i][2]) for i, ends in running.items()):
                    room += size
                    if room >= jobs[first][2]:
                        aside = first, end
                        break
        line = [i for i in line if not fits(i)]
    return [begun[i] - jobs[i][0] for i in range(len(jobs))]


@pytest.mark.long
def test_jobs_wait_as_long_as_in_accasim(tmp_path: Path) -> None:
    """AccaSim 1.1.3 on the same 1,500 jobs and 32 nodes of 4 processors: FIFO 9,282 s, its EASY 3,284 s."""
    jobs = batch(1500, [1, 2, 4, 8, 16, 32], 40.0)
    lines = ["; MaxNodes: 32", "; MaxProcs: 128"]
    for i, (at, run, procs, estimate) in enumerate(jobs, 1):
        lines.append(f"{i} {at:g} -1 {run:g} {procs} -1 -1 {procs} {estimate:g} -1 1 1 1 1 1 -1 -1 -1")
    (tmp_path / "w.swf").write_text("\n".join(lines) + "\n")
    trace = fs.sim.load_trace(tmp_path / "w.swf")
    found = waits(Queue(False, trace.resources), trace)
    assert np.mean(found) == pytest.approx(9282, abs=1)
    assert found == model(jobs, 128, easy=False)
    pool = fs.sim.load_trace(tmp_path / "w.swf", variant="pool")
    held = waits(fs.sim.scheduler("easy-held", pool), pool)
    assert np.mean(held) == pytest.approx(3284, abs=1)
    assert held == held_model(jobs, 128)


@pytest.mark.long
@pytest.mark.parametrize("nodes", [1, 32])
def test_easy_as_accasim_has_it_is_that_of_a_pool_of_processors(nodes: int) -> None:
    jobs = batch(300, [1, 2, 4, 8, 16, 32], 40.0, seed=nodes)
    assert waits(Queue("easy-held", ("cpu",)), workload(jobs, nodes, 128 // nodes)) == held_model(jobs, 128)


def test_the_first_in_line_is_held_until_its_time_even_if_it_fits_before() -> None:
    """Of 4 processors 3 are in use until 10, by the estimate until 30, and 1 until 40; a job of 3 is first in line."""
    jobs = [(0.0, 10.0, 3, 30.0), (0.0, 40.0, 1, 99.0), (1.0, 5.0, 3, 5.0), (31.0, 1.0, 1, 1.0)]
    assert waits(Queue("easy-held", ("cpu",)), workload(jobs, 1, 4)) == [0.0, 0.0, 30.0, 5.0]
    assert waits(Queue("easy", ("cpu",)), workload(jobs, 1, 4)) == [0.0, 0.0, 9.0, 0.0]


def test_others_delay_the_one_that_is_held() -> None:
    """A job of 4 is first in line from 1 on, and gets the time 30; a job of 2 runs from 12 to 42."""
    jobs = [
        (0.0, 10.0, 3, 10.0),
        (0.0, 20.0, 1, 30.0),
        (1.0, 5.0, 4, 5.0),
        (12.0, 30.0, 2, 30.0),
        (14.0, 20.0, 1, 20.0),
    ]
    assert waits(Queue("easy-held", ("cpu",)), workload(jobs, 1, 4)) == [0.0, 0.0, 41.0, 0.0, 0.0]


def test_nothing_is_held_where_nothing_runs() -> None:
    jobs = [(0.0, 10.0, 3, 30.0), (1.0, 5.0, 4, 5.0)]
    assert waits(Queue("easy-held", ("cpu",)), workload(jobs, 1, 4)) == [0.0, 9.0]


def test_rounds_that_are_not_committed_change_no_reserved_time() -> None:
    held = Queue("easy-held", ("cpu",))
    held.apply(fs.MachineAdded("m", {"cpu": 4}))
    for name, cpu, estimate in (("a", 3, 30.0), ("b", 1, 99.0), ("c", 3, 5.0)):
        held.apply(fs.JobSubmitted(name, [fs.Task(name, {"cpu": cpu}, duration=estimate)]))
    assert held.schedule(0.0).placements == {"a": "m", "b": "m"}
    held.commit(held.schedule(0.0))
    held.apply(fs.TaskCompleted("a"))
    assert [dict(held.schedule(now).placements) for now in (10.0, 29.0, 30.0, 30.0)] == [{}, {}, {"c": "m"}, {"c": "m"}]


@pytest.mark.parametrize("nodes", [1, 32])
def test_easy_is_that_of_a_pool_of_processors(nodes: int) -> None:
    """With tasks of one processor, how these are spread over machines must not matter."""
    jobs = batch(400, [1, 2, 4, 8, 16, 32], 40.0)
    found = waits(Queue("easy", ("cpu",)), workload(jobs, nodes, 128 // nodes))
    assert found == model(jobs, 128, easy=True)


def reserved(jobs: Sequence[Job], processors: int) -> list[float]:
    """The waits of jobs that each get the earliest place beside those before, where all estimates are right."""
    held: list[tuple[float, float, int]] = []
    found = []
    for at, run, size, _ in jobs:
        for begin in sorted({at, *(end for _, end, _ in held if end > at)}):
            moments = [begin, *(a for a, _, _ in held if begin < a < begin + run)]
            if all(sum(n for a, b, n in held if a <= t < b) + size <= processors for t in moments):
                held.append((begin, begin + run, size))
                found.append(begin - at)
                break
    return found


@pytest.mark.parametrize("seed", range(4))
def test_conservative_backfilling_gives_each_job_the_earliest_place_beside_those_before(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [float(rng.randint(5, 60)) for _ in range(60)]
    jobs = [(float(8 * i), run, rng.choice([1, 2, 5, 8]), run) for i, run in enumerate(lengths)]
    filled = waits(Queue("conservative", ("cpu",)), workload(jobs, 1, 8))
    assert filled == reserved(jobs, 8)
    assert sum(filled) < 0.9 * sum(model(jobs, 8, easy=False))


def test_conservative_backfilling_spares_the_second_in_line_what_easy_does_to_it() -> None:
    """Of 4 processors 3 are in use until 10; a job of 4 is first in line, one of 3 next, then one of 2 and one of 1."""
    jobs = [(0.0, 10.0, 3, 10.0), (1.0, 5.0, 4, 5.0), (2.0, 50.0, 3, 50.0), (3.0, 9.0, 2, 9.0), (4.0, 6.0, 1, 6.0)]
    assert waits(Queue("conservative", ("cpu",)), workload(jobs, 1, 4)) == [0.0, 9.0, 13.0, 62.0, 0.0]
    jobs[2] = (2.0, 50.0, 4, 50.0)
    jobs[4] = (4.0, 40.0, 1, 40.0)
    assert waits(Queue("easy", ("cpu",)), workload(jobs, 1, 4)) == [0.0, 9.0, 13.0, 62.0, 61.0]


def test_a_job_that_ends_just_when_the_first_in_line_can_start_does_not_delay_it() -> None:
    jobs = [(0.0, 10.0, 2, 10.0), (1.0, 5.0, 4, 5.0), (2.0, 8.0, 2, 8.0)]
    for kind in ("easy", "conservative"):
        assert waits(Queue(kind, ("cpu",)), workload(jobs, 1, 4)) == [0.0, 9.0, 0.0]  # type: ignore[arg-type]
    jobs[2] = (2.0, 9.0, 2, 9.0)
    for kind in ("easy", "conservative"):
        assert waits(Queue(kind, ("cpu",)), workload(jobs, 1, 4)) == [0.0, 9.0, 13.0]  # type: ignore[arg-type]


def test_estimates_are_run_times_by_a_factor() -> None:
    jobs = workload([(0.0, 10.0, 2, 1.0), (0.0, 20.0, 1, 1.0), (0.0, float("inf"), 1, 1.0)], 1, 2)
    exact, loose = fs.sim.estimated(jobs), fs.sim.estimated(jobs, 3.0, seed=1)
    assert [task.duration for a in exact.arrivals for task in a.job.tasks] == [10.0, 10.0, 20.0, None]
    (one, same), (other,), _ = ([task.duration for task in a.job.tasks] for a in loose.arrivals)
    assert one == same and one is not None and other is not None and one / 10 != other / 20
    assert 10 < one <= 30 and 20 < other <= 60
    assert (
        loose.arrivals == fs.sim.estimated(jobs, 3.0, seed=1).arrivals != fs.sim.estimated(jobs, 3.0, seed=2).arrivals
    )
    with pytest.raises(fs.FlowschedError, match="most"):
        fs.sim.estimated(jobs, 0.5)


def test_a_job_without_estimate_is_taken_to_run_for_ever() -> None:
    arrivals = [
        fs.sim.Arrival(float(i), fs.JobSubmitted(i, [fs.Task(i, {"cpu": cpu})]), (5.0,))
        for i, cpu in enumerate((3, 4, 1))
    ]
    work = fs.sim.Workload("w", arrivals, [fs.Machine("m", {"cpu": 4})], resources=("cpu",))
    assert waits(Queue("easy", ("cpu",)), work) == [0.0, 6.0, 0.0], "no estimate tells when the second can start"
    assert waits(Queue("conservative", ("cpu",)), work) == [0.0, 6.0, 0.0]
    assert waits(Queue(False, ("cpu",)), work) == [0.0, 4.0, 8.0]
