"""Random histories of a scheduler for the tests: the next call follows from a seed and from the scheduler's state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, replace
from random import Random

import flowsched as fs

MACHINES = [
    {"capacity": {"cpu": 4, "mem": 4}},
    {"capacity": {"cpu": 8, "mem": 4, "gpu": 2}, "labels": {"gpu_model": "T4"}},
    {"capacity": {"cpu": 6, "gpu": 1}, "labels": {"gpu_model": "P100"}, "slots": 2},
    {"capacity": {"cpu": 2.5}, "slots": 3},
]
DEMANDS = [{"cpu": 1}, {"cpu": 2, "mem": 1}, {"cpu": 4}, {"cpu": 1, "gpu": 0.5}, {"gpu": 0.3}, {"cpu": 2, "gpu": 1}, {}]
SPREAD = fs.Policy(locality=fs.Locality())
POLICIES = [
    lambda: SPREAD,
    lambda: fs.Policy.named("pack"),
    lambda: fs.Policy(waiting=fs.WaitCost(first=2.0, buckets=4, reserve=1), preemption=fs.PreemptionCost(3.0, 5.0)),
    lambda: fs.Policy(placement=(fs.FragmentationCost.of([fs.Task(0, {"gpu": 1}), fs.Task(1, {"cpu": 3})]), fs.PreferenceCost())),
    lambda: fs.Policy(fairness=fs.Fairness(fs.SequenceShare(0.5), over="user"), step=0.5),
    lambda: fs.Policy(fairness=fs.Fairness(fs.DRF(), mode="ladder", limits={"j1": fs.Limits(1, 3)})),
    lambda: fs.Policy(fairness=fs.Fairness(over="user", within=fs.MaxMin(), reclaim=True)),
]  # fmt: skip
"""Makers, since share providers keep accounts."""

SCALES = [
    lambda: fs.Policy(
        placement=[
            fs.Utilities([("k0", {"gpu_model": ("T4",)}, 3), ("k9", {"gpu_model": ("P100",)}, -2.5), (None, {"gpu_model": ("T4",)}, 0.5)]),
            fs.LoadCost("pack", 0.1),
        ],
        locality=fs.Locality(amount=2.0), rack_load=0.3,
    ),
    lambda: fs.Policy(placement=(), locality=fs.Locality(2.0, amount=0.7), step=0.5),
    lambda: fs.Policy(rack_load=2.0, waiting=fs.WaitCost(first=2.0, buckets=4, patience=0.4)),
]  # fmt: skip
"""Policies whose scale is the whole point: utilities, amounts of data beyond the range, loads of racks."""


class Life:
    """Draws events; every event is possible for the scheduler that it was drawn for."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.count = 0
        self.now = 0.0

    def events(self, sched: fs.Scheduler) -> list[fs.Event]:
        """Something that happens; perhaps nothing."""
        random, cluster = self.random, sched.cluster
        self.count += 1
        name, time = self.count, random.choice([None, None, self.now])
        machines = [m for m, record in cluster.machines.items() if not record.failed]
        running = [t for t, record in cluster.tasks.items() if record.place]
        match random.randrange(12):
            case 0 | 1:
                kind = random.choice(MACHINES)
                return [fs.MachineAdded(("m", name), rack=random.choice([None, "r1", "r2"]), time=time, **kind)]
            case 2 | 3 | 4 | 5:
                return [self._job(name, machines, time)]
            case 6 | 7 if running:
                gone = random.sample(running, min(len(running), random.randint(1, 3)))
                return [random.choice([fs.TaskCompleted, fs.TaskFailed, fs.TaskRemoved])(t, time=time) for t in gone]
            case 8 if len(machines) > 1:
                lost = random.choice(machines)
                return [random.choice([fs.MachineDrained, fs.MachineFailed, fs.MachineRemoved])(lost, time=time)]
            case 9 if failed := [m for m, record in cluster.machines.items() if record.failed]:
                return [fs.MachineAdded(failed[0], {"cpu": 4, "gpu": 1}, time=time)]
            case 10 if cluster.jobs:
                job = random.choice(list(cluster.jobs))
                if random.random() < 0.3 or cluster.jobs[job].job.closed:
                    return [fs.JobRemoved(job)]
                return [fs.TaskSubmitted(job, fs.Task(f"x{name}", random.choice(DEMANDS)), time=time)]
            case 11 if machines:
                return [fs.MachineUpdated(random.choice(machines), rack=random.choice(["r1", "r3"]))]
        return []

    def _job(self, name: int, machines: list, time: float | None) -> fs.Event:
        random = self.random
        extra: list[dict] = [
            {},
            {"constraints": {"gpu_model": ("T4",)}, "prefers": {"gpu_model": ("P100",)}},
            {"kind": f"k{name % 3}", "apart": random.choice([None, 1, 2])},
            {"kind": "k9", "avoids": ("k1",)},
            {"apart_in_rack": 1},
            {"data": dict.fromkeys(machines[:2], 1.5)},
        ]
        demand, how = random.choice(DEMANDS), random.choice(extra)
        how["duration"] = random.choice([None, 2.0, 20.0])
        if name % 4 == 1:
            how |= {"retries": name % 3, "backoff": (0.0, 5.0, 30.0)[name // 4 % 3]}
        tasks = [fs.Task((f"t{name}", i), demand, **how) for i in range(random.randint(1, 6))]
        gang = random.choice([None, None, None, 2])
        closed = name % 3 == 0
        return fs.JobSubmitted(
            f"j{name}", tasks, random.choice([None, "ann", "bob"]), random.randrange(3), gang, closed=closed, time=time
        )

    def later(self) -> float:
        """Time goes on."""
        self.now += self.random.choice([0.0, 1.0, 3.0, 40.0])
        return self.now

    def only(self, rnd: fs.Round) -> list | None:
        """Part of a round, or all of it."""
        return self.random.choice([None, None, None, list(rnd.placements)[::2]])


def said(rnd: fs.Round) -> tuple:
    """All that a round says, times of computing apart."""
    stats = replace(rnd.stats, seconds_update=0, seconds_solve=0, seconds_read=0)
    shares = {who: rnd.shares[who] for who in rnd.shares}
    return (
        rnd.now, rnd.deltas, dict(rnd.placements), dict(rnd.preemptions), dict(rnd.migrations), dict(rnd.devices), dict(rnd.waiting),
        shares, dict(rnd.gangs), astuple(stats),
    )  # fmt: skip


def flow_of(sched: fs.Scheduler) -> tuple:
    """The network with its flow and potentials."""
    net = sched.network
    arcs, nodes = net.arcs(), net.nodes()
    numbers = (
        arcs,
        nodes,
        net.tail(),
        net.head(),
        net.capacity(),
        net.cost(),
        net.lower(),
        net.supply(),
        net.flow(arcs),
        net.potential(nodes),
    )
    return tuple(array.tolist() for array in numbers)


def world_of(sched: fs.Scheduler) -> tuple:
    """The state, as callers see it."""
    cluster = sched.cluster
    return (
        [(m, r.machine, r.failed, r.drained, [t.id for t in r.tasks]) for m, r in cluster.machines.items()],
        [(t, r.place, r.turn, r.since, r.preempted, r.index, r.run) for t, r in cluster.tasks.items()],
        [(j, r.job, r.serial, r.most) for j, r in cluster.jobs.items()],
        list(cluster.users.items()),
        cluster.runs,
        list(cluster.attempts.items()),
        list(cluster.resting.items()),
    )


def operations(
    seed: int, sched: fs.Scheduler, count: int, makers: list = POLICIES, life: Life | None = None
) -> Iterator[str]:
    """Run single calls; each is named once it has returned, a commit with its result."""
    life = life or Life(seed)
    rnd, policies = None, [sched.policy]
    for _ in range(count):
        if rnd is not None and life.random.random() < 0.8:
            only = life.only(rnd)
            done, rnd = sched.commit(rnd, only), None
            yield f"commit {done.accepted} {done.runs}"
        elif life.random.random() < 0.4:
            rnd = sched.schedule(life.later())
            yield "schedule"
        elif life.random.random() < 0.05:
            again = life.random.choice(policies)
            policies += [life.random.choice(makers)(), replace(again, step=life.random.choice([0.3, 1.0])), again]
            sched.policy = life.random.choice(policies[-3:])
            yield "policy"
        elif rnd is None and life.random.random() < 0.1:
            if sched.journal is not None:
                sched.compact()
            yield "compact"
        else:
            sched.apply(*life.events(sched))
            yield "apply"


def live_alike(life: Life, sched: fs.Scheduler, others: tuple[fs.Scheduler, ...], steps: int, makers: list) -> None:
    """Run all schedulers through the same history, and compare all results; a maker of policies gets its scheduler."""
    for _ in range(steps):
        events = life.events(sched)
        for one in (sched, *others):
            one.apply(*events)
        if life.random.random() < 0.05:
            maker = life.random.choice(makers)
            for one in (sched, *others):
                one.policy = maker(one)
        if life.random.random() < 0.6:
            now = life.later()
            rounds = [one.schedule(now) for one in (sched, *others)]
            for rnd in rounds[1:]:
                assert said(rnd) == said(rounds[0])
            only, lost = life.only(rounds[0]), life.events(sched) if life.random.random() < 0.1 else []
            for one, rnd in zip((sched, *others), rounds, strict=True):
                one.apply(*lost)
                one.commit(rnd, only)
    for one in others:
        assert flow_of(one) == flow_of(sched)
        assert world_of(one) == world_of(sched)
