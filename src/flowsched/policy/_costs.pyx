"""Costs of placements: the built-in costs of pairs of a class and a machine.

One function per rule, so that NumPy's callers and the refresh of the builder's arcs agree to the last bit.

Symbols: class c, row r, resource d; x = demand[c, d], f = free[r, d], k = capacity[r, d], all int64 micro-units.

Costs are doubles, summed from 0 resource by resource, without fused operations, so that every processor finds the same:

    s(d) = 1 / (k n) where k > 0, else 0; n: number of resources with k > 0
    load = sum_d s(d) (k - f)  +  sum_d x s(d), within [0, 1]          if n = 0: tasks with the newcomer, over slots

The table of a row: n, then s(d) for each resource, then the load without the newcomer.  Where n is negative the rest is not known yet.
"""

from cpython cimport array
from libc.math cimport rint
from libc.math cimport INFINITY, nextafter
from libc.stdint cimport int64_t

from flowsched._faults cimport fs_allocate
from flowsched.cluster._room cimport InventoryColumns, MovedFields, World, check_all, matrix, open_world

from array import array as new_array

import numpy as np

cdef enum:
    SPREAD
    PACK
    BALANCE
    DEVICES

MOST_COSTS = MOST_TERMS
KINDS = {"spread": SPREAD, "pack": PACK, "balance": BALANCE, "devices": DEVICES}

cdef array.array DOUBLES = new_array("d")


cdef array.array new_table(const World *w, Py_ssize_t rows):
    """Tables of `rows` rows, not computed yet."""
    cdef Py_ssize_t j, width = w.resources + 2
    cdef array.array table
    fs_allocate()
    table = array.clone(DOUBLES, rows * width, False)
    for j in range(rows):
        table.data.as_doubles[j * width] = -1.0
    return table


cdef double *tabulated(const World *w, double *table, Py_ssize_t j, int64_t r) noexcept nogil:
    """Table of the j-th row, which is r."""
    cdef double *row = table + j * (w.resources + 2)
    cdef const int64_t *capacity = w.capacity + r * w.resources
    cdef const int64_t *free = w.free + r * w.resources
    cdef double n = 0.0, used = 0.0
    cdef Py_ssize_t d
    if row[0] >= 0.0:
        return row
    for d in range(w.resources):
        n += capacity[d] > 0
    for d in range(w.resources):
        row[d + 1] = 1.0 / (<double> capacity[d] * n) if capacity[d] > 0 else 0.0
        used += row[d + 1] * (<double> capacity[d] - <double> free[d])
    row[0], row[w.resources + 1] = n, used
    return row


cdef double load(const World *w, int64_t c, int64_t r, const double *row) noexcept nogil:
    cdef double more = 0.0
    cdef Py_ssize_t d
    if row[0] > 0:
        for d in range(w.resources):
            more += <double> w.demand[c * w.resources + d] * row[d + 1]
        more = row[w.resources + 1] + more
    else:  # a machine with slots but no resources is as full as its slots
        more = <double> (w.running[r] + 1) / max(<double> w.slots[r], 1.0)
    return min(max(more, 0.0), 1.0)


cdef double imbalance(const World *w, int64_t c, int64_t r) noexcept nogil:
    """Largest used fraction of a resource that the machine has, less the smallest one."""
    cdef double least = 1.0, most = 0.0, part, capacity
    cdef Py_ssize_t d
    for d in range(w.resources):
        capacity = <double> w.capacity[r * w.resources + d]
        if capacity > 0:
            part = (capacity - <double> w.free[r * w.resources + d]) + <double> w.demand[c * w.resources + d]
            part = min(part / capacity, 1.0)
            least, most = min(least, part), max(most, part)
    return max(most - least, 0.0)


cdef double cost_of(const World *w, int kind, int64_t c, int64_t r, const double *row) noexcept nogil:
    """One built-in cost, in [0, 1]."""
    if kind == BALANCE:
        return imbalance(w, c, r)
    if kind == DEVICES:
        return 1.0 if w.g >= 0 and not w.demand[c * w.resources + w.g] and w.capacity[r * w.resources + w.g] > 0 else 0.0
    return load(w, c, r, row) if kind == SPREAD else 1.0 - load(w, c, r, row)


cdef int read_recipe(recipe, Recipe *of) except -1:
    """Read ``(((kind, weight), ...), factor, most)``."""
    terms, of.factor, of.most = recipe
    of.terms = 0
    for kind, weight in terms:
        if of.terms == MOST_TERMS:
            raise ValueError("too many costs")
        of.kind[of.terms], of.weight[of.terms] = kind, weight
        of.terms += 1
    return 0


cdef int64_t price(const World *w, const Recipe *of, int64_t c, int64_t r, const double *row) noexcept nogil:
    """Weighted sum of costs as a whole number."""
    cdef double total = 0.0
    cdef int i
    for i in range(of.terms):
        total += of.weight[i] * cost_of(w, of.kind[i], c, r, row)
    return <int64_t> min(max(rint(total * of.factor), 0.0), of.most)


def costs(MovedFields inventory not None, int kind, const int64_t[::1] classes not None, const int64_t[::1] rows not None, /):
    """Return one built-in cost, float64, shape (classes, rows)."""
    cdef World w
    cdef InventoryColumns _at = open_world(inventory, &w)
    cdef array.array table = new_table(&w, rows.shape[0])
    cdef Py_ssize_t i, j
    check_all(classes, w.classes, "class")
    check_all(rows, w.rows, "row")
    found = matrix(classes.shape[0], rows.shape[0], np.float64)
    cdef double[:, ::1] out = found
    for i in range(classes.shape[0]):
        for j in range(rows.shape[0]):
            out[i, j] = cost_of(&w, kind, classes[i], rows[j], tabulated(&w, table.data.as_doubles, j, rows[j]))
    return found


def prices(MovedFields inventory not None, recipe, const int64_t[::1] classes not None, const int64_t[::1] rows not None, /):
    """Return the cost of a placement by built-in costs alone, int64, shape (classes, rows)."""
    cdef World w
    cdef Recipe of
    cdef InventoryColumns _at = open_world(inventory, &w)
    cdef array.array table = new_table(&w, rows.shape[0])
    cdef Py_ssize_t i, j
    check_all(classes, w.classes, "class")
    check_all(rows, w.rows, "row")
    read_recipe(recipe, &of)
    found = matrix(classes.shape[0], rows.shape[0], np.int64)
    cdef int64_t[:, ::1] out = found
    for i in range(classes.shape[0]):
        for j in range(rows.shape[0]):
            out[i, j] = price(&w, &of, classes[i], rows[j], tabulated(&w, table.data.as_doubles, j, rows[j]))
    return found


cpdef tuple bucket_and_due(list ends, since, now):
    """Return the age bucket of a wait or run that began at that time, and the end of the bucket; see `WaitCost.due`.

    Parameters
    ----------
    ends : list of float
        Ends of all buckets but the last one, ascending.
    since, now : float
    """
    cdef Py_ssize_t low = 0, high = len(ends), middle
    cdef double age = now - since, start = since, end, due
    while low < high:
        middle = (low + high) // 2
        if age < <double> ends[middle]:
            high = middle
        else:
            low = middle + 1
    if low == len(ends):
        return low, INFINITY
    end = ends[low]
    due = start + end
    return low, due if due - start >= end else nextafter(due, INFINITY)
