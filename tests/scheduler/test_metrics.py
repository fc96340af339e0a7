"""Metrics, log and hooks: the counts are right, and a scheduler decides the same with them and without."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from effort import effort
from lives import POLICIES, Life, live_alike

import flowsched as fs
from flowsched import fgm
from flowsched.metrics import METRICS

NAMES = [metric.name for metric in METRICS]
LINE = re.compile(
    r"round now=\S+ seconds=[\d.]+ update=[\d.]+ solve=[\d.]+ read=[\d.]+ journal=[\d.]+ placed=(\d+) preempted=(\d+) "
    r"migrated=(\d+) waiting=(\d+) nodes=\d+ arcs=\d+ changes=\d+ solves=\d+ gap=\S+"
)


def small(**how) -> fs.Scheduler:
    sched = fs.Scheduler(resources=("cpu",), **how)
    sched.apply(fs.MachineAdded("m", {"cpu": 2}), fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(3)]))
    return sched


# -- what is counted -----------------------------------------------------------------------------------------------


class Count:
    """Counts what calls return, apart from the scheduler."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self.phases: Counter[str] = Counter()
        self.last: fs.Round | None = None

    def round(self, rnd: fs.Round) -> None:
        self.last = rnd
        self.total["rounds_total"] += 1
        self.total["solves_total"] += rnd.stats.solves
        self.total["network_changes_total"] += rnd.stats.changes
        self.phases["update"] += rnd.stats.seconds_update
        self.phases["solve"] += rnd.stats.seconds_solve
        self.phases["read"] += rnd.stats.seconds_read

    def commit(self, done: fs.Commit) -> None:
        for delta in done.accepted:
            kind = {fs.Place: "placements", fs.Preempt: "preemptions", fs.Migrate: "migrations"}[type(delta)]
            self.total[f"{kind}_total"] += 1
        self.total["conflicts_total"] += len(done.conflicts)

    def agrees(self, sched: fs.Scheduler | fgm.FineGrained) -> None:
        numbers, cluster = sched.metrics(), sched.cluster
        assert list(numbers) == NAMES
        for name in NAMES:
            if name.endswith("_total") and name not in ("events_total", "phase_seconds_total"):
                assert numbers[name] == self.total[name], name
        assert numbers["events_total"] == cluster.events
        assert numbers["machines"] == len(cluster.machines)
        assert numbers["machines_up"] == sum(not (m.failed or m.drained) for m in cluster.machines.values())
        assert numbers["tasks_running"] == sum(task.place is not None for task in cluster.tasks.values())
        assert numbers["tasks_waiting"] == sum(task.place is None for task in cluster.tasks.values())
        seconds = numbers["phase_seconds_total"]
        assert all(seconds[phase] == pytest.approx(self.phases[phase]) for phase in ("update", "solve", "read"))
        buckets = dict(numbers["round_seconds"])
        total = buckets.pop("sum")
        assert total >= sum(self.phases.values()) * (1 - 1e-9)
        assert buckets["+Inf"] == self.total["rounds_total"] and list(buckets.values()) == sorted(buckets.values())
        if self.last is not None:
            reasons = Counter(reason.code.value for reason in self.last.waiting.values())
            assert {code: n for code, n in numbers["waiting_by_reason"].items() if n} == reasons
            stats = self.last.stats
            sizes = (numbers["network_nodes"], numbers["network_arcs"], numbers["round_gap"])
            assert sizes == (stats.nodes, stats.arcs, stats.gap)


@pytest.mark.parametrize("seed", range(effort(4, 24)))
def test_metrics_agree_with_the_results_of_calls(seed: int, tmp_path: Path) -> None:
    life, count = Life(seed), Count()
    policy = POLICIES[seed % len(POLICIES)]()
    sched = fs.Scheduler(policy, journal=tmp_path / "journal" if seed % 3 == 0 else None)
    for _ in range(40):
        sched.apply(*life.events(sched))
        if life.random.random() < 0.6:
            rnd = sched.schedule(life.later())
            count.round(rnd)
            if life.random.random() < 0.3:
                sched.apply(*life.events(sched))  # so that some of it can no longer happen
            count.commit(sched.commit(rnd, life.only(rnd)))
        count.agrees(sched)
    assert count.total["placements_total"] > 0
    files = [] if sched.journal is None else [tmp_path / "journal", tmp_path / "journal-wal"]
    size = sum(file.stat().st_size for file in files)
    assert sched.metrics()["journal_bytes"] == size


def test_every_number_that_commits_add_to_was_above_zero_in_some_life() -> None:
    seen: Counter[str] = Counter()
    for seed in range(6):
        life, sched = Life(seed), fs.Scheduler(fs.Policy(preemption=fs.PreemptionCost(0.1)))
        for _ in range(40):
            sched.apply(*life.events(sched))
            rnd = sched.schedule(life.later())
            sched.apply(*life.events(sched))
            sched.commit(rnd)
        seen.update({name: n for name, n in sched.metrics().items() if isinstance(n, int)})
    assert all(seen[f"{what}_total"] for what in ("placements", "preemptions", "migrations", "conflicts"))


def test_an_adapter_counts_as_a_scheduler_does() -> None:
    fine, count = fgm.FineGrained(fs.Scheduler(resources=("cpu", "mem"))), Count()
    count.agrees(fine)
    tasks = [fs.Task(i, {"cpu": 2, "mem": 1}, kind="k") for i in range(3)]
    fine.apply(fs.MachineAdded("m", {"cpu": 4, "mem": 8}), fs.JobSubmitted("j", tasks))
    rnd = fine.schedule(0.0)
    count.round(rnd)
    count.commit(fine.commit(rnd))
    count.agrees(fine)
    assert fine.metrics()["placements_total"] == 2


def test_seconds_of_the_journal_are_those_of_all_calls(tmp_path: Path) -> None:
    sched = small(journal=tmp_path / "journal")
    told = sched.metrics()["phase_seconds_total"]["journal"]
    assert told > 0
    rnd = sched.schedule(0.0)
    first = sched.metrics()
    assert first["phase_last_seconds"]["journal"] == first["phase_seconds_total"]["journal"] == told
    sched.commit(rnd)
    sched.schedule(1.0)
    second = sched.metrics()
    spent = second["phase_seconds_total"]["journal"] - first["phase_seconds_total"]["journal"]
    assert second["phase_last_seconds"]["journal"] == pytest.approx(spent) and spent > 0


def test_a_round_that_raises_is_a_failed_one() -> None:
    def broken(cluster: fs.Cluster, classes, rows):
        raise ZeroDivisionError

    sched = small(policy=fs.Policy(placement=(fs.CustomCost(broken),)))
    with pytest.raises(ZeroDivisionError):
        sched.schedule(0.0)
    numbers = sched.metrics()
    assert (numbers["rounds_failed_total"], numbers["rounds_total"]) == (1, 0)


def test_a_copy_counts_from_zero() -> None:
    sched = small()
    sched.commit(sched.schedule(0.0))
    sched.what_if(now=1.0)
    copy = sched.copy()
    assert sched.metrics()["rounds_total"] == 1
    assert (copy.metrics()["rounds_total"], copy.metrics()["tasks_running"]) == (0, 2)


@pytest.mark.long
def test_any_thread_may_ask_at_any_time() -> None:
    sched, done, wrong = fs.Scheduler(), threading.Event(), []

    def watch() -> None:
        before = sched.metrics()
        while not done.is_set():
            try:
                now = sched.metrics()
                assert all(
                    now[name] >= before[name] for name in NAMES if isinstance(now[name], int) and "_total" in name
                )
                before = now
            except Exception as error:
                wrong.append(error)
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        life = Life(3)
        for _ in range(150):
            sched.apply(*life.events(sched))
            sched.commit(sched.schedule(life.later()))
    finally:
        done.set()
        watcher.join()
    assert wrong == []


# -- the log -------------------------------------------------------------------------------------------------------


def test_a_round_is_one_line_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    sched = small()
    with caplog.at_level(logging.DEBUG, "flowsched"):
        rnd = sched.schedule(0.0)
        sched.commit(rnd)
        sched.schedule(1.5)
    lines = [LINE.fullmatch(record.getMessage()) for record in caplog.records]
    assert [line and line.groups() for line in lines] == [("2", "0", "0", "1"), ("0", "0", "0", "1")]
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}
    assert "now=1.5 " in caplog.records[1].getMessage()


def test_nothing_is_logged_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    sched = small()
    with caplog.at_level(logging.INFO, "flowsched"):
        sched.commit(sched.schedule(0.0))
    assert not caplog.records


def test_the_log_is_silent_without_a_handler() -> None:
    code = """
import flowsched as fs
sched = fs.Scheduler(resources=("cpu",))
sched.on_round.append(lambda rnd: 1 / 0)
sched.schedule(0.0)
print(sched.metrics()["hook_errors_total"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_handler_that_raises_does_not_touch_a_round() -> None:
    class Broken(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise OSError("full")

    sched, logger, handler = small(), logging.getLogger("flowsched"), Broken()
    sched.on_round.append(lambda rnd: 1 / 0)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        assert len(sched.commit(sched.schedule(0.0)).accepted) == 2
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert sched.metrics()["hook_errors_total"] == 1


# -- hooks ---------------------------------------------------------------------------------------------------------


def test_hooks_are_called_in_order_with_the_round() -> None:
    sched, called = small(), []
    sched.on_round += [lambda rnd: called.append((1, rnd)), lambda rnd: called.append((2, rnd))]
    rnd = sched.schedule(0.0)
    assert called == [(1, rnd), (2, rnd)]
    sched.commit(rnd)
    sched.copy().schedule(1.0)
    sched.what_if(now=1.0)
    assert len(called) == 2


def test_a_hook_may_take_itself_out() -> None:
    sched, called = small(), []

    def once(rnd: fs.Round) -> None:
        called.append("once")
        sched.on_round.remove(once)

    sched.on_round += [once, lambda rnd: called.append("always")]
    for now in (0.0, 1.0):
        sched.schedule(now)
    assert called == ["once", "always", "always"]


@pytest.mark.parametrize(
    "call",
    [
        lambda sched, rnd: sched.schedule(0.0),
        lambda sched, rnd: sched.commit(rnd),
        lambda sched, rnd: sched.apply(fs.MachineAdded("n", {"cpu": 1})),
        lambda sched, rnd: sched.explain(0),
        lambda sched, rnd: sched.copy(),
        lambda sched, rnd: sched.snapshot(),
        lambda sched, rnd: setattr(sched, "policy", fs.Policy()),
    ],
)
@pytest.mark.parametrize("journal", [False, True])
def test_a_hook_must_not_call_the_scheduler(
    call, journal: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sched = small(journal=tmp_path / "journal" if journal else None)
    before = sched.policy
    sched.on_round.append(lambda rnd: call(sched, rnd))
    rnd = sched.schedule(0.0)
    (record,) = caplog.records
    assert record.exc_info is not None and record.exc_info[0] is fs.ConcurrentUseError
    assert (len(rnd.placements), list(sched.cluster.machines), sched.policy) == (2, ["m"], before)
    assert len(sched.commit(rnd).accepted) == 2


@pytest.mark.parametrize("journal", [False, True])
def test_what_ends_a_hook_leaves_the_scheduler_whole(journal: bool, tmp_path: Path) -> None:
    sched = small(journal=tmp_path / "journal" if journal else None)

    def stop(rnd: fs.Round) -> None:
        raise KeyboardInterrupt

    sched.on_round.append(stop)
    with pytest.raises(KeyboardInterrupt):
        sched.schedule(0.0)
    sched.on_round.clear()
    assert sched.metrics()["rounds_total"] == 1
    assert len(sched.commit(sched.schedule(0.0)).accepted) == 2


@pytest.mark.parametrize("seed", range(6))
def test_a_scheduler_decides_the_same_with_all_of_it(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain, watched = fs.Scheduler(), fs.Scheduler()
    watched.on_round += [lambda rnd: watched.metrics(), lambda rnd: list(rnd.waiting.items()), lambda rnd: 1 / 0]
    with caplog.at_level(logging.DEBUG, "flowsched"):
        live_alike(Life(seed), plain, (watched,), 40, [lambda sched: fs.Policy(locality=fs.Locality())])
    assert watched.metrics()["hook_errors_total"] == watched.metrics()["rounds_total"] > 0


def test_the_guide_has_a_row_for_every_metric() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "watch.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (?:`(\w+)`)? *\| (.+) \|$", page, re.MULTILINE)
    assert rows == [(m.name, m.kind, m.label, m.help.removesuffix(".")) for m in METRICS]
