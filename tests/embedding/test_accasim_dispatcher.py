"""The example dispatcher of AccaSim: lines of jobs wait as long as in AccaSim's own FIFO, and as long as in the simulator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowsched as fs

pytest.importorskip("accasim", reason="pip install accasim")
pytest.importorskip("simpy", reason="pip install simpy")
from accasim_dispatcher import Dispatcher, FirstFit, FirstInFirstOut, mean_wait, write_jobs


def line(name: str, trace: fs.sim.Workload) -> Dispatcher:
    """A dispatcher that goes by a line of jobs of flowsched's simulator."""
    return Dispatcher(lambda names: fs.sim.scheduler(name, fs.sim.Workload("", [], trace.machines, resources=names)))


def in_our_simulator(scheduler: fs.sim.Schedules, trace: fs.sim.Workload) -> float:
    run = fs.sim.Simulation(scheduler, trace)
    assert run.run().tasks["completed"] == trace.n_tasks
    table = run.task_table()
    waits = zip(table["job"], table["first_start"], table["arrival"], strict=True)
    return float(np.mean(list({job: start - arrival for job, start, arrival in waits}.values())))


def test_accasims_own_line_on_the_jobs_of_the_page(tmp_path: Path) -> None:
    """1,500 jobs; `tests/sim/test_lines.py` has the same mean wait from flowsched's simulator."""
    write_jobs(tmp_path, 1500)
    assert mean_wait(FirstInFirstOut(FirstFit()), tmp_path) == pytest.approx(9282, abs=1)


def test_lines_wait_as_long_as_in_accasim_and_in_our_simulator(tmp_path: Path) -> None:
    write_jobs(tmp_path, 150)
    trace = fs.sim.load_trace(tmp_path / "jobs.swf")
    fifo = in_our_simulator(fs.sim.scheduler("fifo", trace), trace)
    assert fifo > 100
    assert mean_wait(FirstInFirstOut(FirstFit()), tmp_path) == pytest.approx(fifo)
    assert mean_wait(line("fifo", trace), tmp_path) == pytest.approx(fifo)
    easy = in_our_simulator(fs.sim.scheduler("easy", trace), trace)
    assert mean_wait(line("easy", trace), tmp_path) == pytest.approx(easy)


def test_flowsched_waits_about_as_long_as_in_our_simulator(tmp_path: Path) -> None:
    """Several placements are best, and AccaSim makes no round while nothing waits; so the two part company at a tie."""
    write_jobs(tmp_path, 150)
    trace = fs.sim.load_trace(tmp_path / "jobs.swf")
    found = mean_wait(Dispatcher(lambda names: fs.Scheduler(resources=names)), tmp_path)
    assert found == pytest.approx(in_our_simulator(fs.Scheduler(resources=trace.resources), trace), rel=0.1)
    assert found < mean_wait(FirstInFirstOut(FirstFit()), tmp_path)


class Watched:
    """A scheduler beside a tally of its nodes by run times that it does not know."""

    def __init__(self, names: Sequence[str], ends: dict[str, float]) -> None:
        self.sched, self.ends, self.held, self.started = (
            fs.Scheduler(resources=names),
            ends,
            dict[Any, Any](),
            set[str](),
        )
        self.apply = self.sched.apply

    def schedule(self, now: float, time_limit: float | None = None) -> fs.Round:
        self.now = now
        return self.sched.schedule(now, time_limit)

    def commit(self, rnd: fs.Round) -> fs.Commit:
        done = self.sched.commit(rnd)
        for place in done.accepted:
            assert isinstance(place, fs.Place)
            until = self.now + self.ends[place.task[0]]
            self.started.add(place.task[0])
            self.held.setdefault(place.machine, []).append(until)
            assert sum(end > self.now for end in self.held[place.machine]) <= 4
        return done


def test_no_node_has_more_than_it_holds_and_what_can_never_run_is_rejected(tmp_path: Path) -> None:
    """Jobs of no time, of all nodes, of one processor more than there are, and several at one time."""
    jobs = [(0, 5, 128), (0, 0, 4), (1, 7, 129), (1, 3, 1), (1, 3, 1), (6, 9, 100), (6, 2, 128), (6, 1, 64)] * 3
    lines = [
        f"{i} {at} -1 {run} {n} -1 -1 {n} {run} -1 1 1 1 1 1 -1 -1 -1" for i, (at, run, n) in enumerate(sorted(jobs), 1)
    ]
    write_jobs(tmp_path, 1)
    (tmp_path / "jobs.swf").write_text("\n".join(lines) + "\n")
    runs = {str(i): float(run) for i, (_, run, _) in enumerate(sorted(jobs), 1)}
    made = list[Watched]()

    def make(names: Sequence[str]) -> Watched:
        made.append(Watched(names, runs))
        return made[0]

    mean_wait(Dispatcher(make), tmp_path)
    assert len(made[0].started) == 21
    assert json.loads((tmp_path / "nodes.json").read_text())["resources"] == {"node": 32}
