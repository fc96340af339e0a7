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
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

__test__ = {}

cdef double TINY_ = 1e-6
# A task proceeds at least so fast: what is squeezed to nothing would never end.
cdef double SLOWEST = 1e-3

# From here on a double does not hold every whole number.
cdef double EXACT = 9007199254740992.0

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
    cdef double *least = <double *>malloc(slots * slots * 2 * pairs * sizeof(double))
    cdef double *need = <double *>malloc(4 * stages * pairs * sizeof(double))
    cdef int32_t *begun = <int32_t *>malloc(2 * stages * sizeof(int32_t))
    try:
        if least == NULL or need == NULL or begun == NULL:
            raise MemoryError
        with nogil:
            needs(want, pairs, need)
            for i in range(rows.shape[0]):
                lows(&ends[rows[i], 0], &reach[rows[i], 0, 0], slots, resources, pairs, least)
                rank(&until[0], &order[0], stages, &ends[rows[i], 0], slots, pairs, now, begun)
                row_fits(
                    &at[0], classes, need, least, begun, &ends[rows[i], 0], slots, pairs, now,
                    &count[i, 0], &short[i, 0],
                )
    finally:
        free(least)
        free(need)
        free(begun)


cdef int needs(const int64_t[:, ::1] want, Py_ssize_t pairs, double *need) except -1 nogil:
    """What stages want by pairs of resources, rounded up where a double cannot hold it, followed by its inverses."""
    cdef Py_ssize_t s, d
    cdef double value
    for s in range(want.shape[0]):
        for d in range(2 * pairs):
            value = <double>want[s, d] if d < want.shape[1] else 0.0
            if value >= EXACT:
                value = nextafter(value, INFINITY)
            # What is not wanted is never short, and as NaN it does not lower a count.
            need[(s * pairs + d // 2) * 4 + d % 2] = value if value > 0 else -INFINITY
            need[(s * pairs + d // 2) * 4 + d % 2 + 2] = 1.0 / value if value > 0 else NAN
    return 0


cdef int lows(
    const double *ends, const int64_t *reach, Py_ssize_t slots, Py_ssize_t resources, Py_ssize_t pairs, double *least
) except -1 nogil:
    """``least[i, j, d]``: the least reach of resource d over the stages i to j of a machine, rounded down."""
    cdef Py_ssize_t i, j, d, used = 1, width = 2 * pairs
    cdef double have
    while used < slots and ends[used - 1] < INFINITY:
        used += 1
    for i in range(used):
        for d in range(width):
            have = <double>reach[i * resources + d] if d < resources else 0.0
            if fabs(have) >= EXACT:
                have = nextafter(have, -INFINITY)
            # Below the diagonal: a task's stage shorter than TINY may seem to end before it begins.
            for j in range(i + 1):
                least[(i * slots + j) * width + d] = have
    for i in range(used):
        for j in range(i + 1, used):
            for d in range(width):
                have = least[(j * slots + j) * width + d]
                if least[(i * slots + j - 1) * width + d] < have:
                    have = least[(i * slots + j - 1) * width + d]
                least[(i * slots + j) * width + d] = have
    return 0


cdef int rank(
    const double *until,
    const int64_t *order,
    Py_ssize_t stages,
    const double *ends,
    Py_ssize_t slots,
    Py_ssize_t pairs,
    double now,
    int32_t *begun,
) except -1 nogil:
    """For each end t of a task's stage, the machine's stage in which t lies and the one that goes on after t.

    As parts of an index into ``least``: ``begun[2 s]`` is the column for the former, ``begun[2 s + 1]`` the row for the
    latter, where the task's next stage begins.
    """
    cdef Py_ssize_t n = 0, k = 0, here, meeting
    cdef int32_t row = 0, column = 0
    while n < slots - 1 and ends[n] < INFINITY:
        here = before(until, order, stages, k, ends[n] - TINY_ - now)
        meeting = before(until, order, stages, here, nextafter(ends[n] + TINY_ - now, INFINITY))
        while k < here:
            begun[2 * order[k]] = column
            begun[2 * order[k] + 1] = row
            k += 1
        row += <int32_t>(2 * slots * pairs)
        while k < meeting:  # both stages end here
            begun[2 * order[k]] = column
            begun[2 * order[k] + 1] = row
            k += 1
        column += <int32_t>(2 * pairs)
        n += 1
    while k < stages:
        begun[2 * order[k]] = column
        begun[2 * order[k] + 1] = row
        k += 1
    return 0


cdef inline Py_ssize_t before(
    const double *until, const int64_t *order, Py_ssize_t stages, Py_ssize_t low, double time
) except -1 nogil:
    """How many ends lie before a time, at least `low`."""
    cdef Py_ssize_t high = stages, middle
    while low < high:
        middle = (low + high) >> 1
        if until[order[middle]] < time:
            low = middle + 1
        else:
            high = middle
    return low


cdef int row_fits(
    const int64_t *at,
    Py_ssize_t classes,
    const double *need,
    const double *least,
    const int32_t *begun,
    const double *ends,
    Py_ssize_t slots,
    Py_ssize_t pairs,
    double now,
    int64_t *count,
    int8_t *short,
) except -1 nogil:
    """All classes against one machine."""
    cdef Py_ssize_t c, s, d, _d, first = 0, start, end
    cdef const double *have
    cdef const double *asked
    cdef double even, odd
    cdef bint lacking
    while first < slots - 1 and ends[first] <= now + TINY_:
        first += 1
    first *= 2 * slots * pairs
    for c in range(classes):
        even = odd = <double>MANY
        lacking = False
        start = first
        end = at[c + 1]
        asked = need + 4 * at[c] * pairs
        for s in range(at[c], end):
            have = least + start + begun[2 * s]
            start = begun[2 * s + 1]
            for _d in range(pairs):
                lacking |= (have[0] < asked[0]) | (have[1] < asked[1])
                even = have[0] * asked[2] if have[0] * asked[2] < even else even
                odd = have[1] * asked[3] if have[1] * asked[3] < odd else odd
                have += 2
                asked += 4
            if lacking:
                break
        if not lacking:
            even = odd if odd < even else even
            short[c] = -1
            # One fits, whatever a rounded quotient says.
            count[c] = <int64_t>floor(even + 1e-9) if even > 1 else 1
            continue
        count[c] = 0
        have -= 2 * pairs
        asked -= 4 * pairs
        for d in range(2 * pairs):
            if have[d] < asked[d // 2 * 4 + d % 2]:
                short[c] = <int8_t>d
                break
    return 0


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
