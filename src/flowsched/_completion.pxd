from libc.stdint cimport int64_t

from flowsched._basis cimport Basis

cdef int64_t[::1] completed(Basis owner)
