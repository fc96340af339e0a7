"""Synthetic workloads: their distributions are those that are stated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flowsched.exceptions import InputError
from flowsched.scheduler import Scheduler
from flowsched.sim import SYNTHETIC, Simulation, Workload, load_trace, synthetic


def runs(work: Workload) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([d for a in work.arrivals for d in a.durations])


@pytest.mark.parametrize("name", SYNTHETIC)
def test_same_seed_same_workload_and_all_of_it_runs(name: str) -> None:
    small = {"tasks": 200, "scale": 0.1}
    work = synthetic(name, seed=3, **small)  # type: ignore[arg-type]
    assert work.arrivals == synthetic(name, seed=3, **small).arrivals != synthetic(name, seed=4, **small).arrivals  # type: ignore[arg-type]
    assert 150 < work.n_tasks <= 200
    metrics = Simulation(Scheduler(resources=work.resources), work).run()
    fits = sum(len(a.durations) for a in work.arrivals if len(a.durations) <= sum(m.capacity["cpu"] for m in work.machines) or name != "batch")  # type: ignore[call-overload]  # fmt: skip
    assert metrics.tasks["completed"] == fits
    assert load_trace(name).name == name


@pytest.mark.parametrize(
    ("name", "mean", "median"),
    [("poisson", 60, 60 * math.log(2)), ("bursts", None, 20 * 2 ** (1 / 1.5)), ("hrm", 15, 15)],
)
def test_run_times(name: str, mean: float | None, median: float) -> None:
    found = runs(synthetic(name, tasks=40_000))
    assert np.median(found) == pytest.approx(median, rel=0.03)
    assert mean is None or found.mean() == pytest.approx(mean, rel=0.03)
    assert len(found) == 40_000
    if name == "bursts":
        assert found.min() >= 20
        assert (found > 200).mean() == pytest.approx(0.1**1.5, rel=0.15)


def test_jobs_of_batch() -> None:
    work = synthetic("batch", tasks=100_000)
    log = np.log([a.durations[0] for a in work.arrivals])
    assert (log.mean(), log.std()) == (pytest.approx(5.8, abs=0.06), pytest.approx(1.2, abs=0.05))
    sizes, count = np.unique([len(a.durations) for a in work.arrivals], return_counts=True)
    assert sizes.tolist() == [1, 2, 4, 8, 16, 32]
    assert count / count.sum() == pytest.approx(np.full(6, 1 / 6), abs=0.02)
    assert all(a.job.gang == (len(a.durations) if len(a.durations) > 1 else None) for a in work.arrivals)
    factor = np.array([a.job.tasks[0].duration / a.durations[0] for a in work.arrivals])  # type: ignore[operator]
    assert 1 <= factor.min() < 1.01 < 2.99 < factor.max() <= 3


@pytest.mark.long
@pytest.mark.parametrize("name", ["poisson", "batch", "bursts"])
def test_the_load_is_the_load(name: str) -> None:
    """Work that arrives in a second, over the cores, with the mean run time that is stated."""
    work = synthetic(name, tasks=100_000, load=0.7, scale=0.5)
    mean = {"poisson": 60.0, "bursts": 60.0, "batch": math.exp(5.8 + 0.72)}[name]
    cores = sum(m.capacity["cpu"] for m in work.machines)  # type: ignore[call-overload]
    assert work.n_tasks * mean / work.arrivals[-1].time / cores == pytest.approx(0.7, rel=0.06)
    gaps = np.diff([a.time for a in work.arrivals])
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)  # as exponential gaps have it


def test_arguments_out_of_range() -> None:
    for arguments in ({"name": "x"}, {"name": "hrm", "load": 0.5}, {"name": "batch", "tasks": 0}, {"name": "batch", "load": 0},
                      {"name": "bursts", "scale": math.inf}, {"name": "poisson", "seed": -1}):  # fmt: skip
        with pytest.raises(InputError):
            synthetic(**arguments)  # type: ignore[arg-type]
