# Queues of classes, compiled: the types of `queues.py`.

cimport cython
from cpython cimport array
from libc.stdint cimport int64_t

from flowsched.builder.groups cimport GroupNode, GroupNodes
from flowsched.cluster.records cimport Chain, Group, JobRecord, TaskClass, TaskRecord, World


cdef class QueuedTasks:
    cdef readonly TaskClass cls
    cdef readonly int64_t count
    cdef readonly tuple blocks
    cdef readonly array.array units


cdef class Head:
    cdef readonly Group group
    cdef readonly double since, eldest
    cdef readonly int64_t serial, ahead


cdef class ClassQueue:
    cdef public TaskClass cls
    cdef public dict changed, _nodes, _slot_of, _stale, _odd
    cdef public list _slots, _ids, _blocks, _order
    cdef public array.array _sizes, _turns, _arcs, _since
    cdef public bint plain
    cdef public Head _head
    cdef public QueuedTasks cached

    @cython.locals(group=Group, node=GroupNode, first=TaskRecord, at=cython.Py_ssize_t)
    cpdef refresh(self)
    cpdef Head head(self)

    @cython.locals(slot=cython.Py_ssize_t)
    cdef Py_ssize_t _enter(self, Group group) except -1
    cdef _leave(self, Group group, Py_ssize_t slot)

    @cython.locals(group=Group)
    cdef _freshen(self)

    @cython.locals(first=cython.Py_ssize_t, second=cython.Py_ssize_t, slot=cython.Py_ssize_t, group=Group)
    cdef Head _find_head(self)


cdef class Queues:
    cdef readonly World cluster
    cdef readonly GroupNodes nodes

    @cython.locals(queue=ClassQueue)
    cpdef ClassQueue of(self, TaskClass cls)
