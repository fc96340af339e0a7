"""Figures 7 to 15 of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.rows import Outcome
from bench.sirius.priority import LOADS

__all__ = ["Figures", "plot"]


@dataclass
class Figures(Outcome):
    """The outcome, with the figures that the plots need."""

    snp: Any = None
    gpu: Any = None
    priority: Any = None
    latency: Any = None
    cost: Any = None


def plot(outcome: Outcome, folder: Path) -> list[Path]:
    """Figures 7 to 15 of the source."""
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
    for i, name, label in ((2, "gpu-time", "mean run time with waiting, s"), (1, "gpu-wait", "mean wait, s")):
        series: dict[str, Sequence[float]] = {
            scheduler: [values[count][i] for count in counts] for scheduler, values in outcome.gpu.items()
        }
        bars(
            name,
            [f"{count} tasks" for count in counts],
            series,
            label,
            f"Placement (fig. {10 - i}), 3 times slower without a GPU",
        )
    programs = [kind.name for kind in LOADS]
    by_program: dict[str, Sequence[float]] = {
        scheduler: [values[name] for name in programs] for scheduler, values in outcome.priority.items()
    }
    bars("priority", programs, by_program, "mean run time, s", "Priority (figs. 10 and 11)", log=True)
    for number, (title, times) in zip((12, 13), (outcome.latency or {}).items(), strict=False):
        tasks = np.linspace(10_000, 20_000, len(next(iter(times.values()))))
        in_ms: dict[str, Sequence[float]] = {name: [1e3 * value for value in values] for name, values in times.items()}
        bars(
            f"latency-{number}",
            [f"{count:,.0f} tasks" for count in tasks],
            in_ms,
            "ms",
            f"A decision, {title} (fig. {number})",
            log=True,
        )
    for i, (name, label, unit) in enumerate(
        (("cpu", "CPU time of a round, ms", 1e-3), ("memory", "peak memory, MiB", 1 << 20))
    ):
        if outcome.cost:
            sizes = list(outcome.cost["Sirius"])
            used: dict[str, Sequence[float]] = {
                kind: [by_size[size][i] / unit for size in sizes] for kind, by_size in outcome.cost.items()
            }
            bars(name, [f"{size:,} machines" for size in sizes], used, label, f"Resource cost (fig. {14 + i})")
    return files
