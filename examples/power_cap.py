"""A power cap per rack: a custom hard limit, which reasons and explanations name."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import flowsched as fs


@dataclass(frozen=True)
class PowerCap:
    """The tasks of a rack together draw at most `cap` watts; `watts` is the power of a unit of each resource."""

    cap: float
    watts: Mapping[str, float]
    name = "rack power"
    wakes = (fs.TaskCompleted, fs.TaskFailed, fs.TaskRemoved, fs.MachineUpdated)

    def reach(self, cluster, row):
        return cluster.rack_rows(row)

    def room(self, cluster, classes, rows):
        price = np.array([self.watts.get(name, 0.0) for name in cluster.resources.names])
        drawn = [(cluster.used(self.reach(cluster, row)) @ price).sum() for row in rows.tolist()]
        left = np.maximum(self.cap - np.array(drawn) + 1e-6, 0.0)
        each = np.maximum(cluster.demand(classes) @ price, 1e-9)
        return np.floor(left / each[:, None]).astype(np.int64)


policy = fs.Policy(constraints=[PowerCap(cap=400.0, watts={"cpu": 100.0})])
sched = fs.Scheduler(policy, resources=("cpu", "mem"))
sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 8, "mem": 32}, rack=f"rack {i // 2}") for i in range(4)))
sched.apply(fs.JobSubmitted("job", [fs.Task(f"t{i}", {"cpu": 2, "mem": 4}) for i in range(6)]))

rnd = sched.schedule(now=0.0)
sched.commit(rnd)
racks = [sched.cluster.machines[machine].machine.rack for machine in rnd.placements.values()]
print("tasks by rack:", {rack: racks.count(rack) for rack in sorted(set(racks))})

reason = sched.explain("t5")
print(reason.code, dict(reason.detail))
print("unblocked by", ", ".join(reason.unblocked_by))

sched.apply(fs.TaskCompleted("t0"))
print("after t0 has ended:", dict(sched.schedule(now=1.0).placements))
