"""The kernel of matching: counts of tasks of each class that fit into the timeline of each machine.

Source: M.-S. Zhou, X.-S. Dong, H. Chen and X.-J. Zhang, "Dynamically Fine-grained Scheduling Method in Cloud Environment",
Journal of Software 31(12), 2020 (FGM).

Symbols
-------
A machine's timeline has stages n, each with its end and, by resource, its *reach* X: the amount that a newcomer may want there
at most (derived at the top of ``_course.pyx``, whose work the timelines are).  A class of tasks has stages s, each with
its end, counted from the start, and its wants.  Algorithm 2 merges the two lists and compares; as the reach does not
depend on the newcomer, k tasks of a class fit exactly if k x <= X wherever both go on.  A resource that a stage does not
want is not asked for.  Amounts are int64 and exact; times are float64 and equal when they differ by at most ``TINY``.

Method
------
The lists are not merged, as that is a chain of branches that cannot be predicted.  The ends of all classes' stages are sorted once.
For a machine, a binary search for each of its ends finds the stage of the machine in which each of them lies (`rank`), a
small table holds the least reach over runs of stages (`lows`), and so each stage of a task finds the reach that it is
compared with in one place (`spans`).  Two resources are adjacent.  Quotients X / x are taken with the inverse of x
(`quotients`), their least decides and counts (`verdicts`), and where it is too close to 1 for that, whole numbers are
compared (`lacks`).

Invariants
----------
* ``ends`` of a row ascend, the last one used is infinite; entries after it are not read.
* `fits` > 0 exactly where one task passes every comparison in integers.
* `openings` compares as `fits` does: before the time that it finds, `fits` counts no more; then, it counts more.

Complexity: O(stages of the class) for each pair, and O(stages of all classes) for each machine.  Nothing touches Python
objects within the loops, and the lock of the interpreter is released around them.
"""

from libc.math cimport INFINITY, NAN, fabs
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc

from flowsched.fgm._course cimport TINY

# Rounding may have decided on which side of 1 a quotient lies that is no farther from it.
cdef double CLOSE = 1e-8

# With this number of stages of tasks it pays to scan every run of stages of a machine.
cdef Py_ssize_t FEW = 48

cdef int64_t MANY = 1 << 40

UNLIMITED = MANY


def fits(
    const int64_t[::1] at,
    const double[::1] until,
    const int64_t[::1] order,
    const int64_t[:, ::1] want,
    const double[:, ::1] ends,
    const int64_t[:, :, ::1] reach,
    const int64_t[::1] rows,
    double now,
    int64_t[:, ::1] count,
    int8_t[:, ::1] short,
    /,
):
    """Count the tasks of each class that fit on each machine from `now` on; where none does, find the short resource.

    `count` and `short` have a line for each of the `rows`.

    Class c has the stages ``at[c]`` to ``at[c + 1]``; `until` holds their ends, counted from the start of the task, and
    `order` sorts `until`.
    """
    cdef Py_ssize_t i, c, classes = at.shape[0] - 1, slots = ends.shape[1], resources = want.shape[1]
    if ends.shape[0] != reach.shape[0] or slots != reach.shape[1] or resources != reach.shape[2] or slots > 127:
        raise ValueError("fits: shapes of machines differ")
    if not (count.shape[1] == short.shape[1] == classes and count.shape[0] == short.shape[0] == rows.shape[0]):
        raise ValueError("fits: shapes of the result differ")
    if not (until.shape[0] == order.shape[0] == want.shape[0]):
        raise ValueError("fits: shapes of stages differ")
    for i in range(rows.shape[0]):
        if not 0 <= rows[i] < ends.shape[0]:
            raise IndexError(f"fits: row {rows[i]}")
    for i in range(order.shape[0]):
        if not 0 <= order[i] < until.shape[0]:
            raise IndexError(f"fits: stage {order[i]}")
    for c in range(classes):
        if not 0 <= at[c] < at[c + 1] <= until.shape[0]:
            raise IndexError(f"fits: class {c}")
    if not (classes and rows.shape[0] and resources and slots):
        return
    cdef Py_ssize_t stages = until.shape[0], pairs = (resources + 1) // 2
    cdef double *least = <double *>malloc(pairs * slots * slots * 2 * sizeof(double))
    cdef double *part = <double *>malloc(pairs * stages * 2 * sizeof(double))
    cdef double *most = <double *>malloc(pairs * classes * 2 * sizeof(double))
    cdef double *ordered = <double *>malloc(stages * sizeof(double))
    cdef int32_t *stage_of = <int32_t *>malloc(stages * sizeof(int32_t))
    cdef int32_t *span = <int32_t *>malloc(stages * sizeof(int32_t))
    cdef uint32_t *place = <uint32_t *>malloc(stages * sizeof(uint32_t))
    try:
        if not (least and part and most and ordered and stage_of and span and place):
            raise MemoryError
        with nogil:
            inverses(want, pairs, part)
            for i in range(stages):
                ordered[i] = until[order[i]]
                stage_of[i] = <int32_t>order[i]
            for i in range(rows.shape[0]):
                rank(ordered, stage_of, stages, &ends[rows[i], 0], slots, now, place)
                spans(&at[0], classes, stages, place, &ends[rows[i], 0], slots, now, span)
                if stages < FEW:
                    lows_of(stages, span, &reach[rows[i], 0, 0], slots, resources, pairs, least)
                else:
                    lows(&ends[rows[i], 0], &reach[rows[i], 0, 0], slots, resources, pairs, least)
                quotients(&at[0], classes, stages, part, least, span, slots, pairs, most)
                verdicts(&at[0], classes, want, span, &reach[rows[i], 0, 0], slots, pairs, most, &count[i, 0], &short[i, 0])
    finally:
        free(least)
        free(part)
        free(most)
        free(ordered)
        free(stage_of)
        free(span)
        free(place)


def openings(
    const int64_t[::1] at,
    const double[::1] until,
    const int64_t[:, ::1] want,
    const double[:, ::1] ends,
    const int64_t[:, :, ::1] reach,
    const int64_t[::1] rows,
    double now,
    const int64_t[:, ::1] count,
    const uint8_t[:, ::1] open,
    double[::1] due,
    /,
):
    """Lower `due` of each machine to the earliest start at which more tasks of a class fit than were counted.

    `count` and `open` have a line for each of the `rows`; classes that are not `open` there are left out.  See `fits` for
    the other arrays; `due` is by row.
    """
    cdef Py_ssize_t i, c, classes = at.shape[0] - 1, slots = ends.shape[1]
    if ends.shape[0] != reach.shape[0] or slots != reach.shape[1] or want.shape[1] != reach.shape[2]:
        raise ValueError("openings: shapes of machines differ")
    if not (count.shape[1] == open.shape[1] == classes and count.shape[0] == open.shape[0] == rows.shape[0]):
        raise ValueError("openings: shapes of the counts differ")
    if until.shape[0] != want.shape[0] or due.shape[0] != ends.shape[0]:
        raise ValueError("openings: shapes of stages differ")
    for i in range(rows.shape[0]):
        if not 0 <= rows[i] < ends.shape[0]:
            raise IndexError(f"openings: row {rows[i]}")
    for c in range(classes):
        if not 0 <= at[c] < at[c + 1] <= until.shape[0]:
            raise IndexError(f"openings: class {c}")
    with nogil:
        for i in range(rows.shape[0] if slots and want.shape[1] else 0):
            for c in range(classes):
                if open[i, c]:
                    due[rows[i]] = opening(
                        at[c], at[c + 1], until, want, &ends[rows[i], 0], &reach[rows[i], 0, 0], slots, now,
                        count[i, c] + 1, due[rows[i]],
                    )


cdef double opening(
    Py_ssize_t begin,
    Py_ssize_t end,
    const double[::1] until,
    const int64_t[:, ::1] want,
    const double *ends,
    const int64_t *reach,
    Py_ssize_t slots,
    double now,
    int64_t tasks,
    double bound,
) except? -1 nogil:
    """Find the first start from `now` on at which `tasks` tasks of a class fit; `bound` if that is earlier.

    Where a stage of the machine has too little for a task's stage that begins b after the start, the start is at least the end
    of the former less b.  The start moves on from one such time to the next until no stage is in the way; none is left out.
    """
    cdef Py_ssize_t s = begin, n = 0, resources = want.shape[1]
    cdef double start = now, lead = 0.0
    while s < end:
        while n < slots - 1 and ends[n] <= start + lead + TINY:
            n += 1
        while True:
            if lacking(&want[s, 0], reach + n * resources, resources, tasks):
                if n == slots - 1 or ends[n] - lead >= bound:
                    return bound
                start = ends[n] - lead
                s, n = begin, 0
                break
            if n == slots - 1 or ends[n] >= start + until[s] - TINY:
                s += 1
                break
            n += 1
        lead = until[s - 1] if s > begin else 0.0
    if start == now:
        # Rounding alone may have made `fits` refuse a count so close to an end.
        start = now + 2 * TINY if tasks == 1 else bound
    return start if start < bound else bound


cdef inline bint lacking(const int64_t *want, const int64_t *reach, Py_ssize_t resources, int64_t tasks) except -1 nogil:
    """True if a stage of a machine has too little for `tasks` tasks in a stage."""
    cdef Py_ssize_t d
    for d in range(resources):
        if want[d] > 0 and (want[d] > reach[d] or (tasks > 1 and <double>want[d] * tasks > <double>reach[d])):
            return True
    return False


cdef int inverses(const int64_t[:, ::1] want, Py_ssize_t pairs, double *part) except -1 nogil:
    """Invert the wants of stages, two adjacent resources: ``part[(pair * stages + stage) * 2 + lane]``."""
    cdef Py_ssize_t s, d
    cdef int64_t value
    for s in range(want.shape[0]):
        for d in range(2 * pairs):
            value = want[s, d] if d < want.shape[1] else 0
            # An unwanted resource does not lower a count, as NaN.
            part[(d // 2 * want.shape[0] + s) * 2 + d % 2] = 1.0 / <double>value if value > 0 else NAN
    return 0


cdef int lows(
    const double *ends, const int64_t *reach, Py_ssize_t slots, Py_ssize_t resources, Py_ssize_t pairs, double *least
) except -1 nogil:
    """Find the least reach over the stages i to j of a machine: ``least[((pair * slots + i) * slots + j) * 2 + lane]``."""
    cdef Py_ssize_t i, j, k, d, used = 1
    cdef double have
    cdef double *table
    while used < slots and ends[used - 1] < INFINITY:
        used += 1
    for d in range(2 * pairs):
        table = least + d // 2 * slots * slots * 2 + d % 2
        for i in range(used):
            have = <double>reach[i * resources + d] if d < resources else 0.0
            # Below the diagonal: a task's stage shorter than TINY may seem to end before it begins.
            for j in range(i + 1):
                table[(i * slots + j) * 2] = have
        for i in range(used):
            for j in range(i + 1, used):
                k = (i * slots + j) * 2
                have = table[(j * slots + j) * 2]
                table[k] = table[k - 2] if table[k - 2] < have else have
    return 0


cdef int lows_of(
    Py_ssize_t stages,
    const int32_t *span,
    const int64_t *reach,
    Py_ssize_t slots,
    Py_ssize_t resources,
    Py_ssize_t pairs,
    double *least,
) except -1 nogil:
    """Fill `least` as `lows` does, but only where some stage will look; less work where they are few."""
    cdef Py_ssize_t s, i, j, k, d
    cdef int64_t lowest
    for s in range(stages):
        i = span[s] // (2 * slots)
        j = span[s] % (2 * slots) // 2
        for d in range(2 * pairs):
            lowest = reach[i * resources + d] if d < resources else 0
            for k in range(i + 1, j + 1 if d < resources else 0):
                lowest = reach[k * resources + d] if reach[k * resources + d] < lowest else lowest
            least[d // 2 * slots * slots * 2 + span[s] + d % 2] = <double>lowest
    return 0


cdef int rank(
    const double *until,
    const int32_t *stage_of,
    Py_ssize_t stages,
    const double *ends,
    Py_ssize_t slots,
    double now,
    uint32_t *place,
) except -1 nogil:
    """For each end t of a task's stage, the machine's stage in which t lies and the one that goes on after t.

    They are given by stage as parts of an index into ``least``: the column for the former, in the lower 16 bits, and the
    row for the latter, where the task's next stage begins.  `until` is sorted; `stage_of` has the stages of its entries.
    """
    cdef Py_ssize_t n = 0, k = 0, here
    cdef double meet
    cdef uint32_t where = 0
    while n < slots - 1 and ends[n] < INFINITY:
        here = before(until, stages, k, ends[n] - TINY - now)
        while k < here:
            place[stage_of[k]] = where
            k += 1
        where += <uint32_t>(2 * slots) << 16
        meet = ends[n] + TINY - now
        while k < stages and until[k] <= meet:  # both stages end here
            place[stage_of[k]] = where
            k += 1
        where += 2
        n += 1
    while k < stages:
        place[stage_of[k]] = where
        k += 1
    return 0


cdef inline Py_ssize_t before(const double *until, Py_ssize_t stages, Py_ssize_t low, double time) except -1 nogil:
    """Count the ends before a time, at least `low`; no branch depends on the comparisons."""
    cdef Py_ssize_t size = stages - low, half
    while size > 0:
        half = (size + 1) >> 1
        low += half if until[low + half - 1] < time else 0
        size -= half
    return low


cdef int spans(
    const int64_t *at,
    Py_ssize_t classes,
    Py_ssize_t stages,
    const uint32_t *place,
    const double *ends,
    Py_ssize_t slots,
    double now,
    int32_t *span,
) except -1 nogil:
    """Find for each of the tasks' stages the place in a pair's part of ``least`` for its span, from begin to end."""
    cdef Py_ssize_t c, s, first = 0
    while first < slots - 1 and ends[first] <= now + TINY:
        first += 1
    for s in range(1, stages):
        span[s] = <int32_t>((place[s - 1] >> 16) + (place[s] & 0xFFFF))
    for c in range(classes):
        span[at[c]] = <int32_t>(first * 2 * slots + (place[at[c]] & 0xFFFF))
    return 0


cdef int quotients(
    const int64_t *at,
    Py_ssize_t classes,
    Py_ssize_t stages,
    const double *part,
    const double *least,
    const int32_t *span,
    Py_ssize_t slots,
    Py_ssize_t pairs,
    double *most,
) except -1 nogil:
    """Divide: number of times that each class fits on a machine by each resource, ``most[(pair * classes + class) * 2 + lane]``.

    A class is not left at its first stage that lacks something: guessing wrong where that will be takes longer than
    looking at all of them.
    """
    cdef Py_ssize_t c, s, p
    cdef const double *have
    cdef const double *table
    cdef const double *inverse
    cdef double even, odd
    for p in range(pairs):
        table = least + p * slots * slots * 2
        inverse = part + p * stages * 2
        for c in range(classes):
            even = odd = <double>MANY
            for s in range(at[c], at[c + 1]):
                have = table + span[s]
                even = have[0] * inverse[2 * s] if have[0] * inverse[2 * s] < even else even
                odd = have[1] * inverse[2 * s + 1] if have[1] * inverse[2 * s + 1] < odd else odd
            most[(p * classes + c) * 2] = even
            most[(p * classes + c) * 2 + 1] = odd
    return 0


cdef int verdicts(
    const int64_t *at,
    Py_ssize_t classes,
    const int64_t[:, ::1] want,
    const int32_t *span,
    const int64_t *reach,
    Py_ssize_t slots,
    Py_ssize_t pairs,
    const double *most,
    int64_t *count,
    int8_t *short,
) except -1 nogil:
    """Count by quotients, except where one is so close to 1 that rounding might decide; the scarcest resource is the short one."""
    cdef Py_ssize_t c, p, lane, scarce
    cdef double even, odd, times
    for c in range(classes):
        times = <double>MANY
        scarce = 0
        for p in range(pairs):
            even = most[(p * classes + c) * 2]
            odd = most[(p * classes + c) * 2 + 1]
            lane = 2 * p + (odd < even)
            even = odd if odd < even else even
            if even < times:
                times = even
                scarce = lane
        if fabs(times - 1.0) <= CLOSE:
            scarce = lacks(at[c], at[c + 1], want, span, reach, slots, want.shape[1])
            times = 1.0 if scarce < 0 else 0.0
        # No comparison may become a branch: which of many pairs match cannot be guessed.
        count[c] = <int64_t>(times + 1e-9 if times > 0 else 0.0)
        short[c] = <int8_t>(scarce | -(times >= 1))
    return 0


cdef Py_ssize_t lacks(
    Py_ssize_t begin,
    Py_ssize_t end,
    const int64_t[:, ::1] want,
    const int32_t *span,
    const int64_t *reach,
    Py_ssize_t slots,
    Py_ssize_t resources,
) except? -1 nogil:
    """Find a resource that is short for one task, by comparing whole numbers; -1 without one."""
    cdef Py_ssize_t s, d, i, j, k
    for d in range(resources):
        for s in range(begin, end):
            i = span[s] // (2 * slots)
            j = span[s] % (2 * slots) // 2
            for k in range(i, (j if j > i else i) + 1):
                if 0 < want[s, d] > reach[k * resources + d]:
                    return d
    return -1
