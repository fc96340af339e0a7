# The residual network that the incremental kernel and its shortest-path search share.  See `residual.pyx`.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

from flowsched.kernels.sums cimport CINF
from flowsched.kernels.wide cimport fs_muladd

cdef extern from *:
    """
    #include <stdint.h>
    #define FS_BIG ((int64_t)1 << 31)
    #define FS_POT_MAX ((int64_t)1 << 59)
    #if defined(_MSC_VER)
    #define fs_write_soon(p) ((void)(p))
    #else
    #define fs_write_soon(p) do { __builtin_prefetch(p, 1); __asm__ volatile(""); } while (0)    /* else a function that only fetches is left out */
    #endif
    """
    void fs_write_soon(const void *p) nogil          # a hint: p will be written soon
    const int64_t BIG "FS_BIG"                  # residual capacity from which a half-arc is never saturated: 2**31 smaller ones sum to less than 2**62
    # Bound on (nodes + 1) * |cost|, and on each |p| that a mutation or a relabel sets; a search may go to twice that.  So no reduced cost and no path length overflows.
    const int64_t POT_MAX "FS_POT_MAX"

cdef enum:
    LOW_DEGREE = 32    # half-arcs that a change of a potential may inspect
    AHEAD = 4          # nodes whose memory is fetched before their turn

cdef enum:             # counters of a solve
    PUSHES
    RELABELS
    AUGMENTATIONS
    WALK_SCANS
    SEARCH_SCANS
    SEARCHES
    SETTLED
    REFINES
    COUNTERS

cdef enum:             # columns of arcs for `read_arcs`
    F_TAIL
    F_HEAD
    F_CAPACITY
    F_COST
    F_LOWER
    F_REDUCED
    F_FLOW

cdef enum:             # columns that `set_numbers` writes
    SET_SUPPLY
    SET_CAPACITY
    SET_COST

cdef struct Half:
    int64_t cost       # of this half-arc; -cost for the mate
    int32_t head       # node that the half-arc enters
    int32_t id         # 2 * arc id + (0 forward | 1 backward)

cdef struct Node:
    int32_t first      # half[first : first + size] is the node's block; while the id is free: the next free id
    int32_t size
    # Its half-arcs by state: [0, r0) residual, mate not; [r0, r1) both residual; [r1, r2) only the mate; [r2, r3) neither.
    # [0, r0), [r0, r1): half-arcs by which flow can leave.  [r0, r1), [r1, r2): half-arcs by whose mates flow can arrive.
    int32_t region[4]  # region[3] == -1: the id is free; then the others are 0, so that a loop over any region ends at once
    int32_t hint       # place in the block of the last admissible half-arc, where `walk` starts to scan; any value is valid
    int32_t coming     # half-arcs about to be added, negative once room was counted for them; else 0


cdef inline int64_t mag(int64_t x) noexcept nogil:
    return -x if x < 0 else x


cdef inline int mirror(int state) noexcept nogil:
    """The state of a half-arc whose mate is in `state`: see `Residual.state`."""
    return state if state & 1 else state ^ 2


cdef inline object number(int64_t high, uint64_t low):
    """``high * 2**64 + low``."""
    if high == -(<int64_t>low < 0):     # nearly always
        return <int64_t>low
    return (int(high) << 64) + int(low)


cdef object whole(view)
cdef object too_much(const int64_t[::1] supply, const int64_t[::1] lower)
cdef object grown(view, int64_t size)
cdef int64_t larger(int64_t size, int64_t wanted, int64_t most)


@cython.final
cdef class Call:
    cdef long *busy


cdef class Residual:
    """Residual network in flat arrays; ids are dense and reused after removal."""

    # -- by node id -----------------------------------------------------------------------------------------
    cdef int64_t[::1] potential            # p
    cdef int64_t[::1] excess               # e(v) = b(v) + inflow - outflow, after a solve all 0
    cdef int64_t[::1] supply               # b(v)
    cdef Node[::1] node
    cdef int32_t[::1] mark                 # scratch: v is marked if mark[v] == stamp
    cdef int32_t[::1] active               # every node of non-zero excess is in active[:active_count], once; others may be
    cdef int32_t[::1] node_entry           # index in the journal of potentials, -1 if p(v) is that of the last solution
    cdef unsigned char[::1] is_active      # 1 if in `active`
    # -- by half-arc id -------------------------------------------------------------------------------------
    cdef int64_t[::1] residual             # residual capacity of the half-arc
    cdef int32_t[::1] position             # index of the half-arc: half[position[h]].id == h; position[2k] == -1: arc id k is free
    # -- by arc id ------------------------------------------------------------------------------------------
    cdef int32_t[::1] arc_entry            # index in the journal of flows, -1 if the flow is that of the last solution
    cdef int64_t[::1] lower                # lower bound; of length 0 while all are 0
    cdef int32_t[::1] free                 # free ids, the next to be given last: free[:m - live_arcs]
    # -- the arena of adjacency blocks ----------------------------------------------------------------------
    cdef Half[::1] half
    cdef int32_t[::1] spare                # first free block by size class, linked through half[first].head
    cdef int64_t top                       # half[top:] has never been used
    # -- journals: flows and potentials of the last solution, where the present ones differ -----------------------
    cdef int32_t[::1] journal_arc
    cdef int64_t[::1] journal_flow
    cdef int32_t[::1] journal_node
    cdef int64_t[::1] journal_potential
    cdef int32_t journal_arcs, journal_nodes
    cdef bint solved                       # there is a last solution; until then nothing is journalled and it counts as flow 0
    # -- residual half-arcs with rc < 0 that are too large to saturate ----------------------------------------
    cdef int32_t[::1] unsaturable
    cdef int32_t unsaturable_count
    # -- counts ---------------------------------------------------------------------------------------------
    cdef int32_t n, m                      # number of ids ever used: 0..n-1, 0..m-1
    cdef int32_t live_nodes, live_arcs
    cdef int32_t free_node
    cdef int32_t active_count
    cdef int32_t stamp
    cdef int64_t supply_sum
    cdef int64_t volume                    # sum of |supply| and of lower bounds, below 2**60
    cdef int64_t cost_bound                # upper bound on every |cost|; recomputed when it seems too large
    cdef int64_t cost_high
    cdef uint64_t cost_low                 # sum of w(a) f(a), 128 bits
    cdef int64_t count[COUNTERS]           # of the present solve
    cdef bint overflowed                   # an excess left its range, which only flows near 2**60 can cause, and is wrong: `start_anew` before the next answer
    cdef bint unlimited_full               # an unlimited arc may have no residual capacity left
    cdef bint may_violate                  # (I) may be broken; room for restoring it has been made
    cdef bint reshaped                     # nodes or arcs came or went since the last solution
    cdef long busy                         # 1 while a call is under way
    # -- changes since a basis of the network was made ----------------------------------------------------------
    cdef bint based                        # there is a basis
    cdef int32_t[::1] changes              # arc ids, ~v for the supply of v; with repetitions
    cdef int32_t change_count
    cdef int32_t[::1] none32               # of length 0: assigning them cannot fail
    cdef int64_t[::1] none64

    @cython.final
    cdef inline int place(self, int32_t at, Half rec) noexcept nogil:
        self.half[at] = rec
        self.position[rec.id] = at
        return 0

    @cython.final
    cdef inline int state(self, int32_t h) noexcept nogil:
        """0 residual, 1 both, 2 only the mate, 3 neither: the region of the adjacency block."""
        if self.residual[h] > 0:
            return 1 if self.residual[h ^ 1] > 0 else 0
        return 2 if self.residual[h ^ 1] > 0 else 3

    @cython.final
    cdef inline int32_t head(self, int32_t h) noexcept nogil:
        return self.half[self.position[h]].head

    @cython.final
    cdef inline int32_t tail(self, int32_t h) noexcept nogil:
        return self.half[self.position[h ^ 1]].head

    @cython.final
    cdef inline int64_t reduced(self, int32_t h) noexcept nogil:
        cdef Half rec = self.half[self.position[h]]
        return rec.cost + self.potential[self.tail(h)] - self.potential[rec.head]

    @cython.final
    cdef inline int64_t flow_of(self, int32_t k) noexcept nogil:
        return self.residual[2 * k + 1] + (self.lower[k] if self.lower.shape[0] else 0)

    @cython.final
    cdef inline int note_flow(self, int32_t k) noexcept nogil:
        if self.solved and self.arc_entry[k] < 0:
            self.journal_arc[self.journal_arcs] = k
            self.journal_flow[self.journal_arcs] = self.flow_of(k)
            self.arc_entry[k] = self.journal_arcs
            self.journal_arcs += 1
        return 0

    @cython.final
    cdef inline int set_potential(self, int32_t v, int64_t p) noexcept nogil:
        if self.solved and self.node_entry[v] < 0:
            self.journal_node[self.journal_nodes] = v
            self.journal_potential[self.journal_nodes] = self.potential[v]
            self.node_entry[v] = self.journal_nodes
            self.journal_nodes += 1
        self.potential[v] = p
        return 0

    @cython.final
    cdef inline int add_excess(self, int32_t v, int64_t amount) noexcept nogil:
        """Add to v's excess."""
        if -CINF < self.excess[v] + amount < CINF:
            self.excess[v] += amount
        else:
            self.overflowed = True
        if not self.is_active[v]:
            self.is_active[v] = 1
            self.active[self.active_count] = v
            self.active_count += 1
        return 0

    @cython.final
    cdef inline int reserve_journal(self, int64_t arcs, int64_t nodes) except -1 nogil:
        """Make room in the journals for the flows and potentials that the next step of solving may move."""
        if self.solved and (self.journal_arcs + arcs > self.journal_arc.shape[0] or self.journal_nodes + nodes > self.journal_node.shape[0]):
            with gil:
                self.grow_journal(arcs, nodes)
        return 0

    @cython.final
    cdef inline int64_t last_flow(self, int32_t a) except? -1 nogil:
        """Flow of an arc in the last solution."""
        if not self.solved:
            return 0
        return self.flow_of(a) if self.arc_entry[a] < 0 else self.journal_flow[self.arc_entry[a]]

    @cython.final
    cdef inline int64_t last_potential(self, int32_t v) except? -1 nogil:
        """Potential in the last solution, 0 before the first."""
        if not self.solved:
            return 0
        return self.potential[v] if self.node_entry[v] < 0 else self.journal_potential[self.node_entry[v]]

    @cython.final
    cdef inline bint unlimited(self, int32_t h) except -1 nogil:
        return h & 1 == 0 and self.residual[h] + self.flow_of(h >> 1) >= CINF

    @cython.final
    cdef inline int change_region(self, int32_t v, int32_t h, int before, int after) noexcept nogil:
        """Move half-arc h of v from region `before` of its block to region `after`; after region 3 it is outside."""
        cdef int32_t first = self.node[v].first, hole = self.position[h], last
        cdef Half rec = self.half[hole]
        cdef int r
        for r in range(before, after):
            self.node[v].region[r] -= 1
            last = first + self.node[v].region[r]
            if last != hole:
                self.place(hole, self.half[last])
                hole = last
        for r in range(before - 1, after - 1, -1):
            last = first + self.node[v].region[r]
            self.node[v].region[r] += 1
            if last != hole:
                self.place(hole, self.half[last])
                hole = last
        if after < 4:
            self.place(hole, rec)
        return 0

    @cython.final
    cdef inline int send(self, int32_t h, int64_t amount) noexcept nogil:
        """Send `amount` along half-arc h; the caller books the excesses at its ends."""
        cdef int before = self.state(h), after
        cdef int32_t u = self.tail(h), v = self.head(h)
        self.note_flow(h >> 1)
        fs_muladd(&self.cost_high, &self.cost_low, amount, self.half[self.position[h]].cost)
        self.residual[h] -= amount
        self.residual[h ^ 1] += amount
        after = self.state(h)
        self.count[PUSHES] += 1
        if before != after:
            if h & 1 == 0 and self.residual[h] == 0 and self.residual[h ^ 1] >= CINF - 2 * POT_MAX:
                self.unlimited_full = True
            self.change_region(u, h, before, after)
            self.change_region(v, h ^ 1, mirror(before), mirror(after))
        return 0

    @cython.final
    cdef inline int next_stamp(self) except -1 nogil:
        """Advance `stamp` to a value that no mark has."""
        if self.stamp == 2147483647:
            self.clear_stamps()
            self.stamp = 0
        self.stamp += 1
        return 0

    @cython.final
    cdef inline int fetch_half(self, int64_t at) noexcept nogil:
        if 0 <= at < self.half.shape[0]:
            fs_write_soon(&self.half[at])
        return 0

    cdef Call begin(self)
    cdef int grow_nodes(self, int64_t wanted) except -1
    cdef int grow_arcs(self, int64_t wanted, bint bounded) except -1
    cdef int grow_free(self, int64_t more) except -1
    cdef int grow_half(self, int64_t wanted) except -1
    cdef int grow_journal(self, int64_t arcs, int64_t nodes) except -1
    cdef int tidy_journal(self) except -1 nogil
    cdef int grow_unsaturable(self, int64_t more) except -1
    cdef int reserve_all(self) except -1
    cdef int reserve(self, int32_t v, int32_t degree) noexcept nogil
    cdef int free_block(self, int32_t first, int32_t size) noexcept nogil
    cdef int attach(self, int32_t v, int32_t h, int32_t head, int64_t cost, int state) noexcept nogil
    cdef int push(self, int32_t h, int64_t amount) noexcept nogil
    cdef int resize(self, int32_t h, int64_t residual) noexcept nogil
    cdef int shift_potential(self, int32_t v, int64_t amount) except? -1 nogil
    cdef int restore_optimality(self, int32_t h) except -1 nogil
    cdef int saturate_all(self) except -1 nogil
    cdef int start_anew(self) except -1
    cdef int clear_active(self) except -1 nogil
    cdef int clear_journal(self) except -1 nogil
    cdef int reserve_changes(self, int64_t more) except -1
    cdef int log_change(self, int32_t what) except -1
    cdef int reshape(self) except -1
    cdef int drop_basis(self) except -1
    cdef int check_ids(self, const int64_t[::1] ids, str name, str kind) except -1
    cdef int check_bounds(self, const int64_t[::1] capacity, const int64_t[::1] lower) except -1
    cdef int check_volume(self, const int64_t[::1] added, str name, const int64_t[::1] ids) except -1
    cdef int64_t check_cost(self, const int64_t[::1] cost, int64_t nodes) except -1
    cdef int64_t large(self, const int64_t[::1] arcs) except -1
    cdef int reserve_to_restore(self, int64_t arcs, int64_t nodes, int64_t halves) except -1
    cdef int new_nodes(self, const int64_t[::1] supply, int64_t[::1] ids) except -1
    cdef int64_t count_halves(self, const int64_t[::1] tail, const int64_t[::1] head) except -1
    cdef int64_t count_all_halves(self, const int64_t[::1] tail, const int64_t[::1] head, int32_t[::1] want) except -1
    cdef int new_arcs(self, const int64_t[::1] tail, const int64_t[::1] head, const int64_t[::1] capacity,
                      const int64_t[::1] cost, const int64_t[::1] lower, int64_t[::1] ids) except -1
    cdef int raise_lower(self, int32_t a, int64_t lower) except -1
    cdef int drop_arcs(self, const int64_t[::1] arcs) except -1
    cdef int drop_nodes(self, const int64_t[::1] nodes) except -1
    cdef int drop_arc(self, int32_t h, int32_t u, Half rec) except -1
    cdef int fetch_gone(self, const int64_t *nodes, Py_ssize_t k, Py_ssize_t i) noexcept nogil
    cdef int fetch_room(self, const int64_t *head, const int64_t *ids, Py_ssize_t k) noexcept nogil
    cdef int fetch_arcs(self, const int64_t *arcs, Py_ssize_t k) noexcept nogil
    cdef int set_numbers(self, int which, const int64_t[::1] ids, const int64_t[::1] values) except -1
    cdef int put_supply(self, const int64_t[::1] nodes, const int64_t[::1] supply) except -1
    cdef int put_capacity(self, const int64_t[::1] arcs, const int64_t[::1] capacity) except -1
    cdef int put_cost(self, const int64_t[::1] arcs, const int64_t[::1] cost) except -1
    cdef int clear_stamps(self) except -1 nogil
    cdef object living(self)
    cdef object chosen_arcs(self, ids)
    cdef object chosen_nodes(self, ids)
    cdef int copy_flow(self, const int64_t *arcs, Py_ssize_t k, int64_t *flow) except -1
    cdef object read_nodes(self, const int64_t[::1] nodes, bint supplies)
    cdef object read_arcs(self, const int64_t[::1] arcs, int field)
    cdef object all_supplies(self)
    cdef object columns(self)
    cdef object arrays(self)
    cdef object weight(self)
    cdef object write(self)
    cdef object read(self, state)
