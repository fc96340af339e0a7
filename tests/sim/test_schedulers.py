"""Schedulers by name: each decides as its source says, and keeps what a workload asks for."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import flowsched as fs
from flowsched.exceptions import InputError
from flowsched.sim import SCHEDULERS, Arrival, Simulation, Workload, scheduler


def work_of(jobs: list[tuple[str, dict[str, float], int]], machine: dict[str, float], count: int = 1) -> Workload:
    """Jobs of alike tasks, all at time 0, by user, demand and number of tasks."""
    arrivals = []
    for i, (user, demand, n) in enumerate(jobs):
        tasks = [fs.Task((user, i, j), demand, duration=10.0) for j in range(n)]
        arrivals.append(Arrival(0.0, fs.JobSubmitted(i, tasks, user=user), (10.0,) * n))
    machines = [fs.Machine(f"m{i}", machine) for i in range(count)]
    return Workload("small", arrivals, machines, resources=tuple(machine))


def first_round(name: str, work: Workload) -> list[Any]:
    """The tasks that start at time 0, in their order."""
    made = scheduler(name, work)
    made.apply(*(fs.MachineAdded(m.id, m.capacity) for m in work.machines))
    made.apply(*(arrival.job for arrival in work.arrivals))
    return [delta.task for delta in made.schedule(0.0).deltas]


NAMES = [name for name in SCHEDULERS if name != "gavel" or importlib.util.find_spec("scipy")]


@pytest.mark.parametrize("name", [*NAMES, "flowsched:pack"])
def test_each_runs_gangs_whole_and_everything_to_its_end(name: str) -> None:
    work = fs.sim.synthetic("batch", tasks=120, load=0.9, scale=0.5, seed=2)
    runs = []
    for _ in range(2):
        run = Simulation(scheduler(name, work, seed=1), work)
        assert run.run().tasks["completed"] == work.n_tasks
        table = run.task_table()
        starts = defaultdict(set)
        for job, start, times in zip(table["job"], table["last_start"], table["starts"], strict=True):
            starts[job].add(start)
            assert times == 1
        assert all(len(times) == 1 for times in starts.values()), "the tasks of a gang start together"
        runs.append(table)
    assert runs[0]["machine"] == runs[1]["machine"] and runs[0]["end"] == runs[1]["end"]


def test_drf_allocates_as_in_its_paper() -> None:
    """Ghodsi et al., NSDI 2011, section 4.1: 9 CPUs and 18 GB; A asks for <1, 4>, B for <3, 1>: three tasks of A, two of B."""
    work = work_of([("A", {"cpu": 1, "mem": 4}, 9), ("B", {"cpu": 3, "mem": 1}, 9)], {"cpu": 9, "mem": 18})
    started = [task[0] for task in first_round("drf", work)]
    assert sorted(started) == ["A", "A", "A", "B", "B"]


def test_fair_equals_memory_among_users_then_jobs() -> None:
    """12 GB; A has two jobs of 1 GB tasks, B one of 2 GB tasks: 6 GB each, and 3 GB for either job of A."""
    jobs: list[tuple[str, dict[str, float], int]] = [
        ("A", {"cpu": 1, "mem": 1}, 9), ("A", {"cpu": 1, "mem": 1}, 9), ("B", {"cpu": 1, "mem": 2}, 9)
    ]  # fmt: skip
    started = first_round("fair", work_of(jobs, {"cpu": 100, "mem": 12}))
    counts = [sum(task[1] == job for task in started) for job in range(3)]
    assert counts == [3, 3, 3]
    assert sum(task[0] == "A" for task in first_round("first-fit", work_of(jobs, {"cpu": 100, "mem": 12}))) == 12


def test_tetris_starts_what_uses_the_free_amounts_best() -> None:
    """A machine with CPUs for the most part free: the task that asks for CPUs comes first, though it arrived last."""
    jobs: list[tuple[str, dict[str, float], int]] = [("A", {"cpu": 1, "mem": 2}, 1), ("B", {"cpu": 4, "mem": 1}, 1)]
    assert [task[0] for task in first_round("tetris", work_of(jobs, {"cpu": 10, "mem": 10}))] == ["B", "A"]
    jobs = [("A", {"cpu": 8, "mem": 1}, 1), ("B", {"cpu": 2, "mem": 6}, 1), ("C", {"cpu": 1, "mem": 5}, 1)]
    assert [task[0] for task in first_round("tetris", work_of(jobs, {"cpu": 10, "mem": 10}))] == ["A", "B"]


def test_a_gang_that_does_not_fit_leaves_the_room_to_others() -> None:
    gang = fs.JobSubmitted("g", [fs.Task(("g", i), {"cpu": 2}) for i in range(3)], gang=3)
    one = fs.JobSubmitted("o", [fs.Task("o", {"cpu": 1})])
    work = Workload(
        "w",
        [Arrival(0.0, gang, (1.0,) * 3), Arrival(0.0, one, (1.0,))],
        [fs.Machine("m", {"cpu": 5})],
        resources=("cpu",),
    )
    for name in ("first-fit", "sjf", "drf", "tetris", "random"):
        assert first_round(name, work) == ["o"], name
    assert first_round("fifo", work) == []


def test_a_gang_of_unlike_tasks_that_fit_one_by_one_is_taken_back() -> None:
    """Either task of the gang fits, both do not: the room of the one that was tried is free for the next job."""
    gang = fs.JobSubmitted("g", [fs.Task("g0", {"cpu": 4}), fs.Task("g1", {"cpu": 2})], gang=2)
    one = fs.JobSubmitted("o", [fs.Task("o", {"cpu": 3})])
    work = Workload(
        "w",
        [Arrival(0.0, gang, (1.0, 1.0)), Arrival(0.0, one, (1.0,))],
        [fs.Machine("m", {"cpu": 5})],
        resources=("cpu",),
    )
    for name in ("first-fit", "sjf", "drf", "tetris", "random", "easy"):
        assert first_round(name, work) == ["o"], name
    assert first_round("fifo", work) == []


def test_one_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_for_tests.py").write_text(
        "import flowsched as fs\n"
        "def make(workload, seed):\n    return fs.Scheduler(resources=workload.resources, seed=seed)\n"
        "def wrong(workload, seed):\n    return 3\nname = 'x'\n"
    )
    monkeypatch.chdir(tmp_path)
    work = fs.sim.synthetic("poisson", tasks=20)
    assert isinstance(scheduler("mine_for_tests:make", work), fs.Scheduler)
    for name, error in {
        "mine_for_tests:wrong": "made no scheduler but 3",
        "mine_for_tests:name": "is no function",
        "mine_for_tests:none": "has no attribute",
        "no_such_module:x": "No module named",
        ":x": "Empty module name",
        "nothing": "known: flowsched, fifo",
        "flowsched:nothing": "unknown name 'nothing'",
    }.items():
        with pytest.raises(InputError, match=error):
            scheduler(name, work)
