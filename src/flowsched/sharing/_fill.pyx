"""Progressive filling, compiled; see `flowsched.sharing.waterfill.fill`."""

from libc.math cimport INFINITY, ceil, isinf, rint
from libc.stdint cimport int64_t, uint8_t

import numpy as np

cdef double GRAIN = 1e-12    # levels are whole numbers of it, so that shares that differ only by rounding have the same level


cdef class _Filling:
    """A distribution in progress."""

    cdef Py_ssize_t n, width, scales
    cdef const int64_t[:] tasks
    cdef const double[:, :] stand
    cdef double[:, ::1] pace, part
    cdef const double[::1] room
    cdef int64_t[::1] share, below, above, found
    cdef double[::1] used
    cdef uint8_t[::1] open
    cdef object result

    def __cinit__(self, const int64_t[:] tasks, const double[:, :] stand, pace, part, const double[::1] room):
        self.n, self.width = part.shape
        self.tasks, self.stand, self.room = tasks, stand, room
        self.pace, self.part = np.array(pace, np.float64, order="C"), np.array(part, np.float64, order="C")
        self.scales = self.pace.shape[1]
        if not self.n == tasks.shape[0] == stand.shape[0] == self.pace.shape[0] or self.width != room.shape[0] or self.scales != stand.shape[1]:
            raise ValueError("fill: arrays of different lengths")
        numbers = np.zeros((4, self.n), np.int64)
        self.result = numbers[0]
        self.share, self.below, self.above, self.found = numbers
        self.open, self.used = np.zeros(self.n, np.uint8), np.zeros(self.width)

    cdef bint hungry(self, Py_ssize_t i) noexcept:
        return self.open[i] and self.share[i] < self.tasks[i]

    cdef bint fits(self, const int64_t[::1] share) noexcept:
        """Sum the parts of these shares in `used`; return True if they fit."""
        cdef Py_ssize_t i, d
        self.used[:] = 0.0
        for i in range(self.n):
            for d in range(self.width):
                self.used[d] += share[i] * self.part[i, d]
        for d in range(self.width):
            if self.used[d] > self.room[d]:
                return False
        return True

    cdef void begun(self, double level, int64_t[::1] out) noexcept:
        """Find all tasks that begin below a level."""
        cdef Py_ssize_t i, s
        cdef double ahead, begun
        cdef int64_t more
        for i in range(self.n):
            out[i] = self.share[i]
            if not self.open[i]:
                continue
            more = self.tasks[i]
            for s in range(self.scales):
                ahead = level - 0.5 - self.stand[i, s] / GRAIN
                if self.pace[i, s] > 0:
                    begun = ceil(min(max(ahead * (GRAIN / self.pace[i, s]), 0.0), <double> self.tasks[i]))
                    more = min(more, <int64_t> begun)
                elif ahead <= 0:
                    more = min(more, 0)
            out[i] = max(out[i], more)

    cdef int raise_level(self) except -1:
        """Give all tasks that begin below a level at which they fit, while below the next tried level they do not.

        No claimant has more than one task between the two.
        """
        cdef double begin, lowest = INFINITY, highest = -INFINITY
        cdef Py_ssize_t i, s
        cdef int64_t step
        for i in range(self.n):
            if not self.open[i]:
                continue
            begin = -INFINITY
            for s in range(self.scales):
                begin = max(begin, self.stand[i, s] / GRAIN)
                highest = max(highest, self.stand[i, s] + self.tasks[i] * self.pace[i, s])
            lowest = min(lowest, begin)
        low, high = int(lowest), int(highest / GRAIN) + 2   # of any size
        self.below[:] = self.share
        self.begun(high, self.above)
        if self.fits(self.above):
            self.share[:] = self.above
            return 0
        while high - low > 1:
            step = 0
            for i in range(self.n):
                step = max(step, self.above[i] - self.below[i])
            if step <= 1:
                break
            middle = (low + high) // 2
            self.begun(middle, self.found)
            if self.fits(self.found):
                low = middle
                self.below, self.found = self.found, self.below
            else:
                high = middle
                self.above, self.found = self.found, self.above
        self.share[:] = self.below
        return 0

    cdef run(self, bint go_on):
        cdef Py_ssize_t i, d, s
        cdef double asks, level
        cdef bint fit
        cdef list levels = [0.0] * self.n
        cdef double[::1] left = np.zeros(self.width)
        for i in range(self.n):
            asks = 0.0
            for d in range(self.width):
                asks = max(asks, self.part[i, d])
            if asks <= 0:
                self.share[i] = self.tasks[i]
            elif isinf(asks):               # no machine has the resources: no task of the claimant runs
                self.part[i] = 0.0
                self.pace[i] = 0.0
            else:
                self.open[i] = True
        while any([self.hungry(i) for i in range(self.n)]):
            self.raise_level()
            line = []
            for i in range(self.n):
                if self.hungry(i):
                    level = -INFINITY
                    for s in range(self.scales):
                        level = max(level, self.stand[i, s] + self.share[i] * self.pace[i, s])
                    levels[i] = rint(level / GRAIN)
                    line.append(i)
            line.sort(key=levels.__getitem__)
            self.fits(self.share)
            for d in range(self.width):
                left[d], self.used[d] = self.room[d] - self.used[d], 0.0
            for i in line:
                fit = True
                for d in range(self.width):
                    fit = fit and self.used[d] + self.part[i, d] <= left[d]
                if not fit:
                    break
                for d in range(self.width):
                    self.used[d] += self.part[i, d]
                self.share[i] += 1
            for i in range(self.n):
                for d in range(self.width):
                    self.open[i] = self.open[i] and go_on and self.part[i, d] <= left[d] - self.used[d]
        return self.result


def fill(tasks, stand, pace, part, room, /, *, bint go_on=True):
    """Distribute tasks; see `flowsched.sharing.waterfill.fill`."""
    return (<_Filling> _Filling(tasks, stand, pace, part, room)).run(go_on)
