"""Plots of the HRM experiments' rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from bench.drawing import COLOURS, bars, chart, published, write
from bench.rows import Outcome, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]


def draw(outcome: Outcome, folder: Path) -> list[Path]:
    """Plot one file for each experiment with rows in the outcome."""
    written: list[Path] = []
    for name, title, paint in (
        ("bursts", "Jobs of 40 containers at once, random run times (Figure 6)", _bursts),
        ("rates", "Rates of arrival, 5 ms a container (Figure 7)", _rates),
        ("conflicts", "Refused claims (Figure 8)", _conflicts),
        ("lengths", "Length of the batch queues (Figure 11)", _lengths),
        ("frameworks", "Batch jobs at 80 % load (Figure 9a)", _frameworks),
        ("streams", "Micro-batches next to batch jobs (Figure 10)", _streams),
    ):
        figure, (axes,) = chart(title)
        if paint(outcome.rows, axes):
            if not figure.legends:
                figure.legend(loc="outside lower center", ncols=2)
            written.append(write(figure, folder, f"hrm_{name}"))
    return written


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
    series = {name: [values.get(group, float("nan")) for group in six] for name, values in one.items()}
    first, many = next(iter(series)), "six schedulers"
    marks: dict[str, list[float | None]] = {
        name: [value if group.startswith("180 ") and "1050" in group else None for group in six]
        for name, value in ((first, 14.0), (many, 2.5))
    }
    bars(axes, list(six), {many: list(six.values()), **series}, marks, log=True)
    axes.set_ylabel("worst delay until running (s)")
    return True


def _rates(rows: list[Row], axes: Axes) -> bool:
    pattern = r", ([\d.]+) jobs/s"
    shown = False
    for count, colour in ((1, COLOURS[1]), (6, COLOURS[0])):
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
    axes.set_ylabel("delay (lowest rate = 1), busyness (%)", fontsize=8.5)
    published(axes, 2.0, "published: delay of one above 2")
    axes.set_ylim(0, None)
    return shown


def _conflicts(rows: list[Row], axes: Axes) -> bool:
    shown = False
    for taste, colour in (("take the first", COLOURS[1]), ("scatter", COLOURS[0])):
        picked = _pick(rows, r", ([\d.]+) jobs/s", f"conflict ratio, six that {taste}")
        if picked:
            axes.plot([float(m[1]) for m, _ in picked], [_number(r.value) for _, r in picked], "-o", color=colour,
                      label=f"six that {taste}")  # fmt: skip
            shown = True
    published(axes, 45.0, "published: up to 45 %")
    axes.set_xlabel("jobs per second")
    axes.set_ylabel("refused claims (%)")
    axes.set_ylim(0, 50)
    return shown


def _lengths(rows: list[Row], axes: Axes) -> bool:
    pattern = r"containers of (.+), queue length (\d)"
    picked = _pick(rows, pattern, "completion against length 1")
    loads = list(dict.fromkeys(match[1] for match, _ in picked))
    if not loads:
        return False
    series = {f"length {n}": [_number(row.value) for match, row in picked if match[2] == str(n)] for n in (2, 3)}
    names = [
        load.replace(" +- ", "\n+-").replace(" alone", "\nalone").replace("48 containers of ", "") for load in loads
    ]
    published(axes, -15.0, "published: length 2 by about 15 %")
    bars(axes, [name if len(loads) < 6 else name.partition("\n")[0] for name in names], series)
    axes.set_ylabel("completion against length 1 (%)")
    axes.set_xlabel("mean run time of containers")
    return True


def _frameworks(rows: list[Row], axes: Axes) -> bool:
    picked = _pick(rows, r"^9: (.+), load of 80%", "completion, mean")
    names = {row.note.removeprefix("baseline: "): None for _, row in picked if "one container" not in row.note}
    if not names:
        return False
    programs = list(dict.fromkeys(match[1] for match, _ in picked))
    first = next(iter(names))
    series = {"HRM": [_number(row.value) for _, row in picked if row.note.endswith(first)]}
    for name in list(names)[:3]:
        series[name] = [_number(row.baseline) for _, row in picked if row.note == f"baseline: {name}"]
    mesos = next((values for name, values in series.items() if name.startswith("Mesos")), [])
    bars(axes, [name.replace(", ", "\n") for name in programs], series, {"HRM": mesos}, "published: as Mesos")
    axes.set_ylabel("completion, s")
    return True


def _streams(rows: list[Row], axes: Axes) -> bool:
    against = _pick(rows, r"^(\d) batch jobs", "without stacking against with")
    if not against:
        return False
    counts = [match[1] for match, _ in against]
    published(axes, (2.0, 3.0), "published, 5 to 9 jobs: 2 to 3")
    axes.axhline(1, color=COLOURS[4], linewidth=1, label="stacked queues")
    bars(axes, counts, {"fair shares": [_number(row.value) for _, row in against]})
    axes.set_xlabel("batch jobs next to the stream")
    axes.set_ylabel("time of a micro-batch, stacked = 1")
    return True
