"""The example policies for Gavel: as its scheduler calls them, and the allocation beside Gavel's objective as a linear program."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest
from effort import effort

linprog = pytest.importorskip("scipy.optimize", reason="pip install scipy").linprog
pytest.importorskip("simpy", reason="pip install simpy")
from gavel_policies import MaxMinFairness, Placement


@functools.total_ordering
class JobIdPair:
    """A stub of Gavel's class, with its documented interface: one job, or two that share a worker."""

    def __init__(self, job0: int, job1: int | None) -> None:
        self.jobs = (job0, job1)

    def is_pair(self) -> bool:
        return self.jobs[1] is not None

    def __getitem__(self, index: int) -> int | None:
        return self.jobs[index]

    def __lt__(self, other: JobIdPair) -> bool:
        return self.jobs[0] < other.jobs[0]  # type: ignore[operator]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobIdPair) and self.jobs == other.jobs

    def __hash__(self) -> int:
        return hash(self.jobs)


class GavelScheduler:
    """A stub of Gavel's scheduler: which arguments a policy gets, by its name, and what it must answer."""

    def __init__(self, policy: Any, cluster_spec: dict[str, int]) -> None:
        self.policy, self.cluster_spec, self.next = policy, cluster_spec, 0
        self.throughputs: dict[JobIdPair, dict[str, float]] = {}
        self.scale_factors: dict[JobIdPair, int] = {}
        self.priority_weights: dict[JobIdPair, float] = {}

    def add_job(self, rates: dict[str, float], scale_factor: int = 1, weight: float = 1.0) -> JobIdPair:
        job = JobIdPair(self.next, None)
        self.next += 1
        self.throughputs[job], self.scale_factors[job], self.priority_weights[job] = rates, scale_factor, weight
        return job

    def remove_job(self, job: JobIdPair) -> None:
        del self.throughputs[job], self.scale_factors[job], self.priority_weights[job]

    def allocation(self) -> dict[JobIdPair, dict[str, float]]:
        given = [self.throughputs, self.scale_factors]
        if self.policy.name.startswith("MaxMinFairness"):
            given.append(self.priority_weights)
        answer = self.policy.get_allocation(*given, self.cluster_spec)
        answer = {} if answer is None else answer
        assert answer.keys() == self.throughputs.keys()
        for name, workers in self.cluster_spec.items():
            assert sum(answer[job][name] * self.scale_factors[job] for job in answer) <= workers + 1e-6
        for fractions in answer.values():
            assert fractions.keys() == self.cluster_spec.keys()
            assert min(fractions.values()) >= 0 and sum(fractions.values()) <= 1 + 1e-9
        return answer


def random_scheduler(seed: int, policy: Any, crowded: bool = True) -> GavelScheduler:
    rng = random.Random(seed)
    types = ["k80", "p100", "v100"][: rng.randint(1, 3)]
    gavel = GavelScheduler(policy, {name: rng.randint(4, 12) for name in types})
    for _ in range(rng.randint(40, 50) if crowded else rng.randint(1, 10)):
        rates = {name: rng.uniform(1, 4) * (1 + i) * (crowded or rng.random() < 0.7) for i, name in enumerate(types)}
        gavel.add_job(rates, rng.choice([1, 1, 2, 4]), rng.choice([1.0, 1.0, 2.0]))
    return gavel


def test_the_example_of_gavels_paper() -> None:
    gavel = GavelScheduler(MaxMinFairness(), {"v100": 1, "k80": 1})
    for rate in (4.0, 3.0, 2.0):
        gavel.add_job({"v100": rate, "k80": 1.0})
    answer = [[fractions["v100"], fractions["k80"]] for fractions in gavel.allocation().values()]
    assert answer == pytest.approx(np.array([[0.45, 0.0], [0.45, 0.09], [0.09, 0.91]]), abs=0.006)


def best_level(gavel: GavelScheduler) -> tuple[float, np.ndarray]:
    """Gavel's objective: the largest least of the jobs' throughputs, each for its weight; and what one unit of time is worth."""
    jobs, types = sorted(gavel.throughputs), sorted(gavel.cluster_spec)
    rates = np.array([[gavel.throughputs[job][name] for name in types] for job in jobs])
    workers = np.array([gavel.cluster_spec[name] for name in types], float)
    scale = np.array([gavel.scale_factors[job] for job in jobs], float)
    weight = np.array([gavel.priority_weights[job] for job in jobs])
    proportional = workers / len(jobs)
    proportional = proportional / proportional.sum()
    worth = rates * (scale / weight / (rates @ proportional))[:, None]
    n, k = rates.shape
    rows, bounds = [], []
    for i in range(n):
        time, level = np.zeros(n * k + 1), np.zeros(n * k + 1)
        time[i * k : i * k + k] = 1.0
        level[i * k : i * k + k], level[-1] = -worth[i], 1.0
        rows += [time, level]
        bounds += [1.0, 0.0]
    for j in range(k):
        use = np.zeros(n * k + 1)
        use[j : n * k : k] = scale
        rows.append(use)
        bounds.append(workers[j])
    found = linprog(np.r_[np.zeros(n * k), -1.0], np.array(rows), bounds, method="highs")
    assert found.success
    return float(found.x[-1]), worth


@pytest.mark.parametrize("seed", range(effort(3, 12)))
def test_the_least_throughput_is_as_large_as_gavels_objective_allows(seed: int) -> None:
    """In a crowd, where no job could use more than its equal share of a type."""
    gavel = random_scheduler(seed, MaxMinFairness())
    level, worth = best_level(gavel)
    answer = gavel.allocation()
    fractions = np.array([[answer[job][name] for name in sorted(gavel.cluster_spec)] for job in sorted(answer)])
    assert (worth * fractions).sum(axis=1).min() == pytest.approx(level, rel=1e-6)


@pytest.mark.parametrize("policy", [MaxMinFairness, Placement])
@pytest.mark.parametrize("seed", range(effort(4, 20)))
def test_jobs_come_and_go(policy: type, seed: int) -> None:
    """Any answer is possible for the workers; jobs that fit nowhere get nothing; none gets time where it has no throughput."""
    gavel, rng = random_scheduler(seed, policy(), crowded=False), random.Random(seed)
    for _ in range(8):
        answer = gavel.allocation()
        for job, fractions in answer.items():
            for name, part in fractions.items():
                can = gavel.throughputs[job][name] > 0 and gavel.scale_factors[job] <= gavel.cluster_spec[name]
                assert can or part == 0
        for job in [job for job in gavel.throughputs if rng.random() < 0.3]:
            gavel.remove_job(job)
        gavel.cluster_spec[rng.choice(sorted(gavel.cluster_spec))] += rng.randint(0, 2)
        gavel.add_job({name: rng.uniform(1, 4) for name in gavel.cluster_spec}, rng.choice([1, 2, 30]))


def test_nothing_to_allocate() -> None:
    assert MaxMinFairness().get_allocation({}, {}, {}, {"v100": 1}) is None
    assert Placement().get_allocation({}, {}, {"v100": 1}) == {}
    assert MaxMinFairness().get_allocation({0: {"v100": 0.0}}, {0: 1}, {0: 1.0}, {"v100": 1}) == {0: {"v100": 0.0}}


@pytest.mark.parametrize("policy", [MaxMinFairness, Placement])
def test_a_type_that_has_no_workers_yet(policy: type) -> None:
    gavel = GavelScheduler(policy(), {"v100": 1, "k80": 0})
    job, other = gavel.add_job({"v100": 2.0, "k80": 1.0}), gavel.add_job({"v100": 0.0, "k80": 1.0})
    answer = gavel.allocation()
    assert answer[job] == pytest.approx({"v100": 1.0, "k80": 0.0}) and not any(answer[other].values())
    gavel.cluster_spec["k80"] = 2
    assert gavel.allocation()[other]["k80"] == pytest.approx(1.0)


def test_packed_jobs_are_refused() -> None:
    pair = {JobIdPair(0, 1): {"v100": (1.0, 1.0)}}
    with pytest.raises(ValueError, match="packed"):
        Placement().get_allocation(pair, {JobIdPair(0, 1): 1}, {"v100": 1})


def test_a_placement_is_the_best_in_all_and_stays() -> None:
    gavel = GavelScheduler(Placement(), {"v100": 1, "k80": 1})
    first = gavel.add_job({"v100": 4.0, "k80": 3.0})
    second = gavel.add_job({"v100": 4.0, "k80": 1.0})
    answer = gavel.allocation()
    assert (answer[first]["k80"], answer[second]["v100"]) == (1.0, 1.0)  # the first alone would take the v100
    third, large = gavel.add_job({"v100": 4.0, "k80": 1.0}), gavel.add_job({"v100": 4.0, "k80": 1.0}, 2)
    assert {job: gavel.allocation()[job] for job in (first, second)} == answer
    gavel.remove_job(second)
    answer = gavel.allocation()
    assert answer[third]["v100"] == 1.0 and not any(answer[large].values())
