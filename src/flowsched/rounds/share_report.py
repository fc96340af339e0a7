"""Shares of a round: entitlements and results, worked out on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.records import Group
from flowsched.policy.fairness import Fairness
from flowsched.policy.providers import Claims
from flowsched.rounds.values import Share
from flowsched.sharing.waterfill import water_fill

__all__ = ["ShareReport"]

Ints = NDArray[np.int64]


class ShareReport(Mapping[Hashable, Share]):
    """Shares by claimant.

    Parameters
    ----------
    fairness : Fairness
    claims : Claims
    share, running : ndarray of int64, shape (claimants,)
        Tasks that each claimant is entitled to, and running tasks after the commit of the round.
    """

    def __init__(self, fairness: Fairness, claims: Claims, share: Ints, running: Ints) -> None:
        self.fairness = fairness
        self.claims = claims
        self._share, self._running = share, running
        balance = getattr(fairness.share, "balance", None)
        self._balance: Ints | None = None if balance is None else balance(claims)
        self._index: dict[Hashable, int] | None = None
        self._loans: tuple[Ints, Ints] | None = None

    def __len__(self) -> int:
        return len(self.claims.ids)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.claims.ids)

    def __getitem__(self, claimant: Hashable) -> Share:
        if self._index is None or self._loans is None:
            self._index = {one: i for i, one in enumerate(self.claims.ids)}
            self._loans = self._lent_and_borrowed()
        i = self._index[claimant]
        entitled, running = int(self._share[i]), int(self._running[i])
        lent, borrowed = (int(loans[i]) for loans in self._loans)
        return Share(entitled, running, max(0, entitled - running), lent, borrowed)

    def __repr__(self) -> str:
        return f"<shares of {len(self)}>"

    def _lent_and_borrowed(self) -> tuple[Ints, Ints]:
        """Return the tasks lent and borrowed, by the provider's accounts or by present use of the parts of others."""
        if self._balance is not None:
            return np.maximum(self._balance, 0), np.maximum(-self._balance, 0)
        part = self.fairness.part(self.claims)
        borrowed = np.maximum(self._running - part, 0)
        unused = np.maximum(part - self._running, 0)
        return water_fill(int(borrowed.sum()), unused, unused), borrowed

    def book(self, started: Iterable[Group], stopped: Iterable[Group]) -> None:
        """Report the started and stopped tasks of each claimant, by their groups, to a provider that keeps accounts."""
        committed = getattr(self.fairness.share, "committed", None)
        if committed is None:
            return
        index = {one: i for i, one in enumerate(self.claims.ids)}
        counts, booked = np.zeros(len(index), np.int64), np.zeros(len(index))
        starts, stops = Counter(started), Counter(stopped)
        for group, count in chain(starts.items(), ((group, -count) for group, count in stops.items())):
            i = index.get(group.job.job.id if self.fairness.over == "job" else group.job.job.user)
            if i is not None:
                counts[i] += max(count, 0)
                booked[i] += count * self.claims.part_of(group.cls.demand)
        committed(replace(self.claims, booked=booked), counts)
