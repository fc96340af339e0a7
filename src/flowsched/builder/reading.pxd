# The flow as proposals, compiled: the types of `reading.py`.

cimport cython

from flowsched.builder.builder cimport Builder
from flowsched.builder.groups cimport GroupNode, GroupNodes
from flowsched.builder.proposals cimport ClassFlow
from flowsched.builder.scope cimport RoundScope
from flowsched.cluster.records cimport Group, TaskClass


@cython.locals(waiting=dict, classes=dict, near=dict, rows=dict, displacing=dict, queues=dict, nodes=dict, urged=dict, cls=TaskClass,
               proposals=list, there=list, made=list, pairs=list, groups=list, age=long, bucket=long, node=GroupNode, group=Group)
cpdef list read(Builder builder, RoundScope scope, changed=*, among=*)
