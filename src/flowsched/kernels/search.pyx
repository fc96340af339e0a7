# cython: embedsignature=False
"""Shortest residual paths by Dijkstra's algorithm on reduced costs, from one end or from both.

By (I), see `flowsched._cs`, every residual half-arc has a reduced cost >= 0, so the first path found to an end is a shortest one.  A search moves potentials on the
nodes that it has settled, by amounts that keep (I), so that it may stop anywhere: after the moves the path has reduced cost 0, and flow is sent along it.

The paths end at deficits (from an excess), at excesses (from a deficit), or at the *hub*.  Their uses:

`search`                successive shortest paths: send one excess
`cancel_unsaturable`    shortest cycles through the half-arcs that are too large to saturate
`centre`                distances to the hub as potentials
`mark_reachable`                 the nodes behind a cut, by breadth-first search

Keys are taken in ascending order, so the labels wait in a radix heap (`heap.pxd`).  A search settles k nodes and scans their h half-arcs in
O(h + k log(n C)).

References: E. W. Dijkstra, A note on two problems in connexion with graphs (1959); R. K. Ahuja, K. Mehlhorn, J. B. Orlin and R. E. Tarjan, Faster algorithms for the
shortest path problem (1990).
"""

from libc.stdint cimport int32_t, int64_t

from flowsched._faults cimport _zeros, fs_look
from flowsched.kernels.heap cimport FAR, Label, clear_heap, least, remove
from flowsched.kernels.residual cimport AUGMENTATIONS, BIG, CINF, POT_MAX, SEARCH_SCANS, SEARCHES, SETTLED, Residual, grown, larger, mag
from flowsched.kernels.status cimport BEYOND, INFEASIBLE, INTERRUPTED, LATE, OK, RANGE, UNBOUNDED

import time

import numpy as np

LABEL = np.dtype([("dist", "i8"), ("parent", "i4"), ("stamp", "i4"), ("next", "i4"), ("prev", "i4")])


cdef class ShortestPaths(Residual):
    """A residual network whose shortest paths can be searched; see the head of this file."""

    def __init__(self):
        Residual.__init__(self)
        self.label, self.order = _zeros(0, LABEL), _zeros(2, np.int32)
        self.hub = -1
        self.budget = 3000

    cdef int grow_nodes(self, int64_t wanted) except -1:
        cdef int64_t size = larger(self.order.shape[0] - 2, wanted, 2**31 - 2)
        cdef Label[::1] label
        cdef int32_t[::1] order
        if wanted > self.order.shape[0] - 2 and wanted < 2**31 - 2:
            label, order = grown(self.label, 2 * size), _zeros(size + 2, np.int32)
            self.label, self.order = label, order
        return Residual.grow_nodes(self, wanted)

    cdef int clear_stamps(self) except -1 nogil:
        cdef int32_t i
        for i in range(2 * self.n):
            self.label[i].stamp = 0
        return Residual.clear_stamps(self)

    cdef object arrays(self):
        return Residual.arrays(self) + [self.label, self.order]

    cdef object write(self):
        return Residual.write(self) | {"hub": self.hub, "hub_seen": self.hub_size, "eccentric": int(self.off_centre), "budget": self.budget}

    cdef object read(self, state):
        wrong = Residual.read(self, state)
        if wrong is not None:
            return wrong
        if state["hub"] >= self.n:
            return "hub: no such node"
        self.label, self.order = np.zeros(2 * self.n, LABEL), np.zeros(self.n + 2, np.int32)
        self.hub, self.hub_size, self.off_centre, self.budget = state["hub"], state["hub_seen"], state["eccentric"], state["budget"]
        return None

    # == work ====================================================================================================

    cdef int poll(self) except -1 nogil:
        """Run pending signal handlers and check the clock; called every few milliseconds of work."""
        self.until_poll = self.poll_interval
        with gil:
            try:
                fs_look()
            except BaseException as error:
                self.pending_error = error    # raised after (I) is restored
                return INTERRUPTED
            if self.deadline and self.late(time.monotonic()):
                return LATE
        return OK

    cdef bint late(self, double now) except -1 nogil:
        """True if the remaining time is needed for an answer."""
        return now >= self.deadline

    cdef int settle_hub(self) except -1 nogil:
        """Choose as hub the node that takes (or sends) at least half of all flow, if there is one.

        All nodes are scanned only when the network has doubled or halved since the last choice.
        """
        cdef int32_t v, best = -1
        cdef int64_t size = self.live_nodes + 1
        cdef int64_t total = 0
        if self.hub >= 0 and self.node[self.hub].region[3] < 0:
            self.hub = -1
            self.hub_size = 0
        if self.hub_size and size < 2 * self.hub_size and 2 * size > self.hub_size:
            return 0
        self.hub_size = size
        for v in range(self.n):
            if self.node[v].region[3] >= 0:
                total += mag(self.supply[v])
                if best < 0 or mag(self.supply[v]) > mag(self.supply[best]):
                    best = v
        self.hub = best if best >= 0 and 4 * mag(self.supply[best]) >= total and total else -1
        return 0

    cdef int64_t count_uneven(self) except -1 nogil:
        """Number of nodes with an excess or a deficit, without the hub."""
        cdef int32_t i
        cdef int64_t count = 0
        for i in range(self.active_count):
            count += self.excess[self.active[i]] != 0 and self.active[i] != self.hub
        return count

    cdef bint uneven(self) except -1 nogil:
        """True if any node has an excess; a flow without one is optimal, by (I)."""
        cdef int32_t i
        for i in range(self.active_count):
            if self.excess[self.active[i]]:
                return True
        self.clear_active()
        return False

    # == the search ==============================================================================================

    cdef int search(self, int32_t s, int sign, int32_t goal, int64_t limit) except -1 nogil:
        """Augment once along a shortest path on reduced costs from s to an end; with a `goal` >= 0 only write the path to it to `order`.

        Side 0 is a Dijkstra search from s.  After ``budget`` scanned half-arcs, plus the number of the hub's, side 1 searches from all ends as well (never for a `goal`).
        F and B are radii within which all nodes of a side are settled.  With F + B = the path's length D, moving potentials by F - dist and B - dist keeps (I) and
        makes the path's reduced costs 0.  A label is worth keeping only below the best meeting value so far, and *only* this prunes: pruning with the other side's radius
        would leave nodes inside F or B unlabelled, and violate (I).
        A `goal` beyond all nodes is never met: then the search settles all that s reaches, moves nothing, and ends with INFEASIBLE (see `centre`).
        With a `limit`, a path of that length or more is not taken: the potentials move as if it had that length.
        """
        cdef int64_t length = limit, d, rc, radius, other, scanned = 0, enough = self.budget
        cdef int64_t top[2]
        cdef int64_t work[2]
        cdef int32_t settled[2]
        cdef int32_t e, v, w, i, lo, hi, meet = -1, n = <int32_t>self.order.shape[0]
        cdef int side, way, sides = 1, status
        cdef Label *far
        self.next_stamp()
        self.count[SEARCHES] += 1
        work[0] = work[1] = settled[0] = settled[1] = 0
        clear_heap(&self.heap[0])
        self.enter(0, s, 0, -1)
        if self.hub >= 0:
            self.residual_range(self.hub, -sign, &lo, &hi)
            enough += hi - lo
        while True:
            top[0] = least(&self.heap[0], &self.label[0])
            top[1] = least(&self.heap[1], &self.label[0]) if sides == 2 else 0
            if top[0] == FAR or top[1] == FAR or top[0] + top[1] >= length:
                break
            if sides == 1 and goal < 0 and scanned > enough:
                sides = 2
                clear_heap(&self.heap[1])
                if self.hub >= 0:
                    self.enter(1, self.hub, 0, -1)
                for i in range(self.active_count):
                    v = self.active[i]
                    if v != self.hub and self.is_end(v, sign):
                        self.enter(1, v, 0, -1)
                continue
            side = 0 if sides == 1 or work[0] <= work[1] else 1
            e = self.heap[side].front[0]
            remove(&self.heap[side], &self.label[0], e)
            v, d = e >> 1, top[side]
            if side == 0:
                self.order[settled[0]] = v
            else:
                self.order[n - 1 - settled[1]] = v
            settled[side] += 1
            way = sign if side == 0 else -sign
            self.residual_range(v, way, &lo, &hi)
            for i in range(lo, hi):
                w = self.half[i].head
                rc = self.half[i].cost + self.potential[v] - self.potential[w]
                if way < 0:
                    rc = -rc
                if rc < 0 or rc + d >= length:     # rc < 0: the half-arc is in ``unsaturable``, and is handled there
                    continue
                rc += d
                far = &self.label[2 * w + 1 - side]
                if goal >= 0:
                    if w == goal:
                        length, meet = rc, w
                        self.label[2 * w].parent = self.half[i].id
                        continue
                elif sides == 2 and far.stamp == self.stamp:
                    if rc + far.dist < length:
                        length, meet = rc + far.dist, w
                elif side == 0 and self.is_end(w, sign):
                    length, meet = rc, w
                    self.label[2 * w].parent = self.half[i].id
                    continue
                self.enter(side, w, rc, self.half[i].id)
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
        self.reserve_journal(0, settled[0] + settled[1])
        for i in range(settled[0]):
            v = self.order[i]
            if self.label[2 * v].dist < radius:
                if not -2 * POT_MAX < self.potential[v] - sign * (radius - self.label[2 * v].dist) < 2 * POT_MAX:
                    return self.put_back(i, 0, radius, other, sign)
                self.set_potential(v, self.potential[v] - sign * (radius - self.label[2 * v].dist))
        for i in range(settled[1]):
            v = self.order[n - 1 - i]
            if self.label[2 * v + 1].dist < other:
                if not -2 * POT_MAX < self.potential[v] + sign * (other - self.label[2 * v + 1].dist) < 2 * POT_MAX:
                    return self.put_back(settled[0], i, radius, other, sign)
                self.set_potential(v, self.potential[v] + sign * (other - self.label[2 * v + 1].dist))
        if meet < 0:
            return BEYOND
        return self.augment_search(s, meet, sign, goal, sides)

    cdef int put_back(self, int32_t near, int32_t far, int64_t radius, int64_t other, int sign) except -1 nogil:
        """Undo the first moves of potentials, because the next one would leave the range."""
        cdef int32_t i, v
        for i in range(near):
            v = self.order[i]
            if self.label[2 * v].dist < radius:
                self.set_potential(v, self.potential[v] + sign * (radius - self.label[2 * v].dist))
        for i in range(far):
            v = self.order[<int32_t>self.order.shape[0] - 1 - i]
            if self.label[2 * v + 1].dist < other:
                self.set_potential(v, self.potential[v] - sign * (other - self.label[2 * v + 1].dist))
        return RANGE

    cdef int trace(self, int32_t s, int32_t meet, int sign, int sides, int32_t *end) except -1 nogil:
        """Write the half-arcs of the path found, in the direction of the flow, to `order`; return their number."""
        cdef int32_t v = meet, h, length = 0
        while v != s:
            h = self.label[2 * v].parent
            self.order[length] = h if sign > 0 else h ^ 1
            length += 1
            v = self.tail(h)
        v = meet
        while sides == 2 and self.label[2 * v + 1].parent >= 0:
            h = self.label[2 * v + 1].parent
            self.order[length] = h if sign < 0 else h ^ 1
            length += 1
            v = self.tail(h)
        end[0] = v
        return length

    cdef int augment_search(self, int32_t s, int32_t meet, int sign, int32_t goal, int sides) except -1 nogil:
        """Augment along the path found; a path to a `goal` is only written to `order`, and `path_length` set."""
        cdef int32_t end = meet
        cdef int32_t length = self.trace(s, meet, sign, sides, &end), i
        cdef int64_t amount = mag(self.excess[s])
        if goal >= 0:
            self.path_length = length
            return OK
        self.reserve_journal(length, 0)
        if end != self.hub:
            amount = min(amount, mag(self.excess[end]))
        for i in range(length):
            amount = min(amount, self.residual[self.order[i]])
        for i in range(length):
            self.send(self.order[i], amount)
        self.add_excess(s, -amount * sign)
        self.add_excess(end, amount * sign)
        self.count[AUGMENTATIONS] += 1
        return OK

    # == its uses ================================================================================================

    cdef int cancel_unsaturable(self) except -1 nogil:
        """Augment along shortest cycles through each half-arc in ``unsaturable`` until its reduced cost is 0."""
        cdef int32_t h, i
        cdef int64_t amount
        cdef bint endless
        cdef int status
        while self.unsaturable_count:
            h = self.unsaturable[self.unsaturable_count - 1]
            if self.position[h] < 0 or self.position[h ^ 1] < 0 or self.residual[h] <= 0 or self.reduced(h) >= 0:
                self.unsaturable_count -= 1
                continue
            if self.residual[h] < BIG:
                self.reserve_journal(1, 0)
                self.push(h, self.residual[h])
                continue
            self.path_length = 0
            if self.tail(h) != self.head(h):
                status = self.search(self.head(h), 1, self.tail(h), -self.reduced(h))
                if status == BEYOND:
                    continue
                if status != OK:
                    return status
            self.order[self.path_length] = h
            amount, endless = CINF, True
            for i in range(self.path_length + 1):
                amount = min(amount, self.residual[self.order[i]])
                endless = endless and self.unlimited(self.order[i])
            if endless:
                return UNBOUNDED
            self.reserve_journal(self.path_length + 1, 0)
            for i in range(self.path_length + 1):
                self.send(self.order[i], amount)
        return OK

    cdef int mark_reachable(self, int32_t s, int sign) except -1 nogil:
        """Mark by BFS the nodes that s reaches along residual half-arcs (sign 1) or that reach s (sign -1)."""
        cdef int32_t i, lo, hi, v, w, taken = 0, found = 1
        self.next_stamp()
        self.order[0] = s
        self.mark[s] = self.stamp
        while taken < found:
            v = self.order[taken]
            taken += 1
            self.residual_range(v, sign, &lo, &hi)
            for i in range(lo, hi):
                w = self.half[i].head
                if self.mark[w] != self.stamp:
                    self.mark[w] = self.stamp
                    self.order[found] = w
                    found += 1
        return 0

    cdef int centre(self) except -1 nogil:
        """Replace the potentials by optimal ones that measure the distance to the hub: from an extreme point of the optimal potentials `repair` starts badly."""
        cdef int32_t i, v, k
        cdef int64_t radius, before = self.count[SETTLED]
        cdef int status
        self.off_centre = False
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
                if not -2 * POT_MAX < self.potential[v] + (radius - self.label[2 * v].dist) < 2 * POT_MAX:
                    return OK
            self.reserve_journal(0, k)
            for i in range(k):
                v = self.order[i]
                self.set_potential(v, self.potential[v] + (radius - self.label[2 * v].dist))
        return OK
