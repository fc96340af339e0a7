"""Deltas of a journal are checked before they happen: a task that waits cannot stop, and one that runs cannot start.

A round in which tasks start, and to which nothing has happened since, is carried out as it was found.
"""

import copy
import pickle
from dataclasses import fields, replace

import pytest
from lives import world_of

import flowsched as fs
from flowsched.rounds.commit import happen

PLACE = fs.Place("waits", "m", ())
IMPOSSIBLE = {
    "a task that waits stops": [fs.Preempt("waits", "m", "runs")],
    "a task that waits moves": [fs.Migrate("waits", "m", "m", (), "runs")],
    "a task that runs starts": [fs.Place("runs", "m", ())],
    "a task starts twice": [PLACE, PLACE],
    "a task stops twice": [fs.Preempt("runs", "m", "waits"), fs.Preempt("runs", "m", "waits")],
}


@pytest.mark.parametrize("deltas", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_is_impossible_is_refused_as_a_whole(deltas) -> None:
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 4}), fs.JobSubmitted("j", [fs.Task("runs", {"cpu": 1})]))
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.JobSubmitted("k", [fs.Task("waits", {"cpu": 1})]))
    refusal = happen(sched.cluster, deltas, 1.0)
    assert refusal is not None
    assert refusal.code is fs.ReasonCode.CONFLICT
    assert sched.cluster.placement("runs") == "m"
    assert sched.cluster.placement("waits") is None
    assert happen(sched.cluster, [PLACE], 1.0) is None
    assert sched.cluster.placement("waits") == "m"


def waiting_tasks() -> fs.Scheduler:
    sched = fs.Scheduler(resources=("cpu", "gpu"))
    sched.apply(
        *(fs.MachineAdded(m, {"cpu": 4, "gpu": 1}) for m in "ab"),
        fs.JobSubmitted("j", [fs.Task(f"j{i}", {"cpu": 1}) for i in range(3)]),
        fs.JobSubmitted("k", [fs.Task(f"k{i}", {"gpu": 0.5}) for i in range(2)]),
    )
    return sched


def test_a_commit_is_the_same_whether_something_has_happened_since_the_round_or_not() -> None:
    one, other, third = waiting_tasks(), waiting_tasks(), waiting_tasks()
    rounds = [sched.schedule(1.0) for sched in (one, other, third)]
    for sched, event in ((one, fs.UserAdded("u")), (third, fs.UserAdded("u"))):
        sched.apply(event)
    done = [sched.commit(rnd) for sched, rnd in zip((one, other, third), rounds, strict=True)]
    other.apply(fs.UserAdded("u"))
    assert done[0] == done[1] == done[2]
    assert done[1].accepted == rounds[1].deltas
    assert dict(done[1].runs) == dict(done[0].runs)
    assert world_of(one) == world_of(other) == world_of(third)
    assert one.snapshot() == other.snapshot()
    for name in ("placements_total", "conflicts_total"):
        assert one.metrics()[name] == other.metrics()[name]


def test_a_round_that_others_have_overtaken_is_checked() -> None:
    sched = waiting_tasks()
    rnd = sched.schedule(1.0)
    sched.apply(fs.MachineDrained("a"), fs.TaskRemoved("k0"))
    done = sched.commit(rnd)
    assert {delta.task for delta in done.accepted} == {t for t, m in rnd.placements.items() if m == "b" and t != "k0"}
    assert done.conflicts["k0"].detail == {"task": {"gone": 1}}
    again = sched.commit(rnd)
    assert not again.accepted
    assert len(again.conflicts) == 5


def test_a_copy_commits_a_round_of_the_original_and_leaves_that_alone() -> None:
    sched = waiting_tasks()
    rnd = sched.schedule(1.0)
    copied, before = sched.copy(), world_of(sched)
    assert copied.commit(rnd).accepted == rnd.deltas
    assert world_of(sched) == before
    assert sched.commit(rnd).accepted == rnd.deltas
    assert world_of(sched) == world_of(copied)


def test_parts_that_are_made_when_they_are_looked_at_are_those_of_a_plain_value() -> None:
    sched = waiting_tasks()
    rnd = sched.schedule(1.0)
    assert not {"deltas", "devices", "turns"} & vars(rnd).keys()
    done = sched.commit(rnd)
    assert "accepted" not in vars(done)
    copied, plain = copy.copy(rnd), replace(rnd)
    assert {"deltas", "devices", "turns"} <= vars(plain).keys()
    for field in fields(fs.Round):
        assert getattr(rnd, field.name) == getattr(plain, field.name) == getattr(copied, field.name)
    assert [delta.task for delta in rnd.deltas] == list(rnd.placements)
    assert rnd.devices["k0"] == rnd.deltas[list(rnd.placements).index("k0")].devices == (0,)
    assert copy.copy(done) == done
    assert pickle.loads(pickle.dumps(done)) == done
    with pytest.raises(AttributeError, match="delta"):
        rnd.delta  # noqa: B018
    with pytest.raises(AttributeError, match="accept"):
        done.accept  # noqa: B018
