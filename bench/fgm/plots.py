"""Plots of the FGM experiment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for name, (colour, line) in _STYLE.items():
        if name in jobs:
            times = np.sort(jobs[name])
            part = np.arange(len(times) + 1) / len(times)
            axes.step(np.r_[times[0], times], part, line, color=colour, where="post", label=name)
    axes.set(xlabel="job completion time in s", ylabel="part of the jobs", title=title, ylim=(0, 1.02))
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return _save(figure, folder, f"fgm-completion-{title}")


def plot_makespan(title: str, curves: Mapping[str, Mapping[float, float]], folder: Path) -> Path:
    """Plot the makespan by volume."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for name, (colour, line) in _STYLE.items():
        if name in curves:
            volumes = sorted(curves[name])
            axes.plot(volumes, [curves[name][v] for v in volumes], line, color=colour, marker="o", ms=3.5, label=name)
    axes.set(xlabel="input in GB", ylabel="makespan in s", title=title)
    axes.set_ylim(0, 1.05 * max(max(curve.values()) for curve in curves.values()))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return _save(figure, folder, f"fgm-makespan-{title}")


def _save(figure: object, folder: Path, name: str) -> Path:
    from matplotlib import pyplot as plt
    from matplotlib.figure import Figure

    assert isinstance(figure, Figure)
    path = folder / (name.replace(", ", "-").replace(" ", "") + ".png")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
