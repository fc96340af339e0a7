"""Firmament with Quincy's costs: a network of its own for the tasks that wait, solved from scratch in every round.

::

    task -> the machine of its data, its rack, the cluster X, and the unscheduled aggregator U of its job
    X -> racks -> machines -> sink      U -> sink

A place costs the bytes that cross a switch for it: those from another rack `CORE`, those from the same rack `RACK` of the
unit.  An arc to a rack, or to X, has the largest cost of the machines behind it.  Waiting costs the seconds waited so far.
There are no bounds: costs alone decide, as in Firmament.  Sources: Isard et al., SOSP 2009, section 4; Gog et al., OSDI 2016.

Firmament runs a relaxation algorithm and cost scaling in a race, both from scratch.  Here the project's own solvers race:
``algorithm="cost_scaling"``, and ``algorithm="repair"`` of a fresh network in the place of relaxation.  That one augments by
shortest paths from a dual start, as relaxation raises duals and augments; it is not RELAX-IV.  Both must find the same cost.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from time import thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.sirius.slots import Slots
from flowsched.network.one_shot import min_cost_flow
from flowsched.network.problem import FlowProblem

__all__ = ["CORE", "RACK", "Firmament"]

CORE, RACK = 1.0, 0.5
"""Price of a byte through the core switch and through the rack's switch only: the ratio that `Locality` has, too."""

_Meaning = tuple[Any, ...]
"""Of an arc: ("machine", task, machine), ("rack", task, rack), ("X", task), ("room", rack, machine), or ("",)."""

_UNIT = 1000
"""Integer cost of a second: the resolution of costs is a thousandth."""


class Firmament(Slots):
    """Decides all waiting tasks of a round together; `link` is in bytes a second, so that costs are seconds.

    Attributes
    ----------
    seconds : dict of algorithm to float
        CPU time of all solves.
    race : float
        CPU time of the faster one of each round.
    """

    def __init__(self, link: float) -> None:
        super().__init__()
        self._link = link
        self.seconds = {"cost_scaling": 0.0, "repair": 0.0}
        self.race = 0.0

    def decide(self, now: float) -> Mapping[Hashable, Hashable]:
        """Build the network, solve it by both, and read the machines of the tasks."""
        if not self.waiting:
            return {}
        problem, meaning = self.network(now)
        costs, times = {}, {}
        for algorithm in ("repair", "cost_scaling"):
            begin = thread_time()
            result = min_cost_flow(
                problem.tail, problem.head, problem.capacity, problem.cost, problem.supply,
                algorithm=algorithm,
            )  # fmt: skip
            times[algorithm] = thread_time() - begin
            self.seconds[algorithm] += times[algorithm]
            costs[algorithm] = result.cost
        self.race += min(times.values())
        if len(set(costs.values())) > 1:
            raise AssertionError(f"at {now:g} s: optima differ: {costs}")
        return self._read(result.flow, meaning)

    def network(self, now: float) -> tuple[FlowProblem, list[_Meaning]]:
        """Return the network, and the meaning of a unit of flow on each arc."""
        machines, racks = list(self.rack), list(dict.fromkeys(self.rack.values()))
        jobs = list(dict.fromkeys(job for _, job, _ in self.waiting.values()))
        names = [("sink", None), ("X", None), *(("rack", r) for r in racks), *(("machine", m) for m in machines)]
        node = {name: i for i, name in enumerate([*names, *(("U", job) for job in jobs)])}
        arcs: list[tuple[int, int, int, int]] = []
        meaning: list[_Meaning] = []

        def arc(tail: int, head: int, capacity: int, seconds: float, kind: str = "", *what: Hashable) -> None:
            arcs.append((tail, head, capacity, round(seconds * _UNIT)))
            meaning.append((kind, *what))

        for i, (id, (task, job, since)) in enumerate(self.waiting.items(), len(node)):
            data = {machine: amount / self._link for machine, amount in dict(task.data).items()}
            inside: dict[Hashable, float] = {}
            for machine, amount in data.items():
                inside[self.rack[machine]] = inside.get(self.rack[machine], 0.0) + amount
            total = sum(data.values())
            for machine, amount in data.items():
                near = inside[self.rack[machine]]
                price = CORE * (total - near) + RACK * (near - amount)
                arc(i, node["machine", machine], 1, price, "machine", id, machine)
            for rack, near in inside.items():
                arc(i, node["rack", rack], 1, CORE * (total - near) + RACK * near, "rack", id, rack)
            arc(i, node["X", None], 1, CORE * total, "X", id)
            arc(i, node["U", job], 1, now - since)
        for rack in racks:
            arc(node["X", None], node["rack", rack], sum(self.free[m] for m in machines if self.rack[m] == rack), 0.0)
        for machine, rack in self.rack.items():
            arc(node["rack", rack], node["machine", machine], self.free[machine], 0.0, "room", rack, machine)
            arc(node["machine", machine], 0, self.free[machine], 0.0)
        for job in jobs:
            arc(node["U", job], 0, len(self.waiting), 0.0)
        supply = np.zeros(len(node) + len(self.waiting), np.int64)
        supply[len(node) :], supply[0] = 1, -len(self.waiting)
        tail, head, capacity, cost = np.array(arcs, np.int64).T
        return FlowProblem(tail, head, capacity, cost, supply), meaning

    @staticmethod
    def _read(flow: NDArray[np.int64], meaning: list[_Meaning]) -> dict[Hashable, Hashable]:
        """Return the machines: those to which an arc leads, then for tasks of a rack, then for those of X."""
        places: dict[Hashable, Hashable] = {}
        in_rack: list[tuple[Hashable, Hashable]] = []
        anywhere: list[Hashable] = []
        room: dict[Hashable, list[Hashable]] = {}
        for units, (kind, *what) in zip(flow.tolist(), meaning, strict=True):
            if not units or not kind:
                continue
            if kind == "machine":
                places[what[0]] = what[1]
            elif kind == "rack":
                in_rack.append((what[0], what[1]))
            elif kind == "X":
                anywhere.append(what[0])
            else:
                room.setdefault(what[0], []).extend([what[1]] * units)
        for task, rack in in_rack:
            places[task] = room[rack].pop()
        left = [machine for machines in room.values() for machine in machines]
        places.update(zip(anywhere, left, strict=True))
        return places
