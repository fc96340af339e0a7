"""The evaluation of Sirius, Figures 7 to 15: goals on 20 machines, latency and resource cost on up to 10,000.

The source measured real machines for Figures 7 to 11.  Here tasks run in a simulator, by models that are stated in `links`,
`fairness`, `placement` and `priority`.  Latency and cost are measured here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.rows import Keep, Outcome, forget
from bench.sirius.fairness import measure_fairness
from bench.sirius.latency import job_sizes, measure_latency
from bench.sirius.load import measure_loads, measure_printed, measure_scale, measure_trace
from bench.sirius.overhead import measure_overhead
from bench.sirius.placement import measure_placement
from bench.sirius.plots import Figures, plot
from bench.sirius.priority import measure_priority
from bench.sirius.shares import measure_shares

__all__ = ["TITLE", "plot", "run"]

TITLE = "fairness, placement, priority, latency and resource cost (Sirius, figures 7 to 15)"

_NOTES = """
The number before a setting is the source's figure.  It draws its figures without stating numbers: its words are under 'source'.
7: a task reads 128 MB from a machine drawn at random, over links of 1 Gbit/s that are shared max-min fairly; services read nothing. \
All schedulers have 24 slots a machine, so services, for which all places are equal, run alike under all of them.
7: 'Firmament' is Quincy's network on this project's solver: cost scaling, and repair from scratch in the place of relaxation. \
Both solve every round, and their costs must agree. 'Sirius' has max-min bounds on jobs, Firmament has none.
8: how much slower a program is without a GPU is an input, so there are three. With 10 tasks the ratio to Random is \
(1 + slower) / 2 whatever places them on GPUs: no row. The source's 2 means three times slower.
8, 9: 'GPU machines only' is a hard constraint in a queue. It is not the source's Swarm, whose settings the source does not state.
10, 11: 'priority queue' has the order of Kubernetes and Borg, priority and then age, with preemption and without; it is neither.
12, 13: CPU time of the thread. A round of ICS is changing the network, solving and reading; CS is building, solving and reading.
14, 15: each in a process on one core with at most 4 GB.
Table 3: as printed, each re-solve begins at epsilon = C with potentials 0. That takes longer than a solve from scratch, as epsilon falls \
through all its phases again. The solver here is another algorithm: it keeps the potentials, and repairs the flow at epsilon 0.
"""


def run(
    *, quick: bool, seed: int = 0, say: Callable[[str], None], data: Path | None = None, keep: Keep = forget
) -> Outcome:
    """Run all experiments; ``data`` may have the Google trace of 2011 in ``google2011``."""
    outcome = Figures()
    keep(lambda: outcome)
    say("fairness: SNP of batch, service and mixed load")
    outcome.snp = measure_fairness(outcome, quick, seed)
    measure_shares(outcome, seed)
    say("placement: 10 to 40 tasks that want a GPU")
    outcome.gpu = measure_placement(outcome, seed)
    say("priority: three loads of 480")
    outcome.priority = measure_priority(outcome, seed)
    say("latency: 5,000 and 10,000 machines of 24 slots")
    sizes = job_sizes(data, outcome.notes)
    outcome.latency = measure_latency(outcome, quick, seed, sizes)
    say("resource cost, in processes of their own")
    outcome.cost = measure_overhead(outcome, quick, seed, None if sizes is None else sizes.tolist())
    say("by load: kernel and scheduler, incremental and from scratch")
    measure_loads(outcome, quick, seed)
    measure_printed(outcome, quick, seed)
    measure_trace(outcome, data)
    if not quick:
        say("100,000 machines")
        measure_scale(outcome, seed)
    outcome.notes += _NOTES.strip().splitlines()
    return outcome
