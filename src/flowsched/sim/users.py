"""Users of a simulation: what each asked for, was entitled to and received, and what happened to its tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.model import MICRO
from flowsched.sharing.waterfill import water_fill
from flowsched.sim.metrics import Metrics

__all__ = ["Shares", "amount_seconds", "incidents", "owners", "scarce", "shares", "users"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SPANS = 400
"""Spans of time over which amounts are averaged."""


@dataclass(frozen=True)
class Shares:
    """Amounts of the scarcest resource by user, each the mean over a span of time.

    Attributes
    ----------
    resource : str
    names : list of str
    edges : ndarray of float64, shape (spans + 1,)
        Simulated time, in seconds.
    capacity : ndarray of float64, shape (spans,)
        Capacity that is up, in the workload's unit.
    received : ndarray of float64, shape (users, spans)
        Demand of the tasks that run.
    asked, entitled : ndarray of float64, shape (users, spans), or None
        Demand of the tasks that wait or run, and its max-min fair part of the capacity, all users alike.  None where a task
        has never started, since its demand is known from its runs alone.
    """

    resource: str
    names: list[str]
    edges: Floats
    capacity: Floats
    received: Floats
    asked: Floats | None = None
    entitled: Floats | None = None

    def parts(self, amounts: Floats, first: float, last: float) -> Floats:
        """Return the part of the capacity from `first` to `last` that each user's amounts are."""
        weight = np.diff(np.clip(self.edges, first, last))
        whole = float(weight @ self.capacity)
        return amounts @ weight / whole if whole else np.zeros(len(amounts))


def owners(metrics: Metrics) -> list[str]:
    """Return the name of the user of each task, by row of the table."""
    return ["no user" if user is None else str(user) for user in metrics.table["user"]]


def users(metrics: Metrics) -> list[str]:
    """Return the names of the users in the order of the table's first tasks."""
    return list(dict.fromkeys(owners(metrics)))


def shares(metrics: Metrics, names: Sequence[str] | None = None) -> Shares:
    """Return the amounts of each user of a run in which tasks have started.

    Parameters
    ----------
    metrics : Metrics
    names : sequence of str, optional
        Users; `users` by default.  All others are one, the last, and then no user's entitlement is known.
    """
    runs, table, end, resource = metrics.runs, metrics.table, float(metrics.facts["end"]), scarce(metrics)
    everyone = users(metrics)
    names = everyone if names is None else list(names)
    number = {name: i for i, name in enumerate(names)}
    of_task = np.array([number.get(user, len(names) - 1) for user in owners(metrics)], np.int64)
    edges = np.linspace(0.0, end, _SPANS + 1)
    span = np.diff(edges)
    stops = np.nan_to_num(runs["end"], nan=end)
    received = amount_seconds(runs["start"], stops, runs[resource], of_task[runs["task"]], len(names), edges) / span
    time = np.r_[metrics.series["time"], max(end, metrics.series["time"][-1])]
    there = np.r_[0.0, np.cumsum(metrics.series[f"capacity_{resource}"] * np.diff(time))]
    capacity = np.diff(np.interp(edges, time, there)) / span
    if len(metrics.unstarted) or {*names} != {*everyone}:
        return Shares(resource, names, edges, capacity, received)
    demand = np.zeros(len(of_task))
    demand[runs["task"]] = runs[resource]
    ends = np.nan_to_num(np.array(table["end"], np.float64), nan=end)
    asked = amount_seconds(np.array(table["arrival"], np.float64), ends, demand, of_task, len(names), edges) / span
    wanted, units = (np.rint(MICRO * amounts).astype(np.int64) for amounts in (asked, capacity))
    entitled = np.stack([water_fill(unit, want) for unit, want in zip(units.tolist(), wanted.T, strict=True)], axis=1)
    return Shares(resource, names, edges, capacity, received, asked, entitled / MICRO)


def amount_seconds(start: Floats, end: Floats, amounts: Floats, group: Ints, groups: int, edges: Floats) -> Floats:
    """Return the amount times seconds of each group between edges of time, shape (groups, spans).

    The sum of a group until t is that of amount * (t - start) over what has begun, less that of amount * (t - end) over
    what has ended.
    """
    level, moment = np.zeros((2, groups, len(edges) + 1))
    for times, sign in ((start, 1.0), (end, -1.0)):
        at = np.searchsorted(edges, times)
        np.add.at(level, (group, at), sign * amounts)
        np.add.at(moment, (group, at), sign * amounts * times)
    return np.diff(np.cumsum(level, axis=1)[:, :-1] * edges - np.cumsum(moment, axis=1)[:, :-1], axis=1)


def scarce(metrics: Metrics) -> str:
    """Return the resource of which the largest part is allocated."""
    return max(metrics.usage, key=lambda name: metrics.usage[name].mean)


def incidents(metrics: Metrics) -> list[tuple[float, str]]:
    """Return the absences of machines, as times and sentences; machines of a rack that leave together are one."""
    absences, machines, runs = metrics.absences, metrics.machines, metrics.runs
    user = np.array(owners(metrics), object)
    together: dict[tuple[float, bool, object], list[int]] = {}
    for i, (row, start, drained) in enumerate(
        zip(absences["machine"].tolist(), absences["start"].tolist(), absences["drained"].tolist(), strict=True)
    ):
        together.setdefault((start, drained, machines["rack"][row]), []).append(i)
    found = []
    for (start, drained, rack), each in together.items():
        rows = absences["machine"][each]
        names = [str(machines["machine"][row]) for row in rows.tolist()]
        ends = np.unique(absences["end"][each])
        what = f"{rack} goes down, {names[0]} to {names[-1]}" if len(names) > 1 else f"{names[0]} goes down"
        if drained:
            what = f"{', '.join(names)} takes no new tasks"
        lost = np.isin(runs["machine"], rows) & (runs["end"] == start) & (runs["how"] == 2)
        by = Counter(user[runs["task"][lost]].tolist())
        if by:
            stop = f"{lost.sum()} tasks stop" if lost.sum() > 1 else "1 task stops"
            what += f"; {stop}: " + ", ".join(f"{n} of {who}" for who, n in by.most_common())
        found.append((start, what))
        if len(ends) == 1 and np.isfinite(ends[0]) and not drained:
            found.append((float(ends[0]), f"{rack} is back" if len(names) > 1 else f"{names[0]} is back"))
    return sorted(found)
