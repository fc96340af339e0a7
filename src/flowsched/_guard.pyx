"""One call at a time on an object, and no signal handler in the middle of it.

Two rules hold for a section guarded by `Exclusive`:

(E)  A section of an object is entered only while no section of the same object is open.  A second entry, whether by another
     thread, a finaliser, a signal handler or a callback, raises `ConcurrentUseError` at once and changes nothing.  Nothing waits.
(S)  In a section that is entered in the main thread no Python signal handler runs, except within `interruptible`.  A signal that
     arrives is kept, and its handler runs when the outermost section is left, when all its changes are made.

So the exception of a handler (`KeyboardInterrupt`, or what a handler of SIGTERM raises) comes before the first change of a section
or after its last one.  Enter and leave are compiled code without a single bytecode, hence there is no gap between the
switch of the handlers and the body.  Real-time signals are not kept; few programs give those a handler that raises.

A process that is forked while a section is open in another thread has a copy of an object in the middle of a change; that copy
stays refused for ever in the child.
"""

cimport cython

import _signal  # the functions of `signal` without its conversion to enumerations, which takes ten times as long
import os
import threading

from flowsched.exceptions import ConcurrentUseError

__all__ = ["FACTS", "Exclusive", "interruptible"]

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #include <intrin.h>
    static int flowsched_swap(int *flag, int value) { return (int)_InterlockedExchange((long volatile *)flag, value); }
    #else
    static int flowsched_swap(int *flag, int value) { return __atomic_exchange_n(flag, value, __ATOMIC_ACQ_REL); }
    #endif
    """
    int flowsched_swap(int* flag, int value) nogil

cdef extern from *:
    """
    static PyCFunction fs_getsignal;
    static PyObject *fs_signals;            /* the module of that function */
    static PyObject *fs_learn(PyObject *getsignal) {
        if (PyCFunction_Check(getsignal) && PyCFunction_GetFlags(getsignal) == METH_O) {
            fs_getsignal = PyCFunction_GetFunction(getsignal);
            fs_signals = PyCFunction_GetSelf(getsignal);
        }
        Py_INCREF(getsignal);
        return getsignal;
    }
    static PyObject *fs_handler(PyObject *getsignal, PyObject *number) {    /* where possible without a call of Python's, of which half a section consisted */
        return fs_getsignal ? fs_getsignal(fs_signals, number) : PyObject_CallFunctionObjArgs(getsignal, number, NULL);
    }
    /* Position from `i` on of the first of the signals whose handler is none of these and not None; their number without one, -1 after an exception. */
    static Py_ssize_t fs_handled(PyObject *getsignal, PyObject *signals, Py_ssize_t i, PyObject *standard, PyObject *ignored, PyObject *keep) {
        Py_ssize_t count = PyTuple_Size(signals);
        for (; i < count; i++) {
            PyObject *found = fs_handler(getsignal, PyTuple_GET_ITEM(signals, i));
            if (!found) return -1;
            Py_DECREF(found);       /* its owner is the table of handlers */
            if (found != standard && found != ignored && found != keep && found != Py_None) break;
        }
        return i;
    }
    """
    object fs_learn(object getsignal)
    object fs_handler(object getsignal, object number)     # getsignal(number)
    Py_ssize_t fs_handled(object getsignal, object signals, Py_ssize_t i, object standard, object ignored, object keep) except -1

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident()

cdef object get_handler = fs_learn(_signal.getsignal)
cdef object set_handler = _signal.signal

# Signals that are kept, as bits; SIGKILL and SIGSTOP have no handler.
cdef unsigned SIGNALS = sum([1 << number for number in range(1, min(32, _signal.NSIG)) if number not in (getattr(_signal, "SIGKILL", 0), getattr(_signal, "SIGSTOP", 0))])
cdef tuple numbers = tuple([number for number in range(1, 32) if SIGNALS >> number & 1])
cdef object DEFAULT = _signal.SIG_DFL, IGNORED = _signal.SIG_IGN

cdef unsigned long main_thread = threading.main_thread().ident


# Signal handlers run in the main thread alone, and only that thread touches these.
cdef int depth = 0             # sections open in the main thread
cdef int opened = 0            # `interruptible`s open within the innermost of them
cdef unsigned turn = 0         # number of calls of `shut`
cdef unsigned held = 0         # bit i: a handler of signal i is in the list below
cdef list handlers = [None] * 32    # by signal: the handler that `_keep` replaces.  An assignment takes no memory, so none is lost where that has ended
cdef list arrived = []         # (handler, signal, frame) in order of arrival


def _in_child():
    """Reset the guard after a fork: the thread that forked is the main one, and a section of the former main thread does not end."""
    global main_thread, depth, opened
    if main_thread != PyThread_get_thread_ident():
        main_thread = PyThread_get_thread_ident()
        depth = opened = 0
        arrived.clear()
        reopen()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _keep(number, frame, /):
    """Keep a signal until the section ends; this is the handler of all signals in the meantime."""
    if opened:
        return handlers[number](number, frame)
    arrived.append((handlers[number], number, frame))


cdef object keep = _keep    # faster to look up than the module's name


cdef int shut() except -1:
    """Replace every handler in Python by `_keep`."""
    global turn, held
    cdef object before
    cdef int number
    cdef Py_ssize_t i
    cdef unsigned mine = turn - 1
    while mine != turn:     # a handler that ran meanwhile (`signal` looks for signals first) has had a section, and given all back
        turn += 1
        mine = turn
        i = fs_handled(get_handler, numbers, 0, DEFAULT, IGNORED, keep)
        while i < len(numbers):
            number = numbers[i]
            if callable(fs_handler(get_handler, number)):
                before = set_handler(number, keep)
                if before is not keep:
                    handlers[number] = before
                    held |= <unsigned> 1 << number
            i = fs_handled(get_handler, numbers, i + 1, DEFAULT, IGNORED, keep)
    return 0


cdef object attempt(function, a, b):
    """Exception of ``function(a, b)``, or None."""
    try:
        function(a, b)
    except BaseException as error:
        return error
    return None


cdef int deliver(object first=None) except -1:
    """Run the handlers of the signals that arrived; the first exception, `first` if there is one, is raised when all have run."""
    cdef object error
    while arrived:
        handler, number, frame = arrived.pop(0)
        error = attempt(handler, number, frame)
        if first is None:
            first = error
    if first is not None:
        raise first
    return 0


cdef int reopen() except -1:
    """Give every signal its handler back, and run those of the signals that arrived.  After an error, the end of the next section gives the rest back."""
    global held
    cdef object handler, error, first = None
    cdef int number
    for number in range(1, 32):
        if not held >> number:
            break
        if not held >> number & 1:
            continue
        handler = handlers[number]
        while fs_handler(get_handler, number) is keep:
            error = attempt(set_handler, number, handler)    # that of the handler of another signal: `signal` looks for signals first
            if first is None:
                first = error
        held &= ~(<unsigned> 1 << number)    # such a handler may have had a section, which has given this one back
        handlers[number] = None
    return deliver(first)


@cython.auto_pickle(False)
cdef class Exclusive:
    """Context manager of the sections of one object; see (E) and (S).

    Parameters
    ----------
    name : str
        The object's, for the message of `ConcurrentUseError`.
    """

    cdef str name
    cdef int busy
    cdef bint main       # the open section was entered in the main thread
    cdef int around      # `opened` outside of it

    def __init__(self, str name):
        self.name = name

    def __enter__(self):
        global depth, opened
        cdef bint main = PyThread_get_thread_ident() == main_thread
        if flowsched_swap(&self.busy, 1):
            raise ConcurrentUseError(f"{self.name}: used while another call on it is under way")
        self.main = main
        if main:
            if depth == 0:
                try:
                    shut()
                except BaseException:
                    self.busy = 0
                    reopen()
                    raise
            depth += 1
            self.around, opened = opened, 0
        return self

    def __exit__(self, kind, error, trace, /):
        global depth, opened
        cdef bint main = self.main
        if main:
            opened = self.around
        flowsched_swap(&self.busy, 0)
        if main:
            depth -= 1
            if depth == 0 and held:
                reopen()
        return False


@cython.auto_pickle(False)
cdef class Interruptible:
    """Context manager: handlers run as if no section were open.  The work in it must bear an exception at any point."""

    cdef bint main

    def __enter__(self):
        global opened
        self.main = depth > 0 and PyThread_get_thread_ident() == main_thread
        if self.main:
            opened += 1
            if arrived:
                try:
                    deliver()
                except BaseException:
                    opened -= 1
                    raise
        return self

    def __exit__(self, kind, error, trace, /):
        global opened
        if self.main:
            opened -= 1
        return False


def interruptible():
    """Allow signal handlers within a section, for work that is long and may end anywhere."""
    return Interruptible()


# -- facts of the build of the compiled modules, for the environment of a measurement ----------------------------------------

cdef extern from *:
    """
    #if defined(__clang__)
    #define FLOWSCHED_COMPILER __VERSION__
    #elif defined(__GNUC__)
    #define FLOWSCHED_COMPILER "GCC " __VERSION__
    #elif defined(_MSC_VER)
    #define FLOWSCHED_TEXT(x) #x
    #define FLOWSCHED_TEXT_OF(x) FLOWSCHED_TEXT(x)
    #define FLOWSCHED_COMPILER "MSVC " FLOWSCHED_TEXT_OF(_MSC_VER)
    #else
    #define FLOWSCHED_COMPILER ""
    #endif
    #ifdef Py_LIMITED_API
    #define FLOWSCHED_API "limited"
    #else
    #define FLOWSCHED_API "full"
    #endif
    #ifdef FLOWSCHED_FAULTS
    #define FLOWSCHED_WITH_FAULTS 1
    #else
    #define FLOWSCHED_WITH_FAULTS 0
    #endif
    """
    const char* FLOWSCHED_COMPILER
    const char* FLOWSCHED_FLAGS         # by setup.py
    const char* FLOWSCHED_API
    int CYTHON_HEX_VERSION
    int FLOWSCHED_WITH_FAULTS

FACTS = {
    "compiler": (<bytes>FLOWSCHED_COMPILER).decode(),
    "flags": (<bytes>FLOWSCHED_FLAGS).decode(),
    "cython": "%d.%d.%d" % (CYTHON_HEX_VERSION >> 24, CYTHON_HEX_VERSION >> 16 & 255, CYTHON_HEX_VERSION >> 8 & 255),
    "c_api": (<bytes>FLOWSCHED_API).decode(),
    "faults": bool(FLOWSCHED_WITH_FAULTS),
}
