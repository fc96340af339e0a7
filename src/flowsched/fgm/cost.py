"""Cost of a placement by stages: the compression that it takes, and the fragmentation that it leaves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import MICRO, Cluster
from flowsched.fgm.protocols import StageKnowledge
from flowsched.policy.placement import check_weight

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_LEAST = 1e-200
"""Limits of compression up to this count as none: their inverses may not be finite."""


class StageCost:
    """A `PlacementCost` by the free amounts of machines in their present stage.

    The mean of two parts.  The first one is the resulting compression, as a fraction of its limit.  The second one is
    the unevenness of the remaining free amounts: the largest free fraction of a resource less the smallest one, since
    one resource without another is of little use.
    """

    def __init__(self, fine: StageKnowledge, weight: float = 1.0) -> None:
        check_weight("StageCost: weight", weight)
        self._fine = fine
        self.weight = weight

    def __call__(self, cluster: Cluster, classes: Ints, rows: Ints) -> Floats:
        """Cost in [0, 1], shape (classes, rows)."""
        lines, device = self._fine.forecast.timelines, cluster.resources.device_index
        demand = np.array([self._fine.first_demand(index) for index in classes.tolist()]).reshape(len(classes), -1)
        left = lines.available[rows, lines.present(rows, self._fine.now)]
        shape = len(classes), len(rows)
        squeezed, most, least = np.zeros(shape), np.full(shape, -np.inf), np.full(shape, np.inf)
        for d, limit in enumerate(lines.limit.tolist()):
            total = cluster.inventory.capacity[rows, d]
            scale = 1.0 / np.maximum(total, 1)
            after = (left[:, d] * scale)[None] - (demand[:, d] * MICRO)[:, None] * scale
            if limit > _LEAST:
                np.maximum(squeezed, after * (-1.0 / limit), out=squeezed)
            if d != device:
                np.maximum(most, after, out=most, where=total > 0)
                np.minimum(least, after, out=least, where=total > 0)
        uneven = np.clip(most - least, 0.0, 1.0)
        cost: Floats = (np.minimum(squeezed, 1.0) + uneven) / 2
        return cost
