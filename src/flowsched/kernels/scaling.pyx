"""The kernel for whole networks, by cost scaling: push-relabel with look-ahead and global updates, arrays in, arrays out.

The problem
-----------
Nodes v with supply b(v) (> 0 sends), arcs a = (u, v) with bounds l(a) <= f(a) <= c(a) and cost w(a).  The problem is to find a flow
that balances every node at least cost.  Lower bounds are moved into the supplies at once, so that below 0 <= f <= c.

Symbols
-------
An arc is two *half-arcs*, one in the block of each end; the block of v is first[v] .. first[v + 1].  Half-arc h has the residual capacity ``room[h]``;
``room`` of h and of its mate sum to ``both[h]``.  Costs are multiplied by 2**shift, so that all below is in integers.  p is the potential,
rc(h) = cost(h) + p(tail) - p(head) the *reduced cost*.  The *excess* of v is its supply + inflow - outflow; a node with a negative
one has a *deficit*.  A flow without excess is *epsilon-optimal* if rc(h) >= -epsilon wherever room(h) > 0.

Successive approximation (Goldberg and Tarjan)
----------------------------------------------
Any flow is C-optimal, C the largest |w|.  `refine` makes an epsilon-optimal flow of one that is not:

(R)  At every step of `refine` rc(h) >= -epsilon wherever room(h) > 0.

It begins by saturating all half-arcs with rc < 0.  Then excesses are discharged, first come, first served: along *admissible* half-arcs (room > 0, rc < 0); a node
without one is *relabelled*: its potential falls until its best half-arc has rc = -epsilon.  Admissible half-arcs never form a cycle, so every excess arrives.

look-ahead      before flow is pushed to a node without a deficit, the node must have an admissible half-arc, too, or it is relabelled first:
                flow is not pushed to where it would come back from.
`global_update` lowers every potential by epsilon times the distance to the nearest node with a deficit, in units of epsilon: at the start, and after one and a half times
                as many relabels as there are nodes.  An excess from which no node with a deficit can be reached proves the network infeasible; the nodes that
                reach none are a cut, for all half-arcs out of them are full.
`refine_prices` looks for potentials that prove the flow optimal, in whole costs, once epsilon is at most one unit of cost: most flows are optimal long before
                epsilon < 1/n.

The end
-------
With 2**shift > n a 1-optimal flow is optimal: a cycle of residual half-arcs costs at least -n, so in whole costs at least 0.  So `refine_prices` must then succeed.
 It is a shortest-path
search from all nodes at once that starts at the half-arcs of negative reduced cost.  Before, it stops after ``proof_scans`` scans for each half-arc.

Capacities
----------
If no arc of negative cost is unlimited, an optimum sends more than B = all supplies + all capacities of negative arcs through an arc only along cycles of cost 0,
so capacities are clipped to B + 1.
Otherwise a negative cycle of unlimited arcs is looked for first (`endless`); without one every negative cycle has a limited arc, and B = all supplies + all limited capacities.

Range
-----
All capacities in the network together and all supplies are less than 2**61, so no excess overflows; costs are below 2**COST_BITS and potentials stay above
-2**60, which `global_update` and `relabel` check, so no reduced cost overflows.  Costs for which 2**shift would be too small are declined (RANGE).

Complexity: O(log(n C)) phases, each O(n^2 m) in the worst case.

State after a stop: with a time limit, flow and potentials are copied before a phase (`save_flow`), and LATE gives the last that were whole.  An exception gives nothing.

Who calls whom: network/one_shot.py and _cs.pyx -> `Scaling.solve` -> `run` -> `survey`, `endless`, `fill`; `refine` -> `global_update`, `has_no_admissible` ->
`relabel`; `refine_prices`.
References: A. V. Goldberg and R. E. Tarjan, Finding minimum-cost circulations by successive approximation (1990); A. V. Goldberg, An efficient implementation of a scaling
minimum-cost flow algorithm (1997); U. Bünnagel, B. Korte, J. Vygen, Efficient implementation of the Goldberg-Tarjan minimum-cost flow algorithm (1998).
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

from flowsched._faults cimport FS_FUEL, _copy, _empty, _zeros, fs_look
from flowsched.kernels.status cimport INFEASIBLE, LATE, OK, RANGE, UNBOUNDED, UNPROVEN
from flowsched.kernels.sums cimport CINF, VOLUME_MAX, Sums, add_arc, add_node
from flowsched.kernels.wide cimport fs_muladd

import time

import numpy as np

cdef int64_t POT_MAX = <int64_t> 1 << 60
cdef int64_t NEVER = 9223372036854775807

cdef enum:
    CHUNK = 65536      # arcs between two checks of the clock and signals
    COST_BITS = 57
    FIRST_BITS = 8     # the first epsilon is about C / 2**FIRST_BITS: a coarser phase costs more than it saves
    STEP_BITS = 5      # from phase to phase epsilon is divided by 2**STEP_BITS
    SHIFT_MIN = 6      # fewer fractional bits of a unit of cost prove little
    PROOF = 2          # scans of `refine_prices` per half-arc

cdef enum:
    FAR = 2147483647   # an unknown distance


@cython.final
cdef class Scaling:
    """One solve; see the head of this file."""

    cdef const int32_t[::1] tail, head                 # the caller's arcs
    cdef const int64_t[::1] capacity, cost, lower      # lower may have length 0
    cdef const int64_t[::1] before                     # the flow to start from, or of length 0
    cdef int32_t n, m
    # -- by node -------------------------------------------------------------------------------------------------
    cdef int64_t[::1] potential    # scaled; whole costs after `refine_prices`
    cdef int64_t[::1] excess       # excess
    cdef int32_t[::1] first        # half-arcs of v: first[v] .. first[v + 1]
    cdef int32_t[::1] current      # the current half-arc: no half-arc before it is admissible
    cdef int32_t[::1] ring         # queue: ring[front .. front + queued], circular
    cdef unsigned char[::1] listed # 1 if in the ring
    cdef int32_t[::1] dist         # scratch of `global_update`: distance to the nearest node with a deficit
    cdef int32_t[::1] after        # neighbours in a bucket of `global_update`; after[v] == v once v is settled
    cdef int32_t[::1] ahead
    cdef int64_t[::1] whole_cost_potential # scratch of `refine_prices`: potentials in whole costs
    # -- by half-arc ---------------------------------------------------------------------------------------------
    cdef int32_t[::1] to           # the node where it ends
    cdef int32_t[::1] mate         # mate[mate[h]] == h
    cdef int64_t[::1] scaled_cost  # cost, scaled
    cdef int64_t[::1] room         # residual capacity
    cdef int64_t[::1] both         # room[h] + room[mate[h]], which never changes
    # -- by arc ---------------------------------------------------------------------------------------------------
    cdef int32_t[::1] half_of      # half-arc of the arc at its tail, -1 if its flow is fixed
    # --------------------------------------------------------------------------------------------------------------
    cdef int32_t[::1] bucket       # of `global_update`: the first node by distance, -1 without one
    cdef int64_t[::1] saved_room, saved_potential      # residual capacities and potentials of the last whole flow, of length 0 without one
    cdef int32_t front, queued
    cdef int32_t halves
    cdef int32_t shift
    cdef int64_t top_cost          # C
    cdef int64_t wide              # capacity of arcs that never bind
    cdef bint has_endless          # an arc of negative cost is unlimited
    cdef int64_t relabels_since_update, relabels_until_update # relabels since the last `global_update`, and their limit
    cdef bint out_of_range         # a potential left its range
    cdef int64_t until_poll
    cdef int64_t proof_scans       # scans of `refine_prices` per half-arc, before it must succeed
    cdef double deadline
    cdef int32_t cycle_arc         # arc of the unlimited cycle
    cdef int32_t[::1] by           # of `endless`: arc by which a path comes to the node
    cdef int64_t pushes, relabels, scans, updates, refines, proofs

    @cython.embedsignature(True)
    def __init__(self, const int32_t[::1] tail, const int32_t[::1] head, const int64_t[::1] capacity, const int64_t[::1] cost,
                 const int64_t[::1] supply, const int64_t[::1] lower, const int64_t[::1] flow, const int64_t[::1] potential):
        n, m = supply.shape[0], tail.shape[0]
        self.tail, self.head, self.capacity, self.cost, self.lower, self.before = tail, head, capacity, cost, lower, flow
        self.n, self.m = n, m
        self.excess = _copy(supply)
        self.potential = _copy(potential) if potential.shape[0] else _zeros(n, np.int64)
        self.first = _zeros(n + 1, np.int32)
        self.half_of = _empty(m, np.int32)
        self.current, self.ring, self.dist = _empty(n, np.int32), _empty(n, np.int32), _empty(n, np.int32)
        self.after, self.ahead, self.listed = _empty(n, np.int32), _empty(n, np.int32), _zeros(n, np.uint8)
        self.whole_cost_potential = _empty(n, np.int64)
        self.bucket = _empty(4 * n + 64, np.int32)
        self.bucket[:] = -1
        self.saved_room = self.saved_potential = _zeros(0, np.int64)
        self.by = _zeros(0, np.int32)
        self.until_poll, self.proof_scans, self.relabels_until_update = FS_FUEL, PROOF, n + n // 2 + 1

    cdef int poll(self) except -1 nogil:
        self.until_poll = FS_FUEL
        with gil:
            fs_look()
            if self.deadline >= 0 and time.monotonic() >= self.deadline:
                return LATE
        return OK

    # == loading ====================================================================================================

    cdef int survey(self) except -1 nogil:
        """One pass over the arcs: ranges, degrees, flows that are fixed."""
        cdef Sums sums
        cdef int32_t a, u, v
        cdef int64_t lo = 0
        cdef bint lowers = self.lower.shape[0] > 0
        memset(&sums, 0, sizeof(Sums))
        for a in range(self.m):
            u, v = self.tail[a], self.head[a]
            if lowers:
                lo = self.lower[a]
            if not add_arc(&sums, &self.excess[0], u, v, lo, self.capacity[a], self.cost[a]):
                return RANGE
            if self.capacity[a] == lo or u == v:
                continue
            self.first[u] += 1
            self.first[v] += 1
            self.halves += 2
        for v in range(self.n):
            if not add_node(&sums, self.excess[v]):
                return RANGE
        self.top_cost, self.has_endless = sums.top_cost, sums.endless
        self.wide = sums.volume + (sums.limited if sums.endless else sums.negative) + 1
        if self.wide > VOLUME_MAX:
            return RANGE
        while self.shift < 62 and (<int64_t> 1 << self.shift) <= self.n:
            self.shift += 1
        while self.shift and (max(self.top_cost, 1) >= (<int64_t> 1 << COST_BITS) >> self.shift
                              or max(self.top_cost, 1) >= (POT_MAX >> self.shift) // (16 * (<int64_t>self.n + 1))):
            self.shift -= 1
        if self.shift < SHIFT_MIN and (<int64_t> 1 << self.shift) <= self.n:
            return RANGE
        return OK if self.top_cost < (POT_MAX >> self.shift) // (16 * (<int64_t>self.n + 1)) else RANGE

    cdef int fill(self) except -1 nogil:
        """Lay the half-arcs out by node, in the order of the arcs, with the flow to start from if there is one."""
        cdef int32_t a, u, v, h, k
        cdef int64_t lo = 0, cap, flow = 0, w, total = 0
        cdef bint lowers = self.lower.shape[0] > 0, loaded = self.before.shape[0] > 0
        cdef int64_t far = POT_MAX >> self.shift, scale = <int64_t> 1 << self.shift    # a product, as C leaves the shift of negative numbers undefined
        for v in range(1, self.n):
            self.first[v] += self.first[v - 1]
        self.first[self.n] = self.halves
        with gil:
            self.to, self.mate = _empty(self.halves, np.int32), _empty(self.halves, np.int32)
            self.scaled_cost, self.room, self.both = _empty(self.halves, np.int64), _empty(self.halves, np.int64), _empty(self.halves, np.int64)
        for a in range(self.m - 1, -1, -1):
            if a % CHUNK == 0 and self.poll() != OK:
                return LATE
            u, v, cap = self.tail[a], self.head[a], self.capacity[a]
            if lowers:
                lo = self.lower[a]
            self.half_of[a] = -1
            if cap == lo or u == v:
                continue
            cap = self.wide if cap >= CINF else min(cap - lo, self.wide)
            total += cap
            if total > VOLUME_MAX:
                return RANGE
            w = self.cost[a] * scale
            self.first[u] -= 1
            self.first[v] -= 1
            h, k = self.first[u], self.first[v]
            self.half_of[a] = h
            if loaded:
                flow = max(min(self.before[a] - lo, cap), 0)
                self.excess[u] -= flow
                self.excess[v] += flow
            self.to[h], self.mate[h], self.scaled_cost[h], self.room[h], self.both[h] = v, k, w, cap - flow, cap
            self.to[k], self.mate[k], self.scaled_cost[k], self.room[k], self.both[k] = u, h, -w, flow, cap
        for v in range(self.n):
            if not -far < self.potential[v] < far:
                return RANGE
            self.potential[v] *= scale
        return OK

    cdef int endless(self) except -1 nogil:
        """Look for a negative cycle of unlimited arcs by the Bellman-Ford algorithm; UNBOUNDED with one that the arcs ``by`` lead back along."""
        cdef int32_t a, v, u, turn = 0
        cdef int64_t[::1] dist = self.whole_cost_potential
        cdef bint better = True
        with gil:
            self.by = _empty(self.n, np.int32)
        for v in range(self.n):
            dist[v], self.by[v] = 0, -1
        while better:
            better = False
            for a in range(self.m):
                if self.capacity[a] < CINF:
                    continue
                u, v = self.tail[a], self.head[a]
                if u == v and self.cost[a] < 0:
                    self.cycle_arc, self.by[v] = a, a
                    return UNBOUNDED
                if dist[u] + self.cost[a] < dist[v]:
                    dist[v] = dist[u] + self.cost[a]
                    self.by[v] = a
                    better = True
            if self.poll() != OK:
                return LATE
            turn += 1
            if turn & turn - 1 == 0:        # after 1, 2, 4, ... turns: do the arcs `by` form a cycle?
                for v in range(self.n):
                    self.dist[v] = -1
                for v in range(self.n):
                    u = v
                    while self.dist[u] < 0 and self.by[u] >= 0:
                        self.dist[u] = v
                        u = self.tail[self.by[u]]
                    if self.by[u] >= 0 and self.dist[u] == v:
                        self.cycle_arc = self.by[u]
                        return UNBOUNDED
        return OK

    # == one phase ====================================================================================================

    cdef inline int enqueue(self, int32_t v) except -1 nogil:
        cdef int32_t i
        if not self.listed[v]:
            self.listed[v] = 1
            i = self.front + self.queued
            self.ring[i if i < self.n else i - self.n] = v
            self.queued += 1
        return 0

    cdef inline int32_t dequeue(self) except -1 nogil:
        cdef int32_t v = self.ring[self.front]
        self.front += 1
        if self.front == self.n:
            self.front = 0
        self.queued -= 1
        self.listed[v] = 0
        return v

    cdef inline int send(self, int32_t h, int32_t u, int32_t v, int64_t amount) except -1 nogil:
        self.room[h] -= amount
        self.room[self.mate[h]] += amount
        self.excess[u] -= amount
        self.excess[v] += amount
        self.pushes += 1
        return 0

    cdef int saturate_negative(self) except -1 nogil:
        """Saturate all half-arcs of negative reduced cost: the result is a 0-optimal pseudoflow, with excesses."""
        cdef int32_t h, v
        cdef int64_t p
        cdef const int32_t[::1] first = self.first, to = self.to
        cdef const int64_t[::1] price = self.scaled_cost, pot = self.potential
        for v in range(self.n):
            p = pot[v]
            for h in range(first[v], first[v + 1]):
                if self.room[h] > 0 and price[h] + p - pot[to[h]] < 0:
                    self.send(h, v, to[h], self.room[h])
        return 0

    cdef int global_update(self, int bits) except -1 nogil:
        """Lower potentials by eps = 2**bits times the distance to a node with a deficit (global update); a half-arc has length 0 if admissible, else rc / eps + 1, rounded down.

        The search ends when it has settled every excess; farther nodes fall as far as the last settled one.
        """
        cdef int32_t v, u, h, d, e, b = 0, settled = 0, top = <int32_t>self.bucket.shape[0]
        cdef int64_t left = 0, rc, p, length
        cdef int32_t highest = 0
        cdef const int32_t[::1] first = self.first, to = self.to
        cdef const int64_t[::1] price = self.scaled_cost, room = self.room, both = self.both, exc = self.excess
        cdef int64_t[::1] pot = self.potential
        cdef int32_t[::1] dist = self.dist, bucket = self.bucket, after = self.after, ahead = self.ahead
        self.updates += 1
        self.relabels_since_update = 0
        for v in range(self.n):
            dist[v] = FAR
            if exc[v] > 0:
                left += 1
            elif exc[v] < 0:
                dist[v], after[v], ahead[v] = 0, bucket[0], -1
                if bucket[0] >= 0:
                    ahead[bucket[0]] = v
                bucket[0] = v
        while left and b <= highest:
            v = bucket[b]
            if v < 0:
                b += 1
                continue
            bucket[b] = after[v]
            if after[v] >= 0:
                ahead[after[v]] = -1
            after[v] = v                # settled
            settled = b
            if exc[v] > 0:
                left -= 1
            p = pot[v]
            self.until_poll -= first[v + 1] - first[v]
            self.scans += first[v + 1] - first[v]
            for h in range(first[v], first[v + 1]):
                if both[h] > room[h]:   # the mate has residual capacity
                    u = to[h]
                    e = dist[u]
                    if e <= b:
                        continue
                    rc = pot[u] - price[h] - p
                    length = b if rc < 0 else b + (rc >> bits) + 1
                    if length >= e or length >= top:
                        continue
                    d = <int32_t>length
                    if e != FAR:
                        if ahead[u] >= 0:
                            after[ahead[u]] = after[u]
                        else:
                            bucket[e] = after[u]
                        if after[u] >= 0:
                            ahead[after[u]] = ahead[u]
                    dist[u], after[u], ahead[u] = d, bucket[d], -1
                    if bucket[d] >= 0:
                        ahead[bucket[d]] = u
                    bucket[d] = u
                    highest = max(highest, d)
        for d in range(b, highest + 1):
            bucket[d] = -1
        if left:
            settled = top
            if not self.reachable():
                return INFEASIBLE
        for v in range(self.n):
            pot[v] -= <int64_t>min(dist[v], settled) << bits
            if pot[v] <= -POT_MAX:
                return RANGE
            self.current[v] = first[v]
        return LATE if self.until_poll < 0 and self.poll() != OK else OK

    cdef bint reachable(self) except -1 nogil:
        """True if a node with a deficit can be reached from every excess; otherwise `listed` is 1 for the nodes from which none can be."""
        cdef int32_t v, h, i = 0, found = 0
        self.front = self.queued = 0        # the ring is scratch: `refine` fills it again after an update
        for v in range(self.n):
            self.listed[v] = self.excess[v] >= 0
            if self.excess[v] < 0:
                self.ring[found] = v
                found += 1
        while i < found:
            v = self.ring[i]
            i += 1
            for h in range(self.first[v], self.first[v + 1]):
                if self.listed[self.to[h]] and self.both[h] > self.room[h]:
                    self.listed[self.to[h]] = 0
                    self.ring[found] = self.to[h]
                    found += 1
        for v in range(self.n):
            if self.listed[v] and self.excess[v] > 0:
                return False
        for v in range(self.n):
            self.listed[v] = 0
        return True

    cdef int list_active(self) except -1 nogil:
        """Fill the ring with all nodes of excess."""
        cdef int32_t v
        self.front = self.queued = 0
        for v in range(self.n):
            self.listed[v] = 0
        for v in range(self.n):
            if self.excess[v] > 0:
                self.enqueue(v)
        return 0

    cdef int32_t relabel(self, int32_t v, int64_t eps) except? -1 nogil:
        """Lower v's potential until its best half-arc has rc = -eps, and return that half-arc; -1 without any: then `global_update` comes next if v has an excess."""
        cdef int32_t h, best_half = -1
        cdef int64_t best = NEVER, p = self.potential[v], rc
        for h in range(self.first[v], self.first[v + 1]):
            if self.room[h] > 0:
                rc = self.scaled_cost[h] + p - self.potential[self.to[h]]
                if rc < best:
                    best, best_half = rc, h
        self.until_poll -= self.first[v + 1] - self.first[v]
        self.scans += self.first[v + 1] - self.first[v]
        self.relabels += 1
        if best_half < 0:
            best = self.top_cost << self.shift
        self.relabels_since_update += self.relabels_until_update if best_half < 0 < self.excess[v] else 1
        self.current[v] = self.first[v]
        if p - eps - best > -POT_MAX:
            self.potential[v] = p - eps - best
        else:
            self.out_of_range = True
        return best_half

    cdef inline bint has_no_admissible(self, int32_t v) except -1 nogil:
        """True if v has no admissible half-arc."""
        cdef int32_t h
        cdef int64_t p = self.potential[v]
        for h in range(self.current[v], self.first[v + 1]):
            if self.room[h] > 0 and self.scaled_cost[h] + p - self.potential[self.to[h]] < 0:
                self.current[v] = h
                return False
        self.current[v] = self.first[v + 1]
        return True

    cdef int discharge(self, int32_t v, int64_t eps) except -1 nogil:
        """Discharge v: push its excess along admissible half-arcs, relabelling as often as needed."""
        cdef int32_t h, w
        cdef int64_t amount
        while self.excess[v] > 0:
            if self.has_no_admissible(v):
                h = self.relabel(v, eps)
                if h < 0 or self.relabels_since_update >= self.relabels_until_update:
                    return OK
            else:
                h = self.current[v]
            w = self.to[h]
            if self.excess[w] >= 0 and self.has_no_admissible(w):
                self.relabel(w, eps)
                if self.scaled_cost[h] + self.potential[v] - self.potential[w] >= 0:
                    continue
            amount = min(self.excess[v], self.room[h])
            self.send(h, v, w, amount)
            if self.excess[w] > 0:
                self.enqueue(w)
        return OK

    cdef int refine(self, int bits) except -1 nogil:
        """Make the flow eps-optimal, eps = 2**bits."""
        cdef int64_t eps = <int64_t> 1 << bits
        cdef int status
        cdef int32_t v
        self.refines += 1
        self.saturate_negative()
        self.relabels_since_update = self.relabels_until_update
        while True:
            if self.relabels_since_update >= self.relabels_until_update:
                status = self.global_update(bits)
                if status != OK:
                    return status
                self.list_active()
            if not self.queued:
                return OK
            v = self.dequeue()
            self.discharge(v, eps)
            if self.excess[v] > 0:
                self.enqueue(v)
            if self.out_of_range:
                return RANGE
            if self.until_poll < 0 and self.poll() != OK:
                return LATE

    # == the end ========================================================================================================

    cdef bint is_feasible(self) except -1 nogil:
        """True if no node has an excess or a deficit."""
        cdef int32_t v
        for v in range(self.n):
            if self.excess[v]:
                return False
        return True

    cdef int refine_prices(self, int64_t budget) except -1 nogil:
        """Look for potentials in whole costs that prove the flow optimal, within `budget` scans; OK if they are found, UNPROVEN, or LATE."""
        cdef int32_t v, h, w, shift = self.shift
        cdef int64_t p, q
        cdef int64_t[::1] whole = self.whole_cost_potential
        self.proofs += 1
        self.front = self.queued = 0
        for v in range(self.n):
            whole[v], self.listed[v] = self.potential[v] >> shift, 0
        for v in range(self.n):
            p = whole[v]
            for h in range(self.first[v], self.first[v + 1]):
                if self.room[h] > 0 and (self.scaled_cost[h] >> shift) + p - whole[self.to[h]] < 0:
                    self.enqueue(v)
                    break
        while self.queued:
            v = self.dequeue()
            budget -= self.first[v + 1] - self.first[v]
            self.until_poll -= self.first[v + 1] - self.first[v]
            self.scans += self.first[v + 1] - self.first[v]
            if budget < 0:
                return UNPROVEN
            if self.until_poll < 0 and self.poll() != OK:
                return LATE
            p = whole[v]
            for h in range(self.first[v], self.first[v + 1]):
                if self.room[h] > 0:
                    w, q = self.to[h], (self.scaled_cost[h] >> shift) + p
                    if q < whole[w]:
                        whole[w] = q
                        self.enqueue(w)
        for v in range(self.n):
            self.potential[v] = whole[v]
        return OK

    cdef int save_flow(self) except -1 nogil:
        """Copy the flow, which is whole, and its potentials."""
        cdef int64_t[::1] room, pot
        with gil:
            room, pot = _copy(self.room), _copy(self.potential)
        self.saved_room, self.saved_potential = room, pot
        return 0

    cdef int run(self, int64_t eps, int64_t stop) except -1 nogil:
        """Turn an `eps`-optimal flow into a `stop`-optimal one, in whole costs; the flow at the start may have excesses."""
        cdef int status = self.survey()
        cdef bint even, sure
        cdef int step, bits = 0
        if status == OK and self.has_endless:
            status = self.endless()
        if status == OK:
            status = self.fill()
        if status != OK:
            return status
        step = STEP_BITS if eps > 0 else FIRST_BITS
        eps = (min(eps, self.top_cost) if eps > 0 else self.top_cost) << self.shift
        while bits < 62 and eps >> bits:
            bits += 1
        even = self.is_feasible()
        while True:
            if even:
                if self.deadline >= 0:
                    self.save_flow()
                if stop and eps >> self.shift < stop:
                    return self.round_potentials()
                if bits <= self.shift:
                    sure = bits == 0 and <int64_t> 1 << self.shift > self.n
                    status = self.refine_prices(NEVER if sure else self.proof_scans * <int64_t>self.halves)
                    if status != UNPROVEN:
                        return status
                    if bits == 0:
                        return RANGE
            bits = max(bits - step, 0)
            eps = <int64_t> 1 << bits
            status = self.refine(bits)
            if status != OK:
                return status
            even, step = True, STEP_BITS

    cdef int round_potentials(self) except -1 nogil:
        """Round the potentials down to whole costs."""
        cdef int32_t v
        for v in range(self.n):
            self.potential[v] >>= self.shift
        return OK

    # == the answer =======================================================================================================

    cdef object flow(self):
        """Flow by arc."""
        cdef int32_t a
        out = _empty(self.m, np.int64)
        cdef int64_t[::1] flow = out
        for a in range(self.m):
            flow[a] = self.lower[a] if self.lower.shape[0] else 0
            if self.half_of[a] >= 0:
                flow[a] += self.room[self.mate[self.half_of[a]]]
            elif self.tail[a] == self.head[a] and self.cost[a] < 0:
                flow[a] = self.capacity[a]
        return out

    cdef int64_t least_epsilon(self) except -1 nogil:
        """Least epsilon for which flow and potentials, in whole costs, are epsilon-optimal."""
        cdef int32_t v, h
        cdef int64_t least = 0
        for v in range(self.n):
            for h in range(self.first[v], self.first[v + 1]):
                if self.room[h] > 0:
                    least = min(least, (self.scaled_cost[h] >> self.shift) + self.potential[v] - self.potential[self.to[h]])
        return -least

    cdef object cycle(self):
        """Arcs of the unlimited cycle, each where the one before it ends."""
        cdef int32_t a = self.cycle_arc, v
        arcs = [a]
        v = self.tail[a]
        while v != self.head[self.cycle_arc]:
            a = self.by[v]
            arcs.append(a)
            v = self.tail[a]
        return np.array(arcs[::-1], np.int64)

    def set_budget(self, int64_t proof, /):
        """Limit the scans of `refine_prices` to `proof_scans` per half-arc of the network, except for the last time."""
        self.proof_scans = proof

    def solve(self, int64_t epsilon, int64_t stop, double time_limit, /):
        """Solve from scratch, or from any flow within the bounds and potentials; return (status, answer, proof, stats).

        The supplies must sum to 0, node ids and bounds (0 <= lower <= capacity) must be valid; `lower`, `flow` and `potential` may have length 0, `time_limit` is in
        seconds, negative for none.  Flow and potentials to start from are taken to be `epsilon`-optimal (0: not known); wanted is a flow that is `stop`-optimal, 0 an
        optimum.  ``stats["epsilon"]`` is the largest -rc that the answer leaves, 0 if it is optimal.  The answer is, by status,

        OK            the flow by arc; `proof` holds the potentials, it is None otherwise
        INFEASIBLE    a cut, bool by node: these nodes have more to send than can leave them
        UNBOUNDED     arcs of a negative cycle without limit, each starts where the one before it ends (there need not be a feasible flow)
        RANGE         None: exact arithmetic could overflow
        LATE          the flow of the last phase that was whole, with its potentials; None if there was none
        """
        cdef int status
        cdef int64_t left = 0
        self.deadline = time.monotonic() + time_limit if time_limit >= 0 else -1
        with nogil:
            status = self.run(epsilon, stop)
        answer = proof = gap = None
        if status == LATE and self.saved_room.shape[0]:
            self.room, self.potential = self.saved_room, self.saved_potential
            self.round_potentials()
        if status == OK or status == LATE and self.saved_room.shape[0]:
            left = self.least_epsilon()
            answer, proof = self.flow(), self.potential.base
            gap = self.gap(answer) if status == LATE else 0
        elif status == INFEASIBLE:
            answer = self.listed.base.view(bool)
        elif status == UNBOUNDED:
            answer = self.cycle()
        return status, answer, proof, {
            "pushes": self.pushes, "relabels": self.relabels, "scans": self.scans, "updates": self.updates,
            "refines": self.refines, "proofs": self.proofs, "epsilon": left, "gap": gap}

    cdef object gap(self, const int64_t[::1] flow):
        """Sum of -rc * room over the residual half-arcs of a feasible flow, an upper bound on its excess cost; None if an unlimited half-arc has rc < 0."""
        cdef int32_t a
        cdef int64_t rc, high = 0
        cdef uint64_t low = 0
        for a in range(self.m):
            rc = self.cost[a] + self.potential[self.tail[a]] - self.potential[self.head[a]]
            if rc > 0:
                fs_muladd(&high, &low, rc, flow[a] - (self.lower[a] if self.lower.shape[0] else 0))
            elif rc < 0:
                if self.capacity[a] >= CINF:
                    return None
                fs_muladd(&high, &low, -rc, self.capacity[a] - flow[a])
        return (int(high) << 64) + int(low)
