"""Flexibility of Sirius: the source's three experiments on 20 machines, each a network built another way.

The source (section 4.2) measured real machines.  Here tasks run in the simulator, by a model that is stated in `model` and
in the notes.
"""

from __future__ import annotations

from collections.abc import Callable

from flowsched.experiments.rows import Keep, Outcome, forget
from flowsched.experiments.sirius.fairness import measure_fairness
from flowsched.experiments.sirius.model import CONTENTION, OFF_GPU, OFF_RACK
from flowsched.experiments.sirius.placement import measure_placement
from flowsched.experiments.sirius.plots import Figures, plot
from flowsched.experiments.sirius.priority import measure_priority

__all__ = ["TITLE", "plot", "run"]

TITLE = "flexibility: fairness, placement and priority on 20 machines (Sirius, section 4.2)"


def run(*, quick: bool, seed: int = 0, say: Callable[[str], None], keep: Keep = forget) -> Outcome:
    """Run the three experiments."""
    outcome = Figures()
    keep(lambda: outcome)
    say("fairness: SNP of batch, service and mixed load")
    outcome.snp = measure_fairness(outcome, quick, seed)
    say("placement: 10 to 40 tasks that want a GPU")
    outcome.gpu = measure_placement(outcome, seed)
    say("priority: three loads of 480")
    outcome.priority = measure_priority(outcome, seed)
    outcome.notes.append(
        f"Model of run time: more tasks than cores slow each other down (contention {CONTENTION:g} beyond sharing), data in the "
        f"other rack costs {1 - OFF_RACK:.0%} of the speed, image analysis without a GPU runs at {OFF_GPU:.0%}. These are assumptions."
    )
    outcome.notes.append(
        "All schedulers have the same slots: 24 a machine for fairness and priority; for placement one a machine, and two a GPU "
        "from 20 tasks on, which share it at full speed. The random queue takes the first task in line to a random free slot."
    )
    outcome.notes.append(
        "'Sirius' goes by costs (utility, load, waiting), as in the source; 'with max-min' adds a ladder over jobs, whose price "
        "outweighs utility: tasks below their share do not wait for a better place."
    )
    outcome.notes.append(
        "The source draws these figures without stating numbers; its words are under 'source'. Figure 8, mean run times on and off "
        "GPUs, is not here: its ratio would be the assumed speed without a GPU. The rows tell which tasks ran on GPUs instead."
    )
    outcome.notes.append(
        "'GPU machines only' is a hard constraint in a queue. It is not the source's Swarm, whose settings the source does not state."
    )
    return outcome
