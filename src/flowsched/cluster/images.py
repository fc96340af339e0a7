"""The state of a cluster for an image: tasks in their order; what follows from them is made anew."""

from __future__ import annotations

from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from flowsched.cluster.state import Cluster

__all__ = ["become", "kept"]


def kept(cluster: Cluster) -> dict[str, Any]:
    """Return the attributes but `tasks` and `by_index`, with two more.

    ``_records`` are the tasks in the order in which they came.  ``_runs`` has the number of tasks on each machine, then the
    indices of the tasks on one machine after the other, in the order of each chain.
    """
    state = {name: value for name, value in vars(cluster).items() if name not in ("tasks", "by_index")}
    chains = [record.tasks for record in cluster.machines.values()]
    runs = [task.index for chain in chains for task in chain]
    return {**state, "_records": list(cluster.tasks.values()), "_runs": np.array([*map(len, chains), *runs], np.int64)}


def become(cluster: Cluster, state: dict[str, Any]) -> None:
    """Give an empty object the state that `kept` returned.

    Raises
    ------
    AttributeError, LookupError, TypeError, ValueError
        The state is another one; `flowsched.cluster.audit` finds what these do not.
    """
    rest = dict(state)
    records, runs = rest.pop("_records"), rest.pop("_runs").tolist()
    if any(hasattr(type(cluster), name) for name in rest):
        raise ValueError("an attribute that hides what a cluster does")
    vars(cluster).update(rest)
    if cluster._indices.count != len(records) + len(cluster._indices._free):
        raise ValueError("numbers of tasks are given twice or lost")
    numbered = {record.index: record for record in records}
    cluster.tasks = {record.id: record for record in records}
    cluster.by_index = [numbered.get(index) for index in range(cluster._indices.count)]
    for group, tasks in groupby(records, attrgetter("group")):
        group.job.tasks.extend(list(tasks))
    for task in sorted(record for record in records if record.row < 0):
        task.group.waiting.extend([task])
    indices = iter(runs[len(cluster.machines) :])
    for machine, count in zip(cluster.machines.values(), runs, strict=False):
        machine.tasks.extend([numbered[index] for index in islice(indices, count)])
