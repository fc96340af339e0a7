"""Many tasks in one value: whatever is done with it is as with a list of tasks."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from lives import flow_of, said, world_of

import flowsched as fs
from flowsched.cluster.events import from_dict, to_dict

DETAILS = [
    {},
    {"constraints": {"model": ("T4",)}},
    {"kind": "k", "apart": 2, "avoids": ("other",)},
    {"retries": 2, "backoff": 5.0},
    {"data": {"m1": 2.0}},
]


class Column:
    """As a column of Arrow."""

    def __init__(self, values: list) -> None:
        self.values = values

    def to_pylist(self) -> list:
        return self.values


def drawn(random: Random, job: int) -> tuple[fs.Tasks, list[fs.Task]]:
    """The same tasks, as one value and as a list."""
    count = random.randint(1, 8)
    ids = random.choice([list(range(100 * job, 100 * job + count)), [f"{job}.{i}" for i in range(count)]])
    cpu = [random.choice([0.5, 1, 2]) for _ in range(count)]
    many: dict = {"cpu": random.choice([np.array(cpu), cpu, Column(cpu)])}
    each = [{"cpu": float(c) if isinstance(many["cpu"], np.ndarray) else c} for c in cpu]
    if random.random() < 0.5:
        many, each = {"cpu": 1, "mem": 2}, [{"cpu": 1, "mem": 2}] * count
    durations = [random.choice([1.0, 60.0]) for _ in range(count)]
    duration = random.choice([None, 7.0, np.array(durations)])
    own = durations if isinstance(duration, np.ndarray) else [duration] * count
    details = random.choice(DETAILS)
    tasks = [fs.Task(id, d, duration=t, **details) for id, d, t in zip(ids, each, own, strict=True)]
    column = np.array(ids) if type(ids[0]) is int else Column(ids)
    return fs.Tasks(random.choice([ids, column]), many, duration=duration, **details), tasks


@pytest.mark.parametrize("seed", range(12))
def test_a_job_of_many_tasks_is_the_job_of_a_list(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    journal = tmp_path / "journal"
    one, other = fs.Scheduler(journal=journal), fs.Scheduler()
    for sched in (one, other):
        sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 6, "mem": 9}, labels={"model": "T4"}) for i in range(3)))
    for job in range(6):
        many, tasks = drawn(random, job)
        assert many == tasks and len(many) == len(tasks) and many[-1] == tasks[-1] and many[1:3] == tuple(tasks[1:3])
        event, same = fs.JobSubmitted(job, many, user="ann"), fs.JobSubmitted(job, tasks, user="ann")
        assert to_dict(event) == to_dict(same) and from_dict(to_dict(event)) == from_dict(to_dict(same))
        atomic = random.random() < 0.5
        one.apply(event, atomic=atomic)
        other.apply(same, atomic=atomic)
        rounds = [sched.schedule(float(job)) for sched in (one, other)]
        assert said(rounds[0]) == said(rounds[1])
        for sched, rnd in zip((one, other), rounds, strict=True):
            sched.commit(rnd)
    assert world_of(one) == world_of(other) and flow_of(one) == flow_of(other)
    one.journal.close()
    assert world_of(fs.Scheduler.restore(journal)) == world_of(other)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fs.Tasks([1, [2]]), r"tasks: ids\[1\] must be hashable"),
        (lambda: fs.Tasks([1, 2**70, 10**5000]), r"tasks: ids\[2\]"),
        (lambda: fs.Tasks("abc"), "tasks: ids must be a sequence"),
        (lambda: fs.Tasks([1, 2], {"cpu": [1]}), "tasks: cpu: 2 values expected"),
        (lambda: fs.Tasks([1, 2], duration=np.array([1.0])), "tasks: duration: 2 values expected"),
        (lambda: fs.Tasks([1, 2], duration=[]), "tasks: duration: 2 values expected"),
        (lambda: fs.Tasks([1, 2], duration=[1.0, -1.0]), r"tasks: duration\[1\] must be a finite number >= 0"),
        (lambda: fs.Tasks([1], retries=-1), "retries"),
    ],
)
def test_bad_columns_are_named(make, message: str) -> None:
    with pytest.raises(fs.InputError, match=message):
        make()


def test_an_id_that_exists_is_refused_whole() -> None:
    sched = fs.Scheduler()
    sched.apply(fs.JobSubmitted("a", fs.Tasks([1, 2], {"cpu": 1})))
    before = world_of(sched)
    for ids in ([3, 3], [4, 2]):
        with pytest.raises(fs.DuplicateIdError):
            sched.apply(fs.JobSubmitted("b", fs.Tasks(ids, {"cpu": 1})))
        assert world_of(sched) == before
