"""A model of FlowNetwork as plain dictionaries, and random mutations applied to both."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import oracles

from flowsched.exceptions import InfeasibleError
from flowsched.network import INF, FlowNetwork, FlowSolution
from flowsched.network.problem import FlowProblem

ALGORITHMS = ("auto", "repair", "cost_scaling", "network_simplex")


def probing(net: FlowNetwork) -> FlowNetwork:
    """Return a copy that takes repair from scratch for cheap: a probe answers its next large change, or comes before the answer."""
    state = net.state()
    record = np.array(state["record"])
    record[73:76] = (
        1,
        net.num_arcs,
        0,
    )  # what repair from scratch took, with how many arcs, and probes that have failed since
    return FlowNetwork.from_state(state | {"record": record})


@dataclass
class Arc:
    tail: int
    head: int
    capacity: int
    cost: int
    lower: int
    flow: int = 0  # in the last solution


@dataclass
class Mirror:
    """A FlowNetwork and its expected state; every mutation goes to both."""

    net: FlowNetwork = field(default_factory=FlowNetwork)
    supply: dict[int, int] = field(default_factory=dict)
    arcs: dict[int, Arc] = field(default_factory=dict)

    def add_nodes(self, supply: list[int]) -> list[int]:
        ids = self.net.add_nodes(np.array(supply, np.int64)).tolist()
        assert len(set(ids)) == len(supply), "ids are distinct"
        assert not set(ids) & set(self.supply), "no id of a living node is given again"
        self.supply.update(zip(ids, supply, strict=True))
        return ids

    def add_arcs(self, table: list[tuple[int, int, int, int, int]]) -> list[int]:
        """Add arcs, given as (tail, head, capacity, cost, lower)."""
        tail, head, capacity, cost, lower = np.array(table, np.int64).reshape(-1, 5).T
        ids = self.net.add_arcs(tail, head, capacity, cost, lower=lower).tolist()
        assert len(set(ids)) == len(table), "ids are distinct"
        assert not set(ids) & set(self.arcs), "no id of a living arc is given again"
        self.arcs.update((arc, Arc(*row)) for arc, row in zip(ids, table, strict=True))
        return ids

    def remove_nodes(self, nodes: list[int]) -> None:
        self.net.remove_nodes(np.array(nodes, np.int64))
        gone = set(nodes)
        for node in nodes:
            del self.supply[node]
        self.arcs = {i: a for i, a in self.arcs.items() if a.tail not in gone and a.head not in gone}

    def remove_arcs(self, arcs: list[int]) -> None:
        self.net.remove_arcs(np.array(arcs, np.int64))
        for arc in arcs:
            del self.arcs[arc]

    def set_supply(self, nodes: list[int], supply: list[int]) -> None:
        self.net.set_supply(np.array(nodes, np.int64), np.array(supply, np.int64))
        self.supply.update(zip(nodes, supply, strict=True))

    def set_arc(self, name: str, arcs: list[int], values: list[int]) -> None:
        """Call ``set_capacity``, ``set_lower`` or ``set_cost``."""
        getattr(self.net, f"set_{name}")(np.array(arcs, np.int64), np.array(values, np.int64))
        for arc, value in zip(arcs, values, strict=True):
            setattr(self.arcs[arc], name, value)

    def problem(self) -> FlowProblem:
        """Return the model as arrays, nodes and arcs numbered in the order of their ids."""
        index = {node: i for i, node in enumerate(sorted(self.supply))}
        arcs = [self.arcs[arc] for arc in sorted(self.arcs)]
        table = [(index[a.tail], index[a.head], a.capacity, a.cost, a.lower) for a in arcs]
        tail, head, capacity, cost, lower = np.array(table, np.int64).reshape(-1, 5).T
        supply = np.array([self.supply[node] for node in sorted(self.supply)], np.int64)
        return FlowProblem(tail, head, capacity, cost, supply, lower)

    def node_ids(self) -> np.ndarray:
        return np.array(sorted(self.supply), np.int64)

    def arc_ids(self) -> np.ndarray:
        return np.array(sorted(self.arcs), np.int64)

    def check_attributes(self) -> None:
        """The network reads back what was written into it."""
        net, nodes, arcs, problem = self.net, self.node_ids(), self.arc_ids(), self.problem()
        assert sorted(net.nodes().tolist()) == nodes.tolist()
        assert sorted(net.arcs().tolist()) == arcs.tolist()
        assert net.supply(nodes).tolist() == problem.supply.tolist()
        for name in ("capacity", "cost", "lower"):
            assert getattr(net, name)(arcs).tolist() == getattr(problem, name).tolist()
        assert net.tail(arcs).tolist() == nodes[problem.tail].tolist()
        assert net.head(arcs).tolist() == nodes[problem.head].tolist()

    def cut(self, error: InfeasibleError) -> np.ndarray:
        """Return an error's cut, which goes by node id, for the nodes in the order of their ids."""
        assert set(np.flatnonzero(error.cut).tolist()) <= set(self.supply), "a removed node is in the cut"
        return error.cut[self.node_ids()]

    def check_solution(self, solution, problem: FlowProblem | None = None, *, optimal: bool = True) -> None:
        """The network's flow is one, with these potentials an optimum, and ``changed`` says what differs from the last solution."""
        arcs, nodes = self.arc_ids(), self.node_ids()
        problem = problem or self.problem()
        flow, potential = self.net.flow(arcs), self.net.potential(nodes)
        if optimal:
            oracles.check_optimal(problem, flow, solution.cost, potential)
        else:
            oracles.check_flow(problem, flow, solution.cost)
        reduced = problem.cost + potential[problem.tail] - potential[problem.head]
        np.testing.assert_array_equal(self.net.reduced_cost(arcs), reduced)
        differs = {arc for arc, now in zip(arcs.tolist(), flow.tolist(), strict=True) if now != self.arcs[arc].flow}
        assert sorted(set(solution.changed.tolist()) & set(self.arcs)) == sorted(differs)
        assert len(set(solution.changed.tolist())) == len(solution.changed)
        for arc, value in zip(arcs.tolist(), flow.tolist(), strict=True):
            self.arcs[arc].flow = value


def from_problem(problem: FlowProblem) -> Mirror:
    """Return a network and its model of a whole problem."""
    mirror = Mirror()
    ids = mirror.add_nodes(problem.supply.tolist())
    columns = (problem.tail, problem.head, problem.capacity, problem.cost, problem.lower)
    table = zip(*(column.tolist() for column in columns), strict=True)
    mirror.add_arcs([(ids[tail], ids[head], *rest) for tail, head, *rest in table])
    return mirror


def network(problem: FlowProblem) -> FlowNetwork:
    """Return a network of a whole problem, built in bulk: node and arc ids are the problem's indices."""
    net = FlowNetwork()
    net.add_nodes(problem.supply)
    net.add_arcs(problem.tail, problem.head, problem.capacity, problem.cost, lower=problem.lower)
    return net


def mutate(mirror: Mirror, rng: np.random.Generator, max_cost: int = 50) -> str:
    """Apply one random mutation, of one to three nodes or arcs; return its name.

    Supplies stay balanced, and capacities without limit go to arcs of no negative cost, so that a minimum exists
    wherever a flow does.
    """
    kinds = ["add_arcs", "add_arcs", "set_cost", "set_capacity", "set_lower", "set_supply", "remove_arcs", "add_nodes"]
    kind = str(rng.choice([*kinds, "remove_nodes", "none"]))
    nodes, arcs = list(mirror.supply), list(mirror.arcs)
    count = int(rng.integers(1, 4))
    chosen = [int(arc) for arc in rng.choice(arcs, min(count, len(arcs)), replace=False)] if arcs else []
    if kind == "add_arcs" and nodes:
        mirror.add_arcs([_random_arc(rng, nodes, max_cost) for _ in range(count)])
    elif kind == "set_cost":
        least = [0 if mirror.arcs[arc].capacity >= INF else -max_cost for arc in chosen]
        mirror.set_arc("cost", chosen, [int(rng.integers(low, max_cost + 1)) for low in least])
    elif kind == "set_capacity":
        mirror.set_arc("capacity", chosen, [_random_capacity(rng, mirror.arcs[arc]) for arc in chosen])
    elif kind == "set_lower":
        mirror.set_arc("lower", chosen, [int(rng.integers(0, min(3, mirror.arcs[a].capacity) + 1)) for a in chosen])
    elif kind == "set_supply" and len(nodes) > 1:
        giver, taker = (int(node) for node in rng.choice(nodes, 2, replace=False))
        amount = int(rng.integers(-3, 4))
        values = [mirror.supply[giver] + amount, mirror.supply[taker] - amount]
        mirror.set_supply([giver, taker], values)
    elif kind == "remove_arcs":
        mirror.remove_arcs(chosen)
    elif kind == "add_nodes":
        new = mirror.add_nodes([0] * count)
        mirror.add_arcs([_random_arc(rng, [*nodes, *new], max_cost) for _ in range(2 * count)])
    elif kind == "remove_nodes" and len(nodes) > 3:
        _remove_node(mirror, int(rng.choice(nodes)))
    return kind


def mend(mirror: Mirror, cut: np.ndarray, rng: np.random.Generator) -> None:
    """Open the cut of an infeasible network: an expensive arc without limit from a node in it to one outside."""
    nodes = mirror.node_ids()
    mirror.add_arcs([(int(rng.choice(nodes[cut])), int(rng.choice(nodes[~cut])), INF, 1000, 0)])


def solved(mirror: Mirror, algorithm: str, rng: np.random.Generator) -> FlowSolution | None:
    """Solve, and compare with a cold optimum of another solver; None, and a mended network, if it is infeasible."""
    problem = mirror.problem()
    try:
        solution = mirror.net.solve(algorithm=algorithm)
    except InfeasibleError as error:
        cut = mirror.cut(error)
        oracles.check_cut(problem, cut)
        mend(mirror, cut, rng)
        return None
    mirror.check_solution(solution)
    assert solution.cost == oracles.ortools(problem).cost
    mirror.net.certify()
    return solution


def _random_arc(rng: np.random.Generator, nodes: list[int], max_cost: int) -> tuple[int, int, int, int, int]:
    tail, head = (int(node) for node in rng.choice(nodes, 2))
    capacity = int(rng.integers(0, 6))
    cost = int(rng.integers(-max_cost // 3, max_cost + 1))
    lower = int(rng.integers(0, capacity + 1)) if rng.random() < 0.1 else 0
    return tail, head, INF if rng.random() < 0.15 and cost >= 0 else capacity, cost, lower


def _random_capacity(rng: np.random.Generator, arc: Arc) -> int:
    if arc.cost >= 0 and rng.random() < 0.2:
        return INF
    return arc.lower + int(rng.integers(0, 6))


def _remove_node(mirror: Mirror, node: int) -> None:
    """Remove a node; what it sent or took moves to another first, so that the supplies stay balanced."""
    other = next(other for other in mirror.supply if other != node)
    if mirror.supply[node]:
        mirror.set_supply([node, other], [0, mirror.supply[node] + mirror.supply[other]])
    mirror.remove_nodes([node])
