"""The NetworkX backend: NetworkX's functions on the solvers of `flowsched.network`."""

from flowsched.nx_backend.backend import (
    can_run,
    capacity_scaling,
    cost_of_flow,
    max_flow_min_cost,
    maximum_flow,
    maximum_flow_value,
    min_cost_flow,
    min_cost_flow_cost,
    minimum_cut,
    minimum_cut_value,
    network_simplex,
    scale_weights,
    should_run,
)
from flowsched.nx_backend.graph import convert_from_nx, convert_to_nx

__all__ = [
    "can_run",
    "capacity_scaling",
    "convert_from_nx",
    "convert_to_nx",
    "cost_of_flow",
    "max_flow_min_cost",
    "maximum_flow",
    "maximum_flow_value",
    "min_cost_flow",
    "min_cost_flow_cost",
    "minimum_cut",
    "minimum_cut_value",
    "network_simplex",
    "scale_weights",
    "should_run",
]
