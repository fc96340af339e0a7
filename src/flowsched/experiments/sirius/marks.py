"""The statements of the source, each with the word whether the figures of this run agree in sign and order."""

from __future__ import annotations

from typing import Any

from flowsched.experiments.rows import Row
from flowsched.experiments.sirius.model import NAME
from flowsched.experiments.sirius.overhead import FILTER, SLOTS_ONLY

__all__ = ["marks"]

_ALIKE = 0.1
"""Figures that differ by less than this part of them are alike."""


def marks(snp: Any, gpu: Any, priority: Any, latency: Any, cost: Any) -> list[Row]:
    """Return a row for each statement, from what the experiments returned."""
    held: list[tuple[str, bool]] = []
    for load in ("batch", "service", "mixed"):
        of = [by_name for setting, by_name in snp.items() if setting.startswith(load) and "MB" not in setting]
        held.append(
            (f"7, {load}: SNP above Random's", all(one["Sirius"] > one["random queue"] * (1 + _ALIKE) for one in of))
        )
        held.append(
            (f"7, {load}: as Firmament's", all(abs(one["Sirius"] / one["Firmament"] - 1) < _ALIKE for one in of))
        )
    ours, hard, lots = (gpu[name] for name in ("Sirius", "GPU machines only", "random queue"))
    held += [
        ("8, 10 tasks: all on GPUs, unlike Random's", ours[10][0] == 1 > lots[10][0]),
        ("8, 20 tasks: run time below the hard constraint's", ours[20][2] < hard[20][2] * (1 - _ALIKE)),
        ("9: wait below the hard constraint's with more tasks", all(ours[n][1] < hard[n][1] for n in (30, 40))),
    ]
    for label, word in (("equal priority", "10: TPC-H above 5 s"), ("TPC-H first", "11: TPC-H below 1 s")):
        seconds = priority[f"Sirius, {label}"]["TPC-H"]
        held.append((word, seconds > 5 if label == "equal priority" else seconds < 1))
    for figure, lines in enumerate(latency.values(), 12):
        ics, growth = lines["ICS"], {name: values[-1] / values[0] for name, values in lines.items()}
        for name in lines.keys() - {"ICS"}:
            less = all(a < b for a, b in zip(ics, lines[name], strict=True))
            held.append((f"{figure}: ICS takes less than {name}", less))
            held.append((f"{figure}: ICS grows less than {name}", growth["ICS"] < growth[name]))
    for i, what in enumerate(("14: CPU time", "15: memory")):
        for other in (SLOTS_ONLY, FILTER) if cost else ():
            more = all(mine[i] > cost[other][size][i] for size, mine in cost["Sirius"].items())
            held.append((f"{what} above that of the {other}", more))
    return [
        Row(NAME, "sign and order", what, "as the source" if holds else "not so")
        for what, holds in sorted(held, key=_by_figure)
    ]


def _by_figure(one: tuple[str, bool]) -> tuple[int, str]:
    figure, _, words = one[0].replace(":", ",").partition(",")
    return int(figure), words
