# Reasons for waiting, compiled: the types of `verdicts.py`.

cimport cython
from libc.stdint cimport int64_t

from flowsched.builder.builder cimport Builder
from flowsched.builder.queues cimport ClassQueue, QueuedTasks, Queues
from flowsched.cluster.records cimport TaskClass, World


cdef class _Scene:
    cdef object shapes, blockers, resources
    cdef int64_t looks


cdef class _Sight:
    cdef readonly object why, ever
    cdef readonly int64_t since
    cdef bytes patch
    cdef dict verdicts


cdef class _Line:
    cdef list queues, classes, ids, tasks, units, arcs, sights
    cdef object index
    cdef int64_t count, since, upto
    cdef object rows

    @cython.locals(i=cython.Py_ssize_t)
    cdef bint holds(self, World cluster) except -1

    @cython.locals(i=cython.Py_ssize_t, queue=ClassQueue, tasks=QueuedTasks)
    cdef refresh(self, Queues queues)


cdef class _Record:
    cdef _Scene scene
    cdef list queues, sights, roomy, taken
    cdef object rows, patch, prices, resolution
    cdef bint late
    cdef dict held
    cdef set limited

    cdef _of_class(self, i)
    cdef _of_group(self, i, code, verdict)
    cdef _code(self, i)
    cdef tuple _why(self, i)

    @cython.locals(sight=_Sight)
    cdef _verdict(self, i, code=*)


cdef class Verdicts:
    cdef readonly Builder builder
    cdef readonly World cluster
    cdef _Line _line, _sights_of
    cdef dict _sights
    cdef _Scene _scene

    @cython.locals(builder=Builder, line=_Line, record=_Record, roomy=list, outbid=list, arcs=list, units=list, i=cython.Py_ssize_t)
    cdef tuple _taken_down(self, set had_room, bint late, object short, taken)

    @cython.locals(scene=_Scene)
    cdef _Record _look(self, _Line line, list outbid)

    @cython.locals(scene=_Scene)
    cdef _Scene _scene_now(self)

    @cython.locals(sight=_Sight, cls=TaskClass)
    cdef _see(self, _Line line)
