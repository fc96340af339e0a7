"""Prefer the newest kernel: a custom placement cost."""

from dataclasses import dataclass

import numpy as np

import flowsched as fs


@dataclass(frozen=True)
class NewestKernel:
    """0 on machines with the newest kernel, 1 on those with the oldest one, and in between by its place in the list."""

    kernels: tuple[str, ...]
    weight: float = 1.0

    def __call__(self, cluster, classes, rows):
        age = {kernel: i / (len(self.kernels) - 1) for i, kernel in enumerate(self.kernels)}
        cost = np.array([age.get(kernel, 1.0) for kernel in cluster.labels(rows, "kernel")])
        return np.broadcast_to(cost, (len(classes), len(rows)))


sched = fs.Scheduler(fs.Policy(placement=[NewestKernel(kernels=("6.12", "6.1", "5.15"))]), resources=("cpu",))
for machine, kernel in {"old": "5.15", "new": "6.12", "mid": "6.1"}.items():
    sched.apply(fs.MachineAdded(machine, {"cpu": 2}, labels={"kernel": kernel}))
sched.apply(fs.JobSubmitted("job", [fs.Task(i, {"cpu": 1}) for i in range(3)]))
rnd = sched.schedule(now=0.0)
for task, machine in rnd.placements.items():
    print(f"task {task} on {machine!r}, kernel {sched.cluster.machines[machine].machine.labels['kernel']}")
