"""Tasks that can never run are given up, and no others: against an oracle that counts what fits on empty machines."""

from __future__ import annotations

import asyncio
import copy
import random
from typing import Any

import pytest
from executors import FakeExecutor, run_fake

import flowsched as fs
from flowsched.run import Driver, NeverRunsError
from flowsched.run.executor import Work
from flowsched.run.outlook import Outlook

LABELS = ("a", "b")


def room(machine: fs.MachineAdded, task: fs.Task) -> int:
    """Tasks of this kind that an empty machine holds."""
    if any(machine.labels.get(key) not in wanted for key, wanted in task.constraints.items()):
        return 0
    counts = [int(machine.capacity.get(name, 0) // amount) for name, amount in task.demand.items() if amount]
    return min([*counts, 10**6 if machine.slots is None else machine.slots])


def drawn_machine(draw: random.Random, i: int) -> fs.MachineAdded:
    capacity = {"cpu": draw.randint(1, 8), "mem": draw.randint(1, 8), "gpu": draw.randint(0, 2)}
    return fs.MachineAdded(i, capacity, labels={"kind": draw.choice(LABELS)}, slots=draw.choice([None, None, 1, 3]))


def drawn_job(draw: random.Random, i: int) -> fs.JobSubmitted:
    demand = {"cpu": draw.randint(0, 9), "mem": draw.randint(0, 9), "gpu": draw.choice([0, 0, 0, 1, 2, 3])}
    constraints = {"kind": (draw.choice(LABELS),)} if draw.random() < 0.3 else {}
    count = draw.randint(1, 8)
    gang = draw.randint(1, count) if draw.random() < 0.6 else None
    return fs.JobSubmitted(i, [fs.Task((i, k), demand, constraints) for k in range(count)], gang=gang)


@pytest.mark.parametrize(
    "name", ["default", *(pytest.param(name, marks=pytest.mark.long) for name in ("pack", "spread")), "shares"]
)
def test_what_never_fits_is_found_and_nothing_else(name: str) -> None:
    """Machines are busy, go and come; a task that only one that is gone could hold waits."""
    found = waited = 0
    for seed in range(40):
        draw = random.Random(seed)
        policy = fs.Policy() if name == "default" else fs.Policy.named(name)
        sched, executor = fs.Scheduler(policy, resources=("cpu", "mem", "gpu")), FakeExecutor()
        outlook = Outlook(sched, executor, 10.0, False)
        machines = [drawn_machine(draw, i) for i in range(draw.randint(1, 4))]
        gone = {machine.id for machine in machines if draw.random() < 0.3}
        jobs = [drawn_job(draw, i) for i in range(draw.randint(1, 6))]
        for machine in machines:
            sched.apply(machine)
            outlook.note(machine)
        work = {task.id: Work(task.id, None, lambda *_: None) for job in jobs for task in job.tasks}
        for job in jobs:
            sched.apply(job)
            outlook.expect([work[task.id] for task in job.tasks], job.tasks)
        kinds = (fs.MachineRemoved, fs.MachineDrained, fs.MachineFailed)
        events: list[Any] = [draw.choice(kinds)(id) for id in sorted(gone)]
        for event in events:
            sched.apply(event)
            outlook.note(event)
        sched.commit(sched.schedule(1.0))
        waiting = {id for id, task in sched.cluster.tasks.items() if task.row < 0}
        never, later = set[Any](), set[Any]()
        for job in jobs:
            task, ids = job.tasks[0], {task.id for task in job.tasks}
            need = job.gang if job.gang is not None and ids <= waiting else 1
            ever, now = (
                sum(room(m, task) for m in those) for those in (machines, [m for m in machines if m.id not in gone])
            )
            never |= ids & waiting if ever < need else set()
            later |= ids & waiting if now < need <= ever else set()
        given = {one.task for one, _ in outlook.hopeless(work, 5.0)}
        assert given == never, (seed, given ^ never)
        assert outlook.due == (15.0 if later else float("inf"))
        assert {one.task for one, _ in outlook.hopeless(work, 14.9)} == never
        assert {one.task for one, _ in outlook.hopeless(work, 15.0)} == never | later
        for machine in machines:  # they come back
            if machine.id in gone:
                outlook.note(machine)
        assert {one.task for one, _ in outlook.hopeless(work, 99.0)} == never
        found, waited = found + bool(never), waited + bool(later)
    assert found >= 10 and waited >= 3


@pytest.mark.long
def test_a_part_of_a_description_leaves_the_rest_as_it_is() -> None:
    """What updates leave out stays, whatever a machine went through before; one that is not there is not described by parts."""
    found = 0
    for seed in range(80):
        draw = random.Random(seed)
        sched = fs.Scheduler(resources=("cpu", "mem", "gpu"))
        outlook, last = Outlook(sched, FakeExecutor(), 10.0, False), dict[int, fs.MachineAdded]()
        for _ in range(draw.randint(1, 12)):
            drawn = drawn_machine(draw, draw.randint(0, 2))
            known = sched.cluster.machines.get(drawn.id)
            event: Any = drawn
            if known is not None and not known.failed:
                names = draw.sample(["capacity", "labels", "slots"], draw.randint(0, 2))
                part = fs.MachineUpdated(drawn.id, **{name: getattr(drawn, name) for name in names})
                kinds = (fs.MachineDrained, fs.MachineFailed, fs.MachineRemoved)
                event = part if draw.random() < 0.7 else draw.choice(kinds)(drawn.id)
            elif draw.random() < 0.3:
                outlook.note(fs.MachineUpdated(drawn.id, labels=drawn.labels))
            sched.apply(event)
            outlook.note(event)
            if drawn.id in sched.cluster.machines:
                now = sched.cluster.machines[drawn.id].machine
                last[drawn.id] = fs.MachineAdded(now.id, now.capacity, labels=now.labels, slots=now.slots)
        job = fs.JobSubmitted("j", [drawn_job(draw, i).tasks[0] for i in range(8)])
        work = {task.id: Work(task.id, None, lambda *_: None) for task in job.tasks}
        sched.apply(job)
        outlook.expect(work.values(), job.tasks)
        never = {task.id for task in job.tasks if not sum(room(machine, task) for machine in last.values())}
        given = {one.task for one, _ in outlook.hopeless(work, 5.0)}
        assert given == never, (seed, given ^ never)
        found += 0 < len(never) < 8
    assert found >= 30


@pytest.mark.parametrize("seconds", [None, 10])
def test_accounts_of_a_share_provider_are_the_schedulers_own(seconds: int | None) -> None:
    share = fs.SequenceShare(seconds=seconds)
    sched = fs.Scheduler(fs.Policy(fairness=fs.Fairness(share)), resources=("cpu",))
    outlook = Outlook(sched, FakeExecutor(), 10.0, False)
    for machine in (fs.MachineAdded("a", {"cpu": 4}), fs.MachineAdded("b", {"cpu": 1})):
        sched.apply(machine)
        outlook.note(machine)
    job = fs.JobSubmitted("j", [fs.Task(i, {"cpu": 2}) for i in range(3)], user="u")
    large = fs.JobSubmitted("large", [fs.Task("large", {"cpu": 5})], user="u")
    work = {task.id: Work(task.id, None, lambda *_: None) for task in (*job.tasks, *large.tasks)}
    for one in (job, large):
        sched.apply(one)
        outlook.expect([work[task.id] for task in one.tasks], one.tasks)
    sched.commit(sched.schedule(1.0))
    assert share.deployment is not None
    before = copy.deepcopy(vars(share))
    assert [one.task for one, _ in outlook.hopeless(work, 2.0)] == ["large"]
    accounts, then = share.deployment, before.pop("deployment")
    assert {name: value for name, value in vars(share).items() if name != "deployment"} == before
    assert accounts.users == then.users and accounts.ledger.net().tolist() == then.ledger.net().tolist()


@pytest.mark.parametrize("over", ["user", "job"])
def test_a_quota_is_that_of_the_claimant(over: Any) -> None:
    """The same class waits for several claimants: what is above the quota of one never runs, and the others wait."""
    amounts = {None: {"cpu": 3}, "ann": {"cpu": 64}, "bob": {"cpu": 4}}
    policy = fs.Policy(quotas=fs.Quotas(amounts, over=over, default={"cpu": 2}))
    sched = fs.Scheduler(policy, resources=("cpu",))
    outlook, work = Outlook(sched, FakeExecutor(), 10.0, False), dict[Any, Work]()
    for event in (fs.MachineAdded("a", {"cpu": 4}), fs.MachineAdded("b", {"cpu": 4})):
        sched.apply(event)
        outlook.note(event)
    for who in ("zoe", "ann", "bob"):
        for gang in (None, 2):
            id = who if gang is None else (who, gang)
            job = fs.JobSubmitted(id, [fs.Task((who, gang, i), {"cpu": 4}) for i in range(2)], user=who, gang=gang)
            work |= {task.id: Work(task.id, None, lambda *_: None) for task in job.tasks}
            sched.apply(job)
            outlook.expect([work[task.id] for task in job.tasks], job.tasks)
    never = {one.task for one, _ in outlook.hopeless(work, 1.0)}
    named = {
        "user": {("zoe", None), ("zoe", 2), ("bob", 2)},
        "job": {("zoe", None), ("zoe", 2), ("ann", 2), ("bob", 2)},
    }
    assert never == {(*kind, i) for kind in named[over] for i in range(2)}


def cluster(**machines: float) -> FakeExecutor:
    executor = FakeExecutor()
    executor.machines = dict(machines)
    return executor


def submit(driver: Driver, name: str, count: int, cpu: float, **options: Any) -> list[asyncio.Future[Any]]:
    job = fs.JobSubmitted(name, [fs.Task(f"{name}{i}", {"cpu": cpu}) for i in range(count)], **options)
    return list(driver.submit(job, dict.fromkeys([task.id for task in job.tasks], "work")).values())


def loop_clock() -> float:
    return asyncio.get_running_loop().time()


def test_a_driver_fails_what_never_runs_and_goes_on_with_the_rest() -> None:
    async def main() -> None:
        executor = cluster(a=2, b=2)
        sched = fs.Scheduler(resources=("cpu",))
        async with Driver(sched, executor, patience=100.0, clock=loop_clock) as driver:
            (good,), (large,), gang = (
                submit(driver, "good", 1, 2),
                submit(driver, "large", 1, 3),
                submit(driver, "g", 5, 1, gang=5),
            )
            for future in (large, *gang):
                with pytest.raises(NeverRunsError, match="never fits here"):
                    await future
            executor.tell(executor.end(next(iter(executor.running)), "ended"))
            assert await good == "result of good0"
            (waits,) = submit(driver, "waits", 1, 2)
            while not executor.running:
                await asyncio.sleep(0.1)
            for machine in "ab":
                executor.lose(machine)
                executor.tell(fs.MachineRemoved(machine))
            await asyncio.sleep(99.0)
            assert not waits.done()
            with pytest.raises(NeverRunsError, match="has been there for 100 s"):
                await waits

    run_fake(main)


@pytest.mark.parametrize("elastic", [False, True])
def test_larger_machines_may_come_to_an_elastic_cluster(elastic: bool) -> None:
    async def main() -> None:
        executor = cluster(a=2)
        async with Driver(
            fs.Scheduler(resources=("cpu",)), executor, patience=100.0, elastic=elastic, clock=loop_clock
        ) as driver:
            (large,) = submit(driver, "large", 1, 3)
            await asyncio.sleep(50.0)
            assert large.done() is not elastic
            if elastic:
                executor.machines["b"] = 4
                executor.tell(fs.MachineAdded("b", {"cpu": 4}))
                while not executor.running:
                    await asyncio.sleep(0.1)
                executor.tell(executor.end(next(iter(executor.running)), "ended"))
                assert await large == "result of large0"

    run_fake(main)


def test_a_cluster_without_machines_is_waited_for() -> None:
    async def main() -> None:
        async with Driver(fs.Scheduler(resources=("cpu",)), cluster(), patience=100.0, clock=loop_clock) as driver:
            (one,) = submit(driver, "one", 1, 1)
            await asyncio.sleep(99.0)
            assert not one.done()
            with pytest.raises(NeverRunsError, match="has been there for 100 s"):
                await one

    run_fake(main)
