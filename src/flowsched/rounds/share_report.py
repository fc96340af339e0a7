"""Shares of a round: entitlements and what came of them, worked out when asked for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.records import JobRecord
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
        Tasks that each is entitled to, and tasks that run once the round is committed.
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
        """Return the tasks lent and borrowed: by the provider's accounts, or else those on the parts of others now."""
        if self._balance is not None:
            return np.maximum(self._balance, 0), np.maximum(-self._balance, 0)
        part = self.fairness.part(self.claims)
        borrowed = np.maximum(self._running - part, 0)
        unused = np.maximum(part - self._running, 0)
        return water_fill(int(borrowed.sum()), unused, unused), borrowed

    def book(self, started: Iterable[JobRecord]) -> None:
        """Tell the provider, if it keeps accounts, how many tasks of each claimant started."""
        committed = getattr(self.fairness.share, "committed", None)
        if committed is None:
            return
        index = {one: i for i, one in enumerate(self.claims.ids)}
        counts = np.zeros(len(self.claims.ids), np.int64)
        for job in started:
            i = index.get(job.job.id if self.fairness.over == "job" else job.job.user)
            if i is not None:
                counts[i] += 1
        committed(self.claims, counts)
