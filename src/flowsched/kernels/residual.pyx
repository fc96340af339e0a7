"""The residual network: adjacency, flow, potentials and excesses in flat arrays, mutated in place; symbols and invariant (I) as in `flowsched._cs`.

Layout
------
The half-arcs of a node are one block of the *arena* ``half``, ordered by state: residual, both, only the mate, neither.  So all ways by which flow can leave a node are
neighbours in memory, and so are all by which it can arrive.  A half-arc that becomes full moves between regions by at most three swaps.  A block that
has become too small moves to a larger one; its old place waits for the next node in a list of blocks of its size class.

Ids are dense.  That of a removed node or arc is given again, the last removed first.

Journals
--------
``journal_arc`` and ``journal_node`` list the arcs and nodes whose flow or potential has moved since the last solution, with their values there.  So a solution can be read while
the present flow is another one, and the changes of a solve cost what has moved.  ``arc_entry`` and ``node_entry`` lead to the entries.

Mutations
---------
Every mutation restores (I), see `restore_optimality`, and looks only at the arcs involved.  It first checks its arguments and allocates all that it may need; from
then on nothing can fail, so a call that raises has changed nothing (E).  While there is a basis of the network simplex, changes are noted in ``changes``.
"""

cimport cython
from cpython.array cimport array as Array
from libc.stdint cimport int32_t, int64_t, uint64_t

from flowsched._faults cimport _copy, _empty, _zeros, fs_allocate
from flowsched.kernels.heap cimport fs_high_bit
from flowsched.kernels.wide cimport fs_muladd

import numpy as np

from flowsched.exceptions import ConcurrentUseError, CostRangeError, InputError

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #define fs_take(p) (!_InterlockedExchange((p), 1))
    #define fs_give(p) ((void)_InterlockedExchange((p), 0))
    #else
    #define fs_take(p) (!__atomic_exchange_n((p), 1, __ATOMIC_ACQUIRE))
    #define fs_give(p) __atomic_store_n((p), 0, __ATOMIC_RELEASE)
    #endif
    """
    bint fs_take(long *p)                       # true: the flag was free, and is taken now
    void fs_give(long *p)

HALF = np.dtype([("cost", "i8"), ("head", "i4"), ("id", "i4")])
NODE = np.dtype([("first", "i4"), ("size", "i4"), ("region", "i4", (4,)), ("hint", "i4"), ("coming", "i4")])

cdef enum:
    CLASSES = 240      # classes of block sizes
    STEPS = 4          # steps in which the memory of a node to be removed is fetched
    BLOCK = 32         # arcs whose memory is fetched at once


cdef int32_t size_class(int32_t size) noexcept nogil:
    """Index of the smallest block class of at least `size` half-arcs: exact up to 16, then eight to the octave."""
    cdef int bits
    if size <= 16:
        return size
    bits = fs_high_bit(<uint64_t>(size - 1))
    return 17 + 8 * (bits - 4) + ((size - 1) >> (bits - 3)) - 8


cdef int32_t class_size(int32_t index) noexcept nogil:
    if index <= 16:
        return index
    return (9 + (index - 17) % 8) << ((index - 17) // 8 + 1)


cdef int32_t roomy(int32_t degree, int32_t size) noexcept nogil:
    """Index of the class for `degree` half-arcs when a block of this size has become too small; slack for a few more saves the next move."""
    return size_class(max(degree, size + min(size >> 2, 4)))


cdef inline int64_t new_block(Node *node) noexcept nogil:
    """Size of the block to which the node moves for the half-arcs about to be added; 0 if it stays, and on the second call."""
    cdef int32_t more = node.coming
    if more <= 0:
        return 0
    node.coming = -more
    more += node.region[3]
    return class_size(roomy(more, node.size)) if more > node.size else 0


@cython.final
@cython.freelist(4)
cdef class Call:
    """A call on a network, under way as long as this object lives: until its function returns or raises."""

    def __dealloc__(self):
        if self.busy != NULL:
            fs_give(self.busy)


cdef class Residual:
    """A network that can be changed; see the head of this file."""

    @cython.embedsignature(True)
    def __init__(self):
        cdef int i
        self.none32, self.none64 = _zeros(0, np.int32), _zeros(0, np.int64)
        self.potential = self.excess = self.supply = self.residual = self.lower = self.none64
        self.mark = self.active = self.node_entry = self.position = self.arc_entry = self.free = self.changes = self.none32
        self.node, self.half, self.is_active = _zeros(0, NODE), _zeros(0, HALF), _zeros(0, np.uint8)
        self.spare = _zeros(CLASSES, np.int32)
        for i in range(CLASSES):
            self.spare[i] = -1
        self.journal_arc, self.journal_flow = _zeros(16, np.int32), _zeros(16, np.int64)
        self.journal_node, self.journal_potential = _zeros(16, np.int32), _zeros(16, np.int64)
        self.unsaturable = _zeros(4, np.int32)
        self.free_node = -1

    cdef Call begin(self):
        """Begin a call, which ends when the object returned is gone; never wait for another one."""
        cdef Call call = Call.__new__(Call)
        if not fs_take(&self.busy):
            raise ConcurrentUseError(
                "this network is in use: another call on it is under way, in a thread or below this signal handler, finaliser or callback")
        call.busy = &self.busy
        return call

    # == arrays that grow =====================================================================================

    # Each grows all arrays of its kind, or raises and grows none.

    cdef int grow_nodes(self, int64_t wanted) except -1:
        cdef int64_t size = self.potential.shape[0]
        if wanted <= size:
            return 0
        if wanted >= 2**31 - 2:
            raise CostRangeError("the network would have more than 2**31 nodes")
        size = larger(size, wanted, 2**31 - 2)
        cdef int64_t[::1] pot = grown(self.potential, size), exc = grown(self.excess, size), sup = grown(self.supply, size)
        cdef Node[::1] node = grown(self.node, size)
        cdef int32_t[::1] mark = grown(self.mark, size), active = grown(self.active, size), plog = grown(self.node_entry, size)
        cdef unsigned char[::1] listed = grown(self.is_active, size)
        self.potential, self.excess, self.supply, self.node = pot, exc, sup, node
        self.mark, self.active, self.node_entry, self.is_active = mark, active, plog, listed
        return 0

    cdef int grow_arcs(self, int64_t wanted, bint bounded) except -1:
        """If `bounded`, with room for lower bounds."""
        cdef int64_t size = self.arc_entry.shape[0]
        cdef int64_t[::1] low = self.lower, res
        cdef int32_t[::1] pos, alog
        if wanted >= 2**30 - 2:
            raise CostRangeError("the network would have more than 2**30 arcs")
        if wanted > size:
            size = larger(size, wanted, 2**30 - 2)
            if bounded or low.shape[0]:
                low = grown(low, size)
            res, pos, alog = grown(self.residual, 2 * size), grown(self.position, 2 * size), grown(self.arc_entry, size)
            self.residual, self.position, self.arc_entry = res, pos, alog
        elif bounded and not low.shape[0]:
            low = _zeros(size, np.int64)
        self.lower = low
        return 0

    cdef int grow_free(self, int64_t more) except -1:
        """Make room for `more` further free ids of arcs."""
        cdef int64_t size = self.m - self.live_arcs + more
        cdef int32_t[::1] free
        if size > self.free.shape[0]:
            free = grown(self.free, max(size, 2 * self.free.shape[0]))
            self.free = free
        return 0

    cdef int grow_half(self, int64_t wanted) except -1:
        cdef int64_t size = self.half.shape[0]
        cdef Half[::1] half
        if wanted <= size:
            return 0
        if wanted >= 2**31 - 2:
            raise CostRangeError("the network would have more than 2**31 half-arcs")
        half = grown(self.half, larger(size, wanted, 2**31 - 2))
        self.half = half
        return 0

    cdef int grow_journal(self, int64_t arcs, int64_t nodes) except -1:
        """Make room for further journal entries: `arcs` flows and `nodes` potentials."""
        cdef int64_t size
        cdef int32_t[::1] jarc, jnode
        cdef int64_t[::1] jflow, jpot
        nodes = min(nodes, self.live_nodes)      # each once
        if self.journal_arcs + arcs <= self.journal_arc.shape[0] and self.journal_nodes + nodes <= self.journal_node.shape[0]:
            return 0
        self.tidy_journal()
        jarc, jflow, jnode, jpot = self.journal_arc, self.journal_flow, self.journal_node, self.journal_potential
        size = self.journal_arcs + arcs
        if size > jarc.shape[0]:
            size = max(size, 2 * jarc.shape[0])
            jarc, jflow = grown(jarc, size), grown(jflow, size)
        size = self.journal_nodes + nodes
        if size > jnode.shape[0]:
            size = max(size, 2 * jnode.shape[0])
            jnode, jpot = grown(jnode, size), grown(jpot, size)
        self.journal_arc, self.journal_flow, self.journal_node, self.journal_potential = jarc, jflow, jnode, jpot
        return 0

    cdef int tidy_journal(self) except -1 nogil:
        """Drop the entries of removed arcs and nodes."""
        cdef int32_t i, kept = 0
        for i in range(self.journal_arcs):
            if self.journal_arc[i] >= 0:
                self.journal_arc[kept], self.journal_flow[kept], self.arc_entry[self.journal_arc[i]] = self.journal_arc[i], self.journal_flow[i], kept
                kept += 1
        self.journal_arcs = kept
        kept = 0
        for i in range(self.journal_nodes):
            if self.journal_node[i] >= 0:
                self.journal_node[kept], self.journal_potential[kept], self.node_entry[self.journal_node[i]] = self.journal_node[i], self.journal_potential[i], kept
                kept += 1
        self.journal_nodes = kept
        return 0

    cdef int grow_unsaturable(self, int64_t more) except -1:
        cdef int64_t size = self.unsaturable_count + more
        cdef int32_t[::1] unsaturable
        if size > self.unsaturable.shape[0]:
            unsaturable = grown(self.unsaturable, max(size, 2 * self.unsaturable.shape[0]))
            self.unsaturable = unsaturable
        return 0

    cdef int reserve_all(self) except -1:
        """Make room for a step that may move all flows and potentials, and for restoring (I) everywhere afterwards."""
        cdef int32_t a
        cdef int64_t large = 0
        for a in range(self.m):
            if self.position[2 * a] >= 0 and self.residual[2 * a] + self.residual[2 * a + 1] >= BIG:
                large += 2
        self.grow_unsaturable(large)
        if self.solved:
            self.grow_journal(self.live_arcs, self.live_nodes)
        return 0

    # == adjacency ===============================================================================================

    cdef inline int reserve(self, int32_t v, int32_t degree) noexcept nogil:
        """Make v's block large enough for `degree` half-arcs; the arena has room for it."""
        cdef int32_t k, first, old = self.node[v].first, size = self.node[v].size, i
        if degree <= size:
            return 0
        k = roomy(degree, size)
        if self.spare[k] >= 0:
            first = self.spare[k]
            self.spare[k] = self.half[first].head
        else:
            first = <int32_t>self.top
            self.top += class_size(k)
        for i in range(self.node[v].region[3]):
            self.half[first + i] = self.half[old + i]
            self.position[self.half[first + i].id] = first + i
        self.free_block(old, size)
        self.node[v].first = first
        self.node[v].size = class_size(k)
        return 0

    cdef inline int free_block(self, int32_t first, int32_t size) noexcept nogil:
        if size:
            self.half[first].head = self.spare[size_class(size)]
            self.spare[size_class(size)] = first
        return 0

    cdef inline int attach(self, int32_t v, int32_t h, int32_t head, int64_t cost, int state) noexcept nogil:
        """Put half-arc h into v's block, in the region of its state."""
        cdef int32_t hole, last, more = self.node[v].coming
        cdef Half rec
        cdef int r
        if more:            # the first of several: enlarge the block for all of them
            self.node[v].coming = 0
            self.reserve(v, self.node[v].region[3] + (more if more > 0 else -more))
        rec.cost, rec.head, rec.id = cost, head, h
        hole = self.node[v].first + self.node[v].region[3]
        self.node[v].region[3] += 1
        for r in range(2, state - 1, -1):
            last = self.node[v].first + self.node[v].region[r]
            self.node[v].region[r] += 1
            if last != hole:
                self.place(hole, self.half[last])
                hole = last
        return self.place(hole, rec)

    # == flow and potentials, with their journals, which have room (`reserve_journal`) =====================================

    cdef inline int push(self, int32_t h, int64_t amount) noexcept nogil:
        """Send `amount` along h as a preflow push: its tail loses, its head gains excess."""
        self.add_excess(self.tail(h), -amount)
        self.add_excess(self.head(h), amount)
        return self.send(h, amount)

    cdef inline int resize(self, int32_t h, int64_t residual) noexcept nogil:
        """Set the residual capacity of h; the flow stays."""
        cdef int before = self.state(h), after
        self.residual[h] = residual
        after = self.state(h)
        if before != after:
            self.change_region(self.tail(h), h, before, after)
            self.change_region(self.head(h), h ^ 1, mirror(before), mirror(after))
        return 0

    cdef inline int shift_potential(self, int32_t v, int64_t amount) except? -1 nogil:
        """Add `amount` to v's potential if v's residual half-arcs allow it, and are few; return 1 if it was done."""
        cdef int32_t first = self.node[v].first, i, lo, hi, w
        cdef int64_t rc
        if amount > 0:      # half-arcs into v come closer to rc < 0
            lo, hi = self.node[v].region[0], self.node[v].region[2]
        else:               # half-arcs out of v do
            lo, hi = 0, self.node[v].region[1]
        if hi - lo > LOW_DEGREE:
            return 0
        for i in range(first + lo, first + hi):
            w = self.half[i].head
            if w == v:
                continue
            rc = self.half[i].cost + self.potential[v] - self.potential[w]
            if (amount > 0 and -rc < amount) or (amount < 0 and rc < -amount):
                return 0
        if not -POT_MAX < self.potential[v] + amount < POT_MAX:
            return 0
        self.set_potential(v, self.potential[v] + amount)
        return 1

    cdef inline int restore_optimality(self, int32_t h) except -1 nogil:
        """Restore invariant (I) for half-arc h."""
        cdef int64_t rc
        cdef int32_t u, v
        if self.residual[h] <= 0:
            return 0
        rc = self.reduced(h)
        if rc >= 0:
            return 0
        u, v = self.tail(h), self.head(h)
        if u != v and (self.shift_potential(u, -rc) or self.shift_potential(v, rc)):
            return 0
        if self.residual[h] < BIG:
            self.push(h, self.residual[h])
        else:
            self.unsaturable[self.unsaturable_count] = h
            self.unsaturable_count += 1
        return 0

    cdef int saturate_all(self) except -1 nogil:
        """Saturate every residual half-arc of negative reduced cost, so that (I) holds; room has been made by `reserve_all`."""
        cdef int32_t v, i, h
        self.unsaturable_count = 0
        for v in range(self.n):
            i = self.node[v].first
            while i < self.node[v].first + self.node[v].region[1]:
                h = self.half[i].id
                if self.half[i].cost + self.potential[v] - self.potential[self.half[i].head] < 0:
                    if self.residual[h] < BIG:
                        self.push(h, self.residual[h])       # another half-arc moves to place i
                        continue
                    self.restore_optimality(h)
                i += 1
        self.may_violate = False
        return 0

    cdef int start_anew(self) except -1:
        """Reset flow and potentials; the last solution stays."""
        cdef int32_t v, a
        cdef int64_t low
        self.reserve_all()
        self.may_violate = True
        self.clear_active()
        for v in range(self.n):
            if self.node[v].region[3] >= 0:
                self.excess[v] = self.supply[v]
                self.set_potential(v, 0)
                if self.supply[v]:
                    self.add_excess(v, 0)
        for a in range(self.m):
            if self.position[2 * a] >= 0:
                if self.residual[2 * a + 1]:
                    self.send(2 * a + 1, self.residual[2 * a + 1])
                low = self.lower[a] if self.lower.shape[0] else 0
                if low:
                    self.add_excess(self.tail(2 * a), -low)
                    self.add_excess(self.head(2 * a), low)
        self.overflowed = self.unlimited_full = False
        return self.saturate_all()

    cdef int clear_active(self) except -1 nogil:
        cdef int32_t i
        for i in range(self.active_count):
            self.is_active[self.active[i]] = 0
        self.active_count = 0
        return 0

    cdef int clear_journal(self) except -1 nogil:
        cdef int32_t i
        for i in range(self.journal_arcs if self.solved else 0):
            if self.journal_arc[i] >= 0:
                self.arc_entry[self.journal_arc[i]] = -1
        for i in range(self.journal_nodes if self.solved else 0):
            if self.journal_node[i] >= 0:
                self.node_entry[self.journal_node[i]] = -1
        self.journal_arcs = self.journal_nodes = 0
        return 0

    # == mutations ===============================================================================================

    cdef int reserve_changes(self, int64_t more) except -1:
        """Make room for `more` entries in ``changes``."""
        cdef int32_t[::1] changes
        if self.based and self.change_count + more > self.changes.shape[0]:
            changes = grown(self.changes, max(self.change_count + more, 2 * self.change_count + 16))
            self.changes = changes
        return 0

    cdef inline int log_change(self, int32_t what) except -1:
        """Note a change for the simplex's basis: an arc, or ~v for the supply of v.

        Too many changes make the basis useless: that is checked at 0, 16, 48, 112, ... of them.
        """
        if self.based:
            if self.change_count % 16 == 0 and (self.change_count // 16 & self.change_count // 16 + 1) == 0 and self.change_count > self.live_arcs // 4:
                return self.drop_basis()
            self.changes[self.change_count] = what
            self.change_count += 1
        return 0

    cdef int reshape(self) except -1:
        """Note that nodes or arcs come or go; drop the basis."""
        self.reshaped = True
        return self.drop_basis()

    cdef int drop_basis(self) except -1:
        self.based, self.change_count, self.changes = False, 0, self.none32
        return 0

    cdef int check_ids(self, const int64_t[::1] ids, str name, str kind) except -1:
        """Check that they are ids of live nodes, or arcs."""
        cdef Py_ssize_t i
        cdef bint arcs = kind == "arc"
        cdef int32_t end = self.m if arcs else self.n
        for i in range(ids.shape[0]):
            if not 0 <= ids[i] < end:
                raise InputError(f"{name}[{i}]: no {kind} {ids[i]}; ids are 0..{end - 1}")
            if (self.position[2 * ids[i]] if arcs else self.node[ids[i]].region[3]) < 0:
                raise InputError(f"{name}[{i}]: {kind} {ids[i]} was removed")
        return 0

    cdef int check_bounds(self, const int64_t[::1] capacity, const int64_t[::1] lower) except -1:
        """Check that 0 <= lower <= capacity; either array may be of length 0."""
        cdef Py_ssize_t i
        for i in range(capacity.shape[0]):
            if capacity[i] < 0:
                raise InputError(f"capacity[{i}]: {capacity[i]} is negative")
        for i in range(lower.shape[0]):
            if lower[i] < 0:
                raise InputError(f"lower[{i}]: {lower[i]} is negative")
            if capacity.shape[0] and lower[i] > capacity[i]:
                raise InputError(f"lower[{i}]: {lower[i]} is above the capacity {capacity[i]}")
        return 0

    cdef int check_volume(self, const int64_t[::1] added, str name, const int64_t[::1] ids) except -1:
        """Keep the sum of supplies and lower bounds below 2**60, so that no sum of them overflows; those of `ids` are replaced, each once."""
        cdef int64_t volume = self.volume + _magnitude(added, name)
        if volume >= 2 * POT_MAX and ids.shape[0]:
            fs_allocate()
            present = whole(self.supply if name == "supply" else self.lower)
            volume -= int(np.abs(present[np.unique(ids)]).sum()) if len(present) else 0
        if volume >= 2 * POT_MAX:
            raise CostRangeError(f"{name}: supplies and lower bounds must add up to less than 2**60")
        return 0

    cdef int64_t check_cost(self, const int64_t[::1] cost, int64_t nodes) except -1:
        """Keep (nodes + 1) * max |cost| below POT_MAX; return the new `cost_bound`."""
        cdef int64_t exact = 0, bound = 0, most = (POT_MAX - 1) // (nodes + 1)
        cdef int32_t a
        cdef Py_ssize_t i, largest = -1
        for i in range(cost.shape[0]):
            if not -POT_MAX < cost[i] < POT_MAX:
                raise CostRangeError(f"cost[{i}]: {cost[i]} is too large for exact arithmetic; |cost| must stay below 2**59")
            if largest < 0 or mag(cost[i]) > bound:
                largest, bound = i, mag(cost[i])
        if max(bound, self.cost_bound) <= most:
            return max(bound, self.cost_bound)
        for a in range(self.m):
            if self.position[2 * a] >= 0:
                exact = max(exact, mag(self.half[self.position[2 * a]].cost))
        if max(bound, exact) > most:
            which = f"cost[{largest}]: {cost[largest]}" if bound > exact else f"cost: {exact}"
            raise CostRangeError(f"{which} is too large for exact arithmetic on {nodes} nodes; (nodes + 1) * |cost| must stay below 2**59")
        return max(bound, exact)

    cdef int64_t large(self, const int64_t[::1] arcs) except -1:
        """Count the half-arcs of these arcs that may be, or become, too large to saturate."""
        cdef Py_ssize_t i
        cdef int64_t count = 0
        for i in range(arcs.shape[0]):
            if self.residual[2 * arcs[i]] + self.residual[2 * arcs[i] + 1] >= BIG:
                count += 2
        return count

    cdef int reserve_to_restore(self, int64_t arcs, int64_t nodes, int64_t halves) except -1:
        """Make room in the journals and in ``unsaturable``, before a mutation."""
        if self.unsaturable_count + halves > self.unsaturable.shape[0]:
            self.grow_unsaturable(halves)
        if self.solved:
            self.grow_journal(arcs, nodes)
        return 0

    def add_nodes(self, const int64_t[::1] supply, /):
        """Add nodes; return their ids."""
        out = _empty(supply.shape[0], np.int64)
        self.new_nodes(supply, out)
        return out

    cdef int new_nodes(self, const int64_t[::1] supply, int64_t[::1] ids) except -1:
        """Add nodes; write their ids to `ids`."""
        cdef Py_ssize_t i, k = supply.shape[0]
        cdef int32_t v
        cdef int64_t bound
        _call = self.begin()
        self.check_volume(supply, "supply", supply[:0])
        bound = self.check_cost(supply[:0], self.live_nodes + k)
        self.grow_nodes(max(self.n, self.live_nodes + k))
        # Nothing can fail from here on.
        self.cost_bound = bound
        self.reshape()
        for i in range(k):
            if self.free_node >= 0:
                v = self.free_node
                self.free_node = self.node[v].first
            else:
                v = self.n
                self.n += 1
            ids[i] = v
            self.node[v].first = self.node[v].size = self.node[v].hint = 0
            self.node[v].region[0] = self.node[v].region[1] = self.node[v].region[2] = self.node[v].region[3] = 0
            self.potential[v] = 0
            self.node_entry[v] = -1
            self.excess[v] = 0
            self.supply[v] = supply[i]
            self.supply_sum += supply[i]
            self.volume += mag(supply[i])
            if supply[i]:
                self.add_excess(v, supply[i])
        self.live_nodes += k
        return 0

    def add_arcs(self, const int64_t[::1] tail, const int64_t[::1] head, const int64_t[::1] capacity,
                 const int64_t[::1] cost, const int64_t[::1] lower, /):
        """Add arcs, arrays of one length; return their ids.  `lower` may be of length 0 for all 0."""
        out = _empty(tail.shape[0], np.int64)
        self.new_arcs(tail, head, capacity, cost, lower, out)
        return out

    cdef int64_t count_halves(self, const int64_t[::1] tail, const int64_t[::1] head) except -1:
        """Count in ``coming``, by node, the half-arcs about to be added; return the arena room that their blocks may take."""
        cdef Py_ssize_t i, k = tail.shape[0]
        cdef int64_t room = 0
        for i in range(k):
            if i + 2 * AHEAD < k:
                fs_write_soon(&self.node[head[i + 2 * AHEAD]])
            self.node[tail[i]].coming += 1
            self.node[head[i]].coming += 1
        for i in range(k):
            room += new_block(&self.node[tail[i]]) + new_block(&self.node[head[i]])
        return room

    cdef int64_t count_all_halves(self, const int64_t[::1] tail, const int64_t[::1] head, int32_t[::1] want) except -1:
        """Do the same as `count_halves` for arcs that reach most nodes, with the counts by node in the array `want`."""
        cdef Py_ssize_t i
        cdef int64_t room = 0
        cdef int32_t degree
        for i in range(tail.shape[0]):
            want[tail[i]] += 1
            want[head[i]] += 1
        for i in range(self.n):
            if not want[i]:
                continue
            degree = self.node[i].region[3] + want[i]
            if degree > self.node[i].size:
                room += class_size(roomy(degree, self.node[i].size))
        return room

    cdef int new_arcs(self, const int64_t[::1] tail, const int64_t[::1] head, const int64_t[::1] capacity,
                      const int64_t[::1] cost, const int64_t[::1] lower, int64_t[::1] ids) except -1:
        """Add arcs; write their ids to `ids`."""
        cdef Py_ssize_t i, k = tail.shape[0]
        cdef int32_t a, u, v
        cdef int64_t cap, lo, bound, huge = 0, left = self.m - self.live_arcs
        cdef int32_t[::1] want
        cdef bint bulk = k > 1000 and k > self.n // 8       # true: lay the blocks out in the order of the nodes
        _call = self.begin()
        self.check_ids(tail, "tail", "node")
        self.check_ids(head, "head", "node")
        self.check_bounds(capacity, lower)
        if lower.shape[0]:
            self.check_volume(lower, "lower", lower[:0])
        bound = self.check_cost(cost, self.live_nodes)
        for i in range(k):
            huge += capacity[i] >= BIG
        self.reserve_to_restore(k, k, huge)
        if bulk:
            want = _zeros(self.n, np.int32)
        try:
            self.grow_half(self.top + (self.count_all_halves(tail, head, want) if bulk else self.count_halves(tail, head)))
            self.grow_arcs(max(self.m, self.live_arcs + k), lower.shape[0] > 0)     # last, as `dump` shows whether there are lower bounds
        except BaseException:
            for i in range(0 if bulk else k):
                self.node[tail[i]].coming = self.node[head[i]].coming = 0
            raise
        # Nothing can fail from here on.
        self.cost_bound = bound
        self.reshape()
        for i in range(self.n if bulk else 0):
            if want[i]:
                self.reserve(<int32_t>i, self.node[i].region[3] + want[i])
        for i in range(k):
            if left:
                left -= 1
                ids[i] = self.free[left]
            else:
                ids[i] = self.m
                self.m += 1
        for i in range(k):
            if i % BLOCK == 0:
                self.fetch_room(&head[i], &ids[i], min(BLOCK, k - i))
            a, u, v = <int32_t>ids[i], <int32_t>tail[i], <int32_t>head[i]
            lo = lower[i] if lower.shape[0] else 0
            cap = min(capacity[i], CINF)
            self.arc_entry[a] = -1
            if self.lower.shape[0]:
                self.lower[a] = 0
            self.residual[2 * a] = cap
            self.residual[2 * a + 1] = 0
            self.attach(u, 2 * a, v, cost[i], 0 if cap else 3)
            self.attach(v, 2 * a + 1, u, -cost[i], 2 if cap else 3)
            if lo:
                self.raise_lower(a, lo)
        self.live_arcs += k
        for i in range(k):
            if cost[i] + self.potential[tail[i]] - self.potential[head[i]] < 0:
                self.restore_optimality(<int32_t>(2 * ids[i]))
        return 0

    cdef inline int raise_lower(self, int32_t a, int64_t lower) except -1:
        """Set the lower bound of arc a; flow below it is raised to it."""
        cdef int64_t flow = self.flow_of(a), old = self.lower[a]
        if flow < lower:
            self.push(2 * a, lower - flow)      # flow comes from the capacity, as lower <= capacity
            flow = lower
        self.lower[a] = lower
        self.resize(2 * a + 1, flow - lower)
        self.volume += lower - old
        return 0

    cdef inline int drop_arc(self, int32_t h, int32_t u, Half rec) except -1:
        """Remove the arc of half-arc h; its record `rec` has already left the block of u."""
        cdef int32_t a = h >> 1
        cdef int64_t flow = self.flow_of(a)
        if flow:
            fs_muladd(&self.cost_high, &self.cost_low, flow, rec.cost if h & 1 else -rec.cost)
            self.add_excess(rec.head, flow if h & 1 else -flow)
            self.add_excess(u, -flow if h & 1 else flow)
        if self.lower.shape[0]:
            self.volume -= self.lower[a]
            self.lower[a] = 0
        if self.position[h ^ 1] >= 0:
            self.change_region(rec.head, h ^ 1, self.state(h ^ 1), 4)
        if self.arc_entry[a] >= 0:
            self.journal_arc[self.arc_entry[a]] = -1
            self.arc_entry[a] = -1
        self.position[2 * a] = self.position[2 * a + 1] = -1
        self.free[self.m - self.live_arcs] = a
        self.live_arcs -= 1
        return 0

    def remove_arcs(self, const int64_t[::1] arcs, /):
        """Remove arcs, each once; their ids become free."""
        self.drop_arcs(arcs)

    cdef int drop_arcs(self, const int64_t[::1] arcs) except -1:
        cdef Py_ssize_t i
        cdef int32_t h, u
        cdef Half rec
        _call = self.begin()
        self.check_ids(arcs, "arcs", "arc")
        _unique(arcs, "arcs")
        self.grow_free(arcs.shape[0])
        self.reshape()
        for i in range(arcs.shape[0]):
            if i % BLOCK == 0:
                self.fetch_arcs(&arcs[i], min(BLOCK, arcs.shape[0] - i))
            h = <int32_t>(2 * arcs[i])
            u, rec = self.tail(h), self.half[self.position[h]]
            self.change_region(u, h, self.state(h), 4)
            self.drop_arc(h, u, rec)
        return 0

    cdef int fetch_gone(self, const int64_t *nodes, Py_ssize_t k, Py_ssize_t i) noexcept nogil:
        """Prefetch the memory that removing the nodes after the i-th reads, one address of the chain in each step; else each read is a cache miss."""
        cdef int step
        cdef int32_t v, w, h, at
        cdef Py_ssize_t j
        for step in range(STEPS):
            j = i + 2 * (STEPS - step)
            if not 0 <= j < k:
                continue
            v = <int32_t>nodes[j]
            for at in range(self.node[v].first, self.node[v].first + min(self.node[v].region[3], LOW_DEGREE)):
                if step == 0:
                    fs_write_soon(&self.half[at])
                    continue
                h, w = self.half[at].id, self.half[at].head
                if step == 1:
                    fs_write_soon(&self.position[h & ~1])
                    fs_write_soon(&self.residual[h & ~1])
                    fs_write_soon(&self.node[w])
                    fs_write_soon(&self.arc_entry[h >> 1])
                elif step == 2:
                    fs_write_soon(&self.half[self.position[h ^ 1]])
                    self.fetch_half(self.node[w].first + self.node[w].region[2] - 1)
                elif self.node[w].region[2] > 0:
                    fs_write_soon(&self.position[self.half[self.node[w].first + self.node[w].region[2] - 1].id])
        return 0

    cdef int fetch_room(self, const int64_t *head, const int64_t *ids, Py_ssize_t k) noexcept nogil:
        """Prefetch the memory that adding k arcs writes."""
        cdef Py_ssize_t j
        cdef int32_t v
        for j in range(k):
            v = <int32_t>head[j]
            self.fetch_half(self.node[v].first + self.node[v].region[3])
            fs_write_soon(&self.position[2 * ids[j]])
            fs_write_soon(&self.residual[2 * ids[j]])
            fs_write_soon(&self.arc_entry[ids[j]])
        return 0

    cdef int fetch_arcs(self, const int64_t *arcs, Py_ssize_t k) noexcept nogil:
        """Prefetch the half-arcs of k arcs, and then their ends."""
        cdef Py_ssize_t j
        cdef int32_t p, q
        for j in range(k):
            fs_write_soon(&self.half[self.position[2 * arcs[j]]])
            fs_write_soon(&self.half[self.position[2 * arcs[j] + 1]])
            fs_write_soon(&self.residual[2 * arcs[j]])
        for j in range(k):
            p, q = self.half[self.position[2 * arcs[j]]].head, self.half[self.position[2 * arcs[j] + 1]].head
            fs_write_soon(&self.potential[p])
            fs_write_soon(&self.potential[q])
            fs_write_soon(&self.node[p])
            fs_write_soon(&self.node[q])
        return 0

    def remove_nodes(self, const int64_t[::1] nodes, /):
        """Remove nodes, each once, with their arcs; the ids become free."""
        self.drop_nodes(nodes)

    cdef int drop_nodes(self, const int64_t[::1] nodes) except -1:
        cdef Py_ssize_t i
        cdef int32_t v, k
        cdef int64_t degrees = 0
        cdef Half rec
        _call = self.begin()
        self.check_ids(nodes, "nodes", "node")
        self.next_stamp()
        for i in range(nodes.shape[0]):
            if self.mark[nodes[i]] == self.stamp:
                raise InputError(f"nodes[{i}]: {nodes[i]} occurs twice")
            self.mark[nodes[i]] = self.stamp
            degrees += self.node[nodes[i]].region[3]
        self.grow_free(min(degrees, self.live_arcs))
        self.reshape()
        for i in range(-2 * STEPS if nodes.shape[0] else 0, nodes.shape[0]):
            self.fetch_gone(&nodes[0], nodes.shape[0], i)
            if i < 0:
                continue
            v = <int32_t>nodes[i]
            for k in range(self.node[v].first, self.node[v].first + self.node[v].region[3]):
                rec = self.half[k]
                if self.position[rec.id] < 0:      # a loop appears twice here
                    continue
                if rec.head == v:
                    self.position[rec.id ^ 1] = -1
                self.drop_arc(rec.id, v, rec)
            self.supply_sum -= self.supply[v]
            self.volume -= mag(self.supply[v])
            self.supply[v] = self.excess[v] = 0
            if self.node_entry[v] >= 0:
                self.journal_node[self.node_entry[v]] = -1
                self.node_entry[v] = -1
            self.free_block(self.node[v].first, self.node[v].size)
            self.node[v].size = self.node[v].region[0] = self.node[v].region[1] = self.node[v].region[2] = 0
            self.node[v].region[3] = -1
            self.node[v].first = self.free_node
            self.free_node = v
            self.live_nodes -= 1
        return 0

    cdef int set_numbers(self, int which, const int64_t[::1] ids, const int64_t[::1] values) except -1:
        """Set the supplies of nodes, or the capacities or costs of arcs."""
        _call = self.begin()
        if which == SET_SUPPLY:
            return self.put_supply(ids, values)
        return self.put_capacity(ids, values) if which == SET_CAPACITY else self.put_cost(ids, values)

    def set_supply(self, const int64_t[::1] nodes, const int64_t[::1] supply, /):
        """Set the supplies of nodes."""
        self.set_numbers(SET_SUPPLY, nodes, supply)

    cdef int put_supply(self, const int64_t[::1] nodes, const int64_t[::1] supply) except -1:
        cdef Py_ssize_t i
        cdef int32_t v
        self.check_ids(nodes, "nodes", "node")
        self.check_volume(supply, "supply", nodes)
        self.reserve_changes(nodes.shape[0])
        for i in range(nodes.shape[0]):
            v = <int32_t>nodes[i]
            if supply[i] != self.supply[v]:
                self.log_change(~v)
                self.add_excess(v, supply[i] - self.supply[v])
                self.supply_sum += supply[i] - self.supply[v]
                self.volume += mag(supply[i]) - mag(self.supply[v])
                self.supply[v] = supply[i]
        return 0

    def set_capacity(self, const int64_t[::1] arcs, const int64_t[::1] capacity, /):
        """Set the capacities of arcs; flow above them becomes an excess."""
        self.set_numbers(SET_CAPACITY, arcs, capacity)

    cdef int put_capacity(self, const int64_t[::1] arcs, const int64_t[::1] capacity) except -1:
        cdef Py_ssize_t i, k = arcs.shape[0]
        cdef int32_t h
        cdef int64_t flow, cap, huge = 0
        self.check_ids(arcs, "arcs", "arc")
        self.check_bounds(capacity, capacity[:0])
        for i in range(k):
            if self.lower.shape[0] and capacity[i] < self.lower[arcs[i]]:
                raise InputError(f"capacity[{i}]: {capacity[i]} is below arc {arcs[i]}'s lower bound {self.lower[arcs[i]]}")
            huge += capacity[i] >= BIG
        self.reserve_changes(k)
        self.reserve_to_restore(k, k, huge)
        for i in range(k):
            if i % BLOCK == 0:
                self.fetch_arcs(&arcs[i], min(BLOCK, k - i))
            h = <int32_t>(2 * arcs[i])
            self.log_change(h >> 1)
            flow = self.flow_of(h >> 1)
            cap = min(capacity[i], CINF)
            if flow > cap:
                self.push(h ^ 1, flow - cap)
                flow = cap
            self.resize(h, cap - flow)
            self.restore_optimality(h)
        return 0

    def set_lower(self, const int64_t[::1] arcs, const int64_t[::1] lower, /):
        """Set the lower bounds of arcs; flow below them becomes a deficit."""
        cdef Py_ssize_t i, k = arcs.shape[0]
        cdef int32_t a
        cdef int64_t cap
        _call = self.begin()
        self.check_ids(arcs, "arcs", "arc")
        self.check_bounds(lower[:0], lower)
        self.check_volume(lower, "lower", arcs)
        for i in range(k):
            a = <int32_t>arcs[i]
            cap = self.residual[2 * a] + self.flow_of(a)
            if lower[i] > cap:
                raise InputError(f"lower[{i}]: {lower[i]} is above arc {a}'s capacity {cap}")
        self.reserve_to_restore(k, k, self.large(arcs))
        self.grow_arcs(self.m, True)
        self.drop_basis()
        for i in range(k):
            self.raise_lower(<int32_t>arcs[i], lower[i])
            self.restore_optimality(<int32_t>(2 * arcs[i] + 1))

    def set_cost(self, const int64_t[::1] arcs, const int64_t[::1] cost, /):
        """Set the costs of arcs."""
        self.set_numbers(SET_COST, arcs, cost)

    cdef int put_cost(self, const int64_t[::1] arcs, const int64_t[::1] cost) except -1:
        cdef Py_ssize_t i, k = arcs.shape[0]
        cdef int32_t h
        cdef int64_t bound
        self.check_ids(arcs, "arcs", "arc")
        bound = self.check_cost(cost, self.live_nodes)
        self.reserve_changes(k)
        self.reserve_to_restore(k, 2 * k, self.large(arcs))
        self.cost_bound = bound
        for i in range(k):
            if i % BLOCK == 0:
                self.fetch_arcs(&arcs[i], min(BLOCK, k - i))
            h = <int32_t>(2 * arcs[i])
            self.log_change(h >> 1)
            fs_muladd(&self.cost_high, &self.cost_low, self.flow_of(h >> 1), cost[i] - self.half[self.position[h]].cost)
            self.half[self.position[h]].cost = cost[i]
            self.half[self.position[h ^ 1]].cost = -cost[i]
            self.restore_optimality(h)
            self.restore_optimality(h ^ 1)
        return 0

    cdef int clear_stamps(self) except -1 nogil:
        cdef int32_t v
        for v in range(self.n):
            self.mark[v] = 0
        return 0

    # == reading: the last solution, and the present data ========================================================

    def cost_of_flow(self):
        """Cost of the last solution, at the present costs; not valid if arcs were removed since."""
        cdef int64_t high, k
        cdef uint64_t low
        cdef int32_t i
        _call = self.begin()
        high, low = self.cost_high, self.cost_low
        for i in range(self.journal_arcs):
            k = self.journal_arc[i]
            if k >= 0:
                fs_muladd(&high, &low, self.journal_flow[i] - self.flow_of(<int32_t>k), self.half[self.position[2 * k]].cost)
        return number(high, low)

    cdef object living(self):
        """Bool by node id: the id is in use."""
        fs_allocate()
        return whole(self.node)[:self.n]["region"][:, 3] >= 0

    def node_ids(self):
        """Ids of all nodes, ascending."""
        _call = self.begin()
        return self.chosen_nodes(None)

    def arc_ids(self):
        """Ids of all arcs, ascending."""
        _call = self.begin()
        return self.chosen_arcs(None)

    cdef object chosen_arcs(self, ids):
        if ids is None:
            fs_allocate()
            return np.flatnonzero(whole(self.position)[:2 * self.m:2] >= 0)
        self.check_ids(ids, "arcs", "arc")
        return ids

    cdef object chosen_nodes(self, ids):
        if ids is None:
            return np.flatnonzero(self.living())
        self.check_ids(ids, "nodes", "node")
        return ids

    def flows(self, ids, /):
        """Flow of arcs in the last solution, of all in the order of their ids by default (None)."""
        _call = self.begin()
        return self.read_arcs(self.chosen_arcs(ids), F_FLOW)

    cdef int copy_flow(self, const int64_t *arcs, Py_ssize_t k, int64_t *flow) except -1:
        """Read the flow on arcs in the last solution."""
        cdef Py_ssize_t i
        _call = self.begin()
        for i in range(k):
            if not (0 <= arcs[i] < self.m and self.position[2 * arcs[i]] >= 0):
                raise IndexError("no such arc")
            flow[i] = self.last_flow(<int32_t> arcs[i])
        return 0

    def potentials(self, ids, /):
        """Potentials of nodes in the last solution, of all by default (None)."""
        _call = self.begin()
        return self.read_nodes(self.chosen_nodes(ids), False)

    def supplies(self, ids, /):
        """Supplies of nodes, of all by default (None)."""
        _call = self.begin()
        return self.read_nodes(self.chosen_nodes(ids), True)

    cdef object read_nodes(self, const int64_t[::1] nodes, bint supplies):
        """Supplies, or potentials in the last solution."""
        out = _zeros(nodes.shape[0], np.int64)
        cdef int64_t[::1] value = out
        cdef Py_ssize_t i
        for i in range(nodes.shape[0]):
            value[i] = self.supply[nodes[i]] if supplies else self.last_potential(<int32_t>nodes[i])
        return out

    def arc_data(self, ids, int field, /):
        """TAIL, HEAD, CAPACITY, COST or LOWER of the arcs, or REDUCED: their costs at the potentials of the last solution."""
        _call = self.begin()
        return self.read_arcs(self.chosen_arcs(ids), field)

    cdef object read_arcs(self, const int64_t[::1] arcs, int field):
        cdef int64_t[::1] value
        cdef Py_ssize_t i
        cdef int32_t a
        out = _zeros(arcs.shape[0], np.int64)
        value = out
        for i in range(arcs.shape[0]):
            a = <int32_t>arcs[i]
            if field == F_FLOW:
                value[i] = self.last_flow(a)
            elif field == F_TAIL:
                value[i] = self.tail(2 * a)
            elif field == F_HEAD:
                value[i] = self.head(2 * a)
            elif field == F_CAPACITY:
                value[i] = self.residual[2 * a] + self.flow_of(a)
            elif field == F_COST:
                value[i] = self.half[self.position[2 * a]].cost
            elif field == F_REDUCED:
                value[i] = self.half[self.position[2 * a]].cost + self.last_potential(self.tail(2 * a)) - self.last_potential(self.head(2 * a))
            elif self.lower.shape[0]:
                value[i] = self.lower[a]
        return out

    def price_differences(self, list arcs, list sizes, /):
        """Return, for groups of units, the reduced cost of one arc less that of another from the same node, in the last solution.

        The potential of the common node cancels, so that neither the node nor its potential is looked up.

        Parameters
        ----------
        arcs : list of array of int64
            Pairs of arcs.
        sizes : list of array of int64
            Number of units by pair; pairs without any are left out.
        """
        cdef Array pairs, units
        cdef const int64_t *pair
        cdef Py_ssize_t i, k, count = 0
        cdef int64_t a, b, value
        _call = self.begin()
        for pairs, units in zip(arcs, sizes, strict=True):
            if len(pairs) != 2 * len(units):
                raise ValueError("price_differences: arrays of different lengths")
            count += len(units)
        out = _empty(count, np.int64)
        cdef int64_t[::1] found = out
        count = 0
        for pairs, units in zip(arcs, sizes):
            pair = <const int64_t *> pairs.data.as_longlongs
            for i in range(len(units)):
                if not units.data.as_longlongs[i]:
                    continue
                value = 0
                for k in range(2):
                    a = pair[2 * i + k]
                    if not (0 <= a < self.m and self.position[2 * a] >= 0):
                        raise IndexError("no such arc")
                    b = self.position[2 * a]
                    a = self.half[b].cost - self.last_potential(self.half[b].head)
                    value += -a if k else a
                found[count] = value
                count += 1
        return out[:count]

    cdef object all_supplies(self):
        """Supplies by node id; 0 where an id is free."""
        fs_allocate()
        return np.where(self.living(), whole(self.supply)[:self.n], 0)

    cdef object columns(self):
        """The network in the form of the kernels for whole ones: tail, head, capacity, cost, flow, lower; free arc ids become arcs of capacity 0."""
        cdef int32_t[::1] tail = _zeros(self.m, np.int32), head = _zeros(self.m, np.int32)
        cdef int64_t[::1] cost = _zeros(self.m, np.int64), flow = _zeros(self.m, np.int64), capacity = _zeros(self.m, np.int64)
        cdef int32_t v, i, a
        for v in range(self.n):
            for i in range(self.node[v].first, self.node[v].first + self.node[v].region[3]):     # no pass if the id is free: region[3] < 0
                if self.half[i].id & 1 == 0:
                    a = self.half[i].id >> 1
                    tail[a], head[a], cost[a], flow[a] = v, self.half[i].head, self.half[i].cost, self.flow_of(a)
                    capacity[a] = self.residual[2 * a] + flow[a]
        return tail, head, capacity, cost, flow, _copy(self.lower[:self.m]) if self.lower.shape[0] else self.none64

    def sizes(self):
        """Numbers of live nodes and live arcs."""
        _call = self.begin()
        return self.live_nodes, self.live_arcs

    def nbytes(self):
        """Memory of all arrays, in bytes."""
        _call = self.begin()
        return self.weight()

    cdef object arrays(self):
        """All arrays, as memoryviews."""
        return [self.potential, self.excess, self.supply, self.node, self.mark, self.active, self.node_entry, self.is_active, self.residual, self.position,
                self.arc_entry, self.free, self.lower, self.half, self.spare, self.journal_arc, self.journal_flow, self.journal_node, self.journal_potential,
                self.unsaturable, self.changes]

    cdef object weight(self):
        return sum([whole(a).nbytes for a in self.arrays()])

    # == copies ===================================================================================================

    cdef object write(self):
        cdef int32_t n = self.n, m = self.m, v, a, i, k = 0
        cdef int64_t[::1] potential = np.zeros(n, np.int64), capacity = np.zeros(m, np.int64), flow = np.zeros(m, np.int64), cost = np.zeros(m, np.int64)
        cdef int32_t[::1] degree = np.empty(n, np.int32), hint = np.zeros(n, np.int32), adjacent = np.empty(2 * self.live_arcs, np.int32)
        cdef int32_t[::1] free_nodes = np.empty(n - self.live_nodes, np.int32), free_arcs = np.empty(m - self.live_arcs, np.int32)
        cdef int32_t[::1] arcs = np.empty(self.journal_arcs, np.int32), nodes = np.empty(self.journal_nodes, np.int32)
        cdef int64_t[::1] moved = np.empty(self.journal_arcs, np.int64), raised = np.empty(self.journal_nodes, np.int64)
        for v in range(n):
            degree[v] = self.node[v].region[3]
            if degree[v] >= 0:
                potential[v], hint[v] = self.potential[v], self.node[v].hint
                for i in range(self.node[v].first, self.node[v].first + degree[v]):
                    adjacent[k] = self.half[i].id
                    k += 1
                    if self.half[i].id & 1 == 0:
                        a = self.half[i].id >> 1
                        cost[a], flow[a] = self.half[i].cost, self.flow_of(a)
                        capacity[a] = self.residual[2 * a] + flow[a]
        v = self.free_node
        for i in range(n - self.live_nodes):
            free_nodes[i], v = v, self.node[v].first
        for i in range(m - self.live_arcs):
            free_arcs[i] = self.free[m - self.live_arcs - 1 - i]
        k = 0
        for i in range(self.journal_arcs):
            if self.journal_arc[i] >= 0:
                arcs[k], moved[k] = self.journal_arc[i], self.journal_flow[i]
                k += 1
        arcs, moved = arcs[:k], moved[:k]
        k = 0
        for i in range(self.journal_nodes):
            if self.journal_node[i] >= 0:
                nodes[k], raised[k] = self.journal_node[i], self.journal_potential[i]
                k += 1
        nodes, raised = nodes[:k], raised[:k]
        return {
            "supply": np.array(self.supply[:n]), "potential": potential.base, "hint": hint.base, "degree": degree.base, "adjacent": adjacent.base,
            "free_nodes": free_nodes.base, "active": np.array(self.active[:self.active_count]), "capacity": capacity.base, "flow": flow.base,
            "lower": np.array(self.lower[:m] if self.lower.shape[0] else self.lower), "cost": cost.base, "free_arcs": free_arcs.base,
            "bent": np.array(self.unsaturable[:self.unsaturable_count]), "solved": int(self.solved), "moved_arcs": np.array(arcs), "moved_flow": np.array(moved),
            "moved_nodes": np.array(nodes), "moved_potential": np.array(raised), "overflown": int(self.overflowed), "cost_bound": self.cost_bound,
            "reshaped": int(self.reshaped), "based": int(self.based), "news": np.array(self.changes[:self.change_count]),
        }

    cdef object read(self, state):
        """Load all but the basis; return None, or a text that names the fault."""
        cdef const int64_t[::1] supply = state["supply"], potential = state["potential"], capacity = state["capacity"], flow = state["flow"]
        cdef const int64_t[::1] lower = state["lower"], cost = state["cost"], moved = state["moved_flow"], raised = state["moved_potential"]
        cdef const int32_t[::1] hint = state["hint"], degree = state["degree"], adjacent = state["adjacent"], free_nodes = state["free_nodes"]
        cdef const int32_t[::1] active = state["active"], free_arcs = state["free_arcs"], bent = state["bent"]
        cdef const int32_t[::1] arcs = state["moved_arcs"], nodes = state["moved_nodes"]
        cdef int32_t v, a, h, i, first = 0, last = 0, size, region, before
        cdef int64_t lo = 0, top = 0, most = 0, bound = state["cost_bound"]
        cdef int64_t[::1] high
        cdef uint64_t[::1] down
        cdef unsigned char[::1] seen
        cdef bint lowers = lower.shape[0] > 0
        if supply.shape[0] >= 2**31 - 2 or capacity.shape[0] >= 2**30 - 2:
            return "supply, capacity: too many nodes or arcs"
        cdef int32_t n = <int32_t>supply.shape[0], m = <int32_t>capacity.shape[0]
        # -- ids and adjacency
        for v in range(n):
            if degree[v] >= 0:
                self.live_nodes += 1
                if degree[v] > adjacent.shape[0] - most:
                    return f"degree[{v}]: more half-arcs than there are"
                most += degree[v]
                top += class_size(size_class(degree[v]))
            elif degree[v] != -1 or supply[v] or potential[v] or hint[v]:
                return f"degree[{v}]: -1 expected, and no supply, potential or hint, where an id is free"
            if not -2 * POT_MAX < potential[v] < 2 * POT_MAX:
                return f"potential[{v}]: {potential[v]} is out of range"
        if most != adjacent.shape[0] or adjacent.shape[0] % 2 or adjacent.shape[0] > 2 * <int64_t>m:
            return "adjacent: as many half-arcs as the degrees say, two for each arc, expected"
        if top >= 2**31 - 2:
            return "degree: too many half-arcs"
        for v in range(n):
            if not 0 <= hint[v] <= 2 * <int64_t>m or hint[v] >= 2**31 - 2 - top:
                return f"hint[{v}]: {hint[v]} is out of range"
        self.live_arcs = <int32_t>(adjacent.shape[0] // 2)
        if free_nodes.shape[0] != n - self.live_nodes:
            return "free_nodes: all ids of degree -1 expected"
        if free_arcs.shape[0] != m - self.live_arcs:
            return "free_arcs: all ids without half-arcs expected"
        self.node, self.position, self.half = np.zeros(n, NODE), np.full(2 * m, -1, np.int32), np.zeros(top, HALF)
        for v in range(n):
            self.node[v].region[3] = degree[v]
            self.node[v].hint = hint[v]
            if degree[v] < 0:
                continue
            self.node[v].first, self.node[v].size = first, class_size(size_class(degree[v]))
            for i in range(degree[v]):
                h = adjacent[last + i]
                if not 0 <= h < 2 * <int64_t>m or self.position[h] >= 0:
                    return f"adjacent[{last + i}]: half-arc {h} does not exist, or occurs twice"
                self.position[h] = first + i
                self.half[first + i].id = h
            last += degree[v]
            first += self.node[v].size
        self.top = top
        self.free_node = -1
        for i in range(<int32_t>free_nodes.shape[0] - 1, -1, -1):
            v = free_nodes[i]
            if not 0 <= v < n or self.node[v].region[3] != -1:
                return f"free_nodes[{i}]: {v} is no free id, or occurs twice"
            self.node[v].region[3] = -2              # provisional: the id is in the free list
            self.node[v].first, self.free_node = self.free_node, v
        for v in range(n):
            self.node[v].region[3] = max(self.node[v].region[3], -1)
        seen = np.zeros(max(n, m), np.uint8)
        for i in range(<int32_t>free_arcs.shape[0] - 1, -1, -1):
            a = free_arcs[i]
            if not 0 <= a < m or self.position[2 * a] >= 0 or self.position[2 * a + 1] >= 0 or seen[a]:
                return f"free_arcs[{i}]: {a} is no free id, or occurs twice"
            seen[a] = 1
        # -- arcs: bounds, flow, cost, and with them the regions of the adjacency
        for a in range(m):
            lo = lower[a] if lowers else 0
            if seen[a]:
                if capacity[a] or flow[a] or cost[a] or lo:
                    return f"capacity[{a}], flow, cost, lower: 0 expected where an id is free"
                continue
            if self.position[2 * a] < 0 or self.position[2 * a + 1] < 0:
                return f"adjacent: a half-arc of arc {a} is missing"
            if not 0 <= lo <= flow[a] <= capacity[a] <= CINF:
                return f"flow[{a}]: 0 <= lower <= flow <= capacity <= 2**62 does not hold"
            if not -bound <= cost[a] <= bound:
                return f"cost[{a}]: {cost[a]} is above the bound"
        if (self.live_nodes + 1) * int(bound) >= POT_MAX:
            return "cost_bound: too large for so many nodes"
        self.residual = np.zeros(2 * m, np.int64)
        high, down = np.zeros(n, np.int64), np.zeros(n, np.uint64)
        for v in range(n):
            if self.node[v].region[3] >= 0:
                fs_muladd(&high[v], &down[v], supply[v], 1)
            for i in range(self.node[v].first, self.node[v].first + self.node[v].region[3]):
                h = self.half[i].id
                a = h >> 1
                lo = lower[a] if lowers else 0
                self.residual[h] = flow[a] - lo if h & 1 else capacity[a] - flow[a]
                self.unlimited_full |= capacity[a] == CINF == flow[a]
                self.half[i].cost = -cost[a] if h & 1 else cost[a]
                self.half[self.position[h ^ 1]].head = v
                fs_muladd(&high[v], &down[v], flow[a], 1 if h & 1 else -1)
                if h & 1 == 0:
                    fs_muladd(&self.cost_high, &self.cost_low, flow[a], cost[a])
        self.free = np.flip(state["free_arcs"]).copy()
        for v in range(n):
            before = 0
            for i in range(self.node[v].first, self.node[v].first + self.node[v].region[3]):
                region = self.state(self.half[i].id)
                if region < before:
                    return f"adjacent: the half-arcs of node {v} do not stand in the order of their states"
                before = region
                for size in range(region, 3):
                    self.node[v].region[size] += 1
        # -- supplies, excesses
        if (wrong := too_much(supply, lower)) is not None:
            return wrong
        self.volume, self.supply_sum = 0, 0
        for v in range(n):
            self.volume += mag(supply[v])
            self.supply_sum += supply[v]
        for a in range(m if lowers else 0):
            self.volume += lower[a]
        self.supply, self.potential, self.excess = np.array(supply), np.array(potential), np.zeros(n, np.int64)
        self.is_active, self.active, self.active_count = np.zeros(n, np.uint8), np.zeros(n, np.int32), 0
        self.overflowed = state["overflown"]
        for i in range(active.shape[0]):
            v = active[i]
            if not 0 <= v < n or self.is_active[v]:
                return f"active[{i}]: {v} is no node, or occurs twice"
            self.is_active[v] = 1
            self.active[i] = v
            self.active_count += 1
        for v in range(n):
            if high[v] == (-1 if down[v] >> 63 else 0) and -CINF < <int64_t>down[v] < CINF:
                self.excess[v] = <int64_t>down[v]
            elif not self.overflowed:
                return f"flow: the excess of node {v} is out of range"
            if self.excess[v] and not self.is_active[v]:
                return f"active: node {v} has an excess and is not there"
        # -- potentials: invariant (I)
        self.unsaturable, self.unsaturable_count = np.zeros(bent.shape[0] + 4, np.int32), <int32_t>bent.shape[0]
        seen = np.zeros(2 * m, np.uint8)
        for i in range(bent.shape[0]):
            if not 0 <= bent[i] < 2 * <int64_t>m:
                return f"bent[{i}]: {bent[i]} is no half-arc"
            self.unsaturable[i] = bent[i]
            seen[bent[i]] = 1
        for v in range(n):
            for i in range(self.node[v].first, self.node[v].first + self.node[v].region[1]):
                if self.half[i].cost + potential[v] - potential[self.half[i].head] < 0 and not seen[self.half[i].id]:
                    return f"potential: half-arc {self.half[i].id} has room and a negative reduced cost, and is not in bent"
        # -- the last solution
        self.solved, self.reshaped = state["solved"], state["reshaped"]
        self.journal_arcs, self.journal_nodes = <int32_t>arcs.shape[0], <int32_t>nodes.shape[0]
        if not self.solved and (self.journal_arcs or self.journal_nodes):
            return "moved_arcs, moved_nodes: none expected before the first solution"
        self.arc_entry, self.node_entry = np.full(m, -1, np.int32), np.full(n, -1, np.int32)
        self.journal_arc, self.journal_flow = np.zeros(self.journal_arcs + 16, np.int32), np.zeros(self.journal_arcs + 16, np.int64)
        self.journal_node, self.journal_potential = np.zeros(self.journal_nodes + 16, np.int32), np.zeros(self.journal_nodes + 16, np.int64)
        for i in range(self.journal_arcs):
            a = arcs[i]
            if not 0 <= a < m or self.position[2 * a] < 0 or self.arc_entry[a] >= 0 or not 0 <= moved[i] <= CINF:
                return f"moved_arcs[{i}]: {a} is no arc, occurs twice, or its flow is out of range"
            self.arc_entry[a], self.journal_arc[i], self.journal_flow[i] = i, a, moved[i]
        for i in range(self.journal_nodes):
            v = nodes[i]
            if not 0 <= v < n or self.node[v].region[3] < 0 or self.node_entry[v] >= 0 or not -2 * POT_MAX < raised[i] < 2 * POT_MAX:
                return f"moved_nodes[{i}]: {v} is no node, occurs twice, or its potential is out of range"
            self.node_entry[v], self.journal_node[i], self.journal_potential[i] = i, v, raised[i]
        self.cost_bound, self.lower, self.mark, self.n, self.m = bound, np.array(lower), np.zeros(n, np.int32), n, m
        return None


cdef object too_much(const int64_t[::1] supply, const int64_t[::1] lower):
    """None, or a text if the magnitudes sum to 2**60 or more."""
    cdef Py_ssize_t wrong = -1
    cdef int64_t total = _sum_of(supply, 0, &wrong)
    if wrong >= 0:
        return f"supply[{wrong}]: too large; the magnitudes must add up to less than 2**60"
    _sum_of(lower, total, &wrong)
    return "supply, lower: they add up to 2**60 or more" if wrong >= 0 else None


cdef object whole(view):
    """The array behind a memoryview.  np.asarray would parse the format of records in Python, where Ctrl-C turns into a ValueError."""
    return view if isinstance(view, np.ndarray) else view.base


cdef int64_t larger(int64_t size, int64_t wanted, int64_t most):
    """Size of an array that is to grow: with slack, so that many small steps cost little."""
    return max(wanted, min(size + size // 8 + 64, most))


cdef object grown(view, int64_t size):
    """A copy of length `size`, the new part filled with zeros."""
    array = whole(view)
    out = _zeros(size, array.dtype)
    out.view(np.uint8)[:array.nbytes] = array.view(np.uint8)     # field by field takes several times as long
    return out


cdef int64_t _sum_of(const int64_t[::1] values, int64_t total, Py_ssize_t *wrong) noexcept nogil:
    """Add the magnitudes to `total`; write to `wrong` the index at which the sum reaches 2**60."""
    cdef Py_ssize_t i
    for i in range(values.shape[0]):
        if not -2 * POT_MAX < values[i] < 2 * POT_MAX or total + mag(values[i]) >= 2 * POT_MAX:
            wrong[0] = i
            break
        total += mag(values[i])
    return total


cdef int64_t _magnitude(const int64_t[::1] values, str name) except -1:
    """Sum of the magnitudes, which must stay below 2**60."""
    cdef Py_ssize_t i = -1
    cdef int64_t total = _sum_of(values, 0, &i)
    if i >= 0:
        raise CostRangeError(f"{name}[{i}]: {values[i]} is too large; supplies and lower bounds must add up to less than 2**60")
    return total


cdef int _unique(ids, name) except -1:
    ids = np.asarray(ids)
    if len(ids) > 1:
        fs_allocate()
        seen, first = np.unique(ids, return_index=True)
        if len(seen) < len(ids):
            i = np.setdiff1d(np.arange(len(ids)), first)[0]
            raise InputError(f"{name}[{i}]: {ids[i]} occurs twice")
    return 0
