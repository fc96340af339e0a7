# Entries of the kernel for other compiled modules: they get them in a capsule (`NetworkEdits.entries`), so that no module needs another one to be built.

cdef struct Entries:
    # Flow on arcs in the last solution of a FlowNetwork's kernel.
    int (*flows)(void *network, const int64_t *arcs, Py_ssize_t k, int64_t *flow) except -1
    # Send capacities (or costs) of arcs by a NetworkEdits, after those that wait.
    int (*send)(void *edits, bint cost, const int64_t *arcs, const int64_t *values, Py_ssize_t k) except -1
