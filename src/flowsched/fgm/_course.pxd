# Declarations that the kernels of stages share.

cdef double TINY     # s; times are equal when they differ by at most this
