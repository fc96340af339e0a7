# Translation of cluster and policy into changes of the network, compiled: the types of `builder.py`.

cimport cython
from libc.stdint cimport int64_t

from flowsched.builder._arcs cimport ClassFields, RackFields, ReservationFields, ShareFields
from flowsched.builder._running cimport RunningFields
from flowsched.builder.groups cimport GroupNode, GroupNodes
from flowsched.builder.queues cimport Queues
from flowsched.builder.scope cimport RoundScope
from flowsched.cluster._room cimport MovedFields
from flowsched.cluster.records cimport Changes, Group, IdPool, JobRecord, TaskClass, World
from flowsched.network._edits cimport NetworkEdits


cdef class Builder:
    cdef public World cluster
    cdef public object network, policy, machines, locality, quotas
    cdef public ReservationFields reservations
    cdef public ShareFields shares
    cdef public Queues queues
    cdef public RackFields racks
    cdef public ClassFields classes
    cdef public RunningFields running
    cdef public NetworkEdits batch
    cdef public GroupNodes groups
    cdef public dict left_out, gang_groups, class_of, _ranked, _rank_of
    cdef public list waiting, _ranked_of
    cdef public int64_t _sent, _rows, _policies
    cdef public tuple _known
    cdef public object _evictions
    cdef public double latest

    cpdef RoundScope round(self, now)

    @cython.locals(pool=IdPool, new=list, first=cython.bint, inventory=MovedFields, touched=dict, removed=list)
    cpdef update(self, Changes changes, RoundScope scope)

    @cython.locals(group=Group, nodes=list, class_id=int64_t)
    cdef _forget(self, Changes changes)

    @cython.locals(nodes=list)
    cdef list _forget_group(self, Group group)

    @cython.locals(group=Group, job=JobRecord, i=cython.Py_ssize_t, g=cython.Py_ssize_t, j=cython.Py_ssize_t, nodes=list, arcs=list,
                   job_nodes=dict, aggregators=dict, jobs=list, classes=list, tails=list, heads=list, room=list)
    cdef _add_groups(self, list groups, RoundScope scope)
    cdef _reserve(self, RoundScope scope)

    @cython.locals(group=Group)
    cpdef bint has_gangs(self) except -1

    @cython.locals(waiting=list, cls=TaskClass)
    cpdef dict ranks(self)
