"""Durable over an engine: any engine is kept, calls are written down in their order, and a scheduler is handed over once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fgm_worlds import NAMES, known
from journal_rows import journal_of, records
from lives import world_of

import flowsched as fs
from flowsched.exceptions import JournalMismatchError
from flowsched.fgm import FineGrained, Stages
from flowsched.journal import engine as engines
from flowsched.journal import rerun
from flowsched.rounds.engine import RoundEngine
from flowsched.scheduler import Durable


class Watched:
    """An engine around another one that notes which calls it gets: no class of the package is needed to be one."""

    def __init__(self, inner: RoundEngine, calls: list[str]) -> None:
        self.__dict__.update(inner=inner, calls=calls)

    def __getattr__(self, name: str):
        if name in ("apply_batch", "decide", "carry_out", "impose", "replace_state", "state", "fail_round"):
            self.calls.append(name)
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value) -> None:
        self.calls.append(f"set {name}")
        setattr(self.inner, name, value)

    def fresh(self) -> Watched:
        return Watched(self.inner.fresh(), self.calls)


def plain(journal: Path | None = None) -> tuple[Durable, list[str]]:
    calls: list[str] = []
    return Durable(Watched(RoundEngine(fs.Policy(), ("cpu",)), calls), journal), calls


def live(sched) -> fs.Commit:
    sched.apply(fs.MachineAdded("m", {"cpu": 2}), fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(3)]))
    sched.policy = fs.Policy.named("pack")
    return sched.commit(sched.schedule(1.0))


def test_any_engine_can_be_kept(tmp_path: Path) -> None:
    sched, calls = plain(tmp_path / "journal")
    done = live(sched)
    assert calls == ["apply_batch", "set policy", "decide", "carry_out"]
    assert sched.what_if(fs.TaskCompleted(0), now=2.0).placements == {2: "m"} and len(done.accepted) == 2
    sched.journal.close()
    again, calls = plain(tmp_path / "journal")
    assert calls == ["apply_batch", "set policy", "decide", "carry_out"], "recovery makes the same calls"
    assert world_of(again) == world_of(sched)
    written = fs.Scheduler.restore(tmp_path / "journal")
    assert world_of(written) == world_of(sched)
    assert world_of(fs.Scheduler.restore(sched.snapshot())) == world_of(sched)


@pytest.mark.parametrize("protocol", [engines.Engine, engines.Adapter, rerun.Target])
def test_protocols_name_nothing_private(protocol: type) -> None:
    names = {name for base in protocol.__mro__[:-2] for name in vars(base)}
    private = {name for name in names if name.startswith("_") and not name.startswith(("__", "_abc", "_is_"))}
    assert not private and len(names) > 3


def test_what_comes_before_an_event_that_no_journal_holds_is_written_down(tmp_path: Path) -> None:
    sched = fs.Scheduler(resources=("cpu",), journal=tmp_path / "journal")
    with pytest.raises(fs.InputError, match="a journal can only hold ids"):
        sched.apply(*(fs.MachineAdded(id, {"cpu": 1}) for id in ("a", "b", frozenset(), "c")))
    with pytest.raises(fs.DuplicateIdError):  # comes first
        sched.apply(*(fs.MachineAdded(id, {"cpu": 1}) for id in ("c", "a", frozenset())))
    sched.journal.close()
    assert list(sched.cluster.machines) == ["a", "b", "c"]
    assert list(fs.Scheduler.restore(tmp_path / "journal").cluster.machines) == ["a", "b", "c"]


def test_a_refused_start_is_recorded_behind_the_events_before_it(tmp_path: Path) -> None:
    fine = FineGrained(fs.Scheduler(resources=NAMES), estimator=known({"k": Stages([10], [[1.0, 1.0]])}),
                       journal=tmp_path / "journal")  # fmt: skip
    fine.apply(fs.MachineAdded("m", {"cpu": 1, "mem": 1}))
    task = fs.Task("t", {"cpu": 2, "mem": 1})
    with pytest.raises(fs.InputError, match="0 different ones"):
        fine.apply(fs.JobSubmitted("j", [task]), fs.TaskStarted("t", "m", [0]), fs.TaskRemoved("t"))
    kinds = [body[:1] for body in records(tmp_path / "journal")]
    assert kinds == [b"H", b"E", b"E", b"A"]
    assert records(tmp_path / "journal")[-1][:7] == b'A["move'
    fine.journal.close()
    again = FineGrained.restore(tmp_path / "journal")
    assert list(again.cluster.tasks) == ["t"]


def test_a_plain_scheduler_refuses_the_records_of_an_adapter() -> None:
    header, state = records(fs.Scheduler().snapshot())
    with pytest.raises(JournalMismatchError, match="a Scheduler does not know what"):
        fs.Scheduler.restore(journal_of([header, state, b'A["learn",null]']))


# -- handing a scheduler over ---------------------------------------------------------------------------------------


def test_a_scheduler_that_was_taken_over_with_a_journal_refuses_every_call(tmp_path: Path) -> None:
    sched = fs.Scheduler(resources=NAMES)
    fine = FineGrained(sched, journal=tmp_path / "journal")
    for call in (
        lambda: sched.apply(fs.MachineAdded("m", {"cpu": 1})),
        lambda: sched.schedule(0.0),
        lambda: setattr(sched, "policy", fs.Policy()),
        sched.compact,
    ):
        with pytest.raises(fs.InputError, match="its adapter keeps the journal"):
            call()
    for refused in (sched.snapshot, sched.copy, lambda: sched.export(tmp_path / "out")):
        with pytest.raises(fs.InputError, match="a fit rule"):
            refused()
    fine.apply(fs.MachineAdded("m", {"cpu": 1, "mem": 1}))
    assert list(fine.cluster.machines) == ["m"] and fine.cluster is sched.cluster


def test_only_a_fresh_scheduler_is_handed_over(tmp_path: Path) -> None:
    one = fs.Scheduler(resources=("cpu",))
    assert one.adopt() is one.engine
    one.apply(fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]))
    with pytest.raises(fs.InputError, match="one without tasks"):
        one.adopt()
    with pytest.raises(fs.InputError, match="it has a journal"):
        fs.Scheduler(resources=("cpu",), journal=tmp_path / "journal").adopt()
    taken = fs.Scheduler(resources=NAMES)
    FineGrained(taken)
    with pytest.raises(fs.InputError, match="without another adapter"):
        FineGrained(taken)


def test_settings_that_are_refused_leave_the_scheduler_alone() -> None:
    sched = fs.Scheduler(resources=NAMES)
    before = sched.policy
    with pytest.raises(fs.InputError, match="contention"):
        FineGrained(sched, contention=-1.0)
    assert sched.cluster.inventory.rule is None and sched.policy is before
    assert FineGrained(sched).policy is not before


def test_a_copy_of_a_subclass_keeps_what_is_its_own() -> None:
    class Named(fs.Scheduler):
        def __init__(self, name: str) -> None:
            super().__init__(resources=("cpu",))
            self.name = name

    one = Named("mine")
    live(one)
    two = one.copy()
    assert type(two) is Named and two.name == "mine" and two.engine is not one.engine
    assert world_of(two) == world_of(one)
    two.apply(fs.TaskCompleted(0))
    assert 0 in one.cluster.tasks and 0 not in two.cluster.tasks


# -- what adapters ask of the engine --------------------------------------------------------------------------------


def test_an_engine_says_what_it_offers_and_which_gangs_it_left_out() -> None:
    sched = fs.Scheduler(fs.Policy(preemption=None), resources=("cpu",))
    sched.apply(
        fs.MachineAdded("m", {"cpu": 4}),
        fs.JobSubmitted("gang", [fs.Task(("g", i), {"cpu": 3}) for i in range(2)], gang=2),
        fs.JobSubmitted("free", [fs.Task("f", {"cpu": 1})]),
    )
    rnd = sched.schedule(0.0)
    assert dict(rnd.placements) == {"f": "m"}
    (left,) = sched.engine.left_out
    assert left.job.job.id == "gang"
    sched.commit(rnd)
    index = left.cls.index
    assert sched.engine.offers(np.array([index])).tolist() == [[1]]
