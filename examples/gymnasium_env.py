"""An environment of Gymnasium: an agent sets the priority of each arriving job, and flowsched places it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

try:
    import gymnasium
except ImportError as missing:
    raise ImportError("this example needs Gymnasium: pip install gymnasium") from missing
import simpy

import flowsched as fs

EARLY = 1e-6
"""Seconds before a job arrives, at which it is shown to the agent."""


def batch(seed: int) -> fs.sim.Workload:
    """Gangs of 1 to 32 processors with estimates of their run times, more than 32 machines can run at once."""
    return fs.sim.synthetic("batch", tasks=1500, load=1.2, seed=seed)


class Tap:
    """A scheduler whose jobs arrive with the priorities of the agent."""

    def __init__(self, sched: fs.Scheduler) -> None:
        self.sched, self.priority = sched, dict[Any, int]()
        self.schedule, self.commit = sched.schedule, sched.commit

    def apply(self, *events: fs.Event) -> Any:
        return self.sched.apply(
            *(replace(e, priority=self.priority[e.id]) if isinstance(e, fs.JobSubmitted) else e for e in events)
        )


class JobPriorities(gymnasium.Env):
    """One step per job of a workload, one episode per workload.

    Action: ``Discrete(levels)``, the priority of the job that arrives next; 0 is the best.

    Observation: ``Box(0, 1)`` of six numbers.  Amounts are given as ``x / (x + scale)``.

    0. Tasks of the job (scale: the machines).
    1. Run time that the job estimates (scale: an hour); 1 without an estimate.
    2. Time since the last job (scale: a minute).
    3. The part of the machines' first resource that is free.
    4. Tasks that run (scale: the machines).
    5. Tasks that wait (scale: the machines).

    Reward: minus the seconds that tasks have waited since the last step, divided by the tasks of the workload; so the sum of
    an episode is minus the mean wait.  ``info`` has the time and the number of the next job.
    """

    def __init__(
        self,
        make: Callable[[int], fs.sim.Workload] = batch,
        levels: int = 4,
        policy: fs.Policy | None = None,
    ) -> None:
        self.make, self.policy = make, policy or fs.Policy(preemption=None)
        self.action_space = gymnasium.spaces.Discrete(levels)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (6,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.work = self.make(int(self.np_random.integers(2**31)))
        self.tap = Tap(fs.Scheduler(self.policy, resources=self.work.resources))
        self.env = simpy.Environment()
        self.simulation = fs.sim.Simulation(self.tap, self.work, env=self.env)
        self.simulation.start()
        self.progress, self.waited, self.index = fs.sim.Progress(0.0, 0, 0, 0, 0, 0), 0.0, 0
        self.run(self.work.arrivals[0].time)
        return self.observation(), self.info()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.tap.priority[self.work.arrivals[self.index].job.id] = int(action)
        before, self.index = self.waited, self.index + 1
        over = self.index == len(self.work.arrivals)
        self.run(np.inf if over else self.work.arrivals[self.index].time)
        return self.observation(), (before - self.waited) / self.work.n_tasks, over, False, self.info()

    def run(self, until: float) -> None:
        """Process all events that are due before a time."""
        while self.env.peek() < until - EARLY and (now := self.simulation.step()) is not None:
            self.waited += self.progress.waiting * (now.time - self.progress.time)
            self.progress = now

    def observation(self) -> np.ndarray:
        arrivals, machines, cluster = self.work.arrivals, self.work.machines, self.tap.sched.cluster
        job = arrivals[min(self.index, len(arrivals) - 1)]
        resource, known = self.work.resources[0], set(cluster.machine_ids())  # none before the first round
        total = sum(machine.capacity[resource] for machine in machines)
        used = sum(m.capacity[resource] - cluster.free(m.id)[resource] for m in machines if m.id in known)
        estimate = max(1e9 if task.duration is None else task.duration for task in job.job.tasks)
        amounts = np.array(
            [
                [len(job.durations), len(machines)],
                [estimate, 3600.0],
                [job.time - arrivals[max(self.index - 1, 0)].time if self.index < len(arrivals) else 0.0, 60.0],
                [total - used, used],
                [self.progress.running, len(machines)],
                [self.progress.waiting, len(machines)],
            ]
        )
        return (amounts[:, 0] / amounts.sum(axis=1)).astype(np.float32)

    def info(self) -> dict[str, Any]:
        return {"time": self.env.now, "job": self.index, "waiting": self.progress.waiting}


def episode(env: JobPriorities, agent: Callable[[np.ndarray], int], seed: int) -> float:
    """Return the mean wait of an episode."""
    seen, _ = env.reset(seed=seed)
    env.action_space.seed(seed)
    total, over = 0.0, False
    while not over:
        seen, reward, over, _, _ = env.step(agent(seen))
        total -= reward
    return total


if __name__ == "__main__":
    env = JobPriorities()
    agents = {
        "the default policy": lambda seen: 0,
        "a random agent": lambda seen: int(env.action_space.sample()),
        "short jobs first": lambda seen: int(np.searchsorted([0.05, 0.15, 0.35], seen[1])),
    }
    for name, agent in agents.items():
        waits = [episode(env, agent, seed) for seed in range(3)]
        print(f"{name:18}: mean wait {', '.join(f'{wait:.0f}' for wait in waits)} s")
