"""Figures 7 to 11 of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flowsched.experiments.rows import Outcome
from flowsched.experiments.sirius.priority import LOADS

__all__ = ["Figures", "plot"]


@dataclass
class Figures(Outcome):
    """The outcome, with the figures that the plots need: of fairness, placement and priority."""

    snp: Any = None
    gpu: Any = None
    priority: Any = None


def plot(outcome: Outcome, folder: Path) -> list[Path]:
    """Figures 7 to 11 of the source."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    assert isinstance(outcome, Figures)
    files = []

    def bars(
        name: str, groups: Sequence[str], series: dict[str, Sequence[float]], label: str, title: str, log: bool = False
    ) -> None:
        figure, axis = plt.subplots(figsize=(max(6.4, 1.2 * len(groups)), 3.6), layout="constrained")
        width = 0.8 / len(series)
        for i, (label_, values) in enumerate(series.items()):
            drawn = axis.bar(np.arange(len(groups)) + (i - (len(series) - 1) / 2) * width, values, width, label=label_)
            axis.bar_label(drawn, fmt="%.2g" if len(groups) > 4 else "%.3g", fontsize=7)
        axis.set_xticks(np.arange(len(groups)), [group.replace(" load of ", "\n") for group in groups])
        axis.set_ylabel(label)
        if log:
            axis.set_yscale("log")
        axis.margins(y=0.15)
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
        axis.set_title(title)
        path = folder / f"sirius-{name}.png"
        figure.savefig(path, dpi=120)
        plt.close(figure)
        files.append(path)

    loads = list(outcome.snp)
    bars(
        "snp",
        loads,
        {name: [outcome.snp[load][name] for load in loads] for name in outcome.snp[loads[0]]},
        "SNP",
        "Fairness (fig. 7)",
    )
    counts = list(outcome.gpu["Sirius"])
    for i, (name, label) in enumerate((("gpu-tasks", "part of the tasks on GPUs"), ("gpu-wait", "mean wait, s"))):
        series: dict[str, Sequence[float]] = {
            scheduler: [values[count][i] for count in counts] for scheduler, values in outcome.gpu.items()
        }
        bars(name, [f"{count} tasks" for count in counts], series, label, f"Placement (for fig. {8 + i})")
    programs = [kind.name for kind in LOADS]
    by_program: dict[str, Sequence[float]] = {
        scheduler: [values[name] for name in programs] for scheduler, values in outcome.priority.items()
    }
    bars("priority", programs, by_program, "mean run time, s", "Priority (figs. 10 and 11)", log=True)
    return files
