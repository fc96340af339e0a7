"""Calls that overlap on a negotiator or a worker, and signals in the middle of one."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Sequence

import pytest
from negotiators import audit, picture, small

sa = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")

from flowsched.exceptions import ConcurrentUseError
from flowsched.hrm import Claim, Container, Negotiator, Store, UnitState
from flowsched.hrm.schedulers import Worker
from flowsched.hrm.state.schema import LQ, RT


def within(negotiator: Negotiator, meanwhile: Callable[[], None]) -> None:
    """Do something while a call of the negotiator is under way, in its thread."""

    def place(tasks: Sequence[Container], units: Sequence[UnitState]) -> dict[str, str]:
        meanwhile()
        return {"x": "u"}

    assert negotiator.stream("s", "x", place).accepted == (Claim("x", "u"),)
    audit(negotiator.store)


def by_thread(call: Callable[[], None]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def by_handler(call: Callable[[], None]) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: call())
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def by_finaliser(call: Callable[[], None]) -> None:
    class Last:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            call()

    Last()
    gc.collect()


def by_callback(call: Callable[[], None]) -> None:
    call()


@pytest.mark.parametrize("how", [by_thread, by_handler, by_finaliser, by_callback])
def test_a_negotiator_in_use_refuses_a_second_call(store: Store, how: Callable[[Callable[[], None]], None]) -> None:
    negotiator = small(store)
    refused = []

    def call() -> None:
        for one in (negotiator.jobs, negotiator.expire, lambda: negotiator.finish(["a"]), lambda: negotiator.beat("s")):
            try:
                one()
            except ConcurrentUseError as error:
                refused.append(str(error))

    within(negotiator, lambda: how(call))
    assert refused == ["Negotiator: used while another call on it is under way"] * 4
    assert negotiator.beat("s") == ["x"]


@pytest.mark.parametrize("how", [by_handler, by_finaliser, by_callback])
def test_a_thread_inside_a_transaction_does_not_wait_for_itself(
    store: Store, how: Callable[[Callable[[], None]], None]
) -> None:
    negotiator, other = small(store), Negotiator(store)
    refused = []

    def call() -> None:
        for one in (other.jobs, lambda: other.finish(["a"]), store.clear):
            try:
                one()
            except ConcurrentUseError as error:
                refused.append(str(error))

    def work(db: sa.Connection) -> None:
        db.execute(sa.update(RT).where(RT.c.task_id == "a").values(priority=7))
        how(call)

    store.transact(work)
    assert refused == ["Store: used while this thread is inside a transaction on it"] * 3
    assert [task.priority for task in negotiator.tasks("j")] == [7, 0]


def test_a_signal_in_the_middle_undoes_the_call_and_frees_the_negotiator(store: Store) -> None:
    class LeaveError(Exception):
        pass

    def leave(*_: object) -> None:
        raise LeaveError

    negotiator = small(store)
    before = picture(negotiator)
    old = signal.signal(signal.SIGUSR1, leave)
    try:
        with pytest.raises(LeaveError):
            negotiator.stream("s", "x", lambda tasks, units: signal.raise_signal(signal.SIGUSR1))  # type: ignore[arg-type, return-value, func-returns-value]
        with pytest.raises(LeaveError):
            store.transact(
                lambda db: (db.execute(sa.delete(RT)), signal.raise_signal(signal.SIGUSR1), db.execute(sa.select(RT)))
            )
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert picture(negotiator) == before and store.look(sa.select(LQ)) == []


def test_a_worker_in_use_refuses_a_second_call_and_goes_on_after_a_failed_step() -> None:
    negotiator = small(Store())
    refused = []

    def launch(tasks: Sequence[str]) -> None:
        try:
            worker.step()
        except ConcurrentUseError as error:
            refused.append(str(error))
            if len(refused) == 1:
                raise KeyboardInterrupt from None

    worker = Worker(negotiator, "s", launch=launch)
    with pytest.raises(KeyboardInterrupt):
        worker.step()
    worker.step()
    assert set(refused) == {"Worker: used while another call on it is under way"} and worker.step() is False
    audit(negotiator.store)
