# Admission, compiled: the types of `admission.py`.

cimport cython

from flowsched.builder._arcs cimport ShareFields
from flowsched.builder.builder cimport Builder
from flowsched.builder.proposals cimport ClassFlow
from flowsched.builder.scope cimport RoundScope
from flowsched.cluster.records cimport Group, Starts, TaskRecord, Transaction, World, untried


cdef class AdmissionCheck:
    cdef public Builder builder
    cdef public RoundScope scope
    cdef public Transaction transaction
    cdef public World cluster
    cdef public dict evicted_for
    cdef public object quotas, _contest
    cdef readonly Starts starts

    @cython.locals(builder=Builder, cluster=World, first=ClassFlow, shares=ShareFields, group=Group)
    cpdef bint places_all(self, list proposals) except *

    @cython.locals(attempt=_Attempt, again=cython.bint, first=ClassFlow, tasks=list, rows=list)
    cpdef bint admit(self, list proposals) except *


cdef class _Attempt:
    cdef public AdmissionCheck check
    cdef public list started
    cdef public bint again

    @cython.locals(transaction=Transaction, at=cython.Py_ssize_t, first=cython.Py_ssize_t)
    cpdef Py_ssize_t start_rows(self, list tasks, list rows, Py_ssize_t done) except -1
