from libc.stdint cimport int64_t

from flowsched.kernels.basis cimport Basis

cdef int coarse_flow(Basis owner, int64_t *scanned) except -1
