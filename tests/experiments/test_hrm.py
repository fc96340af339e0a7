"""The HRM experiment without recorded inputs: finished rows are kept, and notes say what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowsched.experiments import hrm as experiment
from flowsched.experiments.hrm import clusters, machines
from flowsched.experiments.rows import Outcome, Row


@pytest.fixture(autouse=True)
def _no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their simulations have tests of their own."""
    for name in ("bursts", "rates", "lengths"):
        monkeypatch.setattr(clusters, name, lambda quick, seed, name=name: [Row("hrm", name, "delay", 1.0)])


def run(data: Path | None) -> Outcome:
    return experiment.run(quick=True, say=lambda line: None, data=data)


@pytest.mark.parametrize("given", [False, True])
def test_without_recorded_inputs(tmp_path: Path, given: bool) -> None:
    outcome = run(tmp_path if given else None)
    settings = [row.setting for row in outcome.rows]
    assert settings[:3] == ["bursts", "rates", "lengths"]
    assert "2 at once, sharing as fitted to two at once" in settings
    assert not any("training jobs" in setting for setting in settings)
    assert "9 batch jobs beside it, 60 drawn micro-batches" in settings
    assert "detection and word count together" in settings
    absent = [note for note in outcome.notes if "https://" in note]
    assert len(absent) == 2
    for note, place in zip(absent, ("stanford-futuredata/gavel", "Azure/AzurePublicDataset"), strict=True):
        assert place in note and note.startswith(f"no {tmp_path}" if given else "no --data")


def test_a_recorded_input_is_used_though_the_other_is_absent(tmp_path: Path) -> None:
    path = tmp_path / machines._REQUESTS
    path.parent.mkdir()
    lines = [f"2023-11-16 18:17:{10 + k:02}.9799600,{100 * (k + 1)},{k + 1}" for k in range(40)]
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(lines) + "\n")
    outcome = run(tmp_path)
    assert "9 batch jobs beside it, 4 micro-batches" in [row.setting for row in outcome.rows]
    assert len([note for note in outcome.notes if "https://" in note]) == 1


def test_drawn_micro_batches_go_by_the_seed() -> None:
    first, again, other = (machines.stream_latency(None, True, seed, []) for seed in (1, 1, 2))
    assert first == again != other
