"""State of a cluster for an image: tasks in their order; derived data is made again."""

from __future__ import annotations

from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Any

import numpy as np

__all__ = ["become", "kept"]


def kept(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a cluster except `tasks`, `by_index` and `queues`, with two more.

    ``_records`` has the tasks in order of arrival.  ``_runs`` has the number of tasks on each machine, then the indices of
    the tasks machine by machine, in the order of each chain.
    """
    state = {name: value for name, value in attributes.items() if name not in ("tasks", "by_index", "queues")}
    chains = [record.tasks for record in attributes["machines"].values()]
    counts = np.fromiter(map(len, chains), np.int64, len(chains))
    indices = map(attrgetter("index"), chain.from_iterable(chains))
    runs = np.concatenate((counts, np.fromiter(indices, np.int64, int(counts.sum()))))
    return {**state, "_records": list(attributes["tasks"].values()), "_runs": runs}


def become(attributes: dict[str, Any], state: dict[str, Any]) -> None:
    """Fill the attributes of an empty cluster with the state that `kept` returned.

    Raises
    ------
    AttributeError, LookupError, TypeError, ValueError
        The state has another form; `flowsched.cluster.audit` finds other contradictions.
    """
    rest = dict(state)
    records, runs = rest.pop("_records"), rest.pop("_runs").tolist()
    attributes.update(rest, queues={})
    indices, machines = attributes["_indices"], attributes["machines"]
    if indices.count != len(records) + len(indices._free):
        raise ValueError("numbers of tasks are given twice or lost")
    attributes["tasks"] = {record.id: record for record in records}
    numbered: list[Any] = [None] * indices.count
    for record in records:
        numbered[record.index] = record
    attributes["by_index"] = numbered
    for group, tasks in groupby(records, attrgetter("group")):
        group.job.tasks.extend(list(tasks))
    for job in attributes["jobs"].values():
        job.fold()
    resting = attributes["resting"]
    for task in sorted([record for record in records if record.row < 0 and record.id not in resting]):
        task.group.waiting.extend([task])
    left = iter(runs[len(machines) :])
    for machine, count in zip(machines.values(), runs, strict=False):
        machine.tasks.extend([numbered[index] for index in islice(left, count)])
