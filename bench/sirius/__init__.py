"""The evaluation of Sirius, Figures 7 to 15: goals on 20 machines, latency and resource cost on up to 10,000.

The source measured real machines for Figures 7 to 11.  Here tasks run in a simulator, by models that are stated in `links`,
`fairness`, `placement` and `priority`.  Latency and cost are measured here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.rows import Keep, Outcome, Row, forget
from bench.sirius.fairness import measure_fairness
from bench.sirius.latency import job_sizes, measure_latency
from bench.sirius.model import NAME
from bench.sirius.overhead import FILTER, SLOTS_ONLY, measure_overhead
from bench.sirius.placement import measure_placement
from bench.sirius.plots import Figures, plot
from bench.sirius.priority import measure_priority

__all__ = ["TITLE", "plot", "run"]

TITLE = "fairness, placement, priority, latency and resource cost (Sirius, figures 7 to 15)"

_ALIKE = 0.1
"""Figures that differ by less than this part of them are alike."""

_NOTES = """
The number before a setting is the source's figure.  It draws its figures without stating numbers: its words are under 'source'.
7: a task reads 128 MB from a machine drawn at random, over links of 1 Gbit/s that are shared max-min fairly; services read nothing. \
All schedulers have 24 slots a machine, so services, for which all places are equal, run alike under all of them.
7: 'Firmament' is Quincy's network on this project's solver: cost scaling, and repair from scratch in the place of relaxation. \
Both solve every round, and their costs must agree. 'Sirius' has max-min bounds on jobs, Firmament has none.
8: how much slower a program is without a GPU is an input, so there are three. With 10 tasks the ratio to Random is \
(1 + slower) / 2 whatever places them on GPUs: no row. The source's 2 means three times slower.
8, 9: 'GPU machines only' is a hard constraint in a queue. It is not the source's Swarm, whose settings the source does not state.
10, 11: 'priority queue' has the order of Kubernetes and Borg, priority and then age; it is neither.
12, 13: CPU time of the thread. A round of ICS is changing the network, solving and reading; CS is building, solving and reading.
14, 15: each in a process on one core with at most 4 GB.
"""


def run(
    *, quick: bool, seed: int = 0, say: Callable[[str], None], data: Path | None = None, keep: Keep = forget
) -> Outcome:
    """Run all experiments; ``data`` may have the Google trace of 2011 in ``google2011``."""
    outcome = Figures()
    keep(lambda: outcome)
    say("fairness: SNP of batch, service and mixed load")
    outcome.snp = measure_fairness(outcome, quick, seed)
    say("placement: 10 to 40 tasks that want a GPU")
    outcome.gpu = measure_placement(outcome, seed)
    say("priority: three loads of 480")
    outcome.priority = measure_priority(outcome, seed)
    say("latency: 5,000 and 10,000 machines of 24 slots")
    sizes = job_sizes(data, outcome.notes)
    outcome.latency = measure_latency(outcome, quick, seed, sizes)
    say("resource cost, in processes of their own")
    outcome.cost = measure_overhead(outcome, quick, seed, None if sizes is None else sizes.tolist())
    outcome.rows += marks(outcome.snp, outcome.gpu, outcome.priority, outcome.latency, outcome.cost)
    outcome.notes += _NOTES.strip().splitlines()
    return outcome


def marks(snp: Any, gpu: Any, priority: Any, latency: Any, cost: Any) -> list[Row]:
    """Return a row for each statement, which states if the figures of this run agree with it in sign and order."""
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
