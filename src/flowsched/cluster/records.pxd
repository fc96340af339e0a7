# Records, chains, and the state that moves of tasks change, for compiled modules.

from libc.stdint cimport int32_t, int64_t

from flowsched.cluster._room cimport MovedFields

cdef enum:
    PLACE = 0
    JOB = 1

cdef struct Link:
    void* chain     # Chain in which the record stands, NULL without one
    void* next      # neighbouring TaskRecords, NULL at an end
    void* prev

cdef class RunningTasksColumns:
    cdef public int64_t[::1] row, class_id, turn
    cdef public double[::1] since, end

cdef class Chain:
    cdef int which
    cdef void* first
    cdef void* last
    cdef Py_ssize_t count

    cpdef TaskRecord head(self)
    cpdef list some(self, Py_ssize_t first, Py_ssize_t end)

cdef class TaskClass:
    cdef public int64_t index, priority, tasks
    cdef public tuple key
    cdef public object demand, constraints, kind, prefers, tolerations

cdef class JobRecord:
    cdef public object job, groups
    cdef public int64_t serial, most
    cdef public Chain tasks

    cpdef group_of(self, key)
    cpdef add_group(self, Group group)
    cpdef drop_group(self, Group group)

cdef class Group:
    cdef public JobRecord job
    cdef public TaskClass cls
    cdef public int64_t serial, tasks
    cdef public tuple data
    cdef public Chain waiting
    cdef public dict on

    cpdef bint plain(self) except -1

cdef class TaskRecord:
    cdef public object id
    cdef public Group group
    cdef public tuple devices
    cdef public object since, began, preempted, duration    # numbers as they were given
    cdef public int64_t turn, run
    cdef public int32_t index, row
    cdef public bint gone
    cdef Link link[2]

cdef class MachineRecord:
    cdef public object id, capacity, rack, labels, slots, taints
    cdef public Chain tasks
    cdef public int32_t row
    cdef public bint failed, drained

cdef class Before:
    cdef readonly object place, since
    cdef readonly int64_t turn

cdef class Changes:
    cdef public dict groups, machines
    cdef public list removed, gone, classes

cdef class IdPool:
    cdef public int64_t count
    cdef public list _free

    cpdef take(self)
    cpdef list take_some(self, Py_ssize_t count)
    cpdef give_some(self, indices)
    cpdef give(self, index)

cdef class World:
    cdef public MovedFields inventory
    cdef public dict by_row, waiting, queues, machines, tasks, jobs, attempts, resting, by_class, _waiting_ids, _classes, _idle
    cdef dict _plain        # classes of tasks with a demand alone, by its address and the priority, each with the demand: see `group_for`
    cdef public Changes _changes
    cdef public list by_index, _timeless
    cdef public IdPool _indices
    cdef public int64_t events, _turn, _serial
    cdef public bint moving, midway

    cpdef Changes changes(self, now=*)
    cpdef date(self, now)
    cpdef tuple moment(self)

cdef class Transaction:
    cdef readonly World cluster
    cdef readonly object now
    cdef readonly dict before

    cpdef start(self, list tasks, int32_t row, devices)
    cpdef tuple start_rows(self, list tasks, Py_ssize_t done, list rows, Py_ssize_t full)
    cpdef stop(self, TaskRecord task)
    cpdef restore(self, TaskRecord task)
    cpdef rollback(self)

cdef class Starts:
    cdef public list tasks, machines, devices, turns
    cdef public dict placements, gangs
    cdef public tuple moment

cpdef tuple moved(dict before, dict machines)
cpdef JobRecord new_job(World world, id, priority, job=*)
cpdef untracked(thing)
cpdef Group found_group(World world, Group group)
cpdef Starts untried(World world, Group group, list rows)
cpdef list complete(World world, list tasks, type ended)
cpdef list add_tasks(World world, Group group, list ids, time, duration)
cpdef Group group_for(World world, JobRecord job, task, demand, shuns=*)
cpdef int64_t start_again(World world, list tasks, list machines, list devices, int64_t run, now) except -1
cdef int displace(World world, list tasks) except -1
