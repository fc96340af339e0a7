"""Stored measurements: read back, written in the form of pytest-benchmark, and compared row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from bench.rows import Row
from flowsched.exceptions import InputError

__all__ = ["Pair", "Stored", "as_pytest_benchmark", "differences", "pairs", "read"]

_FIELDS = {field.name for field in fields(Row)}
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Stored:
    """Rows of a file, by experiment, setting and metric, and the environment of their measurement.

    A metric may have a row for each peer; the first, of the best peer, stands for all.
    """

    rows: dict[Key, Row]
    environment: Mapping[str, Any]


@dataclass(frozen=True)
class Pair:
    """A row in both of two files."""

    before: Row
    after: Row

    def change(self, by: Literal["value", "ratio"] = "value") -> float | None:
        """Return the change from before to after in percent; None without two numbers."""
        before, after = getattr(self.before, by), getattr(self.after, by)
        if not isinstance(before, int | float) or not isinstance(after, int | float) or not before:
            return None
        return 100 * (after / before - 1)

    def loss(self, by: Literal["value", "ratio"] = "value") -> float | None:
        """Return the percentage by which the row is worse after; None if the better direction is unknown."""
        change, direction = self.change(by), "more" if by == "ratio" else self.before.direction
        if change is None or not direction:
            return None
        return change if direction == "less" else -change


def read(path: Path) -> Stored:
    """Read a file of ``python -m bench --json``, or of pytest-benchmark.

    Raises
    ------
    InputError
        The file is neither; the message names it, and the line where JSON ends.
    OSError
        It cannot be read.
    """
    try:
        found = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {error.lineno}: {error.msg}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text of JSON") from None
    try:
        if "benchmarks" in found:
            rows = [row for benchmark in found["benchmarks"] for row in _of_benchmark(benchmark)]
            environment = found.get("environment") or {
                "date": found.get("datetime"),
                "cpu": found.get("machine_info", {}).get("cpu", {}).get("brand_raw"),
                "commit": found.get("commit_info", {}).get("id"),
                "python": found.get("machine_info", {}).get("python_version"),
            }
        else:
            rows = [_row(row) for row in found["rows"]]
            environment = found.get("environment", {})
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f"{path}: no rows of `python -m bench` or pytest-benchmark in it ({error!r})") from None
    first: dict[Key, Row] = {}
    for row in rows:
        first.setdefault((row.experiment, row.setting, row.metric), row)
    return Stored(first, environment)


def pairs(before: Stored, after: Stored) -> list[Pair]:
    """Return the rows that are in both, in the order of the first."""
    return [Pair(row, after.rows[key]) for key, row in before.rows.items() if key in after.rows]


def differences(before: Mapping[str, Any], after: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield name and both values of each difference between two environments, except the date."""
    for key in dict.fromkeys([*before, *after]):
        one, other = before.get(key), after.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from differences(one, other, f"{name}{key}: ")
        elif one != other and key != "date":
            yield f"{name}{key}", one, other


def as_pytest_benchmark(facts: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """Return the rows that are seconds in the form of pytest-benchmark's JSON, each a benchmark of one round.

    Parameters
    ----------
    facts : mapping
        Of the measurement: ``experiment``, ``environment``.
    rows : sequence of Row
        The whole row is in ``extra_info``.
    """
    environment = facts["environment"]
    benchmarks, seen = [], set[Key]()
    for row in rows:
        key = (row.experiment, row.setting, row.metric)
        if row.unit == "s" and isinstance(row.value, int | float) and key not in seen:
            seen.add(key)
            benchmarks.append(_benchmark(row, row.value))
    return {
        "machine_info": {
            "node": "",
            "machine": environment["system"].rpartition(" ")[2],
            "system": environment["system"],
            "python_version": environment["python"].rpartition(" ")[2],
            "cpu": {"brand_raw": environment["cpu"], "count": environment["cores"]},
        },
        "commit_info": {"id": environment["commit"] or environment["flowsched"], "dirty": False},
        "benchmarks": benchmarks,
        "datetime": environment["date"],
        "version": "5.0.0",
        "environment": environment,
    }


def _benchmark(row: Row, seconds: float) -> dict[str, Any]:
    name = f"{row.setting}: {row.metric}"
    times = dict.fromkeys(("min", "max", "mean", "median", "q1", "q3", "ld15iqr", "hd15iqr", "total"), seconds)
    return {
        "group": row.setting,
        "name": name,
        "fullname": f"{row.experiment}::{name}",
        "params": None,
        "param": None,
        "extra_info": row.as_dict(),
        "options": {},
        "stats": times
        | {"stddev": 0, "rounds": 1, "iterations": 1, "iqr": 0, "iqr_outliers": 0, "stddev_outliers": 0}
        | {"outliers": "0;0", "ops": 1 / seconds if seconds else 0.0},
    }


def _of_benchmark(benchmark: Mapping[str, Any]) -> list[Row]:
    """Return the row that was written as a benchmark, or rows of the median and the mean of any other benchmark."""
    extra = benchmark.get("extra_info") or {}
    if "metric" in extra and "setting" in extra:
        return [_row(extra)]
    return [
        Row("pytest-benchmark", benchmark["fullname"], of, benchmark["stats"][of], unit="s")
        for of in ("median", "mean")
    ]


def _row(found: Mapping[str, Any]) -> Row:
    """Return a row with fields of the right types; TypeError otherwise."""
    row = Row(**{name: value for name, value in found.items() if name in _FIELDS})
    texts = (row.experiment, row.setting, row.metric, row.unit, row.note, row.better)
    figures = (row.value, row.baseline, row.source_value)
    if (
        not all(isinstance(text, str) for text in texts)
        or not all(figure is None or isinstance(figure, int | float | str) for figure in figures)
        or not (row.ratio is None or isinstance(row.ratio, int | float))
    ):
        raise TypeError(f"row {row.setting!r}, {row.metric!r}")
    return row
