"""Fair shares of the capacity by actual needs: a provider for `flowsched.policy.Fairness` under FGM.

Other providers divide the machines' capacity by the requests of tasks.  Where tasks need less, more of them fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.records import Group
from flowsched.fgm.protocols import StageKnowledge
from flowsched.policy.providers import DRF, Claims, Remaining, ShareProvider

Floats = NDArray[np.float64]

SAMPLE = 1024
"""Approximate size of the sample of machines."""


class StageShare:
    """Another provider's shares, granted in steps of the waiting tasks that still fit in addition to the running tasks.

    The step is computed from the number of waiting tasks that the machines could take by stages, in their present
    mixture.  Other tasks may start instead, so each step grants half of that number.  Shares that exceed the fitting
    tasks would have no effect: a user ahead of its share could start more, and age would decide.  Shares are fractions
    of the machines' capacity, even if more fits.

    Parameters
    ----------
    fine : FineGrained
    share : ShareProvider, optional
        By default dominant resource fairness over the capacity that users beyond their share leave to the others.

    Attributes
    ----------
    gradual : bool
        See `flowsched.policy.ShareProvider`.
    """

    gradual = True

    def __init__(self, fine: StageKnowledge, share: ShareProvider | None = None) -> None:
        self._fine = fine
        self.share = Remaining(DRF()) if share is None else share

    def __deepcopy__(self, memo: dict[int, Any]) -> StageShare:
        return StageShare(self._fine, deepcopy(self.share, memo))

    def __call__(self, claims: Claims) -> NDArray[np.int64]:
        """See `flowsched.policy.ShareProvider`."""
        count, amounts = self._portion()
        held = claims.running @ claims.demand if claims.held is None else claims.held.sum(axis=0)
        held[: len(amounts)] += amounts  # slots are beyond
        most = np.divide(held, claims.capacity, out=np.ones(len(held)), where=claims.capacity > 0)
        most[len(amounts) :] = 1.0
        if claims.most is not None:
            np.minimum(most, claims.most, out=most)
        # A provider that does not look at resources uses the number of tasks.
        units = int(claims.running.sum()) + max(1, int(count))
        return self.share(replace(claims, units=units, most=most))

    def _portion(self) -> tuple[float, Floats]:
        """Return half the number of tasks that still fit, and their request, shape (resources,): at least one task's."""
        cluster = self._fine.cluster
        counts = {cls.index: self._count(groups) for cls, groups in cluster.waiting.items()}
        counts = {cls: waiting for cls, waiting in counts.items() if waiting}
        classes, waiting = np.array(list(counts), np.int64), np.array(list(counts.values()), np.float64)
        demand = cluster.inventory.demand[classes].astype(np.float64)
        if not len(classes):
            return 0.0, np.zeros(demand.shape[1])
        # Where room has come with the passing of time alone, a round looks at a sample of the machines.
        offers = self._fine.offers(classes)
        open_ = offers[:, offers.any(axis=0)]
        fit = open_[:, :: -(-open_.shape[1] // SAMPLE) or 1].astype(np.float64)
        # A machine takes the classes that fit there, each in proportion to its number of waiting tasks: n in all, with
        # sum of part_c n / fit_c = 1.
        part = (fit > 0) * waiting[:, None]
        part /= np.maximum(part.sum(axis=0), 1e-12)
        each = (part / np.maximum(fit, 1.0)).sum(axis=0)
        count = (part @ (1.0 / each)) * (open_.shape[1] / max(fit.shape[1], 1) / 2)
        # A mixture may have less of a resource than one task of those that fit; at least that one may start.
        return float(count.sum()), np.maximum(count @ demand, demand[fit.any(axis=1)].max(axis=0, initial=0))

    def _count(self, groups: Iterable[Group]) -> int:
        """Count the tasks that wait and may start; those of a gang that has been left out may not."""
        out = self._fine.left_out
        return sum(len(group.waiting) for group in groups if group not in out)
