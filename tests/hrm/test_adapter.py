"""Resource units in a flow network, and several schedulers that each have one."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from negotiators import audit, batch, make, statuses, streams

from flowsched.exceptions import InputError
from flowsched.hrm import (
    Claim,
    Container,
    Granted,
    Hybrid,
    Negotiator,
    Refusal,
    ResourceUnit,
    StackedQueue,
    Store,
    sense,
)
from flowsched.hrm.schedulers import Worker, run_processes, run_ray


def hybrid_over(*queues: StackedQueue, now: float = 0.0) -> Hybrid:
    hybrid = Hybrid()
    hybrid.refresh(hybrid.state_of(queue, now) for queue in queues)
    return hybrid


def where(claims: list[Claim]) -> dict[str, tuple[str, bool]]:
    return {claim.task: (claim.unit, claim.queued) for claim in claims}


def test_room_first_then_the_queue_that_moves_first() -> None:
    queues = [StackedQueue(ResourceUnit(name, vcore=2), length=1) for name in ("slow", "fast", "free")]
    for queue, duration in zip(queues, (50.0, 5.0), strict=False):
        queue.submit(Container("x", vcore=2, duration=duration), now=0)
    hybrid = hybrid_over(*queues)
    hybrid.submit("a", batch("a", 5))
    claims = where(hybrid.claims(now=0))
    # No container runs on the free unit yet, so no wait can be predicted there.
    assert sorted(claims.values()) == [("fast", True), ("free", False), ("free", False), ("slow", True)]
    for task, (unit, _) in claims.items():
        queues[("slow", "fast", "free").index(unit)].submit(Container(task, vcore=1, duration=5.0), now=0)
    hybrid.settle(Granted(tuple(Claim(task, unit) for task, (unit, _) in claims.items())))
    hybrid.refresh(hybrid.state_of(queue, 0) for queue in queues)
    assert list(where(hybrid.claims(now=0)).values()) == [("free", True)]
    # With one task more than there is room, the fast queue gets it.
    hybrid = hybrid_over(*queues)
    hybrid.submit("a", batch("a", 3))
    queued = [unit for unit, waits in where(hybrid.claims(now=0)).values() if waits]
    assert len(queued) == 1 and queued != ["slow"]


def test_a_queue_is_used_as_soon_as_its_wait_is_short_enough() -> None:
    queue = StackedQueue(ResourceUnit("u", vcore=1), length=1)
    queue.submit(Container("x", vcore=1, duration=50.0), now=0)
    hybrid = Hybrid(max_wait=20.0)
    hybrid.refresh([hybrid.state_of(queue, 10.0)], now=10.0)  # 40 s to go
    hybrid.submit("a", batch("a", 1))
    assert hybrid.claims(now=29.0) == [] and hybrid.next_opening == 30.0
    assert where(hybrid.claims(now=31.0)) == {"a0": ("u", True)} and hybrid.next_opening == math.inf
    with pytest.raises(InputError, match="max_wait"):
        Hybrid(max_wait=0.0)


def test_a_gpu_container_goes_to_a_gpu_and_others_stay_away_from_it() -> None:
    units = (ResourceUnit("g", vcore=2, gmem=8, gpu=0), ResourceUnit("c", vcore=2))
    hybrid = hybrid_over(*(StackedQueue(unit) for unit in units))
    hybrid.submit("cpu", batch("cpu", 1))
    hybrid.submit("gpu", [Container("gpu", gmem=5), Container("gpu2", gmem=5)])
    claims = where(hybrid.claims(now=0))
    assert claims["cpu0"] == ("c", False)
    assert ("gpu" in claims) != ("gpu2" in claims)  # both would over-commit its memory
    assert hybrid.last is not None and len(hybrid.last.waiting) == 1


def test_what_is_refused_stays_in_the_network_and_what_is_granted_leaves_it() -> None:
    queue = StackedQueue(ResourceUnit("u", vcore=2))
    hybrid = hybrid_over(queue)
    hybrid.submit("a", batch("a", 4))
    first, second = hybrid.claims(now=0)
    hybrid.settle(Granted((first,), ((second, Refusal.CONFLICT),)))
    assert set(hybrid.open) == {"a0", "a1", "a2", "a3"} - {first.task}
    queue.submit(Container(first.task, vcore=1, duration=9), 0)
    hybrid.refresh([hybrid.state_of(queue, 0)])
    (again,) = hybrid.claims(now=1)
    hybrid.settle(Granted((), ((again, Refusal.TAKEN),)))
    assert again.task not in hybrid.open and len(hybrid.open) == 2
    assert hybrid.last is not None and hybrid.last.stats.nodes == hybrid.scheduler.network.num_nodes


def test_shares_limit_what_is_claimed() -> None:
    hybrid = hybrid_over(StackedQueue(ResourceUnit("u", vcore=9)))
    hybrid.submit("a", batch("a", 5))
    hybrid.submit("b", batch("b", 2))
    claims = hybrid.claims(0, allowed={"a": 2})
    assert sorted(claim.task[0] for claim in claims) == ["a", "a", "b", "b"]


def test_a_stream_job_is_placed_whole_at_wait_0_or_not_at_all() -> None:
    queues = [StackedQueue(ResourceUnit(name, vcore=2), length=2) for name in ("busy", "free")]
    for i in range(2):
        queues[0].submit(Container(i, vcore=1, duration=9), 0)
    hybrid = hybrid_over(*queues)
    tasks = [Container(f"s{i}", vcore=1, kind="stream") for i in range(5)]
    assert hybrid.place_stream(tasks, [], 0) is None
    assert hybrid.place_stream(tasks[:2], [], 0) == {"s0": "free", "s1": "free"}  # no container has to make way
    units = hybrid.place_stream(tasks[:3], [], 0)
    assert units is not None and sorted(units.values()) == ["busy", "free", "free"]
    queues[1].submit(tasks[0], 0)
    assert hybrid.place_stream(tasks[1:], [hybrid.state_of(queues[1], 0)], 0) is None
    assert not hybrid.scheduler.cluster.tasks


def test_kinds_are_told_or_sensed() -> None:
    assert [sense(trigger) for trigger in ("once", "window", "continuous")] == ["batch", "stream", "stream"]
    with pytest.raises(InputError, match="trigger"):
        sense("never")
    hybrid = hybrid_over()
    for options in ({"trigger": "window"}, {"kind": "stream"}):
        with pytest.raises(InputError, match="place_stream"):
            hybrid.submit("a", batch("a", 1), **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="place_stream"):
        hybrid.submit("a", streams("a", 1))
    hybrid.submit("a", batch("a", 1), trigger="once")
    assert set(hybrid.open) == {"a0"}


def test_a_lost_unit_takes_no_task_until_it_is_back() -> None:
    store = Store()
    negotiator, clock = make(store, units=2, length=0)
    hybrid = Hybrid()
    hybrid.refresh(negotiator.units())
    clock.now += 11
    negotiator.expire()
    hybrid.refresh(negotiator.units(hybrid.versions))
    hybrid.submit("a", batch("a", 1))
    assert hybrid.claims(clock.now) == []
    negotiator.heartbeat("m0")
    hybrid.refresh(negotiator.units(hybrid.versions))
    assert len(hybrid.claims(clock.now)) == 1


def test_two_workers_share_the_work_and_one_takes_over_from_the_other() -> None:
    store = Store()
    negotiator, clock = make(store, units=20, cores=2, length=0)
    for j in range(6):
        negotiator.submit(f"j{j}", batch(f"j{j}", 6))
    negotiator.submit("x", streams("x", 3))
    going: list[str] = []
    first, second = (Worker(negotiator, f"w{i}", seed=i, adopt=3, launch=going.extend) for i in range(2))
    for worker in (first, second):
        worker.step()
    first.step()
    audit(store)
    now = statuses(store)
    running = sorted(task for task, (status, _) in now.items() if status == "RUNNING")
    assert sorted(going) == running and len(running) == 39
    assert first.tally.granted + second.tally.granted == 39 and not first.step()
    # The first dies with a job of its own; the second hears of it.
    negotiator.submit("late", batch("late", 2))
    negotiator.adopt("w0")
    for machine in range(10):
        negotiator.heartbeat(
            f"m{machine}", finished=[t for t in running if now[t][1] in (f"u{2 * machine}", f"u{2 * machine + 1}")]
        )
    clock.now += 6
    for machine in range(10):
        negotiator.heartbeat(f"m{machine}")
    negotiator.beat("w1")
    clock.now += 6
    assert negotiator.expire().schedulers == ("s", "t", "w0")
    second.step()
    assert [job.job for job in negotiator.jobs("w1")][-1] == "late" and negotiator.jobs("w1")[-1].held == 2
    # The first was only slow: it starts afresh.
    assert first.step() and first.step() is False
    audit(store)


def place_everything(store: Store, run: object, count: int) -> None:
    negotiator = Negotiator(store)
    negotiator.add_units([ResourceUnit(f"u{i}", f"m{i}", vcore=4) for i in range(20)], length=1)
    for j in range(8):
        negotiator.submit(f"j{j}", [Container(f"j{j}-{i}", vcore=1, duration=9) for i in range(10)])
    negotiator.submit("x", streams("x", 5))
    tallies = run(store.url, count, patience=3.0)  # type: ignore[operator]
    assert sum(tally.granted for tally in tallies) == 85
    assert not any(job.open for job in negotiator.jobs())
    audit(store)


def test_processes_place_everything_once(tmp_path: Path) -> None:
    place_everything(Store(f"sqlite:///{tmp_path}/state.db"), run_processes, 2)


@pytest.mark.skipif(not os.environ.get("FLOWSCHED_FUZZ"), reason="Ray takes long to start: FLOWSCHED_FUZZ=1 runs it")
def test_ray_actors_place_everything_once(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'flowsched[ray]'")
    place_everything(Store(f"sqlite:///{tmp_path}/state.db"), run_ray, 2)


def test_a_store_in_this_process_cannot_be_shared() -> None:
    with pytest.raises(InputError, match="share"):
        run_processes("sqlite://", 2)
    with pytest.raises(InputError, match="count"):
        run_processes("sqlite:///x.db", 0)
