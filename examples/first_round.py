"""A first round: machines, two jobs, a decision, and the reason of a waiting task."""

import flowsched as fs

sched = fs.Scheduler(resources=("cpu", "gpu"))
sched.apply(
    fs.MachineAdded("machine-1", {"cpu": 32, "gpu": 2}, labels={"gpu_model": "T4"}),
    fs.MachineAdded("machine-2", {"cpu": 96}),
    fs.JobSubmitted("train", [fs.Task(f"train-{i}", {"cpu": 8, "gpu": 1}) for i in range(3)], priority=2),
    fs.JobSubmitted("web", [fs.Task("web-0", {"cpu": 4})], priority=1),  # a lower number is better
)
rnd = sched.schedule(now=0.0)
sched.commit(rnd)
for task, machine in rnd.placements.items():
    print(f"{task} starts on {machine}")
for task, reason in rnd.waiting.items():
    print(f"{task} waits, {reason.code.value}:")
    for shape, lacks in reason.detail.items():
        print(f"    machines of {shape} lack {', '.join(lacks)}")

sched.apply(fs.JobSubmitted("urgent", [fs.Task("urgent-0", {"gpu": 2})], priority=0))
rnd = sched.schedule(now=60.0)
sched.commit(rnd)
for task, preemption in rnd.preemptions.items():
    print(f"{task} stops on {preemption.machine} for {preemption.by}")
print("placed:", dict(rnd.placements))
