"""Facts of the build of the compiled modules, for the environment of a measurement."""

__all__ = ["FACTS"]

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
    "cython": ".".join(str(CYTHON_HEX_VERSION >> shift & 255) for shift in (24, 16, 8)),
    "c_api": (<bytes>FLOWSCHED_API).decode(),
    "faults": bool(FLOWSCHED_WITH_FAULTS),
}
