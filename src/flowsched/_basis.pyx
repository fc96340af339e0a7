"""The basis of a network simplex, as its parts share it; `flowsched._ns.Simplex` says how it polls and swaps."""


cdef class Basis:
    """A spanning tree, and the arcs outside of it in slots."""

    cdef int poll(self) except -1 nogil:
        """Let signals in, and look at the clock; C_OK, or how the solve ends."""
        return C_OK

    cdef bint overdue(self) except -1 nogil:
        """Let signals in; True if the time for a late answer is up."""
        return False

    cdef int swap(self, int32_t e) except -1 nogil:
        """Let the arc in a slot stand the other way round, at its other bound."""
        return 0
