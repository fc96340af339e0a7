"""Statements of the publications: each can hold or fail on rows, or names a reason or a test; the stored rows answer all."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench import NAMES
from bench.rows import Row
from bench.statements import PUBLICATIONS, STATEMENTS, Rows, Statement, judged

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs" / "benchmarks" / "data"
JUDGED = [one for one in STATEMENTS if one.judge is not None]


@cache
def stored(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    return rows


def test_a_statement_has_a_judge_a_test_or_a_reason() -> None:
    assert {one.experiment for one in STATEMENTS} == PUBLICATIONS.keys() <= set(NAMES)
    assert len({(one.experiment, one.where, one.text) for one in STATEMENTS}) == len(STATEMENTS)
    for one in STATEMENTS:
        assert (one.judge is not None) + bool(one.test) == 1 or (one.why and one.verdict([])[0] is None), one
        path, _, name = one.test.partition("::")
        assert not path or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), one.test


class Seen(Rows):
    """Rows that record which of them a judge looks at."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(rows)
        self.seen: list[Mapping[str, Any]] = []

    def find(self, setting: str, metric: str, note: str = "") -> list[Mapping[str, Any]]:
        found = super().find(setting, metric, note)
        self.seen += [row for row in found if row not in self.seen]
        return found


MISSING = {("sirius", "Section 3.2"), ("fgm", "Figure 12"), ("fgm", "Figure 15")}
"""Statements without rows in the stored runs: an input that is not at hand, or an older run."""


@pytest.mark.parametrize("one", JUDGED, ids=lambda one: f"{one.experiment}, {one.where}: {one.text[:40]}")
def test_each_judge_can_say_either(one: Statement) -> None:
    """Other figures in the rows of a judge make its statement hold in some cases and fail in others."""
    assert one.judge is not None and one.verdict([])[0] is None
    rows = Seen(stored(one.experiment))
    verdict = one.judge(rows)
    if verdict is None:
        assert (one.experiment, one.where) in MISSING
        return
    if one.text.startswith("mean job: by about 31"):
        return  # four figures at once: the next test
    rng = random.Random(one.text)
    for _ in range(2000):
        draw = rng.choice(
            (_same(rng), lambda value: value * 10 ** rng.uniform(-2, 2), lambda value: rng.uniform(-40, 120))
        )
        names = ("value", "baseline", "ratio", "note")
        drawn = [row | {name: _drawn(row[name], draw) for name in names} for row in map(dict, rows.seen)]
        if rng.random() < 0.1:  # the publication's own figures
            drawn = [row if row["source_value"] is None else row | {"value": row["source_value"]} for row in drawn]
        other = one.judge(Rows(drawn))
        if other is not None and other[0] != verdict[0]:
            return
    raise AssertionError("always the same verdict")


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.4, True), (1.6, False), (0.6, False)])
def test_four_gains_are_judged_together(factor: float, holds: bool) -> None:
    one = next(one for one in JUDGED if one.text.startswith("mean job: by about 31"))
    gains = {"FIFO": 30.92, "Capacity": 34.49, "Fair": 52.09 / factor, "DRF": 19.97 * factor}
    seconds = {"FGM greedy": 1.0} | {name: 1 / (1 - gain / 100) for name, gain in gains.items()}
    rows = [
        Row("fgm", "offline, dedicated, 400 GB", f"{name}: mean job completion", value).as_dict()
        for name, value in seconds.items()
    ]
    assert one.verdict(rows)[0] is holds


def _same(rng: random.Random) -> Callable[[float], float]:
    """Return a rule that gives all figures one value, or one factor."""
    figure = rng.choice((0.001, 0.01, 0.5, 0.9, 1.0, 1.1, 1.2, 2.0, 2.5, 15.0, 45.0, 100.0, 1000.0))
    return (lambda value: figure) if rng.random() < 0.5 else (lambda value: value * figure * rng.choice((1, -1)))


def _drawn(value: Any, draw: Callable[[float], float]) -> Any:
    if isinstance(value, float | int):
        return draw(value)
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"-?[\d.]+ to -?[\d.]+", value):
        low, high = sorted(draw(float(part)) for part in value.split(" to "))
        return f"{low:.1f} to {high:.1f}"
    if re.search(r"CS [\d.]+$", value):
        return f"CS {draw(float(value.rpartition(' ')[2])):.2f}"
    return value[::-1] if "/" in value or value.isupper() else value


def test_failures_come_first() -> None:
    for name in PUBLICATIONS:
        order = [{False: 0, True: 1, None: 2}[verdict] for _, (verdict, _) in judged(name, stored(name))]
        assert order == sorted(order) and len(order) == sum(one.experiment == name for one in STATEMENTS)
