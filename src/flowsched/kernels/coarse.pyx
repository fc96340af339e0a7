"""Coarse flow for the simplex to start from: one phase of push-relabel.

Goldberg and Tarjan's successive approximation takes a flow through phases of falling epsilon: at the end of each, rc >= -epsilon on every residual
half-arc.  This is a single phase, from scratch.  It leaves little work to the simplex: most of its flow takes the right paths, and its potentials are good up
to epsilon a step.  Epsilon is the mean cost of one of the cheapest arcs at a node, as paths of such arcs lead everywhere.  A smaller epsilon takes
more steps here than it saves pivots, a larger one costs more pivots than it saves steps.

The phase is partial augment-relabel: from a node of excess a path of at most `REACH` half-arcs of rc < 0 is grown, dead ends are relabelled, and the
path is augmented.  A *global update* now and then lowers every potential to its distance, in steps of epsilon, from the nearest deficit.

Correctness does not depend on the quality of the flow.  At every step each arc is within its bounds and `excess` holds each node's excess or deficit, so the phase may be
given up at any time: after too many scans, which bounds every loop here, or when potentials have fallen too far, as they do in a network without a feasible flow.

References: A. V. Goldberg, An efficient implementation of a scaling minimum-cost flow algorithm (1997); Z. Király, P. Kovács, Efficient implementations of
minimum-cost flow algorithms (2012).
"""

cimport cython
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t

from flowsched.kernels.basis cimport CINF, INT32, INT64, Basis
from flowsched.kernels.status cimport LATE, OK
from flowsched._faults cimport _copy, _empty, _zeros

import numpy as np

cdef struct Half:      # the half-arcs of a node are contiguous, forward ones first
    int64_t cost
    int32_t head
    int32_t mate       # index of the arc's other half-arc

HALF = np.dtype([("cost", "i8"), ("head", "i4"), ("mate", "i4")])

cdef enum:
    REACH = 4          # half-arcs of a path, at most
    STALE = 2          # relabels per node until the next global update
    SPREAD = 4         # largest distance per node in a global update
    SKETCHES = 250     # scanned half-arcs per arc, at most

cdef double GRAIN = 3.4                  # factor on the mean cost / (arcs at a node) ** 1.5, which gives epsilon, rounded down to a power of 2


@cython.final
cdef class Coarse:
    """One phase for a `Basis` whose slots are filled; see above."""

    cdef int32_t n
    cdef int64_t eps               # 2 to the power of `grain`
    cdef int grain
    cdef int64_t scanned
    cdef int64_t floor             # potentials below it are out of range: only those of dead ends
    cdef int64_t dead              # potential of a dead end: so low that no half-arc into it has rc < 0
    # -- by node ---------------------------------------------------------------------------------------------------
    cdef int64_t[::1] potential    # >= floor, or dead
    cdef int64_t[::1] excess       # supply + inflow - outflow
    cdef int32_t[::1] first        # half[first[v] : first[v + 1]] are v's
    cdef int32_t[::1] middle       # the backward half-arcs begin here
    cdef int32_t[::1] backs        # number of backward half-arcs with residual capacity: mostly 0, and then none is scanned
    cdef int32_t[::1] fed          # number of forward half-arcs that carry flow
    cdef int32_t[::1] now          # the current half-arc: none of v before it has rc < 0 and residual capacity
    cdef int32_t[::1] queue        # a ring: nodes of excess, each once
    cdef unsigned char[::1] queued
    cdef int32_t front, count
    cdef int32_t[::1] dist         # in a global update: distance to a deficit, in epsilons
    cdef int32_t[::1] later        # the next node at the same distance, -1 at the end
    cdef int32_t[::1] sooner       # the one before it, -1 at the front
    cdef int32_t[::1] bucket       # by distance: the first node, -1 without one
    # -- by half-arc, and by slot --------------------------------------------------------------------------------------
    cdef Half[::1] half
    cdef int64_t[::1] room         # residual capacity
    cdef int32_t[::1] place        # index of the slot's half-arc

    @cython.embedsignature(True)
    def __init__(self, Basis owner):
        cdef int32_t n = owner.n
        self.n = n
        self.potential, self.excess = _zeros(n, INT64), _copy(owner.balance)[:n]
        self.first, self.now, self.queue = _zeros(n + 2, INT32), _empty(n, INT32), _empty(n, INT32)
        self.middle, self.backs, self.fed = _zeros(n, INT32), _zeros(n, INT32), _zeros(n, INT32)
        self.queued = _zeros(n, np.uint8)
        self.dist, self.later, self.sooner = _empty(n, INT32), _empty(n, INT32), _empty(n, INT32)
        self.bucket = _empty(min(SPREAD * <int64_t>n, 1 << 30) + 1, INT32)
        self.half, self.room = _empty(2 * <int64_t>owner.slots + 1, HALF), _empty(2 * <int64_t>owner.slots + 1, INT64)       # + 1: there is always a first
        self.place = _empty(owner.slots, INT32)
        self.eps = 1
        self.floor = -4 * <int64_t>(n + 1) * max(owner.top_cost, 1)
        self.dead = self.floor - max(owner.top_cost, 1)

    cdef int load(self, Basis owner) except -1 nogil:
        """Lay out the half-arcs, with no flow except on arcs of negative cost, which are full."""
        cdef int32_t e, u, v, i, j
        cdef int64_t room, cost
        cdef double total = 0, sparse
        for e in range(owner.slots):
            if owner.code[e] >= 0:
                self.first[owner.slot[e].tail + 1] += 1
                self.middle[owner.slot[e].tail] += 1
                self.first[owner.slot[e].head + 1] += 1
        for v in range(self.n):
            self.first[v + 1] += self.first[v]
            self.now[v] = self.first[v]
            self.middle[v] += self.first[v]
            self.later[v] = self.middle[v]
        for e in range(owner.slots):
            if owner.code[e] >= 0:
                u, v, room, cost = owner.slot[e].tail, owner.slot[e].head, owner.room[e], owner.slot[e].cost
                i = self.now[u]
                self.now[u] += 1
                j = self.later[v]
                self.later[v] += 1
                self.place[e] = i
                self.half[i].head, self.half[i].mate, self.half[i].cost, self.room[i] = v, j, cost, room
                self.half[j].head, self.half[j].mate, self.half[j].cost, self.room[j] = u, i, -cost, 0
                total += cost if cost > 0 else -cost
                if cost < 0:
                    self.room[i], self.room[j] = 0, room
                    self.fed[u] += 1
                    self.backs[v] += 1
                    self.excess[u] -= room
                    self.excess[v] += room
        sparse = self.n / <double>max(owner.slots, 1)
        total *= GRAIN * sparse * sqrt(sparse) / max(owner.slots, 1)
        while 2 * self.eps <= total:
            self.eps *= 2
            self.grain += 1
        return 0

    cdef int refine(self, Basis owner) except -1 nogil:
        """Route excesses until none is left, or the phase is given up; LATE if time is up."""
        cdef Half *half = &self.half[0]
        cdef int64_t *pot = &self.potential[0]
        cdef int64_t *exc = &self.excess[0]
        cdef int64_t *room = &self.room[0]
        cdef int32_t *first = &self.first[0]
        cdef int32_t *now = &self.now[0]
        cdef int32_t *middle = &self.middle[0]
        cdef int32_t *backs = &self.backs[0]
        cdef int32_t *fed = &self.fed[0]
        cdef int32_t path[REACH]
        cdef int32_t s, u, v, i, j, k, length, end, best
        cdef int64_t limit = SKETCHES * <int64_t>owner.slots, seen = 0, stale = STALE * <int64_t>self.n, p, rc, least, amount
        for v in range(self.n):
            now[v] = first[v]
            if exc[v] > 0:
                self.append(v)
        while self.count and self.scanned < limit:
            if stale >= STALE * <int64_t>self.n:
                stale = 0
                if not self.update():
                    return OK
            s = self.queue[self.front]
            self.front = self.front + 1 if self.front + 1 < self.n else 0
            self.count -= 1
            self.queued[s] = False
            while exc[s] > 0 and self.scanned < limit:
                # grow a path of half-arcs of rc < 0
                v, length = s, 0
                while length < REACH and (exc[v] >= 0 or not length) and self.scanned < limit:
                    p, i, end = pot[v], now[v], first[v + 1] if backs[v] else middle[v]
                    while i < end and not (room[i] > 0 and half[i].cost + p < pot[half[i].head]):
                        i += 1
                    self.scanned += i - now[v] + 1
                    if i >= end:
                        least, best = CINF, -1
                        for i in range(first[v], end):
                            rc = half[i].cost + p - pot[half[i].head]
                            if rc < least and room[i] > 0:
                                least, best = rc, i
                        self.scanned += end - first[v]
                        stale += 1
                        now[v] = first[v]
                        if best < 0 and length:             # a dead end: no path may enter it again
                            pot[v] = self.dead
                        elif p - least - self.eps < self.floor:
                            return OK
                        else:
                            pot[v] = p - least - self.eps
                        if length:
                            length -= 1
                            v = half[half[path[length]].mate].head
                            continue
                        i = best
                    else:
                        now[v] = i
                    path[length] = i
                    length += 1
                    v = half[i].head
                # augment along the path
                v = s
                for k in range(length):
                    i = path[k]
                    u, j = half[i].head, half[i].mate
                    amount = min(exc[v], room[i])
                    if i < middle[v] and not room[j]:
                        fed[v] += 1
                        backs[u] += 1
                    room[i] -= amount
                    room[j] += amount
                    if i >= middle[v] and not room[i]:
                        fed[u] -= 1
                        backs[v] -= 1
                    exc[v] -= amount
                    if exc[v] > 0 and k:
                        self.append(v)
                    v = u
                    exc[v] += amount
                if exc[v] > 0:
                    self.append(v)
                owner.until_poll -= self.scanned - seen
                seen = self.scanned
                if owner.until_poll <= 0 and owner.poll() != OK:
                    return LATE
        return OK

    cdef int hand_over(self, Basis owner) except -1 nogil:
        """Load this flow and these potentials into the basis as its start."""
        cdef int32_t v, e
        cdef int64_t room, flow, least = 0
        for v in range(self.n):
            if self.potential[v] >= self.floor:
                least = min(least, self.potential[v])
        for v in range(self.n):
            owner.balance[v], owner.potential[v] = self.excess[v], max(self.potential[v], least)
        for e in range(owner.slots):
            if owner.code[e] >= 0:
                flow, room = self.room[self.half[self.place[e]].mate], owner.room[e]
                if flow == room:
                    owner.swap(e)
                    flow = 0
                owner.load[e] = flow
        return 0

    cdef inline int append(self, int32_t v) except -1 nogil:
        cdef int64_t at = <int64_t>self.front + self.count
        if not self.queued[v]:
            self.queued[v] = True
            self.queue[at - self.n if at >= self.n else at] = v
            self.count += 1
        return 0

    cdef bint update(self) except -1 nogil:
        """Lower potentials by the distance to the nearest deficit, in epsilons, at most that of the farthest excess; False if one would fall out of range.

        rc >= -eps stays true of every residual half-arc, for its length is rc / eps + 1, rounded down, or 0 if rc < 0.
        """
        cdef Half *half = &self.half[0]
        cdef int64_t *pot = &self.potential[0]
        cdef int64_t *room = &self.room[0]
        cdef int32_t *dist = &self.dist[0]
        cdef int32_t *bucket = &self.bucket[0]
        cdef int32_t v, u, i, d = 0, far = <int32_t>self.bucket.shape[0] - 1, top = 0, missed = 0
        cdef int64_t p, rc, step
        for d in range(far + 1):
            bucket[d] = -1
        for v in range(self.n):
            dist[v] = far + 1
            if self.excess[v] < 0:
                self.enlist(v, 0)
            missed += self.excess[v] > 0
        d = 0
        while missed and d <= top:
            v = bucket[d]
            if v < 0:
                d += 1
                continue
            self.delist(v)
            missed -= self.excess[v] > 0
            p = pot[v]
            i = self.first[v] if self.fed[v] else self.middle[v]
            self.scanned += self.first[v + 1] - i
            for i in range(i, self.first[v + 1]):
                u = half[i].head
                if dist[u] > d and room[half[i].mate] > 0:
                    rc = pot[u] - p - half[i].cost
                    step = d + ((rc >> self.grain) + 1 if rc >= 0 else 0)
                    if step <= far and step < dist[u]:
                        if dist[u] <= far:
                            self.delist(u)
                        self.enlist(u, <int32_t>step)
                        top = max(top, <int32_t>step)
        for v in range(self.n):
            if pot[v] != self.dead and pot[v] - d * self.eps < self.floor:
                return False
        for v in range(self.n):
            u = min(dist[v], d)
            if u and pot[v] != self.dead:
                pot[v] -= u * self.eps
                self.now[v] = self.first[v]
        return True

    cdef inline int enlist(self, int32_t v, int32_t d) except -1 nogil:
        cdef int32_t next = self.bucket[d]
        self.dist[v], self.later[v], self.sooner[v], self.bucket[d] = d, next, -1, v
        if next >= 0:
            self.sooner[next] = v
        return 0

    cdef inline int delist(self, int32_t v) except -1 nogil:
        cdef int32_t sooner = self.sooner[v], later = self.later[v]
        if sooner >= 0:
            self.later[sooner] = later
        else:
            self.bucket[self.dist[v]] = later
        if later >= 0:
            self.sooner[later] = sooner
        return 0


cdef int coarse_flow(Basis owner, int64_t *scanned) except -1:
    """Load a coarse flow, in `load`, and its potentials into the basis; LATE if time is up.  `scanned` becomes the number of half-arcs scanned."""
    cdef Coarse coarse = Coarse(owner)
    cdef int status
    owner.load = _zeros(owner.slots, INT64)
    with nogil:
        coarse.load(owner)
        status = coarse.refine(owner)
        scanned[0] = coarse.scanned
        if status == OK:
            coarse.hand_over(owner)
    return status
