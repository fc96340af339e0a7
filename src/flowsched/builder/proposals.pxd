# A proposal of the flow, compiled: the types of `proposals.py`.

cimport cython

from flowsched.cluster.records cimport Chain, Group, TaskClass


cdef class ClassFlow:
    cdef public TaskClass cls
    cdef public list groups, rows, near, displacing
    cdef public tuple standing
    cdef public double size
    cdef public long rank

    cpdef tuple in_line(self)


@cython.locals(flow=ClassFlow)
cpdef ClassFlow flow_of(TaskClass cls, list groups, list rows, list near, list displacing, tuple standing)


@cython.locals(group=Group, units=cython.Py_ssize_t, first=cython.Py_ssize_t, tasks=list)
cpdef list tasks_of(list groups, dict taken)
