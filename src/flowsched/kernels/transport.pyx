"""Dense transport: the network simplex on a cost matrix, without arcs.

The problem
-----------
Given are an n x m matrix c of integers, supplies a(i) >= 0 of the rows, demands b(j) >= 0 of the columns, and a price P.  Find amounts x(i, j) >= 0 whose sums
are at most a(i) by row and b(j) by column, at the least cost

    sum of c(i, j) x(i, j) + P (sum of a(i) - sum of x(i, j)).

The tree of basis.pyx spans the rows 0 .. n - 1, the columns n .. n + m - 1 and the *root* n + m.  The root takes what a row *keeps*, at the price P, and gives
what a column *lacks*, at the price 0.  The caller says which of these arcs exist: by default those that are needed, and without a price P is so large that as
little as possible is kept.

The *reduced cost* of a pair is rc(i, j) = c(i, j) + p(i) - p(j), likewise for the root's arcs.  Potentials p prove an optimum if no rc is negative, and rc is 0
where something is shipped, kept or lacked.

The method
----------
No arc has a capacity, so an arc outside the tree carries nothing, and nothing is stored for it.  Invariant (S) of basis.pyx means here that something is
shipped on the arc from a parent to a column.

1. The caller gives prices of columns: the potentials of a similar problem, or the least cost of each column.  A pair is *tight* if its c(i, j) - price(j) is
   the least of its row.  `load_tight` ships along tight pairs, first at nodes that have only one left; so optimal prices lead to the optimum itself.
   `load_rest` ships what is left, row by row, to the columns that are the best among those with a rest.
2. Each shipment fills a row or a column.  So shipments form a forest, and a component has one node with a rest at most.  `plant` hangs it from the root at that
   node, or else at any row.
3. `pivot_all` scans the pairs cyclically in *blocks*: parts of a row, or several rows, of max(sqrt(n m), (n + m) / 3) pairs.  The pair of least rc in a block
   enters the tree (`pivot`).  The optimum is reached once a cycle has found no negative rc.  A scan is one pass over contiguous memory, in vector instructions.

A pivot costs O(sqrt(n m) + n + m): a block, the cycle that the pair closes, and the part of the tree whose potentials change.  The number of pivots is finite,
as the tree is strongly feasible (Cunningham), and exponential in the worst case; 10 to 40 for each row and column are usual.  Memory beyond the matrix: about
150 bytes for each row and column.

A row without supply is *idle*, and so is a column without demand.  It hangs from the root at a potential at which no pair of it can enter, and gets a proper
one at the end (`price_idle`).

Example
-------
Rows with supplies 3, 2; columns with demands 2, 3; costs (1 4 / 2 3).  The columns' least costs are 1, 3, so that row 0 is tight with column 0 only (0 against
1), and row 1 with column 1 (1 against 0).  Along these pairs 2 and 2 are shipped, and the rest of row 0 goes to column 1.  The three pairs form a tree with p =
0, 1 for the rows and 1, 4 for the columns.  The last pair has rc = 2 + 1 - 1 >= 0: the cost of 2 + 4 + 6 is least.

Ranges
------
The caller keeps (n + m + 3) |c| and P below 2**58 where P is given, and P below 2**59 + 2**32 else.  Then |p - p(root)| < 2**60, except `ASIDE` = 2**60 at
idle nodes, |p(root)| stays below 2**59 (`shift`), and no reduced cost overflows.  Floats are integers in units of a power of 2, below 2**51: adding 1.5 * 2**52
moves such a number into the lowest bits of the float.  An infinite one becomes 1.9 * 2**61, and its pair cannot enter.

References
----------
W. H. Cunningham, A network simplex method, Mathematical Programming 11 (1976).
P. Kovacs, Minimum-cost flow algorithms: an experimental evaluation, Optimization Methods and Software 30 (2015), for block search.
N. Bonneel, M. van de Panne, S. Paris, W. Heidrich, Displacement interpolation using Lagrangian mass transport, ACM Transactions on Graphics 30 (2011), for
dense transport by block search.
"""

cimport cython
from cpython.buffer cimport PyBUF_STRIDED_RO, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t

from flowsched._faults cimport FS_LONG, _copy, _empty, _zeros, fs_look
from flowsched.kernels.basis cimport CINF, INT32, INT64, LINK, NODE, SLACK, Basis, Link
from flowsched.kernels.wide cimport fs_muladd

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__GLIBC__) && defined(__x86_64__) && (!defined(__clang__) || __clang_major__ >= 14)
    #define FS_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
    #else
    #define FS_WIDEST
    #endif
    static inline int64_t fs_whole(double x) {      /* |x| <= 2**51 and an integer, or infinity, which becomes 1.9 * 2**61 */
        double y = x + 6755399441055744.0;
        int64_t bits;
        memcpy(&bits, &y, 8);
        return bits - 0x4338000000000000LL;
    }
    /* The least cost[j] - price[j], the first j where it is at most `value` (m if there is none), and cost[j]. */
    #define FS_ROWS(type, read) \\
    FS_WIDEST static int64_t fs_least_##type(const type *cost, const int64_t *price, int64_t begin, int64_t end, double scale) { \\
        int64_t least = (int64_t)1 << 62; \\
        for (int64_t j = begin; j < end; j++) { \\
            int64_t d = read(cost[j]) - price[j]; \\
            least = d < least ? d : least; \\
        } \\
        return least; \\
    } \\
    static int64_t fs_find_##type(const type *cost, const int64_t *price, int64_t begin, int64_t m, double scale, int64_t value) { \\
        while (begin < m && read(cost[begin]) - price[begin] > value) begin++; \\
        return begin; \\
    } \\
    static inline int64_t fs_at_##type(const type *cost, int64_t j, double scale) { return read(cost[j]); }
    #define FS_SAME(x) ((int64_t)(x))
    #define FS_SCALED(x) fs_whole((double)(x) * scale)
    FS_ROWS(int32_t, FS_SAME)
    FS_ROWS(int64_t, FS_SAME)
    FS_ROWS(float, FS_SCALED)
    FS_ROWS(double, FS_SCALED)
    #define FS_BY_KIND(kind, name, row, ...) ((kind) == 0 ? name##_int32_t((const int32_t *)(row), __VA_ARGS__) : \\
        (kind) == 1 ? name##_int64_t((const int64_t *)(row), __VA_ARGS__) : \\
        (kind) == 2 ? name##_float((const float *)(row), __VA_ARGS__) : name##_double((const double *)(row), __VA_ARGS__))
    #define fs_least_cost(kind, row, price, begin, end, scale) FS_BY_KIND(kind, fs_least, row, price, begin, end, scale)
    #define fs_find_cost(kind, row, price, begin, m, scale, value) FS_BY_KIND(kind, fs_find, row, price, begin, m, scale, value)
    #define fs_cost_at(kind, row, j, scale) FS_BY_KIND(kind, fs_at, row, j, scale)
    """
    int64_t fs_least_cost(int kind, const char *row, const int64_t *price, int64_t begin, int64_t end, double scale) nogil
    int64_t fs_find_cost(int kind, const char *row, const int64_t *price, int64_t begin, int64_t m, double scale, int64_t value) nogil
    int64_t fs_cost_at(int kind, const char *row, int64_t j, double scale) nogil

cdef int64_t ASIDE = <int64_t>1 << 60       # potential of an idle row relative to the root's, and of an idle column, negated
cdef int32_t BLOCK_MIN = 256                # pairs in a block, at least: fewer cost as much as the exchange of arcs
cdef int32_t TIGHT = 4                      # tight pairs for each row and column, at most
cdef int32_t IDLE = -1                      # `code` of an idle row or column
KINDS = {"i4": 0, "i8": 1, "f4": 2, "f8": 3}


@cython.final
cdef class Transport(Basis):
    """One solve; see the head of this file."""

    cdef Py_buffer view
    cdef const char *cost
    cdef Py_ssize_t stride
    cdef int kind
    cdef double scale              # of floats
    cdef int32_t rows, columns
    cdef int64_t price             # P
    cdef bint keeping, lacking     # arcs row -> root, root -> column exist
    cdef int64_t[::1] rest         # of supply or demand, by node
    cdef const int64_t[::1] given  # prices of columns to begin with
    cdef int64_t[::1] offer        # price of a column; -ASIDE once it is full
    # shipments of the start, at most one for each node
    cdef int32_t[::1] from_row, to_column
    cdef int64_t[::1] amount
    cdef int32_t shipments
    cdef int64_t pivots, degenerate, scanned

    @cython.embedsignature(True)
    def __init__(self, cost, double scale, const int64_t[::1] supply, const int64_t[::1] demand, const int64_t[::1] offer, int64_t price, bint keeping, bint lacking):
        self.rows, self.columns = cost.shape
        self.n = self.rows + self.columns
        n = self.n + 1
        self.kind, self.scale, self.price, self.keeping, self.lacking = KINDS[cost.dtype.str[1:]], scale, price, keeping, lacking
        PyObject_GetBuffer(cost, &self.view, PyBUF_STRIDED_RO)
        self.cost, self.stride = <const char *>self.view.buf, self.view.strides[0]
        self.rest = _empty(n, INT64)
        self.rest[:self.rows] = supply
        self.rest[self.rows:self.n] = demand
        self.given, self.offer = offer, _copy(offer)
        self.from_row, self.to_column, self.amount = _empty(n, INT32), _empty(n, INT32), _empty(n, INT64)
        self.potential = _zeros(n, INT64)
        self.link, self.slack, self.node = _empty(n, LINK), _empty(n, SLACK), _empty(n, NODE)
        self.next = _empty(n, INT32)
        self.anchor = self.n
        self.until_poll = FS_LONG

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    def solve(self):
        """Solve; False if the matrix changed meanwhile."""
        cdef bint done
        cdef int32_t count
        cdef int32_t[::1] rows, columns, around, begin
        rows, columns = _empty(TIGHT * <int64_t>self.n, INT32), _empty(TIGHT * <int64_t>self.n, INT32)
        around, begin = _empty(2 * TIGHT * <int64_t>self.n, INT32), _empty(self.n + 2, INT32)
        with nogil:
            count = self.find_tight(rows, columns)
            self.index(rows, columns, count, around, begin)
            self.load_tight(rows, columns, around, begin)
            done = self.load_rest()
            if done:
                self.index(self.from_row, self.to_column, self.shipments, around, begin)
                self.plant(around, begin)
        rows = columns = around = begin = None
        with nogil:
            done = done and self.pivot_all()
            if done:
                self.price_idle()
                done = self.is_tight()
        return done

    cdef inline const char *row(self, int32_t i) noexcept nogil:
        return self.cost + i * self.stride

    cdef inline int64_t at(self, int32_t i, int32_t j) noexcept nogil:
        return fs_cost_at(self.kind, self.row(i), j, self.scale)

    cdef inline int64_t least(self, int32_t i, int32_t begin, int32_t end, const int64_t *price) noexcept nogil:
        """The least cost of row i after the prices of columns, in a part of the row."""
        return fs_least_cost(self.kind, self.row(i), price, begin, end, self.scale)

    cdef int spend(self, int64_t work) except -1 nogil:
        self.until_poll -= work
        if self.until_poll < 0:
            self.until_poll = FS_LONG
            with gil:
                fs_look()
        return 0

    # == the first tree ========================================================================================

    cdef int32_t find_tight(self, int32_t[::1] rows, int32_t[::1] columns) except -1 nogil:
        """List the tight pairs; return their number."""
        cdef int32_t i, j, count = 0, most = TIGHT * self.n
        cdef int64_t value, at
        cdef const int64_t *offer = &self.offer[0]
        for j in range(self.columns):
            if not self.rest[self.rows + j]:
                self.offer[j] = -ASIDE
        for i in range(self.rows):
            if not self.rest[i]:
                continue
            value, at = self.least(i, 0, self.columns, offer), 0
            self.spend(self.columns)
            while count < most and value < ASIDE // 2:
                at = fs_find_cost(self.kind, self.row(i), offer, at, self.columns, self.scale, value)
                if at >= self.columns:
                    break
                rows[count], columns[count] = i, <int32_t>at
                count += 1
                at += 1
        return count

    cdef int index(self, const int32_t[::1] rows, const int32_t[::1] columns, int32_t count, int32_t[::1] around, int32_t[::1] begin) except -1 nogil:
        """List the pairs at each node v: around[begin[v]] .. around[begin[v + 1] - 1]."""
        cdef int32_t k, v
        for v in range(self.n + 2):
            begin[v] = 0
        for k in range(count):
            begin[rows[k] + 2] += 1
            begin[self.rows + columns[k] + 2] += 1
        for v in range(2, self.n + 2):
            begin[v] += begin[v - 1]
        for k in range(count):
            v = rows[k] + 1
            around[begin[v]] = k
            begin[v] += 1
            v = self.rows + columns[k] + 1
            around[begin[v]] = k
            begin[v] += 1
        return 0

    cdef int load_tight(self, const int32_t[::1] rows, const int32_t[::1] columns, const int32_t[::1] around, const int32_t[::1] begin) except -1 nogil:
        """Ship along tight pairs, first at nodes that have only one left."""
        cdef int32_t i, v, k, e, side, waiting = 0
        cdef int32_t *leaf = &self.next[0]       # a stack of nodes with one pair; `aim` counts the pairs of a node
        for v in range(self.n):
            self.node[v].aim = begin[v + 1] - begin[v]
            if self.node[v].aim == 1:
                leaf[waiting] = v
                waiting += 1
        for i in range(self.rows):
            while waiting or self.rest[i] and self.node[i].aim:
                v = i
                if waiting:
                    waiting -= 1
                    v = leaf[waiting]
                    if not self.rest[v] or not self.node[v].aim:
                        continue
                e = begin[v]
                while not self.rest[self.rows + columns[around[e]] if v < self.rows else rows[around[e]]]:
                    e += 1
                k = around[e]
                self.ship(rows[k], columns[k])
                for side in range(2):       # of the two nodes, one at least has no rest: its pairs are no longer open
                    v = rows[k] if side == 0 else self.rows + columns[k]
                    if self.rest[v]:
                        continue
                    for e in range(begin[v], begin[v + 1]):
                        waiting = self.close(self.rows + columns[around[e]] if side == 0 else rows[around[e]], leaf, waiting)
        return 0

    cdef inline int32_t close(self, int32_t v, int32_t *leaf, int32_t waiting) except -1 nogil:
        """Take a pair from a node; it waits if it has one left."""
        self.node[v].aim -= 1
        if self.node[v].aim == 1 and self.rest[v]:
            leaf[waiting] = v
            return waiting + 1
        return waiting

    cdef int ship(self, int32_t i, int32_t j) except -1 nogil:
        """Ship as much as possible from a row to a column; one of them has no rest then."""
        cdef int64_t amount = min(self.rest[i], self.rest[self.rows + j])
        cdef int32_t k = self.shipments
        self.rest[i] -= amount
        self.rest[self.rows + j] -= amount
        if not self.rest[self.rows + j]:
            self.offer[j] = -ASIDE
        self.from_row[k], self.to_column[k], self.amount[k] = i, j, amount
        self.shipments += 1
        return 0

    cdef bint load_rest(self) except -1 nogil:
        """Ship the remaining supplies, row by row, to the best columns that are not full; False if the matrix changed."""
        cdef int32_t i, j
        cdef int64_t value
        cdef const int64_t *offer = &self.offer[0]
        for i in range(self.rows):
            while self.rest[i]:
                value = self.least(i, 0, self.columns, offer)
                self.spend(self.columns)
                if value >= ASIDE // 2:        # full or not allowed
                    break
                j = <int32_t>fs_find_cost(self.kind, self.row(i), offer, 0, self.columns, self.scale, value)
                if j >= self.columns or not self.rest[self.rows + j]:
                    return False
                if self.keeping and self.lacking and self.at(i, j) >= self.price:
                    break
                self.ship(i, j)
        return True

    cdef int plant(self, const int32_t[::1] around, const int32_t[::1] begin) except -1 nogil:
        """Make a tree of the shipments: hang each component from the root by its node with a rest, or else by a row."""
        cdef int32_t root = self.n, top, v, w, k, last = root, turn
        self.link[root].parent, self.link[root].depth, self.node[root].code = -1, 0, 0
        for v in range(root):
            self.link[v].parent = -1
        for turn in range(2):
            for top in range(root):
                if self.link[top].parent >= 0 or turn == 0 and not self.rest[top]:
                    continue
                v = top
                self.link[v].parent, self.link[v].depth = root, 1
                self.enter(v, last, begin)
                last = v
                if v < self.rows:
                    self.slack[v].up, self.slack[v].down, self.potential[v] = CINF, self.rest[v], -self.price
                else:
                    self.slack[v].up, self.slack[v].down, self.potential[v] = self.rest[v], CINF, 0
                if not self.keeping and not self.lacking and begin[v] < begin[v + 1]:   # the root has no arcs, so any potential will do
                    k = around[begin[v]]
                    self.potential[v] = self.given[self.to_column[k]] - self.at(v, self.to_column[k])
                if begin[v] == begin[v + 1] and not self.rest[v]:
                    self.slack[v].up, self.slack[v].down, self.potential[v], self.node[v].code = CINF, 0, ASIDE if v < self.rows else -ASIDE, IDLE
                while v != root:        # depth first; `aim` is the next pair
                    if self.node[v].aim == begin[v + 1]:
                        self.node[v].last = last
                        v = self.link[v].parent
                        continue
                    k = around[self.node[v].aim]
                    self.node[v].aim += 1
                    w = self.rows + self.to_column[k] if v < self.rows else self.from_row[k]
                    if w == self.link[v].parent:
                        continue
                    self.link[w].parent, self.link[w].depth = v, self.link[v].depth + 1
                    if w < self.rows:
                        self.slack[w].up, self.slack[w].down = CINF, self.amount[k]
                        self.potential[w] = self.potential[v] - self.at(w, v - self.rows)
                    else:
                        self.slack[w].up, self.slack[w].down = self.amount[k], CINF
                        self.potential[w] = self.potential[v] + self.at(v, w - self.rows)
                    self.enter(w, last, begin)
                    last = v = w
        self.next[last], self.node[root].prev, self.node[root].last = root, last, last
        return 0

    cdef inline int enter(self, int32_t v, int32_t last, const int32_t[::1] begin) except -1 nogil:
        """Insert a node into the preorder, at its end."""
        self.next[last], self.node[v].prev = v, last
        self.node[v].code, self.node[v].aim = 0, begin[v]
        return 0

    # == pivots ================================================================================================

    cdef bint pivot_all(self) except -1 nogil:
        """Pivot to the optimum; False if the matrix changed."""
        cdef int64_t *potential = &self.potential[0]
        cdef int64_t *offer = potential + self.rows
        cdef int64_t pairs = <int64_t>self.rows * self.columns, block = max(<int64_t>sqrt(<double>pairs), BLOCK_MIN, self.n // 3)
        cdef int64_t best, value, left, scanned, j
        cdef int32_t root = self.n, i = 0, begin = 0, end, tail, head, found
        cdef int32_t parts = <int32_t>((self.columns + block // 2) // block), width = self.columns if parts < 2 else (self.columns + parts - 1) // parts
        while True:
            best, tail, head, found, scanned, left = 0, -1, -1, 0, 0, pairs + self.columns
            while left > 0:
                end = min(begin + width, self.columns)
                if i < self.rows:
                    value = self.least(i, begin, end, offer) + potential[i]
                    if value < best:
                        best, tail, head, found = value, i, -1, begin
                    if self.keeping and begin == 0 and self.price + potential[i] - potential[root] < best:
                        best, tail, head = self.price + potential[i] - potential[root], i, root
                elif self.lacking:
                    for j in range(begin, end):
                        if potential[root] - offer[j] < best:
                            best, tail, head = potential[root] - offer[j], root, self.rows + <int32_t>j
                left -= end - begin
                scanned += end - begin
                begin = end
                if end == self.columns:
                    begin, i = 0, i + 1 if i < self.rows else 0
                if scanned >= block:
                    self.spend(scanned)
                    if tail >= 0:
                        break
                    scanned = 0
            self.scanned += pairs + self.columns - left
            if tail < 0:
                return True
            if head < 0:
                j = fs_find_cost(self.kind, self.row(tail), offer, found, self.columns, self.scale, best - potential[tail])
                if j >= self.columns:
                    return False
                head = self.rows + <int32_t>j
            self.pivot(tail, head, best)

    cdef int pivot(self, int32_t tail, int32_t head, int64_t rc) except -1 nogil:
        """Send as much as possible around the cycle that an arc closes; exchange the blocking arc for it.

        The leaving arc is the last one that blocks, as in `Primal.pivot`, where the walk is explained.
        """
        cdef int32_t u = tail, v = head, out = -1
        cdef int64_t delta = CINF
        cdef Link a = self.link[u], b = self.link[v]
        cdef bint side = False              # the blocking arc is on the tail's side
        while u != v:
            if a.depth >= b.depth:
                if self.slack[u].down < delta:
                    delta, out, side = self.slack[u].down, u, True
                    if delta == 0:
                        break
                u = a.parent
                a = self.link[u]
            else:
                if self.slack[v].up <= delta:
                    delta, out, side = self.slack[v].up, v, False
                v = b.parent
                b = self.link[v]
        self.pivots += 1
        if delta:
            v = head
            while v != u:
                self.slack[v].up -= delta
                self.slack[v].down += delta
                v = self.link[v].parent
            v = tail
            while v != u:
                self.slack[v].up += delta
                self.slack[v].down -= delta
                v = self.link[v].parent
        else:
            self.degenerate += 1
        if side:
            self.reroot(out, tail, head, CINF - delta, delta, 0)
            self.shift(tail, out, -rc)
        else:
            self.reroot(out, head, tail, delta, CINF - delta, 0)
            self.shift(head, out, rc)
        return 0

    # == the answer ============================================================================================

    cdef int price_idle(self) except -1 nogil:
        """Set the root's potential to 0, and give idle columns and rows the least potentials that no pair of them undercuts."""
        cdef int64_t *potential = &self.potential[0]
        cdef int64_t base = potential[self.n], value
        cdef int32_t v, i, count = 0
        for v in range(self.n + 1):
            potential[v] -= base
            count += v >= self.rows and self.node[v].code == IDLE
        for v in range(self.rows, self.n if count else 0):
            if self.node[v].code == IDLE:
                value = 0 if self.lacking else ASIDE
                for i in range(self.rows):
                    if self.node[i].code != IDLE:
                        value = min(value, self.at(i, v - self.rows) + potential[i])
                potential[v] = value if value < ASIDE else 0
                self.spend(self.rows)
        for i in range(self.rows):
            if self.node[i].code == IDLE:
                value = self.least(i, 0, self.columns, potential + self.rows)
                potential[i] = -value if value < ASIDE else 0
                if self.keeping:
                    potential[i] = max(potential[i], -self.price)
                self.spend(self.columns)
        return 0

    cdef bint is_tight(self) noexcept nogil:
        """True if the potentials agree with the costs in the tree, as they do unless the matrix changed."""
        cdef int32_t v, w, i, j
        for v in range(self.n):
            w = self.link[v].parent
            if w < self.n:
                i, j = min(v, w), max(v, w)
                if self.at(i, j - self.rows) + self.potential[i] != self.potential[j]:
                    return False
        return True

    def shipped(self):
        """Return rows, columns and amounts of the pairs that carry something, unordered, and their cost in units."""
        cdef int32_t v, parent, count = 0
        cdef int64_t amount, high = 0
        cdef uint64_t low = 0
        cdef int32_t[::1] rows = self.from_row, columns = self.to_column
        cdef int64_t[::1] amounts = self.amount
        for v in range(self.n):
            parent = self.link[v].parent
            amount = self.slack[v].down if v < self.rows else self.slack[v].up
            if parent == self.n or not amount or self.node[v].code == IDLE:
                continue
            rows[count] = v if v < self.rows else parent
            columns[count] = (parent if v < self.rows else v) - self.rows
            amounts[count] = amount
            fs_muladd(&high, &low, self.at(rows[count], columns[count]), amount)
            count += 1
        return rows.base[:count], columns.base[:count], amounts.base[:count], (int(high) << 64) + int(low)

    def potentials(self):
        """Return the potentials of rows and columns."""
        return self.potential.base[:self.n]

    def rests(self):
        """Return by row what it keeps, and by column what it lacks."""
        cdef int32_t v
        rest = _zeros(self.n, INT64)
        cdef int64_t[::1] left = rest
        for v in range(self.n):
            if self.link[v].parent == self.n:
                left[v] = 0 if self.node[v].code == IDLE else self.slack[v].down if v < self.rows else self.slack[v].up
        return rest

    def counters(self):
        return {"pivots": self.pivots, "degenerate": self.degenerate, "priced": self.scanned, "moved": self.moved}
