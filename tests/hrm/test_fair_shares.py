"""Fair shares of batch jobs: the division of units, and the bounds that it sets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")

import sqlalchemy as sa
from negotiators import Clock, audit, batch, make

from flowsched.exceptions import InputError
from flowsched.hrm import Container, Negotiator, ResourceUnit
from flowsched.hrm.schedulers import Worker
from flowsched.hrm.shares import fair_shares
from flowsched.hrm.state.claims import Claim, Refusal, Status
from flowsched.hrm.state.optimistic import FairShares
from flowsched.hrm.state.store import Store


def test_fair_shares_bind_only_where_it_is_tight(store: Store) -> None:
    negotiator, _ = make(store, units=2, cores=3, length=0)
    negotiator.submit("a", batch("a", 6), scheduler="s")
    assert len(negotiator.commit("s", [Claim(f"a{i}", f"u{i // 3}") for i in range(2)]).accepted) == 2
    negotiator.submit("b", batch("b", 1), scheduler="t")
    # 6 places: b wants 1 of its 3, so a may have 5.
    granted = negotiator.commit("s", [Claim(f"a{i}", "u0" if i < 3 else "u1") for i in range(2, 6)])
    assert [c.task for c in granted.accepted] == ["a2", "a3", "a4"]
    assert [(c.task, why) for c, why in granted.refused] == [("a5", Refusal.SHARE)]
    assert negotiator.commit("t", [Claim("b0", "u1")]).accepted
    audit(store)


def test_a_share_does_not_withhold_resources_that_no_other_job_can_use(store: Store) -> None:
    negotiator, _ = make(store, units=2, cores=3, length=0)
    negotiator.add_units([ResourceUnit(f"g{i}", "mg", vcore=1, gmem=10, gpu=0) for i in range(4)])
    negotiator.submit("cpu", batch("c", 20), scheduler="t")
    negotiator.submit("gpu", [Container(f"g{i}", vcore=1, gmem=10) for i in range(4)], scheduler="s")
    # 24 tasks want 10 places; but those that need a GPU have the GPUs to themselves.
    assert negotiator.allowed(["gpu", "cpu"]) == {"gpu": 4, "cpu": 10}
    assert len(negotiator.commit("s", [Claim(f"g{i}", f"g{i}") for i in range(4)]).accepted) == 4
    # A job of both, as a smaller job of CPU tasks comes.
    negotiator.submit("both", [*batch("x", 4), Container("y", vcore=1, gmem=10)], scheduler="s")
    assert negotiator.allowed(["both"]) == {"both": 4 + 1}
    # 4 GPUs for the 4, 6 and 1 tasks of three jobs: 2, 1 and 1.
    negotiator.submit("gpu2", [Container(f"h{i}", vcore=1, gmem=10) for i in range(6)], scheduler="s")
    assert negotiator.allowed(["gpu2"]) == {"gpu2": 1}
    audit(store)


def test_a_share_that_was_overtaken_is_computed_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    negotiator, _ = make(store, units=2, cores=3, length=0)
    negotiator.submit("a", batch("a", 6), scheduler="s")
    negotiator.submit("b", batch("b", 6), scheduler="t")
    assert len(negotiator.commit("s", [Claim("a0", "u0"), Claim("a1", "u0")]).accepted) == 2
    looks, real = [], FairShares.caps

    def caps(self: FairShares, db: sa.Connection, tasks: Sequence[object]) -> dict[str, tuple[int, int]]:
        looks.append(len(tasks))
        # The first time as if another scheduler had claimed those two a moment later.
        return {job: (cap, held if len(looks) > 1 else 0) for job, (cap, held) in real(self, db, tasks).items()}

    monkeypatch.setattr(FairShares, "caps", caps)
    granted = negotiator.commit("s", [Claim(f"a{i}", "u1") for i in range(2, 5)])
    assert (len(looks), len(granted.accepted)) == (2, 1) and {why for _, why in granted.refused} == {Refusal.SHARE}
    audit(store)


def brute_force(wanted: list[int], units: int) -> list[int]:
    """The largest possible smallest-first outcome: hand out one unit at a time to the job that has least and wants more."""
    share = [0] * len(wanted)
    for _ in range(units):
        hungry = [i for i in range(len(wanted)) if share[i] < wanted[i]]
        if not hungry:
            break
        share[min(hungry, key=lambda i: (share[i], i))] += 1
    return share


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(0, 40))
def test_shares_are_those_of_handing_out_one_by_one(wanted: list[int], units: int) -> None:
    share = fair_shares(wanted, units).tolist()
    assert sum(share) == min(units, sum(wanted))
    assert all(s >= math.floor(min(units / len(wanted), n)) for s, n in zip(share, wanted, strict=True))
    assert sorted(share) == sorted(brute_force(wanted, units))
    assert all(s <= n for s, n in zip(share, wanted, strict=True))
    # A job that gets less than another wants no more than it has, but for the last odd unit.
    for (a, wants), (b, _) in itertools.permutations(zip(share, wanted, strict=True), 2):
        assert a >= b - 1 or a == wants


def test_shares_refuse_what_is_no_count() -> None:
    for wanted, units in (([1, -1], 3), ([1.5], 3), ([1], -1)):
        with pytest.raises(InputError):
            fair_shares(wanted, units)


@settings(max_examples=30)
@given(
    units=st.integers(1, 4),
    sizes=st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(1, 6)), min_size=1, max_size=5),
    schedulers=st.integers(1, 4),
    placed=st.integers(0, 8),
)
def test_turns_are_those_of_serving_one_job_after_the_other(
    units: int, sizes: list[tuple[int, int]], schedulers: int, placed: int
) -> None:
    """Against a model: older jobs that can run keep as many places as they have open tasks, the others share what is left."""
    clock = Clock()
    negotiator = Negotiator(Store(), shares=False, in_turn=True, clock=clock)
    negotiator.add_units([ResourceUnit(f"u{i}", f"m{i}", vcore=2) for i in range(units)], length=2)
    for s in range(schedulers):
        negotiator.add_scheduler(f"s{s}")
    free = [2] * units
    open_ = {}
    for j, (vcore, count) in enumerate(sizes):
        clock.now += 1.0
        tasks = [Container(f"j{j}-{i}", vcore=vcore, duration=5.0) for i in range(count)]
        negotiator.submit(f"j{j}", tasks, scheduler="s0")
        open_[f"j{j}"] = [vcore, count]
    for i in range(placed):
        job, unit = f"j{i % len(sizes)}", i % units
        task = f"{job}-{i}"
        if negotiator.commit("s0", [Claim(task, f"u{unit}")]).accepted:
            free[unit] -= open_[job][0]
            open_[job][1] -= 1
    live = {job: (vcore, count) for job, (vcore, count) in open_.items() if count}
    expected, before, least = {}, 0, min((vcore for vcore, _ in live.values()), default=1)
    places = sum(have // least for have in free)
    for older, (job, (vcore, count)) in enumerate(live.items()):
        expected[job] = max(places - before, 0) if places else count * (older < schedulers / 2)
        before += count if any(have >= vcore for have in free) else 0
    assert negotiator.allowed(list(open_)) == expected


def test_workers_in_turn_place_everything_and_the_first_job_first(store: Store) -> None:
    negotiator = Negotiator(store, shares=False, in_turn=True)
    negotiator.add_units([ResourceUnit(f"u{i}", "m", vcore=2) for i in range(3)], length=3)
    workers = [Worker(negotiator, f"s{i}", seed=i, adopt=1) for i in range(3)]
    for job in "abc":
        negotiator.submit(job, [Container(f"{job}{i}", vcore=1, duration=5.0) for i in range(5)])
    held = []
    for _ in range(4):
        for worker in workers:
            worker.step()
        held.append({job.job: job.held for job in negotiator.jobs()})
    # Six run and nine wait, of which the first job's do not.
    assert held[-1] == {"a": 5, "b": 5, "c": 5}
    running = {str(task.id) for task in negotiator.tasks("a", Status.RUNNING)}
    assert running == {f"a{i}" for i in range(5)}
