# The flow as proposals, compiled: the types of `reading.py`.

cimport cython

from cpython.array cimport array

from flowsched.builder._arcs cimport sent
from flowsched.builder.builder cimport Builder
from flowsched.builder.groups cimport GroupNode, GroupNodes
from flowsched.builder.proposals cimport ClassFlow, flow_of
from flowsched.builder.scope cimport RoundScope
from flowsched.cluster.records cimport Chain, Group, TaskClass, World


@cython.locals(waiting=dict, classes=dict, near=dict, rows=dict, displacing=dict, queues=dict, cls=TaskClass,
               proposals=list, there=list, made=list, pairs=list, groups=list, fair=cython.bint)
cpdef list read(Builder builder, RoundScope scope, array changed=*, among=*)


@cython.locals(nodes=dict, urged=dict, age=long, bucket=long, node=GroupNode, group=Group)
cdef ClassFlow _proposal(Builder builder, RoundScope scope, TaskClass cls, list groups, list there, list near, list displacing)


cdef list _any(Builder builder, TaskClass cls, queue, list there, Py_ssize_t more)
cdef _queue(Builder builder, TaskClass cls, there, bint fair)


@cython.locals(group=Group)
cdef bint _is_alone(dict groups) except -1


@cython.locals(group=Group, left=long)
cdef bint _holds(groups, there) except -1


@cython.locals(group=Group)
cdef list _first(groups, count)
