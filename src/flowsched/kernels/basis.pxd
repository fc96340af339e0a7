# A spanning tree with the flows outside of it: the part of a network simplex that its first flow and its last completion read and write.

from libc.stdint cimport int32_t, int64_t

cdef extern from *:
    """
    #define FS_CINF ((int64_t)1 << 62)
    #define FS_HUGE ((int64_t)1 << 61)
    """
    const int64_t CINF "FS_CINF"    # unlimited
    const int64_t HUGE "FS_HUGE"    # residual capacity that only a cycle of unlimited arcs has

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


cdef class Basis:
    """The basis of a network simplex; see the head of `simplex.pyx`."""

    cdef int32_t n
    # -- by node, the root last --------------------------------------------------------------------------------
    cdef int64_t[::1] potential
    cdef int64_t[::1] balance      # supply after the lower bounds and the flow to start from
    cdef Link[::1] link
    cdef Slack[::1] slack
    cdef Node[::1] node
    # -- by slot -------------------------------------------------------------------------------------------------
    cdef Slot[::1] slot            # of a dead one the cost is 0 and tail == head
    cdef int64_t[::1] room         # the arc's capacity
    cdef int64_t[::1] load         # flow in the slot's direction, while starting from a given flow; else of length 0
    cdef int32_t[::1] code         # 2 * arc | 1 if it stands swapped; -1 dead
    cdef int32_t slots
    # ------------------------------------------------------------------------------------------------------------
    cdef int64_t top_cost          # C
    cdef int64_t until_poll

    cdef int poll(self) except -1 nogil
    cdef bint overdue(self) except -1 nogil
    cdef int swap(self, int32_t e) except -1 nogil
