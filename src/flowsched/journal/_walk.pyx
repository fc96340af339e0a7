"""The walk through objects that fills the tables of a graph; see `flowsched.journal.graph_tables` for tables and codes.

(N)  A code is given when its value is first met.  Values of mutable containers and objects are visited later, in the order
     in which they were met, so only immutable containers nest on the stack, and `deeper` bounds these.
(I)  An object is known by its identity, and kept alive for the walk: else its identity could come again.
(T)  Codes are kept in C arrays, and the objects met in a hash table of pointers: as Python's numbers and dicts they took half
     of the time.  No pointer into them is held over a call that may alter them.
(M)  No comprehensions, and no string put together of two parts alone: see `_words`.
"""

cimport cython
from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from enum import Enum
from types import MappingProxyType

import numpy as np

from flowsched.boundary.validate import quoted
from flowsched.exceptions import InputError
from flowsched.journal import graph_tables as tables

cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char* where) except -1
    void Py_LeaveRecursiveCall()
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow)

cdef enum:
    MUTABLE_KINDS = 14      # all kinds of mutable containers are smaller

cdef long long CONSTANT = tables.CONSTANT, STR = tables.STR, INT = tables.INT, FLOAT = tables.FLOAT, BYTES = tables.BYTES
cdef long long ARRAY = tables.ARRAY, GIVEN = tables.GIVEN, FOREIGN = tables.FOREIGN, FROZEN = tables.FROZEN
cdef dict MUTABLE = tables.MUTABLE
cdef tuple FROZEN_KINDS = tables.FROZEN_KINDS
cdef object proxy = MappingProxyType
cdef object TUPLE = tables.FROZEN_KINDS.index(tuple)

assert FIRST_CLASS == tables.FIRST_CLASS and SMALL == tables.SMALL and max(tables.MAKERS) < MUTABLE_KINDS
assert len(tables.SMALLS) == <long long> 1 << SMALL_BITS


cdef struct Codes:          # a growing array
    long long* at
    Py_ssize_t count, room


cdef struct Met:            # an object and its code; no object where the place is free
    PyObject* thing
    long long code


cdef int grow(Codes* codes) except -1:
    cdef void* more = realloc(codes.at, (2 * codes.room + 1024) * sizeof(long long))
    if more == NULL:
        raise MemoryError
    codes.at, codes.room = <long long*> more, 2 * codes.room + 1024
    return 0


cdef inline int push(Codes* codes, long long code) except -1:
    if codes.count == codes.room:
        grow(codes)
    codes.at[codes.count] = code
    codes.count += 1
    return 0


cdef object array_of(const Codes* codes):
    """Return a NumPy array of the codes."""
    cdef long long[::1] view
    array = np.empty(codes.count, np.int64)
    if codes.count:
        view = array
        memcpy(&view[0], codes.at, codes.count * sizeof(long long))
    return array


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
    cdef dict replaced          # class -> code of the object that replaces its objects
    cdef Met* seen              # by a hash of their place in memory; each is kept alive
    cdef int bits               # 2**bits places, at most two thirds of them occupied
    cdef Py_ssize_t met
    cdef dict strings, integers # value -> code
    cdef dict kinds             # class -> its place in `instances`
    cdef list instances         # by class, its objects
    cdef object latest          # the class of the last one, its objects and the kind of their codes
    cdef list of_latest
    cdef long long code_of_latest
    cdef dict containers        # kind -> containers of this kind
    cdef list floats, frozen, texts, numbers, arrays, chunks     # those of the graph
    cdef Codes open             # parts of immutable containers that are not complete
    cdef Codes lengths, parts_of
    cdef Codes sizes[MUTABLE_KINDS]
    cdef Codes rows[MUTABLE_KINDS]

    def __cinit__(self):
        self.bits = 12
        self.seen = <Met*> calloc(1 << self.bits, sizeof(Met))
        if self.seen == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.seen != NULL:
            for i in range(<Py_ssize_t> 1 << self.bits):
                if self.seen[i].thing != NULL:
                    Py_DECREF(<object> self.seen[i].thing)
        free(self.seen)
        free(self.open.at)
        free(self.lengths.at)
        free(self.parts_of.at)
        for i in range(MUTABLE_KINDS):
            free(self.sizes[i].at)
            free(self.rows[i].at)

    def __init__(self, graph, instead):
        cdef long long index = 0
        self.graph, self.foreign = graph, graph.foreign
        self.known = graph.schema.known
        names = list(graph.given)
        self.replaced = {}
        for kind, name in instead.items():
            self.replaced[kind] = names.index(name) << 8 | GIVEN
        for thing in graph.given.values():
            if thing is not None:
                self.meet(thing, index << 8 | GIVEN)
            index += 1
        self.strings, self.integers, self.kinds, self.instances = {}, {}, {}, []
        self.containers = {}
        for kind in tables.MAKERS:
            self.containers[kind] = []
        self.floats, self.frozen, self.texts = graph.floats, graph.frozen, graph.strings
        self.numbers, self.arrays, self.chunks = graph.integers, graph.arrays, graph.chunks

    def take(self, root, /):
        """Fill the tables with this object and every object that it refers to.

        Raises
        ------
        InputError
            Something cannot be written down.
        RecursionError
        """
        graph = self.graph
        graph.root = self.code(root)
        cdef list raw = [], done = [], columns, joined
        cdef int number
        progress = True
        while progress:
            progress = False
            for kind, things in self.containers.items():
                number = kind
                for thing in things[self.sizes[number].count:]:
                    progress = True
                    self.row(number, thing, kind in tables.MAPS)
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
                joined.append(np.concatenate(parts) if len(parts) > 1 else parts[0])
            graph.columns.append(joined)
        graph.lengths, graph.parts = array_of(&self.lengths), array_of(&self.parts_of)
        for kind in self.containers:
            number = kind
            graph.mutable[kind] = array_of(&self.sizes[number]), array_of(&self.rows[number])
        for thing in self.containers[tables.DEQUE]:
            graph.bounds.append(-1 if thing.maxlen is None else thing.maxlen)

    cdef int row(self, int kind, thing, bint pairs) except -1:
        cdef Codes* codes = &self.rows[kind]
        cdef Py_ssize_t before = codes.count
        if pairs:
            for key, value in thing.items():
                push(codes, self.code(key))
                push(codes, self.code(value))
        else:
            for value in thing:
                push(codes, self.code(value))
        return push(&self.sizes[kind], codes.count - before)

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
        bulk = getattr(type(things[0]), "__columns__", None)     # a class may return all values at once
        told = set(names)
        for thing in things if bulk is None and hasattr(things[0], "__dict__") else ():
            assert thing.__dict__.keys() <= told, things[0]
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
        """Codes of whole numbers, which are given for small ones."""
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
        small = self.seen[self.place_of(<PyObject*> value)].code - 1
        if small < 0:
            small = self.fresh(value, kind)
            self.meet(value, small)
        return small

    cdef Py_ssize_t place_of(self, PyObject* thing) noexcept:
        """Place of an object in the table, or the place for it."""
        # Neighbours in memory are neighbours here.  Four places lie together; from one four to the next it goes as in a dict:
        # once `number` is 0, ``5 * i + 1`` passes through all of them, so a free place is found.
        cdef size_t number = <size_t> thing >> 4, four = number >> 2, at = number & 3, step = 0
        four &= (<size_t> 1 << self.bits - 2) - 1
        while self.seen[four << 2 | at].thing != NULL and self.seen[four << 2 | at].thing != thing:
            step += 1
            at = at + 1 & 3
            if not step & 3:
                number >>= 5
                four = 5 * four + number + 1 & (<size_t> 1 << self.bits - 2) - 1
        return <Py_ssize_t> (four << 2 | at)

    cdef int meet(self, value, long long code) except -1:
        """Keep an object with its code."""
        cdef Met* old = self.seen
        cdef Py_ssize_t i, at
        if 3 * self.met >= <Py_ssize_t> 2 << self.bits:
            self.seen = <Met*> calloc(<size_t> 2 << self.bits, sizeof(Met))
            if self.seen == NULL:
                self.seen = old
                raise MemoryError
            self.bits += 1
            for i in range(<Py_ssize_t> 1 << self.bits - 1):
                if old[i].thing != NULL:
                    self.seen[self.place_of(old[i].thing)] = old[i]
            free(old)
        at = self.place_of(<PyObject*> value)
        if self.seen[at].thing == NULL:
            Py_INCREF(value)
            self.met += 1
        self.seen[at].thing, self.seen[at].code = <PyObject*> value, code + 1     # 0 marks a free place
        return 0

    cdef long long fresh(self, value, kind) except -1:
        """Code of a value met for the first time."""
        if kind is self.latest:
            self.of_latest.append(value)
            return <long long> (len(self.of_latest) - 1) << 8 | self.code_of_latest
        if kind is tuple:
            return self.parts(TUPLE, value)
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
        """Code of an immutable container, after those of its parts."""
        cdef Py_ssize_t first = self.open.count, i
        Py_EnterRecursiveCall(" in an image")
        try:
            for value in values:
                push(&self.open, self.code(value))
        finally:
            Py_LeaveRecursiveCall()
        for i in range(first, self.open.count):
            push(&self.parts_of, self.open.at[i])
        push(&self.lengths, self.open.count - first)
        self.open.count = first
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
        self.latest, self.of_latest, self.code_of_latest = kind, self.instances[index], FIRST_CLASS + <long long> index
        return self.fresh(value, kind)


cdef carried(text):
    """Refuse a string that no encoding carries: two halves of a pair would come back as one character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"a string with a lone surrogate cannot be written down: {quoted(text)}") from None
