"""The round experiment in small: its world adds up, its rows are there, a lie is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import round as experiment


def test_a_world_goes_on_as_it_should() -> None:
    world = experiment.LargeCluster(machines=80, tasks=800, seed=1)
    first = world.fill()
    assert first.started == 800 and sum(world.near) == 800
    for _ in range(3):
        times = world.exchange(0.1)
        assert set(times.phases) == set(experiment._PHASES)
        assert 0 < times.python < times.round
        assert times.started == 100, "two jobs for a tenth, in whole jobs of 50"
    assert len(world.running) == 800
    world.check_optimum()
    assert not world.wrong


def test_an_over_committed_machine_is_told() -> None:
    world = experiment.LargeCluster(machines=40, tasks=400)
    world._audit.free[:] = 0
    world.fill()
    assert any("above capacity" in line for line in world.wrong)


def test_a_task_that_starts_twice_or_ends_before_it_runs_is_told() -> None:
    audit = experiment._Audit(2)
    audit.add_job({"cpu": 1, "mem": 3})
    assert "does not run" in audit.move([(1, 0)], {})
    assert not audit.move([], {(1, 0): 0, (1, 1): 1})
    assert "runs" in audit.move([], {(1, 0): 1})
    assert not audit.move([(1, 0), (1, 1)], {})
    assert (audit.free == audit.free[0]).all()


@pytest.mark.long
def test_the_rows_and_the_plot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(experiment, "_SIZES", ((400, 4000), (800, 8000)))
    said: list[str] = []
    outcome = experiment.run(quick=True, say=said.append)
    assert not outcome.wrong
    assert len(said) == 4
    metrics = {row.metric for row in outcome.rows}
    assert {"memory of the process", "first round", "median: update", "median: solve", "median: read"} <= metrics
    assert {"Python (update, read) per changed task", "Python per changed task, growth"} <= metrics
    assert {"explain one of 20,000 waiting tasks, median", "the same without garbage collection"} <= metrics
    assert [path.name for path in experiment.plot(outcome, tmp_path)] == ["round.svg"]
