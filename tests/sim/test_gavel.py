"""Max-min fairness of effective throughput: the paper's example, optimality, and the scheduler that goes by it."""

from __future__ import annotations

import numpy as np
import pytest

import flowsched as fs
from flowsched.exceptions import InputError
from flowsched.sim import Simulation, Workload, scheduler, synthetic
from flowsched.sim.gavel import Gavel, max_min_throughput

pytest.importorskip("scipy")


#              V100  K80        V100  K80
#   job 0        4    1          5/11   0           every job has 12/11 of what equal shares give it:
#   job 1        3    1    ->    5/11  1/11         5/3, 4/3 and 1 steps a second
#   job 2        2    1          1/11 10/11
def test_the_example_of_the_paper() -> None:
    rates = np.array([[4.0, 1.0], [3.0, 1.0], [2.0, 1.0]])
    found = max_min_throughput(rates, [1, 1])
    assert found == pytest.approx(np.array([[5, 0], [5, 1], [1, 10]]) / 11, abs=1e-6)
    assert (found * rates).sum(axis=1) / (rates.sum(axis=1) / 3) == pytest.approx(12 / 11)


def test_jobs_beyond_the_bottleneck_are_raised() -> None:
    """Two jobs run on one type alone and share it; the third has the other to itself."""
    found = max_min_throughput([[1, 0], [1, 0], [1, 1]], [1, 1])
    assert found == pytest.approx(np.array([[0.5, 0], [0.5, 0], [0, 1]]), abs=1e-6)


def test_a_row_may_stand_for_equal_jobs() -> None:
    one = max_min_throughput([[2, 1]] * 3 + [[1, 1]], [1, 2], scale=[1, 1, 1, 2])
    row = max_min_throughput([[2, 1], [1, 1]], [1, 2], jobs=[3, 1], scale=[1, 2])
    rates = np.array([2, 1])
    assert (one[:3] @ rates).mean() == pytest.approx(row[0] @ rates)
    assert one[3].sum() == pytest.approx(row[1].sum())


@pytest.mark.parametrize("seed", range(8))
def test_no_job_can_be_raised_but_at_the_expense_of_one_that_has_less(seed: int) -> None:
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    n, types = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    rates = rng.uniform(0.2, 3.0, (n, types)) * (rng.random((n, types)) < 0.8)
    rates[:, 0] += 0.1
    workers, scale, weight = rng.integers(1, 4, types), rng.integers(1, 3, n), rng.uniform(0.5, 2, n)
    found = max_min_throughput(rates, workers, scale=scale, weight=weight)
    assert (found >= 0).all() and (found.sum(axis=1) <= 1 + 1e-6).all() and (scale @ found <= workers + 1e-6).all()
    equal = np.minimum(workers / scale.sum(), 1.0)
    equal /= max(equal.sum(), 1.0)
    worth = rates / ((rates @ equal) * weight)[:, None]
    levels = (worth * found).sum(axis=1)
    for job in range(n):
        rows, bounds = [], []
        for i in range(n):
            rows.append(np.eye(n)[i].repeat(types))
            bounds.append(1.0)
            if i != job and levels[i] <= levels[job] + 1e-7:
                rows.append(-np.eye(n)[i].repeat(types) * worth.ravel())
                bounds.append(-levels[i] + 1e-7)
        for t in range(types):
            rows.append((scale[:, None] * np.eye(types)[t]).ravel())
            bounds.append(float(workers[t]))
        best = linprog(-np.eye(n)[job].repeat(types) * worth.ravel(), np.array(rows), bounds)
        # What the solver gives up of others, 1e-7, may be worth thousands of times as much to this one.
        assert -best.fun == pytest.approx(levels[job], abs=2e-3)


@pytest.mark.parametrize(
    "arguments",
    [([[1.0, 2.0]], [1]), ([[0.0, 0.0]], [1, 1]), ([[-1.0]], [1]), ([[1.0]], [0]), ([[float("nan")]], [1])],
)
def test_what_is_no_input_is_refused(arguments: tuple[list[list[float]], list[float]]) -> None:
    with pytest.raises(InputError):
        max_min_throughput(*arguments)


def test_tasks_start_on_the_types_that_suit_them() -> None:
    """One kind is four times as fast on a V100, the other no faster: with room for half, each has its own type."""
    made = Gavel(("cpu", "gpu"), {"fast": {"V100": 4.0}})
    for i, model in enumerate(("V100", "K80")):
        made.apply(fs.MachineAdded(i, {"cpu": 8, "gpu": 4}, labels={"gpu_model": model}))
    for kind in ("slow", "fast"):
        tasks = [fs.Task(f"{kind}{i}", {"cpu": 1, "gpu": 1}, kind=kind) for i in range(4)]
        made.apply(fs.JobSubmitted(kind, tasks))
    found = made.schedule(0.0).placements
    assert {task: machine for task, machine in found.items() if str(task).startswith("fast")} == dict.fromkeys(
        (f"fast{i}" for i in range(4)), 0
    )
    assert sum(machine == 1 for machine in found.values()) == 4


@pytest.mark.long
@pytest.mark.parametrize(
    "work",
    [synthetic("demo", tasks=90, scale=0.5), synthetic("batch", tasks=150), Workload.model(tasks=50, scale=0.02)],
    ids=lambda work: work.name,
)
def test_it_runs_every_workload_to_the_end(work: Workload) -> None:
    metrics = Simulation(scheduler("gavel", work), work, interval=60.0, on_events=False).run(until=1e9)
    assert not metrics.tasks["waiting"] and metrics.tasks["completed"] + metrics.tasks["never_fits"] == work.n_tasks
