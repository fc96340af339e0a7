"""Figures 7 to 15 of the source, with its own figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.drawing import bars, chart, published, write
from bench.rows import Outcome
from bench.sirius.priority import LOADS

__all__ = ["Figures", "plot"]

Marks = Mapping[str, Sequence[float | None]]


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
    assert isinstance(outcome, Figures)
    files: list[Path] = []

    def draw(
        name: str, title: str, label: str, groups: Sequence[str], series: Mapping[str, Sequence[float]],
        marks: Marks | None = None, said: str = "published", log: bool = False,
    ) -> None:  # fmt: skip
        figure, (axes,) = chart(title)
        bars(axes, groups, series, marks, said, log)
        axes.set_ylabel(label)
        files.append(write(figure, folder, name))

    snp = {load: by_name for load, by_name in outcome.snp.items() if "MB" not in load}
    draw(
        "sirius-snp", "Fairness (Figure 7)", "SNP",
        [load.replace(" load of ", "\n") for load in snp],
        {name: [by_name[name] for by_name in snp.values()] for name in next(iter(snp.values()))},
        {"Sirius": [2 * by_name["random queue"] for by_name in snp.values()]}, "published: twice Random's",
    )  # fmt: skip
    counts = list(outcome.gpu["Sirius"])
    half = [outcome.gpu["random queue"][count][2] / 2 if count == 10 else None for count in counts]
    for i, name, label, marks in (
        (2, "sirius-gpu-time", "mean run time with waiting, s", {"Sirius": half}), (1, "sirius-gpu-wait", "mean wait, s", None),
    ):  # fmt: skip
        draw(
            name, f"Placement (Figure {10 - i}), 3 times slower without a GPU", label, [f"{count} tasks" for count in counts],
            {scheduler: [values[count][i] for count in counts] for scheduler, values in outcome.gpu.items()},
            marks, "published: half of Random's",
        )  # fmt: skip
    programs = [kind.name for kind in LOADS]
    figure, panels = chart("Priority (Figures 10 and 11)", 2.7, 2)
    for axes, (title, bound, said) in zip(
        panels, (("equal priority", 5.0, "published: TPC-H above 5 s"), ("TPC-H first", 1.0, "published: TPC-H below 1 s")),
        strict=True,
    ):  # fmt: skip
        of = {name.partition(", ")[0]: found for name, found in outcome.priority.items() if name.endswith(title)}
        published(axes, bound, said)
        bars(
            axes,
            programs,
            {name: [found[program] for program in programs] for name, found in of.items()},
            log=True,
            legend=False,
        )
        axes.set(ylabel="mean run time, s", title=title)
    handles, labels = panels[0].get_legend_handles_labels()
    lines, texts = panels[1].get_legend_handles_labels()
    figure.legend([lines[0], *handles], [texts[0], *labels], loc="outside lower center", ncols=2, fontsize=8)
    files.append(write(figure, folder, "sirius-priority"))
    for number, (title, times) in zip((12, 13), (outcome.latency or {}).items(), strict=False):
        tasks = np.linspace(10_000, 20_000, len(next(iter(times.values()))))
        figure, (axes,) = chart(f"A decision, {title} (Figure {number})")
        for name, values in times.items():
            axes.plot(tasks, [1e3 * value for value in values], "o-", label=name, markersize=4)
        slow = [1e2 * value for value in times["cost scaling from scratch"]]
        axes.plot(tasks, slow, "--", color="#b3364f", label="published: ICS up to 10 times below CS")
        axes.set(yscale="log", xlabel="tasks", ylabel="ms")
        axes.set_xticks(tasks, [f"{count:,.0f}" for count in tasks])
        figure.legend(loc="outside lower center", ncols=2)
        files.append(write(figure, folder, f"sirius-latency-{number}"))
    for i, (name, label, unit, factor) in enumerate(
        (("cpu", "CPU time of a round, ms", 1e-3, 1.5), ("memory", "peak memory, MiB", 1 << 20, 2.0))
    ):
        if outcome.cost:
            sizes = list(outcome.cost["Sirius"])
            used = {
                kind: [by_size[size][i] / unit for size in sizes] for kind, by_size in outcome.cost.items() if by_size
            }
            other = next(kind for kind in used if "all resources" in kind)
            draw(
                f"sirius-{name}", f"Resource cost (Figure {14 + i})", label, [f"{size:,}\nmachines" for size in sizes], used,
                {"Sirius": [factor * value for value in used[other]]}, f"published: {factor:g} times Random's",
            )  # fmt: skip
    return files
