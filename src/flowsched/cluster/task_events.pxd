# Events of jobs and tasks, compiled: the types of `task_events.py`.

cimport cython

from flowsched.boundary._values cimport plain_id
from flowsched.cluster.records cimport Group, JobRecord, TaskRecord, World, add_tasks, complete, group_for, new_job


@cython.locals(old=JobRecord, job=JobRecord, runs=list, ids=list, first=cython.Py_ssize_t, record=TaskRecord, usual=cython.bint)
cpdef job_submitted(World cluster, event)


@cython.locals(record=TaskRecord)
cpdef list task_completed(World cluster, event)


@cython.locals(known=dict, ids=list, found=list, first=cython.Py_ssize_t, end=cython.Py_ssize_t)
cdef list _runs(World cluster, job, tasks)


@cython.locals(group=Group)
cdef list _add_tasks(World cluster, JobRecord job, like, list ids, demand, time)
