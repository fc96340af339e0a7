# Changes and readings of a kernel `Network` by other compiled modules: vectors in, vectors out, nothing converted.

from libc.stdint cimport int64_t

cdef enum:      # columns that `set_numbers` writes
    SET_SUPPLY
    SET_CAPACITY
    SET_COST

cdef int add_nodes(network, int64_t[::1] supply, int64_t[::1] ids) except -1
cdef int add_arcs(network, int64_t[::1] tail, int64_t[::1] head, int64_t[::1] capacity, int64_t[::1] cost, int64_t[::1] ids) except -1
cdef int set_numbers(network, int which, int64_t[::1] ids, int64_t[::1] values) except -1
cdef int read_flows(network, const int64_t *arcs, Py_ssize_t k, int64_t *flow) except -1
