"""The "sched" family of scheduling networks (the shape of Quincy and Sirius), with rounds of change.

Nodes::

    task -> its 5 preferred machines, 2 of their racks, the cluster X, and the unscheduled aggregator U of its job
    X -> racks -> machines -> sink      U -> sink

Jobs have a geometric number of tasks, about 100; machines have ``slots`` slots and come in racks of 40.  Arcs into
racks and machines cost their load.  In a round of change some tasks leave and as many arrive: an arriving task takes
the *row* of one that left, so that a round is an assignment to a few rows of a few arrays.

The arrays of a change are drawn and laid out before the clock starts (`Rounds`, `LiveNetwork.prepare`); only the calls of a
solver are timed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from flowsched.network.flow_network import FlowNetwork
from flowsched.network.problem import FlowProblem

__all__ = ["Change", "LiveNetwork", "Rounds", "SchedFamily", "StaticNodes", "Tasks", "task_arcs"]

Ints = NDArray[np.int64]


@dataclass
class Tasks:
    """Tasks as arrays, a row each: job, preferred machines and racks, and the costs of all their arcs."""

    job: Ints
    machines: Ints
    machine_costs: Ints
    racks: Ints
    rack_costs: Ints
    anywhere_cost: Ints
    wait_cost: Ints

    def __len__(self) -> int:
        return len(self.job)

    def replace(self, rows: Ints, others: Tasks) -> None:
        """Replace some rows by ``others``."""
        for field in fields(self):
            getattr(self, field.name)[rows] = getattr(others, field.name)

    def copy(self) -> Tasks:
        """Return an independent copy."""
        return Tasks(*(getattr(self, field.name).copy() for field in fields(self)))


@dataclass(frozen=True)
class Change:
    """A round: the tasks of these rows leave, and others arrive in their place."""

    rows: Ints
    arriving: Tasks


class SchedFamily:
    """One network of the family, as arrays, and the source of its rounds of change.

    Parameters
    ----------
    machines, rack, slots : int
        Number of machines, machines in a rack, tasks that a machine may run.
    tasks : int
        Number of tasks; it stays the same in every round.
    job_size : int
        Mean number of tasks in a job.
    prefs : int
        Number of machines that a task prefers; the racks of the first two are preferred too.
    max_cost : int
        Unit of the costs: a preferred machine costs up to a quarter of it, waiting costs 1.5 to 2.1 times of it.
    seed : int
        Seed of all draws.
    """

    def __init__(
        self,
        machines: int = 10_000,
        rack: int = 40,
        slots: int = 4,
        tasks: int = 20_000,
        job_size: int = 100,
        prefs: int = 5,
        max_cost: int = 1000,
        seed: int = 0,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.machines, self.rack, self.slots = machines, rack, slots
        self.racks = -(-machines // rack)
        self.job_size, self.prefs, self.max_cost = job_size, prefs, max_cost
        self.machine_load = self.rng.integers(0, 50, machines)
        self.rack_load = self.rng.integers(0, 20, self.racks)
        self.jobs = 0
        self._left_in_job = 0  # tasks of the youngest job that have not been drawn yet
        self._wait_base = 0  # and its part of the cost of waiting
        self.tasks = self.draw(tasks)

    def draw(self, count: int) -> Tasks:
        """Draw tasks: the rest of the youngest job, then new jobs."""
        rng, top = self.rng, self.max_cost
        jobs, bases = np.empty(count, np.int64), np.empty(count, np.int64)
        done = 0
        while done < count:
            if not self._left_in_job:
                self.jobs += 1
                self._left_in_job = self.job_tasks()
                self._wait_base = int(rng.integers(top // 2, top))
            upto = min(count, done + self._left_in_job)
            jobs[done:upto], bases[done:upto] = self.jobs - 1, self._wait_base
            self._left_in_job -= upto - done
            done = upto
        machines = self._distinct_machines(count)
        return Tasks(
            job=jobs,
            machines=machines,
            machine_costs=rng.integers(0, top // 4, (count, self.prefs)),
            racks=machines[:, :2] // self.rack,
            rack_costs=rng.integers(top // 4, top // 2, (count, 2)),
            anywhere_cost=rng.integers(top // 2, top, count),
            wait_cost=top + bases + rng.integers(0, 100, count),
        )

    def job_tasks(self) -> int:
        """Draw the number of tasks of a job."""
        return int(self.rng.geometric(1 / self.job_size))

    def change(self, count: int) -> Change:
        """Draw a round in which ``count`` tasks leave and as many arrive, and apply it to `tasks`."""
        rows = np.sort(self.rng.choice(len(self.tasks), count, replace=False))
        change = Change(rows, self.draw(count))
        self.tasks.replace(rows, change.arriving)
        return change

    def problem(self, tasks: Tasks | None = None) -> FlowProblem:
        """Return the whole network with these tasks (by default the present ones), for solvers that start from scratch."""
        tasks = self.tasks if tasks is None else tasks
        static = StaticNodes(self)
        tail, head, capacity, cost = static.arcs()
        count = len(tasks)
        first_job, first_task = static.count, static.count + self.jobs
        jobs = np.arange(self.jobs)
        arcs = task_arcs(tasks, np.arange(count) + first_task, static, first_job + jobs)
        supply = np.zeros(first_task + count, np.int64)
        supply[first_task:] = 1
        supply[static.sink] = -count
        return FlowProblem(
            tail=np.concatenate([tail, first_job + jobs, arcs[0]]),
            head=np.concatenate([head, np.full(self.jobs, static.sink), arcs[1]]),
            capacity=np.concatenate([capacity, np.bincount(tasks.job, minlength=self.jobs), np.ones_like(arcs[0])]),
            cost=np.concatenate([cost, np.zeros(self.jobs, np.int64), arcs[2]]),
            supply=supply,
        )

    def _distinct_machines(self, count: int) -> Ints:
        """Draw ``prefs`` different machines for each task: rows with a repetition are drawn again."""
        machines = self.rng.integers(0, self.machines, (count, self.prefs))
        while True:
            ordered = np.sort(machines, axis=1)
            again = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
            if not len(again):
                return machines
            machines[again] = self.rng.integers(0, self.machines, (len(again), self.prefs))


class StaticNodes:
    """The part of the network that no round changes: X is node 0, then racks, machines and the sink."""

    def __init__(self, family: SchedFamily) -> None:
        self.family = family
        self.first_rack = 1
        self.first_machine = 1 + family.racks
        self.sink = self.first_machine + family.machines
        self.count = self.sink + 1

    def machine_arcs(self, machines: Ints) -> Ints:
        """Return the places in `arcs` of the arcs into and out of machines."""
        into = self.family.racks + machines
        return np.concatenate([into, into + self.family.machines])

    def arcs(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return tail, head, capacity and cost of the arcs X -> racks -> machines -> sink."""
        family = self.family
        racks = self.first_rack + np.arange(family.racks)
        machine = np.arange(family.machines)
        machines, rack_of = self.first_machine + machine, self.first_rack + machine // family.rack
        sizes = (family.racks, family.machines, family.machines)
        return (
            np.concatenate([np.zeros(family.racks, np.int64), rack_of, machines]),
            np.concatenate([racks, machines, np.full(family.machines, self.sink)]),
            np.repeat([family.rack * family.slots, family.slots, family.slots], sizes),
            np.concatenate([family.rack_load, family.machine_load, np.zeros(family.machines, np.int64)]),
        )


def task_arcs(tasks: Tasks, nodes: Ints, static: StaticNodes, job_nodes: Ints) -> tuple[Ints, Ints, Ints]:
    """Return tail, head and cost of all arcs out of task nodes (their capacity is 1), task by task."""
    head = np.column_stack(
        [
            static.first_machine + tasks.machines,
            static.first_rack + tasks.racks,
            np.zeros(len(tasks), np.int64),
            job_nodes[tasks.job],
        ]
    )
    cost = np.column_stack([tasks.machine_costs, tasks.rack_costs, tasks.anywhere_cost, tasks.wait_cost])
    return np.repeat(nodes, head.shape[1]), head.ravel(), cost.ravel()


class Rounds:
    """A family's first tasks and the rounds of change that follow, drawn in advance so that all solvers get the same."""

    def __init__(self, family: SchedFamily, size: int, count: int) -> None:
        self.family = family
        self.first = family.tasks.copy()
        self.first_jobs = family.jobs
        self.changes = [family.change(size) for _ in range(count)]

    def tasks_after(self, count: int) -> Tasks:
        """Return the tasks after `count` rounds."""
        tasks = self.first.copy()
        for change in self.changes[:count]:
            tasks.replace(change.rows, change.arriving)
        return tasks


@dataclass(frozen=True)
class Prepared:
    """A round as the arrays that `FlowNetwork` takes."""

    rows: Ints
    gone: Ints  # nodes
    new_jobs: int
    touched: Ints  # jobs
    job_capacity: Ints  # of the touched
    supply: Ints
    head: Ints  # of the new tasks' arcs; to be mended where the job is new
    capacity: Ints
    cost: Ints
    job: Ints


class LiveNetwork:
    """A FlowNetwork of a family, kept through its rounds of change."""

    def __init__(self, family: SchedFamily, tasks: Tasks, jobs: int) -> None:
        self.static = StaticNodes(family)
        self.degree = family.prefs + 4
        self.net = FlowNetwork()
        self.net.add_nodes(self.static.count)
        self.static_arcs = self.net.add_arcs(*self.static.arcs())
        self.sink = np.array([self.static.sink])
        self.job_of_row = tasks.job.copy()
        self.job_tasks = np.bincount(self.job_of_row, minlength=jobs).astype(np.int64)
        self.job_nodes, self.job_arcs = self._new_jobs(jobs)
        self.net.set_capacity(self.job_arcs, self.job_tasks)
        self.task_nodes = self.net.add_nodes(np.ones(len(tasks), np.int64))
        tail, head, cost = task_arcs(tasks, self.task_nodes, self.static, self.job_nodes)
        self.net.add_arcs(tail, head, 1, cost)
        self.net.set_supply(self.sink, [-len(tasks)])

    def prepare(self, change: Change) -> Prepared:
        """Lay a round out as arrays; at most one round may be prepared and not yet applied."""
        rows, arriving = change.rows, change.arriving
        known = len(self.job_nodes)
        new_jobs = max(int(arriving.job.max()) + 1 - known, 0)
        self.job_tasks = np.append(self.job_tasks, np.zeros(new_jobs, np.int64))
        np.add.at(self.job_tasks, self.job_of_row[rows], -1)
        np.add.at(self.job_tasks, arriving.job, 1)
        touched = np.unique(np.concatenate([self.job_of_row[rows], arriving.job]))
        self.job_of_row[rows] = arriving.job
        nodes = np.append(self.job_nodes, np.zeros(new_jobs, np.int64))
        _, head, cost = task_arcs(arriving, rows, self.static, nodes)
        ones = np.ones(len(head), np.int64)
        gone = self.task_nodes[rows]
        return Prepared(
            rows, gone, new_jobs, touched, self.job_tasks[touched], ones[: len(rows)], head, ones, cost, arriving.job
        )

    def apply(self, round: Prepared) -> None:
        """Mutate the network by a round: everything of one kind in one call."""
        net = self.net
        net.remove_nodes(round.gone)
        head = round.head
        if round.new_jobs:
            nodes, arcs = self._new_jobs(round.new_jobs)
            self.job_nodes = np.append(self.job_nodes, nodes)
            self.job_arcs = np.append(self.job_arcs, arcs)
            head[self.degree - 1 :: self.degree] = self.job_nodes[round.job]
        net.set_capacity(self.job_arcs[round.touched], round.job_capacity)
        nodes = net.add_nodes(round.supply)
        net.add_arcs(nodes.repeat(self.degree), head, round.capacity, round.cost)
        self.task_nodes[round.rows] = nodes

    def _new_jobs(self, count: int) -> tuple[Ints, Ints]:
        nodes = self.net.add_nodes(count)
        return nodes, self.net.add_arcs(nodes, np.repeat(self.sink, count), 0, 0)
