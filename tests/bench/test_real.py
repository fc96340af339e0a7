"""The benchmark with real processes: its tasks, its rows, and the same workloads in the simulator."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("psutil")

import bench.real as experiment
from bench.real import COLD_FGM, REQUESTS, SLURM, WARM_FGM, Measured, cases
from bench.rows import Outcome
from flowsched.fgm import Stages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are measured on Linux")

TASK = Path(experiment.__file__).with_name("task.py")


@pytest.mark.parametrize("words", [("busy", "0.1", "0.5"), ("grow", "0.1", "5")])
def test_a_task_ends(words: tuple[str, ...]) -> None:
    assert subprocess.run([sys.executable, "-I", "-S", str(TASK), *words], check=False).returncode == 0


@pytest.mark.parametrize("learns", [False, True])
def test_a_run_leaves_its_times(tmp_path: Path, learns: bool) -> None:
    case = replace(cases(True)[0], count=3, command="sleep 0.1")
    estimator = experiment._estimator() if learns else None
    began = asyncio.run(experiment._by_driver(case, tmp_path, estimator, None))
    measured = experiment._read(case, tmp_path, began)
    assert measured is not None and measured.makespan >= measured.completion >= measured.running > 0.05
    (tmp_path / "end.1").unlink()
    assert experiment._read(case, tmp_path, began) is None


def test_rows_compare_with_plain_requests_and_with_the_simulator() -> None:
    those = cases(False)
    found = {
        (case.name, system): [Measured(part * 30.0, part * 20.0, case.stages.duration) for _ in range(3)]
        for case in those
        for system, part in ((REQUESTS, 1.0), (COLD_FGM, 0.6), (WARM_FGM, 0.5), (SLURM, 1.1))
    }
    outcome = experiment._rows(Outcome(), those, found, [1.0, 2.0, 6.0])
    rows = {(row.setting, row.metric): row for row in outcome.rows}
    assert rows["idle, then busy", "FGM, warm: makespan"].ratio == 2
    assert rows["CPU-bound", "Slurm: mean completion"].baseline == 20
    simulated = {key: row.value for key, row in rows.items() if key[1].endswith("in the simulator")}
    assert simulated["idle, then busy", "requests: makespan in the simulator"] == pytest.approx(30, abs=1)
    assert float(simulated["idle, then busy", "FGM, warm: makespan in the simulator"] or 0) < 20
    assert simulated["CPU-bound", "requests: makespan in the simulator"] == pytest.approx(12, abs=0.5)
    assert "2.0 in the median" in outcome.notes[0]


def test_stages_of_the_workloads_peak_at_the_demand() -> None:
    for case in cases(False):
        assert isinstance(case.stages, Stages)
        peak = case.stages.peak.tolist()
        assert peak[0] <= case.demand["cpu"] and peak[1] <= case.demand["mem"]


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = {(case.name, REQUESTS): [Measured(30.0, 20.0, 6.0)] for case in cases(False)}
    (file,) = experiment.plot(experiment._rows(Outcome(), cases(False), found, []), tmp_path)
    assert file.stat().st_size > 3000
