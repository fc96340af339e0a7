# Counts and times of a scheduler's calls, compiled: the types of `meter.py`.


cimport cython
from libc.stdint cimport int64_t


cdef class Meter:
    cdef public int64_t failed, hook_errors
    cdef public double journal_seconds
    cdef int64_t _placed, _preempted, _migrated, _refused, _solves, _changes
    cdef double _update, _solve, _read, _seconds
    cdef object _stats, _waiting
    cdef tuple _last
    cdef list _slower

    @cython.locals(update=double, solve=double, read=double, bound=double, solves=int64_t, changes=int64_t, slower=cython.Py_ssize_t)
    cpdef round(self, round, double seconds, double journal_seconds)
    cpdef commit(self, round, done)
