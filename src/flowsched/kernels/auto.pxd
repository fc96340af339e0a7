# The choice of `auto` between repair, the network simplex and a solve from scratch.  See `auto.pyx`.

from libc.stdint cimport int64_t

from flowsched.kernels.search cimport ShortestPaths

cdef enum:             # algorithms, by number; names in `ALGORITHMS`
    AUTO = 0
    REPAIR = 1
    SCALING = 2
    SIMPLEX = 3

cdef enum:             # columns of `record`, by size of the change; 0 is unknown
    BY_REPAIR = 0      # time of repair per excess
    BY_SIMPLEX = 1     # time of the simplex
    WAYS = 2

cdef enum:             # further entries of `record`: the time of a cold solve (`cold`), and of repair from both kinds of potentials (`centring_pays`)
    COLD = 64
    COLD_ARCS = 65     # number of arcs of that solve,
    COLD_SIZE = 66     # its number of nodes with an excess,
    COLD_WAY = 67      # and the algorithm that answered
    SCALED = 68        # time of the last cost scaling,
    SCALED_ARCS = 69   # its number of arcs
    ASTRAY = 70        # time of repair per excess, from potentials that repair has left
    CENTRED = 71       # the same, from distances to the hub
    IS_CENTRED = 72    # 1: the potentials are those distances now
    COLD_REPAIR = 73   # time of repair from scratch when it was last the fastest; 0 if it never was, or probes have failed since
    COLD_REPAIR_ARCS = 74
    PROBES_FAILED = 75
    RECORDED = 76

cdef enum:             # estimated costs in ns: only ratios matter, and only for choices between algorithms that all reach the optimum
    WALK_NS = 3        # scanning a half-arc in `walk`
    SEARCH_NS = 2      # scanning a half-arc in `search`
    SETTLE_NS = 40     # settling a node in `search`
    AUGMENT_NS = 100   # an augmenting path
    PUSH_NS = 20       # a half-arc of an augmenting path
    SLOT_NS = 1        # pricing a slot in the simplex
    MOVE_NS = 2        # changing a potential in the simplex
    PIVOT_NS = 500     # a pivot, without the two above
    NODE_NS = 8        # handing over flow and potential of a node
    ARC_NS = 30        # making a basis, per arc: half of the true cost, as a network that has changed a few times is likely to change again
    RIPE_NS = 16       # reusing the basis of a first solve, per arc; 0 in a congested network, where it nearly always pays
    LOAD_NS = 60       # laying out an arc for a kernel for whole networks
    SCALE_NS = 5       # scanning a half-arc in cost scaling
    CENTRE_NS = 20     # `centre`, per arc


cdef class Auto(ShortestPaths):
    cdef int64_t[::1] record               # times in ns: record[WAYS * bits + way] for changes of so many bits; then the entries above
    cdef int64_t solves_since_try, solves_until_try  # number of solves since the slower algorithm was tried, and until its next try
    cdef int64_t repair_loss               # ns by which repair was slower than the simplex, since there is no basis in use and no node or arc came or went
    cdef bint unripe                       # the basis is that of a first solve, and waits until `repair_loss` has paid for its completion
    cdef bint behind                       # repair has answered since the basis was last used
    cdef bint simplex_due                  # the last solve was late while the simplex would have been faster
    cdef bint bounded                      # this solve is warm and may take no longer than a cold one, whose time is known
    cdef bint probed                       # repair from scratch has been tried in this solve
    cdef int64_t probe_time                # and took this time, in ns, which `repaired` leaves out
    cdef int64_t size                      # size of the change: number of nodes that may have an excess
    cdef int64_t patience                  # override of the number of half-arcs that repair may scan before the simplex takes over; -1 for none
    cdef int stopped_algorithm             # state after a late solve: SIMPLEX, its basis is not optimal; SCALING, the last solution is its flow so far; else 0

    cdef int repair(self) except -1 nogil
    cdef bint usable(self) noexcept nogil
    cdef int first_choice(self, double cold) except -1 nogil
    cdef int64_t scans_allowed(self, bint warm) except -1 nogil
    cdef bint prefers_simplex(self) except -1 nogil
    cdef int pace(self) except -1 nogil
    cdef int repair_within(self, double cold) except -1 nogil
    cdef int64_t simplex_limit(self, double cold) except? -1 nogil
    cdef bint mostly_changed(self) noexcept nogil
    cdef bint centring_pays(self, int status) except -1 nogil
    cdef bint needs_probe(self, double work) except -1 nogil
    cdef bint easier_now(self, int64_t sources) noexcept nogil
    cdef int64_t repaired(self) noexcept nogil
    cdef int64_t* recorded(self) except NULL nogil
    cdef double expected(self, int way) except -1 nogil
    cdef int learn(self, int way, int64_t work) except -1 nogil
    cdef int learn_repair(self, bint spent) except -1 nogil
    cdef double cold(self, int at) except -1 nogil
    cdef int note_cold(self, int64_t work, int way) except -1 nogil
    cdef int probe_failed(self) except -1 nogil
    cdef bint is_promising(self, int way, double cold) except -1 nogil
