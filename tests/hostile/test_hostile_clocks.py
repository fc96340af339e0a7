"""Clocks that jump, stand still or are wrong: they neither expire a process nor keep a dead one alive."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from effort import effort
from negotiators import Clock, audit, small

sa = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")

from flowsched.exceptions import InputError, TimeLimitError
from flowsched.hrm import Claim, Container, Negotiator, ResourceUnit, Store
from flowsched.hrm.clocks import Forward, Steady, Watch
from flowsched.hrm.state.locks import Leases
from flowsched.hrm.state.schema import LQ

HOUR = 3600.0


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_setting_a_clock_neither_expires_a_process_nor_hides_a_dead_one(store: Store, jump: float) -> None:
    day, own = Clock(1e9), Clock()
    negotiator = small(store, ttl=30.0, clock=day, monotonic=own)
    negotiator.add_units([ResourceUnit("u2", "dead", vcore=1)])
    negotiator.add_scheduler("gone")

    def live(seconds: float) -> list[tuple[str, ...]]:
        lost: list[tuple[str, ...]] = []
        for _ in range(int(seconds / 5)):
            own.now += 5
            day.now += 5
            negotiator.heartbeat("m")
            negotiator.beat("s")
            found = negotiator.expire()
            lost += [each for each in (found.schedulers, found.machines) if each]
        return lost

    assert live(20) == []
    day.now += jump
    assert live(20) == [("gone",), ("dead",)]
    assert live(200) == []
    day.now -= 2 * jump
    assert live(200) == []
    audit(store)


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_by_default_the_day_is_looked_at_once(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    day, own = Clock(1e9), Clock()
    monkeypatch.setattr("flowsched.hrm.state.negotiator.time", SimpleNamespace(time=day, monotonic=own))
    negotiator = small(Store(), ttl=30.0)
    negotiator.commit("s", [Claim("a", "u"), Claim("b", "u", queued=True)], launch=True)
    before = negotiator.units()
    day.now += jump
    assert negotiator.units() == before and negotiator.expire().machines == ()
    own.now += 31
    assert negotiator.clock() == 1e9 + 31
    assert negotiator.expire().machines == ("m",)


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_another_process_whose_clock_is_wrong_judges_alike(store: Store, jump: float) -> None:
    own = Clock()
    negotiator = small(store, ttl=30.0, clock=Clock(1e9), monotonic=own)
    judge = Negotiator(store, ttl=30.0, clock=Clock(1e9 + jump), monotonic=(other := Clock(5.0)))
    judge.expire()
    for _ in range(20):
        own.now += 5
        other.now += 5
        negotiator.heartbeat("m")
        negotiator.beat("s")
        assert judge.expire().opened == ()
    assert judge.expire().schedulers == judge.expire().machines == ()
    # It has watched for too short a time, whatever it is told about the days.
    late = Negotiator(store, ttl=30.0, clock=Clock(1e9 + 100 * HOUR), monotonic=Clock(0.0))
    assert late.expire().schedulers == ()
    other.now += 31
    lost = judge.expire()
    assert (lost.schedulers, lost.machines) == (("s",), ("m",))


def test_the_lock_of_a_dead_holder_is_free_after_its_time_whatever_the_day(store: Store) -> None:
    day, own = Clock(1e9), Clock()
    dead = Leases(store, 30.0, Clock())
    dead.draw("stream", "dead")
    day.now -= HOUR
    alive = Leases(store, 30.0, own)
    with pytest.raises(TimeLimitError, match="'stream'"), alive.hold("stream", "s", timeout=0.01):
        pass
    own.now += 31
    with alive.hold("stream", "s", timeout=5.0) as lease:
        assert lease.owner == "s"
    alive.sweep()
    assert store.look(sa.select(LQ)) == []


def test_a_clock_of_a_simulation_stands_still_where_it_is_set_back() -> None:
    clock = Clock(100.0)
    passed = Forward(clock)
    seen = []
    for step in (5.0, -HOUR, 5.0, 0.0, 7.0):
        clock.now += step
        seen.append(passed())
    assert seen == [5.0, 5.0, 10.0, 10.0, 17.0]
    clock.now = float("nan")
    with pytest.raises(InputError, match="clock"):
        passed()


def test_an_outage_of_the_store_does_not_count_as_silence(store: Store) -> None:
    own = Clock()
    negotiator = small(store, ttl=30.0, monotonic=own)
    negotiator.expire()
    own.now += 100
    store.outages += 1  # as `Store` counts, when it has found its connection broken
    assert negotiator.expire().machines == ()
    own.now += 29
    assert negotiator.expire().machines == ()
    own.now += 2
    assert negotiator.expire().machines == ("m",)


def test_jumps_change_nothing_in_what_is_decided() -> None:
    """The same history on clocks that are set at random, forth and back by hours, and on such as are not."""
    for seed in range(effort(3, 200)):
        ends = []
        for wild in (False, True):
            rng, jumps = random.Random(seed), random.Random(seed)
            day, own = Clock(1e9), Clock()
            store = Store()
            negotiator = Negotiator(store, ttl=30.0, max_wait=60.0, clock=Steady(day, own), monotonic=own)
            negotiator.add_units([ResourceUnit(f"u{i}", f"m{i}", vcore=2) for i in range(3)], length=2)
            negotiator.add_scheduler("s")
            told: list[object] = []
            for step in range(25):
                seconds = rng.uniform(0.0, 6.0)
                own.now += seconds
                day.now += seconds + (jumps.choice([0.0, HOUR, -HOUR]) if wild else 0.0)
                negotiator.submit(f"j{step}", [Container(f"t{step}", vcore=1, duration=20.0)], scheduler="s")
                unit = f"u{rng.randrange(3)}"
                told.append(negotiator.commit("s", [Claim(f"t{step}", unit, queued=rng.random() < 0.5)], launch=True))
                running = sorted(str(c.id) for _, c in negotiator.on_machine("m0"))
                machines = rng.sample(["m0", "m1", "m2"], 2)
                told += [negotiator.heartbeat(m, finished=running[: rng.randrange(2)]) for m in machines]
                told += [negotiator.expire(), [(u.unit, u.free, round(u.wait, 3), u.alive) for u in negotiator.units()]]
                negotiator.beat("s")
            audit(store)
            ends.append(told)
        assert ends[0] == ends[1], f"seed {seed}"


def shifted(clock: Clock, by: float) -> Callable[[], float]:
    return lambda: clock.now + by


def test_no_two_hold_the_lock_whatever_their_clocks_show() -> None:
    """Owners with clocks of their own die, sleep and renew at random; at most one of them says that it holds the lock."""
    held = 0
    for seed in range(effort(20, 1000)):
        rng = random.Random(seed)
        store, moment = Store(), Clock(0.0)
        owners = [Leases(store, 10.0, shifted(moment, rng.uniform(-1e6, 1e6))) for _ in range(3)]
        tickets = [owner.draw("stream", str(i)) for i, owner in enumerate(owners)]
        for _ in range(40):
            moment.now += rng.uniform(0.0, 4.0)
            i = rng.randrange(3)
            if rng.random() < 0.3 and not owners[i].renew(tickets[i]):
                owners[i].release(tickets[i])
                tickets[i] = owners[i].draw("stream", str(i))
            if rng.random() < 0.3:
                owners[rng.randrange(3)].sweep()
            holders = [i for i in rng.sample(range(3), 3) if owners[i].is_first(tickets[i])]
            assert len(holders) <= 1, f"seed {seed}"
            held += len(holders)
        store.close()
    assert held


def test_a_watch_forgets_names_that_are_gone() -> None:
    own = Clock()
    watch = Watch(10.0, own)
    watch.note("a", 1)
    own.now += 11
    assert watch.is_silent("a", 1) and not watch.is_silent("a", 2)
    watch.keep(())
    own.now += 11
    assert not watch.is_silent("a", 2)
