# Engine of a scheduler, compiled: the types of `engine.py`.

from flowsched.builder.builder cimport Builder
from flowsched.cluster.records cimport World
from flowsched.rounds.loop cimport make_round


cdef class RoundEngine:
    cdef readonly World cluster
    cdef readonly object network, seed
    cdef readonly Builder builder
    cdef object _verdicts
    cdef bint _stale, _cached

    cpdef tuple _make_round(self, now, time_limit)
