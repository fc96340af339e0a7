"""Report of a comparison as one HTML file that contains its plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowsched.boundary.files import replace
from flowsched.sim.comparison import MEASURES, Comparison, heading, shown
from flowsched.sim.plots import Plot, svg
from flowsched.sim.report import figures, html_table, page, settings
from flowsched.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["comparison_report", "write_comparison"]

_COLOURS = (
    "#2563c9", "#d9730d", "#16806a", "#8a4fbf", "#b3364f", "#66717e", "#a38a00", "#0f8fb3", "#c94f9b", "#5d7a1f",
)  # fmt: skip
_CSS = """
thead th { padding-left: 16px; white-space: normal; vertical-align: bottom; }
.tables td { white-space: nowrap; }
.tables td.note { white-space: normal; }
"""
"""Rows of many figures."""

_BARS = (
    "wait, mean", "turnaround, mean", "bounded slowdown, mean", "end", "allocated, mean", "fragmented, mean", "reading, mean",
    "energy",
)  # fmt: skip


def write_comparison(comparison: Comparison, path: str | Path) -> None:
    """Write `comparison_report` to a file, whole or not at all.

    Raises
    ------
    ImportError
        Matplotlib is missing; the message says how to install it.
    """
    replace(path, comparison_report(comparison))


def comparison_report(comparison: Comparison) -> str:
    """Return the report of a comparison as HTML; plots are SVG images inside it."""
    title = f"Comparison on {comparison.facts.get('workload', 'a workload')}"
    done, wanted = len(comparison.outcomes), len(comparison.schedulers) * len(comparison.seeds)
    line = f"{len(comparison.schedulers)} schedulers, seeds {', '.join(map(str, comparison.seeds))}, the same arrivals for all"
    line += "" if comparison.whole else f"; interrupted after {done} of {wanted} runs"
    first = f"seed {comparison.seeds[0]}"
    waited = any(max(run.waiting[1], default=0) > 0 for run in comparison.outcomes)
    line += "" if waited or not done else "; no task waited"
    drawn: list[tuple[str, str, str, Callable[[Axes, Comparison], None]]] = [
        ("Waiting tasks", f"over time, {first}", "full", _waiting),
        ("Waiting time", f"tasks that waited at most so long, {first}", "full", _waits),
    ] * waited
    drawn += [
        (heading(m)[0].upper() + heading(m)[1:], "mean and range over seeds", "half", _bars(m))
        for m in _BARS
        if (waited or not m.startswith("wait")) and any(run.figures[m] > 0 for run in comparison.outcomes)
    ]
    plots = [
        Plot(name, caption, width, svg(comparison, width, fill))
        for name, caption, width, fill in drawn
        if comparison.outcomes
    ]
    facts = {**comparison.facts, "flowsched": __version__}
    body = f"""<section class="plots" style="margin-top: 28px">
{figures(plots)}
</section>
<section class="tables">
{"".join(map(html_table, comparison.tables()))}
{settings((name, _said(value)) for name, value in facts.items())}
</section>
<footer>Made by flowsched. Times are simulated but for decisions, which are this computer's.</footer>
"""
    return page(title, line, body, _CSS)


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _waiting(axes: Axes, comparison: Comparison) -> None:
    last = 0.0
    for (name, colour, (time, waiting), _), width in zip(_first(comparison), _widths(comparison), strict=False):
        axes.step(np.array(time) / 3600, waiting, where="pre", color=colour, label=name, linewidth=width)
        some = np.flatnonzero(waiting)
        last = max(last, time[min(some[-1] + 1, len(time) - 1)] / 3600 if len(some) else 0.0)
    axes.set_xlabel("simulated time (hours)")
    axes.set_ylabel("tasks")
    axes.set_ylim(0, max(axes.get_ylim()[1], 1.0) * 1.12)
    axes.set_xlim(0, 1.03 * last if last else None)  # afterwards nothing waits
    axes.legend(ncols=min(len(comparison.schedulers), 6), fontsize=8.5, loc="upper left")


def _waits(axes: Axes, comparison: Comparison) -> None:
    ends = [run.figures["end"] for run in comparison.outcomes]
    longest = max([1.0, *(end for end in ends if np.isfinite(end))])
    for (name, colour, _, waits), width in zip(_first(comparison), _widths(comparison), strict=False):
        share = np.linspace(0, 100, len(waits))
        known = np.isfinite(waits)
        # From no task to those that started; the line stays level, below 100, where some never did.
        time = np.r_[0.0, np.asarray(waits)[known], 1.15 * longest]
        part = np.r_[0.0, share[known], share[known][-1:] if known.any() else 0.0]
        axes.step(time, part, where="post", color=colour, label=name, linewidth=width)
    axes.set_xscale("symlog", linthresh=1.0, linscale=0.5)
    ticks = {
        0: "0",
        1: "1 s",
        10: "10 s",
        60: "1 min",
        600: "10 min",
        3600: "1 h",
        21600: "6 h",
        86400: "1 d",
        864000: "10 d",
    }
    axes.set_xticks([t for t in ticks if t <= longest * 1.2], [text for t, text in ticks.items() if t <= longest * 1.2])
    axes.set_xticks([], minor=True)
    axes.set_xlim(0, longest * 1.15)
    axes.set_ylim(0, 104)
    axes.set_xlabel("waiting time")
    axes.set_ylabel("tasks (%)")
    axes.legend(fontsize=8.5, loc="best", ncols=2)


def _bars(measure: str) -> Callable[[Axes, Comparison], None]:
    def fill(axes: Axes, comparison: Comparison) -> None:
        names = [name for name in comparison.schedulers if comparison.values(name, measure)]
        for at, name in enumerate(names):
            spread = comparison.spread(name, measure)
            colour = _COLOURS[comparison.schedulers.index(name) % len(_COLOURS)]
            mean = spread.mean if np.isfinite(spread.mean) else 0.0
            axes.barh(at, mean, color=colour, height=0.62)
            if np.isfinite(spread.most) and spread.most > spread.least:
                axes.plot([spread.least, spread.most], [at, at], color="#1d2733", linewidth=1.6, solid_capstyle="butt")
            axes.annotate(shown(spread.mean, measure), (max(mean, spread.most if np.isfinite(spread.most) else 0.0), at), xytext=(4, 0),
                          textcoords="offset points", va="center", fontsize=8.5)  # fmt: skip
        axes.set_yticks([])
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.grid(False)
        for at, name in enumerate(names):
            axes.annotate(
                name, (0, at), xytext=(-4, 0), textcoords="offset points", ha="right", va="center", fontsize=8.5
            )
        figure = axes.get_figure()
        assert figure is not None
        figure.subplots_adjust(left=0.27, bottom=0.03)
        axes.margins(x=0.22)
        axes.set_xlim(left=0)
        axes.invert_yaxis()

    assert measure in MEASURES
    return fill


def _widths(comparison: Comparison) -> list[float]:
    """Return widths of lines, each narrower than the one before, so that all are seen where they coincide."""
    return [float(width) for width in np.linspace(3.4, 1.1, max(len(comparison.schedulers), 2))]


def _first(comparison: Comparison) -> Iterator[tuple[str, str, Any, Sequence[float]]]:
    """Yield name, colour, waiting over time and waits of the runs of the first seed."""
    for run in comparison.outcomes:
        if run.seed == comparison.seeds[0]:
            colour = _COLOURS[comparison.schedulers.index(run.scheduler) % len(_COLOURS)]
            yield run.scheduler, colour, run.waiting, run.waits
