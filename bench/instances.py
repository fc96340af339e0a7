"""The "sched" family of scheduling networks (the shape of Quincy and Sirius), with rounds of change.

Nodes::

    task -> its 5 preferred machines, 2 of their racks, the cluster X, and the unscheduled aggregator U of its job
    X -> racks -> machines -> sink      U -> sink

Jobs have a geometric number of tasks, about 100; machines have ``slots`` slots and come in racks of 40.  Arcs into
racks and machines cost their load.  In a round of change some tasks leave and as many arrive: an arriving task takes
the *row* of one that left, so that a round is an assignment to a few rows of a few arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from flowsched import FlowNetwork, FlowProblem


@dataclass
class Tasks:
    """Tasks as arrays, a row each: job, preferred machines and racks, and the costs of all their arcs."""

    job: np.ndarray
    machines: np.ndarray
    machine_costs: np.ndarray
    racks: np.ndarray
    rack_costs: np.ndarray
    anywhere_cost: np.ndarray
    wait_cost: np.ndarray

    def __len__(self) -> int:
        return len(self.job)

    def replace(self, rows: np.ndarray, others: Tasks) -> None:
        """Put ``others`` in the place of some rows."""
        for field in fields(self):
            getattr(self, field.name)[rows] = getattr(others, field.name)


@dataclass(frozen=True)
class Change:
    """A round: the tasks of these rows leave, and others arrive in their place."""

    rows: np.ndarray
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
        Seed of all that is drawn.
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
                self._left_in_job = int(rng.geometric(1 / self.job_size))
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

    def change(self, count: int) -> Change:
        """Draw a round in which ``count`` tasks leave and as many arrive, and apply it to `tasks`."""
        rows = np.sort(self.rng.choice(len(self.tasks), count, replace=False))
        change = Change(rows, self.draw(count))
        self.tasks.replace(rows, change.arriving)
        return change

    def problem(self) -> FlowProblem:
        """Return the whole network as it is now, for solvers that start from nothing."""
        static = StaticNodes(self)
        tail, head, capacity, cost = static.arcs()
        count = len(self.tasks)
        first_job, first_task = static.count, static.count + self.jobs
        jobs = np.arange(self.jobs)
        tasks = task_arcs(self.tasks, np.arange(count) + first_task, static, first_job + jobs)
        supply = np.zeros(first_task + count, np.int64)
        supply[first_task:] = 1
        supply[static.sink] = -count
        return FlowProblem(
            tail=np.concatenate([tail, first_job + jobs, tasks[0]]),
            head=np.concatenate([head, np.full(self.jobs, static.sink), tasks[1]]),
            capacity=np.concatenate([capacity, np.bincount(self.tasks.job, minlength=self.jobs), np.ones_like(tasks[0])]),
            cost=np.concatenate([cost, np.zeros(self.jobs, np.int64), tasks[2]]),
            supply=supply,
        )

    def _distinct_machines(self, count: int) -> np.ndarray:
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

    def arcs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
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


def task_arcs(
    tasks: Tasks, nodes: np.ndarray, static: StaticNodes, job_nodes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


class LiveNetwork:
    """A FlowNetwork of a family, kept through its rounds of change."""

    def __init__(self, family: SchedFamily) -> None:
        self.static = StaticNodes(family)
        self.net = FlowNetwork()
        self.net.add_nodes(self.static.count)
        self.net.add_arcs(*self.static.arcs())
        self.sink = np.array([self.static.sink])
        self.job_nodes = np.zeros(0, np.int64)
        self.job_arcs = np.zeros(0, np.int64)
        self.job_of_row = family.tasks.job.copy()
        self.job_tasks = np.zeros(0, np.int64)  # number of tasks of each job
        self._add_jobs(family.jobs)
        self._count_tasks(self.job_of_row, 1)
        self.task_nodes = self._add_tasks(family.tasks)
        self.net.set_supply(self.sink, [-len(family.tasks)])

    def apply(self, change: Change) -> None:
        """Mutate the network by a round: everything of one kind in one call."""
        rows, arriving = change.rows, change.arriving
        self.net.remove_nodes(self.task_nodes[rows])
        self._add_jobs(int(arriving.job.max()) + 1)
        self._count_tasks(self.job_of_row[rows], -1)
        self._count_tasks(arriving.job, 1)
        self.job_of_row[rows] = arriving.job
        self.task_nodes[rows] = self._add_tasks(arriving)

    def _add_tasks(self, tasks: Tasks) -> np.ndarray:
        nodes = self.net.add_nodes(np.ones(len(tasks), np.int64))
        tail, head, cost = task_arcs(tasks, nodes, self.static, self.job_nodes)
        self.net.add_arcs(tail, head, 1, cost)
        return nodes

    def _add_jobs(self, upto: int) -> None:
        new = upto - len(self.job_nodes)
        if new > 0:
            nodes = self.net.add_nodes(new)
            arcs = self.net.add_arcs(nodes, np.repeat(self.sink, new), 0, 0)
            self.job_nodes = np.append(self.job_nodes, nodes)
            self.job_arcs = np.append(self.job_arcs, arcs)
            self.job_tasks = np.append(self.job_tasks, np.zeros(new, np.int64))

    def _count_tasks(self, jobs: np.ndarray, sign: int) -> None:
        """As many tasks of a job may wait as there are of it."""
        np.add.at(self.job_tasks, jobs, sign)
        touched = np.unique(jobs)
        self.net.set_capacity(self.job_arcs[touched], self.job_tasks[touched])
