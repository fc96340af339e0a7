# The flow as proposals, compiled: the types of `reading.py`.

cimport cython

from flowsched.builder.builder cimport Builder
from flowsched.builder.groups cimport GroupNode, GroupNodes
from flowsched.builder.proposals cimport ClassFlow
from flowsched.builder.scope cimport RoundScope
from flowsched.cluster.records cimport Chain, Group, TaskClass, World


@cython.locals(waiting=dict, classes=dict, near=dict, rows=dict, displacing=dict, queues=dict, nodes=dict, urged=dict, cls=TaskClass,
               proposals=list, there=list, made=list, pairs=list, groups=list, age=long, bucket=long, node=GroupNode, group=Group)
cpdef list read(Builder builder, RoundScope scope, changed=*, among=*)

cdef _queue(Builder builder, TaskClass cls, there, bint fair)


@cython.locals(group=Group)
cdef bint _is_alone(dict groups) except -1


@cython.locals(group=Group, left=long)
cdef bint _holds(groups, there) except -1


@cython.locals(group=Group)
cdef list _first(groups, count)
