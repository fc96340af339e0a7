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
        f"other rack costs {1 - OFF_RACK:.0%} of the speed, image analysis without a GPU runs at {OFF_GPU:.0%}. Random placement without slots is "
        "overloaded by its own contention at high load, so its ratio grows with the load and the time."
    )
    outcome.notes.append(
        "'Sirius' goes by costs (utility, load, waiting) and 24 slots a machine, as in the source; 'with max-min' adds a ladder over "
        "jobs, whose price outweighs utility: tasks below their share do not wait for a better place."
    )
    outcome.notes.append("The source draws these figures without stating numbers; its words are under 'source'.")
    outcome.notes.append(
        "'GPU machines only' is a hard constraint with one task per GPU, as Swarm is configured in the source."
    )
    return outcome
