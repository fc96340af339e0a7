"""Flow networks: solved once, or kept alive and re-optimised where they changed; files and matrices of them."""

from flowsched.network.flow_network import INF, FlowNetwork, FlowResult, FlowSolution, certify, min_cost_flow

__all__ = ["INF", "FlowNetwork", "FlowResult", "FlowSolution", "certify", "min_cost_flow"]
