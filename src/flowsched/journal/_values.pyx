"""Loops over the values of a column, for `flowsched.journal.tables`: neighbours often are the same object, or of one type."""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free

import numpy as np


cdef struct Entry:          # no object where it is free
    void* thing
    int64_t row


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


@cython.auto_pickle(False)
cdef class Rows:
    """Rows of objects in a table, by identity; the table keeps them alive.

    Half of the hash table is free, so a search ends.  Objects that are neighbours in memory are neighbours in it.
    """

    cdef Entry* entries
    cdef size_t mask, count
    cdef readonly list things

    def __cinit__(self):
        self.mask, self.things = 31, []
        self.entries = <Entry*> calloc(self.mask + 1, sizeof(Entry))
        if self.entries == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.entries)

    cdef Entry* entry(self, void* thing) noexcept:
        """Return the entry of an object, or a free one for it."""
        cdef size_t at = <size_t> thing >> 4
        at ^= at >> 15
        while self.entries[at & self.mask].thing != NULL and self.entries[at & self.mask].thing != thing:
            at += 1
        return &self.entries[at & self.mask]

    cdef int64_t add(self, thing) except -1:
        """Return the row of an object, which gets one if it has none."""
        cdef Entry* old = self.entries
        cdef Entry* entry = self.entry(<void*> thing)
        cdef size_t i
        if entry.thing == NULL:
            self.things.append(thing)
            entry.thing, entry.row = <void*> thing, self.count
            self.count += 1
            if 2 * self.count > self.mask:
                self.entries = <Entry*> calloc(2 * (self.mask + 1), sizeof(Entry))
                if self.entries == NULL:
                    self.entries = old
                    raise MemoryError
                self.mask = 2 * self.mask + 1
                for i in range((self.mask + 1) // 2):
                    if old[i].thing != NULL:
                        self.entry(old[i].thing)[0] = old[i]
                free(old)
            return self.count - 1
        return entry.row

    def of(self, list values not None, /):
        """Return the rows of objects; those that are new are appended."""
        cdef Py_ssize_t i
        cdef int64_t row = 0
        found = np.empty(len(values), np.int64)
        cdef int64_t[::1] at = found
        last = None
        for i in range(at.shape[0]):
            value = values[i]
            if value is not last or not i:
                last, row = value, self.add(value)
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
