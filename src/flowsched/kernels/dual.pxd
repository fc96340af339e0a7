# The dual network simplex, from a basis whose data have changed.  See `dual.pyx`.

from libc.stdint cimport int32_t, int64_t

from flowsched.kernels.primal cimport Primal


cdef class Dual(Primal):
    cdef int32_t[::1] around       # the caller's node u has the arcs around[at[u] : at[u + 1]]: those in the basis, without loops
    cdef int32_t[::1] at
    cdef int32_t[::1] seen         # by node: equal to `look` in the subtree whose cut `dual_ratio_test` scans
    cdef int32_t look
    cdef int32_t[::1] owing        # scratch of `dual_simplex` and `drain`: nodes
    cdef int32_t nowing
    cdef int64_t[::1] owed         # by node: flow to send up beyond that already on the arc; 0 except at the nodes of `drain`
    cdef bint unsure               # slots with rc < 0 may be anywhere
    cdef int64_t scan_budget       # number of arcs that may still be scanned so
    cdef int64_t next_scan_budget  # number of arcs for the next scan: doubled after a scan that was complete, else halved

    cdef bint change(self, const int64_t[::1] arcs, const int64_t[::1] cost, const int64_t[::1] capacity,
                     const int64_t[::1] nodes, const int64_t[::1] added, bint late) except? -1 nogil
    cdef bint scattered(self, const int64_t[::1] arcs, const int64_t[::1] cost) except -1 nogil
    cdef int reprice(self, int32_t a, int64_t cost) except -1 nogil
    cdef int set_capacity(self, int32_t a, int64_t capacity) except -1 nogil
    cdef int feed(self, int32_t v, int64_t x) except -1 nogil
    cdef int drain(self) except -1 nogil
    cdef int sift_down(self, int32_t i) except -1 nogil
    cdef int sever(self, int32_t v, int64_t rest) except -1 nogil
    cdef int find_all(self) except -1 nogil
    cdef int find_arcs(self) except -1 nogil
    cdef int enlist(self, int32_t u, int32_t a) except -1 nogil
    cdef int nearby(self) except -1 nogil
    cdef int doubt(self, int32_t e) except -1 nogil
    cdef bint pay(self, int64_t arcs) except -1 nogil
    cdef int dual_simplex(self) except -1 nogil
    cdef int32_t dual_ratio_test(self, int32_t top, bint out) except -2 nogil
    cdef int next_look(self) except -1 nogil
    cdef bint overspent(self) noexcept nogil
