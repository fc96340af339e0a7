# Nodes of groups and jobs, compiled: the types of `groups.py`.

cimport cython
from libc.stdint cimport int64_t

from flowsched.cluster.records cimport Chain, Group, JobRecord, TaskClass, TaskRecord, World
from flowsched.network._edits cimport NetworkEdits
from flowsched.policy._costs cimport bucket_and_due


cdef class GroupNode:
    cdef public int64_t node, wait, run, supply, waiting, bucket, cost
    cdef public double due


cdef class GroupNodes:
    cdef public World cluster
    cdef public NetworkEdits batch
    cdef public int64_t supply
    cdef public dict patient, nodes, job_nodes, _groups_of, _levels, _level_cost, _serials
    cdef public list _due

    @cython.locals(group=Group, i=cython.Py_ssize_t, levels=dict, costs=dict, counts=dict)
    cdef bint add(self, list groups, list nodes, list arcs, Py_ssize_t first) except *

    @cython.locals(node=GroupNode)
    cpdef tuple forget(self, Group group)

    @cython.locals(node=GroupNode, group=Group, tasks=int64_t, waiting=int64_t)
    cpdef update(self, touched, now, policy, withheld, urged, quotas=*)
    cdef _set_due(self, GroupNode node, double due, Group group)

    @cython.locals(first=TaskRecord)
    cdef _set_age(self, Group group, GroupNode node, now, policy, urged)

    @cython.locals(cost=int64_t, bucket=int64_t)
    cdef _set_cost(self, Group group, GroupNode node, policy, urged)

    @cython.locals(node=GroupNode)
    cpdef close(self, Group group)

    @cython.locals(node=GroupNode)
    cpdef open(self, Group group, quotas=*)
