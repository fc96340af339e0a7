"""The example environment of Gymnasium: by its checker, by seed, and beside a simulation without it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import flowsched as fs

gymnasium = pytest.importorskip("gymnasium", reason="pip install gymnasium")
pytest.importorskip("simpy", reason="pip install simpy")
from gymnasium.utils.env_checker import check_env
from gymnasium_env import JobPriorities, episode


def small(seed: int, name: str = "batch") -> fs.sim.Workload:
    return fs.sim.synthetic(name, tasks=150, load=1.5, scale=0.25 if name == "batch" else 0.02, seed=seed)


@pytest.mark.parametrize("name", ["batch", "poisson", "bursts"])
def test_gymnasium_finds_nothing_wrong(name: str) -> None:
    check_env(JobPriorities(partial(small, name=name)), skip_render_check=True)


def course(env: Any, seed: int, actions: int | None = None) -> list[tuple[Any, ...]]:
    """Observations, rewards and times of an episode with random actions, or always the same."""
    seen, info = env.reset(seed=seed)
    env.action_space.seed(seed)
    course, over = [(tuple(seen), 0.0, info["time"])], False
    while not over:
        seen, reward, over, cut, info = env.step(env.action_space.sample() if actions is None else actions)
        assert env.observation_space.contains(seen) and reward <= 0 and not cut
        course.append((tuple(seen), reward, info["time"]))
    return course


def test_the_same_seed_is_the_same_episode_and_another_one_is_not() -> None:
    one, other = JobPriorities(small), JobPriorities(small)
    first = course(one, 3)
    assert course(one, 3) == first == course(other, 3)
    assert course(one, 4) != first


def waits(env: Any) -> np.ndarray:
    return np.array(env.simulation.metrics().table["waited"])


@pytest.mark.parametrize("name", ["batch", "poisson", "bursts"])
@pytest.mark.parametrize("action", [0, 3])
def test_the_same_priority_for_all_is_the_policy_alone(name: str, action: int) -> None:
    env = JobPriorities(partial(small, name=name))
    rewards = [reward for _, reward, _ in course(env, 5, action)]
    alone = fs.sim.Simulation(fs.Scheduler(fs.Policy(preemption=None), resources=env.work.resources), env.work)
    table = alone.run().table
    assert env.simulation.metrics().table == table
    assert len(rewards) == 1 + len(env.work.arrivals)
    assert -sum(rewards) == pytest.approx(np.mean(table["waited"]))
    assert sum(rewards) < 0


def test_the_rewards_of_any_agent_add_up_to_the_mean_wait() -> None:
    env = JobPriorities(small)
    rewards = [reward for _, reward, _ in course(env, 6)]
    assert -sum(rewards) == pytest.approx(waits(env).mean())


def test_a_job_is_shown_before_it_arrives_and_its_priority_is_the_agents() -> None:
    env = JobPriorities(small, levels=8)
    env.reset(seed=2)
    given = {}
    for i, arrival in enumerate(env.work.arrivals):
        assert env.env.now < arrival.time and arrival.job.id not in env.tap.sched.cluster.jobs
        given[arrival.job.id] = i % 8
        env.step(i % 8)
        known = env.tap.sched.cluster.jobs
        assert all(known[job].job.priority == priority for job, priority in given.items() if job in known)


def test_short_jobs_first_waits_less_than_long_jobs_first() -> None:
    env = JobPriorities(small)
    short = [episode(env, lambda seen: int(seen[1] > 0.1), seed) for seed in range(4)]
    long = [episode(env, lambda seen: int(seen[1] <= 0.1), seed) for seed in range(4)]
    assert sum(short) < sum(long)
