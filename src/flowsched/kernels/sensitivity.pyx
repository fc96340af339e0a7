"""Shortest residual paths between the ends of arcs: the range in which a cost may move while a flow stays optimal.

The flow f is optimal for costs w with potentials p: the reduced cost w(a) + p(u) - p(v) of an arc a = (u, v) is >= 0 where f(a) < c(a), and <= 0 where
f(a) > l(a).  Replace w(a) by another cost w'.  Then f stays optimal as long as no residual cycle through a has a negative cost, for
every other cycle is as before:

    f(a) < c(a):   w' >= -d(v, u)       d(x, y): the length of a shortest residual path from x to y that does not use a itself, in costs w;
    f(a) > l(a):   w' <= d(u, v)        d = infinite where there is none.

Paths are searched on reduced costs, which are >= 0, by Dijkstra's algorithm with a binary heap; the search ends at its goal.  The cost for each arc and
side is O(m + n log n) in the worst case, and usually that of the nodes nearer than the goal.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from flowsched._faults cimport FS_FUEL, _empty, _zeros, fs_look

import numpy as np

cdef int64_t FAR = <int64_t> 1 << 62

cdef struct Item:
    int64_t dist
    int32_t node


@cython.auto_pickle(False)
@cython.final
cdef class Search:
    """Dijkstra's algorithm on a residual network; half-arcs 2 a and 2 a + 1 are arc a from its tail and from its head."""

    cdef const int32_t[::1] first       # half[first[v] : first[v + 1]] leave v
    cdef const int32_t[::1] half
    cdef const int32_t[::1] head        # by half-arc
    cdef const int64_t[::1] reduced     # by half-arc: >= 0 where it is residual, else -1
    cdef int64_t[::1] dist              # valid where stamp[v] == now
    cdef int32_t[::1] stamp
    cdef int32_t now
    cdef Item[::1] heap
    cdef Py_ssize_t size
    cdef int64_t fuel

    def __init__(self, const int32_t[::1] first, const int32_t[::1] half, const int32_t[::1] head, const int64_t[::1] reduced):
        cdef Py_ssize_t n = first.shape[0] - 1
        self.first, self.half, self.head, self.reduced = first, half, head, reduced
        self.dist, self.stamp = _zeros(n, np.int64), _zeros(n, np.int32)
        self.heap = _zeros(half.shape[0] + 1, np.dtype([("dist", "i8"), ("node", "i4")], align=True))
        self.now = 0
        self.fuel = FS_FUEL

    cdef int put(self, int64_t dist, int32_t v) except -1 nogil:
        cdef Py_ssize_t i = self.size, up
        self.size += 1
        while i:
            up = (i - 1) >> 1
            if self.heap[up].dist <= dist:
                break
            self.heap[i] = self.heap[up]
            i = up
        self.heap[i].dist, self.heap[i].node = dist, v
        return 0

    cdef int take(self, Item *out) except -1 nogil:
        cdef Py_ssize_t i = 0, down
        cdef Item last
        out[0] = self.heap[0]
        self.size -= 1
        last = self.heap[self.size]
        while True:
            down = 2 * i + 1
            if down >= self.size:
                break
            if down + 1 < self.size and self.heap[down + 1].dist < self.heap[down].dist:
                down += 1
            if self.heap[down].dist >= last.dist:
                break
            self.heap[i] = self.heap[down]
            i = down
        self.heap[i] = last
        return 0

    cdef int64_t between(self, int32_t start, int32_t goal, int32_t arc) except -1 nogil:
        """Reduced length of a shortest path that does not use `arc`; FAR without one."""
        cdef Item item
        cdef int32_t i, h, w
        cdef int64_t d
        self.now += 1
        self.size = 0
        self.stamp[start], self.dist[start] = self.now, 0
        self.put(0, start)
        while self.size:
            self.take(&item)
            if item.node == goal:
                return item.dist
            if item.dist > self.dist[item.node]:
                continue
            self.fuel -= self.first[item.node + 1] - self.first[item.node] + 1
            if self.fuel < 0:
                self.fuel = FS_FUEL
                with gil:
                    fs_look()
            for i in range(self.first[item.node], self.first[item.node + 1]):
                h = self.half[i]
                if self.reduced[h] < 0 or h >> 1 == arc:
                    continue
                d = item.dist + self.reduced[h]
                w = self.head[h]
                if self.stamp[w] != self.now or d < self.dist[w]:
                    self.stamp[w], self.dist[w] = self.now, d
                    self.put(d, w)
        return FAR


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
