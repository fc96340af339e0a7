"""Fair shares of batch jobs (HRM, section 4.5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowsched.exceptions import InputError


def fair_shares(open_tasks: ArrayLike | Sequence[int], units: int) -> NDArray[np.int64]:
    """Divide Q units among K jobs: floor(min(Q / K, N_j)) each, and spare units evenly to jobs that want more.

    The shares sum to min(Q, sum N_j).  Units left after the last even division go, one each, to the first jobs that want
    more.

    Parameters
    ----------
    open_tasks : array_like of int, shape (K,)
        Tasks that each job could run, N_j.
    units : int
        Q.

    Returns
    -------
    ndarray of int64, shape (K,)

    Raises
    ------
    InputError
        A number is negative or not whole.
    """
    wanted = np.asarray(open_tasks)
    if wanted.ndim != 1 or (wanted.size and (wanted.dtype.kind not in "iu" or wanted.min() < 0)):
        raise InputError(f"open_tasks: whole numbers >= 0 expected, got {open_tasks!r}")
    if isinstance(units, bool) or not isinstance(units, int | np.integer) or units < 0:
        raise InputError(f"units: a whole number >= 0 expected, got {units!r}")
    wanted = wanted.astype(np.int64)
    share = np.zeros(len(wanted), np.int64)
    spare = min(int(units), int(wanted.sum()))
    while spare:
        hungry = np.flatnonzero(share < wanted)
        each = spare // len(hungry)
        given = np.minimum(each, wanted[hungry] - share[hungry]) if each else np.arange(len(hungry)) < spare
        share[hungry] += given
        spare -= int(given.sum())
    return share
