"""The dual network simplex, from a basis whose costs, capacities and supplies have changed; symbols and invariants as in `flowsched.kernels.basis`.

A new cost of a tree arc shifts the potentials of a subtree.  A new supply, and flow above a
reduced capacity, goes up the tree as far as there is residual capacity; the rest hangs from the root as in the first tree.  So (T), (S) and (P) hold again before
pivots go on (`change`).  A change outside the bounds of the first solve needs a new basis.

After a change a slot has rc < 0 only if its cost is new or the potential of one of its ends has changed.  While the nodes whose potentials change are few, `inspect` scans
their arcs, so all slots with rc < 0 are in ``suspect`` (`nearby`).  When there are none, `dual_simplex` makes dual simplex steps, which send excesses and deficits along shortest
paths: the potentials of the subtree below an artificial arc move just far enough for one slot of its cut to enter at rc = 0.  A scan that grows too large is left
to `primal_simplex`.
"""

from libc.stdint cimport int32_t, int64_t

from flowsched._faults cimport _empty, _zeros
from flowsched.kernels.basis cimport CINF, HUGE, INT32, INT64, NOWHERE, RISE_MAX
from flowsched.kernels.primal cimport SUSPECTS, Primal
from flowsched.kernels.status cimport CHEAP, OK, SPENT

cdef enum:
    SCATTER = 32       # nodes per tree arc with a new cost: with more such arcs the tree's potentials say little


cdef class Dual(Primal):
    """A basis that takes changes; see the head of this file."""

    # == changes ===============================================================================================

    cdef bint change(self, const int64_t[::1] arcs, const int64_t[::1] cost, const int64_t[::1] capacity,
                     const int64_t[::1] nodes, const int64_t[::1] added, bint late) except? -1 nogil:
        """Load changed data into the basis; False if it cannot take them: then it is unusable."""
        cdef int32_t v, a, e
        cdef Py_ssize_t i
        cdef int64_t w, cap, lo = 0, least = CINF, top = -CINF, far
        cdef bint lowers = self.lower.shape[0] > 0
        if not self.placed:
            self.find_all()
        self.nsuspect, self.unsure, self.watch, self.scan_budget, self.nowing = 0, False, True, self.next_scan_budget, 0
        self.next_look()
        if not late and self.scattered(arcs, cost):
            return False
        for i in range(arcs.shape[0]):
            a, w, cap = <int32_t>arcs[i], cost[i], capacity[i]
            if lowers:
                lo = self.lower[a]
            if self.place[a] == NOWHERE:
                if cap == lo == self.flow[a]:
                    continue
                return False
            cap = CINF if cap >= CINF else cap - lo
            if w < 0:
                self.negative = min(self.negative + cap, CINF)
                if self.volume + self.negative >= self.wide:
                    return False
            self.top_cost = max(self.top_cost, w if w > 0 else -w)
            if self.top_cost >= RISE_MAX // (self.n + 1):
                return False
            cap = min(cap, self.wide)
            e = self.place[a]
            self.total += cap - (self.room[e] if e >= 0 else self.slack[~e].up + self.slack[~e].down)
            if self.total >= HUGE - self.volume:
                return False
            self.reprice(a, w)
            self.set_capacity(a, cap)
        for i in range(nodes.shape[0]):
            w = added[i] if added[i] > 0 else -added[i]
            self.volume = min(self.volume + w, CINF)
            if self.volume + self.negative >= self.wide or self.total >= HUGE - self.volume:
                return False
            self.feed(self.ours[nodes[i]], added[i])
        self.drain()
        for v in range(self.n + 1):
            least, top = min(least, self.potential[v]), max(top, self.potential[v])
        far = 4 * (self.n + 1) * max(self.top_cost, 1)
        self.penalty = min(self.penalty, far) if late else 0
        self.penalty_max = self.penalty + 2 * far
        self.step = max(self.step, (top - least) // 64 + 1) if late else (top - least) // 64 + 1
        return top - least <= far

    cdef bint scattered(self, const int64_t[::1] arcs, const int64_t[::1] cost) except -1 nogil:
        """True if the tree arcs with new costs are so many that shortest paths, on the old potentials, make a better tree."""
        cdef int32_t e, v, u
        cdef int64_t count = 0
        cdef Py_ssize_t i
        for i in range(arcs.shape[0]):
            e = self.place[arcs[i]]
            v = ~e
            if e < 0 and e != NOWHERE:
                u = self.link[v].parent
                count += self.potential[u] - self.potential[v] != (-cost[i] if self.node[v].code & 1 else cost[i])
        return count > self.n // SCATTER + SCATTER

    cdef int reprice(self, int32_t a, int64_t cost) except -1 nogil:
        cdef int32_t e = self.place[a], v = ~e, u
        if e >= 0:
            self.slot[e].cost = -cost if self.code[e] & 1 else cost
            if self.reduced(e) < 0:
                self.doubt(e)
        else:
            u = self.link[v].parent
            self.shift(v, v, self.potential[u] - self.potential[v] + (cost if self.node[v].code & 1 else -cost))
        return 0

    cdef int set_capacity(self, int32_t a, int64_t capacity) except -1 nogil:
        """Set an arc's capacity above its lower bound; flow above it becomes an excess at the tail and a deficit at the head."""
        cdef int32_t e = self.place[a], v = ~e, u
        cdef int64_t more
        if e >= 0:
            more = capacity - self.room[e]
            self.room[e] = capacity
            self.note(e)
            if self.code[e] & 1 and more:
                u, v = self.slot[e].head, self.slot[e].tail
                self.feed(u, -more)
                self.feed(v, more)
            return 0
        u = self.link[v].parent
        more = capacity - self.slack[v].up - self.slack[v].down
        if self.node[v].code & 1:
            self.slack[v].down += more
            more = self.slack[v].down
            if more < 0:
                self.slack[v].down, self.slack[v].up = 0, capacity
                if not capacity:
                    self.sever(v, 0)
                self.feed(v, more)
                self.feed(u, -more)
        else:
            self.slack[v].up += more
            more = self.slack[v].up
            if more <= 0:
                self.slack[v].up, self.slack[v].down = 0, capacity
                self.sever(v, 0)
                self.feed(v, -more)
                self.feed(u, more)
        return 0

    cdef int feed(self, int32_t v, int64_t x) except -1 nogil:
        """Add x to the flow that v has to send up when `drain` comes to it."""
        if self.seen[v] != self.look:
            self.seen[v] = self.look
            self.owing[self.nowing] = v
            self.nowing += 1
        self.owed[v] += x
        return 0

    cdef int drain(self) except -1 nogil:
        """Send all that is ``owed`` up the tree as far as there is residual capacity; a node with a blocked rest is cut off and hangs from the root.

        The deepest node comes first, so excess and deficit meet at their lowest common ancestor, and no arc is met twice.  All nodes below a
        node that is cut off are settled, and all other depths change alike, so the heap stays valid.
        """
        cdef int32_t v, u, i
        cdef int64_t x, sent, up, down
        for i in range(self.nowing // 2 - 1, -1, -1):
            self.sift_down(i)
        while self.nowing:
            v = self.owing[0]
            u, x, up, down = self.link[v].parent, self.owed[v], self.slack[v].up, self.slack[v].down
            self.owed[v] = 0
            if x and u == self.n:
                self.hang(v, x + (down if up >= HUGE else -up))
                x = 0
            if x:
                sent = x if -down <= x < up else up if x > 0 else -down
                self.slack[v].up = up - sent
                self.slack[v].down = down + sent
                if sent != x or sent == up:
                    self.sever(v, x - sent)
                x = sent
            if x:
                self.owed[u] += x
            if x and self.seen[u] != self.look:
                self.seen[u] = self.look
                self.owing[0] = u
            else:
                self.nowing -= 1
                self.owing[0] = self.owing[self.nowing]
            if self.nowing:
                self.sift_down(0)
        return 0

    cdef int sift_down(self, int32_t i) except -1 nogil:
        """Sift owing[i] down in the heap ``owing``, whose top is the deepest node."""
        cdef int32_t v = self.owing[i], j, depth = self.link[v].depth
        while 2 * i + 1 < self.nowing:
            j = 2 * i + 1
            if j + 1 < self.nowing and self.link[self.owing[j + 1]].depth > self.link[self.owing[j]].depth:
                j += 1
            if self.link[self.owing[j]].depth <= depth:
                break
            self.owing[i] = self.owing[j]
            i = j
        self.owing[i] = v
        return 0

    cdef int sever(self, int32_t v, int64_t rest) except -1 nogil:
        """Remove the arc from v to its parent, which is at a bound, from the tree; v hangs from the root with `rest` to send."""
        cdef int32_t e = self.spare
        self.spare = <int32_t>self.room[e]
        self.leave(v, e)
        self.reroot(v, v, self.n, CINF, 0, -1)
        self.shift(v, v, 0)
        self.hang(v, rest)
        return 0

    # == places ================================================================================================

    cdef int find_all(self) except -1 nogil:
        """Record the place of every arc; it is kept up to date from now on."""
        cdef int32_t e
        with gil:
            self.place, self.ours, self.altered = _empty(self.m, INT32), _empty(self.n + 1, INT32), _empty(self.m // 8 + 64, INT32)
        for e in range(self.m):
            self.place[e] = NOWHERE
        for e in range(self.slots):
            if self.code[e] >= 0:
                self.place[self.code[e] >> 1] = e
        self.placed, self.next_scan_budget = True, max(self.next_scan_budget, 64)
        self.find_nodes()
        return self.find_arcs()

    cdef int find_arcs(self) except -1 nogil:
        """List the arcs of every node."""
        cdef int32_t e, v, u, a
        with gil:
            self.at, self.seen, self.owing = _zeros(self.n + 2, INT32), _zeros(self.n + 1, INT32), _empty(self.n + 1, INT32)
            self.owed = _zeros(self.n + 1, INT64)
            self.suspect = _empty(SUSPECTS, INT32)
        for e in range(self.slots):
            if self.code[e] >= 0 and self.slot[e].tail != self.slot[e].head:
                self.at[self.name[self.slot[e].tail] + 2] += 1
                self.at[self.name[self.slot[e].head] + 2] += 1
        for v in range(self.n):
            if self.node[v].code >= 0:
                self.at[self.name[v] + 2] += 1
                self.at[self.name[self.link[v].parent] + 2] += 1
        for v in range(self.n):
            self.at[v + 2] += self.at[v + 1]
        with gil:
            self.around = _empty(self.at[self.n + 1], INT32)
        for a in range(self.m):             # at[u + 1] is the place of u's next arc
            e = self.place[a]
            if e >= 0:
                u, v = self.slot[e].tail, self.slot[e].head
            elif e != NOWHERE:
                u, v = ~e, self.link[~e].parent
            if e != NOWHERE and u != v:
                self.enlist(self.name[u], a)
                self.enlist(self.name[v], a)
        return 0

    cdef inline int enlist(self, int32_t u, int32_t a) except -1 nogil:
        self.around[self.at[u + 1]] = a
        self.at[u + 1] += 1
        return 0

    # == the part that a change reaches ========================================================================

    cdef int nearby(self) except -1 nogil:
        """Pivot while the slots that may enter are known, then `dual_simplex`; the basis is optimal unless ``unsure`` is set."""
        cdef int32_t i, e, enter, kept
        cdef int64_t rc, best
        cdef int status
        while not self.unsure:
            kept, enter, best = 0, -1, 0
            for i in range(self.nsuspect):
                e = self.suspect[i]
                rc = self.reduced(e)
                if rc < 0:
                    self.suspect[kept] = e
                    kept += 1
                    if rc < best:
                        best, enter = rc, e
            self.scanned += self.nsuspect
            self.nsuspect = kept
            if enter < 0:
                break
            status = self.pivot(enter, best, 0)
            if status == CHEAP:
                self.unsure = True
            elif status != OK:
                return status
            elif self.overspent():
                return SPENT
        return OK if self.unsure else self.dual_simplex()

    cdef int inspect(self, int32_t begin, int32_t end, int64_t amount) except -1 nogil:
        """Find the slots that may enter after the potentials from one node to another in preorder have changed."""
        cdef int32_t v = begin, u, e, i
        while not self.unsure:
            u = self.name[v]
            if u < self.n and not self.pay(self.at[u + 1] - self.at[u]):
                self.unsure = True
                break
            for i in range(self.at[u], self.at[u + 1] if u < self.n else 0):
                e = self.place[self.around[i]]
                if e >= 0 and (self.slot[e].tail if amount < 0 else self.slot[e].head) == v and self.reduced(e) < 0:
                    self.doubt(e)
            if v == end:
                break
            v = self.next[v]
        return 0

    cdef inline int doubt(self, int32_t e) except -1 nogil:
        if self.nsuspect < SUSPECTS:
            self.suspect[self.nsuspect] = e
            self.nsuspect += 1
        else:
            self.unsure = True
        return 0

    cdef inline bint pay(self, int64_t arcs) except -1 nogil:
        """Count a scan of arcs; False if it exceeds ``scan_budget``."""
        self.scan_budget -= arcs + 1
        self.scanned += arcs
        self.until_poll -= arcs
        return self.scan_budget >= 0

    cdef int dual_simplex(self) except -1 nogil:
        """Empty all artificial arcs by dual simplex steps, while no slot has rc < 0: first excesses, into the tree, then deficits, out of it.

        The potentials of the subtree that hangs from an artificial arc move just far enough for one slot to enter at rc = 0, so no slot has rc < 0 afterwards either.
        A degenerate pivot makes a subtree with an excess smaller, and one with a deficit larger, so there is no cycling.
        """
        cdef int32_t v, e, i, many
        cdef int64_t rc
        cdef int side, status
        for side in range(2):
            many = 0
            v = self.next[self.n]
            while v != self.n:
                if self.node[v].code < 0 and (self.slack[v].down > 0 if side == 0 else True) and (self.slack[v].up >= HUGE) == (side == 0):
                    self.owing[many] = v
                    many += 1
                v = self.next[self.node[v].last]
            for i in range(many):
                v = self.owing[i]
                while self.node[v].code < 0 and (self.slack[v].up < HUGE or side == 0 and self.slack[v].down > 0):
                    e = self.dual_ratio_test(v, side == 0)
                    if e < 0:
                        self.unsure = True
                        return OK
                    rc = self.reduced(e)
                    self.watch = False
                    if rc > 0:
                        self.shift(v, v, rc if side else -rc)
                    self.watch = True
                    status = self.pivot(e, 0, 0)
                    if status != OK:
                        return status
                    if self.overspent():
                        return SPENT
        return OK

    cdef int32_t dual_ratio_test(self, int32_t top, bint out) except -2 nogil:
        """Slot of least reduced cost out of the subtree of a node (or into it), by the ratio test of the dual simplex; -1 without one, or if the scan grew too large."""
        cdef int32_t v = top, end = self.node[top].last, w = self.next[end], last = self.node[top].prev, u, e, i, best = -1
        cdef int64_t rc, least = CINF
        cdef bint from_it = out             # flow leaves the side that is scanned
        self.next_look()                    # the subtree is marked with `look`, the other nodes with `look` - 1, until one of the two sides is complete
        while True:
            self.seen[v], self.seen[w] = self.look, self.look - 1
            if v == end or w == last:
                break
            v, w = self.next[v], self.next[w]
        if v == end:
            v = top
        else:
            v, end, from_it = self.next[self.node[top].last], last, not out
            self.look -= 1
        while least > 0:
            u = self.name[v]
            if u < self.n:
                if not self.pay(self.at[u + 1] - self.at[u]):
                    best = -1
                    break
                for i in range(self.at[u], self.at[u + 1]):
                    e = self.place[self.around[i]]
                    if e >= 0 and (self.slot[e].tail if from_it else self.slot[e].head) == v:
                        rc = self.reduced(e)
                        if rc < least and self.seen[self.slot[e].head if from_it else self.slot[e].tail] != self.look:
                            least, best = rc, e
            if v == end:
                break
            v = self.next[v]
        self.look += self.look & 1
        return best

    cdef inline int next_look(self) except -1 nogil:
        cdef int32_t v
        if self.look >= 2147483646:
            for v in range(self.n + 1):
                self.seen[v] = 0
            self.look = 0
        self.look += 2
        return 0

    cdef inline bint overspent(self) noexcept nogil:
        return 0 <= self.allowance < self.work()
