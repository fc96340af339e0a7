# cython: embedsignature=False
"""The kernel of fine-grained matching: timelines of machines, and which classes of tasks fit into them.

Symbols
-------
A machine has N_d of resource d, of which F_d goes to load that is not ours.  Task i is in a stage that wants c_id and
has l_i seconds of work left.  W_d = F_d + sum_i c_id is wanted, a_d = N_d - W_d available (below 0 where more is wanted
than there is).  Resource d is *soft* (compressible: CPU, bandwidths) or *hard* (memory).  All amounts are int64 and
exact; times are float64, absolute, and equal when they differ by at most ``TINY``.

Progress (equations 1, 4, 5)
----------------------------
A soft resource is compressed by r_d = max(0, (W_d - N_d) / W_d); a task by r_i = max of r_d over the soft d that it
wants.  It proceeds at (1 - r_i) (1 - g r_i) seconds of work per second, g the *contention*: p = g r_i is what
competing costs beyond sharing.  `flow` lets a machine's tasks proceed from one stage boundary to the next; between two
boundaries all is constant, and that is one stage of the machine's timeline.

Reach (equations 6 and 7, and the test of Algorithm 2)
------------------------------------------------------
Algorithm 2 lets a newcomer that wants x into a stage where  x <= a + r N,  r = min(limit, max(0, 1 - U / ((1-p)(U+x))))
by (7), U = N - a being in use.  With y = x - a > 0 the second bound reads

    y <= N (1 - U / ((1-p)(U+x)))   <=>   (1-p) y (N+y) <= N ((1-p)(N+y) - N + a)   <=>   y^2 <= N (a - p N) / (1-p)

so that the newcomer fits exactly if x is at most the *reach*

    X = a + min(limit N, sqrt(N max(0, a - p N) / (1-p)))      soft, where compression is allowed;      X = a      else,

which does not depend on the newcomer (p is taken at the limit: g * limit).  As the bound is on the sum, k newcomers fit
together exactly if k x <= X, and Algorithm 2 for a class of tasks becomes a merge of two lists of stages with one
comparison per resource.  A resource that a stage does not want is not asked for.

Invariants
----------
* ``ends`` of a row ascend, the last one used is infinite; entries after it are not read.
* A row with more stages than fit keeps the first ones; the rest but the last are one, with the least of each amount.
* `fits` > 0 exactly where one task passes every comparison in integers.

Complexity: `fits` is O(stages of both) for each pair; `predict` O(stages * tasks * resources) for a machine.
Who calls whom: timeline.py -> `fits`, `predict`; `predict` -> `flow`.  Nothing here touches Python objects within the
loops, and the lock of the interpreter is released around them.
"""

from libc.math cimport INFINITY, NAN, fabs, floor, nextafter, sqrt
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc

__test__ = {}

cdef double TINY_ = 1e-6
# A task proceeds at least so fast: what is squeezed to nothing would never end.
cdef double SLOWEST = 1e-3

# From here on a double does not hold every whole number.
cdef double EXACT = 9007199254740992.0

# Rounding may have decided on which side of 1 a quotient lies that is no farther from it.
cdef double CLOSE = 1e-8

cdef int64_t MANY = 1 << 40

TINY = TINY_
UNLIMITED = MANY


cdef struct Told:
    int stages
    int short
    double worst
    double rise


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
):
    """How many tasks of each class fit on each machine from `now` on, and which resource is short where none does.

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
    cdef double *need = <double *>malloc(pairs * stages * 2 * sizeof(double))
    cdef double *part = <double *>malloc(pairs * stages * 2 * sizeof(double))
    cdef double *most = <double *>malloc(pairs * classes * 2 * sizeof(double))
    cdef double *ordered = <double *>malloc(stages * sizeof(double))
    cdef int32_t *stage_of = <int32_t *>malloc(stages * sizeof(int32_t))
    cdef int32_t *span = <int32_t *>malloc(stages * sizeof(int32_t))
    cdef uint32_t *place = <uint32_t *>malloc(stages * sizeof(uint32_t))
    try:
        if not (least and need and part and most and ordered and stage_of and span and place):
            raise MemoryError
        with nogil:
            needs(want, pairs, need, part)
            for i in range(stages):
                ordered[i] = until[order[i]]
                stage_of[i] = <int32_t>order[i]
            for i in range(rows.shape[0]):
                lows(&ends[rows[i], 0], &reach[rows[i], 0, 0], slots, resources, pairs, least)
                rank(ordered, stage_of, stages, &ends[rows[i], 0], slots, now, place)
                spans(&at[0], classes, stages, place, &ends[rows[i], 0], slots, now, span)
                quotients(&at[0], classes, stages, part, least, span, slots, pairs, most)
                verdicts(&at[0], classes, stages, need, least, span, slots, pairs, most, &count[i, 0], &short[i, 0])
    finally:
        free(least)
        free(need)
        free(part)
        free(most)
        free(ordered)
        free(stage_of)
        free(span)
        free(place)


cdef int needs(const int64_t[:, ::1] want, Py_ssize_t pairs, double *need, double *part) except -1 nogil:
    """What stages want, and its inverses, two resources side by side: ``need[(pair * stages + stage) * 2 + lane]``."""
    cdef Py_ssize_t s, d, k
    cdef double value
    for s in range(want.shape[0]):
        for d in range(2 * pairs):
            value = <double>want[s, d] if d < want.shape[1] else 0.0
            if value >= EXACT:  # rounded up where a double cannot hold it
                value = nextafter(value, INFINITY)
            k = (d // 2 * want.shape[0] + s) * 2 + d % 2
            # What is not wanted is never short, and as NaN it does not lower a count.
            need[k] = value if value > 0 else -INFINITY
            part[k] = 1.0 / value if value > 0 else NAN
    return 0


cdef int lows(
    const double *ends, const int64_t *reach, Py_ssize_t slots, Py_ssize_t resources, Py_ssize_t pairs, double *least
) except -1 nogil:
    """The least reach over the stages i to j of a machine, rounded down: ``least[((pair * slots + i) * slots + j) * 2 + lane]``."""
    cdef Py_ssize_t i, j, k, d, used = 1
    cdef double have
    cdef double *table
    while used < slots and ends[used - 1] < INFINITY:
        used += 1
    for d in range(2 * pairs):
        table = least + d // 2 * slots * slots * 2 + d % 2
        for i in range(used):
            have = <double>reach[i * resources + d] if d < resources else 0.0
            if fabs(have) >= EXACT:
                have = nextafter(have, -INFINITY)
            # Below the diagonal: a task's stage shorter than TINY may seem to end before it begins.
            for j in range(i + 1):
                table[(i * slots + j) * 2] = have
        for i in range(used):
            for j in range(i + 1, used):
                k = (i * slots + j) * 2
                have = table[(j * slots + j) * 2]
                table[k] = table[k - 2] if table[k - 2] < have else have
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

    They are told by stage as parts of an index into ``least``: the column for the former, in the lower 16 bits, and the
    row for the latter, where the task's next stage begins.  `until` is sorted, `stage_of` says whose its entries are.
    """
    cdef Py_ssize_t n = 0, k = 0, here
    cdef double meet
    cdef uint32_t where = 0
    while n < slots - 1 and ends[n] < INFINITY:
        here = before(until, stages, k, ends[n] - TINY_ - now)
        while k < here:
            place[stage_of[k]] = where
            k += 1
        where += <uint32_t>(2 * slots) << 16
        meet = ends[n] + TINY_ - now
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
    """How many ends lie before a time, at least `low`; no branch depends on what is compared."""
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
    """Where in a pair's part of ``least`` each of the tasks' stages finds what there is from its begin to its end."""
    cdef Py_ssize_t c, s, first = 0
    while first < slots - 1 and ends[first] <= now + TINY_:
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
    """How often each class fits on a machine by each resource: ``most[(pair * classes + class) * 2 + lane]``.

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
    Py_ssize_t stages,
    const double *need,
    const double *least,
    const int32_t *span,
    Py_ssize_t slots,
    Py_ssize_t pairs,
    const double *most,
    int64_t *count,
    int8_t *short,
) except -1 nogil:
    """By quotients, but for those so close to 1 that rounding might decide; the scarcest resource is the short one."""
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
            scarce = lacks(at[c], at[c + 1], stages, need, least, span, slots, pairs)
            times = 1.0 if scarce < 0 else 0.0
        # No comparison may become a branch: which of many pairs match cannot be guessed.
        count[c] = <int64_t>(times + 1e-9 if times > 0 else 0.0)
        short[c] = <int8_t>(scarce | -(times >= 1))
    return 0


cdef Py_ssize_t lacks(
    Py_ssize_t begin,
    Py_ssize_t end,
    Py_ssize_t stages,
    const double *need,
    const double *least,
    const int32_t *span,
    Py_ssize_t slots,
    Py_ssize_t pairs,
) except? -1 nogil:
    """A resource that is short for one task, by comparisons; -1 without one."""
    cdef Py_ssize_t s, p, lane
    for p in range(pairs):
        for s in range(begin, end):
            for lane in range(2):
                if least[p * slots * slots * 2 + span[s] + lane] < need[(p * stages + s) * 2 + lane]:
                    return 2 * p + lane
    return -1


def predict(
    const double[::1] length,
    const int64_t[:, ::1] want,
    int64_t[::1] stage,
    const int64_t[::1] last,
    double[::1] left,
    const int64_t[::1] total,
    const int64_t[::1] foreign,
    const double[::1] limit,
    const uint8_t[::1] soft,
    double contention,
    double now,
    double until,
    double[::1] ends,
    int64_t[:, ::1] available,
    int64_t[:, ::1] reach,
    double[::1] finish,
    double[::1] scratch,
):
    """Let the tasks of a machine proceed from `now` to `until`, and tell its timeline.

    Task i is in the stage ``stage[i]`` of `length` (seconds) and `want`, with ``left[i]`` seconds of work left in it,
    and done after the stage before ``last[i]``; `stage` and `left` are moved on.  `limit` is the compression allowed by
    resource, 0 for none.  Without `ends` (of length 0) no timeline is told.  `scratch` has room for a number by task
    and by resource.

    Returns
    -------
    stages : int
        Stages told.
    short : int
        A resource that is over-committed at some time: hard, or soft beyond its limit; -1 without one.
    worst : float
        Largest compression.
    rise : float
        When there will be more for a newcomer to reach than before, of some resource; infinite for never.
    """
    cdef Py_ssize_t i, tasks = stage.shape[0], resources = want.shape[1]
    if last.shape[0] != tasks or left.shape[0] != tasks or finish.shape[0] != tasks or length.shape[0] != want.shape[0]:
        raise ValueError("predict: shapes of tasks differ")
    if not (total.shape[0] == foreign.shape[0] == limit.shape[0] == soft.shape[0] == resources):
        raise ValueError("predict: shapes of resources differ")
    if ends.shape[0] and not (
        ends.shape[0] >= 2
        and available.shape[0] == reach.shape[0] == ends.shape[0]
        and available.shape[1] == reach.shape[1] == resources
    ):
        raise ValueError("predict: shapes of the timeline differ")
    if scratch.shape[0] < tasks + resources:
        raise ValueError("predict: scratch is too small")
    for i in range(tasks):
        if not 0 <= stage[i] <= last[i] <= length.shape[0]:
            raise IndexError(f"predict: task {i}")
    cdef Told told = Told(0, -1, 0.0, INFINITY)
    with nogil:
        flow(
            length, want, stage, last, left, total, foreign, limit, soft, contention, now, until, ends, available,
            reach, finish, scratch, &told,
        )
    return told.stages, told.short, told.worst, told.rise


cdef int flow(
    const double[::1] length,
    const int64_t[:, ::1] want,
    int64_t[::1] stage,
    const int64_t[::1] last,
    double[::1] left,
    const int64_t[::1] total,
    const int64_t[::1] foreign,
    const double[::1] limit,
    const uint8_t[::1] soft,
    double contention,
    double now,
    double until,
    double[::1] ends,
    int64_t[:, ::1] available,
    int64_t[:, ::1] reach,
    double[::1] finish,
    double[::1] scratch,
    Told *told,
) except -1 nogil:
    """See `predict`.  In `scratch`, the speed by task is followed by the compression by resource."""
    cdef Py_ssize_t i, d, slot = 0, tasks = stage.shape[0], resources = want.shape[1], size = ends.shape[0]
    cdef int64_t amount
    cdef double t = now, step, over, share
    cdef bint merged
    for i in range(tasks):
        finish[i] = INFINITY
        skip(length, stage, last, left, i)
        if stage[i] == last[i]:
            finish[i] = now
    while True:
        for d in range(resources):
            amount = wanted(want, stage, last, foreign, d)
            over = <double>amount - <double>total[d]
            share = over / <double>amount if over > 0 else 0.0
            scratch[tasks + d] = share if soft[d] else 0.0
            if over > 0 and (not soft[d] or over > limit[d] * <double>total[d]):
                told.short = <int>d
            if soft[d] and share > told.worst:
                told.worst = share
        step = INFINITY
        for i in range(tasks):
            if stage[i] < last[i]:
                scratch[i] = speed(want, stage[i], scratch[tasks:], contention)
                if left[i] / scratch[i] < step:
                    step = left[i] / scratch[i]
        if size:
            # The last slot is for what holds for ever; the one before it takes together all that has none of its own.
            merged = slot == size - 1 and step < INFINITY
            slot -= merged
            for d in range(resources):
                amount = total[d] - wanted(want, stage, last, foreign, d)
                if merged and available[slot, d] < amount:
                    amount = available[slot, d]
                available[slot, d] = amount
                reach[slot, d] = amount + slack(amount, total[d], limit[d], contention, soft[d])
                if told.rise == INFINITY and slot and reach[slot, d] > reach[slot - 1, d]:
                    told.rise = t
            ends[slot] = t + step
            slot += 1
        if t + step >= until:
            step = until - t
        if not step < INFINITY:
            break
        t += step
        for i in range(tasks):
            if stage[i] < last[i]:
                left[i] -= scratch[i] * step
                if left[i] <= TINY_ * scratch[i]:
                    left[i] = 0.0
                    skip(length, stage, last, left, i)
                    if stage[i] == last[i]:
                        finish[i] = t
        if t >= until:
            break
    told.stages = <int>slot
    return 0


cdef inline int skip(
    const double[::1] length, int64_t[::1] stage, const int64_t[::1] last, double[::1] left, Py_ssize_t i
) except -1 nogil:
    """Leave stages with nothing left."""
    while stage[i] < last[i] and left[i] <= 0:
        stage[i] += 1
        left[i] = length[stage[i]] if stage[i] < last[i] else 0.0
    return 0


cdef inline int64_t wanted(
    const int64_t[:, ::1] want,
    const int64_t[::1] stage,
    const int64_t[::1] last,
    const int64_t[::1] foreign,
    Py_ssize_t d,
) except? -1 nogil:
    """W_d."""
    cdef Py_ssize_t i
    cdef int64_t amount = foreign[d]
    for i in range(stage.shape[0]):
        if stage[i] < last[i]:
            amount += want[stage[i], d]
    return amount


cdef inline double speed(
    const int64_t[:, ::1] want, int64_t stage, const double[:] compression, double contention
) except? -1 nogil:
    """How fast a task proceeds in its stage."""
    cdef Py_ssize_t d
    cdef double squeeze = 0.0, rate
    for d in range(want.shape[1]):
        if want[stage, d] > 0 and compression[d] > squeeze:
            squeeze = compression[d]
    rate = (1.0 - squeeze) * (1.0 - contention * squeeze)
    return rate if rate > SLOWEST else SLOWEST


cdef inline int64_t slack(int64_t left, int64_t total, double limit, double contention, uint8_t soft) except? -1 nogil:
    """How far beyond what is available a newcomer may reach: X - a."""
    cdef double loss, inside
    if not soft or limit <= 0 or left <= 0:
        return 0
    loss = contention * limit
    inside = <double>left - loss * <double>total
    if inside <= 0 or loss >= 1:
        return 0
    inside = sqrt(<double>total * inside / (1.0 - loss))
    return <int64_t>floor(inside if inside < limit * <double>total else limit * <double>total)
