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

The caller keeps (n + m + 3) * |c| below 2**59, so no price and no path length overflows.

R. Jonker and A. Volgenant, A shortest augmenting path algorithm for dense and sparse linear assignment problems, Computing 38 (1987).
"""

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_STRIDED_RO, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport fabs, frexp, ldexp
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc

from flowsched._faults cimport FS_FUEL, _empty, _zeros, fs_allocate, fs_look

import numpy as np

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__GLIBC__) && defined(__x86_64__) && (!defined(__clang__) || __clang_major__ >= 14)
    #define FS_WIDE __attribute__((target_clones("avx2", "default")))
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
    FS_RELAX(fs_relax_short, int32_t)
    FS_RELAX(fs_relax, int64_t)
    """
    int64_t fs_relax_short(const int32_t *cost, const int64_t *price, int64_t h, int64_t *dist, int64_t m) nogil
    int64_t fs_relax(const int64_t *cost, const int64_t *price, int64_t h, int64_t *dist, int64_t m) nogil

ctypedef fused Cost:
    int32_t
    int64_t

cdef int64_t BEYOND = <int64_t> 1 << 62             # above all distances
cdef int64_t SETTLED = -((<int64_t> 3) << 61)       # a price that no path takes
cdef int64_t PATIENCE = 25          # scans of a pair, on average, before searches are given up on a matrix of
cdef int32_t LARGE = 256            # this number of rows: shifted clouds of 1,500 points take 650 ms without that limit
cdef int64_t MOST = <int64_t> 1 << 59
cdef double LARGEST = 1.7976931348623157e308
cdef object ndarray = np.ndarray, int64 = np.dtype(np.int64)

cdef struct Settled:    # the k-th column of a search, and the row that was scanned before it
    int32_t row
    int32_t column
    int64_t h           # reduced cost of that row's column, minus its distance
    int64_t price       # of the column before the search
    int64_t dist

cdef struct Work:
    int32_t n, m
    int32_t unmatched   # number of free rows
    int64_t *cost       # doubled, by rows; of 32 bits if all are small
    int64_t *price      # v(j), doubled
    int64_t *dist       # of a column, while a path is searched; BEYOND where it is settled
    Settled *settled
    int32_t *before     # the row that gives a column its price
    int32_t *row        # of a column, -1 if it is free
    int32_t *column     # of a row, -1 if it is free
    int32_t *waiting    # free rows
    int64_t fuel
    int64_t patience    # pairs that searches may scan before they are given up; negative: any number


cdef int begin(Work *w, int32_t n, int32_t m) except -1:
    """Make room for an n x m matrix."""
    cdef int64_t wide = <int64_t>n * m + 6 * <int64_t>m
    cdef char *room
    fs_allocate()
    room = <char *>malloc(8 * wide + 4 * (2 * <int64_t>m + 2 * <int64_t>n))
    if not room:
        raise MemoryError
    w.n, w.m, w.fuel, w.patience = n, m, FS_FUEL, -1
    w.cost = <int64_t *>room
    w.price = w.cost + <int64_t>n * m
    w.dist, w.settled = w.price + m, <Settled *>(w.price + 2 * m)
    w.before = <int32_t *>(w.settled + m)
    w.row, w.column = w.before + m, w.before + 2 * m
    w.waiting = w.column + n
    return 0


cdef inline int spend(Work *w, int64_t work) except -1 nogil:
    w.fuel -= work
    if w.fuel < 0:
        w.fuel = FS_FUEL
        with gil:
            fs_look()
    return 0


cdef int reduce_columns(Work *w, const Cost *cost) except -1 nogil:
    """Give each column its least cost as price, and its row, if that is free yet."""
    cdef int32_t i, j
    cdef const Cost *c = cost
    cdef int64_t *v = w.price
    for j in range(w.m):
        v[j], w.before[j] = c[j], 0
    for i in range(1, w.n):
        c = cost + <int64_t>i * w.m
        for j in range(w.m):
            if c[j] < v[j]:
                v[j], w.before[j] = c[j], i
        spend(w, w.m)
    for j in range(w.m - 1, -1, -1):
        i = w.before[j]
        if w.column[i] < 0:
            w.column[i], w.row[j] = j, i
            v[j] -= 1
    return 0


cdef int reduce_rows(Work *w, const Cost *cost) except -1 nogil:
    """Match each free row to its best column; rows that lose theirs wait for the next pass, or are matched at once."""
    cdef int32_t i, j, k = 0, count = w.unmatched, best, second, other
    cdef int64_t least, next_least, d
    cdef const Cost *c
    cdef int64_t *v = w.price
    cdef int64_t turns = 2 * <int64_t>count        # a larger number does not pay
    w.unmatched = 0
    while k < count:
        i = w.waiting[k]
        k += 1
        c = cost + <int64_t>i * w.m
        least, next_least, best, second = c[0] - v[0], BEYOND, 0, 0
        for j in range(1, w.m):
            d = c[j] - v[j]
            if d < next_least:
                if d < least:
                    next_least, second = least, best
                    least, best = d, j
                else:
                    next_least, second = d, j
        spend(w, w.m)
        d = 2 * ((next_least >> 1) - (least >> 1))
        if not d and w.row[best] >= 0:
            best = second
        other = w.row[best]
        v[best] -= d + (other < 0)
        w.column[i], w.row[best] = best, i
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
        end = 0
        while w.dist[end] != least:
            end += 1
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
    cdef int32_t i, j
    for i in range(w.n):
        w.column[i] = -1
    for j in range(w.m):
        w.row[j], w.price[j] = -1, 0
    if w.n == w.m:
        reduce_columns(w, cost)
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


cdef bint take_integers(Work *w, const char *at, Py_ssize_t down, Py_ssize_t across, bint negated, Cost *c) noexcept nogil:
    """Copy a matrix; False if its numbers are too large."""
    cdef int64_t low = 0, high = 0, x, most = MOST // (w.n + <int64_t>w.m + 3)
    cdef uint64_t sign = 0 if not negated else <uint64_t>-1
    cdef int32_t i, j
    if Cost is int32_t:
        most = min(most, <int64_t>1 << 30)
    for i in range(w.n):
        for j in range(w.m):
            x = (<const int64_t *>(at + i * down + j * across))[0]
            low, high = min(low, x), max(high, x)
            c[j] = <Cost>(((<uint64_t>x ^ sign) - sign) << 1)
        if not (-most < low and high < most):
            return False
        c += w.m
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


cdef bint is_unique(Work *w) noexcept nogil:
    """True if the matching stays the best one when each cost moves by less than 1.

    A pair of another matching has a reduced cost of more than 2 n then, and no n pairs move by as much.
    """
    cdef int64_t u, far = 4 * <int64_t>w.n
    cdef const int64_t *c = w.cost
    cdef int32_t i, j, near
    for i in range(w.n):
        u, near = c[w.column[i]] - w.price[w.column[i]] + far, 0
        for j in range(w.m):
            near += c[j] - w.price[j] <= u
        if near > 1:
            return False
        c += w.m
    return True


cdef bint match_floats(Work *w, const char *at, Py_ssize_t down, Py_ssize_t across, bint negated) except -1 nogil:
    """Match floats, in units of a power of 2; False if a number is not finite, or if fractions that were cut off may decide."""
    cdef double largest = 0, x, scale, unit
    cdef double *given = <double *>w.cost
    cdef int64_t k, whole, most = MOST // (w.n + <int64_t>w.m + 3)
    cdef int32_t i, j
    cdef bint exact = True
    cdef int size = 0, bits = 0
    for i in range(w.n):
        for j in range(w.m):
            x = (<const double *>(at + i * down + j * across))[0]
            if not fabs(x) <= LARGEST:
                return False
            largest, given[j] = max(largest, fabs(x)), x
        given += w.m
    frexp(<double>most, &bits)
    frexp(largest, &size)
    bits -= 2 + size
    if not -1000 < bits < 1000:
        return False
    scale, unit = ldexp(-1 if negated else 1, bits), ldexp(-1 if negated else 1, -bits)
    for k in range(<int64_t>w.n * w.m):
        x = (<double *>w.cost)[k]
        whole = <int64_t>(x * scale)
        w.cost[k] = 2 * whole
        if <double>whole * unit != x:
            exact = False
    solve(w, <const int64_t *>w.cost)
    return exact or is_unique(w)


cdef int64_t *start(vector) except NULL:
    """The first element of a vector that is kept until it has been filled."""
    cdef Py_buffer view
    PyObject_GetBuffer(vector, &view, PyBUF_WRITABLE)
    PyBuffer_Release(&view)
    return <int64_t *>view.buf


def assign(cost, bint maximize, /):
    """Return rows and columns of the best matching of a matrix, or of each in a stack of them; None for an array that only the general way takes.

    That is everything but a plain array of int64 or float64, numbers that are too large, infinite pairs, and floats whose fractions may decide.
    Return potentials for a large matrix of integers whose searches are long: from them the network simplex is likely to be faster.
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
        turned = n > m
        if turned:
            n, m, down, across = m, n, across, down
        found = _empty(n * stack, int64), _empty(n * stack, int64)
        rows, columns = start(found[0]), start(found[1])
        at = <const char *>view.buf
        begin(&w, n, m)
        if last == 1 and view.format[0] != c"d" and n >= LARGE:
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
        finally:
            free(w.cost)
    finally:
        PyBuffer_Release(&view)
    if not done:
        return None
    if prices is not None:
        return prices
    return found if last == 1 else tuple([lines.reshape(stack, n) for lines in found])


def match(const int64_t[:, ::1] cost, /):
    """Return the column of each row, and the price of each column; the matrix has no fewer columns than rows, and at least one of each."""
    cdef Work w
    cdef bint done
    begin(&w, <int32_t>cost.shape[0], <int32_t>cost.shape[1])
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
        free(w.cost)
