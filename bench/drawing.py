"""The style of all plots: one width, one set of colours, and one mark of published figures.

A plot is an SVG of 4.8 inches, whose text is still legible on a page of 390 pixels.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "PUBLISHED", "bars", "chart", "compact", "published", "style", "write"]

COLOURS = ("#2563c9", "#d9730d", "#16806a", "#8a4fbf", "#66717e", "#b08d57", "#111827")
PUBLISHED = "#b3364f"
"""The colour of published figures, and of nothing else."""

_WIDTH = 4.8

_LABELLED = 14
"""Bars up to which each has its figure."""

_STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e8ee",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.hashsalt": "flowsched",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style within the block."""
    import matplotlib
    from cycler import cycler

    with matplotlib.rc_context(_STYLE | {"axes.prop_cycle": cycler(color=COLOURS)}):
        yield


def chart(title: str, height: float = 3.3, panels: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure of panels below each other, or in `columns` that share an axis, with a title."""
    from matplotlib.figure import Figure

    rows = -(-panels // columns)
    figure = Figure(figsize=(_WIDTH, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=columns > 1)
    for spare in axes.flat[panels:]:
        spare.set_axis_off()
    figure.suptitle("\n".join(textwrap.wrap(title, 54)), x=0.02, ha="left", fontsize=10.5, fontweight="bold")
    return figure, list(axes.flat[:panels])


def write(figure: Figure, folder: Path, name: str) -> Path:
    """Write a figure as SVG."""
    path, out = folder / f"{name}.svg", io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    path.write_text(compact(out.getvalue()), encoding="utf-8")
    return path


def compact(svg: str) -> str:
    """Return a picture of Matplotlib in fewer bytes: without metadata and indentation, to a hundredth of a point."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(?<= d=")[^"]*|(?<=translate\()[^)]*|(?<= [xy]=")[^"]*', lambda found: _rounded(found[0]), svg)
    return re.sub(r">\s+<", ">\n<", svg)


def _rounded(numbers: str) -> str:
    text = re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), numbers)
    return " ".join(text.split())


def bars(
    axes: Axes,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    marks: Mapping[str, Sequence[float | None]] | None = None,
    said: str = "published",
    log: bool = False,
    legend: bool = True,
) -> None:
    """Draw groups of bars with their figures; `marks` has published figures of a series by group."""
    wide = 0.8 / len(series)
    shown = False
    for i, (name, values) in enumerate(series.items()):
        at = np.arange(len(groups)) + (i - (len(series) - 1) / 2) * wide
        drawn = axes.bar(at, values, wide * 0.92, label=name)
        if len(groups) * len(series) <= _LABELLED:
            axes.bar_label(drawn, fmt=lambda value: f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}", fontsize=8)
        for x, value in zip(at, (marks or {}).get(name, ()), strict=False):
            if value is not None and np.isfinite(value):
                ends = (x - wide * 0.55, x + wide * 0.55)
                axes.plot(ends, (value, value), color=PUBLISHED, linewidth=2, label="" if shown else said)
                shown = True
    axes.set_xticks(np.arange(len(groups)), groups, fontsize=8)
    axes.grid(visible=False, axis="x")
    if log:
        axes.set_yscale("log")
    axes.margins(y=0.12)
    figure = axes.get_figure()
    if legend and figure is not None:
        figure.legend(loc="outside lower center", ncols=2)


def published(axes: Axes, value: float | tuple[float, float], said: str, along: str = "y") -> None:
    """Draw a published figure as a line across the plot, or a range as a band."""
    if isinstance(value, tuple):
        (axes.axhspan if along == "y" else axes.axvspan)(*value, color=PUBLISHED, alpha=0.12, label=said)
    else:
        line = axes.axhline if along == "y" else axes.axvline
        line(value, color=PUBLISHED, linestyle=(0, (4, 2)), linewidth=1.4, label=said)
