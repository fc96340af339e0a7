"""Two policies for Gavel's scheduler, computed by flowsched.

Gavel (github.com/stanford-futuredata/gavel) asks its policy whenever a job comes or goes, with one dictionary per job, and takes
the fraction of time that each job shall spend on each worker type.  It goes by the beginning of a policy's `name` for the
arguments, so these names are chosen to fit.
"""

from collections.abc import Hashable, Mapping

import numpy as np

import flowsched as fs

Table = dict[Hashable, dict[str, float]]
"""By job (Gavel's `JobIdPair`), then by worker type: throughputs, or fractions of time."""


def able(throughputs: Table, scale_factors: Mapping[Hashable, int], cluster_spec: Mapping[str, int]) -> Table:
    """Return the throughputs above zero on the types that have enough workers; jobs that can run nowhere are left out."""
    if any(getattr(job, "is_pair", bool)() for job in throughputs):
        raise ValueError("throughputs of packed jobs: these policies put one job on a worker")
    good = {
        job: {name: rate for name, rate in rates.items() if rate > 0 and cluster_spec[name] >= scale_factors[job]}
        for job, rates in throughputs.items()
    }
    return {job: good[job] for job in sorted(good) if good[job]}


class MaxMinFairness:
    """Max-min fairness in throughput by water filling, as `MaxMinFairnessWaterFillingPolicyWithPerf`.

    The throughput of a job is relative to that under equal shares, divided by its priority weight, times its scale factor.
    """

    name = "MaxMinFairness_Flowsched"

    def get_allocation(
        self,
        unflattened_throughputs: Table,
        scale_factors: Mapping[Hashable, int],
        unflattened_priority_weights: Mapping[Hashable, float],
        cluster_spec: Mapping[str, int],
    ) -> Table | None:
        if not unflattened_throughputs:
            return None
        rates = able(unflattened_throughputs, scale_factors, cluster_spec)
        types = sorted(name for name, workers in cluster_spec.items() if workers > 0)
        scale = np.array([scale_factors[job] for job in rates], np.float64)
        weight = np.array([unflattened_priority_weights[job] for job in rates], np.float64)
        found = fs.sim.max_min_throughput(
            np.array([[rates[job].get(name, 0.0) for name in types] for job in rates]).reshape(len(rates), len(types)),
            [cluster_spec[name] for name in types],
            scale=scale,
            weight=weight / scale,
        )
        answer = {job: dict.fromkeys(cluster_spec, 0.0) for job in unflattened_throughputs}
        for job, fractions in zip(rates, found.tolist(), strict=True):
            answer[job].update(zip(types, fractions, strict=True))
        return answer


class Placement:
    """Whole workers until the end: a round of `fs.Scheduler` maximises the total relative throughput.

    A job that has been given a type keeps it.  Of the others, older ones go before younger ones (`fs.WaitCost`).
    """

    name = "FIFO_Flowsched"

    def __init__(self) -> None:
        self.sched, self.calls = fs.Scheduler(resources=("workers",)), 0
        self.spec: dict[str, int] = {}
        self.known: set[Hashable] = set()

    def get_allocation(
        self, throughputs: Table, scale_factors: Mapping[Hashable, int], cluster_spec: Mapping[str, int]
    ) -> Table:
        rates = able(throughputs, scale_factors, cluster_spec)
        events: list[fs.Event] = [fs.JobRemoved(job) for job in self.known - rates.keys()]
        for name, workers in cluster_spec.items():
            if name not in self.spec:
                events.append(fs.MachineAdded(name, {"workers": workers}, labels={"type": name}, slots=workers))
            elif workers != self.spec[name]:
                events.append(fs.MachineUpdated(name, {"workers": workers}, slots=workers))
        for job in rates:
            if job not in self.known:
                task = fs.Task(job, {"workers": scale_factors[job]}, {"type": tuple(rates[job])}, kind=job)
                events.append(fs.JobSubmitted(job, [task]))
        self.spec, self.known = dict(cluster_spec), set(rates)
        self.sched.apply(*events)
        best = [(job, name, rate / max(own.values())) for job, own in rates.items() for name, rate in own.items()]
        self.sched.policy = fs.Policy(placement=[fs.Utilities(best)] if best else (), preemption=None)
        self.sched.commit(self.sched.schedule(float(self.calls)))
        self.calls += 1
        places = {job: self.sched.cluster.placement(job) for job in rates}
        return {job: {name: float(places.get(job) == name) for name in cluster_spec} for job in throughputs}


if __name__ == "__main__":
    spec = {"k80": 1, "v100": 1}
    rates: Table = {0: {"v100": 4.0, "k80": 1.0}, 1: {"v100": 3.0, "k80": 1.0}, 2: {"v100": 2.0, "k80": 1.0}}
    ones = dict.fromkeys(rates, 1)
    try:
        fair = MaxMinFairness().get_allocation(rates, ones, ones, spec)
    except ImportError as missing:
        raise ImportError("Gavel's fairness needs SciPy: pip install scipy") from missing
    for job, fractions in fair.items():
        print("job", job, {name: round(part, 2) for name, part in fractions.items()})
    print("whole workers:", Placement().get_allocation(rates, ones, spec))
