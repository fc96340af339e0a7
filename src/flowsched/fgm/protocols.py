"""What costs and shares by stages need to know, so that they need not import the adapter that knows it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster
from flowsched.fgm.forecast import Forecast

__all__ = ["StageKnowledge"]


class StageKnowledge(Protocol):
    """The part of `flowsched.fgm.FineGrained` that its costs and shares go by."""

    scheduler: Any
    forecast: Forecast

    @property
    def cluster(self) -> Cluster: ...
    @property
    def now(self) -> float: ...
    def first_demand(self, cls: int) -> NDArray[np.float64]: ...
