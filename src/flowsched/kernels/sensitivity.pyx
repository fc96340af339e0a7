"""Shortest residual paths between the ends of arcs: the range in which a cost may move while a flow stays optimal.

The flow f is optimal for costs w with potentials p: the reduced cost w(a) + p(u) - p(v) of an arc a = (u, v) is >= 0 where f(a) < c(a), and <= 0 where
f(a) > l(a).  Replace w(a) by another cost w'.  Then f stays optimal as long as no residual cycle through a has a negative cost, for
every other cycle is as before:

    f(a) < c(a):   w' >= -d(v, u)       d(x, y): the length of a shortest residual path from x to y that does not use a itself, in costs w;
    f(a) > l(a):   w' <= d(u, v)        d = infinite where there is none.

Paths are searched on reduced costs, which are >= 0, by Dijkstra's algorithm with a radix heap; the search ends at its goal.  The cost for each arc and
side is O(m + n log(n C)) in the worst case, and usually that of the nodes nearer than the goal.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from flowsched._faults cimport FS_FUEL, _empty, _zeros, fs_look
from flowsched.kernels.heap cimport FAR, Heap, Label, clear_heap, insert, least, remove

import numpy as np

from flowsched.kernels.search import LABEL as _LABEL


@cython.auto_pickle(False)
@cython.final
cdef class Search:
    """Dijkstra's algorithm on a residual network; half-arcs 2 a and 2 a + 1 are arc a from its tail and from its head."""

    cdef const int32_t[::1] first       # half[first[v] : first[v + 1]] leave v
    cdef const int32_t[::1] half
    cdef const int32_t[::1] head        # by half-arc
    cdef const int64_t[::1] reduced     # by half-arc: >= 0 where it is residual, else -1
    cdef Label[::1] label               # by node; valid where its stamp is `now`
    cdef int32_t now
    cdef Heap heap
    cdef int64_t fuel

    @cython.embedsignature(True)
    def __init__(self, const int32_t[::1] first, const int32_t[::1] half, const int32_t[::1] head, const int64_t[::1] reduced):
        cdef Py_ssize_t n = first.shape[0] - 1
        self.first, self.half, self.head, self.reduced = first, half, head, reduced
        self.label, self.now = _zeros(n, _LABEL), 0
        self.fuel = FS_FUEL

    cdef int64_t between(self, int32_t start, int32_t goal, int32_t arc) except -1 nogil:
        """Reduced length of a shortest path that does not use `arc`; FAR without one."""
        cdef Label *label = &self.label[0]
        cdef int32_t i, h, v, w
        cdef int64_t dist, d
        self.now += 1
        clear_heap(&self.heap)
        label[start].stamp = self.now
        insert(&self.heap, label, start, 0)
        while True:
            dist = least(&self.heap, label)
            if dist == FAR:
                return FAR
            v = self.heap.front[0]
            if v == goal:
                return dist
            remove(&self.heap, label, v)
            self.fuel -= self.first[v + 1] - self.first[v] + 1
            if self.fuel < 0:
                self.fuel = FS_FUEL
                with gil:
                    fs_look()
            for i in range(self.first[v], self.first[v + 1]):
                h = self.half[i]
                if self.reduced[h] < 0 or h >> 1 == arc:
                    continue
                d, w = dist + self.reduced[h], self.head[h]
                if label[w].stamp != self.now:
                    label[w].stamp = self.now
                elif d < label[w].dist:
                    remove(&self.heap, label, w)
                else:
                    continue
                insert(&self.heap, label, w, d)


def ranges(const int32_t[::1] first, const int32_t[::1] half, const int32_t[::1] head, const int64_t[::1] reduced, const int64_t[::1] potential,
           const int32_t[::1] arcs):
    """Return the lowest and the highest cost of some arcs for which the flow stays optimal; -2**62 and 2**62 where there is no limit.

    `first`, `half`: the half-arcs by the node that they leave.  `head`, `reduced` by half-arc: where it leads, its reduced cost, -1 if it is not residual.
    """
    cdef Search search = Search(first, half, head, reduced)
    cdef Py_ssize_t i
    cdef int32_t a, u, v
    cdef int64_t d
    lowest, highest = _empty(arcs.shape[0], np.int64), _empty(arcs.shape[0], np.int64)
    cdef int64_t[::1] low = lowest, high = highest
    with nogil:
        for i in range(arcs.shape[0]):
            a = arcs[i]
            u, v = head[2 * a + 1], head[2 * a]
            low[i], high[i] = -FAR, FAR
            if reduced[2 * a] >= 0:             # reduced length = length + p(start) - p(goal)
                d = search.between(v, u, a)
                if d < FAR:
                    low[i] = -(d - potential[v] + potential[u])
            if reduced[2 * a + 1] >= 0:
                d = search.between(u, v, a)
                if d < FAR:
                    high[i] = d - potential[u] + potential[v]
    return lowest, highest
