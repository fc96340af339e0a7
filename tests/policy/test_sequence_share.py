"""Shares by amounts of resources: the deployment sequence and HRM's batch share where tasks differ in size."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

import flowsched as fs
from flowsched.journal.released import converted
from flowsched.policy.claims import Claims
from flowsched.policy.serialize import describe, rebuild
from flowsched.sharing import Deployment, sequence

DATA = Path(__file__).parent.parent / "data"


class Life:
    """A cluster in rounds, where each user's queue is filled up again, and the CPU time that each user has used."""

    def __init__(
        self,
        share: fs.ShareProvider,
        quotas: dict[str, float],
        machines: int,
        cores: int = 8,
        reclaim: bool = False,
    ) -> None:
        fairness = fs.Fairness(share, over="user", reclaim=reclaim)
        self.sched = fs.Scheduler(fs.Policy(fairness=fairness), resources=("cpu",))
        self.sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": cores}) for i in range(machines)))
        for user, quota in quotas.items():
            self.sched.apply(fs.UserAdded(user, quota=quota), fs.JobSubmitted(user, [], user=user))
        self.used: Counter[str] = Counter()
        self.size: dict[str, tuple[str, float]] = {}
        self.count = 0

    def submit(self, user: str, *sizes: float) -> None:
        for size in sizes:
            task = f"{user}{self.count}"
            self.count += 1
            self.size[task] = user, size
            self.sched.apply(fs.TaskSubmitted(user, fs.Task(task, {"cpu": size})))

    def round(self, now: float) -> fs.Round:
        rnd = self.sched.schedule(now=now)
        for delta in self.sched.commit(rnd).accepted:
            user, size = self.size[str(delta.task)]
            if isinstance(delta, fs.Place):
                self.used[user] += size
            elif isinstance(delta, fs.Preempt):
                self.used[user] -= size
        self.check()
        return rnd

    def check(self) -> None:
        """Debts sum to zero, no user both owes and is owed, and nothing is negative."""
        deployment = provider_of(self).deployment
        assert deployment is not None
        debt = deployment.ledger.debt
        assert (debt >= 0).all() and not (debt.any(axis=0) & debt.any(axis=1)).any()
        assert deployment.ledger.net().sum() == 0
        for machine in self.sched.cluster.machines.values():
            assert all(free >= 0 for free in self.sched.cluster.inventory.free[machine.row].tolist())

    def acquaint(self) -> None:
        """Run all users in proportion to their quotas for a round, so that the accounts have them, without debts."""
        for user in self.sched.cluster.users.values():
            self.submit(str(user.id), user.quota)
        self.round(-1.0)
        self.finish()
        self.used.clear()
        assert owed(self) == {}

    def running(self) -> list[str]:
        return [str(task) for task in self.sched.cluster.tasks if self.sched.cluster.placement(task) is not None]

    def finish(self) -> list[str]:
        done = self.running()
        self.sched.apply(*(fs.TaskCompleted(task) for task in done))
        return done


def provider_of(life: Life) -> fs.SequenceShare:
    fairness = life.sched.policy.fairness
    assert fairness is not None and isinstance(fairness.share, fs.SequenceShare)
    return fairness.share


def owed(life: Life) -> dict[tuple[object, object], float]:
    """Debts in cores."""
    deployment = provider_of(life).deployment
    assert deployment is not None
    return {pair: grains / 1e6 for pair, grains in deployment.ledger.debts().items()}


@pytest.mark.parametrize("share", [fs.SequenceShare(), fs.SequenceShare(spares="largest")], ids=repr)
def test_equal_quotas_with_tasks_of_four_cores_and_of_one(share: fs.SequenceShare) -> None:
    life = Life(share, {"a": 1, "b": 1}, machines=5)
    sizes = {"a": 4.0, "b": 1.0}
    for user, size in sizes.items():
        life.submit(user, *[size] * 40)
    first = life.round(0.0)
    assert {user: first.shares[user].running for user in "ab"} == {"a": 5, "b": 20}
    assert life.used == {"a": 20, "b": 20}
    for now in range(1, 60):
        for task in life.finish():
            user, size = life.size[task]
            life.submit(user, size)
        life.round(float(now))
    assert life.used["a"] == pytest.approx(life.used["b"], rel=0.02)


def test_batch_share_is_by_cores() -> None:
    sched = fs.Scheduler(fs.Policy(fairness=fs.Fairness(fs.BatchShare())), resources=("cpu",))
    sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 8}) for i in range(5)))
    for job, size in (("a", 4), ("b", 1)):
        sched.apply(fs.JobSubmitted(job, [fs.Task(f"{job}{i}", {"cpu": size}) for i in range(40)]))
    rnd = sched.schedule(now=0.0)
    assert {job: (share.entitled, share.running) for job, share in rnd.shares.items()} == {"a": (5, 5), "b": (20, 20)}


MIX = st.lists(st.integers(1, 8), min_size=1, max_size=3)


@settings(max_examples=effort(4, 200), deadline=None)
@given(
    users=st.lists(st.tuples(st.integers(1, 5), MIX), min_size=2, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_use_stays_near_the_quotas_whatever_sizes_tasks_have(users: list[tuple[int, list[int]]], seed: int) -> None:
    """All have tasks without end: the use of each differs from its quota by a constant, not by a part of all use."""
    random = np.random.default_rng(seed)
    quotas = {f"u{i}": float(quota) for i, (quota, _) in enumerate(users)}
    mixes = {f"u{i}": mix for i, (_, mix) in enumerate(users)}
    life = Life(fs.SequenceShare(), quotas, machines=6)
    for user, mix in mixes.items():
        life.submit(user, *random.choice(mix, 60).tolist())
    ideal = np.array(list(quotas.values())) / sum(quotas.values())
    rounds, largest = 15, max(max(mix) for mix in mixes.values())
    for now in range(rounds):
        life.round(float(now))
        used = np.array([life.used[user] for user in quotas])
        apart = np.abs(used - ideal * used.sum()).max()
        # Room in which no task of a lender fits is lent at once: up to a machine of 8 cores.
        assert apart <= (3 if now else 1) * largest + 8
        for task in life.finish():
            user = life.size[task][0]
            life.submit(user, float(random.choice(mixes[user])))
    assert used.sum() > 0.4 * 48 * rounds, "shares do not keep the cluster empty"


@settings(max_examples=effort(15, 300), deadline=None)
@given(
    quotas=st.lists(st.integers(1, 7), min_size=2, max_size=4), cores=st.integers(1, 12), rounds=st.integers(1, 6),
    size=st.sampled_from([1.0, 0.5, 3.0]),
)  # fmt: skip
def test_tasks_that_are_all_alike_start_by_the_sequence(
    quotas: list[int], cores: int, rounds: int, size: float
) -> None:
    """Where grains divide into whole turns, ties and all; the sequence itself is the oracle."""
    total = sum(quotas)
    users = {f"u{i}": float(quota) for i, quota in enumerate(quotas)}
    life = Life(fs.SequenceShare(), users, machines=1, cores=cores * total * size)  # type: ignore[arg-type]
    for user in users:
        life.submit(user, *[size] * (cores * total * rounds))
    turn = np.bincount(sequence(quotas), minlength=len(quotas))
    for now in range(rounds):
        life.round(float(now))
        assert [life.used[user] / size for user in users] == ((now + 1) * cores * turn).tolist()
        life.finish()


@settings(max_examples=effort(15, 1000), deadline=None)
@given(
    beats=st.lists(
        st.tuples(st.integers(1, 60), st.lists(st.tuples(st.integers(0, 9), st.integers(1, 12)), min_size=3, max_size=3)),
        min_size=1, max_size=8,
    ),
    quotas=st.lists(st.integers(1, 9), min_size=3, max_size=3), mu=st.sampled_from([1.0, 0.5, 0.25]),
)  # fmt: skip
def test_a_round_is_a_heartbeat_of_the_library(
    beats: list[tuple[int, list[tuple[int, int]]]], quotas: list[int], mu: float
) -> None:
    """Against `Deployment.deal_sizes` with the source's spares, as long as no second spare of a user would fit."""
    provider = fs.SequenceShare(mu, spares="largest")
    library = Deployment(dict(zip("abc", quotas, strict=True)), mu=mu)
    for free, waiting in beats:
        tasks, sizes = (np.array(column, np.int64) for column in zip(*waiting, strict=True))
        claims = Claims(
            tuple("abc"), tasks, np.zeros(3, np.int64), 0, np.array(quotas, np.float64),
            sizes[:, None].astype(np.float64), np.array([float(free)]),
        )  # fmt: skip
        claims = replace(claims, units=claims.together())
        beat = library.copy().deal_sizes(free, {u: [s] * n for u, (n, s) in zip("abc", waiting, strict=True)})
        if any(beat.tasks[i] < n and s <= beat.left for i, (n, s) in enumerate(waiting)):
            return
        share = provider(claims)
        assert share.tolist() == provider(claims).tolist() == beat.tasks.tolist()
        provider.committed(claims, share)
        library.book(beat.units)
        assert provider.deployment is not None
        assert provider.deployment.ledger.debt.tolist() == library.ledger.debt.tolist()


def test_what_was_lent_comes_back() -> None:
    """16 cores, one task of b in round 0 and none in round 1: what a used of b's part is b's from round 2 on."""
    life = Life(fs.SequenceShare(), {"a": 1, "b": 1}, machines=2)
    life.submit("a", *[4.0] * 60)
    life.submit("b", 1.0)
    seen = []
    for now in range(5):
        if now == 2:
            life.submit("b", *[1.0] * 60)
        life.used.clear()
        life.round(float(now))
        life.finish()
        seen.append((life.used["a"], life.used["b"], owed(life)))
    assert seen == [
        (12, 1, {("a", "b"): 5.5}),  # a third task of a in the room of 7 that b leaves
        (16, 0, {("a", "b"): 13.5}),
        (0, 16, {("a", "b"): 5.5}),
        (0, 16, {("b", "a"): 2.5}),  # a had 2.5 cores left, too few for a task: b uses them, and owes
        (8, 8, {("b", "a"): 2.5}),
    ]


def test_a_borrower_pays_a_part_of_the_possible_repayment() -> None:
    life = Life(fs.SequenceShare(mu=0.25), {"a": 1, "b": 1}, machines=2)
    life.acquaint()
    life.submit("a", *[1.0] * 99)
    life.round(0.0)
    life.finish()
    assert owed(life) == {("a", "b"): 8}
    life.submit("b", *[1.0] * 99)
    life.used.clear()
    life.round(1.0)
    assert (life.used["a"], life.used["b"], owed(life)) == (6, 10, {("a", "b"): 6})


def lender(reclaim: bool) -> Life:
    """a runs on all 16 cores, half of which are b's; then b has tasks."""
    life = Life(fs.SequenceShare(), {"a": 1, "b": 1, "c": 2}, machines=2, reclaim=reclaim)
    life.acquaint()
    life.submit("a", *[2.0] * 20)
    life.round(0.0)
    assert life.used == {"a": 16} and owed(life) == {("a", "b"): 4, ("a", "c"): 8}
    return life


def test_a_lender_is_paid_from_the_part_of_its_borrower() -> None:
    """Case A: the borrower's part of the free room."""
    life = lender(reclaim=False)
    life.finish()
    life.submit("b", *[1.0] * 20)
    life.submit("c", *[1.0] * 20)
    life.used.clear()
    life.round(1.0)
    assert life.used == {"b": 8, "c": 8} and owed(life) == {("a", "c"): 8}


def test_a_lender_that_uses_the_part_of_another_leaves_it_its_claim() -> None:
    """Case B: b takes 3 of the 4 that it is owed from the part of c, and a owes them to c from then on."""
    life = lender(reclaim=False)
    life.sched.apply(*(fs.TaskCompleted(task) for task in life.running()[:2]))
    life.submit("b", *[1.0] * 20)
    life.round(1.0)
    assert life.used["b"] == 4
    # Of the 4 cores b owned 1, a paid 1, and the 2 of c are lent.
    assert owed(life) == {("a", "b"): 1, ("a", "c"): 10}


@pytest.mark.parametrize("reclaim", [False, True])
def test_a_lender_waits_or_takes_its_units_back_by_force(reclaim: bool) -> None:
    """Case C: nothing is free; with `reclaim` two tasks of a stop for the four cores that it owes."""
    life = lender(reclaim)
    life.submit("b", *[1.0] * 20)
    rnd = life.round(1.0)
    if not reclaim:
        assert not rnd.deltas and owed(life) == {("a", "b"): 4, ("a", "c"): 8}
        return
    assert len(rnd.placements) == 4 and len(rnd.preemptions) == 2
    assert (life.used["a"], life.used["b"]) == (12, 4)
    assert owed(life) == {("a", "c"): 8}
    for now in (2.0, 3.0):
        assert not life.round(now).deltas, "nothing is taken back and forth"


@pytest.mark.long
def test_resources_times_seconds() -> None:
    """Tasks of a run three times as long: by cores alone it gets three times as much, by core seconds as much as b."""
    used = {}
    for share in (fs.SequenceShare(), fs.SequenceShare(seconds=10)):
        life = Life(share, {"a": 1, "b": 1}, machines=1)
        for user in "ab":
            life.submit(user, *[1.0] * 1000)
        ends: dict[str, float] = {}
        seconds = Counter[str]()
        for now in range(600):
            done = [task for task, end in ends.items() if end <= now]
            life.sched.apply(*(fs.TaskCompleted(task) for task in done))
            for task in done:
                del ends[task]
            for task in life.round(float(now)).placements:
                ends[str(task)] = now + (15.0 if str(task)[0] == "a" else 5.0)
            seconds.update(str(task)[0] for task in ends)
        used[share.seconds] = seconds["a"] / seconds["b"]
    assert used[None] == pytest.approx(3, rel=0.05)
    assert used[10] == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("share", [fs.SequenceShare(), fs.SequenceShare(seconds=7)], ids=repr)
def test_accounts_do_not_overflow(share: fs.SequenceShare) -> None:
    claims = Claims(
        ("a", "b"), np.array([9, 0]), np.array([0, 0]), 9, np.ones(2), np.full((2, 1), 1e15), np.array([9e15]),
        held=np.array([[9e15], [0.0]]), further=np.full((2, 1), 1e15),
    )  # fmt: skip
    for now in range(200):
        share.committed(replace(claims, now=now * 1e12, booked=np.array([1.0, 0.0])), np.array([9, 0]))
        assert share.deployment is not None
        assert 0 <= share.deployment.ledger.debt.sum(dtype=float) <= 2.0**59
    assert share(replace(claims, tasks=np.array([9, 9]), held=np.zeros((2, 1)))).tolist() == [0, 9]


def test_files_of_older_builds_are_read() -> None:
    """There a debt was counted in tasks of mean size: seven of two cores."""
    for sched in (
        fs.Scheduler.restore(converted(DATA / "sequence-0.1.journal")),
        fs.Scheduler.import_state(DATA / "sequence-1.0.jsonl"),
    ):
        assert sched.policy.fairness is not None
        share = sched.policy.fairness.share
        assert isinstance(share, fs.SequenceShare)
        sched.schedule(now=9.0)
        assert share.deployment is not None and share.deployment.ledger.debts() == {("bob", "ann"): 14_000_000}
        again = fs.Scheduler.restore(sched.snapshot())
        assert again.policy.fairness is not None
        twin = again.policy.fairness.share
        assert isinstance(twin, fs.SequenceShare) and twin.grains
        assert twin.deployment is not None and twin.deployment.ledger.debts() == {("bob", "ann"): 14_000_000}


def test_later_settings_are_described_only_if_they_differ() -> None:
    plain = {"is": "SequenceShare", "mu": 1.0, "resolution": 1}
    assert describe(fs.SequenceShare()) == plain
    assert describe(fs.SequenceShare(spares="largest", seconds=9)) == {**plain, "spares": "largest", "seconds": 9}
    assert rebuild({**plain, "seconds": 9}).seconds == 9
