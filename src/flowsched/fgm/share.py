"""Fair shares of what really fits: a provider for `flowsched.policy.Fairness` under FGM.

Other providers deal out what the machines have by what tasks ask for, which is less than fits when tasks need less than
they ask for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.records import Group
from flowsched.policy.providers import DRF, Claims, Remaining, ShareProvider
from flowsched.scheduler import Scheduler

if TYPE_CHECKING:
    from flowsched.fgm.adapter import FineGrained

__all__ = ["StageShare"]

Floats = NDArray[np.float64]

SAMPLE = 1024
"""Of more machines, about so many tell what still fits."""


class StageShare:
    """Another provider's shares, of a cluster that holds what runs and what still fits beside it.

    What still fits is what the machines could take, by stages, of those that wait, mixed as they wait.  Anything more
    would leave shares without force: whoever is ahead could start more, and age would decide.

    Parameters
    ----------
    fine : FineGrained
    share : ShareProvider, optional
        By default dominant resource fairness, of what those leave who run more than their share.
    """

    def __init__(self, fine: FineGrained, share: ShareProvider | None = None) -> None:
        self._fine = fine
        self._share = Remaining(DRF()) if share is None else share

    def __call__(self, claims: Claims) -> NDArray[np.int64]:
        """See `flowsched.policy.ShareProvider`."""
        books = self._fine.cluster.books
        rows = np.flatnonzero(books.usable[: books.rows])
        if not len(rows):
            return self._share(claims)
        total = books.capacity[rows].sum(axis=0).astype(np.float64)
        asked = (books.capacity[rows] - books.free[rows]).sum(axis=0) + self._more(rows)
        # What nobody has, nobody asks for: it limits nothing.
        scale = np.divide(asked, total, out=np.ones_like(total), where=total > 0).clip(1e-3)
        # A provider that does not look at resources goes by the number of tasks.
        units = max(1, int(claims.units * scale.min(initial=np.inf, where=total > 0)))
        grown = np.append(scale, np.ones(len(claims.capacity) - len(scale)))  # slots
        return self._share(replace(claims, units=units, capacity=claims.capacity * grown))

    def _more(self, rows: NDArray[np.int64]) -> Floats:
        """What those that still fit ask for, shape (resources,)."""
        cluster = self._fine.cluster
        count = {cls.index: self._count(groups) for cls, groups in cluster.waiting.items()}
        count = {cls: waiting for cls, waiting in count.items() if waiting}
        if not count:
            return np.zeros(cluster.books.demand.shape[1])
        classes, waiting = np.array(list(count), np.int64), np.array(list(count.values()), np.float64)
        some = rows[:: -(-len(rows) // SAMPLE)]
        fit = cluster.books.room(classes, some)[0].astype(np.float64)
        # A machine takes those classes that fit there, each in proportion to how many wait: n of all with
        # sum of part_c n / fit_c = 1.
        part = (fit > 0) * waiting[:, None]
        part /= np.maximum(part.sum(axis=0), 1e-12)
        each = (part / np.maximum(fit, 1.0)).sum(axis=0)
        most = np.divide(1.0, each, out=np.zeros_like(each), where=each > 0)
        demand = cluster.books.demand[classes]
        mixed = (part @ most) @ demand * (len(rows) / len(some))
        # A mixture may have less of a resource than one task of those that fit; at least that one may start.
        amounts: Floats = np.maximum(mixed, demand[fit.any(axis=1)].max(axis=0, initial=0))
        return amounts

    def _count(self, groups: Iterable[Group]) -> int:
        """How many of these wait and may start; a gang that has been left out may not."""
        scheduler = self._fine.scheduler
        out = scheduler.builder.left_out if isinstance(scheduler, Scheduler) else ()
        return sum(len(group.waiting) for group in groups if group not in out)
