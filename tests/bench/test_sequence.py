"""The sequence experiment in small: its tables, its simulation, its plots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import sequence as experiment


def test_the_tables_are_the_sources() -> None:
    outcome = experiment._Runs()
    experiment._tables(outcome)
    assert not outcome.wrong
    ours = [row.value for row in outcome.rows if row.value != row.source_value]
    assert ours == ["52/35", "76/40", "85/47"]  # where the source's own sums slip
    assert all(row.note for row in outcome.rows if row.value != row.source_value)


def test_a_wrong_table_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "_TABLE_1", [[2, 3]] * 8)
    outcome = experiment._Runs()
    experiment._tables(outcome)
    assert any("table 1" in line for line in outcome.wrong)


def test_the_sequence_keeps_the_proportions_and_rounding_does_not(tmp_path: Path) -> None:
    setting = replace(experiment._FIXED, horizon=400.0)
    runs = {
        "ours": experiment._simulate(setting, experiment._by_sequence(experiment._sharing(setting)), seed=1),
        "rounding": experiment._simulate(setting, experiment._proportional(setting.quotas, rest=False), seed=1),
    }
    ideal = np.array(setting.quotas) / sum(setting.quotas)
    assert abs(runs["ours"].shares(400.0) / ideal - 1).max() < 0.05
    assert abs(runs["rounding"].shares(400.0) / ideal - 1).max() > 0.3
    outcome = experiment._Runs(runs=[(setting, runs)])
    experiment._compare(outcome, setting, runs)
    assert not outcome.wrong
    assert [path.name for path in experiment.plot(outcome, tmp_path)] == ["sequence-1.svg"]
    # No overcommitment: at every start, the running tasks fit into all machines.
    for usage in runs.values():
        start, end, size = usage.tasks[:, 1], usage.tasks[:, 1] + usage.tasks[:, 2], usage.tasks[:, 3]
        assert all(size[(start <= at) & (at < end)].sum() <= 100 for at in start[::50])


@pytest.mark.long
def test_heartbeats_far_apart_let_the_sources_rule_keep_the_proportions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "_BEATS", (1.0, 20.0))
    outcome = experiment._Runs()
    experiment._beats(outcome, (0,))
    found = [row.value for row in outcome.rows]
    assert len(found) == 8 and all(isinstance(value, float) for value in found)
    ours, source, _, _, rare, rare_source, _, rare_rounding = found
    assert ours < 10 < source and max(rare, rare_source) < 5 < rare_rounding
