# Loop of a round, compiled: the types of `loop.py`.

cimport cython

from flowsched.builder._arcs cimport with_room
from flowsched.builder.builder cimport Builder
from flowsched.builder.reading cimport read
from flowsched.builder.scope cimport RoundScope
from flowsched.cluster.records cimport Starts, Transaction, World, moved
from flowsched.network._edits cimport NetworkEdits
from flowsched.rounds.admission cimport AdmissionCheck


cdef class _Clock:
    cdef public double deadline, update, solve, gap
    cdef public long solves
    cdef public object cost, changed
    cdef public bint late

    @cython.locals(limited=cython.bint)
    cdef bint run(self, NetworkEdits batch, double start) except *


cpdef tuple make_round(Builder builder, verdicts, now, time_limit)


@cython.locals(cluster=World, clock=_Clock, transaction=Transaction, start=double, check=AdmissionCheck, scope=RoundScope, had_room=set,
               graceful=cython.bint, starts=Starts, others=list, cut=cython.bint, attributes=dict)
cdef tuple _make(Builder builder, verdicts, now, time_limit)


@cython.locals(builder=Builder, scope=RoundScope, cluster=World, had_room=set, offered=cython.bint, proposed=cython.bint, again=cython.bint,
               start=double, updated=double)
cdef set _settle(AdmissionCheck check, _Clock clock)


@cython.locals(cluster=World)
cpdef again_at(Builder builder, RoundScope scope, bint cut, Py_ssize_t waiting, terms, bint altered)
