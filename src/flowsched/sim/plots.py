"""The plots of a simulation, as SVG."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowsched.sim.metrics import Metrics
from flowsched.sim.summary import CODES, duration, energy, resource_label
from flowsched.sim.users import amount_seconds, owners, scarce, shares

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 700
"""Bins of a longer series, each drawn as a mean with its range as a shade."""

COLOURS = (
    "#2563c9", "#d9730d", "#16806a", "#8a4fbf", "#b3364f", "#66717e", "#a38a00", "#0f8fb3", "#c94f9b", "#5d7a1f",
)  # fmt: skip
_COLOURS, _USERS = COLOURS[:6], COLOURS[:8]
_SIZES = {"full": (10.6, 2.9), "half": (5.2, 3.1), "tall": (10.6, 7.2)}
"""Widths and heights in inches."""

_INK, _SOFT, _LINE = "#1d2733", "#5b6876", "#e3e8ee"

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "path",
    "svg.hashsalt": "flowsched",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.color": _INK,
    "axes.labelcolor": _SOFT,
    "axes.edgecolor": "#c3ccd6",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.8,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
}
Floats = NDArray[np.float64]

_SPANS, _ROWS = 360, 160
"""Cells of the heat map: spans of time, and machines or groups of neighbouring ones."""

_REASON_SPANS = 120
"""Spans of time over which reasons are counted; reasons may change with every round."""

_MOST_BANDS = 20
"""Absences of machines up to which each is a band on every axis of time."""

_DOWN = "#f6dede"

_MOST_RUNS, _MOST_MACHINES = 1500, 40
"""Runs and machines of a Gantt chart."""

_GREY, _LIGHT = "#c3ccd6", "#eef1f5"


FORMATS = ("svg", "pdf", "png")
"""Formats of image files."""


@dataclass(frozen=True)
class Plot:
    """One plot.

    Attributes
    ----------
    title, caption : str
    width : str
        "full" or "half" of the page, or "tall": full, and higher.
    fill : callable
        Draws a result into axes.
    result : Metrics or Comparison
    detail : str
        Explanation that a page shows on hover.
    """

    title: str
    caption: str
    width: str
    fill: Callable[[Axes, Any], None]
    result: Any
    detail: str = ""

    def image(self, form: str = "svg") -> bytes:
        """Return the plot in the style of the reports, in one of `FORMATS`; ImportError if Matplotlib is missing."""
        try:
            import matplotlib
            from matplotlib.figure import Figure
        except ImportError as missing:
            raise ImportError("plots need Matplotlib: pip install 'flowsched[plot]'", name="matplotlib") from missing
        with matplotlib.rc_context(_STYLE):
            # Margins in inches, the same for all, so that the axes of plots on one page are in line.
            across, down = _SIZES[self.width]
            figure = Figure(figsize=(across, down), dpi=170)
            figure.subplots_adjust(left=0.82 / across, right=1 - 0.12 / across, bottom=0.52 / down, top=1 - 0.12 / down)
            axes = figure.add_subplot()
            if form == "svg":  # the page's background shows through, light or dark
                figure.set_facecolor("none")
                axes.set_facecolor("none")
            axes.yaxis.set_label_coords(-0.6 / (across - 0.94), 0.5)
            self.fill(axes, self.result)
            out = io.BytesIO()
            figure.savefig(out, format=form, metadata=None if form == "png" else _UNDATED[form])
        return out.getvalue()


_UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""Metadata without a date, so that equal runs have equal files."""


def draw(metrics: Metrics) -> list[Plot]:
    """Return all plots of a run, in reading order."""
    ran = bool(len(metrics.runs.get("start", ()))) and metrics.facts["end"] > 0
    everything: list[tuple[str, str, str, Callable[[Axes, Metrics], None]]] = [
        ("Allocated resources", "share of the capacity that is up", "full", _usage)
    ]
    if ran and _has_users(metrics):
        everything.append(("Shares", "of each user, stacked, of the capacity that is up", "full", _shares))
    everything.append(("Waiting tasks", "by the reasons of the rounds", "full", _waiting))
    if ran and metrics.fragmentation is not None and metrics.fragmentation.lost.any():
        everything.append(
            (
                "Fragmentation",
                "expected part that a task drawn from the workload cannot use, of what is free",
                "full",
                _fragmentation,
            )
        )
    if metrics.energy is not None:
        everything.append(("Power", "of all machines, by the given model", "full", _power))
    if ran and _some_read(metrics):
        everything.append(("Reading", "tasks that read their input over the network", "full", _reading))
    if ran:
        everything.append(("Machines", "allocated part of each over time; grey: down", "full", _heat_map))
    if ran and _is_small(metrics):
        reads = "light: it reads its input; " if _some_read(metrics) else ""
        caption = f"each task on its machine; {reads}grey: the machine was down or drained"
        everything.append(("Runs", caption, "tall", _gantt))
    everything += [
        ("Waiting time", "share of the tasks that waited no longer than this", "half", _wait_cdf),
        ("Network size", "nodes and arcs of the flow network", "half", _network),
        ("Decision latency", "wall-clock time of each round, by phase", "full", _latency),
    ]
    codes = "\n".join(f"{code}: {CODES[code]}" for code in metrics.queue if code in CODES)
    return [
        Plot(title, caption, width, fill, metrics, codes if fill is _waiting else "")
        for title, caption, width, fill in everything
    ]


def _usage(axes: Axes, metrics: Metrics) -> None:
    for name, colour in zip(metrics.usage, _COLOURS, strict=False):
        used, capacity = metrics.series[f"used_{name}"], metrics.series[f"capacity_{name}"]
        share = 100 * np.divide(used, capacity, out=np.zeros(len(used)), where=capacity > 0)
        mean = 100 * metrics.usage[name].mean
        _steps(axes, metrics, share, colour, f"{resource_label(name)} (mean {mean:.3g} %)")
    axes.set(ylabel="allocated (%)", ylim=(0, None))
    if axes.get_ylim()[1] > 60:
        axes.set(ylim=(0, 104), yticks=range(0, 101, 20))
    _mark_absences(axes, metrics)
    _finish(axes, metrics)


def _fragmentation(axes: Axes, metrics: Metrics) -> None:
    found = metrics.fragmentation
    assert found is not None
    name, end = resource_label(found.resource), float(metrics.facts["end"])
    below: Any = 0.0
    parts = (
        (found.lost, _COLOURS[1], f"{name} fragmented (mean {100 * found.share:.3g} %)"),
        (found.free - found.lost, _COLOURS[0], f"{name} free for a task of the workload"),
    )
    for amount, colour, label in parts:
        part = 100 * np.divide(amount, found.capacity, out=np.zeros(len(amount)), where=found.capacity > 0)
        time, _, mean, _ = _thinned(found.time, part, end)
        axes.fill_between(time, below, below + mean, step="post", color=colour, alpha=0.75, linewidth=0, label=label)
        below = below + mean
    axes.set(ylabel=f"{name} free (%)", ylim=(0, None))
    _mark_absences(axes, metrics)
    _finish(axes, metrics)


def _power(axes: Axes, metrics: Metrics) -> None:
    used = metrics.energy
    assert used is not None
    size, unit = (1000.0, "kW") if used.peak >= 3000 else (1.0, "W")
    _steps(
        axes,
        metrics,
        metrics.series["watts"] / size,
        _COLOURS[0],
        f"all machines (mean {used.mean / size:,.3g} {unit}, {energy(used.total)})",
    )
    _steps(axes, metrics, metrics.series["watts_idle"] / size, _COLOURS[5], f"without tasks ({energy(used.idle)})")
    axes.set(ylabel=unit, ylim=(0, None))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    _finish(axes, metrics)


def _waiting(axes: Axes, metrics: Metrics) -> None:
    from matplotlib.ticker import MaxNLocator

    waiting = metrics.series["waiting"]
    if not waiting.any():
        _say(axes, "no task ever waited past the moment it arrived")
        return
    if len(metrics.queue.get("time", ())) and metrics.facts["end"] > 0:
        _queue(axes, metrics)
    _steps(axes, metrics, waiting, _INK, "all that wait")
    axes.set(ylabel="tasks", ylim=(0, max(1.0, float(waiting.max(initial=0))) * 1.06))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _mark_absences(axes, metrics)
    _finish(axes, metrics)


def _reading(axes: Axes, metrics: Metrics) -> None:
    time, count = _readers(metrics)
    at, low, mean, high = _thinned(time, count, float(metrics.facts["end"]))
    axes.fill_between(at, low, high, step="post", color=_COLOURS[2], alpha=0.25, linewidth=0)
    axes.fill_between(at, 0, mean, step="post", color=_COLOURS[2], alpha=0.75, linewidth=0)
    axes.set(ylabel="tasks", ylim=(0, float(count.max()) * 1.06))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    _finish(axes, metrics)


def _latency(axes: Axes, metrics: Metrics) -> None:
    rounds = metrics.rounds
    phases = (("update", "graph update"), ("solve", "solve"), ("read", "read"))
    for (phase, label), colour in zip(phases, (_COLOURS[1], _COLOURS[0], _COLOURS[2]), strict=True):
        values = rounds[phase]
        p = metrics.latency(phase)
        shown = values > 0
        text = f"{label} (p50 {duration(p.p50)}, p99 {duration(p.p99)})"
        axes.scatter(
            rounds["time"][shown],
            1e3 * values[shown],
            s=5,
            color=colour,
            alpha=0.45,
            linewidths=0,
            label=text,
            rasterized=True,
        )
    if not any((rounds[phase] > 0).any() for phase, _ in phases):
        axes.clear()
        _say(axes, "no round was measured")
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel("ms per round")
    axes.grid(visible=False, axis="x")
    _mark_absences(axes, metrics)
    _finish(axes, metrics)


def _wait_cdf(axes: Axes, metrics: Metrics) -> None:
    waits, share = metrics.started_by()
    never = len(metrics.unstarted)
    if not len(waits) or waits[-1] == 0:
        rest = f"{never:,} tasks never started, the others at once" if never else "every task started at once"
        _say(axes, rest if len(waits) else "no task started")
        return
    share = 100 * share
    wait_axis(axes, float(waits[-1]))
    axes.step(np.r_[0.0, waits], np.r_[0.0, share], where="post", color=_COLOURS[0])
    low = float(share[np.searchsorted(waits, 0.0, side="right") - 1]) if waits[0] == 0 else 0.0
    bottom = max(0.0, 100 - 1.6 * (100 - low)) if low > 50 else 0.0
    axes.set(ylim=(bottom, 100 + 0.04 * (100 - bottom)), ylabel="tasks (%)")


def wait_axis(axes: Axes, longest: float) -> None:
    """Draw the axis of waiting times up to the longest; one second and less is linear, so that 0 has a place on it."""
    axes.set_xscale("symlog", linthresh=1.0, linscale=0.5)
    ticks = [t for t in (0, 1, 10, 60, 600, 3600, 6 * 3600, 86400, 10 * 86400, 100 * 86400) if t <= longest * 1.2]
    axes.set_xticks(ticks, [_short(t) for t in ticks])
    axes.set_xticks([], minor=True)
    axes.set(xlim=(0, longest * 1.15), xlabel="waiting time")


def _network(axes: Axes, metrics: Metrics) -> None:
    rounds = metrics.rounds
    if not rounds["nodes"].any():
        _say(axes, "decided without a flow network")
        return
    for name, colour in (("arcs", _COLOURS[0]), ("nodes", _COLOURS[1])):
        time, low, mean, high = _thinned(rounds["time"], rounds[name].astype(float), float(metrics.facts["end"]))
        axes.fill_between(time, low, high, step="post", color=colour, alpha=0.2, linewidth=0)
        axes.step(
            time, mean, where="post", color=colour, label=f"{name} (at most {int(rounds[name].max(initial=0)):,})"
        )
    axes.set(ylim=(0, None), ylabel="count")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _finish(axes, metrics, ticks=5)


def _say(axes: Axes, text: str) -> None:
    """Write a text where there is nothing to draw."""
    axes.text(0.5, 0.5, text, ha="center", va="center", color=_SOFT, fontsize=12, transform=axes.transAxes)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_color(_LINE)
        spine.set_visible(True)


def _steps(axes: Axes, metrics: Metrics, values: NDArray[Any], colour: str, label: str) -> None:
    time, low, mean, high = _thinned(metrics.series["time"], values.astype(float), float(metrics.facts["end"]))
    axes.fill_between(time, low, high, step="post", color=colour, alpha=0.2, linewidth=0)
    axes.step(time, mean, where="post", color=colour, label=label)


def _thinned(
    time: NDArray[np.float64], values: NDArray[np.float64], end: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return a step function as (time, minimum, mean, maximum), over `_BINS` equal spans if it has more steps."""
    if not len(time) or end <= time[0]:
        return time, values, values, values
    if len(time) <= _BINS:
        time, values = np.r_[time, end], np.r_[values, values[-1]]
        return time, values, values, values
    edges = np.linspace(time[0], end, _BINS + 1)
    held = np.diff(np.r_[time, end])
    area = np.interp(edges, np.r_[time, end], np.r_[0.0, np.cumsum(held * values)])
    # A span holds the value at its edge, then the samples inside; the last of those is also the next span's first.
    first = np.maximum(np.searchsorted(time, edges[:-1], side="right") - 1, 0)
    last = np.r_[first[1:], len(values) - 1]
    low = np.minimum(np.minimum.reduceat(values, first), values[last])
    high = np.maximum(np.maximum.reduceat(values, first), values[last])
    mean = np.diff(area) / np.diff(edges)
    return edges, *(np.r_[v, v[-1]] for v in (low, mean, high))


def _nice(step: float) -> float:
    """Return the next larger of 1, 2, 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(step))
    return float(next(m * power for m in (1, 2, 5, 10) if m * power >= step * (1 - 1e-9)))


def _short(seconds: float) -> str:
    size, unit = next(((s, u) for s, u in ((86400, "d"), (3600, "h"), (60, "min")) if seconds >= s), (1, "s"))
    return f"{seconds / size:g} {unit}"


def _finish(axes: Axes, metrics: Metrics, ticks: int = 9) -> None:
    """Draw the axis of simulated time in a unit that suits the span, and a legend of all that has a label."""
    end = float(metrics.facts["end"]) or 1.0
    size, unit = next(
        ((s, u) for s, u in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")) if end >= 3 * s), (1.0, "seconds")
    )
    step = _nice(end / size / ticks) * size
    ticks_at = np.arange(0, end * (1 + 1e-9), step)
    axes.set(xlim=(0, end), xticks=ticks_at, xlabel=f"simulated time ({unit})")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / size:,.6g}")
    if not axes.get_legend_handles_labels()[0]:
        return
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.subplots_adjust(top=1 - 0.34 / figure.get_size_inches()[1])
    legend = axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=9, borderaxespad=0.2, handlelength=1.2, columnspacing=1.6
    )
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1)
            if hasattr(handle, "set_sizes"):
                handle.set_sizes([24])


def _mark_absences(axes: Axes, metrics: Metrics) -> None:
    """Draw a band for each time when machines were down, unless there are too many."""
    end, gone = float(metrics.facts["end"]), metrics.absences
    down = ~np.array(gone.get("drained", ()), np.bool_)
    if not down.any():
        return
    stops = np.nan_to_num(gone["end"][down], nan=end)
    spans = {*zip(gone["start"][down].tolist(), stops.tolist(), strict=True)}
    for start, stop in spans if len(spans) <= _MOST_BANDS else ():
        axes.axvspan(start, stop, color=_DOWN, linewidth=0, zorder=-1)


def _is_small(metrics: Metrics) -> bool:
    """Return True if the run is small enough for a readable Gantt chart."""
    return 0 < len(metrics.runs["start"]) <= _MOST_RUNS and len(metrics.machines["machine"]) <= _MOST_MACHINES


def _heat_map(axes: Axes, metrics: Metrics) -> None:
    """Draw the allocated part of the scarcest resource on each machine, over time; machines that are down are grey."""
    name, end = scarce(metrics), float(metrics.facts["end"])
    capacity = np.array(metrics.machines[name], np.float64)
    rows = np.flatnonzero(capacity > 0)  # machines without it have no part of it
    place = np.full(len(capacity) + 1, 0)
    lines = min(len(rows), _ROWS)
    place[rows] = np.arange(len(rows)) * lines // max(len(rows), 1)
    edges = np.linspace(0.0, end, min(_SPANS, max(int(end), 1) * 4) + 1)
    runs = metrics.runs
    used = amount_seconds(runs["start"], _until(metrics), runs[name], place[runs["machine"]], lines, edges)
    there = np.zeros((lines, len(edges) - 1))
    np.add.at(there, place[rows], capacity[rows, None] * np.diff(edges))
    gone = metrics.absences
    for machine, start, stop, drained in zip(gone["machine"], gone["start"], gone["end"], gone["drained"], strict=True):
        if not drained and capacity[machine] > 0:
            until = end if np.isnan(stop) else stop
            there[place[machine]] -= capacity[machine] * np.diff(np.clip(edges, start, max(until, start)))
    part = np.full(there.shape, np.nan)
    up = there > 1e-6 * np.diff(edges)
    part[up] = 100 * np.clip(used[up] / there[up], 0.0, 1.0)
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import MaxNLocator

    colours = LinearSegmentedColormap.from_list("", ["#f4f7fb", "#9dbdf0", "#2563c9", "#122f66"])
    axes.set_facecolor(_GREY)  # no number, no cell
    image = axes.imshow(
        part, aspect="auto", origin="upper", interpolation="nearest", cmap=colours, vmin=0, vmax=100,
        extent=(0.0, end, float(len(rows)), 0.0),
    )  # fmt: skip
    axes.set_ylabel("machines")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(visible=False)
    bar = axes.inset_axes((0.62, 1.045, 0.28, 0.05))
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.colorbar(image, cax=bar, orientation="horizontal")
    bar.xaxis.set_ticks_position("top")
    bar.tick_params(length=2, labelsize=8)
    bar.set_xticks([0, 50, 100], ["0", "50", f"100 % of {resource_label(name)}"])
    figure.subplots_adjust(top=1 - 0.42 / figure.get_size_inches()[1])
    _finish(axes, metrics)


def _groups(metrics: Metrics) -> tuple[list[str], NDArray[np.int64]]:
    """Return the users with most runs, and the number of each run's user; the last number is of the others."""
    of_run = np.array(owners(metrics), object)[metrics.runs["task"]]
    names, count = np.unique(of_run.astype(str), return_counts=True)
    largest = sorted(names[np.argsort(-count, kind="stable")[: len(_USERS) - 1]].tolist())
    number = {name: i for i, name in enumerate(largest)}
    others = ["others"] if len(names) > len(largest) else []
    return largest + others, np.array([number.get(u, len(largest)) for u in of_run], np.int64)


def _has_users(metrics: Metrics) -> bool:
    """Return True if the tasks are of more than one user."""
    return len({*metrics.table["user"]}) > 1


def _shares(axes: Axes, metrics: Metrics) -> None:
    """Draw each user's part of the available capacity of the scarcest resource, and the parts that max-min fairness gives."""
    found = shares(metrics, _groups(metrics)[0])

    def part(amounts: Floats) -> Floats:
        return np.divide(100 * amounts, found.capacity, out=np.zeros_like(amounts), where=found.capacity > 0)

    middle = (found.edges[:-1] + found.edges[1:]) / 2
    names = found.names
    axes.stackplot(middle, part(found.received), labels=names, colors=_USERS[: len(names)], alpha=0.85, linewidth=0)
    if found.entitled is not None:
        for i, limit in enumerate(np.cumsum(part(found.entitled), axis=0)):
            axes.plot(
                middle, limit, color=_INK, linewidth=0.9, linestyle=":", label=None if i else "max-min fair parts"
            )
    axes.set(ylabel=f"{resource_label(found.resource)} allocated (%)", ylim=(0, 104), yticks=range(0, 101, 20))
    _mark_absences(axes, metrics)
    _finish(axes, metrics)


def _queue(axes: Axes, metrics: Metrics) -> None:
    """Draw the waiting tasks over time, divided by the reasons of the rounds in each span."""
    end = float(metrics.facts["end"])
    codes = sorted((c for c in metrics.queue if c != "time"), key=lambda code: -int(metrics.queue[code].sum()))
    edges = np.linspace(0.0, end, _REASON_SPANS + 1)
    time = np.r_[0.0, metrics.queue["time"], end]
    counts = np.stack([np.r_[0, metrics.queue[code], metrics.queue[code][-1:]] for code in codes])
    area = np.c_[np.zeros(len(codes)), np.cumsum(counts[:, :-1] * np.diff(time), axis=1)]
    spans = np.stack([np.diff(np.interp(edges, time, one)) for one in area]) / np.diff(edges)
    below = np.zeros(_REASON_SPANS + 1)
    for code, colour, held in zip(
        codes, _USERS[::-1] if len(codes) > 8 else _USERS[1:] + _USERS[:1], spans, strict=False
    ):
        above = below + np.r_[held, held[-1]]
        axes.fill_between(edges, below, above, step="post", color=colour, linewidth=0, alpha=0.75, label=code)
        below = above


def _gantt(axes: Axes, metrics: Metrics) -> None:
    """Draw every run as a bar on its machine, by user: light while it reads, with a red end if it was stopped, grey for downtime."""
    runs, end = metrics.runs, float(metrics.facts["end"])
    names, group = _groups(metrics)
    until = _until(metrics)
    lane, lanes = _lanes(metrics, until)
    first = np.r_[0, np.cumsum(lanes)]
    middle = (first[:-1] + first[1:]) / 2
    gone = metrics.absences
    for machine, start, stop, drained in zip(gone["machine"], gone["start"], gone["end"], gone["drained"], strict=True):
        left = (end if np.isnan(stop) else stop) - start
        axes.barh(
            middle[machine], left, lanes[machine], start, color=_LIGHT if drained else _GREY, linewidth=0, zorder=1,
        )  # fmt: skip
    level = first[runs["machine"]] + lane + 0.5
    for i, name in enumerate(names):
        mine = group == i
        axes.barh(
            level[mine], (until - runs["start"])[mine], 0.86, runs["start"][mine], color=_USERS[i], alpha=0.8, linewidth=0,
            label=name if len(names) > 1 else None, zorder=2,
        )  # fmt: skip
    ready = _ready(metrics)
    reads = ready > runs["start"]
    axes.barh(
        level[reads], (ready - runs["start"])[reads], 0.86, runs["start"][reads], color="#ffffff", alpha=0.6, linewidth=0, zorder=2.5,
    )  # fmt: skip
    stopped = runs["how"] > 1
    axes.scatter(
        until[stopped], level[stopped], s=14, marker="x", color="#c0162c", linewidths=1.2, zorder=3,
        label="preempted, moved or lost its machine" if stopped.any() else None,
    )  # fmt: skip
    for line in first[1:-1]:
        axes.axhline(line, color="#ffffff" if line % 1 else "#d4dbe3", linewidth=0.6, zorder=1)
    axes.set_yticks(middle, [str(machine) for machine in metrics.machines["machine"]])
    axes.tick_params(axis="y", labelsize=7.5, length=0)
    axes.set_ylim(first[-1], 0)
    axes.grid(visible=False, axis="y")
    _finish(axes, metrics)


def _until(metrics: Metrics) -> Floats:
    """Return the time at which each run ended, or the simulation did."""
    return np.where(np.isnan(metrics.runs["end"]), float(metrics.facts["end"]), metrics.runs["end"])


def _ready(metrics: Metrics) -> Floats:
    """Return the time at which each run had read its input, or ended before."""
    return np.where(np.isnan(metrics.runs["ready"]), _until(metrics), metrics.runs["ready"])


def _some_read(metrics: Metrics) -> bool:
    """Return True if any task spent time on reading."""
    return bool((_ready(metrics) > metrics.runs["start"]).any())


def _readers(metrics: Metrics) -> tuple[Floats, Floats]:
    """Return times, and the number of reading tasks from each on."""
    begin, end = np.sort(metrics.runs["start"]), np.sort(_ready(metrics))
    time = np.unique(np.r_[0.0, begin, end])
    return time, (np.searchsorted(begin, time, "right") - np.searchsorted(end, time, "right")).astype(float)


def _lanes(metrics: Metrics, until: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a lane of its machine for each run, so that no two overlap, and the number of lanes of each machine."""
    free: list[list[float]] = [[] for _ in metrics.machines["machine"]]
    lane = np.zeros(len(until), np.int64)
    for i, (machine, start) in enumerate(zip(metrics.runs["machine"], metrics.runs["start"], strict=True)):
        ends = free[machine]
        at = next((k for k, end in enumerate(ends) if end <= start), len(ends))
        ends[at : at + 1] = [until[i]]
        lane[i] = at
    return lane, np.array([max(len(ends), 1) for ends in free], np.int64)
