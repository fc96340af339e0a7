"""Shortest residual paths by Dijkstra's algorithm on reduced costs, from one end or from both.

By (I), see `flowsched._cs`, every residual half-arc has a reduced cost >= 0, so the first path found to an end is a shortest one.  A search moves potentials on the
nodes that it has settled, by amounts that keep (I), so that it may stop anywhere: after the moves the path has reduced cost 0, and flow is sent along it.

The paths end at deficits (from an excess), at excesses (from a deficit), or at the *hub*.  The steps are those of
Dijkstra's algorithm in a min-cost flow: `set_up`, `find_nearest` and `scan` in turns, `move_potentials`, `augment_search`.  The uses:

`search`                successive shortest paths: send one excess
`cancel_unsaturable`    shortest cycles through the half-arcs that are too large to saturate
`centre`                distances to the hub as potentials
`mark_reachable`        the nodes behind a cut, by breadth-first search

Keys are taken in ascending order, so the labels wait in a radix heap (`heap.pxd`).  A search settles k nodes and scans their h half-arcs in
O(h + k log(n C)).

References: E. W. Dijkstra, A note on two problems in connexion with graphs (1959); R. K. Ahuja, K. Mehlhorn, J. B. Orlin and R. E. Tarjan, Faster algorithms for the
shortest path problem (1990).
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from flowsched._faults cimport _zeros, fs_look
from flowsched.kernels.heap cimport FAR, Label, clear_heap, least, remove
from flowsched.kernels.residual cimport AUGMENTATIONS, BIG, CINF, POT_MAX, SEARCH_SCANS, SEARCHES, SETTLED, Residual, grown, larger, mag
from flowsched.kernels.status cimport BEYOND, INFEASIBLE, INTERRUPTED, LATE, OK, RANGE, UNBOUNDED

import time

import numpy as np

LABEL = np.dtype([("dist", "i8"), ("parent", "i4"), ("stamp", "i4"), ("next", "i4"), ("prev", "i4")])

cdef struct Search:    # one search, from one side or two
    int32_t start
    int sign           # 1: the path leaves the start, -1: it arrives there
    int32_t goal       # the end, or -1 for any
    int64_t length     # of the shortest path found so far, at first the limit
    int32_t meet       # node of that path where both sides meet, -1 without a path
    int sides
    int64_t radius[2]  # by side: all nodes nearer than that are settled
    int64_t work[2]    # by side: scanned half-arcs
    int32_t settled[2] # by side: number of settled nodes


cdef class ShortestPaths(Residual):
    """A residual network whose shortest paths can be searched; see the head of this file."""

    @cython.embedsignature(True)
    def __init__(self):
        Residual.__init__(self)
        self.label = _zeros(0, LABEL)
        self.settled = self.path = self.queue = _zeros(2, np.int32)
        self.hub = -1
        self.budget = 3000

    cdef int grow_nodes(self, int64_t wanted) except -1:
        cdef int64_t size = larger(self.settled.shape[0] - 2, wanted, 2**31 - 2)
        cdef Label[::1] label
        cdef int32_t[::1] scratch
        if wanted > self.settled.shape[0] - 2 and wanted < 2**31 - 2:
            label, scratch = grown(self.label, 2 * size), _zeros(size + 2, np.int32)
            self.label, self.settled, self.path, self.queue = label, scratch, scratch, scratch
        return Residual.grow_nodes(self, wanted)

    cdef int clear_stamps(self) except -1 nogil:
        cdef int32_t i
        for i in range(2 * self.n):
            self.label[i].stamp = 0
        return Residual.clear_stamps(self)

    cdef object arrays(self):
        return Residual.arrays(self) + [self.label, self.settled]

    cdef object write(self):
        return Residual.write(self) | {"hub": self.hub, "hub_seen": self.hub_size, "eccentric": int(self.off_centre), "budget": self.budget}

    cdef object read(self, state):
        wrong = Residual.read(self, state)
        if wrong is not None:
            return wrong
        if state["hub"] >= self.n:
            return "hub: no such node"
        self.label = np.zeros(2 * self.n, LABEL)
        self.settled = self.path = self.queue = np.zeros(self.n + 2, np.int32)
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
        """Augment once along a shortest path on reduced costs from s to an end; with a `goal` >= 0 only write the path to it to ``path``.

        Side 0 is a Dijkstra search from s.  After ``budget`` scanned half-arcs, plus the number of the hub's, side 1 searches from all ends as well (never for a `goal`).
        F and B are radii within which all nodes of a side are settled.  With F + B = the path's length D, moving potentials by F - dist and B - dist keeps (I) and
        makes the path's reduced costs 0.  A label is worth keeping only below the best meeting value so far, and *only* this prunes: pruning with the other side's radius
        would leave nodes inside F or B unlabelled, and violate (I).
        A `goal` beyond all nodes is never met: then the search settles all that s reaches, moves nothing, and ends with INFEASIBLE (see `centre`).
        With a `limit`, a path of that length or more is not taken: the potentials move as if it had that length, and BEYOND is returned.
        """
        cdef Search at
        cdef int64_t enough
        cdef int status
        at.start, at.sign, at.goal, at.length = s, sign, goal, limit
        enough = set_up(self, &at)
        while find_nearest(self, &at):
            if at.sides == 1 and goal < 0 and at.work[0] > enough:
                open_far_side(self, &at)
                continue
            status = scan(self, &at, 0 if at.sides == 1 or at.work[0] <= at.work[1] else 1)
            if status != OK:
                return status
        self.count[SETTLED] += at.settled[0] + at.settled[1]
        if at.meet < 0 and at.length >= FAR:
            return INFEASIBLE
        status = move_potentials(self, &at)
        if status != OK or at.meet < 0:
            return status or BEYOND
        return self.augment_search(s, at.meet, sign, goal, at.sides)

    cdef int augment_search(self, int32_t s, int32_t meet, int sign, int32_t goal, int sides) except -1 nogil:
        """Augment along the path found; a path to a goal is only written to ``path``, and `path_length` set."""
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
            amount = min(amount, self.residual[self.path[i]])
        for i in range(length):
            self.send(self.path[i], amount)
        self.add_excess(s, -amount * sign)
        self.add_excess(end, amount * sign)
        self.count[AUGMENTATIONS] += 1
        return OK

    cdef inline int32_t trace(self, int32_t s, int32_t meet, int sign, int sides, int32_t *end) except -1 nogil:
        """Write the half-arcs of the path found, in the direction of the flow, to ``path``; return their number."""
        cdef int32_t v = meet, h, length = 0
        while v != s:
            h = self.label[2 * v].parent
            self.path[length] = h if sign > 0 else h ^ 1
            length += 1
            v = self.tail(h)
        v = meet
        while sides == 2 and self.label[2 * v + 1].parent >= 0:
            h = self.label[2 * v + 1].parent
            self.path[length] = h if sign < 0 else h ^ 1
            length += 1
            v = self.tail(h)
        end[0] = v
        return length

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
            self.path[self.path_length] = h
            amount, endless = CINF, True
            for i in range(self.path_length + 1):
                amount = min(amount, self.residual[self.path[i]])
                endless = endless and self.unlimited(self.path[i])
            if endless:
                return UNBOUNDED
            self.reserve_journal(self.path_length + 1, 0)
            for i in range(self.path_length + 1):
                self.send(self.path[i], amount)
        return OK

    cdef int mark_reachable(self, int32_t s, int sign) except -1 nogil:
        """Mark by BFS the nodes that s reaches along residual half-arcs (sign 1) or that reach s (sign -1)."""
        cdef int32_t i, lo, hi, v, w, taken = 0, found = 1
        self.next_stamp()
        self.queue[0] = s
        self.mark[s] = self.stamp
        while taken < found:
            v = self.queue[taken]
            taken += 1
            self.residual_range(v, sign, &lo, &hi)
            for i in range(lo, hi):
                w = self.half[i].head
                if self.mark[w] != self.stamp:
                    self.mark[w] = self.stamp
                    self.queue[found] = w
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
        radius = self.label[2 * self.settled[k - 1]].dist
        if radius < POT_MAX // 4:
            for i in range(k):
                v = self.settled[i]
                if not -2 * POT_MAX < self.potential[v] + (radius - self.label[2 * v].dist) < 2 * POT_MAX:
                    return OK
            self.reserve_journal(0, k)
            for i in range(k):
                v = self.settled[i]
                self.set_potential(v, self.potential[v] + (radius - self.label[2 * v].dist))
        return OK


# == the steps of a search ====================================================================================


cdef inline int64_t set_up(ShortestPaths net, Search *at) except -1 nogil:
    """Begin at the start; return the number of half-arcs after whose scan the ends are to search, too."""
    cdef int32_t lo = 0, hi = 0
    net.next_stamp()
    net.count[SEARCHES] += 1
    at.work[0] = at.work[1] = at.settled[0] = at.settled[1] = 0
    at.sides, at.meet = 1, -1
    clear_heap(&net.heap[0])
    net.enter(0, at.start, 0, -1)
    if net.hub >= 0:
        net.residual_range(net.hub, -at.sign, &lo, &hi)
    return net.budget + hi - lo


cdef inline bint find_nearest(ShortestPaths net, Search *at) noexcept nogil:
    """Find the least label of each side; False if no shorter path can be found."""
    at.radius[0] = least(&net.heap[0], &net.label[0])
    at.radius[1] = least(&net.heap[1], &net.label[0]) if at.sides == 2 else 0
    return at.radius[0] != FAR and at.radius[1] != FAR and at.radius[0] + at.radius[1] < at.length


cdef inline int open_far_side(ShortestPaths net, Search *at) except -1 nogil:
    """Begin at all ends."""
    cdef int32_t i, v
    at.sides = 2
    clear_heap(&net.heap[1])
    if net.hub >= 0:
        net.enter(1, net.hub, 0, -1)
    for i in range(net.active_count):
        v = net.active[i]
        if v != net.hub and net.is_end(v, at.sign):
            net.enter(1, v, 0, -1)
    return 0


cdef inline int scan(ShortestPaths net, Search *at, int side) except -1 nogil:
    """Settle the nearest node of a side, and relax its half-arcs."""
    cdef int32_t e = net.heap[side].front[0], v = e >> 1, w, i, lo, hi
    cdef int64_t d = at.radius[side], rc
    cdef int way = at.sign if side == 0 else -at.sign
    cdef Label *far
    remove(&net.heap[side], &net.label[0], e)
    net.settled[at.settled[0] if side == 0 else net.settled.shape[0] - 1 - at.settled[1]] = v
    at.settled[side] += 1
    net.residual_range(v, way, &lo, &hi)
    for i in range(lo, hi):
        w = net.half[i].head
        rc = net.half[i].cost + net.potential[v] - net.potential[w]
        if way < 0:
            rc = -rc
        if rc < 0 or rc + d >= at.length:     # rc < 0: the half-arc is in ``unsaturable``, and is handled there
            continue
        rc += d
        far = &net.label[2 * w + 1 - side]
        if at.goal >= 0:
            if w == at.goal:
                at.length, at.meet = rc, w
                net.label[2 * w].parent = net.half[i].id
                continue
        elif at.sides == 2 and far.stamp == net.stamp:
            if rc + far.dist < at.length:
                at.length, at.meet = rc + far.dist, w
        elif side == 0 and net.is_end(w, at.sign):
            at.length, at.meet = rc, w
            net.label[2 * w].parent = net.half[i].id
            continue
        net.enter(side, w, rc, net.half[i].id)
    at.work[side] += hi - lo + 1
    return net.spend(SEARCH_SCANS, hi - lo + 1)


cdef inline int move_potentials(ShortestPaths net, Search *at) except -1 nogil:
    """Move the potentials of settled nodes, so that the path's reduced costs are 0; RANGE, and no move, if one would leave the range."""
    cdef int side, sign = at.sign
    cdef int32_t i, v, n = <int32_t>net.settled.shape[0]
    cdef int64_t radius, rise
    at.radius[0] = min(at.radius[0], at.length)
    at.radius[1] = at.length - at.radius[0]
    net.reserve_journal(0, at.settled[0] + at.settled[1])
    for side in range(2):
        radius = at.radius[side]
        for i in range(at.settled[side]):
            v = net.settled[i if side == 0 else n - 1 - i]
            rise = net.label[2 * v + side].dist - radius
            if rise < 0:
                if not -2 * POT_MAX < net.potential[v] + sign * rise < 2 * POT_MAX:
                    return put_back(net, at, side, i)
                net.set_potential(v, net.potential[v] + sign * rise)
        sign = -sign
    return OK


cdef inline int put_back(ShortestPaths net, Search *at, int last, int32_t count) except -1 nogil:
    """Undo the moves of potentials before that of the `count`-th node of side `last`."""
    cdef int side, sign = at.sign
    cdef int32_t i, v, n = <int32_t>net.settled.shape[0]
    for side in range(last + 1):
        for i in range(count if side == last else at.settled[side]):
            v = net.settled[i if side == 0 else n - 1 - i]
            if net.label[2 * v + side].dist < at.radius[side]:
                net.set_potential(v, net.potential[v] + sign * (at.radius[side] - net.label[2 * v + side].dist))
        sign = -sign
    return RANGE
