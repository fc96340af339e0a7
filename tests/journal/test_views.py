"""The views of the database: they say what happened, whatever happened, and their cost grows with the history."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from effort import effort
from lives import POLICIES, Life

import flowsched as fs


def rows(path: Path, sql: str, *values) -> list[tuple]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        return reader.execute(sql, values).fetchall()


def spelt(id) -> object:
    """As SQLite shows an id."""
    return json.dumps(id, separators=(",", ":")) if isinstance(id, tuple) else id


@pytest.mark.parametrize("seed", range(effort(6, 60)))
def test_the_views_agree_with_the_results_of_calls(seed: int, tmp_path: Path) -> None:
    life, path = Life(seed), tmp_path / "state.db"
    sched = fs.Scheduler(POLICIES[seed % len(POLICIES)](), journal=path)
    runs: dict[int, list] = {}
    waits: Counter[tuple] = Counter()

    def end(ended) -> None:
        for run in ended:
            runs.setdefault(run.run, [spelt(run.task), spelt(run.machine), None])[2] = run.why

    for _ in range(60):
        before = sched.cluster.runs
        end(sched.apply(*life.events(sched)))
        for task, record in sched.cluster.tasks.items():
            if record.run > before and record.place is not None:
                runs[record.run] = [spelt(task), spelt(sched.cluster.placement(task)), None]
        rnd = sched.schedule(life.later())
        for reason in rnd.waiting.values():
            waits[rnd.now, reason.code.value] += 1
        if life.random.random() < 0.7:
            done = sched.commit(rnd, life.only(rnd))
            for task, run in done.runs.items():
                runs[run] = [spelt(task), spelt(sched.cluster.placement(task)), None]
            end(done.ended)
        if life.random.random() < 0.1:
            sched.compact()
    sched.journal.close()  # writes the last round
    found = {
        run: [task, machine, why] for run, task, machine, why in rows(path, "SELECT run, task, machine, why FROM runs")
    }
    runs |= {run: found[run] for run in found.keys() - runs.keys()}  # began and ended within one call
    assert len(found) == rows(path, "SELECT count(*) FROM runs")[0][0]
    assert {run: runs[run] for run in found} == found
    running = {record.run for record in sched.cluster.tasks.values() if record.place is not None}
    assert {run for run, (_, _, why) in found.items() if why is None} - running <= set(sched.cluster.stopping)
    told = {
        (time, reason): tasks
        for time, reason, tasks in rows(path, "SELECT time, reason, sum(tasks) FROM waiting GROUP BY time, reason")
    }
    assert {key: told[key] for key in waits} == dict(waits)
    assert rows(path, "SELECT count(*) FROM events")[0][0] == sched.cluster.events


def test_runs_have_users_demands_and_times(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    sched = fs.Scheduler(resources=("cpu", "time", "gpu"), journal=path)
    sched.apply(
        fs.MachineAdded("m", {"cpu": 4, "gpu": 2}),
        fs.JobSubmitted(("j", 1), [fs.Task("a", {"cpu": 1.5, "gpu": 1})], user="ann", priority=2),
    )
    sched.apply(fs.TaskSubmitted(("j", 1), fs.Task("b", [2, 0, 1])))
    sched.commit(sched.schedule(5.0))
    sched.apply(fs.TaskFailed("a", time=7.0), fs.TaskCompleted("b"))
    sched.commit(sched.schedule(9.0))
    columns = "run, task, job, user, priority, machine, devices, started, ended, why, cpu, gpu"
    assert rows(path, f"SELECT {columns} FROM runs ORDER BY run") == [
        (1, "a", '["j",1]', "ann", 2, "m", "[0]", 5.0, 7.0, "TaskFailed", 1.5, 1),
        (2, "b", '["j",1]', "ann", 2, "m", "[1]", 5.0, 9.0, "TaskCompleted", 2, 1),
        (3, "a", '["j",1]', "ann", 2, "m", "[0]", 9.0, None, None, 1.5, 1),
    ]  # fmt: skip
    assert rows(path, "SELECT time, kind, job, task, user, machine FROM events LIMIT 4 OFFSET 1") == [
        (5.0, "JobSubmitted", '["j",1]', None, "ann", None), (5.0, "TaskSubmitted", '["j",1]', "b", None, None),
        (7.0, "TaskFailed", None, "a", None, None), (9.0, "TaskCompleted", None, "b", None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("resources", [("cpu", "g\"p'u", "a b", "select", "task"), ("machine", "\u00fc")])
def test_names_of_resources_that_sql_does_not_take_have_no_column(tmp_path: Path, resources: tuple) -> None:
    sched = fs.Scheduler(resources=resources, journal=tmp_path / "state.db")
    sched.apply(
        fs.MachineAdded("m", dict.fromkeys(resources, 1)),
        fs.JobSubmitted("j", [fs.Task("t", dict.fromkeys(resources, 1))]),
    )
    sched.commit(sched.schedule(0.0))
    ((demand,),) = rows(tmp_path / "state.db", "SELECT demand FROM runs")
    assert json.loads(demand) == dict.fromkeys(resources, 1)


@pytest.mark.parametrize("view", ["runs", "tasks", "events", "waiting"])
def test_the_cost_of_a_view_grows_with_the_history_and_not_with_its_square(tmp_path: Path, view: str) -> None:
    steps = []
    for count in (20, 80):
        path = tmp_path / f"{count}.db"
        sched = fs.Scheduler(resources=("cpu",), journal=path)
        sched.apply(fs.MachineAdded("m", {"cpu": 10}), fs.JobSubmitted("late"))
        for k in range(count):
            sched.apply(
                fs.JobSubmitted(k, [fs.Task((k, i), {"cpu": 1}) for i in range(6)]),
                fs.TaskSubmitted("late", fs.Task(k, {"cpu": 1})),
            )
            sched.commit(sched.schedule(float(k)))
            sched.apply(*(fs.TaskCompleted(t) for t, r in list(sched.cluster.tasks.items()) if r.place))
        ticks = [0]

        def tick(ticks=ticks) -> None:
            ticks[0] += 1

        with closing(sqlite3.connect(path)) as reader:
            reader.set_progress_handler(tick, 50)
            reader.execute(f"SELECT * FROM {view}").fetchall()
        steps.append(ticks[0])
    assert steps[1] < 8 * steps[0]
