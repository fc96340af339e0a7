"""Series and parallel reduction: the nodes that only pass flow on are taken out of a network before it is solved.

A node without supply that has one arc in and one arc out is taken out.  Its arcs are joined *in series*: the entering arc remains, with the sum of both costs and the
smaller capacity.  Where that makes two arcs of the same ends and cost, they are joined *in parallel*, and their ends may then have one arc in and one out.  So a machine with
its cores and threads shrinks to an arc, instead of many potentials that a pivot would move.

The joins are undone in reverse order.  In series both arcs get the flow of the joined one; its reduced cost goes to the narrower one, which is full if the joined one is, and
the other one gets 0.  In parallel one arc is filled before the other.  So an optimum stays one, and the gap of any flow stays as it is.

Complexity: O(n + m), as each join takes an arc out.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from flowsched._faults cimport _copy, _empty, _zeros
from flowsched.kernels.basis cimport CINF, INT32, INT64, SLOT, Slot

import numpy as np

cdef struct Ends:      # of a node
    int32_t ins        # number of arcs that enter,
    int32_t outs       # and that leave
    int32_t into       # the ids of the entering arcs, combined by exclusive or: the id if there is one
    int32_t out

cdef object ENDS = np.dtype([("ins", "i4"), ("outs", "i4"), ("into", "i4"), ("out", "i4")])


@cython.final
cdef class Reduction:
    """A network whose pass-through nodes are taken out; its arcs and supplies are those of `flowsched.kernels.simplex.solve`, which has checked them (JOINED)."""

    cdef int32_t n, m
    cdef const int32_t[::1] tail, head
    cdef const int64_t[::1] capacity, cost, lower
    # -- by node -------------------------------------------------------------------------------------------------
    cdef int64_t[::1] balance      # supply after the lower bounds; CINF for a node taken out
    cdef int64_t[::1] potential
    cdef Ends[::1] ends
    cdef int32_t[::1] newest       # by tail: an arc that was joined
    # -- by arc --------------------------------------------------------------------------------------------------
    cdef int32_t[::1] entry        # see `join`
    cdef Slot[::1] slot
    cdef int64_t[::1] room
    cdef int64_t[::1] flow
    cdef int32_t[::1] arc          # the arcs joined, in their order
    cdef int32_t joins

    @cython.embedsignature(True)
    def __init__(self, const int32_t[::1] tail, const int32_t[::1] head, const int64_t[::1] capacity, const int64_t[::1] cost,
                 const int64_t[::1] supply, const int64_t[::1] lower):
        n, m = supply.shape[0], tail.shape[0]
        self.n, self.m = n, m
        self.tail, self.head, self.capacity, self.cost, self.lower = tail, head, capacity, cost, lower
        self.balance, self.potential, self.ends, self.newest = _copy(supply), _empty(n, INT64), _empty(n, ENDS), _empty(n, INT32)
        self.entry, self.slot, self.room, self.flow, self.arc = _empty(m, INT32), _empty(m, SLOT), _empty(m, INT64), _zeros(m, INT64), _empty(m, INT32)

    def reduced(self):
        """Reduce; return the rest: ``entry``, slots, ``room``, ``balance``, and where the caller writes flows and potentials for `restored`."""
        with nogil:
            self.join()
        return self.entry.base, self.slot.base, self.room.base, self.balance.base, self.flow.base, self.potential.base

    def restored(self):
        """Extend the flows and potentials of the reduced network to the whole one."""
        with nogil:
            self.part()

    cdef inline bint passes(self, int32_t v, Ends end) noexcept nogil:
        """True if v has one arc in, one arc out, and no supply."""
        return end.ins == 1 and end.outs == 1 and end.into != end.out and self.balance[v] == 0

    cdef int join(self) except -1 nogil:
        """Take out pass-through nodes, by series and parallel reduction.

        Arc a is in slot a; ``entry[a]`` is -1 if the arc remains, i if it was joined to arc i in series, -2 - i in parallel.  The k-th arc joined is in ``arc[k]``;
        its ``room`` says, in series, if i was the narrower one, and in parallel the flow limit of i.  ``balance`` is CINF for nodes taken out.
        """
        cdef Ends *end = &self.ends[0]
        cdef Slot *slot = &self.slot[0]
        cdef int64_t *room = &self.room[0]
        cdef int32_t *entry = &self.entry[0]
        cdef int32_t[::1] newest = self.newest      # by tail: an arc that was joined
        cdef int32_t a, u, v, w, i, j
        cdef int64_t lo = 0, x
        for v in range(self.n):
            end[v].ins = end[v].outs = end[v].into = end[v].out = 0
            newest[v] = -1
        for a in range(self.m):
            if self.lower.shape[0]:
                lo = self.lower[a]
                self.balance[self.tail[a]] -= lo
                self.balance[self.head[a]] += lo
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
                self.arc[self.joins] = j
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
                    self.arc[self.joins] = i
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
            j = self.arc[k]
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
