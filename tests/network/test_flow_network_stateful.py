"""FlowNetwork under any sequence of calls, beside a model of plain dictionaries and another solver."""

from __future__ import annotations

import pickle

import numpy as np
import oracles
from effort import effort
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from netmodel import ALGORITHMS, Mirror

from flowsched.exceptions import InfeasibleError, UnboundedError
from flowsched.network import INF

costs = st.integers(-20, 40)
capacities = st.one_of(st.integers(0, 6), st.just(INF))
supplies = st.integers(-4, 4)
budgets = st.sampled_from(((3000, -1), (1, -1), (20, 200), (3000, 0)))
pick = st.randoms(use_true_random=False)


class NetworkMachine(RuleBasedStateMachine):
    """Every rule changes the network and its model alike; solving compares them with an oracle."""

    def __init__(self) -> None:
        super().__init__()
        self.mirror = Mirror()

    @initialize(budget=budgets, supply=st.lists(supplies, min_size=2, max_size=4))
    def start(self, budget, supply):
        self.mirror.net._set_budget(*budget)
        self.mirror.add_nodes([*supply, -sum(supply)])

    @rule(supply=st.lists(supplies, min_size=1, max_size=3))
    def add_nodes(self, supply):
        self.mirror.add_nodes([*supply, -sum(supply)])

    @precondition(lambda self: self.mirror.supply)
    @rule(
        table=st.lists(st.tuples(capacities, costs, st.integers(0, 2)), min_size=1, max_size=6),
        random=pick,
    )
    def add_arcs(self, table, random):
        nodes = sorted(self.mirror.supply)
        self.mirror.add_arcs(
            [(random.choice(nodes), random.choice(nodes), max(cap, low), cost, low) for cap, cost, low in table]
        )

    @precondition(lambda self: self.mirror.arcs)
    @rule(random=pick, count=st.integers(1, 3))
    def remove_arcs(self, random, count):
        arcs = sorted(self.mirror.arcs)
        self.mirror.remove_arcs(random.sample(arcs, min(count, len(arcs))))

    @precondition(lambda self: self.mirror.supply)
    @rule(random=pick)
    def remove_node(self, random):
        self.mirror.remove_nodes([random.choice(sorted(self.mirror.supply))])

    @precondition(lambda self: len(self.mirror.supply) > 1)
    @rule(random=pick, amount=supplies)
    def move_supply(self, random, amount):
        giver, taker = random.sample(sorted(self.mirror.supply), 2)
        supply = self.mirror.supply
        self.mirror.set_supply([giver, taker], [supply[giver] + amount, supply[taker] - amount])

    @precondition(lambda self: self.mirror.supply)
    @rule(random=pick)
    def balance(self, random):
        node = random.choice(sorted(self.mirror.supply))
        self.mirror.set_supply([node], [self.mirror.supply[node] - sum(self.mirror.supply.values())])

    @precondition(lambda self: self.mirror.arcs)
    @rule(random=pick, cost=costs)
    def set_cost(self, random, cost):
        self.mirror.set_arc("cost", [random.choice(sorted(self.mirror.arcs))], [cost])

    @precondition(lambda self: self.mirror.arcs)
    @rule(random=pick, capacity=capacities)
    def set_capacity(self, random, capacity):
        arc = random.choice(sorted(self.mirror.arcs))
        self.mirror.set_arc("capacity", [arc], [max(capacity, self.mirror.arcs[arc].lower)])

    @precondition(lambda self: self.mirror.arcs)
    @rule(random=pick, lower=st.integers(0, 3))
    def set_lower(self, random, lower):
        arc = random.choice(sorted(self.mirror.arcs))
        self.mirror.set_arc("lower", [arc], [min(lower, self.mirror.arcs[arc].capacity)])

    @rule(pickled=st.booleans())
    def replace_by_its_copy(self, pickled):
        net = self.mirror.net
        self.mirror.net = pickle.loads(pickle.dumps(net)) if pickled else net.copy()

    @rule(algorithm=st.sampled_from(ALGORITHMS))
    def solve(self, algorithm):
        problem = self.mirror.problem()
        answer = oracles.optimum(problem)
        arcs = self.mirror.arc_ids()
        before = self.mirror.net.flow(arcs)
        try:
            solution = self.mirror.net.solve(algorithm=algorithm)
        except InfeasibleError as error:
            assert answer.status == oracles.INFEASIBLE
            oracles.check_cut(problem, self.mirror.cut(error))
            np.testing.assert_array_equal(self.mirror.net.flow(arcs), before)
        except UnboundedError as error:
            assert answer.status in (oracles.UNBOUNDED, oracles.INFEASIBLE)
            oracles.check_cycle(problem, np.searchsorted(arcs, error.cycle))
            assert set(error.cycle.tolist()) <= set(self.mirror.arcs)
            np.testing.assert_array_equal(self.mirror.net.flow(arcs), before)
        else:
            assert (answer.status, answer.cost) == (oracles.OPTIMAL, solution.cost)
            self.mirror.check_solution(solution)

    @invariant()
    def attributes_read_back(self):
        self.mirror.check_attributes()


TestNetwork = NetworkMachine.TestCase
TestNetwork.settings = settings(max_examples=effort(15, 300), stateful_step_count=50)
