"""Delay scheduling in the greedy form of Algorithm 1: how long tasks keep to their data, and what others do meanwhile."""

from __future__ import annotations

import math

import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

import flowsched as fs
from flowsched.exceptions import InputError
from flowsched.fgm import FineGrained
from flowsched.sim.baselines import DelayScheduling, Greedy
from flowsched.sim.orders import drf, fifo


def greedy(machine: float, rack: float = 0.0, machines: int = 4, cores: int = 1) -> Greedy:
    made = Greedy(fifo, ("cpu",), delay=DelayScheduling(machine, rack))
    made.apply(*(fs.MachineAdded(m, {"cpu": cores}, f"r{m // 2}") for m in range(machines)))
    return made


def submit(made: Greedy, job: str, count: int, *data: int, time: float = 0.0) -> None:
    tasks = [fs.Task(f"{job}{i}", {"cpu": 1}, data=dict.fromkeys(data, 1.0)) for i in range(count)]
    made.apply(fs.JobSubmitted(job, tasks, time=time))


def step(made: Greedy, now: float) -> dict[str, int]:
    decided = made.schedule(now)
    made.commit(decided)
    return decided.placements  # type: ignore[return-value]


def test_without_delay_data_do_not_matter() -> None:
    made = Greedy(fifo, ("cpu",))
    made.apply(*(fs.MachineAdded(m, {"cpu": 1}) for m in range(3)))
    submit(made, "a", 3, 2)
    assert step(made, 0.0) == {"a0": 0, "a1": 1, "a2": 2}


def test_machine_then_rack_then_anywhere() -> None:
    made = greedy(5.0, 3.0)
    submit(made, "a", 4, 3)
    assert step(made, 1.0) == {"a0": 3}, "passed over for the first time at 1 s; its start at 1 s begins the wait anew"
    assert step(made, 5.9) == {}
    assert step(made, 6.0) == {"a1": 2}
    assert step(made, 8.9) == {}
    assert step(made, 9.0) == {"a2": 0, "a3": 1}


def test_a_local_start_begins_the_wait_anew() -> None:
    made = greedy(5.0)
    submit(made, "a", 3, 3)
    assert step(made, 0.0) == {"a0": 3}
    made.apply(fs.TaskCompleted("a0", time=4.0))
    assert step(made, 4.0) == {"a1": 3}
    assert step(made, 8.9) == {}
    assert step(made, 9.0) == {"a2": 2}


def test_others_go_first_meanwhile() -> None:
    made = greedy(5.0, 5.0)
    submit(made, "a", 2, 0)
    submit(made, "b", 2)
    assert step(made, 0.0) == {"a0": 0, "b0": 1, "b1": 2}


def test_a_round_that_is_not_committed_begins_no_wait_anew() -> None:
    made = greedy(5.0)
    submit(made, "a", 2, 3)
    step(made, 0.0)
    made.apply(fs.TaskCompleted("a0", time=3.0))
    assert made.schedule(3.0).placements == {"a1": 3}  # not committed
    submit(made, "b", 1, 3, time=3.5)
    made.apply(fs.TaskRemoved("a1", time=3.5))
    submit(made, "c", 4, time=4.0)
    assert set(step(made, 4.0)) == {"b0", "c0", "c1", "c2"}


@pytest.mark.parametrize("event", [fs.MachineFailed, fs.MachineDrained, fs.MachineRemoved])
def test_a_machine_that_takes_no_tasks_is_not_waited_for(event: type[fs.Event]) -> None:
    made = greedy(5.0)
    submit(made, "a", 1, 3)
    made.apply(event(3, time=1.0))  # type: ignore[call-arg]
    assert step(made, 1.0) == {"a0": 0}


def test_a_wait_without_end_and_what_is_refused() -> None:
    made = greedy(math.inf)
    submit(made, "a", 2, 3)
    assert step(made, 0.0) == {"a0": 3}
    assert step(made, 1e9) == {}
    for arguments in ((-1.0,), (1.0, -1.0), ("1",)):
        with pytest.raises(InputError):
            DelayScheduling(*arguments)  # type: ignore[arg-type]


def test_algorithm_1_of_fgm_keeps_to_data() -> None:
    """What the audit of the rules found: all machines empty, data on m2, and tasks that went to m1 and m2."""
    for delay, wanted in ((None, {"m1", "m2"}), (DelayScheduling(30.0), {"m2"})):
        fine = FineGrained(Greedy(drf, ("cpu", "mem"), delay=delay))
        fine.apply(*(fs.MachineAdded(m, {"cpu": 4, "mem": 8}) for m in ("m1", "m2")))
        fine.apply(fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1, "mem": 1}, data={"m2": 1.0}) for i in range(3)]))
        decided = fine.schedule(0.0)
        fine.commit(decided)
        assert set(decided.placements.values()) == wanted and len(decided.placements) == 3


@settings(max_examples=effort(15, 600))
@given(
    jobs=st.lists(st.tuples(st.integers(1, 4), st.sets(st.integers(0, 6), max_size=3)), min_size=1, max_size=4),
    machine=st.sampled_from([0.0, 2.0, 7.0, math.inf]),
    rack=st.sampled_from([0.0, 3.0]),
    ends=st.lists(st.integers(0, 10), max_size=12),
)
def test_no_task_leaves_its_data_too_early_nor_late(
    jobs: list[tuple[int, set[int]]], machine: float, rack: float, ends: list[int]
) -> None:
    """A model of the rule beside it: from a job's last local start, or its first round without a near place."""
    made = greedy(machine, rack, machines=5, cores=2)
    data, began, running = {}, {}, {}
    for j, (count, where) in enumerate(jobs):
        submit(made, f"j{j}-", count, *where)
        data[f"j{j}-"] = {m for m in where if m < 5}
    for now in range(13):
        if now < len(ends) and ends[now] < len(running):
            gone = list(running)[ends[now]]
            made.apply(fs.TaskCompleted(gone, time=float(now)))
            del running[gone]
        free = {m: 2 - list(running.values()).count(m) for m in range(5)}
        placed = step(made, float(now))
        local = set()
        for task, m in placed.items():
            job = task.partition("-")[0] + "-"
            waited = now - began.get(job, now)
            near = data[job]
            if near and m not in near:
                assert not any(free[n] for n in near), "a machine with its data had room"
                assert waited >= (machine if m // 2 in {n // 2 for n in near} else machine + rack)
            free[m] -= 1
            running[task] = m
            local |= {job} if m in near else set()
        for job, group in data.items():
            if group and any(t.startswith(job) for t in made.cluster.tasks if t not in running):
                began.setdefault(job, now)
                if sum(free.values()) and (now - began[job] >= machine + rack or any(free[n] for n in group)):
                    raise AssertionError(f"{job} waits beyond its delay while a machine has room")
        began.update(dict.fromkeys(local, now))
