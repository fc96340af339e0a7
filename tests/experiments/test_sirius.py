"""The flexibility experiment in small: its model, its baselines, its figures."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from flowsched import JobSubmitted, MachineAdded, Task, TaskCompleted
from flowsched.experiments import sirius as experiment
from flowsched.experiments.sirius import fairness, model, placement, priority
from flowsched.experiments.sirius.model import Kind, Load, RandomPlacement, Run
from flowsched.experiments.sirius.plots import Figures


def test_snp_by_hand() -> None:
    """Two jobs: one ideal, one that took four times as long as it could have: the geometric mean is 1/2."""
    kind = Kind("any", (1.0, 1.0))
    load = Load("two", [(0.0, kind, np.array([1.0, 2.0]), 0), (3.0, kind, np.array([1.0]), 0)])
    run = Run(load, np.zeros(3), np.array([1.0, 2.0, 7.0]))
    assert run.spent.tolist() == [1.0, 2.0, 4.0]
    assert run.snp() == pytest.approx(math.sqrt(1 / 4))


def test_speeds() -> None:
    assert Kind("g", (1, 1), gpu=True).speed("rack2") == pytest.approx(1 / 3)
    assert Kind("d", (1, 1), rack="rack2").speed("rack1") == 0.7
    assert Kind("d", (1, 1), rack="rack2").speed("rack2") == Kind("c", (1, 1)).speed("rack1") == 1.0


def test_random_keeps_to_slots() -> None:
    lots = RandomPlacement(seed=0)
    lots.apply(
        *(MachineAdded(f"m{i}", {"cpu": 1}, slots=1) for i in range(3)), JobSubmitted("j", [Task(i) for i in range(5)])
    )
    first = lots.schedule(0.0)
    lots.commit(first)
    assert sorted(first.placements.values()) == ["m0", "m1", "m2"]
    assert not lots.schedule(1.0).placements
    gone = next(iter(first.placements))
    lots.apply(TaskCompleted(gone))
    assert list(lots.schedule(2.0).placements.values()) == [first.placements[gone]]


def test_capacity_and_placement_beat_random(tmp_path: Path) -> None:
    outcome = Figures()
    load = fairness.jobs_of_load("mixed", fairness.BATCH + fairness.SERVICES, 12, 0.85, seed=1)
    ours = model.simulate(load, model.sirius(load), model.cores)
    lots = model.simulate(load, RandomPlacement(1), model.cores)
    assert 0 < lots.snp() < ours.snp() <= 1
    outcome.snp = {name: {"Sirius": ours.snp(), "random queue": lots.snp()} for name in ("batch", "service")}
    outcome.gpu = placement.measure_placement(outcome, seed=0)
    assert not outcome.wrong
    for count in (10, 20):
        assert outcome.gpu["Sirius"][count] == outcome.gpu["GPU machines only"][count] == (1.0, 0.0), "a place for each"
        assert 0 < outcome.gpu["random queue"][count][0] < 0.9
    for count in (30, 40):
        assert outcome.gpu["random queue"][count][0] < outcome.gpu["Sirius"][count][0] < 1
        assert outcome.gpu["Sirius"][count][1] < outcome.gpu["GPU machines only"][count][1]
    outcome.priority = {"Sirius, equal priority": {kind.name: 1.0 for kind in priority.LOADS}}
    assert len(experiment.plot(outcome, tmp_path)) == 4


def test_priority_frees_the_short_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "CORES", 5)
    monkeypatch.setattr(priority, "_EACH", 100)
    outcome = Figures()
    found = priority.measure_priority(outcome, seed=0)
    assert not outcome.wrong
    assert found["Sirius, TPC-H first"]["TPC-H"] < 1.0
    assert found["Sirius, equal priority"]["TPC-H"] > 5.0
