"""Completion of a flow that is stopped before it is feasible: excesses are sent to the nodes with a deficit.

This is a maximum flow by augmenting paths that follow labels, as in push-relabel.  Costs count as far as that is cheap: the *length* of a half-arc is
1 + its reduced cost in units of `grain`, at most LONGEST.  label(v) is a lower bound on the length of a path from v to a node with a deficit, so

(L)  label(u) <= label(v) + length on every residual half-arc u -> v, and label = 0 at a node with a deficit.

A path grows along half-arcs to lower labels, so it never meets itself.  A push along one opens its mate, which leads to a higher label and keeps (L).  A node without
a lower neighbour is relabelled to the least label + length of its neighbours, and the path steps back.  At first, and again after much work, labels are made exact
by a search from the nodes with a deficit (`measure`), which also finds the nodes that reach none.

At every step each arc is within its bounds and `excess` holds each node's excess or deficit.

References: A. V. Goldberg, R. E. Tarjan, A new approach to the maximum-flow problem (1988); R. B. Dial, Algorithm 360: Shortest-path forest with
topological ordering (1969).
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t

from flowsched.kernels.basis cimport HUGE, INT32, INT64, Basis
from flowsched.kernels.status cimport LATE, OK
from flowsched._faults cimport FS_FUEL, _empty, _zeros

import numpy as np

cdef struct Way:       # a half-arc, at the node that it leaves
    int32_t head
    int32_t code       # room[code] is its residual capacity, room[code ^ 1] that of its mate
    int16_t length
    int16_t back       # length of the mate

WAY = np.dtype([("head", "i4"), ("code", "i4"), ("length", "i2"), ("back", "i2")])

cdef enum:
    LONGEST = 63       # one less than a power of 2: labels modulo LONGEST + 1 are bucket numbers
    MEASURED = 2       # scanned half-arcs per half-arc before labels are made exact
    GRAINS = 30        # the largest cost in units of `grain`

cdef int64_t NEVER = <int64_t> 1 << 62   # label of a node from which no path leads to a node with a deficit


@cython.final
cdef class Completion:
    """Completion of the flow in a `Basis`, which stays unchanged."""

    cdef int32_t n, slots
    cdef int64_t grain
    cdef int64_t work              # half-arcs scanned since labels were exact
    cdef int64_t until_poll        # half-arcs to scan until the next check of the clock and signals
    # -- by half-arc: 2 slot in its direction, 2 (slots + v) up the tree from v; | 1 for the mate -----------------------
    cdef int64_t[::1] room
    # -- by node ---------------------------------------------------------------------------------------------------
    cdef int64_t[::1] excess       # > 0 excess, < 0 deficit
    cdef int64_t[::1] label
    cdef int32_t[::1] first        # way[first[v] : first[v + 1]] leave v,
    cdef int32_t[::1] last         # way[first[v] : last[v]] are all that have had residual capacity so far
    cdef int32_t[::1] onward       # the current half-arc: the one last taken
    cdef int32_t[::1] trail        # the nodes of the path
    cdef int32_t[::1] path         # and its half-arcs
    # ----------------------------------------------------------------------------------------------------------------
    cdef Way[::1] way

    @cython.embedsignature(True)
    def __init__(self, Basis owner):
        cdef int32_t n = owner.n, slots = owner.slots
        cdef int64_t ways = 2 * (<int64_t>slots + n)
        self.n, self.slots, self.grain = n, slots, max(owner.top_cost // GRAINS, 1)
        self.room, self.way = _zeros(ways, INT64), _empty(ways, WAY)
        self.excess, self.label, self.first = _zeros(n + 1, INT64), _zeros(n + 1, INT64), _zeros(n + 2, INT32)
        self.last = _zeros(n + 1, INT32)
        self.onward, self.trail, self.path = _zeros(n + 1, INT32), _empty(n + 1, INT32), _empty(n + 1, INT32)

    cdef inline int16_t length(self, int64_t rc) except? -1 nogil:
        return <int16_t>min(rc // self.grain + 1, LONGEST) if rc > 0 else 1

    cdef inline int32_t enter(self, int32_t v, int64_t room) except -1 nogil:
        """A place among the ways that leave v: in front with room, else at the end."""
        if room:
            self.last[v] += 1
            return self.last[v] - 1
        self.onward[v] -= 1
        return self.onward[v]

    cdef inline int join(self, int32_t code, int32_t u, int32_t v, int64_t rc) except -1 nogil:
        """Note half-arc `code` from u to v, and its mate."""
        cdef int32_t i = self.enter(u, self.room[code]), j = self.enter(v, self.room[code ^ 1])
        self.way[i].head, self.way[i].code, self.way[i].length, self.way[i].back = v, code, self.length(rc), self.length(-rc)
        self.way[j].head, self.way[j].code, self.way[j].length, self.way[j].back = u, code ^ 1, self.way[i].back, self.way[i].length
        return 0

    cdef int load(self, Basis owner) except -1 nogil:
        """Take over the flow."""
        cdef int32_t e, u, v, k
        for e in range(owner.slots):
            if owner.code[e] >= 0:
                self.first[owner.slot[e].tail + 1] += 1
                self.first[owner.slot[e].head + 1] += 1
        for v in range(self.n):
            if owner.node[v].code >= 0:
                self.first[v + 1] += 1
                self.first[owner.link[v].parent + 1] += 1
        for v in range(self.n):
            self.first[v + 1] += self.first[v]
            self.last[v], self.onward[v] = self.first[v], self.first[v + 1]
        for e in range(owner.slots):
            if owner.code[e] >= 0:
                u, v = owner.slot[e].tail, owner.slot[e].head
                self.room[2 * e] = owner.room[e]
                if owner.load.shape[0]:
                    self.room[2 * e] -= owner.load[e]
                    self.room[2 * e + 1] = owner.load[e]
                self.join(2 * e, u, v, owner.slot[e].cost + owner.potential[u] - owner.potential[v])
        for v in range(self.n):
            k = 2 * (self.slots + v)
            if owner.node[v].code >= 0:
                self.room[k], self.room[k + 1] = owner.slack[v].up, owner.slack[v].down
                self.join(k, v, owner.link[v].parent, 0)
            else:
                self.excess[v] = owner.slack[v].down if owner.slack[v].up >= HUGE else -owner.slack[v].up
        for v in range(self.n):
            self.onward[v] = self.first[v]
        return 0

    cdef int measure(self, Basis owner) except -1 nogil:
        """Make all labels exact that are not above the last one of a node of excess, by Dial's buckets; LATE if time is up."""
        cdef int32_t bucket[LONGEST + 1]
        cdef int32_t[::1] later, sooner         # in the bucket
        cdef int64_t[::1] label = self.label
        cdef int64_t level = 0, d
        cdef int32_t v, w, i, b, queued = 0, awaited = 0
        with gil:
            later, sooner = _empty(self.n, INT32), _empty(self.n, INT32)
        for i in range(LONGEST + 1):
            bucket[i] = -1
        for v in range(self.n):
            label[v] = NEVER
            awaited += self.excess[v] > 0
            if self.excess[v] < 0:
                label[v], later[v], sooner[v] = 0, bucket[0], -1
                if bucket[0] >= 0:
                    sooner[bucket[0]] = v
                bucket[0] = v
                queued += 1
        while queued and awaited:
            v = bucket[level & LONGEST]
            if v < 0:
                level += 1
                continue
            bucket[level & LONGEST] = later[v]
            if later[v] >= 0:
                sooner[later[v]] = -1
            queued -= 1
            awaited -= self.excess[v] > 0
            self.until_poll -= self.first[v + 1] - self.first[v]
            if self.until_poll < 0:
                self.until_poll = FS_FUEL // 4
                if owner.overdue():
                    return LATE
            for i in range(self.first[v], self.first[v + 1]):
                w, d = self.way[i].head, level + self.way[i].back
                if label[w] <= d or not self.room[self.way[i].code ^ 1]:
                    continue
                if label[w] == NEVER:
                    queued += 1
                else:
                    if sooner[w] >= 0:
                        later[sooner[w]] = later[w]
                    else:
                        bucket[label[w] & LONGEST] = later[w]
                    if later[w] >= 0:
                        sooner[later[w]] = sooner[w]
                b = d & LONGEST
                label[w], later[w], sooner[w] = d, bucket[b], -1
                if bucket[b] >= 0:
                    sooner[bucket[b]] = w
                bucket[b] = w
        for v in range(self.n if queued else 0):
            label[v] = min(label[v], level)
        self.work = 0
        return OK

    cdef int augment(self, int32_t length, int32_t end) except? -1 nogil:
        """Augment along the path; return the length of the part before the first saturated half-arc, or before its end."""
        cdef int32_t i, v, left = length - 1
        cdef int64_t amount = min(self.excess[self.trail[0]], -self.excess[end])
        for i in range(length):
            amount = min(amount, self.room[self.path[i]])
        for i in range(length - 1, -1, -1):
            self.room[self.path[i]] -= amount
            if not self.room[self.path[i] ^ 1]:
                v = self.trail[i + 1] if i + 1 < length else end
                self.last[v] = self.first[v + 1]
            self.room[self.path[i] ^ 1] += amount
            if not self.room[self.path[i]]:
                left = i
        self.excess[self.trail[0]] -= amount
        self.excess[end] += amount
        return left

    cdef int route(self, int32_t s, Basis owner) except -1 nogil:
        """Send the excess of s, until there is no path, or labels are to be made exact; LATE if time is up."""
        cdef Way[::1] way = self.way
        cdef int64_t[::1] label = self.label
        cdef int32_t tip = s, length = 0, i, begin, end, v = -1, turn
        cdef int64_t least, here
        while self.excess[s] > 0 and self.work < MEASURED * way.shape[0]:
            begin, end, here, least, i = self.first[tip], self.last[tip], label[tip], NEVER, self.onward[tip]
            for turn in range(end - begin):
                if self.room[way[i].code]:
                    v = way[i].head
                    if label[v] < here:
                        break
                    least = min(least, label[v] + way[i].length)
                i = i + 1 if i + 1 < end else begin
            else:
                turn = end - begin
            self.work += turn + 1
            self.until_poll -= turn + 1
            if self.until_poll < 0:
                self.until_poll = FS_FUEL // 4
                if owner.overdue():
                    return LATE
            if turn < end - begin:
                self.onward[tip], self.trail[length], self.path[length] = i, tip, way[i].code
                length += 1
                tip = v
                if self.excess[v] < 0:
                    length = self.augment(length, v)
                    tip = self.trail[length]
            else:
                label[tip] = min(least, NEVER)
                if length:
                    length -= 1
                    tip = self.trail[length]
                elif least >= NEVER:
                    break
        return OK

    cdef int run(self, Basis owner) except -1 nogil:
        """Route all excesses; LATE if that takes too long, or there is no path."""
        cdef int32_t s
        cdef bint done = False
        while not done:
            if self.measure(owner) != OK:
                return LATE
            done = True
            for s in range(self.n):
                if self.excess[s] > 0:
                    if self.label[s] >= NEVER or self.route(s, owner) != OK:
                        return LATE
                    done = done and self.excess[s] == 0
        return OK


cdef int64_t[::1] completed(Basis owner):
    """Residual capacities of all half-arcs under the completed flow, see `Completion.room`; None if there is no path, or it takes too long."""
    cdef Completion rest = Completion(owner)
    cdef bint missing
    rest.load(owner)
    with nogil:
        missing = rest.run(owner) != OK
    return None if missing else rest.room
