"""FGM: fine-grained matching in stages, with compressible resources, as an adapter of the scheduler.

`DemandEstimator` learns the needs of tasks of a kind over their progress.  `divide_stages` divides them into a few stages.
`match` tests if a task's stages fit into the free amounts of a machine; `max_compression` bounds the compression.
`conformity` measures the accuracy of estimates.  `FineGrained` combines all of it around a scheduler.

Source: M.-S. Zhou, X.-S. Dong, H. Chen and X.-J. Zhang, "Dynamically Fine-grained Scheduling
Method in Cloud Environment", Journal of Software 31(12), 2020 (FGM).
"""

from flowsched.fgm.adapter import FineGrained
from flowsched.fgm.adjust import Adjustment, Level, conformity, time_weighted_mean
from flowsched.fgm.cost import StageCost
from flowsched.fgm.estimate import DemandEstimator, Profile, by_progress
from flowsched.fgm.forecast import missed, theoretical_duration
from flowsched.fgm.protocols import Plans
from flowsched.fgm.share import StageShare
from flowsched.fgm.stages import Stages, divide_stages
from flowsched.fgm.timeline import Timeline, Timelines, compression, match, max_compression

__all__ = [
    "Adjustment",
    "DemandEstimator",
    "FineGrained",
    "Level",
    "Plans",
    "Profile",
    "StageCost",
    "StageShare",
    "Stages",
    "Timeline",
    "Timelines",
    "by_progress",
    "compression",
    "conformity",
    "divide_stages",
    "match",
    "max_compression",
    "missed",
    "theoretical_duration",
    "time_weighted_mean",
]
