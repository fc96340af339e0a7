"""Report of a simulation as one HTML file that contains its plots."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowsched.boundary.files import replace
from flowsched.sim.comparison import MEASURES, Comparison, heading, shown_mean
from flowsched.sim.metrics import Metrics
from flowsched.sim.plots import COLOURS, FORMATS, Plot, draw, wait_axis
from flowsched.sim.summary import Table, amount, bounded, duration, facts_line, resource_label, tables
from flowsched.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def write_report(metrics: Metrics, path: str | Path) -> None:
    """Write `report` to a file, whole or not at all.

    Raises
    ------
    ImportError
        Matplotlib is missing; the message says how to install it.
    """
    replace(path, report(metrics))


def write_plots(result: Metrics | Comparison, folder: str | Path) -> list[Path]:
    """Write each plot of a run or a comparison as SVG, PDF and PNG, named by its title; return the files.

    Raises
    ------
    ImportError
        Matplotlib is missing.
    OSError
        The folder or a file cannot be written.
    """
    plots = draw(result) if isinstance(result, Metrics) else draw_comparison(result)
    folder, written = Path(folder), []
    folder.mkdir(parents=True, exist_ok=True)
    for plot in plots:
        name = "_".join(re.findall(r"\w+", plot.title.lower()))
        for form in FORMATS:
            written.append(folder / f"{name}.{form}")
            replace(written[-1], plot.image(form))
    return written


def report(metrics: Metrics) -> str:
    """Return the report as HTML; plots are SVG images inside it."""
    cards = "\n".join(
        "<div><span>{}</span><strong>{}</strong><small>{}</small></div>".format(*map(html.escape, card))
        for card in _cards(metrics)
    )
    found = "\n".join(html_table(table) for table in tables(metrics))
    return page(
        f"Simulation of {metrics.facts['workload']}",
        facts_line(metrics),
        f"""<section class="cards">
{cards}
</section>
<section class="plots">
{figures(draw(metrics))}
</section>
<section class="tables">
{found}
{settings((name, _plain(value)) for name, value in metrics.facts.items())}
</section>
<footer>Made by flowsched. Version {__version__}. Times are simulated but for the decision latency, which is this computer's.</footer>
""",
    )


def page(title: str, line: str, body: str, css: str = "") -> str:
    """Return a page of HTML with a head."""
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title>
<style>{CSS}{css}</style>
<header><h1>{html.escape(title)}</h1><p>{html.escape(line)}</p></header>
{body}</html>
"""


def figures(plots: Iterable[Plot]) -> str:
    """Return plots as HTML, each an SVG image inside it."""
    return "\n".join(
        f'<figure class="{plot.width}">'
        f"<figcaption><b>{html.escape(plot.title)}</b> {html.escape(plot.caption)}</figcaption>"
        f'<img alt="{html.escape(plot.title)}" title="{html.escape(plot.detail)}" src="data:image/svg+xml;base64,{base64.b64encode(plot.image()).decode()}">'
        "</figure>"
        for plot in plots
    )


_SETTINGS = {
    "charge_solver": "decisions take simulated time", "end": "end of the simulation, in seconds",
    "interval": "seconds between rounds", "nothing_left": "ended when no work was left",
    "on_events": "a round after every event", "preempted": "work of a preempted task",
    "until": "end at the latest, in seconds",
}  # fmt: skip
"""Names of settings in a report, where they are not those of the options."""


def settings(facts: Iterable[tuple[str, str]]) -> str:
    """Return the settings of a run as a table of HTML."""
    rows = "".join(
        f"<tr><th>{html.escape(_SETTINGS.get(name) or name.replace('_', ' '))}</th><td class=note>{html.escape(value)}</td></tr>"
        for name, value in facts
    )
    return f'<div class="pairs"><h2>Settings</h2><table>{rows}</table></div>'


def _cards(metrics: Metrics) -> list[tuple[str, str, str]]:
    total = metrics.facts["tasks"]
    wait, latency = metrics.wait_of_all(), metrics.latency()
    nodes, arcs = (int(metrics.rounds[k].max(initial=0)) for k in ("nodes", "arcs"))
    cards = [
        (
            "tasks placed",
            f"{metrics.placed:,}",
            f"of {total:,}; {metrics.tasks['waiting'] + metrics.tasks['never_fits']:,} wait at the end",
        )
    ]
    units = metrics.facts.get("units", {})
    scarce = max(metrics.usage, key=lambda name: metrics.usage[name].mean, default=None)
    if scarce is not None:
        use = metrics.usage[scarce]
        cards.append(
            (
                f"{resource_label(scarce)} allocated",
                f"{100 * use.mean:.3g} %",
                f"mean; peak {100 * use.peak:.3g} % ({amount(use.peak_amount, units.get(scarce, ''))})",
            )
        )
    p50, p99, most = (bounded(seconds, metrics) for seconds in (wait.p50, wait.p99, wait.max))
    never = len(metrics.unstarted)
    cards.append(
        (
            "waiting time, p99",
            p99,
            f"p50 {p50}, max {most}" + (f"; {never:,} of {wait.n:,} never started" if never else ""),
        )
    )
    cards.append(("decision latency, p50", duration(latency.p50), f"p99 {duration(latency.p99)}, {latency.n:,} rounds"))
    cards.append(("network nodes", f"{nodes:,}", f"{arcs:,} arcs at its largest"))
    return cards


def html_table(table: Table) -> str:
    """Return a table as HTML."""
    last = len(table.columns) - 1
    head = "".join(f"<th>{html.escape(c)}</th>" for c in table.columns) if any(table.columns) else ""
    rows = []
    for row in table.rows:
        indent = ' class="indent"' if row[0].startswith(" ") else ""
        cells = "".join(
            f"<td{' class=note' if table.notes and i == last else ''}>{html.escape(cell)}</td>"
            for i, cell in enumerate(row)
            if i
        )
        rows.append(f"<tr><th{indent}>{html.escape(row[0].strip())}</th>{cells}</tr>")
    thead = f"<thead><tr>{head}</tr></thead>" if head else ""
    kind = ' class="pairs"' if len(table.columns) == 2 else ""
    return f"<div{kind}><h2>{html.escape(table.title)}</h2><table>{thead}{''.join(rows)}</table></div>"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{k}: {_plain(v)}" for k, v in value.items())
    return "-" if value is None else str(value)


CSS = """
:root { color-scheme: light; --ink: #1d2733; --soft: #5b6876; --line: #e3e8ee; --paper: #fff; --shade: #b8c2cd; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 40px 32px 56px; color: var(--ink); background: #fff;
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", Arial, sans-serif; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -.01em; }
h2 { font-size: 16px; margin: 0 0 6px; }
header p { margin: 0; color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 12px; margin: 28px 0 32px; }
.cards div { border: 1px solid var(--line); border-radius: 8px; padding: 12px 16px; }
.cards span { color: var(--soft); font-size: 13px; display: block; }
.cards strong { font-size: 24px; line-height: 1.3; font-weight: 600; display: block; white-space: nowrap; }
.cards small { color: var(--soft); font-size: 12.5px; }
.plots { display: grid; grid-template-columns: 1fr 1fr; gap: 28px 24px; }
figure { margin: 0; }
figure.full, figure.tall { grid-column: 1 / -1; }
figcaption { font-size: 14px; color: var(--soft); margin-bottom: 4px; }
figcaption b { color: var(--ink); font-size: 16px; margin-right: 6px; }
img { width: 100%; height: auto; display: block; }
.tables { display: grid; grid-template-columns: 1fr; gap: 28px; margin-top: 40px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 400; white-space: nowrap; padding-right: 20px; }
thead th { color: var(--soft); font-size: 13px; text-align: right; padding-right: 0; }
thead th:first-child { text-align: left; }
td { text-align: right; font-variant-numeric: tabular-nums; padding-left: 16px; width: 13%; }
td.note { text-align: left; color: var(--soft); width: 60%; overflow-wrap: anywhere; }
tr > * { border-bottom: 1px solid var(--line); padding-top: 5px; padding-bottom: 5px; vertical-align: top; }
.pairs td { width: auto; text-align: left; }
.pairs th { width: 260px; }
.indent { padding-left: 18px; color: var(--soft); }
footer { margin-top: 40px; color: var(--soft); font-size: 13px; }
@media (max-width: 760px) {
  body { padding: 24px 16px; }
  .plots { grid-template-columns: minmax(0, 1fr); }
  figure.full, figure.tall { overflow-x: auto; }
  figure.full img, figure.tall img { min-width: 720px; }
  figure.full figcaption::after, figure.tall figcaption::after { content: " (scroll right for more)"; }
  .cards { grid-template-columns: 1fr 1fr; }
  .tables { grid-template-columns: minmax(0, 1fr); }
  .tables > div { overflow-x: auto;  /* a shade at the right edge while more follows */
    background: linear-gradient(to left, var(--paper) 40%, transparent) right / 40px 100% no-repeat local,
      linear-gradient(to left, var(--shade), transparent) right / 24px 100% no-repeat scroll; }
  td { white-space: nowrap; }
  td.note { white-space: normal; min-width: 200px; }
  .pairs th { width: auto; }
}
@media (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --ink: #e6ebf1; --soft: #9fabb8; --line: #2c3743; --paper: #12181f; --shade: #46535f; }
  body { background: #12181f; }
  img { filter: invert(1) hue-rotate(180deg) brightness(1.15); }
}
@media print { body { padding: 0; } figure, .tables div { break-inside: avoid; } }
"""


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
    waited = any(max(run.waiting[1], default=0) > 0 for run in comparison.outcomes)
    line += "" if waited or not done else "; no task waited"
    facts = {**comparison.facts, "flowsched": __version__}
    body = f"""<section class="plots" style="margin-top: 28px">
{figures(draw_comparison(comparison))}
</section>
<section class="tables">
{"".join(map(html_table, comparison.tables()))}
{settings((name, _said(value)) for name, value in facts.items())}
</section>
<footer>Made by flowsched. Times are simulated but for decisions, which are this computer's.</footer>
"""
    return page(title, line, body, _CSS)


def draw_comparison(comparison: Comparison) -> list[Plot]:
    """Return the plots of a comparison, in reading order."""
    if not comparison.outcomes:
        return []
    first = f"seed {comparison.seeds[0]}"
    several, waited = len(comparison.seeds) > 1, any(max(run.waiting[1], default=0) > 0 for run in comparison.outcomes)
    drawn: list[tuple[str, str, str, Callable[[Axes, Comparison], None]]] = [
        ("Waiting tasks", f"over time, {first}", "full", _waiting),
        ("Waiting time", f"tasks by their waiting time, {first}", "full", _waits),
    ] * waited
    drawn += [
        (heading(m)[0].upper() + heading(m)[1:], "mean, 95 % interval" if several else first, "half", _bars(m))
        for m in _BARS
        if (waited or not m.startswith("wait")) and any(run.figures[m] > 0 for run in comparison.outcomes)
    ]
    return [Plot(name, caption, width, fill, comparison) for name, caption, width, fill in drawn]


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
    axes.set(xlabel="simulated time (hours)", ylabel="tasks", ylim=(0, max(axes.get_ylim()[1], 1.0) * 1.12))
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
    wait_axis(axes, longest)
    axes.set(ylim=(0, 104), ylabel="tasks (%)")
    axes.legend(fontsize=8.5, loc="best", ncols=2)


def _bars(measure: str) -> Callable[[Axes, Comparison], None]:
    def fill(axes: Axes, comparison: Comparison) -> None:
        names = [name for name in comparison.schedulers if comparison.values(name, measure)]
        for at, name in enumerate(names):
            spread = comparison.spread(name, measure)
            colour = COLOURS[comparison.schedulers.index(name) % len(COLOURS)]
            mean, half = spread.mean, 0.0 if np.isnan(spread.half) else spread.half
            axes.barh(at, mean, color=colour, height=0.62)
            if half:
                interval = [max(mean - half, 0.0), mean + half]
                axes.plot(interval, [at, at], color="#1d2733", linewidth=1.6, solid_capstyle="butt")
            axes.annotate(shown_mean(spread, measure), (mean + half, at), xytext=(4, 0), textcoords="offset points",
                          va="center", fontsize=8.5)  # fmt: skip
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
            colour = COLOURS[comparison.schedulers.index(run.scheduler) % len(COLOURS)]
            yield run.scheduler, colour, run.waiting, run.waits
