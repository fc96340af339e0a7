"""Atomic calls: all events of a call happen, or none, and the verdict is that of the events one by one."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from effort import effort
from lives import flow_of, said, world_of
from portable_files import check_books, text

import flowsched as fs
from flowsched.fgm import FineGrained

ODD: list[Any] = [None, -1, 2.5, "x", [], True, 10**30]

POLICIES = [
    lambda: fs.Policy(),
    lambda: fs.Policy(preemption=fs.PreemptionCost(graceful=True)),
    lambda: fs.Policy(preemption=fs.PreemptionCost(1.0), fairness=fs.Fairness(over="user")),
]


class Telling:
    """Draws events of few names, so that they meet; some are odd."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def one(self, *of: Any) -> Any:
        return self.random.choice(of)

    def name(self, kind: str, many: int) -> Any:
        """A name, which machines and tasks may share; now and then nothing can be called that."""
        return self.random.choices([f"{kind}{self.random.randrange(many)}", self.random.randrange(3), []], [90, 9, 1])[
            0
        ]

    def tasks(self, odd: Any) -> list[fs.Task]:
        random = self.random
        how: dict[str, Any] = {}
        if odd is None:
            if random.random() < 0.6:
                how = {"kind": self.one("k", "l")}
            if how and random.random() < 0.5:
                how |= {"apart": self.one(None, None, 1, 2), "apart_in_rack": self.one(None, 1, 2)}
            elif random.random() < 0.2:
                how = {"kind": "k", "avoids": ("l",)}
            if random.random() < 0.4:
                how |= {"retries": self.one(0, 1, 2), "backoff": self.one(0.0, 5.0)}
            if random.random() < 0.2:
                how |= {"data": {"m0": 1.0}}
        demand = self.one({"cpu": 1}, {"cpu": 2}, {"cpu": 1, "gpu": 0.5}, {"gpu": 1}, {})
        count = random.choice([0, 1, 1, 2, 3])
        return [fs.Task(f"t{random.randrange(9)}", demand, **how) for _ in range(count)]

    def event(self, sched: fs.Scheduler) -> fs.Event:
        """Something that may be possible."""
        random, one, cluster = self.random, self.one, sched.cluster
        machine, job, user, task = self.name("m", 4), self.name("j", 4), self.name("u", 3), self.name("t", 9)
        places = {t: cluster.placement(t) for t in cluster.tasks}
        waiting = [t for t, there in places.items() if there is None]
        running = [t for t, there in places.items() if there is not None]
        stops = sorted({stop.task for stop in cluster.stopping.values()}, key=str)
        ends = one(*stops) if stops and random.random() < 0.5 else one(*running) if running else task
        new = one(*waiting) if waiting and random.random() < 0.8 else task
        odd = one(*ODD) if random.random() < 0.05 else None
        run = one(None, 0, cluster.runs, cluster.runs + 1, 99 if odd is None else odd)
        if ends in list(places) and random.random() < 0.7:
            run = cluster.tasks[ends].run
        rack = one(None, "r", "s") if odd is None else odd
        capacity = {"cpu": one(1, 2, 4), "gpu": one(0, 1, 2)} if odd is None else odd
        time = one(None, None, 3.0) if odd is None else odd
        devices = one(None, None, [], [0], [1], [0, 1]) if odd is None else odd
        draws = [
            (2, lambda: fs.MachineAdded(machine, capacity, rack, slots=one(None, 1, 2, 3), time=time)),
            (1, lambda: fs.MachineAdded(machine, {"cpu": 4}, "r")),
            (3, lambda: fs.MachineUpdated(machine, one(capacity, None), one(rack, None), slots=one(None, None, 1, 3))),
            (2, lambda: fs.MachineUpdated(machine, rack=rack)),
            (1, lambda: fs.MachineDrained(machine, time=time)),
            (1, lambda: one(fs.MachineFailed, fs.MachineFailed, fs.MachineRemoved)(machine, time=time)),
            (3, lambda: fs.JobSubmitted(job, self.tasks(odd), one(None, user), one(0, 1, 2), one(None, 2), closed=one(True, False))),
            (1, lambda: fs.JobSubmitted(job, odd if odd is not None else self.tasks(None), user, time=time)),
            (1, lambda: fs.TaskSubmitted(job, (self.tasks(odd) or [odd])[0], time=time)),
            (1, lambda: fs.TaskStarted(ends, places.get(str(ends), machine), devices, run, time=time)),
            (2, lambda: fs.TaskStarted(new, machine, devices)),
            (8, lambda: fs.TaskStarted(new, machine, time=time)),
            (2, lambda: fs.TaskCompleted(ends, run, time=time)),
            (4, lambda: fs.TaskFailed(ends, one(True, False) if odd is None else odd, run, one(True, False, False), time=time)),
            (2, lambda: fs.TaskStopped(ends, run, time=time)),
            (1, lambda: fs.TaskRemoved(one(ends, new), time=time)),
            (1, lambda: fs.JobRemoved(job, time=time)),
            (1, lambda: fs.UserAdded(user, 1.0 if odd is None else odd)),
            (1, lambda: fs.UserUpdated(user, 2.0 if odd is None else odd)),
            (2, lambda: fs.UserRemoved(user)),
            (1, lambda: fs.UsageSampled(ends, {"cpu": 0.5} if odd is None else {"disk": 1}, odd, run)),
            (1, lambda: one(fs.MachineSampled(machine, {"cpu": 0.5} if odd is None else {"cpu": odd}), odd)),
        ]  # fmt: skip
        weights, makers = zip(*draws, strict=True)
        event: fs.Event = random.choices(makers, weights)[0]()
        return event

    def call(self, sched: fs.Scheduler) -> list[fs.Event]:
        """Events of one call: most can happen, one behind the other, but perhaps one that cannot is anywhere among them."""
        copy, events = sched.copy(), list[fs.Event]()
        for left in range(self.random.choice([2, 2, 3, 5, 12]), 0, -1):
            event = self.event(copy)
            if one_by_one(copy, [event]) is None or left == 1 or self.random.random() < 0.1:
                events.append(event)
        return events


def one_by_one(sched: fs.Scheduler, events: list[fs.Event]) -> tuple[int, str, str] | None:
    """Apply events until one is refused; return its position, and the error."""
    for index, event in enumerate(events):
        try:
            sched.apply(event)
        except fs.FlowschedError as error:
            return index, type(error).__name__, str(error)
    return None


@pytest.mark.parametrize("seed", range(effort(4, 3000)))
def test_all_or_none(seed: int, tmp_path: Path) -> None:
    telling, random = Telling(seed), Random(seed)
    journal = tmp_path / "journal" if seed % 4 == 0 else None
    policy = random.choice(POLICIES)
    sched = fs.Scheduler(policy(), resources=("cpu", "gpu"), journal=journal)
    twin = fs.Scheduler(policy(), resources=("cpu", "gpu"))  # never sees a call that is refused
    machines = [fs.MachineAdded(f"m{i}", {"cpu": 3, "gpu": 1}, random.choice([None, "r"])) for i in range(3)]
    sched.apply(*machines, atomic=True)
    twin.apply(*machines)
    for step in range(25):
        events, trial = telling.call(sched), sched.copy()
        wanted = one_by_one(trial, events)
        size = 0 if sched.journal is None else sched.journal.size
        before = sched.snapshot(), text(sched), world_of(sched), size
        if wanted is None:
            ended = sched.apply(*events, atomic=True)
            assert ended == twin.apply(*events)
            assert world_of(sched) == world_of(trial) and text(sched) == text(trial)
        else:
            with pytest.raises(fs.FlowschedError) as refused:
                sched.apply(*events, atomic=True)
            error = refused.value
            assert (error.index, type(error).__name__, str(error)) == wanted and error.ended == ()
            size = 0 if sched.journal is None else sched.journal.size
            assert (sched.snapshot(), text(sched), world_of(sched), size) == before
        check_books(sched)
        if random.random() < 0.4:
            rounds = [one.schedule(float(step)) for one in (sched, twin)]
            assert said(rounds[0]) == said(rounds[1])
            for one, rnd in zip((sched, twin), rounds, strict=True):
                one.commit(rnd)
    assert world_of(sched) == world_of(twin) and flow_of(sched) == flow_of(twin)
    if sched.journal is not None:
        sched.journal.close()
        assert world_of(fs.Scheduler.restore(tmp_path / "journal")) == world_of(sched)


def running(journal: Path | None = None) -> fs.Scheduler:
    """Task "t" of a closed job runs on machine "m"."""
    sched = fs.Scheduler(resources=("cpu",), journal=journal)
    job = fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})], user="u", closed=True)
    sched.apply(fs.MachineAdded("m", {"cpu": 2}), job)
    sched.commit(sched.schedule(0.0))
    return sched


RACKS = [
    fs.MachineAdded("a", {"cpu": 4, "gpu": 2}, "r"),
    fs.MachineAdded("b", {"cpu": 4}, "r"),
    fs.MachineAdded("c", {"cpu": 4}, "s"),
]
KINDS = [fs.Task(name, {"cpu": 1}, kind="k", apart_in_rack=1) for name in "tx"]
PLAIN = [fs.Task(name, {"cpu": 1}, kind="k") for name in "tx"]
SHARED = [fs.Task(name, {"gpu": 0.5}) for name in "tx"]
HUGE = [fs.Task(name, {"cpu": 4e12}) for name in "tx"]
FULL = [fs.Task(name, {"cpu": 3}) for name in "tx"]


@pytest.mark.parametrize(
    ("tasks", "machine", "events", "refused"),
    [
        (KINDS, "b", [fs.MachineDrained("c"), fs.TaskStarted("x", "a")], None),
        (KINDS, "b", [fs.MachineDrained("c"), fs.TaskStarted("x", "c")], None),
        (KINDS, "b", [fs.MachineUpdated("c", rack="r"), fs.TaskStarted("x", "c")], None),
        (KINDS, "b", [fs.MachineUpdated("b", rack="s"), fs.TaskStarted("x", "a")], None),
        (KINDS, "b", [fs.TaskCompleted("t"), fs.TaskStarted("x", "a")], None),
        (KINDS, "b", [fs.MachineAdded("d", {"cpu": 1}, "r"), fs.TaskStarted("x", "d")], None),
        (PLAIN, "b", [fs.JobSubmitted("k", [fs.Task("y", {}, kind="k", apart_in_rack=1)]), fs.TaskStarted("y", "a")], None),
        (PLAIN, "b", [fs.JobSubmitted("k", [fs.Task("y", {}, kind="k", apart_in_rack=1)]), fs.TaskStarted("y", "c")], None),
        (PLAIN, "b", [fs.JobSubmitted("k", [fs.Task("y", {}, kind="k", apart=1)]), fs.TaskStarted("y", "b")], None),
        (FULL, "b", [fs.MachineDrained("b"), fs.TaskStarted("x", "b")], None),
        (HUGE, "b", [fs.MachineDrained("b"), fs.TaskStarted("x", "b")], 1),
        (HUGE, "b", [fs.MachineDrained("b"), fs.TaskStarted("x", "c")], None),
        (FULL, "b", [fs.JobRemoved("j"), fs.JobSubmitted("j", FULL), fs.TaskStarted("x", "b")], None),
        (FULL, "b", [fs.MachineDrained("b"), fs.MachineUpdated("b", {"cpu": 2})], None),
        (FULL, "b", [fs.TaskRemoved("t"), fs.MachineUpdated("b", {"cpu": 2})], None),
        (FULL, "b", [fs.MachineFailed("b"), fs.TaskStarted("x", "b")], 1),
        (FULL, "b", [fs.TaskRemoved("t"), fs.UserRemoved("u")], 1),
        (FULL, "b", [fs.TaskRemoved("t"), fs.TaskRemoved("x"), fs.UserRemoved("u")], None),
        (FULL, "b", [fs.TaskRemoved("t"), fs.JobSubmitted("j", FULL[:1])], 1),
        (FULL, "b", [fs.JobRemoved("i"), fs.UserRemoved("v")], 1),
        (FULL, "b", [fs.TaskStarted("x", "c"), fs.TaskCompleted("x", 2), fs.TaskRemoved("x")], 2),
        (FULL, "b", [fs.TaskStarted("x", "c"), fs.TaskStarted("x", "c", run=2), fs.TaskStarted("x", "b")], 2),
        (SHARED, "a", [fs.TaskStarted("x", "a", [0]), fs.TaskStarted("t", "a", [1])], 1),
        (SHARED, "a", [fs.TaskStarted("t", "a", [0]), fs.MachineUpdated("a", {"cpu": 4, "gpu": 0})], None),
        (SHARED, "a", [fs.MachineDrained("a"), fs.TaskStarted("x", "a", [9])], None),
        ([fs.Task("t", retries=0), fs.Task("x")], "b", [fs.TaskFailed("t"), fs.TaskRemoved("t")], 1),
        ([fs.Task("t", retries=0), fs.Task("x")], "b", [fs.TaskFailed("t", lost=True), fs.TaskRemoved("t")], None),
        ([fs.Task("t", retries=1), fs.Task("x")], "b", [fs.TaskFailed("t"), fs.TaskRemoved("t")], None),
    ],
)  # fmt: skip
def test_what_a_verdict_depends_on(
    tasks: list[fs.Task], machine: str, events: list[fs.Event], refused: int | None
) -> None:
    sched = fs.Scheduler(resources=("cpu", "gpu"))
    others = (fs.JobSubmitted(name, [fs.Task(name)], user="v") for name in "hi")
    sched.apply(*RACKS, *others, fs.JobSubmitted("j", tasks, user="u"), fs.TaskStarted("t", machine))
    wanted = one_by_one(sched.copy(), events)
    assert (wanted and wanted[0]) == refused
    try:
        sched.apply(*events, atomic=True)
        found = None
    except fs.FlowschedError as error:
        found = error.index, type(error).__name__, str(error)
    assert found == wanted
    check_books(sched)


@pytest.mark.parametrize(
    ("events", "refused"),
    [
        ([fs.MachineDrained("m"), fs.TaskStopped("low")], None),
        ([fs.MachineFailed("m"), fs.TaskStopped("low")], 1),
        ([fs.TaskStopped("low"), fs.TaskStopped("low")], 1),
        ([fs.TaskRemoved("low"), fs.TaskStopped("low")], None),
        ([fs.TaskCompleted("low"), fs.TaskRemoved("low")], 1),
        ([fs.TaskFailed("low", run=1), fs.TaskRemoved("low")], None),
        ([fs.TaskStopped("low", 7), fs.TaskFailed("low")], None),
        ([fs.MachineRemoved("m"), fs.TaskFailed("low")], 1),
    ],
)
def test_runs_that_stop(events: list[fs.Event], refused: int | None) -> None:
    sched = fs.Scheduler(POLICIES[1](), resources=("cpu",))
    sched.apply(
        fs.MachineAdded("m", {"cpu": 1}), fs.JobSubmitted("j", [fs.Task("low", {"cpu": 1}), fs.Task("x")], priority=1)
    )
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.JobSubmitted("k", [fs.Task("high", {"cpu": 1})]))
    sched.commit(sched.schedule(1.0))
    assert list(sched.cluster.stopping) == [1]
    wanted = one_by_one(sched.copy(), events)
    assert (wanted and wanted[0]) == refused
    try:
        sched.apply(*events, atomic=True)
    except fs.FlowschedError as error:
        assert error.index == refused
    else:
        assert refused is None


def test_events_that_depend_on_those_before_them() -> None:
    sched = running()
    assert sched.apply(
        fs.TaskCompleted("t", 1), fs.UserRemoved("u"), fs.MachineUpdated("m", {"cpu": 0.5}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 0.5})]),
        fs.TaskStarted("t", "m"), fs.TaskFailed("t", run=2), atomic=True,
    ) == (fs.EndedRun("t", 1, "m", "TaskCompleted"), fs.EndedRun("t", 2, "m", "TaskFailed"))  # fmt: skip
    assert sched.cluster.task_state("t") == "waiting" and not sched.cluster.users


def test_a_refusal_names_the_event() -> None:
    sched = running()
    before = sched.snapshot()
    with pytest.raises(fs.InputError, match="still has job") as refused:
        sched.apply(fs.MachineDrained("m"), fs.TaskFailed("t"), fs.UserRemoved("u"), fs.UserAdded("v"), atomic=True)
    assert (refused.value.index, refused.value.ended) == (2, ()) and sched.snapshot() == before
    assert refused.value.__notes__ == ["event 2 of 4, of which none has happened"]
    with pytest.raises(fs.InputError) as refused:
        sched.apply(fs.MachineDrained("m"), fs.TaskFailed("t"), fs.UserRemoved("u"))
    assert refused.value.index == 2 and len(refused.value.ended) == 1
    with pytest.raises(fs.UnknownTaskError) as refused:
        sched.apply(fs.TaskRemoved("no"), atomic=True)
    assert refused.value.index == 0


def test_an_iterator_is_refused_since_it_is_read_twice() -> None:
    sched = running()
    job = fs.JobSubmitted("k", (fs.Task(i) for i in "ab"))  # type: ignore[arg-type]
    with pytest.raises(fs.InputError, match="tasks: a sequence expected, not an iterator") as refused:
        sched.apply(fs.MachineDrained("m"), job, atomic=True)
    assert refused.value.index == 1 and not sched.cluster.machines["m"].drained
    sched.apply(job, atomic=True)
    assert {"a", "b"} < set(sched.cluster.tasks)


def test_what_no_journal_can_hold(tmp_path: Path) -> None:
    sched = running(tmp_path / "journal")
    size = sched.journal.size
    with pytest.raises(fs.InputError, match="journal can only hold") as refused:
        sched.apply(fs.MachineDrained("m"), fs.UserAdded(frozenset([1])), fs.TaskRemoved("t"), atomic=True)
    assert refused.value.index == 1 and not sched.cluster.machines["m"].drained and sched.journal.size == size
    sched.apply(fs.MachineDrained("m"), fs.TaskRemoved("t"), atomic=True)
    assert sched.journal.size > size


def test_there_is_no_atomic_call_where_a_fit_rule_decides(tmp_path: Path) -> None:
    fine = FineGrained(fs.Scheduler(resources=("cpu",)))
    for events in ([fs.MachineAdded("m", {"cpu": 1})], [fs.MachineAdded("m", {"cpu": 1}), fs.UserAdded("u")]):
        with pytest.raises(fs.InputError, match="atomic: a fit rule"):
            fine.apply(*events, atomic=True)
    assert not fine.cluster.events
    with pytest.raises(fs.UnknownTaskError) as refused:
        fine.apply(fs.MachineAdded("m", {"cpu": 1}), fs.TaskRemoved("no"))
    assert refused.value.index == 1
