"""The example resource of SimPy, beside SimPy's own where the rules agree, and by properties where it does more."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import flowsched as fs

simpy = pytest.importorskip("simpy", reason="pip install simpy")
from simpy_resource import Machines

Log = list[tuple[float, int, str]]


def flow(env: Any, capacity: int, policy: fs.Policy) -> Callable[..., Any]:
    machines = Machines(env, {"here": {"slot": capacity}}, policy)
    return lambda priority: machines.request({"slot": 1}, priority=priority)


def story(make: Callable[[Any], Callable[..., Any]], seed: int, jobs: int = 60) -> Log:
    """What happens to jobs with priorities that wait with patience, are preempted, and come back or give up."""
    rng, env, log = random.Random(seed), simpy.Environment(), Log()
    request = make(env)

    def job(name: int, begin: float, seconds: float, priority: int, patience: float, stubborn: bool) -> Any:
        yield env.timeout(begin)
        while seconds > 0:
            with request(priority=priority) as slot:
                since = env.now
                got = yield slot | env.timeout(patience)
                if slot not in got:
                    log.append((env.now, name, "gives up"))
                    return
                log.append((env.now, name, "starts"))
                assert slot.triggered and slot.usage_since == env.now >= since
                since = env.now
                try:
                    yield env.timeout(seconds)
                    seconds = 0
                except simpy.Interrupt as interrupt:
                    assert interrupt.cause.usage_since == since
                    log.append((env.now, name, "preempted"))
                    seconds = seconds - (env.now - since) if stubborn else 0
        log.append((env.now, name, "ends"))

    for name in range(jobs):
        patience = rng.choice([1e9, 1e9, rng.uniform(1, 60)])
        env.process(
            job(name, rng.uniform(0, 300), rng.expovariate(1 / 6), rng.randrange(4), patience, rng.random() < 0.7)
        )
    env.run()
    return log


@pytest.mark.parametrize("seed", range(5))
def test_a_slot_is_a_priority_resource(seed: int) -> None:
    policy = fs.Policy(preemption=None)
    theirs = story(lambda env: simpy.PriorityResource(env).request, seed)
    assert story(lambda env: flow(env, 1, policy), seed) == theirs
    assert {what for *_, what in theirs} == {"starts", "ends", "gives up"}


@pytest.mark.parametrize("seed", range(5))
def test_some_slots_are_a_priority_resource(seed: int) -> None:
    policy = fs.Policy(preemption=None)
    theirs = story(lambda env: simpy.PriorityResource(env, 3).request, seed, 180)
    assert story(lambda env: flow(env, 3, policy), seed, 180) == theirs


@pytest.mark.parametrize("seed", range(5))
def test_a_slot_is_a_preemptive_resource(seed: int) -> None:
    theirs = story(lambda env: simpy.PreemptiveResource(env).request, seed)
    assert story(lambda env: flow(env, 1, fs.Policy()), seed) == theirs
    assert "preempted" in {what for *_, what in theirs}


def test_who_preempts_and_where_is_told() -> None:
    env = simpy.Environment()
    machines, causes = Machines(env, {"a": {"cpu": 1}, "b": {"cpu": 4}}), []

    def job(cpu: int, priority: int) -> Any:
        with machines.request({"cpu": cpu}, priority=priority) as request:
            try:
                where = yield request
                assert where == request.machines
                yield env.timeout(10)
            except simpy.Interrupt as interrupt:
                causes.append((env.now, where, interrupt.cause))

    env.process(job(3, 1))
    env.run(until=2)
    better = env.process(job(4, 0))
    env.run()
    ((time, where, cause),) = causes
    assert (time, where) == (2, ["b"])
    assert (cause.by, cause.usage_since, cause.resource) == (better, 0, machines)


def test_what_is_asked_and_released_at_one_time_is_decided_together() -> None:
    """SimPy gives a slot on at the release; a better request of the same time then comes too late."""

    def order(make: Callable[[Any], Callable[..., Any]]) -> list[int]:
        env, started = simpy.Environment(), list[int]()
        request = make(env)

        def job(priority: int, begin: float) -> Any:
            yield env.timeout(begin)
            for _ in range(3):
                yield env.timeout(0)  # after the release of the same time
            with request(priority=priority) as slot:
                yield slot
                started.append(priority)
                yield env.timeout(5)

        for priority, begin in [(9, 0), (8, 1), (7, 5)]:
            env.process(job(priority, begin))
        env.run()
        return started

    assert order(lambda env: flow(env, 1, fs.Policy(preemption=None))) == [9, 7, 8]
    assert order(lambda env: simpy.PriorityResource(env).request) == [9, 8, 7]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_requests_of_many_shapes_and_gangs_stay_within_their_machines(seed: int) -> None:
    rng, env = random.Random(seed), simpy.Environment()
    capacity = {f"m{i}": {"cpu": 8, "gpu": i % 2} for i in range(5)}
    machines = Machines(env, capacity)
    used = {name: {"cpu": 0, "gpu": 0} for name in capacity}
    ended = []

    def hold(where: list[str], demand: dict[str, int], sign: int) -> None:
        for machine in where:
            for name, amount in demand.items():
                used[machine][name] += sign * amount
                assert 0 <= used[machine][name] <= capacity[machine][name]

    def job(name: int) -> Any:
        yield env.timeout(rng.uniform(0, 100))
        demand = {"cpu": rng.choice([1, 2, 4, 8]), "gpu": rng.choice([0, 0, 1])}
        tasks = 1 if demand["gpu"] else rng.choice([1, 1, 3, 5])
        priority, seconds = rng.randrange(3), rng.uniform(1, 20)
        while True:
            with machines.request(demand, priority=priority, tasks=tasks) as request:
                where = yield request
                assert len(where) == tasks and None not in where
                hold(where, demand, 1)
                try:
                    yield env.timeout(seconds)
                except simpy.Interrupt:
                    hold(where, demand, -1)
                    continue
                hold(where, demand, -1)
            ended.append(name)
            return

    for name in range(60):
        env.process(job(name))
    env.run()
    assert sorted(ended) == list(range(60))
    assert machines.count == 0 and not machines.queue and not machines.known and not machines.sched.cluster.jobs


def test_an_exception_in_the_block_releases_and_a_request_is_cancelled_once() -> None:
    env = simpy.Environment()
    machines = Machines(env, {"here": {"slot": 1}})

    def fails() -> Any:
        with machines.request({"slot": 1}) as request:
            yield request
            raise ValueError("the work fails")

    def leaves() -> Any:
        request = machines.request({"slot": 1})
        yield env.timeout(1)
        if not request.triggered:
            request.cancel()
        request.cancel()
        yield machines.release(request)

    def tries() -> Any:
        with pytest.raises(ValueError, match="the work fails"):
            yield env.process(fails())

    env.process(tries())
    env.process(leaves())
    env.run()
    assert machines.count == 0 and not machines.known
