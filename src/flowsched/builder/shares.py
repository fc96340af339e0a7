"""Fair shares in the network: bounds and prices on the waiting tasks of a job, or of a user.

::

           base: lower L, price P                 over users:       base, slack, rungs
    U_job ----------------------> S         U_job ------------> V_user -------------> S
           slack: capacity H - L, free
           rungs: one per step of a ladder, each more expensive than the one before it

With N tasks of which A are entitled to run, at least ``L = N - A`` wait and no more than ``H = N - A`` should: each
task that waits beyond H costs P.  A bound never stops a running task, so L is at most the number of waiting tasks, and
every bound can be met.  A ladder has no bounds; there the first waiting tasks cost least, and those that leave their
claimant with few running tasks cost most.

Nodes and arcs stay when the policy changes; the unused ones have capacity 0.  Jobs that come while no claimant has a
share are counted once shares exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from flowsched.builder import _shares
from flowsched.builder._arcs import ShareFields
from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.builder.claimants import Claimants
from flowsched.builder.job_counts import JobCounts
from flowsched.builder.ladder import LadderPosition
from flowsched.cluster.columns import Columns, column
from flowsched.cluster.model import UNLIMITED
from flowsched.cluster.records import Group, JobRecord
from flowsched.cluster.state import Cluster
from flowsched.policy import Policy
from flowsched.policy.fairness import Fairness
from flowsched.policy.providers import Claims

__all__ = ["RoundShares", "Shares"]

Ints = NDArray[np.int64]


_NONE: NDArray[np.bool_] = np.zeros(0, np.bool_)
_NOBODY: Ints = np.zeros(0, np.int64)


@dataclass(slots=True)
class RoundShares:
    """State of shares for one round.

    Attributes
    ----------
    stale : bool
        True if the next update works entitlements out again.  They are valid for one round, so it is True at first.
    aside : dict of hashable
        Claimants that claim no more than their running tasks, where shares are granted in steps.
    filling : bool
        True while claimants at their bounds start tasks in room that no claimant below its bound can use.
        This comes last in a round, and without victims.
    running : int
        Number of running tasks at the beginning of the last such step.
    now : float
        Time of the round.
    first : Claims or None
        Claims at the beginning of the round.
    """

    stale: bool = True
    aside: dict[Hashable, None] = field(default_factory=dict)
    filling: bool = False
    running: int = 0
    now: float = 0.0
    first: Claims | None = None


class Shares(Columns, ShareFields):
    """Bounds on the running tasks of jobs and users, by the policy.

    Parameters
    ----------
    cluster : Cluster
    batch : NetworkBatch
    sink : int
        Node that all waiting tasks reach in the end.
    """

    _within: Ints = column("jobs")
    """Entitlement of each job within its user's share; arrays by job are used under `Fairness.within` only."""
    _most_within: Ints = column("jobs")
    """Largest number of tasks of each job that the bounds let run."""
    _allowed_within: Ints = column("jobs")
    """As `_most_within`, and at least the number that ran at the last update."""

    def __init__(self, cluster: Cluster, batch: NetworkBatch, sink: int) -> None:
        super().__init__()
        self.cluster = cluster
        self._claimants = Claimants(batch, sink)
        self._counts = JobCounts(cluster)
        self.fairness: Fairness | None = None
        self._policy: Policy | None = None
        self.stale: dict[JobRecord, None] = {}
        """Jobs that the next update counts again."""
        self._sink = sink
        self.apart: dict[JobRecord, tuple[int, int]] = {}
        """Nodes and arcs to the sink of jobs that came while no claimant had a share."""
        self._claims: Claims | None = None
        self._share: Ints = np.zeros(0, np.int64)
        """Entitlement by number of the claimant, the index of the next three arrays too."""
        self._rungs: Ints = np.zeros((0, 0), np.int64)
        """Running tasks at which each rung but the lowest begins; no columns if all claimants have the same rung."""
        self._most: Ints = np.zeros(0, np.int64)
        """Largest number of tasks that the bounds let run."""
        self._allowed: Ints = np.zeros(0, np.int64)
        """As `_most`, and at least the number that ran at the last update."""
        self._sums: tuple[Ints, Ints] | None = None
        """Result of `_totals`, None if it is out of date."""
        self._filled: Ints = np.zeros(0, np.int64)
        """Tasks that each claimant may run in room left by others, 0 for none; empty until the end of a round."""
        self.limit = False
        """True if bounds existed at the last report."""
        self._full: NDArray[np.bool_] = np.zeros(0, np.bool_)
        """By index of the job: True if its bounds let no task start, as of the last report."""

    def _let_claim(self) -> None:
        """Register new jobs as claimants."""
        jobs, self.apart = self.apart, {}
        self._claimants.add(list(jobs), [node for node, _ in jobs.values()], [arc for _, arc in jobs.values()])
        if self._claimants.room > len(self._within):
            self._counts.grow(jobs=self._claimants.room)
            self.grow(jobs=self._claimants.room)
        self.stale.update(dict.fromkeys(jobs))

    def waive(self, group: Group, claiming: int = 0) -> None:
        """Limit the waiting tasks of a group that claim a share to `claiming`, so that others get their part."""
        self._counts.waived[group] = claiming
        self.stale[group.job] = None

    def claim(self, group: Group) -> bool:
        """Include all waiting tasks of a group in claims; return True if they were limited."""
        if group not in self._counts.waived:
            return False
        del self._counts.waived[group]
        self.stale[group.job] = None
        return True

    def grant_more(
        self, proposed: bool, state: RoundShares, with_room: Callable[[Sequence[int]], Collection[int]]
    ) -> bool:
        """Grant another step in the next update; return False if there is none.

        Parameters
        ----------
        proposed : bool
            True if the flow has proposed to start a task since the last step.  If not, no other task was in the way of
            claimants below their share.  They are set aside, so that others get the part that they cannot use.
        state : RoundShares
        with_room : function
            Filters classes (by index) for which a machine has room now.
        """
        fairness = self.fairness
        if fairness is None or self._claims is None:
            return False
        if self._gradual and not state.filling:
            short: list[int] = []
            if not proposed:
                running = self._running()
                short = np.flatnonzero(self._share > running).tolist()
                state.aside.update(dict.fromkeys(self._claims.ids[i] for i in short))
            if proposed or short:
                state.stale = True
                return True
        roomy = with_room([cls.index for cls in self.cluster.waiting]) if fairness.fills else ()
        return bool(roomy) and self._grant_filling(fairness, state, roomy)

    def _grant_filling(self, fairness: Fairness, state: RoundShares, roomy: Collection[int]) -> bool:
        """Raise the bounds of claimants at their bounds for classes with room; return False if there are none."""
        assert self._claims is not None
        running = self._running()
        count = int(running.sum())
        if not state.filling:
            state.aside.clear()
        elif count <= state.running:  # no task of the last step starts
            granted = np.flatnonzero(self._filled > running).tolist()
            state.aside.update(dict.fromkeys(self._claims.ids[i] for i in granted))
        state.running = count
        if not self._holds(running, state, roomy):
            return False
        state.filling = state.stale = True
        self._recount(self._counts.look(roomy))
        return self._fill(fairness, state)

    def _holds(self, running: Ints, state: RoundShares, roomy: Collection[int]) -> bool:
        """Return True if a bound keeps a task of some classes (by index) waiting."""
        assert self._claims is not None
        jobs = self._claimants.jobs
        full = self._at_bounds(jobs, running) & (self._counts.waiting[jobs] > 0)
        if state.aside:
            claiming = np.array([claimant not in state.aside for claimant in self._claims.ids], np.bool_)
            full &= claiming[self._claimants.of[jobs]]
        if not full.any():
            return False
        held = np.zeros(self._claimants.room, np.bool_)
        held[jobs] = full
        some, index = set(roomy), self._claimants.index
        groups = (group for cls, groups in self.cluster.waiting.items() if cls.index in some for group in groups)
        return any(held[index[group.job]] for group in groups)

    def begin(self, state: RoundShares) -> None:
        """Begin the steps again, for another decision of a part of the round."""
        if state.filling:
            state.filling, state.stale = False, True
            state.aside.clear()

    @property
    def _gradual(self) -> bool:
        fairness = self.fairness
        return fairness is not None and fairness.mode != "ladder" and getattr(fairness.share, "gradual", False)

    def update(
        self,
        touched: Iterable[JobRecord],
        policy: Policy,
        with_room: Callable[[Sequence[int]], Collection[int]],
        state: RoundShares,
    ) -> None:
        """Bring the bounds up to date with the counts of these jobs and with the policy.

        Parameters
        ----------
        touched : iterable of JobRecord
        policy : Policy
        with_room : function
            Filters classes (by index) for which a machine has room now.
        state : RoundShares
        """
        fairness = policy.fairness
        if self.apart:
            self._let_claim()
        if fairness is not self.fairness:
            self._switch(fairness)
            state.stale = True
        if fairness is None:
            self.stale.clear()
            return
        self.stale.update(dict.fromkeys(touched))
        if state.stale and not state.filling:
            # Accounts keep the part of claimants without room at present.
            by_room = self._gradual and not hasattr(fairness.share, "committed")
            roomy = with_room([cls.index for cls in self.cluster.waiting]) if by_room else None
            self.stale.update(dict.fromkeys(self._counts.look(roomy)))
        changed = bool(self.stale) or self._claims is None or policy is not self._policy
        self._policy = policy
        self._recount(self.stale)
        self.stale.clear()
        if not self._claimants.index:
            self._claims = None
            return
        self._claimants.lead_over_users()
        if state.stale and state.filling:
            changed, state.stale = True, False
        elif state.stale:
            changed |= self._entitle(fairness, changed, state) or bool(len(self._filled))
            self._filled = _NOBODY
            state.stale = False
        if changed:
            self._bound(fairness, policy)

    def excess(self, changed: Iterable[JobRecord]) -> list[tuple[list[JobRecord], int]]:
        """Return claimants that run more tasks than they may, as jobs, each with the surplus.

        A flow keeps the bounds by letting a better task start where a worse one of the same claimant stops, on any machine.
        The caller has to stop the worse task.

        Parameters
        ----------
        changed : iterable of JobRecord
            Jobs that have started or stopped tasks since the last update.
        """
        fairness = self.fairness
        if fairness is None or self._claims is None:
            return []
        jobs = list(changed)
        self._recount(jobs)
        found: list[tuple[list[JobRecord], int]] = []
        if fairness.within is not None:
            index = np.array([self._claimants.index[job] for job in jobs], np.int64)
            over = self._counts.running(index) - self._allowed_within[index]
            found += [([job], more) for job, more in zip(jobs, over.tolist(), strict=True) if more > 0]
        over = self._running() - self._allowed
        if len(over) and over.max() > 0:
            found += [(self._claimants.members[i], int(over[i])) for i in np.flatnonzero(over > 0).tolist()]
        return found

    def imbalance(
        self, changed: Iterable[JobRecord]
    ) -> tuple[list[tuple[list[JobRecord], int]], dict[JobRecord, int], dict[int, int]]:
        """Return claimants below their share with waiting tasks, and claimants above theirs; nothing without either.

        Parameters
        ----------
        changed : iterable of JobRecord
            Jobs that have started or stopped tasks since the last update.

        Returns
        -------
        short : list of (list of JobRecord, int)
            Claimants as jobs, with their missing tasks; those that lack the largest part of their share first.
        owner : dict of JobRecord to int
            Jobs of claimants above their share, with the number of the claimant.
        surplus : dict of int to int
            Tasks beyond the share, by that number.
        """
        fairness = self.fairness
        if fairness is None or self._claims is None:
            return [], {}, {}
        self._recount(changed)
        tasks, waiting = self._totals()
        lack = np.minimum(self._share - (tasks - waiting), waiting)
        if not (len(lack) and lack.min() < 0 < lack.max()):
            return [], {}, {}
        members = self._claimants.members
        order = np.argsort(-lack / np.maximum(self._share, 1), kind="stable").tolist()
        short = [(members[i], int(lack[i])) for i in order if lack[i] > 0]
        surplus = {i: int(-lack[i]) for i in order if lack[i] < 0}
        owner = {job: i for i in surplus for job in members[i]}
        return short, owner, surplus

    def bounded(self) -> list[tuple[list[JobRecord], list[JobRecord]]]:
        """Return users at their bounds, as lists of jobs: those that their own bounds let start better tasks than some running ones, and all."""
        fairness = self.fairness
        if fairness is None or self._claims is None or fairness.mode == "ladder" or fairness.over == "job":
            return []
        within = None if fairness.within is None else self._most_within
        claimants, full = self._claimants, self._running() >= self._most
        return _shares.rivals(claimants.members, claimants.index, self._counts, full, within)

    def report(self, touched: Iterable[JobRecord]) -> tuple[Fairness, Claims, Ints, Ints] | None:
        """Return fairness, claims, entitled and running tasks by claimant; None without fairness.

        Parameters
        ----------
        touched : iterable of JobRecord
            Jobs that have changed since the last update.
        """
        self._full, self.limit = _NONE, False
        if self.fairness is None or self._claims is None:
            return None
        self._recount(dict.fromkeys(touched))
        running = self._running()
        jobs = self._claimants.jobs
        self._full = np.zeros(self._claimants.room, np.bool_)
        self._full[jobs] = self._at_bounds(jobs, running)
        self.limit = True
        share = self._share
        if len(self._filled):
            share = np.maximum(share, np.minimum(running, self._filled))
        return self.fairness, self._claims, share, running

    def positions(self) -> LadderPosition | None:
        """Return the positions of all claimants as of the last update; None if all stand on one rung."""
        fairness = self.fairness
        if fairness is None or self._claims is None or not self._rungs.shape[1]:
            return None
        running = self._running()
        return LadderPosition(self._claimants.number, running.tolist(), self._rungs)

    def full(self, job: JobRecord) -> bool:
        """Return True if the bounds of the job or of its user let none of its tasks start, as of the last report."""
        index = self._claimants.index.get(job, -1)
        return 0 <= index < len(self._full) and bool(self._full[index])

    def bounds(self, job: JobRecord) -> tuple[int, int]:
        """Return the most tasks that the claimant of a job, and the job itself, may run by the bounds of the last update."""
        index = self._claimants.index.get(job, -1)
        if index < 0 or self.fairness is None or self._claims is None:
            return UNLIMITED, UNLIMITED
        within = UNLIMITED if self.fairness.within is None else int(self._most_within[index])
        return int(self._most[self._claimants.number(job)]), within

    def runs(self, fairness: Fairness | None) -> Counter[Hashable]:
        """Return the number of running tasks of each user, if users claim."""
        runs: Counter[Hashable] = Counter()
        if fairness is not None and fairness.over == "user":
            for job in self.cluster.jobs.values():
                runs[job.job.user] += job.running
        return runs

    def arcs(self) -> tuple[Ints, Ints]:
        """Return the base and slack arcs of the claimants to the sink, -1 where there is none."""
        at = self._claimants.bundles()
        return self._claimants.unscheduled.base[at], self._claimants.unscheduled.slack[at]

    def kept_arcs(self) -> Iterator[KeptArcs]:
        """Yield the arcs kept by this part, with their ends."""
        apart = np.array(list(self.apart.values()), np.int64).reshape(-1, 2)
        yield apart[:, 1], apart[:, 0], np.full(len(apart), self._sink)
        yield from self._claimants.kept_arcs()

    def _switch(self, fairness: Fairness | None) -> None:
        """Remove all bounds, for another policy."""
        self._claimants.switch(fairness is not None and fairness.over == "user")
        self.stale.update(dict.fromkeys(self._claimants.index))
        self.fairness = fairness

    def _running(self) -> Ints:
        """Return the running tasks of each claimant, as of the last count."""
        tasks, waiting = self._totals()
        return tasks - waiting

    def _totals(self) -> tuple[Ints, Ints]:
        """Return the tasks of each claimant, and the waiting ones among them, as of the last count."""
        if self._sums is None:
            self._sums = _shares.totals(
                self._counts, self._claimants.jobs, self._claimants.of, len(self._claimants.members)
            )
        return self._sums

    def _at_bounds(self, jobs: Ints, running: Ints) -> NDArray[np.bool_]:
        """Return True for jobs (by index) whose bounds let no task start, at these running tasks of claimants."""
        full = (running >= self._most)[self._claimants.of[jobs]]
        if self.fairness is not None and self.fairness.within is not None:
            full |= self._counts.running(jobs) >= self._most_within[jobs]
        return full

    def _recount(self, jobs: Iterable[JobRecord]) -> None:
        """Bring the counts of jobs up to date."""
        if self._counts.recount(jobs, self._claimants.index):
            self._sums = None

    # -- entitlements -------------------------------------------------------------------------------------------

    def _entitle(self, fairness: Fairness, changed: bool, state: RoundShares) -> bool:
        """Work entitlements out again; return False if none of their inputs has changed."""
        old, claims = self._claims, self._claims_now(fairness, state)
        if (
            not changed
            and old is not None
            and not (hasattr(fairness.share, "committed") or self._gradual)
            and (old.units, old.ids) == (claims.units, claims.ids)
            and np.array_equal(old.weight, claims.weight)
            and np.array_equal(old.capacity, claims.capacity)
        ):
            return False
        self._claims = claims
        self._share = _entitled(fairness, claims)
        if fairness.within is not None:
            self._share_within(fairness, self._share)
            if self._gradual:
                # The tasks that a share lets start may ask for more, or less, than the mean of the waiting ones.
                self._claims = self._counts.narrowed(claims, self._within, self._claimants.total)
                self._share = _entitled(fairness, self._claims)
                self._share_within(fairness, self._share)
        return True

    def _fill(self, fairness: Fairness, state: RoundShares) -> bool:
        """Work out the tasks that claimants may run in the remaining room: half of the possible ones; False if no more may run.

        All of them would exceed the room, and then the cheapest would start next rather than the one with least.
        """
        claims = self._claims_now(fairness, state)
        more = fairness.remainder(claims) - claims.running
        filled = np.where(more > 0, claims.running + (more + 1) // 2, 0)
        self._filled = np.maximum(self._filled, filled) if len(self._filled) else filled
        if fairness.within is not None:
            self._share_within(fairness, np.maximum(self._filled, self._share))
        return bool(more.any())

    def _claims_now(self, fairness: Fairness, state: RoundShares) -> Claims:
        """Return the claims as of the last count."""
        ids = self._claimants.ids()
        self._sums = None
        weights = self._weights(fairness, ids)
        claims = self._counts.claims(self._claimants, weights, state.aside, state.now, fairness.reclaim)
        state.first = first = state.first or claims
        moved = claims.since(first)
        return claims if moved is None else replace(claims, moved=moved)

    def _weights(self, fairness: Fairness, ids: Sequence[Hashable]) -> list[float]:
        known = self.cluster.users if fairness.over == "user" else {}
        quotas = [float(known[claimant].quota) if claimant in known else 1.0 for claimant in ids]
        return [fairness.weights.get(claimant, quota) for claimant, quota in zip(ids, quotas, strict=True)]

    def _share_within(self, fairness: Fairness, share: Ints) -> None:
        """Work out the entitlement of each job within its user's share."""
        assert fairness.within is not None
        for members, units in zip(self._claimants.members, share.tolist(), strict=True):
            jobs, ids = np.array([self._claimants.index[job] for job in members]), tuple(job.job.id for job in members)
            tasks = self._counts.tasks[jobs] - self._counts.infeasible[jobs]
            weight = (
                np.array([fairness.weights.get(job, 1.0) for job in ids]) if fairness.weights else np.ones(len(ids))
            )
            self._within[jobs] = fairness.within(Claims(ids, tasks, self._counts.running(jobs), units, weight))

    # -- bounds -------------------------------------------------------------------------------------------------

    def _bound(self, fairness: Fairness, policy: Policy) -> None:
        assert self._claims is not None
        tasks, waiting = self._totals()
        at, unscheduled = self._claimants.bundles(), self._claimants.unscheduled
        ids, least = self._claims.ids, fairness.minima(self._claims.ids)
        if fairness.mode == "ladder":
            self._most = most = fairness.maxima(ids)
            claims = self._claims
            step = policy.fair_step
            self._rungs = unscheduled.build_ladders(at, tasks, waiting, least, most, claims.weight, claims.units, step)
        else:
            guaranteed = np.minimum(least, self._share)
            if fairness.mode == "hard":
                least = most = self._share
            else:
                slack = np.maximum(1, (self._share * fairness.slack).astype(np.int64))
                least = np.maximum(self._share - slack, guaranteed)
                most = np.maximum(np.minimum(self._share + slack, fairness.maxima(ids)), self._share)
            alike = least is most or bool((least == most).all())
            alike = alike and not guaranteed.any()  # all have the same rung
            self._rungs = np.zeros((len(least), 0), np.int64) if alike else np.column_stack([guaranteed, least])
            self._most = most = np.maximum(most, self._filled) if len(self._filled) else most
            unscheduled.bound_running(at, tasks, waiting, guaranteed, least, most, policy.fair_step)
        self._allowed = np.maximum(self._most, tasks - waiting)
        if fairness.within is not None:
            jobs = self._claimants.jobs
            part = self._most_within[jobs] = self._within[jobs]
            tasks, waiting = self._counts.tasks[jobs], self._counts.waiting[jobs]
            unscheduled.bound_running(
                self._claimants.bundles_to_users(jobs),
                tasks,
                waiting,
                np.zeros_like(part),
                part,
                part,
                policy.fair_step,
            )
            self._allowed_within[jobs] = np.maximum(part, self._counts.running(jobs))


def _entitled(fairness: Fairness, claims: Claims) -> Ints:
    """Return shares, raised to guarantees: shares are granted in tasks of mean size, guarantees in own ones."""
    return np.maximum(fairness.entitle(claims), np.minimum(fairness.minima(claims.ids), claims.tasks))
