"""Plots of the HRM experiments' rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.rows import Outcome, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_BLUE, _ORANGE, _GREY = "#2563c9", "#d9730d", "#9aa5b1"
_STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e3e8ee",
    "legend.frameon": False,
}


def draw(outcome: Outcome, folder: Path) -> list[Path]:
    """Plot one file for each experiment with rows in the outcome."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    written: list[Path] = []
    with rc_context(_STYLE):
        for name, paint in (
            ("bursts", _bursts), ("rates", _rates), ("conflicts", _conflicts), ("lengths", _lengths), ("frameworks", _frameworks),
            ("streams", _streams),
        ):  # fmt: skip
            figure = Figure(figsize=(7.5, 4.2), layout="constrained")
            if paint(outcome.rows, figure.add_subplot()):
                written.append(folder / f"hrm_{name}.svg")
                figure.savefig(written[-1])
    return written


def _bars(axes: Axes, labels: list[str], series: dict[str, tuple[list[float], str]]) -> None:
    width = 0.8 / len(series)
    for i, (label, (values, colour)) in enumerate(series.items()):
        at = [x + (i - (len(series) - 1) / 2) * width for x in range(len(labels))]
        bars = axes.bar(at, values, width * 0.92, color=colour, label=label)
        axes.bar_label(bars, fmt=lambda value: f"{value:.3g}", fontsize=8, padding=1)
    axes.set_xticks(range(len(labels)), labels)
    axes.legend()


def _pick(rows: list[Row], pattern: str, metric: str) -> list[tuple[re.Match[str], Row]]:
    found = [(re.search(pattern, row.setting), row) for row in rows if row.metric == metric]
    return [(match, row) for match, row in found if match]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _bursts(rows: list[Row], axes: Axes) -> bool:
    picked = _pick(rows, r"^(\d+) jobs x 40 on (\d+) machines, random", "delay until running, worst")
    if not picked:
        return False
    six: dict[str, float] = {}
    one: dict[str, dict[str, float]] = {}
    for match, row in picked:
        group = f"{match[1]} jobs,\n{match[2]} machines"
        six[group] = _number(row.value)
        one.setdefault(row.note.split(";")[0].removeprefix("baseline: "), {})[group] = _number(row.baseline)
    series = {
        name: ([values.get(group, float("nan")) for group in six], colour)
        for (name, values), colour in zip(one.items(), (_ORANGE, _GREY, "#16806a"), strict=False)
    }
    _bars(axes, list(six), {**series, "six schedulers": (list(six.values()), _BLUE)})
    axes.set_yscale("log")
    axes.set_ylabel("worst delay until running (s)")
    axes.set_title("Jobs of 40 containers at once, random run times (source, 180 jobs: one 14 s, six 2.5 s)")
    return True


def _rates(rows: list[Row], axes: Axes) -> bool:
    pattern = r", ([\d.]+) jobs/s"
    shown = False
    for count, colour in ((1, _ORANGE), (6, _BLUE)):
        for metric, style, text in (
            (f"delay against the lowest rate, {count} schedulers", "-o", "delay"),
            (f"busyness, {count} schedulers", "--s", "busyness (%)"),
        ):
            picked = _pick(rows, pattern, metric)
            if picked:
                axes.plot([float(m[1]) for m, _ in picked], [_number(r.value) for _, r in picked], style, color=colour,
                          label=f"{text}, {count} scheduler{'s' * (count > 1)}")  # fmt: skip
                shown = True
    if not shown:
        return False
    axes.set_xlabel("jobs per second")
    axes.set_ylabel("delay against the lowest rate; busyness in %")
    axes.set_title("Rates of arrival, 5 ms of decision for each container")
    axes.set_ylim(0, None)
    axes.legend()
    return shown


def _conflicts(rows: list[Row], axes: Axes) -> bool:
    shown = False
    for taste, colour in (("take the first", _ORANGE), ("scatter", _BLUE)):
        picked = _pick(rows, r", ([\d.]+) jobs/s", f"conflict ratio, six that {taste}")
        if picked:
            axes.plot([float(m[1]) for m, _ in picked], [_number(r.value) for _, r in picked], "-o", color=colour,
                      label=f"six schedulers that {taste}")  # fmt: skip
            shown = True
    axes.axhline(45, color=_GREY, linestyle=":", label="the source, at most")
    axes.set_xlabel("jobs per second")
    axes.set_ylabel("refused claims (%)")
    axes.set_title("Conflicts")
    axes.set_ylim(0, 50)
    axes.legend()
    return shown


def _lengths(rows: list[Row], axes: Axes) -> bool:
    pattern = r"containers of (.+), queue length (\d)"
    picked = _pick(rows, pattern, "completion against length 1")
    loads = list(dict.fromkeys(match[1] for match, _ in picked))
    if not loads:
        return False
    series = {
        f"length {n}": ([_number(row.value) for match, row in picked if match[2] == str(n)], colour)
        for n, colour in ((2, _BLUE), (3, _ORANGE))
    }
    _bars(axes, [load.replace(" +- ", "\n+-").replace(" alone", "\nalone") for load in loads], series)
    axes.axhline(0, color="#66717e", linewidth=0.8)
    axes.set_ylabel("completion against length 1 (%)")
    axes.set_title("Length of the batch queues (the source: 2 is best, -15 %)")
    return True


def _frameworks(rows: list[Row], axes: Axes) -> bool:
    picked = _pick(rows, r"^9: (.+), load of 80%", "completion, mean")
    names = {row.note.removeprefix("baseline: "): None for _, row in picked if "one container" not in row.note}
    if not names:
        return False
    programs = list(dict.fromkeys(match[1] for match, _ in picked))
    first = next(iter(names))
    series = {"HRM": ([_number(row.value) for _, row in picked if row.note.endswith(first)], _BLUE)}
    for name, colour in zip(names, (_ORANGE, _GREY, "#16806a"), strict=False):
        series[name] = ([_number(row.baseline) for _, row in picked if row.note == f"baseline: {name}"], colour)
    _bars(axes, programs, series)
    axes.set_ylabel("completion, s")
    axes.set_title("Batch jobs at 80 % load (figure 9a)")
    return True


def _streams(rows: list[Row], axes: Axes) -> bool:
    against = _pick(rows, r"^(\d) batch jobs", "without stacking against with")
    if not against:
        return False
    _bars(
        axes, [match[1] for match, _ in against], {"fair shares": ([_number(row.value) for _, row in against], _ORANGE)}
    )
    axes.axhline(1, color="#66717e", linewidth=0.8, label="stacked queues")
    axes.set_xlabel("batch jobs next to the stream")
    axes.set_ylabel("time of a micro-batch, stacked = 1")
    axes.set_title("Micro-batches next to batch jobs (source: flat stacked, else 2-3 times at 5-9)")
    return True
