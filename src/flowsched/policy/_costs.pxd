# The cost of a placement, for compiled modules.

from cpython cimport array
from libc.stdint cimport int64_t

from flowsched.cluster._room cimport World

cdef enum:
    MOST_TERMS = 16


cdef struct Recipe:             # a weighted sum of built-in costs
    int terms
    int kind[MOST_TERMS]
    double weight[MOST_TERMS]
    double factor
    double most


cdef int read_recipe(recipe, Recipe *of) except -1
cdef array.array new_table(const World *w, Py_ssize_t rows)
cdef double *tabulated(const World *w, double *table, Py_ssize_t j, int64_t r) noexcept nogil
cdef int64_t price(const World *w, const Recipe *of, int64_t c, int64_t r, const double *row) noexcept nogil
cpdef tuple bucket_and_due(list ends, since, now)
