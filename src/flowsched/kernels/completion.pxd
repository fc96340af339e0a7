from libc.stdint cimport int64_t

from flowsched.kernels.basis cimport Basis

cdef int64_t[::1] completed(Basis owner)
