"""Tasks by stages: learn the real needs of tasks, and run more of them on the same machine."""

import numpy as np

import flowsched as fs
from flowsched.fgm import DemandEstimator, FineGrained

# A task of kind "map" requests 2 cores and 4 GB.  It reads first, on half a core, and computes later, on one and a half.
profile = [[0.5, 1.0]] * 5 + [[1.5, 3.0]] * 5
rng = np.random.default_rng(0)
used = DemandEstimator(("cpu", "mem"), points=10, cold=1)
for _ in range(20):
    used.observe("map", np.array(profile) * rng.uniform(0.95, 1.05), seconds=rng.uniform(55, 65))
used.update()


def fill(sched: "fs.Scheduler | FineGrained", rounds: int = 6) -> list[int]:
    """Return the number of running tasks after each round, half a minute apart."""
    sched.apply(
        *(fs.MachineAdded(f"node-{i}", {"cpu": 8, "mem": 16}) for i in range(2)),
        fs.JobSubmitted("job", [fs.Task(i, {"cpu": 2, "mem": 4}, kind="map") for i in range(40)]),
    )
    ends: dict[object, float] = {}
    running = []
    for now in np.arange(rounds) * 30.0:
        done = [task for task, end in ends.items() if end <= now]
        sched.apply(*(fs.TaskCompleted(task, time=float(now)) for task in done))
        for task in done:
            del ends[task]
        rnd = sched.schedule(now=float(now))
        sched.commit(rnd)
        ends.update({task: float(now) + 60.0 for task in rnd.placements})
        running.append(len(ends))
    return running


by_request = fill(fs.Scheduler(resources=("cpu", "mem")))
by_stage = fill(FineGrained(fs.Scheduler(resources=("cpu", "mem")), estimator=used))
print("running tasks, every 30 s, matched by requests:", by_request)
print("running tasks, every 30 s, matched by stages:  ", by_stage)
