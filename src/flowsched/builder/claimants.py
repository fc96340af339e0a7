"""Who shares a cluster, jobs or users above their jobs, and the outlets by which their waiting tasks leave; see `shares`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import NetworkBatch
from flowsched.builder.unscheduled import UnscheduledArcs
from flowsched.cluster.columns import IdPool, grown
from flowsched.cluster.records import JobRecord
from flowsched.network.flow_network import FlowNetwork

__all__ = ["Claimants"]

Ints = NDArray[np.int64]

_N = TypeVar("_N", np.int64, np.float64)


class Claimants:
    """Jobs and users with their outlets, and which of the two share.

    Parameters
    ----------
    network : FlowNetwork
    edits : Edits
    sink : int
        Node that all waiting tasks reach in the end.

    Attributes
    ----------
    outlets : Outlets
    index : dict of JobRecord to int
        Where numbers of a job are kept.
    """

    def __init__(self, network: FlowNetwork, edits: NetworkBatch, sink: int) -> None:
        self.edits = edits
        self.sink = sink
        self.outlets = UnscheduledArcs(network, edits)
        self.index: dict[JobRecord, int] = {}
        self._indices = IdPool()
        self._out: Ints = np.full(8, -1, np.int64)
        self._up: Ints = np.full(8, -1, np.int64)
        self._user: Ints = np.full(8, -1, np.int64)
        self._users: dict[Hashable, tuple[int, int]] = {}
        self._jobs_of: dict[Hashable, int] = {}
        self._user_out: Ints = np.full(8, -1, np.int64)
        self._user_indices = IdPool()
        self._users_share = False
        self._ordered: list[JobRecord] | None = None
        self._ids: tuple[Hashable, ...] | None = None
        self._at: Ints = np.zeros(0, np.int64)
        self._number: Ints = np.zeros(0, np.int64)
        self._jobs: Ints = np.zeros(0, np.int64)
        self._families: list[tuple[Ints, tuple[Hashable, ...]]] | None = None

    @property
    def room(self) -> int:
        """Length of arrays by job."""
        return self._indices.count

    def add(self, jobs: Sequence[JobRecord], nodes: Sequence[int], arcs: Sequence[int]) -> None:
        """Jobs are new, with their nodes and the arcs from these to the sink."""
        outlets = self.outlets.add(nodes, [self.sink] * len(jobs), arcs)
        for job, outlet in zip(jobs, outlets.tolist(), strict=True):
            index = self.index[job] = self._indices.take()
            for name in ("_out", "_up", "_user"):
                setattr(self, name, grown(getattr(self, name), index + 1, fill=-1))
            self._out[index], self._up[index], self._user[index] = outlet, -1, -1
        self._ordered = self._ids = None

    def forget(self, job: JobRecord) -> list[int]:
        """A job is gone; nodes that go with it."""
        index = self.index.pop(job)
        self._ordered = self._ids = None
        self._indices.give(index)
        self.outlets.forget(int(self._out[index]))
        if self._up[index] < 0:
            return []
        self.outlets.forget(int(self._up[index]))
        user = job.job.user
        self._jobs_of[user] -= 1
        if self._jobs_of[user]:
            return []
        at, node = self._users.pop(user)
        del self._jobs_of[user]
        self.outlets.forget(int(self._user_out[at]))
        self._user_indices.give(at)
        return [node]

    def switch(self, users: bool) -> None:
        """All bounds off, and the way over users opened or closed."""
        jobs = np.array(list(self.index.values()), np.int64)
        up = self._up[jobs]
        self.outlets.free(self._user_out[[at for at, _ in self._users.values()]])
        if users:
            self.outlets.close(self._out[jobs])
            self.outlets.free(up[up >= 0])
        else:
            self.outlets.free(self._out[jobs])
            self.outlets.close(up[up >= 0])
        self._users_share, self._ids = users, None

    def climb(self) -> None:
        """If users share, every job has its way over its user's node."""
        jobs = [job for job, index in self.index.items() if self._up[index] < 0] if self._users_share else []
        if not jobs:
            return
        new = list(dict.fromkeys(job.job.user for job in jobs if job.job.user not in self._users))
        nodes = self.edits.add_nodes(len(new)).tolist()
        tops = self.outlets.add(nodes, [self.sink] * len(new))
        self.outlets.free(tops)
        for user, node, top in zip(new, nodes, tops.tolist(), strict=True):
            at = self._user_indices.take()
            self._user_out = grown(self._user_out, at + 1, fill=-1)
            self._user_out[at] = top
            self._users[user] = at, node
            self._jobs_of[user] = 0
        index = np.array([self.index[job] for job in jobs], np.int64)
        outs = self._out[index]
        up = self.outlets.add(self.outlets.tail[outs].tolist(), [self._users[job.job.user][1] for job in jobs])
        self._up[index] = up
        for job, i in zip(jobs, index.tolist(), strict=True):
            self._user[i] = self._users[job.job.user][0]
            self._jobs_of[job.job.user] += 1
        self.outlets.close(outs)
        self.outlets.free(up)

    # -- numbers of those who share -----------------------------------------------------------------------------

    def ids(self) -> tuple[Hashable, ...]:
        """Who they are, in the order in which they came; all that follows is in this order, as of the last call."""
        if self._ids is None:
            jobs = self._in_order()
            if self._users_share:
                self._ids = tuple(dict.fromkeys(job.job.user for job in jobs))
                self._at = np.array([self._users[user][0] for user in self._ids], np.int64)
            else:
                self._ids = tuple(job.job.id for job in jobs)
                self._at = np.array([self.index[job] for job in jobs], np.int64)
            self._number = np.full(int(self._at.max(initial=-1)) + 1, -1, np.int64)
            self._number[self._at] = np.arange(len(self._at))
            self._jobs = np.array([self.index[job] for job in jobs], np.int64)
            self._families = None
        return self._ids

    def number(self, job: JobRecord) -> int:
        """The number of the one that claims for a job."""
        index = self.index[job]
        return int(self._number[self._user[index] if self._users_share else index])

    def tops(self) -> Ints:
        """The last outlet of each."""
        return (self._user_out if self._users_share else self._out)[self._at]

    def ups(self, jobs: Ints) -> Ints:
        """Outlets from jobs (by index) to their users."""
        return self._up[jobs]

    def jobs(self) -> Ints:
        """Indices of all jobs."""
        return self._jobs

    def total(self, of_jobs: NDArray[_N]) -> NDArray[_N]:
        """Numbers of each, from those of jobs."""
        if not self._users_share:
            return of_jobs[self._at]
        total = np.zeros((self._user_indices.count, *of_jobs.shape[1:]), of_jobs.dtype)
        np.add.at(total, self._user[self._jobs], of_jobs[self._jobs])
        return total[self._at]

    def of_jobs(self, jobs: Ints, of_each: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """What is so of a job (by index), since it is so of the one that claims for it."""
        so = np.zeros(self._user_indices.count if self._users_share else self.room, np.bool_)
        so[self._at] = of_each
        return so[self._user[jobs] if self._users_share else jobs]

    def members(self) -> dict[int, list[JobRecord]]:
        """The jobs of each, by its number, in the order in which they came."""
        members: dict[int, list[JobRecord]] = {}
        for job in self._in_order():
            members.setdefault(self.number(job), []).append(job)
        return members

    def families(self) -> list[tuple[Ints, tuple[Hashable, ...]]]:
        """Indices and ids of the jobs of each."""
        if self._families is None:
            members = self.members()
            self._families = [
                (np.array([self.index[job] for job in members[i]], np.int64), tuple(job.job.id for job in members[i]))
                for i in range(len(self._at))
            ]
        return self._families

    def _in_order(self) -> list[JobRecord]:
        if self._ordered is None:
            self._ordered = sorted(self.index, key=lambda job: job.serial)
        return self._ordered
