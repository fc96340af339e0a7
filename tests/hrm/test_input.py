"""Wrong arguments on units, queues or the shared state are named, and change nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from flowsched.exceptions import InputError, UnknownIdError, UnknownTaskError
from flowsched.hrm import (
    Claim,
    Container,
    Hybrid,
    Negotiator,
    Node,
    ResourceUnit,
    StackedQueue,
    Store,
    predict_wait,
    queue_length,
    read_machine,
    split_machine,
)

NAN = float("nan")
UNIT = ResourceUnit("u", "m", vcore=4, mem=8)


def queue() -> StackedQueue:
    """One container runs, one waits."""
    queue = StackedQueue(UNIT, length=2)
    for name in "ab":
        queue.submit(Container(name, vcore=3, duration=5.0), 0.0)
    return queue


@pytest.mark.parametrize(
    ("call", "words"),
    [
        *((lambda bad=bad: Node.uniform("n", bad, 8), "'n': cores") for bad in (None, "8", 1.5, -1, 10**9)),
        *((lambda bad=bad: Node.uniform("n", 8, bad), "'n': mem") for bad in (None, "8", NAN, -1)),
        *((lambda bad=bad: ResourceUnit("u", vcore=bad), "'u'.*vcore") for bad in (None, "8", NAN, -1, True)),
        (lambda: ResourceUnit([]), "unit: id"),
        *((lambda bad=bad: Container("c", duration=bad), "'c': duration") for bad in (None, "8", NAN, -1)),
        *((lambda bad=bad: Container("c", priority=bad), "'c': priority") for bad in (None, "1", 1.5)),
        (lambda: Container({}), "container: id"),
        *((lambda bad=bad: split_machine(bad), "node") for bad in (None, "n", UNIT)),
        *((lambda bad=bad: StackedQueue(bad), "unit") for bad in (None, "u")),
        *((lambda bad=bad: StackedQueue(UNIT, length=bad), "length") for bad in ("1", -1, NAN)),
        *((lambda bad=bad: StackedQueue(UNIT, max_wait=bad), "max_wait") for bad in (None, "1", 0, NAN)),
        *((lambda bad=bad: queue_length(2, bad, 3.0), "rate") for bad in (None, "1", 0, math.inf)),
        *((lambda bad=bad: predict_wait(bad, [queue()]), "container") for bad in (None, "c")),
        *((lambda bad=bad: predict_wait(Container("c"), bad), "units") for bad in (None, ["u"], queue())),
        *((lambda bad=bad: predict_wait(Container("c"), [queue()], now=bad), "now") for bad in (None, "0", NAN)),
        *((lambda bad=bad: read_machine(bad), "source") for bad in (3, b"x")),
        *((lambda bad=bad: Store(bad), "url") for bad in (None, 3, "mysql://x", "nonsense")),
        *((lambda bad=bad: Store(patience=bad), "patience") for bad in (None, "1", -1)),
        *((lambda bad=bad: Negotiator(bad), "store") for bad in ("sqlite://", 3)),
        *((lambda bad=bad: Negotiator(ttl=bad), "ttl") for bad in (None, "1", 0, NAN, math.inf)),
        *((lambda bad=bad: Hybrid(horizon=bad), "horizon") for bad in (None, "1", 0, NAN)),
        *((lambda bad=bad: Hybrid(max_wait=bad), "max_wait") for bad in (None, "1", 0, NAN)),
    ],
)  # fmt: skip
def test_what_is_made_of_nonsense_is_refused_by_name(call: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        *((lambda q, bad=bad: q.submit(bad, 1.0), "container") for bad in (None, "c", UNIT)),
        *((lambda q, bad=bad: q.submit(Container("c"), bad), "now") for bad in (None, "1", NAN)),
        *((lambda q, bad=bad: q.finish(bad, 1.0), "not run|hashable") for bad in ("z", ["a", "z"], [["a"]], {})),
        *((lambda q, bad=bad: q.remove(bad, 1.0), "not there|hashable") for bad in ("z", [], {})),
        *((lambda q, bad=bad: q.predict(bad, 1.0), "container") for bad in (None, "c")),
    ],
)
def test_a_queue_is_as_it_was(call: Any, words: str) -> None:
    one = queue()
    with pytest.raises((InputError, UnknownTaskError), match=words):
        call(one)
    assert (list(one.running), [c.id for c in one.waiting], one.free, one.version) == (
        ["a"], ["b"], queue().free, queue().version,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "words"),
    [
        *((lambda n, bad=bad: n.add_units(bad), "units") for bad in (None, UNIT, "u", [UNIT, "u"])),
        *((lambda n, bad=bad: n.add_units([UNIT], length=bad), "length") for bad in (None, -1, 1.5)),
        *((lambda n, bad=bad: n.add_scheduler(bad), "scheduler") for bad in (None, 3, ["s"])),
        *((lambda n, bad=bad: n.submit(bad, [Container("c")]), "job") for bad in (None, 3, [])),
        *((lambda n, bad=bad: n.submit("k", bad), "'k'|containers") for bad in (None, [], "c", ["c"], Container("c"))),
        *((lambda n, bad=bad: n.commit("s", bad), "claims") for bad in (None, "c0", ["c0"], Claim("c0", "n/cpu"))),
        *((lambda n, bad=bad: n.commit(bad, []), "scheduler") for bad in (None, 3, "nobody")),
        *((lambda n, bad=bad: n.launch("s", bad), "tasks") for bad in (None, "c0", [3], 3)),
        *((lambda n, bad=bad: n.finish(bad), "tasks") for bad in (None, "c0", [3], [["c0"]])),
        *((lambda n, bad=bad: n.heartbeat(bad), "machine") for bad in (None, 3)),
        *((lambda n, bad=bad: n.heartbeat("n", finished=bad), "finished") for bad in (None, "c0", [3])),
        *((lambda n, bad=bad: n.heartbeat("n", present=bad), "present") for bad in ("c0", [3])),
        *((lambda n, bad=bad: n.allowed(bad), "jobs") for bad in (None, "j", [3])),
        *((lambda n, bad=bad: n.beat(bad), "scheduler") for bad in (None, 3, "nobody")),
        *((lambda n, bad=bad: n.tasks(bad), "job") for bad in (None, 3)),
        *((lambda n, bad=bad: n.on_machine(bad), "machine") for bad in (None, 3)),
        *((lambda n, bad=bad: n.units(bad), "known") for bad in (3, "u", [1])),
    ],
)
def test_the_shared_state_is_as_it_was(call: Any, words: str) -> None:
    negotiator = Negotiator(Store("sqlite://"), clock=lambda: 100.0)
    negotiator.add_units(split_machine(Node.uniform("n", cores=8, mem=100, gpus=2, gmem=10)), length=1)
    negotiator.add_scheduler("s")
    negotiator.submit("j", [Container(f"c{i}", vcore=1) for i in range(2)], scheduler="s")
    before = negotiator.units(), negotiator.jobs(), negotiator.tasks("j")
    with pytest.raises((InputError, UnknownIdError), match=words):
        call(negotiator)
    assert (negotiator.units(), negotiator.jobs(), negotiator.tasks("j")) == before
