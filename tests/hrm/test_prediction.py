"""Algorithm 1: the predicted wait against what queues then do, and the matrix against the heap."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.exceptions import InputError
from flowsched.hrm import Container, Outcome, ResourceUnit, StackedQueue, WaitMatrix, predict_wait

EXAMPLES = effort(80, 1000)


def unit(name: object = "u") -> ResourceUnit:
    return ResourceUnit(name, vcore=4, mem=8, gmem=8, gpu=0)


containers = st.tuples(
    st.sampled_from([0.5, 1, 2, 4]), st.integers(0, 5), st.integers(0, 8), st.sampled_from([1.0, 2.0, 3.5, 7.0])
)


def fill(queue: StackedQueue, load: list[tuple[float, int, int, float]], streams: int = 0) -> None:
    for i, (vcore, mem, gmem, duration) in enumerate(load):
        queue.submit(Container(i, vcore=vcore, mem=mem, gmem=gmem, duration=duration), now=0.125 * (i % 4))
    for i in range(streams):
        queue.submit(Container(f"s{i}", vcore=1, gmem=2, duration=4.0, kind="stream"), now=0.5)


def simulate(queue: StackedQueue, me: object, now: float) -> float:
    """Let everything end when it is expected to, what is late by now after twice its time, four times, ...; when `me` starts."""
    late: dict[object, float] = {}
    for id, run in queue.running.items():
        seconds = run.container.duration
        while run.start + seconds < now:
            seconds *= 2
        late[id] = run.start + seconds
    while me not in queue.running:
        ends = [(late.get(id, run.end), id) for id, run in queue.running.items()]
        end = min(ends, default=(math.inf, 0), key=lambda item: item[0])[0]
        if end == math.inf:
            return math.inf
        now = end
        queue.finish([id for at, id in ends if at == end], now)
    return now


@settings(max_examples=EXAMPLES)
@given(
    load=st.lists(containers, max_size=12), new=containers, streams=st.integers(0, 2), now=st.sampled_from([1.0, 2.0])
)
def test_the_prediction_is_what_the_queue_then_does(
    load: list[tuple[float, int, int, float]], new: tuple[float, int, int, float], streams: int, now: float
) -> None:
    queue = StackedQueue(unit(), most=5)
    fill(queue, load, streams)
    me = Container("me", vcore=new[0], mem=new[1], gmem=new[2], duration=new[3])
    wait = queue.predict(me, now)
    outcome = queue.submit(me, now).outcome
    assert (outcome is Outcome.STARTED) == (wait == 0.0) or outcome is Outcome.QUEUED
    assert simulate(queue, "me", now) == now + wait


@settings(max_examples=EXAMPLES)
@given(
    loads=st.lists(st.tuples(st.lists(containers, max_size=8), st.integers(0, 2)), min_size=1, max_size=6),
    classes=st.lists(containers, min_size=1, max_size=3),
    moves=st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.sampled_from([0.0, 0.5, 3.0])), max_size=6),
)
def test_the_matrix_is_the_heap_row_by_row(
    loads: list[tuple[list[tuple[float, int, int, float]], int]],
    classes: list[tuple[float, int, int, float]],
    moves: list[tuple[int, bool, float]],
) -> None:
    queues = [StackedQueue(unit(i), most=5) for i in range(len(loads))]
    for queue, (load, streams) in zip(queues, loads, strict=True):
        fill(queue, load, streams)
    matrix = WaitMatrix(queues)
    news = [Container(("n", i), vcore=c[0], mem=c[1], gmem=c[2], duration=c[3]) for i, c in enumerate(classes)]
    now = 1.0
    for step, (which, ends, later) in enumerate([(0, False, 0.0), *moves]):
        now += later
        queue = queues[which % len(queues)]
        if ends and queue.running:
            queue.finish([next(iter(queue.running))], now)
        else:
            queue.submit(Container(("extra", step), vcore=2, duration=2.0), now)
        for new in news:
            assert matrix.waits(new, now).tolist() == [queue.predict(new, now) for queue in queues]


def test_only_rows_that_changed_are_computed_again() -> None:
    queues = [StackedQueue(unit(i)) for i in range(50)]
    for queue in queues:
        fill(queue, [(4, 1, 1, 100.0), (4, 1, 1, 100.0)])
    matrix, new = WaitMatrix(queues), Container("new", vcore=4)
    assert (matrix.waits(new, 1.0) == 199.0).all() and matrix.recomputed == 50
    assert (matrix.waits(new, 51.0) == 149.0).all() and matrix.recomputed == 50
    queues[7].finish([0], 51.0)
    waits = matrix.waits(new, 51.0)
    assert waits[7] == 100.0 and matrix.recomputed == 51
    assert predict_wait(new, matrix, now=51.0).index == 7
    matrix.waits(new, 150.0)  # the others should have ended at 100: they are expected to end at 200
    assert matrix.recomputed == 51 + 49


@settings(max_examples=EXAMPLES)
@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=8),
    starts=st.lists(st.integers(0, 9), min_size=8, max_size=8),
)
def test_uniform_and_not_agree_on_equal_containers_that_take_the_whole_unit(
    lengths: list[int], starts: list[int]
) -> None:
    queues = [StackedQueue(unit(i)) for i in range(len(lengths))]
    for queue, length, start in zip(queues, lengths, starts, strict=False):
        for i in range(length):
            queue.submit(Container(i, vcore=4, duration=10.0), now=float(start))
    new = Container("new", vcore=4, duration=10.0)
    uniform, simulated = predict_wait(new, queues, now=9.0, uniform=True), predict_wait(new, queues, now=9.0)
    assert (uniform.wait, uniform.index) == (simulated.wait, simulated.index)


def test_a_unit_with_room_but_a_waiter_is_not_free() -> None:
    queue = StackedQueue(unit())
    queue.submit(Container("a", vcore=3, duration=10), 0)
    queue.submit(Container("b", vcore=2, duration=10), 0)
    new = Container("new", vcore=1)
    assert predict_wait(new, [queue], now=4.0).wait == 6.0
    assert predict_wait(new, [queue, StackedQueue(unit(1))], now=4.0).index == 1


def test_two_long_waiters_or_five_short_ones() -> None:
    """The source's example against queue lengths: 2 of 500 s each, or 5 of 2 s each."""
    queues = [StackedQueue(unit(i), most=1) for i in range(2)]
    for queue, n, duration in zip(queues, (3, 6), (500.0, 2.0), strict=True):
        for i in range(n):
            queue.submit(Container(i, vcore=1, duration=duration), 0)
    new = Container("new", vcore=1, duration=10.0)
    assert predict_wait(new, queues, uniform=True).index == 0
    fair = predict_wait(new, queues)
    assert (fair.index, fair.wait, fair.waits.tolist()) == (1, 12.0, [1500.0, 12.0])


def test_what_never_fits_and_what_never_ends() -> None:
    queue = StackedQueue(unit())
    nowhere = predict_wait(Container("big", vcore=5), [queue])
    assert (nowhere.wait, nowhere.index) == (math.inf, None)
    assert predict_wait(Container("big", vcore=5), [queue], uniform=True).index is None
    assert predict_wait(Container("x"), []).index is None
    queue.submit(Container("s", vcore=4, kind="stream"), 0)
    assert predict_wait(Container("new", vcore=1), [queue]).wait == math.inf
    assert predict_wait(Container("t", vcore=1, kind="stream"), [queue]).wait == math.inf
    with pytest.raises(InputError, match="now"):
        predict_wait(Container("new", vcore=1), [queue], now=math.nan)


def test_thousands_of_units_at_once() -> None:
    rng = np.random.default_rng(0)
    queues = [StackedQueue(ResourceUnit(i, vcore=16), length=4) for i in range(2000)]
    for queue in queues:
        for i in range(20):
            queue.submit(Container(i, vcore=1, duration=float(rng.integers(5, 50))), 0)
    new = Container("new", vcore=1, duration=5.0)
    best = predict_wait(new, queues, now=2.0)
    assert best.index is not None
    # Independent of either: pop the ends of one unit in order, the waiters following one by one.
    queue = queues[best.index]
    heap = [run.end for run in queue.running.values()]
    heapq.heapify(heap)
    for container in queue.waiting:
        heapq.heappush(heap, heapq.heappop(heap) + container.duration)
    assert best.wait == heap[0] - 2.0 == best.waits.min()


def test_a_container_that_is_late_is_expected_to_take_a_power_of_two_times_as_long() -> None:
    """Told to take 1 s, it still runs after 1.02 s: everything behind it is expected a second later than at first."""
    queue = StackedQueue(ResourceUnit("u", vcore=3, mem=6))
    for i, (vcore, mem, duration) in enumerate([(3, 4, 1), (3, 2, 9), (2, 4, 8), (2, 4, 8), (2, 1, 6), (3, 4, 9)]):
        queue.submit(Container(i, vcore=vcore, mem=mem, duration=duration), 0.19 * i)
    me = Container("me", vcore=3, mem=4, duration=3)
    early, now = queue.predict(me, 0.99), 1.02
    assert queue.predict(me, now) == pytest.approx(early + 0.99 + 1.0 - now)
    queue.submit(me, now)
    ends = dict(queue.running)
    assert list(ends) == [0] and ends[0].end == 1.0
    queue.finish(0, 2.0)
    assert simulate(queue, "me", 2.0) == pytest.approx(0.99 + early + 1.0)
