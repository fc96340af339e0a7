"""The solver in the shape of OR-tools' ``SimpleMinCostFlow``: a program only changes its import."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import flowsched.network._columns as _columns
from flowsched.exceptions import CostRangeError, InfeasibleError, InputError
from flowsched.network.arguments import capacities as checked_capacities
from flowsched.network.arguments import checked_options, integers
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.one_shot import min_cost_flow

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from flowsched.network.results import Int64Array

__all__ = ["FlowStatus", "SimpleMinCostFlow"]


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

    def __str__(self) -> str:
        return f"Status.{self.name}"  # as OR-tools prints it


class SimpleMinCostFlow(_columns.Columns):
    """A min-cost flow problem, built arc by arc or in bulk, and solved.

    Names, arguments and results are those of ``ortools.graph.python.min_cost_flow.SimpleMinCostFlow``, with three
    differences.  A second `solve` starts from the first one's optimum.  Costs are exact and of any size.  Wrong arguments
    (a negative capacity, an arc that does not exist, a flow that was not found) raise errors at once.

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
        super().__init__()
        self._network = (
            FlowNetwork()
        )  # the problem at the last solve; nothing is ever removed from it: its ids are 0, 1, 2, ...

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (), self._state()

    def __setstate__(self, state: tuple[Any, Any, Any]) -> None:
        self._restore(*state)

    def _integer(self, name: str, value: object) -> int:
        checked: Any = value
        return int(integers(name, [checked])[0])

    # -- the problem; the methods for a single arc or node are inherited -------------------------------------

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
        k = len(start)
        first = self._add_arcs(
            start,
            integers("heads", heads, k),
            checked_capacities("capacities", capacities, k),
            integers("unit_costs", unit_costs, k),
        )
        return np.arange(first, first + k)

    def set_nodes_supplies(self, nodes: ArrayLike, supplies: ArrayLike) -> None:
        """Set the supplies of nodes: they send (> 0) or take (< 0); nodes up to the highest number are added."""
        numbers = integers("nodes", nodes)
        self._set_supplies(numbers, integers("supplies", supplies, len(numbers)))

    def set_arc_capacities(self, arcs: ArrayLike, capacities: ArrayLike) -> None:
        """Set the capacities of arcs."""
        numbers = integers("arcs", arcs)
        self._set_capacities(numbers, checked_capacities("capacity", capacities, len(numbers)))

    # -- its solution ----------------------------------------------------------------------------------------

    def solve(self) -> FlowStatus:
        """Find a flow of least cost that sends and takes all supplies.

        Raises
        ------
        UnboundedError
            A cycle of negative cost has unlimited capacity, for which there is no status.
        """
        with self._in_use():
            supplies = self._supplies()
            if supplies.sum():
                return self._none(FlowStatus.UNBALANCED)
            try:
                self._hand_on(supplies)
                cost = self._network._core.solve(*checked_options("auto", None))[0]  # an error without an explanation
            except InfeasibleError:
                return self._none(FlowStatus.INFEASIBLE)
            except CostRangeError:
                return self._none(FlowStatus.BAD_COST_RANGE)
            self._keep(self._network.flow(), cost, int(supplies[supplies > 0].sum()))
            return FlowStatus.OPTIMAL

    def _hand_on(self, supplies: Int64Array) -> None:
        """Apply the changes since the last call to the network; a second time, after a failure, does no harm."""
        network = self._network
        network.add_nodes(len(supplies) - network.num_nodes)
        arcs, nodes = self._recent()
        if len(arcs):
            old = arcs[arcs < network.num_arcs]
            network.set_capacity(old, self._arcs()[2][old])
        new = self._arcs(network.num_arcs)
        if len(new[0]):
            network.add_arcs(*new)
        if len(nodes):
            try:
                network.set_supply(nodes, supplies[nodes])
            except CostRangeError:  # it also counts the former supplies of the nodes
                network.set_supply(nodes, 0)
                network.set_supply(nodes, supplies[nodes])
        self._taken()

    def _none(self, status: FlowStatus) -> FlowStatus:
        """Forget the flow; return the status."""
        self._keep(None, 0, 0)
        return status

    def solve_max_flow_with_min_cost(self) -> FlowStatus:
        """Find a flow of least cost among those that send as much as is possible; it need not be all.

        Solved from scratch each time; ``FlowNetwork.solve(partial=True)`` goes on from the last optimum.
        """
        with self._in_use():
            supplies = self._supplies()
            try:
                result = min_cost_flow(*self._arcs(), supplies, partial=True)
            except CostRangeError:
                return self._none(FlowStatus.BAD_COST_RANGE)
            sent = supplies - result.unshipped
            self._keep(result.flow, result.cost, int(sent[sent > 0].sum()))
            return FlowStatus.OPTIMAL

    def flows(self, arcs: ArrayLike) -> Int64Array:
        """Return the flow on arcs."""
        flow, numbers = self._flows(), integers("arcs", arcs)
        wrong = (numbers < 0) | (numbers >= len(flow))
        if wrong.any():
            i = int(np.argmax(wrong))
            raise InputError(f"arcs[{i}]: there is no arc {numbers[i]} in the solution")
        return flow[numbers]
