"""Tasks that no machine could run even if it were empty get no share of the cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import flowsched as fs

PROVIDERS: list[Callable[[], fs.ShareProvider]] = [
    fs.MaxMin,
    fs.WeightedMaxMin,
    fs.BatchShare,
    fs.DRF,
    fs.SequenceShare,
]


def shared(share: fs.ShareProvider, over: str, **settings: object) -> fs.Scheduler:
    """Two machines of 4 cores; jobs a and b of two users have ten tasks of a core each."""
    sched = fs.Scheduler(fs.Policy(fairness=fs.Fairness(share, over, **settings)), resources=("cpu",))  # type: ignore[arg-type]
    sched.apply(*(fs.MachineAdded(i, {"cpu": 4}) for i in range(2)), fs.UserAdded("b", 3))
    for name in "ab":
        sched.apply(fs.JobSubmitted(name, [fs.Task((name, i), {"cpu": 1}) for i in range(10)], user=name))
    return sched


HOPELESS = [fs.Task(("huge", i), {"cpu": 99}) for i in range(20)]
HOPELESS += [fs.Task(("picky", i), {"cpu": 1}, {"zone": ("nowhere",)}) for i in range(20)]


@pytest.mark.parametrize("mode", ["hard", "soft", "ladder"])
@pytest.mark.parametrize("over", ["job", "user"])
@pytest.mark.parametrize("share", PROVIDERS)
def test_infeasible_tasks_starve_no_job(share: Callable[[], fs.ShareProvider], over: str, mode: str) -> None:
    alone, beside = shared(share(), over, mode=mode), shared(share(), over, mode=mode)
    beside.apply(fs.JobSubmitted("c", HOPELESS[:20], user="a"), fs.JobSubmitted("d", HOPELESS[20:], user="b"))
    expected, found = alone.schedule(0.0), beside.schedule(0.0)
    assert len(found.placements) == 8
    assert {who: share.running for who, share in found.shares.items() if who in "ab"} == {
        who: share.running for who, share in expected.shares.items()
    }
    for task in HOPELESS:
        assert found.waiting[task.id].code in (fs.ReasonCode.NEVER_FITS, fs.ReasonCode.FILTERED)


def test_hopeless_tasks_of_a_job_do_not_take_its_user_s_part() -> None:
    sched = shared(fs.MaxMin(), "user", within=fs.MaxMin())
    sched.apply(fs.JobSubmitted("c", HOPELESS, user="a"))
    rnd = sched.schedule(0.0)
    assert sum(task[0] == "a" for task in rnd.placements) == 4 and rnd.shares["a"].entitled == 4


def test_they_claim_their_part_as_soon_as_a_machine_could_run_them_and_no_longer() -> None:
    sched = shared(fs.MaxMin(), "user")
    sched.apply(fs.JobSubmitted("c", HOPELESS[20:], user="c"))
    rnd = sched.schedule(0.0)
    assert {who: share.entitled for who, share in rnd.shares.items()} == {"a": 4, "b": 4, "c": 0}
    sched.commit(rnd)
    sched.apply(fs.MachineAdded("big", {"cpu": 4}, labels={"zone": "nowhere"}))
    rnd = sched.schedule(1.0)
    assert {who: share.entitled for who, share in rnd.shares.items()} == {"a": 4, "b": 4, "c": 4}
    sched.commit(rnd)
    sched.apply(fs.MachineDrained("big"))
    assert sched.schedule(2.0).shares["c"] == fs.Share(entitled=2, running=4, shortfall=0, lent=0, borrowed=2)
    for gone in (fs.MachineFailed("big"), fs.MachineRemoved("big")):
        sched.apply(gone)
        assert sched.schedule(3.0).shares["c"].entitled == 0
    twin = sched.copy()
    for one in (sched, twin):
        one.apply(fs.MachineAdded("again", {"cpu": 2}, labels={"zone": "nowhere"}))
    assert sched.schedule(4.0).deltas == twin.schedule(4.0).deltas
    assert sched.schedule(4.0).shares["c"].entitled == 3
