"""Quality of service: whether deadlines still hold under compression.

Source: M.-S. Zhou, X.-S. Dong, H. Chen and X.-J. Zhang, "Dynamically Fine-grained Scheduling
Method in Cloud Environment", Journal of Software 31(12), 2020 (FGM),
section 2.3 and equation (15).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowsched.boundary.validate import numbers
from flowsched.exceptions import InputError

__all__ = ["missed", "theoretical_duration"]

_SLACK = 1e-6
"""Times that differ by less are equal."""


def theoretical_duration(seconds: ArrayLike, compression: ArrayLike) -> float:
    """Duration (15) of a task whose stages are compressed: sum of D_i / (1 - r_ci).

    Parameters
    ----------
    seconds : array_like, shape (stages,)
        Uncompressed.
    compression : array_like, shape (stages,) or (stages, resources)
        Rate from 0 to below 1; of several resources the largest counts.

    Examples
    --------
    >>> round(theoretical_duration([1, 3], [[0.2 / 4.2, 0], [0, 0]]), 6)
    4.05
    """
    length = numbers("theoretical_duration: seconds", seconds)
    rate = numbers("theoretical_duration: compression", compression)
    rate = rate.max(axis=1) if rate.ndim == 2 else rate
    if length.shape != rate.shape or not ((rate >= 0) & (rate < 1)).all() or not (length >= 0).all():
        raise InputError("theoretical_duration: a length >= 0 and a rate from 0 to below 1 for each stage expected")
    return float((length / (1.0 - rate)).sum())


def missed(
    finish: NDArray[np.float64], uncompressed: NDArray[np.float64], deadline: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Find the tasks that would miss their deadline because of compression.

    Parameters
    ----------
    finish, uncompressed : ndarray of float64, shape (tasks,)
        Time when each task will be done as planned, and without any compression from now on.
    deadline : ndarray of float64, shape (tasks,)
        Infinite for none.

    Returns
    -------
    ndarray of bool, shape (tasks,)
        Never true for a task that compression does not delay, however late it is.
    """
    late: NDArray[np.bool_] = (finish > deadline + _SLACK) & (finish > uncompressed + _SLACK)
    return late
