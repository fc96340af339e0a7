# What the kernels of stages share.

cdef double TINY     # times are equal when they differ by at most this
