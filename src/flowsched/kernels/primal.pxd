# The primal network simplex.  See `primal.pyx`.

from libc.stdint cimport int32_t, int64_t

from flowsched.kernels.first_tree cimport FirstTree

cdef enum:
    SUSPECTS = 256     # number of slots that may be priced at every pivot, in addition to a block
    MANY = 32          # number of deficits from which the full additional time is assumed


cdef class Primal(FirstTree):
    cdef int64_t penalty           # amount added to the cost of deficits
    cdef int32_t deficits          # upper bound on the number of nodes with a deficit
    cdef int32_t[::1] suspect      # slots: all with rc < 0 are in suspect[:nsuspect], unless `unsure`; in `primal_simplex` some of them
    cdef int32_t nsuspect
    cdef int32_t cycle_slot        # slot that closes the unlimited cycle
    cdef int64_t allowance         # work limit of this solve, in ns as `work` counts it; negative: none
    cdef int64_t pivots_since_numbering # pivots since the nodes were numbered
    cdef int64_t moved_at_numbering # potentials that had moved in this solve by then
    cdef int64_t pivots, degenerate, scanned
    # -- time: seconds since `begun`, by time.monotonic --------------------------------------------------------------
    cdef double begun
    cdef double limit              # of this solve; negative: none
    cdef double looked             # time of the last check of the clock
    cdef int64_t pivots_at_check   # number of pivots until then,
    cdef int64_t pivots_before     # and in the solves before it that were stopped
    cdef double loading            # time of loading
    cdef double rescue             # time that the caller needs to complete its own flow; negative: it has none
    cdef bint whole                # (T), (S), (P) hold, and `load` is all flow outside the tree that is between bounds
    cdef bint yields               # a deficit is left and the caller is to complete its flow: that takes less time, and little has been done here

    cdef int64_t work(self) noexcept nogil
    cdef int begin(self, double time_limit, double rescue, int64_t allowance) except -1
    cdef int hurry(self, double now) except -1 nogil
    cdef bint raise_penalty(self) except -1 nogil
    cdef int charge(self, int64_t step) except -1 nogil
    cdef int settle(self) except -1 nogil
    cdef int renumber(self) except -1 nogil
    cdef int primal_simplex(self, int32_t block, int32_t limit) except -1 nogil
    cdef int pivot(self, int32_t e, int64_t rc, int64_t load) except -1 nogil
