"""Compare Snakemake's schedulers on generated workflows: seconds of choosing, and the simulated end of the last job.

python compare.py [JOBS ...]
"""

import heapq
import itertools
import logging
import random
import sys
import time

import snakemake_scheduler_plugin_flowsched as flow
from snakemake.scheduling import greedy, milp

CORES, MEMORY = 64, 128_000


class Job:
    """One job of a generated workflow: the fields that a scheduler reads, and its run time."""

    def __init__(self, rng: random.Random, kinds: bool) -> None:
        memory = rng.randrange(500, 8500, 500) if kinds else rng.randrange(500, 8500)
        self.scheduler_resources = {"_cores": rng.choice([1, 1, 2, 4, 16]), "mem_mb": memory, "_job_count": 1}
        self.priority, self.input, self.seconds = rng.choice([0, 0, 0, 5]), (), rng.lognormvariate(4, 1)


class Workflow:
    """The ready jobs and the finished files: all that the schedulers need from Snakemake."""

    def __init__(self, jobs: int, kinds: bool) -> None:
        rng = random.Random(0)
        self.ready, self.ended, self.now = {Job(rng, kinds): None for _ in range(jobs)}, set(), 0.0
        self.free = {"_cores": CORES, "_nodes": sys.maxsize, "_job_count": sys.maxsize, "mem_mb": MEMORY}

    def finished(self, job: Job) -> bool:
        return job in self.ended

    def run(self, select, settings) -> tuple[float, float, float, float]:
        """Return the end, the seconds of the first choice, of all choices, and the part of the cores in use at first."""
        scheduler = select(self, settings, logging.getLogger())
        scheduler.clock = lambda: self.now
        spare, running, number, spent, first = (
            greedy.Scheduler(self, greedy.SchedulerSettings(), None),
            [],
            itertools.count(),
            0.0,
            None,
        )
        while self.ready or running:
            begin = time.perf_counter()
            chosen = (
                scheduler.select_jobs(list(self.ready), list(self.ready), dict(self.free), {}) if self.ready else []
            )
            if chosen is None:  # Snakemake falls back
                chosen = spare.select_jobs(list(self.ready), list(self.ready), dict(self.free), {})
            spent += time.perf_counter() - begin
            for job in chosen:
                del self.ready[job]
                heapq.heappush(running, (self.now + job.seconds, next(number), job))
                self.take(job, -1)
            first = first or (spent, 1 - self.free["_cores"] / CORES)
            self.now, _, job = heapq.heappop(running)
            self.ended.add(job)
            self.take(job, 1)
        return self.now, first[0], spent, first[1]

    def take(self, job: Job, sign: int) -> None:
        for name in ("_cores", "mem_mb"):
            self.free[name] += sign * job.scheduler_resources[name]
            assert self.free[name] >= 0, "no scheduler may start more than fits"


SCHEDULERS = {
    "greedy": (greedy.Scheduler, greedy.SchedulerSettings()),
    "ilp": (milp.Scheduler, milp.SchedulerSettings()),
    "flowsched": (flow.Scheduler, flow.SchedulerSettings()),
}

if __name__ == "__main__":
    print("  jobs  memory     scheduler   first choice     all choices   cores at first   end")
    for jobs in map(int, sys.argv[1:] or ["200"]):
        for kinds, name in itertools.product((True, False), SCHEDULERS):
            end, first, spent, used = Workflow(jobs, kinds).run(*SCHEDULERS[name])
            memory = "16 sizes" if kinds else "any size"
            print(
                f"{jobs:6}  {memory:9}  {name:10} {first:10.3f} s {spent:13.2f} s {used:13.0%} {end:9.0f} s", flush=True
            )
