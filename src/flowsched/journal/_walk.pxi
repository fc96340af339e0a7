# The walk through objects that fills the tables of a graph; see `flowsched.journal.graph_tables` for tables and codes.
#
# (N)  A code is given when its value is first met.  Values of mutable containers and objects are looked at later, in the order
#      in which they were met, so only immutable containers nest on the stack, and `deeper` bounds these.
# (I)  An object is known by its identity, and kept alive for the walk: else its identity could come again.
# (M)  No comprehensions, and no string put together of two parts alone: see `_words`.

cimport cython
from cpython.ref cimport PyObject

from enum import Enum

import numpy as np

from flowsched.boundary.validate import quoted
from flowsched.exceptions import InputError
from flowsched.journal import graph_tables as tables

cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char* where) except -1
    void Py_LeaveRecursiveCall()
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow)

cdef enum:
    FIRST_CLASS = 16        # as in `graph_tables`, which is compared below
    SMALL = 14
    SMALL_BITS = 54

cdef long long CONSTANT = tables.CONSTANT, STR = tables.STR, INT = tables.INT, FLOAT = tables.FLOAT, BYTES = tables.BYTES
cdef long long ARRAY = tables.ARRAY, GIVEN = tables.GIVEN, FOREIGN = tables.FOREIGN, FROZEN = tables.FROZEN
cdef dict MUTABLE = tables.MUTABLE
cdef tuple FROZEN_KINDS = tables.FROZEN_KINDS
cdef object TUPLE = tables.FROZEN_KINDS.index(tuple)

assert FIRST_CLASS == tables.FIRST_CLASS and SMALL == tables.SMALL and len(tables.SMALLS) == <long long> 1 << SMALL_BITS


cdef inline size_t place_of(value) noexcept:
    """A number of an object by its place in memory, without the bits that are the same for all: they would collide in a dict."""
    return <size_t> <PyObject*> value >> 4


cdef list slots_of(kind):
    """Return the names of a class's slots."""
    names = []
    for base in kind.__mro__:
        for name in vars(base).get("__slots__", ()):
            if name != "__weakref__":
                names.append(name)
    return names


@cython.auto_pickle(False)
cdef class Walk:
    """One walk through objects, which fills the tables of a graph."""

    cdef object graph
    cdef object foreign         # list or None
    cdef frozenset known        # classes of the schema
    cdef dict replaced          # class -> code of what stands for its objects
    cdef dict given             # `place_of` -> code
    cdef dict seen              # `place_of` -> code, of all that is in `alive`
    cdef list alive
    cdef dict strings, integers # value -> code
    cdef dict kinds             # class -> its place in `instances`
    cdef list instances         # by class, its objects
    cdef dict containers        # kind -> containers of this kind
    cdef list floats, frozen, lengths, parts_of, texts, numbers, arrays, chunks     # those of the graph

    def __init__(self, graph, instead):
        cdef long long index = 0
        self.graph, self.foreign = graph, graph.foreign
        self.known = graph.schema.known
        names = list(graph.given)
        self.replaced = {}
        for kind, name in instead.items():
            self.replaced[kind] = names.index(name) << 8 | GIVEN
        self.given = {}
        for thing in graph.given.values():
            self.given[place_of(thing)] = index << 8 | GIVEN
            index += 1
        self.seen, self.alive, self.strings, self.integers, self.kinds, self.instances = {}, [], {}, {}, {}, []
        self.containers = {}
        for kind in tables.MAKERS:
            self.containers[kind] = []
        self.floats, self.frozen, self.texts = graph.floats, graph.frozen, graph.strings
        self.lengths, self.parts_of = graph.lengths, graph.parts
        self.numbers, self.arrays, self.chunks = graph.integers, graph.arrays, graph.chunks

    def take(self, root, /):
        """Fill the tables with all that this object refers to.

        Raises
        ------
        InputError
            Something cannot be written down.
        RecursionError
        """
        graph = self.graph
        graph.root = self.code(root)
        cdef list raw = [], done = [], rows, columns, joined
        progress = True
        while progress:
            progress = False
            for kind, things in self.containers.items():
                rows = graph.mutable[kind]
                for thing in things[len(rows):]:
                    progress = True
                    rows.append(self.row(thing, kind in tables.MAPS))
            i = 0
            while i < len(self.instances):
                instances = self.instances[i]
                if i == len(raw):
                    names = graph.names[i]
                    columns = []
                    for _ in range(1 if names is None else len(names) + (not names)):
                        columns.append([])
                    raw.append(columns)
                    done.append(0)
                fresh = instances[done[i]:]
                if fresh:
                    progress = True
                    done[i] += len(fresh)
                    self.take_columns(graph.names[i], fresh, raw[i])
                i += 1
        for columns in raw:
            joined = []
            for parts in columns:
                joined.append(np.concatenate(parts))
            graph.columns.append(joined)
        for thing in self.containers[tables.DEQUE]:
            graph.bounds.append(-1 if thing.maxlen is None else thing.maxlen)

    cdef list row(self, thing, bint pairs):
        cdef list codes = []
        if pairs:
            for key, value in thing.items():
                codes.append(self.code(key))
                codes.append(self.code(value))
        else:
            for value in thing:
                codes.append(self.code(value))
        return codes

    cdef take_columns(self, names, list things, list columns):
        cdef Py_ssize_t i
        cdef list of_all
        cdef dict values
        cdef long long code
        cdef long long[::1] column
        if names is None:
            array = np.empty(len(things), np.int64)
            column = array
            for i in range(len(things)):
                column[i] = self.code(things[i].__getstate__())
            columns[0].append(array)
            return
        if not names:  # only their number
            columns[0].append(np.zeros(len(things), np.int64))
            return
        bulk = getattr(type(things[0]), "__columns__", None)     # a class may tell all values at once
        told = set(names)
        for thing in () if bulk is not None else things:
            assert getattr(thing, "__dict__", {}).keys() <= told, f"{type(thing).__name__}: not all have the same attributes {names}"
        values = {} if bulk is None else bulk(things)
        for k, name in enumerate(names):
            if type(values.get(name)) is np.ndarray:
                array = values[name]
                columns[k].append(self.whole(array, array << 8 | SMALL))
                continue
            array = np.empty(len(things), np.int64)
            column = array
            last, code = None, CONSTANT     # neighbours often have the same object
            of_all = values.get(name)
            for i in range(len(things)):
                value = getattr(things[i], name) if of_all is None else of_all[i]
                if value is not last:
                    last, code = value, self.code(value)
                column[i] = code
            columns[k].append(array)

    cdef object whole(self, numbers, codes):
        """The codes of whole numbers, which are given for small ones."""
        for i in np.flatnonzero(numbers >> SMALL_BITS).tolist():
            codes[i] = self.code(int(numbers[i]))
        return codes

    cdef long long code(self, value) except -1:
        cdef long long small
        cdef int over
        kind = type(value)
        if value is None:
            return CONSTANT
        if kind is int:
            small = PyLong_AsLongLongAndOverflow(value, &over)
            if not over and 0 <= small < <long long> 1 << SMALL_BITS:
                return small << 8 | SMALL
            known = self.integers.get(value)
            if known is None:
                known = self.integers[value] = <long long> len(self.numbers) << 8 | INT
                self.numbers.append(value)
            return known
        if kind is float:
            self.floats.append(value)
            return <long long> (len(self.floats) - 1) << 8 | FLOAT
        if kind is str:
            known = self.strings.get(value)
            if known is None:
                if not value.isascii():
                    carried(value)
                known = self.strings[value] = <long long> len(self.texts) << 8 | STR
                self.texts.append(value)
            return known
        if kind is bool:
            return (2 if value else 1) << 8 | CONSTANT
        key = place_of(value)
        known = self.seen.get(key)
        if known is not None:
            return known
        known = None if kind is tuple else self.given.get(key)
        if known is None:
            known = self.fresh(value, kind)
        self.seen[key] = known
        self.alive.append(value)
        return known

    cdef long long fresh(self, value, kind) except -1:
        """The code of what was not met before."""
        if kind is tuple:
            return self.parts(TUPLE, value)
        if kind in self.kinds:
            return self.instance(value, kind)
        if kind in self.replaced:
            return self.replaced[kind]
        if kind in self.known:
            if issubclass(kind, tuple):
                return self.parts((kind, True), value)
            if issubclass(kind, Enum):
                return self.parts((kind, False), (value.value,))
            return self.instance(value, kind)
        if kind in MUTABLE:
            things = self.containers[MUTABLE[kind]]
            things.append(value)
            return <long long> (len(things) - 1) << 8 | <long long> MUTABLE[kind]
        if kind in FROZEN_KINDS:
            return self.parts(FROZEN_KINDS.index(kind), (dict(value),) if kind is proxy else value)
        if kind is np.ndarray and value.dtype.str[1:] in tables.DTYPES:
            self.arrays.append(value)
            return <long long> (len(self.arrays) - 1) << 8 | ARRAY
        if self.foreign is not None:
            self.foreign.append(value)
            return <long long> (len(self.foreign) - 1) << 8 | FOREIGN
        if isinstance(value, np.generic):
            item = value.item()
            if not isinstance(item, np.generic):
                return self.code(item)
        if kind is bytes:
            self.chunks.append(value)
            return <long long> (len(self.chunks) - 1) << 8 | BYTES
        raise InputError(f"only strings, numbers and tuples of them can be written down, not {quoted(value)}")

    cdef long long parts(self, tag, values) except -1:
        """The code of an immutable container, after those of its parts."""
        cdef list codes = []
        Py_EnterRecursiveCall(" in an image")
        try:
            for value in values:
                codes.append(self.code(value))
        finally:
            Py_LeaveRecursiveCall()
        self.parts_of.extend(codes)
        self.lengths.append(len(codes))
        self.frozen.append(tag)
        return <long long> (len(self.frozen) - 1) << 8 | FROZEN

    cdef long long instance(self, value, kind) except -1:
        index = self.kinds.get(kind)
        if index is None:
            index = self.kinds[kind] = len(self.instances)
            self.instances.append([])
            self.graph.classes.append(kind)
            names = None if tables.stateful(kind) else list(dict.fromkeys((*slots_of(kind), *getattr(value, "__dict__", ()))))
            self.graph.names.append(names)
        things = self.instances[index]
        things.append(value)
        return <long long> (len(things) - 1) << 8 | FIRST_CLASS + <long long> index


cdef carried(text):
    """Refuse a string that no encoding carries: two halves of a pair would come back as one character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"a string with a lone surrogate cannot be written down: {quoted(text)}") from None
