"""A plain event loop drives the scheduler: arrivals, ends, preemptions, and a machine that fails."""

import heapq
import itertools
import random

import flowsched as fs


class Model:
    """A simulated cluster: a queue of events, and the running tasks."""

    def __init__(self, machines: int, jobs: int) -> None:
        self.rng, self.number = random.Random(0), itertools.count()
        self.queue: list[tuple[float, int, fs.Event]] = []
        self.ends: dict[object, int] = {}  # task -> number of the event that ends it
        self.arrived: dict[object, float] = {}
        self.waits: dict[object, float] = {}
        self.preempted = 0
        self.sched = fs.Scheduler(resources=("cpu",))
        self.sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 8}) for i in range(machines)))
        for i in range(jobs):
            task = fs.Task(i, {"cpu": self.rng.choice([1, 2, 4])})
            self.at(self.rng.uniform(0, 1000), fs.JobSubmitted(i, [task], priority=self.rng.choice([1, 2, 2, 2])))
        self.at(300.0, fs.MachineFailed("m0"))
        self.at(600.0, fs.MachineAdded("m0", {"cpu": 8}))

    def at(self, time: float, event: fs.Event) -> int:
        number = next(self.number)
        heapq.heappush(self.queue, (time, number, event))
        return number

    def run(self) -> float:
        now = 0.0
        while self.queue:
            now = self.queue[0][0]
            while self.queue and self.queue[0][0] == now:  # all events of this time are decided together
                _, number, event = heapq.heappop(self.queue)
                if isinstance(event, fs.TaskCompleted) and self.ends.get(event.task) != number:
                    continue  # the task was stopped meanwhile
                if isinstance(event, fs.JobSubmitted):
                    self.arrived[event.id] = now
                if isinstance(event, fs.MachineFailed):
                    lost = [task for task in self.ends if self.sched.cluster.placement(task) == event.id]
                    for task in lost:
                        del self.ends[task]
                self.sched.apply(event)
                if isinstance(event, fs.TaskCompleted):
                    del self.ends[event.task]
            self.decide(now)
        return now

    def decide(self, now: float) -> None:
        for delta in self.sched.commit(self.sched.schedule(now)).accepted:
            if isinstance(delta, fs.Preempt | fs.Migrate):
                del self.ends[delta.task]
                self.preempted += 1
            if isinstance(delta, fs.Place | fs.Migrate):
                self.waits.setdefault(delta.task, now - self.arrived[delta.task])
                self.ends[delta.task] = self.at(now + self.rng.expovariate(1 / 80), fs.TaskCompleted(delta.task))


model = Model(machines=4, jobs=250)
end = model.run()
waits = sorted(model.waits.values())
print(f"{len(waits)} jobs ran, the last one ended at {end:.0f} s")
print(f"mean wait {sum(waits) / len(waits):.1f} s, longest {waits[-1]:.1f} s")
print(f"{model.preempted} tasks were stopped for better ones")
assert not model.ends, "every task that started has ended"
