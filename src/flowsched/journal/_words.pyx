"""Events, deltas and ids as JSON text: the words of a journal's records.

`words(value)` is the text of `codec.plain(value)`, character for character, without the values in between:

(W)  A value of a type that nearly all values have (str, int, float, bool, None; tuples, lists and mappings of these) is
     written here if `plain` leaves it as it is.  Every other value, and every refusal, is `plain`'s, and so is a value
     nested deeper than `DEEPEST`: the C stack has no guard of its own.
(D)  An event or task is an object of its fields.  A field is left out if it has its default, recognised by identity first;
     an equal value of another type (True for 1, 1.0 for 1) is written.

(M)  No comprehensions here, and no string put together of two parts alone: where memory ends, Cython 3.3 frees the new
     item, or the left part, twice.

The fields of a class are looked up once.  Text is ASCII, without any space.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from json.encoder import encode_basestring_ascii
from math import isfinite
from types import MappingProxyType
from zlib import crc32

from flowsched.cluster import Task, Tasks
from flowsched.cluster.events import Event
from flowsched.journal.codec import encode, plain
from flowsched.rounds.values import Place, Preempt

cdef dict known = {}        # class of events or tasks -> its Fields
cdef object proxy = MappingProxyType
cdef object json_text = encode_basestring_ascii
cdef object missing = MISSING, tasks = Tasks

cdef enum:
    BITS = 63               # integers of more bits are `plain`'s
    DEEPEST = 100


cpdef str words(value):
    """Return an event, a part of one, or an id as JSON text.

    Raises
    ------
    InputError
        The value could not be read back.
    """
    return told(value, DEEPEST)


cdef str told(value, int deep):
    kind = type(value)
    if kind is str:
        if value.isascii():
            return json_text(value)
    elif kind is int:
        if value.bit_length() <= BITS:
            return repr(value)
    elif value is None:
        return "null"
    elif not deep:
        pass
    elif kind is tuple or kind is list or kind is tasks:
        return several(value, deep - 1)
    elif kind is float:
        if isfinite(value):
            return repr(value)
    elif kind is dict or kind is proxy:
        return named(value, deep - 1)
    elif kind is bool:
        return "true" if value else "false"
    else:
        of = known.get(kind)
        if of is None and isinstance(value, Event | Task):
            of = known[kind] = Fields(kind)
        if of is not None:
            return (<Fields> of).write(value, deep - 1)
    return encode(plain(value)).decode("ascii")


cdef str several(values, int deep):
    cdef list parts = []
    for value in values:
        parts.append(told(value, deep))
    return f"[{','.join(parts)}]"


cdef str named(values, int deep):
    cdef list parts = []
    for name in values:
        if type(name) is not str:
            return encode(plain(values)).decode("ascii")  # as a whole: names may be refused, or turn out equal
    for name, value in values.items():
        parts.append(f"{told(name, deep)}:{told(value, deep)}")
    return f"{{{','.join(parts)}}}"


cdef class Fields:
    """Writes the objects of one class of events, or tasks."""

    cdef tuple names        # of the fields
    cdef tuple defaults     # of each; MISSING where it has none
    cdef str front          # text with which an object begins
    cdef bint frozen        # a `Task` has made its demand one that cannot change; equal ones are one object
    cdef object demand      # the last one, and its text
    cdef str of_demand

    def __init__(self, kind):
        cdef list names = [], defaults = []
        task = issubclass(kind, Task)
        for field in fields(Task if task else kind):  # a task is read back as a Task
            names.append(field.name)
            defaults.append(field.default if field.default_factory is MISSING else field.default_factory())
        self.names, self.defaults = tuple(names), tuple(defaults)
        self.front = "" if task else f'"kind":"{kind.__name__}"'
        self.frozen, self.demand = kind is Task, missing

    cdef str write(self, value, int deep):
        cdef list parts = [self.front] if self.front else []
        cdef Py_ssize_t i
        for i in range(len(self.names)):
            name, default = self.names[i], self.defaults[i]
            setting = getattr(value, name)
            if setting is default or default is not missing and same(setting, default):
                continue
            if setting is self.demand:
                text = self.of_demand
            else:
                text = told(setting, deep)
                if self.frozen and name == "demand" and type(setting) is proxy:
                    self.demand, self.of_demand = setting, text
            parts.append(f'"{name}":{text}')
        return f"{{{','.join(parts)}}}"


cdef bint same(setting, default):
    """True if the two are equal, and are read back alike."""
    kind = type(setting)
    alike = kind is type(default) or kind is not list and kind is not str and isinstance(setting, Mapping) and isinstance(default, Mapping)
    return alike and setting == default


cpdef str delta_words(deltas):
    """Return deltas as JSON text, which `codec.deltas_of` reads."""
    cdef list parts = []
    for delta in deltas:
        parts.append(one_delta(delta))
    return f"[{','.join(parts)}]"


cdef str one_delta(delta):
    front = f'{words(delta.task)},{words(delta.machine)}'
    if isinstance(delta, Place):
        return f'["s",{front},{words(delta.devices)}]'
    if isinstance(delta, Preempt):
        return f'["p",{front},{words(delta.by)}]'
    return f'["m",{words(delta.task)},{words(delta.old)},{words(delta.machine)},{words(delta.devices)},{words(delta.by)}]'


cpdef tuple round_numbers(round, str deltas, str reasons):
    """Return the numbers of a `Seal` of the round, whose deltas and reasons in words are these."""
    cdef list paid = []
    for preemption in round.preemptions.values():
        paid.append(preemption.price)
    return (
        len(round.preemptions), len(round.migrations), len(round.placements), len(round.waiting),
        crc32(f"[{deltas},{words(paid)}]".encode("ascii")), round.stats.cost, crc32(reasons.encode("ascii")),
    )
