# The owner of the cluster's state, compiled: the types of `state.py`.

cimport cython

from flowsched.cluster.records cimport World
from flowsched.cluster.task_events cimport job_submitted, task_completed


@cython.locals(position=cython.Py_ssize_t, many=cython.bint, done=cython.Py_ssize_t)
cdef _apply(World cluster, tuple events, list ended, bint together)
