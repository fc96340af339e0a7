"""Claimants: the jobs, or their users, that share a cluster, and their nodes in the network.

::

    U_job ----------------------> S                          jobs claim
    U_job ------> V_user -------> S                          users claim, and their jobs share what they get

Each arrow is a bundle of arcs (see `unscheduled`).  A job has both ways once users have claimed; the unused way is
closed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.builder.unscheduled import UnscheduledArcs
from flowsched.cluster.columns import Columns, IdPool, column, view
from flowsched.cluster.records import JobRecord

__all__ = ["Claimants"]

Ints = NDArray[np.int64]

_N = TypeVar("_N", np.int64, np.float64)


class Claimants(Columns):
    """Jobs and users with their bundles, and the switch between them as claimants.

    Parameters
    ----------
    batch : NetworkBatch
    sink : int
        Node that all waiting tasks reach in the end.

    Attributes
    ----------
    unscheduled : UnscheduledArcs
    index : dict of JobRecord to int
        Index of each job in arrays by job.
    """

    _to_sink: Ints = column("jobs", fill=-1)
    """Bundle from the job to the sink; at an index without one, the arrays below have their initial values."""
    _to_sink_view: memoryview = view("_to_sink")
    _to_user: Ints = column("jobs", fill=-1)
    """Bundle from the job to its user, -1 before users claim."""
    _to_user_view: memoryview = view("_to_user")
    _user: Ints = column("jobs", fill=-1)
    """Index of the job's user, -1 exactly where there is no bundle to it."""
    _user_to_sink: Ints = column("users", fill=-1)
    """Bundle from the user to the sink."""

    def __init__(self, batch: NetworkBatch, sink: int) -> None:
        super().__init__()
        self.batch = batch
        self.sink = sink
        self.unscheduled = UnscheduledArcs(batch)
        self.index: dict[JobRecord, int] = {}
        self._indices = IdPool()
        self._users: dict[Hashable, tuple[int, int]] = {}
        """Index and node of each user with a way over it."""
        self._jobs_of: dict[Hashable, int] = {}
        """Number of jobs by user in `_users`; never 0."""
        self._user_indices = IdPool()
        self._users_claim = False
        self._ordered: list[JobRecord] | None = None
        """Jobs in order of arrival; None after one came or went."""
        self._ids: tuple[Hashable, ...] | None = None
        """Claimants; None if the attributes below are out of date."""
        self._at: Ints = np.zeros(0, np.int64)
        """Index of each claimant among users or jobs."""
        self._number: Ints = np.zeros(0, np.int64)
        """Inverse of `_at`: ``_number[_at[i]] == i``, -1 elsewhere."""
        self._jobs: Ints = np.zeros(0, np.int64)
        """Indices of all jobs in order of arrival."""
        self._families: list[tuple[Ints, tuple[Hashable, ...]]] | None = None
        """Result of `families`, None before its first call."""

    @property
    def room(self) -> int:
        """Length of arrays by job."""
        return self._indices.count

    def add(self, jobs: Sequence[JobRecord], nodes: Sequence[int], arcs: Sequence[int]) -> None:
        """Add new jobs, with their nodes and the arcs from these to the sink."""
        bundles = self.unscheduled.add(nodes, [self.sink] * len(jobs), arcs)
        for job, bundle in zip(jobs, bundles, strict=True):
            index = self.index[job] = self._indices.take()
            if index >= len(self._to_sink):
                self.grow(jobs=index + 1)
            self._to_sink_view[index] = bundle
        self._ordered = self._ids = None

    def forget(self, job: JobRecord) -> list[int]:
        """Forget a job; return the nodes that go with it, for removal."""
        index = self.index.pop(job)
        self._ordered = self._ids = None
        self._indices.give(index)
        self.unscheduled.forget(self._to_sink_view[index])
        if self._to_user_view[index] < 0:
            return []
        self.unscheduled.forget(int(self._to_user[index]))
        self._to_user[index] = self._user[index] = -1
        user = job.job.user
        self._jobs_of[user] -= 1
        if self._jobs_of[user]:
            return []
        at, node = self._users.pop(user)
        del self._jobs_of[user]
        self.unscheduled.forget(int(self._user_to_sink[at]))
        self._user_indices.give(at)
        return [node]

    def switch(self, users: bool) -> None:
        """Remove all bounds, and open or close the way over users."""
        jobs = np.array(list(self.index.values()), np.int64)
        to_users = self._to_user[jobs]
        to_users = to_users[to_users >= 0]
        self.unscheduled.free(self._user_to_sink[[at for at, _ in self._users.values()]])
        if users:
            self.unscheduled.close(self._to_sink[jobs])
            self.unscheduled.free(to_users)
        else:
            self.unscheduled.free(self._to_sink[jobs])
            self.unscheduled.close(to_users)
        self._users_claim, self._ids = users, None

    def lead_over_users(self) -> None:
        """Add a way over its user's node for every job, if users claim."""
        jobs = [job for job, index in self.index.items() if self._to_user[index] < 0] if self._users_claim else []
        if not jobs:
            return
        new = list(dict.fromkeys(job.job.user for job in jobs if job.job.user not in self._users))
        nodes = self.batch.new_nodes(len(new))
        bundles = self.unscheduled.add(nodes, [self.sink] * len(new))
        self.unscheduled.free(np.array(bundles, np.int64))
        for user, node, bundle in zip(new, nodes, bundles, strict=True):
            at = self._user_indices.take()
            self.grow(users=at + 1)
            self._user_to_sink[at] = bundle
            self._users[user] = at, node
            self._jobs_of[user] = 0
        index = np.array([self.index[job] for job in jobs], np.int64)
        to_sink = self._to_sink[index]
        tails = self.unscheduled.tail[to_sink].tolist()
        heads = [self._users[job.job.user][1] for job in jobs]
        to_users = np.array(self.unscheduled.add(tails, heads), np.int64)
        self._to_user[index] = to_users
        for job, i in zip(jobs, index.tolist(), strict=True):
            self._user[i] = self._users[job.job.user][0]
            self._jobs_of[job.job.user] += 1
        self.unscheduled.close(to_sink)
        self.unscheduled.free(to_users)

    # -- numbers of the claimants -------------------------------------------------------------------------------

    def ids(self) -> tuple[Hashable, ...]:
        """Return the claimants in order of arrival; the methods below use the order of the last call."""
        if self._ids is None:
            jobs = self._in_order()
            if self._users_claim:
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
        """Return the number of a job's claimant."""
        index = self.index[job]
        return int(self._number[self._user[index] if self._users_claim else index])

    def bundles(self) -> Ints:
        """Return the bundle of each claimant to the sink."""
        return (self._user_to_sink if self._users_claim else self._to_sink)[self._at]

    def bundles_to_users(self, jobs: Ints) -> Ints:
        """Return the bundles from jobs (by index) to their users."""
        return self._to_user[jobs]

    def jobs(self) -> Ints:
        """Return the indices of all jobs."""
        return self._jobs

    def total(self, of_jobs: NDArray[_N]) -> NDArray[_N]:
        """Sum numbers of jobs by claimant."""
        if not self._users_claim:
            return of_jobs[self._at]
        total = np.zeros((self._user_indices.count, *of_jobs.shape[1:]), of_jobs.dtype)
        np.add.at(total, self._user[self._jobs], of_jobs[self._jobs])
        return total[self._at]

    def of_jobs(self, jobs: Ints, of_claimants: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return for each job (by index) the value of its claimant."""
        by_index = np.zeros(self._user_indices.count if self._users_claim else self.room, np.bool_)
        by_index[self._at] = of_claimants
        return by_index[self._user[jobs] if self._users_claim else jobs]

    def members(self) -> dict[int, list[JobRecord]]:
        """Return the jobs of each claimant by its number, in order of arrival."""
        members: dict[int, list[JobRecord]] = {}
        for job in self._in_order():
            members.setdefault(self.number(job), []).append(job)
        return members

    def families(self) -> list[tuple[Ints, tuple[Hashable, ...]]]:
        """Return indices and ids of the jobs of each claimant."""
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

    def kept_arcs(self) -> Iterator[KeptArcs]:
        """Yield the arcs kept by this part, with their ends."""
        return self.unscheduled.kept_arcs()
