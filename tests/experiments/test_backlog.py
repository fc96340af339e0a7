"""The backlog experiment in small."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flowsched.experiments import backlog as experiment
from flowsched.experiments.rows import Outcome


def test_the_schedulers_are_compared_and_drawn(tmp_path: Path) -> None:
    outcome = Outcome()
    mix = experiment._backlog(random.Random(1), 25, lambda rng: rng.expovariate(1 / 60))
    experiment._compare(outcome, "small", [mix], lambda line: None)
    assert not outcome.wrong
    assert len(outcome.rows) == len(experiment._KINDS) * len(experiment._MEASURES)
    assert {row.setting for row in outcome.rows} == {f"small: {kind}" for kind in experiment._KINDS}
    assert [path.name for path in experiment.plot(outcome, tmp_path)] == ["backlog.png"]


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
