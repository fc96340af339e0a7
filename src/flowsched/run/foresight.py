"""When a waiting task would start, by trial on a copy of the scheduler."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from heapq import heapify, heappop, heappush
from math import inf

from flowsched.cluster.events import TaskCompleted
from flowsched.run.executor import Decider

SECONDS, ROUNDS = 5.0, 10_000
"""Limits of a trial."""


def foreseen(
    copy: Decider,
    task: Hashable,
    ends: Mapping[str, float | None],
    lengths: Mapping[str, float | None],
    now: float,
) -> float | None:
    """Return the time at which a task starts if the running tasks end as expected, and no others come.

    `ends` has the expected ends of the running tasks, `lengths` the durations of all; None for those that are not known.
    Return None if it does not start before the end of a task of unknown duration, or within the limits of a trial.
    """
    cluster, give_up = copy.cluster, time.monotonic() + SECONDS
    queue = [
        (inf if (end := ends.get(str(id))) is None else end, str(id))
        for id in cluster.tasks
        if cluster.placement(id) is not None
    ]
    heapify(queue)
    known = {str(id): id for id in cluster.tasks}
    for _ in range(ROUNDS):
        for placed in copy.commit(copy.schedule(now)).runs:
            if placed == task:
                return now
            length = lengths.get(str(placed))
            heappush(queue, (inf if length is None else now + length, str(placed)))
        if not queue or queue[0][0] == inf or time.monotonic() > give_up:
            return None
        now = max(now, queue[0][0])
        ended = []
        while queue and queue[0][0] <= now:
            ended.append(known[heappop(queue)[1]])
        copy.apply(*(TaskCompleted(id) for id in ended if id in cluster.tasks and cluster.placement(id) is not None))
    return None
