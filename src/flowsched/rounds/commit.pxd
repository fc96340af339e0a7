# Commit, compiled: the types of `commit.py`.

from flowsched.cluster.records cimport TaskRecord, Transaction, World


cdef _as_found(World cluster, round)
