"""Machines that cannot begin runs, and tasks that cannot begin anywhere: which of the two is at fault."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from effort import effort
from executors import FakeExecutor, run_fake

import flowsched as fs
from flowsched.run import Driver, ExitStatusError, Failed, Run
from flowsched.run.unfit import MOST


class Hosts(FakeExecutor):
    """Runs end a second after their start; on bad machines no run begins, and bad tasks begin nowhere."""

    def __init__(self, machines: dict[str, float], bad_machines: set[str], bad_tasks: set[Any]) -> None:
        super().__init__()
        self.machines, self.bad_machines, self.bad_tasks = dict(machines), bad_machines, bad_tasks
        self.tried: list[tuple[Any, Any]] = []

    def start(self, run: Run) -> None:
        super().start(run)
        self.tried.append((run.task, run.machine))
        bad = run.machine in self.bad_machines or run.task in self.bad_tasks
        asyncio.get_running_loop().call_later(0.0 if bad else 1.0, self.conclude, run, bad)

    def conclude(self, run: Run, bad: bool) -> None:
        if run.number in self.running:
            told = self.end(run.number, "ended")
            self.tell(Failed(run.number, ExitStatusError("no folder", 126), unfit=True) if bad else told)


@pytest.mark.parametrize("seed", range(effort(12, 60)))
def test_bad_machines_are_drained_and_bad_tasks_fail(seed: int) -> None:
    """A bad task fails after ten runs at most.

    A good one ends well, as long as one machine is good and the faults are of one kind.
    """
    draw = random.Random(seed)
    names = [f"m{i}" for i in range(draw.randint(1, 5))]
    bad_machines = {name for name in names[1:] if draw.random() < 0.4}
    tasks = [f"t{i}" for i in range(draw.randint(1, 40))]
    rate = draw.choice([0.0, 0.1, 1.0])
    bad_tasks = {task for task in tasks if draw.random() < rate}
    executor = Hosts({name: draw.randint(1, 4) for name in names}, bad_machines, bad_tasks)

    async def main() -> tuple[list[Any], set[Any]]:
        sched = fs.Scheduler(resources=("cpu",))
        async with Driver(sched, executor, losses=0, ahead=0, clock=asyncio.get_running_loop().time) as driver:
            job = fs.JobSubmitted("job", [fs.Task(task, {"cpu": 1}) for task in tasks])
            ends = await asyncio.gather(*driver.submit(job, dict.fromkeys(tasks, "x")).values(), return_exceptions=True)
            drained = {id for id, record in sched.cluster.machines.items() if record.drained}
            return ends, drained

    ends, drained = run_fake(main)
    times = Counter(task for task, _ in executor.tried)
    for task, end in zip(tasks, ends, strict=True):
        if task in bad_tasks:
            assert isinstance(end, ExitStatusError) and times[task] <= MOST
        elif not bad_tasks or not bad_machines:
            assert end == f"result of {task}", (task, end, bad_machines)
    assert drained <= bad_machines or bad_tasks
    assert len(drained) < len(names)
    for machine in bad_machines if not bad_tasks else ():  # it does not attract the queue
        assert sum(where == machine for _, where in executor.tried) <= 3 + executor.machines[machine]
