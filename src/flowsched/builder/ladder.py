"""Positions of claimants on a ladder of shares while tasks start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.proposals import ClassFlow
from flowsched.cluster.records import Group, JobRecord

__all__ = ["LadderPosition"]


class LadderPosition:
    """Where claimants stand on a ladder while tasks start.

    Parameters
    ----------
    claimant : callable
        The number of who claims for a job.
    running : list of int
        Tasks that run, by claimant.
    edges : ndarray of int64, shape (claimants, rungs - 1)
        How many run where each rung but the lowest begins; ascending.
    """

    def __init__(self, claimant: Callable[[JobRecord], int], running: list[int], edges: NDArray[np.int64]) -> None:
        self._claimant = claimant
        self._running = running
        self._edges = edges
        self._asked: dict[int, list[int]] = {}  # of many claimants, few have tasks that may start

    def of(self, group: Group) -> int:
        """Who claims for the tasks of a group."""
        return self._claimant(group.job)

    def rung(self, who: int) -> int:
        """Where the next task that starts would stand."""
        return bisect_right(self._begins(who), self._running[who])

    def left(self, who: int) -> int | None:
        """How many more would stand there; None for any number."""
        rung, edges = self.rung(who), self._begins(who)
        return edges[rung] - self._running[who] if rung < len(edges) else None

    def _begins(self, who: int) -> list[int]:
        edges = self._asked.get(who)
        if edges is None:
            edges = self._asked[who] = self._edges[who].tolist()
        return edges

    def start(self, who: int, tasks: int) -> None:
        """So many more run."""
        self._running[who] += tasks

    def lowest(self, proposals: Sequence[ClassFlow]) -> list[ClassFlow]:
        """What is proposed for those who stand lowest."""
        sent = chain.from_iterable(chain((g for g, _ in p.groups), (g for g, *_ in p.near)) for p in proposals)
        rung = {who: self.rung(who) for who in {self.of(group) for group in sent}}
        low = min(rung.values())
        found = []
        for p in proposals:
            groups = [entry for entry in p.groups if rung[self.of(entry[0])] == low]
            near = [entry for entry in p.near if rung[self.of(entry[0])] == low]
            if groups or near:
                found.append(replace(p, groups=groups, near=near))
        return found
