# Fault points: where the kernel allocates an array, and where it looks for signals.
#
# Built with FLOWSCHED_FAULTS=1 they are counted, `fail_at` makes one of them fail, and signals are looked for after little work; tests/hostile walks through
# them all.  Otherwise nothing of this is compiled.

cdef extern from *:
    """
    #ifdef FLOWSCHED_FAULTS
    #define FS_FAULTS 1
    static int fs_fuel = 25;
    static long long fs_allocations, fs_allocation, fs_signals, fs_signal;
    static int fs_allocate(void) {
        if (++fs_allocations != fs_allocation) return 0;
        PyErr_NoMemory();
        return -1;
    }
    static int fs_look(void) {
        if (++fs_signals == fs_signal) PyErr_SetNone(PyExc_KeyboardInterrupt);
        return fs_signals == fs_signal ? -1 : PyErr_CheckSignals();
    }
    static void fs_plan(long long allocation, long long signal) {
        fs_allocations = fs_signals = 0; fs_allocation = allocation; fs_signal = signal;
    }
    static long long fs_seen(int what) { return what ? fs_signals : fs_allocations; }
    #else
    #define FS_FAULTS 0
    static int fs_fuel = 1000000;
    #define fs_allocate() 0
    #define fs_look() PyErr_CheckSignals()
    #define fs_plan(a, s) ((void)(a), (void)(s))
    #define fs_seen(what) ((long long)0)
    #endif
    #define FS_FUEL ((long long)fs_fuel)
    static int fs_every(int work) { int before = fs_fuel; fs_fuel = work; return before; }
    """
    int FS_FAULTS
    int fs_every(int work)
    long long FS_FUEL                       # work between two looks at clock and signals
    int fs_allocate() except -1             # an array is about to be allocated
    int fs_look() except -1                 # let signal handlers run
    void fs_plan(long long allocation, long long signal)
    long long fs_seen(int what)


def fail_at(long long allocation, long long signal, /):
    """Let the allocation and the look for signals of these numbers, from now on and from 1, fail; return how many there were since the last call.

    None in a build without fault points.
    """
    if not FS_FAULTS:
        return None
    counts = fs_seen(0), fs_seen(1)
    fs_plan(allocation, signal)
    return counts


def look_every(int work, /):
    """Let solves of this module look at clock and signals after so many scanned half-arcs; return the number before.  For tests."""
    return fs_every(work)


cdef object _empty(int64_t size, kind):
    """A vector that is to be filled at once."""
    fs_allocate()
    return np.empty(size, kind)


cdef object _zeros(int64_t size, kind):
    """A vector of zeros, or of records of zeros."""
    fs_allocate()
    return np.zeros(size, kind)


cdef object _copy(values):
    """A vector of one's own."""
    fs_allocate()
    return np.array(values)
