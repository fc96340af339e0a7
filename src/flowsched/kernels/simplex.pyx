# cython: embedsignature=False
"""The kernel for whole networks: primal network simplex, arrays in, arrays out.

The problem
-----------
Nodes v with supply b(v) (> 0 sends), arcs a = (u, v) with bounds l(a) <= f(a) <= c(a) and cost w(a).  The problem is to find a flow
that balances every node at least cost.  Lower bounds are moved into the supplies at once, so that below 0 <= f <= c.

The basis
---------
A spanning tree over the nodes and an artificial *root*.  Arcs outside the tree carry 0 or their capacity, so the tree's
flows follow from theirs.  p is the potential with w + p(tail) - p(head) = 0 on tree arcs; the *reduced cost* of
an arc in a direction is rc = cost in that direction + p(from) - p(to).  An arc outside the tree has room in one direction only, and is
stored in it, in a *slot*: one at its capacity is stored swapped, its cost negated.  So a slot may enter the tree iff rc < 0.
Each node's arc to its parent has ``up``, the residual capacity from the node to the parent, and ``down``, the residual capacity back.

Invariants, at every step of `primal_simplex`:

(T)  ``next`` is a preorder of the tree, circular over all nodes; the subtree of v is v .. ``last[v]`` in it; ``prev`` is its inverse.
(S)  ``up > 0`` for every node: the tree is *strongly feasible*, from each node some flow can be sent to the root.  The leaving arc is the last blocking one of the
     cycle, seen from its apex in the direction of the entering arc; this keeps (S) and rules out cycling (Cunningham).  An arc without
     residual capacity can thus only be on the tail's side, and the first one there ends the walk: a degenerate pivot, and most are, never reaches the apex.
(P)  |p - p(root)| < 16 (n + 1) C, C the largest |w|.
(D)  A node's depth is its parent's + 1; that of the root is any number.

The first tree
--------------
Shortest paths to the nodes with a deficit make an in-forest, which is strongly feasible; excesses are sent along it as far as there is residual capacity.
The rest of an excess gets an artificial arc v -> root of cost -p(v), the rest of a deficit an artificial arc root -> w of cost p(w).  No potential moves, so
shortest paths remain shortest, and with a flow and potentials that were optimal for a slightly different network (a *warm* start) nearly all reduced costs are
right from the start.  Then `primal_simplex` pivots, and `raise_penalty` raises the price of all deficits, at first by a little, whenever few slots may enter, until no deficit is
left.  A price above any path's saving proves the network infeasible, and then the nodes that hang from the root by arcs v -> root
are a cut: every arc that leaves them is full, every arc that enters them is empty.

Where paths would hold little of the flow, because nearly all of them are blocked (`trace`), this tree says little about the optimum.  Then one coarse phase of
push-relabel (coarse.pyx) gives a flow and potentials to start from: a tenth of the pivots remain.  It pays where a pivot moves many potentials, in networks that are large
and not dense.

A flow to start from may be strictly between the bounds outside the tree; `settle` removes each such arc by a pivot.  Most are in the tree from the start, as paths
prefer them.

The last basis
--------------
It may be reused after changes of costs, capacities and supplies (`resume`).  A new cost of a tree arc shifts the potentials of a subtree.  A new supply, and flow above a
reduced capacity, goes up the tree as far as there is residual capacity; the rest hangs from the root as in the first tree.  So (T), (S) and (P) hold again before
pivots go on.  A change outside the bounds of the first solve (below) needs a new basis.

After a change a slot has rc < 0 only if its cost is new or the potential of one of its ends has changed.  While the nodes whose potentials change are few, `inspect` scans
their arcs, so all slots with rc < 0 are in ``suspect`` (`nearby`).  When there are none, `dual_simplex` makes dual simplex steps, which send excesses and deficits along shortest
paths: the potentials of the subtree below an artificial arc move just far enough for one slot of its cut to enter at rc = 0.  A scan that grows too large is left
to `primal_simplex`.

Capacities
----------
If no arc of negative cost is unlimited, an optimum never sends more through an arc than B = all supplies + all
capacities of negative arcs, so capacities are clipped to B + 1 and nothing overflows.  Out of a *pure* source (no
arc enters it) of supply s an arc of capacity >= s never binds and is given B + 1, too; likewise into a pure sink.  Otherwise unlimited is 2**62, all other
capacities sum to less than 2**60, and a cycle on which 2**61 can be sent has unlimited arcs only.  The B of a basis that is to be kept is four times as large, for
changes to come; such a basis has no pure sources, and cannot be kept while unlimited arcs have negative costs.

An artificial arc takes an excess if its ``up`` is 2**61 or more, and gives a deficit if it is less.  Neither can come near that border: the flow in it is
at most all supplies and capacities in the basis together, and these stay below 2**61 (``total``), or the simplex declines.

Time limits
-----------
Between two pivots the basis is whole, so a solve may stop there, and `resume` goes on with it.  The answer so far is the flow in the tree, if no deficit is
left.  So the price of deficits rises with the pivots (`hurry`), with the clock where the limit leaves time for few, and a part of the limit is kept for the end, measured
by the time of loading.  Remaining deficits are routed with little regard to costs (completion.pyx), in a copy: the basis needs the flow of a tree.
For any flow and potentials, the sum of -rc * room over all half-arcs of rc < 0 is a *gap*: an upper bound on the cost above the optimum.

Cost of a pivot
---------------
The path up the tree to the leaving arc or the apex, and the nodes whose potentials change.  The fields that a step of either reads are few and stored apart, and large
networks have their nodes numbered in preorder after many pivots or moves (`renumber`), as most time is spent on memory accesses.  Only differences of potentials and of
depths count, so either the subtree moves or all other nodes: the part without the *anchor*, a node in the part last found to be the largest (`shift`).

Entering arcs are found by block search (a block is about sqrt(m) slots): the best of the first block that has one.
The number of pivots depends on the order of the slots: they are mixed, so that a block holds arcs of many sources.  Runs of `RUN` stay together: most
of a run have one tail, whose potential is read once.  Slots are prefetched `AHEAD` of their pricing, as the pivots between two blocks hide their order from the machine.

Who calls whom: network/one_shot.py -> `solve`, _cs.pyx -> `Simplex.solve` -> `survey`, `Simplex.run` -> `fill`, `crash` -> `forest`, `sketch` -> `Coarse`, `load_tree`; `plant`;
`go_on` -> `settle`, `primal_simplex` -> `renumber`, `pivot` -> `reroot`, `shift`; `finish`; after changes `resume` -> `change` -> `reprice`, `set_capacity`,
`feed`; `renew` -> `nearby` ->
`pivot`, `dual_simplex`; `go_on` if that is not enough.  When time is up: `flow_so_far` -> `Completion`; `make_reusable`; network/one_shot.py -> `joined` -> `join`,
`parted` -> `part`.
Complexity: a pivot is O(n), pricing O(m); the number of pivots is exponential in the worst case and about linear in practice.
References: W. H. Cunningham, A network simplex method (1976): (S) and the choice of the leaving arc; P. Kovács, Minimum-cost flow algorithms: an experimental evaluation
(2015): block search for the entering arc.
"""

cimport cython
from libc.math cimport exp, fabs, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t

from flowsched.kernels.basis cimport CINF, HUGE, Basis, Link, Node, Slack, Slot
from flowsched.kernels.coarse cimport coarse_flow
from flowsched.kernels.completion cimport completed
from flowsched._faults cimport FS_LONG, _copy, _empty, _zeros, fs_look
from flowsched.kernels.status cimport CHEAP, EASY, INFEASIBLE, JOINED, LATE, OK, RANGE, SPENT, UNBOUNDED
from flowsched.kernels.wide cimport fs_muladd

import time

import numpy as np

cdef extern from *:
    """
    #ifdef _MSC_VER
    #define fs_read_soon(p) ((void)(p))
    #else
    #define fs_read_soon(p) __builtin_prefetch(p)
    #endif
    """
    void fs_read_soon(const void *p) nogil  # a prefetch: the address need not exist


cdef object INT32 = np.int32, INT64 = np.int64      # looked up once: code for each look-up is long
SLOT = np.dtype([("cost", "i8"), ("tail", "i4"), ("head", "i4")])
LINK = np.dtype([("parent", "i4"), ("depth", "i4")])
SLACK = np.dtype([("up", "i8"), ("down", "i8")])
NODE = np.dtype([("code", "i4"), ("last", "i4"), ("prev", "i4"), ("aim", "i4")])

cdef int64_t VOLUME_MAX = <int64_t> 1 << 60
cdef int64_t RISE_MAX = <int64_t> 1 << 55  # (n + 1) C stays below it
cdef int64_t DRIFT_MAX = <int64_t> 1 << 59  # the root's potential and depth may drift so far, as only differences count
cdef int32_t DEPTH_MAX = 1 << 30
cdef int32_t PATIENCE = 10               # the price of deficits rises once 1 / PATIENCE of the slots has been priced in vain
cdef int32_t WARM_BLOCK = 3              # factor on the block size: few slots can enter after a change, and a better choice saves pivots
cdef int32_t RENUMBER_MIN = 2048         # number of nodes; below it all node records fit into the cache in any order
cdef int32_t STRAY_MIN = 32768           # number of nodes; above it they do not fit into most second-level caches, so each potential that moves costs a cache miss
cdef int64_t STRAY = 8                   # moved potentials per slot that are worth a renumbering
cdef int32_t NOWHERE = -2147483648
cdef double SCARCE = 0.35               # fraction of the sum of |b|: a network is congested if more is `unplaced`, at as many nodes as there are sources
cdef double EASE = 0.11                 # fraction of the sum of |b|: if less is unplaced in a large network, a local repair is likely to be faster
cdef double THIN = 8                    # arcs per node below which a coarse phase pays in a congested network;
cdef double LARGE = 1500                # nodes per further arc of that bound: a pivot moves about n / 25 potentials
cdef double RUSH = 7                     # exponent: under a limit the price of deficits rises at most by the factor e**RUSH in all, and
cdef double PRESS = 2                    # by e**PRESS in a number of pivots equal to the number of nodes
cdef double COMPLETING = 0.8             # time to complete a flow,
cdef double JAMMED = 1.2                 # additional time with many deficits, and
cdef double HANDING = 0.6                # time to hand the flow over; all three relative to the time of loading
cdef int32_t MANY = 32                   # number of deficits from which the full additional time is assumed
# Estimated costs in ns; only ratios matter.
cdef int64_t SLOT_NS = 1         # pricing a slot
cdef int64_t MOVE_NS = 2         # changing a potential
cdef int64_t PIVOT_NS = 400
cdef int64_t SKETCH_NS = 7       # scanning a half-arc in the coarse phase
cdef int64_t LOAD_NS = 60        # laying out an arc and finding the first tree
cdef int32_t SCATTER = 32        # nodes per tree arc with a new cost: with more such arcs the tree's potentials say little

cdef struct Ends:      # of a node, stored in the place of its `Node`: see `join`
    int32_t ins        # number of arcs that enter,
    int32_t outs       # and that leave
    int32_t into       # the ids of the entering arcs, combined by exclusive or: the id if there is one
    int32_t out

cdef enum:
    CHAINED = 8        # nodes per pass-through node, and
    CHAINED_MIN = 100  # number of pass-through nodes, from which they are taken out
    RUN = 8            # consecutive slots in the order of their arcs' tails; runs are mixed
    AHEAD = 128        # slots between the one priced and the one prefetched
    SUSPECTS = 256     # number of slots that may be priced at every pivot, in addition to a block
    CHUNK = 65536      # arcs between two checks of the clock and signals

cdef enum:             # the first tree: see `crash`
    START_ANY = 0
    START_PATHS = 1
    START_COARSE = 2
    START_FLOW = 3
    START_JOINED = 4

_START = ("nothing", "shortest_paths", "coarse", "flow")
STARTS = {"any": START_ANY, "shortest_paths": START_PATHS, "coarse": START_COARSE, "joined": START_JOINED}     # `start` of `solve`


@cython.final
cdef class Simplex(Basis):
    """One solve; see the head of this file."""

    cdef const int32_t[::1] tail, head                             # the caller's arcs
    cdef const int64_t[::1] capacity, cost, lower                  # lower may have length 0
    cdef const int64_t[::1] before                                 # the flow to start from, or of length 0
    cdef int64_t[::1] flow                                         # the answer, in place
    cdef int32_t m
    # -- by node, the root last --------------------------------------------------------------------------------
    cdef int64_t[::1] dist         # scratch of the first tree: length of the path
    cdef int32_t[::1] next
    cdef int32_t[::1] name         # the caller's id of the node: `renumber` changes ours
    cdef int32_t[::1] ours         # name[ours[v]] == v, once a basis has been changed
    cdef int32_t[::1] first        # while loading: number of arcs out of the nodes before v; then scratch
    cdef unsigned char[::1] ends_seen # 1: arcs leave the node, 2: arcs enter it, 4: more than one does
    # -- by slot -------------------------------------------------------------------------------------------------
    cdef int32_t[::1] place        # by arc, once a basis has been changed: its slot, or ~v in the tree below v, or NOWHERE
    cdef bint placed
    cdef int32_t[::1] altered      # arcs whose flow may have changed since `flows_taken`, possibly with repetitions, in altered[:naltered]
    cdef int32_t naltered          # -1: any may have
    # -- the scan of the part that a change reaches (`nearby`) ------------------------------------------------------
    cdef int32_t[::1] around       # the caller's node u has the arcs around[at[u] : at[u + 1]]: those in the basis, without loops
    cdef int32_t[::1] at
    cdef int32_t[::1] seen         # by node: equal to `look` in the subtree whose cut `dual_ratio_test` scans
    cdef int32_t look
    cdef int32_t[::1] owing        # scratch of `dual_simplex` and `drain`: nodes
    cdef int32_t nowing
    cdef int64_t[::1] owed         # by node: flow to send up beyond that already on the arc; 0 except at the nodes of `drain`
    cdef int32_t[::1] suspect      # slots: all with rc < 0 are in suspect[:nsuspect], unless `unsure`; in `primal_simplex` some of them
    cdef int32_t nsuspect
    cdef bint unsure               # slots with rc < 0 may be anywhere
    cdef bint watch                # scan the arcs of nodes whose potential changes
    cdef int64_t scan_budget       # number of arcs that may still be scanned so
    cdef int64_t next_scan_budget  # number of arcs for the next scan: doubled after a scan that was complete, else halved
    cdef int32_t[::1] entry        # slots by the node where they end, while the first tree is built
    cdef int32_t anchor            # a node of the largest part of the tree, as far as known: `shift` leaves that part unchanged
    cdef int32_t spare             # a dead slot, -1 without one; room[spare] is the next
    # ------------------------------------------------------------------------------------------------------------
    cdef bint kept                 # the basis is to be reused after changes
    cdef int64_t volume            # upper bound on the sum of |b|
    cdef int64_t negative          # upper bound on the capacities of all arcs of negative cost, unless one of them is unlimited
    cdef int64_t wide              # capacity of arcs that never bind
    cdef int64_t total             # the capacities of all arcs in the basis; total + volume < HUGE, unless wide is unlimited
    cdef int64_t penalty, penalty_max # amount added to the cost of deficits; amount that proves infeasibility
    cdef int64_t step              # next increase of the price
    cdef int64_t allowance         # work limit of this solve, in ns as `work` counts it; negative: none
    # -- time: seconds since `begun`, by time.monotonic --------------------------------------------------------------
    cdef double begun
    cdef double limit              # of this solve; negative: none
    cdef double looked             # time of the last check of the clock
    cdef int64_t pivots_at_check   # number of pivots until then,
    cdef int64_t pivots_before     # and in the solves before it that were stopped
    cdef double loading            # time of loading
    cdef double rescue             # time that the caller needs to complete its own flow; negative: it has none
    cdef bint whole                # (T), (S), (P) hold, and `load` is all flow outside the tree that is between bounds
    cdef int32_t deficits          # upper bound on the number of nodes with a deficit
    cdef bint yields               # a deficit is left and the caller is to complete its flow: that takes less time, and little has been done here
    # ------------------------------------------------------------------------------------------------------------
    cdef int32_t cycle_slot        # slot that closes the unlimited cycle
    cdef int64_t pivots_since_numbering # pivots since the nodes were numbered
    cdef int64_t moved_at_numbering # potentials that had moved in this solve by then
    cdef int64_t pivots, degenerate, scanned, moved, sketched
    cdef int64_t unplaced          # part of the supplies that finds no residual capacity on the paths of the first tree
    cdef int32_t chained, joins    # number of pass-through nodes, and of their joins: see `join`
    cdef int32_t jams, sources     # number of nodes where a part is unplaced; number of nodes with an excess
    cdef int64_t bulk              # number of slots from which an easy network may be declined
    cdef int start                 # method for the first tree; afterwards, the method used

    def __init__(self, const int32_t[::1] tail, const int32_t[::1] head, const int64_t[::1] capacity, const int64_t[::1] cost,
                 const int64_t[::1] supply, const int64_t[::1] lower, const int64_t[::1] flow, const int64_t[::1] potential, bint kept):
        n, m = supply.shape[0], tail.shape[0]
        self.tail, self.head, self.capacity, self.cost, self.lower = tail, head, capacity, cost, lower
        self.n, self.m = n, m
        self.flow = _empty(m, INT64)
        self.before = flow
        self.potential = _zeros(n + 1, INT64)
        if potential.shape[0]:
            self.potential[:n] = potential
        self.balance = _copy(supply)
        self.link = _empty(n + 1, LINK)
        self.slack = _empty(n + 1, SLACK)
        self.node = _empty(n + 1, NODE)
        self.next = _empty(n + 1, INT32)
        self.name = np.arange(n + 1, dtype=INT32)
        self.first = _zeros(n + 2, INT32)
        self.ends_seen = _zeros(n + 1, np.uint8)
        self.slot = _empty(m + 3, SLOT)
        self.room = _empty(m + 3, INT64)
        self.dist = _empty(n, INT64)
        self.load = _zeros(m + 3 if flow.shape[0] else 0, INT64)
        self.code = _empty(m + 3, INT32)
        self.cycle_slot = self.spare = self.naltered = -1
        self.altered = self.code[:0]
        self.unsure = True
        self.next_scan_budget = m // 4
        self.anchor = n
        self.kept = kept
        self.until_poll, self.allowance = FS_LONG, -1
        self.start = START_ANY
        self.bulk = CINF

    # == loading ===============================================================================================

    cdef int survey(self) except -1 nogil:
        """One pass over the arcs: ranges, degrees, flows that are fixed."""
        cdef int32_t a, u, v
        cdef int64_t lo = 0, cap, w, bounds = 0, limited = 0
        cdef bint endless = False, lowers = self.lower.shape[0] > 0
        self.volume = 0
        for a in range(self.m):
            u, v, cap, w = self.tail[a], self.head[a], self.capacity[a], self.cost[a]
            if lowers:
                lo = self.lower[a]
                if lo:
                    if lo > VOLUME_MAX or bounds > VOLUME_MAX:
                        return RANGE
                    bounds += lo
                    self.balance[u] -= lo
                    self.balance[v] += lo
            if cap < lo or lo < 0:
                return RANGE
            self.flow[a] = lo
            if w > RISE_MAX or w < -RISE_MAX:
                return RANGE
            self.top_cost = max(self.top_cost, w if w > 0 else -w)
            if cap == lo:
                continue
            self.ends_seen[u] |= 1
            self.ends_seen[v] |= 2 | self.ends_seen[v] << 1 & 4
            self.first[u + 1] += 1
            self.slots += 1
            if cap >= CINF:
                endless |= w < 0
            else:
                limited = min(limited + (cap - lo), CINF)
                if w < 0:
                    self.negative = min(self.negative + (cap - lo), CINF)
        for u in range(self.n):
            w = self.balance[u]
            if w > VOLUME_MAX or w < -VOLUME_MAX:
                return RANGE
            self.volume += w if w > 0 else -w
            if self.volume > VOLUME_MAX:
                return RANGE
            self.chained += w == 0 and self.ends_seen[u] == 3 and self.first[u + 1] == 1
            self.first[u + 1] += self.first[u]
        if self.top_cost >= RISE_MAX // (self.n + 1):
            return RANGE
        if self.volume + (limited if endless else self.negative) > VOLUME_MAX:
            return RANGE
        self.kept &= not endless
        self.wide = CINF if endless else self.volume + self.negative + 1
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
            if not self.kept and ((self.ends_seen[u] == 1 and cap >= self.balance[u] > 0) or (not self.ends_seen[v] & 1 and cap >= -self.balance[v] > 0)):
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

    # == fewer nodes ============================================================================================

    cdef inline bint passes(self, int32_t v, Ends end) noexcept nogil:
        """True if v has one arc in, one arc out, and no supply."""
        return end.ins == 1 and end.outs == 1 and end.into != end.out and self.balance[v] == 0

    cdef int join(self) except -1 nogil:
        """Take out pass-through nodes, after `survey`, by series and parallel reduction.

        Arc a is in slot a; ``entry[a]`` is -1 if the arc remains, i if it was joined to arc i in series, -2 - i in parallel.  The k-th arc joined is in ``code[k]``;
        its ``room`` says, in series, if i was the narrower one, and in parallel the flow limit of i.  ``balance`` is CINF for nodes taken out.
        """
        cdef Ends *end = <Ends *>&self.node[0]
        cdef Slot *slot = &self.slot[0]
        cdef int64_t *room = &self.room[0]
        cdef int32_t *entry = &self.entry[0]
        cdef int32_t[::1] newest = self.next      # by tail: an arc that was joined
        cdef int32_t a, u, v, w, i, j
        cdef int64_t lo = 0, x
        for v in range(self.n):
            end[v].ins = end[v].outs = end[v].into = end[v].out = 0
            newest[v] = -1
        for a in range(self.m):
            if self.lower.shape[0]:
                lo = self.lower[a]
            x = self.capacity[a]
            entry[a] = a            # until the arc is joined
            if x > lo:
                u, v = self.tail[a], self.head[a]
                entry[a] = -1
                room[a] = CINF if x >= CINF else x - lo
                slot[a].tail, slot[a].head, slot[a].cost = u, v, self.cost[a]
                end[u].outs += 1
                end[u].out ^= a
                end[v].ins += 1
                end[v].into ^= a
        for v in range(self.n):
            u = v
            while self.passes(u, end[u]):
                i, j = end[u].into, end[u].out
                self.balance[u] = CINF
                u, w = slot[i].tail, slot[j].head
                x = room[j]
                room[j] = room[i] <= x
                room[i] = min(room[i], x)
                slot[i].cost += slot[j].cost
                slot[i].head = w
                end[w].into ^= i ^ j
                entry[j] = i
                self.code[self.joins] = j
                self.joins += 1
                j, newest[u] = newest[u], i
                if j >= 0 and j != i and entry[j] == -1 and slot[j].head == w and slot[j].cost == slot[i].cost:
                    x = room[j]
                    room[j] = CINF if room[i] >= CINF - x else x + room[i]
                    room[i] = x
                    end[u].outs -= 1
                    end[u].out ^= i
                    end[w].ins -= 1
                    end[w].into ^= i
                    entry[i] = -2 - j
                    self.code[self.joins] = i
                    self.joins += 1
                    newest[u] = j
                if not self.passes(u, end[u]):
                    u = w
        return 0

    cdef int part(self) except -1 nogil:
        """Undo the joins: compute flows of all arcs and potentials of all nodes."""
        cdef Slot *slot = &self.slot[0]
        cdef int64_t *flow = &self.flow[0]
        cdef int64_t *pot = &self.potential[0]
        cdef int32_t k, i, j
        cdef int64_t x
        for k in range(self.joins - 1, -1, -1):
            j = self.code[k]
            i = self.entry[j]
            if i >= 0:
                flow[j] = flow[i]
                slot[i].cost -= slot[j].cost
                pot[slot[j].tail] = pot[slot[j].head] - slot[j].cost if self.room[j] else pot[slot[i].tail] + slot[i].cost
            else:
                i = -2 - i
                x = flow[i]
                flow[i] = min(x, self.room[j])
                flow[j] = x - flow[i]
        return 0

    def joined(self):
        """Reduce the network after JOINED; return the rest: ``entry``, slots, ``room``, ``balance``, and where the caller writes flows and potentials for `parted`."""
        self.entry = _empty(self.m, INT32)
        with nogil:
            self.join()
        views = [self.entry, self.slot, self.room, self.balance, self.flow, self.potential]
        return [view.base for view in views]

    def parted(self):
        """Extend the flows and potentials of the reduced network to the whole one."""
        with nogil:
            self.part()

    # == the first tree ==========================================================================================

    cdef inline int hang(self, int32_t v, int64_t excess) except -1 nogil:
        """Hang v from the root by an artificial arc that takes v's excess or gives its deficit."""
        self.link[v].parent, self.node[v].code = self.n, -1
        if excess >= 0:
            self.slack[v].up, self.slack[v].down = CINF, excess
        else:
            self.slack[v].up, self.slack[v].down = -excess, CINF
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

    cdef int crash(self) except -1 nogil:
        """Build the first tree, from scratch or from the flow given; where paths would hold little of the flow, from that of `Coarse`."""
        cdef int status = self.forest(-1)
        cdef bint congested
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
            self.start = START_COARSE if congested and self.slots < self.n * (THIN + self.n / LARGE) else START_PATHS
        if self.start == START_COARSE:
            with gil:
                status = self.sketch()
            if status != OK:
                return status
            self.rank()
        return self.load_tree()

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

    cdef inline int kill(self, int32_t e) except -1 nogil:
        self.slot[e].tail = self.slot[e].head = self.n
        self.slot[e].cost = 0
        self.code[e] = -1
        self.room[e], self.spare = self.spare, e
        return 0

    cdef inline int swap(self, int32_t e) except -1 nogil:
        self.slot[e].tail, self.slot[e].head = self.slot[e].head, self.slot[e].tail
        self.slot[e].cost = -self.slot[e].cost
        self.code[e] ^= 1
        return self.note(e)

    cdef inline int note(self, int32_t e) except -1 nogil:
        """Record the flow of the arc in slot e, which is at a bound."""
        cdef int32_t a = self.code[e] >> 1
        self.write(a, self.room[e] if self.code[e] & 1 else 0)
        if self.placed:
            self.place[a] = e
        return 0

    cdef inline int write(self, int32_t a, int64_t load) except -1 nogil:
        """Record the flow of an arc above its lower bound."""
        cdef int64_t flow = load + (self.lower[a] if self.lower.shape[0] else 0)
        if self.naltered >= 0 and self.flow[a] != flow:
            if self.naltered < self.altered.shape[0]:
                self.altered[self.naltered] = a
                self.naltered += 1
            else:
                self.naltered = -1
        self.flow[a] = flow
        return 0

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

    # == the simplex ===============================================================================================

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

    cdef inline int64_t work(self) noexcept nogil:
        """Work of this solve, in about ns: the same for the same network, at any load of the machine."""
        return SLOT_NS * self.scanned + MOVE_NS * self.moved + PIVOT_NS * self.pivots + SKETCH_NS * self.sketched

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

    cdef int leave(self, int32_t out, int32_t e) except -1 nogil:
        """Move the arc from `out` to its parent, which is at a bound, into slot e, in the direction in which it has residual capacity."""
        cdef int32_t code = self.node[out].code, above = self.link[out].parent
        if code < 0:
            return self.kill(e)
        if self.slack[out].down == 0:
            self.slot[e].tail, self.slot[e].head, self.slot[e].cost = out, above, self.potential[above] - self.potential[out]
            self.room[e], self.code[e] = self.slack[out].up, code
        else:
            self.slot[e].tail, self.slot[e].head, self.slot[e].cost = above, out, self.potential[out] - self.potential[above]
            self.room[e], self.code[e] = self.slack[out].down, code ^ 1
        return self.note(e)

    cdef int shift(self, int32_t top, int32_t out, int64_t amount) except -1 nogil:
        """Add to the potentials of top's subtree and correct its depths: its root was `out`, the stem top .. out is already reversed.

        Only differences matter: if the anchor is in the subtree, the part of it below one node of the stem stays as it is, and all other nodes
        move.  The anchor goes where most nodes have been moved last, so that they stay the next time.
        """
        cdef int32_t v = self.anchor, stay = -1, end = self.node[top].last, after = self.next[end], level = self.link[top].depth, above, rise
        cdef int32_t deeper = self.link[self.link[top].parent].depth + 1 - level, least = self.link[out].depth
        while v != top and self.link[v].depth >= least:
            above = self.link[v].parent
            if stay < 0 and self.link[above].depth > self.link[v].depth:
                stay = v
            v = above
        if stay < 0:
            stay = top
        rise = 2 * (level - self.link[stay].depth)
        if v != top or not (-DEPTH_MAX < self.link[self.n].depth - deeper - rise < DEPTH_MAX and -DRIFT_MAX < self.potential[self.n] - amount < DRIFT_MAX):
            return self.move(top, end, level, deeper, amount)
        if stay != out:
            v = out
            while self.link[v].parent != stay:
                v = self.link[v].parent
            self.move(v, end, self.link[stay].depth, 0, 0)
        if stay != top:
            self.move(top, self.node[stay].prev, level, -rise, 0)
        self.move(after, self.node[top].prev, NOWHERE, -deeper - rise, -amount)
        if self.anchor == after:
            self.anchor = self.n
        return 0

    cdef int move(self, int32_t begin, int32_t end, int32_t level, int32_t deeper, int64_t amount) except -1 nogil:
        """Change potentials and depths from one node to another in preorder; each node of the stem begins a part 2 levels deeper, as it turns from ancestor to descendant."""
        cdef int32_t v = begin, above
        cdef int64_t moved = 1
        cdef int32_t *next_ = &self.next[0]
        cdef Link *link = &self.link[0]
        cdef int64_t *pot = &self.potential[0]
        while True:
            above = link[v].depth < level       # added, not branched on: a stem cannot be predicted
            level -= above
            deeper += 2 * above
            link[v].depth += deeper
            pot[v] += amount
            if v == end:
                break
            v = next_[v]
            moved += 1
        if 2 * moved > self.n:
            self.anchor = begin
        self.moved += moved
        self.until_poll -= moved
        return self.inspect(begin, end, amount) if self.watch and amount else 0

    cdef int reroot(self, int32_t out, int32_t near, int32_t far, int64_t up, int64_t down, int32_t code) except -1 nogil:
        """Cut off the subtree of `out`, make `near` its root and hang it from `far` by the arc (up, down, code); `shift` corrects the depths."""
        cdef int32_t old_last = self.node[out].last, before = self.node[out].prev, after = self.next[old_last]
        cdef int32_t u, above, end, keep, below, parent, old_code
        cdef Slack old_slack
        # 1. Remove the subtree from the preorder.
        u = self.link[out].parent
        self.next[before], self.node[after].prev = after, before
        while u >= 0 and self.node[u].last == old_last:
            self.node[u].last = before
            u = self.link[u].parent
        # 2. Reverse the stem near .. out.  The preorder of a stem node splits at its stem child: the part before stays
        # in front of the part after, and both follow the subtrees below the child.
        above, u = far, near
        end = self.node[near].last
        after = self.next[end]
        keep = self.node[near].prev
        while True:
            parent, below, old_code, old_slack = self.link[u].parent, self.node[u].last, self.node[u].code, self.slack[u]
            self.link[u].parent, self.slack[u].up, self.slack[u].down, self.node[u].code = above, up, down, code
            if self.placed and code >= 0:
                self.place[code >> 1] = ~u
            if u == out:
                break
            up, down, code = old_slack.down, old_slack.up, old_code ^ 1
            above, u = u, parent
            self.next[end] = u
            before, keep = keep, self.node[u].prev
            self.node[u].prev = end
            if self.node[u].last != below:
                self.next[before], self.node[after].prev = after, before
                end = self.node[u].last
                after = self.next[end]
            else:
                end = before
        while True:
            self.node[u].last = end
            if u == near:
                break
            u = self.link[u].parent
        # 3. Insert it into the preorder, right after `far`.
        after = self.next[far]
        self.next[far], self.node[near].prev = near, far
        self.next[end], self.node[after].prev = after, end
        u = far
        while u >= 0 and self.node[u].last == far:
            self.node[u].last = end
            u = self.link[u].parent
        return 0

    # == the answer =================================================================================================

    cdef int finish(self) except -1 nogil:
        """Write the flow in the tree; INFEASIBLE if an artificial arc root -> v carries flow."""
        cdef int32_t v
        cdef int status = OK
        for v in range(self.n):
            self.potential[v] -= self.potential[self.n]
            if self.node[v].code >= 0:
                self.write(self.node[v].code >> 1, self.slack[v].up if self.node[v].code & 1 else self.slack[v].down)
            elif self.slack[v].up < HUGE:
                status = INFEASIBLE
        self.potential[self.n] = 0
        return status

    cdef int run(self) except -1 nogil:
        """Solve after `survey`."""
        cdef int status
        self.level()
        status = self.fill()
        if status == OK:
            status = self.crash()
        if status == OK:
            self.plant()
            with gil:
                self.loading = self.looked = time.monotonic() - self.begun
            status = self.go_on(False)
        return status

    cdef int go_on(self, bint warm) except -1 nogil:
        """Pivot from a whole basis to the optimum or the end of the time; it was optimal before it changed, if `warm`."""
        cdef int status
        self.whole, self.deficits = True, MANY
        status = self.settle()
        if status == OK:
            self.load = self.load[:0]
            status = self.primal_simplex(WARM_BLOCK, SUSPECTS) if warm else self.primal_simplex(1, 0)
        if status == OK:
            status = self.finish()
        elif status == LATE:
            self.finish()
        return status

    # == changes ====================================================================================================

    cdef int sever(self, int32_t v, int64_t rest) except -1 nogil:
        """Remove the arc from v to its parent, which is at a bound, from the tree; v hangs from the root with `rest` to send."""
        cdef int32_t e = self.spare
        self.spare = <int32_t>self.room[e]
        self.leave(v, e)
        self.reroot(v, v, self.n, CINF, 0, -1)
        self.shift(v, v, 0)
        self.hang(v, rest)
        return 0

    cdef int feed(self, int32_t v, int64_t x) except -1 nogil:
        """Add x to the flow that v has to send up when `drain` comes to it."""
        if self.seen[v] != self.look:
            self.seen[v] = self.look
            self.owing[self.nowing] = v
            self.nowing += 1
        self.owed[v] += x
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

    cdef int find_nodes(self) except -1 nogil:
        """Record the places of the caller's nodes, and the arcs in the tree."""
        cdef int32_t v
        for v in range(self.n + 1):
            self.ours[self.name[v]] = v
            if self.node[v].code >= 0:
                self.place[self.node[v].code >> 1] = ~v
        return 0

    cdef inline int enlist(self, int32_t u, int32_t a) except -1 nogil:
        self.around[self.at[u + 1]] = a
        self.at[u + 1] += 1
        return 0

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

    # -- the part that a change reaches -----------------------------------------------------------------------------

    cdef inline int64_t reduced(self, int32_t e) except? -1 nogil:
        return self.slot[e].cost + self.potential[self.slot[e].tail] - self.potential[self.slot[e].head]

    cdef int doubt(self, int32_t e) except -1 nogil:
        if self.nsuspect < SUSPECTS:
            self.suspect[self.nsuspect] = e
            self.nsuspect += 1
        else:
            self.unsure = True
        return 0

    cdef bint pay(self, int64_t arcs) except -1 nogil:
        """Count a scan of arcs; False if it exceeds ``scan_budget``."""
        self.scan_budget -= arcs + 1
        self.scanned += arcs
        self.until_poll -= arcs
        return self.scan_budget >= 0

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

    cdef inline int next_look(self) except -1 nogil:
        cdef int32_t v
        if self.look >= 2147483646:
            for v in range(self.n + 1):
                self.seen[v] = 0
            self.look = 0
        self.look += 2
        return 0

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

    cdef inline bint overspent(self) noexcept nogil:
        return 0 <= self.allowance < self.work()

    cdef object cut(self):
        """Bool by node: the node hangs from the root by an arc v -> root."""
        cdef int32_t v = self.next[self.n]
        cdef bint inside = False
        out = _zeros(self.n, bool)
        cdef unsigned char[::1] mark = out.view(np.uint8)
        while v != self.n:
            if self.link[v].parent == self.n:
                inside = self.slack[v].up >= HUGE
            mark[self.name[v]] = inside
            v = self.next[v]
        return out

    cdef object cycle(self):
        """Arcs of the unlimited cycle, each where the one before it ends."""
        cdef int32_t u, v
        u, v = self.slot[self.cycle_slot].tail, self.slot[self.cycle_slot].head
        down, up = [self.code[self.cycle_slot] >> 1], []
        while u != v:
            if self.link[u].depth >= self.link[v].depth:
                down.append(self.node[u].code >> 1)
                u = self.link[u].parent
            else:
                up.append(self.node[v].code >> 1)
                v = self.link[v].parent
        return np.array(down[::-1] + up, INT64)

    def solve(self, double time_limit, double rescue=-1, int64_t allowance=-1, /):
        """Solve from scratch, or from the flow given; see `solve` below.  SPENT once the work exceeds the allowance, unless that is negative."""
        cdef int status
        self.begin(time_limit, rescue, allowance)
        with nogil:
            status = self.survey()
        if self.start == START_JOINED:
            self.start = START_ANY
            if status == OK and self.chained >= max(self.n // CHAINED, CHAINED_MIN):
                return JOINED, self, None, None
        with nogil:
            if status == OK:
                status = self.run()
        answer = self.outcome(status, False)
        # arrays that only the start needs
        if not self.load.shape[0]:
            self.load = _zeros(0, INT64)
        self.capacity = self.cost = self.before = self.balance = self.dist = _zeros(0, INT64)
        self.tail = self.head = self.first = self.entry = _zeros(0, INT32)
        self.ends_seen = _zeros(0, np.uint8)
        return answer

    def resume(self, const int64_t[::1] arcs, const int64_t[::1] cost, const int64_t[::1] capacity,
               const int64_t[::1] nodes, const int64_t[::1] added, double time_limit, double rescue, bint late, int64_t allowance=-1, /):
        """Solve from the last basis, after new costs and capacities of `arcs` (each once) and supplies that grew by `added`; None if that is not possible.

        A `late` basis was made when time was up, so it is not optimal.
        """
        cdef int status = RANGE
        cdef bint unripe = not self.kept and late and self.ripens()
        if not (self.kept or unripe) or (unripe or self.load.shape[0]) and arcs.shape[0] + nodes.shape[0]:
            return None
        self.pivots_before = self.pivots_before + self.pivots if late else 0
        self.begin(time_limit, rescue, allowance)
        with nogil:
            if unripe or self.change(arcs, cost, capacity, nodes, added, late):
                if late:
                    self.watch, self.unsure = False, True
                status = self.go_on(False) if late else self.renew()
        return None if status == RANGE else self.outcome(status, True)

    cdef int renew(self) except -1 nogil:
        """Go on from a basis that was optimal before it changed: first with the part that the change reaches, then with all of it if needed."""
        cdef int status = self.nearby()
        self.watch = False
        self.next_scan_budget = max(self.next_scan_budget // 2, 64) if self.unsure else min(2 * self.next_scan_budget, self.slots // 2 + 64)
        if status != OK:
            return status
        return self.go_on(True) if self.unsure else self.finish()

    cdef int begin(self, double time_limit, double rescue, int64_t allowance) except -1:
        self.allowance = allowance
        self.begun, self.limit, self.rescue, self.looked, self.whole, self.yields = time.monotonic(), time_limit, rescue, 0, False, False
        self.pivots_at_check = self.pivots = self.degenerate = self.scanned = self.moved = self.sketched = self.moved_at_numbering = 0
        return 0

    cdef int make_reusable(self) except -1:
        """Prepare an interrupted basis for reuse, as if made for it: no arc has more room than its capacity, or ``wide`` if that is unlimited."""
        cdef int32_t a, e, v
        cdef int64_t cap, lo, room
        if self.wide >= CINF or self.load.shape[0]:
            return 0
        if not self.placed:
            self.find_all()
        self.nowing = 0
        self.next_look()
        self.wide = 4 * self.wide if self.wide < HUGE // 4 else HUGE - 1
        for a in range(self.m):
            e = self.place[a]
            if e == NOWHERE:
                continue
            v = ~e
            lo = self.lower[a] if self.lower.shape[0] else 0
            cap = self.wide if self.capacity[a] >= CINF else min(self.capacity[a] - lo, self.wide)
            room = self.room[e] if e >= 0 else self.slack[v].up + self.slack[v].down
            if cap != room:
                self.total += cap - room
                if self.total >= HUGE - self.volume:
                    return 0
                self.set_capacity(a, cap)
        self.drain()
        self.kept = True
        return 0

    cdef object gap(self, const int64_t[::1] room):
        """Bound on the excess cost of a flow with the residual capacities `room` (see completion.pyx; of length 0: the basis's); None if an unlimited arc has rc < 0."""
        cdef int32_t e
        cdef int64_t rc, there, back, high = 0
        cdef uint64_t low = 0
        for e in range(self.slots):
            if self.code[e] < 0:
                continue
            rc = self.slot[e].cost + self.potential[self.slot[e].tail] - self.potential[self.slot[e].head]
            if not rc:
                continue
            if room.shape[0]:
                there, back = room[2 * e], room[2 * e + 1]
            else:
                back = self.load[e] if self.load.shape[0] else 0
                there = self.room[e] - back
            if rc < 0 and there >= HUGE or rc > 0 and back >= HUGE:
                return None
            fs_muladd(&high, &low, rc if rc > 0 else -rc, back if rc > 0 else there)
        return (int(high) << 64) + int(low)

    cdef object flow_so_far(self):
        """The flow so far, with deficits completed, and its gap; (None, None) if there is none."""
        cdef int64_t[::1] room
        cdef int32_t e, v, a, code
        cdef int64_t x
        cdef bint lowers = self.lower.shape[0] > 0, missing = False
        for v in range(self.n):
            missing = missing or (self.node[v].code < 0 and self.slack[v].up < HUGE)
        if not missing and not self.load.shape[0]:
            return self.flow.base, self.gap(self.room[:0])
        if self.yields:
            return None, None
        room = completed(self)
        if room is None:
            return None, None
        answer = _copy(self.flow)
        cdef int64_t[::1] flow = answer
        for e in range(self.slots):
            code = self.code[e]
            if code >= 0 and room[2 * e + 1]:
                a, x = code >> 1, room[2 * e + (0 if code & 1 else 1)]
                flow[a] = x + (self.lower[a] if lowers else 0)
        for v in range(self.n):
            code = self.node[v].code
            if code >= 0:
                a, x = code >> 1, room[2 * (self.slots + v) + (0 if code & 1 else 1)]
                flow[a] = x + (self.lower[a] if lowers else 0)
        return answer, self.gap(room)

    cdef object outcome(self, int status, bint resumed):
        cdef int64_t[::1] potential
        cdef int32_t v
        answer = proof = None
        stats = {
            "pivots": self.pivots, "degenerate": self.degenerate, "priced": self.scanned, "moved": self.moved, "resumed": resumed,
            "local": resumed and not self.unsure, "start": "basis" if resumed else _START[self.start], "sketched": self.sketched,
            "work": self.work() + (0 if resumed else LOAD_NS * <int64_t>self.m), "gap": 0}
        if status == OK:
            answer = self.flow.base
        elif status == LATE and self.whole:
            answer, stats["gap"] = self.flow_so_far()
            if stats["gap"] is None:
                answer = None
        if answer is not None:
            proof = _empty(self.n, INT64)
            potential = proof
            for v in range(self.n):
                potential[self.name[v]] = self.potential[v]
        elif status == INFEASIBLE:
            answer = self.cut()
        elif status == UNBOUNDED:
            answer = self.cycle()
        self.kept &= status == OK or status == LATE and self.whole
        return status, answer, proof, stats

    cdef list arrays(self):
        """Arrays that a solved basis still needs."""
        views = [self.flow, self.lower, self.potential, self.link, self.slack, self.node, self.next, self.name, self.slot, self.room, self.code]
        if self.placed:
            views += [self.place, self.ours, self.altered, self.around, self.at, self.seen, self.owing, self.owed, self.suspect]
        return [view.base for view in views]

    def nbytes(self):
        """Memory of all arrays, in bytes."""
        return sum([array.nbytes for array in self.arrays()])

    def flows_taken(self):
        """Note that the caller has read all flows; `changes` starts again from here."""
        self.naltered = 0

    def changes(self):
        """Arcs whose flow may differ from that at the last `flows_taken`, some of them twice; None if any may."""
        return None if self.naltered < 0 else self.altered.base[:self.naltered]

    def reusable(self):
        """True if `resume` may be called."""
        return self.kept and not self.load.shape[0]

    def ripens(self):
        """True if `resume` may be called after `ripen`: a basis that was not made to be kept is whole."""
        return self.whole and self.wide < CINF and not self.load.shape[0]

    def ripen(self, const int64_t[::1] capacity, /):
        """Prepare a basis for reuse that was not made for it, with the present capacities by arc."""
        if self.whole:
            self.find_all()
            self.flows_taken()
            self.capacity = capacity
            self.make_reusable()
            self.finish()
            self.capacity = self.room[:0]
            self.whole = False          # cleared: if `make_reusable` found no room for reuse the basis is of no use

    def has(self):
        """Bool by arc: the arc is in the tree or in a slot."""
        cdef int32_t v, e
        out = np.zeros(self.m, bool)
        for v in range(self.n):
            if self.node[v].code >= 0:
                out[self.node[v].code >> 1] = True
        for e in range(self.slots):
            if self.code[e] >= 0:
                out[self.code[e] >> 1] = True
        return out

    # == as data =====================================================================================================

    def dump(self):
        """The solved basis as flat arrays and numbers, for `restored`; data that follow from the tree and the arcs are left out (see network/state.py)."""
        cdef int32_t v, e, a, n = self.n, chain = self.spare, k = 0
        if not self.reusable():     # it will not be asked again
            return dict.fromkeys(_ARRAYS32, np.zeros(0, INT32)) | dict.fromkeys(_ARRAYS64, np.zeros(0, INT64)) | dict.fromkeys(_NUMBERS, 0)
        cdef int64_t[::1] cost = np.zeros(self.m, INT64), room = np.zeros(self.m, INT64)
        cdef int32_t[::1] parent = np.empty(n, INT32), tree = np.empty(n, INT32)
        for e in range(self.slots):
            if self.code[e] >= 0:
                a = self.code[e] >> 1
                room[a], cost[a] = self.room[e], -self.slot[e].cost if self.code[e] & 1 else self.slot[e].cost
        for v in range(n):
            parent[v], tree[v] = self.link[v].parent, self.node[v].code
            if tree[v] >= 0:
                k += 1
                a = tree[v] >> 1
                room[a] = self.slack[v].up + self.slack[v].down
                cost[a] = self.potential[parent[v]] - self.potential[v] if tree[v] & 1 == 0 else self.potential[v] - self.potential[parent[v]]
        cdef int32_t[::1] spare = np.empty(k, INT32)
        for e in range(k):
            spare[e], chain = chain, <int32_t>self.room[chain]
        return {
            "basis_name": np.array(self.name[:n]), "basis_parent": parent.base, "basis_next": np.array(self.next), "basis_tree": tree.base,
            "basis_slot": np.array(self.code[:self.slots]), "basis_spare": spare.base, "basis_potential": np.array(self.potential[:n]),
            "basis_flow": np.array(self.flow), "basis_room": room.base, "basis_cost": cost.base,
            "basis_anchor": self.anchor, "basis_depth": self.link[n].depth, "basis_worn": self.pivots_since_numbering, "basis_trust": self.next_scan_budget,
            "basis_volume": self.volume, "basis_negative": self.negative, "basis_wide": self.wide, "basis_top_cost": self.top_cost}

    cdef object adopt(self, state, const int64_t[::1] tail, const int64_t[::1] head, const int64_t[::1] lower, const int64_t[::1] balance):
        """Load the state that `dump` gave (see `restored`) into an empty basis; return None, or a text that names the fault.

        Every word is checked before it is used, and so is every premise of the proofs at the head of this file: (T), (S), the flows and their balance, and
        their bounds.  The proofs do not need the optimality of the basis.
        """
        cdef const int32_t[::1] name = state["basis_name"], parent = state["basis_parent"], next_ = state["basis_next"], tree = state["basis_tree"]
        cdef const int32_t[::1] slot = state["basis_slot"], spare = state["basis_spare"]
        cdef const int64_t[::1] pot = state["basis_potential"], flow = state["basis_flow"], room = state["basis_room"], cost = state["basis_cost"]
        cdef int32_t n = <int32_t>name.shape[0], m = <int32_t>tail.shape[0], v, u, e, a, code, i, real = 0
        cdef int64_t lo = 0, x, total = 0, limited = 0, top
        cdef bint lowers = lower.shape[0] > 0
        cdef int32_t[::1] ours, path
        cdef int64_t[::1] b
        cdef double[::1] about
        self.volume, self.negative, self.wide, top = state["basis_volume"], state["basis_negative"], state["basis_wide"], state["basis_top_cost"]
        if not 0 < self.wide < HUGE or not self.volume < self.wide - self.negative:
            return "basis_wide: not above all that can flow"
        if top >= RISE_MAX // (n + 1):
            return "basis_top_cost: too large"
        if state["basis_anchor"] > n:
            return "basis_anchor: no such node"
        if not -DEPTH_MAX < state["basis_depth"] < DEPTH_MAX:
            return "basis_depth: out of range"
        # the nodes and the tree
        ours, path = np.full(n + 1, -1, INT32), np.empty(n + 1, INT32)
        self.name = np.full(n + 1, n, INT32)
        for v in range(n):
            if not 0 <= name[v] < n or ours[name[v]] >= 0:
                return f"basis_name[{v}]: {name[v]} is no node, or occurs twice"
            ours[name[v]] = v
            self.name[v] = name[v]
            if not 0 <= parent[v] <= n:
                return f"basis_parent[{v}]: {parent[v]} is no node"
            if not -DRIFT_MAX < pot[v] < DRIFT_MAX:
                return f"basis_potential[{v}]: {pot[v]} is out of range"
        self.link, self.slack, self.node = np.zeros(n + 1, LINK), np.zeros(n + 1, SLACK), np.zeros(n + 1, NODE)
        self.next, self.potential = np.array(next_), np.zeros(n + 1, INT64)
        self.potential[:n] = pot
        self.link[n].parent, self.link[n].depth, self.node[n].code = -1, state["basis_depth"], -1
        self.slack[n].up = self.slack[n].down = CINF
        path[0], i, u = n, 0, n
        for _ in range(n):              # `next` is a preorder iff each node's parent is the one before it or above that
            v = next_[u]
            if not 0 <= v < n:
                return f"basis_next[{u}]: {v} is no node"
            while i >= 0 and path[i] != parent[v]:
                self.node[path[i]].last = u
                i -= 1
            if i < 0:
                return f"basis_next[{u}]: not a preorder of the tree"
            self.node[v].prev, self.link[v].parent, self.link[v].depth = u, parent[v], self.link[parent[v]].depth + 1
            i += 1
            path[i] = v
            u = v
        if next_[u] != n:
            return f"basis_next[{u}]: not a preorder of the tree"
        while i >= 0:
            self.node[path[i]].last = u
            i -= 1
        self.node[n].prev = u
        # the arcs: each in the tree, in a slot, or fixed at its lower bound
        cdef unsigned char[::1] seen = np.zeros(m, np.uint8)
        b, about = np.array(balance), np.zeros(n)
        for v in range(n):
            code = tree[v]
            if code == -1:
                self.node[v].code = -1
                if parent[v] != n:
                    return f"basis_tree[{v}]: only the root has artificial arcs"
                continue
            a = code >> 1
            if not 0 <= a < m or tail[a] < 0 or seen[a] or parent[v] == n:
                return f"basis_tree[{v}]: arc {a} cannot be there"
            seen[a] = 1
            u = name[parent[v]]
            if not (tail[a] == name[v] and head[a] == u if code & 1 == 0 else tail[a] == u and head[a] == name[v]):
                return f"basis_tree[{v}]: arc {a} does not join the node and its parent"
            if not -top <= cost[a] <= top or cost[a] != (pot[parent[v]] - pot[v] if code & 1 == 0 else pot[v] - pot[parent[v]]):
                return f"basis_cost[{a}]: not what the potentials say"
            lo = lower[a] if lowers else 0
            if not 0 <= room[a] <= self.wide or not lo <= flow[a] <= lo + room[a]:
                return f"basis_flow[{a}]: out of bounds"
            x = flow[a] - lo
            if code & 1:
                self.slack[v].up, self.slack[v].down = x, room[a] - x
            else:
                self.slack[v].up, self.slack[v].down = room[a] - x, x
            if self.slack[v].up <= 0:
                return f"basis_flow[{a}]: the tree is not strongly feasible"
            self.node[v].code = code
            real += 1
        self.slots = <int32_t>slot.shape[0]
        if self.slots % 4 or self.slots > m + 3:
            return "basis_slot: wrong length"
        self.slot, self.room, self.code = np.zeros(self.slots, SLOT), np.zeros(self.slots, INT64), np.array(slot)
        for e in range(self.slots):
            code = slot[e]
            if code == -1:
                continue
            a = code >> 1
            if not 0 <= a < m or tail[a] < 0 or seen[a]:
                return f"basis_slot[{e}]: arc {a} cannot be there"
            seen[a] = 1
            lo = lower[a] if lowers else 0
            if not 0 <= room[a] <= self.wide or flow[a] != lo + (room[a] if code & 1 else 0):
                return f"basis_flow[{a}]: not at the bound where its slot has it"
            if not -top <= cost[a] <= top:
                return f"basis_cost[{a}]: {cost[a]} is out of range"
            u, v = ours[tail[a]], ours[head[a]]
            if code & 1:
                self.slot[e].tail, self.slot[e].head, self.slot[e].cost = v, u, -cost[a]
            else:
                self.slot[e].tail, self.slot[e].head, self.slot[e].cost = u, v, cost[a]
            self.room[e] = room[a]
        self.spare = -1
        if spare.shape[0] != real:
            return "basis_spare: as many as arcs in the tree expected"
        for i in range(real - 1, -1, -1):
            e = spare[i]
            if not 0 <= e < self.slots or self.code[e] != -1:
                return f"basis_spare[{i}]: {e} is no dead slot, or occurs twice"
            self.code[e] = -2           # provisional: the slot is in the chain
            self.room[e], self.spare = self.spare, e
        for e in range(self.slots):
            if self.code[e] < 0:
                self.code[e] = -1
        # flows, and the data behind the bounds
        for a in range(m):
            lo = lower[a] if lowers and tail[a] >= 0 else 0
            if not seen[a] and (flow[a] != lo or room[a] or cost[a]):
                return f"basis_flow[{a}]: not in the basis, so it must be at its lower bound, without cost or room"
            if tail[a] < 0:
                continue
            if cost[a] < 0:
                limited = min(limited + room[a], CINF)
            self.total = min(self.total + room[a], CINF)
            # mod 2**64, and approximately: both together prove the balance, where artificial arcs carry the rest
            u, v = <int32_t>tail[a], <int32_t>head[a]
            b[u] = <int64_t>(<uint64_t>b[u] - <uint64_t>flow[a])
            b[v] = <int64_t>(<uint64_t>b[v] + <uint64_t>flow[a])
            about[u] -= <double>flow[a]
            about[v] += <double>flow[a]
        self.n = n
        for v in range(n):
            u = ours[v]
            if b[v] and tree[u] >= 0 or not -HUGE < b[v] < HUGE or not -4e18 < about[v] + <double>balance[v] < 4e18:
                return f"basis_flow: what arrives at node {v} is not what leaves"
            if tree[u] < 0:
                self.hang(u, b[v])
        b = np.array(balance)
        for a in range(m if lowers else 0):
            if tail[a] >= 0:
                b[tail[a]] -= lower[a]
                b[head[a]] += lower[a]
        for v in range(n):
            total += b[v] if b[v] > 0 else -b[v]
        if total > self.volume or limited > self.negative:
            return "basis_volume, basis_negative: less than there is"
        if self.total >= HUGE - self.volume:
            return "basis_room: too much in all"
        self.m, self.top_cost, self.pivots_since_numbering, self.next_scan_budget = m, top, state["basis_worn"], state["basis_trust"]
        self.anchor, self.kept, self.placed = state["basis_anchor"], True, False
        self.flow, self.lower = np.array(flow), np.array(lower)
        return None


def empty():
    """A basis of no nodes and no arcs, which is not `reusable`."""
    return Simplex(*[_zeros(0, INT32)] * 2, *[_zeros(0, INT64)] * 6, False)


def restored(state, const int64_t[::1] tail, const int64_t[::1] head, const int64_t[::1] lower, const int64_t[::1] balance, /):
    """Restore the basis of a `dump`, for the arcs and supplies given (free arc ids have the tail -1); (basis, None), or (None, a text that names the fault)."""
    cdef Simplex basis = empty()
    wrong = basis.adopt(state, tail, head, lower, balance)
    return (basis, None) if wrong is None else (None, wrong)


_ARRAYS32 = ("basis_name", "basis_parent", "basis_next", "basis_tree", "basis_slot", "basis_spare")
_ARRAYS64 = ("basis_potential", "basis_flow", "basis_room", "basis_cost")
_NUMBERS = ("basis_anchor", "basis_depth", "basis_worn", "basis_trust", "basis_volume", "basis_negative", "basis_wide", "basis_top_cost")


def narrowed(const int64_t[::1] ids, int64_t count, /):
    """Convert the ids to 32 bits, each read once; None if one is not in 0 .. count - 1."""
    cdef Py_ssize_t i
    cdef int64_t v
    cdef int32_t[::1] out = _empty(ids.shape[0], INT32)
    if count >= 2**31:
        return None
    for i in range(ids.shape[0]):
        v = ids[i]
        if v < 0 or v >= count:
            return None
        out[i] = <int32_t>v
    return out.base


def total_cost(const int64_t[::1] cost, const int64_t[::1] flow, /):
    """Sum of their products, of any size."""
    cdef Py_ssize_t i
    cdef int64_t total = 0
    cdef double about = 0
    for i in range(cost.shape[0]):
        about += fabs(<double>cost[i]) * <double>flow[i]
        total = <int64_t>(<uint64_t>total + <uint64_t>cost[i] * <uint64_t>flow[i])
    return total if about < 2.0**62 else int((np.asarray(cost).astype(object) * np.asarray(flow)).sum())


def solve(const int32_t[::1] tail, const int32_t[::1] head, const int64_t[::1] capacity, const int64_t[::1] cost,
          const int64_t[::1] supply, const int64_t[::1] lower, double time_limit, const int64_t[::1] flow, const int64_t[::1] potential, int start=START_ANY,
          int64_t bulk=CINF, /):
    """Solve one problem, from scratch or from any flow within the bounds and potentials that are good for it; return (status, answer, proof, stats).

    The supplies must sum to 0 and node ids must be valid; `lower`, `flow` and `potential` may have length 0, `time_limit` is in
    seconds, negative for none.  The answer is, by status,

    OK            the flow by arc; `proof` holds potentials that prove it optimal, it is None otherwise
    INFEASIBLE    a cut, bool by node: these nodes have more to send than can leave them
    UNBOUNDED     arcs of a negative cycle without limit, each starts where the one before it ends (there need not be a feasible flow)
    LATE          out of time: the flow so far by arc, or None without one; with potentials in `proof`, and the gap in the stats
    RANGE         None: exact arithmetic could overflow, or not 0 <= lower <= capacity
    EASY          None: there are at least `bulk` arcs, and shortest paths hold nearly all flow, so that a local repair is likely to be faster
    JOINED        the `Simplex`: with the start of that name many nodes only pass flow on, and one_shot.py takes them out
    """
    cdef Simplex simplex = Simplex(tail, head, capacity, cost, supply, lower, flow, potential, False)
    simplex.start, simplex.bulk = start, bulk
    return simplex.solve(time_limit)
