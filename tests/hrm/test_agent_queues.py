"""An agent's transfer queue, its queues that are created, changed and deleted, and the run times that it learns."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from agents import SLEEP, is_running, launch, one_core, run, settle, shared, wait_until

from flowsched.exceptions import DuplicateIdError, InputError, UnknownIdError
from flowsched.hrm import Container, Elastic, Outcome, ResourceUnit, RunTimes

if not sys.platform.startswith("linux"):
    pytest.skip("an agent needs Linux", allow_module_level=True)

from flowsched.hrm.agent import Agent


def two(id: str, **options: object) -> Container:
    return Container(id, vcore=2, duration=60.0, **options)  # type: ignore[arg-type]


def test_the_transfer_queue_chooses_units_and_holds_what_they_do_not_take(tmp_path: Path) -> None:
    with Agent([one_core(0), one_core(1)], length=0, state=tmp_path) as agent:
        assert [agent.submit(None, two(id), SLEEP).outcome for id in "ab"] == [Outcome.STARTED] * 2
        assert {*agent.queues["u0"].running, *agent.queues["u1"].running} == {"a", "b"}
        assert [agent.submit(None, two(id), SLEEP).outcome for id in "cd"] == [Outcome.QUEUED] * 2
        best = Container("best", vcore=2, duration=60.0, priority=-1)
        assert agent.submit(None, best, SLEEP).outcome is Outcome.QUEUED
        with pytest.raises(DuplicateIdError, match="'c'"):
            agent.submit(None, two("c"), SLEEP)
        with pytest.raises(DuplicateIdError, match="'c'"):
            agent.submit("u0", two("c"), SLEEP)
        assert agent.submit(None, Container("big", vcore=3), SLEEP).outcome is Outcome.OVER_LIMIT
        assert agent.pid("c") is None
        agent.remove("c")
        agent.remove("a")  # the best of those that are held follows
        assert agent.pid("best") is not None and agent.pid("d") is None
        # A stream container goes before them, and is never held.
        assert agent.submit(None, two("s", kind="stream"), SLEEP).outcome is Outcome.STARTED
        assert agent.submit(None, two("t", kind="stream"), SLEEP).outcome is Outcome.STARTED
        assert agent.submit(None, two("v", kind="stream"), SLEEP).outcome is Outcome.NO_ROOM
        for id in ("s", "t", "b", "best", "d"):
            agent.remove(id)
        settle(agent)


def test_a_held_container_starts_when_another_ends_by_itself(tmp_path: Path) -> None:
    with Agent([one_core(0)], length=0, state=tmp_path) as agent:
        for k in range(4):
            agent.submit(None, two(f"c{k}"), run("pass"))
        assert [one.id for one in settle(agent)] == ["c0", "c1", "c2", "c3"]


def test_queues_are_created_changed_and_deleted(tmp_path: Path) -> None:
    with Agent([one_core(0)], length=0, state=tmp_path) as agent:
        for id in "abc":
            agent.submit(None, two(id), SLEEP)
        agent.add_queue(one_core(1), length=0)  # takes the next that is held
        assert agent.pid("b") is not None and agent.pid("c") is None
        agent.set_queue("u1", length=1)
        assert [c.id for c in agent.queues["u1"].waiting] == ["c"]
        pid = agent.pid("b")
        assert pid is not None
        assert agent.remove_queue("u1") == ["b", "c"]
        wait_until(lambda: not is_running(pid))
        assert list(agent.queues) == ["u0"] and agent.pid("b") is None
        for bad, error in (
            (lambda: agent.add_queue(one_core(0)), DuplicateIdError),
            (lambda: agent.add_queue(ResourceUnit("x", "other", vcore=1)), InputError),
            (lambda: agent.set_queue("u1", length=1), UnknownIdError),
            (lambda: agent.remove_queue("u1"), UnknownIdError),
        ):
            with pytest.raises(error):
                bad()
        agent.remove("a")
        settle(agent)


def test_fewer_places_let_nothing_else_start(tmp_path: Path) -> None:
    with Agent([one_core(0)], state=tmp_path) as agent:
        agent.set_queue("u0", most=1)
        for id in "abc":
            agent.submit("u0", Container(id, vcore=1, duration=60.0), SLEEP)
        assert list(agent.queues["u0"].running) == ["a"]
        agent.set_queue("u0", most=2)
        assert list(agent.queues["u0"].running) == ["a", "b"] and agent.pid("b") is not None
        agent.set_queue("u0", most=1)
        agent.remove("a")
        assert list(agent.queues["u0"].running) == ["b"]
        agent.remove("b")
        assert list(agent.queues["u0"].running) == ["c"]
        agent.remove("c")
        settle(agent)


def test_run_times_are_learnt_from_containers_that_end_well(tmp_path: Path) -> None:
    times = RunTimes(default=100.0)
    with Agent([one_core(0)], run_times=times, state=tmp_path) as agent:
        agent.submit("u0", Container("a", "sort", vcore=2), run("import time; time.sleep(0.2)"))
        assert agent.queues["u0"].running["a"].container.duration == 100.0
        settle(agent)
        learnt = times.expect("sort")
        assert 0.2 <= learnt < 50.0
        agent.submit("u0", Container("b", "sort", vcore=2), run("raise SystemExit(1)"))
        assert agent.queues["u0"].running["b"].container.duration == learnt
        settle(agent)
        assert times.expect("sort") == learnt, "one that failed tells nothing"


def test_the_shared_state_learns_what_the_agent_measures(tmp_path: Path) -> None:
    negotiator = shared("sqlite://", units=1)
    line = {"good": run("import time; time.sleep(0.2)"), "bad": run("raise SystemExit(1)")}
    with Agent([one_core(0)], negotiator=negotiator, command=lambda id: line[id], state=tmp_path) as agent:
        for id in line:
            assert launch(negotiator, id, "u0") or launch(negotiator, id, "u0")
        deadline = time.monotonic() + 30
        while negotiator.jobs() and time.monotonic() < deadline:
            agent.heartbeat()
            agent.step(0.05)
        agent.heartbeat()
    for job, least, most in (("job good", 0.2, 30.0), ("job bad", 0.2, 30.0)):
        negotiator.submit(job, [Container(f"next {job}", vcore=1)])
        (task,) = negotiator.tasks(job)
        # The failed one taught nothing, so its job is expected to take the mean of the others.
        assert least <= task.duration < most


def test_an_agent_gives_up_what_a_stream_job_has_too_many(tmp_path: Path) -> None:
    negotiator = shared("sqlite://", units=3)
    negotiator.submit("x", [Container(f"x{i}", vcore=2, kind="stream") for i in range(3)], scheduler="s")
    granted = negotiator.stream("s", "x", lambda tasks, units: {f"x{i}": f"u{i}" for i in range(3)})
    negotiator.launch("s", [claim.task for claim in granted.accepted])
    units = [one_core(i) for i in range(3)]
    with Agent(units, negotiator=negotiator, command=lambda id: SLEEP, state=tmp_path) as agent:
        agent.heartbeat()
        assert all(agent.pid(f"x{i}") for i in range(3))
        _, ended = negotiator.resize("x", 0.2, Elastic())
        agent.heartbeat()
        assert len(ended) == 2 and [agent.pid(id) for id in ended] == [None, None]
        assert sum(agent.pid(f"x{i}") is not None for i in range(3)) == 1
