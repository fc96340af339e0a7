"""A dispatcher of AccaSim that uses flowsched, compared with AccaSim's own on the same jobs."""

import collections
import collections.abc
import json
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import flowsched as fs

for _name in ("Callable", "Hashable", "Iterable", "Mapping", "MutableMapping"):  # AccaSim 1.1.3 imports them from there
    setattr(collections, _name, getattr(collections.abc, _name))
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its docstrings have invalid escapes
        from accasim.base.allocator_class import FirstFit
        from accasim.base.scheduler_class import FirstInFirstOut, SchedulerBase
        from accasim.base.simulator_class import Simulator
except ImportError as missing:
    raise ImportError("this example needs AccaSim: pip install accasim") from missing


class Dispatcher(SchedulerBase):
    """Starts jobs when and where a scheduler decides; nodes and jobs become events as AccaSim has them.

    Parameters
    ----------
    make : callable
        From the names of the resources to a scheduler that preempts nothing: an `fs.Scheduler`, or anything with its three
        calls.
    """

    name = "flowsched"

    def __init__(self, make: Callable[[Sequence[str]], fs.sim.Schedules], **options: Any) -> None:
        super().__init__(0, None, **options)
        self.make, self.sched, self.known = make, None, set[str]()

    def get_id(self) -> str:
        return self.name

    def scheduling_method(
        self, cur_time: int, jobs: Sequence[Any], es_dict: Any
    ) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return (time, job, nodes) for each queued job, without time and nodes for one that waits; and none to reject."""
        nodes = self.resource_manager.system_capacity("nodes")
        if self.sched is None:
            self.sched = self.make(tuple(next(iter(nodes.values()))))
            self.sched.apply(*(fs.MachineAdded(node, dict(capacity)) for node, capacity in nodes.items()))
        present = self.resource_manager.current_allocations.keys() | {job.id for job in jobs}
        events: list[fs.Event] = [fs.JobRemoved(job) for job in sorted(self.known - present)]  # AccaSim reports no ends
        events += [submitted(job) for job in jobs if job.id not in self.known]
        self.known = set(present)
        self.sched.apply(*events)
        done = self.sched.commit(self.sched.schedule(float(cur_time)))
        started: dict[str, list[str]] = {}
        for place in done.accepted:
            started.setdefault(place.task[0], []).append(place.machine)
        return [(cur_time, job.id, started[job.id]) if job.id in started else (None, job.id, []) for job in jobs], []


def submitted(job: Any) -> fs.JobSubmitted:
    """Return a job of AccaSim as an event: one equal task for each requested node, all of which start together."""
    estimate = getattr(job, "expected_duration", None)
    demand = dict(job.requested_resources)
    tasks = [fs.Task((job.id, i), demand, duration=estimate or None) for i in range(job.requested_nodes)]
    return fs.JobSubmitted(job.id, tasks, gang=len(tasks) if len(tasks) > 1 else None, time=float(job.queued_time))


def mean_wait(dispatcher: SchedulerBase, folder: Path) -> float:
    """Run AccaSim on the files of `write_jobs`, and return the mean wait of the jobs in seconds."""
    waits, schedule = [], dispatcher.schedule

    def watched(cur_time: int, es_dict: Any, es: Any) -> Any:
        plan, rejected = schedule(cur_time, es_dict, es)
        waits.extend(cur_time - es_dict[job].queued_time for _, job, nodes in plan if nodes)
        return plan, rejected

    dispatcher.schedule = watched
    off = dict.fromkeys(("scheduling_output", "statistics_output", "show_statistics"), False)
    files = str(folder / "jobs.swf"), str(folder / "nodes.json")
    Simulator(*files, dispatcher, RESULTS_FOLDER_PATH=str(folder), LOG_LEVEL="ERROR", **off).start_simulation()
    return float(np.mean(waits))


def write_jobs(folder: Path, count: int) -> None:
    """Write jobs of 1 to 32 processors with estimates of three times their run times, and 32 nodes of four."""
    rng = np.random.default_rng(0)
    lines = ["; MaxNodes: 32", "; MaxProcs: 128"]
    for i, at in enumerate(np.cumsum(rng.exponential(40, count)).astype(int), 1):
        processors, run = rng.choice([1, 2, 4, 8, 16, 32]), int(rng.lognormal(5.8, 1.2)) + 1
        user = rng.integers(5)
        lines.append(f"{i} {at} -1 {run} {processors} -1 -1 {processors} {3 * run} -1 1 {user} 1 1 1 -1 -1 -1")
    (folder / "jobs.swf").write_text("\n".join(lines) + "\n")
    system = {"groups": {"node": {"core": 4}}, "resources": {"node": 32}, "start_time": 0}
    (folder / "nodes.json").write_text(json.dumps({**system, "equivalence": {"processor": {"core": 1}}}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_jobs(Path(folder), 300)
        fifo = mean_wait(FirstInFirstOut(FirstFit()), Path(folder))
        ours = mean_wait(
            Dispatcher(lambda names: fs.Scheduler(fs.Policy(preemption=None), resources=names)), Path(folder)
        )
    print(f"mean wait: FIFO {fifo:.0f} s, flowsched {ours:.0f} s")
