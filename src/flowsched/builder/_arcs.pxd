# Arcs from classes to machines, and the flow on them, for compiled builders.

from cpython cimport array
from libc.stdint cimport int64_t, uint8_t, uint32_t

from flowsched.cluster cimport records
from flowsched.cluster._room cimport TypedColumns
from flowsched.network._edits cimport NetworkEdits


cdef class ClassArcsColumns:    # of `ClassArcs`
    cdef public int64_t[:, ::1] arc, gate, capacity, cost
    cdef public uint32_t[:, ::1] why
    cdef public uint8_t[::1] roomy
    cdef public int64_t[::1] open, cursor, swept, refused_at


cdef class RackArcsColumns:     # of `RackArcs`
    cdef public int64_t[::1] of, pair
    cdef public int64_t[:, ::1] node, arc, capacity, cost


cdef class RackFields(TypedColumns):
    cdef public dict aggregators, _listed
    cdef public object _used


cdef class ClassFields(TypedColumns):
    cdef public records.World cluster
    cdef public NetworkEdits batch
    cdef public dict _why_copy
    cdef public int64_t next_sweep

    cpdef refresh(self, list classes, policy, dict refused)


cdef class ReservationFields(TypedColumns):
    cdef public dict _holds, _rooms, _granted
    cdef public double _now

    cpdef bint idle(self, double now) except -1


cdef class ShareFields(TypedColumns):
    cdef public dict stale, apart
    cdef public object fairness
    cdef public bint limit

    cpdef list forget(self, records.JobRecord job)


cpdef list with_room(ClassFields mirror, list classes)
cpdef dict sent(RackFields racks, ClassFields mirror, NetworkEdits batch, classes, more, array.array changed)
