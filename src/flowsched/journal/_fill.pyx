"""The inverse of `_walk`: objects from the codes of a graph; see `flowsched.journal.graph_tables`, and `object_graph` for the rules.

(R)  `tables` has a list for each kind of codes.  A code that refers to nothing is an IndexError.
(B)  Codes and lengths come as the bytes of arrays of int64: a memory view of them takes twice as much code.
(M)  As in `_words`.
"""

from flowsched.journal._walk cimport SMALL, SMALL_BITS

from flowsched.journal import graph_tables

cdef long long FROZEN = graph_tables.FROZEN
cdef object TUPLE = graph_tables.FROZEN_KINDS.index(tuple)

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object of, object name, object value) except -1


cdef object value_of(list tables, long long code):
    cdef Py_ssize_t kind = code & 255, index = code >> 8    # the kind of a negative code is one, too
    cdef list table
    if kind == SMALL and 0 <= index < <long long> 1 << SMALL_BITS:
        return index
    if kind < len(tables):
        table = tables[kind]
        if 0 <= index < len(table):
            return table[index]
    raise IndexError("a reference to nothing")


def values(list tables not None, bytes codes not None, /):
    """Return the objects of codes, as a list."""
    cdef const long long* at = <const long long*> <const char*> codes
    cdef Py_ssize_t i
    cdef list found = []
    for i in range(len(codes) >> 3):
        found.append(value_of(tables, at[i]))
    return found


def immutables(list tables not None, list tags not None, bytes lengths not None, bytes codes not None, other, /):
    """Fill the table of immutable containers; `other(tag, parts)` makes those that are no plain tuples."""
    cdef const long long* sizes = <const long long*> <const char*> lengths
    cdef const long long* at = <const long long*> <const char*> codes
    cdef Py_ssize_t i, left = len(codes) >> 3, size
    cdef list made = tables[FROZEN], parts
    for i in range(min(len(tags), len(lengths) >> 3)):
        size = min(max(sizes[i], 0), left)
        left -= size
        parts = []
        while size > 0:
            parts.append(value_of(tables, at[0]))
            at += 1
            size -= 1
        tag = tags[i]
        made.append(tuple(parts) if tag is TUPLE else other(tag, parts))


def fill(list tables not None, list things not None, name, bytes codes not None, /):
    """Set an attribute of many objects, each to the object of the code at its place; frozen ones, too."""
    cdef const long long* at = <const long long*> <const char*> codes
    cdef Py_ssize_t i
    for i in range(min(len(things), len(codes) >> 3)):
        PyObject_GenericSetAttr(things[i], name, value_of(tables, at[i]))
