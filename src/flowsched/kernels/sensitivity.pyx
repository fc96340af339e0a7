"""Shortest residual paths between the ends of arcs: the range in which a cost may move while a flow stays optimal.

The flow f is optimal for costs w with potentials p: the reduced cost w(a) + p(u) - p(v) of an arc a = (u, v) is >= 0 where f(a) < c(a), and <= 0 where
f(a) > l(a).  Replace w(a) by another cost w'.  Then f stays optimal as long as no residual cycle through a has a negative cost, for
every other cycle is as before:

    f(a) < c(a):   w' >= -d(v, u)       d(x, y): the length of a shortest residual path from x to y that does not use a itself, in costs w;
    f(a) > l(a):   w' <= d(u, v)        d = infinite where there is none.

All lengths here are reduced, >= 0; half-arcs 2 a and 2 a + 1 are arc a from its tail and from its head.  An arc whose half-arcs are both residual is *free*, and of length 0.
Such arcs form trees, whose nodes are at distance 0 from each other: a single tree, if the basis is not degenerate.  So the searches run on trees instead of nodes.  Two kinds of
questions are left:

* The half-arc from x to y is the only residual one of its arc: d(y, x), which does not use it.  Both ends are in one tree: 0.  They are in different strong components:
  infinite.  Otherwise one search backward from x serves all half-arcs that leave x, and searches forward from each y run until they meet it.  Both sides do the same work.
  The trees with the most half-arcs are *hubs*, with known distances from and to all others.  The way over a hub is an upper bound, which ends most searches
  early, and no search goes through a hub.
* The arc is free.  Other free arcs connect its ends: 0.  Otherwise its removal splits a tree in two parts, and a search runs from the smaller part to the larger.

Each is Dijkstra's algorithm with a radix heap.  The half-arcs of a tree are sorted by length, and those beyond the bound are not looked at.  O(m log m + q (m + n log(n C)))
for q arcs in the worst case; usually two searches that meet reach about the square root of n trees.
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t

from flowsched._faults cimport FS_FUEL, _copy, _empty, _zeros, fs_look
from flowsched.kernels.heap cimport FAR, Heap, Label, clear_heap, insert, least, remove

import numpy as np

from flowsched.kernels.search import LABEL as _LABEL

cdef enum:
    OUT = 0             # half-arcs that leave, paths from a place
    INTO = 1            # half-arcs that enter, paths to it
    HUBS = 8            # at most
    HUB_DEGREE = 64     # half-arcs of a hub, at least

cdef struct Edge:
    int64_t length
    int32_t to          # node or tree at its other end
    int32_t half

cdef struct Lists:      # of nodes or trees, shortest first: those of i are edge[first[i]], ..., edge[first[i + 1] - 1]
    int64_t *first
    Edge *edge

_EDGE = np.dtype([("length", np.int64), ("to", np.int32), ("half", np.int32)])


@cython.auto_pickle(False)
@cython.final
cdef class Ranges:
    """Trees of free arcs, and searches among them; see the head of this file."""

    cdef Py_ssize_t trees, hubs
    cdef const int32_t[::1] head        # by half-arc
    cdef const int64_t[::1] reduced     # by half-arc: >= 0 where it is residual, else -1
    cdef Lists of_node[2]               # residual half-arcs, OUT and INTO
    cdef Lists of_tree[2]
    cdef list kept                      # their arrays
    cdef int32_t[::1] place             # by node: its number in depth-first order; a tree, and a subtree, is an interval
    cdef int32_t[::1] at                # node, by place
    cdef int32_t[::1] end               # by node: the place after those of its subtree
    cdef int32_t[::1] above             # by node: the arc from its parent, -1 at a root
    cdef int32_t[::1] tree              # by node
    cdef int32_t[::1] start             # by tree: its first place
    cdef int32_t[::1] strong            # by tree: its strong component
    cdef int32_t[::1] rank              # by tree: the number of the hub, -1 if it is none
    cdef int64_t[:, :, ::1] far         # from a hub (OUT), and to it (INTO), by tree
    cdef int64_t[::1] length            # by half-arc: the answer
    cdef Label[::1] label, back         # of a search, and of the one backward
    cdef int32_t now, back_now          # their stamps
    cdef Heap heap, back_heap
    cdef int64_t radius, limit          # the search backward knows all trees that are nearer; no more are of use
    cdef int64_t work, spent            # half-arcs that it has looked at; those that searches forward to its source have
    cdef int64_t best                   # length of the shortest path over a tree that both have reached
    cdef int64_t fuel

    @cython.embedsignature(True)
    def __init__(self, Py_ssize_t nodes, const int32_t[::1] head, const int64_t[::1] reduced):
        self.head, self.reduced, self.fuel = head, reduced, FS_FUEL
        order = np.argsort(reduced)
        order = order[np.searchsorted(reduced, 0, sorter=order):]
        each = np.arange(nodes, dtype=np.int32)
        self.kept = []
        self.list_by(self.of_node, order, each, nodes)
        self.place, self.at, self.end, self.above, self.tree, self.start = (_zeros(nodes + 1, np.int32) for _ in range(6))
        self.grow_trees(nodes)
        self.list_by(self.of_tree, order, self.tree, self.trees)
        self.label, self.back = _zeros(self.trees, _LABEL), _zeros(self.trees, _LABEL)
        self.strong, self.rank = _zeros(self.trees, np.int32), _zeros(self.trees, np.int32)
        self.find_strong()

    cdef int list_by(self, Lists *lists, const int64_t[::1] order, const int32_t[::1] name, Py_ssize_t count) except -1:
        """List half-arcs by the names of their nodes, without those between nodes of one name."""
        cdef int64_t[::1] first
        cdef Edge[::1] edge
        cdef Py_ssize_t i
        cdef int way
        cdef int32_t h, v, w
        for way in range(2):
            first, edge = _zeros(count + 2, np.int64), _empty(order.shape[0] + 1, _EDGE)
            for i in range(order.shape[0]):
                h = <int32_t>order[i]
                first[name[self.head[h ^ 1 ^ way]] + 2] += name[self.head[h]] != name[self.head[h ^ 1]]
            for i in range(count):
                first[i + 2] += first[i + 1]
            for i in range(order.shape[0]):
                h = <int32_t>order[i]
                v, w = name[self.head[h ^ 1 ^ way]], name[self.head[h ^ way]]
                if v != w:
                    edge[first[v + 1]] = Edge(self.reduced[h], w, h)
                    first[v + 1] += 1
            lists[way] = Lists(&first[0], &edge[0])
            self.kept.append((first, edge))
        return 0

    cdef int spend(self, int64_t work) except -1 nogil:
        self.fuel -= work
        if self.fuel < 0:
            self.fuel = FS_FUEL
            with gil:
                fs_look()
        return 0

    cdef bint is_free(self, int32_t half) noexcept nogil:
        return self.reduced[half] >= 0 and self.reduced[half ^ 1] >= 0

    cdef int grow_trees(self, Py_ssize_t nodes) except -1:
        """Number the nodes depth first along free arcs."""
        cdef Lists out = self.of_node[OUT]
        cdef int64_t[::1] rest = _copy(<int64_t[:nodes + 1]>out.first)
        cdef int32_t root, v, w, count = 0
        cdef Edge e
        self.tree[:] = -1
        for root in range(nodes):
            if self.tree[root] >= 0:
                continue
            self.start[self.trees] = count
            self.trees += 1
            v, self.above[root] = root, -1
            while True:
                if self.tree[v] < 0:
                    self.tree[v], self.place[v], self.at[count] = <int32_t>self.trees - 1, count, v
                    count += 1
                e.length = -1
                if rest[v] < out.first[v + 1]:
                    e = out.edge[rest[v]]
                    rest[v] += 1
                if e.length == 0:
                    if self.is_free(e.half) and self.tree[e.to] < 0:
                        self.above[e.to], v = e.half >> 1, e.to
                    continue
                self.end[v] = count
                if v == root:
                    break
                w = 2 * self.above[v]
                v = self.head[w] if self.head[w] != v else self.head[w + 1]
        self.start[self.trees] = count
        return 0

    cdef int find_strong(self) except -1:
        """Number the strong components of the trees (R. E. Tarjan 1972)."""
        cdef int32_t[::1] number = _zeros(self.trees, np.int32), low = _zeros(self.trees, np.int32)
        cdef int32_t[::1] up = _empty(self.trees, np.int32), stack = _empty(self.trees, np.int32)
        cdef Lists out = self.of_tree[OUT]
        cdef int64_t[::1] rest = _copy(<int64_t[:self.trees + 1]>out.first)
        cdef int32_t root, v, w, count = 0, height = 0, found = 0
        self.strong[:] = -1
        for root in range(self.trees):
            w, v = root, -1
            while True:
                if not number[w]:
                    count += 1
                    number[w] = low[w] = count
                    up[w], stack[height], v = v, w, w
                    height += 1
                elif v >= 0 and self.strong[w] < 0:
                    low[v] = min(low[v], low[w])
                while v >= 0 and rest[v] == out.first[v + 1]:
                    if low[v] == number[v]:
                        while True:
                            height -= 1
                            self.strong[stack[height]] = found
                            if stack[height] == v:
                                break
                        found += 1
                    w, v = v, up[v]
                    if v >= 0:
                        low[v] = min(low[v], low[w])
                if v < 0:
                    break
                w = out.edge[rest[v]].to
                rest[v] += 1
        return 0

    cdef int find_hubs(self, Py_ssize_t most) except -1:
        """Search from and to the trees that have the most half-arcs."""
        cdef Py_ssize_t h, i
        cdef int way
        self.rank[:] = -1
        ends = [np.asarray(<int64_t[:self.trees + 1]>self.of_tree[way].first) for way in range(2)] if most else []
        degree = sum(map(np.diff, ends))
        hubs = np.argsort(-degree)[:most] if most else np.zeros(0, np.int64)
        hubs = hubs[degree[hubs] >= max(HUB_DEGREE, 4 * degree.mean())] if most else hubs
        self.hubs = len(hubs)
        self.far = np.empty((2, self.hubs, self.trees), np.int64)
        for way in range(2):
            for h in range(self.hubs):
                self.search_back(hubs[h], FAR)
                self.widen(&self.of_tree[way], FAR)
                for i in range(self.trees):
                    self.far[way, h, i] = self.back[i].dist if self.back[i].stamp == self.back_now else FAR
        for h in range(self.hubs):
            self.rank[hubs[h]] = h
        return 0

    cdef int search_back(self, int32_t source, int64_t limit) except -1 nogil:
        """Begin a search backward, of trees that are not as far as a limit."""
        self.back_now += 1
        self.limit, self.radius, self.work, self.best = limit, 0, 0, FAR
        clear_heap(&self.back_heap)
        self.back[source].stamp = self.back_now
        insert(&self.back_heap, &self.back[0], source, 0)
        return 0

    cdef int widen(self, Lists *lists, int64_t most) except -1 nogil:
        """Go on with the search backward for some work, and lower `best` where it meets the search forward."""
        cdef Label *label = &self.back[0]
        cdef Label *ahead
        cdef Edge *e
        cdef int64_t dist, d, i
        cdef int32_t v
        while True:
            dist = least(&self.back_heap, label)
            self.radius = min(dist, self.limit)
            if self.radius == self.limit or self.work > most:
                return 0
            v = self.back_heap.front[0]
            remove(&self.back_heap, label, v)
            for i in range(lists.first[v], lists.first[v + 1]):
                e = &lists.edge[i]
                d = dist + e.length
                self.work += 1
                if d >= self.limit:
                    break
                if self.rank[e.to] < 0:
                    ahead = &self.label[e.to]
                    if ahead.stamp == self.now:
                        self.best = min(self.best, ahead.dist + d)
                    self.reach(&self.back_heap, label, self.back_now, e.to, d)
            self.work += 1
            self.spend(lists.first[v + 1] - lists.first[v] + 1)

    cdef inline int reach(self, Heap *heap, Label *label, int32_t now, int32_t v, int64_t dist) except -1 nogil:
        """Lower the label of a tree to a distance, if that is less."""
        if label[v].stamp != now:
            label[v].stamp = now
        elif dist < label[v].dist:
            remove(heap, label, v)
        else:
            return 0
        insert(heap, label, v, dist)
        return 0

    cdef int64_t meet(self, int32_t source, int64_t most) except -1 nogil:
        """Length of a shortest path from a tree to that of the search backward, or `most` if that is less.

        Both searches do the same work, in the sum over all calls.
        """
        cdef Lists *lists = &self.of_tree[OUT]
        cdef Label *label = &self.label[0]
        cdef Label *back
        cdef Edge *e
        cdef int64_t dist, d, i
        cdef int32_t v
        self.best = most
        back = &self.back[source]
        if back.stamp == self.back_now:
            self.best = min(most, back.dist)
        self.now += 1
        clear_heap(&self.heap)
        label[source].stamp = self.now
        insert(&self.heap, label, source, 0)
        while True:
            dist = least(&self.heap, label)
            if self.spent > self.work and self.radius < self.limit:
                self.widen(&self.of_tree[INTO], 2 * self.spent)
            if dist == FAR or dist + self.radius >= self.best:
                return self.best
            v = self.heap.front[0]
            remove(&self.heap, label, v)
            for i in range(lists.first[v], lists.first[v + 1]):
                e = &lists.edge[i]
                d = dist + e.length
                self.spent += 1
                if d >= self.best:
                    break
                if self.rank[e.to] >= 0:
                    continue
                back = &self.back[e.to]
                if back.stamp == self.back_now:
                    self.best = min(self.best, d + back.dist)
                if d + self.radius < self.best:
                    self.reach(&self.heap, label, self.now, e.to, d)
            self.spent += 1
            self.spend(lists.first[v + 1] - lists.first[v] + 1)

    cdef int64_t over_hubs(self, int32_t source, int32_t goal) noexcept nogil:
        cdef int64_t best = FAR
        cdef Py_ssize_t i
        if self.rank[source] >= 0:
            return self.far[OUT, self.rank[source], goal]
        if self.rank[goal] >= 0:
            return self.far[INTO, self.rank[goal], source]
        for i in range(self.hubs):
            best = min(best, self.far[INTO, i, source] + min(self.far[OUT, i, goal], FAR - 1))
        return best

    cdef int close_cycles(self, const int8_t[::1] chosen, int32_t x) except -1 nogil:
        """Of the chosen half-arcs that leave a tree, those whose arcs are not free: the way back."""
        cdef Lists *out = &self.of_tree[OUT]
        cdef int64_t worst = 0, i
        cdef int32_t h, y
        for i in range(out.first[x], out.first[x + 1]):
            h, y = out.edge[i].half, out.edge[i].to
            if chosen[h >> 1] and self.strong[x] == self.strong[y]:
                self.length[h] = self.over_hubs(y, x)
                if self.rank[x] < 0 and self.rank[y] < 0:
                    worst = max(worst, self.length[h])
        if not worst:
            return 0
        self.search_back(x, worst)
        self.spent = 0
        for i in range(out.first[x], out.first[x + 1]):
            h, y = out.edge[i].half, out.edge[i].to
            if chosen[h >> 1] and self.strong[x] == self.strong[y] and self.rank[y] < 0:
                self.length[h] = self.meet(y, self.length[h])
        return 0

    cdef int split(self, int32_t arc) except -1 nogil:
        """The ways between the parts of a tree that is split at an arc."""
        cdef int32_t u = self.head[2 * arc + 1], v = self.head[2 * arc], t = self.tree[u]
        cdef int32_t child = v if self.above[v] == arc else u
        cdef bint below = 2 * (self.end[child] - self.place[child]) <= self.start[t + 1] - self.start[t]
        cdef int leaving = 2 * arc if (child == v) == below else 2 * arc + 1
        self.length[leaving] = self.across(OUT, child, below, arc)
        self.length[leaving ^ 1] = self.across(INTO, child, below, arc)
        return 0

    cdef int64_t across(self, int way, int32_t child, bint below, int32_t arc) except -1 nogil:
        """Length of a shortest path from (to) a subtree, or from (to) the rest of its tree, to (from) the other part."""
        cdef Lists *by_node = &self.of_node[way]
        cdef Lists *by_tree = &self.of_tree[way]
        cdef Label *label = &self.label[0]
        cdef Edge *e
        cdef int32_t t = self.tree[child], low = self.place[child], up = self.end[child], p, v
        cdef int64_t best = FAR, dist, d, i
        self.now += 1
        clear_heap(&self.heap)
        for p in range(low if below else self.start[t], up if below else self.start[t + 1]):
            if not below and low <= p < up:
                continue
            v = self.at[p]
            for i in range(by_node.first[v], by_node.first[v + 1]):
                e = &by_node.edge[i]
                if e.length >= best:
                    break
                if self.tree[e.to] != t:
                    if self.strong[self.tree[e.to]] == self.strong[t]:
                        self.reach(&self.heap, label, self.now, self.tree[e.to], e.length)
                elif e.half >> 1 != arc and (low <= self.place[e.to] < up) != below:
                    best = e.length
            self.spend(by_node.first[v + 1] - by_node.first[v] + 1)
        while True:
            dist = least(&self.heap, label)
            if dist >= best:
                return best
            v = self.heap.front[0]
            remove(&self.heap, label, v)
            for i in range(by_tree.first[v], by_tree.first[v + 1]):
                e = &by_tree.edge[i]
                d = dist + e.length
                if d >= best:
                    break
                if e.to != t:
                    if self.strong[e.to] == self.strong[t]:
                        self.reach(&self.heap, label, self.now, e.to, d)
                elif (low <= self.place[self.head[e.half ^ way]] < up) != below:
                    best = d
            self.spend(by_tree.first[v + 1] - by_tree.first[v] + 1)

    cdef int answer(self, const int32_t[::1] arcs) except -1:
        cdef int8_t[::1] chosen = _zeros(self.head.shape[0] // 2 + 1, np.int8)
        cdef Py_ssize_t i
        cdef int32_t a, t, u, v
        self.length = _empty(self.head.shape[0], np.int64)
        self.length[:] = FAR
        self.find_hubs(min(HUBS, arcs.shape[0] // 64))
        with nogil:
            for i in range(arcs.shape[0]):
                a = arcs[i]
                if chosen[a]:
                    continue
                chosen[a] = True
                u, v = self.head[2 * a + 1], self.head[2 * a]
                if self.is_free(2 * a) and (self.above[u] == a or self.above[v] == a):
                    self.split(a)
                elif self.tree[u] == self.tree[v]:
                    self.length[2 * a] = self.length[2 * a + 1] = 0
            for t in range(self.trees):
                self.close_cycles(chosen, t)
        return 0


def ranges(Py_ssize_t nodes, const int32_t[::1] head, const int64_t[::1] reduced, const int64_t[::1] potential, const int32_t[::1] arcs):
    """Return the lowest and the highest cost of some arcs for which the flow stays optimal; -2**62 and 2**62 where there is no limit.

    `head`, `reduced` by half-arc: where it leads, its reduced cost, -1 if it is not residual.
    """
    cdef Ranges work = Ranges(nodes, head, reduced)
    cdef Py_ssize_t i
    cdef int32_t a, u, v
    lowest, highest = _empty(arcs.shape[0], np.int64), _empty(arcs.shape[0], np.int64)
    cdef int64_t[::1] low = lowest, high = highest
    work.answer(arcs)
    for i in range(arcs.shape[0]):
        a = arcs[i]
        u, v = head[2 * a + 1], head[2 * a]
        low[i], high[i] = -FAR, FAR
        if reduced[2 * a] >= 0 and work.length[2 * a] < FAR:        # reduced length = length + p(start) - p(goal)
            low[i] = -(work.length[2 * a] - potential[v] + potential[u])
        if reduced[2 * a + 1] >= 0 and work.length[2 * a + 1] < FAR:
            high[i] = work.length[2 * a + 1] - potential[u] + potential[v]
    return lowest, highest
