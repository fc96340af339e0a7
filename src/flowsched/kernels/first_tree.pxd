# The first tree of the network simplex.  See `first_tree.pyx`.

from libc.stdint cimport int32_t, int64_t

from flowsched.kernels.basis cimport Basis

cdef enum:             # the first tree: see `crash`
    START_ANY = 0
    START_PATHS = 1
    START_COARSE = 2
    START_FLOW = 3
    START_JOINED = 4


cdef class FirstTree(Basis):
    cdef const int32_t[::1] tail, head      # the caller's arcs
    cdef const int64_t[::1] capacity, cost
    cdef const int64_t[::1] before          # the flow to start from, or of length 0
    # -- by node -------------------------------------------------------------------------------------------------
    cdef int64_t[::1] dist         # length of the path
    cdef int32_t[::1] first        # while loading: number of arcs out of the nodes before v; then scratch
    cdef unsigned char[::1] ends_seen # 1: arcs leave the node, 2: arcs enter it, 4: more than one does
    cdef int32_t[::1] entry        # slots by the node where they end
    # ------------------------------------------------------------------------------------------------------------
    cdef bint kept                 # the basis is to be reused after changes
    cdef bint crowded              # a few nodes take what many pure sources send, or the reverse
    cdef int64_t volume            # upper bound on the sum of |b|
    cdef int64_t negative          # upper bound on the capacities of all arcs of negative cost, unless one of them is unlimited
    cdef int32_t senders, ends     # number of nodes with a supply, and with a supply or a demand
    cdef int64_t narrowest         # least capacity
    cdef int64_t negatives         # number of arcs of negative cost
    cdef int64_t wide              # capacity of arcs that never bind
    cdef int64_t total             # the capacities of all arcs in the basis; total + volume < HUGE, unless wide is unlimited
    cdef int64_t penalty_max       # amount added to the cost of deficits that proves infeasibility
    cdef int64_t step              # next increase of the price of deficits
    cdef int64_t sketched
    cdef int64_t unplaced          # part of the supplies that finds no residual capacity on the paths of the first tree
    cdef int32_t chained           # number of pass-through nodes
    cdef int32_t jams, sources     # number of nodes where a part is unplaced; number of nodes with an excess
    cdef int64_t bulk              # number of slots from which an easy network may be declined
    cdef int start                 # method for the first tree; afterwards, the method used

    cdef int survey(self) except -1 nogil
    cdef int level(self) except -1 nogil
    cdef int fill(self) except -1 nogil
    cdef int crash(self) except -1 nogil
    cdef bint is_easy(self) noexcept nogil
    cdef int sketch(self) except -1
    cdef int forest(self, int32_t goal) except -1 nogil
    cdef int list_residual(self) except -1 nogil
    cdef int rank(self) except -1 nogil
    cdef int trace(self) except -1 nogil
    cdef int load_tree(self) except -1 nogil
    cdef int plant(self) except -1 nogil
