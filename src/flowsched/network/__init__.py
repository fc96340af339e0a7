"""Flow networks: solved once, or kept alive and re-optimised where they changed; files and matrices of them."""

from flowsched.network.certificate import certify
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.one_shot import min_cost_flow
from flowsched.network.results import INF, FlowResult, FlowSolution

__all__ = ["INF", "FlowNetwork", "FlowResult", "FlowSolution", "certify", "min_cost_flow"]
