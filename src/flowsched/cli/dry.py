"""``flowsched run --dry-run``: the machines of the first starts, and the tasks that never fit."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Mapping

from rich.table import Table
from rich.text import Text

from flowsched.cli import endings
from flowsched.cluster.events import JobSubmitted, MachineAdded
from flowsched.cluster.model import MICRO
from flowsched.policy import Policy
from flowsched.run import Driver, Executor
from flowsched.run.executor import Work
from flowsched.run.jobs import RESOURCES, JobFile
from flowsched.run.outlook import Outlook
from flowsched.run.plan import Plan
from flowsched.scheduler import Scheduler

_PATIENCE = 10.0
"""Seconds in which machines have to be there."""

_ROWS = 50


def show(jobs: JobFile, executor: Callable[[Mapping[str, float] | None], Executor], policy: Policy) -> None:
    """Print a row for each job, and exit with 1 if one of them can never run."""
    machines, never, starts = asyncio.run(_tried(jobs, executor, policy))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("job", "tasks", "start now", "on", "later"):
        table.add_column(column, justify="right" if column in ("tasks", "start now") else "left", overflow="fold")
    plan = Plan()
    plan.add(jobs.jobs, 0.0)
    for job in jobs.jobs[:_ROWS]:
        tasks = list(job.commands)
        on = Counter(str(starts[task]) for task in tasks if task in starts)
        places = ", ".join(f"{machine} ({count})" if count > 1 else machine for machine, count in on.most_common(4))
        places += ", ..." if len(on) > 4 else ""
        reasons = dict.fromkeys(never[task] for task in tasks if task in never)
        after = ", ".join(
            f"{name} ({form})" if form != "ok" else name for form, names in job.after.items() for name in names
        )
        later = "; ".join(reasons) if reasons else f"after {after}" if after else ""
        if not later and job.not_before is not None:
            later = "not before its time"
        if not later and sum(on.values()) < len(tasks):
            later = f"at most {job.at_most} at once" if job.at_most == sum(on.values()) else "as room comes"
        table.add_row(Text(job.name), f"{len(tasks):,}", f"{sum(on.values()):,}", Text(places), Text(later))
    out = endings.Out()
    out.print(table)
    if len(jobs.jobs) > _ROWS:
        out.print(f"and {len(jobs.jobs) - _ROWS:,} other jobs")
    total = sum(len(job.commands) for job in jobs.jobs)
    out.print(
        f"{total:,} tasks of {len(jobs.jobs):,} jobs; {machines} machines; {len(starts):,} start now, {len(never):,} never fit"
    )
    sys.exit(1 if never else 0)


async def _tried(
    jobs: JobFile, executor: Callable[[Mapping[str, float] | None], Executor], policy: Policy
) -> tuple[int, dict[Hashable, str], dict[Hashable, Hashable]]:
    """Return the number of machines, the tasks that never fit with the reasons, and the machines of the first starts."""
    driver = Driver(Scheduler(policy, resources=RESOURCES), executor(jobs.machine))
    async with driver:
        end = asyncio.get_running_loop().time() + _PATIENCE
        while not driver.scheduler.cluster.machines and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.05)
        cluster = driver.scheduler.cluster
        all, first = (Scheduler(policy, resources=RESOURCES) for _ in range(2))
        outlook = Outlook(all, driver.executor, 0.0, False)
        for id, record in cluster.machines.items():
            capacity = (cluster.inventory.capacity[record.row] / MICRO).tolist()
            machine = MachineAdded(id, capacity, rack=record.rack, labels=dict(record.labels))
            for scheduler in (all, first):
                scheduler.apply(machine)
            outlook.note(machine)
        counted = getattr(driver.executor, "counted", lambda job: job)
        by_name = {job.name: job for job in jobs.jobs}
        for job in jobs.jobs:
            all.apply(counted(job.submitted))
            work = [Work(task.id, None, lambda value, error: None) for task in job.submitted.tasks]
            outlook.expect(work, job.submitted.tasks)
        waiting = {
            task.id: Work(task.id, None, lambda value, error: None) for job in jobs.jobs for task in job.submitted.tasks
        }
        never: dict[Hashable, str] = {}
        while found := [(one.task, error) for one, error in outlook.hopeless(waiting, 0.0) if one.task not in never]:
            never |= {task: str(error) for task, error in found}
        plan = Plan()
        plan.add(jobs.jobs, 0.0)
        for part in plan.released(0.0):
            own, wanted = by_name[part.job.name].submitted, set(part.tasks)
            tasks = [task for task in own.tasks if task.id in wanted]
            first.apply(counted(JobSubmitted(own.id, tasks, user=own.user, priority=own.priority, gang=own.gang)))
        starts = dict(first.schedule(0.0).placements)
        return len(cluster.machines), never, starts
