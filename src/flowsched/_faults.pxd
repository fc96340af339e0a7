# Fault points: where the kernels allocate an array, and where they look for signals.  See `_faults.pyx`.

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifdef FLOWSCHED_FAULTS
    #define FS_FAULTS 1
    #else
    #define FS_FAULTS 0
    #endif
    """
    bint FS_FAULTS

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

cdef int64_t FS_FUEL                        # work between two checks of the clock and signals
cdef int64_t FS_LONG                        # the same for the simplex

cdef int count_allocation() except -1
cdef int count_look() except -1

cdef object _empty(int64_t size, kind)
cdef object _zeros(int64_t size, kind)
cdef object _copy(values)


cdef inline int fs_allocate() except -1:
    """Mark a fault point: an array is about to be allocated."""
    return count_allocation() if FS_FAULTS else 0


cdef inline int fs_look() except -1:
    """Run pending signal handlers."""
    return count_look() if FS_FAULTS else PyErr_CheckSignals()
