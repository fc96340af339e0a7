"""Reports of workers that come late, twice, in another order or never, against accounts of the running tasks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from portable_files import check_books, text

import flowsched as fs
from flowsched.fgm import FineGrained
from flowsched.sim.baselines import Greedy
from flowsched.sim.orders import fifo


def running() -> fs.Scheduler:
    """Task "t" has run 1 on "a"; "u" waits."""
    sched = fs.Scheduler(resources=("cpu",))
    sched.apply(
        fs.MachineAdded("a", {"cpu": 1}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1}), fs.Task("u", {"cpu": 1})])
    )
    assert sched.commit(sched.schedule(0.0)).runs == {"t": 1}
    return sched


STALE = [
    fs.TaskCompleted("t", 2), fs.TaskCompleted("t", 0), fs.TaskFailed("t", run=7), fs.TaskFailed("t", False, 7), fs.TaskCompleted("u", 1),
    fs.TaskFailed("u", run=0), fs.TaskCompleted("gone", 1), fs.TaskFailed("gone", run=1), fs.TaskStarted("u", "a", run=1),
    fs.TaskStarted("t", "nowhere", run=3), fs.TaskStarted("gone", "a", run=1), fs.UsageSampled("gone", {"cpu": 1}, run=1),
    fs.UsageSampled("t", {"no such thing": 1}, run=2), fs.TaskCompleted("t", np.int64(2), time=1.0),
]  # fmt: skip
REFUSED = [
    fs.TaskCompleted("t", -1), fs.TaskCompleted("t", "1"), fs.TaskFailed("t", run=1.0), fs.TaskFailed("t", run=True), fs.TaskStarted("t", "a", run=[]),
    fs.UsageSampled("t", {}, run=np.array([1, 2])), fs.TaskCompleted([], 1), fs.TaskCompleted("u"), fs.TaskCompleted("gone"), fs.TaskFailed("t", "no", 1),
    fs.TaskStarted("t", "b", run=1), fs.TaskCompleted("t", 2, time=float("nan")),
]  # fmt: skip


@pytest.mark.parametrize("event", STALE, ids=repr)
def test_what_tells_of_another_run_changes_nothing_and_is_counted(event: fs.Event) -> None:
    sched, beside = running(), running()
    sched.apply(event, event)
    assert sched.cluster.stale_events == 2 == sched.metrics()["events_stale_total"]
    assert sched.cluster.events == beside.cluster.events + 2
    mine, other = text(sched).splitlines()[1:-1], text(beside).splitlines()[1:-1]
    assert mine == other


@pytest.mark.parametrize("event", REFUSED, ids=repr)
def test_what_is_wrong_is_refused_and_not_taken_for_stale(event: fs.Event) -> None:
    sched = running()
    with pytest.raises(fs.FlowschedError):
        sched.apply(event)
    assert sched.cluster.stale_events == 0 and sched.cluster.placement("t") == "a"


def test_what_tells_of_the_present_run_happens() -> None:
    sched = running()
    sched.apply(
        fs.TaskStarted("t", "a", run=1), fs.UsageSampled("t", {"cpu": 1}, run=1), fs.TaskFailed("t", run=np.int64(1))
    )
    assert sched.cluster.placement("t") is None
    first = sched.commit(sched.schedule(1.0)).runs
    assert list(first.values()) == [2]
    sched.apply(*(fs.TaskCompleted(task, run) for task, run in first.items()))
    assert not sched.cluster.tasks.keys() & first.keys() and sched.cluster.stale_events == 0


def test_stale_events_are_recovered_and_exported(tmp_path: Path) -> None:
    sched = fs.Scheduler(resources=("cpu",), journal=tmp_path / "journal")
    sched.apply(fs.MachineAdded("a", {"cpu": 1}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]))
    sched.commit(sched.schedule(0.0))
    sched.apply(fs.TaskFailed("t", run=1), fs.TaskFailed("t", run=1), fs.TaskCompleted("t", np.int64(1)))
    sched.journal.close()
    for again in (
        fs.Scheduler.restore(tmp_path / "journal"),
        fs.Scheduler.restore(sched.snapshot()),
        fs.Scheduler.import_state(text(sched)),
    ):
        assert (again.cluster.stale_events, again.cluster.runs, again.cluster.events) == (2, 1, 5)
        assert again.cluster.task("t").run == 1 and again.cluster.placement("t") is None


@dataclass
class Books:
    """Workers that follow commands, and reports on their way; they see nothing but commits and events."""

    random: Random
    present: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Run and machine of each task that runs."""
    waiting: set[str] = field(default_factory=set)
    jobs: dict[str, str] = field(default_factory=dict)
    letters: list[fs.Event] = field(default_factory=list)
    begun: int = 0
    stale: int = 0
    ended: list[fs.EndedRun] = field(default_factory=list)

    def committed(self, done: fs.Commit) -> None:
        """Take deltas to the workers: each start is answered once or twice, now or much later, or never."""
        ended = []
        for delta in done.accepted:
            task = delta.task
            if not isinstance(delta, fs.Place):
                ended.append((task, *self.present[task], type(delta).__name__))
            if isinstance(delta, fs.Preempt):
                assert self.present.pop(task)[1] == delta.machine
                self.waiting.add(task)
                continue
            self.begun += 1
            assert done.runs[task] == self.begun
            assert isinstance(delta, fs.Place) or self.present[task][1] == delta.old
            self.waiting.discard(task)
            self.present[task] = self.begun, delta.machine
            self._answer(task, self.begun, delta.machine)
        assert list(done.ended) == ended

    def _answer(self, task: str, run: int, machine: str) -> None:
        end = self.random.choice(
            [fs.TaskCompleted(task, run), fs.TaskFailed(task, run=run), fs.TaskFailed(task, False, run)]
        )
        answers = [fs.TaskStarted(task, machine, run=run), fs.UsageSampled(task, {"cpu": 1}, run=run), end]
        for answer in answers:
            self.letters += [answer] * self.random.choice([0, 1, 1, 1, 2])

    def delivered(self) -> fs.Event:
        """Take any letter, and book what it says."""
        event = self.letters.pop(self.random.randrange(len(self.letters)))
        task = event.task
        if self.present.get(task, (0,))[0] != event.run:
            self.stale += 1
        elif isinstance(event, fs.TaskCompleted | fs.TaskFailed):
            self._end(task, type(event).__name__)
            if isinstance(event, fs.TaskFailed) and event.retry:
                self.waiting.add(task)
        return event

    def apply(self, sched, *events: fs.Event) -> None:
        """Apply booked events; they end the runs of the accounts."""
        ended = sched.apply(*events)
        assert sorted(ended) == sorted(self.ended)
        self.ended.clear()

    def _end(self, task: str, why: str) -> None:
        if task in self.present:
            self.ended.append(fs.EndedRun(task, *self.present.pop(task), why))

    def lose(self, machine: str, why: str) -> None:
        """Book that what runs on a machine waits again."""
        for task in [task for task, (_, at) in self.present.items() if at == machine]:
            self._end(task, why)
            self.waiting.add(task)

    def remove(self, tasks: list[str], why: str) -> None:
        """Book that tasks are gone."""
        for task in tasks:
            self._end(task, why)
            self.waiting.discard(task)

    def check(self, sched) -> None:
        """The cluster says the same."""
        cluster = sched.cluster
        runs = {t: (r.run, cluster.placement(t)) for t, r in cluster.tasks.items() if r.row >= 0}
        assert runs == self.present
        assert {task for task, record in cluster.tasks.items() if record.row < 0} == self.waiting
        assert (cluster.runs, cluster.stale_events) == (self.begun, self.stale)


def history(sched, seed: int, steps: int) -> Books:
    """Run a history, and keep the accounts."""
    random = Random(seed)
    books, now, up, down = Books(random), 0.0, [f"m{i}" for i in range(5)], []
    sched.apply(*(fs.MachineAdded(m, [random.choice([2, 4])] * 3) for m in up))
    rounds: list[fs.Round] = []
    for step in range(steps):
        now += random.choice([0.0, 0.5, 30.0])
        match random.randrange(10):
            case 0 | 1:
                tasks = [f"t{step}.{i}" for i in range(random.randint(1, 5))]
                books.waiting.update(tasks)
                books.jobs.update(dict.fromkeys(tasks, f"j{step}"))
                books.apply(
                    sched,
                    fs.JobSubmitted(
                        f"j{step}", [fs.Task(t, [1, 1, 0]) for t in tasks], None, random.randrange(3), time=now
                    ),
                )
            case 2 | 3 | 4:
                rounds.append(sched.schedule(now))
                if random.random() < 0.8:
                    books.committed(sched.commit(rounds.pop(random.randrange(len(rounds)))))
            case 5 if rounds:
                books.committed(sched.commit(random.choice(rounds)))
            case 6 if random.random() < 0.5 and len(up) > 1:
                machine = up.pop(random.randrange(len(up)))
                down.append(machine)
                kind = random.choice([fs.MachineFailed, fs.MachineRemoved])
                books.lose(machine, kind.__name__)
                books.apply(sched, kind(machine, time=now))
            case 6 if down:
                up.append(down.pop())
                books.apply(sched, fs.MachineAdded(up[-1], [4, 4, 0], time=now))
            case 7 if books.jobs and random.random() < 0.3:
                task, job = random.choice(list(books.jobs.items()))
                if random.random() < 0.5 and (task in books.present or task in books.waiting):
                    books.remove([task], "TaskRemoved")
                    books.apply(sched, fs.TaskRemoved(task, time=now))
                else:
                    gone = [t for t, j in books.jobs.items() if j == job]
                    books.remove(gone, "JobRemoved")
                    for one in gone:
                        del books.jobs[one]
                    books.apply(sched, fs.JobRemoved(job, time=now))
            case _ if books.letters:
                events = [books.delivered() for _ in range(random.randint(1, min(4, len(books.letters))))]
                books.apply(sched, *(replace(event, time=now) for event in events))
        books.check(sched)
    return books


@settings(max_examples=effort(15, 3000))
@given(seed=st.integers(0, 2**32))
def test_books_hold_whatever_answers_do(seed: int) -> None:
    sched = fs.Scheduler()
    books = history(sched, seed, 60)
    check_books(sched)
    for letter in list(books.letters):
        sched.apply(letter)  # the rest, in order; nothing raises
    check_books(sched)


@settings(max_examples=effort(8, 200))
@given(seed=st.integers(0, 2**32))
def test_books_hold_under_fgm_and_are_recovered(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = tmp_path_factory.mktemp("answers") / "journal"
    fine = FineGrained(fs.Scheduler(), journal=path)
    books = history(fine, seed, 40)
    fine.journal.close()
    again = FineGrained.restore(path)
    books.check(again)
    assert again.recovery is not None and not again.recovery.differences
    greedy = FineGrained(Greedy(fifo))
    history(greedy, seed, 40)


@settings(max_examples=effort(8, 200))
@given(seed=st.integers(0, 2**32))
def test_books_are_recovered_from_a_journal(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = tmp_path_factory.mktemp("answers") / "journal"
    sched = fs.Scheduler(journal=path)
    books = history(sched, seed, 60)
    sched.journal.close()
    again = fs.Scheduler(journal=path)
    books.check(again)
    check_books(again)
    books.check(fs.Scheduler.import_state(text(again)))


@pytest.mark.parametrize("kept", ["alone", "journal", "fgm"])
def test_a_refusal_reports_the_runs_that_earlier_events_ended(kept: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal" if kept == "journal" else None
    inner = fs.Scheduler(resources=("cpu",), journal=journal)
    sched = FineGrained(inner) if kept == "fgm" else inner
    sched.apply(fs.MachineAdded("a", {"cpu": 4}), fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(4)]))
    sched.commit(sched.schedule(0.0))
    with pytest.raises(fs.UnknownTaskError) as refused:
        sched.apply(
            fs.TaskCompleted(0, 1, time=1.0),
            fs.TaskCompleted(0, 1, time=1.0),
            fs.TaskRemoved(1, time=1.0),
            fs.TaskRemoved("no"),
        )
    assert refused.value.ended == ((0, 1, "a", "TaskCompleted"), (1, 2, "a", "TaskRemoved"))
    with pytest.raises(fs.FlowschedError) as refused:
        sched.apply(
            fs.JobSubmitted("k", [fs.Task("k")]), fs.MachineFailed("a"), fs.UserAdded(frozenset([1]) if journal else [])
        )
    assert refused.value.ended == ((2, 3, "a", "MachineFailed"), (3, 4, "a", "MachineFailed"))
    assert sched.apply() == () and sched.apply(fs.TaskRemoved("k")) == ()
