"""Parts of resources that claims take, compiled; see `flowsched.policy.claims`."""

from libc.math cimport INFINITY, floor
from libc.stdint cimport int64_t

from flowsched.cluster._room cimport UNLIMITED

import numpy as np


def parts(const double[:, :] amounts not None, const double[:] capacity not None, /):
    """Return amounts as parts of the capacity; an amount of a resource without any is infinite."""
    cdef Py_ssize_t i, d
    found = np.empty((amounts.shape[0], amounts.shape[1]))
    cdef double[:, ::1] out = found
    if capacity.shape[0] != amounts.shape[1]:
        raise ValueError("parts: capacities of other resources")
    for i in range(amounts.shape[0]):
        for d in range(amounts.shape[1]):
            out[i, d] = amounts[i, d] / capacity[d] if capacity[d] > 0 else INFINITY if amounts[i, d] > 0 else 0.0
    return found


def together(const int64_t[:] tasks not None, const int64_t[:] running not None, const double[:, :] parts not None, /):
    """Return the number of tasks of mean size that run at once; see `Claims.together`."""
    cdef Py_ssize_t i, d, n = tasks.shape[0]
    cdef int64_t count = 0, some
    cdef double load = 0.0, units, most
    cdef double[::1] sums = np.zeros(parts.shape[1])
    if not n == running.shape[0] == parts.shape[0]:
        raise ValueError("together: arrays of different lengths")
    for i in range(n):
        most = 0.0
        for d in range(parts.shape[1]):
            most = max(most, parts[i, d])
        # as `Claims.alone`
        some = min(tasks[i], max(<int64_t> floor(min(1.0 / max(most, 1.0 / UNLIMITED) + 1e-6, <double> UNLIMITED)), running[i]))
        count += some
        for d in range(parts.shape[1]):
            if some > 0:
                sums[d] += some * parts[i, d]
    for d in range(sums.shape[0]):
        load = max(load, sums[d])
    units = count / load + 1e-6 if load > 0 else <double> UNLIMITED
    return UNLIMITED if units >= UNLIMITED else <int64_t> units
