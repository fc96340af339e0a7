"""A table per task as a data frame or a file, and small tables as HTML."""

from __future__ import annotations

import csv
import html
import importlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flowsched.boundary.files import replace
from flowsched.exceptions import InputError

__all__ = ["check_table_file", "frame", "pairs_html", "write_table"]

_PARQUET = (".parquet", ".pq")


def frame(table: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns as a pandas DataFrame."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise ImportError("a data frame needs pandas: pip install pandas", name="pandas") from None
    return pandas.DataFrame(dict(table))


def check_table_file(path: str | Path) -> None:
    """Raise ImportError if a file of this name cannot be written with the packages that are installed."""
    if Path(path).suffix in _PARQUET:
        _parquet()


def write_table(table: Mapping[str, Sequence[Any]], path: str | Path) -> None:
    """Write columns to a file, whole or not at all: Parquet if its name ends with .parquet or .pq, or else CSV.

    Ids of tasks, jobs, users and machines are text in both.  CSV joins devices by ``|`` and has no nan.

    Parameters
    ----------
    table : mapping of str to sequence
        `Metrics.table`.
    path : path

    Raises
    ------
    ImportError
        Parquet needs PyArrow, which is missing.
    InputError
        The columns differ in length.
    """
    if len({len(column) for column in table.values()}) > 1:
        raise InputError("table: columns of one length expected")
    if Path(path).suffix in _PARQUET:
        arrow, parquet = _parquet()
        columns = {name: _typed(name, list(column), arrow) for name, column in table.items()}
        sink = arrow.BufferOutputStream()
        parquet.write_table(arrow.table(columns), sink)
        replace(path, sink.getvalue().to_pybytes())
        return
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table)
    for row in zip(*table.values(), strict=True):
        writer.writerow(["|".join(map(str, c)) if isinstance(c, tuple) else "" if c != c else c for c in row])
    replace(path, out.getvalue())


def _parquet() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ImportError("a Parquet file needs PyArrow: pip install pyarrow", name="pyarrow") from None


def _typed(name: str, column: list[Any], arrow: Any) -> Any:
    """Return a column of one type whatever the ids are; nan becomes null."""
    if name in ("task", "job", "user", "machine", "state"):
        return arrow.array([None if value is None else str(value) for value in column], arrow.string())
    if name == "devices":
        return arrow.array([None if value is None else list(value) for value in column], arrow.list_(arrow.int32()))
    if name in ("starts", "preempted"):
        return arrow.array(column, arrow.int64())
    return arrow.array([None if value != value else value for value in column], arrow.float64())


def pairs_html(title: str, rows: Mapping[str, str]) -> str:
    """Return a titled table of two columns."""
    body = "".join(
        f"<tr><th style='text-align:left'>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows.items()
    )
    return f"<table><caption>{html.escape(title)}</caption><tbody>{body}</tbody></table>"
