"""Goals: costs of placement, waiting and preemption, shares, and hard limits, as functions of the cluster."""

from flowsched.policy.constraint import Constraint
from flowsched.policy.fairness import Fairness, Limits, Quotas
from flowsched.policy.fragmentation import FragmentationCost
from flowsched.policy.placement import (
    CustomCost,
    DeviceCost,
    LoadCost,
    Locality,
    PlacementCost,
    PreferenceCost,
    TaintCost,
)
from flowsched.policy.policy import OMEGA, Policy
from flowsched.policy.precedence import Precedence
from flowsched.policy.priority import PreemptionCost, PriorityCost, StrictPriority, WaitCost, WeightedPriority
from flowsched.policy.providers import (
    DRF,
    BatchShare,
    MaxMin,
    Remaining,
    SequenceShare,
    ShareProvider,
    StaticQuotas,
    WeightedMaxMin,
)
from flowsched.policy.utility import Utilities

__all__ = [
    "DRF",
    "OMEGA",
    "BatchShare",
    "Constraint",
    "CustomCost",
    "DeviceCost",
    "Fairness",
    "FragmentationCost",
    "Limits",
    "LoadCost",
    "Locality",
    "MaxMin",
    "PlacementCost",
    "Policy",
    "Precedence",
    "PreemptionCost",
    "PreferenceCost",
    "PriorityCost",
    "Quotas",
    "Remaining",
    "SequenceShare",
    "ShareProvider",
    "StaticQuotas",
    "StrictPriority",
    "TaintCost",
    "Utilities",
    "WaitCost",
    "WeightedMaxMin",
    "WeightedPriority",
]
