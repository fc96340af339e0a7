"""The stacked queues of a unit, alone by hand and under random loads."""

from __future__ import annotations

import pytest
from effort import effort
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flowsched.exceptions import DuplicateIdError, InputError, UnknownTaskError
from flowsched.hrm import Container, Outcome, ResourceUnit, StackedQueue, queue_length

MICRO = 1_000_000

GPU = ResourceUnit("u", vcore=4, mem=100, gmem=10, gpu=0)


def ids(containers: tuple[Container, ...]) -> list[object]:
    return [container.id for container in containers]


def test_a_batch_container_runs_waits_and_follows_at_once() -> None:
    queue = StackedQueue(GPU, length=1)
    assert queue.submit(Container("a", gmem=6, duration=5), 0).outcome is Outcome.STARTED
    assert queue.submit(Container("b", gmem=5, duration=5), 1).outcome is Outcome.QUEUED
    assert queue.submit(Container("c", gmem=1, duration=5), 1).outcome is Outcome.QUEUE_FULL
    assert queue.submit(Container("d", gmem=11), 1).outcome is Outcome.OVER_LIMIT
    assert ids(queue.finish("a", 5).started) == ["b"]
    assert queue.running["b"].end == 10 and len(queue) == 1


def test_the_cpu_side_counts_where_the_unit_has_cores() -> None:
    queue = StackedQueue(GPU)
    assert queue.submit(Container("a", vcore=4, gmem=1), 0).outcome is Outcome.STARTED
    assert queue.submit(Container("b", vcore=1, gmem=1), 0).outcome is Outcome.QUEUED
    assert queue.submit(Container("c", mem=101), 0).outcome is Outcome.OVER_LIMIT
    # A GPU alone: cores are another unit's business, and no container may ask for them here.
    bare = StackedQueue(ResourceUnit("g", gmem=10, gpu=0))
    assert bare.submit(Container("a", gmem=9), 0).outcome is Outcome.STARTED
    assert bare.submit(Container("b", vcore=1, gmem=1), 0).outcome is Outcome.OVER_LIMIT


def test_a_stream_pauses_the_youngest_batch_container_which_keeps_its_memory() -> None:
    queue = StackedQueue(GPU)
    queue.submit(Container("old", vcore=2, gmem=3, duration=10), 0)
    queue.submit(Container("young", vcore=2, gmem=3, duration=10), 1)
    done = queue.submit(Container("s", vcore=1, gmem=4, kind="stream"), 4)
    assert (done.outcome, ids(done.paused), ids(done.evicted)) == (Outcome.STARTED, ["young"], [])
    assert queue.free == [1 * MICRO, 100 * MICRO, 0, (1 << 40) - 2]
    assert ids(queue.finish("s", 6).resumed) == ["young"]
    assert queue.running["young"].end == 13  # it had 7 to go


def test_a_stream_evicts_what_holds_gpu_memory_and_it_starts_again_first() -> None:
    queue = StackedQueue(GPU)
    queue.submit(Container("a", gmem=5, duration=10), 0)
    queue.submit(Container("b", gmem=5, duration=10), 0)
    queue.submit(Container("c", gmem=5, duration=10), 0)
    done = queue.submit(Container("s", gmem=5, kind="stream"), 4)
    assert (ids(done.evicted), ids(done.paused), [c.id for c in queue.waiting]) == (["b"], [], ["b", "c"])
    assert ids(queue.finish("a", 10).started) == ["b"] and queue.running["b"].end == 20


def test_a_stream_that_streams_leave_no_room_for_changes_nothing() -> None:
    queue = StackedQueue(GPU)
    queue.submit(Container("s", vcore=3, kind="stream"), 0)
    queue.submit(Container("a", vcore=1, duration=9), 0)
    before = (list(queue.running), list(queue.free), queue.version)
    assert queue.submit(Container("t", vcore=2, kind="stream"), 0).outcome is Outcome.NO_ROOM
    assert (list(queue.running), list(queue.free), queue.version) == before
    assert queue.submit(Container("t", vcore=1, kind="stream"), 0).outcome is Outcome.STARTED


def test_no_more_run_at_once_than_told() -> None:
    queue = StackedQueue(GPU, most=2)
    outcomes = [queue.submit(Container(i, gmem=1, duration=5), 0).outcome.value for i in range(3)]
    assert outcomes == ["STARTED", "STARTED", "QUEUED"]
    assert ids(queue.submit(Container("s", gmem=1, kind="stream"), 0).paused) == [1]


def test_better_priority_waits_before_worse() -> None:
    queue = StackedQueue(GPU)
    for id, priority in (("run", 0), ("b", 1), ("c", 1), ("a", 0)):
        queue.submit(Container(id, gmem=10, duration=5, priority=priority), 0)
    assert [c.id for c in queue.waiting] == ["a", "b", "c"]


def test_no_task_waits_longer_than_the_limit() -> None:
    queue = StackedQueue(GPU, max_wait=10)
    queue.submit(Container("a", gmem=10, duration=6), 0)
    assert queue.submit(Container("b", gmem=10, duration=6), 0).outcome is Outcome.QUEUED
    assert queue.submit(Container("c", gmem=10, duration=6), 0).outcome is Outcome.TOO_LATE
    assert queue.submit(Container("c", gmem=10, duration=6), 3).outcome is Outcome.QUEUED


def test_queue_length_keeps_places_busy_between_heartbeats() -> None:
    # 16 places, containers of 2 s, a heartbeat each 3 s: 24 containers are used up between two of them.
    assert queue_length(16, 1 / 2, 3) == 8
    assert queue_length(16, 1 / 3, 3) == 0
    assert queue_length(16, 1 / 10, 3) == 0
    for r in range(1, 20):
        for tenths in range(1, 40):
            b = queue_length(r, tenths / 10, 1)
            assert r + b >= r * tenths / 10 - 1e-9
            assert b == 0 or r + b - 1 < r * tenths / 10
    with pytest.raises(InputError, match="rate"):
        queue_length(1, 0, 1)


def test_mistakes_are_named_and_change_nothing() -> None:
    queue = StackedQueue(GPU)
    queue.submit(Container("a", gmem=9), 0)
    queue.submit(Container("w", gmem=9), 0)
    with pytest.raises(DuplicateIdError, match="'w'"):
        queue.submit(Container("w"), 0)
    with pytest.raises(UnknownTaskError, match="'w' does not run"):
        queue.finish(["a", "w"], 1)
    assert list(queue.running) == ["a"]
    with pytest.raises(UnknownTaskError):
        queue.remove("x", 1)
    with pytest.raises(InputError, match="kind"):
        Container("a", kind="tea")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="duration"):
        Container("a", duration=float("nan"))


class StackedQueueMachine(RuleBasedStateMachine):
    """Random loads; the books are kept again from what the queue says that the node must do."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = StackedQueue(ResourceUnit("u", vcore=4, mem=8, gmem=8, gpu=0), length=3, most=4)
        self.now = 0.0
        self.count = 0
        self.state: dict[object, str] = {}
        self.containers: dict[object, Container] = {}

    def carry_out(self, admission: object) -> None:
        for what, before, after in (
            ("evicted", {"running", "paused"}, "waiting"),
            ("paused", {"running"}, "paused"),
            ("resumed", {"paused"}, "running"),
            ("started", {"waiting"}, "running"),
        ):
            for container in getattr(admission, what):
                assert self.state[container.id] in before, (what, container)
                assert container.kind == "batch" or what == "started"
                self.state[container.id] = after

    @rule(
        vcore=st.sampled_from([0, 0.5, 1, 2, 4, 5]),
        mem=st.integers(0, 5),
        gmem=st.integers(0, 9),
        duration=st.integers(1, 9),
        kind=st.sampled_from(["batch", "batch", "stream"]),
        priority=st.integers(0, 2),
        wait=st.sampled_from([0.0, 0.25, 1.0]),
    )
    def submit(self, wait: float, **amounts: object) -> None:
        self.now += wait
        self.count += 1
        container = Container(self.count, **amounts)  # type: ignore[arg-type]
        predicted = self.queue.predict(container, self.now)
        before = len(self.queue)
        done = self.queue.submit(container, self.now)
        if done.outcome in (Outcome.STARTED, Outcome.QUEUED):
            self.containers[container.id] = container
            self.state[container.id] = "waiting"
            assert (done.outcome is Outcome.STARTED) == (predicted == 0) or container.kind == "batch"
        else:
            assert len(self.queue) == before
        if container.kind == "stream":
            assert (done.outcome is Outcome.STARTED) == (predicted == 0)
        self.carry_out(done)

    @precondition(lambda self: self.queue.running)
    @rule(data=st.data(), many=st.booleans())
    def finish(self, data: st.DataObject, many: bool) -> None:
        running = list(self.queue.running)
        gone = data.draw(st.lists(st.sampled_from(running), min_size=1, max_size=3 if many else 1, unique=True))
        for id in gone:
            del self.state[id], self.containers[id]
        self.carry_out(self.queue.finish(gone, self.now))
        assert not any(all(a <= b for a, b in zip(c.need, self.queue.free, strict=True)) for c in self.queue.waiting)

    @precondition(lambda self: self.state)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.state, key=str)))
        del self.state[id], self.containers[id]
        self.carry_out(self.queue.remove(id, self.now))

    @invariant()
    def nothing_is_over_committed(self) -> None:
        in_state = {s: [self.containers[i] for i, t in self.state.items() if t == s] for s in ("running", "paused")}
        on = in_state["running"]
        held = on + in_state["paused"]
        assert sum(c.gmem for c in held) <= 8
        assert sum(c.mem for c in held) <= 8
        assert sum(c.vcore for c in on) <= 4
        assert len(on) <= 4
        free = [4 - sum(c.vcore for c in on), 8 - sum(c.mem for c in held), 8 - sum(c.gmem for c in held)]
        assert self.queue.free == [*(round(x * MICRO) for x in free), 4 - len(on)]
        streams = [c for c in on if c.kind == "stream"]
        assert self.queue.stream_room[2] == (8 - sum(c.gmem for c in streams)) * MICRO

    @invariant()
    def nothing_is_lost(self) -> None:
        queue = self.queue
        states = {
            **dict.fromkeys(queue.running, "running"),
            **dict.fromkeys(queue.paused, "paused"),
            **dict.fromkeys((c.id for c in queue.waiting), "waiting"),
        }
        assert states == self.state and len(queue) == len(states)
        assert [c.priority for c in queue.waiting] == sorted(c.priority for c in queue.waiting)


TestStackedQueue = StackedQueueMachine.TestCase
TestStackedQueue.settings = settings(max_examples=effort(15, 1000), stateful_step_count=40, deadline=None)
