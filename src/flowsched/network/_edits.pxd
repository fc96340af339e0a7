# Edits of a kept network, for compiled builders.

from libc.stdint cimport int64_t

cdef class NetworkEdits:
    cdef public int64_t count
    cdef readonly object _network
    cdef readonly dict _supply, _capacity, _cost     # numbers that wait
    cdef int64_t[::1] stage

    cdef int64_t *ready(self, int64_t size) except NULL
    cdef int64_t[::1] part(self, Py_ssize_t i, Py_ssize_t k)
    cdef object array(self, Py_ssize_t i, Py_ssize_t k)
    cdef list ids(self, Py_ssize_t i, Py_ssize_t k)
    cdef int ready_to_remove(self, list ids) except -1
    cdef int put(self, Py_ssize_t i, Py_ssize_t k, values) except -1
    cdef int send(self, int what, dict waiting, arcs, values) except -1
    cdef int64_t *wait(self, dict waiting, Py_ssize_t k) except NULL
    cdef int apply(self, int what, dict waiting, Py_ssize_t k) except -1
    cpdef list new_nodes(self, Py_ssize_t k)
    cpdef list new_arcs(self, list tail, head, capacity, cost)
    cpdef remove_nodes(self, list nodes)
    cpdef remove_arcs(self, arcs)
    cpdef set_supply(self, node, supply)
    cpdef set_capacity(self, arc, capacity)
    cpdef set_cost(self, arc, cost)
    cpdef flush(self)
    cpdef tuple solve(self, double seconds)
    cdef int flows(self, const int64_t *arcs, Py_ssize_t k, int64_t *flow) except -1
    cdef int send_capacities(self, const int64_t *arcs, const int64_t *values, Py_ssize_t k) except -1
    cdef int send_costs(self, const int64_t *arcs, const int64_t *values, Py_ssize_t k) except -1
    cdef int send_all(self, int what, dict waiting, const int64_t *arcs, const int64_t *values, Py_ssize_t k) except -1
