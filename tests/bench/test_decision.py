"""The decision experiment in small: its clusters are in balance, its rows are there, a lie is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import flowsched as fs
from bench import decision as experiment


def test_a_cluster_stays_in_balance() -> None:
    world = experiment.Balance(machines=50, tasks=100)
    assert len(world.running) == 100 and not world.waiting
    for changes in (1, 7):
        phases = world.exchange(changes)
        assert set(phases) == set(experiment._PHASES)
        assert min(phases.values()) > 0
    assert len(world.running) == 100
    assert not world.wrong


def test_a_full_cluster_starts_one_that_waits() -> None:
    world = experiment.Balance(20, 340, experiment._LARGER, {"cpu": 32, "mem": 128}, None, fs.Policy(preemption=None))
    assert world.waiting > 0
    for _ in range(20):
        world.exchange(1)
        assert len(world.running) + world.waiting == 340
    assert not world.wrong


@pytest.mark.long
def test_the_rows_and_the_plot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(experiment, "_WARM", 2)
    said: list[str] = []
    outcome = experiment.run(quick=True, say=said.append)
    assert not outcome.wrong
    rows = {(row.setting, row.metric): row for row in outcome.rows}
    assert ("1,000 machines, 2,000 tasks", "one task ends, one comes: a decision, median") in rows
    assert ("1,000 machines, 2,000 tasks, with a journal", "one task ends, one comes: commit") in rows
    assert rows["from 100 to 10,000 machines", "a decision after one event, growth"].direction == "less"
    assert rows["1,000 machines, 10,000 tasks at once", "apply, schedule and commit"].value
    assert any("snapshot" in metric for _, metric in rows)
    assert sum(metric == "all decisions" for _, metric in rows) == 2
    assert [path.name for path in experiment.plot(outcome, tmp_path)] == ["decision.svg"]
