# Attributes of Python classes with ``__slots__``, read and written where the objects keep them.
#
# Under the limited API compiled code finds an attribute by its name, which takes longer than in bytecode.  A slot is a pointer at an offset that is the same in
# all objects of a class; the class tells it (`Py_tp_members`, a part of the stable ABI).  Whoever reads a slot has checked the class of the object.

cdef extern from *:
    """
    #include "structmember.h"
    static Py_ssize_t fs_offset(PyObject *kind, const char *name) {
        PyMemberDef *member = (PyMemberDef *)PyType_GetSlot((PyTypeObject *)kind, Py_tp_members);
        for (; member && member->name; member++)
            if (!strcmp(member->name, name) && member->type == T_OBJECT_EX) return member->offset;
        PyErr_Format(PyExc_TypeError, "%R has no slot %s", kind, name);
        return -1;
    }
    static CYTHON_INLINE PyObject *fs_slot(PyObject *of, Py_ssize_t offset) {     /* borrowed; None where nothing was ever set */
        PyObject *value = *(PyObject **)((char *)of + offset);
        return value ? value : Py_None;
    }
    static CYTHON_INLINE void fs_fill(PyObject *of, Py_ssize_t offset, PyObject *value) {
        PyObject **slot = (PyObject **)((char *)of + offset), *old = *slot;
        Py_INCREF(value);
        *slot = value;
        Py_XDECREF(old);
    }
    """
    Py_ssize_t fs_offset(object kind, const char *name) except -1
    void *fs_slot(void *of, Py_ssize_t offset) noexcept
    void fs_fill(void *of, Py_ssize_t offset, object value) noexcept
