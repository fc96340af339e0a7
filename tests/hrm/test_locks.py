"""The lock of the pessimistic path: first come first served, renewed, expired, fought for."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")

import sqlalchemy as sa
from negotiators import make, statuses, streams

from flowsched.exceptions import TimeLimitError
from flowsched.hrm import Container
from flowsched.hrm.state.claims import ExpiredError, UnitState
from flowsched.hrm.state.locks import Lease, Leases
from flowsched.hrm.state.negotiator import Negotiator
from flowsched.hrm.state.schema import LK, LQ
from flowsched.hrm.state.store import Store


def test_the_lock_is_first_come_first_served_and_expires(store: Store) -> None:
    negotiator, clock = make(store)
    first, second = negotiator.leases.draw("stream", "s"), negotiator.leases.draw("stream", "t")

    def holds(lease: Lease) -> bool:
        return store.read(lambda db: negotiator.leases.holds(db, lease))

    assert (holds(first), holds(second)) == (True, False)
    with pytest.raises(TimeLimitError, match="'stream'"), negotiator.leases.hold("stream", "t", timeout=0.01):
        pass
    clock.now += 5
    negotiator.leases.renew(second)
    clock.now += 6  # the first was not heard of for 11 s, the second for 6 s
    assert (holds(first), holds(second)) == (False, True)
    # Too late: while the first was not heard of, the second has become the holder.
    assert not negotiator.leases.renew(first) and negotiator.leases.renew(second)
    assert (holds(first), holds(second)) == (False, True)
    negotiator.leases.sweep()
    assert store.read(lambda db: db.execute(sa.select(LQ.c.owner)).scalars().all()) == ["t"]


def test_a_ticket_that_was_not_renewed_in_time_is_drawn_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    negotiator, clock = make(store)
    leases, stalls = negotiator.leases, [11.0]
    before = leases.draw("stream", "t")
    leases.release(before)
    looks_first = leases.is_first

    def stalled(lease: Lease) -> bool:
        # A waiting owner is stalled for so long that its ticket expires and is swept away.
        if stalls:
            clock.now += stalls.pop()
            leases.sweep()
        return looks_first(lease)

    monkeypatch.setattr(leases, "is_first", stalled)
    with leases.hold("stream", "s", timeout=5.0) as lease:
        assert lease.ticket == before.ticket + 2
    assert store.look(sa.select(LQ)) == []


@pytest.mark.long
def test_many_draw_the_first_ticket_at_once(server: str) -> None:
    store = Store(server)
    store.transact(lambda db: db.execute(sa.delete(LK)))
    leases = [Negotiator(Store(server)).leases for _ in range(6)]
    drawn: list[Lease] = []
    start = threading.Barrier(len(leases))

    def work(mine: Leases, owner: str) -> None:
        start.wait()
        drawn.append(mine.draw("stream", owner))

    threads = [threading.Thread(target=work, args=(mine, f"s{i}")) for i, mine in enumerate(leases)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(lease.ticket for lease in drawn) == [1, 2, 3, 4, 5, 6]
    for mine in leases:
        mine.store.close()
    store.close()


@pytest.mark.long
def test_a_stream_job_whose_lock_expired_meanwhile_gets_nothing(store: Store) -> None:
    negotiator, clock = make(store)
    negotiator.submit("x", streams("x", 1), scheduler="s")

    def slow(tasks: Sequence[Container], units: Sequence[UnitState]) -> dict[str, str]:
        clock.now += 11
        return {"x0": "u0"}

    with pytest.raises(ExpiredError, match="lock"):
        negotiator.stream("s", "x", slow)
    assert statuses(store)["x0"] == ("OPEN", None)
    assert store.read(lambda db: db.execute(sa.select(LQ)).all()) == []
