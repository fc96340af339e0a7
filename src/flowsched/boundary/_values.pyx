"""Values that are made without the steps of the constructors that `dataclass` makes.

They set attribute by attribute through ``object.__setattr__``, at 2,000 instructions each.
"""

cimport cython
from libc.stdint cimport int64_t

from dataclasses import MISSING, fields
from types import MemberDescriptorType

cdef extern from "Python.h":
    int Py_tp_descr_get, Py_tp_descr_set
    void* PyType_GetSlot(type of, int slot)
    int PyObject_GenericSetDict(object it, object attributes, void* context) except -1
    object PyType_GenericAlloc(type of, Py_ssize_t count)

ctypedef object (*Getter)(object slot, object of, object type)
ctypedef int (*Setter)(object slot, object of, object value) except -1

cdef int64_t LARGEST = (<int64_t> 1 << 62) - 1 + (<int64_t> 1 << 62)


cpdef frozen(type cls, dict attributes):
    """Return an object of a frozen dataclass without slots, which has these attributes.

    Examples
    --------
    >>> from flowsched import RoundStats
    >>> values = {"nodes": 3, "arcs": 2, "changes": 5, "solves": 1, "gap": 0.0, "cost": 7,
    ...         "seconds_update": 0.1, "seconds_solve": 0.2, "seconds_read": 0.3}
    >>> frozen(RoundStats, values) == RoundStats(**values)
    True
    """
    made = PyType_GenericAlloc(cls, 0)
    PyObject_GenericSetDict(made, attributes, NULL)
    return made


@cython.final
@cython.auto_pickle(False)
cdef class Slots:
    """Slots of a class: a call sets those of an object, in this order.

    Parameters
    ----------
    cls : type
    names : iterable of str
    """

    cdef tuple slots
    cdef Getter read
    cdef Setter fill

    def __init__(self, type cls, names):
        self.slots = tuple([getattr(cls, name) for name in names])
        if {type(slot) for slot in self.slots} != {MemberDescriptorType}:
            raise TypeError(f"{cls.__name__}: slots expected")
        self.read = <Getter> PyType_GetSlot(MemberDescriptorType, Py_tp_descr_get)
        self.fill = <Setter> PyType_GetSlot(MemberDescriptorType, Py_tp_descr_set)

    def __call__(self, *values):
        cdef Py_ssize_t i
        if len(values) != len(self.slots) + 1:
            raise TypeError("an object and a value for each slot expected")
        for i in range(len(self.slots)):
            self.fill(self.slots[i], values[0], values[i + 1])

    def hold(self, it, tuple values not None, /):
        """Return True if the slots of an object hold exactly these objects."""
        cdef Py_ssize_t i
        for i in range(min(len(values), len(self.slots))):
            if self.read(self.slots[i], it, type(it)) is not values[i]:
                return False
        return True


cpdef bint plain_id(value):
    """Return True for text, a whole number of 64 bits, or a tuple of such: it has a hash, equals itself and can be spelt out."""
    if type(value) is str:
        return True
    if type(value) is int:
        return -LARGEST <= value <= LARGEST
    if type(value) is not tuple:
        return False
    for part in <tuple> value:
        if type(part) is not str and not (type(part) is int and -LARGEST <= part <= LARGEST):
            return False
    return True


cpdef tuple typed_items(dict values):
    """Return names, values and types of values in one tuple, since True == 1 == 1.0."""
    cdef list found = []
    for name, value in values.items():
        found.append(name)
        found.append(value)
        found.append(type(value))
    return tuple(found)


def filled(type cls, /):
    """Give a frozen dataclass with slots an ``__init__`` that fills them in one call; return the class."""
    known = cls.__init__
    own = [field for field in fields(cls) if not field.kw_only]
    named = [field for field in fields(cls) if field.kw_only]
    given = [*own, *named]
    names = [field.name for field in given]
    words = ", ".join(["self", *[field.name for field in own], *(["*"] if named else []), *[field.name for field in named]])
    lines = [f"def __init__({words}):"]
    scope = {"fill": Slots(cls, names)}
    defaults = dict(zip(reversed(names[:len(own)]), reversed(known.__defaults__ or ()))) | (known.__kwdefaults__ or {})
    for field in given:
        if field.default_factory is not MISSING:
            scope[f"no_{field.name}"], scope[f"new_{field.name}"] = defaults[field.name], field.default_factory
            lines.append(f" if {field.name} is no_{field.name}: {field.name} = new_{field.name}()")
    lines.append(f" fill(self, {', '.join(names)})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    exec("\n".join(lines), scope)
    init = scope["__init__"]
    for name in ("__defaults__", "__kwdefaults__", "__annotations__", "__qualname__", "__module__"):
        setattr(init, name, getattr(known, name))
    cls.__init__ = init
    return cls
