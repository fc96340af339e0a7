"""Utilities of placements, of either sign: the round with the largest total utility."""

import flowsched as fs

# <task, resources, utility>: the tasks by kind, the resources by labels or by a machine's id.
wishes = fs.Utilities([
    ("render", {"gpu": ("yes",)}, 5),
    ("train", {"gpu": ("yes",)}, 7.5),
    ("train", "old", -2),  # slower than tomorrow on another machine
    ("index", "old", 0.25),
    (None, {"zone": ("far",)}, -0.5),  # all tasks
])  # fmt: skip
policy = fs.Policy(placement=[wishes], waiting=fs.WaitCost(buckets=1))  # to wait is worth 0, however long
sched = fs.Scheduler(policy, resources=("cpu",))
sched.apply(
    fs.MachineAdded("gpu", {"cpu": 8}, labels={"gpu": "yes"}, slots=1),
    fs.MachineAdded("far-gpu", {"cpu": 8}, labels={"gpu": "yes", "zone": "far"}, slots=1),
    fs.MachineAdded("old", {"cpu": 8}, slots=2),
)
sched.apply(
    *(fs.JobSubmitted(kind, [fs.Task((kind, i), kind=kind) for i in range(2)]) for kind in ("train", "render", "index"))
)

rnd = sched.schedule(now=0.0)
for task, machine in sorted(rnd.placements.items()):
    print(*task, "on", machine)
print("waiting:", sorted(rnd.waiting))
print("utilities from", wishes.low, "to", wishes.high, "in", policy.resolution, "levels")
