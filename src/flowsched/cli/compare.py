"""``flowsched bench compare``: two measurements, row by row."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import click
from rich.table import Table
from rich.text import Text

from flowsched.cli import endings
from flowsched.experiments import stored
from flowsched.experiments.rows import shown

__all__ = ["compare"]

_WORSE = 1


@click.command("compare", cls=endings.Command)
@click.argument("before", metavar="A", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.argument("after", metavar="B", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option(
    "--worse-than",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Exit status 1 if a row of B is worse by more.",
)
@click.option(
    "--by",
    type=click.Choice(["value", "ratio"]),
    default="value",
    show_default=True,
    help="What is judged: the figure, or its ratio to the baseline of the same run.",
)
def compare(before: Path, after: Path, worse_than: float | None, by: Literal["value", "ratio"]) -> None:
    """Compare two measurements: rows of B beside those of A.

    A and B are files of `flowsched bench NAME --json`, or of pytest-benchmark. Rows are matched by experiment, setting
    and metric. The table has both values, both ratios to the baseline, and the change from A to B. Then come the rows
    of only one file, and what differs in the environments.

    On another machine, or a busy one, the ratios of a run are steadier than its values: judge --by ratio. A row for
    which nothing tells whether less or more is better is shown and not judged.

    \b
    Examples:
      flowsched bench compare before.json after.json
      flowsched bench compare before.json after.json --worse-than 10

    \b
    Exit status:
      0    done
      1    a row is worse by more than --worse-than
      2    the command line is wrong, or a file has no rows
      74, 130, 141  as `flowsched --help` says
    """
    one, other = stored.read(before), stored.read(after)
    found = stored.pairs(one, other)
    out = endings.Out(width=180)
    grid = Table(box=None, pad_edge=False)
    columns = ["setting", "metric", "A", "B", "ratio A", "ratio B", "change", ""]
    for i, column in enumerate(columns):
        numbers = 2 <= i <= 6
        grid.add_column(column, justify="right" if numbers else "left", header_style="dim", no_wrap=numbers)
    worse = 0
    for pair in found:
        loss = pair.loss(by)
        bad = worse_than is not None and loss is not None and loss > worse_than
        worse += bad
        cells = [
            pair.before.setting,
            pair.before.metric,
            *_values(pair),
            _percent(pair.change(by)),
            "worse" if bad else "",
        ]
        grid.add_row(*(Text(cell, style="red" if bad else "") for cell in cells))
    out.print(grid)
    for path, rows in ((before, one.rows.keys() - other.rows), (after, other.rows.keys() - one.rows)):
        for _, setting, metric in sorted(rows):
            out.print(f"Only in {path}: {setting}, {metric}", soft_wrap=True)
    for name, here, there in stored.differences(one.environment, other.environment):
        out.print(f"Environment: {name}: {_words(here)} in A, {_words(there)} in B", soft_wrap=True, style="dim")
    if worse_than is not None:
        endings.Words().print(f"{worse} of {len(found)} rows are worse by more than {worse_than:g} %", soft_wrap=True)
        if worse:
            sys.exit(_WORSE)


def _values(pair: stored.Pair) -> list[str]:
    """Return both values and both ratios as tables print them."""
    before, after = pair.before, pair.after
    return [shown(before.value, before.unit), shown(after.value, after.unit), shown(before.ratio), shown(after.ratio)]


def _percent(change: float | None) -> str:
    return "" if change is None else f"{change:+.1f} %"


def _words(value: Any) -> str:
    return "none" if value is None else str(value)
