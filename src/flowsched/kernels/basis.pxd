# A spanning tree with the flows outside of it, as all parts of the network simplex share it.  See `basis.pyx`.

cimport cython
from libc.stdint cimport int32_t, int64_t

from flowsched.kernels.sums cimport CINF

cdef extern from *:
    """
    #define FS_HUGE ((int64_t)1 << 61)
    #define FS_RISE_MAX ((int64_t)1 << 55)
    #define FS_DRIFT_MAX ((int64_t)1 << 59)
    """
    const int64_t HUGE "FS_HUGE"            # residual capacity that only a cycle of unlimited arcs has
    const int64_t RISE_MAX "FS_RISE_MAX"    # (n + 1) C stays below it
    const int64_t DRIFT_MAX "FS_DRIFT_MAX"  # the root's potential and depth may drift so far, as only differences count

cdef enum:
    DEPTH_MAX = 1073741824
    NOWHERE = -2147483648

cdef struct Slot:      # an arc outside the tree, in the direction in which it has room
    int64_t cost       # in that direction
    int32_t tail
    int32_t head

cdef struct Link:      # fields that each step up the tree reads: small, so that they stay in the cache
    int32_t parent     # -1 at the root
    int32_t depth      # one more than the parent's

cdef struct Slack:     # residual capacities of the arc to the parent; up + down is its capacity
    int64_t up         # from the node to its parent, > 0
    int64_t down       # from the parent to the node

cdef struct Node:
    int32_t code       # of the arc to the parent: 2 * arc | 1 if it points away from the root; -1: artificial
    int32_t last       # the last node of the subtree in preorder
    int32_t prev       # prev[next[v]] == v
    int32_t aim        # scratch of the start: the slot by which flow leaves the node

cdef object INT32, INT64, SLOT, LINK, SLACK, NODE


cdef class Basis:
    cdef int32_t n, m
    # -- by node, the root last --------------------------------------------------------------------------------
    cdef int64_t[::1] potential
    cdef int64_t[::1] balance      # supply after the lower bounds and the flow to start from
    cdef Link[::1] link
    cdef Slack[::1] slack
    cdef Node[::1] node
    cdef int32_t[::1] next
    cdef int32_t[::1] name         # the caller's id of the node: `renumber` changes ours
    cdef int32_t[::1] ours         # name[ours[v]] == v, once a basis has been changed
    # -- by slot -------------------------------------------------------------------------------------------------
    cdef Slot[::1] slot            # of a dead one the cost is 0 and tail == head
    cdef int64_t[::1] room         # the arc's capacity
    cdef int64_t[::1] load         # flow in the slot's direction, while starting from a given flow; else of length 0
    cdef int32_t[::1] code         # 2 * arc | 1 if it stands swapped; -1 dead
    cdef int32_t slots
    cdef int32_t spare             # a dead slot, -1 without one; room[spare] is the next
    # -- by arc --------------------------------------------------------------------------------------------------
    cdef int64_t[::1] flow         # the answer, in place
    cdef const int64_t[::1] lower  # lower bound; may have length 0
    cdef int32_t[::1] place        # once a basis has been changed: the arc's slot, or ~v in the tree below v, or NOWHERE
    cdef bint placed
    cdef int32_t[::1] altered      # arcs whose flow may have changed since `flows_taken`, possibly with repetitions, in altered[:naltered]
    cdef int32_t naltered          # -1: any may have
    # ------------------------------------------------------------------------------------------------------------
    cdef int64_t top_cost          # C
    cdef int32_t anchor            # a node of the largest part of the tree, as far as known: `shift` leaves that part unchanged
    cdef int64_t moved             # number of potentials changed in this solve
    cdef bint watch                # scan the arcs of nodes whose potential changes
    cdef int64_t until_poll        # work left until the next check of the clock and signals

    @cython.final
    cdef inline int64_t reduced(self, int32_t e) except? -1 nogil:
        return self.slot[e].cost + self.potential[self.slot[e].tail] - self.potential[self.slot[e].head]

    @cython.final
    cdef inline int write(self, int32_t a, int64_t load) except -1 nogil:
        """Record the flow of an arc above its lower bound."""
        cdef int64_t flow = load + (self.lower[a] if self.lower.shape[0] else 0)
        if self.naltered >= 0 and self.flow[a] != flow:
            if self.naltered < self.altered.shape[0]:
                self.altered[self.naltered] = a
                self.naltered += 1
            else:
                self.naltered = -1
        self.flow[a] = flow
        return 0

    @cython.final
    cdef inline int note(self, int32_t e) except -1 nogil:
        """Record the flow of the arc in slot e, which is at a bound."""
        cdef int32_t a = self.code[e] >> 1
        self.write(a, self.room[e] if self.code[e] & 1 else 0)
        if self.placed:
            self.place[a] = e
        return 0

    @cython.final
    cdef inline int swap(self, int32_t e) except -1 nogil:
        self.slot[e].tail, self.slot[e].head = self.slot[e].head, self.slot[e].tail
        self.slot[e].cost = -self.slot[e].cost
        self.code[e] ^= 1
        return self.note(e)

    @cython.final
    cdef inline int kill(self, int32_t e) except -1 nogil:
        self.slot[e].tail = self.slot[e].head = self.n
        self.slot[e].cost = 0
        self.code[e] = -1
        self.room[e], self.spare = self.spare, e
        return 0

    @cython.final
    cdef inline int hang(self, int32_t v, int64_t excess) except -1 nogil:
        """Hang v from the root by an artificial arc that takes v's excess or gives its deficit."""
        self.link[v].parent, self.node[v].code = self.n, -1
        if excess >= 0:
            self.slack[v].up, self.slack[v].down = CINF, excess
        else:
            self.slack[v].up, self.slack[v].down = -excess, CINF
        return 0

    cdef int poll(self) except -1 nogil
    cdef bint overdue(self) except -1 nogil
    cdef int inspect(self, int32_t begin, int32_t end, int64_t amount) except -1 nogil
    cdef int find_nodes(self) except -1 nogil
    cdef int leave(self, int32_t out, int32_t e) except -1 nogil
    cdef int reroot(self, int32_t out, int32_t near, int32_t far, int64_t up, int64_t down, int32_t code) except -1 nogil
    cdef int shift(self, int32_t top, int32_t out, int64_t amount) except -1 nogil
    cdef int move(self, int32_t begin, int32_t end, int32_t level, int32_t deeper, int64_t amount) except -1 nogil
