"""The backlog experiment in small."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench import backlog as experiment
from bench.rows import Outcome


def test_the_schedulers_are_compared_and_drawn(tmp_path: Path) -> None:
    outcome = Outcome()
    mix = experiment._backlog(random.Random(1), 25, lambda rng: rng.expovariate(1 / 60))
    experiment._compare(outcome, "small", [mix], lambda line: None)
    assert not outcome.wrong
    assert len(outcome.rows) == len(experiment._KINDS) * len(experiment._MEASURES)
    assert {row.setting for row in outcome.rows} == {f"small: {kind}" for kind in experiment._KINDS}
    assert [path.name for path in experiment.plot(outcome, tmp_path)] == ["backlog.svg"]


def test_run_times_known_protect_a_whole_machine() -> None:
    stream = experiment._stream(random.Random(0), 10)
    outcome = Outcome()
    waits = {
        kind: experiment._figures(outcome, "stream", stream, experiment._KINDS[kind])[-1]
        for kind in ("flowsched, run times known", "first fit")
    }
    assert waits["flowsched, run times known"] < waits["first fit"]


def test_what_does_not_end_is_told() -> None:
    mix = experiment._backlog(random.Random(1), 50, lambda rng: 10.0)
    stuck = experiment.replace(mix, machines=mix.machines[:0])
    outcome = Outcome()
    experiment._figures(outcome, "stuck", stuck, experiment._KINDS["first fit"])
    assert outcome.wrong


@pytest.mark.parametrize("name", sorted(experiment._MIXES))
def test_mixes_are_the_same_for_the_same_seed(name: str) -> None:
    first, second = (experiment._MIXES[name](random.Random(3), 20) for _ in range(2))
    assert first.arrivals == second.arrivals


def test_without_recorded_inputs_a_note_names_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "_MIXES", {"small": lambda rng, part: experiment._backlog(rng, 5, lambda _: 10.0)})
    kept = []
    outcome = experiment.run(quick=True, say=lambda line: None, keep=kept.append)
    assert kept[0]() is outcome
    assert {row.setting.partition(":")[0] for row in outcome.rows} == {"small"}
    assert any("--data" in note and "openb" in note for note in outcome.notes)
    assert any("--data" in note and "google2011" in note for note in outcome.notes)


def test_a_recorded_trace_is_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Written here in the form of the Google trace: three machines, six tasks, of which one fits nowhere."""
    monkeypatch.setattr(experiment, "_MIXES", {})
    folder = tmp_path / "google2011"
    folder.mkdir()
    (folder / "machine_events.csv").write_text("".join(f"0,{i},0,p,0.5,0.25\n" for i in range(3)))
    lines = []
    for i in range(6):
        cpu = 0.9 if i == 5 else 0.25
        lines += [f"{(t + i) * 10**6},,{i},0,,{kind},user,3,9,{cpu},0.1,0,0" for t, kind in ((0, 0), (1, 1), (9, 4))]
    (folder / "task_events.csv").write_text("\n".join(lines) + "\n")
    outcome = experiment.run(quick=True, say=lambda line: None, data=tmp_path)
    assert not outcome.wrong
    settings = {row.setting for row in outcome.rows}
    assert settings == {f"Google 2011, the first 5 tasks at once on 3 machines: {kind}" for kind in experiment._KINDS}
    started = {row.value for row in outcome.rows if row.metric == "tasks started in the first round"}
    assert started == {5}
    assert any("openb" in note for note in outcome.notes)
