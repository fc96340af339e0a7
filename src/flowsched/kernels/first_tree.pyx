"""The first tree of the network simplex; symbols and invariants as in `flowsched.kernels.basis`.

Shortest paths to the nodes with a deficit make an in-forest, which is strongly feasible; excesses are sent along it as far as there is residual capacity.
The rest of an excess gets an artificial arc v -> root of cost -p(v), the rest of a deficit an artificial arc root -> w of cost p(w).  No potential moves, so
shortest paths remain shortest, and with a flow and potentials that were optimal for a slightly different network (a *warm* start) nearly all reduced costs are
right from the start.

Where paths would hold little of the flow, because nearly all of them are blocked (`trace`), this tree says little about the optimum.  Then one coarse phase of
push-relabel (coarse.pyx) gives a flow and potentials to start from: a tenth of the pivots remain.  It pays where a pivot moves many potentials, in networks that are large
and not dense.  It also pays where the gains of arcs of negative cost exceed the supplies: circulations, and fleets of vehicles whose trips pay.  There paths to
deficits say nothing, and the simplex alone would build up these flows one pivot at a time (8,000 nodes, 120,000 arcs of costs -99..99: 137 instead of 2,660 ms;
fleets half the time).

A flow to start from may be strictly between the bounds outside the tree; `settle` removes each such arc by a pivot.  Most are in the tree from the start, as paths
prefer them.

Capacities
----------
If no arc of negative cost is unlimited, an optimum never sends more through an arc than B = all supplies + all
capacities of negative arcs, so capacities are clipped to B + 1 and nothing overflows.  Out of a *pure* source (no
arc enters it) of supply s an arc of capacity >= s never binds and is given B + 1, too; likewise into a pure sink.  Otherwise unlimited is 2**62, all other
capacities sum to less than 2**60, and a cycle on which 2**61 can be sent has unlimited arcs only.  Where a
few nodes take what many pure sources send, as where points are shared out to clusters, the capacities stay: a pivot that links two of the few moves all sources below one of
them, and full arcs save such pivots.  The B of a basis that is to be kept is four times as large, for
changes to come; such a basis has no pure sources, and cannot be kept while unlimited arcs have negative costs.

The order of the slots
----------------------
The number of pivots depends on it: they are mixed, so that a block of those priced together holds arcs of many sources.  Runs of `RUN` stay together: most
of a run have one tail, whose potential is read once.
"""

from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from flowsched._faults cimport _empty
from flowsched.kernels.basis cimport CINF, HUGE, INT32, RISE_MAX, Basis
from flowsched.kernels.coarse cimport coarse_flow
from flowsched.kernels.status cimport EASY, OK, RANGE
from flowsched.kernels.sums cimport VOLUME_MAX, Sums, add_arc, add_node

cdef double SCARCE = 0.35               # fraction of the sum of |b|: a network is congested if more is `unplaced`, at as many nodes as there are sources
cdef double EASE = 0.11                 # fraction of the sum of |b|: if less is unplaced in a large network, a local repair is likely to be faster
cdef int64_t FEW = 20                   # nodes per source, and
cdef int64_t MANY_ARCS = 20000          # number of arcs, from which a repair is likely to be faster, see `is_easy`:
cdef int64_t EMPTY = 16                 # multiple of the sum of |b| that the capacities of arcs of negative cost exceed, or of the mean |b| that each capacity reaches;
cdef int64_t LINKED = 4                 # arcs per node in the first case
cdef double THIN = 8                    # arcs per node below which a coarse phase pays in a congested network;
cdef double LOOPS = 1.5                 # multiple of the sum of |b|: a coarse phase pays if the capacities of arcs of negative cost exceed it, and
cdef int64_t DENSE = 6                  # arcs per node reach this, or
cdef int64_t BROAD = 2                  # these arcs carry more than this on average
cdef double LARGE = 1500                # nodes per further arc of that bound: a pivot moves about n / 25 potentials

cdef enum:
    CROWD = 300        # pure sources (or sinks) per other node from which their arcs keep their capacities
    RUN = 8            # consecutive slots in the order of their arcs' tails; runs are mixed
    CHUNK = 65536      # arcs between two checks of the clock and signals


cdef class FirstTree(Basis):
    """A basis that is built from arcs; see the head of this file."""

    # == loading ===============================================================================================

    cdef int survey(self) except -1 nogil:
        """One pass over the arcs: ranges, degrees, flows that are fixed."""
        cdef Sums sums
        cdef int32_t a, u, v
        cdef int64_t lo = 0, cap, sources = 0, sinks = 0
        cdef bint lowers = self.lower.shape[0] > 0
        memset(&sums, 0, sizeof(Sums))
        self.narrowest = CINF
        for a in range(self.m):
            u, v, cap = self.tail[a], self.head[a], self.capacity[a]
            if lowers:
                lo = self.lower[a]
            if not add_arc(&sums, &self.balance[0], u, v, lo, cap, self.cost[a]):
                return RANGE
            self.flow[a] = lo
            if cap == lo:
                continue
            self.negatives += self.cost[a] < 0
            self.narrowest = min(self.narrowest, cap - lo)
            self.ends_seen[u] |= 1
            self.ends_seen[v] |= 2 | self.ends_seen[v] << 1 & 4
            self.first[u + 1] += 1
            self.slots += 1
        for u in range(self.n):
            if not add_node(&sums, self.balance[u]):
                return RANGE
            self.senders += self.balance[u] > 0
            self.ends += self.balance[u] != 0
            self.chained += self.balance[u] == 0 and self.ends_seen[u] == 3 and self.first[u + 1] == 1
            self.first[u + 1] += self.first[u]
            sources += self.ends_seen[u] == 1 and self.balance[u] > 0
            sinks += not self.ends_seen[u] & 1 and self.balance[u] < 0
        self.crowded = CROWD * (self.n - max(sources, sinks)) < self.n
        if sums.top_cost >= RISE_MAX // (self.n + 1) or sums.volume + (sums.limited if sums.endless else sums.negative) > VOLUME_MAX:
            return RANGE
        self.top_cost, self.volume, self.negative = sums.top_cost, sums.volume, sums.negative
        self.kept &= not sums.endless
        self.wide = CINF if sums.endless else self.volume + self.negative + 1
        if self.kept:               # room for supplies to grow and costs to turn negative
            self.wide = 4 * self.wide if self.wide < HUGE // 4 else HUGE - 1
        return OK

    cdef int level(self) except -1 nogil:
        """Shift the initial potentials to start from 0, or reset them if they differ by more than the length of any path."""
        cdef int32_t v
        cdef int64_t least = CINF, top = -CINF, far = 4 * (self.n + 1) * max(self.top_cost, 1)
        self.penalty_max = 2 * far
        for v in range(self.n):
            least, top = min(least, self.potential[v]), max(top, self.potential[v])
        for v in range(self.n):
            self.potential[v] = self.potential[v] - least if top - least <= far else 0
        return 0

    cdef int fill(self) except -1 nogil:
        """Lay the arcs out in slots, with the flow to start from if there is one."""
        cdef int32_t a, u, v, e, k, rows, rest, rank, place, runs = self.slots // RUN, run = -1, start = 0
        cdef int status
        cdef int64_t lo = 0, cap, flow
        cdef bint lowers = self.lower.shape[0] > 0, loaded = self.load.shape[0] > 0
        k = max(<int32_t>sqrt(<double>runs), 1)
        rows, rest = runs // k, runs % k
        for a in range(self.m):
            if a % CHUNK == 0:
                status = self.poll()
                if status != OK:
                    return status
            u, v, cap = self.tail[a], self.head[a], self.capacity[a]
            if lowers:
                lo = self.lower[a]
            if cap == lo:
                continue
            cap = self.wide if cap >= CINF else min(cap - lo, self.wide)
            if not self.kept and not self.crowded and ((self.ends_seen[u] == 1 and cap >= self.balance[u] > 0) or (not self.ends_seen[v] & 1 and cap >= -self.balance[v] > 0)):
                cap = self.wide
            rank = self.first[u]
            self.first[u] = rank + 1
            place = rank // RUN
            if place != run:            # one division for a run, as most arcs come in the order of their tails
                run = start = place
                if run < runs:
                    start = (run % k) * rows + min(run % k, rest) + run // k
            place = start * RUN + rank % RUN
            self.slot[place].tail, self.slot[place].head, self.slot[place].cost = u, v, self.cost[a]
            self.room[place] = cap
            self.code[place] = 2 * a
            if self.wide < CINF:
                self.total += cap
                if self.total >= HUGE - self.volume:
                    return RANGE
            if loaded:
                flow = max(min(self.before[a] - lo, cap), 0)
                if flow == cap:
                    self.swap(place)
                    flow = 0
                self.load[place] = flow
        for e in range(self.slots if loaded else 0):        # after the loop above, which needs `balance` as the supply
            flow = self.load[e] if self.code[e] & 1 == 0 else self.room[e]
            u, v = self.slot[e].tail, self.slot[e].head
            if self.code[e] & 1:
                u, v = v, u
            self.balance[u] -= flow
            self.balance[v] += flow
        while self.slots % 4:               # slots are priced by four; the padding has no ends
            self.slot[self.slots].tail = self.slot[self.slots].head = 0
            self.slot[self.slots].cost, self.code[self.slots] = 0, -1
            self.slots += 1
        return 0

    # == the tree ==============================================================================================

    cdef int crash(self) except -1 nogil:
        """Build the first tree, from scratch or from the flow given; where paths would hold little of the flow, from that of `Coarse`."""
        cdef int status = self.forest(-1)
        cdef bint congested, circular
        if status != OK:
            return status
        self.rank()
        if self.load.shape[0]:
            self.start = START_FLOW
        elif self.wide >= CINF:
            self.start = START_PATHS
        elif self.start == START_ANY:
            self.trace()
            if self.slots >= self.bulk and self.unplaced < EASE * self.volume:
                return EASY
            congested = self.unplaced > SCARCE * self.volume and self.jams >= self.sources
            congested &= self.slots < self.n * (THIN + self.n / LARGE)
            circular = self.negative > LOOPS * self.volume and (self.slots >= DENSE * self.n or self.negative > BROAD * self.negatives)
            self.start = START_COARSE if congested or circular else START_PATHS
        if self.start == START_COARSE:
            with gil:
                status = self.sketch()
            if status != OK:
                return status
            self.rank()
        return self.load_tree()

    cdef bint is_easy(self) noexcept nogil:
        """True if few sources send along paths that hardly compete.

        Either they are drawn by arcs of negative cost that can hold few units each, as in multi-object tracking, or each arc could take the supplies of some
        nodes, as in phase unwrapping.
        """
        if not self.volume or FEW * self.senders >= self.n or self.slots < MANY_ARCS:
            return False
        if self.negatives:
            return self.negative > EMPTY * self.volume and self.negative <= BROAD * self.negatives and self.slots >= LINKED * self.n
        return <double>self.narrowest * self.ends > <double>EMPTY * self.volume

    cdef int sketch(self) except -1:
        """Compute a flow and potentials by `Coarse`, and shortest paths again."""
        cdef int32_t v, sink = 0
        cdef int status
        for v in range(self.n):
            if self.balance[v] < self.balance[sink]:
                sink = v
        status = coarse_flow(self, &self.sketched)
        with nogil:
            if status == OK:
                self.level()
                status = self.forest(sink)
        return status

    cdef int forest(self, int32_t goal) except -1 nogil:
        """Find shortest paths to the nodes with a deficit, or to `goal` if there are none, on residual slots.

        A node that a path reaches hangs from the next one on it, by a slot with residual capacity in that direction, so (S) holds; all others hang from
        the root.  With a flow to start from, slots strictly between their bounds come first: they should be in the tree.
        """
        cdef int32_t root = self.n, v, u, e, i, front = 0, back = 0, queued = 0
        cdef int64_t d, c, work = 8 * <int64_t>self.slots + 1000
        cdef int status
        cdef bint loaded = self.load.shape[0] > 0
        cdef int32_t[::1] at = self.first, ring = self.next
        for v in range(root):
            self.link[v].parent = root
            self.node[v].aim = -1
            self.dist[v] = CINF
            self.ends_seen[v] = 0
            if self.balance[v] < 0:
                self.dist[v] = 0
                self.ends_seen[v] = 1        # the node is in the ring
                ring[back] = v
                back += 1
        if not back and goal >= 0:
            self.dist[goal] = 0
            self.ends_seen[goal] = 1
            ring[0], back = goal, 1
        queued = back
        if queued:
            self.list_residual()
        while queued and work > 0:
            v = ring[front]
            front = front + 1 if front < root else 0
            queued -= 1
            self.ends_seen[v] = 0
            d = self.dist[v]
            work -= at[v + 1] - at[v] + 1
            self.until_poll -= at[v + 1] - at[v] + 1
            if self.until_poll < 0:
                status = self.poll()
                if status != OK:
                    return status
            for i in range(at[v], at[v + 1]):
                e = self.entry[i]
                u = self.slot[e].tail
                c = self.slot[e].cost
                if u == v:
                    u, c = self.slot[e].head, -c
                c = max(c + self.potential[u] - self.potential[v], 0) + 1 if not loaded or not self.load[e] else 0
                if d + c < self.dist[u]:
                    self.dist[u] = d + c
                    self.link[u].parent = v
                    self.node[u].aim = e
                    if not self.ends_seen[u]:
                        self.ends_seen[u] = 1
                        queued += 1
                        if queued > 1 and d + c <= self.dist[ring[front]]:
                            front = front - 1 if front else root
                            ring[front] = u
                        else:
                            ring[back] = u
                            back = back + 1 if back < root else 0
        for v in range(root):
            if self.dist[v] < CINF:
                self.step = max(self.step, self.dist[v])
        self.step = self.step // 10 + 1
        return OK

    cdef int list_residual(self) except -1 nogil:
        """List in entry[first[v] : first[v + 1]] the slots by which flow can arrive at v."""
        cdef int32_t e, v
        cdef bint loaded = self.load.shape[0] > 0
        cdef int32_t[::1] at = self.first
        for v in range(self.n + 2):
            at[v] = 0
        for e in range(self.slots):
            at[self.slot[e].head + 1] += 1
            if loaded and self.load[e]:
                at[self.slot[e].tail + 1] += 1
        for v in range(self.n):
            at[v + 1] += at[v]
        with gil:
            self.entry = _empty(at[self.n], INT32)
        for e in range(self.slots):
            v = self.slot[e].head
            self.entry[at[v]] = e
            at[v] += 1
            if loaded and self.load[e]:
                v = self.slot[e].tail
                self.entry[at[v]] = e
                at[v] += 1
        for v in range(self.n, 0, -1):
            at[v] = at[v - 1]
        at[0] = 0
        return 0

    cdef int rank(self) except -1 nogil:
        """Order the nodes, in ``next``, so that each comes before its parent."""
        cdef int32_t root = self.n, v, u, i, found = 0
        cdef int32_t[::1] children = self.first, order = self.next
        for v in range(root + 1):
            children[v] = 0
        for v in range(root):
            children[self.link[v].parent] += 1
        for v in range(root):
            if not children[v]:
                order[found] = v
                found += 1
        i = 0
        while i < found:
            u = self.link[order[i]].parent
            i += 1
            if u != root:
                children[u] -= 1
                if not children[u]:
                    order[found] = u
                    found += 1
        return 0

    cdef int trace(self) except -1 nogil:
        """Measure, without the given flow, the part of the supplies that finds no residual capacity on the way up the tree, and the nodes where it is blocked."""
        cdef int32_t v, e, i
        cdef int64_t x, most
        cdef int32_t[::1] order = self.next
        cdef int64_t[::1] excess = self.dist
        self.sources = self.jams = 0
        self.unplaced = 0
        for v in range(self.n):
            excess[v] = self.balance[v]
            self.sources += excess[v] > 0
        for i in range(self.n):
            v = order[i]
            e, x = self.node[v].aim, excess[v]
            most = max(min(x, self.room[e]), 0) if e >= 0 else 0
            if x > most:
                self.unplaced += x - most
                self.jams += 1
            if e >= 0:
                excess[self.link[v].parent] += most
        return 0

    cdef int load_tree(self) except -1 nogil:
        """Send every excess up the tree, leaves first; a blocked rest is cut off at its node and hangs from the root."""
        cdef int32_t root = self.n, v, u, e, i
        cdef int64_t x, up, down
        cdef bint loaded = self.load.shape[0] > 0, upward
        cdef int32_t[::1] order = self.next
        for i in range(root - 1, -1, -1):
            v = order[i]
            e = self.node[v].aim
            if e >= 0:
                self.potential[v] = self.potential[self.link[v].parent] - (self.slot[e].cost if self.slot[e].tail == v else -self.slot[e].cost)
        for i in range(root):
            v = order[i]
            u, e, x = self.link[v].parent, self.node[v].aim, self.balance[v]
            if e < 0:
                self.hang(v, x)
                continue
            upward = self.slot[e].tail == v
            down = self.load[e] if loaded else 0
            up = self.room[e] - down
            if not upward:
                up, down = down, up
            if -down <= x < up:
                self.balance[u] += x
                self.slack[v].up, self.slack[v].down = up - x, down + x
                self.node[v].code = self.code[e] if upward else self.code[e] ^ 1
                self.kill(e)
                continue
            x = up if x > 0 else -down
            self.balance[u] += x
            self.hang(v, self.balance[v] - x)
            if (x > 0) == upward:
                self.swap(e)
            if loaded:
                self.load[e] = 0
        return 0

    cdef int plant(self) except -1 nogil:
        """Compute the preorder of the tree that ``parent`` describes."""
        cdef int32_t root = self.n, v, u
        cdef int32_t[::1] child = self.first
        for v in range(root + 1):
            child[v] = -1
            self.node[v].last = v
        for v in range(root - 1, -1, -1):       # `aim` links siblings for now
            u = self.link[v].parent
            self.node[v].aim, child[u] = child[u], v
        self.link[root].parent, self.link[root].depth, self.node[root].code = -1, 0, -1
        self.slack[root].up = self.slack[root].down = CINF
        u = v = root
        while True:
            if child[v] >= 0:
                v = child[v]
            else:
                while v != root and self.node[v].aim < 0:
                    v = self.link[v].parent
                if v == root:
                    break
                v = self.node[v].aim
            self.next[u], self.node[v].prev = v, u
            self.link[v].depth = self.link[self.link[v].parent].depth + 1
            u = v
        self.next[u], self.node[root].prev = root, u
        while u != root:
            v = self.link[u].parent
            if self.node[v].last == v:
                self.node[v].last = self.node[u].last
            u = self.node[u].prev
        return 0
