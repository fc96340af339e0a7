"""Positions of claimants on a ladder of shares while tasks start.

A claimant is a job, or a user above its jobs (see `claimants`).  Its rung is the number of ladder steps that its
running tasks have filled; the lower it stands, the sooner its next task starts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.proposals import ClassFlow
from flowsched.cluster.records import Group, JobRecord

__all__ = ["LadderPosition"]


class LadderPosition:
    """Positions of claimants on a ladder.

    Parameters
    ----------
    claimant : callable
        Number of the claimant of a job.
    running : list of int
        Running tasks, by claimant.
    edges : ndarray of int64, shape (claimants, rungs - 1)
        Running tasks at which each rung but the lowest begins; ascending.
    """

    def __init__(self, claimant: Callable[[JobRecord], int], running: list[int], edges: NDArray[np.int64]) -> None:
        self._claimant = claimant
        self._running = running
        self._edges = edges
        self._asked: dict[int, list[int]] = {}  # few of many claimants have tasks that may start

    def of(self, group: Group) -> int:
        """Return the claimant of the tasks of a group."""
        return self._claimant(group.job)

    def rung(self, claimant: int) -> int:
        """Return the rung of the next task that starts."""
        return bisect_right(self._begins(claimant), self._running[claimant])

    def left(self, claimant: int) -> int | None:
        """Return the number of further tasks on that rung; None without limit."""
        rung, edges = self.rung(claimant), self._begins(claimant)
        return edges[rung] - self._running[claimant] if rung < len(edges) else None

    def _begins(self, claimant: int) -> list[int]:
        edges = self._asked.get(claimant)
        if edges is None:
            edges = self._asked[claimant] = self._edges[claimant].tolist()
        return edges

    def start(self, claimant: int, tasks: int) -> None:
        """Count more running tasks."""
        self._running[claimant] += tasks

    def lowest(self, proposals: Sequence[ClassFlow]) -> list[ClassFlow]:
        """Return the proposals for the claimants on the lowest rung."""
        sent = chain.from_iterable(chain((g for g, _ in p.groups), (g for g, *_ in p.near)) for p in proposals)
        rung = {claimant: self.rung(claimant) for claimant in {self.of(group) for group in sent}}
        low = min(rung.values())
        found = []
        for p in proposals:
            groups = [entry for entry in p.groups if rung[self.of(entry[0])] == low]
            near = [entry for entry in p.near if rung[self.of(entry[0])] == low]
            if groups or near:
                found.append(p.replace(groups=groups, near=near))
        return found
