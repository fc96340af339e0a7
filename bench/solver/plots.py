"""Log-log plots of the solver's rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from bench.drawing import COLOURS, chart, write
from bench.rows import Outcome, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_ROUND = re.compile(r"(?P<load>.+), k = (?P<k>\d+)$")
_SIZE = re.compile(r"(?P<machines>[\d,]+) x 4, 97 % load, k = 1$")


def draw(outcome: Outcome, folder: Path) -> list[Path]:
    """Draw the rows.

    Parameters
    ----------
    outcome : Outcome
        Of `bench.solver.run`.
    folder : Path
        Exists.

    Returns
    -------
    list of Path
        The files written (SVG).
    """
    written: list[Path] = []
    for name, title, paint in (
        ("round_by_change", "A round of change", _by_change),
        ("round_by_size", "One task leaves, one arrives, at 97 % load", _by_size),
        ("cold", "Cold solve, build included", _cold),
    ):
        figure, (axes,) = chart(title)
        if paint(outcome.rows, axes):
            if axes.get_legend_handles_labels()[1]:
                figure.legend(loc="outside lower center", ncols=2)
            written.append(write(figure, folder, name))
    return written


def _by_change(rows: list[Row], axes: Axes) -> bool:
    """Plot flowsched solid, the best peer dashed, a colour for each load."""
    lines: dict[str, list[tuple[int, float, float | None]]] = {}
    for row in rows:
        match = _ROUND.match(row.setting)
        if match and row.metric == "round" and row.note.startswith("best peer"):
            lines.setdefault(match["load"], []).append((int(match["k"]), _number(row.value), _maybe(row.baseline)))
    _log_log(axes, "k: tasks that leave, and that arrive", "median")
    for colour, (load, points) in zip(COLOURS, lines.items(), strict=False):
        points.sort()
        axes.plot([p[0] for p in points], [p[1] for p in points], "o-", color=colour, label=load)
        theirs = [(p[0], p[2]) for p in points if p[2] is not None]
        axes.plot([p[0] for p in theirs], [p[1] for p in theirs], "s--", color=colour, alpha=0.55, markersize=4)
    axes.plot([], [], "s--", color=COLOURS[4], label="best other solver, same load", markersize=4)
    return bool(lines)


def _by_size(rows: list[Row], axes: Axes) -> bool:
    points = []
    for row in rows:
        match = _SIZE.match(row.setting)
        if match and row.metric == "round by size":
            points.append((int(match["machines"].replace(",", "")), _number(row.value)))
    _log_log(axes, "machines", "median")
    points.sort()
    if points:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, "o-", color=COLOURS[0], label="flowsched")
        axes.plot(x, [y[0] * size / x[0] for size in x], ":", color=COLOURS[4], label="in proportion to the cluster")
    return bool(points)


def _cold(rows: list[Row], axes: Axes) -> bool:
    """Plot the ratio of the best peer's time to flowsched's for each network, build included."""
    found = [row for row in rows if row.metric == "build included" and row.note.startswith("best peer")]
    found = [row for row in found if "NetworkX" not in row.note]  # which is Python, and far slower
    found = sorted((row for row in found if row.ratio is not None), key=lambda row: row.ratio or 0.0)
    if not found:
        return False
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.set_size_inches(4.8, 1.0 + 0.19 * len(found))
    names = [row.setting.removesuffix(", cold") for row in found]
    ratios = [row.ratio or 0.0 for row in found]
    colours = [COLOURS[0] if ratio >= 1 else COLOURS[1] for ratio in ratios]
    axes.hlines(range(len(found)), 1, ratios, color=colours, linewidth=2)
    axes.scatter(ratios, range(len(found)), color=colours, zorder=3)
    axes.axvline(1, color=COLOURS[4], linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(found)), names, fontsize=7.5)
    axes.set_xlabel("best other solver's time / ours")
    return True


def _log_log(axes: Axes, x: str, y: str) -> None:
    from matplotlib.ticker import EngFormatter, NullFormatter, StrMethodFormatter

    axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_formatter(EngFormatter("s"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"a number expected, got {value!r}")
    return float(value)


def _maybe(value: object) -> float | None:
    return None if value is None else _number(value)
