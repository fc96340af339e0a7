"""Runs that are measured, and matched by the use of such runs: `LocalExecutor(sample=)` under `FineGrained`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psutil")

from killed_drivers import kill_again_and_again

import flowsched as fs
from flowsched.cluster.events import MachineSampled, UsageSampled
from flowsched.fgm import DemandEstimator, FineGrained
from flowsched.run import Driver, LocalExecutor
from flowsched.run import usage as measured
from flowsched.run.usage import Usage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

NAMES = ("cpu", "mem")


OTHERS = [0.0, 0.5, 0.5, 0.5, 0.5, 1.0]
"""Part of the machine's CPUs in use at each look."""


class Most:
    """The largest number of runs at a time, as a watcher."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def started(self, run: Any, now: float) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def ended(self, *_: Any) -> None:
        self.now -= 1


@pytest.mark.parametrize("learns", [False, True])
def test_sleepers_that_ask_for_the_machine_run_together_once_that_is_learnt(learns: bool) -> None:
    plain = fs.Scheduler(fs.Policy.named("pack"), NAMES)
    estimator = DemandEstimator(NAMES, cold=1)
    scheduler = FineGrained(plain, estimator=estimator) if learns else plain
    watcher = Most()

    async def main() -> None:
        executor = LocalExecutor({"cpu": 2, "mem": 500}, machine="here", sample=0.05)
        async with Driver(scheduler, executor, watcher=watcher, patience=0.0) as driver:
            job = fs.JobSubmitted("job", [fs.Task(i, {"cpu": 2}, kind="k") for i in range(8)])
            await asyncio.gather(*driver.submit(job, {i: ["sleep", "0.3"] for i in range(8)}).values())
            assert "refused" not in driver.stats

    asyncio.run(main())
    assert (watcher.most > 1) == learns
    if learns:
        profile = estimator.profile("k")
        assert profile is not None and profile.demand[:, 0].max() < 1 and 0 < profile.demand[:, 1].max() < 100


@pytest.mark.long
def test_a_driver_that_learns_and_is_killed_again_and_again(tmp_path: Path) -> None:
    """Every task is done once, and the estimates of all lives are one."""
    scheduler = "FineGrained(fs.Scheduler(resources=('cpu',)), journal=f'{folder}/journal')"
    imports = "from flowsched.run import LocalExecutor\nfrom flowsched.fgm import FineGrained"
    executor = "LocalExecutor({'cpu': 3}, machine='here', folder=f'{folder}/runs', sample=0.05)"
    kill_again_and_again(tmp_path, imports, executor, 60, step=0.06, scheduler=scheduler)
    estimator = FineGrained.restore(str(tmp_path / "journal")).estimator
    assert 3 < estimator.seen("k") <= 60


def test_a_sample_that_is_refused_leaves_the_others() -> None:
    fine = FineGrained(fs.Scheduler(resources=("cpu",)))

    async def main() -> dict[str, int]:
        async with Driver(fine, LocalExecutor({"cpu": 2}, machine="here")) as driver:
            driver.tell(
                MachineSampled("here", {"cpu": 0.5}),
                MachineSampled("nowhere", {"cpu": 1}),
                UsageSampled("gone", {"cpu": 1}, run=7),
                MachineSampled("here", {"cpu": 1.5}),
            )
            await driver.drained()
            return driver.stats

    stats = asyncio.run(main())
    assert (stats["refused"], stats["stale"]) == (1, 1)
    idle = fine.learner.idle(fine.cluster.machine("here").row)
    assert idle is not None and idle[0] < 1.5


# -- samples ------------------------------------------------------------------------------------------------------


@pytest.fixture
def usage(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Usage, list[tuple[int, float]]]]:
    """Make the usage of runs by number: what each asks for, and then uses, in cores; with the limits that are set."""
    limits: list[tuple[int, float]] = []
    busy = zip(accumulate(OTHERS), count(0.0), strict=False)
    monkeypatch.setattr(measured, "_limit", lambda run, cpu: limits.append((run.pid, cpu)))
    monkeypatch.setattr(measured, "_spent", lambda: next(busy))

    def made(capacity: float, asked: dict[int, float], used: dict[int, float]) -> tuple[Usage, list[tuple[int, float]]]:
        ticks = count()
        one = Usage("here", {"cpu": capacity}, 1.0, lambda: float(next(ticks)))
        monkeypatch.setattr(one._sampler, "add", lambda *_, **__: None)
        monkeypatch.setattr(
            one._sampler, "sample", lambda: [UsageSampled(number, {"cpu": cpu}) for number, cpu in used.items()]
        )
        for number, cpu in asked.items():
            one.add(number, f"t{number}", number, {"cpu": cpu}, None, new=True)
        return one, limits

    return made


def test_cpu_beyond_the_request_is_no_need_and_a_trifle_is_none(usage: Any) -> None:
    one, _ = usage(4, {1: 1.0, 2: 1.0, 3: 0.0}, {1: 3.0, 2: 0.04, 3: 0.5})
    assert one.look() == [
        UsageSampled("t1", {"cpu": 1.0}, run=1),
        UsageSampled("t2", {"cpu": 0.0}, run=2),
        UsageSampled("t3", {"cpu": 0.5}, run=3),
        MachineSampled("here", {"cpu": 1.54}),
    ]


def test_an_old_run_is_reported_when_its_age_has_grown_by_a_hundredth() -> None:
    run = measured._Run("t", 1, {"cpu": 1.0}, None, began=0.0, reported=0.0, looked=0.0)
    reports = [run.take({"cpu": second % 2, "mem": second}, float(second), 0.5) for second in range(1, 2001)]
    times = [second for second, report in enumerate(reports, 1) if report is not None]
    assert times[:100] == list(range(1, 101)) and times[-1] - times[-2] == 20 and len(times) < 500
    last = reports[times[-1] - 1]
    assert last is not None and last["cpu"] == pytest.approx(0.5) and last["mem"] == times[-1]


def test_runs_beyond_their_request_are_limited_while_cpus_are_scarce(usage: Any) -> None:
    used = {1: 0.5, 2: 1.0}
    one, limits = usage(2, {1: 0.5, 2: 0.5}, used)
    one.look()
    assert not limits  # a quarter is idle
    used.update({1: 0.5, 2: 1.5})
    one.look()
    assert limits == [(2, 0.5)]
    used.update({1: 1.45, 2: 0.5})
    one.look()
    assert limits[1:] == [(1, 0.5)]
    used.update({1: 0.5, 2: 0.5})
    one.look()
    assert limits[2:] == [(1, 0.0), (2, 0.0)]
    used.update({1: 0.6, 2: 0.5})
    one.look()  # others use the machine
    assert limits[4:] == [(1, 0.5)]


def test_a_run_too_short_for_a_look_counts_by_its_sums(usage: Any) -> None:
    one, _ = usage(2, {1: 1.0, 2: 1.0}, {2: 0.5})
    one.look()
    assert one.remove(1, 2.0, {"cpu": 1.0}) == UsageSampled("t1", {"cpu": 0.5}, run=1)
    assert one.remove(2, 2.0, {"cpu": 1.0}) is None
    assert one.remove(3, 2.0, {"cpu": 1.0}) is None


def test_a_limit_is_that_of_the_control_group_and_is_lifted(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("cpu")
    group = tmp_path / "7"
    group.mkdir()
    run = measured._Run("t", 1 << 30, {"cpu": 0.5}, group)
    measured._limit(run, 0.5)
    assert (group / "cpu.max").read_text() == "50000 100000"
    measured._limit(run, 0.0)
    assert (group / "cpu.max").read_text() == "max 100000"


def test_the_limit_of_a_run_without_a_group_is_its_priority() -> None:
    async def main() -> list[str]:
        executor = LocalExecutor({"cpu": 1}, machine="here")
        async with Driver(fs.Scheduler(resources=("cpu",)), executor) as driver:
            driver.submit(fs.JobSubmitted("j", [fs.Task("a", {"cpu": 1})]), {"a": ["sleep", "100"]})
            while not executor.held:
                await asyncio.sleep(0.01)
            (process,) = executor.held.values()
            group, found = Path(f"/proc/{process.family.pid}/autogroup"), []
            if not group.exists():
                pytest.skip("this kernel does not group by session")
            for cpu in (0.5, 0.0):
                measured._limit(measured._Run("a", process.family.pid, {"cpu": 1.0}, None), cpu)
                found.append(group.read_text().split()[-1])
                await asyncio.sleep(0.15)  # the kernel takes no two changes within a tenth of a second
            return found

    assert asyncio.run(main()) == ["10", "0"]


def test_a_control_group_counts_what_has_left_the_processes(tmp_path: Path) -> None:
    from flowsched.fgm.processes import Group

    (tmp_path / "cpu.stat").write_text("usage_usec 1000000\nuser_usec 1\n")
    group = Group(tmp_path)
    (tmp_path / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (tmp_path / "memory.current").write_text(str(30 << 20))
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {10 << 20}\n")
    cpu, mem, *rest = group.look().tolist()
    assert (cpu, mem) == (0.5, 20.0) and all(other != other for other in rest)
