"""What a placement costs by stages: the compression that it takes, and the fragmentation that it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import MICRO, Cluster
from flowsched.policy.placement import check_weight

if TYPE_CHECKING:
    from flowsched.fgm.adapter import FineGrained

__all__ = ["StageCost"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class StageCost:
    """A `PlacementCost` by what machines have left in their present stage.

    The mean of two parts: the compression that results, as a part of the limit, and how unevenly the resources would be
    used up (the largest less the smallest part left), since what is left of one without another is of little use.

    Parameters
    ----------
    fine : FineGrained
    weight : float
    """

    def __init__(self, fine: FineGrained, weight: float = 1.0) -> None:
        check_weight("StageCost: weight", weight)
        self._fine = fine
        self.weight = weight

    def __call__(self, cluster: Cluster, classes: Ints, rows: Ints) -> Floats:
        """Cost in [0, 1], shape (classes, rows)."""
        lines = self._fine.futures.timelines
        total = cluster.books.capacity[rows].astype(np.float64)
        counted = np.ones(total.shape[1], np.bool_)
        if cluster.resources.device_index >= 0:
            counted[cluster.resources.device_index] = False
        demand = np.array([self._fine.first_demand(index) for index in classes.tolist()]).reshape(len(classes), -1)
        left = lines.available[rows, lines.present(rows, self._fine.now)].astype(np.float64)
        after = (left[None] - demand[:, None] * MICRO) / np.maximum(total, 1.0)
        limit = np.where(lines.limit > 0, lines.limit, 1.0)
        squeezed = np.clip(-after / limit, 0.0, 1.0) * (lines.limit > 0)
        uneven = after[:, :, counted].max(axis=2) - after[:, :, counted].min(axis=2)
        cost: Floats = (squeezed.max(axis=2) + np.clip(uneven, 0.0, 1.0)) / 2
        return cost
