"""The kernel for whole networks: primal network simplex, arrays in, arrays out.

The problem
-----------
Nodes v with supply b(v) (> 0 sends), arcs a = (u, v) with bounds l(a) <= f(a) <= c(a) and cost w(a).  The problem is to find a flow
that balances every node at least cost.  Lower bounds are moved into the supplies at once, so that below 0 <= f <= c.

The parts
---------
A `Simplex` is a basis (basis.pyx: the tree, its invariants (T), (S), (P) and (D)) that is built from arcs (first_tree.pyx, coarse.pyx), pivots to the optimum (primal.pyx), and
is reused after changes (dual.pyx).

Time limits
-----------
A solve that is stopped goes on with the same basis (`resume`).  Remaining deficits are routed with little regard to costs (completion.pyx), in a copy: the basis needs the
flow of a tree.  For any flow and potentials, the sum of -rc * room over all half-arcs of rc < 0 is a *gap*: an upper bound on the cost above the optimum.

Who calls whom: network/one_shot.py -> `solve`, _cs.pyx -> `Simplex.solve` -> `survey`, `run` -> `fill`, `crash` -> `forest`, `sketch` -> `Coarse`, `load_tree`; `plant`;
`go_on` -> `settle`, `primal_simplex` -> `renumber`, `pivot` -> `reroot`, `shift`; `finish`; after changes `resume` -> `change` -> `reprice`, `set_capacity`,
`feed`; `renew` -> `nearby` -> `pivot`, `dual_simplex`; `go_on` if that is not enough.  When time is up: `flow_so_far` -> `Completion`; `make_reusable`.
"""

cimport cython
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint64_t

from flowsched._faults cimport FS_LONG, _copy, _empty, _zeros
from flowsched.kernels.basis cimport CINF, DEPTH_MAX, DRIFT_MAX, HUGE, INT32, INT64, LINK, NODE, NOWHERE, RISE_MAX, SLACK, SLOT
from flowsched.kernels.completion cimport completed
from flowsched.kernels.dual cimport Dual
from flowsched.kernels.first_tree cimport START_ANY, START_COARSE, START_JOINED, START_PATHS
from flowsched.kernels.primal cimport MANY, SUSPECTS
from flowsched.kernels.status cimport EASY, INFEASIBLE, JOINED, LATE, OK, RANGE, UNBOUNDED
from flowsched.kernels.wide cimport fs_muladd

import time

import numpy as np

cdef int32_t WARM_BLOCK = 3              # factor on the block size: few slots can enter after a change, and a better choice saves pivots
cdef int64_t LOAD_NS = 60        # laying out an arc and finding the first tree

cdef enum:
    CHAINED = 8        # nodes per pass-through node, and
    CHAINED_MIN = 100  # number of pass-through nodes, from which they are taken out

_START = ("nothing", "shortest_paths", "coarse", "flow")
STARTS = {"any": START_ANY, "shortest_paths": START_PATHS, "coarse": START_COARSE, "joined": START_JOINED}     # `start` of `solve`


@cython.final
cdef class Simplex(Dual):
    """One solve; see the head of this file."""

    @cython.embedsignature(True)
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

    # == a solve ===============================================================================================

    def solve(self, double time_limit, double rescue=-1, int64_t allowance=-1, /):
        """Solve from scratch, or from the flow given; see `solve` below.  SPENT once the work exceeds the allowance, unless that is negative."""
        cdef int status
        self.begin(time_limit, rescue, allowance)
        with nogil:
            status = self.survey()
        if status == OK and self.bulk < CINF and self.is_easy():
            return EASY, None, None, None
        if self.start == START_JOINED:
            self.start = START_ANY
            if status == OK and self.chained >= max(self.n // CHAINED, CHAINED_MIN):
                return JOINED, None, None, None
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

    # == the answer ============================================================================================

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

    # == for callers ===========================================================================================

    def nbytes(self):
        """Memory of all arrays, in bytes."""
        return sum([array.nbytes for array in self.arrays()])

    cdef list arrays(self):
        """Arrays that a solved basis still needs."""
        views = [self.flow, self.lower, self.potential, self.link, self.slack, self.node, self.next, self.name, self.slot, self.room, self.code]
        if self.placed:
            views += [self.place, self.ours, self.altered, self.around, self.at, self.seen, self.owing, self.owed, self.suspect]
        return [view.base for view in views]

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

    # == as data ===============================================================================================

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
    EASY          None: `bulk` is finite, and a local repair is likely to be faster: paths hardly compete, or there are `bulk` arcs and shortest paths hold nearly all flow
    JOINED        None: with the start of that name many nodes only pass flow on, and the caller takes them out (`kernels.reduction`)
    """
    cdef Simplex simplex = Simplex(tail, head, capacity, cost, supply, lower, flow, potential, False)
    simplex.start, simplex.bulk = start, bulk
    return simplex.solve(time_limit)
