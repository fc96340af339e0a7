"""Fault points: where the kernels allocate an array, and where they check for signals.

Built with FLOWSCHED_FAULTS=1 they are counted, `fail_at` makes one of them fail, and signals are checked for after little work; tests/hostile walks through
them all.  Otherwise they cost nothing.
"""

import numpy as np

FS_FUEL = 25 if FS_FAULTS else 1000000
FS_LONG = 2 * FS_FUEL

cdef int64_t allocations = 0, looks = 0     # so far
cdef int64_t allocation = 0, look = 0       # those that fail, from 1


cdef int count_allocation() except -1:
    """Count an allocation; it may be the one that fails."""
    global allocations
    allocations += 1
    if allocations == allocation:
        raise MemoryError
    return 0


cdef int count_look() except -1:
    """Count a check for signals; it may be the one that fails."""
    global looks
    looks += 1
    if looks == look:
        raise KeyboardInterrupt
    return PyErr_CheckSignals()


def fail_at(int64_t which_allocation, int64_t which_look, /):
    """Make an allocation and a check for signals fail.

    Parameters
    ----------
    which_allocation, which_look : int
        Their numbers from now on, from 1; 0 for none.

    Returns
    -------
    tuple of int or None
        Numbers of both since the last call; None in a build without fault points.
    """
    global allocations, allocation, looks, look
    if not FS_FAULTS:
        return None
    counts = allocations, looks
    allocations = looks = 0
    allocation, look = which_allocation, which_look
    return counts


def look_every(int64_t work, int64_t simplex=0, /):
    """Set the number of half-arcs that solves scan between two checks of the clock and signals, for tests; return the former number.

    Parameters
    ----------
    work : int
    simplex : int
        The number for the network simplex; 0 for twice `work`.
    """
    global FS_FUEL, FS_LONG
    before, FS_FUEL, FS_LONG = FS_FUEL, work, simplex or 2 * work
    return before


cdef object _empty(int64_t size, kind):
    """A vector that is not initialised."""
    fs_allocate()
    return np.empty(size, kind)


cdef object _zeros(int64_t size, kind):
    """A vector of zeros, or of records of zeros."""
    fs_allocate()
    return np.zeros(size, kind)


cdef object _copy(values):
    """A copy of a vector."""
    fs_allocate()
    return np.array(values)
