"""Dense linear assignment: every row to a column of its own, at the least cost.

Given is an n x m matrix c of integers, n <= m.  The dual has a price v(j) for each column; the reduced cost of a pair is c(i, j) - v(j), and row i is matched only to
a column where it is least.  Invariants, after every step:

(D)  a matched row's column has the least reduced cost of its row;
(F)  an unmatched column has the price 0 when n < m, so that a surplus column is worth nothing.

A matching of all rows under (D) and (F) is optimal, and v with u(i) = min over j of c(i, j) - v(j) proves it.

The method is that of Jonker and Volgenant.  In augmenting row reduction a free row takes its best column, lowers the price by the difference between its best and second-best
reduced costs, and frees the row that had the column.  Then the rows that are still free are augmented along shortest paths on reduced costs (Dijkstra's algorithm over
columns).  When n = m, a column reduction comes first: the price of a column is its least cost.  O(n^2 m) in the worst case.

All costs are doubled, and the price of a matched column is lowered by 1 meanwhile.  So a free column is the best one among equals, and a scan of a row finds it without
another look.

The caller keeps (n + m + 3) * |c| below 2**59, so no price and no path length overflows.  Floats are rounded to integers; where rounding may decide, so do
their exact values, see `confirm`.

R. Jonker and A. Volgenant, A shortest augmenting path algorithm for dense and sparse linear assignment problems, Computing 38 (1987).
"""

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_STRIDED_RO, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport fabs, frexp, ldexp
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from flowsched._faults cimport FS_FUEL, _empty, _zeros, fs_allocate, fs_look

import numpy as np

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__GLIBC__) && defined(__x86_64__) && (!defined(__clang__) || __clang_major__ >= 14)
    #define FS_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
    #else
    #define FS_WIDE
    #endif
    /* Lower dist[j] to cost[j] - price[j] - h; return the least of all. */
    #define FS_RELAX(name, type) \\
    FS_WIDE static int64_t name(const type *cost, const int64_t *price, int64_t h, int64_t *dist, int64_t m) { \\
        int64_t least = (int64_t)1 << 62; \\
        for (int64_t j = 0; j < m; j++) { \\
            int64_t d = cost[j] - price[j] - h; \\
            d = d < dist[j] ? d : dist[j]; \\
            dist[j] = d; \\
            least = d < least ? d : least; \\
        } \\
        return least; \\
    }
    /* Take row i for the columns whose price it lowers. */
    #define FS_LOWER(name, type) \\
    FS_WIDE static void name(const type *cost, int64_t i, int64_t *price, int64_t *row, int64_t m) { \\
        for (int64_t j = 0; j < m; j++) { \\
            int64_t c = cost[j]; \\
            row[j] = c < price[j] ? i : row[j]; \\
            price[j] = c < price[j] ? c : price[j]; \\
        } \\
    }
    /* The first j from `begin` on where cost[j] - price[j] is x, which there is. */
    #define FS_FIND \\
        for (; m >= 96 && m - begin >= 16; begin += 16) { \\
            int64_t some = 0; \\
            for (int64_t k = 0; k < 16; k++) \\
                some |= cost[begin + k] - price[begin + k] == x; \\
            if (some) \\
                break; \\
        } \\
        while (cost[begin] - price[begin] != x) \\
            begin++;
    /* Return the least cost[j] - price[j] and its j; set the least one of the others and its j; m > 1. */
    #define FS_TWO_LEAST(name, type) \\
    FS_WIDE static int64_t name(const type *cost, const int64_t *price, int64_t m, int64_t *best, int64_t *second_least, int64_t *second) { \\
        int64_t least = (int64_t)1 << 62, next = least, begin = 0, x; \\
        if (m < 96) {  /* too short for vector instructions */ \\
            for (int64_t j = 0; j < m; j++) { \\
                int64_t d = cost[j] - price[j]; \\
                if (d < next) { \\
                    if (d < least) { \\
                        next = least, *second = *best; \\
                        least = d, *best = j; \\
                    } else \\
                        next = d, *second = j; \\
                } \\
            } \\
            *second_least = next; \\
            return least; \\
        } \\
        for (int64_t j = 0; j < m; j++) { \\
            int64_t d = cost[j] - price[j]; \\
            least = d < least ? d : least; \\
        } \\
        x = least; \\
        FS_FIND \\
        *best = begin; \\
        for (int64_t j = 0; j < *best; j++) { \\
            int64_t d = cost[j] - price[j]; \\
            next = d < next ? d : next; \\
        } \\
        for (int64_t j = *best + 1; j < m; j++) { \\
            int64_t d = cost[j] - price[j]; \\
            next = d < next ? d : next; \\
        } \\
        if (next >> 1 == least >> 1) { \\
            x = next; \\
            begin = next == least ? *best + 1 : 0; \\
            FS_FIND \\
            *second = begin; \\
        } \\
        *second_least = next; \\
        return least; \\
    }
    FS_RELAX(fs_relax_short, int32_t)
    FS_RELAX(fs_relax, int64_t)
    FS_LOWER(fs_lower_short, int32_t)
    FS_LOWER(fs_lower, int64_t)
    FS_TWO_LEAST(fs_two_least_short, int32_t)
    FS_TWO_LEAST(fs_two_least, int64_t)
    /* The first j where dist[j] is x, which there is. */
    FS_WIDE static int64_t fs_find(const int64_t *dist, int64_t m, int64_t x) {
        int64_t begin = 0;
        for (; m >= 96 && m - begin >= 16; begin += 16) {
            int64_t some = 0;
            for (int64_t k = 0; k < 16; k++)
                some |= dist[begin + k] == x;
            if (some)
                break;
        }
        while (dist[begin] != x)
            begin++;
        return begin;
    }
    /* Return the bits of the largest |x|; those of infinity and of NaN are above those of all numbers. */
    FS_WIDE static int64_t fs_largest(const double *x, int64_t count) {
        int64_t largest = 0;
        for (int64_t k = 0; k < count; k++) {
            int64_t bits;
            memcpy(&bits, x + k, 8);
            bits &= INT64_MAX;
            largest = bits > largest ? bits : largest;
        }
        return largest;
    }
    /* Round x * scale to integers, and store their doubles; return 0 if nothing was rounded, and more than 1, or less than 0, if one reaches `most`, a power of 2 of at most 2**50.
       Next to 1.5 * 2**52 a float has no room for fractions, and its last bits are those of the integer. */
    #define FS_ROUND(name, type) \\
    FS_WIDE static int64_t name(const double *x, type *cost, double scale, double unit, int64_t most, int64_t m) { \\
        const double next = 6755399441055744.0; \\
        int64_t base, inexact = 0, large = 0; \\
        memcpy(&base, &next, 8); \\
        for (int64_t j = 0; j < m; j++) { \\
            double sum = x[j] * scale + next; \\
            int64_t bits; \\
            inexact |= (sum - next) * unit != x[j]; \\
            memcpy(&bits, &sum, 8); \\
            cost[j] = (type)((bits - base) * 2); \\
            large |= bits - base + most; \\
        } \\
        return inexact | (large & -2 * most); \\
    }
    FS_ROUND(fs_round_short, int32_t)
    FS_ROUND(fs_round, int64_t)
    /* Double integers; return their largest size. */
    #define FS_DOUBLE(name, type) \\
    FS_WIDE static int64_t name(const int64_t *x, type *cost, int64_t sign, int64_t m) { \\
        int64_t low = 0, high = 0; \\
        for (int64_t j = 0; j < m; j++) { \\
            low = x[j] < low ? x[j] : low; \\
            high = x[j] > high ? x[j] : high; \\
            cost[j] = (type)((((uint64_t)x[j] ^ (uint64_t)sign) - (uint64_t)sign) << 1); \\
        } \\
        return low < -INT64_MAX ? INT64_MAX : -low > high ? -low : high; \\
    }
    FS_DOUBLE(fs_double_short, int32_t)
    FS_DOUBLE(fs_double, int64_t)
    /* List each j where cost[j] - price[j] <= limit; return their number, or -1 if there may be more than `room`. */
    #define FS_NEAR(name, type) \\
    FS_WIDE static int64_t name(const type *cost, const int64_t *price, int64_t limit, int64_t m, int32_t *list, int64_t room) { \\
        int64_t count = 0, j = 0; \\
        while (j < m) { \\
            if (m - j >= 16) { \\
                int64_t some = 0; \\
                for (int64_t k = 0; k < 16; k++) \\
                    some |= -(int64_t)(cost[j + k] - price[j + k] <= limit); \\
                if (!some) { \\
                    j += 16; \\
                    continue; \\
                } \\
            } \\
            if (room - count < 16) \\
                return -1; \\
            for (int64_t end = m - j < 16 ? m : j + 16; j < end; j++) { \\
                list[count] = (int32_t)j; \\
                count += cost[j] - price[j] <= limit; \\
            } \\
        } \\
        return count; \\
    }
    FS_NEAR(fs_near_short, int32_t)
    FS_NEAR(fs_near, int64_t)
    """
    void fs_lower_short(const int32_t *cost, int64_t i, int64_t *price, int64_t *row, int64_t m) nogil
    void fs_lower(const int64_t *cost, int64_t i, int64_t *price, int64_t *row, int64_t m) nogil
    int64_t fs_two_least_short(const int32_t *cost, const int64_t *price, int64_t m, int64_t *best, int64_t *second_least, int64_t *second) nogil
    int64_t fs_two_least(const int64_t *cost, const int64_t *price, int64_t m, int64_t *best, int64_t *second_least, int64_t *second) nogil
    int64_t fs_find(const int64_t *dist, int64_t m, int64_t x) nogil
    int64_t fs_largest(const double *x, int64_t count) nogil
    int64_t fs_round_short(const double *x, int32_t *cost, double scale, double unit, int64_t most, int64_t m) nogil
    int64_t fs_round(const double *x, int64_t *cost, double scale, double unit, int64_t most, int64_t m) nogil
    int64_t fs_double_short(const int64_t *x, int32_t *cost, int64_t sign, int64_t m) nogil
    int64_t fs_double(const int64_t *x, int64_t *cost, int64_t sign, int64_t m) nogil
    int64_t fs_near_short(const int32_t *cost, const int64_t *price, int64_t limit, int64_t m, int32_t *list, int64_t room) nogil
    int64_t fs_near(const int64_t *cost, const int64_t *price, int64_t limit, int64_t m, int32_t *list, int64_t room) nogil
    int64_t fs_relax_short(const int32_t *cost, const int64_t *price, int64_t h, int64_t *dist, int64_t m) nogil
    int64_t fs_relax(const int64_t *cost, const int64_t *price, int64_t h, int64_t *dist, int64_t m) nogil

ctypedef fused Cost:
    int32_t
    int64_t

cdef int64_t BEYOND = <int64_t> 1 << 62             # above all distances
cdef int64_t SETTLED = -((<int64_t> 3) << 61)       # a price that no path takes
cdef int64_t PATIENCE = 25          # scans of a pair, on average, before searches are given up on a matrix of
cdef int64_t SHORT = 4096           # floats that are matched in 32 bits first
cdef int32_t LARGE = 256            # this number of rows: shifted clouds of 1,500 points take 650 ms without that limit
cdef int64_t MOST = <int64_t> 1 << 59
cdef double LARGEST = 1.7976931348623157e308
cdef enum:
    FRACTION = 53       # bits
    TIES = 4194304      # near pairs; 20 bytes each
    PENDING = -2
cdef object ndarray = np.ndarray, int64 = np.dtype(np.int64)

cdef struct Settled:    # the k-th column of a search, and the row that was scanned before it
    int32_t row
    int32_t column
    int64_t h           # reduced cost of that row's column, minus its distance
    int64_t price       # of the column before the search
    int64_t dist

cdef struct Weight:     # fraction / 2**FRACTION is added to the whole
    int64_t whole
    int64_t fraction

cdef struct Work:
    int32_t n, m
    int32_t unmatched   # number of free rows
    int64_t *cost       # doubled, by rows; of 32 bits if all are small
    int64_t *price      # v(j), doubled
    int64_t *dist       # of a column, while a path is searched; BEYOND where it is settled
    Settled *settled
    int32_t *row        # of a column, -1 if it is free
    int32_t *column     # of a row, -1 if it is free
    int32_t *waiting    # free rows
    int64_t fuel
    int64_t patience    # pairs that searches may scan before they are given up; negative: any number
    # -- of floats that were rounded -----------------------------------------------------------------------------
    double scale        # of their integers
    int64_t room        # for near pairs
    Weight *ties        # room for more of them
    Weight *weight      # of a near pair: what it would add to the cost
    Weight *length      # of the shortest path to a row, with a fraction >= 0
    int32_t *near       # column of a near pair, by rows
    int32_t *first      # a row's near pairs are near[first[i]:first[i + 1]]
    int32_t *taken      # the near pair by which a row is matched
    int32_t *through    # the near pair by which a path enters a row, and the row before it
    int32_t *tail
    int32_t *part       # rows that are on cycles together, by a row of them; -1: on none
    int32_t *queue
    int32_t *queued
    int32_t *mark       # of rows that a search has found


cdef int begin(Work *w, int32_t n, int32_t m, bint floats) except -1:
    """Make room for an n x m matrix."""
    cdef int64_t near = 16 * <int64_t>n + m + 64 if floats else 0, rows = <int64_t>n + 2 if floats else 0
    cdef int64_t wide = <int64_t>n * m + 6 * <int64_t>m + 2 * near + 2 * rows
    cdef char *room
    fs_allocate()
    room = <char *>malloc(8 * wide + 4 * (<int64_t>m + 2 * <int64_t>n + near + 8 * rows))
    if not room:
        raise MemoryError
    w.n, w.m, w.fuel, w.patience = n, m, FS_FUEL, -1
    w.cost = <int64_t *>room
    w.price = w.cost + <int64_t>n * m
    w.dist, w.settled = w.price + m, <Settled *>(w.price + 2 * m)
    w.room, w.ties = near, NULL
    w.weight = <Weight *>(w.settled + m)
    w.length = w.weight + near
    w.row = <int32_t *>(w.length + rows)
    w.column = w.row + m
    w.waiting = w.column + n
    w.near = w.waiting + n
    w.first = w.near + near
    w.taken, w.through, w.tail = w.first + rows, w.first + 2 * rows, w.first + 3 * rows
    w.part, w.queue = w.first + 4 * rows, w.first + 5 * rows
    w.queued, w.mark = w.first + 6 * rows, w.first + 7 * rows
    return 0


cdef void end(Work *w) noexcept:
    free(w.ties)
    free(w.cost)


cdef inline int spend(Work *w, int64_t work) except -1 nogil:
    w.fuel -= work
    if w.fuel < 0:
        w.fuel = FS_FUEL
        with gil:
            fs_look()
    return 0


cdef inline const char *line(Work *w, const char *at, Py_ssize_t across) noexcept nogil:
    """A row's numbers, next to each other."""
    cdef int32_t j
    if across == 8:
        return at
    for j in range(w.m):
        (<int64_t *>w.settled)[j] = (<const int64_t *>(at + j * across))[0]
    return <const char *>w.settled


cdef inline int lower(Work *w, const Cost *cost, int32_t i) except -1 nogil:
    """Lower the price of each column to its cost in row i, if it is a square, whose columns get their least costs as prices."""
    cdef int32_t j
    if w.n == w.m:
        if i == 0:
            for j in range(w.m):
                w.price[j], w.dist[j] = cost[j], 0
        elif Cost is int32_t:
            fs_lower_short(cost, i, w.price, w.dist, w.m)
        else:
            fs_lower(cost, i, w.price, w.dist, w.m)
    return 0


cdef bint is_clipped(Work *w, const Cost *cost) noexcept nogil:
    """True if most costs are equal to the largest, as of rows 0 and n / 2.

    Then columns whose least cost is below it compete for the same rows, and the rows that get the rest have to move all prices.
    """
    cdef const Cost *c = cost
    cdef Cost largest
    cdef int32_t j, equal, _turn
    for _turn in range(2):
        largest, equal = c[0], 0
        for j in range(w.m):
            if c[j] > largest:
                largest, equal = c[j], 0
            equal += c[j] == largest
        if 2 * equal <= w.m:
            return False
        c = cost + <int64_t>w.m * (w.n // 2)
    return True


cdef int match_columns(Work *w) except -1 nogil:
    """Give each column the row of its least cost, if that is free yet."""
    cdef int32_t i, j
    for j in range(w.m - 1, -1, -1):
        i = <int32_t>w.dist[j]
        if w.column[i] < 0:
            w.column[i], w.row[j] = j, i
            w.price[j] -= 1
    return 0


cdef int reduce_rows(Work *w, const Cost *cost) except -1 nogil:
    """Match each free row to its best column; rows that lose theirs wait for the next pass, or are matched at once."""
    cdef int32_t i, k = 0, count = w.unmatched, other
    cdef int64_t least, next_least = 0, best = 0, second = 0, d
    cdef const Cost *c
    cdef int64_t *v = w.price
    cdef int64_t turns = 2 * <int64_t>count        # a larger number does not pay
    w.unmatched = 0
    while k < count:
        i = w.waiting[k]
        k += 1
        c = cost + <int64_t>i * w.m
        if Cost is int32_t:
            least = fs_two_least_short(c, v, w.m, &best, &next_least, &second)
        else:
            least = fs_two_least(c, v, w.m, &best, &next_least, &second)
        spend(w, w.m)
        d = 2 * ((next_least >> 1) - (least >> 1))
        if not d and w.row[best] >= 0:
            best = second
        other = w.row[best]
        v[best] -= d + (other < 0)
        w.column[i], w.row[best] = <int32_t>best, i
        if other >= 0:
            w.column[other] = -1
            turns -= 1
            if d and turns > 0:
                k -= 1
                w.waiting[k] = other
            else:
                w.waiting[w.unmatched] = other
                w.unmatched += 1
    return 0


cdef int augment(Work *w, const Cost *cost, int32_t start) except -1 nogil:
    """Match a free row along a shortest path to a free column."""
    cdef int32_t i = start, j, k, end, count = 0
    cdef int64_t h = 0, least, price, scanned = 0
    cdef int64_t *v = w.price
    cdef Settled *way = w.settled
    for j in range(w.m):
        w.dist[j] = BEYOND
    while True:
        if Cost is int32_t:
            least = fs_relax_short(cost + <int64_t>i * w.m, v, h, w.dist, w.m)
        else:
            least = fs_relax(cost + <int64_t>i * w.m, v, h, w.dist, w.m)
        spend(w, w.m)
        scanned += w.m
        way[count].row, way[count].h = i, h
        end = <int32_t>fs_find(w.dist, w.m, least)
        i = w.row[end]
        if i < 0:
            break
        h = cost[<int64_t>i * w.m + end] - v[end] - least
        way[count].column, way[count].price, way[count].dist = end, v[end], least
        w.dist[end], v[end] = BEYOND, SETTLED
        count += 1
    for k in range(count):      # least is even, the distance of a matched column odd
        v[way[k].column] = way[k].price + (way[k].dist - 1 - least)
    price = v[end]
    v[end] -= 1
    while True:                 # the first row that gives a column its distance is before it on the path
        k = 0
        while cost[<int64_t>way[k].row * w.m + end] - price - way[k].h != least:
            k += 1
        w.row[end], w.column[way[k].row] = way[k].row, end
        if k == 0:
            if w.patience >= 0:
                w.patience = max(w.patience - scanned, 0)
            return 0
        end, price, least = way[k - 1].column, way[k - 1].price, way[k - 1].dist


cdef int solve(Work *w, const Cost *cost) except -1 nogil:
    """Match the rows of a matrix that was taken."""
    cdef int32_t i, j
    for i in range(w.n):
        w.column[i] = -1
    for j in range(w.m):
        w.row[j] = -1
    if w.n == w.m and not is_clipped(w, cost):
        match_columns(w)
    else:
        for j in range(w.m):
            w.price[j] = 0
    w.unmatched = 0
    for i in range(w.n):
        if w.column[i] < 0:
            w.waiting[w.unmatched] = i
            w.unmatched += 1
    if w.m > 1:
        reduce_rows(w, cost)
        reduce_rows(w, cost)
    for i in range(w.unmatched):
        if w.patience == 0:
            return 0
        augment(w, cost, w.waiting[i])
    w.patience = -1
    for j in range(w.m):
        w.price[j] += w.row[j] >= 0
    return 0


cdef bint take_integers(Work *w, const char *at, Py_ssize_t down, Py_ssize_t across, bint negated, Cost *c) except -1 nogil:
    """Copy a matrix; False if its numbers are too large."""
    cdef int64_t size, most = MOST // (w.n + <int64_t>w.m + 3)
    cdef int32_t i
    if Cost is int32_t:
        most = min(most, <int64_t>1 << 30)
    for i in range(w.n):
        if Cost is int32_t:
            size = fs_double_short(<const int64_t *>line(w, at + i * down, across), c, -negated, w.m)
        else:
            size = fs_double(<const int64_t *>line(w, at + i * down, across), c, -negated, w.m)
        if size >= most:
            return False
        lower(w, c, i)
        c += w.m
        spend(w, w.m)
    return True


cdef bint match_integers(Work *w, const char *at, Py_ssize_t down, Py_ssize_t across, bint negated) except -1 nogil:
    """Match integers, those that are small in half the memory; False if they are too large."""
    if take_integers(w, at, down, across, negated, <int32_t *>w.cost):
        solve(w, <const int32_t *>w.cost)
    elif take_integers(w, at, down, across, negated, w.cost):
        solve(w, <const int64_t *>w.cost)
    else:
        return False
    return True


# == floats ======================================================================================================


cdef int bits_of(Work *w, const Cost *cost) noexcept nogil:
    """Return the bits of the largest integers, before they are doubled."""
    cdef int size = 30
    if Cost is int64_t:
        frexp(<double>(MOST // 2 // (w.n + <int64_t>w.m + 3)), &size)
    return min(size - 1, 50)


cdef double units(double largest, int bits) noexcept nogil:
    """Return the power of 2 that scales floats to integers of some bits; 0 if a float is infinite, or all are too small or too large."""
    cdef int size = 0
    frexp(largest, &size)
    size = bits - size
    return ldexp(1, size) if largest <= LARGEST and -1000 < size < 1000 else 0


cdef double largest_of(Work *w, const char *at, Py_ssize_t down, Py_ssize_t across, int32_t step) except? -1 nogil:
    """Return the largest size of the numbers in each row, or in some; infinity or NaN if there are such ones."""
    cdef int64_t bits = 0
    cdef double largest = 0
    cdef int32_t i = 0
    while i < w.n:
        bits = max(bits, fs_largest(<const double *>line(w, at + i * down, across), w.m))
        spend(w, w.m)
        i += step
    memcpy(&largest, &bits, sizeof(double))
    return largest


cdef bint round_all(Work *w, const char *at, Py_ssize_t down, Py_ssize_t across, double scale, Cost *c, bint *exact) except -1 nogil:
    """Copy a matrix, rounded to whole units; False if a number is too large for them."""
    cdef int64_t result, most = <int64_t>1 << bits_of(w, c)
    cdef int32_t i
    exact[0] = True
    for i in range(w.n):
        if Cost is int32_t:
            result = fs_round_short(<const double *>line(w, at + i * down, across), c, scale, 1 / scale, most, w.m)
        else:
            result = fs_round(<const double *>line(w, at + i * down, across), c, scale, 1 / scale, most, w.m)
        if result:
            exact[0] = False
            if result != 1:
                return False
        lower(w, c, i)
        c += w.m
        spend(w, w.m)
    return True


cdef double take_floats(Work *w, const char *at, Py_ssize_t down, Py_ssize_t across, bint negated, Cost *c, bint *exact) except? -1 nogil:
    """Copy a matrix, rounded to whole units, and return the number of units in 1, negative for a negated one; 0 if that fails.

    Eight times the largest number of two rows is likely to be above all others, so the matrix is read once.
    """
    cdef int bits = bits_of(w, c), sign = -1 if negated else 1
    cdef double scale = sign * units(largest_of(w, at, down, across, (w.n + 1) // 2), bits - 3)
    if scale == 0 or not round_all(w, at, down, across, scale, c, exact):
        scale = sign * units(largest_of(w, at, down, across, 1), bits)
        if scale == 0 or not round_all(w, at, down, across, scale, c, exact):
            return 0
    return scale


cdef bint match_rounded(Work *w, const char *at, Py_ssize_t down, Py_ssize_t across, bint negated, Cost *c) except -1 nogil:
    """Match floats; False if a number is not finite, or if it is left open whether the matching is the best one."""
    cdef bint exact = False
    w.scale = take_floats(w, at, down, across, negated, c, &exact)
    if w.scale == 0:
        return False
    solve(w, <const Cost *>c)
    return w.patience == 0 or exact or confirm(w, at, down, across, <const Cost *>c)


cdef bint match_floats(Work *w, const char *at, Py_ssize_t down, Py_ssize_t across, bint negated) except -1 nogil:
    """Match floats, large matrices in 32 bits at first, and in 64 if that leaves open whether the matching is the best one; False if these do, too."""
    cdef int64_t patience = w.patience
    if w.n * <int64_t>w.m >= SHORT and match_rounded(w, at, down, across, negated, <int32_t *>w.cost):
        return True
    w.patience = patience
    return match_rounded(w, at, down, across, negated, w.cost)


cdef bint confirm(Work *w, const char *at, Py_ssize_t down, Py_ssize_t across, const Cost *cost) except -1 nogil:
    """Make a matching that is optimal for rounded costs optimal for the floats; False if that is left open.

    Rounding has moved the cost of any n pairs by n / 2 units at most.  So a pair of a better matching is near: its reduced cost is at most n, and a column that
    a better matching leaves has a price of at least -n.  A better matching differs from this one along cycles of rows, each of which takes the column of the next one;
    the node n stands for the free columns.  In most cases no cycle consists of near pairs, as a basis has none.  Else exact costs decide.
    """
    cdef int32_t i
    if list_near(w, cost) < 0 and (not make_room(w) or list_near(w, cost) < 0):
        return False
    find_parts(w)
    for i in range(w.n):
        if w.part[i] >= 0:
            return weigh(w, at, down, across, cost) and improve(w)
    return True


cdef bint make_room(Work *w) except -1 nogil:
    """Make room for more near pairs, as many as a matrix with many equal costs has; False if there is, or if they are too many."""
    cdef int64_t near = <int64_t>w.n * w.m + w.m + 16
    if w.ties or near > TIES:
        return False
    with gil:
        fs_allocate()
    w.ties = <Weight *>malloc(near * (sizeof(Weight) + sizeof(int32_t)))
    if not w.ties:
        with gil:
            raise MemoryError
    w.room, w.weight, w.near = near, w.ties, <int32_t *>(w.ties + near)
    return True


cdef int64_t list_near(Work *w, const Cost *cost) except? -2 nogil:
    """List the near pairs by rows, and the columns that may be left as those of row n; return -1 if there are too many."""
    cdef int64_t count = 0, added, limit, far = 2 * <int64_t>w.n, room = w.room - w.m
    cdef const Cost *c = cost
    cdef int32_t i, j
    for i in range(w.n):
        w.first[i] = <int32_t>count
        limit = c[w.column[i]] - w.price[w.column[i]] + far
        if Cost is int32_t:
            added = fs_near_short(c, w.price, limit, w.m, w.near + count, room - count)
        else:
            added = fs_near(c, w.price, limit, w.m, w.near + count, room - count)
        if added < 0:
            return -1
        spend(w, w.m)
        count += added
        c += w.m
    w.first[w.n] = <int32_t>count
    if w.n < w.m:
        for j in range(w.m):
            if w.price[j] >= -far:
                w.near[count] = j
                count += 1
    w.first[w.n + 1] = <int32_t>count
    return count


cdef inline int32_t owner(Work *w, int32_t j) noexcept nogil:
    """The row of a column, n for a free one."""
    return w.row[j] if w.row[j] >= 0 else w.n


cdef int find_parts(Work *w) except -1 nogil:
    """Set the part of each row: rows of the same part are on cycles of near pairs together; -1 without a cycle.

    R. Tarjan, Depth-first search and linear graph algorithms, SIAM Journal on Computing 1 (1972); `mark` is the order in which rows are found.
    """
    cdef int32_t *low = w.queued
    cdef int32_t *stack = w.queue
    cdef int32_t start, v, k, parent, found = 0, height = 0
    for v in range(w.n + 1):
        w.mark[v] = 0
    for start in range(w.n + 1):
        if w.mark[start]:
            continue
        v, w.tail[start] = start, -1
        while v >= 0:
            if not w.mark[v]:
                found += 1
                w.mark[v] = low[v] = found
                w.through[v], w.part[v] = w.first[v], PENDING
                stack[height] = v
                height += 1
            if w.through[v] < w.first[v + 1]:
                k = owner(w, w.near[w.through[v]])
                w.through[v] += 1
                if not w.mark[k]:
                    w.tail[k] = v
                    v = k
                elif w.part[k] == PENDING:
                    low[v] = min(low[v], w.mark[k])
                continue
            if low[v] == w.mark[v]:
                k = -1 if stack[height - 1] == v else v
                while True:
                    height -= 1
                    w.part[stack[height]] = k
                    if stack[height] == v:
                        break
            parent = w.tail[v]
            if parent >= 0:
                low[parent] = min(low[parent], low[v])
            v = parent
    return 0


cdef bint weigh(Work *w, const char *at, Py_ssize_t down, Py_ssize_t across, const Cost *cost) except -1 nogil:
    """Set the weights of near pairs: what each adds to the cost, exactly; False if a fraction is too fine."""
    cdef double x, fraction, one = <double>(<int64_t>1 << FRACTION)
    cdef const Cost *c
    cdef int64_t base, own
    cdef int32_t i, j, p
    for i in range(w.n):
        if w.part[i] < 0:
            continue
        c = cost + <int64_t>i * w.m
        base, own = c[w.column[i]] - w.price[w.column[i]], 0
        for p in range(w.first[i], w.first[i + 1]):
            j = w.near[p]
            x = (<const double *>(at + i * down + j * across))[0]
            fraction = (x * w.scale - <double>(c[j] >> 1)) * one
            if x * w.scale / w.scale != x or not fabs(fraction) <= one or <double><int64_t>fraction != fraction:
                return False
            w.weight[p].whole, w.weight[p].fraction = (c[j] - w.price[j] - base) >> 1, <int64_t>fraction
            if j == w.column[i]:
                w.taken[i], own = p, <int64_t>fraction
        for p in range(w.first[i], w.first[i + 1]):
            w.weight[p].fraction -= own
    for p in range(w.first[w.n], w.first[w.n + 1]):
        w.weight[p].whole, w.weight[p].fraction = -(w.price[w.near[p]] >> 1), 0
    return True


cdef bint improve(Work *w) except -1 nogil:
    """Change the matching along cycles of negative weight until none is left; False if that takes too long.

    The algorithm of Bellman and Ford, with a queue; a pass takes the rows whose paths became shorter since the last one.
    """
    cdef int32_t i, j, k, p, waiting = 0, passes = 0, at = 0, _left
    cdef int64_t work = 12 * <int64_t>w.first[w.n + 1] + 64 * <int64_t>w.n + 4096
    cdef Weight length
    cdef bint changed = True
    while True:
        if changed:
            waiting = at = 0
            for i in range(w.n + 1):
                w.length[i].whole, w.length[i].fraction, w.tail[i], w.queued[i] = 0, 0, -1, w.part[i] >= 0
                if w.part[i] >= 0:
                    w.queue[waiting] = i
                    waiting += 1
            changed = False
        if waiting == 0:
            return True
        for _left in range(waiting, 0, -1):
            i = w.queue[at]
            at = at + 1 if at < w.n else 0
            waiting -= 1
            w.queued[i] = False
            work -= 1 + w.first[i + 1] - w.first[i]
            for p in range(w.first[i], w.first[i + 1]):
                j = w.near[p]
                k = owner(w, j)
                if k == i or w.part[k] != w.part[i]:
                    continue
                length = w.length[i]
                length.whole += w.weight[p].whole
                length.fraction += w.weight[p].fraction
                if i < w.n:
                    length.whole -= w.weight[w.taken[i]].whole
                    length.fraction -= w.weight[w.taken[i]].fraction
                if k == w.n:
                    length.whole += w.price[j] >> 1
                length.whole += length.fraction >> FRACTION
                length.fraction &= (<int64_t>1 << FRACTION) - 1
                if length.whole < w.length[k].whole or (length.whole == w.length[k].whole and length.fraction < w.length[k].fraction):
                    w.length[k], w.tail[k], w.through[k] = length, i, p
                    if not w.queued[k]:
                        w.queued[k] = True
                        w.queue[(at + waiting) % (w.n + 1)] = k
                        waiting += 1
        if work < 0:
            return False
        passes += 1
        if passes % 16 == 0:
            k = on_cycle(w)
            if k >= 0:
                exchange(w, k)
                changed = True


cdef int32_t on_cycle(Work *w) except? -2 nogil:
    """Return a row of a cycle of the paths, -1 without one; its weight is negative."""
    cdef int32_t start, i
    for i in range(w.n + 1):
        w.mark[i] = -1
    for start in range(w.n + 1):
        i = start
        while i >= 0 and w.mark[i] < 0:
            w.mark[i], i = start, w.tail[i]
        if i >= 0 and w.mark[i] == start:
            return i
    return -1


cdef int exchange(Work *w, int32_t start) except -1 nogil:
    """Give each row of a cycle the column of the next one."""
    cdef int32_t i, j, k = start
    while True:
        i, j = w.tail[k], w.near[w.through[k]]
        if i < w.n:
            w.column[i], w.row[j], w.taken[i] = j, i, w.through[k]
        else:
            w.row[j] = -1
        k = i
        if k == start:
            return 0


cdef int64_t *start(vector) except NULL:
    """The first element of a vector that is kept until it has been filled."""
    cdef Py_buffer view
    PyObject_GetBuffer(vector, &view, PyBUF_WRITABLE)
    PyBuffer_Release(&view)
    return <int64_t *>view.buf


def assign(cost, bint maximize, /):
    """Return rows and columns of the best matching of a matrix, or of each in a stack of them; None for an array that only the general way takes.

    That is everything but a plain array of int64 or float64, numbers that are too large, infinite pairs, and floats whose fractions may decide.
    Return potentials for a large matrix whose searches are long: from them the network simplex is likely to be faster.
    """
    cdef Py_buffer view
    cdef Work w
    cdef Py_ssize_t down, across, k, stack = 1, step = 0, last
    cdef int32_t n, m, j
    cdef int64_t *rows
    cdef int64_t *columns
    cdef const char *at
    cdef bint turned, done = True
    prices = None
    if type(cost) is not ndarray:
        return None
    PyObject_GetBuffer(cost, &view, PyBUF_STRIDED_RO | PyBUF_FORMAT)
    try:
        last = view.ndim - 1
        if not 1 <= last <= 2 or view.itemsize != 8 or view.format[0] not in b"lqd" or view.format[1] != 0:
            return None
        if not 0 < view.shape[last - 1] < 2**31 or not 0 < view.shape[last] < 2**31:
            return None
        if last == 2:
            stack, step = view.shape[0], view.strides[0]
        n, m, down, across = <int32_t>view.shape[last - 1], <int32_t>view.shape[last], view.strides[last - 1], view.strides[last]
        turned = n > m or (n == m and across != 8 and down == 8)     # rows are read fast where their numbers are next to each other
        if turned:
            n, m, down, across = m, n, across, down
        found = _empty(n * stack, int64), _empty(n * stack, int64)
        rows, columns = start(found[0]), start(found[1])
        at = <const char *>view.buf
        begin(&w, n, m, view.format[0] == c"d")
        if last == 1 and n >= LARGE:
            w.patience = PATIENCE * <int64_t>n * m
        try:
            with nogil:
                for k in range(stack):
                    if view.format[0] == c"d":
                        done = match_floats(&w, at + k * step, down, across, maximize)
                    else:
                        done = match_integers(&w, at + k * step, down, across, maximize)
                    if not done:
                        break
                    if not turned:
                        for j in range(n):
                            rows[j], columns[j] = j, w.column[j]
                        rows, columns = rows + n, columns + n
                    else:
                        for j in range(m):
                            if w.row[j] >= 0:
                                rows[0], columns[0] = j, w.row[j]
                                rows, columns = rows + 1, columns + 1
            if done and w.patience == 0:
                prices = _zeros(n + <int64_t>m, int64)
                rows = start(prices) + (0 if turned else n)
                for j in range(m):
                    rows[j] = ((w.price[j] + (w.row[j] >= 0)) >> 1) * (-1 if turned else 1)
                if view.format[0] == c"d":
                    prices = prices / fabs(w.scale)
        finally:
            end(&w)
    finally:
        PyBuffer_Release(&view)
    if not done:
        return None
    if prices is not None:
        return prices
    return found if last == 1 else tuple([lines.reshape(stack, n) for lines in found])


cdef Py_buffer *look(cost, Py_buffer *view, Work *w) except NULL:
    """Look at a matrix of floats that has no fewer columns than rows, and make room for it."""
    PyObject_GetBuffer(cost, view, PyBUF_STRIDED_RO)
    try:
        begin(w, <int32_t>view.shape[0], <int32_t>view.shape[1], True)
    except BaseException:
        PyBuffer_Release(view)
        raise
    return view


def rounded(cost, bint maximize, /):
    """Return a matrix of float64 as integers to be minimised, and the number of these in 1; it has no fewer columns than rows."""
    cdef Py_buffer view
    cdef Work w
    cdef bint exact
    cdef int64_t k
    cdef int64_t *to
    look(cost, &view, &w)
    try:
        whole = _empty(w.n * <int64_t>w.m, int64)
        to = start(whole)
        w.scale = take_floats(&w, <const char *>view.buf, view.strides[0], view.strides[1], maximize, w.cost, &exact)
        for k in range(w.n * <int64_t>w.m):
            to[k] = w.cost[k] >> 1
        return whole.reshape(w.n, w.m), fabs(w.scale)
    finally:
        end(&w)
        PyBuffer_Release(&view)


def confirmed(cost, bint maximize, const int64_t[::1] columns, const int64_t[::1] prices, /):
    """Return the columns of the best matching of floats from those of the `rounded` ones and their prices; None if that is left open."""
    cdef Py_buffer view
    cdef Work w
    cdef bint exact, done
    cdef int32_t i, j
    look(cost, &view, &w)
    try:
        found = _empty(w.n, int64)
        with nogil:
            w.scale = take_floats(&w, <const char *>view.buf, view.strides[0], view.strides[1], maximize, w.cost, &exact)
            for j in range(w.m):
                w.row[j], w.price[j] = -1, 2 * prices[j]
            for i in range(w.n):
                w.column[i] = <int32_t>columns[i]
                w.row[columns[i]] = i
            done = w.scale != 0 and (exact or confirm(&w, <const char *>view.buf, view.strides[0], view.strides[1], <const int64_t *>w.cost))
        if not done:
            return None
        for i in range(w.n):
            start(found)[i] = w.column[i]
        return found
    finally:
        end(&w)
        PyBuffer_Release(&view)


def match(const int64_t[:, ::1] cost, /):
    """Return the column of each row, and the price of each column; the matrix has no fewer columns than rows, and at least one of each."""
    cdef Work w
    cdef bint done
    begin(&w, <int32_t>cost.shape[0], <int32_t>cost.shape[1], False)
    try:
        columns, prices = _empty(w.n, np.int32), _empty(w.m, np.int64)
        with nogil:
            done = match_integers(&w, <const char *>&cost[0, 0], cost.strides[0], cost.strides[1], False)
        if not done:
            raise OverflowError("a cost is too large")
        np.asarray(columns)[:] = <int32_t[:w.n]>w.column
        np.asarray(prices)[:] = <int64_t[:w.m]>w.price
        prices >>= 1
        return columns, prices
    finally:
        end(&w)
