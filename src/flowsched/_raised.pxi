# The exception of a call, as an object, without a traceback's being made.
#
# Under the limited API Cython makes an entry of a traceback by compiling code.  That fails where memory has ended or an audit hook refuses it, and an
# ``except ... as`` then has no object.  These take the exception as it was raised.

cdef extern from *:
    """
    static PyObject *fs_raised(void) {      /* NULL only if none was raised */
        PyObject *kind, *error, *trace;
        PyErr_Fetch(&kind, &error, &trace);
        PyErr_NormalizeException(&kind, &error, &trace);
        if (error && trace) PyException_SetTraceback(error, trace);
        Py_XDECREF(kind);
        Py_XDECREF(trace);
        return error;
    }
    static CYTHON_UNUSED PyObject *fs_attempt(PyObject *function, PyObject *a, PyObject *b) {
        PyObject *result = PyObject_CallFunctionObjArgs(function, a, b, NULL);
        if (!result) return fs_raised();
        Py_DECREF(result);
        Py_RETURN_NONE;
    }
    """
    object fs_raised()                              # the exception that is set, which is taken away
    object fs_attempt(object function, object a, object b)      # what function(a, b) raised, or None
