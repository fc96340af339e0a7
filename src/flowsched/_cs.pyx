# cython: embedsignature=False
"""The kernel: min-cost flow on a network that is kept between solves, mutated in place and re-optimised where it changed.

The problem
-----------
A network has nodes v with supply b(v) (> 0 sends) and arcs a = (u, v) with bounds l(a) <= f(a) <= c(a) and cost w(a).  The problem is to find a flow f within
its bounds, with b(v) + inflow(v) - outflow(v) = 0 at every node, of least cost sum w(a) f(a).

Symbols and signs
-----------------
Every arc a with id k is two *half-arcs*: 2k (forward, at u, cost w) and 2k+1 (backward, at v, cost -w); the mate of h is h ^ 1.
``res[h]`` is the residual capacity: c - f forward, f - l backward; h is *residual* when res[h] > 0.
p is the potential; the *reduced cost* of h = (u, v) is rc(h) = cost(h) + p(u) - p(v), so rc(mate) = -rc.
The *excess* of v is e(v) = b(v) + inflow(v) - outflow(v); a node with e < 0 has a *deficit*.

The invariant
-------------
(I)  rc(h) >= 0 for every residual half-arc h, except for those in ``unsaturable`` (below).

It holds between calls, after *every* mutation and at every step of `repair`.  A flow without excess under which (I) holds is optimal, and p proves it.
Mutations restore (I) at once and look only at the arcs involved.  Where a half-arc would violate (I), the potential of an endpoint of low degree moves, if
that endpoint's own arcs allow it.  Otherwise the half-arc is saturated, which books an excess at its head and a deficit at its tail.  A change thus leaves
epsilon = 0, and solving means routing excesses to deficits; the part of the network that the change does not reach is never scanned.
A half-arc too large to be saturated (``res >= BIG``, unlimited ones among them) is noted in ``unsaturable``.  When solving starts, `cancel_unsaturable` augments
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
From scratch it is _scaling.pyx: push-relabel on a compact copy of the network, from epsilon = the largest cost / 256, divided by 32 until the flow is optimal.  Flow and
potentials are brought back with (I).  From the last solution it starts at the epsilon that the changes left.  By (I) that is 0, so it is `repair`, the last and exact phase of
scaling, at the nodes that changes have activated.  After SCANS_RESHAPED scans for each arc the change counts as not local, and scaling starts from the largest cost.

State after an exception
------------------------
(E)  A call that raises has changed nothing that can be seen.  A mutation makes room first: it checks its arguments, allocates every array that it may need,
     and only then assigns and changes, without an allocation, a Python call or a check for signals.  While solving, room is made at the start of every step
     that moves flow or potentials (`ready`), so that a step is made whole or not at all.  A step that may break (I) (`start_anew`, `complete`) sets ``loose`` and
     makes room for its own undoing before it begins (`ready_for_all`), and `optimise` has one way out of every failure, which restores (I).
     The result of a solve is laid out before the last solution is given up for the new one (`conclude`).
(X)  One call at a time: every call takes ``busy``, and none waits for it.  A second thread, a signal handler, a finaliser or a callback that comes while a call
     is under way gets ConcurrentUseError at once, and so does the child of a fork that was made meanwhile.
(A)  Arrays given no longer belong to the caller: network/flow_network.py hands over copies, so the values checked are the values used.
(U)  An unlimited arc never counts as full.  Its residual capacity starts from 2**62; if flow uses that up (``brimful``) and the answer rests on it, or if an excess
     leaves its range (``overflown``), the network is solved once more from scratch, and CostRangeError is raised if that does not help.

The simplex (_ns.pyx)
---------------------
It takes over once repair has scanned enough that the simplex is likely to be faster, and brings flow and potentials back with (I).  Its basis is kept as
long as nodes and arcs stay: ``news`` lists the changes since, and the next solve starts there if that is likely to be cheaper than repair, judged by
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
`reach`, `conclude`                     O(n + m) for a cut; a pass over the journals for a result
_ns.pyx, _scaling.pyx                   O(n + m) to load and to bring back, besides their own steps

References
----------
A. V. Goldberg, An efficient implementation of a scaling minimum-cost flow algorithm (1997), and U. Bünnagel, B. Korte and J. Vygen, Efficient implementation of the
Goldberg-Tarjan minimum-cost flow algorithm (1998): push-relabel for min-cost flow; `walk` relabels as they do, `scaling` hands over to their algorithm.
P. Kovács, Minimum-cost flow algorithms: an experimental evaluation (2015): augmenting along a path of admissible arcs in place of single pushes (`walk`), and
the block search of the simplex (`simplex`).
D. P. Bertsekas and P. Tseng, RELAX: a computer code for minimum cost network flow problems (1988): reduced-cost optimality kept at every step, with steps of one node's
potential (`shift_potential`, the relabels of `walk` at epsilon = 0); a relabel never lowers the dual cost, and raises it (dual ascent) where the node has an excess.
W. H. Cunningham, A network simplex method (1976): the strongly feasible basis that `_ns.Simplex.resume` starts from.
The Sirius paper (incremental cost scaling, ICS): `repair` from the last solution.

Who calls whom: network/flow_network.py -> `Network` methods -> mutations: `restore_optimality` -> `shift_potential`, `push`; solving: `attempt` -> `run` ->
`cancel_unsaturable`, `pace`, `repair` -> `walk`, `search`; `scaling`, `simplex` -> `take_over`.  Nothing here depends on clusters.  Python objects are touched
only to grow arrays, to check for signals and to hand out results.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

from flowsched._faults cimport FS_FUEL, _copy, _empty, _zeros, fs_allocate, fs_look
from flowsched._wide cimport fs_muladd

import time

import numpy as np

from flowsched import _ns, _scaling
from flowsched.exceptions import ConcurrentUseError, CostRangeError, InfeasibleError, InputError, TimeLimitError, UnboundedError

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(_MSC_VER)
    #include <intrin.h>
    #define fs_fetch(p) ((void)(p))
    #define fs_take(p) (!_InterlockedExchange((p), 1))
    #define fs_give(p) ((void)_InterlockedExchange((p), 0))
    static int fs_low_bit(uint64_t x) { unsigned long i; _BitScanForward64(&i, x); return (int)i; }
    static int fs_high_bit(uint64_t x) { unsigned long i; _BitScanReverse64(&i, x); return (int)i; }
    #else
    #define fs_fetch(p) do { __builtin_prefetch(p, 1); __asm__ volatile(""); } while (0)    /* else a function that only fetches is left out */
    #define fs_take(p) (!__atomic_exchange_n((p), 1, __ATOMIC_ACQUIRE))
    #define fs_give(p) __atomic_store_n((p), 0, __ATOMIC_RELEASE)
    static inline int fs_low_bit(uint64_t x) { return __builtin_ctzll(x); }
    static inline int fs_high_bit(uint64_t x) { return 63 - __builtin_clzll(x); }
    #endif
    """
    void fs_fetch(const void *p) nogil          # a hint: p will be written soon
    bint fs_take(long *p)                       # true: the flag was free, and is taken now
    void fs_give(long *p)
    int fs_low_bit(uint64_t x) nogil
    int fs_high_bit(uint64_t x) nogil

cdef struct Half:
    int64_t cost       # of this half-arc; -cost for the mate
    int32_t head       # node that the half-arc enters
    int32_t code       # 2 * arc id + (0 forward | 1 backward)

cdef struct Node:
    int32_t first      # half[first : first + size] is the node's block; while the id is free: the next free id
    int32_t size
    # Its half-arcs by state: [0, d0) residual, mate not; [d0, d1) both residual; [d1, d2) only the mate; [d2, d3) neither.
    # [0, d0), [d0, d1): half-arcs by which flow can leave.  [d0, d1), [d1, d2): half-arcs by whose mates flow can arrive.
    int32_t d[4]       # d[3] == -1: the id is free; then the others are 0, so that a loop over any region ends at once
    int32_t hint       # place in the block of the last admissible half-arc, where `walk` starts to scan; any value is valid
    int32_t want       # half-arcs about to be added, negative once room was counted for them; else 0

cdef struct Label:
    int64_t dist
    int32_t par        # half-arc by which the search reached the node, -1 at a root
    int32_t stamp      # the label is valid if this equals the search's stamp; negative once settled
    int32_t next       # neighbours in the queue's bucket
    int32_t prev       # -1 - bucket at the front of the bucket

cdef struct Heap:      # a radix heap: bucket i > 0 holds keys that differ from `last` first at bit i - 1
    uint64_t mask      # of non-empty buckets 0..63; bucket 64 cannot occur, keys are < 2**62
    int64_t last       # the smallest key taken so far; no key is below it
    int32_t front[64]

HALF = np.dtype([("cost", "i8"), ("head", "i4"), ("code", "i4")])
NODE = np.dtype([("first", "i4"), ("size", "i4"), ("d", "i4", (4,)), ("hint", "i4"), ("want", "i4")])
LABEL = np.dtype([("dist", "i8"), ("par", "i4"), ("stamp", "i4"), ("next", "i4"), ("prev", "i4")])

INF = 2**62            # an unlimited capacity, exactly
cdef int64_t CINF = <int64_t> 1 << 62
# Residual capacity from which a half-arc is never saturated: fewer than 2**31 half-arcs below it sum to less than 2**62.
cdef int64_t BIG = <int64_t> 1 << 31
# Bound on (nodes + 1) * |cost| and on every |p|: below it no reduced cost, no path length and no step of a potential overflows.
cdef int64_t POT_MAX = <int64_t> 1 << 59
cdef int64_t FAR = <int64_t> 1 << 62
cdef int32_t LOW_DEGREE = 32
# Scanned half-arcs per arc of the network after which the simplex is likely to be faster than repair: after nodes or arcs came or went;
# from scratch, while `pace` lets repair go on; after a change that keeps all nodes and arcs, so that the simplex's basis will serve the next solve, too.
cdef int64_t SCANS_RESHAPED = 16
cdef int64_t SCANS_COLD = 9
cdef int64_t SCANS_WARM = 4
cdef int64_t PACE = 4            # scanned half-arcs per arc in which all excesses are to be routed from scratch, at the initial rate
# Estimated costs in ns: only ratios matter, and only for the choice between algorithms that all reach the optimum.
cdef int64_t WALK_NS = 3         # scanning a half-arc in `walk`
cdef int64_t SEARCH_NS = 2       # scanning a half-arc in `search`
cdef int64_t SETTLE_NS = 40      # settling a node in `search`
cdef int64_t SLOT_NS = 1         # pricing a slot in the simplex
cdef int64_t MOVE_NS = 2         # changing a potential in the simplex
cdef int64_t PIVOT_NS = 500      # a pivot, without the two above
cdef int64_t NODE_NS = 8         # handing over flow and potential of a node
cdef int64_t ARC_NS = 30         # making a basis, per arc: half of the true cost, as a network that has changed a few times is likely to change again
cdef int64_t RIPE_NS = 16        # reusing the basis of a first solve, per arc; 0 in a congested network, where it nearly always pays
cdef int64_t GIVEN_UP = 4        # factor on the time per excess of a repair that was given up; it counts as at least three times the record
cdef double PUT_OFF = 4          # largest factor by which a second try of repair is put off; the factor is the ratio of repair's estimate to the simplex's
cdef int64_t RECORD_MAX = <int64_t> 1 << 50
cdef int64_t AUGMENT_NS = 100    # an augmenting path
cdef int64_t PUSH_NS = 20        # a half-arc of an augmenting path
cdef int64_t LOAD_NS = 60        # laying out an arc for a kernel for whole networks
cdef int64_t SCALE_NS = 5        # scanning a half-arc in cost scaling
cdef int64_t CENTRE_NS = 20      # `centre`, per arc
# Fractions of the time of a cold solve:
cdef double SLICE = 0.0625       # repair's share between two checks of its progress;
cdef double WORTH = 0.7          # the limit within which repair must be likely to end, or it stops;
cdef double WASTE = 0.3          # the limit on the time of an attempt that is given up.
cdef int64_t ASTRAY_FIRST = 8    # initial ratio of the two estimates, see `recentre`
cdef int64_t PROBES = 3          # consecutive failures of a probe after which it is not tried again
cdef double FINISH = 0.3         # under a limit: time to complete the last excesses and hand over the flow, relative to repair's time so far
cdef int64_t SIMPLEX_SCANS = 14  # scanned half-arcs per arc that a simplex start and an early end take
cdef int64_t LOADING_SCANS = 3   # scanned half-arcs per arc that a simplex start takes, where `complete` answers if the simplex does not finish
cdef double HASTE = 4            # time to complete an excess, relative to repair's mean time for one: the excesses that are left are the hardest
cdef double ANSWER_SCANS = 0.6   # scanned half-arcs per arc that the answer takes afterwards
cdef int64_t STRIDE = 100000     # half-arcs that a walk may scan between two checks of the clock

cdef enum:
    CLASSES = 240      # classes of block sizes
    SIZES = 32         # classes of changes: by the number of bits of the number of excesses
    TRY_FIRST = 8      # solves until the algorithm that seems slower is tried again, at first and at most
    TRY_LAST = 1024
    AHEAD = 4          # nodes whose memory is fetched before their turn
    STEPS = 4          # steps in which the memory of a node to be removed is fetched
    BLOCK = 32         # arcs whose memory is fetched at once

cdef enum:
    OK = 0
    INFEASIBLE = 1
    UNBOUNDED = 2
    RANGE = 3
    LATE = 4
    INTERRUPTED = 5
    HANDOVER = 6
    SPENT = 7
    AGAIN = 8          # a solve from scratch is likely to be faster: `solve_anew`
    PROBE = 9          # a repair from scratch may be faster: `probe` tries it

cdef enum:             # columns of `record`, by size of the change; 0 is unknown
    BY_REPAIR = 0      # time of repair per excess
    BY_SIMPLEX = 1     # time of the simplex
    WAYS = 2

cdef enum:             # further entries of `record`: the time of a cold solve (`cold`), and of repair from both kinds of potentials (`recentre`)
    COLD = 64
    COLD_ARCS = 65     # number of arcs of that solve,
    COLD_SIZE = 66     # its number of nodes with an excess,
    COLD_WAY = 67      # and the algorithm that answered
    SCALED = 68        # time of the last cost scaling,
    SCALED_ARCS = 69   # its number of arcs
    ASTRAY = 70        # time of repair per excess, from potentials that repair has left
    CENTRED = 71       # the same, from distances to the hub
    IS_CENTRED = 72    # 1: the potentials are those distances now
    COLD_REPAIR = 73   # time of repair from scratch when it was last the fastest; 0 if it never was, or probes have failed since
    COLD_REPAIR_ARCS = 74
    PROBES_FAILED = 75
    RECORDED = 76

cdef enum:
    BEHIND = 1         # value of `regret`: repair has answered since the basis was last used

cdef enum:
    AUTO = 0
    REPAIR = 1
    SCALING = 2
    SIMPLEX = 3

cdef tuple _WAYS = ("auto", "repair", "cost_scaling", "network_simplex")
cdef object _perf_counter = time.perf_counter
ALGORITHMS = {name: i for i, name in enumerate(_WAYS)}      # `algorithm` of `Network.solve`

cdef enum:
    F_TAIL
    F_HEAD
    F_CAPACITY
    F_COST
    F_LOWER
    F_REDUCED

TAIL, HEAD, CAPACITY, COST, LOWER, REDUCED = F_TAIL, F_HEAD, F_CAPACITY, F_COST, F_LOWER, F_REDUCED     # `field` of `Network.arc_data`

cdef enum:
    PUSHES
    RELABELS
    AUGMENTATIONS
    WALK_SCANS
    SEARCH_SCANS
    SEARCHES
    SETTLED
    REFINES
    COUNTERS

COUNTER_NAMES = ("pushes", "relabels", "augmentations", "walk_scans", "search_scans", "searches", "settled", "refines")
cdef tuple _COUNTERS = COUNTER_NAMES        # faster to look up than the module's name
cdef dict _NO_COUNTS = dict.fromkeys((*COUNTER_NAMES, "algorithm", "warm", "cold_solves", "warm_solves", "gap", "seconds"), 0)


cdef object number(int64_t high, uint64_t low):
    """``high * 2**64 + low``."""
    if high == -(<int64_t>low < 0):     # nearly always
        return <int64_t>low
    return (int(high) << 64) + int(low)

cdef inline int mirror(int state) noexcept nogil:
    """The state of a half-arc whose mate is in `state`: see `Network.state`."""
    return state if state & 1 else state ^ 2


cdef inline int64_t mag(int64_t x) noexcept nogil:
    return -x if x < 0 else x


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


@cython.final
cdef class Network:
    """Residual network in flat arrays; ids are dense and reused after removal (see the head of this file)."""

    # -- by node id -----------------------------------------------------------------------------------------
    cdef int64_t[::1] pot          # potential p
    cdef int64_t[::1] exc          # excess e(v) = b(v) + inflow - outflow, after a solve all 0
    cdef int64_t[::1] sup          # supply b(v)
    cdef Node[::1] node
    cdef Label[::1] label          # label[2 v + side], scratch of `search`
    cdef int32_t[::1] mark         # scratch of `walk` and `reach`: v is on the path if mark[v] == stamp
    cdef int32_t[::1] order        # scratch: nodes settled by `search`, side 0 from the left, side 1 from the right; path of `walk`
    cdef int32_t[::1] active       # every node of non-zero excess is in active[:nactive], once; others may be
    cdef int32_t[::1] plog         # index in the journal of potentials, -1 if p(v) is that of the last solution
    cdef unsigned char[::1] listed # 1 if in `active`
    # -- by half-arc code -----------------------------------------------------------------------------------
    cdef int64_t[::1] res          # residual capacity of the half-arc
    cdef int32_t[::1] pos          # index of the half-arc: half[pos[h]].code == h; pos[2k] == -1: arc id k is free
    # -- by arc id ------------------------------------------------------------------------------------------
    cdef int32_t[::1] alog         # index in the journal of flows, -1 if the flow is that of the last solution
    cdef int64_t[::1] low          # lower bound; of length 0 while all are 0
    cdef int32_t[::1] free         # free ids, the next to be given last: free[:m - live_arcs]
    # -- the arena of adjacency blocks ----------------------------------------------------------------------
    cdef Half[::1] half
    cdef int32_t[::1] spare        # first free block by size class, linked through half[first].head
    cdef int64_t top               # half[top:] has never been used
    # -- journals: flows and potentials of the last solution, where the present ones differ -----------------------
    cdef int32_t[::1] jarc
    cdef int64_t[::1] jflow
    cdef int32_t[::1] jnode
    cdef int64_t[::1] jpot
    cdef int32_t njarc, njnode
    cdef bint solved               # there is a last solution; until then nothing is journalled and it counts as flow 0
    # -- residual half-arcs with rc < 0 that are too large to saturate ----------------------------------------
    cdef int32_t[::1] unsaturable
    cdef int32_t nunsaturable
    # -- counts ---------------------------------------------------------------------------------------------
    cdef int32_t n, m              # number of ids ever used: 0..n-1, 0..m-1
    cdef int32_t live_nodes, live_arcs
    cdef int32_t free_node
    cdef int32_t nactive
    cdef int64_t supply_sum
    cdef int64_t volume            # sum of |supply| and of lower bounds: bounds every excess
    cdef int64_t cost_bound        # upper bound on every |cost|; recomputed when it seems too large
    cdef int64_t cost_hi
    cdef uint64_t cost_lo          # sum of w(a) f(a), 128 bits
    cdef bint overflown            # an excess left its range, which only flows near 2**60 can cause, and is wrong: `start_anew` before the next answer
    cdef bint brimful              # an unlimited arc may have no residual capacity left
    cdef int32_t hub
    cdef int64_t hub_seen          # number of live nodes + 1 when the hub was last chosen
    cdef int32_t stamp
    # -- one solve ------------------------------------------------------------------------------------------
    cdef int64_t budget            # half-arcs that one walk may scan
    cdef int64_t patience          # override of the number of half-arcs that repair may scan before the simplex takes over; -1 for none
    cdef int64_t fuel              # half-arcs to scan until the next check of the clock and signals
    cdef int64_t stint             # half-arcs to scan between two checks: the start value of `fuel`
    cdef int64_t allowance         # half-arcs that `repair` may still scan until it stops with SPENT
    cdef double begun, deadline    # by time.monotonic; the deadline is 0 without a limit
    cdef double first              # time of the first check of the clock, 0 before it
    cdef int64_t seen              # half-arcs scanned before it
    cdef double grace              # time after which not even the completion of a flow may go on
    cdef double stopped            # time at which `complete` began; < 0: minus the time from there to the answer of the last solve, which was late
    cdef int32_t turn              # `repair` is at active[turn]
    cdef int32_t stuck, stuck_sign # node from which nothing can be routed, and its sign; `stuck` is a path's length while cycles are cancelled
    cdef int64_t count[COUNTERS]
    cdef Heap heap[2]
    cdef object told               # counters of the kernel for whole networks
    cdef int way                   # the algorithm that answers
    cdef object sofar              # outcome of a kernel for whole networks that was late with a flow, else None
    cdef int halted                # state after a late solve: SIMPLEX, its basis is not optimal; SCALING, the last solution is its flow so far; else 0
    cdef int64_t wasted            # work of a simplex that was given up in this solve, in ns
    cdef bint probed               # repair from scratch has been tried in this solve,
    cdef int64_t aside             # and took this time, in ns, which `repaired` leaves out
    cdef bint bounded              # this solve is warm and may take no longer than a cold one, whose time is known
    cdef bint jammed               # the last solve was late while the simplex would have been faster
    # -- the simplex's last basis -----------------------------------------------------------------------------
    cdef object basis              # a `_ns.Simplex`, None without one
    cdef bint based                # there is a basis
    cdef int32_t[::1] news         # changes since the basis was made: arc ids, ~v for the supply of v; with repetitions
    cdef int32_t nnews
    cdef int64_t[::1] known        # supplies of which the basis knows
    cdef int32_t[::1] astray       # arcs whose flow in the last solution may not be that of the basis, in astray[:nastray]
    cdef int64_t compared          # number of flows compared with those of the basis the last time
    cdef int32_t nastray           # -1: any may be
    cdef bint eccentric            # the simplex chose the potentials: `centre` before `repair`
    cdef bint alike                # flows are those of the basis
    cdef bint reshaped             # nodes or arcs came or went since the last solution
    # -- the choice of `auto` (`prefers_simplex`): by the size of a change, record[WAYS * size + .] -----------------
    cdef int64_t[::1] record
    cdef int64_t since, until      # number of solves since the slower algorithm was tried, and until its next try
    cdef int64_t regret            # ns by which repair was slower than the simplex, since there is no basis that has served and no node or arc came or went;
    # with such a basis: BEHIND if repair has answered since, else 0
    cdef int64_t size              # size of the change: number of nodes that may have an excess
    cdef int64_t solves[2]         # number of cold and warm solves
    cdef object pending            # exception of a signal handler, to be raised once (I) holds
    cdef bint loose                # (I) may be broken; room for restoring it has been made
    cdef long busy                 # 1 while a call is under way
    cdef int32_t[::1] none32       # of length 0: assigning them cannot fail
    cdef int64_t[::1] none64

    def __init__(self):
        cdef int i
        self.none32, self.none64 = _zeros(0, np.int32), _zeros(0, np.int64)
        self.pot = self.exc = self.sup = self.res = self.low = self.known = self.none64
        self.mark = self.active = self.plog = self.pos = self.alog = self.free = self.news = self.astray = self.none32
        self.node, self.label, self.half, self.listed = _zeros(0, NODE), _zeros(0, LABEL), _zeros(0, HALF), _zeros(0, np.uint8)
        self.order = _zeros(2, np.int32)
        self.record = _zeros(RECORDED, np.int64)
        self.until = TRY_FIRST
        self.spare = _zeros(CLASSES, np.int32)
        for i in range(CLASSES):
            self.spare[i] = -1
        self.jarc, self.jflow = _zeros(16, np.int32), _zeros(16, np.int64)
        self.jnode, self.jpot = _zeros(16, np.int32), _zeros(16, np.int64)
        self.unsaturable = _zeros(4, np.int32)
        self.free_node = self.hub = -1
        self.budget = 3000
        self.patience = -1

    # == arrays that grow =====================================================================================

    # Each grows all arrays of its kind, or raises and grows none.

    cdef int take(self) except -1:
        """Take the network for one call; never wait for it."""
        if not fs_take(&self.busy):
            raise ConcurrentUseError(
                "this network is in use: another call on it is under way, in a thread or below this signal handler, finaliser or callback")
        return 0

    cdef void give(self) noexcept:
        fs_give(&self.busy)

    cdef int grow_nodes(self, int64_t wanted) except -1:
        cdef int64_t size = self.pot.shape[0]
        if wanted <= size:
            return 0
        if wanted >= 2**31 - 2:
            raise CostRangeError("the network would have more than 2**31 nodes")
        size = max(wanted, min(size + size // 8 + 64, 2**31 - 2))
        cdef int64_t[::1] pot = _grown(self.pot, size), exc = _grown(self.exc, size), sup = _grown(self.sup, size)
        cdef Node[::1] node = _grown(self.node, size)
        cdef Label[::1] label = _grown(self.label, 2 * size)
        cdef int32_t[::1] mark = _grown(self.mark, size), order = _zeros(size + 2, np.int32), active = _grown(self.active, size)
        cdef int32_t[::1] plog = _grown(self.plog, size)
        cdef unsigned char[::1] listed = _grown(self.listed, size)
        self.pot, self.exc, self.sup, self.node, self.label = pot, exc, sup, node, label
        self.mark, self.order, self.active, self.plog, self.listed = mark, order, active, plog, listed
        return 0

    cdef int grow_arcs(self, int64_t wanted, bint bounded) except -1:
        """If `bounded`, with room for lower bounds."""
        cdef int64_t size = self.alog.shape[0]
        cdef int64_t[::1] low = self.low, res
        cdef int32_t[::1] pos, alog
        if wanted >= 2**30 - 2:
            raise CostRangeError("the network would have more than 2**30 arcs")
        if wanted > size:
            size = max(wanted, min(size + size // 8 + 64, 2**30 - 2))
            if bounded or low.shape[0]:
                low = _grown(low, size)
            res, pos, alog = _grown(self.res, 2 * size), _grown(self.pos, 2 * size), _grown(self.alog, size)
            self.res, self.pos, self.alog = res, pos, alog
        elif bounded and not low.shape[0]:
            low = _zeros(size, np.int64)
        self.low = low
        return 0

    cdef int grow_free(self, int64_t more) except -1:
        """Make room for `more` further free ids of arcs."""
        cdef int64_t size = self.m - self.live_arcs + more
        cdef int32_t[::1] free
        if size > self.free.shape[0]:
            free = _grown(self.free, max(size, 2 * self.free.shape[0]))
            self.free = free
        return 0

    cdef int grow_half(self, int64_t wanted) except -1:
        cdef int64_t size = self.half.shape[0]
        cdef Half[::1] half
        if wanted <= size:
            return 0
        if wanted >= 2**31 - 2:
            raise CostRangeError("the network would have more than 2**31 half-arcs")
        half = _grown(self.half, max(wanted, min(size + size // 8 + 64, 2**31 - 2)))
        self.half = half
        return 0

    cdef int grow_journal(self, int64_t arcs, int64_t nodes) except -1:
        """Make room for further journal entries: `arcs` flows and `nodes` potentials."""
        cdef int64_t size
        cdef int32_t[::1] jarc = self.jarc, jnode = self.jnode
        cdef int64_t[::1] jflow = self.jflow, jpot = self.jpot
        nodes = min(nodes, self.live_nodes)      # each once
        if self.njarc + arcs > jarc.shape[0] or self.njnode + nodes > jnode.shape[0]:
            self.tidy_journal()
        size = self.njarc + arcs
        if size > jarc.shape[0]:
            size = max(size, 2 * jarc.shape[0])
            jarc, jflow = _grown(jarc, size), _grown(jflow, size)
        size = self.njnode + nodes
        if size > jnode.shape[0]:
            size = max(size, 2 * jnode.shape[0])
            jnode, jpot = _grown(jnode, size), _grown(jpot, size)
        self.jarc, self.jflow, self.jnode, self.jpot = jarc, jflow, jnode, jpot
        return 0

    cdef int tidy_journal(self) except -1 nogil:
        """Drop the entries of removed arcs and nodes."""
        cdef int32_t i, kept = 0
        for i in range(self.njarc):
            if self.jarc[i] >= 0:
                self.jarc[kept], self.jflow[kept], self.alog[self.jarc[i]] = self.jarc[i], self.jflow[i], kept
                kept += 1
        self.njarc = kept
        kept = 0
        for i in range(self.njnode):
            if self.jnode[i] >= 0:
                self.jnode[kept], self.jpot[kept], self.plog[self.jnode[i]] = self.jnode[i], self.jpot[i], kept
                kept += 1
        self.njnode = kept
        return 0

    cdef int grow_unsaturable(self, int64_t more) except -1:
        cdef int64_t size = self.nunsaturable + more
        cdef int32_t[::1] unsaturable
        if size > self.unsaturable.shape[0]:
            unsaturable = _grown(self.unsaturable, max(size, 2 * self.unsaturable.shape[0]))
            self.unsaturable = unsaturable
        return 0

    cdef inline int ready(self, int64_t arcs, int64_t nodes) except -1 nogil:
        """Make room in the journals for the flows and potentials that the next step of solving may move."""
        if self.solved and (self.njarc + arcs > self.jarc.shape[0] or self.njnode + nodes > self.jnode.shape[0]):
            with gil:
                self.grow_journal(arcs, nodes)
        return 0

    cdef int ready_for_all(self) except -1:
        """Make room for a step that may move all flows and potentials, and for restoring (I) everywhere afterwards."""
        cdef int32_t a
        cdef int64_t large = 0
        for a in range(self.m):
            if self.pos[2 * a] >= 0 and self.res[2 * a] + self.res[2 * a + 1] >= BIG:
                large += 2
        self.grow_unsaturable(large)
        if self.solved:
            self.grow_journal(self.live_arcs, self.live_nodes)
        return 0

    # == adjacency ============================================================================================

    cdef int reserve(self, int32_t v, int32_t degree) noexcept nogil:
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
        for i in range(self.node[v].d[3]):
            self.half[first + i] = self.half[old + i]
            self.pos[self.half[first + i].code] = first + i
        self.free_block(old, size)
        self.node[v].first = first
        self.node[v].size = class_size(k)
        return 0

    cdef int free_block(self, int32_t first, int32_t size) noexcept nogil:
        if size:
            self.half[first].head = self.spare[size_class(size)]
            self.spare[size_class(size)] = first
        return 0

    cdef inline int place(self, int32_t at, Half rec) noexcept nogil:
        self.half[at] = rec
        self.pos[rec.code] = at
        return 0

    cdef inline int state(self, int32_t h) noexcept nogil:
        """0 residual, 1 both, 2 only the mate, 3 neither: the region of the adjacency block."""
        if self.res[h] > 0:
            return 1 if self.res[h ^ 1] > 0 else 0
        return 2 if self.res[h ^ 1] > 0 else 3

    cdef int shift(self, int32_t v, int32_t h, int before, int after) noexcept nogil:
        """Move half-arc h of v from region `before` of its block to region `after`; after region 3 it is outside."""
        cdef int32_t first = self.node[v].first, hole = self.pos[h], last
        cdef Half rec = self.half[hole]
        cdef int r
        for r in range(before, after):
            self.node[v].d[r] -= 1
            last = first + self.node[v].d[r]
            if last != hole:
                self.place(hole, self.half[last])
                hole = last
        for r in range(before - 1, after - 1, -1):
            last = first + self.node[v].d[r]
            self.node[v].d[r] += 1
            if last != hole:
                self.place(hole, self.half[last])
                hole = last
        if after < 4:
            self.place(hole, rec)
        return 0

    cdef int lay(self, int32_t v) noexcept nogil:
        """Enlarge v's block for all half-arcs about to be added."""
        cdef int32_t more = self.node[v].want
        self.node[v].want = 0
        return self.reserve(v, self.node[v].d[3] + (more if more > 0 else -more))

    cdef int attach(self, int32_t v, int32_t h, int32_t head, int64_t cost, int state) noexcept nogil:
        """Put half-arc h into v's block, in the region of its state."""
        cdef int32_t hole, last
        cdef Half rec
        cdef int r
        if self.node[v].want:
            self.lay(v)
        rec.cost, rec.head, rec.code = cost, head, h
        hole = self.node[v].first + self.node[v].d[3]
        self.node[v].d[3] += 1
        for r in range(2, state - 1, -1):
            last = self.node[v].first + self.node[v].d[r]
            self.node[v].d[r] += 1
            if last != hole:
                self.place(hole, self.half[last])
                hole = last
        return self.place(hole, rec)

    cdef inline int32_t head(self, int32_t h) noexcept nogil:
        return self.half[self.pos[h]].head

    cdef inline int32_t tail(self, int32_t h) noexcept nogil:
        return self.half[self.pos[h ^ 1]].head

    cdef inline int64_t reduced(self, int32_t h) noexcept nogil:
        cdef Half rec = self.half[self.pos[h]]
        return rec.cost + self.pot[self.tail(h)] - self.pot[rec.head]

    # == flow and potentials, with their journals, which have room (`ready`) ==============================================================

    cdef inline int64_t flow_of(self, int32_t k) noexcept nogil:
        return self.res[2 * k + 1] + (self.low[k] if self.low.shape[0] else 0)

    cdef inline int note_flow(self, int32_t k) noexcept nogil:
        if self.solved and self.alog[k] < 0:
            self.jarc[self.njarc] = k
            self.jflow[self.njarc] = self.flow_of(k)
            self.alog[k] = self.njarc
            self.njarc += 1
        return 0

    cdef inline int set_pot(self, int32_t v, int64_t p) noexcept nogil:
        if self.solved and self.plog[v] < 0:
            self.jnode[self.njnode] = v
            self.jpot[self.njnode] = self.pot[v]
            self.plog[v] = self.njnode
            self.njnode += 1
        self.pot[v] = p
        return 0

    cdef inline int book(self, int32_t v, int64_t amount) noexcept nogil:
        """Add to v's excess."""
        if -CINF < self.exc[v] + amount < CINF:
            self.exc[v] += amount
        else:
            self.overflown = True
        if not self.listed[v]:
            self.listed[v] = 1
            self.active[self.nactive] = v
            self.nactive += 1
        return 0

    cdef int move(self, int32_t h, int64_t amount) noexcept nogil:
        """Send `amount` along half-arc h; the caller books the excesses at its ends."""
        cdef int before = self.state(h), after
        cdef int32_t u = self.tail(h), v = self.head(h)
        self.note_flow(h >> 1)
        fs_muladd(&self.cost_hi, &self.cost_lo, amount, self.half[self.pos[h]].cost)
        self.res[h] -= amount
        self.res[h ^ 1] += amount
        after = self.state(h)
        self.count[PUSHES] += 1
        if before != after:
            if h & 1 == 0 and self.res[h] == 0 and self.res[h ^ 1] >= CINF - 2 * POT_MAX:
                self.brimful = True
            self.shift(u, h, before, after)
            self.shift(v, h ^ 1, mirror(before), mirror(after))
        return 0

    cdef int push(self, int32_t h, int64_t amount) noexcept nogil:
        """Send `amount` along h as a preflow push: its tail loses, its head gains excess."""
        self.book(self.tail(h), -amount)
        self.book(self.head(h), amount)
        return self.move(h, amount)

    cdef int resize(self, int32_t h, int64_t residual) noexcept nogil:
        """Set the residual capacity of h; the flow stays."""
        cdef int before = self.state(h), after
        self.res[h] = residual
        after = self.state(h)
        if before != after:
            self.shift(self.tail(h), h, before, after)
            self.shift(self.head(h), h ^ 1, mirror(before), mirror(after))
        return 0

    cdef int shift_potential(self, int32_t v, int64_t amount) except? -1 nogil:
        """Add `amount` to v's potential if v's residual half-arcs allow it, and are few; return 1 if it was done."""
        cdef int32_t first = self.node[v].first, i, lo, hi, w
        cdef int64_t rc
        if amount > 0:      # half-arcs into v come closer to rc < 0
            lo, hi = self.node[v].d[0], self.node[v].d[2]
        else:               # half-arcs out of v do
            lo, hi = 0, self.node[v].d[1]
        if hi - lo > LOW_DEGREE:
            return 0
        for i in range(first + lo, first + hi):
            w = self.half[i].head
            if w == v:
                continue
            rc = self.half[i].cost + self.pot[v] - self.pot[w]
            if (amount > 0 and -rc < amount) or (amount < 0 and rc < -amount):
                return 0
        if not -POT_MAX < self.pot[v] + amount < POT_MAX:
            return 0
        self.set_pot(v, self.pot[v] + amount)
        return 1

    cdef int restore_optimality(self, int32_t h) except -1 nogil:
        """Restore invariant (I) for half-arc h."""
        cdef int64_t rc
        cdef int32_t u, v
        if self.res[h] <= 0:
            return 0
        rc = self.reduced(h)
        if rc >= 0:
            return 0
        u, v = self.tail(h), self.head(h)
        if u != v and (self.shift_potential(u, -rc) or self.shift_potential(v, rc)):
            return 0
        if self.res[h] < BIG:
            self.push(h, self.res[h])
        else:
            self.unsaturable[self.nunsaturable] = h
            self.nunsaturable += 1
        return 0

    # == mutations ============================================================================================

    cdef int ready_to_tell(self, int64_t more) except -1:
        """Make room for `more` entries in ``news``."""
        cdef int32_t[::1] news
        if self.based and self.nnews + more > self.news.shape[0]:
            news = _grown(self.news, max(self.nnews + more, 2 * self.nnews + 16))
            self.news = news
        return 0

    cdef int tell(self, int32_t what) except -1:
        """Note a change for the simplex's basis: an arc, or ~v for the supply of v.

        Too many changes make the basis useless: that is checked at 0, 16, 48, 112, ... of them.
        """
        if self.based:
            if self.nnews % 16 == 0 and (self.nnews // 16 & self.nnews // 16 + 1) == 0 and self.nnews > self.live_arcs // 4:
                return self.drop_basis()
            self.news[self.nnews] = what
            self.nnews += 1
        return 0

    cdef int reshape(self) except -1:
        """Note that nodes or arcs come or go; drop the basis."""
        self.reshaped, self.regret, self.jammed = True, 0, False
        return self.drop_basis()

    cdef int drop_basis(self) except -1:
        if self.based:
            self.basis, self.based, self.nnews = None, False, 0
            self.news, self.astray, self.known = self.none32, self.none32, self.none64
        return 0

    cdef int check_nodes(self, const int64_t[::1] ids, str name) except -1:
        cdef Py_ssize_t i
        for i in range(ids.shape[0]):
            if not 0 <= ids[i] < self.n:
                raise InputError(f"{name}[{i}]: no node {ids[i]}; ids are 0..{self.n - 1}")
            if self.node[ids[i]].d[3] < 0:
                raise InputError(f"{name}[{i}]: node {ids[i]} was removed")
        return 0

    cdef int check_arcs(self, const int64_t[::1] ids, str name) except -1:
        cdef Py_ssize_t i
        for i in range(ids.shape[0]):
            if not 0 <= ids[i] < self.m:
                raise InputError(f"{name}[{i}]: no arc {ids[i]}; ids are 0..{self.m - 1}")
            if self.pos[2 * ids[i]] < 0:
                raise InputError(f"{name}[{i}]: arc {ids[i]} was removed")
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
            present = _whole(self.sup if name == "supply" else self.low)
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
            if self.pos[2 * a] >= 0:
                exact = max(exact, mag(self.half[self.pos[2 * a]].cost))
        if max(bound, exact) > most:
            which = f"cost[{largest}]: {cost[largest]}" if bound > exact else f"cost: {exact}"
            raise CostRangeError(f"{which} is too large for exact arithmetic on {nodes} nodes; (nodes + 1) * |cost| must stay below 2**59")
        return max(bound, exact)

    cdef int64_t large(self, const int64_t[::1] arcs) except -1:
        """Count the half-arcs of these arcs that may be, or become, too large to saturate."""
        cdef Py_ssize_t i
        cdef int64_t count = 0
        for i in range(arcs.shape[0]):
            if self.res[2 * arcs[i]] + self.res[2 * arcs[i] + 1] >= BIG:
                count += 2
        return count

    cdef int ready_to_restore(self, int64_t arcs, int64_t nodes, int64_t halves) except -1:
        """Make room in the journals and in ``unsaturable``, before a mutation."""
        if self.nunsaturable + halves > self.unsaturable.shape[0]:
            self.grow_unsaturable(halves)
        if self.solved:
            self.grow_journal(arcs, nodes)
        return 0

    def add_nodes(self, const int64_t[::1] supply, /):
        out = _empty(supply.shape[0], np.int64)
        self.take()
        try:
            self.more_nodes(supply, out)
        finally:
            self.give()
        return out

    cdef int more_nodes(self, const int64_t[::1] supply, int64_t[::1] ids) except -1:
        """Add nodes; write their ids to `ids`."""
        cdef Py_ssize_t i, k = supply.shape[0]
        cdef int32_t v
        cdef int64_t bound
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
            self.node[v].d[0] = self.node[v].d[1] = self.node[v].d[2] = self.node[v].d[3] = 0
            self.pot[v] = 0
            self.plog[v] = -1
            self.exc[v] = 0
            self.sup[v] = supply[i]
            self.supply_sum += supply[i]
            self.volume += mag(supply[i])
            if supply[i]:
                self.book(v, supply[i])
        self.live_nodes += k
        return 0

    def add_arcs(self, const int64_t[::1] tail, const int64_t[::1] head, const int64_t[::1] capacity,
                 const int64_t[::1] cost, const int64_t[::1] lower, /):
        """Check arrays of one length; `lower` may be of length 0 for all 0."""
        out = _empty(tail.shape[0], np.int64)
        self.take()
        try:
            self.more_arcs(tail, head, capacity, cost, lower, out)
        finally:
            self.give()
        return out

    cdef int64_t expect(self, const int64_t[::1] tail, const int64_t[::1] head) except -1:
        """Count in `want`, by node, the half-arcs about to be added; return the arena room that their blocks may take."""
        cdef Py_ssize_t i, k = tail.shape[0]
        cdef int64_t room = 0
        for i in range(k):
            if i + 2 * AHEAD < k:
                fs_fetch(&self.node[head[i + 2 * AHEAD]])
            self.node[tail[i]].want += 1
            self.node[head[i]].want += 1
        for i in range(k):
            room += self.block_of(<int32_t>tail[i]) + self.block_of(<int32_t>head[i])
        return room

    cdef int64_t expect_all(self, const int64_t[::1] tail, const int64_t[::1] head, int32_t[::1] want) except -1:
        """Do the same as `expect` for arcs that reach most nodes, with the counts by node in the array `want`."""
        cdef Py_ssize_t i
        cdef int64_t room = 0
        cdef int32_t degree
        for i in range(tail.shape[0]):
            want[tail[i]] += 1
            want[head[i]] += 1
        for i in range(self.n):
            if not want[i]:
                continue
            degree = self.node[i].d[3] + want[i]
            if degree > self.node[i].size:
                room += class_size(roomy(degree, self.node[i].size))
        return room

    cdef inline int64_t block_of(self, int32_t v) except -1 nogil:
        """Size of the new block that v needs for the half-arcs about to be added; 0 on the second call."""
        cdef int32_t more = self.node[v].want
        if more <= 0:
            return 0
        self.node[v].want = -more
        more += self.node[v].d[3]
        return class_size(roomy(more, self.node[v].size)) if more > self.node[v].size else 0

    cdef int more_arcs(self, const int64_t[::1] tail, const int64_t[::1] head, const int64_t[::1] capacity,
                       const int64_t[::1] cost, const int64_t[::1] lower, int64_t[::1] ids) except -1:
        """Add arcs; write their ids to `ids`."""
        cdef Py_ssize_t i, k = tail.shape[0]
        cdef int32_t a, u, v
        cdef int64_t cap, lo, bound, huge = 0, left = self.m - self.live_arcs
        cdef int32_t[::1] want
        cdef bint bulk = k > 1000 and k > self.n // 8       # true: lay the blocks out in the order of the nodes
        self.check_nodes(tail, "tail")
        self.check_nodes(head, "head")
        self.check_bounds(capacity, lower)
        if lower.shape[0]:
            self.check_volume(lower, "lower", lower[:0])
        bound = self.check_cost(cost, self.live_nodes)
        for i in range(k):
            huge += capacity[i] >= BIG
        self.ready_to_restore(k, k, huge)
        if bulk:
            want = _zeros(self.n, np.int32)
        try:
            self.grow_half(self.top + (self.expect_all(tail, head, want) if bulk else self.expect(tail, head)))
            self.grow_arcs(max(self.m, self.live_arcs + k), lower.shape[0] > 0)     # last, as `dump` shows whether there are lower bounds
        except BaseException:
            for i in range(0 if bulk else k):
                self.node[tail[i]].want = self.node[head[i]].want = 0
            raise
        # Nothing can fail from here on.
        self.cost_bound = bound
        self.reshape()
        for i in range(self.n if bulk else 0):
            if want[i]:
                self.reserve(<int32_t>i, self.node[i].d[3] + want[i])
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
            self.alog[a] = -1
            if self.low.shape[0]:
                self.low[a] = 0
            self.res[2 * a] = cap
            self.res[2 * a + 1] = 0
            self.attach(u, 2 * a, v, cost[i], 0 if cap else 3)
            self.attach(v, 2 * a + 1, u, -cost[i], 2 if cap else 3)
            if lo:
                self.raise_lower(a, lo)
        self.live_arcs += k
        for i in range(k):
            if cost[i] + self.pot[tail[i]] - self.pot[head[i]] < 0:
                self.restore_optimality(<int32_t>(2 * ids[i]))
        return 0

    cdef int raise_lower(self, int32_t a, int64_t lower) except -1:
        """Set the lower bound of arc a; flow below it is raised to it."""
        cdef int64_t flow = self.flow_of(a), old = self.low[a]
        if flow < lower:
            self.push(2 * a, lower - flow)      # flow comes from the capacity, as lower <= capacity
            flow = lower
        self.low[a] = lower
        self.resize(2 * a + 1, flow - lower)
        self.volume += lower - old
        return 0

    cdef int drop_arc(self, int32_t h, int32_t u, Half rec) except -1:
        """Remove the arc of half-arc h; its record `rec` has already left the block of u."""
        cdef int32_t a = h >> 1
        cdef int64_t flow = self.flow_of(a)
        if flow:
            fs_muladd(&self.cost_hi, &self.cost_lo, flow, rec.cost if h & 1 else -rec.cost)
            self.book(rec.head, flow if h & 1 else -flow)
            self.book(u, -flow if h & 1 else flow)
        if self.low.shape[0]:
            self.volume -= self.low[a]
            self.low[a] = 0
        if self.pos[h ^ 1] >= 0:
            self.shift(rec.head, h ^ 1, self.state(h ^ 1), 4)
        if self.alog[a] >= 0:
            self.jarc[self.alog[a]] = -1
            self.alog[a] = -1
        self.pos[2 * a] = self.pos[2 * a + 1] = -1
        self.free[self.m - self.live_arcs] = a
        self.live_arcs -= 1
        return 0

    def remove_arcs(self, const int64_t[::1] arcs, /):
        cdef Py_ssize_t i
        cdef int32_t h, u
        cdef Half rec
        self.take()
        try:
            self.check_arcs(arcs, "arcs")
            _unique(arcs, "arcs")
            self.grow_free(arcs.shape[0])
            self.reshape()
            for i in range(arcs.shape[0]):
                if i % BLOCK == 0:
                    self.fetch_arcs(&arcs[i], min(BLOCK, arcs.shape[0] - i))
                h = <int32_t>(2 * arcs[i])
                u, rec = self.tail(h), self.half[self.pos[h]]
                self.shift(u, h, self.state(h), 4)
                self.drop_arc(h, u, rec)
        finally:
            self.give()

    cdef inline int fetch_half(self, int64_t at) noexcept nogil:
        if 0 <= at < self.half.shape[0]:
            fs_fetch(&self.half[at])
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
            for at in range(self.node[v].first, self.node[v].first + min(self.node[v].d[3], LOW_DEGREE)):
                if step == 0:
                    fs_fetch(&self.half[at])
                    continue
                h, w = self.half[at].code, self.half[at].head
                if step == 1:
                    fs_fetch(&self.pos[h & ~1])
                    fs_fetch(&self.res[h & ~1])
                    fs_fetch(&self.node[w])
                    fs_fetch(&self.alog[h >> 1])
                elif step == 2:
                    fs_fetch(&self.half[self.pos[h ^ 1]])
                    self.fetch_half(self.node[w].first + self.node[w].d[2] - 1)
                elif self.node[w].d[2] > 0:
                    fs_fetch(&self.pos[self.half[self.node[w].first + self.node[w].d[2] - 1].code])
        return 0

    cdef int fetch_room(self, const int64_t *head, const int64_t *ids, Py_ssize_t k) noexcept nogil:
        """Prefetch the memory that adding k arcs writes."""
        cdef Py_ssize_t j
        cdef int32_t v
        for j in range(k):
            v = <int32_t>head[j]
            self.fetch_half(self.node[v].first + self.node[v].d[3])
            fs_fetch(&self.pos[2 * ids[j]])
            fs_fetch(&self.res[2 * ids[j]])
            fs_fetch(&self.alog[ids[j]])
        return 0

    cdef inline int32_t due(self, int32_t i, int sign) noexcept nogil:
        """The node active[i] if it has an excess of this sign, else -1."""
        return self.active[i] if i < self.nactive and self.exc[self.active[i]] * sign > 0 else -1

    cdef int fetch_turn(self, int32_t i, int sign) noexcept nogil:
        """Prefetch the memory that the walks from active[i:] read first, one address of the chain in each step."""
        cdef int32_t v, at
        if i + 4 * AHEAD < self.nactive:
            v = self.active[i + 4 * AHEAD]
            fs_fetch(&self.node[v])
            fs_fetch(&self.exc[v])
            fs_fetch(&self.pot[v])
        v = self.due(i + 2 * AHEAD, sign)
        if v >= 0:
            for at in range(self.node[v].first, self.node[v].first + min(self.node[v].d[2], LOW_DEGREE), 4):
                fs_fetch(&self.half[at])
        v = self.due(i + AHEAD, sign)
        if v >= 0:
            for at in range(self.node[v].first, self.node[v].first + min(self.node[v].d[2], LOW_DEGREE)):
                fs_fetch(&self.pot[self.half[at].head])
                fs_fetch(&self.node[self.half[at].head])
        return 0

    cdef int fetch_arcs(self, const int64_t *arcs, Py_ssize_t k) noexcept nogil:
        """Prefetch the half-arcs of k arcs, and then their ends."""
        cdef Py_ssize_t j
        cdef int32_t p, q
        for j in range(k):
            fs_fetch(&self.half[self.pos[2 * arcs[j]]])
            fs_fetch(&self.half[self.pos[2 * arcs[j] + 1]])
            fs_fetch(&self.res[2 * arcs[j]])
        for j in range(k):
            p, q = self.half[self.pos[2 * arcs[j]]].head, self.half[self.pos[2 * arcs[j] + 1]].head
            fs_fetch(&self.pot[p])
            fs_fetch(&self.pot[q])
            fs_fetch(&self.node[p])
            fs_fetch(&self.node[q])
        return 0

    def remove_nodes(self, const int64_t[::1] nodes, /):
        self.take()
        try:
            self.fewer_nodes(nodes)
        finally:
            self.give()

    cdef int fewer_nodes(self, const int64_t[::1] nodes) except -1:
        cdef Py_ssize_t i
        cdef int32_t v, k
        cdef int64_t degrees = 0
        cdef Half rec
        self.check_nodes(nodes, "nodes")
        self.next_stamp()
        for i in range(nodes.shape[0]):
            if self.mark[nodes[i]] == self.stamp:
                raise InputError(f"nodes[{i}]: {nodes[i]} occurs twice")
            self.mark[nodes[i]] = self.stamp
            degrees += self.node[nodes[i]].d[3]
        self.grow_free(min(degrees, self.live_arcs))
        self.reshape()
        for i in range(-2 * STEPS if nodes.shape[0] else 0, nodes.shape[0]):
            self.fetch_gone(&nodes[0], nodes.shape[0], i)
            if i < 0:
                continue
            v = <int32_t>nodes[i]
            for k in range(self.node[v].first, self.node[v].first + self.node[v].d[3]):
                rec = self.half[k]
                if self.pos[rec.code] < 0:      # a loop appears twice here
                    continue
                if rec.head == v:
                    self.pos[rec.code ^ 1] = -1
                self.drop_arc(rec.code, v, rec)
            self.supply_sum -= self.sup[v]
            self.volume -= mag(self.sup[v])
            self.sup[v] = self.exc[v] = 0
            if self.plog[v] >= 0:
                self.jnode[self.plog[v]] = -1
                self.plog[v] = -1
            self.free_block(self.node[v].first, self.node[v].size)
            self.node[v].size = self.node[v].d[0] = self.node[v].d[1] = self.node[v].d[2] = 0
            self.node[v].d[3] = -1
            self.node[v].first = self.free_node
            self.free_node = v
            self.live_nodes -= 1
        return 0

    def set_supply(self, const int64_t[::1] nodes, const int64_t[::1] supply, /):
        self.take()
        try:
            self.put_supply(nodes, supply)
        finally:
            self.give()

    cdef int put_supply(self, const int64_t[::1] nodes, const int64_t[::1] supply) except -1:
        cdef Py_ssize_t i
        cdef int32_t v
        self.check_nodes(nodes, "nodes")
        self.check_volume(supply, "supply", nodes)
        self.ready_to_tell(nodes.shape[0])
        for i in range(nodes.shape[0]):
            v = <int32_t>nodes[i]
            if supply[i] != self.sup[v]:
                self.tell(~v)
                self.book(v, supply[i] - self.sup[v])
                self.supply_sum += supply[i] - self.sup[v]
                self.volume += mag(supply[i]) - mag(self.sup[v])
                self.sup[v] = supply[i]
        return 0

    def set_capacity(self, const int64_t[::1] arcs, const int64_t[::1] capacity, /):
        self.take()
        try:
            self.put_capacity(arcs, capacity)
        finally:
            self.give()

    cdef int put_capacity(self, const int64_t[::1] arcs, const int64_t[::1] capacity) except -1:
        cdef Py_ssize_t i, k = arcs.shape[0]
        cdef int32_t h
        cdef int64_t flow, cap, huge = 0
        self.check_arcs(arcs, "arcs")
        self.check_bounds(capacity, capacity[:0])
        for i in range(k):
            if self.low.shape[0] and capacity[i] < self.low[arcs[i]]:
                raise InputError(f"capacity[{i}]: {capacity[i]} is below arc {arcs[i]}'s lower bound {self.low[arcs[i]]}")
            huge += capacity[i] >= BIG
        self.ready_to_tell(k)
        self.ready_to_restore(k, k, huge)
        for i in range(k):
            if i % BLOCK == 0:
                self.fetch_arcs(&arcs[i], min(BLOCK, k - i))
            h = <int32_t>(2 * arcs[i])
            self.tell(h >> 1)
            flow = self.flow_of(h >> 1)
            cap = min(capacity[i], CINF)
            if flow > cap:
                self.push(h ^ 1, flow - cap)
                flow = cap
            self.resize(h, cap - flow)
            self.restore_optimality(h)
        return 0

    def set_lower(self, const int64_t[::1] arcs, const int64_t[::1] lower, /):
        cdef Py_ssize_t i, k = arcs.shape[0]
        cdef int32_t a
        cdef int64_t cap
        self.take()
        try:
            self.check_arcs(arcs, "arcs")
            self.check_bounds(lower[:0], lower)
            self.check_volume(lower, "lower", arcs)
            for i in range(k):
                a = <int32_t>arcs[i]
                cap = self.res[2 * a] + self.flow_of(a)
                if lower[i] > cap:
                    raise InputError(f"lower[{i}]: {lower[i]} is above arc {a}'s capacity {cap}")
            self.ready_to_restore(k, k, self.large(arcs))
            self.grow_arcs(self.m, True)
            self.drop_basis()
            for i in range(k):
                self.raise_lower(<int32_t>arcs[i], lower[i])
                self.restore_optimality(<int32_t>(2 * arcs[i] + 1))
        finally:
            self.give()

    def set_cost(self, const int64_t[::1] arcs, const int64_t[::1] cost, /):
        self.take()
        try:
            self.put_cost(arcs, cost)
        finally:
            self.give()

    cdef int put_cost(self, const int64_t[::1] arcs, const int64_t[::1] cost) except -1:
        cdef Py_ssize_t i, k = arcs.shape[0]
        cdef int32_t h
        cdef int64_t bound
        self.check_arcs(arcs, "arcs")
        bound = self.check_cost(cost, self.live_nodes)
        self.ready_to_tell(k)
        self.ready_to_restore(k, 2 * k, self.large(arcs))
        self.cost_bound = bound
        for i in range(k):
            if i % BLOCK == 0:
                self.fetch_arcs(&arcs[i], min(BLOCK, k - i))
            h = <int32_t>(2 * arcs[i])
            self.tell(h >> 1)
            fs_muladd(&self.cost_hi, &self.cost_lo, self.flow_of(h >> 1), cost[i] - self.half[self.pos[h]].cost)
            self.half[self.pos[h]].cost = cost[i]
            self.half[self.pos[h ^ 1]].cost = -cost[i]
            self.restore_optimality(h)
            self.restore_optimality(h ^ 1)
        return 0

    # == solving ==============================================================================================

    cdef int poll(self) except -1 nogil:
        """Run pending signal handlers and check the clock; called every few milliseconds of work."""
        self.fuel = self.stint
        with gil:
            try:
                fs_look()
            except BaseException as error:
                self.pending = error    # raised after (I) is restored
                return INTERRUPTED
            if self.deadline and self.late(time.monotonic()):
                return LATE
        return OK

    cdef bint late(self, double now) except -1 nogil:
        """True if the remaining time is needed for completing the flow.

        An excess takes `complete` about the mean time of repair for one.
        """
        if self.loose:
            return now >= self.grace
        if not self.first:      # an average over the start is unreliable
            self.first, self.seen = now, self.scans()
            return 2 * now >= self.begun + self.deadline
        return now + self.spent(now) * (<double>(self.nactive - self.turn) / (self.turn + 1) + FINISH) >= self.deadline

    cdef int64_t scans(self) noexcept nogil:
        return self.count[WALK_SCANS] + self.count[SEARCH_SCANS]

    cdef double spent(self, double now) noexcept nogil:
        """Estimated seconds of all scans, at the rate since the first check of the clock: before it, memory is touched for the first time."""
        cdef int64_t scans = self.scans()
        return (now - self.first) * scans / (scans - self.seen) if scans > self.seen and self.first else now - self.begun

    cdef int spend(self, int counter, int64_t scans) except -1 nogil:
        """Count scanned half-arcs; any status but OK ends the solve."""
        self.count[counter] += scans
        self.fuel -= scans
        self.allowance -= scans
        if self.fuel < 0:
            return self.poll()
        return SPENT if self.allowance < 0 else OK

    cdef int settle_hub(self) except -1 nogil:
        """Choose as hub the node that takes (or sends) at least half of all flow, if there is one.

        All nodes are scanned only when the network has doubled or halved since the last choice.
        """
        cdef int32_t v, best = -1
        cdef int64_t size = self.live_nodes + 1
        cdef int64_t total = 0
        if self.hub >= 0 and self.node[self.hub].d[3] < 0:
            self.hub = -1
            self.hub_seen = 0
        if self.hub_seen and size < 2 * self.hub_seen and 2 * size > self.hub_seen:
            return 0
        self.hub_seen = size
        for v in range(self.n):
            if self.node[v].d[3] >= 0:
                total += mag(self.sup[v])
                if best < 0 or mag(self.sup[v]) > mag(self.sup[best]):
                    best = v
        self.hub = best if best >= 0 and 4 * mag(self.sup[best]) >= total and total else -1
        return 0

    cdef int next_stamp(self) except -1 nogil:
        """Advance `stamp` to a value that no mark and no label has."""
        cdef int32_t v
        if self.stamp == 2147483647:
            for v in range(self.n):
                self.mark[v] = self.label[2 * v].stamp = self.label[2 * v + 1].stamp = 0
            self.stamp = 0
        self.stamp += 1
        return 0

    cdef int repair(self) except -1 nogil:
        """Route every excess and deficit; invariant (I) holds throughout."""
        cdef int32_t i, v, status
        cdef int sign
        self.settle_hub()
        for sign in range(1, -2, -2):
            for i in range(self.nactive):
                v = self.active[i]
                self.turn = i if sign > 0 else self.nactive
                self.fetch_turn(i, sign)
                if self.exc[v] * sign > 0 and v != self.hub:
                    status = self.route(v, sign)
                    if status != OK:
                        return status
        self.clear_active()
        return OK

    cdef int clear_active(self) except -1 nogil:
        cdef int32_t i
        for i in range(self.nactive):
            self.listed[self.active[i]] = 0
        self.nactive = 0
        return 0

    cdef int route(self, int32_t s, int sign) except -1 nogil:
        """Send s's excess to deficits (sign 1), or draw its deficit from excesses (sign -1)."""
        cdef int status
        while self.exc[s]:
            status = self.walk(s, sign, 0, self.budget)
            if status == HANDOVER:
                status = self.search(s, sign, -1, FAR)
                if status == INFEASIBLE:
                    self.stuck, self.stuck_sign = s, sign
            if status != OK:
                return status
        return OK

    cdef inline int ways(self, int32_t v, int sign, int32_t *lo, int32_t *hi) noexcept nogil:
        """Write the range of v's half-arcs, from lo to before hi, by which flow can leave it (sign 1) or by whose mates flow can arrive (sign -1)."""
        if sign > 0:
            lo[0] = self.node[v].first
            hi[0] = lo[0] + self.node[v].d[1]
        else:
            lo[0] = self.node[v].first + self.node[v].d[0]
            hi[0] = self.node[v].first + self.node[v].d[2]
        return 0

    cdef inline bint ends(self, int32_t v, int sign) noexcept nogil:
        """True if a path from an excess (sign 1) or deficit (sign -1) may end at v."""
        return v == self.hub or (self.exc[v] < 0 if sign > 0 else self.exc[v] > 0)

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
        while self.exc[s]:
            self.ways(tip, sign, &lo, &hi)
            p = self.pot[tip]
            best = FAR
            onward, nearest = -1, lo
            i = self.node[tip].first + self.node[tip].hint
            if not lo <= i < hi:
                i = lo
            for scan in range(hi - lo):
                v = self.half[i].head
                rc = self.half[i].cost + p - self.pot[v]
                if sign < 0:
                    rc = -rc
                if rc <= most and (self.mark[v] != self.stamp or self.ends(v, sign)):
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
                self.order[depth] = self.half[onward].code
                if self.ends(v, sign):
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
                if best == FAR and depth:       # no residual arc leaves the tip: raise its price beyond use
                    best = self.cost_bound + 1
                if best > most and best < FAR:
                    if not -POT_MAX < p - (best + eps) * sign < POT_MAX:
                        return RANGE
                    self.ready(0, 1)
                    self.set_pot(tip, p - (best + eps) * sign)
                    self.node[tip].hint = nearest - self.node[tip].first
                    self.count[RELABELS] += 1
                    if depth:
                        self.mark[tip] = 0
                elif not depth:
                    break
                if depth:
                    depth -= 1
                    tip = self.tail(self.order[depth])
        status = self.spend(WALK_SCANS, budget - left)
        return HANDOVER if status == OK and self.exc[s] else status

    cdef int augment_walk(self, int32_t *tip, int32_t *depth, int32_t s, int sign) except -1 nogil:
        """Augment along order[0..depth]; cut the path before the first half-arc that becomes saturated."""
        cdef int32_t length = depth[0] + 1, i, h, t
        cdef int64_t amount = mag(self.exc[s])
        self.ready(length, 0)
        t = self.head(self.order[length - 1])
        if t != self.hub:
            amount = min(amount, mag(self.exc[t]))
        for i in range(length):
            h = self.order[i] if sign > 0 else self.order[i] ^ 1
            amount = min(amount, self.res[h])
        for i in range(length - 1, -1, -1):
            h = self.order[i] if sign > 0 else self.order[i] ^ 1
            if i < length - 1:
                self.mark[self.head(self.order[i])] = 0
            self.move(h, amount)
            if self.res[h] == 0:
                depth[0] = i
        for i in range(depth[0]):
            self.mark[self.head(self.order[i])] = self.stamp
        tip[0] = self.tail(self.order[depth[0]])
        self.book(s, -amount * sign)
        self.book(t, amount * sign)
        self.count[AUGMENTATIONS] += 1
        return 0

    # -- the shortest-path search --------------------------------------------------------------------------------

    cdef int clear_heap(self, int side) except -1 nogil:
        self.heap[side].mask = 0
        self.heap[side].last = 0
        return 0

    cdef inline int link(self, int side, int32_t v, int64_t dist) except -1 nogil:
        """Insert v into the bucket of `dist`."""
        cdef int b = 0
        cdef Label *x = &self.label[2 * v + side]
        cdef Heap *q = &self.heap[side]
        if dist != q.last:
            b = fs_high_bit(<uint64_t>(dist ^ q.last)) + 1
        x.dist = dist
        x.prev = -1 - b
        if q.mask >> b & 1:
            x.next = q.front[b]
            self.label[2 * x.next + side].prev = v
        else:
            x.next = -1
            q.mask |= <uint64_t>1 << b
        q.front[b] = v
        return 0

    cdef inline int unlink(self, int side, int32_t v) except -1 nogil:
        cdef Label *x = &self.label[2 * v + side]
        cdef Heap *q = &self.heap[side]
        if x.next >= 0:
            self.label[2 * x.next + side].prev = x.prev
        if x.prev >= 0:
            self.label[2 * x.prev + side].next = x.next
        elif x.next >= 0:
            q.front[-1 - x.prev] = x.next
        else:
            q.mask &= ~(<uint64_t>1 << (-1 - x.prev))
        return 0

    cdef int64_t nearest(self, int side) except? -1 nogil:
        """Smallest key, redistributed into bucket 0; FAR if the heap is empty."""
        cdef Heap *q = &self.heap[side]
        cdef int b
        cdef int32_t v, after
        cdef int64_t least = FAR
        if not q.mask:
            return FAR
        if q.mask & 1:
            return q.last
        b = fs_low_bit(q.mask)
        v = q.front[b]
        while v >= 0:
            least = min(least, self.label[2 * v + side].dist)
            v = self.label[2 * v + side].next
        q.last = least
        v = q.front[b]
        q.mask &= ~(<uint64_t>1 << b)
        while v >= 0:
            after = self.label[2 * v + side].next
            self.link(side, v, self.label[2 * v + side].dist)
            v = after
        return least

    cdef inline int enter(self, int side, int32_t v, int64_t dist, int32_t par) except -1 nogil:
        """Label v with `dist` if it has no label or a larger one."""
        cdef Label *x = &self.label[2 * v + side]
        if x.stamp == self.stamp:
            if dist >= x.dist:
                return 0
            self.unlink(side, v)
        elif x.stamp == -self.stamp:
            return 0
        x.stamp = self.stamp
        x.par = par
        self.link(side, v, dist)
        return 0

    cdef int search(self, int32_t s, int sign, int32_t goal, int64_t limit) except -1 nogil:
        """Augment once along a shortest path on reduced costs from s to an end (or to `goal`, if it is >= 0).

        Side 0 is a Dijkstra search from s.  After ``budget`` scanned half-arcs, plus the number of the hub's, side 1 searches from all ends as well (never for a `goal`).
        F and B are radii within which all nodes of a side are settled.  With F + B = the path's length D, moving potentials by F - dist and B - dist keeps (I) and
        makes the path's reduced costs 0.  A label is worth keeping only below the best meeting value so far, and *only* this prunes: pruning with the other side's radius
        would leave nodes inside F or B unlabelled, and violate (I).
        With a `limit`, a path of that length or more is not taken: the potentials move as if it had that length.
        """
        cdef int64_t length = limit, d, rc, radius, other, scanned = 0, enough = self.budget
        cdef int64_t top[2]
        cdef int64_t work[2]
        cdef int32_t settled[2]
        cdef int32_t v, w, i, lo, hi, meet = -1, n = <int32_t>self.order.shape[0]
        cdef int side, way, sides = 1, status
        cdef Label *far
        self.next_stamp()
        self.count[SEARCHES] += 1
        work[0] = work[1] = settled[0] = settled[1] = 0
        self.clear_heap(0)
        self.enter(0, s, 0, -1)
        if self.hub >= 0:
            self.ways(self.hub, -sign, &lo, &hi)
            enough += hi - lo
        while True:
            top[0] = self.nearest(0)
            top[1] = self.nearest(1) if sides == 2 else 0
            if top[0] == FAR or top[1] == FAR or top[0] + top[1] >= length:
                break
            if sides == 1 and goal < 0 and scanned > enough:
                sides = 2
                self.clear_heap(1)
                if self.hub >= 0:
                    self.enter(1, self.hub, 0, -1)
                for i in range(self.nactive):
                    v = self.active[i]
                    if v != self.hub and self.ends(v, sign):
                        self.enter(1, v, 0, -1)
                continue
            side = 0 if sides == 1 or work[0] <= work[1] else 1
            v = self.heap[side].front[0]
            self.unlink(side, v)
            d = top[side]
            self.label[2 * v + side].stamp = -self.stamp
            if side == 0:
                self.order[settled[0]] = v
            else:
                self.order[n - 1 - settled[1]] = v
            settled[side] += 1
            way = sign if side == 0 else -sign
            self.ways(v, way, &lo, &hi)
            for i in range(lo, hi):
                w = self.half[i].head
                rc = self.half[i].cost + self.pot[v] - self.pot[w]
                if way < 0:
                    rc = -rc
                if rc < 0 or rc + d >= length:     # rc < 0: the half-arc is in ``unsaturable``, and is handled there
                    continue
                rc += d
                far = &self.label[2 * w + 1 - side]
                if goal >= 0:
                    if w == goal:
                        length, meet = rc, w
                        self.label[2 * w].par = self.half[i].code
                        continue
                elif sides == 2 and (far.stamp == self.stamp or far.stamp == -self.stamp):
                    if rc + far.dist < length:
                        length, meet = rc + far.dist, w
                elif side == 0 and self.ends(w, sign):
                    length, meet = rc, w
                    self.label[2 * w].par = self.half[i].code
                    continue
                self.enter(side, w, rc, self.half[i].code)
            work[side] += hi - lo + 1
            scanned += hi - lo + 1
            status = self.spend(SEARCH_SCANS, hi - lo + 1)
            if status != OK:
                return status
        self.count[SETTLED] += settled[0] + settled[1]
        if meet < 0 and length >= FAR:
            return INFEASIBLE
        radius = min(top[0], length)
        other = length - radius
        self.ready(0, settled[0] + settled[1])
        for i in range(settled[0]):
            v = self.order[i]
            if self.label[2 * v].dist < radius:
                if not -2 * POT_MAX < self.pot[v] - sign * (radius - self.label[2 * v].dist) < 2 * POT_MAX:
                    return self.put_back(i, 0, radius, other, sign)
                self.set_pot(v, self.pot[v] - sign * (radius - self.label[2 * v].dist))
        for i in range(settled[1]):
            v = self.order[n - 1 - i]
            if self.label[2 * v + 1].dist < other:
                if not -2 * POT_MAX < self.pot[v] + sign * (other - self.label[2 * v + 1].dist) < 2 * POT_MAX:
                    return self.put_back(settled[0], i, radius, other, sign)
                self.set_pot(v, self.pot[v] + sign * (other - self.label[2 * v + 1].dist))
        if meet < 0:
            return HANDOVER        # no end is nearer than the limit
        return self.augment_search(s, meet, sign, goal, sides)

    cdef int put_back(self, int32_t near, int32_t far, int64_t radius, int64_t other, int sign) except -1 nogil:
        """Undo the first moves of potentials, because the next one would leave the range."""
        cdef int32_t i, v
        for i in range(near):
            v = self.order[i]
            if self.label[2 * v].dist < radius:
                self.set_pot(v, self.pot[v] + sign * (radius - self.label[2 * v].dist))
        for i in range(far):
            v = self.order[<int32_t>self.order.shape[0] - 1 - i]
            if self.label[2 * v + 1].dist < other:
                self.set_pot(v, self.pot[v] - sign * (other - self.label[2 * v + 1].dist))
        return RANGE

    cdef int trace(self, int32_t s, int32_t meet, int sign, int sides, int32_t *end) except -1 nogil:
        """Write the half-arcs of the path found, in the direction of the flow, to `order`; return their number."""
        cdef int32_t v = meet, h, length = 0
        while v != s:
            h = self.label[2 * v].par
            self.order[length] = h if sign > 0 else h ^ 1
            length += 1
            v = self.tail(h)
        v = meet
        while sides == 2 and self.label[2 * v + 1].par >= 0:
            h = self.label[2 * v + 1].par
            self.order[length] = h if sign < 0 else h ^ 1
            length += 1
            v = self.tail(h)
        end[0] = v
        return length

    cdef int augment_search(self, int32_t s, int32_t meet, int sign, int32_t goal, int sides) except -1 nogil:
        """Augment along the path found; a path to a `goal` is only written to `order`, and `stuck` gets its length."""
        cdef int32_t end = meet
        cdef int32_t length = self.trace(s, meet, sign, sides, &end), i
        cdef int64_t amount = mag(self.exc[s])
        if goal >= 0:
            self.stuck = length
            return OK
        self.ready(length, 0)
        if end != self.hub:
            amount = min(amount, mag(self.exc[end]))
        for i in range(length):
            amount = min(amount, self.res[self.order[i]])
        for i in range(length):
            self.move(self.order[i], amount)
        self.book(s, -amount * sign)
        self.book(end, amount * sign)
        self.count[AUGMENTATIONS] += 1
        return OK

    cdef int cancel_unsaturable(self) except -1 nogil:
        """Augment along shortest cycles through each half-arc in ``unsaturable`` until its reduced cost is 0."""
        cdef int32_t h, i
        cdef int64_t amount
        cdef bint endless
        cdef int status
        while self.nunsaturable:
            h = self.unsaturable[self.nunsaturable - 1]
            if self.pos[h] < 0 or self.pos[h ^ 1] < 0 or self.res[h] <= 0 or self.reduced(h) >= 0:
                self.nunsaturable -= 1
                continue
            if self.res[h] < BIG:
                self.ready(1, 0)
                self.push(h, self.res[h])
                continue
            self.stuck = 0
            if self.tail(h) != self.head(h):
                status = self.search(self.head(h), 1, self.tail(h), -self.reduced(h))
                if status == HANDOVER:
                    continue
                if status != OK:
                    return status
            self.order[self.stuck] = h
            amount, endless = CINF, True
            for i in range(self.stuck + 1):
                amount = min(amount, self.res[self.order[i]])
                endless = endless and self.unlimited(self.order[i])
            if endless:
                return UNBOUNDED
            self.ready(self.stuck + 1, 0)
            for i in range(self.stuck + 1):
                self.move(self.order[i], amount)
        return OK

    cdef inline bint unlimited(self, int32_t h) except -1 nogil:
        return h & 1 == 0 and self.res[h] + self.flow_of(h >> 1) >= CINF

    cdef int reach(self, int32_t s, int sign) except -1 nogil:
        """Mark by BFS the nodes that s reaches along residual half-arcs (sign 1) or that reach s (sign -1)."""
        cdef int32_t i, lo, hi, v, w, taken = 0, found = 1
        self.next_stamp()
        self.order[0] = s
        self.mark[s] = self.stamp
        while taken < found:
            v = self.order[taken]
            taken += 1
            self.ways(v, sign, &lo, &hi)
            for i in range(lo, hi):
                w = self.half[i].head
                if self.mark[w] != self.stamp:
                    self.mark[w] = self.stamp
                    self.order[found] = w
                    found += 1
        return 0

    # -- solves from scratch --------------------------------------------------------------------------------------

    cdef int saturate_all(self) except -1 nogil:
        """Saturate every residual half-arc of negative reduced cost, so that (I) holds; room has been made by `ready_for_all`."""
        cdef int32_t v, i, h
        self.nunsaturable = 0
        for v in range(self.n):
            i = self.node[v].first
            while i < self.node[v].first + self.node[v].d[1]:
                h = self.half[i].code
                if self.half[i].cost + self.pot[v] - self.pot[self.half[i].head] < 0:
                    if self.res[h] < BIG:
                        self.push(h, self.res[h])       # another half-arc moves to place i
                        continue
                    self.restore_optimality(h)
                i += 1
        self.loose = False
        return 0

    cdef int start_anew(self) except -1:
        """Reset flow and potentials; the last solution stays."""
        cdef int32_t v, a
        cdef int64_t low
        self.ready_for_all()
        self.loose = True
        self.clear_active()
        for v in range(self.n):
            if self.node[v].d[3] >= 0:
                self.exc[v] = self.sup[v]
                self.set_pot(v, 0)
                if self.sup[v]:
                    self.book(v, 0)
        for a in range(self.m):
            if self.pos[2 * a] >= 0:
                if self.res[2 * a + 1]:
                    self.move(2 * a + 1, self.res[2 * a + 1])
                low = self.low[a] if self.low.shape[0] else 0
                if low:
                    self.book(self.tail(2 * a), -low)
                    self.book(self.head(2 * a), low)
        self.overflown = self.brimful = False
        return self.saturate_all()

    cdef bint refilled(self) noexcept nogil:
        """True if the change reached more than half of all nodes, as where a cluster has just been filled: old distances mean little then."""
        return 2 * self.size > self.live_nodes

    cdef bint uneven(self) except -1 nogil:
        """True if any node has an excess; a flow without one is optimal, by (I)."""
        cdef int32_t i
        for i in range(self.nactive):
            if self.exc[self.active[i]]:
                return True
        self.clear_active()
        return False

    # -- the choice of `auto`: recent times of repair and the simplex, for changes of the same size --------------------

    cdef int64_t* recorded(self) except NULL nogil:
        """Recorded times for changes of this size."""
        return &self.record[WAYS * (fs_high_bit(<uint64_t>self.size) + 1 if self.size else 0)]

    cdef double expected(self, int way) except -1 nogil:
        """Estimated time of an algorithm, from the recorded change nearest in size; by default 0 for repair and two passes over the network for the simplex."""
        cdef int bits = fs_high_bit(<uint64_t>self.size) + 1 if self.size else 0, i, side, at
        for i in range(SIZES):
            for side in range(2):
                at = bits - i if side == 0 else bits + i
                if 0 <= at < SIZES and self.record[WAYS * at + way]:
                    return <double>self.record[WAYS * at + way] * (self.size if way == BY_REPAIR else 1)
        return 0 if way == BY_REPAIR else 2 * SLOT_NS * <double>self.live_arcs + NODE_NS * self.live_nodes

    cdef bint prefers_simplex(self) except -1 nogil:
        """True if the simplex is likely to be faster.  Without a basis: if making one would already have paid.

        The slower algorithm is tried again from time to time, after an interval that doubles each time.  Repair, which may be given up
        again, waits in proportion to its slowness.
        """
        cdef double simplex, repair
        if not self.size:
            return False
        if self.based and self.halted == SIMPLEX:
            return True
        if not self.based or self.regret > BEHIND:
            return self.jammed or self.regret > ARC_NS * <int64_t>self.live_arcs
        simplex, repair = self.expected(BY_SIMPLEX), self.expected(BY_REPAIR)
        self.since += 1
        if not repair or self.since < self.until * min(max(repair / simplex, 1), PUT_OFF):
            return simplex < repair
        if simplex < repair or not self.regret:     # a basis that is behind catches up first: the solve after that shows the simplex's time
            self.since, self.until = 0, min(2 * self.until, TRY_LAST)
        return simplex >= repair

    cdef int learn(self, int way, int64_t work) except -1 nogil:
        """Update the time of an algorithm: an exponential moving average with weight 1/4 for the latest solve."""
        cdef int64_t *known = self.recorded()
        cdef bint better = known[BY_SIMPLEX] < <double>known[BY_REPAIR] * self.size
        if known[way]:
            known[way] = (3 * known[way] + work) // 4 + 1
        else:               # one solve says little about the simplex
            known[way] = (<int64_t>self.expected(way) + work) // 2 + 1 if way == BY_SIMPLEX else work + 1
        if known[BY_SIMPLEX] and known[BY_REPAIR] and better != (known[BY_SIMPLEX] < <double>known[BY_REPAIR] * self.size):
            self.since, self.until = 0, TRY_FIRST
        return 0

    cdef int learn_repair(self, bint spent) except -1 nogil:
        cdef int64_t work = WALK_NS * self.count[WALK_SCANS] + SEARCH_NS * self.count[SEARCH_SCANS] + SETTLE_NS * self.count[SETTLED], each
        work = max(work - self.aside, 0)
        if not self.size:
            return 0
        each = work // self.size
        if spent:           # a lower bound on its time; without the penalty, near ties would be tried and given up again and again
            each = max(GIVEN_UP * each, 3 * self.recorded()[BY_REPAIR])
            work *= 2
        self.learn(BY_REPAIR, min(each, RECORD_MAX))
        if (not self.based or self.regret > BEHIND) and not self.reshaped and self.solved:
            self.regret += <int64_t>max(work - self.expected(BY_SIMPLEX), 0)
        return 0

    cdef int64_t repaired(self) noexcept nogil:
        """Time of repair in this solve, in about ns."""
        return (WALK_NS * self.count[WALK_SCANS] + SEARCH_NS * self.count[SEARCH_SCANS] + SETTLE_NS * self.count[SETTLED]
                + AUGMENT_NS * self.count[AUGMENTATIONS] + PUSH_NS * self.count[PUSHES] - self.aside)

    cdef double cold(self, int at) except -1 nogil:
        """Estimated time of a cold solve of the network, from the last one; RECORD_MAX if there was none."""
        if not self.record[at]:
            return RECORD_MAX
        return <double>self.record[at] * (self.live_arcs + 1000) / (self.record[at + 1] + 1000)

    cdef int note_cold(self, int64_t work, int way) except -1 nogil:
        self.record[COLD], self.record[COLD_ARCS], self.record[COLD_SIZE], self.record[COLD_WAY] = min(work, RECORD_MAX) + 1, self.live_arcs, self.size, way
        if way == REPAIR:
            self.record[COLD_REPAIR], self.record[COLD_REPAIR_ARCS], self.record[PROBES_FAILED] = self.record[COLD], self.live_arcs, 0
        return 0

    cdef bint hopes(self, int way, double cold) except -1 nogil:
        """False if an algorithm has lately taken longer than a cold solve, for changes of this size; the record decays, so it is tried again some solves later."""
        cdef int64_t *known = self.recorded() + way
        if known[0] * (<double>self.size if way == BY_REPAIR else 1) <= cold:
            return True
        known[0] -= known[0] >> 3
        return False

    cdef int run(self, int algorithm, bint warm) except -1 nogil:
        """Solve by repair while that is likely to be the fastest algorithm.

        SPENT if a kernel for whole networks is to take over, AGAIN for a solve from scratch, PROBE if repair from scratch is to be tried.
        """
        cdef int status
        cdef double simplex, cold = self.cold(SCALED if algorithm == SCALING else COLD)
        self.allowance, self.size = FAR, self.nactive
        self.bounded = warm and algorithm == AUTO and self.patience < 0 and not self.halted and cold < RECORD_MAX
        self.way = SCALING if algorithm == SCALING else REPAIR
        if algorithm == SCALING and (not warm or self.halted == SCALING and not self.reshaped):
            return SPENT
        if self.bounded and self.record[COLD_WAY] == REPAIR and self.size > 16 and 2 * <int64_t>self.size > self.record[COLD_SIZE] and not self.deadline:
            return AGAIN
        if self.bounded and 4 * self.size > self.live_nodes and 3 * self.count_uneven() > self.live_nodes:
            if not (self.based and self.regret <= BEHIND and self.hopes(BY_SIMPLEX, cold)):
                return AGAIN        # the change is as large as the network
        if self.needs_probe(min(self.expected(BY_REPAIR), self.expected(BY_SIMPLEX))):
            return PROBE
        if algorithm == AUTO and self.prefers_simplex():
            return SPENT
        status = self.cancel_unsaturable()
        if status != OK:
            return status
        if algorithm == SIMPLEX:
            return SPENT if self.uneven() else OK
        if self.bounded and self.size and not self.hopes(BY_REPAIR, cold):
            return SPENT
        if self.reshaped and (self.eccentric or warm and self.refilled()):
            status = self.centre()
            if status != OK:
                return status
        if algorithm == SCALING:
            self.allowance = FAR if cold < RECORD_MAX else SCANS_RESHAPED * (<int64_t>self.live_arcs + 1000)
        elif algorithm == AUTO:
            self.allowance = SCANS_COLD if not warm else SCANS_RESHAPED if self.reshaped else SCANS_WARM
            self.allowance = FAR if self.bounded and self.reshaped else self.allowance * (<int64_t>self.live_arcs + 1000)
            simplex = self.expected(BY_SIMPLEX)
            if self.based and self.regret <= BEHIND:         # repair may take half the time of the simplex that follows it
                self.allowance = <int64_t>min(simplex / (2 * WALK_NS), SCANS_RESHAPED * (<double>self.live_arcs + 1000))
        if self.patience >= 0 and algorithm != REPAIR:
            self.allowance = self.patience
        if algorithm == AUTO and not warm and self.patience < 0:
            status = self.pace()
        elif (self.bounded or algorithm == SCALING and self.patience < 0) and cold < RECORD_MAX:
            status = self.repair_within(cold)
        else:
            status = self.repair()
        if status == PROBE:
            return status
        self.learn_repair(status == SPENT)
        return self.recentre(warm, status)

    cdef bint needs_probe(self, double work) except -1 nogil:
        """True if repair from scratch is to be tried for a change of this estimated time."""
        return self.bounded and not self.probed and not self.deadline and work > WASTE * self.cold(COLD_REPAIR)

    cdef int repair_within(self, double cold) except -1 nogil:
        """Repair a change; SPENT once the remaining excesses, at the latest rate, are likely to take it beyond the fraction WORTH of a cold solve."""
        cdef int64_t most = self.allowance, left = self.count_uneven(), before, work = self.repaired(), last
        cdef int64_t probe = FAR if self.probed or not self.bounded else <int64_t>(WASTE * self.cold(COLD_REPAIR) / (4 * WALK_NS)) + 1000
        cdef int64_t part = min(<int64_t>(2 * SLICE * cold / WALK_NS) + 100, probe)
        cdef int status
        while True:
            self.allowance = min(part, most)
            most -= self.allowance
            status = self.repair()
            if status != SPENT:
                return status
            last, work, before, left = work, self.repaired(), left, self.count_uneven()
            if self.needs_probe(work):
                return PROBE
            if most <= 0 or left >= before or work + <double>left * (work - last) / (before - left) > WORTH * cold:
                return SPENT
            part = min(<int64_t>(SLICE * cold / WALK_NS) + 100, probe)

    cdef int recentre(self, bint warm, int status) except -1 nogil:
        """Replace the potentials after a repair by distances to the hub, if that has lately made repair faster by more than its cost.

        Each kind is measured where it was used.  Where only one is known the other is tried once repair has become expensive.
        """
        cdef int64_t price = CENTRE_NS * <int64_t>self.live_arcs, work = self.repaired(), each
        cdef int64_t *astray = &self.record[ASTRAY]
        cdef int64_t *centred = &self.record[CENTRED]
        cdef bint pays
        if not warm or not self.reshaped or self.hub < 0 or not self.size or 4 * work < price or status != OK and status != SPENT:
            return status
        each = min(work // self.size * (GIVEN_UP if status == SPENT else 1), RECORD_MAX) + 1
        if self.record[IS_CENTRED]:
            centred[0] = each
            if self.refilled():     # the potentials that repair leaves are likely to be as bad as those before
                astray[0] = max(astray[0], ASTRAY_FIRST * each)
            astray[0] -= astray[0] >> 8
        else:
            astray[0] = each
            centred[0] -= centred[0] >> 6
        self.record[IS_CENTRED] = 0
        if centred[0]:
            pays = astray[0] > 0 and <double>(astray[0] - centred[0]) * self.size > price
        else:
            pays = work > 8 * price
        return self.centre() if pays and status == OK else status

    cdef int pace(self) except -1 nogil:
        """Repair from scratch; SPENT once it falls behind: less than i / `PACE` of the excesses and deficits are settled after i scans for each arc.

        The remaining excesses of a congested network take longer than those settled, so there is no use in waiting for more of them.
        """
        cdef int64_t nodes = self.count_uneven(), part = self.live_arcs + 1000
        cdef int i, status = SPENT
        self.allowance = 0
        for i in range(1, PACE):
            self.allowance += part
            status = self.repair()
            if status != SPENT or PACE * (nodes - self.count_uneven()) < i * nodes:
                return status
        self.allowance += (SCANS_COLD + 1 - PACE) * part
        return self.repair()

    cdef int64_t count_uneven(self) except -1 nogil:
        """Number of nodes with an excess or a deficit, without the hub."""
        cdef int32_t i
        cdef int64_t count = 0
        for i in range(self.nactive):
            count += self.exc[self.active[i]] != 0 and self.active[i] != self.hub
        return count

    def solve(self, int algorithm, double time_limit, /):
        """Optimise from the present state; return (cost, changed arc ids, stats), or raise.

        `algorithm`: AUTO (repair, and the simplex if that takes too long), REPAIR, SCALING (repair where only the nodes that changes have activated are to be
        settled, else scaling from the largest cost) or SIMPLEX; by name in `ALGORITHMS`.
        `time_limit` in seconds, negative for none.
        """
        start = _perf_counter()
        self.take()
        try:
            return self.optimise(algorithm, time_limit, start)
        finally:
            self.give()

    cdef object optimise(self, int algorithm, double time_limit, double start):
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
        self.fuel = self.stint = FS_FUEL // 16 if time_limit >= 0 else FS_FUEL      # a short limit may be over at the first look
        self.told, self.sofar = {}, None
        try:
            if self.overflown:
                self.start_anew()
            status = self.attempt(algorithm, warm, &late)
            if self.worn(status):
                self.start_anew()
                status = self.attempt(algorithm, False, &late)
                if self.worn(status):
                    status = RANGE
            if self.sofar is not None and self.sofar[1] is not None:
                return self.report(warm, start)
            if status != OK:
                self.fail(status)
            answer = self.conclude(late, warm, start)
            self.stopped = self.stopped - time.monotonic() if late else 0
            return answer
        except BaseException:       # the only way out of every failure
            if self.loose:
                self.saturate_all()
            raise

    cdef int attempt(self, int algorithm, bint warm, bint *late) except -1:
        """Find an optimum, or any feasible flow if it is `late`."""
        cdef int status
        self.alike = self.bounded = self.probed = False
        self.wasted = self.aside = 0
        with nogil:
            status = self.run(algorithm, warm)
        if status == PROBE:
            status = self.probe()
            if status == SPENT:
                with nogil:
                    status = self.run(algorithm, warm)
        if not warm and algorithm == AUTO and status == OK:
            self.note_cold(self.repaired(), REPAIR)
        if status == SPENT and algorithm == SCALING:
            status = self.scaling()
        elif self.bounded and (status == SPENT or status == AGAIN):
            status = self.hand_over(status == AGAIN)
        elif status == SPENT or status == LATE and algorithm == AUTO:
            if self.hopeless():
                self.jammed = status == SPENT
            else:
                status = self.simplex(warm, warm or algorithm == SIMPLEX, -1)
        if status == SPENT:
            self.allowance = FAR
            with nogil:
                status = self.cancel_unsaturable()
                if status == OK:
                    status = self.repair()
        late[0] = status == LATE and self.nunsaturable == 0 and self.sofar is None
        if late[0]:
            self.stopped = time.monotonic()
            status = self.complete()
        return status

    cdef int probe(self) except -1:
        """Try repair from scratch while its pace lasts; SPENT, with flow and potentials as before, if it falls behind.

        The time of a change says little about that of a cold solve: a planar network whose supplies are all new may be solved in a pass from scratch.
        """
        cdef int64_t before, size = self.size, hub_seen = self.hub_seen, delta
        cdef int64_t[::1] res, pot, exc
        cdef int32_t v, a, hub = self.hub
        cdef int status
        cdef bint brimful = self.brimful
        with nogil:
            status = self.cancel_unsaturable()
        if status != OK:
            return status
        res, pot, exc = _copy(self.res[:2 * self.m]), _copy(self.pot[:self.n]), _copy(self.exc[:self.n])
        self.probed = True
        before = self.repaired()
        status = self.repair_anew()
        if status != SPENT:         # an answer, or a proof in terms of the present flow
            return status
        self.aside += self.repaired() - before
        self.ready_for_all()
        # Nothing can fail from here on.
        self.clear_active()
        for v in range(self.n):
            if self.node[v].d[3] >= 0:
                self.set_pot(v, pot[v])
                self.exc[v] = exc[v]
                if exc[v]:
                    self.book(v, 0)
        for a in range(self.m):
            if self.pos[2 * a] >= 0:
                delta = res[2 * a + 1] - self.res[2 * a + 1]
                if delta > 0:
                    self.move(2 * a, delta)
                elif delta < 0:
                    self.move(2 * a + 1, -delta)
        self.nunsaturable, self.turn, self.size, self.hub, self.hub_seen, self.brimful = 0, 0, size, hub, hub_seen, brimful
        self.record[PROBES_FAILED] += 1
        if self.record[PROBES_FAILED] == PROBES:
            self.record[COLD_REPAIR] = 0
        return SPENT

    cdef int hand_over(self, bint anew) except -1:
        """Solve after repair of a change was given up: by the simplex from the present state, within the time left to waste, else from scratch."""
        cdef int status = AGAIN
        cdef double cold = self.cold(COLD), known = <double>self.recorded()[BY_SIMPLEX], rest = WASTE * cold - self.repaired() - self.aside
        if self.hopeless():
            self.jammed = True
            return SPENT
        if anew or self.record[COLD_WAY] == REPAIR:
            return self.solve_anew()
        if self.based and self.regret <= BEHIND and known and known < WORTH * cold:
            rest = max(rest, known + known / 4)
        elif 8 * self.size < self.live_nodes:       # a basis made for small changes serves the next ones, too
            rest = max(rest, WORTH * cold)
        if rest > 0 and self.hopes(BY_SIMPLEX, cold):
            status = self.simplex(True, True, <int64_t>rest)
        if status == AGAIN:
            if rest > 0:
                self.recorded()[BY_SIMPLEX] = <int64_t>min(cold, RECORD_MAX) + 1
            return self.solve_anew()
        return status

    cdef int solve_anew(self) except -1:
        """Solve from scratch, as a new network, by the algorithm that answered the last time; repair goes first where the network may have become easier."""
        cdef int status = SPENT
        self.drop_basis()
        if not self.deadline and (self.record[COLD_WAY] == REPAIR or 4 * self.size > self.live_nodes or 8 * np.count_nonzero(self.supplies()) < 7 * self.record[COLD_SIZE]):
            status = self.repair_anew()
        return self.simplex(False, False, -1) if status == SPENT else status

    cdef int repair_anew(self) except -1:
        """Reset flow and potentials and repair while the pace lasts; SPENT if it falls behind."""
        cdef int64_t before = self.repaired()
        cdef int status
        self.start_anew()
        self.size, self.hub_seen, self.way = self.nactive, 0, REPAIR     # another node may be the hub by now
        with nogil:
            status = self.cancel_unsaturable()
            if status == OK:
                status = self.pace()
        if status == OK:
            self.note_cold(self.repaired() - before, REPAIR)
        return status

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
        cdef int64_t scans = self.scans(), left = self.count_uneven(), done = self.nactive - left
        if self.nunsaturable or not self.deadline:
            return -1
        if self.stopped < 0:
            return -self.stopped
        if not scans or done < left:        # too few excesses are settled for an estimate
            return -1
        return self.spent(now) * (HASTE * left / <double>done + ANSWER_SCANS * self.live_arcs / <double>scans)

    cdef bint worn(self, int status) except -1:
        """True if the present flow and potentials are useless: out of range, or resting on an unlimited arc that is full."""
        cdef int32_t a
        cdef bint full = False
        if status == UNBOUNDED or status == LATE or status == INTERRUPTED:
            return False
        if status == RANGE or self.overflown:
            return True
        if self.brimful:
            self.count[WALK_SCANS] += self.m
        for a in range(self.m if self.brimful else 0):
            if self.pos[2 * a] >= 0 and self.res[2 * a] == 0 and self.unlimited(2 * a):
                full = True
                if status == INFEASIBLE or self.reduced(2 * a) < 0:
                    return True
        self.brimful = full
        return False

    cdef object conclude(self, bint late, bint warm, double start):
        """Make the present flow the last solution: (cost, ids of arcs whose flow differs from the one before, ascending, stats)."""
        cdef int32_t i, a, changed = 0, hasty = 0
        cdef int64_t gap_hi = 0
        cdef uint64_t gap_lo = 0
        cdef int64_t[::1] ids
        cdef bint arcs_anew, nodes_anew
        cdef int32_t[::1] half, jarc, jnode
        cdef int64_t[::1] jflow, jpot
        # 1. Steps that may fail.
        for i in range(self.njarc if self.solved else self.m):      # only arcs whose flow moved can differ
            a = self.jarc[i] if self.solved else i
            if a < 0 or self.pos[2 * a] < 0:
                continue
            changed += self.flow_of(a) != (self.jflow[i] if self.solved else 0)
        out = _empty(changed, np.int64)
        ids = out
        changed = 0
        for i in range(self.njarc if self.solved else self.m):
            a = self.jarc[i] if self.solved else i
            if a >= 0 and self.pos[2 * a] >= 0 and self.flow_of(a) != (self.jflow[i] if self.solved else 0):
                ids[changed] = a
                changed += 1
        if self.solved:
            out.sort()
        if late:
            hasty = self.find_bent(self.none32)  # `complete` pays little regard to cost
        if hasty:
            half = _zeros(hasty, np.int32)
            self.find_bent(half)
            for i in range(hasty):
                fs_muladd(&gap_hi, &gap_lo, -self.reduced(half[i]), self.res[half[i]])
            self.grow_unsaturable(hasty)
        # A large round must not hold its memory for ever.
        arcs_anew = self.jarc.shape[0] > 1024 and self.jarc.shape[0] > self.m // 8 or hasty > self.jarc.shape[0]
        if arcs_anew:
            jarc, jflow = _zeros(max(16, hasty), np.int32), _zeros(max(16, hasty), np.int64)
        nodes_anew = self.jnode.shape[0] > 1024 and self.jnode.shape[0] > self.n // 8 or hasty > self.jnode.shape[0]
        if nodes_anew:
            jnode, jpot = _zeros(max(16, hasty), np.int32), _zeros(max(16, hasty), np.int64)
        answer = self.total_cost(), out, self.summary(self.told, number(gap_hi, gap_lo), warm, start)
        # 2. Steps that cannot.
        for i in range(self.njarc if self.based and not self.alike else 0):
            a = self.jarc[i]
            if self.nastray >= 0 and a >= 0 and self.flow_of(a) != self.jflow[i]:
                if self.nastray == self.astray.shape[0]:
                    self.nastray = -1
                    break
                self.astray[self.nastray] = a
                self.nastray += 1
        if self.solved:
            self.clear_journal()
        if arcs_anew:
            self.jarc, self.jflow = jarc, jflow
        if nodes_anew:
            self.jnode, self.jpot = jnode, jpot
        if self.based and not self.alike and self.size and not self.regret:
            self.regret = BEHIND
        self.solved, self.reshaped = True, False
        self.solves[1 if warm else 0] += 1
        for i in range(hasty):
            self.restore_optimality(half[i])
        self.loose = False
        return answer

    cdef int32_t find_bent(self, int32_t[::1] into) except -1 nogil:
        """Count the residual half-arcs of rc < 0 among those that moved since the last solution; write them to `into` as far as there is room."""
        cdef int32_t i, v, h, k = 0
        for i in range(2 * self.njarc if self.solved else 0):
            h = 2 * self.jarc[i >> 1] | i & 1
            if h >= 0 and self.pos[h] >= 0 and self.pos[h ^ 1] >= 0 and self.res[h] > 0 and self.reduced(h) < 0:
                if k < into.shape[0]:
                    into[k] = h
                k += 1
        for v in range(0 if self.solved else self.n):
            for i in range(self.node[v].first, self.node[v].first + self.node[v].d[1]):
                if self.half[i].cost + self.pot[v] - self.pot[self.half[i].head] < 0:
                    if k < into.shape[0]:
                        into[k] = self.half[i].code
                    k += 1
        return k

    cdef object report(self, bint warm, double start):
        """Make the flow at which a kernel for whole networks was stopped the last solution; as `conclude`.

        It is written to the journals alone: the present flow and potentials are those of repair, for which (I) holds.  The simplex goes on from its basis, cost
        scaling from this flow.
        """
        _, answer, potential, told = self.sofar
        gap = self.gap(answer)
        if gap is not None and gap < told["gap"]:
            told["gap"], potential = gap, self.pot.base
        cdef const int64_t[::1] flow = answer, pot = potential
        cdef int64_t high = self.cost_hi, old
        cdef uint64_t low = self.cost_lo
        cdef int64_t[::1] ids, jflow, jpot
        cdef int32_t[::1] jarc, jnode
        cdef int32_t a, v, changed = 0, arcs = 0, nodes = 0
        # 1. Steps that may fail.
        for a in range(self.m):
            if self.pos[2 * a] >= 0:
                old = self.flow_of(a)
                if flow[a] != old:
                    arcs += 1
                    fs_muladd(&high, &low, flow[a] - old, self.half[self.pos[2 * a]].cost)
                changed += flow[a] != self.last_flow(a)
        for v in range(self.n):
            nodes += self.node[v].d[3] >= 0 and pot[v] != self.pot[v]
        out = _empty(changed, np.int64)
        jarc, jflow, jnode, jpot = _empty(arcs + 16, np.int32), _empty(arcs + 16, np.int64), _empty(nodes + 16, np.int32), _empty(nodes + 16, np.int64)
        ids, changed = out, 0
        for a in range(self.m):
            if self.pos[2 * a] >= 0 and flow[a] != self.last_flow(a):
                ids[changed] = a
                changed += 1
        answer = number(high, low), out, self.summary(told, told["gap"], warm, start)
        # 2. Steps that cannot.
        self.clear_journal()
        arcs = nodes = 0
        for a in range(self.m):
            if self.pos[2 * a] >= 0 and flow[a] != self.flow_of(a):
                jarc[arcs], jflow[arcs], self.alog[a] = a, flow[a], arcs
                arcs += 1
        for v in range(self.n):
            if self.node[v].d[3] >= 0 and pot[v] != self.pot[v]:
                jnode[nodes], jpot[nodes], self.plog[v] = v, pot[v], nodes
                nodes += 1
        self.jarc, self.jflow, self.jnode, self.jpot, self.njarc, self.njnode = jarc, jflow, jnode, jpot, arcs, nodes
        self.solved, self.reshaped, self.sofar = True, False, None
        self.solves[1 if warm else 0] += 1
        return answer

    cdef dict summary(self, dict told, gap, bint warm, double start):
        """Counters of a solve that ends now: its own, and those of the kernel for whole networks in `told`."""
        cdef dict stats = _NO_COUNTS.copy()
        cdef int i
        for i in range(COUNTERS):
            if self.count[i]:
                stats[_COUNTERS[i]] = self.count[i]
        if told:
            stats.update(told)
        if self.wasted:
            stats["given_up"] = self.wasted
        stats["algorithm"] = _WAYS[self.way]
        stats["warm"], stats["cold_solves"], stats["warm_solves"] = warm, self.solves[0] + (not warm), self.solves[1] + warm
        stats["gap"], stats["seconds"] = gap, <double>_perf_counter() - start
        return stats

    cdef object gap(self, const int64_t[::1] flow):
        """Sum of -rc * room over the residual half-arcs of rc < 0 of a feasible flow, at the present potentials; None while an unlimited arc has rc < 0."""
        cdef int32_t v, i, a
        cdef int64_t rc, high = 0
        cdef uint64_t low = 0
        if self.nunsaturable:
            return None
        for v in range(self.n):
            for i in range(self.node[v].first, self.node[v].first + self.node[v].d[3]):
                rc = self.half[i].cost + self.pot[v] - self.pot[self.half[i].head]
                if rc and self.half[i].code & 1 == 0:
                    a = self.half[i].code >> 1
                    if rc > 0:
                        fs_muladd(&high, &low, rc, flow[a] - (self.low[a] if self.low.shape[0] else 0))
                    else:
                        fs_muladd(&high, &low, -rc, self.res[2 * a] + self.flow_of(a) - flow[a])
        return number(high, low)

    cdef inline int64_t last_flow(self, int32_t a) except? -1 nogil:
        """Flow of an arc in the last solution."""
        if not self.solved:
            return 0
        return self.flow_of(a) if self.alog[a] < 0 else self.jflow[self.alog[a]]

    cdef int clear_journal(self) except -1 nogil:
        cdef int32_t i
        for i in range(self.njarc if self.solved else 0):
            if self.jarc[i] >= 0:
                self.alog[self.jarc[i]] = -1
        for i in range(self.njnode if self.solved else 0):
            if self.jnode[i] >= 0:
                self.plog[self.jnode[i]] = -1
        self.njarc = self.njnode = 0
        return 0

    cdef int simplex(self, bint warm, bint kept, int64_t limit) except -1:
        """Solve the network by the simplex, from its last basis if there is one, else from the present flow and potentials if `warm`; take over its optimum.

        The basis stays for the next solve.  A basis that is `kept` has been made for that; any other needs `ripen` first.

        AGAIN once its work exceeds a `limit` that is not negative.  SPENT if its arithmetic could overflow; INFEASIBLE and UNBOUNDED are raised from here.
        """
        cdef int64_t[::1] known
        cdef int32_t[::1] astray
        cdef int64_t work
        cdef double now = time.monotonic(), rescue = self.rescue(now)
        basis = self.basis
        outcome = self.resume(rescue, limit) if self.based else None
        if outcome is None and limit >= 0:
            limit -= LOAD_NS * <int64_t>self.live_arcs
            if limit < 0:
                return AGAIN
        if outcome is None:
            basis = self.basis_of_all(warm, kept)
            outcome = basis.solve(self.left(), rescue, limit)
        status, answer, potential, told = outcome
        if status == _ns.RANGE:
            return SPENT
        if status == _ns.SPENT:
            self.wasted += told["work"]
            return AGAIN
        if status == _ns.LATE:
            if basis.reusable() or basis.ripens():
                known, astray = self.supplies(), _empty(self.m // 8 + 64, np.int32)
                self.basis, self.based, self.known, self.astray, self.nastray, self.halted = basis, True, known, astray, -1, SIMPLEX
            if answer is not None or rescue < 0:
                self.sofar, self.way = outcome, SIMPLEX
            return LATE
        self.refuse(status, answer)
        if told["resumed"]:
            known, astray = self.known, self.astray
        else:
            known, astray = self.supplies(), _empty(self.m // 8 + 64, np.int32)
        work = SLOT_NS * told["priced"] + MOVE_NS * told["moved"] + PIVOT_NS * told["pivots"] + NODE_NS * self.live_nodes
        self.compared = self.take_over(answer, potential, basis if told["resumed"] else None)
        if not warm:
            self.note_cold(told["work"] + NODE_NS * <int64_t>self.live_nodes, SIMPLEX)
        self.told, self.way = told, SIMPLEX
        self.basis, self.based, self.known, self.astray = basis, True, known, astray
        if told["resumed"]:
            self.learn(BY_SIMPLEX, <int64_t>min(work, 2 * self.expected(BY_SIMPLEX)) if self.regret else work)
        kept = basis.reusable() or kept and not basis.ripens()
        self.regret = 0 if kept else (ARC_NS - RIPE_NS * (told["start"] != "coarse")) * <int64_t>self.live_arcs + BEHIND + 1
        self.allowance = FAR
        self.eccentric, self.record[IS_CENTRED] = True, 0
        return self.centre() if self.reshaped or not kept else OK

    cdef int scaling(self) except -1:
        """Solve the network by cost scaling, from scratch or from where it was stopped; take over its optimum.

        SPENT if its arithmetic could overflow; INFEASIBLE and UNBOUNDED are raised from here.
        """
        tail, head, capacity, cost, flow, lower = self.columns()
        pot = None
        if self.halted == SCALING and not self.reshaped:
            flow, pot = self.so_far(flow, lower, capacity)
        outcome = _scaling.solve(tail, head, capacity, cost, self.supplies(), lower, self.left(),
                                 flow if pot is not None else self.none64, pot if pot is not None else self.none64, 0, 0)
        status, answer, potential, told = outcome
        if status == _scaling.RANGE:
            return SPENT
        if status == _scaling.LATE:
            if answer is not None and told["gap"] is not None:
                self.sofar, self.halted = outcome, SCALING
            return LATE
        self.refuse(status, answer)
        self.take_over(answer, potential, None)
        self.told, self.nastray, self.allowance = told, -1, FAR      # the flows of a kept basis differ from these
        self.record[SCALED], self.record[SCALED_ARCS] = SCALE_NS * <int64_t>told["scans"] + LOAD_NS * <int64_t>self.live_arcs, self.live_arcs
        return self.centre()

    cdef object so_far(self, flow, lower, capacity):
        """Flow of the last solution, within the present bounds, and its potentials."""
        cdef int64_t[::1] last = flow, pot
        cdef int32_t a, v
        potential = _zeros(self.n, np.int64)
        pot = potential
        for a in range(self.m):
            if self.pos[2 * a] >= 0:
                last[a] = self.last_flow(a)
        for v in range(self.n):
            pot[v] = self.pot[v] if self.plog[v] < 0 else self.jpot[self.plog[v]]
        fs_allocate()
        return np.clip(flow, lower if len(lower) else 0, capacity), potential

    cdef int64_t take_over(self, const int64_t[::1] flow, const int64_t[::1] pot, basis) except -1:
        """Take over optimal flow and potentials; with a `basis`, only flows that the journal, ``astray`` and the basis name can differ.

        Return the number of flows compared.  The arcs are taken in ascending order whether they are named or not, as their order in the adjacency comes from it.
        """
        cdef const int32_t[::1] arcs = self.none32
        cdef int32_t v, i, a, before = -1
        cdef int64_t delta, count = self.m
        cdef bint named = self.nastray >= 0 and basis is not None and self.solved and (altered := basis.changes()) is not None
        if named:
            fs_allocate()
            arcs = np.sort(np.concatenate([altered, _whole(self.astray)[:self.nastray], _whole(self.jarc)[:self.njarc]]))
            count = arcs.shape[0]
        if self.solved:
            self.grow_journal(min(count, self.live_arcs), self.live_nodes)
        # Nothing can fail from here on.
        for v in range(self.n):
            if self.pot[v] != pot[v] and self.node[v].d[3] >= 0:
                self.set_pot(v, pot[v])
        for i in range(<int32_t>count):
            a = arcs[i] if named else i
            if a > before and self.pos[2 * a] >= 0:
                delta = flow[a] - self.flow_of(a)
                if delta > 0:
                    self.move(2 * a, delta)
                elif delta < 0:
                    self.move(2 * a + 1, -delta)
            before = a
        self.nastray, self.alike, self.halted, self.jammed = 0, True, 0, False
        if basis is not None:
            basis.told()
        for i in range(self.nactive):       # no node has an excess now
            self.exc[self.active[i]] = 0
        self.overflown = False
        self.clear_active()
        self.nunsaturable = 0
        return count

    cdef object resume(self, double rescue, int64_t limit):
        """Solve by the simplex from its last basis, which is kept only if that succeeds; None if the basis cannot be used."""
        cdef int32_t[::1] news
        cdef int64_t[::1] known = self.known, nodes, arcs, added
        cdef int32_t i, v, many = 0, few = 0
        basis, astray = self.basis, self.astray
        fs_allocate()
        news = np.sort(_whole(self.news)[:self.nnews])
        nodes, arcs, added = _empty(self.nnews, np.int64), _empty(self.nnews, np.int64), _empty(self.nnews, np.int64)
        for i in range(self.nnews):
            if i and news[i] == news[i - 1]:
                continue
            if news[i] >= 0:
                arcs[many] = news[i]
                many += 1
            else:
                v = ~news[i]
                nodes[few], added[few], known[v] = v, self.sup[v] - known[v], self.sup[v]
                few += 1
        if self.nnews or self.halted != SIMPLEX:
            self.ripe()
        self.drop_basis()
        self.known, self.astray = known, astray
        arcs = arcs[:many]
        return basis.resume(arcs, self.read_arcs(arcs, F_COST), self.read_arcs(arcs, F_CAPACITY), nodes[:few], added[:few], self.left(), rescue, self.halted == SIMPLEX, limit)

    cdef int ripe(self) except -1:
        """Prepare a basis for reuse that was not made for it: that of a first solve, or of one that was stopped."""
        if not self.basis.reusable():
            fs_allocate()
            self.basis.ripen(self.read_arcs(np.arange(self.m), F_CAPACITY))     # those of free ids are never read
        return 0

    cdef object supplies(self):
        """Supplies by node id; 0 where an id is free."""
        fs_allocate()
        return np.where(self.living(), _whole(self.sup)[:self.n], 0)

    cdef object basis_of_all(self, bint warm, bint kept):
        tail, head, capacity, cost, flow, lower = self.columns()
        none = self.none64
        return _ns.Simplex(tail, head, capacity, cost, self.supplies(), lower, flow if warm else none, self.pot[:self.n] if warm else none, kept)

    cdef object columns(self):
        """The network in the form of the kernels for whole ones: tail, head, capacity, cost, flow, lower; free arc ids become arcs of capacity 0."""
        cdef int32_t[::1] tail = _zeros(self.m, np.int32), head = _zeros(self.m, np.int32)
        cdef int64_t[::1] cost = _zeros(self.m, np.int64), flow = _zeros(self.m, np.int64), capacity = _zeros(self.m, np.int64)
        cdef int32_t v, i, a
        for v in range(self.n):
            for i in range(self.node[v].first, self.node[v].first + self.node[v].d[3]):     # no pass if the id is free: d[3] < 0
                if self.half[i].code & 1 == 0:
                    a = self.half[i].code >> 1
                    tail[a], head[a], cost[a], flow[a] = v, self.half[i].head, self.half[i].cost, self.flow_of(a)
                    capacity[a] = self.res[2 * a] + flow[a]
        return tail, head, capacity, cost, flow, _copy(self.low[:self.m]) if self.low.shape[0] else self.none64

    cdef int centre(self) except -1 nogil:
        """Replace the potentials by optimal ones that measure the distance to the hub: from an extreme point of the optimal potentials `repair` starts badly."""
        cdef int32_t i, v, k
        cdef int64_t radius, before = self.count[SETTLED]
        cdef int status
        self.eccentric = False
        self.record[IS_CENTRED] = 1
        self.settle_hub()
        if self.hub < 0:
            return OK
        status = self.search(self.hub, -1, self.n, FAR)      # without a goal: it ends when no node is left to settle
        if status != INFEASIBLE:
            return status
        k = <int32_t>(self.count[SETTLED] - before)
        radius = self.label[2 * self.order[k - 1]].dist
        if radius < POT_MAX // 4:
            for i in range(k):
                v = self.order[i]
                if not -2 * POT_MAX < self.pot[v] + (radius - self.label[2 * v].dist) < 2 * POT_MAX:
                    return OK
            self.ready(0, k)
            for i in range(k):
                v = self.order[i]
                self.set_pot(v, self.pot[v] + (radius - self.label[2 * v].dist))
        return OK

    cdef int complete(self) except -1:
        """Complete the flow when time is up, with little regard to cost, by walks at an epsilon of the size of costs; LATE if that takes too long.

        They relabel in a copy of the potentials.  The present ones belong to the flow before, so an augmentation may violate (I); `conclude` restores it there.
        """
        cdef int64_t[::1] pot = self.pot, labels
        cdef int status
        self.ready_for_all()
        labels = _copy(pot)
        self.loose, self.allowance, self.pot, self.stint = True, FAR, labels, FS_FUEL // 4
        try:
            with nogil:
                status = self.force(self.cost_bound + 1)
        finally:
            self.pot = pot
        return status

    cdef int force(self, int64_t eps) except -1 nogil:
        """Route all excesses and deficits at `eps`; LATE also if there is no path."""
        cdef int32_t i, v, lo, hi
        cdef int sign, status
        self.settle_hub()
        for sign in range(1, -2, -2):
            for i in range(self.nactive):
                v = self.active[i]
                while self.exc[v] * sign > 0 and v != self.hub:
                    status = self.walk(v, sign, eps, STRIDE)
                    if status == INTERRUPTED:
                        return status
                    self.ways(v, sign, &lo, &hi)
                    if lo == hi or status != OK and status != HANDOVER:
                        return LATE
        self.clear_active()
        return OK

    cdef int refuse(self, int status, answer) except -1:
        """Raise the exception that a kernel for whole networks proved: `answer` is a cut, or a cycle."""
        if status == _ns.INFEASIBLE:    # `_scaling` has the same numbers
            raise InfeasibleError("no flow meets the supplies", answer & self.living())
        if status == _ns.UNBOUNDED:
            raise UnboundedError(f"a cycle of {len(answer)} arcs of unlimited capacity has negative cost", answer)
        return 0

    cdef int fail(self, int status) except -1:
        cdef int32_t i
        if status == INTERRUPTED:
            error, self.pending = self.pending, None
            raise error
        if status == LATE:
            raise TimeLimitError("the time limit passed before any feasible flow of bounded cost was known; the last solution is as before")
        if status == UNBOUNDED:
            # order[:stuck] leads from the head of order[stuck] to its tail, written from the far end
            cycle = [self.order[self.stuck] >> 1] + [self.order[i] >> 1 for i in range(self.stuck - 1, -1, -1)]
            self.refuse(_ns.UNBOUNDED, np.array(cycle, np.int64))
        if status == INFEASIBLE:
            self.reach(self.stuck, self.stuck_sign)
            marked = _whole(self.mark)[:self.n] == self.stamp
            raise InfeasibleError(
                f"no flow meets the supplies: node {self.stuck} " +
                ("cannot send all it has" if self.stuck_sign > 0 else "cannot get all it needs"),
                marked if self.stuck_sign > 0 else self.living() & ~marked)
        if self.cost_bound:     # infeasibility is the better answer, and must not depend on the progress of potentials
            self.check_feasible()
        if self.overflown or self.brimful:
            raise CostRangeError("capacity: flows of 2**60 and more meet in one node, or of 2**62 in an unlimited arc; there is no exact answer to that")
        raise CostRangeError("potentials out of range: the costs are too large for exact arithmetic")

    cdef int check_feasible(self) except -1:
        """Raise InfeasibleError if there is no feasible flow: with costs 0, for which no potential moves, the cut is found all the same."""
        cdef Network plain = Network()
        tail, head, capacity, _, _, lower = self.columns()
        fs_allocate()
        plain.add_nodes(self.supplies())
        plain.add_arcs(_whole(tail).astype(np.int64), _whole(head).astype(np.int64), capacity, _zeros(self.m, np.int64), lower)
        plain.solve(REPAIR, self.left())
        return 0

    cdef object total_cost(self):
        return number(self.cost_hi, self.cost_lo)

    # == reading: the last solution, and the present data ==========================================================

    def cost_of_flow(self):
        """Cost of the last solution, at the present costs; not valid if arcs were removed since."""
        cdef int64_t high, k
        cdef uint64_t low
        cdef int32_t i
        self.take()
        try:
            high, low = self.cost_hi, self.cost_lo
            for i in range(self.njarc):
                k = self.jarc[i]
                if k >= 0:
                    fs_muladd(&high, &low, self.jflow[i] - self.flow_of(<int32_t>k), self.half[self.pos[2 * k]].cost)
            return number(high, low)
        finally:
            self.give()

    cdef object living(self):
        """Bool by node id: the id is in use."""
        fs_allocate()
        return _whole(self.node)[:self.n]["d"][:, 3] >= 0

    def node_ids(self):
        self.take()
        try:
            return self.chosen_nodes(None)
        finally:
            self.give()

    def arc_ids(self):
        self.take()
        try:
            return self.chosen_arcs(None)
        finally:
            self.give()

    cdef object chosen_arcs(self, ids):
        if ids is None:
            fs_allocate()
            return np.flatnonzero(_whole(self.pos)[:2 * self.m:2] >= 0)
        self.check_arcs(ids, "arcs")
        return ids

    cdef object chosen_nodes(self, ids):
        if ids is None:
            return np.flatnonzero(self.living())
        self.check_nodes(ids, "nodes")
        return ids

    def flow(self, ids, /):
        self.take()
        try:
            return self.flows(ids)
        finally:
            self.give()

    cdef object flows(self, ids):
        cdef const int64_t[::1] arcs = self.chosen_arcs(ids)
        cdef Py_ssize_t i, k = arcs.shape[0]
        cdef int32_t a
        out = _zeros(k, np.int64)
        cdef int64_t[::1] flow = out
        if self.solved:
            for i in range(k):
                a = <int32_t>arcs[i]
                flow[i] = self.last_flow(a)
        return out

    def potential(self, ids, /):
        self.take()
        try:
            return self.read_potential(self.chosen_nodes(ids))
        finally:
            self.give()

    cdef object read_potential(self, const int64_t[::1] nodes):
        out = _zeros(nodes.shape[0], np.int64)
        cdef int64_t[::1] value = out
        cdef Py_ssize_t i
        for i in range(nodes.shape[0]):
            value[i] = self.last_pot(<int32_t>nodes[i])
        return out

    cdef inline int64_t last_pot(self, int32_t v) except? -1 nogil:
        """Potential in the last solution, 0 before the first."""
        if not self.solved:
            return 0
        return self.pot[v] if self.plog[v] < 0 else self.jpot[self.plog[v]]

    def supply(self, ids, /):
        self.take()
        try:
            return self.read_supply(self.chosen_nodes(ids))
        finally:
            self.give()

    cdef object read_supply(self, const int64_t[::1] nodes):
        out = _zeros(nodes.shape[0], np.int64)
        cdef int64_t[::1] value = out
        cdef Py_ssize_t i
        for i in range(nodes.shape[0]):
            value[i] = self.sup[nodes[i]]
        return out

    def arc_data(self, ids, int field, /):
        """TAIL, HEAD, CAPACITY, COST or LOWER of the arcs, or REDUCED: their costs at the potentials of the last solution."""
        self.take()
        try:
            return self.read_arcs(self.chosen_arcs(ids), field)
        finally:
            self.give()

    cdef object read_arcs(self, const int64_t[::1] arcs, int field):
        cdef int64_t[::1] value
        cdef Py_ssize_t i
        cdef int32_t a
        out = _zeros(arcs.shape[0], np.int64)
        value = out
        for i in range(arcs.shape[0]):
            a = <int32_t>arcs[i]
            if field == F_TAIL:
                value[i] = self.tail(2 * a)
            elif field == F_HEAD:
                value[i] = self.head(2 * a)
            elif field == F_CAPACITY:
                value[i] = self.res[2 * a] + self.flow_of(a)
            elif field == F_COST:
                value[i] = self.half[self.pos[2 * a]].cost
            elif field == F_REDUCED:
                value[i] = self.half[self.pos[2 * a]].cost + self.last_pot(self.tail(2 * a)) - self.last_pot(self.head(2 * a))
            elif self.low.shape[0]:
                value[i] = self.low[a]
        return out

    def sizes(self):
        """Numbers of live nodes and live arcs."""
        self.take()
        try:
            return self.live_nodes, self.live_arcs
        finally:
            self.give()

    def nbytes(self):
        """Memory of all arrays, in bytes."""
        self.take()
        try:
            return self.weight()
        finally:
            self.give()

    cdef object weight(self):
        arrays = [self.pot, self.exc, self.sup, self.node, self.label, self.mark, self.order, self.active, self.plog, self.listed,
                  self.res, self.pos, self.alog, self.free, self.low, self.half, self.spare, self.jarc, self.jflow, self.jnode, self.jpot, self.unsaturable,
                  self.news, self.known, self.astray]
        return sum([_whole(a).nbytes for a in arrays]) + (self.basis.nbytes() if self.based else 0)

    def arcs_compared(self):
        """Number of flows that the last hand-over from the simplex compared: a copy compares all, the original only those named."""
        return self.compared

    def set_budget(self, int64_t budget, int64_t patience, /):
        self.take()
        self.budget = min(max(budget, 0), 10**6)     # a walk looks for signals only when its budget is spent
        self.patience = max(patience, -1)
        self.give()

    # == copies ===================================================================================================

    def dump(self):
        """The state that later solves depend on, as flat arrays and numbers, for `adopt`; network/state.py defines them."""
        self.take()
        try:
            return self.write()
        finally:
            self.give()

    cdef object write(self):
        cdef int32_t n = self.n, m = self.m, v, a, i, k = 0
        cdef int64_t[::1] potential = np.zeros(n, np.int64), capacity = np.zeros(m, np.int64), flow = np.zeros(m, np.int64), cost = np.zeros(m, np.int64)
        cdef int32_t[::1] degree = np.empty(n, np.int32), hint = np.zeros(n, np.int32), adjacent = np.empty(2 * self.live_arcs, np.int32)
        cdef int32_t[::1] free_nodes = np.empty(n - self.live_nodes, np.int32), free_arcs = np.empty(m - self.live_arcs, np.int32)
        cdef int32_t[::1] arcs = np.empty(self.njarc, np.int32), nodes = np.empty(self.njnode, np.int32)
        cdef int64_t[::1] moved = np.empty(self.njarc, np.int64), raised = np.empty(self.njnode, np.int64)
        for v in range(n):
            degree[v] = self.node[v].d[3]
            if degree[v] >= 0:
                potential[v], hint[v] = self.pot[v], self.node[v].hint
                for i in range(self.node[v].first, self.node[v].first + degree[v]):
                    adjacent[k] = self.half[i].code
                    k += 1
                    if self.half[i].code & 1 == 0:
                        a = self.half[i].code >> 1
                        cost[a], flow[a] = self.half[i].cost, self.flow_of(a)
                        capacity[a] = self.res[2 * a] + flow[a]
        v = self.free_node
        for i in range(n - self.live_nodes):
            free_nodes[i], v = v, self.node[v].first
        for i in range(m - self.live_arcs):
            free_arcs[i] = self.free[m - self.live_arcs - 1 - i]
        k = 0
        for i in range(self.njarc):
            if self.jarc[i] >= 0:
                arcs[k], moved[k] = self.jarc[i], self.jflow[i]
                k += 1
        arcs, moved = arcs[:k], moved[:k]
        k = 0
        for i in range(self.njnode):
            if self.jnode[i] >= 0:
                nodes[k], raised[k] = self.jnode[i], self.jpot[i]
                k += 1
        nodes, raised = nodes[:k], raised[:k]
        if self.based and self.halted == SIMPLEX:
            self.ripe()
        if self.based and not self.basis.reusable():    # a copy could not keep it, and must take the same decisions
            self.drop_basis()
        kept = self.based and self.basis.reusable()
        known = self.known if self.based else potential[:0]
        return {
            "form": 3, "supply": np.array(self.sup[:n]), "potential": potential.base, "hint": hint.base, "degree": degree.base, "adjacent": adjacent.base,
            "free_nodes": free_nodes.base, "active": np.array(self.active[:self.nactive]), "capacity": capacity.base, "flow": flow.base,
            "lower": np.array(self.low[:m] if self.low.shape[0] else self.low), "cost": cost.base, "free_arcs": free_arcs.base,
            "bent": np.array(self.unsaturable[:self.nunsaturable]), "solved": int(self.solved), "moved_arcs": np.array(arcs), "moved_flow": np.array(moved),
            "moved_nodes": np.array(nodes), "moved_potential": np.array(raised), "overflown": int(self.overflown), "hub": self.hub,
            "hub_seen": self.hub_seen, "cost_bound": self.cost_bound, "reshaped": int(self.reshaped), "eccentric": int(self.eccentric),
            "cold_solves": self.solves[0], "warm_solves": self.solves[1], "regret": self.regret, "since": self.since, "until": self.until, "halted": self.halted,
            "record": np.array(self.record), "budget": self.budget, "patience": self.patience, "based": int(self.based), "news": np.array(self.news[:self.nnews]),
            "known": np.array(known), "basis_kept": int(kept),
        } | (self.basis.dump() if self.based else _NO_BASIS)

    def adopt(self, state, /):
        """Load the state that `dump` gave; names, kinds and lengths are right, and the arrays are the network's own (`network.state.checked`).

        Only for a new network.  All words are checked before they are used; after InputError the network must not be used.
        """
        self.take()
        try:
            wrong = self.read(state)
            if wrong is None and state["based"]:
                wrong = self.read_basis(state)
        finally:
            self.give()
        if wrong is not None:
            raise InputError(f"state: {wrong}")

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
        self.node, self.pos, self.half = np.zeros(n, NODE), np.full(2 * m, -1, np.int32), np.zeros(top, HALF)
        for v in range(n):
            self.node[v].d[3] = degree[v]
            self.node[v].hint = hint[v]
            if degree[v] < 0:
                continue
            self.node[v].first, self.node[v].size = first, class_size(size_class(degree[v]))
            for i in range(degree[v]):
                h = adjacent[last + i]
                if not 0 <= h < 2 * <int64_t>m or self.pos[h] >= 0:
                    return f"adjacent[{last + i}]: half-arc {h} does not exist, or occurs twice"
                self.pos[h] = first + i
                self.half[first + i].code = h
            last += degree[v]
            first += self.node[v].size
        self.top = top
        self.free_node = -1
        for i in range(<int32_t>free_nodes.shape[0] - 1, -1, -1):
            v = free_nodes[i]
            if not 0 <= v < n or self.node[v].d[3] != -1:
                return f"free_nodes[{i}]: {v} is no free id, or occurs twice"
            self.node[v].d[3] = -2              # provisional: the id is in the free list
            self.node[v].first, self.free_node = self.free_node, v
        for v in range(n):
            self.node[v].d[3] = max(self.node[v].d[3], -1)
        seen = np.zeros(max(n, m), np.uint8)
        for i in range(<int32_t>free_arcs.shape[0] - 1, -1, -1):
            a = free_arcs[i]
            if not 0 <= a < m or self.pos[2 * a] >= 0 or self.pos[2 * a + 1] >= 0 or seen[a]:
                return f"free_arcs[{i}]: {a} is no free id, or occurs twice"
            seen[a] = 1
        # -- arcs: bounds, flow, cost, and with them the regions of the adjacency
        for a in range(m):
            lo = lower[a] if lowers else 0
            if seen[a]:
                if capacity[a] or flow[a] or cost[a] or lo:
                    return f"capacity[{a}], flow, cost, lower: 0 expected where an id is free"
                continue
            if self.pos[2 * a] < 0 or self.pos[2 * a + 1] < 0:
                return f"adjacent: a half-arc of arc {a} is missing"
            if not 0 <= lo <= flow[a] <= capacity[a] <= CINF:
                return f"flow[{a}]: 0 <= lower <= flow <= capacity <= 2**62 does not hold"
            if not -bound <= cost[a] <= bound:
                return f"cost[{a}]: {cost[a]} is above the bound"
        if (self.live_nodes + 1) * int(bound) >= POT_MAX:
            return "cost_bound: too large for so many nodes"
        self.res = np.zeros(2 * m, np.int64)
        high, down = np.zeros(n, np.int64), np.zeros(n, np.uint64)
        for v in range(n):
            if self.node[v].d[3] >= 0:
                fs_muladd(&high[v], &down[v], supply[v], 1)
            for i in range(self.node[v].first, self.node[v].first + self.node[v].d[3]):
                h = self.half[i].code
                a = h >> 1
                lo = lower[a] if lowers else 0
                self.res[h] = flow[a] - lo if h & 1 else capacity[a] - flow[a]
                self.brimful |= capacity[a] == CINF == flow[a]
                self.half[i].cost = -cost[a] if h & 1 else cost[a]
                self.half[self.pos[h ^ 1]].head = v
                fs_muladd(&high[v], &down[v], flow[a], 1 if h & 1 else -1)
                if h & 1 == 0:
                    fs_muladd(&self.cost_hi, &self.cost_lo, flow[a], cost[a])
        self.free = np.flip(state["free_arcs"]).copy()
        for v in range(n):
            before = 0
            for i in range(self.node[v].first, self.node[v].first + self.node[v].d[3]):
                region = self.state(self.half[i].code)
                if region < before:
                    return f"adjacent: the half-arcs of node {v} do not stand in the order of their states"
                before = region
                for size in range(region, 3):
                    self.node[v].d[size] += 1
        # -- supplies, excesses
        if (wrong := _too_much(supply, lower)) is not None:
            return wrong
        self.volume, self.supply_sum = 0, 0
        for v in range(n):
            self.volume += mag(supply[v])
            self.supply_sum += supply[v]
        for a in range(m if lowers else 0):
            self.volume += lower[a]
        self.sup, self.pot, self.exc = np.array(supply), np.array(potential), np.zeros(n, np.int64)
        self.listed, self.active, self.nactive = np.zeros(n, np.uint8), np.zeros(n, np.int32), 0
        self.overflown = state["overflown"]
        for i in range(active.shape[0]):
            v = active[i]
            if not 0 <= v < n or self.listed[v]:
                return f"active[{i}]: {v} is no node, or occurs twice"
            self.listed[v] = 1
            self.active[i] = v
            self.nactive += 1
        for v in range(n):
            if high[v] == (-1 if down[v] >> 63 else 0) and -CINF < <int64_t>down[v] < CINF:
                self.exc[v] = <int64_t>down[v]
            elif not self.overflown:
                return f"flow: the excess of node {v} is out of range"
            if self.exc[v] and not self.listed[v]:
                return f"active: node {v} has an excess and is not there"
        # -- potentials: invariant (I)
        self.unsaturable, self.nunsaturable = np.zeros(bent.shape[0] + 4, np.int32), <int32_t>bent.shape[0]
        seen = np.zeros(2 * m, np.uint8)
        for i in range(bent.shape[0]):
            if not 0 <= bent[i] < 2 * <int64_t>m:
                return f"bent[{i}]: {bent[i]} is no half-arc"
            self.unsaturable[i] = bent[i]
            seen[bent[i]] = 1
        for v in range(n):
            for i in range(self.node[v].first, self.node[v].first + self.node[v].d[1]):
                if self.half[i].cost + potential[v] - potential[self.half[i].head] < 0 and not seen[self.half[i].code]:
                    return f"potential: half-arc {self.half[i].code} has room and a negative reduced cost, and is not in bent"
        # -- the last solution
        self.solved, self.reshaped, self.eccentric = state["solved"], state["reshaped"], state["eccentric"]
        self.njarc, self.njnode = <int32_t>arcs.shape[0], <int32_t>nodes.shape[0]
        if not self.solved and (self.njarc or self.njnode):
            return "moved_arcs, moved_nodes: none expected before the first solution"
        self.alog, self.plog = np.full(m, -1, np.int32), np.full(n, -1, np.int32)
        self.jarc, self.jflow = np.zeros(self.njarc + 16, np.int32), np.zeros(self.njarc + 16, np.int64)
        self.jnode, self.jpot = np.zeros(self.njnode + 16, np.int32), np.zeros(self.njnode + 16, np.int64)
        for i in range(self.njarc):
            a = arcs[i]
            if not 0 <= a < m or self.pos[2 * a] < 0 or self.alog[a] >= 0 or not 0 <= moved[i] <= CINF:
                return f"moved_arcs[{i}]: {a} is no arc, occurs twice, or its flow is out of range"
            self.alog[a], self.jarc[i], self.jflow[i] = i, a, moved[i]
        for i in range(self.njnode):
            v = nodes[i]
            if not 0 <= v < n or self.node[v].d[3] < 0 or self.plog[v] >= 0 or not -2 * POT_MAX < raised[i] < 2 * POT_MAX:
                return f"moved_nodes[{i}]: {v} is no node, occurs twice, or its potential is out of range"
            self.plog[v], self.jnode[i], self.jpot[i] = i, v, raised[i]
        # -- numbers
        if state["hub"] >= n:
            return "hub: no such node"
        self.hub, self.hub_seen, self.cost_bound = state["hub"], state["hub_seen"], state["cost_bound"]
        self.solves[0], self.solves[1], self.budget, self.patience = state["cold_solves"], state["warm_solves"], state["budget"], state["patience"]
        self.halted = state["halted"]
        self.regret, self.since, self.until, self.record = state["regret"], state["since"], state["until"], np.array(state["record"])
        if self.record.shape[0] == WAYS * SIZES:        # of an earlier version
            self.record = _grown(self.record, RECORDED)
        if self.record.shape[0] != RECORDED:
            return "record: wrong length"
        for i in range(RECORDED):
            if not 0 <= self.record[i] < 2 * POT_MAX:
                return f"record[{i}]: {self.record[i]} is out of range"
        self.low, self.label, self.mark, self.order = np.array(lower), np.zeros(2 * n, LABEL), np.zeros(n, np.int32), np.zeros(n + 2, np.int32)
        self.n, self.m = n, m
        return None

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
            if (a >= self.m or self.pos[2 * a] < 0) if a >= 0 else (v >= self.n or self.node[v].d[3] < 0):
                return f"news[{i}]: {news[i]} is no arc, and not that of a node"
            if a >= 0:
                arc[a] = 1
            else:
                node[v] = 1
        if (wrong := _too_much(known, known[:0])) is not None:
            return f"known, as {wrong}"
        for v in range(self.n):
            if not node[v] and known[v] != self.sup[v]:
                return f"known[{v}]: another supply, which is not among the news"
        if not state["basis_kept"]:
            basis = _ns.empty()
        else:
            for a in range(self.m):
                if self.pos[2 * a] >= 0:
                    tail[a], head[a] = self.tail(2 * a), self.head(2 * a)
            basis, wrong = _ns.restored(state, tail, head, self.low, known)
            if wrong is not None:
                return wrong
            room, cost = state["basis_room"], state["basis_cost"]
            placed = basis.has()
            for a in range(self.m):
                if tail[a] >= 0 and not arc[a]:
                    cap = self.res[2 * a] + self.flow_of(a)
                    cap = wide if cap >= CINF else min(cap - (self.low[a] if self.low.shape[0] else 0), wide)
                    if room[a] != cap or (placed[a] and cost[a] != self.half[self.pos[2 * a]].cost):
                        return f"basis_room[{a}], basis_cost: another capacity or cost, which is not among the news"
        self.basis, self.based, self.news, self.nnews, self.known = basis, True, np.array(news), <int32_t>news.shape[0], np.array(known)
        self.astray, self.nastray = np.zeros(self.m // 8 + 64, np.int32), -1
        return None

    def __reduce__(self):
        raise TypeError("a kernel is not pickled: FlowNetwork is")


_NO_BASIS = _ns.empty().dump()


# == for other compiled modules, see `_cs.pxd` ============================================================


cdef int add_nodes(network, int64_t[::1] supply, int64_t[::1] ids) except -1:
    """Add nodes of these supplies; fill `ids`."""
    cdef Network core = <Network?> network
    core.take()
    try:
        return core.more_nodes(supply, ids)
    finally:
        core.give()


cdef int add_arcs(network, int64_t[::1] tail, int64_t[::1] head, int64_t[::1] capacity, int64_t[::1] cost, int64_t[::1] ids) except -1:
    """Add arcs without lower bounds; fill `ids`."""
    cdef Network core = <Network?> network
    core.take()
    try:
        return core.more_arcs(tail, head, capacity, cost, core.none64, ids)
    finally:
        core.give()


cdef int set_numbers(network, int which, int64_t[::1] ids, int64_t[::1] values) except -1:
    """Set the supplies of nodes, or the capacities or costs of arcs."""
    cdef Network core = <Network?> network
    core.take()
    try:
        if which == SET_SUPPLY:
            return core.put_supply(ids, values)
        if which == SET_CAPACITY:
            return core.put_capacity(ids, values)
        return core.put_cost(ids, values)
    finally:
        core.give()


cdef int read_flows(network, const int64_t *arcs, Py_ssize_t k, int64_t *flow) except -1:
    """Read the flow on arcs in the last solution."""
    cdef Network core = <Network?> network
    cdef Py_ssize_t i
    core.take()
    try:
        for i in range(k):
            if not (0 <= arcs[i] < core.m and core.pos[2 * arcs[i]] >= 0):
                raise IndexError("no such arc")
            flow[i] = core.last_flow(<int32_t> arcs[i]) if core.solved else 0
    finally:
        core.give()
    return 0


cdef object _too_much(const int64_t[::1] supply, const int64_t[::1] lower):
    """None, or a text if the magnitudes sum to 2**60 or more."""
    cdef Py_ssize_t wrong = -1
    cdef int64_t total = _sum_of(supply, 0, &wrong)
    if wrong >= 0:
        return f"supply[{wrong}]: too large; the magnitudes must add up to less than 2**60"
    _sum_of(lower, total, &wrong)
    return "supply, lower: they add up to 2**60 or more" if wrong >= 0 else None


def _whole(view, /):
    """The array behind a memoryview.  np.asarray would parse the format of records in Python, where Ctrl-C turns into a ValueError."""
    return view if isinstance(view, np.ndarray) else view.base


cdef object _grown(view, int64_t size):
    """A copy of length `size`, the new part filled with zeros."""
    array = _whole(view)
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


def _unique(ids, name, /):
    ids = np.asarray(ids)
    if len(ids) > 1:
        fs_allocate()
        seen, first = np.unique(ids, return_index=True)
        if len(seen) < len(ids):
            i = np.setdiff1d(np.arange(len(ids)), first)[0]
            raise InputError(f"{name}[{i}]: {ids[i]} occurs twice")
