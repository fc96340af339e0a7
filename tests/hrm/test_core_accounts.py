"""GPU units that share the cores of a machine (split "shared"): one account of cores, in queues, network, state, simulator, agent."""

from __future__ import annotations

import math
import random
import sys
import threading
from collections.abc import Iterable, Sequence
from itertools import count

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from negotiators import audit

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")

import sqlalchemy as sa

from bench.hrm.hybrid import BatchJob, HybridSimulation
from flowsched.hrm import (
    Admission,
    Claim,
    Container,
    Hybrid,
    Negotiator,
    Node,
    Outcome,
    ResourceUnit,
    StackedQueue,
    Store,
    TransferQueue,
    WaitMatrix,
    predict_wait,
    rebalance,
    share_cores,
    split_machine,
)
from flowsched.hrm.schedulers import Worker
from flowsched.hrm.state.schema import RS, RT

CORES, MEM, GMEM, PLACES = 4, 8, 10, 3
UNITS = 3


def gpu(machine: str, i: int, cores: float = CORES) -> ResourceUnit:
    return ResourceUnit(f"{machine}/gpu{i}", machine, vcore=cores, mem=MEM, gmem=GMEM, gpu=i, shared=True)


def queues(machine: str = "m", **options: int | None) -> list[StackedQueue]:
    made = [StackedQueue(gpu(machine, i), **options) for i in range(UNITS)]  # type: ignore[arg-type]
    share_cores(made)
    return made


def at_work(those: Iterable[StackedQueue]) -> float:
    return sum(run.container.vcore for queue in those for run in queue.running.values())


# -- queues ------------------------------------------------------------------------------------------------------


class Model:
    """The rules of three units on one account of cores, by lists that are added up anew for every question."""

    def __init__(self) -> None:
        self.running: list[list[Container]] = [[] for _ in range(UNITS)]
        self.paused: list[list[Container]] = [[] for _ in range(UNITS)]
        self.waiting: list[list[Container]] = [[] for _ in range(UNITS)]

    def cores(self, streams: bool = False) -> float:
        return sum(c.vcore for unit in self.running for c in unit if c.kind == "stream" or not streams)

    def here(self, u: int, streams: bool = False) -> tuple[float, float, float]:
        held = [c for c in self.running[u] + ([] if streams else self.paused[u]) if c.kind == "stream" or not streams]
        places = [c for c in self.running[u] if c.kind == "stream" or not streams]
        return sum(c.mem for c in held), sum(c.gmem for c in held), len(places)

    def fits(self, u: int, c: Container, streams: bool = False, paused: bool = False) -> bool:
        mem, gmem, places = self.here(u, streams)
        memory = paused or (mem + c.mem <= MEM and gmem + c.gmem <= GMEM)
        return self.cores(streams) + c.vcore <= CORES and memory and places < PLACES

    def submit(self, u: int, c: Container) -> bool:
        if not (c.vcore <= CORES and c.mem <= MEM and 0 < c.gmem <= GMEM):
            return False
        if c.kind == "batch":
            if not (self.waiting[u] or self.paused[u]) and self.fits(u, c):
                self.running[u].append(c)
            else:
                self.waiting[u].append(c)
            return True
        if not self.fits(u, c, streams=True):
            return False
        evicted = []
        for old in [*reversed(self.paused[u]), *(r for r in reversed(self.running[u]) if r.kind == "batch")]:
            mem, gmem, _ = self.here(u)
            short = (mem + c.mem > MEM and old.mem > 0) or (gmem + c.gmem > GMEM and old.gmem > 0)
            if short:
                (self.paused if old in self.paused[u] else self.running)[u].remove(old)
                evicted.append(old)
        self.waiting[u][:0] = reversed(evicted)
        for v in [u, *(v for v in range(UNITS) if v != u)]:
            for old in list(reversed(self.running[v])):
                cores = self.cores() + c.vcore > CORES and old.vcore > 0
                place = v == u and self.here(u)[2] >= PLACES
                if old.kind == "batch" and (cores or place):
                    self.running[v].remove(old)
                    self.paused[v].append(old)
        self.running[u].append(c)
        self.dispatch()
        return True

    def dispatch(self) -> None:
        while True:
            for u in sorted(range(UNITS), key=lambda u: sum(c.vcore for c in self.running[u])):
                going = next((c for c in self.paused[u] if self.fits(u, c, paused=True)), None)
                new = next((c for c in self.waiting[u] if self.fits(u, c)), None)
                if going is not None or new is not None:
                    break
            else:
                return
            if going is not None:
                self.paused[u].remove(going)
                self.running[u].append(going)
            elif new is not None:
                self.waiting[u].remove(new)
                self.running[u].append(new)

    def remove(self, u: int, id: object) -> None:
        for part in (self.running, self.paused, self.waiting):
            part[u] = [c for c in part[u] if c.id != id]
        self.dispatch()


containers = st.builds(
    dict,
    vcore=st.sampled_from([0, 0, 1, 1, 2, 3, 4, 5]),
    mem=st.sampled_from([0, 0, 2, 5, 9]),
    gmem=st.sampled_from([0, 1, 1, 3, 6, 11]),
    kind=st.sampled_from(["batch", "batch", "batch", "stream"]),
)


class SharedCores(RuleBasedStateMachine):
    """Queues on one account of cores do what the model does, and tell the node all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.queues, self.model, self.ids, self.now = queues(most=PLACES), Model(), count(), 0.0
        self.node: list[dict[object, str]] = [{} for _ in range(UNITS)]  # what the node was told, by unit

    def carry_out(self, u: int, admission: Admission) -> None:
        units = {queue.unit.id: v for v, queue in enumerate(self.queues)}
        parts = [(u, admission), *((units[unit], told) for unit, told in admission.elsewhere)]
        for v, told in parts:
            assert not (v != u and told.evicted)
            for container in told.evicted:
                del self.node[v][container.id]
        for v, told in parts:
            for container in told.paused:
                assert self.node[v][container.id] == "running"
                self.node[v][container.id] = "paused"
        for v, told in parts:
            for container in told.resumed:
                assert self.node[v][container.id] == "paused"
                self.node[v][container.id] = "running"
            for container in told.started:
                assert container.id not in self.node[v]
                self.node[v][container.id] = "running"

    @rule(u=st.integers(0, UNITS - 1), what=containers)
    def submit(self, u: int, what: dict[str, object]) -> None:
        self.now += 1.0
        container = Container(next(self.ids), **what)  # type: ignore[arg-type]
        admission = self.queues[u].submit(container, self.now)
        assert (admission.outcome in (Outcome.STARTED, Outcome.QUEUED)) == self.model.submit(u, container)
        self.carry_out(u, admission)

    @rule(pick=st.integers(0, 99), several=st.booleans())
    def finish(self, pick: int, several: bool) -> None:
        u = pick % UNITS
        if running := list(self.queues[u].running):
            self.now += 1.0
            ids = running[: 2 if several else 1]
            admission = self.queues[u].finish(ids, self.now)
            for id in ids:
                del self.node[u][id]
                self.model.running[u] = [c for c in self.model.running[u] if c.id != id]
            self.model.dispatch()
            self.carry_out(u, admission)

    @rule(pick=st.integers(0, 99))
    def remove(self, pick: int) -> None:
        there = [
            (u, c.id) for u in range(UNITS) for part in ("paused", "waiting") for c in getattr(self.model, part)[u]
        ]
        if there:
            self.now += 1.0
            u, id = there[pick % len(there)]
            admission = self.queues[u].remove(id, self.now)
            self.node[u].pop(id, None)
            self.model.remove(u, id)
            self.carry_out(u, admission)

    @rule(what=containers)
    def predictions_agree(self, what: dict[str, object]) -> None:
        container = Container("new", **{**what, "kind": "batch", "duration": 1.0})  # type: ignore[arg-type]
        waits = [queue.predict(container, self.now) for queue in self.queues]
        assert WaitMatrix(self.queues).waits(container, self.now).tolist() == waits
        assert [wait == 0 for wait in waits] == [queue.has_room(container) for queue in self.queues]

    @invariant()
    def as_the_model(self) -> None:
        for u, queue in enumerate(self.queues):
            assert set(queue.running) == {c.id for c in self.model.running[u]}
            assert list(queue.paused) == [c.id for c in self.model.paused[u]]
            assert [c.id for c in queue.waiting] == [c.id for c in self.model.waiting[u]]
            assert queue.free[0] == (CORES - self.model.cores()) * 1_000_000 >= 0
            assert queue.stream_room[0] == (CORES - self.model.cores(streams=True)) * 1_000_000
            states = {**dict.fromkeys(queue.running, "running"), **dict.fromkeys(queue.paused, "paused")}
            assert self.node[u] == states


SharedCores.TestCase.settings = settings(max_examples=effort(15, 400), stateful_step_count=40)
TestSharedCores = SharedCores.TestCase


@settings(max_examples=effort(15, 2000))
@given(seed=st.integers(0, 10**9))
def test_the_prediction_is_what_the_queues_then_do(seed: int) -> None:
    rng, those, now = random.Random(seed), queues(), 0.0
    for i in range(rng.randint(0, 14)):
        now += rng.random()
        one = Container(
            i, vcore=rng.randint(0, 4), mem=rng.randint(0, 3), gmem=rng.randint(1, 6), duration=9 * rng.random() + 20
        )
        those[rng.randrange(UNITS)].submit(one, now)
    me = Container("me", vcore=rng.randint(0, 4), mem=rng.randint(0, 3), gmem=rng.randint(1, 6), duration=3.0)
    u = rng.randrange(UNITS)
    wait = those[u].predict(me, now)
    matrix = WaitMatrix(those)
    assert matrix.waits(me, now)[u] == wait
    began, at = those[u].submit(me, now).outcome is Outcome.STARTED, now
    while not began:
        at, v, id = min((run.end, v, id) for v, queue in enumerate(those) for id, run in queue.running.items())
        those[v].finish(id, at)
        began = "me" in those[u].running
    assert wait == pytest.approx(at - now)


def test_a_unit_without_work_gets_freed_cores_before_one_that_has_some() -> None:
    a, b, _ = queues()
    for i in range(4):
        a.submit(Container(f"a{i}", vcore=2, gmem=1, duration=9.0), 0.0)
    assert b.submit(Container("b", vcore=2, gmem=1, duration=9.0), 1.0).outcome is Outcome.QUEUED
    done = a.finish("a0", 9.0)
    assert not done.started and [(unit, [c.id for c in told.started]) for unit, told in done.elsewhere] == [
        ("m/gpu1", ["b"])
    ]


def test_machines_have_accounts_of_their_own_and_other_units_none() -> None:
    those = queues("m") + queues("n")
    cpu = StackedQueue(ResourceUnit("m/cpu", "m", vcore=CORES))
    share_cores([*those, cpu])
    those[0].submit(Container("a", vcore=4, gmem=1), 0.0)
    assert [queue.free[0] // 1_000_000 for queue in (*those, cpu)] == [0, 0, 0, 4, 4, 4, 4]


def test_a_transfer_queue_and_moves_keep_to_the_cores() -> None:
    those = [StackedQueue(gpu("m", i), length=1) for i in range(2)] + [StackedQueue(gpu("n", 0), length=1)]
    transfer = TransferQueue(those)
    for i in range(6):
        transfer.submit(Container(i, vcore=2, gmem=1, duration=5.0 + i), 0.0)
    assert at_work(those[:2]) == CORES and at_work(those[2:]) == CORES
    assert rebalance(those, 0.0, 0.0) == []
    those[2].finish(list(those[2].running), 9.0)
    rebalance(those, 9.0, 0.0)
    assert at_work(those[:2]) <= CORES and at_work(those[2:]) <= CORES


# -- the network -------------------------------------------------------------------------------------------------


@settings(max_examples=effort(15, 600))
@given(
    there=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 4)), max_size=6),
    asked=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), min_size=1, max_size=8),
)
def test_no_round_claims_more_cores_than_a_machine_has(
    there: Sequence[tuple[int, int, int]], asked: Sequence[tuple[int, int]]
) -> None:
    those = queues("m") + queues("n")
    for i, (u, cores, gmem) in enumerate(there):
        those[u].submit(Container(f"old{i}", vcore=cores, gmem=gmem, duration=9.0), 0.0)
    states = [Hybrid.state_of(queue, 0.0) for queue in those]
    free = {"m": those[0].free[0], "n": those[3].free[0]}
    batch = [Container(f"b{i}", vcore=cores, gmem=gmem, duration=1.0) for i, (cores, gmem) in enumerate(asked)]
    hybrid = Hybrid()
    hybrid.refresh(states)
    hybrid.submit("j", batch)
    need = {c.id: c.need[0] for c in batch}
    claims = hybrid.claims(0.0)
    for machine, cores in free.items():
        assert sum(need[c.task] for c in claims if c.unit.startswith(machine)) <= cores
    # Every claim is granted: this scheduler is alone, and its copy is fresh.
    by_unit = {claim.unit: [batch[int(c.task[1:])] for c in claims if c.unit == claim.unit] for claim in claims}
    by_id = {queue.unit.id: queue for queue in those}
    for unit, run in by_unit.items():
        assert by_id[unit].grants(run, [], 0.0, math.inf)
        assert all(by_id[unit].submit(c, 0.0).outcome is Outcome.STARTED for c in run)


@settings(max_examples=effort(15, 600))
@given(cores=st.lists(st.integers(0, 3), min_size=1, max_size=6), held=st.integers(0, 4))
def test_a_stream_job_finds_cores_on_both_machines_or_is_refused(cores: Sequence[int], held: int) -> None:
    those = queues("m") + queues("n")
    if held:
        those[0].submit(Container("s", vcore=held, gmem=1, kind="stream"), 0.0)
    hybrid = Hybrid()
    stream = [Container(f"x{i}", vcore=c, gmem=1, kind="stream") for i, c in enumerate(cores)]
    where = hybrid.place_stream(stream, [Hybrid.state_of(queue, 0.0) for queue in those], 0.0)
    if where is None:
        assert sum(cores) > 2 * CORES - held - 2 * (max(cores) - 1)  # less than a container of each machine is left
        return
    by_id = {queue.unit.id: queue for queue in those}
    for container in stream:
        assert by_id[where[str(container.id)]].submit(container, 0.0).outcome is Outcome.STARTED
    # The network has all cores again.
    assert (hybrid.place_stream(stream[:1], [], 0.0) is not None) == (cores[0] <= max(CORES, CORES - held))


# -- the shared state --------------------------------------------------------------------------------------------


def state(store: Store, machines: int = 2, length: int = 1, **options: float | bool) -> Negotiator:
    negotiator = Negotiator(store, **{"shares": False, **options})  # type: ignore[arg-type]
    for m in range(machines):
        node = Node.uniform(f"m{m}", cores=CORES, mem=64_000, gpus=2, gmem=GMEM)
        negotiator.add_units(split_machine(node, "shared"), length=length)
    return negotiator


def overdrawn(store: Store) -> list[tuple[str, int]]:
    """Machines whose GPU units' running containers have more cores than there are, and how many."""
    cores = sa.func.sum(RT.c.vcore)
    query = (
        sa.select(RS.c.machine_id, cores)
        .join(RT, RT.c.queue_id == RS.c.ru_id)
        .where(RS.c.type == "shared", RT.c.status == "RUNNING")
        .group_by(RS.c.machine_id)
        .having(cores > CORES * 1_000_000)
    )
    return [tuple(row) for row in store.look(query)]


def test_claims_of_two_schedulers_take_turns_at_the_cores(store: Store) -> None:
    negotiator = state(store, 1)
    for name in "ab":
        negotiator.add_scheduler(name)
        tasks = [Container(f"{name}{i}", vcore=3, gmem=1, duration=9.0) for i in range(2)]
        negotiator.submit(f"j{name}", tasks, scheduler=name)
    # One commit asks for too much on two units together, another one on the second unit alone.
    one = negotiator.commit("a", [Claim("a0", "m0/gpu0"), Claim("a1", "m0/gpu1")])
    assert [c.task for c in one.accepted] == ["a0"] and [c.task for c, _ in one.refused] == ["a1"]
    assert not negotiator.commit("b", [Claim("b0", "m0/gpu1")]).accepted
    assert negotiator.commit("b", [Claim("b0", "m0/gpu1", queued=True)]).accepted
    audit(store)
    negotiator.launch("a", ["a0"])
    negotiator.launch("b", ["b0"])
    # The end on one unit starts what waits on the other.
    assert negotiator.heartbeat("m0", finished=["a0"]).started == ("b0",)
    audit(store)


def test_units_that_join_later_find_the_cores_in_use(store: Store) -> None:
    negotiator = Negotiator(store, shares=False)
    negotiator.add_units([gpu("m", 0)])
    negotiator.add_scheduler("s")
    negotiator.submit("j", [Container(f"t{i}", vcore=3, gmem=1, duration=9.0) for i in range(2)], scheduler="s")
    negotiator.commit("s", [Claim("t0", "m/gpu0")])
    negotiator.add_units([gpu("m", 1)])
    audit(store)
    assert not negotiator.commit("s", [Claim("t1", "m/gpu1")]).accepted
    assert negotiator.remove_units(["m/gpu0"]) == ["t0"]
    assert negotiator.commit("s", [Claim("t1", "m/gpu1")]).accepted
    audit(store)


def test_a_stream_pauses_batch_of_the_other_gpu_for_its_cores(store: Store) -> None:
    negotiator = state(store, 1)
    negotiator.add_scheduler("s")
    negotiator.submit("b", [Container("b", vcore=4, gmem=1, duration=9.0)], scheduler="s")
    negotiator.commit("s", [Claim("b", "m0/gpu0")], launch=True)
    negotiator.submit("x", [Container("x", vcore=1, gmem=1, kind="stream")], scheduler="s")
    assert negotiator.stream("s", "x", lambda tasks, units: {"x": "m0/gpu1"}).accepted
    assert negotiator.jobs()[0].held == 1 and overdrawn(store) == []
    audit(store)
    negotiator.launch("s", ["x"])
    assert negotiator.heartbeat("m0", finished=["x"]).started == ("b",)
    audit(store)


def test_a_share_counts_the_shared_cores_once(store: Store) -> None:
    negotiator = state(store, 2, length=0, shares=True)
    negotiator.add_scheduler("s")
    for job in "ab":
        tasks = [Container(f"{job}{i}", vcore=2, gmem=1, duration=9.0) for i in range(8)]
        negotiator.submit(job, tasks, scheduler="s")
    # Two containers of two cores a machine, whatever the number of its GPUs.
    assert negotiator.allowed(["a", "b"]) == {"a": 2, "b": 2}


def test_any_history_of_claims_is_that_of_adding_up(store: Store) -> None:
    """Against a model that adds up; schedulers claim at random, machines end at random, streams come and go."""
    rng, negotiator, serial = random.Random(7), state(store, 2, length=2), count()
    units = [f"m{m}/gpu{i}" for m in range(2) for i in range(2)]
    names = ["s0", "s1", "s2"]
    for name in names:
        negotiator.add_scheduler(name)
    tasks: dict[str, Container] = {}
    for _ in range(60):
        name, job = rng.choice(names), f"j{next(serial)}"
        several = [
            Container(f"{job}-{i}", vcore=rng.randint(0, 3), gmem=rng.randint(1, 4), duration=5.0)
            for i in range(rng.randint(1, 5))
        ]
        negotiator.submit(job, several, scheduler=name)
        tasks.update((str(c.id), c) for c in several)
        where = {
            task: (unit, status)
            for task, unit, status in store.look(sa.select(RT.c.task_id, RT.c.queue_id, RT.c.status))
            if unit
        }
        claims = [Claim(str(c.id), rng.choice(units)) for c in several]
        # The model: units in order of their names, each all or none; nothing starts where others wait.
        cores = {
            m: sum(tasks[t].vcore for t, (u, s) in where.items() if u[:2] == m and s == "RUNNING") for m in ("m0", "m1")
        }
        expected = set()
        for unit in sorted({claim.unit for claim in claims}):
            those = [tasks[claim.task] for claim in claims if claim.unit == unit]
            here = [(tasks[t], s) for t, (u, s) in where.items() if u == unit]
            gmem = sum(c.gmem for c, s in here if s != "WAITING") + sum(c.gmem for c in those)
            more = sum(c.vcore for c in those)
            if all(s == "RUNNING" for _, s in here) and gmem <= GMEM and cores[unit[:2]] + more <= CORES:
                cores[unit[:2]] += more
                expected |= {str(c.id) for c in those}
        granted = negotiator.commit(name, claims, launch=True)
        assert {claim.task for claim in granted.accepted} == expected
        for claim, _ in granted.refused:
            if rng.random() < 0.5:
                negotiator.commit(name, [Claim(claim.task, claim.unit, queued=True)], launch=True)
        audit(store)
        for machine in ("m0", "m1"):
            running = [
                row.task_id
                for row in store.look(sa.select(RT.c.task_id, RT.c.queue_id).where(RT.c.status == "RUNNING"))
                if row.queue_id.startswith(machine)
            ]
            negotiator.heartbeat(machine, finished=rng.sample(running, rng.randint(0, len(running))))
        audit(store)
        assert overdrawn(store) == []


@pytest.mark.long
def test_concurrent_schedulers_never_overdraw_the_cores(store: Store) -> None:
    """Four schedulers in threads, machines that end what runs, and a watcher; every task runs once."""
    negotiator = state(store, 3, length=1)
    rng = random.Random(1)
    for j in range(8):
        tasks = [
            Container(f"j{j}-{i}", vcore=rng.choice([0, 1, 2, 3]), gmem=rng.randint(1, 5), duration=0.1)
            for i in range(8)
        ]
        negotiator.submit(f"j{j}", tasks)
    over, wrong, failed = threading.Event(), [], []

    def work(name: str) -> None:
        try:
            worker = Worker(Negotiator(store, shares=False), name, seed=int(name[1:]))
            while not over.is_set():
                worker.step()
                over.wait(0.002)
        except BaseException as error:
            failed.append(error)
            over.set()

    threads = [threading.Thread(target=work, args=(f"s{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    done = 0
    try:
        while done < 64 and not over.is_set():
            wrong += overdrawn(store)
            for m in range(3):
                running = [
                    row.task_id
                    for row in store.look(
                        sa.select(RT.c.task_id, RT.c.queue_id).where(RT.c.status == "RUNNING", RT.c.launched == 1)
                    )
                    if row.queue_id.startswith(f"m{m}")
                ]
                done += len(negotiator.heartbeat(f"m{m}", finished=running[: rng.randint(1, 3)]).finished)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failed and not wrong and done == 64
    audit(store)


# -- the simulator -----------------------------------------------------------------------------------------------


class Checked(HybridSimulation):
    """A simulation that looks at the cores of every machine after every change there."""

    most = 0.0

    def _carry_out(self, unit: str, admission: Admission) -> None:
        super()._carry_out(unit, admission)
        for books in (self._real, self._known):
            used = at_work(books[other] for other in self._units_of[self._machine_of[unit]])
            self.most = max(self.most, used)
            assert used <= CORES


@settings(max_examples=25)
@given(
    sizes=st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.sampled_from([1.0, 2.5, 4.0])), min_size=1, max_size=6),
        min_size=1, max_size=6,
    ),
    schedulers=st.integers(1, 3),
    length=st.integers(0, 2),
    options=st.sampled_from([{}, {"patience": 0.0}, {"max_wait": 3.0, "patience": 1.0}, {"in_turn": True}, {"expected": 2.0}]),
)  # fmt: skip
def test_no_simulated_machine_overdraws_its_cores(
    sizes: list[list[tuple[int, int, float]]], schedulers: int, length: int, options: dict[str, float]
) -> None:
    jobs = [
        BatchJob(
            f"j{j}", 0.5 * j,
            tuple(Container(f"j{j}-{i}", f"j{j}", vcore=c, gmem=g, duration=d) for i, (c, g, d) in enumerate(those)),
        )
        for j, those in enumerate(sizes)
    ]  # fmt: skip
    units = [gpu(machine, i) for machine in ("m", "n") for i in range(2)]
    simulation = Checked(units, jobs, schedulers=schedulers, length=length, **options)  # type: ignore[arg-type]
    found = simulation.run()
    assert np.isfinite(found.completion).all() and found.claims - found.conflicts == sum(map(len, sizes))


# -- the agent ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="the agent runs on Linux only")
def test_an_agent_starts_the_other_gpus_container_when_cores_are_free() -> None:
    from flowsched.hrm.agent import Agent

    with Agent([gpu("m", 0), gpu("m", 1)]) as agent:
        agent.submit("m/gpu0", Container("a", vcore=3, gmem=1), ["sleep", "600"])
        assert agent.submit("m/gpu1", Container("b", vcore=2, gmem=1), ["sleep", "600"]).outcome is Outcome.QUEUED
        assert agent.pid("a") is not None and agent.pid("b") is None
        # A stream on one GPU stops the other's batch for its cores; what fits goes on afterwards.
        done = agent.submit("m/gpu1", Container("x", vcore=4, gmem=1, kind="stream"), [sys.executable, "-c", ""])
        assert [(unit, [c.id for c in told.paused]) for unit, told in done.elsewhere] == [("m/gpu0", ["a"])]
        while "x" not in {one.id for one in agent.step(timeout=30.0)}:
            pass
        assert list(agent.queues["m/gpu0"].running) == ["a"] and agent.pid("b") is None
        agent.remove("a")
        assert agent.pid("b") is not None
        agent.remove("b")
        agent.submit("m/gpu0", Container("a", vcore=3, gmem=1), ["sleep", "600"])
        # Without its unit a machine's other one has the cores.
        assert agent.submit("m/gpu1", Container("c", vcore=2, gmem=1), ["sleep", "600"]).outcome is Outcome.QUEUED
        assert agent.remove_queue("m/gpu0") == ["a"]
        assert agent.pid("c") is not None
        agent.add_queue(gpu("m", 2))
        assert agent.submit("m/gpu2", Container("d", vcore=3, gmem=1), ["sleep", "600"]).outcome is Outcome.QUEUED


def test_a_gpu_container_with_a_core_has_a_finite_wait() -> None:
    units = split_machine(Node.uniform("n", cores=10, mem=64_000, gpus=2, gmem=10_240), "shared")
    those = [StackedQueue(unit) for unit in units]
    share_cores(those)
    wait = predict_wait(Container("x", vcore=1, gmem=3000, duration=5.0), those)
    assert wait.wait == 0.0
    for i in range(10):
        those[0].submit(Container(i, vcore=1, gmem=500, duration=7.0), 0.0)
    assert predict_wait(Container("x", vcore=1, gmem=3000, duration=5.0), those, now=1.0).wait == 6.0
