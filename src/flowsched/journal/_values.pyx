"""Loops over the values of a column, for `flowsched.journal.tables`: neighbours often are the same object, or of one type."""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t

import numpy as np

def kinds(list values not None, /):
    """Return the types of values, in order of appearance."""
    cdef list found = []
    last = None
    for value in values:
        kind = type(value)
        if kind is not last:
            last = kind
            if kind not in found:
                found.append(kind)
    return found


def split(list values not None, list kinds not None, /):
    """Return the place of each value's type among some types, and a list of the values of each type."""
    cdef Py_ssize_t i
    cdef uint8_t place = 0
    cdef list parts = [], part = None
    found = np.empty(len(values), np.uint8)
    cdef uint8_t[::1] at = found
    for _ in kinds:
        parts.append([])
    last = None
    for i in range(at.shape[0]):
        value = values[i]
        kind = type(value)
        if kind is not last:
            last, place = kind, kinds.index(kind)
            part = parts[place]
        at[i] = place
        part.append(value)
    return found, parts


def meet(list values not None, dict rows not None, list things not None, /):
    """Append the objects that have no row yet; `rows` is by `id`."""
    last = None
    for value in values:
        if value is not last:
            last, key = value, <size_t> <PyObject*> value
            if key not in rows:
                rows[key] = len(things)
                things.append(value)


def rows_of(list values not None, dict rows not None, /):
    """Return the rows of objects."""
    cdef Py_ssize_t i
    cdef int64_t row = 0
    found = np.empty(len(values), np.int64)
    cdef int64_t[::1] at = found
    last = None
    for i in range(at.shape[0]):
        value = values[i]
        if value is not last or not i:
            last, row = value, rows[<size_t> <PyObject*> value]
        at[i] = row
    return found


def pick(list table not None, const int64_t[::1] rows not None, /):
    """Return the entries of a table in some rows; raise IndexError if there is no such row."""
    cdef Py_ssize_t i, count = len(table)
    cdef list found = [None] * rows.shape[0]
    for i in range(rows.shape[0]):
        if not 0 <= rows[i] < count:
            raise IndexError(f"row {rows[i]} of {count}")
        found[i] = table[rows[i]]
    return found


def shared(list values not None, bint equal, /):
    """Return different values, and the place of each value among them; without `equal`, equal ones may be different."""
    cdef Py_ssize_t i
    cdef int64_t row = 0
    cdef dict known = {}
    cdef list unique = []
    found = np.empty(len(values), np.int64)
    cdef int64_t[::1] at = found
    last = None
    for i in range(at.shape[0]):
        value = values[i]
        if value is not last or not i:
            last, key = value, value if equal else <size_t> <PyObject*> value
            place = known.get(key)
            if place is None:
                place = known[key] = len(unique)
                unique.append(value)
            row = place
        at[i] = row
    return unique, found
