"""Log-log plots of the solver's rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.rows import Outcome, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

_COLOURS = ("#2563c9", "#d9730d", "#16806a", "#8a4fbf", "#b3364f", "#66717e")
_STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e8ee",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}
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
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    written: list[Path] = []
    with rc_context(_STYLE):
        for name, paint in (("round_by_change", _by_change), ("round_by_size", _by_size), ("cold", _cold)):
            figure = Figure(figsize=(8.5, 5.2), layout="constrained")
            if paint(outcome.rows, figure):
                written.append(folder / f"{name}.svg")
                figure.savefig(written[-1])
    return written


def _by_change(rows: list[Row], figure: Figure) -> bool:
    """Plot flowsched solid, the best peer dashed, a colour for each load."""
    lines: dict[str, list[tuple[int, float, float | None]]] = {}
    for row in rows:
        match = _ROUND.match(row.setting)
        if match and row.metric == "round" and row.note.startswith("best peer"):
            lines.setdefault(match["load"], []).append((int(match["k"]), _number(row.value), _maybe(row.baseline)))
    axes = _axes(figure, "A round of change", "k: tasks that leave, and that arrive", "median")
    for colour, (load, points) in zip(_COLOURS, lines.items(), strict=False):
        points.sort()
        axes.plot([p[0] for p in points], [p[1] for p in points], "o-", color=colour, label=load)
        theirs = [(p[0], p[2]) for p in points if p[2] is not None]
        axes.plot([p[0] for p in theirs], [p[1] for p in theirs], "s--", color=colour, alpha=0.55, markersize=4)
    axes.plot([], [], "s--", color=_COLOURS[-1], label="best other solver, same load", markersize=4)
    figure.legend(loc="outside right upper", title="machines x slots, tasks")
    return bool(lines)


def _by_size(rows: list[Row], figure: Figure) -> bool:
    points = []
    for row in rows:
        match = _SIZE.match(row.setting)
        if match and row.metric == "round by size":
            points.append((int(match["machines"].replace(",", "")), _number(row.value)))
    axes = _axes(figure, "One task leaves, one arrives, at 97 % load", "machines", "median")
    points.sort()
    if points:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, "o-", color=_COLOURS[0], label="flowsched")
        axes.plot(x, [y[0] * size / x[0] for size in x], ":", color=_COLOURS[-1], label="in proportion to the cluster")
        axes.legend(loc="upper left")
    return bool(points)


def _cold(rows: list[Row], figure: Figure) -> bool:
    """Plot the ratio of the best peer's time to flowsched's for each network, build included."""
    found = [row for row in rows if row.metric == "build included" and row.note.startswith("best peer")]
    found = [row for row in found if "NetworkX" not in row.note]  # which is Python, and far slower
    found = sorted((row for row in found if row.ratio is not None), key=lambda row: row.ratio or 0.0)
    if not found:
        return False
    figure.set_size_inches(8.5, 1.2 + 0.24 * len(found))
    axes: Axes = figure.add_subplot()
    names = [row.setting.removesuffix(", cold") for row in found]
    ratios = [row.ratio or 0.0 for row in found]
    colours = [_COLOURS[0] if ratio >= 1 else _COLOURS[4] for ratio in ratios]
    axes.hlines(range(len(found)), 1, ratios, color=colours, linewidth=2)
    axes.scatter(ratios, range(len(found)), color=colours, zorder=3)
    axes.axvline(1, color=_COLOURS[-1], linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(found)), names)
    axes.set_title("Cold solve, build included", loc="left", fontweight="bold")
    axes.set_xlabel("best other solver's time / ours (right of the line: ours is faster)")
    return True


def _axes(figure: Figure, title: str, x: str, y: str) -> Axes:
    from matplotlib.ticker import EngFormatter, NullFormatter, StrMethodFormatter

    axes: Axes = figure.add_subplot()
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_formatter(EngFormatter("s"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(title, loc="left", fontweight="bold")
    return axes


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"a number expected, got {value!r}")
    return float(value)


def _maybe(value: object) -> float | None:
    return None if value is None else _number(value)
