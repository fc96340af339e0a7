"""A model of the records of an incremental DIMACS stream, in the simplest terms."""

from __future__ import annotations

from collections import Counter

import numpy as np
import oracles

from flowsched.network.problem import FlowProblem


class Plain:
    """A model of the records, one by one, in the simplest terms; solved cold by OR-tools."""

    def __init__(self):
        self.supply = {}
        self.arcs = []  # [tail, head, lower, capacity, cost]
        self.sink = None
        self.first = True
        self.highest = 0

    def play(self, lines):
        before, told, new, due = dict(self.supply), False, 0, 0
        if self.sink is None:
            self.sink = self.taker()
        for line in lines:
            kind, *fields = line.split()
            if kind == "c":
                continue
            if kind == "p":
                self.highest = int(fields[1])
                self.supply = dict.fromkeys(range(1, self.highest + 1), 0)
                continue
            numbers = [int(field) for field in fields]
            if kind == "n":
                self.set(numbers[0], numbers[1])
                told |= numbers[0] == self.sink
                if numbers[2:] == [3]:
                    self.sink, told = numbers[0], True
            elif kind == "d":
                new = min(set(range(1, len(self.supply) + 2)) - set(self.supply))
                due = numbers[1] if len(numbers) == 2 else numbers[2]
                self.set(new, numbers[0])
            elif kind == "r":
                del self.supply[numbers[0]]
                self.arcs = [arc for arc in self.arcs if numbers[0] not in arc[:2]]
                if numbers[0] == self.sink:
                    self.sink, told = None, True
            else:
                tail, head, lower, capacity, cost = numbers[:5]
                if due and kind == "a":
                    due, tail, head = due - 1, tail or new, head or new
                for node in (tail, head):
                    self.supply.setdefault(node, 0)
                twins = [arc for arc in self.arcs if arc[:2] == [tail, head]] if kind == "x" else []
                if len(twins) > 1:
                    twins = [arc for arc in twins if arc[4] == numbers[6]]
                if twins:
                    twins[0][2:] = lower, capacity, cost
                else:
                    self.arcs.append([tail, head, lower, capacity, cost])
                if not capacity:
                    self.arcs = [arc for arc in self.arcs if arc[3]]
        if not self.first and not told and self.sink is not None:
            others = sum(self.supply.values()) - self.supply[self.sink]
            self.supply[self.sink] -= others - (sum(before.values()) - before[self.sink])
        self.first = False

    def set(self, node, supply):
        self.supply[node] = supply
        self.highest = max(self.highest, node)

    def taker(self):
        takers = [node for node, supply in self.supply.items() if supply < 0]
        return takers[0] if len(takers) == 1 else None

    def problem(self):
        dense = {node: i for i, node in enumerate(self.supply)}
        columns = np.array(self.arcs, np.int64).reshape(-1, 5).T
        tail, head = ([dense[node] for node in column.tolist()] for column in columns[:2])
        lower, capacity, cost = columns[2:].copy()
        return FlowProblem(tail, head, capacity, cost, list(self.supply.values()), lower)

    def check(self, answer):
        """The answer's flow and cost are an optimum of this problem."""
        given = dict.fromkeys(((tail, head) for tail, head, *_ in self.arcs), 0)
        for line in answer:
            if line.startswith("f "):
                tail, head, flow = map(int, line[2:].split())
                given[tail, head] += flow
        cost = oracles.ortools(self.problem())
        assert answer.count(f"s {cost.cost}") == 1, (cost, [line for line in answer if line.startswith("s")])
        excess = Counter(self.supply)
        least, most = Counter(), Counter()
        for tail, head, lower, capacity, _ in self.arcs:
            least[tail, head] += lower
            most[tail, head] += capacity
        for (tail, head), flow in given.items():
            assert least[tail, head] <= flow <= most[tail, head]
            excess[tail] -= flow
            excess[head] += flow
        assert not any(excess.values()), excess
