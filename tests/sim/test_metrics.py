"""Metrics and what is made of them: JSON, tables of text, plots and the report."""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import Machine, Task
from flowsched.rounds import Reason, ReasonCode
from flowsched.scheduler import Scheduler
from flowsched.sim import Arrival, Metrics, Percentiles, Simulation, Workload, report, write_report
from flowsched.sim.metrics import WALL_CLOCK
from flowsched.sim.plots import _BINS, FORMATS, _thinned, draw
from flowsched.sim.summary import amount, duration, facts_line, tables


@pytest.fixture(scope="module")
def metrics() -> Metrics:
    big = Arrival(0.0, JobSubmitted("big", (Task("big", {"cpu": 999}),)), (5.0,))
    model = Workload.model(tasks=150, scale=0.02, load=1.3)
    work = replace(model, arrivals=[big, *model.arrivals])
    return Simulation(Scheduler(), work, facts={"policy": "spread"}).run()


@pytest.fixture(scope="module")
def nothing() -> Metrics:
    """A run in which nothing arrives."""
    work = Workload("empty <b>", [], [Machine("m", {"cpu": 1})], resources=("cpu",))
    return Simulation(Scheduler(resources=("cpu",)), work).run()


def test_account_sums_to_the_tasks(metrics: Metrics) -> None:
    account = metrics.account()
    assert sum(account.values()) == metrics.facts["tasks"] == 151
    assert account["waiting:NEVER_FITS"] == 1
    assert account["completed"] == metrics.tasks["completed"] > 0
    assert sum(n for k, n in account.items() if k.startswith("waiting:")) == len(metrics.reasons)


def test_json_is_strict_and_complete(metrics: Metrics, tmp_path: Path) -> None:
    metrics.to_json(tmp_path / "m.json")
    read = json.loads((tmp_path / "m.json").read_text(), parse_constant=pytest.fail)
    assert read["tasks"]["placed"] == metrics.placed
    assert read["series"]["used_gpu"] == metrics.series["used_gpu"].tolist()
    assert set(read["wall_clock"]["latency_seconds"]) == set(WALL_CLOCK) == set(read["wall_clock"]["rounds"])
    assert not set(WALL_CLOCK) & set(read["rounds"])
    assert "series" not in metrics.to_dict(series=False)


def test_json_of_nothing(nothing: Metrics) -> None:
    made = nothing.to_dict()
    assert made["wait_seconds"]["p99"] is None
    json.dumps(made, allow_nan=False)


def test_phases_add_up_to_no_more_than_the_round(metrics: Metrics) -> None:
    parts = sum(metrics.rounds[phase] for phase in ("update", "solve", "read"))
    assert (parts <= metrics.rounds["schedule"]).all()
    assert metrics.latency("solve").n == metrics.counts["rounds"]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_percentiles_are_ordered(values: list[float]) -> None:
    p = Percentiles.of(np.array(values))
    assert p.n == len(values)
    assert min(values) <= p.p50 <= p.p90 <= p.p99 <= p.max == max(values)


def test_waits_of_all_by_hand(metrics: Metrics) -> None:
    """Starts after 1, 3 and 6 s; others seen to wait for 2 and 6 s: 4/5 are left, 4/5 * 2/3, 4/5 * 2/3 * 1/2."""
    some = replace(metrics, waits=np.array([3.0, 1.0, 6.0]), unstarted=np.array([2.0, 6.0]))
    times, share = some.started_by()
    assert times.tolist() == [1, 3, 6]
    assert share == pytest.approx([1 / 5, 1 - 8 / 15, 1 - 4 / 15])
    every = some.wait_of_all()
    assert (every.n, every.mean, every.p50, every.p90, every.max) == (5, 3.6, 6, math.inf, math.inf)
    assert some.to_dict()["wait_seconds_of_all"]["p90"] == "inf"


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.lists(st.floats(0, 1e6), max_size=30))
def test_waits_of_all_are_no_shorter_than_those_of_the_started(
    metrics: Metrics, waits: list[float], unstarted: list[float]
) -> None:
    metrics = replace(metrics, waits=np.array(waits), unstarted=np.array(unstarted))
    times, share = metrics.started_by()
    assert (np.diff(times) > 0).all()
    assert (np.diff(np.r_[0.0, share]) >= 0).all()
    n = len(waits) + len(unstarted)
    for time, part in zip(times, share, strict=True):  # between no censored task starting and all starting at once
        assert sum(w <= time for w in waits) / n - 1e-9 <= part
    assert share[-1] <= 1 + 1e-9
    if not unstarted:
        assert share == pytest.approx([sum(w <= t for w in waits) / n for t in times])
        assert metrics.wait_of_all() == metrics.wait()
    elif max(unstarted) >= max(waits):
        assert share[-1] < 1


def test_the_run_counts_who_never_started(metrics: Metrics) -> None:
    arrived = metrics.facts["tasks"] - metrics.tasks["not_arrived"]
    assert metrics.placed + len(metrics.unstarted) == arrived
    assert metrics.unstarted.max() == pytest.approx(metrics.facts["end"])  # the one that never fits came at 0
    table = next(t for t in tables(metrics) if t.title.startswith("Waiting time"))
    assert [row[0] for row in table.rows] == [
        f"{metrics.placed:,} tasks that started",
        f"{len(metrics.unstarted):,} that never started, until the end",
        f"all {arrived:,} (Kaplan-Meier)",
        f"{metrics.wait_again().n:,} that were stopped, waiting again",
    ]
    assert table.rows[2][4] == f"> {duration(metrics.facts['end'])}"


def test_slowdown_and_waiting_again_by_hand() -> None:
    """One core: a runs from 0 to 10; b stops it, until 30; a begins again, until 130.  c waits from 40 on, for 1 s of work."""
    jobs = [("a", 0.0, 100.0, 5), ("b", 10.0, 20.0, 0), ("c", 40.0, 1.0, 5)]
    arrivals = [Arrival(at, JobSubmitted(n, (Task(n, {"cpu": 1}),), priority=p), (run,)) for n, at, run, p in jobs]
    work = Workload("three", arrivals, [Machine("m", {"cpu": 1})], resources=("cpu",))
    metrics = Simulation(Scheduler(resources=("cpu",)), work).run()
    assert metrics.table["waited"] == [20.0, 0.0, 90.0] and metrics.table["lost"] == [10.0, 0.0, 0.0]
    assert metrics.wait_again().n == 1 and metrics.wait_again().mean == 20.0
    assert metrics.slowdown().mean == pytest.approx((130 / 100 + 20 / 20 + 91 / 10) / 3)
    assert metrics.slowdown(shortest=1.0).max == 91.0
    cut = Simulation(Scheduler(resources=("cpu",)), work).run(until=25.0)
    assert cut.wait_again().mean == 15.0 and cut.slowdown().n == 0, "a waits again when the run ends"
    assert cut.table["waited"] == [15.0, 0.0]
    words = metrics._repr_html_()
    assert "Simulation of three" in words and "<td>1</td>" in words
    frame = pytest.importorskip("pandas") and metrics.to_frame()
    assert list(frame["end"]) == [130.0, 30.0, 131.0] and list(frame.columns) == list(metrics.table)


def test_percentiles_of_nothing() -> None:
    assert math.isnan(Percentiles.of(np.array([])).p50)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (3.2e-5, "32 µs"), (0.00123, "1.23 ms"), (0.25, "250 ms"), (1, "1 s"), (59.94, "59.9 s"),
        (119, "119 s"), (120, "2 min"), (7200, "2 h"), (86400, "24 h"), (172800, "2 d"), (12537496, "145 d"),
        (math.inf, "for ever"), (math.nan, "-"),
    ],
)  # fmt: skip
def test_durations_in_print(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (612028416, "MiB", "584 TiB"), (2048, "MiB", "2 GiB"), (10, "MiB", "10 MiB"),
        (6212, "GPUs", "6,212 GPUs"), (64.59, "GPUs", "64.59 GPUs"), (0.5, "", "0.5"),
    ],
)  # fmt: skip
def test_amounts_in_print(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text


def test_tables_name_the_reasons(metrics: Metrics) -> None:
    first = tables(metrics)[0]
    rows = {row[0].strip(): row[1:] for row in first.rows}
    assert rows["never fits"][0] == "1"
    assert rows["NEVER_FITS"][0] == "1"
    assert "no machine is large enough: cpu on " in rows["NEVER_FITS"][2]
    for table in tables(metrics):
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_facts_in_a_line(metrics: Metrics, nothing: Metrics) -> None:
    assert facts_line(metrics).startswith("30 machines, 151 tasks, policy spread, a round per event, ")
    assert facts_line(nothing).startswith("1 machines, 0 tasks, a round per event, 0 s simulated in ")
    held = replace(
        metrics, facts={**metrics.facts, "interval": 60.0, "on_events": False, "compress": 500.0, "hold": True}
    )
    assert "rounds every 60 s, " in facts_line(held)
    assert facts_line(held).endswith("arrivals 500 times as fast as recorded, no task ever ends")


class Page(HTMLParser):
    """Tags that are opened and closed in order, and what the page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_is_one_sound_file(metrics: Metrics, tmp_path: Path) -> None:
    write_report(metrics, tmp_path / "r.html")
    page = Page()
    page.feed((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert page.seen.count("img") == 8
    assert all(load.startswith("data:image/svg+xml;base64,") for load in page.loads)


def test_the_report_escapes_and_draws_even_nothing(nothing: Metrics) -> None:
    text = report(nothing)
    assert "empty &lt;b&gt;" in text
    assert "<b>empty" not in text


def test_tasks_that_wait_for_no_time_are_drawn() -> None:
    """A run that ends where it began has spans of no length."""
    job = JobSubmitted("j", [Task("never", {"cpu": 100})])
    work = Workload("never", [Arrival(0.0, job, (10.0,))], [Machine("m", {"cpu": 4})], resources=("cpu",))
    found = Simulation(Scheduler(resources=("cpu",)), work).run(100.0)
    assert len(found.unstarted) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(plot.image() for plot in draw(found))


@pytest.mark.long
def test_plots_are_the_same_each_time(metrics: Metrics) -> None:
    assert [p.image(form) for p in draw(metrics) for form in FORMATS] == [
        p.image(form) for p in draw(metrics) for form in FORMATS
    ]
    assert all(re.match(rb"<\?xml", p.image()) for p in draw(metrics))


def test_without_matplotlib_the_extra_is_named(metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'flowsched\[plot\]'"):
        report(metrics)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3 * _BINS))
def test_thinning_keeps_the_mean_and_the_extremes(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    time = np.cumsum(rng.exponential(size=n))
    values = rng.integers(0, 50, n).astype(float)
    end = time[-1] + 1.0
    at, low, mean, high = _thinned(time, values, end)
    assert len(at) == len(low) == len(mean) == len(high) <= _BINS + 1
    assert (low <= mean + 1e-6).all()
    assert (mean <= high + 1e-6).all()
    assert (low.min(), high.max()) == (values.min(), values.max())
    assert np.diff(at) @ mean[:-1] == pytest.approx(np.diff(np.r_[time, end]) @ values)


def test_metrics_are_shown_in_a_line(metrics: Metrics, nothing: Metrics) -> None:
    assert re.fullmatch(
        r"<Metrics of model of openb: 30 machines; tasks: \d+ completed, .*1 never fits; \d+ rounds>", repr(metrics)
    )
    assert repr(nothing) == f"<Metrics of empty <b>: 1 machines; tasks: none; {nothing.counts['rounds']:g} rounds>"


def test_what_stands_in_the_way_is_told_for_machines_that_there_are(metrics: Metrics) -> None:
    rare = Reason(ReasonCode.NO_FIT, {"8 cpu": {"cpu": 5, "held for others": 1}})
    often = Reason(ReasonCode.NO_FIT, {"8 cpu": {"cpu": 6}})
    some = replace(metrics, waiting={"NO_FIT": 3}, reasons={"a": rare, "b": often, "c": often})
    [tasks, *_] = tables(some)
    assert tasks.rows[-1] == ("  NO_FIT", "3", "1.99 %", "no machine has room now: cpu on 6 machines")
