# Ranges and sums of the arcs and supplies of a problem, the same for all kernels for whole networks.

from libc.stdint cimport int32_t, int64_t

cdef extern from *:
    """
    #define FS_CINF ((int64_t)1 << 62)
    #define FS_VOLUME_MAX ((int64_t)1 << 60)
    """
    const int64_t CINF "FS_CINF"                # an unlimited capacity
    const int64_t VOLUME_MAX "FS_VOLUME_MAX"    # bound on each sum of supplies or capacities, and on each |cost|

cdef struct Sums:
    int64_t top_cost   # C, the largest |cost|
    int64_t lowers     # the lower bounds
    int64_t limited    # capacities above the lower bounds of all arcs that are not unlimited,
    int64_t negative   # and of those of negative cost
    int64_t volume     # sum of |b|, after the lower bounds
    bint endless       # an arc of negative cost is unlimited


cdef inline bint add_arc(Sums *sums, int64_t *balance, int32_t tail, int32_t head, int64_t lower, int64_t capacity, int64_t cost) noexcept nogil:
    """Count an arc, and move its lower bound into the supplies; False if exact arithmetic could overflow, or not 0 <= lower <= capacity."""
    if lower:
        if lower > VOLUME_MAX or sums.lowers > VOLUME_MAX:
            return False
        sums.lowers += lower
        balance[tail] -= lower
        balance[head] += lower
    if capacity < lower or lower < 0 or not -VOLUME_MAX <= cost <= VOLUME_MAX:
        return False
    sums.top_cost = max(sums.top_cost, cost if cost > 0 else -cost)
    if capacity >= CINF:
        sums.endless |= cost < 0
    else:
        sums.limited = min(sums.limited + (capacity - lower), CINF)
        if cost < 0:
            sums.negative = min(sums.negative + (capacity - lower), CINF)
    return True


cdef inline bint add_node(Sums *sums, int64_t balance) noexcept nogil:
    """Count a supply, after the lower bounds; False if exact arithmetic could overflow."""
    if not -VOLUME_MAX <= balance <= VOLUME_MAX:
        return False
    sums.volume += balance if balance > 0 else -balance
    return sums.volume <= VOLUME_MAX
