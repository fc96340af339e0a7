"""The experiment: its workload is the source's as far as that is told, small runs are right, plots are drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import fgm as experiment
from bench.fgm import FgmOutcome, plot
from bench.fgm.schedulers import ABLATIONS, BASELINES, FLOW, GREEDY, Run, run_case
from bench.fgm.workload import BLOCK, Case, make


def test_the_workload_is_that_of_the_source() -> None:
    workload, execution = make(Case(20, online=True, cloud=True), seed=0)
    assert len(workload.machines) == 23
    assert dict(workload.machines[0].capacity) == {"cpu": 32, "mem": 32}
    assert workload.n_tasks == 20 / BLOCK
    assert execution.foreign
    times = [arrival.time for arrival in workload.arrivals]
    assert len(set(times)) == len(times)
    for arrival in workload.arrivals:
        for task, duration in zip(arrival.job.tasks, arrival.durations, strict=True):
            true = execution.stages[task.id]
            assert true.duration == duration
    again, _ = make(Case(20, online=True, cloud=True), seed=0)
    assert [a.job.id for a in again.arrivals] == [a.job.id for a in workload.arrivals]


def test_who_looks_at_memory_alone_asks_for_nothing_else() -> None:
    whole, part = make(Case(5), seed=0)[0], make(Case(5), seed=0, by_memory=True)[0]
    for arrival, same in zip(whole.arrivals, part.arrivals, strict=True):
        for task, alone in zip(arrival.job.tasks, same.job.tasks, strict=True):
            assert dict(alone.demand) == {"cpu": 0.0, "mem": task.demand["mem"]}
    twice = make(Case(5, memory=2.0), seed=0)
    assert twice[0].arrivals[0].job.tasks[0].demand["mem"] == 2 * whole.arrivals[0].job.tasks[0].demand["mem"]
    stages, doubled = make(Case(5), seed=0)[1].stages["j0.0"], twice[1].stages["j0.0"]
    np.testing.assert_allclose(doubled.demand, stages.demand * [1, 2])


@pytest.mark.long
def test_who_looks_at_memory_alone_contends_for_cpu() -> None:
    case = Case(60)
    runs = [run_case(case, "Fair", 0), run_case(replace(case, both=True), "Fair", 0), run_case(case, "DRF", 0)]
    assert [run.failures for run in runs] == [0, 0, 0]
    assert runs[0].large > 1.2 * max(runs[1].large, runs[2].large)


@pytest.mark.long
def test_without_its_parts_fgm_decides_as_drf() -> None:
    *_, last = ABLATIONS
    whole, without, drf = (run_case(Case(30), name, 0) for name in (GREEDY, f"{GREEDY}, {last}", "DRF"))
    assert without.makespan == drf.makespan
    assert whole.makespan < drf.makespan


@pytest.mark.parametrize("scheduler", [*BASELINES, FLOW, GREEDY, *(f"{FLOW}, {name}" for name in ABLATIONS)])
def test_a_small_run_ends_and_is_the_same_again(scheduler: str) -> None:
    first, second = (run_case(Case(1, online=True), scheduler, seed=1) for _ in range(2))
    assert first.wrong == ()
    assert (first.jobs == second.jobs).all()
    assert first.makespan == second.makespan
    assert first.makespan >= first.jobs.max()
    assert (first.jobs > 0).all()


@pytest.mark.long
def test_stages_that_need_different_resources_overlap() -> None:
    case = Case(30, four=True, both=True)
    workload, execution = make(case, seed=0)
    assert workload.resources == ("cpu", "mem", "disk", "net")
    stages = execution.stages["j0.0"].demand
    assert (stages.argmax(axis=0)[[0, 2, 3]] == [1, 2, 0]).all(), "each stage has a resource of its own"
    less = f"{GREEDY}, without compression and stages"
    whole, coarse, drf = (run_case(case, name, 0).makespan for name in (GREEDY, less, "DRF"))
    assert whole < coarse < drf


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.long
def test_every_setting_tells_the_order_of_the_baselines(monkeypatch: pytest.MonkeyPatch, quick: bool) -> None:
    """The source's order stands beside each; jobs of one size have a second seed in a full run."""
    taken = dict(zip((GREEDY, FLOW, "DRF", "FIFO", "Capacity", "Fair"), (6.0, 7.0, 8.0, 10.0, 10.5, 14.0), strict=True))
    seeds = []

    def simulated(
        outcome: FgmOutcome, cases: Iterable[Case], names: Iterable[str], seed: int, say: object
    ) -> dict[tuple[Case, str], Run]:
        seeds.append(seed)
        runs = {
            name: Run(taken.get(name, 9.0) * np.array([0.5, 1.5]), 1.0, 1.0, 1.0, 20.0, 1.0, 1.0, 1.0, 0, ())
            for name in names
        }
        return {(case, name): run for case in cases for name, run in runs.items()}

    monkeypatch.setattr(experiment, "_simulated", simulated)
    for name in ("measure_matching", "measure_rounds"):
        monkeypatch.setattr(experiment, name, lambda outcome, **how: None)
    outcome = experiment.run(quick=quick, seed=3, say=lambda line: None)
    orders = [row for row in outcome.rows if row.metric == "baselines by job completion"]
    assert {row.value for row in orders} == {row.source_value for row in orders} == {"DRF < FIFO < Capacity < Fair"}
    ordered = [row.setting for row in orders if "jobs alike, contention 1.9" in row.setting]
    assert [name.split(",")[:2] for name in ordered[:3]] == [
        ["offline", " dedicated"],
        ["online", " dedicated"],
        ["online", " cloud"],
    ]
    assert len(ordered) == (3 if quick else 4) and sum(name.endswith("seed 4") for name in ordered) == len(ordered) - 3
    assert seeds == [3, 3, 3] + [4] * (not quick)
    gain = next(row for row in outcome.rows if row.metric == f"{GREEDY}: gain in job completion over Fair")
    assert gain.value == pytest.approx(100 * (1 - 6 / 14))


@pytest.mark.long
def test_plots(tmp_path: Path) -> None:
    cases = [Case(1.0), *(Case(v, online=True, cloud=c) for v, c in ((1.0, False), (2.0, True)))]
    result = run_case(Case(0.5), "DRF", seed=0)
    outcome = FgmOutcome(runs={(case, name): result for case in cases for name in ("DRF", FLOW)})
    files = plot(outcome, tmp_path)
    assert len(files) == 5
    assert all(file.stat().st_size > 5000 for file in files)
    assert np.isfinite(result.decision)
