# Admission, compiled: the types of `admission.py`.

cimport cython

from flowsched.builder.builder cimport Builder
from flowsched.builder.proposals cimport ClassFlow
from flowsched.builder.scope cimport RoundScope
from flowsched.cluster.records cimport TaskRecord, Transaction, World


cdef class AdmissionCheck:
    cdef public Builder builder
    cdef public RoundScope scope
    cdef public Transaction transaction
    cdef public World cluster
    cdef public dict evicted_for
    cdef public object quotas, _contest

    @cython.locals(attempt=_Attempt, again=cython.bint, tasks=list, rows=list)
    cpdef bint admit(self, list proposals) except *


cdef class _Attempt:
    cdef public AdmissionCheck check
    cdef public list started
    cdef public bint again

    @cython.locals(transaction=Transaction, at=cython.Py_ssize_t, first=cython.Py_ssize_t)
    cpdef Py_ssize_t start_rows(self, list tasks, list rows, Py_ssize_t done) except -1
