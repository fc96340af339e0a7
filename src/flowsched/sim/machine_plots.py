"""Plots of machines and users over time: the heat map, the Gantt chart, the shares, and what waits for which reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowsched.sim.metrics import Metrics
from flowsched.sim.summary import resource_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["gantt", "heat_map", "is_small", "queue", "readers", "scarce", "shares", "some_read"]

Floats = NDArray[np.float64]

COLOURS = ("#2563c9", "#d9730d", "#16806a", "#8a4fbf", "#b3364f", "#66717e", "#a38a00", "#0f8fb3")
_SPANS, _ROWS = 360, 160
"""Cells of the heat map: spans of time, and machines or groups of neighbouring ones."""

_MOST_RUNS, _MOST_MACHINES = 1500, 40
"""Runs and machines of a Gantt chart."""

_GREY, _LIGHT = "#c3ccd6", "#eef1f5"


def scarce(metrics: Metrics) -> str:
    """Return the resource of which the largest part is allocated."""
    return max(metrics.usage, key=lambda name: metrics.usage[name].mean)


def is_small(metrics: Metrics) -> bool:
    """Return whether a Gantt chart of the run can be read."""
    return 0 < len(metrics.runs["start"]) <= _MOST_RUNS and len(metrics.machines["machine"]) <= _MOST_MACHINES


def amount_seconds(metrics: Metrics, group: NDArray[np.int64], groups: int, edges: Floats, name: str) -> Floats:
    """Return what the runs of each group used between edges of time, in amount times seconds, shape (groups, spans).

    What a group uses until t is the sum of amount * (t - start) over the runs begun, less that of amount * (t - end) over
    those ended.
    """
    runs, end = metrics.runs, float(metrics.facts["end"])
    amounts = runs[name]
    level, moment = np.zeros((2, groups, len(edges) + 1))
    for times, sign in ((runs["start"], 1.0), (np.where(np.isnan(runs["end"]), end, runs["end"]), -1.0)):
        at = np.searchsorted(edges, times)
        np.add.at(level, (group, at), sign * amounts)
        np.add.at(moment, (group, at), sign * amounts * times)
    used = np.cumsum(level, axis=1)[:, :-1] * edges - np.cumsum(moment, axis=1)[:, :-1]
    return np.diff(used, axis=1)


def heat_map(axes: Axes, metrics: Metrics) -> None:
    """Draw the part of the scarcest resource that is allocated on each machine, over time; what is down is grey."""
    name, end = scarce(metrics), float(metrics.facts["end"])
    capacity = np.array(metrics.machines[name], np.float64)
    rows = np.flatnonzero(capacity > 0)  # machines without it have no part of it
    place = np.full(len(capacity) + 1, 0)
    lines = min(len(rows), _ROWS)
    place[rows] = np.arange(len(rows)) * lines // max(len(rows), 1)
    edges = np.linspace(0.0, end, min(_SPANS, max(int(end), 1) * 4) + 1)
    used = amount_seconds(metrics, place[metrics.runs["machine"]], lines, edges, name)
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
    axes.get_figure(root=True).colorbar(image, cax=bar, orientation="horizontal")  # type: ignore[union-attr]
    bar.xaxis.set_ticks_position("top")
    bar.tick_params(length=2, labelsize=8)
    bar.set_xticks([0, 50, 100], ["0", "50", f"100 % of {resource_label(name)}"])


def _groups(metrics: Metrics) -> tuple[list[str], NDArray[np.int64]]:
    """Return the users with most runs, and the number of each run's user; the last number is of the others."""
    user = [str(u) if u is not None else "no user" for u in metrics.table["user"]]
    of_run = np.array(user, object)[metrics.runs["task"]]
    names, count = np.unique(of_run.astype(str), return_counts=True)
    largest = sorted(names[np.argsort(-count, kind="stable")[: len(COLOURS) - 1]].tolist())
    number = {name: i for i, name in enumerate(largest)}
    others = ["others"] if len(names) > len(largest) else []
    return largest + others, np.array([number.get(u, len(largest)) for u in of_run], np.int64)


def has_users(metrics: Metrics) -> bool:
    """Return whether the tasks are of more than one user."""
    return len({*metrics.table["user"]}) > 1


def shares(axes: Axes, metrics: Metrics) -> None:
    """Draw the part of the scarcest resource that each user has, of what is up, over time."""
    name, end = scarce(metrics), float(metrics.facts["end"])
    names, group = _groups(metrics)
    edges = np.linspace(0.0, end, _SPANS + 1)
    used = amount_seconds(metrics, group, len(names), edges, name)
    time = np.r_[metrics.series["time"], max(end, metrics.series["time"][-1])]
    there = np.r_[0.0, np.cumsum(metrics.series[f"capacity_{name}"] * np.diff(time))]
    capacity = np.diff(np.interp(edges, time, there))
    part = np.divide(100 * used, capacity, out=np.zeros_like(used), where=capacity > 0)
    middle = (edges[:-1] + edges[1:]) / 2
    axes.stackplot(middle, part, labels=names, colors=COLOURS[: len(names)], alpha=0.85, linewidth=0)
    axes.set_ylabel(f"{resource_label(name)} allocated (%)")
    axes.set_ylim(0, 104)
    axes.set_yticks(range(0, 101, 20))


def queue(axes: Axes, metrics: Metrics) -> None:
    """Draw the waiting tasks by the reason of the last round, over time."""
    time = np.r_[metrics.queue["time"], float(metrics.facts["end"])]
    codes = sorted((c for c in metrics.queue if c != "time"), key=lambda code: -int(metrics.queue[code].sum()))
    below = np.zeros(len(time))
    for code, colour in zip(codes, COLOURS[::-1] if len(codes) > 8 else COLOURS[1:] + COLOURS[:1], strict=False):
        counts = np.r_[metrics.queue[code], metrics.queue[code][-1:]].astype(float)
        axes.fill_between(time, below, below + counts, step="post", color=colour, linewidth=0, alpha=0.75, label=code)
        below = below + counts


def gantt(axes: Axes, metrics: Metrics) -> None:
    """Draw every run as a bar on its machine, by user; light while it reads, with a red end if it was stopped; what is down is grey."""
    runs, end = metrics.runs, float(metrics.facts["end"])
    names, group = _groups(metrics)
    until = np.where(np.isnan(runs["end"]), end, runs["end"])
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
            level[mine], (until - runs["start"])[mine], 0.86, runs["start"][mine], color=COLOURS[i], alpha=0.8, linewidth=0,
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


def _ready(metrics: Metrics) -> Floats:
    """Return when each run had read its input, or ended before."""
    until = np.where(np.isnan(metrics.runs["end"]), float(metrics.facts["end"]), metrics.runs["end"])
    return np.where(np.isnan(metrics.runs["ready"]), until, metrics.runs["ready"])


def some_read(metrics: Metrics) -> bool:
    """Return whether reading took any task any time."""
    return bool((_ready(metrics) > metrics.runs["start"]).any())


def readers(metrics: Metrics) -> tuple[Floats, Floats]:
    """Return times, and how many tasks read from each on."""
    begin, end = np.sort(metrics.runs["start"]), np.sort(_ready(metrics))
    time = np.unique(np.r_[0.0, begin, end])
    return time, (np.searchsorted(begin, time, "right") - np.searchsorted(end, time, "right")).astype(float)


def _lanes(metrics: Metrics, until: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a lane of its machine for each run, so that no two overlap, and how many lanes each machine has."""
    free: list[list[float]] = [[] for _ in metrics.machines["machine"]]
    lane = np.zeros(len(until), np.int64)
    for i, (machine, start) in enumerate(zip(metrics.runs["machine"], metrics.runs["start"], strict=True)):
        ends = free[machine]
        at = next((k for k, end in enumerate(ends) if end <= start), len(ends))
        ends[at : at + 1] = [until[i]]
        lane[i] = at
    return lane, np.array([max(len(ends), 1) for ends in free], np.int64)
