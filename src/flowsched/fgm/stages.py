"""From demand by progress to a few stages of constant demand.

Source: M.-S. Zhou, X.-S. Dong, H. Chen and X.-J. Zhang, "Dynamically Fine-grained Scheduling
Method in Cloud Environment", Journal of Software 31(12), 2020 (FGM),
section 2.2 and Fig. 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowsched.boundary.validate import amounts, numbers, part
from flowsched.exceptions import InputError
from flowsched.fgm.estimate import Profile

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """Needs of a task, one stage after the other.

    Parameters
    ----------
    seconds : array_like, shape (stages,)
        Duration of each stage without compression; the last one may be infinite.
    demand : array_like, shape (stages, resources)
        In the caller's units.
    progress : array_like, shape (stages,), optional
        Progress at the end of each stage, the last 1; by default the fraction of the time.
    """

    seconds: Floats
    demand: Floats
    progress: Floats

    def __init__(self, seconds: ArrayLike, demand: ArrayLike, progress: ArrayLike | None = None) -> None:
        length = numbers("stages: seconds", seconds).reshape(-1)
        wants = amounts("stages: demand", demand)
        if not len(length) or wants.ndim != 2 or len(wants) != len(length):
            raise InputError(f"stages: as many demands as lengths expected, got {wants.shape} and {length.shape}")
        if np.isnan(length).any() or (length < 0).any() or not np.isfinite(length[:-1]).all():
            raise InputError("stages: seconds: numbers >= 0, all but the last one finite, expected")
        if progress is None:
            ends = np.cumsum(length)
            done = ends / ends[-1] if 0 < ends[-1] < np.inf else np.arange(1, len(length) + 1) / len(length)
        else:
            done = amounts("stages: progress", progress, 1)
            if done.shape != length.shape or done[-1] != 1 or (np.diff(done) < 0).any():
                raise InputError("stages: progress must ascend to 1, one value per stage")
        object.__setattr__(self, "seconds", length)
        object.__setattr__(self, "demand", wants)
        object.__setattr__(self, "progress", done)

    def __len__(self) -> int:
        """Number of stages."""
        return len(self.seconds)

    @property
    def duration(self) -> float:
        """Seconds from start to end, without compression."""
        return float(self.seconds.sum())

    @property
    def peak(self) -> Floats:
        """Largest demand of each resource."""
        peak: Floats = self.demand.max(axis=0)
        return peak

    def coarse(self) -> Stages:
        """Return one stage of the whole duration with the peak demands."""
        return Stages([self.duration], self.peak[None, :])


def divide_stages(
    demand: ArrayLike | Profile, *, thresholds: ArrayLike, min_length: float = 0.05, seconds: ArrayLike | None = None
) -> Stages:
    """Divide the needs of a task into stages.

    The walk goes from point to point.  A stage that is long enough is closed before a point that would make a resource
    vary by its threshold or more within the stage.  The demand of a stage is the largest of its points.

    Parameters
    ----------
    demand : array_like, shape (points, resources), or Profile
        By progress, in equal steps.
    thresholds : array_like, shape (resources,) or scalar
        In the units of the demand; infinity never divides.
    min_length : float
        Least length of a closed stage, as a fraction of the whole; the last stage may be shorter.
    seconds : array_like, shape (points,) or scalar, optional
        Time at each point, or in all; that of the profile, else 1 in all.

    Examples
    --------
    >>> stages = divide_stages([[1.0], [1.1], [3.0], [3.1]], thresholds=0.5, seconds=8)
    >>> stages.seconds, stages.demand[:, 0], stages.progress
    (array([4., 4.]), array([1.1, 3.1]), array([0.5, 1. ]))
    """
    if isinstance(demand, Profile):
        seconds = demand.seconds if seconds is None else seconds
        demand = demand.demand
    points = amounts("divide_stages: demand", demand)
    if points.ndim != 2 or not len(points):
        raise InputError(f"divide_stages: demand: shape (points, resources) expected, got {points.shape}")
    count, d = points.shape
    limit = numbers("divide_stages: thresholds", thresholds)
    if limit.shape not in ((), (d,)) or np.isnan(limit).any() or (limit < 0).any():
        raise InputError(f"divide_stages: thresholds: {d} numbers >= 0 or one expected, got {thresholds!r}")
    least = max(1, round(part("divide_stages: min_length", min_length) * count))
    time = amounts("divide_stages: seconds", 1.0 if seconds is None else seconds, np.inf)
    if time.shape not in ((), (count,)):
        raise InputError(f"divide_stages: seconds: {count} numbers or one expected, got {time.shape}")
    time = np.full(count, float(time) / count) if time.ndim == 0 else time
    starts, low, high = [0], points[0], points[0]
    peaks = []
    for i in range(1, count):
        lower, higher = np.minimum(low, points[i]), np.maximum(high, points[i])
        if i - starts[-1] >= least and (higher - lower >= limit).any() and (lower < higher).any():
            peaks.append(high)
            starts.append(i)
            low = high = points[i]
        else:
            low, high = lower, higher
    ends = [*starts[1:], count]
    return Stages(np.add.reduceat(time, starts), np.array([*peaks, high]), np.array(ends) / count)
