# A proposal of the flow, compiled: the types of `proposals.py`.

from flowsched.cluster.records cimport TaskClass


cdef class ClassFlow:
    cdef public TaskClass cls
    cdef public list groups, rows, near, displacing
    cdef public tuple standing
    cdef public double size
    cdef public long rank
