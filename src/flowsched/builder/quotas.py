"""Accounts of quotas: usage of the running tasks of each claimant and of the cluster, and the rest that others may use.

An account follows the numbers of tasks of groups.  Therefore tentative starts count like real ones, and end with them.

Rules:

* A stopping run counts until it has stopped, even after its task is gone.
* ``left`` is as of the last `look`, minus amounts taken and plus amounts given back since.
* The network is up to date with ``sent``; groups of an account whose rest changed are `restated` in the next update.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from operator import attrgetter
from types import MappingProxyType

from flowsched.cluster import Cluster
from flowsched.cluster.model import UNLIMITED
from flowsched.cluster.records import Before, Group, JobRecord, TaskRecord
from flowsched.policy.fairness import Limit, Quotas

__all__ = ["QuotaAccounts"]

_CLUSTER: Hashable = object()
"""The claimant that all tasks belong to, in addition to their own."""


@dataclass(slots=True)
class _Account:
    """Account of one claimant; numbers in micro-units, by position in `limit`.

    Attributes
    ----------
    limit : tuple of (int, int)
        See `Limit`.
    used : list of int
        Usage of the running tasks of its groups.
    left, sent : list of int
        See the rules of the module.
    kept : tuple of (int, list of int), optional
        A priority, and the part of `left` kept from tasks of worse priority while tasks of this one wait for runs to stop.
    groups : dict of Group to int
        Running tasks of each of its groups.
    """

    limit: Limit
    used: list[int]
    left: list[int]
    sent: tuple[list[int], tuple[int, list[int]] | None] | None = None
    kept: tuple[int, list[int]] | None = None
    groups: dict[Group, int] = field(default_factory=dict)

    def awaited(self, held: Sequence[int]) -> tuple[int, list[int]] | None:
        """Return `kept`, if stopping runs hold these amounts."""
        for group in sorted(filter(attrgetter("waiting"), self.groups), key=_standing):
            some = min(self.fits(group, [a + b for a, b in zip(self.left, held, strict=True)]), len(group.waiting))
            if some and not self.fits(group, self.left):
                needs = [int(group.cls.demand[d]) for d, _ in self.limit]
                kept = [min(some * need, max(left, 0)) for need, left in zip(needs, self.left, strict=True)]
                return group.cls.priority, kept
        return None

    def fits(self, group: Group, left: Iterable[int], gone: Iterable[tuple[Group, int]] = ()) -> int:
        """Return the number of tasks of a group that fit into the rest after other tasks have stopped; `UNLIMITED` without a limit."""
        demand, freed = group.cls.demand.tolist(), [(other.cls.demand, count) for other, count in gone]
        needs = [
            (have + sum(int(held[d]) * count for held, count in freed), demand[d])
            for have, (d, _) in zip(left, self.limit, strict=True)
        ]
        return min((max(have, 0) // need for have, need in needs if need), default=UNLIMITED)

    def left_for(self, group: Group) -> list[int]:
        """Return the rest that tasks of a group may use."""
        if self.kept is None or group.cls.priority <= self.kept[0]:
            return self.left
        return [left - kept for left, kept in zip(self.left, self.kept[1], strict=True)]


def _standing(group: Group) -> tuple[int, int]:
    """Return priority and age of a group that waits."""
    return group.cls.priority, group.waiting[0].turn


class QuotaAccounts:
    """Accounts of the claimants of one cluster that have a quota.

    Parameters
    ----------
    cluster : Cluster
    quotas : Quotas

    Raises
    ------
    InputError
        A quota names an unknown resource.
    """

    def __init__(self, cluster: Cluster, quotas: Quotas) -> None:
        self._cluster = cluster
        self._limits, self._default, whole = quotas.limits(cluster.resources)
        self._limits[_CLUSTER] = whole
        self._shared = (_CLUSTER,) if whole else ()
        self._by_user = quotas.over == "user"
        self._accounts: dict[Hashable, _Account] = {}
        """Accounts of claimants with waiting or running tasks."""
        self._dirty: dict[Hashable, None] = {}
        """Accounts whose `left` may have changed."""
        self._restated: dict[Hashable, None] = {}
        self._stopping: dict[Hashable, list[int]] = {}
        """Amounts held by stopping runs, as of the last `look`."""
        for job in cluster.jobs.values():
            for group in job.each_group():
                self._note(group)
        self.look()

    def _owners(self, job: JobRecord) -> tuple[Hashable, ...]:
        """Return the claimants of a job: its own, and the cluster if that is limited."""
        return (job.job.user if self._by_user else job.job.id, *self._shared)

    def _accounts_of(self, group: Group) -> list[_Account]:
        """Return the accounts that a group counts in."""
        found = map(self._accounts.get, self._owners(group.job))
        return [account for account in found if account is not None]

    # -- world -> accounts --------------------------------------------------------------------------------------

    def look(self, groups: Iterable[Group] | None = None) -> None:
        """Bring the accounts up to date with all changes of the cluster, or with these groups."""
        if groups is None:
            news = self._cluster.news
            groups = chain(news.removed, news.groups)
        for group in groups:
            self._note(group)
        stopping = self._held()
        for who in {**self._dirty, **self._stopping, **stopping}:
            account = self._accounts.get(who)
            if account is None:
                continue
            held = stopping.get(who) or [0] * len(account.limit)
            limits = zip(account.limit, account.used, held, strict=True)
            account.left = [most - used - stops for (_, most), used, stops in limits]
            account.kept = account.awaited(held) if who in stopping else None
            if (account.left, account.kept) != account.sent:
                account.sent = list(account.left), account.kept
                self._restated[who] = None
        self._stopping = stopping
        self._dirty.clear()

    def restate(self, group: Group) -> None:
        """Mark all groups of this one's claimants for the next update."""
        self._restated.update(dict.fromkeys(self._owners(group.job)))

    def restated(self) -> list[Group]:
        """Return the groups whose number of tasks that may start has changed since the last call, in order of serials."""
        some = [self._accounts[who].groups for who in self._restated if who in self._accounts]
        self._restated.clear()
        return sorted(dict.fromkeys(chain.from_iterable(some)), key=lambda group: group.serial)

    def _note(self, group: Group) -> None:
        """Bring the running tasks of a group up to date."""
        for who in self._owners(group.job):
            self._note_in(who, group)

    def _note_in(self, who: Hashable, group: Group) -> None:
        account = self._accounts.get(who)
        if account is None:
            limit = self._limits.get(who, self._default)
            if not (limit and group.tasks):
                return
            account = self._accounts[who] = _Account(limit, [0] * len(limit), [most for _, most in limit])
            self._dirty[who] = None
        running = group.tasks - len(group.waiting)
        more = running - account.groups.pop(group, 0)
        if group.tasks:
            account.groups[group] = running
        elif not account.groups:
            del self._accounts[who]
            return
        if more:
            self._dirty[who] = None
            demand = group.cls.demand
            account.used = [
                used + more * int(demand[d]) for used, (d, _) in zip(account.used, account.limit, strict=True)
            ]

    def _held(self) -> dict[Hashable, list[int]]:
        """Return the amounts that stopping runs of each claimant hold."""
        held: dict[Hashable, list[int]] = {}
        for run, stop in self._cluster.stopping.items():
            task = self._cluster.tasks.get(stop.task)
            owners: tuple[Hashable, ...] = ()
            if stop.owner:
                owners = (stop.owner[self._by_user], *self._shared)
            elif task is not None and task.run >= run:  # else it is another task of that name
                owners = self._owners(task.group.job)
            for who in owners:
                self._add(held, who, stop.demand)
        return held

    def _add(self, amounts: dict[Hashable, list[int]], who: Hashable, demand: Iterable[int], sign: int = 1) -> None:
        """Add a task's demand to its claimant's amounts, if the claimant has a quota."""
        limit = self._limits.get(who, self._default)
        if limit:
            asked = list(demand)
            known = amounts.get(who) or [0] * len(limit)
            amounts[who] = [a + sign * int(asked[d]) for a, (d, _) in zip(known, limit, strict=True)]

    # -- questions ----------------------------------------------------------------------------------------------

    def most(self, group: Group, gone: Mapping[Group, int] = MappingProxyType({})) -> int:
        """Return the number of tasks of a group that may start if no others do; `UNLIMITED` without a limit.

        Parameters
        ----------
        group : Group
        gone : mapping of Group to int
            Tasks that stop first.
        """
        most = UNLIMITED
        for account in self._accounts_of(group):
            stops = [(other, count) for other, count in gone.items() if other in account.groups]
            most = min(most, account.fits(group, account.left_for(group), stops))
        return most

    def most_instead(self, group: Group) -> int:
        """Return the number of tasks of a group that may start if all of its claimants' tasks of worse priority stop."""
        most = UNLIMITED
        for account in self._accounts_of(group):
            worse = [(g, n) for g, n in account.groups.items() if n and g.cls.priority > group.cls.priority]
            most = min(most, account.fits(group, account.left_for(group), worse))
        return most

    def contested(self) -> Iterator[tuple[list[Group], list[JobRecord]]]:
        """Yield a claimant's waiting groups with running ones of worse priority, and its running jobs.

        A claimant waits until its stopping runs have stopped, so that no task stops in vain.
        """
        for who, account in self._accounts.items():
            running = [group for group, count in account.groups.items() if count]
            worst = max((group.cls.priority for group in running), default=-inf)
            better = [group for group in account.groups if group.waiting and group.cls.priority < worst]
            if better and who not in self._stopping:
                yield better, list(dict.fromkeys(group.job for group in running))

    def short(self, group: Group) -> list[str]:
        """Return the resources that are too short for one more task of a group, or for its gang."""
        names, job, found = self._cluster.resources.names, group.job, dict[str, None]()
        for account in self._accounts_of(group):
            asked = [int(group.cls.demand[d]) for d, _ in account.limit]
            if missing := job.lacks:
                for i, (d, _) in enumerate(account.limit):  # the missing tasks of least demand
                    each = sorted(int(task.group.cls.demand[d]) for task in job.tasks if task.row < 0)
                    asked[i] = max(asked[i], sum(each[:missing]))
            lacks = zip(account.limit, account.left_for(group), asked, strict=True)
            found |= dict.fromkeys(names[d] for (d, _), left, need in lacks if need and need > left)
        return list(found)

    def blocked(self) -> dict[Group, None]:
        """Return the groups that have waiting tasks and may start none of them."""
        groups = chain.from_iterable(account.groups for account in self._accounts.values())
        return dict.fromkeys(group for group in groups if group.waiting and not self.most(group))

    def claiming(self, without: Mapping[Group, None], displacing: bool) -> Iterator[tuple[Group, int]]:
        """Yield the groups whose waiting tasks do not all fit within quotas, each with the number that fits.

        The rest goes to the claimant's tasks by priority and arrival.

        Parameters
        ----------
        without : mapping of Group
            Groups that get none of it.
        displacing : bool
            True if better tasks may use the amounts of worse running ones.
        """
        for account in self._accounts.values():
            left = list(account.left)
            waiting = [group for group in account.groups if group.waiting and group not in without]
            running = [(group, count) for group, count in account.groups.items() if count and displacing]
            for group in sorted(waiting, key=_standing):
                worse = [(other, n) for other, n in running if other.cls.priority > group.cls.priority]
                some = min(len(group.waiting), account.fits(group, left, worse))
                left = [a - some * int(group.cls.demand[d]) for a, (d, _) in zip(left, account.limit, strict=True)]
                if some < len(group.waiting):
                    yield group, some

    def exceeded(self, moves: Mapping[TaskRecord, Before], graceful: bool) -> str | None:
        """Return a resource of which moves since the last `look` take more than a claimant had left, or None.

        Parameters
        ----------
        moves : mapping of TaskRecord to Before
            Tasks that have moved.
        graceful : bool
            True if tasks that they stop still count.
        """
        more: dict[Hashable, list[int]] = {}
        for task, before in moves.items():
            ran, runs = before.place is not None, task.row >= 0
            if ran != runs and not (ran and graceful):
                for who in self._owners(task.group.job):
                    self._add(more, who, task.group.cls.demand.tolist(), 1 if runs else -1)
        for who, amounts in more.items():
            account = self._accounts[who]
            for (d, _), left, asked in zip(account.limit, account.left, amounts, strict=True):
                if asked > max(left, 0):
                    return self._cluster.resources.names[d]
        return None

    def overdrawn(self, group: Group, moves: Mapping[TaskRecord, Before]) -> bool:
        """Return True if a task of a group uses a resource that is short while tasks stopped by moves still count."""
        stopped: dict[Hashable, list[int]] = {}
        owners = self._owners(group.job)
        for task, before in moves.items():
            if before.place is not None and task.row < 0:
                for who in self._owners(task.group.job):
                    if who in owners:
                        self._add(stopped, who, task.group.cls.demand.tolist())
        for who, amounts in stopped.items():
            account = self._accounts.get(who)
            if account is not None:
                lacks = zip(account.limit, account.left, amounts, strict=True)
                if any(left < held and int(group.cls.demand[d]) for (d, _), left, held in lacks):
                    return True
        return False

    # -- within a pass ------------------------------------------------------------------------------------------

    def take(self, group: Group, units: int) -> int:
        """Take the amounts of `units` tasks of a group, or of as many as fit; return their number."""
        some = min(units, self.most(group))
        self._change(group, some)
        return some

    def charge(self, group: Group) -> None:
        """Take the amounts of one task of a group before its victims give theirs back."""
        self._change(group, 1)

    def give_back(self, group: Group) -> None:
        """Give back the amounts of one task of a group."""
        self._change(group, -1)

    def _change(self, group: Group, units: int) -> None:
        for who in self._owners(group.job):
            account = self._accounts.get(who)
            if account is not None and units:
                self._dirty[who] = None
                demand = group.cls.demand
                account.left = [
                    left - units * int(demand[d]) for left, (d, _) in zip(account.left, account.limit, strict=True)
                ]
