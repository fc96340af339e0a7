# The choice of `auto` between repair, the network simplex and a solve from scratch.  See `auto.pyx`.

from libc.stdint cimport int64_t

from flowsched.kernels.search cimport ShortestPaths

cdef enum:             # algorithms, by number; names in `ALGORITHMS`
    AUTO = 0
    REPAIR = 1
    SCALING = 2
    SIMPLEX = 3

cdef enum:             # columns of `Record.recent`
    BY_REPAIR = 0
    BY_SIMPLEX = 1
    WAYS = 2
    SIZES = 32         # classes of changes: by the number of bits of the number of excesses

cdef struct Timed:     # the last solve of a kind
    int64_t time       # in ns, 0 if there was none
    int64_t arcs       # number of arcs of the network

cdef struct Record:    # times in ns; a saved state has it as a vector, so all fields are int64_t
    int64_t recent[SIZES][WAYS]  # by size of the change: time of repair per excess, and time of the simplex; 0 is unknown
    Timed cold         # a cold solve,
    int64_t cold_size  # its number of nodes with an excess,
    int64_t cold_way   # and the algorithm that answered
    Timed scaled       # cost scaling
    int64_t astray     # time of repair per excess, from potentials that repair has left
    int64_t centred    # the same, from distances to the hub
    int64_t is_centred # 1: the potentials are those distances now
    Timed cold_repair  # repair from scratch when it was last the fastest; none if it never was, or probes have failed since
    int64_t probes_failed

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
    START_NS = 6       # resetting an arc for a solve from scratch by repair
    LOAD_NS = 60       # laying out an arc for a kernel for whole networks
    SCALE_NS = 5       # scanning a half-arc in cost scaling
    CENTRE_NS = 20     # `centre`, per arc


cdef class Auto(ShortestPaths):
    cdef Record record                     # recent times of the algorithms
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
    cdef double cold(self, Timed last) except -1 nogil
    cdef int note_cold(self, int64_t work, int way) except -1 nogil
    cdef int probe_failed(self) except -1 nogil
    cdef bint is_promising(self, int way, double cold) except -1 nogil
    cdef object write_record(self)
    cdef object read_record(self, const int64_t[::1] record)
