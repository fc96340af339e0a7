"""Lives of a flow network: any calls in any order, refused and interrupted ones too, each against a model and an oracle.

A life need not begin with a solve, and most have one that ends at its time limit.  The clock is a counter, so a life depends on its number alone.

    python tests/support/netlives.py FIRST LAST     # lives of these numbers; prints counts and faults
"""

from __future__ import annotations

import pickle
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import oracles
from netmodel import ALGORITHMS, Mirror, probing

from flowsched import _faults
from flowsched.exceptions import CostRangeError, InfeasibleError, InputError, TimeLimitError, UnboundedError
from flowsched.network import INF, FlowNetwork
from flowsched.network.problem import FlowProblem
from flowsched.network.slack import slack_arcs

LIMITS = (None, None, None, None, 0, 1, 2, 3, 5, 8, 20, 50)  # looks at the clock
BUDGETS = ((3000, -1), (3000, -1), (1, -1), (20, 200), (3000, 0), (0, 0), (5, 30))
LARGE = 2**55  # supplies of such a size may add up to more than is allowed
JUDGED = 10**7  # OR-tools takes costs up to it, and such a price of unshipped units


class Clock:
    """Each look is a step later than the one before."""

    def __init__(self) -> None:
        self.now, self.step = 1000.0, 1.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@contextmanager
def counted_clock() -> Iterator[Clock]:
    """Replace time by a clock that counts looks."""
    clock, before = time.monotonic, _faults.look_every(1)
    time.monotonic = Clock()
    try:
        yield time.monotonic
    finally:
        time.monotonic = clock
        _faults.look_every(before)


class Life:
    """One network from its first node on."""

    def __init__(self, number: int, clock: Clock) -> None:
        self.random = random.Random(number)
        self.clock = clock
        clock.now, clock.step = 1000.0, self.random.choice((1.0, 0.002, 0.0001))
        self.counts: Counter[str] = Counter()
        self.mirror = Mirror()
        self.mirror.net._set_budget(*self.random.choice(BUDGETS))
        _faults.look_every(self.random.choice((1, 30, 1000, 16_000)))
        self.cost = self.random.choice((0, 3, 50, 50, 10**6, 2**50))
        self.room = self.random.choice((1, 5, 5, 100, 2**33))
        self.amount = self.random.choice((1, 4, 4, 50, 2**33, LARGE if self.random.random() < 0.2 else 4))
        self.balanced = self.random.random() < 0.8

    def run(self) -> Counter[str]:
        """Live; AssertionError at the first fault."""
        self.add_nodes(self.random.randint(2, 14))
        self.add_arcs(self.random.randint(0, 40))
        if self.random.random() < 0.6:
            self.connect()
        calls = (
            *(self.solve,) * 4, *(self.remove_nodes,) * 3, *(self.remove_arcs,) * 2, *(self.set_supply,) * 3, *(self.refused,) * 3,
            self.add_nodes, self.add_arcs, self.add_arcs, self.set_cost, self.set_cost, self.set_capacity, self.set_lower, self.replace_by_its_copy, self.connect,
        )  # fmt: skip
        for _ in range(self.random.randint(6, 20)):
            try:
                self.random.choice(calls)()
            except CostRangeError:
                assert max(self.amount, self.volume()) >= LARGE, "what was drawn is not too large"
        self.solve()
        self.mirror.check_attributes()
        self.counts["lives"] += 1
        return self.counts

    def volume(self) -> int:
        """Sum of supplies and lower bounds."""
        return sum(map(abs, self.mirror.supply.values())) + sum(arc.lower for arc in self.mirror.arcs.values())

    # -- changes -----------------------------------------------------------------------------------------------------

    def some(self, ids: dict[int, object], most: int = 3) -> list[int]:
        return self.random.sample(sorted(ids), min(self.random.randint(1, most), len(ids)))

    def add_nodes(self, count: int = 2) -> None:
        supply = [self.random.choice((0, self.draw_supply())) for _ in range(count)]
        self.mirror.add_nodes([*supply[:-1], -sum(supply[:-1])] if self.balanced else supply)

    def draw_supply(self) -> int:
        return self.random.randint(-self.amount, self.amount)

    def draw_arc(self) -> tuple[int, int, int, int, int]:
        nodes = sorted(self.mirror.supply)
        capacity = INF if self.random.random() < 0.2 else self.random.randint(0, self.room)
        lower = self.random.randint(0, min(capacity, 3)) if self.random.random() < 0.1 else 0
        cost = self.random.randint(-self.cost // 3, self.cost)
        if capacity >= INF and self.random.random() < 0.9:
            cost = abs(cost)
        return self.random.choice(nodes), self.random.choice(nodes), capacity, cost, lower

    def add_arcs(self, count: int = 3) -> None:
        if self.mirror.supply:
            self.mirror.add_arcs([self.draw_arc() for _ in range(count)])

    def connect(self) -> None:
        """Arcs with room for everything between one node and all others."""
        nodes = sorted(self.mirror.supply)
        if len(nodes) > 1:
            hub = nodes.pop(self.random.randrange(len(nodes)))
            room = self.random.choice((INF, 2**40))
            self.mirror.add_arcs(
                [(hub, node, room, self.cost, 0) for node in nodes]
                + [(node, hub, room, self.cost, 0) for node in nodes]
            )

    def remove_nodes(self) -> None:
        supply = self.mirror.supply
        gone = self.some(supply, self.random.choice((1, 3, len(supply) // 2 + 1)))
        left = [node for node in supply if node not in set(gone)]
        amount = sum(supply[node] for node in gone)
        if self.balanced and amount and left:
            heir = self.random.choice(left)
            self.mirror.set_supply([heir], [supply[heir] + amount])
        self.mirror.remove_nodes(gone)

    def remove_arcs(self) -> None:
        self.mirror.remove_arcs(self.some(self.mirror.arcs, 5))

    def set_supply(self) -> None:
        supply, chosen = self.mirror.supply, self.some(self.mirror.supply, 4)
        values = [self.draw_supply() for _ in chosen]
        if self.balanced and chosen:
            values[-1] = supply[chosen[-1]] + sum(supply[node] for node in chosen[:-1]) - sum(values[:-1])
        self.mirror.set_supply(chosen, values)

    def set_cost(self) -> None:
        chosen = self.some(self.mirror.arcs)
        self.mirror.set_arc("cost", chosen, [self.draw_arc()[3] for _ in chosen])

    def set_capacity(self) -> None:
        chosen = self.some(self.mirror.arcs)
        self.mirror.set_arc("capacity", chosen, [max(self.draw_arc()[2], self.mirror.arcs[a].lower) for a in chosen])

    def set_lower(self) -> None:
        chosen = self.some(self.mirror.arcs)
        rooms = [self.mirror.arcs[arc].capacity for arc in chosen]
        self.mirror.set_arc("lower", chosen, [self.random.randint(0, min(room, 3)) for room in rooms])

    def replace_by_its_copy(self) -> None:
        net = self.mirror.net
        copies = (
            net.copy, lambda: pickle.loads(pickle.dumps(net)), lambda: FlowNetwork.from_state(net.state()), lambda: probing(net)
        )  # fmt: skip
        self.mirror.net = self.random.choice(copies)()

    # -- calls that are refused, as a rule: if so, nothing has changed -------------------------------------------------

    def refused(self) -> None:
        mirror, draw = self.mirror, self.random
        before = self.solution()
        nodes, arcs = self.some(mirror.supply), self.some(mirror.arcs)
        node = draw.choice([i for i in range(-1, max(mirror.supply, default=0) + 4) if i not in mirror.supply])
        arc = draw.choice([i for i in range(-1, max(mirror.arcs, default=0) + 9) if i not in mirror.arcs])
        far = draw.choice((2**59, 2**59 // (len(mirror.supply) + 1) + 1, -(2**63), 2**58))
        much = draw.choice((2**60, -(2**60) + 1, 2**59, 2**58 + 1))
        calls = [
            lambda: mirror.remove_nodes([*nodes, node]),
            lambda: mirror.remove_arcs([*arcs, arc]),
            lambda: mirror.set_supply([*nodes, node], [1] * len(nodes) + [1]),
            lambda: mirror.set_arc("cost", [*arcs, arc], [7] * len(arcs) + [7]),
            lambda: mirror.set_arc("capacity", [*arcs, arc], [9] * len(arcs) + [9]),
            lambda: mirror.add_nodes([1, much, -1]),
            lambda: mirror.net.add_nodes([1, 2], names=["a", "a"]),
        ]
        if nodes and arcs:
            u, a = nodes[0], arcs[0]
            calls += [
                lambda: mirror.net.remove_nodes([*nodes, u]),
                lambda: mirror.net.remove_arcs([*arcs, a]),
                lambda: mirror.set_supply(nodes, [much] * len(nodes)),
                lambda: mirror.set_arc("cost", arcs, [5] * (len(arcs) - 1) + [far]),
                lambda: mirror.set_arc("capacity", arcs, [3] * (len(arcs) - 1) + [-1]),
                lambda: mirror.set_arc("lower", arcs, [0] * (len(arcs) - 1) + [mirror.arcs[arcs[-1]].capacity + 1]),
                lambda: mirror.add_arcs([(u, u, 1, 0, 0), (u, node, 5, 2, 0)]),
                lambda: mirror.add_arcs([(u, u, 1, 0, 0), (u, u, 5, far, 0)]),
                lambda: mirror.add_arcs([(u, u, 5, 1, 0), (u, u, 3, 0, 4)]),
                lambda: mirror.add_arcs([(u, u, INF, 1, 1), (u, u, INF, 0, 2**60)]),
            ]
        try:
            draw.choice(calls)()
        except (InputError, CostRangeError):
            self.counts["refused"] += 1
            self.unchanged(before)
        else:
            self.counts["not refused"] += 1

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        return self.mirror.net.flow(self.mirror.arc_ids()), self.mirror.net.potential(self.mirror.node_ids())

    def unchanged(self, before: tuple[np.ndarray, np.ndarray]) -> None:
        for old, new in zip(before, self.solution(), strict=True):
            assert old.tolist() == new.tolist()
        self.mirror.check_attributes()

    # -- solving -----------------------------------------------------------------------------------------------------

    def solve(self) -> None:
        mirror, problem, before = self.mirror, self.mirror.problem(), self.solution()
        algorithm, limit = self.random.choice(ALGORITHMS), self.random.choice(LIMITS)
        partial = self.random.random() < 0.3
        limit = None if limit is None else limit * self.clock.step
        self.counts["solves"] += 1
        try:
            solution = mirror.net.solve(algorithm=algorithm, time_limit=limit, partial=partial)
        except TimeLimitError:
            assert limit is not None
            self.counts["too late"] += 1
        except InfeasibleError as error:
            self.counts["infeasible"] += 1
            if partial:
                assert self.judge(_priced(problem, 1)) in (None, oracles.INFEASIBLE)
            else:
                oracles.check_cut(problem, mirror.cut(error))
        except UnboundedError as error:
            self.counts["unbounded"] += 1
            oracles.check_cycle(problem, np.searchsorted(mirror.arc_ids(), error.cycle))
        except CostRangeError:
            self.counts["out of range"] += 1
            n = len(problem.supply) + 2
            assert self.volume() >= LARGE or (
                partial and n * n * (int(np.abs(problem.cost).max(initial=0)) + 1) >= 2**59
            )
        else:
            self.check(problem, solution, limit, partial)
            return
        self.unchanged(before)

    def check(self, problem: FlowProblem, solution, limit: float | None, partial: bool) -> None:
        left = solution.unshipped[self.mirror.node_ids()] if partial else np.zeros_like(problem.supply)
        assert ((left == 0) | ((np.sign(left) == np.sign(problem.supply)) & (abs(left) <= abs(problem.supply)))).all()
        gap, kept = solution.stats["gap"], sum(left[left > 0].tolist())
        self.mirror.check_solution(solution, replace(problem, supply=problem.supply - left), optimal=gap == 0)
        self.counts["partial" if partial else "whole"] += 1
        self.counts["late"] += gap > 0
        assert gap == 0 or (limit is not None and gap > 0)
        price = len(problem.supply) * int(np.abs(problem.cost).max(initial=0)) + 1
        if gap:
            price = self.mirror.net._slack._price if partial else 0
        best = self.judge(_priced(problem, price) if partial else problem)
        if best is not None:
            self.counts["compared"] += 1
            cost = solution.cost + price * kept
            assert cost - gap <= best <= cost, f"cost {cost}, gap {gap}, optimum {best}"
            assert gap or cost == best

    def judge(self, problem: FlowProblem) -> int | str | None:
        """OR-tools' optimum, or that there is no flow; None where numbers are too large for it."""
        if max(map(int, (np.abs(problem.cost).max(initial=0), np.abs(problem.supply).sum() / 10**6))) > JUDGED:
            return None
        answer = oracles.ortools(problem)
        return answer.status if answer.cost is None else answer.cost


def _priced(problem: FlowProblem, price: int) -> FlowProblem:
    """Return the problem with one more node that takes the unshipped units at a price for each."""
    n = len(problem.supply)
    tail, head, room = slack_arcs(np.arange(n), problem.supply, n)
    return FlowProblem(
        np.append(problem.tail, tail), np.append(problem.head, head), np.append(problem.capacity, room),
        np.append(problem.cost, np.where(head == n, price, 0)), np.append(problem.supply, -problem.supply.sum()),
        np.append(problem.lower, 0 * room),
    )  # fmt: skip


def main(first: int, last: int) -> None:
    """Live from number first to before last."""
    total: Counter[str] = Counter()
    with counted_clock() as clock:
        for number in range(first, last):
            life = Life(number, clock)
            try:
                life.run()
            except Exception:
                total["faults"] += 1
                if total["faults"] <= 20:
                    print("life", number, traceback.format_exc(limit=-2).replace("\n", " | ")[-600:], flush=True)
            total.update(life.counts)
            if (number + 1) % 5000 == 0:
                print(number + 1, dict(total), flush=True)
    print("end", first, last, dict(total), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
