"""The solver in the shape of OR-tools' ``SimpleMinCostFlow``: a program changes its import, and nothing else."""

from __future__ import annotations

from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from flowsched.exceptions import CostRangeError, InfeasibleError, InputError
from flowsched.network.arguments import integers
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.one_shot import min_cost_flow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike

    from flowsched.network.results import Int64Array

__all__ = ["FlowStatus", "SimpleMinCostFlow"]

_MOST_NODES: Final = 2**31 - 2


class FlowStatus(IntEnum):
    """Outcome of a solve."""

    NOT_SOLVED = 0
    OPTIMAL = 1
    FEASIBLE = 2
    INFEASIBLE = 3
    UNBALANCED = 4
    BAD_RESULT = 5
    BAD_COST_RANGE = 6
    BAD_CAPACITY_RANGE = 7


class SimpleMinCostFlow:
    """A min-cost flow problem, built in bulk and solved.

    Names, arguments and results are those of ``ortools.graph.python.min_cost_flow.SimpleMinCostFlow``.  Three things differ:
    a second `solve` starts from the first one's optimum; costs are exact and of any size; and wrong
    arguments (a negative capacity, an arc that does not exist, a flow that was not found) are errors at once, not strange results.

    Examples
    --------
    >>> flow = SimpleMinCostFlow()
    >>> flow.add_arcs_with_capacity_and_unit_cost([0, 0, 1], [1, 2, 2], [4, 2, 3], [1, 5, 1])
    array([0, 1, 2])
    >>> flow.set_nodes_supplies([0, 2], [4, -4])
    >>> flow.solve() == flow.OPTIMAL
    True
    >>> flow.optimal_cost(), flow.flows([0, 1, 2])
    (11, array([3, 1, 3]))
    """

    Status: Final = FlowStatus
    NOT_SOLVED: Final = FlowStatus.NOT_SOLVED
    OPTIMAL: Final = FlowStatus.OPTIMAL
    FEASIBLE: Final = FlowStatus.FEASIBLE
    INFEASIBLE: Final = FlowStatus.INFEASIBLE
    UNBALANCED: Final = FlowStatus.UNBALANCED
    BAD_RESULT: Final = FlowStatus.BAD_RESULT
    BAD_COST_RANGE: Final = FlowStatus.BAD_COST_RANGE
    BAD_CAPACITY_RANGE: Final = FlowStatus.BAD_CAPACITY_RANGE

    def __init__(self) -> None:
        self._network = FlowNetwork()  # nothing is ever removed from it: its ids are 0, 1, 2, ...
        self._flow: Int64Array | None = None
        self._cost = 0
        self._sent = 0

    # -- the problem -----------------------------------------------------------------------------------------

    def add_arc_with_capacity_and_unit_cost(self, tail: int, head: int, capacity: int, unit_cost: int) -> int:
        """Add an arc; return its number."""
        return int(self.add_arcs_with_capacity_and_unit_cost([tail], [head], [capacity], [unit_cost])[0])

    def add_arcs_with_capacity_and_unit_cost(
        self, tails: ArrayLike, heads: ArrayLike, capacities: ArrayLike, unit_costs: ArrayLike
    ) -> Int64Array:
        """Add arcs; nodes up to the highest number are added with them.

        Parameters
        ----------
        tails, heads : array of int, shape (k,)
            Node numbers from 0.
        capacities, unit_costs : array of int, shape (k,), or int

        Returns
        -------
        ndarray of int64, shape (k,)
            The arcs' numbers.

        Raises
        ------
        InputError
            Names the argument and the index; nothing was added.
        CostRangeError
            Costs are so large that exact arithmetic could overflow.
        """
        start = integers("tails", tails)
        end = integers("heads", heads, len(start))
        room = integers("capacities", capacities, len(start))
        cost = integers("unit_costs", unit_costs, len(start))
        if (room < 0).any():
            i = int(np.argmax(room < 0))
            raise InputError(f"capacities[{i}]: {room[i]} is negative")
        with self._nodes_for(tails=start, heads=end):
            return self._network.add_arcs(start, end, room, cost)

    def set_node_supply(self, node: int, supply: int) -> None:
        """Set the supply of a node: it sends (> 0) or takes (< 0)."""
        self.set_nodes_supplies([node], [supply])

    def set_nodes_supplies(self, nodes: ArrayLike, supplies: ArrayLike) -> None:
        """Set the supplies of nodes: they send (> 0) or take (< 0); nodes up to the highest number are added."""
        numbers = integers("nodes", nodes)
        amounts = integers("supplies", supplies, len(numbers))
        with self._nodes_for(nodes=numbers):
            self._network.set_supply(numbers, amounts)

    def set_arc_capacity(self, arc: int, capacity: int) -> None:
        """Set the capacity of an arc."""
        self.set_arc_capacities([arc], [capacity])

    def set_arc_capacities(self, arcs: ArrayLike, capacities: ArrayLike) -> None:
        """Set the capacities of arcs."""
        self._network.set_capacity(arcs, capacities)

    def num_nodes(self) -> int:
        """Return how many nodes there are."""
        return self._network.num_nodes

    def num_arcs(self) -> int:
        """Return how many arcs there are."""
        return self._network.num_arcs

    def tail(self, arc: int) -> int:
        """Return the node that an arc leaves."""
        return int(self._network.tail([arc])[0])

    def head(self, arc: int) -> int:
        """Return the node that an arc enters."""
        return int(self._network.head([arc])[0])

    def capacity(self, arc: int) -> int:
        """Return the capacity of an arc."""
        return int(self._network.capacity([arc])[0])

    def unit_cost(self, arc: int) -> int:
        """Return the cost of an arc."""
        return int(self._network.cost([arc])[0])

    def supply(self, node: int) -> int:
        """Return the supply of a node."""
        return int(self._network.supply([node])[0])

    # -- its solution ----------------------------------------------------------------------------------------

    def solve(self) -> FlowStatus:
        """Find a flow of least cost that sends and takes all supplies.

        Raises
        ------
        UnboundedError
            A cycle of negative cost has unlimited capacity, for which there is no status.
        """
        supplies = self._network.supply().tolist()
        if sum(supplies):
            return self._none(FlowStatus.UNBALANCED)
        try:
            cost = self._network.solve().cost
        except InfeasibleError:
            return self._none(FlowStatus.INFEASIBLE)
        except CostRangeError:
            return self._none(FlowStatus.BAD_COST_RANGE)
        flow, sent = self._network.flow(), sum(supply for supply in supplies if supply > 0)
        self._flow, self._cost, self._sent = flow, cost, sent
        return FlowStatus.OPTIMAL

    def _none(self, status: FlowStatus) -> FlowStatus:
        """Forget the flow; return the status."""
        self._flow = None
        return status

    def solve_max_flow_with_min_cost(self) -> FlowStatus:
        """Find a flow of least cost among those that send as much as is possible; it need not be all."""
        net = self._network
        supply = net.supply()
        givers, takers = np.flatnonzero(supply > 0), np.flatnonzero(supply < 0)
        n, m = len(supply), net.num_arcs
        most = min(sum(supply[givers].tolist()), -sum(supply[takers].tolist()))
        source, sink = np.full(len(givers), n), np.full(len(takers), n + 1)
        tail = np.concatenate([net.tail(), source, takers])
        head = np.concatenate([net.head(), givers, sink])
        room = np.concatenate([net.capacity(), supply[givers], -supply[takers]])
        ends = np.zeros(n + 2, np.int64)
        try:
            ends[[n, n + 1]] = most, -most  # what cannot be sent goes past the network, at a cost of 1
            cost = np.append(np.zeros(len(tail), np.int64), 1)
            past = min_cost_flow(np.append(tail, n), np.append(head, n + 1), np.append(room, most), cost, ends).cost
            ends[[n, n + 1]] = most - past, past - most
            cost = np.concatenate([net.cost(), np.zeros(len(tail) - m, np.int64)])
            result = min_cost_flow(tail, head, room, cost, ends)
        except (CostRangeError, OverflowError):
            return self._none(FlowStatus.BAD_COST_RANGE)
        self._flow, self._cost, self._sent = result.flow[:m], result.cost, most - past
        return FlowStatus.OPTIMAL

    def flow(self, arc: int) -> int:
        """Return the flow on an arc."""
        return int(self.flows([arc])[0])

    def flows(self, arcs: ArrayLike) -> Int64Array:
        """Return the flow on arcs."""
        flow, numbers = self._solved(self._flow), integers("arcs", arcs)
        wrong = (numbers < 0) | (numbers >= len(flow))
        if wrong.any():
            i = int(np.argmax(wrong))
            raise InputError(f"arcs[{i}]: there is no arc {numbers[i]} in the solution")
        return flow[numbers]

    def optimal_cost(self) -> int:
        """Return the cost of the flow, exact and of any size."""
        self._solved(self._flow)
        return self._cost

    def maximum_flow(self) -> int:
        """Return the amount that the flow sends."""
        self._solved(self._flow)
        return self._sent

    @staticmethod
    def _solved(flow: Int64Array | None) -> Int64Array:
        if flow is None:
            raise InputError("no flow was found yet: solve() first, and look at the status")
        return flow

    @contextmanager
    def _nodes_for(self, **numbers: Int64Array) -> Iterator[None]:
        """Add nodes up to the highest number; remove them again if the block fails."""
        highest = -1
        for name, values in numbers.items():
            if len(values):
                if values.min() < 0:
                    raise InputError(f"{name}[{int(np.argmin(values))}]: node numbers start at 0, got {values.min()}")
                highest = max(highest, int(values.max()))
        count = self._network.num_nodes
        if highest >= count:
            if highest >= _MOST_NODES:
                raise CostRangeError(f"node {highest}: a network has fewer than 2**31 nodes")
            self._network.add_nodes(highest + 1 - count)
        try:
            yield
        except BaseException:
            # The last first, so that ids are given again in ascending order.
            self._network.remove_nodes(np.arange(self._network.num_nodes - 1, count - 1, -1))
            raise
