"""One agent of a machine at a time, and one call at a time on it."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest
from agents import SLEEP, UNIT, is_running, launch, leaving, one_core, pids, settle, shared
from effort import effort

from flowsched.exceptions import ConcurrentUseError, InputError
from flowsched.hrm import Container, ResourceUnit

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the agent runs on Linux only")

from flowsched.hrm.agent import Agent, Ended

# -- one agent of a machine -----------------------------------------------------------------------------------------


def test_there_is_one_agent_of_a_machine_of_a_shared_state(tmp_path: Path) -> None:
    negotiator = shared(f"sqlite:///{tmp_path}/state.db")
    units = [one_core(0)]
    first = Agent(units, negotiator=negotiator, command=lambda id: SLEEP, state=tmp_path / "state")
    with pytest.raises(InputError, match="another agent"):
        Agent(units, negotiator=negotiator, state=tmp_path / "state")
    other = ResourceUnit("v", "another machine")
    Agent([other], negotiator=negotiator, state=tmp_path / "state").close()
    launch(negotiator, "a", "u0")
    first.heartbeat()
    # A process that is forked neither holds the lock nor ends what is its parent's.
    child = os.fork()
    if not child:
        with_exit = 1
        try:
            first.close()
            first.step()
        except ConcurrentUseError:
            with_exit = 0
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.write(1, b"")
        if with_exit:
            os._exit(1)
        time.sleep(60)
        os._exit(2)
    try:
        time.sleep(0.2)
        assert is_running(child)
        pid = first.pid("a")
        assert pid is not None and is_running(pid)
        first.close()
        assert not is_running(pid)
        Agent(units, negotiator=negotiator, state=tmp_path / "state").close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with pytest.raises(InputError, match="closed"):
        first.step()
    first.close()


@pytest.mark.long
def test_agents_that_begin_and_close_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    negotiator_of = [shared(f"sqlite:///{tmp_path}/state{i}.db", units=1) for i in range(4)]
    wrong: list[BaseException] = []

    def live(i: int) -> None:
        try:
            for _ in range(effort(3, 50)):
                shares = {"negotiator": negotiator_of[i]} if i < 4 else {}
                with Agent([one_core(0)], state=tmp_path / "state", **shares) as agent:
                    agent.submit("u0", Container("a"), ["sleep", "0.01"])
                    assert agent.wait(60) == [Ended("a", 0)]
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=live, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and not list((tmp_path / "state").iterdir())


# -- overlapping calls ----------------------------------------------------------------------------------------------


def test_a_second_call_is_refused(tmp_path: Path) -> None:
    refused: list[str] = []
    with Agent([UNIT], state=tmp_path) as agent:

        def call() -> None:
            for one in (
                lambda: agent.submit("u", Container("x"), SLEEP), agent.step, lambda: agent.remove("a"), agent.close,
            ):  # fmt: skip
                try:
                    one()
                except ConcurrentUseError as error:
                    refused.append(str(error))

        before = signal.signal(signal.SIGUSR1, lambda *_: call())
        try:
            agent.submit("u", Container("a"), ["sleep", "0.5"])
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
            other = threading.Timer(0.2, call)
            other.start()
            assert agent.step(30) == [Ended("a", 0)]
            other.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert refused == ["Agent: used while another call on it is under way"] * 8
        assert settle(agent) == []


@pytest.mark.long
def test_signals_at_random_moments_leave_nothing(tmp_path: Path) -> None:
    """A handler that raises, somewhere in submit, step, remove and close."""

    class LeaveError(Exception):
        pass

    def leave(*_: object) -> None:
        raise LeaveError

    before = signal.signal(signal.SIGALRM, leave)
    hits = 0
    try:
        for seed in range(effort(40, 1000)):
            rng = random.Random(seed)
            mark = tmp_path / f"mark{seed}"
            command = leaving(mark, "own session", "time.sleep(60)")
            agent = Agent([UNIT], state=tmp_path / "state")
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0005, 0.08))
            try:
                for i in range(4):
                    agent.submit("u", Container(i, vcore=1), command)
                agent.submit("u", Container("s", vcore=2, kind="stream"), ["true"])
                agent.step(0.02)
                agent.remove("0")
            except LeaveError:
                hits += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                for _ in range(2):
                    try:
                        agent.close()
                        break
                    except LeaveError:
                        pass
            assert not any(map(is_running, pids(mark))), f"seed {seed}"
            assert not list((tmp_path / "state").iterdir())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert hits
