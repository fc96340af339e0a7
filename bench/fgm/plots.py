"""Plots of the FGM experiment, with the published figures of Figures 10, 13, 17 and 18."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.drawing import PUBLISHED, chart, published, write

__all__ = ["plot_completion", "plot_makespan"]

_STYLE = {
    "FIFO": ("#9aa0a6", ":"),
    "Capacity": ("#b08d57", "--"),
    "Fair": ("#5b8c5a", "-."),
    "DRF": ("#333333", "-"),
    "FGM greedy": ("#e08214", "-"),
    "FGM flow": ("#2166ac", "-"),
}


def plot_completion(title: str, jobs: Mapping[str, NDArray[np.float64]], folder: Path) -> Path:
    """Plot the fraction of jobs that were done, by time since their arrival."""
    figure, (axes,) = chart(title)
    for name, (colour, line) in _STYLE.items():
        if name in jobs:
            times = np.sort(jobs[name])
            part = np.arange(len(times) + 1) / len(times)
            axes.step(np.r_[times[0], times], part, line, color=colour, where="post", label=name)
    if title.startswith("offline"):
        published(axes, 150.0, "published: FGM ahead from 150 s on", "x")
        published(axes, 600.0, "published: FGM's longest job, 600 s", "x")
    elif "cloud" in title:
        published(axes, 1000.0, "published: FGM's longest job, 1,000 s", "x")
    axes.set(xlabel="job completion time in s", ylabel="part of the jobs", ylim=(0, 1.02))
    axes.set_xlim(left=0)
    figure.legend(loc="outside lower center", ncols=2)
    return write(figure, folder, _name(f"fgm-completion-{title}"))


_GAINS = {"dedicated": (0.0, 31.0), "cloud": (57.48, 62.4)}
"""Published gains over the baselines at 400 GB, in percent."""


def plot_makespan(title: str, curves: Mapping[str, Mapping[float, float]], folder: Path) -> Path:
    """Plot the makespan by volume."""
    figure, (axes,) = chart(title)
    for name, (colour, line) in _STYLE.items():
        if name in curves:
            volumes = sorted(curves[name])
            axes.plot(volumes, [curves[name][v] for v in volumes], line, color=colour, marker="o", ms=3.5, label=name)
    last = max(max(curve) for curve in curves.values())
    baselines = [curve[last] for name, curve in curves.items() if not name.startswith("FGM") and last in curve]
    if last == 400 and baselines:
        low, high = _GAINS["cloud" if "cloud" in title else "dedicated"]
        ends = min(baselines) * (1 - high / 100), max(baselines) * (1 - low / 100)
        axes.plot(
            (last, last), ends, color=PUBLISHED, linewidth=3, label=f"published gain of FGM: {low:g} to {high:g} %"
        )
    axes.set(xlabel="input in GB", ylabel="makespan in s")
    axes.set_ylim(0, 1.05 * max(max(curve.values()) for curve in curves.values()))
    figure.legend(loc="outside lower center", ncols=2)
    return write(figure, folder, _name(f"fgm-makespan-{title}"))


def _name(title: str) -> str:
    return title.replace(", ", "-").replace(" ", "")
