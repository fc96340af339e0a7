"""Dense linear assignment: every row to a column of its own, at the least cost.

Given is an n x m matrix c of integers, n <= m.  The dual has a price v(j) for each column; the reduced cost of a pair is c(i, j) - v(j), and row i is matched only to
a column where it is least.  Invariants, after every step:

(D)  a matched row's column has the least reduced cost of its row;
(F)  an unmatched column has the price 0 when n < m, so that a surplus column is worth nothing.

A matching of all rows under (D) and (F) is optimal, and v with u(i) = min over j of c(i, j) - v(j) proves it.

The method is that of Jonker and Volgenant.  In augmenting row reduction a free row takes its best column, lowers the price by the difference between its best and second-best
reduced costs, and frees the row that had the column.  Then the rows that are still free are augmented along shortest paths on reduced costs (Dijkstra's algorithm over
columns).  When n = m, a column reduction comes first: the price of a column is its least cost.  O(n^2 m) in the worst case.

The caller keeps (n + m + 2) * |c| below 2**62, so no price and no path length overflows.

R. Jonker and A. Volgenant, A shortest augmenting path algorithm for dense and sparse linear assignment problems, Computing 38 (1987).
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from flowsched._faults cimport FS_FUEL, _zeros, fs_look

import numpy as np

cdef int64_t BEYOND = <int64_t> 1 << 62


@cython.auto_pickle(False)
@cython.final
cdef class Assignment:
    """One assignment; see the head of this file."""

    cdef const int64_t[:, ::1] cost
    cdef int32_t n, m
    cdef int64_t[::1] price         # v(j)
    cdef int32_t[::1] column        # of a row, -1 if it is free
    cdef int32_t[::1] row           # of a column, -1 if it is free
    cdef int32_t[::1] waiting       # free rows
    cdef int32_t free
    cdef int64_t[::1] dist          # of a column, while a path is searched
    cdef int32_t[::1] before        # the row from which the path comes to a column
    cdef int32_t[::1] order         # columns: settled, at the present distance, and the rest
    cdef int64_t fuel

    @cython.embedsignature(True)
    def __init__(self, const int64_t[:, ::1] cost):
        cdef int32_t i
        self.cost = cost
        self.n, self.m = <int32_t>cost.shape[0], <int32_t>cost.shape[1]
        self.price, self.dist = _zeros(self.m, np.int64), _zeros(self.m, np.int64)
        self.column, self.waiting = _zeros(self.n, np.int32), _zeros(self.n, np.int32)
        self.row, self.before, self.order = _zeros(self.m, np.int32), _zeros(self.m, np.int32), _zeros(self.m, np.int32)
        self.fuel = FS_FUEL
        for i in range(self.n):
            self.column[i] = -1
            self.waiting[i] = i
        for i in range(self.m):
            self.row[i] = -1
        self.free = self.n

    cdef int spend(self, int64_t work) except -1 nogil:
        self.fuel -= work
        if self.fuel < 0:
            self.fuel = FS_FUEL
            with gil:
                fs_look()
        return 0

    cdef int reduce_columns(self) except -1 nogil:
        """Give each column its least cost as price, and its row, if that is free yet."""
        cdef int32_t i, j
        cdef const int64_t *c
        for j in range(self.m):
            self.price[j] = self.cost[0, j]
            self.before[j] = 0
        for i in range(1, self.n):
            c = &self.cost[i, 0]
            for j in range(self.m):
                if c[j] < self.price[j]:
                    self.price[j] = c[j]
                    self.before[j] = i
            self.spend(self.m)
        for j in range(self.m - 1, -1, -1):
            i = self.before[j]
            if self.column[i] < 0:
                self.column[i], self.row[j] = j, i
        self.free = 0
        for i in range(self.n):
            if self.column[i] < 0:
                self.waiting[self.free] = i
                self.free += 1
        return 0

    cdef int reduce_rows(self) except -1 nogil:
        """Match each free row to its best column; rows that lose theirs wait for the next pass, or are matched at once."""
        cdef int32_t i, j, k = 0, count = self.free, best, second, other
        cdef int64_t least, next_least, d
        cdef const int64_t *c
        cdef int64_t *v = &self.price[0]
        cdef int64_t turns = 4 * <int64_t>count + 64        # a larger number does not pay
        self.free = 0
        while k < count:
            i = self.waiting[k]
            k += 1
            c = &self.cost[i, 0]
            least, next_least, best, second = c[0] - v[0], BEYOND, 0, -1
            for j in range(1, self.m):
                d = c[j] - v[j]
                if d < next_least:
                    if d < least:
                        next_least, second = least, best
                        least, best = d, j
                    else:
                        next_least, second = d, j
            self.spend(self.m)
            other = self.row[best]
            if second >= 0 and least < next_least:
                v[best] -= next_least - least
            elif second >= 0 and other >= 0:
                best = second
                other = self.row[best]
            self.column[i], self.row[best] = best, i
            if other >= 0:
                self.column[other] = -1
                turns -= 1
                if least < next_least and turns > 0:
                    k -= 1
                    self.waiting[k] = other
                else:
                    self.waiting[self.free] = other
                    self.free += 1
        return 0

    cdef int augment(self, int32_t start) except -1 nogil:
        """Match a free row along a shortest path to a free column."""
        cdef int32_t j, k, i, low = 0, up = 0, settled = 0, end = -1
        cdef int64_t least = 0, d, h
        cdef const int64_t *c = &self.cost[start, 0]
        cdef int64_t *v = &self.price[0]
        cdef int64_t *dist = &self.dist[0]
        cdef int32_t *order = &self.order[0]
        for j in range(self.m):
            dist[j] = c[j] - v[j]
            self.before[j] = start
            order[j] = j
        while end < 0:
            if low == up:       # order[:low] are settled; find the next nearest columns
                settled = low
                least = dist[order[up]]
                up += 1
                for k in range(up, self.m):
                    j = order[k]
                    d = dist[j]
                    if d <= least:
                        if d < least:
                            up, least = low, d
                        order[k], order[up] = order[up], j
                        up += 1
                for k in range(low, up):
                    if self.row[order[k]] < 0:
                        end = order[k]
                        break
                self.spend(self.m)
                if end >= 0:
                    break
            j = order[low]
            low += 1
            i = self.row[j]
            c = &self.cost[i, 0]
            h = c[j] - v[j] - least
            for k in range(up, self.m):
                j = order[k]
                d = c[j] - v[j] - h
                if d < dist[j]:
                    dist[j] = d
                    self.before[j] = i
                    if d == least:
                        if self.row[j] < 0:
                            end = j
                            break
                        order[k], order[up] = order[up], j
                        up += 1
            self.spend(self.m)
        for k in range(settled):
            v[order[k]] += dist[order[k]] - least
        while True:
            i = self.before[end]
            self.row[end] = i
            end, self.column[i] = self.column[i], end
            if i == start:
                return 0

    cdef int match(self) except -1 nogil:
        cdef int32_t k
        if self.n == self.m:
            self.reduce_columns()
        if self.m > 1:
            self.reduce_rows()
            self.reduce_rows()
        for k in range(self.free):
            self.augment(self.waiting[k])
        return 0


def match(const int64_t[:, ::1] cost, /):
    """Return the column of each row, and the price of each column; the matrix has no fewer columns than rows, and at least one of each."""
    cdef Assignment work = Assignment(cost)
    with nogil:
        work.match()
    return np.asarray(work.column), np.asarray(work.price)
