"""The basis of the network simplex: a spanning tree over the nodes and an artificial *root*, and the arcs outside of it in slots.

Arcs outside the tree carry 0 or their capacity, so the tree's
flows follow from theirs.  p is the potential with w + p(tail) - p(head) = 0 on tree arcs; the *reduced cost* of
an arc in a direction is rc = cost in that direction + p(from) - p(to).  An arc outside the tree has room in one direction only, and is
stored in it, in a *slot*: one at its capacity is stored swapped, its cost negated.  So a slot may enter the tree iff rc < 0.
Each node's arc to its parent has ``up``, the residual capacity from the node to the parent, and ``down``, the residual capacity back.

Invariants, between any two pivots:

(T)  ``next`` is a preorder of the tree, circular over all nodes; the subtree of v is v .. ``last[v]`` in it; ``prev`` is its inverse.
(S)  ``up > 0`` for every node: the tree is *strongly feasible*, from each node some flow can be sent to the root.
(P)  |p - p(root)| < 16 (n + 1) C, C the largest |w|.
(D)  A node's depth is its parent's + 1; that of the root is any number.

Only differences of potentials and of depths count, so after an exchange of arcs either the subtree moves or all other nodes: the part without the *anchor*, a node in
the part last found to be the largest (`shift`).

An artificial arc takes an excess if its ``up`` is 2**61 or more, and gives a deficit if it is less.  Neither can come near that border: the flow in it is
at most all supplies and capacities in the basis together, and these stay below 2**61 (``total``), or the simplex declines.
"""

from libc.stdint cimport int32_t, int64_t

from flowsched.kernels.status cimport OK

import numpy as np

INT32, INT64 = np.int32, np.int64       # looked up once: code for each look-up is long
SLOT = np.dtype([("cost", "i8"), ("tail", "i4"), ("head", "i4")])
LINK = np.dtype([("parent", "i4"), ("depth", "i4")])
SLACK = np.dtype([("up", "i8"), ("down", "i8")])
NODE = np.dtype([("code", "i4"), ("last", "i4"), ("prev", "i4"), ("aim", "i4")])


cdef class Basis:
    """A spanning tree, and the arcs outside of it in slots."""

    cdef int poll(self) except -1 nogil:
        """Run signal handlers and check the clock; OK, or the status with which the solve ends."""
        return OK

    cdef bint overdue(self) except -1 nogil:
        """Run signal handlers; True if the time for a late answer is up."""
        return False

    cdef int inspect(self, int32_t begin, int32_t end, int64_t amount) except -1 nogil:
        """Find the slots that may enter after the potentials from one node to another in preorder have changed."""
        return 0

    cdef inline int leave(self, int32_t out, int32_t e) except -1 nogil:
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

    cdef inline int move(self, int32_t begin, int32_t end, int32_t level, int32_t deeper, int64_t amount) except -1 nogil:
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

    cdef int find_nodes(self) except -1 nogil:
        """Record the places of the caller's nodes, and the arcs in the tree."""
        cdef int32_t v
        for v in range(self.n + 1):
            self.ours[self.name[v]] = v
            if self.node[v].code >= 0:
                self.place[self.node[v].code >> 1] = ~v
        return 0
