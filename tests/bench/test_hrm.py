"""The HRM experiment without recorded inputs: finished rows are kept, and notes say what is left out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import hrm as experiment
from bench.hrm import clusters, frameworks, machines, mixed, plots
from bench.rows import Outcome, Row
from flowsched.exceptions import FlowschedError

_PROCESSES = machines.processes
_INTERFERENCE = machines.interference
_ALONE = machines.stream_alone
_MIXED = mixed.mixed
_FRAMEWORKS = frameworks.frameworks
_STREAMS = clusters.streams


@pytest.fixture(autouse=True)
def _no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their simulations have tests of their own."""
    for name in ("bursts", "streams", "rates", "lengths"):
        monkeypatch.setattr(clusters, name, lambda quick, seed, name=name: [Row("hrm", name, "delay", 1.0)])
    monkeypatch.setattr(frameworks, "frameworks", lambda quick, seed: [])
    for name in ("processes", "interference"):
        monkeypatch.setattr(machines, name, lambda quick, notes: [])
    monkeypatch.setattr(machines, "stream_alone", lambda quick: [])
    monkeypatch.setattr(mixed, "mixed", lambda quick, notes: [])


def run(data: Path | None) -> Outcome:
    return experiment.run(quick=True, say=lambda line: None, data=data)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.long
def test_without_recorded_inputs(tmp_path: Path, given: bool) -> None:
    outcome = run(tmp_path if given else None)
    settings = [row.setting for row in outcome.rows]
    assert settings[:4] == ["bursts", "streams", "rates", "lengths"]
    assert "9 batch jobs next to it, 60 drawn micro-batches" in settings
    (absent,) = [note for note in outcome.notes if "https://" in note]
    assert "Azure/AzurePublicDataset" in absent and absent.startswith(f"no {tmp_path}" if given else "no --data")


def test_a_recorded_input_is_used(tmp_path: Path) -> None:
    path = tmp_path / machines._REQUESTS
    path.parent.mkdir()
    lines = [f"2023-11-16 18:17:{10 + k:02}.9799600,{100 * (k + 1)},{k + 1}" for k in range(40)]
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(lines) + "\n")
    outcome = run(tmp_path)
    assert "9 batch jobs next to it, 4 micro-batches" in [row.setting for row in outcome.rows]
    assert not any("https://" in note for note in outcome.notes)


@pytest.mark.skipif(sys.platform != "linux", reason="the agent runs on Linux only")
@pytest.mark.long
def test_processes_share_the_cores_of_this_machine() -> None:
    rows = _PROCESSES(True, [])
    assert [row.setting.split(", ")[1] for row in rows[::2]] == ["1 at once", "2 at once", "3 at once"] * 2
    assert [row.metric for row in rows] == ["seconds for all", "seconds for all, mean"] * 6
    assert all(row.value and row.note.startswith("measured") for row in rows)


@pytest.mark.skipif(sys.platform != "linux", reason="the agent runs on Linux only")
@pytest.mark.long
def test_interference_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    rows = _INTERFERENCE(True, notes)
    metrics = ["time, without stacking", "time, with stacking"]
    assert [row.metric for row in rows] == [*metrics, *(f"{name}, mean" for name in metrics)] * (len(rows) // 4)
    assert all(row.value and row.baseline and row.note.startswith("measured") for row in rows)
    monkeypatch.setattr(machines.os, "sched_getaffinity", lambda pid: {0})  # type: ignore[attr-defined]
    monkeypatch.setattr(machines, "_contended", lambda code, cpus, count, stacked: 1.0)
    assert len(_INTERFERENCE(True, notes)) == 8 and "one core" in notes[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="the agent runs on Linux only")
@pytest.mark.long
def test_the_use_of_cores_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 12 and Table 1: by a core that stands for the GPU, whatever one core does."""
    pytest.importorskip("psutil")
    notes: list[str] = []
    if len(os.sched_getaffinity(0)) > 1:
        rows = _MIXED(True, notes)
        assert len(rows) == 2 * 6 + 3 * 3 and len(notes) == 1
        assert all(row.value and row.note.startswith("measured") for row in rows)
        assert all(0 < row.value <= 110 for row in rows if row.unit == "%")  # type: ignore[operator]
    monkeypatch.setattr(mixed.os, "sched_getaffinity", lambda pid: {0})  # type: ignore[attr-defined]
    assert _MIXED(True, notes) == [] and "one core" in notes[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="the agent runs on Linux only")
def test_a_process_that_does_not_start_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psutil")
    monkeypatch.setattr(mixed, "_WORD_COUNT", "raise SystemExit(3)")
    with pytest.raises(FlowschedError, match="status=3"):
        mixed._window(0, [0], 0, 1, 0.0, 0.1)
    with pytest.raises(FlowschedError, match="does not start: c1"):
        mixed._window(0, [0], 0, 2, 0.0, 0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="the agent runs on Linux only")
@pytest.mark.long
def test_a_stream_alone_is_measured() -> None:
    row, mean = _ALONE(True)
    assert row.value and row.baseline and row.note.startswith("measured")
    assert (mean.metric, mean.value) == (f"{row.metric}, mean", row.value), "of one run"


def test_stream_jobs_wait_for_the_lock_one_after_the_other() -> None:
    (row,) = _STREAMS(True, 0)
    assert row.value and row.baseline and row.setting == "12 stream jobs x 40 on 210 machines"


@pytest.mark.long
def test_drawn_micro_batches_go_by_the_seed() -> None:
    first, again, other = (machines.stream_latency(None, True, seed, []) for seed in (1, 1, 2))
    assert first == again != other


def test_no_row_is_left_that_its_input_alone_decides() -> None:
    """Other batch jobs beside a stream change its latency without stacking, and not with it."""
    rows = machines.stream_latency(None, True, 0, [])
    ratio = [row.value for row in rows if row.metric == "without stacking against with"]
    assert ratio == sorted(ratio) and ratio[0] == pytest.approx(1.0) and ratio[-1] > 1.5  # type: ignore[type-var, operator]
    assert [row.metric for row in rows if row.baseline is not None and row.value == row.baseline] == []


@pytest.mark.long
def test_plots_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(frameworks, "PROGRAMS", {"Sort": (6, (1.0, 2.0))})
    outcome = Outcome(_FRAMEWORKS(True, 0) + machines.stream_latency(None, True, 0, []))
    where = "60 jobs x 40 on 1050 machines, random run times"
    outcome.rows.append(Row("hrm", where, "delay until running, worst", 1.0, 2.0))
    assert [file.stem for file in experiment.plot(outcome, tmp_path)] == ["hrm_bursts", "hrm_frameworks", "hrm_streams"]


def test_the_plot_of_bursts_names_every_cluster_and_every_baseline_once() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    rows = [
        Row("hrm", f"{jobs} jobs x 40 on {machines} machines, random run times", "delay until running, worst", 1.0, 2.0,
            note=f"baseline: one scheduler{queues}; 3 runs")
        for jobs, machines in ((60, 1050), (180, 1050), (36, 210))
        for queues in (", no queues", " with the same queues")
    ]  # fmt: skip
    axes = figure.add_subplot()
    assert plots._bursts(rows, axes)
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["60 jobs,\n1050 machines", "180 jobs,\n1050 machines", "36 jobs,\n210 machines"]
    (legend,) = figure.legends
    assert sorted(text.get_text() for text in legend.get_texts()) == [
        "one scheduler with the same queues", "one scheduler, no queues", "published", "six schedulers",
    ]  # fmt: skip


def test_yarn_by_hand() -> None:
    """Machine k's heartbeats are at k / 8 s: the master comes with the second one's, its first container a second later."""
    times = frameworks.Yarn([("Sort", 0.1, [4.0])], frameworks.fair).run()
    assert times.running.tolist() == [pytest.approx(0.125 + 1.0 - 0.1)]
    assert times.completion.tolist() == [pytest.approx(0.125 + 1.0 + 4.0 - 0.1)]
    # Eight heartbeats a second, one container each; the machine of the last one is told by the master's second heartbeat.
    slow = frameworks.Yarn([("Sort", 0.0, [4.0] * 12)], frameworks.fair, most=1).run()
    fast = frameworks.Yarn([("Sort", 0.0, [4.0] * 12)], frameworks.fair).run()
    assert (slow.running[0], fast.running[0]) == (2.0, 1.0)


def test_offers_by_hand() -> None:
    """Eight machines of 16 cores: the last of 129 containers waits for an end, and then for the offer at 3 s."""
    times = frameworks.Offers([("Sort", 0.1, [2.5] * 129), ("Sort", 0.2, [1.0])]).run()
    assert times.running.tolist() == [pytest.approx(2.9), pytest.approx(2.8)]
    assert times.completion.tolist() == [pytest.approx(5.4), pytest.approx(3.8)]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.long
def test_every_framework_runs_every_container_once(seed: int) -> None:
    jobs = frameworks.jobs_of_programs(6, 0.8, seed)
    longest = [max(seconds) for _, _, seconds in jobs]
    for times in (
        frameworks.Offers(jobs).run(),
        frameworks.Yarn(jobs, frameworks.capacity({}, {})).run(),
        frameworks.Yarn(jobs, frameworks.fair, 1).run(),
        frameworks._hrm(jobs),
    ):
        assert (times.running >= 0).all() and (times.completion >= np.array(longest) - 1e-9).all()
        assert (times.completion >= times.running).all()


@pytest.mark.long
def test_the_delay_is_no_function_of_the_interval_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load, jobs wait for places: the delay grows with the load at the same interval, for all."""
    low, high = (frameworks.jobs_of_programs(12, load, 1) for load in (0.2, 1.5))
    for make in (lambda jobs: frameworks.Offers(jobs).run(), frameworks._hrm):
        assert make(high).running.mean() > 1.5 * make(low).running.mean()
    monkeypatch.setattr(frameworks, "PROGRAMS", {"Sort": (6, (1.0, 2.0))})
    rows = _FRAMEWORKS(True, 0)
    assert len(rows) == 2 * (3 + 4) and all(row.value and row.ratio is not None for row in rows)
