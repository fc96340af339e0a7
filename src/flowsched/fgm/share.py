"""Fair shares of what really fits: a provider for `flowsched.policy.Fairness` under FGM.

Other providers deal out what the machines have by what tasks ask for, which is less than fits when tasks need less than
they ask for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowsched.policy.fairness import DRF, Claims, ShareProvider

if TYPE_CHECKING:
    from flowsched.fgm.adapter import FineGrained

__all__ = ["StageShare"]


class StageShare:
    """Another provider's shares, of a cluster that holds what runs and what still fits beside it.

    Parameters
    ----------
    fine : FineGrained
    share : ShareProvider, optional
        By default dominant resource fairness.
    """

    def __init__(self, fine: FineGrained, share: ShareProvider | None = None) -> None:
        self._fine = fine
        self._share = DRF() if share is None else share

    def __call__(self, claims: Claims) -> NDArray[np.int64]:
        """See `flowsched.policy.ShareProvider`."""
        books, lines = self._fine.cluster.books, self._fine.futures.timelines
        rows = np.flatnonzero(books.usable[: books.rows])
        self._fine.look(rows)
        total = books.capacity[rows].sum(axis=0).astype(np.float64)
        asked = (books.capacity[rows] - books.free[rows]).sum(axis=0).astype(np.float64)
        left = lines.available[rows, lines.present(rows, self._fine.now)].astype(np.float64)
        used = total - left.sum(axis=0)
        # What is left counts by what tasks ask for, in proportion to what those that run ask for and need.
        rate = np.divide(asked, used, out=np.ones_like(used), where=(used > 0) & (asked > 0)).clip(1.0, 10.0)
        scale = np.divide(
            asked + np.maximum(left, 0.0).sum(axis=0) * rate, total, out=np.ones_like(total), where=total > 0
        )
        scale = np.maximum(scale, 1e-3)
        # A provider that does not look at resources goes by the number of tasks.
        units = max(1, int(claims.units * scale.min(initial=np.inf, where=total > 0))) if len(rows) else claims.units
        grown = np.append(scale, np.ones(len(claims.capacity) - len(scale)))  # slots
        return self._share(replace(claims, units=units, capacity=claims.capacity * grown))
