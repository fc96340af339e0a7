"""Between the units: transfer queue, rebalancing, growing and shrinking, and what is known of run times."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched.exceptions import InputError
from flowsched.hrm import (
    Container,
    Elastic,
    Move,
    Outcome,
    ResourceUnit,
    RunTimes,
    StackedQueue,
    TransferQueue,
    rebalance,
)


def cpu(name: str, cores: int, **options: int) -> StackedQueue:
    return StackedQueue(ResourceUnit(name, vcore=cores), **options)  # type: ignore[arg-type]


def test_requests_go_where_they_start_first() -> None:
    a, b = cpu("a", 2), cpu("b", 4)
    machine = TransferQueue([a, b])
    for i, cores in enumerate((2, 3, 1, 2, 2)):
        machine.submit(Container(i, vcore=cores, duration=10.0 + i), now=0)
    assert (list(a.running), list(b.running)) == ([0], [1, 2])
    assert [c.id for c in a.waiting + b.waiting] == [3, 4] and not machine.held


def test_better_and_larger_ones_leave_the_transfer_queue_first() -> None:
    queue = cpu("a", 4, length=0)
    machine = TransferQueue([queue])
    machine.submit(Container("run", vcore=4, duration=5), now=0)
    for id, cores, priority in (("small", 1, 1), ("large", 3, 1), ("best", 1, 0)):
        assert machine.submit(Container(id, vcore=cores, duration=5, priority=priority), now=1) == []
    assert [c.id for c in machine.held] == ["small", "large", "best"]
    queue.finish("run", 5)
    assert [container.id for _, container, _ in machine.forward(5)] == ["best", "large"]
    assert [c.id for c in machine.held] == ["small"]


def test_streams_and_impossible_requests_are_not_held() -> None:
    machine = TransferQueue([cpu("a", 2)])
    assert machine.submit(Container("big", vcore=3), now=0) == []
    assert len(machine.submit(Container("s", vcore=2, kind="stream"), now=0)) == 1
    assert machine.submit(Container("t", vcore=1, kind="stream"), now=0) == []
    assert not machine.held


def test_waiters_move_to_an_idle_unit_the_latest_first() -> None:
    a, b = cpu("a", 1), cpu("b", 1)
    for i, duration in enumerate((100.0, 5.0, 5.0)):
        a.submit(Container(i, vcore=1, duration=duration), 0)
    assert rebalance([a, b], 0, patience=106) == []
    assert rebalance([a, b], 0, patience=50) == [Move(2, "a", "b")]
    assert ([c.id for c in a.waiting], list(b.running)) == ([1], [2])
    assert rebalance([a, b], 0, patience=50) == []  # no unit is idle any more
    with pytest.raises(InputError, match="patience"):
        rebalance([a, b], 0, patience=-1)


def test_waiters_move_only_where_told_and_only_those_that_may() -> None:
    a, b, c = cpu("a", 1), cpu("b", 1), cpu("c", 1)
    for i in range(4):
        a.submit(Container(i, vcore=1, duration=9.0), 0)
    moves = rebalance([a], 0, patience=0.0, onto=[b, c], may=lambda container: container.id != 3)
    assert moves == [Move(2, "a", "b"), Move(1, "a", "c")]
    assert [c.id for c in a.waiting] == [3]


def test_a_stream_job_grows_and_shrinks_outside_the_band_only() -> None:
    elastic = Elastic(least=2, most=20, low=0.4, high=0.9, aim=0.7)
    assert [elastic.target(7, load) for load in (0.4, 0.7, 0.9)] == [7, 7, 7]
    assert elastic.target(7, 1.4) == 14
    assert elastic.target(7, 0.35) == 4
    assert (elastic.target(3, 0.0), elastic.target(19, math.inf)) == (2, 20)
    with pytest.raises(InputError, match="low"):
        Elastic(low=0.8, aim=0.7)


def test_run_times_come_from_history_else_from_everything() -> None:
    times = RunTimes(default=100, weight=0.5)
    assert times.expect("sort") == 100
    times.observe("sort", 20)
    assert times.expect("sort") == 20
    times.observe("sort", 40)
    assert times.expect("sort") == 30
    assert 90 < times.expect("unknown") < 100
    with pytest.raises(InputError):
        times.observe("sort", -1)


@given(st.floats(0, 1e5), st.floats(0.1, 1e3))
def test_a_late_container_is_expected_to_go_on_for_a_while(elapsed: float, expected: float) -> None:
    times = RunTimes(default=expected)
    left = times.remaining("x", elapsed)
    assert left >= -1e-6 * elapsed
    assert (elapsed + left) == pytest.approx(expected) or elapsed > expected
    assert elapsed + left <= max(2 * elapsed, expected) * 1.000001


containers = st.builds(
    dict,
    vcore=st.integers(0, 5), gmem=st.sampled_from([0, 0, 1, 3, 6]), priority=st.integers(0, 2),
    duration=st.sampled_from([1.0, 2.0, 7.0]), kind=st.sampled_from(["batch", "batch", "stream"]),
)  # fmt: skip


@given(those=st.lists(st.tuples(containers, st.booleans()), max_size=15), length=st.integers(0, 2))
def test_a_transfer_queue_loses_nothing_and_holds_only_what_no_queue_takes(
    those: list[tuple[dict[str, Any], bool]], length: int
) -> None:
    queues = [
        StackedQueue(ResourceUnit("cpu", "m", vcore=4), length=length),
        StackedQueue(ResourceUnit("gpu", "m", vcore=2, gmem=5, gpu=0), length=length),
    ]
    transfer, passed, now = TransferQueue(queues), set[object](), 0.0
    for i, (what, end) in enumerate(those):
        now += 1.0
        container = Container(i, **what)
        done = [one.id for _, one, _ in transfer.submit(container, now)]
        assert not passed & set(done)
        passed |= set(done)
        kept = [one.id for one in transfer.held]
        if i not in done and i not in kept:
            assert container.kind == "stream" or not any(queue.takes(container.need) for queue in queues)
        running = [(queue, id) for queue in queues for id in queue.running]
        if end and running:
            running[0][0].finish(running[0][1], now)
            passed |= {one.id for _, one, _ in transfer.forward(now)}
        assert not passed & {one.id for one in transfer.held}
        for one in transfer.held:
            assert all(queue.submit(one, now).outcome in (Outcome.QUEUE_FULL, Outcome.OVER_LIMIT) for queue in queues)


@given(
    those=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from([1.0, 5.0, 20.0])), max_size=12),
    patience=st.sampled_from([0.0, 3.0, 10.0]),
)
def test_moves_keep_every_container_and_leave_none_that_could_move(
    those: list[tuple[int, int, float]], patience: float
) -> None:
    queues = [StackedQueue(ResourceUnit(f"u{i}", f"m{i}", vcore=4)) for i in range(3)]
    for i, (unit, vcore, duration) in enumerate(those):
        queues[unit].submit(Container(i, vcore=vcore, duration=duration), 0.0)
    before = {id: queue.unit.id for queue in queues for id in (*queue.running, *(c.id for c in queue.waiting))}
    moves = rebalance(queues, 0.0, patience)
    after = {id: queue.unit.id for queue in queues for id in (*queue.running, *(c.id for c in queue.waiting))}
    assert before.keys() == after.keys()
    assert {move.container: (move.old, move.new) for move in moves} == {
        id: (unit, after[id]) for id, unit in before.items() if after[id] != unit
    }
    assert all(queue.free[0] >= 0 for queue in queues)
    if not patience:
        waiting = [c for queue in queues for c in queue.waiting]
        assert not any(queue.has_room(c) for c in waiting for queue in queues)


@given(
    containers=st.integers(1, 50),
    load=st.floats(0, 20),
    more=st.floats(0, 5),
    least=st.integers(1, 5),
    most=st.integers(5, 60),
)
def test_an_elastic_size_is_within_its_bounds_and_brings_the_load_to_its_aim(
    containers: int, load: float, more: float, least: int, most: int
) -> None:
    elastic = Elastic(least, most)
    target = elastic.target(containers, load)
    assert (least <= target <= most and elastic.target(containers, load + more) >= target) or load <= elastic.high
    if elastic.low <= load <= elastic.high:
        assert target == min(max(containers, least), most)
    elif least < target < most:
        assert load * containers / target <= elastic.aim + 1e-6 < load * containers / (target - 1) + 2e-6
