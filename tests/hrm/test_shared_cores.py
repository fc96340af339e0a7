"""GPU units that share the machine's cores (split "shared"): GPU containers run there with cores, and no others."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from negotiators import audit

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")

from flowsched.hrm import (
    Claim,
    Container,
    Hybrid,
    Negotiator,
    Node,
    Outcome,
    Refusal,
    ResourceUnit,
    StackedQueue,
    Store,
    WaitMatrix,
    predict_wait,
    split_machine,
)
from flowsched.hrm.schedulers import Worker

NODE = Node.uniform("n", cores=10, mem=64_000, gpus=2, gmem=10_240)
GPU = ResourceUnit("g", "n", vcore=4, mem=100, gmem=10, gpu=0, shared=True)


def state(store: Store) -> Negotiator:
    negotiator = Negotiator(store, shares=False)
    negotiator.add_units(split_machine(NODE, "shared"), length=1)
    return negotiator


def test_a_gpu_container_with_a_core_is_placed_and_predicted(store: Store) -> None:
    negotiator = state(store)
    work = Container("g0", vcore=1, mem=500, gmem=3000, duration=5.0)
    assert predict_wait(work, [StackedQueue(unit) for unit in split_machine(NODE, "shared")]).wait == 0
    negotiator.submit("g", [work])
    worker = Worker(negotiator, "w")
    while worker.step():
        pass
    ((unit, _),) = negotiator.on_machine("n")
    assert unit.startswith("n/gpu")
    audit(store)


def test_a_cpu_container_runs_on_the_cores_own_unit_only(store: Store) -> None:
    negotiator = state(store)
    negotiator.submit("c", [Container(f"c{i}", vcore=5, duration=9.0) for i in range(4)])
    worker = Worker(negotiator, "w")
    for _ in range(5):
        worker.step()
    # Two run, one waits in the queue, and the last one is open: the GPUs' units would take it if it used a GPU.
    assert [unit for unit, _ in negotiator.on_machine("n")] == ["n/cpu"] * 3
    (job,) = negotiator.jobs()
    assert (job.open, job.held) == (1, 3)
    granted = negotiator.commit("w", [Claim(str(task.id), "n/gpu0") for task in negotiator.tasks("c")])
    assert [why for _, why in granted.refused] == [Refusal.CONFLICT]
    assert negotiator.heartbeat("n", finished=["c0"]).started == ("c2",)
    audit(store)


def test_a_stream_without_a_gpu_is_not_forced_onto_a_shared_unit(store: Store) -> None:
    negotiator = state(store)
    negotiator.add_scheduler("s")
    negotiator.submit("x", [Container("x", vcore=1, kind="stream")], scheduler="s")
    assert not negotiator.stream("s", "x", lambda tasks, units: {"x": "n/gpu0"}).accepted
    hybrid = Hybrid()
    granted = negotiator.stream("s", "x", lambda tasks, units: hybrid.place_stream(tasks, units, 0.0))
    assert [claim.unit for claim in granted.accepted] == ["n/cpu"]


def test_shares_of_cpu_jobs_do_not_count_the_cores_twice(store: Store) -> None:
    negotiator = Negotiator(store)
    negotiator.add_units(split_machine(NODE, "shared"))
    negotiator.add_scheduler("s")
    for job in "ab":
        negotiator.submit(job, [Container(f"{job}{i}", vcore=1, duration=9.0) for i in range(20)], scheduler="s")
    assert negotiator.allowed(["a", "b"]) == {"a": 5, "b": 5}


@given(
    vcore=st.integers(0, 5), mem=st.sampled_from([0, 50, 101]), gmem=st.sampled_from([0, 1, 11]),
    kind=st.sampled_from(["batch", "stream"]),
)  # fmt: skip
def test_queue_matrix_and_network_agree_on_what_a_shared_unit_takes(vcore: int, mem: int, gmem: int, kind: str) -> None:
    container = Container("c", vcore=vcore, mem=mem, gmem=gmem, duration=1.0, kind=kind)  # type: ignore[arg-type]
    takes = vcore <= 4 and mem <= 100 and 0 < gmem <= 10
    queue = StackedQueue(GPU)
    assert (queue.predict(container, 0.0) == 0.0) == takes == queue.has_room(container)
    assert predict_wait(container, [queue]).wait == (0.0 if takes else math.inf)
    assert WaitMatrix([queue]).can_hold(container).tolist() == [takes]
    hybrid = Hybrid()
    hybrid.refresh([Hybrid.state_of(queue, 0.0)])
    if kind == "batch":
        hybrid.submit("j", [container])
        assert bool(hybrid.claims(0.0)) == takes
    else:
        assert (hybrid.place_stream([container], [], 0.0) is not None) == takes
    assert (queue.submit(container, 0.0).outcome is Outcome.STARTED) == takes
