# cython: embedsignature=False
"""The kernel of prediction: tasks of machines proceed through their stages, and leave timelines of the available amounts.

Source: M.-S. Zhou, X.-S. Dong, H. Chen and X.-J. Zhang, "Dynamically Fine-grained Scheduling Method in Cloud Environment",
Journal of Software 31(12), 2020 (FGM).

Symbols
-------
A machine has N_d of resource d, of which F_d goes to load of others.  Task i is in a stage that wants c_id and
has l_i seconds of work left.  W_d = F_d + sum_i c_id is wanted, a_d = N_d - W_d available (below 0 where more is wanted
than there is).  Resource d is *soft* (compressible: CPU, bandwidths) or *hard* (memory).  All amounts are int64 and
exact; times are float64, absolute, and equal when they differ by at most ``TINY``.

Progress (equations 1, 4, 5)
----------------------------
A soft resource is compressed by r_d = max(0, (W_d - N_d) / W_d); a task by r_i = max of r_d over the soft d that it
wants.  It proceeds at (1 - r_i) (1 - g r_i) seconds of work per second, g the *contention*: p = g r_i is the cost of
competing, beyond sharing.  `flow` advances a machine's tasks from one stage boundary to the next; between two
boundaries all is constant, and that is one stage of the machine's timeline.

Reach (equations 1, 2 and 5, and the test of Algorithm 2)
---------------------------------------------------------
Algorithm 2 lets a newcomer that wants x into a stage if the excess demand y = x - a is at most limit N, and the throughput of all does not
fall, which is (2).  Work is in proportion to use.  Without the newcomer N - a is done in a unit of time; with it N + y is wanted, compressed by
r = y / (N + y), and competing costs the part g r, so by (5) N + y is done at the rate (1 - r) (1 - g r).  As (N + y) (1 - r) = N,

    N (1 - g y / (N + y)) >= N - a   <=>   (g N - a) y <= a N

so that the newcomer fits exactly if x is at most the *reach*

    X = a + min(limit N, a N / (g N - a))      soft, where compression is allowed, and a > 0; no second bound where g N <= a;      X = a      else,

which does not depend on the newcomer.  Equation (7) bounds r by the same inequality, for a p that is known beforehand; here p is g r itself.  As the bound is on the
sum, k newcomers fit together exactly if k x <= X.  That is the comparison in ``_match.pyx``.

Invariants
----------
* A task's state is of the time of its machine's row, and of the run whose turn it bears.
* ``ends`` of a row ascend, the last one used is infinite; entries after it are not read.
* A row with more stages than fit keeps the first ones; the rest but the last are one, with the least of each amount.

Complexity: O(boundaries * tasks * resources) for a machine.  The interpreter's lock is kept: states are shared.
"""

cimport cython
from libc.math cimport INFINITY, floor
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc

__test__ = {}

TINY = 1e-6
# Least speed of a task: one that is compressed to nothing would never end.
cdef double SLOWEST = 1e-3


cdef struct Told:
    int short
    double worst
    double renew


@cython.auto_pickle(False)
cdef class Course:
    """Tasks on machines, each somewhere in its stages.  The arrays are the caller's, set by `tasks`, `rows`, `stock`."""

    cdef int64_t[::1] turn, entry, stage, work_stage
    cdef double[::1] left, grace, work_left
    cdef double[::1] time, due, done
    cdef const int64_t[:, ::1] foreign
    cdef const uint8_t[::1] compress
    cdef double[:, ::1] ends
    cdef int64_t[:, :, ::1] available, reach
    cdef const int64_t[::1] first
    cdef const double[::1] length
    cdef const int64_t[:, ::1] want
    cdef const double[::1] limit
    cdef const uint8_t[::1] soft
    cdef double contention
    cdef Py_ssize_t resources
    # Scratch: the tasks of the current machine.
    cdef int64_t *at
    cdef int64_t *last
    cdef int64_t *alive
    cdef double *rest
    cdef double *speed
    cdef double *finish
    cdef int64_t *wanted
    cdef double *squeeze
    cdef Py_ssize_t room

    def __init__(self, const double[::1] limit, const uint8_t[::1] soft, double contention):
        self.resources = limit.shape[0]
        if soft.shape[0] != self.resources:
            raise ValueError("Course: as many limits as kinds of resource expected")
        self.limit, self.soft, self.contention = limit, soft, contention
        self.wanted = <int64_t *>realloc(self.wanted, (self.resources + 1) * sizeof(int64_t))
        self.squeeze = <double *>realloc(self.squeeze, (self.resources + 1) * sizeof(double))
        if not (self.wanted and self.squeeze):
            raise MemoryError

    def __dealloc__(self):
        free(self.at)
        free(self.last)
        free(self.alive)
        free(self.rest)
        free(self.speed)
        free(self.finish)
        free(self.wanted)
        free(self.squeeze)

    # -- the caller's arrays ------------------------------------------------------------------------------------

    def tasks(
        self,
        int64_t[::1] turn,
        int64_t[::1] entry,
        int64_t[::1] stage,
        double[::1] left,
        double[::1] grace,
        int64_t[::1] work_stage,
        double[::1] work_left,
        /,
    ):
        """Set the state of tasks: turn of its run, entry of its stages in the stock, present stage (from 0), seconds of
        work left in it, and seconds that are added when it should be done and is not; and scratch."""
        if not (turn.shape[0] == entry.shape[0] == stage.shape[0] == left.shape[0] == grace.shape[0]) or not (
            turn.shape[0] == work_stage.shape[0] == work_left.shape[0]
        ):
            raise ValueError("Course: tasks: arrays of one length expected")
        self.turn, self.entry, self.stage, self.left, self.grace = turn, entry, stage, left, grace
        self.work_stage, self.work_left = work_stage, work_left

    def rows(
        self,
        double[::1] time,
        double[::1] due,
        double[::1] done,
        const int64_t[:, ::1] foreign,
        const uint8_t[::1] compress,
        double[:, ::1] ends,
        int64_t[:, :, ::1] available,
        int64_t[:, :, ::1] reach,
        /,
    ):
        """Set the state of machines: time of the tasks' states, time of the next look, end of the timeline's validity,
        load of others, 1 where compression is allowed, and the timeline."""
        if not (time.shape[0] == due.shape[0] == done.shape[0] == foreign.shape[0] == compress.shape[0]) or not (
            time.shape[0] == ends.shape[0] == available.shape[0] == reach.shape[0]
        ):
            raise ValueError("Course: rows: arrays of one length expected")
        if not (available.shape[1] == reach.shape[1] == ends.shape[1] >= 2) or not (
            foreign.shape[1] == available.shape[2] == reach.shape[2] == self.resources
        ):
            raise ValueError("Course: rows: shapes of the timeline differ")
        self.time, self.due, self.done, self.foreign, self.compress = time, due, done, foreign, compress
        self.ends, self.available, self.reach = ends, available, reach

    def stock(self, const int64_t[::1] first, const double[::1] length, const int64_t[:, ::1] want, /):
        """Set the stages: entry e has ``first[e]`` to ``first[e + 1]``, each with its length and wants."""
        if length.shape[0] != want.shape[0] or want.shape[1] != self.resources or not first.shape[0]:
            raise ValueError("Course: stock: shapes of stages differ")
        cdef Py_ssize_t e
        for e in range(first.shape[0] - 1):
            if not 0 <= first[e] < first[e + 1] <= length.shape[0]:
                raise IndexError(f"Course: stock: entry {e}")
        self.first, self.length, self.want = first, length, want

    # -- calls --------------------------------------------------------------------------------------------------

    @cython.critical_section
    def advance(
        self,
        const int64_t[::1] rows,
        const int64_t[::1] at,
        const int64_t[::1] members,
        const int64_t[:, ::1] total,
        double now,
        /,
    ):
        """Advance the states of the tasks of some machines to `now`; the i-th has ``members[at[i]]`` to ``[at[i + 1]]``."""
        cdef Py_ssize_t i, k
        cdef int64_t task
        self.check(rows, at, members, total)
        for i in range(rows.shape[0]):
            if now > self.time[rows[i]]:
                self.catch_up(rows[i], at[i], at[i + 1], members, total, now)
                for k in range(at[i], at[i + 1]):
                    task = members[k]
                    if self.work_stage[task] == self.stages(task):
                        self.extend(task)
                        self.grace[task] *= 2
                    self.stage[task], self.left[task] = self.work_stage[task], self.work_left[task]
                self.time[rows[i]] = now

    @cython.critical_section
    def forecast(
        self,
        const int64_t[::1] rows,
        const int64_t[::1] at,
        const int64_t[::1] members,
        const int64_t[::1] at_now,
        const int64_t[::1] members_now,
        const int64_t[::1] turn_now,
        const int64_t[::1] entry_now,
        const int64_t[:, ::1] total,
        double now,
        /,
    ):
        """Write the timelines of some machines from `now` on; states stay as they are.

        Its tasks were `members` at the time of its row and are ``members_now``.  A task whose turn is not that of its
        state begins now, with the stages of ``entry_now``.

        The timeline holds until its first task should be done (`done`).  One with merged stages is computed again when
        half of its stages have passed: that is `due`, which is infinite for the others.
        """
        cdef Py_ssize_t i, k, n
        cdef Told told
        cdef double first
        self.check(rows, at, members, total)
        self.check(rows, at_now, members_now, total)
        if not (members_now.shape[0] == turn_now.shape[0] == entry_now.shape[0]):
            raise ValueError("Course: forecast: arrays of one length expected")
        for i in range(rows.shape[0]):
            self.catch_up(rows[i], at[i], at[i + 1], members, total, now)
            n = self.gather(at_now[i], at_now[i + 1], members_now, turn_now, entry_now)
            told = Told(-1, 0.0, INFINITY)
            self.flow(n, total, rows[i], now, INFINITY, self.compress[rows[i]], True, &told)
            first = told.renew
            for k in range(n):
                first = self.finish[k] if self.finish[k] < first else first
            self.done[rows[i]], self.due[rows[i]] = first, told.renew

    @cython.critical_section
    def plan(
        self,
        Py_ssize_t row,
        const int64_t[::1] members,
        const int64_t[::1] members_now,
        const int64_t[::1] turn_now,
        const int64_t[::1] entry_now,
        const int64_t[:, ::1] total,
        double now,
        double[::1] finish,
        double[::1] uncompressed,
        /,
    ):
        """Plan one machine as `forecast` does, but write when its tasks finish, and not its timeline.

        Entries beyond those of the members are of newcomers.

        Returns
        -------
        short : int
            A resource that is over-committed at some time: hard, or soft beyond its limit; -1 without one.
        worst : float
            Largest compression.
        """
        cdef Py_ssize_t k, s, n = members_now.shape[0], every = entry_now.shape[0]
        cdef Told told = Told(-1, 0.0, INFINITY)
        if not (0 <= row < self.time.shape[0] and row < total.shape[0]):
            raise IndexError(f"Course: row {row}")
        if not (n <= every == finish.shape[0] == uncompressed.shape[0] and turn_now.shape[0] == n):
            raise ValueError("Course: plan: arrays of one length expected")
        self.check_tasks(members)
        self.check_tasks(members_now)
        self.catch_up(row, 0, members.shape[0], members, total, now)
        self.gather(0, n, members_now, turn_now, entry_now)
        for k in range(n, every):
            self.begin(k, entry_now[k])
        for k in range(every):
            uncompressed[k] = now + self.rest[k]
            for s in range(self.at[k] + 1, self.last[k]):
                uncompressed[k] += self.length[s]
        self.flow(every, total, row, now, INFINITY, self.compress[row], False, &told)
        for k in range(every):
            finish[k] = self.finish[k]
        return told.short, told.worst

    # -- how ----------------------------------------------------------------------------------------------------

    cdef int check(
        self, const int64_t[::1] rows, const int64_t[::1] at, const int64_t[::1] members, const int64_t[:, ::1] total
    ) except -1:
        cdef Py_ssize_t i
        if at.shape[0] != rows.shape[0] + 1 or total.shape[1] != self.resources:
            raise ValueError("Course: shapes of machines differ")
        if at[0] != 0 or at[rows.shape[0]] != members.shape[0]:
            raise ValueError("Course: members of machines expected one after the other")
        for i in range(rows.shape[0]):
            if not (0 <= rows[i] < self.time.shape[0] and rows[i] < total.shape[0]) or at[i] > at[i + 1]:
                raise IndexError(f"Course: row {rows[i]}")
        return self.check_tasks(members)

    cdef int check_tasks(self, const int64_t[::1] members) except -1:
        cdef Py_ssize_t i
        for i in range(members.shape[0]):
            if not 0 <= members[i] < self.turn.shape[0]:
                raise IndexError(f"Course: task {members[i]}")
        return 0

    cdef int have_room(self, Py_ssize_t tasks) except -1:
        """Make room in the scratch for this many tasks."""
        cdef Py_ssize_t room = 2 * tasks
        if tasks <= self.room:
            return 0
        self.at = <int64_t *>realloc(self.at, room * sizeof(int64_t))
        self.last = <int64_t *>realloc(self.last, room * sizeof(int64_t))
        self.alive = <int64_t *>realloc(self.alive, room * sizeof(int64_t))
        self.rest = <double *>realloc(self.rest, room * sizeof(double))
        self.speed = <double *>realloc(self.speed, room * sizeof(double))
        self.finish = <double *>realloc(self.finish, room * sizeof(double))
        if not (self.at and self.last and self.alive and self.rest and self.speed and self.finish):
            self.room = 0
            raise MemoryError
        self.room = room
        return 0

    cdef int begin(self, Py_ssize_t k, int64_t entry) except -1:
        """Fill slot k with a task that begins."""
        if not 0 <= entry < self.first.shape[0] - 1:
            raise IndexError(f"Course: entry {entry}")
        self.have_room(k + 1)
        self.at[k], self.last[k] = self.first[entry], self.first[entry + 1]
        self.rest[k] = self.length[self.at[k]]
        return 0

    cdef int catch_up(
        self,
        Py_ssize_t row,
        Py_ssize_t begin,
        Py_ssize_t end,
        const int64_t[::1] members,
        const int64_t[:, ::1] total,
        double now,
    ) except -1:
        """Advance the tasks that ran at the time of the row to now, in the work arrays."""
        cdef Py_ssize_t k, n = end - begin
        cdef int64_t task
        cdef Told told = Told(-1, 0.0, INFINITY)
        for k in range(n):
            task = members[begin + k]
            self.begin(k, self.entry[task])
            self.at[k] += self.stage[task]
            self.rest[k] = self.left[task]
        if now > self.time[row]:
            self.flow(n, total, row, self.time[row], now, True, False, &told)
        for k in range(n):
            task = members[begin + k]
            self.work_stage[task] = self.at[k] - self.first[self.entry[task]]
            self.work_left[task] = self.rest[k]
        return 0

    cdef inline int64_t stages(self, int64_t task) except -1:
        return self.first[self.entry[task] + 1] - self.first[self.entry[task]]

    cdef inline int extend(self, int64_t task) except -1:
        """Keep a task that should be done and is not in its last stage for a while."""
        self.work_stage[task] = self.stages(task) - 1
        self.work_left[task] = self.grace[task]
        return 0

    cdef Py_ssize_t gather(
        self,
        Py_ssize_t begin,
        Py_ssize_t end,
        const int64_t[::1] members,
        const int64_t[::1] turns,
        const int64_t[::1] entries,
    ) except -1:
        """Fill the slots with tasks as the work arrays have them, or as they begin; return their number."""
        cdef Py_ssize_t k
        cdef int64_t task
        for k in range(end - begin):
            task = members[begin + k]
            if self.turn[task] == turns[begin + k]:
                if self.work_stage[task] == self.stages(task):
                    self.extend(task)
                self.begin(k, self.entry[task])
                self.at[k] += self.work_stage[task]
                self.rest[k] = self.work_left[task]
            else:
                self.begin(k, entries[begin + k])
        return end - begin

    cdef int flow(
        self,
        Py_ssize_t tasks,
        const int64_t[:, ::1] total,
        Py_ssize_t row,
        double now,
        double until,
        bint compress,
        bint tell,
        Told *told,
    ) except -1:
        """Advance the tasks in the slots from `now` to `until`; with `tell`, write the row's timeline."""
        cdef Py_ssize_t i, k, d, slot = 0, living = 0, size = self.ends.shape[1]
        cdef int64_t amount, reach
        cdef double t = now, step, over, share, limit
        cdef bint merged, squeezed
        for d in range(self.resources):
            self.wanted[d] = self.foreign[row, d]
        for i in range(tasks):
            self.finish[i] = INFINITY
            self.skip(i)
            if self.at[i] == self.last[i]:
                self.finish[i] = now
            else:
                self.alive[living] = i
                living += 1
                self.want_of(i, 1)
        while True:
            squeezed = False
            for d in range(self.resources):
                amount = self.wanted[d]
                over = <double>amount - <double>total[row, d]
                limit = self.limit[d] if compress else 0.0
                share = over / <double>amount if over > 0 and self.soft[d] else 0.0
                self.squeeze[d] = share
                squeezed |= share > 0
                if over > 0 and (not self.soft[d] or over > limit * <double>total[row, d]):
                    told.short = <int>d
                if share > told.worst:
                    told.worst = share
            step = INFINITY
            for k in range(living):
                i = self.alive[k]
                self.speed[i] = self.pace(self.at[i]) if squeezed else 1.0
                if self.rest[i] / self.speed[i] < step:
                    step = self.rest[i] / self.speed[i]
            if tell:
                # The last slot is for the state that holds for ever; the one before it merges all boundaries without a slot.
                merged = slot == size - 1 and step < INFINITY
                slot -= merged
                if merged and told.renew == INFINITY:
                    told.renew = self.ends[row, size // 2 - 1]
                for d in range(self.resources):
                    amount = total[row, d] - self.wanted[d]
                    if merged and self.available[row, slot, d] < amount:
                        amount = self.available[row, slot, d]
                    self.available[row, slot, d] = amount
                    limit = self.limit[d] if compress else 0.0
                    reach = amount + slack(amount, total[row, d], limit, self.contention, self.soft[d])
                    self.reach[row, slot, d] = reach
                self.ends[row, slot] = t + step
                slot += 1
            if t + step >= until:
                step = until - t
            if not step < INFINITY:
                break
            t += step
            for k in range(living - 1, -1, -1):
                i = self.alive[k]
                self.rest[i] -= self.speed[i] * step
                if self.rest[i] <= TINY * self.speed[i]:
                    self.want_of(i, -1)
                    self.rest[i] = 0.0
                    self.skip(i)
                    if self.at[i] < self.last[i]:
                        self.want_of(i, 1)
                    else:
                        self.finish[i] = t
                        living -= 1
                        self.alive[k] = self.alive[living]
            if t >= until:
                break
        return 0

    cdef inline int skip(self, Py_ssize_t i) except -1:
        """Leave stages with nothing left."""
        while self.at[i] < self.last[i] and self.rest[i] <= 0:
            self.at[i] += 1
            self.rest[i] = self.length[self.at[i]] if self.at[i] < self.last[i] else 0.0
        return 0

    cdef inline int want_of(self, Py_ssize_t i, int64_t sign) except -1:
        """Add the wants of a task in its stage."""
        cdef Py_ssize_t d
        for d in range(self.resources):
            self.wanted[d] += sign * self.want[self.at[i], d]
        return 0

    cdef inline double pace(self, int64_t stage) except? -1:
        """Speed of a task in a stage."""
        cdef Py_ssize_t d
        cdef double squeeze = 0.0, rate
        for d in range(self.resources):
            if self.want[stage, d] > 0 and self.squeeze[d] > squeeze:
                squeeze = self.squeeze[d]
        rate = (1.0 - squeeze) * (1.0 - self.contention * squeeze)
        return rate if rate > SLOWEST else SLOWEST


cdef inline int64_t slack(int64_t left, int64_t total, double limit, double contention, uint8_t soft) except? -1:
    """Return the reach of a newcomer beyond the available amount: X - a."""
    cdef double most = limit * <double>total, dear = contention * <double>total - <double>left
    if not soft or limit <= 0 or left <= 0:
        return 0
    if dear > 0 and <double>left * <double>total < most * dear:
        most = <double>left * <double>total / dear
    return <int64_t>floor(most)
