"""State of the builder for one round.

A round withholds groups, urges gangs, opens arcs for making room, and sets claimants aside.  No such change may outlast
the round, so all of them are in one `RoundScope`.  `Builder.round` opens the scope, which restores its changes on every
way out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from typing import Self

from flowsched.builder.evictions import EvictionArcs
from flowsched.builder.groups import GroupNodes
from flowsched.builder.quotas import QuotaAccounts
from flowsched.builder.shares import RoundShares, Shares
from flowsched.cluster.records import Group, TaskRecord
from flowsched.policy import Policy
from flowsched.policy.priority import reached

__all__ = ["RoundScope"]


class RoundScope:
    """State of one round; made by `Builder.round`.

    Parameters
    ----------
    now : float
    policy : Policy
    groups : GroupNodes
    shares : Shares
    evictions : EvictionArcs
        Has no arcs yet.
    left_out : dict of Group
        The builder's own: groups left out of rounds until the cluster changes.
    changed : bool
        True if the cluster has changed: these groups are let in when the scope is entered.
    note_left_out : callable
        Called at the end of a round without an exception, if any groups are left out.
    quotas : QuotaAccounts or None

    Attributes
    ----------
    withheld : dict of Group
        Groups of which no more tasks may start, including those left out.
    urged : dict of Group
        Groups that count as older than any other of their priority.
    first : bool
        True before the first update.
    wake : float
        Earliest time at which a comparison with `now` in this round would have another result.
    """

    def __init__(
        self,
        now: float,
        policy: Policy,
        groups: GroupNodes,
        shares: Shares,
        evictions: EvictionArcs,
        left_out: dict[Group, None],
        changed: bool,
        note_left_out: Callable[[], None],
        quotas: QuotaAccounts | None = None,
    ) -> None:
        self.now = now
        self.policy = policy
        self.evictions = evictions
        self.withheld: dict[Group, None] = left_out.copy()
        self.urged: dict[Group, None] = {}
        self._round_shares: RoundShares | None = None
        self.first = True
        self.wake = inf
        self._groups = groups
        self._shares = shares
        self._left_out = left_out
        self._changed = changed
        self._note_left_out = note_left_out
        self.quotas = quotas
        self._beyond: dict[Group, None] = {}
        """Groups withheld because of their claimant's share."""
        self._limited: dict[Group, None] = {}
        """Groups whose claims are limited to the tasks that their quota lets start."""

    def __enter__(self) -> Self:
        if self._changed:
            try:
                self.let_in()
            except BaseException as error:
                self.__exit__(error)
                raise
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._restore()
            if self._left_out:
                self._note_left_out()
        else:
            with suppress(Exception):  # it would hide the original error
                self._restore()

    @property
    def round_shares(self) -> RoundShares:
        """State of shares; made on first use."""
        if self._round_shares is None:
            self._round_shares = RoundShares(now=self.now)
        return self._round_shares

    def spares(self, task: TaskRecord) -> bool:
        """Return True if the task was preempted too recently to be stopped again; record the end of its protection."""
        preemption = self.policy.preemption
        if preemption is None or not preemption.window or task.preempted <= self.now - preemption.window:
            return False
        self.wake = min(self.wake, reached(preemption.window, task.preempted))
        return True

    def withhold(self, group: Group) -> None:
        """Keep further tasks of the group from starting in this round."""
        self._beyond.pop(group, None)
        self.withheld[group] = None
        self._groups.close(group)

    def withhold_for_share(self, group: Group) -> None:
        """Keep further tasks of the group from starting in this round, unless others leave room beyond its share."""
        if group not in self.withheld:
            self.withhold(group)
            self._beyond[group] = None

    def leave_out(self, group: Group, until_change: bool) -> None:
        """Withhold a group, in this round or until the cluster changes, and give others its share."""
        self.withhold(group)
        self._shares.waive(group)
        self.round_shares.stale = True
        if until_change:
            self._left_out[group] = None

    def release(self, group: Group) -> None:
        """Allow tasks of a withheld group to start again."""
        del self.withheld[group]
        self.round_shares.stale |= self._shares.claim(group)
        self._groups.open(group, self.quotas)

    def limit_claims(self, quotas: QuotaAccounts) -> None:
        """Exclude waiting tasks that quotas keep from starting from claims, so that others get their part."""
        self._unlimit_claims()
        fairness, stops = self.policy.fairness, self.policy.preemption is not None
        of_jobs = fairness is not None and (fairness.over == "job" or fairness.within is not None)
        for group, some in quotas.claiming(self.withheld, stops and of_jobs):
            self._shares.waive(group, some)
            self._limited[group] = None

    def _unlimit_claims(self) -> None:
        for group in self._limited:
            if group not in self.withheld:
                self._shares.claim(group)
        self._limited.clear()

    def let_in(self) -> None:
        """Release the groups left out, since the cluster has changed."""
        for group in self._left_out:
            self.release(group)
        self._left_out.clear()

    def urge(self, groups: Iterable[Group]) -> None:
        """Count groups as older than any other of their priority."""
        for group in groups:
            self.urged[group] = None
            self._groups.reprice(group, self.policy, self.urged)

    def grant_more(self, proposed: bool) -> bool:
        """Request another step of shares from the next update; see `Shares.grant_more`."""
        more = self._shares.grant_more(proposed, self.round_shares, self.evictions.classes.with_room_now)
        if self.filling:
            beyond, self._beyond = self._beyond, {}
            for group in beyond:
                self.release(group)
        return more

    @property
    def filling(self) -> bool:
        """True while tasks start beyond shares; no other task makes room for them."""
        return self._round_shares is not None and self._round_shares.filling

    def settle(self) -> None:
        """Begin the steps of shares again, for another decision of the round."""
        if self._round_shares is not None:
            self._shares.begin(self._round_shares)

    def restart(self) -> None:
        """Forget evictions, after all moves of the round were taken back."""
        self.evictions.restart()

    def _restore(self) -> None:
        """Undo everything, except for groups left out until the cluster changes."""
        if self._limited:
            self._unlimit_claims()
        if self.withheld:
            for group in [group for group in self.withheld if group not in self._left_out]:
                self.release(group)
        if self.urged:
            urged, self.urged = self.urged, {}
            for group in urged:
                self._groups.reprice(group, self.policy, self.urged)
        if self.evictions.offers or self.evictions.refused:
            self.evictions.restart()
