"""A million random mutations of one scheduling network, its optimum certified again and again, its memory watched.

    python tests/network/soak.py [--mutations 1000000] [--machines 1000] [--certify-every 10000] [--json FILE]

Tasks come and go, machines fail and come back, slots, costs and preferences change; one network lives through all of
it and is solved after every few mutations.  Exit status 1: an optimum could not be certified, it differs from a cold
solve, or memory grew although the network did not.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

import flowsched as fs

RACK, SLOTS, JOBS, PREFERENCES = 40, 4, 40, 5
UNLIMITED = fs.INF
WARM_UP = 0.2  # share of the mutations after which the memory must not grow any more
GROWTH = 1.6  # allowed then, for the same number of arcs: one step of arrays that grow by half


class Pool:
    """Members to choose one of at random, in constant time."""

    def __init__(self) -> None:
        self._members: list[int] = []
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: int) -> None:
        """Add a new member."""
        self._places[member] = len(self._members)
        self._members.append(member)

    def remove(self, member: int) -> None:
        """Let the last member take its place."""
        place, last = self._places.pop(member), self._members.pop()
        if last != member:
            self._members[place] = last
            self._places[last] = place

    def any(self, source: random.Random) -> int:
        """Return one of them."""
        return self._members[source.randrange(len(self._members))]


class Soak:
    """A network of the shape task -> machines, racks, anywhere, its job's waiting room -> sink, and its mutations."""

    def __init__(self, machines: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.net = fs.FlowNetwork()
        self.sink, self.anywhere = self.net.add_nodes(2).tolist()
        self.racks = self.net.add_nodes(-(-machines // RACK)).tolist()
        self.rooms = self.net.add_nodes(JOBS).tolist()
        self.net.add_arcs([self.anywhere] * len(self.racks), self.racks, RACK * SLOTS, 5)
        self.net.add_arcs(self.rooms, [self.sink] * JOBS, UNLIMITED, 0)
        self.target = machines
        self.tasks, self.machines, self.wishes = Pool(), Pool(), Pool()  # wishes: the arcs from tasks to machines
        self.ends: dict[int, tuple[int, int]] = {}  # wish -> task, machine
        self.wishes_of: dict[int, set[int]] = {}  # by task and by machine
        self.arcs_of: dict[int, list[int]] = {}  # task -> its other arcs; machine -> from its rack, to the sink
        self.counts: Counter[str] = Counter()
        for _ in range(machines):
            self.machine_comes()
        for _ in range(machines * SLOTS * 9 // 10):
            self.task_comes()
        self.counts.clear()

    def mutate(self) -> None:
        """Apply one mutation, of a kind that is chosen at random."""
        full = len(self.tasks) / (self.target * SLOTS)
        kinds = (
            (self.task_comes, 20 if full < 1.1 else 5),
            (self.task_goes, 20 if full > 0.6 else 5),
            (self.machine_comes, 1 if len(self.machines) < self.target else 0),
            (self.machine_goes, 1 if len(self.machines) > self.target * 0.9 else 0),
            (self.wish_comes, 8),
            (self.wish_goes, 8 if self.wishes else 0),
            (self.wish_costs, 20 if self.wishes else 0),
            (self.task_costs, 10),
            (self.load_changes, 8),
            (self.slots_change, 6),
        )
        [mutation] = self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
        self.counts[mutation.__name__] += 1
        mutation()

    def task_comes(self) -> None:
        """Add a task with its arcs."""
        draw = self.random.randrange
        [task] = self.net.add_nodes([1]).tolist()
        rack = self.racks[draw(len(self.racks))]
        heads = [rack, self.anywhere, self.rooms[draw(JOBS)]]
        self.arcs_of[task] = self.net.add_arcs(
            [task] * 3, heads, 1, [250 + draw(250), 500 + draw(500), 1500 + draw(600)]
        ).tolist()
        self.tasks.add(task)
        self.wishes_of[task] = set()
        for _ in range(PREFERENCES):
            self._wish(task)

    def task_goes(self) -> None:
        """Remove a task with its arcs."""
        task = self.tasks.any(self.random)
        self.tasks.remove(task)
        self._forget(task)

    def machine_comes(self) -> None:
        """Add a machine to a rack."""
        draw = self.random.randrange
        [machine] = self.net.add_nodes([0]).tolist()
        tails, heads = [self.racks[draw(len(self.racks))], machine], [machine, self.sink]
        self.arcs_of[machine] = self.net.add_arcs(tails, heads, SLOTS, [draw(50), 0]).tolist()
        self.machines.add(machine)
        self.wishes_of[machine] = set()

    def machine_goes(self) -> None:
        """Remove a machine with its arcs, also those from tasks."""
        machine = self.machines.any(self.random)
        self.machines.remove(machine)
        self._forget(machine)

    def wish_comes(self) -> None:
        """Let a task prefer one more machine."""
        self._wish(self.tasks.any(self.random))

    def wish_goes(self) -> None:
        """Let a task prefer one machine less."""
        wish = self.wishes.any(self.random)
        self.net.remove_arcs([wish])
        self._drop(wish)

    def wish_costs(self) -> None:
        """Change the cost of a task on a machine."""
        self.net.set_cost([self.wishes.any(self.random)], [self.random.randrange(250)])

    def task_costs(self) -> None:
        """Change what a task may cost elsewhere, waiting included."""
        draw = self.random.randrange
        self.net.set_cost(
            self.arcs_of[self.tasks.any(self.random)], [250 + draw(250), 500 + draw(500), 1500 + draw(600)]
        )

    def load_changes(self) -> None:
        """Change the load of a machine."""
        self.net.set_cost(self.arcs_of[self.machines.any(self.random)][:1], [self.random.randrange(50)])

    def slots_change(self) -> None:
        """Change how many tasks a machine may run."""
        self.net.set_capacity(self.arcs_of[self.machines.any(self.random)][1:], [self.random.randrange(2 * SLOTS)])

    def solve(self) -> fs.FlowSolution:
        """Optimise; the sink takes what the tasks send."""
        self.net.set_supply([self.sink], [-len(self.tasks)])
        return self.net.solve()

    def cold(self) -> int:
        """Return the optimal cost of the same network, built anew."""
        net = self.net
        nodes = net.nodes()
        place = np.zeros(int(nodes[-1]) + 1, np.int64)
        place[nodes] = np.arange(len(nodes))
        return fs.min_cost_flow(place[net.tail()], place[net.head()], net.capacity(), net.cost(), net.supply()).cost

    def _wish(self, task: int) -> None:
        machine = self.machines.any(self.random)
        [wish] = self.net.add_arcs([task], [machine], 1, self.random.randrange(250)).tolist()
        self.wishes.add(wish)
        self.ends[wish] = task, machine
        self.wishes_of[task].add(wish)
        self.wishes_of[machine].add(wish)

    def _drop(self, wish: int) -> None:
        self.wishes.remove(wish)
        for end in self.ends.pop(wish):
            self.wishes_of[end].remove(wish)

    def _forget(self, node: int) -> None:
        self.net.remove_nodes([node])
        for wish in list(self.wishes_of[node]):
            self._drop(wish)
        del self.wishes_of[node], self.arcs_of[node]


def resident() -> int:
    """Bytes of memory that the process has now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * 4096
    except OSError:
        return 0


def main() -> int:
    """Run it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=1_000_000)
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--certify-every", type=int, default=10_000)
    parser.add_argument("--most", type=int, default=20, help="mutations between two solves, at most")
    parser.add_argument("--budget", type=int, help="hand over to the exact search after so many scanned half-arcs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    soak = Soak(options.machines, options.seed)
    if options.budget is not None:
        soak.net._set_budget(options.budget)
    rounds: list[float] = []
    samples: list[dict[str, int]] = []
    wrong: list[str] = []
    done = since = warm = certified = 0
    began = time.perf_counter()
    while done < options.mutations:
        for _ in range(min(soak.random.randint(1, options.most), options.mutations - done)):
            soak.mutate()
            done += 1
            since += 1
        solution = soak.solve()
        rounds.append(solution.stats["seconds"])
        warm += bool(solution.stats["warm"])
        if since < options.certify_every and done < options.mutations:
            continue
        since = 0
        try:
            soak.net.certify()
            certified += 1
        except AssertionError as error:
            wrong.append(f"after {done} mutations: {error}")
        if (cold := soak.cold()) != solution.cost:
            wrong.append(f"after {done} mutations: the cost is {solution.cost}, a cold solve finds {cold}")
        net = soak.net
        samples.append(
            {"done": done, "nodes": net.num_nodes, "arcs": net.num_arcs, "bytes": net.nbytes, "resident": resident()}
        )
        if len(samples) % 10 == 0:
            print(f"{samples[-1]} {time.perf_counter() - began:.0f} s", flush=True)
        if wrong:
            break

    early = [sample for sample in samples if sample["done"] <= WARM_UP * options.mutations] or samples[:1]
    late = samples[len(early) :] or early
    most_arcs = max(sample["arcs"] for sample in early)
    per_arc = max(s["bytes"] for s in late) / max(max(s["arcs"] for s in late), most_arcs)
    limits = {
        "kernel": (max(s["bytes"] for s in late), max(s["bytes"] for s in early)),
        "process": (max(s["resident"] for s in late), max(s["resident"] for s in early)),
    }
    larger = max(1.0, max(s["arcs"] for s in late) / most_arcs)
    for what, (now, before) in limits.items():
        if now > GROWTH * larger * before:
            wrong.append(f"memory of the {what}: {before} bytes when warm, {now} later")
    microseconds = np.percentile(np.array(rounds) * 1e6, [50, 99, 100]).round(1).tolist()
    figures = {
        "mutations": done,
        "by kind": dict(soak.counts),
        "solves": len(rounds),
        "warm solves": warm,
        "certified": certified,
        "solve in microseconds: median, p99, largest": microseconds,
        "bytes for each arc": round(per_arc, 1),
        "bytes of the kernel: warm, later": limits["kernel"][::-1],
        "bytes of the process: warm, later": limits["process"][::-1],
        "seconds": round(time.perf_counter() - began, 1),
        "wrong": wrong,
    }
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps({**figures, "samples": samples}, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
