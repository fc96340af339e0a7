"""The kernel: min-cost flow on a network that is kept between solves, mutated in place and re-optimised where it changed.

The problem
-----------
A network has nodes v with supply b(v) (> 0 sends) and arcs a = (u, v) with bounds l(a) <= f(a) <= c(a) and cost w(a).  The problem is to find a flow f within
its bounds, with b(v) + inflow(v) - outflow(v) = 0 at every node, of least cost sum w(a) f(a).

Symbols and signs
-----------------
Every arc a with id k is two *half-arcs*: 2k (forward, at u, cost w) and 2k+1 (backward, at v, cost -w); the mate of h is h ^ 1.
``residual[h]`` is the residual capacity: c - f forward, f - l backward; h is *residual* when that is > 0.
p is the potential; the *reduced cost* of h = (u, v) is rc(h) = cost(h) + p(u) - p(v), so rc(mate) = -rc.
The *excess* of v is e(v) = b(v) + inflow(v) - outflow(v); a node with e < 0 has a *deficit*.

The invariant
-------------
(I)  rc(h) >= 0 for every residual half-arc h, except for those in ``unsaturable`` (below).

It holds between calls, after *every* mutation and at every step of `repair`.  A flow without excess under which (I) holds is optimal, and p proves it.
Mutations restore (I) at once and look only at the arcs involved.  Where a half-arc would violate (I), the potential of an endpoint of low degree moves, if
that endpoint's own arcs allow it.  Otherwise the half-arc is saturated, which books an excess at its head and a deficit at its tail.  A change thus leaves
epsilon = 0, and solving means routing excesses to deficits; the part of the network that the change does not reach is never scanned.
A half-arc too large to be saturated (``residual >= BIG``, unlimited ones among them) is noted in ``unsaturable``.  When solving starts, `cancel_unsaturable` augments
along shortest cycles through it, until its reduced cost is 0 or a cycle is unlimited.

Incremental cost scaling at epsilon = 0 (`repair`)
--------------------------------------------------
From each excess (and backward from each deficit):

`walk`    augment-relabel, a local push-relabel.  A path grows along residual arcs of reduced cost 0.  A tip without such an arc is relabelled exactly (its
          potential falls until its best arc has reduced cost 0) and the path steps back; at a deficit the path is augmented.  After ``budget`` scanned
          half-arcs the excess goes to
`search`  a shortest-path search on reduced costs, from both ends once the near one has become large.  Potentials move on settled nodes only, so (I) holds
          whenever it stops.

One node may be the *hub*: the node that takes (or sends) at least half of all flow (the sink of a scheduling network).  It ends every path, whatever its own excess:
excesses flow into it, deficits draw from it, and as supplies sum to 0 its excess is 0 in the end.  A round that touches ten of its thousands of arcs thus
does not scan the others.

A worked example
----------------
Three nodes, supplies b = (2, 0, -2), and arcs a0 = (0, 1), a1 = (1, 2), a2 = (0, 2) of capacities 1, 2, 2 and costs 1, 1, 4.  The hub is left out.

Cold.     At f = 0 and p = 0 no residual half-arc has rc < 0, so (I) holds; e = (2, 0, -2).  `walk` from node 0 finds no arc of rc = 0: the relabel p(0) = -1
          makes rc(a0) = 0.  Node 1 is relabelled to p(1) = -1, then node 0 to p(0) = -2, and the path a0, a1 reaches the deficit: 1 unit is sent and a0 is full.
          The relabel p(0) = -4 makes rc(a2) = 0, and the second unit takes a2.  Now f = (1, 1, 1), p = (-4, -1, 0), e = 0, and the cost is 6.
Change.   w(a2) becomes 0, so rc(a2) = -4 while a2 has residual capacity 1.  Neither p(0) + 4 nor p(2) - 4 is allowed: both would give a residual half-arc of a0 or a1
          a negative reduced cost.  So a2 is saturated: f = (1, 1, 2), e = (-1, 0, 1), and (I) holds again.
Warm.     `walk` from node 2 follows the mate of a1 (rc = 0) to node 1, where the only arc of rc = 0 leads back to node 2, and gives up.  `search` finds the path
          2, 1, 0 of length 2 (the mate of a2 has length 4), lowers p(2) and p(1) by 2, and augments.  Now f = (0, 0, 2), p = (-4, -3, -2), and the cost is 0.

Cost scaling
------------
From scratch it is kernels/scaling.pyx: push-relabel on a compact copy of the network, from epsilon = the largest cost / 256, divided by 32 until the flow is optimal.  Flow and
potentials are brought back with (I).  From the last solution it starts at the epsilon that the changes left.  By (I) that is 0, so it is `repair`, the last and exact phase of
scaling, at the nodes that changes have activated.  After SCALING_SCANS scans for each arc, or, once a
scaling has been timed, when repair is unlikely to end within the fraction WORTH of that time, the change is not local, and scaling starts from scratch.

State after an exception
------------------------
(E)  A call that raises has changed nothing that can be seen.  A mutation makes room first: it checks its arguments, allocates every array that it may need,
     and only then assigns and changes, without an allocation, a Python call or a check for signals.  While solving, room is made at the start of every step
     that moves flow or potentials (`reserve_journal`), so that a step is made whole or not at all.  A step that may break (I) (`start_anew`, `complete`) sets ``may_violate`` and
     makes room for its own undoing before it begins (`reserve_all`), and `optimise` has one way out of every failure, which restores (I).
     The result of a solve is laid out before the last solution is given up for the new one (`conclude`).
(X)  One call at a time: every call but `arcs_compared` takes ``busy``, and none waits for it.  A second thread, a signal handler, a finaliser or a callback that
comes while a call
     is under way gets ConcurrentUseError at once, and so does the child of a fork that was made meanwhile.
(A)  Arrays given no longer belong to the caller: network/flow_network.py hands over copies, so the values checked are the values used.
(U)  An unlimited arc never counts as full.  Its residual capacity starts from 2**62; if flow uses that up (``unlimited_full``) and the answer rests on it, or if an excess
     leaves its range (``overflowed``), the network is solved once more from scratch, and CostRangeError is raised if that does not help.

The simplex (kernels/simplex.pyx)
---------------------------------
It takes over once repair has scanned enough that the simplex is likely to be faster, and brings flow and potentials back with (I).  Its basis is kept as
long as nodes and arcs stay: ``changes`` lists the changes since, and the next solve starts there if that is likely to be cheaper than repair, judged by
the recent cost of both.

Time limits
-----------
Repair stops when the rest of the time is needed for the remaining excesses: `complete` sends them by walks at a large epsilon, in a copy of the potentials, and
`conclude` then restores (I).  The simplex hands over the best flow that it has, and its basis stays as it is: `report` makes that flow the last
solution by writing it to the journals alone, so the present flow remains the one of repair.  If it has none, and repair has not much left to `complete`, it stops in time
for that (`rescue`): then repair answers, and the next solve goes on with the basis.

Complexity
----------
n nodes, m arcs, C the largest |cost|, D the sum of |e| when solving starts:

change of a cost, capacity or supply    O(1) half-arcs: at most LOW_DEGREE at each of two endpoints, and a move between the four regions of a block
arc added, arc removed                  O(1) amortised over the growth of blocks and arrays
node removed                            O(its degree)
`walk`                                  about ``budget`` scanned half-arcs between two augmentations
`search`                                O(m + n log(n C)), with a radix heap; it scans the adjacency of settled nodes only
`repair`                                at most D augmentations, as each sends at least one unit: O(D (m + n log(n C))), pseudo-polynomial
`mark_reachable`, `conclude`                     O(n + m) for a cut; a pass over the journals for a result
simplex, scaling                        O(n + m) to load and to bring back, besides their own steps (see their heads)

References
----------
A. V. Goldberg, An efficient implementation of a scaling minimum-cost flow algorithm (1997), and U. Bünnagel, B. Korte and J. Vygen, Efficient implementation of the
Goldberg-Tarjan minimum-cost flow algorithm (1998): push-relabel for min-cost flow; `walk` relabels as they do, `scaling` hands over to their algorithm.
P. Kovács, Minimum-cost flow algorithms: an experimental evaluation (2015): augmenting along a path of admissible arcs in place of single pushes (`walk`), and
the block search of the simplex (`simplex`).
D. P. Bertsekas and P. Tseng, RELAX: a computer code for minimum cost network flow problems (1988): reduced-cost optimality kept at every step, with steps of one node's
potential (`shift_potential`, the relabels of `walk` at epsilon = 0); a relabel never lowers the dual cost, and raises it (dual ascent) where the node has an excess.
W. H. Cunningham, A network simplex method (1976): the strongly feasible basis that `simplex.Simplex.resume` starts from.
The Sirius paper (incremental cost scaling, ICS): `repair` from the last solution.

Where to read on: kernels/residual.pyx has arrays, mutations and journals, kernels/search.pyx the shortest paths and the hub, kernels/auto.pyx the choice between
algorithms.  `Network` extends them in this order.  network/flow_network.py calls its methods: mutations -> `restore_optimality` -> `shift_potential`, `push`;
`solve` -> `optimise` -> `attempt` -> `run` -> `cancel_unsaturable`, `pace`, `repair` -> `walk`, `search`; `simplex_answer`, `scaling_answer` -> `take_over`.
Nothing here depends on
clusters.  Python objects are touched only to grow arrays, to check for signals and to hand out results.
"""

cimport cython
from cpython cimport array
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport qsort

from flowsched._faults cimport FS_FUEL, _copy, _empty, _zeros, fs_allocate
from flowsched.kernels.auto cimport (
    ARC_NS, AUTO, BY_REPAIR, BY_SIMPLEX, LOAD_NS, MOVE_NS, NODE_NS, PIVOT_NS, REPAIR, RIPE_NS, SCALE_NS, SCALING, SIMPLEX, SLOT_NS, Auto,
)
from flowsched.kernels.heap cimport FAR
from flowsched.kernels.residual cimport (
    AHEAD, AUGMENTATIONS, CINF, COUNTERS, F_CAPACITY, F_COST, F_HEAD, F_LOWER, F_REDUCED, F_TAIL, LOW_DEGREE, POT_MAX, RELABELS, SEARCH_SCANS, WALK_SCANS,
    fs_write_soon, mag, number, too_much, whole,
)
from flowsched.kernels.status cimport AGAIN, BEHIND, DECLINED, INFEASIBLE, INTERRUPTED, LATE, OK, PROBE, RANGE, SPENT, STUCK, UNBOUNDED, WHOLE
from flowsched.kernels.wide cimport fs_muladd

import time
from array import array as new_array

import numpy as np

from flowsched.exceptions import CostRangeError, InfeasibleError, InputError, TimeLimitError, UnboundedError
from flowsched.kernels import scaling, simplex

INF = 2**62            # an unlimited capacity, exactly
cdef int64_t SCALING_SCANS = 16  # scanned half-arcs per arc after which a change is not local, and cost scaling starts from the largest cost
cdef double FINISH = 0.3         # under a limit: time to complete the last excesses and hand over the flow, relative to repair's time so far
cdef int64_t SIMPLEX_SCANS = 14  # scanned half-arcs per arc that a simplex start and an early end take
cdef int64_t LOADING_SCANS = 3   # scanned half-arcs per arc that a simplex start takes, where `complete` answers if the simplex does not finish
cdef double HASTE = 4            # time to complete an excess, relative to repair's mean time for one: the excesses that are left are the hardest
cdef double ANSWER_SCANS = 0.6   # scanned half-arcs per arc that the answer takes afterwards
cdef int64_t STRIDE = 100000     # half-arcs that a walk may scan between two checks of the clock

cdef tuple _WAYS = ("auto", "repair", "cost_scaling", "network_simplex")
cdef object _perf_counter = time.perf_counter
ALGORITHMS = {name: i for i, name in enumerate(_WAYS)}      # `algorithm` of `Network.solve`
TAIL, HEAD, CAPACITY, COST, LOWER, REDUCED = F_TAIL, F_HEAD, F_CAPACITY, F_COST, F_LOWER, F_REDUCED     # `field` of `Network.arc_data`

COUNTER_NAMES = ("pushes", "relabels", "augmentations", "walk_scans", "search_scans", "searches", "settled", "refines")
cdef tuple _COUNTERS = COUNTER_NAMES        # faster to look up than the module's name
cdef dict _NO_COUNTS = dict.fromkeys((*COUNTER_NAMES, "algorithm", "warm", "cold_solves", "warm_solves", "gap", "seconds"), 0)

cdef array.array _NUMBERS = new_array("q")


cdef array.array _numbers(Py_ssize_t count):
    """Memory for ids, not initialised."""
    fs_allocate()
    return array.clone(_NUMBERS, count, False)


cdef int ascending(const void *a, const void *b) noexcept nogil:
    cdef int64_t x = (<const int64_t *> a)[0], y = (<const int64_t *> b)[0]
    return (x > y) - (x < y)


@cython.final
cdef class Network(Auto):
    """A network and its last solution; see the head of this file."""

    # -- one solve ------------------------------------------------------------------------------------------
    cdef double begun                      # by time.monotonic
    cdef double first                      # time of the first check of the clock, 0 before it
    cdef int64_t seen                      # half-arcs scanned before it
    cdef double grace                      # time after which not even the completion of a flow may go on
    cdef double stopped                    # time at which `complete` began; < 0: minus the time from there to the answer of the last solve, which was late
    cdef int32_t turn                      # `repair` is at active[turn]
    cdef int32_t stuck_node, stuck_sign    # node from which nothing can be routed, and its sign
    cdef object statistics                 # counters of the kernel for whole networks
    cdef int way                           # the algorithm that answers
    cdef object late_outcome               # outcome of a kernel for whole networks that was late with a flow, else None
    cdef int64_t given_up                  # work of a simplex that was given up in this solve, in ns
    cdef int64_t solves[2]                 # number of cold and warm solves
    # -- the simplex's last basis -----------------------------------------------------------------------------
    cdef object basis                      # a `simplex.Simplex`, None without one
    cdef int64_t[::1] basis_supply         # supplies of which the basis knows
    cdef int32_t[::1] may_differ           # arcs whose flow in the last solution may not be that of the basis, in may_differ[:may_differ_count]
    cdef int32_t may_differ_count          # -1: any may be
    cdef int64_t flows_compared            # number of flows compared with those of the basis the last time
    cdef bint at_basis                     # flows are those of the basis

    @cython.embedsignature(True)
    def __init__(self):
        Auto.__init__(self)
        self.basis_supply, self.may_differ = self.none64, self.none32

    cdef int drop_basis(self) except -1:
        if not self.based:      # nearly always where nodes and arcs come and go
            return 0
        self.basis, self.may_differ, self.basis_supply = None, self.none32, self.none64
        return Auto.drop_basis(self)

    # == repair ===============================================================================================

    cdef inline int32_t due(self, int32_t i, int sign) noexcept nogil:
        """The node active[i] if it has an excess of this sign, else -1."""
        return self.active[i] if i < self.active_count and self.excess[self.active[i]] * sign > 0 else -1

    cdef int fetch_turn(self, int32_t i, int sign) noexcept nogil:
        """Prefetch the memory that the walks from active[i:] read first, one address of the chain in each step."""
        cdef int32_t v, at
        if i + 4 * AHEAD < self.active_count:
            v = self.active[i + 4 * AHEAD]
            fs_write_soon(&self.node[v])
            fs_write_soon(&self.excess[v])
            fs_write_soon(&self.potential[v])
        v = self.due(i + 2 * AHEAD, sign)
        if v >= 0:
            for at in range(self.node[v].first, self.node[v].first + min(self.node[v].region[2], LOW_DEGREE), 4):
                fs_write_soon(&self.half[at])
        v = self.due(i + AHEAD, sign)
        if v >= 0:
            for at in range(self.node[v].first, self.node[v].first + min(self.node[v].region[2], LOW_DEGREE)):
                fs_write_soon(&self.potential[self.half[at].head])
                fs_write_soon(&self.node[self.half[at].head])
        return 0

    cdef bint late(self, double now) except -1 nogil:
        """True if the remaining time is needed for completing the flow.

        An excess takes `complete` about the mean time of repair for one.
        """
        if self.may_violate:
            return now >= self.grace
        if not self.first:      # an average over the start is unreliable
            self.first, self.seen = now, self.scans()
            return 2 * now >= self.begun + self.deadline
        return now + self.spent(now) * (<double>(self.active_count - self.turn) / (self.turn + 1) + FINISH) >= self.deadline

    cdef int64_t scans(self) noexcept nogil:
        return self.count[WALK_SCANS] + self.count[SEARCH_SCANS]

    cdef double spent(self, double now) noexcept nogil:
        """Estimated seconds of all scans, at the rate since the first check of the clock: before it, memory is touched for the first time."""
        cdef int64_t scans = self.scans()
        return (now - self.first) * scans / (scans - self.seen) if scans > self.seen and self.first else now - self.begun

    cdef int repair(self) except -1 nogil:
        """Route every excess and deficit; invariant (I) holds throughout."""
        cdef int32_t i, v, status
        cdef int sign
        self.settle_hub()
        for sign in range(1, -2, -2):
            for i in range(self.active_count):
                v = self.active[i]
                self.turn = i if sign > 0 else self.active_count
                self.fetch_turn(i, sign)
                if self.excess[v] * sign > 0 and v != self.hub:
                    status = self.route(v, sign)
                    if status != OK:
                        return status
        self.clear_active()
        return OK

    cdef int route(self, int32_t s, int sign) except -1 nogil:
        """Send s's excess to deficits (sign 1), or draw its deficit from excesses (sign -1)."""
        cdef int status
        while self.excess[s]:
            status = self.walk(s, sign, 0, self.budget)
            if status == STUCK:
                status = self.search(s, sign, -1, FAR)
                if status == INFEASIBLE:
                    self.stuck_node, self.stuck_sign = s, sign
            if status != OK:
                return status
        return OK

    cdef int walk(self, int32_t s, int sign, int64_t eps, int64_t budget) except -1 nogil:
        """Grow a path of admissible half-arcs from s, relabelling at dead ends, and augment along it (augment-relabel).

        Admissible are rc < 0, and rc = 0 at eps = 0; a relabelled node's best half-arc gets rc = -eps.  At eps = 0 admissible half-arcs may
        form cycles, so a node on the path, or a dead end that was not relabelled, is marked and not entered again.
        """
        cdef int32_t tip = s, depth = 0, i, lo, hi, v, onward, scan, nearest
        cdef int status
        cdef int64_t rc, best, p, left = budget, most = -1 if eps else 0
        self.next_stamp()
        self.mark[s] = self.stamp
        while self.excess[s]:
            self.residual_range(tip, sign, &lo, &hi)
            p = self.potential[tip]
            best = FAR
            onward, nearest = -1, lo
            i = self.node[tip].first + self.node[tip].hint
            if not lo <= i < hi:
                i = lo
            for scan in range(hi - lo):
                v = self.half[i].head
                rc = self.half[i].cost + p - self.potential[v]
                if sign < 0:
                    rc = -rc
                if rc <= most and (self.mark[v] != self.stamp or self.is_end(v, sign)):
                    onward = i
                    left += hi - lo - scan
                    break
                if rc < best:
                    best, nearest = rc, i
                i += 1
                if i == hi:
                    i = lo
            left -= hi - lo + 1
            if left < 0 and onward < 0:
                break
            if onward >= 0:
                self.node[tip].hint = onward - self.node[tip].first
                self.path[depth] = self.half[onward].id
                if self.is_end(v, sign):
                    self.augment_walk(&tip, &depth, s, sign)
                    status = self.spend(WALK_SCANS, budget - left)
                    left = budget
                    if status != OK:
                        return status
                else:
                    depth += 1
                    tip = v
                    self.mark[tip] = self.stamp
            else:
                if best == FAR and depth:       # no residual arc leaves the tip: lower its potential by more than any cost, so that no path enters it again
                    best = self.cost_bound + 1
                if best > most and best < FAR:
                    if not -POT_MAX < p - (best + eps) * sign < POT_MAX:
                        return RANGE
                    self.reserve_journal(0, 1)
                    self.set_potential(tip, p - (best + eps) * sign)
                    self.node[tip].hint = nearest - self.node[tip].first
                    self.count[RELABELS] += 1
                    if depth:
                        self.mark[tip] = 0
                elif not depth:
                    break
                if depth:
                    depth -= 1
                    tip = self.tail(self.path[depth])
        status = self.spend(WALK_SCANS, budget - left)
        return STUCK if status == OK and self.excess[s] else status

    cdef int augment_walk(self, int32_t *tip, int32_t *depth, int32_t s, int sign) except -1 nogil:
        """Augment along path[0..depth]; cut the path before the first half-arc that becomes saturated."""
        cdef int32_t length = depth[0] + 1, i, h, t
        cdef int64_t amount = mag(self.excess[s])
        self.reserve_journal(length, 0)
        t = self.head(self.path[length - 1])
        if t != self.hub:
            amount = min(amount, mag(self.excess[t]))
        for i in range(length):
            h = self.path[i] if sign > 0 else self.path[i] ^ 1
            amount = min(amount, self.residual[h])
        for i in range(length - 1, -1, -1):
            h = self.path[i] if sign > 0 else self.path[i] ^ 1
            if i < length - 1:
                self.mark[self.head(self.path[i])] = 0
            self.send(h, amount)
            if self.residual[h] == 0:
                depth[0] = i
        for i in range(depth[0]):
            self.mark[self.head(self.path[i])] = self.stamp
        tip[0] = self.tail(self.path[depth[0]])
        self.add_excess(s, -amount * sign)
        self.add_excess(t, amount * sign)
        self.count[AUGMENTATIONS] += 1
        return 0

    # == a solve ==============================================================================================

    cdef int run(self, int algorithm, bint warm) except -1 nogil:
        """Solve by repair while that is likely to be the fastest algorithm.

        BEHIND or WHOLE if a kernel for whole networks is to take over, AGAIN for a solve from scratch, PROBE if repair from scratch is to be tried.
        """
        cdef int status
        cdef double cold = self.cold(self.record.scaled if algorithm == SCALING else self.record.cold)
        self.scans_left, self.size = FAR, self.active_count
        self.bounded = warm and algorithm == AUTO and self.patience < 0 and not self.stopped_algorithm and cold < FAR
        self.way = SCALING if algorithm == SCALING else REPAIR
        if algorithm == SCALING and (not warm or self.stopped_algorithm == SCALING and not self.reshaped):
            return WHOLE
        if algorithm == AUTO:
            status = self.first_choice(cold)
            if status != OK:
                return status
        status = self.cancel_unsaturable()
        if status != OK:
            return status
        if algorithm == SIMPLEX:
            return WHOLE if self.uneven() else OK
        if self.bounded and self.size and not self.is_promising(BY_REPAIR, cold):
            return WHOLE
        if self.reshaped and (self.off_centre or warm and self.mostly_changed()):
            status = self.centre()
            if status != OK:
                return status
        if algorithm == SCALING:
            self.scans_left = FAR if cold < FAR else SCALING_SCANS * (<int64_t>self.live_arcs + 1000)
        elif algorithm == AUTO:
            self.scans_left = self.scans_allowed(warm)
        if self.patience >= 0 and algorithm != REPAIR:
            self.scans_left = self.patience
        if algorithm == AUTO and not warm and self.patience < 0:
            status = self.pace()
        elif (self.bounded or algorithm == SCALING and self.patience < 0) and cold < FAR:
            status = self.repair_within(cold)
        else:
            status = self.repair()
            if status == SPENT:
                status = BEHIND
        if status == PROBE:
            return status
        self.learn_repair(status == BEHIND)
        if warm and (status == OK or status == BEHIND) and self.centring_pays(status) and status == OK:
            status = self.centre()
        return BEHIND if status == SPENT else status

    def solve(self, int algorithm, double time_limit, /):
        """Optimise from the present state; return (cost, changed arc ids, stats), or raise.

        `algorithm`: AUTO (repair, and the simplex if that takes too long), REPAIR, SCALING (repair where only the nodes that changes have activated are to be
        settled, else scaling from the largest cost) or SIMPLEX; by name in `ALGORITHMS`.
        `time_limit` in seconds, negative for none.
        """
        start = _perf_counter()
        _call = self.begin()
        return self.optimise(algorithm, time_limit, start, True)

    def resolve(self, double time_limit, /):
        """Optimise as `solve` does by AUTO; return (cost, array of changed arc ids, gap), for callers that read no counters."""
        _call = self.begin()
        return self.optimise(AUTO, time_limit, 0, False)

    cdef object optimise(self, int algorithm, double time_limit, double start, bint counted):
        cdef int status, i
        cdef bint late = False, warm = self.solved
        if self.supply_sum:
            raise InfeasibleError(
                f"the supplies sum to {self.supply_sum}, not to 0", self.living() if self.supply_sum > 0 else _zeros(self.n, bool))
        for i in range(COUNTERS):
            self.count[i] = 0
        self.begun, self.turn, self.first = time.monotonic() if time_limit >= 0 else 0, 0, 0
        self.deadline = self.begun + time_limit if time_limit >= 0 else 0
        self.grace = self.deadline + max(time_limit / 40, 0.005)
        self.until_poll = self.poll_interval = FS_FUEL // 16 if time_limit >= 0 else FS_FUEL      # a short limit may be over at the first look
        self.statistics, self.late_outcome = {}, None
        try:
            if self.overflowed:
                self.start_anew()
            status = self.attempt(algorithm, warm, &late)
            if self.is_invalid(status):
                self.start_anew()
                status = self.attempt(algorithm, False, &late)
                if self.is_invalid(status):
                    status = RANGE
            if self.late_outcome is not None and self.late_outcome[1] is not None:
                return self.report(warm, start, counted)
            if status != OK:
                self.raise_failure(status)
            answer = self.conclude(late, warm, start, counted)
            self.stopped = self.stopped - time.monotonic() if late else 0
            return answer
        except BaseException:       # the only way out of every failure
            if self.may_violate:
                self.saturate_all()
            raise

    cdef int attempt(self, int algorithm, bint warm, bint *late) except -1:
        """Find an optimum, or any feasible flow if it is `late`."""
        cdef int status
        cdef bint given_up
        self.at_basis = self.bounded = self.probed = False
        self.given_up = self.probe_time = 0
        with nogil:
            status = self.run(algorithm, warm)
        if status == PROBE:
            status = self.probe()
            if status == BEHIND:
                with nogil:
                    status = self.run(algorithm, warm)
        if not warm and algorithm == AUTO and status == OK:
            self.note_cold(self.repaired(), REPAIR)
        given_up = status == BEHIND or status == WHOLE
        if given_up and algorithm == SCALING:
            status = self.scaling_answer()
        elif self.bounded and (given_up or status == AGAIN):
            status = self.hand_over(status == AGAIN)
        elif given_up or status == LATE and algorithm == AUTO:
            if self.hopeless():
                self.simplex_due = given_up
                status = DECLINED if given_up else LATE
            else:
                status = self.simplex_answer(warm, warm or algorithm == SIMPLEX, -1)
        if status == DECLINED:
            self.scans_left = FAR
            with nogil:
                status = self.cancel_unsaturable()
                if status == OK:
                    status = self.repair()
        late[0] = status == LATE and self.unsaturable_count == 0 and self.late_outcome is None
        if late[0]:
            self.stopped = time.monotonic()
            status = self.complete()
        return status

    cdef int probe(self) except -1:
        """Try repair from scratch while its pace lasts; BEHIND, with flow and potentials as before, if it loses that.

        The time of a change says little about that of a cold solve: a planar network whose supplies are all new may be solved in a pass from scratch.
        """
        cdef int64_t before, size = self.size, hub_seen = self.hub_size, delta
        cdef int64_t[::1] res, pot, exc
        cdef int32_t v, a, hub = self.hub
        cdef int status
        cdef bint unlimited_full = self.unlimited_full
        with nogil:
            status = self.cancel_unsaturable()
        if status != OK:
            return BEHIND if status == SPENT else status
        res, pot, exc = _copy(self.residual[:2 * self.m]), _copy(self.potential[:self.n]), _copy(self.excess[:self.n])
        self.probed = True
        before = self.repaired()
        status = self.repair_anew()
        if status != BEHIND:        # an answer, or a proof in terms of the present flow
            return status
        self.probe_time += self.repaired() - before
        self.reserve_all()
        # Nothing can fail from here on.
        self.clear_active()
        for v in range(self.n):
            if self.node[v].region[3] >= 0:
                self.set_potential(v, pot[v])
                self.excess[v] = exc[v]
                if exc[v]:
                    self.add_excess(v, 0)
        for a in range(self.m):
            if self.position[2 * a] >= 0:
                delta = res[2 * a + 1] - self.residual[2 * a + 1]
                if delta > 0:
                    self.send(2 * a, delta)
                elif delta < 0:
                    self.send(2 * a + 1, -delta)
        self.unsaturable_count, self.turn, self.size, self.hub, self.hub_size, self.unlimited_full = 0, 0, size, hub, hub_seen, unlimited_full
        self.probe_failed()
        return BEHIND

    cdef int hand_over(self, bint anew) except -1:
        """Solve after repair of a change was given up: by the simplex from the present state, within the time left to waste, else from scratch."""
        cdef int status = AGAIN
        cdef double cold = self.cold(self.record.cold)
        cdef int64_t limit = self.simplex_limit(cold)
        if self.hopeless():
            self.simplex_due = True
            return DECLINED
        if anew or self.record.cold_way == REPAIR:
            return self.solve_anew()
        if limit and self.is_promising(BY_SIMPLEX, cold):
            status = self.simplex_answer(True, True, limit)
        if status == AGAIN:
            if limit:
                self.recorded()[BY_SIMPLEX] = <int64_t>cold + 1
            return self.solve_anew()
        return status

    cdef int solve_anew(self) except -1:
        """Solve from scratch, as a new network, by the algorithm that answered the last time; repair goes first where the network may have become easier."""
        cdef int status = BEHIND
        self.drop_basis()
        if not self.deadline and self.easier_now(np.count_nonzero(self.all_supplies())):
            status = self.repair_anew()
        return self.simplex_answer(False, False, -1) if status == BEHIND else status

    cdef int repair_anew(self) except -1:
        """Reset flow and potentials and repair while the pace lasts; BEHIND if it loses that."""
        cdef int64_t before = self.repaired()
        cdef int status
        self.start_anew()
        self.size, self.hub_size, self.way = self.active_count, 0, REPAIR     # another node may be the hub by now
        with nogil:
            status = self.cancel_unsaturable()
            if status == OK:
                status = self.pace()
        if status == OK:
            self.note_cold(self.repaired() - before, REPAIR)
        return BEHIND if status == SPENT else status

    cdef bint hopeless(self) except -1:
        """True if the remaining time is too short for a new start of the simplex, judged by the speed of repair."""
        cdef int64_t scans = self.scans(), start = SIMPLEX_SCANS
        cdef double now = time.monotonic(), rescue = self.rescue(now)
        if rescue >= 0:
            now += rescue
            start = LOADING_SCANS
        return self.deadline > 0 and not self.based and scans > 0 and (self.deadline - now) * scans < self.spent(now) * start * self.live_arcs

    cdef object left(self):
        """Seconds until the deadline; -1 without one."""
        return max(self.deadline - time.monotonic(), 0) if self.deadline else -1.0

    cdef double rescue(self, double now) except? -2:
        """Estimated seconds of `complete` and `conclude`, from the last time or from repair's time so far; negative if unknown."""
        cdef int64_t scans = self.scans(), left = self.count_uneven(), done = self.active_count - left
        if self.unsaturable_count or not self.deadline:
            return -1
        if self.stopped < 0:
            return -self.stopped
        if not scans or done < left:        # too few excesses are settled for an estimate
            return -1
        return self.spent(now) * (HASTE * left / <double>done + ANSWER_SCANS * self.live_arcs / <double>scans)

    cdef bint is_invalid(self, int status) except -1:
        """True if the present flow and potentials are useless: out of range, or resting on an unlimited arc that is full."""
        cdef int32_t a
        cdef bint full = False
        if status == UNBOUNDED or status == LATE or status == INTERRUPTED:
            return False
        if status == RANGE or self.overflowed:
            return True
        if self.unlimited_full:
            self.count[WALK_SCANS] += self.m
        for a in range(self.m if self.unlimited_full else 0):
            if self.position[2 * a] >= 0 and self.residual[2 * a] == 0 and self.unlimited(2 * a):
                full = True
                if status == INFEASIBLE or self.reduced(2 * a) < 0:
                    return True
        self.unlimited_full = full
        return False

    # == results ==============================================================================================

    cdef object conclude(self, bint late, bint warm, double start, bint counted):
        """Make the present flow the last solution: (cost, ids of arcs whose flow differs from the one before, ascending, stats or the gap)."""
        cdef int32_t i, a, changed = 0, violations = 0
        cdef int64_t gap_hi = 0
        cdef uint64_t gap_lo = 0
        cdef array.array out
        cdef int64_t *ids
        cdef bint arcs_anew, nodes_anew
        cdef int32_t[::1] half, jarc, jnode
        cdef int64_t[::1] jflow, jpot
        # 1. Steps that may fail.
        for i in range(self.journal_arcs if self.solved else self.m):      # only arcs whose flow moved can differ
            a = self.journal_arc[i] if self.solved else i
            if a < 0 or self.position[2 * a] < 0:
                continue
            changed += self.flow_of(a) != (self.journal_flow[i] if self.solved else 0)
        out = _numbers(changed)
        ids = <int64_t*> out.data.as_longlongs
        changed = 0
        for i in range(self.journal_arcs if self.solved else self.m):
            a = self.journal_arc[i] if self.solved else i
            if a >= 0 and self.position[2 * a] >= 0 and self.flow_of(a) != (self.journal_flow[i] if self.solved else 0):
                ids[changed] = a
                changed += 1
        if self.solved and changed < 256:
            qsort(ids, changed, sizeof(int64_t), &ascending)
        elif self.solved:
            np.asarray(out).sort()
        if late:
            violations = self.find_violations(self.none32)  # `complete` pays little regard to cost
        if violations:
            half = _zeros(violations, np.int32)
            self.find_violations(half)
            for i in range(violations):
                fs_muladd(&gap_hi, &gap_lo, -self.reduced(half[i]), self.residual[half[i]])
            self.grow_unsaturable(violations)
        # A large round must not hold its memory for ever.
        arcs_anew = self.journal_arc.shape[0] > 1024 and self.journal_arc.shape[0] > self.m // 8 or violations > self.journal_arc.shape[0]
        if arcs_anew:
            jarc, jflow = _zeros(max(16, violations), np.int32), _zeros(max(16, violations), np.int64)
        nodes_anew = self.journal_node.shape[0] > 1024 and self.journal_node.shape[0] > self.n // 8 or violations > self.journal_node.shape[0]
        if nodes_anew:
            jnode, jpot = _zeros(max(16, violations), np.int32), _zeros(max(16, violations), np.int64)
        gap = number(gap_hi, gap_lo)
        answer = number(self.cost_high, self.cost_low), np.frombuffer(out, np.int64) if counted else out, self.summary(self.statistics, gap, warm, start) if counted else gap
        # 2. Steps that cannot.
        for i in range(self.journal_arcs if self.based and not self.at_basis else 0):
            a = self.journal_arc[i]
            if self.may_differ_count >= 0 and a >= 0 and self.flow_of(a) != self.journal_flow[i]:
                if self.may_differ_count == self.may_differ.shape[0]:
                    self.may_differ_count = -1
                    break
                self.may_differ[self.may_differ_count] = a
                self.may_differ_count += 1
        if self.solved:
            self.clear_journal()
        if arcs_anew:
            self.journal_arc, self.journal_flow = jarc, jflow
        if nodes_anew:
            self.journal_node, self.journal_potential = jnode, jpot
        if self.usable() and not self.at_basis and self.size:
            self.behind = True
        self.solved, self.reshaped = True, False
        self.solves[1 if warm else 0] += 1
        for i in range(violations):
            self.restore_optimality(half[i])
        self.may_violate = False
        return answer

    cdef int32_t find_violations(self, int32_t[::1] into) except -1 nogil:
        """Count the residual half-arcs of rc < 0 among those that moved since the last solution; write them to `into` as far as there is room."""
        cdef int32_t i, v, h, k = 0
        for i in range(2 * self.journal_arcs if self.solved else 0):
            h = 2 * self.journal_arc[i >> 1] | i & 1
            if h >= 0 and self.position[h] >= 0 and self.position[h ^ 1] >= 0 and self.residual[h] > 0 and self.reduced(h) < 0:
                if k < into.shape[0]:
                    into[k] = h
                k += 1
        for v in range(0 if self.solved else self.n):
            for i in range(self.node[v].first, self.node[v].first + self.node[v].region[1]):
                if self.half[i].cost + self.potential[v] - self.potential[self.half[i].head] < 0:
                    if k < into.shape[0]:
                        into[k] = self.half[i].id
                    k += 1
        return k

    cdef object report(self, bint warm, double start, bint counted):
        """Make the flow at which a kernel for whole networks was stopped the last solution; as `conclude`.

        It is written to the journals alone: the present flow and potentials are those of repair, for which (I) holds.  The simplex goes on from its basis, cost
        scaling from this flow.
        """
        _, answer, potential, statistics = self.late_outcome
        gap = self.gap(answer)
        if gap is not None and gap < statistics["gap"]:
            statistics["gap"], potential = gap, self.potential.base
        cdef const int64_t[::1] flow = answer, pot = potential
        cdef int64_t high = self.cost_high, old
        cdef uint64_t low = self.cost_low
        cdef int64_t[::1] jflow, jpot
        cdef array.array out
        cdef int64_t *ids
        cdef int32_t[::1] jarc, jnode
        cdef int32_t a, v, changed = 0, arcs = 0, nodes = 0
        # 1. Steps that may fail.
        for a in range(self.m):
            if self.position[2 * a] >= 0:
                old = self.flow_of(a)
                if flow[a] != old:
                    arcs += 1
                    fs_muladd(&high, &low, flow[a] - old, self.half[self.position[2 * a]].cost)
                changed += flow[a] != self.last_flow(a)
        for v in range(self.n):
            nodes += self.node[v].region[3] >= 0 and pot[v] != self.potential[v]
        out = _numbers(changed)
        jarc, jflow, jnode, jpot = _empty(arcs + 16, np.int32), _empty(arcs + 16, np.int64), _empty(nodes + 16, np.int32), _empty(nodes + 16, np.int64)
        ids, changed = <int64_t*> out.data.as_longlongs, 0
        for a in range(self.m):
            if self.position[2 * a] >= 0 and flow[a] != self.last_flow(a):
                ids[changed] = a
                changed += 1
        gap = statistics["gap"]
        answer = number(high, low), np.frombuffer(out, np.int64) if counted else out, self.summary(statistics, gap, warm, start) if counted else gap
        # 2. Steps that cannot.
        self.clear_journal()
        arcs = nodes = 0
        for a in range(self.m):
            if self.position[2 * a] >= 0 and flow[a] != self.flow_of(a):
                jarc[arcs], jflow[arcs], self.arc_entry[a] = a, flow[a], arcs
                arcs += 1
        for v in range(self.n):
            if self.node[v].region[3] >= 0 and pot[v] != self.potential[v]:
                jnode[nodes], jpot[nodes], self.node_entry[v] = v, pot[v], nodes
                nodes += 1
        self.journal_arc, self.journal_flow, self.journal_node, self.journal_potential, self.journal_arcs, self.journal_nodes = jarc, jflow, jnode, jpot, arcs, nodes
        self.solved, self.reshaped, self.late_outcome = True, False, None
        self.solves[1 if warm else 0] += 1
        return answer

    cdef dict summary(self, dict statistics, gap, bint warm, double start):
        """Counters of a solve that ends now: its own, and those of the kernel for whole networks in `statistics`."""
        cdef dict stats = _NO_COUNTS.copy()
        cdef int i
        for i in range(COUNTERS):
            if self.count[i]:
                stats[_COUNTERS[i]] = self.count[i]
        if statistics:
            stats.update(statistics)
        if self.given_up:
            stats["given_up"] = self.given_up
        stats["algorithm"] = _WAYS[self.way]
        stats["warm"], stats["cold_solves"], stats["warm_solves"] = warm, self.solves[0] + (not warm), self.solves[1] + warm
        stats["gap"], stats["seconds"] = gap, <double>_perf_counter() - start
        return stats

    cdef object gap(self, const int64_t[::1] flow):
        """Sum of -rc * room over the residual half-arcs of rc < 0 of a feasible flow, at the present potentials; None while an unlimited arc has rc < 0."""
        cdef int32_t v, i, a
        cdef int64_t rc, high = 0
        cdef uint64_t low = 0
        if self.unsaturable_count:
            return None
        for v in range(self.n):
            for i in range(self.node[v].first, self.node[v].first + self.node[v].region[3]):
                rc = self.half[i].cost + self.potential[v] - self.potential[self.half[i].head]
                if rc and self.half[i].id & 1 == 0:
                    a = self.half[i].id >> 1
                    if rc > 0:
                        fs_muladd(&high, &low, rc, flow[a] - (self.lower[a] if self.lower.shape[0] else 0))
                    else:
                        fs_muladd(&high, &low, -rc, self.residual[2 * a] + self.flow_of(a) - flow[a])
        return number(high, low)

    # == kernels for whole networks ===========================================================================

    cdef int simplex_answer(self, bint warm, bint kept, int64_t limit) except -1:
        """Solve the network by the simplex, from its last basis if there is one, else from the present flow and potentials if `warm`; take over its optimum.

        The basis stays for the next solve.  A basis that is `kept` has been made for that; any other needs `ripen` first.

        AGAIN once its work exceeds a `limit` that is not negative.  DECLINED if its arithmetic could overflow; INFEASIBLE and UNBOUNDED are raised from here.
        """
        cdef int64_t[::1] known
        cdef int32_t[::1] may_differ
        cdef int64_t work
        cdef double now = time.monotonic(), rescue = self.rescue(now)
        cdef bint lags = self.behind or self.unripe
        basis = self.basis
        outcome = self.resume(rescue, limit) if self.based else None
        if outcome is None and limit >= 0:
            limit -= LOAD_NS * <int64_t>self.live_arcs
            if limit < 0:
                return AGAIN
        if outcome is None:
            basis = self.basis_of_all(warm, kept)
            outcome = basis.solve(self.left(), rescue, limit)
        status, answer, potential, statistics = outcome
        if status == RANGE:
            return DECLINED
        if status == SPENT:
            self.given_up += statistics["work"]
            return AGAIN
        if status == LATE:
            if basis.reusable() or basis.ripens():
                known, may_differ = self.all_supplies(), _empty(self.m // 8 + 64, np.int32)
                self.basis, self.based, self.basis_supply, self.may_differ, self.may_differ_count, self.stopped_algorithm = basis, True, known, may_differ, -1, SIMPLEX
                self.unripe = self.repair_loss > 0
            if answer is not None or rescue < 0:
                self.late_outcome, self.way = outcome, SIMPLEX
            return LATE
        self.raise_proof(status, answer)
        if statistics["resumed"]:
            known, may_differ = self.basis_supply, self.may_differ
        else:
            known, may_differ = self.all_supplies(), _empty(self.m // 8 + 64, np.int32)
        work = SLOT_NS * statistics["priced"] + MOVE_NS * statistics["moved"] + PIVOT_NS * statistics["pivots"] + NODE_NS * self.live_nodes
        self.flows_compared = self.take_over(answer, potential, basis if statistics["resumed"] else None)
        if not warm:
            self.note_cold(statistics["work"] + NODE_NS * <int64_t>self.live_nodes, SIMPLEX)
        self.statistics, self.way = statistics, SIMPLEX
        self.basis, self.based, self.basis_supply, self.may_differ = basis, True, known, may_differ
        if statistics["resumed"]:
            self.learn(BY_SIMPLEX, <int64_t>min(work, 2 * self.expected(BY_SIMPLEX)) if lags else work)
        kept = basis.reusable() or kept and not basis.ripens()
        self.behind, self.unripe = False, not kept
        self.repair_loss = 0 if kept else (ARC_NS - RIPE_NS * (statistics["start"] != "coarse")) * <int64_t>self.live_arcs
        self.scans_left = FAR
        self.off_centre, self.record.is_centred = True, 0
        return self.centre() if self.reshaped or not kept else OK

    cdef int scaling_answer(self) except -1:
        """Solve the network by cost scaling, from scratch or from where it was stopped; take over its optimum.

        DECLINED if its arithmetic could overflow; INFEASIBLE and UNBOUNDED are raised from here.
        """
        tail, head, capacity, cost, flow, lower = self.columns()
        pot = None
        if self.stopped_algorithm == SCALING and not self.reshaped:
            flow, pot = self.so_far(flow, lower, capacity)
        none = self.none64
        kernel = scaling.Scaling(tail, head, capacity, cost, self.all_supplies(), lower, none if pot is None else flow, none if pot is None else pot)
        outcome = kernel.solve(0, 0, self.left())
        status, answer, potential, statistics = outcome
        if status == RANGE:
            return DECLINED
        if status == LATE:
            if answer is not None and statistics["gap"] is not None:
                self.late_outcome, self.stopped_algorithm = outcome, SCALING
            return LATE
        self.raise_proof(status, answer)
        self.take_over(answer, potential, None)
        self.statistics, self.may_differ_count, self.scans_left = statistics, -1, FAR      # the flows of a kept basis differ from these
        self.record.scaled.time, self.record.scaled.arcs = SCALE_NS * <int64_t>statistics["scans"] + LOAD_NS * <int64_t>self.live_arcs, self.live_arcs
        return self.centre()

    cdef object so_far(self, flow, lower, capacity):
        """Flow of the last solution, within the present bounds, and its potentials."""
        cdef int64_t[::1] last = flow, pot
        cdef int32_t a, v
        potential = _zeros(self.n, np.int64)
        pot = potential
        for a in range(self.m):
            if self.position[2 * a] >= 0:
                last[a] = self.last_flow(a)
        for v in range(self.n):
            pot[v] = self.potential[v] if self.node_entry[v] < 0 else self.journal_potential[self.node_entry[v]]
        fs_allocate()
        return np.clip(flow, lower if len(lower) else 0, capacity), potential

    cdef int64_t take_over(self, const int64_t[::1] flow, const int64_t[::1] pot, basis) except -1:
        """Take over optimal flow and potentials; with a `basis`, only flows that the journal, ``may_differ`` and the basis name can differ.

        Return the number of flows compared.  The arcs are taken in ascending order whether they are named or not, as their order in the adjacency comes from it.
        """
        cdef const int32_t[::1] arcs = self.none32
        cdef int32_t v, i, a, before = -1
        cdef int64_t delta, count = self.m
        cdef bint named = self.may_differ_count >= 0 and basis is not None and self.solved and (altered := basis.changes()) is not None
        if named:
            fs_allocate()
            arcs = np.sort(np.concatenate([altered, whole(self.may_differ)[:self.may_differ_count], whole(self.journal_arc)[:self.journal_arcs]]))
            count = arcs.shape[0]
        if self.solved:
            self.grow_journal(min(count, self.live_arcs), self.live_nodes)
        # Nothing can fail from here on.
        for v in range(self.n):
            if self.potential[v] != pot[v] and self.node[v].region[3] >= 0:
                self.set_potential(v, pot[v])
        for i in range(<int32_t>count):
            a = arcs[i] if named else i
            if a > before and self.position[2 * a] >= 0:
                delta = flow[a] - self.flow_of(a)
                if delta > 0:
                    self.send(2 * a, delta)
                elif delta < 0:
                    self.send(2 * a + 1, -delta)
            before = a
        self.may_differ_count, self.at_basis, self.stopped_algorithm, self.simplex_due = 0, True, 0, False
        if basis is not None:
            basis.flows_taken()
        for i in range(self.active_count):       # no node has an excess now
            self.excess[self.active[i]] = 0
        self.overflowed = False
        self.clear_active()
        self.unsaturable_count = 0
        return count

    cdef object resume(self, double rescue, int64_t limit):
        """Solve by the simplex from its last basis, which is kept only if that succeeds; None if the basis cannot be used."""
        cdef int32_t[::1] news
        cdef int64_t[::1] known = self.basis_supply, nodes, arcs, added
        cdef int32_t i, v, many = 0, few = 0
        basis, may_differ = self.basis, self.may_differ
        fs_allocate()
        news = np.sort(whole(self.changes)[:self.change_count])
        nodes, arcs, added = _empty(self.change_count, np.int64), _empty(self.change_count, np.int64), _empty(self.change_count, np.int64)
        for i in range(self.change_count):
            if i and news[i] == news[i - 1]:
                continue
            if news[i] >= 0:
                arcs[many] = news[i]
                many += 1
            else:
                v = ~news[i]
                nodes[few], added[few], known[v] = v, self.supply[v] - known[v], self.supply[v]
                few += 1
        if self.change_count or self.stopped_algorithm != SIMPLEX:
            self.ripen_basis()
        self.drop_basis()
        self.basis_supply, self.may_differ = known, may_differ
        arcs = arcs[:many]
        return basis.resume(
            arcs, self.read_arcs(arcs, F_COST), self.read_arcs(arcs, F_CAPACITY), nodes[:few], added[:few],
            self.left(), rescue, self.stopped_algorithm == SIMPLEX, limit)

    cdef int ripen_basis(self) except -1:
        """Prepare a basis for reuse that was not made for it: that of a first solve, or of one that was stopped."""
        if not self.basis.reusable():
            fs_allocate()
            self.basis.ripen(self.read_arcs(np.arange(self.m), F_CAPACITY))     # those of free ids are never read
        return 0

    cdef object basis_of_all(self, bint warm, bint kept):
        tail, head, capacity, cost, flow, lower = self.columns()
        none = self.none64
        return simplex.Simplex(tail, head, capacity, cost, self.all_supplies(), lower, flow if warm else none, self.potential[:self.n] if warm else none, kept)

    # == without an optimum ===================================================================================

    cdef int complete(self) except -1:
        """Complete the flow when time is up, with little regard to cost, by walks at an epsilon of the size of costs; LATE if that takes too long.

        They relabel in a copy of the potentials.  The present ones belong to the flow before, so an augmentation may violate (I); `conclude` restores it there.
        """
        cdef int64_t[::1] pot = self.potential, labels
        cdef int status
        self.reserve_all()
        labels = _copy(pot)
        self.may_violate, self.scans_left, self.potential, self.poll_interval = True, FAR, labels, FS_FUEL // 4
        try:
            with nogil:
                status = self.route_anyway(self.cost_bound + 1)
        finally:
            self.potential = pot
        return status

    cdef int route_anyway(self, int64_t eps) except -1 nogil:
        """Route all excesses and deficits at `eps`; LATE also if there is no path."""
        cdef int32_t i, v, lo, hi
        cdef int sign, status
        self.settle_hub()
        for sign in range(1, -2, -2):
            for i in range(self.active_count):
                v = self.active[i]
                while self.excess[v] * sign > 0 and v != self.hub:
                    status = self.walk(v, sign, eps, STRIDE)
                    if status == INTERRUPTED:
                        return status
                    self.residual_range(v, sign, &lo, &hi)
                    if lo == hi or status != OK and status != STUCK:
                        return LATE
        self.clear_active()
        return OK

    cdef int raise_proof(self, int status, answer) except -1:
        """Raise the exception that a kernel for whole networks proved: `answer` is a cut, or a cycle."""
        if status == INFEASIBLE:
            raise InfeasibleError("no flow meets the supplies", answer & self.living())
        if status == UNBOUNDED:
            raise UnboundedError(f"a cycle of {len(answer)} arcs of unlimited capacity has negative cost", answer)
        return 0

    cdef int raise_failure(self, int status) except -1:
        cdef int32_t i
        if status == INTERRUPTED:
            error, self.pending_error = self.pending_error, None
            raise error
        if status == LATE:
            raise TimeLimitError("the time limit passed before any feasible flow of bounded cost was known; the last solution is as before")
        if status == UNBOUNDED:
            # path[:path_length] leads from the head of path[path_length] to its tail, written from the far end
            cycle = [self.path[self.path_length] >> 1] + [self.path[i] >> 1 for i in range(self.path_length - 1, -1, -1)]
            self.raise_proof(UNBOUNDED, np.array(cycle, np.int64))
        if status == INFEASIBLE:
            self.mark_reachable(self.stuck_node, self.stuck_sign)
            marked = whole(self.mark)[:self.n] == self.stamp
            raise InfeasibleError(
                f"no flow meets the supplies: node {self.stuck_node} " +
                ("cannot send all it has" if self.stuck_sign > 0 else "cannot get all it needs"),
                marked if self.stuck_sign > 0 else self.living() & ~marked)
        if self.cost_bound:     # infeasibility is the better answer, and must not depend on the progress of potentials
            self.check_feasible()
        if self.overflowed or self.unlimited_full:
            raise CostRangeError("capacity: flows of 2**60 and more meet in one node, or of 2**62 in an unlimited arc; there is no exact answer to that")
        raise CostRangeError("potentials out of range: the costs are too large for exact arithmetic")

    cdef int check_feasible(self) except -1:
        """Raise InfeasibleError if there is no feasible flow: with costs 0, for which no potential moves, the cut is found all the same."""
        cdef Network plain = Network()
        tail, head, capacity, _, _, lower = self.columns()
        fs_allocate()
        plain.add_nodes(self.all_supplies())
        plain.add_arcs(whole(tail).astype(np.int64), whole(head).astype(np.int64), capacity, _zeros(self.m, np.int64), lower)
        plain.solve(REPAIR, self.left())
        return 0

    # == for callers ==========================================================================================

    def arcs_compared(self):
        """Number of flows that the last hand-over from the simplex compared: a copy compares all, the original only those named."""
        return self.flows_compared

    def set_budget(self, int64_t budget, int64_t patience, /):
        """Set the limit of a walk, and that of repair before the simplex takes over (-1: as `auto` chooses); in scanned half-arcs."""
        _call = self.begin()
        self.budget = min(max(budget, 0), 10**6)     # a walk looks for signals only when its budget is spent
        self.patience = max(patience, -1)

    cdef object arrays(self):
        return Auto.arrays(self) + [self.basis_supply, self.may_differ]

    cdef object weight(self):
        return Auto.weight(self) + (self.basis.nbytes() if self.based else 0)

    def dump(self):
        """The state that later solves depend on, as flat arrays and numbers, for `adopt`; network/state.py defines them."""
        _call = self.begin()
        return self.write()

    cdef object write(self):
        if self.based and self.stopped_algorithm == SIMPLEX:
            self.ripen_basis()
        if self.based and not self.basis.reusable():    # a copy could not keep it, and must take the same decisions
            self.drop_basis()
        return Auto.write(self) | {
            "form": 3, "cold_solves": self.solves[0], "warm_solves": self.solves[1],
            "regret": int(self.behind) if self.based else self.repair_loss, "since": self.solves_since_try, "until": self.solves_until_try, "halted": self.stopped_algorithm,
            "record": self.write_record(), "patience": self.patience,
            "known": np.array(self.basis_supply if self.based else self.none64), "basis_kept": int(self.based),
        } | (self.basis.dump() if self.based else _NO_BASIS)

    def adopt(self, state, /):
        """Load the state that `dump` gave; names, kinds and lengths are right, and the arrays are the network's own (`network.state.checked`).

        Only for a new network.  All words are checked before they are used; after InputError the network must not be used.
        """
        _call = self.begin()
        wrong = self.read(state)
        if wrong is None and state["based"]:
            wrong = self.read_basis(state)
        if wrong is not None:
            raise InputError(f"state: {wrong}")

    cdef object read(self, state):
        """Load all but the basis; return None, or a text that names the fault."""
        wrong = Auto.read(self, state)
        if wrong is not None:
            return wrong
        self.solves[0], self.solves[1], self.patience = state["cold_solves"], state["warm_solves"], state["patience"]
        self.stopped_algorithm, self.solves_since_try, self.solves_until_try = state["halted"], state["since"], state["until"]
        self.repair_loss, self.behind = (0, state["regret"] > 0) if state["based"] else (state["regret"], False)
        return self.read_record(state["record"])

    cdef object read_basis(self, state):
        """Load the basis, after `read`; return None, or a text that names the fault.  Data unchanged since it was made must be the same in both."""
        cdef const int32_t[::1] news = state["news"]
        cdef const int64_t[::1] known = state["known"], room, cost
        cdef int32_t a, v
        cdef int64_t wide = state["basis_wide"], cap
        cdef Py_ssize_t i
        cdef unsigned char[::1] arc = np.zeros(self.m, np.uint8), node = np.zeros(self.n, np.uint8)
        cdef int64_t[::1] tail = np.full(self.m, -1, np.int64), head = np.full(self.m, -1, np.int64)
        if news.shape[0] >= 2**31 - 1:
            return "news: too long"
        for i in range(news.shape[0]):
            a, v = news[i], ~news[i]
            if (a >= self.m or self.position[2 * a] < 0) if a >= 0 else (v >= self.n or self.node[v].region[3] < 0):
                return f"news[{i}]: {news[i]} is no arc, and not that of a node"
            if a >= 0:
                arc[a] = 1
            else:
                node[v] = 1
        if (wrong := too_much(known, known[:0])) is not None:
            return f"known, as {wrong}"
        for v in range(self.n):
            if not node[v] and known[v] != self.supply[v]:
                return f"known[{v}]: another supply, which is not among the news"
        if not state["basis_kept"]:
            basis = simplex.empty()
        else:
            for a in range(self.m):
                if self.position[2 * a] >= 0:
                    tail[a], head[a] = self.tail(2 * a), self.head(2 * a)
            basis, wrong = simplex.restored(state, tail, head, self.lower, known)
            if wrong is not None:
                return wrong
            room, cost = state["basis_room"], state["basis_cost"]
            placed = basis.has()
            for a in range(self.m):
                if tail[a] >= 0 and not arc[a]:
                    cap = self.residual[2 * a] + self.flow_of(a)
                    cap = wide if cap >= CINF else min(cap - (self.lower[a] if self.lower.shape[0] else 0), wide)
                    if room[a] != cap or (placed[a] and cost[a] != self.half[self.position[2 * a]].cost):
                        return f"basis_room[{a}], basis_cost: another capacity or cost, which is not among the news"
        self.basis, self.based, self.changes, self.change_count, self.basis_supply = basis, True, np.array(news), <int32_t>news.shape[0], np.array(known)
        self.may_differ, self.may_differ_count = np.zeros(self.m // 8 + 64, np.int32), -1
        return None

    def __reduce__(self):
        raise TypeError("a kernel is not pickled: FlowNetwork is")


_NO_BASIS = simplex.empty().dump()
