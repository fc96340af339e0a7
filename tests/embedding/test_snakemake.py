"""The example scheduler plug-in of Snakemake: by the tests of its interface, by properties, and in a real workflow."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pages import DOCS, ROOT, blocks, same_text

import flowsched as fs

pytest.importorskip("snakemake_interface_scheduler_plugins", reason="no Snakemake: pip install snakemake")
from snakemake_interface_scheduler_plugins.tests import TestSchedulerBase as InterfaceTests

PLUGIN = ROOT / "examples" / "snakemake_scheduler_plugin_flowsched"
import snakemake_scheduler_plugin_flowsched as plugin


class TestInterface(InterfaceTests):
    __test__ = True

    def get_scheduler_cls(self) -> type[plugin.Scheduler]:
        return plugin.Scheduler

    def get_scheduler_settings(self) -> plugin.SchedulerSettings:
        return plugin.SchedulerSettings()

    def test_scheduler(self) -> None:
        pytest.importorskip("snakemake", reason="pip install snakemake")  # its dummy jobs have Snakemake's files
        super().test_scheduler()


class File:
    def __init__(self, temporary: bool = False) -> None:
        self.temporary = temporary

    def is_flagged(self, flag: str) -> bool:
        return self.temporary and flag == "temp"


class Job:
    def __init__(self, priority: int = 0, files: tuple[File, ...] = (), **resources: int) -> None:
        self.scheduler_resources, self.priority, self.input = {"_job_count": 1, **resources}, priority, files


class Group(Job):
    def __init__(self, *members: Job, **resources: int) -> None:
        super().__init__(**resources)
        self.jobs = members


class Host:
    """Snakemake's books: what is free, what is ready, what has finished."""

    def __init__(self, free: dict[str, int], jobs: list[Any], reserve_after: int = 0) -> None:
        self.free = {"_nodes": sys.maxsize, "_job_count": sys.maxsize, **free}
        self.ready, self.running, self.done, self.now = list(jobs), list[Any](), set[Any](), 0.0
        self.most = dict(self.free)
        self.plugin = plugin.Scheduler(self, plugin.SchedulerSettings(reserve_after=reserve_after), logging.getLogger())
        self.plugin.clock = lambda: self.now

    def finished(self, job: Any) -> bool:
        return job in self.done

    def choose(self, sizes: dict[Any, int] | None = None) -> list[Any]:
        chosen = self.plugin.select_jobs(list(self.ready), [], dict(self.free), sizes or {})
        assert len({id(job) for job in chosen}) == len(chosen)
        for job in chosen:
            self.ready.remove(job)
            self.take(job, -1)
        self.running += chosen
        return list(chosen)

    def take(self, job: Any, sign: int) -> None:
        for name in self.free.keys() - {"_job_count"}:
            self.free[name] += sign * job.scheduler_resources.get(name, 0)
            assert self.free[name] >= 0

    def fits(self, job: Any) -> bool:
        """With what it asks for rounded up, but to no more than there is."""
        asks = {name: min(plugin.rounded(n), self.most[name]) for name, n in job.scheduler_resources.items()}
        return all(n <= self.free[name] for name, n in asks.items())

    def end(self, job: Any, how: str = "finished") -> None:
        self.running.remove(job)
        self.take(job, 1)
        if how == "finished":
            self.done.update(getattr(job, "jobs", (job,)))
        elif how == "again":
            self.ready.append(job)


@pytest.mark.parametrize("seed", range(6))
def test_random_workflows_run_to_their_end_and_nothing_waits_that_fits(seed: int) -> None:
    """Jobs finish, fail for good, or fail and are ready again; single ones and groups."""
    rng = random.Random(seed)

    def job() -> Job:
        asks = {"_cores": rng.choice([1, 1, 2, 8]), "mem_mb": rng.choice([1, 500, rng.randrange(1, 4000)])}
        one = Job(priority=rng.choice([-1, 0, 0, 7, sys.maxsize]), **asks)
        return Group(one, Job(_cores=1), **asks) if rng.random() < 0.2 else one

    host, made = Host({"_cores": 8, "mem_mb": 4000}, [job() for _ in range(20)]), 20
    for _ in range(400):
        while host.choose():
            pass  # what rounding left free is seen by the next call
        assert not any(host.fits(left) for left in host.ready)
        if not host.running:
            break
        host.now += 1.0
        for one in rng.sample(host.running, rng.randint(1, len(host.running))):
            host.end(one, rng.choice(["finished", "finished", "again", "failed"]))
        if made < 60:
            host.ready += [job() for _ in range(4)]
            made += 4
    assert not host.ready and not host.running


def test_requests_are_rounded_up_by_a_sixteenth_at_most() -> None:
    assert [n for n in range(200) if plugin.rounded(n) == n] == [
        *range(33),
        *range(34, 65, 2),
        *range(68, 129, 4),
        *range(136, 200, 8),
    ]
    numbers = [random.Random(0).randrange(1, 2**40) for _ in range(1000)]
    assert all(n <= plugin.rounded(n) <= n + n / 16 for n in numbers)
    assert len({plugin.rounded(n) for n in range(500, 8500)}) < 80


def test_a_job_that_asks_for_all_there_is_starts_though_its_request_is_rounded_up() -> None:
    host = Host({"mem_mb": 1001}, [Job(mem_mb=1), Job(mem_mb=1001)])
    (first,) = host.choose()
    if first.scheduler_resources["mem_mb"] == 1:
        host.end(first)
        (first,) = host.choose()
    assert first.scheduler_resources["mem_mb"] == 1001


def test_better_priority_first_then_what_frees_the_largest_temporary_files() -> None:
    small, large, plain = File(True), File(True), File()
    jobs = [
        Job(_cores=1, files=(small,)), Job(_cores=1, files=(plain,)), Job(_cores=1, files=(large,)),
        Job(_cores=1, priority=3), Job(_cores=1),
    ]  # fmt: skip
    host = Host({"_cores": 1}, jobs)
    order = []
    while chosen := host.choose({small: 10, large: 20, plain: 99}):
        order += [jobs.index(job) for job in chosen]
        host.end(chosen[0])
    assert order == [3, 2, 0, 1, 4]


def test_a_job_that_failed_for_good_holds_nothing() -> None:
    host = Host({"_cores": 2}, [Job(_cores=2), Job(_cores=2)])
    (first,) = host.choose()
    host.end(first, "failed")
    assert len(host.choose()) == 1


def test_a_job_that_asks_for_more_after_a_failure() -> None:
    host = Host({"_cores": 2, "mem_mb": 100}, [Job(_cores=1, mem_mb=60), Job(_cores=1, mem_mb=40)])
    grown = host.choose()[0]
    host.end(grown, "again")
    grown.scheduler_resources["mem_mb"] = 80
    assert host.choose() == []
    host.end(host.running[0])
    assert host.choose() == [grown]


def test_resources_without_a_limit_and_a_limit_of_jobs_that_comes_and_goes() -> None:
    host = Host({}, [Job(_cores=1) for _ in range(6)])
    host.free["_job_count"] = 2
    assert len(host.choose()) == 2
    assert len(host.choose()) == 2
    host.free["_job_count"] = 0
    assert host.choose() == []
    host.free["_job_count"] = sys.maxsize
    assert len(host.choose()) == 2


def wait_of_a_large_job(reserve_after: int) -> float:
    """Seconds that a job of all cores waits in a stream of small ones that never ends."""
    large = Job(_cores=4)
    host = Host({"_cores": 4}, [Job(_cores=1) for _ in range(4)], reserve_after)
    while host.now < 2000:
        chosen = host.choose()
        if large in chosen:
            return host.now
        host.now += 10.0
        host.end(host.running[0])
        host.ready.append(Job(_cores=1))
        if host.now == 10.0:
            host.ready.append(large)
    return float("inf")


def test_a_large_job_starves_unless_resources_are_kept_for_it() -> None:
    assert wait_of_a_large_job(0) == float("inf")
    assert wait_of_a_large_job(100) <= 200


@pytest.mark.long
def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    """Its commands run in a copy of the example; a real workflow stays within its cores and its memory."""
    pytest.importorskip("snakemake", reason="pip install snakemake")
    pytest.importorskip("pulp", reason="pip install pulp")
    for file in ("Snakefile", "compare.py"):
        (tmp_path / file).write_text((PLUGIN / file).read_text(encoding="utf-8"), encoding="utf-8")
    folders = [str(PLUGIN), str(Path(fs.__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders), "HOME": str(tmp_path)}
    ran = 0
    for block in blocks((DOCS / "howto" / "embed_snakemake.md").read_text(encoding="utf-8")):
        for line in block.code.splitlines():
            command = line.removeprefix("$ ")
            if block.kind != "console" or not command.startswith(("snakemake ", "python ")):
                continue
            program = [sys.executable, *(["-m"] if command.startswith("snakemake") else [])]
            arguments = command.removeprefix("python ").split()
            done = subprocess.run(
                [*program, *arguments],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert same_text(block.printed or "", done.stdout + done.stderr), done.stdout + done.stderr
            ran += 1
    assert ran == 2
    assert (tmp_path / "report.txt").read_text(encoding="utf-8").split() == ["16"]
    moments = []
    for line in (tmp_path / "times.txt").read_text(encoding="utf-8").splitlines():
        begin, end, cores, memory = line.split()
        moments += [(float(begin), 1, int(cores), int(memory)), (float(end), -1, int(cores), int(memory))]
    assert len(moments) == 32
    cores = memory = 0
    for _, sign, ask, size in sorted(moments):
        cores, memory = cores + sign * ask, memory + sign * size
        assert cores <= 8 and memory <= 6000
