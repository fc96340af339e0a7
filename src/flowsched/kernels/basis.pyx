"""Basis of a network simplex, as its parts share it; `flowsched.kernels.simplex.Simplex` defines how it polls and swaps."""

from flowsched.kernels.status cimport OK


cdef class Basis:
    """A spanning tree, and the arcs outside of it in slots."""

    cdef int poll(self) except -1 nogil:
        """Run signal handlers and check the clock; OK, or the status with which the solve ends."""
        return OK

    cdef bint overdue(self) except -1 nogil:
        """Run signal handlers; True if the time for a late answer is up."""
        return False

    cdef int swap(self, int32_t e) except -1 nogil:
        """Turn the arc in a slot to its other direction, at its other bound."""
        return 0
