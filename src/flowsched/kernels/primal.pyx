"""The primal network simplex on a strongly feasible tree; symbols and invariants as in `flowsched.kernels.basis`.

The leaving arc of a pivot is the last blocking one of the
cycle, seen from its apex in the direction of the entering arc; this keeps (S) and rules out cycling (Cunningham).  An arc without
residual capacity can thus only be on the tail's side, and the first one there ends the walk: a degenerate pivot, and most are, never reaches the apex.

`raise_penalty` raises the price of all deficits, at first by a little, whenever few slots may enter, until no deficit is
left.  A price above any path's saving proves the network infeasible, and then the nodes that hang from the root by arcs v -> root
are a cut: every arc that leaves them is full, every arc that enters them is empty.

Time limits
-----------
Between two pivots the basis is whole, so a solve may stop there.  The answer so far is the flow in the tree, if no deficit is
left.  So the price of deficits rises with the pivots (`hurry`), with the clock where the limit leaves time for few, and a part of the limit is kept for the end, measured
by the time of loading.

Cost of a pivot
---------------
The path up the tree to the leaving arc or the apex, and the nodes whose potentials change.  The fields that a step of either reads are few and stored apart, and large
networks have their nodes numbered in preorder after many pivots or moves (`renumber`), as most time is spent on memory accesses.

Entering arcs are found by block search (a block is about sqrt(m) slots): the best of the first block that has one.
Slots are prefetched `AHEAD` of their pricing, as the pivots between two blocks hide their order from the machine.

Complexity: a pivot is O(n), pricing O(m); the number of pivots is exponential in the worst case and about linear in practice.
References: W. H. Cunningham, A network simplex method (1976): (S) and the choice of the leaving arc; P. Kovács, Minimum-cost flow algorithms: an experimental evaluation
(2015): block search for the entering arc.
"""

from libc.math cimport exp, sqrt
from libc.stdint cimport int32_t, int64_t

from flowsched._faults cimport FS_LONG, _empty, fs_look
from flowsched.kernels.basis cimport HUGE, INT32, INT64, LINK, NODE, SLACK, Link, Node, Slack, Slot
from flowsched.kernels.first_tree cimport FirstTree
from flowsched.kernels.status cimport CHEAP, LATE, OK, SPENT, UNBOUNDED

import time

cdef extern from *:
    """
    #ifdef _MSC_VER
    #define fs_read_soon(p) ((void)(p))
    #else
    #define fs_read_soon(p) __builtin_prefetch(p)
    #endif
    """
    void fs_read_soon(const void *p) nogil  # a prefetch: the address need not exist

cdef int32_t PATIENCE = 10               # the price of deficits rises once 1 / PATIENCE of the slots has been priced in vain
cdef int32_t RENUMBER_MIN = 2048         # number of nodes; below it all node records fit into the cache in any order
cdef int32_t STRAY_MIN = 32768           # number of nodes; above it they do not fit into most second-level caches, so each potential that moves costs a cache miss
cdef int64_t STRAY = 8                   # moved potentials per slot that are worth a renumbering
cdef double RUSH = 7                     # exponent: under a limit the price of deficits rises at most by the factor e**RUSH in all, and
cdef double PRESS = 2                    # by e**PRESS in a number of pivots equal to the number of nodes
cdef double COMPLETING = 0.8             # time to complete a flow,
cdef double JAMMED = 1.2                 # additional time with many deficits, and
cdef double HANDING = 0.6                # time to hand the flow over; all three relative to the time of loading
# Estimated costs in ns; only ratios matter.
cdef int64_t SLOT_NS = 1         # pricing a slot
cdef int64_t MOVE_NS = 2         # changing a potential
cdef int64_t PIVOT_NS = 400
cdef int64_t SKETCH_NS = 7       # scanning a half-arc in the coarse phase

cdef enum:
    AHEAD = 128        # slots between the one priced and the one prefetched


cdef class Primal(FirstTree):
    """A basis and its pivots; see the head of this file."""

    # == work and time =========================================================================================

    cdef inline int64_t work(self) noexcept nogil:
        """Work of this solve, in about ns: the same for the same network, at any load of the machine."""
        return SLOT_NS * self.scanned + MOVE_NS * self.moved + PIVOT_NS * self.pivots + SKETCH_NS * self.sketched

    cdef int begin(self, double time_limit, double rescue, int64_t allowance) except -1:
        self.allowance = allowance
        self.begun, self.limit, self.rescue, self.looked, self.whole, self.yields = time.monotonic(), time_limit, rescue, 0, False, False
        self.pivots_at_check = self.pivots = self.degenerate = self.scanned = self.moved = self.sketched = self.moved_at_numbering = 0
        return 0

    cdef int poll(self) except -1 nogil:
        cdef double now
        self.until_poll = FS_LONG
        if self.allowance >= 0:
            if self.work() > self.allowance:
                return SPENT
            self.until_poll = min(FS_LONG, (self.allowance - self.work()) // 16 + 64)
        with gil:
            fs_look()
            now = time.monotonic() - self.begun
        return self.hurry(now) if self.limit >= 0 else OK

    cdef int hurry(self, double now) except -1 nogil:
        """Raise the price of deficits by the progress since the last check; LATE if the rest of the limit is needed for the end.

        The price follows the pivots, slowly enough not to lengthen the path to the optimum.  The clock would raise it faster, and does where the limit leaves
        time for less than half as many pivots as there are nodes.
        """
        cdef double rise = RUSH * (now - self.looked) / self.limit if self.limit > 0 else 0
        cdef int64_t enough = self.penalty_max // 8        # above the cost of any path
        cdef double end = max(self.rescue, 0)
        if self.whole and not self.deficits:
            end = HANDING * self.loading
        elif self.whole:
            end += (HANDING + COMPLETING + JAMMED * min(self.deficits, MANY) / MANY) * self.loading
            self.yields = self.rescue >= 0 and self.limit - end < 2 * self.loading
            if self.yields:
                end = self.rescue
        if now >= self.limit - end:
            return LATE
        if 2 * self.pivots * self.limit > (self.n - 2 * self.pivots_before) * now:
            rise = min(rise, PRESS * (self.pivots - self.pivots_at_check) / self.n)
        self.looked, self.pivots_at_check = now, self.pivots
        if self.whole and self.deficits and not self.load.shape[0] and self.penalty < enough:
            self.charge(min(<int64_t>(<double>max(self.penalty, self.step) * (exp(rise) - 1)), enough))
        return OK

    cdef bint overdue(self) except -1 nogil:
        """Run signal handlers; True if the caller needs the remaining time, or else if half of the tolerance beyond the limit has passed."""
        with gil:
            fs_look()
            return self.limit >= 0 and time.monotonic() - self.begun >= self.limit + (-self.rescue if self.rescue >= 0 else max(self.limit / 40, 0.005))

    # == the price of deficits =================================================================================

    cdef bint raise_penalty(self) except -1 nogil:
        """Raise the price of all deficits; False if none is left, or no price will help."""
        cdef int64_t step = min(self.step, self.penalty_max - self.penalty)
        self.step += self.step // 2 + 1
        self.charge(step)
        return self.deficits > 0 and step > 0

    cdef int charge(self, int64_t step) except -1 nogil:
        """Add `step` to the price of all deficits."""
        cdef int32_t v = self.next[self.n], end
        self.penalty += step
        self.deficits = 0
        while v != self.n:
            end = self.next[self.node[v].last]
            if self.node[v].code < 0 and self.slack[v].up < HUGE:
                self.deficits += 1
                self.shift(v, v, step)
            v = end
        return 0

    # == pivots ================================================================================================

    cdef int primal_simplex(self, int32_t block, int32_t limit) except -1 nogil:
        """Pivot until no slot has a negative reduced cost; they are priced in blocks of sqrt(slots) * `block`.

        At most `limit` slots are kept in ``suspect``.  They are priced again at every pivot, so the best of several blocks enters.
        The price of deficits rises once a part of the slots has shown none that may enter: an optimum at a price that is too low is of no use.
        """
        cdef Slot *slot = &self.slot[0]
        cdef Slot *four
        cdef int64_t *pot = &self.potential[0]
        cdef int32_t *suspect = &self.suspect[0] if limit else NULL
        cdef int32_t at = 0, stop, e, i, enter, left, kept, many = self.nsuspect if limit else 0, enough = self.slots - self.slots // PATIENCE
        cdef bint rising = True
        cdef int64_t a, b, c, d, rc, best, bar
        cdef int status
        block = max(block * <int32_t>sqrt(<double>self.slots) // 4, 3) * 4
        while True:
            if self.pivots_since_numbering >= self.n and self.n >= RENUMBER_MIN or self.moved - self.moved_at_numbering >= STRAY * self.slots and self.n >= STRAY_MIN:
                self.renumber()
                pot = &self.potential[0]
            best = bar = kept = 0
            enter, left = -1, self.slots
            for i in range(many):
                e = suspect[i]
                rc = slot[e].cost + pot[slot[e].tail] - pot[slot[e].head]
                suspect[kept] = e
                kept += rc < 0
                if rc < best:
                    best, enter = rc, e
            self.scanned += many
            many = kept
            while left > 0 and (enter < 0 or left == self.slots and many < limit):
                if at >= self.slots:
                    at = 0
                stop = min(at + block, self.slots)
                for e in range(at, stop, 4):     # four at a time: most have no better rc, and one test rejects all four
                    four = slot + e
                    a = four[0].cost + pot[four[0].tail] - pot[four[0].head]
                    b = four[1].cost + pot[four[1].tail] - pot[four[1].head]
                    c = four[2].cost + pot[four[2].tail] - pot[four[2].head]
                    d = four[3].cost + pot[four[3].tail] - pot[four[3].head]
                    fs_read_soon(four + AHEAD)
                    rc = min(min(a, b), min(c, d))
                    if rc < bar:
                        i = e if a == rc else e + 1 if b == rc else e + 2 if c == rc else e + 3
                        if rc < best:
                            best, enter = rc, i
                        if many < limit:
                            suspect[many] = i
                            many += 1
                        else:
                            bar = best
                left -= stop - at
                self.scanned += stop - at
                self.until_poll -= stop - at
                at = stop
                if enter < 0 and rising and left <= enough:
                    rising = self.raise_penalty()
                    if rising:
                        left = self.slots
            if enter < 0:
                return OK
            status = self.pivot(enter, best, 0)
            if status == CHEAP:
                self.raise_penalty()
            elif status != OK:
                return status
            if self.until_poll <= 0:
                status = self.poll()
                if status != OK:
                    return status

    cdef int pivot(self, int32_t e, int64_t rc, int64_t load) except -1 nogil:
        """Send as much as possible around the cycle that slot e (with `load` on it) closes; exchange the blocking arc for it."""
        cdef int32_t u = self.slot[e].tail, v = self.slot[e].head, out = -1, apex, far, near
        cdef int64_t room = self.room[e], delta = room - load, up, down
        cdef int32_t code = self.code[e]
        cdef Link a = self.link[u], b = self.link[v]
        cdef bint side = False              # the blocking arc is on the tail's side
        # Towards the apex: the cycle runs down to the tail and up from the head.  The leaving arc is the last one that blocks: on
        # the tail's side the first one met, and one without residual capacity ends the walk, as by (S) none blocks so on the head's.
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
        apex = u
        if delta >= HUGE:
            self.cycle_slot = e
            return CHEAP if apex == self.n else UNBOUNDED
        self.pivots += 1
        self.pivots_since_numbering += 1
        if delta:
            u = self.slot[e].tail
            while u != apex:
                self.slack[u].up += delta
                self.slack[u].down -= delta
                u = self.link[u].parent
            v = self.slot[e].head
            while v != apex:
                self.slack[v].up -= delta
                self.slack[v].down += delta
                v = self.link[v].parent
        else:
            self.degenerate += 1
        if out < 0:
            self.swap(e)
            return OK
        load += delta
        if not side:       # the part with the head is cut off
            near, far = self.slot[e].head, self.slot[e].tail
            up, down, code = load, room - load, code ^ 1
        else:
            near, far = self.slot[e].tail, self.slot[e].head
            up, down, rc = room - load, load, -rc
        self.leave(out, e)
        self.reroot(out, near, far, up, down, code)
        self.shift(near, out, rc)
        return OK

    cdef int settle(self) except -1 nogil:
        """Bring the slots outside the tree to a bound, in the direction that does not increase the cost."""
        cdef int32_t e
        cdef int64_t rc
        cdef int status
        for e in range(self.slots if self.load.shape[0] else 0):
            status = CHEAP
            while status == CHEAP and self.code[e] >= 0 and self.load[e]:
                rc = self.slot[e].cost + self.potential[self.slot[e].tail] - self.potential[self.slot[e].head]
                if rc > 0 or rc == 0 and 2 * self.load[e] < self.room[e]:
                    self.swap(e)
                    self.load[e] = self.room[e] - self.load[e]
                    rc = -rc
                status = self.pivot(e, rc, self.load[e])
                if status == OK:
                    self.load[e] = 0        # the arc now in this slot is at a bound; `flow_so_far` may come next
                if status == CHEAP:
                    self.raise_penalty()
                elif status == OK and self.until_poll <= 0:
                    status = self.poll()
                if status != OK and status != CHEAP:
                    return status
        return OK

    cdef int renumber(self) except -1 nogil:
        """Number the nodes in preorder: a path up the tree, and a subtree, are then mostly contiguous in memory."""
        cdef int32_t root = self.n, v = root, i = root, e
        cdef int64_t[::1] pot
        cdef Link[::1] link
        cdef Slack[::1] slack
        cdef Node[::1] node
        cdef int32_t[::1] name, number
        with gil:
            pot, name, number = _empty(root + 1, INT64), _empty(root + 1, INT32), _empty(root + 1, INT32)
            link, slack, node = _empty(root + 1, LINK), _empty(root + 1, SLACK), _empty(root + 1, NODE)
        while True:
            number[v] = i
            i = i + 1 if i < root else 0
            v = self.next[v]
            if v == root:
                break
        for v in range(root + 1):
            i = number[v]
            pot[i], slack[i], node[i], name[i] = self.potential[v], self.slack[v], self.node[v], self.name[v]
            link[i].parent, link[i].depth = number[self.link[v].parent] if v < root else -1, self.link[v].depth
            node[i].last, node[i].prev, self.next[v] = number[self.node[v].last], number[self.node[v].prev], v + 1
        self.next[root] = 0
        for e in range(self.slots):
            self.slot[e].tail, self.slot[e].head = number[self.slot[e].tail], number[self.slot[e].head]
        self.potential, self.link, self.slack, self.node, self.name, self.anchor = pot, link, slack, node, name, number[self.anchor]
        self.pivots_since_numbering = 0
        self.moved_at_numbering = self.moved
        return self.find_nodes() if self.placed else 0
