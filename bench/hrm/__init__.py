"""HRM: batch and stream jobs on shared CPU-GPU machines, one scheduler against several, in the simulator.

Source: Tang et al., "HRM: a hybrid resource scheduling framework for heterogeneous clusters oriented to Dataflow"
(figures 6 to 12, and table 1; on cores where they need a GPU).  Where the source does not state the size or run time of a
container, the value chosen here is in the row's note.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.hrm import clusters, frameworks, machines, mixed
from bench.rows import Keep, Outcome, forget

__all__ = ["TITLE", "plot", "run"]

TITLE = "batch and stream jobs on resource units: one scheduler against several, queues, Mesos and YARN, streams"


def run(
    *, quick: bool, seed: int = 0, say: Callable[[str], None], data: Path | None = None, keep: Keep = forget
) -> Outcome:
    """Run all of the source's experiments; `quick` has fewer jobs, and machines in proportion.

    ``data`` may have ``azure_llm2023``; without it, a note states the differences.
    """
    outcome = Outcome()
    keep(lambda: outcome)
    for title, measure in (
        ("one scheduler against six", clusters.bursts),
        ("stream jobs at once", clusters.streams),
        ("rates of arrival", clusters.rates),
        ("length of the queues", clusters.lengths),
        ("compared with Mesos and YARN", frameworks.frameworks),
    ):
        say(title)
        outcome.rows += measure(quick, seed)
    say("sharing cores, streams next to batch jobs")
    outcome.rows += machines.processes(quick, outcome.notes)
    outcome.rows += machines.interference(quick, outcome.notes)
    outcome.rows += machines.stream_alone(quick)
    outcome.rows += mixed.mixed(quick, outcome.notes)
    outcome.rows += machines.stream_latency(data, quick, seed, outcome.notes)
    outcome.notes += [
        "Bursts: decisions take the CPU time that they need here.  Inputs: 3 cores a container, run times of 15 s or of 5 to 25 s.",
        "An assigned container may still wait in a unit's queue: the delay until it runs has a row of its own.",
        "Rates of arrival: 5 ms of decision for each container is an input.",
        "9: the messages of Mesos and YARN are simulated; neither runs here. Starting a container takes no time under any of them.",
        "9: inputs are the containers, their seconds, and 1 s between the messages of a kind, HRM's too.",
        "Table 1 is measured on this machine's cores: on a GPU its figures would follow from the speed of two jobs on one, an input.",
        "12: a core stands for the GPU, as no GPU is asked for. What an image and a text cost is an input; what both leave each other is measured.",
    ]
    return outcome


def plot(outcome: Outcome, folder: Path) -> list[Path]:
    """Plot bars of these and the source's figures, one file for each experiment."""
    from bench.hrm.plots import draw

    return draw(outcome, folder)
