"""Deltas of a journal are checked before they happen: a task that waits cannot stop, and one that runs cannot start."""

import pytest

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
