# Codes of a graph's values, as in `graph_tables`, which is compared in `_walk.pyx`.

cdef enum:
    FIRST_CLASS = 16
    SMALL = 14
    SMALL_BITS = 54
