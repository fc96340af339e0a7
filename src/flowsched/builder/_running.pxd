# Running arcs, for compiled builders.

from libc.stdint cimport int64_t

from flowsched.builder.groups cimport GroupNodes
from flowsched.cluster._room cimport TypedColumns
from flowsched.cluster.records cimport Group, IdPool, World
from flowsched.network._edits cimport NetworkEdits


cdef class MachineArcsColumns:      # of `MachineArcs`
    cdef public int64_t[::1] node, arc, capacity


cdef class RunningArcsColumns:      # of `RunningArcs`
    cdef public int64_t[::1] arc, running, bucket, ending
    cdef public double[::1] since, due, end


cdef class RunningFields(TypedColumns):
    cdef public World cluster
    cdef public NetworkEdits batch
    cdef public TypedColumns machines
    cdef public GroupNodes groups
    cdef public dict _of
    cdef public IdPool _indices
    cdef public int64_t _ends

    cpdef update(self, dict touched, policy, now)
    cpdef forget(self, Group group)
