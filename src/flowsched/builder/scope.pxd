# State of the builder for one round, compiled: the types of `scope.py`.

from flowsched.builder.groups cimport GroupNodes


cdef class RoundScope:
    cdef public object now, policy, evictions, wake, quotas
    cdef public dict withheld, urged
    cdef public bint first
    cdef object _round_shares, _shares, _note_left_out
    cdef GroupNodes _groups
    cdef dict _left_out, _beyond, _limited
    cdef bint _changed

    cpdef settle(self)
    cdef _restore(self)
