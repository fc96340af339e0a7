# The search for shortest residual paths, and the count of work.  See `search.pyx`.

cimport cython
from libc.stdint cimport int32_t, int64_t

from flowsched.kernels.heap cimport Heap, Label, insert, remove
from flowsched.kernels.residual cimport Residual
from flowsched.kernels.status cimport OK, SPENT


cdef class ShortestPaths(Residual):
    cdef Label[::1] label                  # label[2 v + side]
    # -- scratch: three names of one memory, as none is in use where another is written -----------------------------
    cdef int32_t[::1] settled              # nodes that a search has settled: those of side 0 from the left, those of side 1 from the right
    cdef int32_t[::1] path                 # half-arcs of a path
    cdef int32_t[::1] queue                # nodes of a breadth-first search
    # ---------------------------------------------------------------------------------------------------------
    cdef Heap heap[2]
    cdef int32_t hub
    cdef int64_t hub_size                  # number of live nodes + 1 when the hub was last chosen
    cdef bint off_centre                   # the simplex chose the potentials: `centre` before `repair`
    cdef int32_t path_length               # half-arcs of the path to a `goal` that `search` wrote to ``path``
    # -- work, counted in scanned half-arcs -------------------------------------------------------------------
    cdef int64_t budget                    # limit for one walk, and for a search from one end
    cdef int64_t until_poll                # left until the next check of the clock and signals
    cdef int64_t poll_interval             # between two checks: the start value of `until_poll`
    cdef int64_t scans_left                # left until the step stops with SPENT
    cdef double deadline                   # by time.monotonic; 0 without a limit
    cdef object pending_error              # exception of a signal handler, to be raised once (I) holds

    @cython.final
    cdef inline int residual_range(self, int32_t v, int sign, int32_t *lo, int32_t *hi) noexcept nogil:
        """Write the range of v's half-arcs, from lo to before hi, by which flow can leave it (sign 1) or by whose mates flow can arrive (sign -1)."""
        if sign > 0:
            lo[0] = self.node[v].first
            hi[0] = lo[0] + self.node[v].region[1]
        else:
            lo[0] = self.node[v].first + self.node[v].region[0]
            hi[0] = self.node[v].first + self.node[v].region[2]
        return 0

    @cython.final
    cdef inline bint is_end(self, int32_t v, int sign) noexcept nogil:
        """True if a path from an excess (sign 1) or deficit (sign -1) may end at v."""
        return v == self.hub or (self.excess[v] < 0 if sign > 0 else self.excess[v] > 0)

    @cython.final
    cdef inline int spend(self, int counter, int64_t scans) except -1 nogil:
        """Count scanned half-arcs; LATE and INTERRUPTED end the solve, SPENT ends this step of it."""
        self.count[counter] += scans
        self.until_poll -= scans
        self.scans_left -= scans
        if self.until_poll < 0:
            return self.poll()
        return SPENT if self.scans_left < 0 else OK

    @cython.final
    cdef inline int enter(self, int side, int32_t v, int64_t dist, int32_t parent) except -1 nogil:
        """Label v with `dist` if it has no label or a larger one; that of a settled node is never larger."""
        cdef int32_t e = 2 * v + side
        if self.label[e].stamp == self.stamp:
            if dist >= self.label[e].dist:
                return 0
            remove(&self.heap[side], &self.label[0], e)
        self.label[e].stamp = self.stamp
        self.label[e].parent = parent
        insert(&self.heap[side], &self.label[0], e, dist)
        return 0

    cdef bint late(self, double now) except -1 nogil
    cdef int poll(self) except -1 nogil
    cdef int settle_hub(self) except -1 nogil
    cdef int64_t count_uneven(self) except -1 nogil
    cdef bint uneven(self) except -1 nogil
    cdef int search(self, int32_t s, int sign, int32_t goal, int64_t limit) except -1 nogil
    cdef int augment_search(self, int32_t s, int32_t meet, int sign, int32_t goal, int sides) except -1 nogil
    cdef int32_t trace(self, int32_t s, int32_t meet, int sign, int sides, int32_t *end) except -1 nogil
    cdef int cancel_unsaturable(self) except -1 nogil
    cdef int mark_reachable(self, int32_t s, int sign) except -1 nogil
    cdef int centre(self) except -1 nogil
