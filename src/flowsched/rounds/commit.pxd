# Commit, compiled: the types of `commit.py`.

cimport cython

from flowsched.boundary._values cimport frozen
from flowsched.cluster._room cimport MovedFields
from flowsched.cluster.records cimport Starts, TaskRecord, Transaction, World, start_again


@cython.locals(cluster=World, known=Starts)
cpdef carry_out(cluster, round, only=*, graceful=*, quotas=*)


@cython.locals(known=Starts, first=TaskRecord, inventory=MovedFields)
cdef Starts _as_found(World cluster, round)
