"""``algorithm="auto"``: the choice between repair, the network simplex and a solve from scratch.

Every algorithm reaches the optimum, so a wrong choice costs time only.  All times are *counted*, in steps of fixed weight (the ``_NS`` constants), never read
from a clock: the same history makes the same choices on every machine.

The rule
--------
1. From scratch: repair, as long as it keeps `pace`; then the simplex.  `min_cost_flow` asks the simplex first, which declines where a repair is likely to be faster
   (`FirstTree.is_easy`, `FirstTree.crash`), and chooses its own start: `FirstTree.crash` states that rule.
2. A change without a usable basis: repair.  Once it has lost as much time to the simplex as a basis costs (``repair_loss``; rent or buy), the simplex makes one.
3. A change with a basis: the algorithm that was faster for changes of its size (`prefers_simplex`); the other is tried again now and then.  Repair is stopped after half
   the time that the simplex is expected to take (`scans_allowed`).
4. A warm solve ends within about the time of a cold one (``bounded``): repair stops once its pace promises no end within `WORTH` of that (`repair_within`), the simplex gets
   the rest (`simplex_limit`), and then the network is solved from scratch.  A change as large as the network goes there at once (`first_choice`).
5. The network may have become easier than it was at the last cold solve: once a change has taken `WASTE` of the time that repair from scratch took when it was last the fastest,
   that is tried again (`needs_probe`).
6. Where nodes or arcs come and go, distances to the hub replace potentials that make repair slow (`centring_pays`).

Regret of the choice from scratch: its time over that of the fastest algorithm by name, build included, on networks drawn from seeds that no constant was fitted on
(seeds 9001 and 9002 of `bench.solver.fields`; eight networks of 60,000 to 300,000 arcs for each row; mean and worst):

    network                 FlowNetwork.solve   min_cost_flow
    tracking                1.05  1.13          1.26  1.58
    balanced clusters       1.17  1.49          1.12  1.50
    fleets of vehicles      1.03  1.12          1.01  1.06
    phase unwrapping        1.10  1.26          1.56  2.03   (4 to 13 ms: laying out a network takes longer than its solve)

The earlier rule, which gave repair 10 scans an arc and had no coarse start for arcs of negative cost, had 1.56 and 3.08 on such networks (tracking 2.0, fleets 1.7).

Measurements behind the constants: docs/explanation/kernel.md, "The choice of the algorithm" and "Tried and rejected"; `python -m bench solver` repeats them.
Another rule replaces this file.  The kernel asks the choices and the estimates (`cold`, `expected`, `is_promising`), and reports times to the record: `learn`,
`note_cold`, `probe_failed`.
"""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from flowsched._faults cimport _empty
from flowsched.kernels.heap cimport FAR, fs_high_bit
from flowsched.kernels.residual cimport AUGMENTATIONS, POT_MAX, PUSHES, SEARCH_SCANS, SETTLED, WALK_SCANS
from flowsched.kernels.search cimport ShortestPaths
from flowsched.kernels.status cimport AGAIN, BEHIND, OK, PROBE, SPENT, WHOLE

import numpy as np

# Scanned half-arcs per arc of the network after which the simplex is likely to be faster than repair: after nodes or arcs came or went;
# from scratch, while `pace` lets repair go on; after a change that keeps all nodes and arcs, so that the simplex's basis will serve the next solve, too.
cdef int64_t SCANS_RESHAPED = 16
cdef int64_t SCANS_COLD = 9
cdef int64_t SCANS_WARM = 4
cdef double PACE = 1.6           # repair from scratch: PACE / (i + 1) of the excesses and deficits may be left after i scanned half-arcs per arc;
cdef double PACE_TAIL = 12       # after this number the bound falls with its square
cdef int64_t SCANS_PACED = 24    # the largest i; repair ends once the latest rate does not reach it
cdef int64_t GIVEN_UP = 4        # factor on the time per excess of a repair that was given up; it counts as at least three times the record
cdef double PUT_OFF = 4          # largest factor by which a second try of repair is put off; the factor is the ratio of repair's estimate to the simplex's
cdef int64_t RECORD_MAX = <int64_t> 1 << 50
# Fractions of the time of a cold solve:
cdef double SLICE = 0.0625       # repair's share between two checks of its progress;
cdef double WORTH = 0.7          # the limit within which repair must be likely to end, or it stops;
cdef double WASTE = 0.3          # the limit on the time of an attempt that is given up.
cdef int64_t ASTRAY_FIRST = 8    # initial ratio of the two estimates, see `centring_pays`
cdef int64_t PROBES = 3          # consecutive failures of a probe after which it is not tried again

cdef enum:
    TRY_FIRST = 8      # solves until the algorithm that seems slower is tried again, at first and at most
    TRY_LAST = 1024


cdef class Auto(ShortestPaths):
    """Recent times of the algorithms, and the choices that follow from them; see the head of this file."""

    @cython.embedsignature(True)
    def __init__(self):
        ShortestPaths.__init__(self)
        self.solves_until_try = TRY_FIRST
        self.patience = -1

    cdef int repair(self) except -1 nogil:
        """Of the kernel: route excesses until none is left, or ``scans_left`` is spent."""
        return OK

    cdef int reshape(self) except -1:
        self.repair_loss, self.simplex_due = 0, False
        return ShortestPaths.reshape(self)

    cdef int drop_basis(self) except -1:
        self.unripe = self.behind = False
        return ShortestPaths.drop_basis(self)

    cdef int centre(self) except -1 nogil:
        self.record.is_centred = 1
        return ShortestPaths.centre(self)

    cdef bint usable(self) noexcept nogil:
        """True if the next solve may start from the basis."""
        return self.based and not self.unripe

    # == the choices ==========================================================================================

    cdef int first_choice(self, double cold) except -1 nogil:
        """WHOLE: the simplex is to solve the change; AGAIN: a solve from scratch; PROBE: repair from scratch may be faster; OK: repair."""
        if self.bounded and self.record.cold_way == REPAIR and self.size > 16 and 2 * self.size > self.record.cold_size and not self.deadline:
            return AGAIN
        if self.bounded and 4 * self.size > self.live_nodes and 3 * self.count_uneven() > self.live_nodes:
            if not (self.usable() and self.is_promising(BY_SIMPLEX, cold)):
                return AGAIN        # the change is as large as the network
        if self.needs_probe(min(self.expected(BY_REPAIR), self.expected(BY_SIMPLEX))):
            return PROBE
        return WHOLE if self.prefers_simplex() else OK

    cdef int64_t scans_allowed(self, bint warm) except -1 nogil:
        """Half-arcs that repair may scan before the simplex takes over."""
        cdef int64_t most = SCANS_COLD if not warm else SCANS_RESHAPED if self.reshaped else SCANS_WARM
        cdef double simplex = self.expected(BY_SIMPLEX)
        if self.usable():           # repair may take half the time of the simplex that follows it
            return <int64_t>min(simplex / (2 * WALK_NS), SCANS_RESHAPED * (<double>self.live_arcs + 1000))
        return FAR if self.bounded and self.reshaped else most * (<int64_t>self.live_arcs + 1000)

    cdef bint prefers_simplex(self) except -1 nogil:
        """True if the simplex is likely to be faster.  Without a basis: if making one would already have paid.

        The slower algorithm is tried again from time to time, after an interval that doubles each time.  Repair, which may be given up
        again, waits in proportion to its slowness.
        """
        cdef double simplex, repair
        if not self.size:
            return False
        if self.based and self.stopped_algorithm == SIMPLEX:
            return True
        if not self.usable():
            return self.simplex_due or self.repair_loss > ARC_NS * <int64_t>self.live_arcs
        simplex, repair = self.expected(BY_SIMPLEX), self.expected(BY_REPAIR)
        self.solves_since_try += 1
        if not repair or self.solves_since_try < self.solves_until_try * min(max(repair / simplex, 1), PUT_OFF):
            return simplex < repair
        if simplex < repair or not self.behind:     # a basis that is behind catches up first: the solve after that shows the simplex's time
            self.solves_since_try, self.solves_until_try = 0, min(2 * self.solves_until_try, TRY_LAST)
        return simplex >= repair

    cdef int pace(self) except -1 nogil:
        """Repair from scratch; BEHIND its pace: too many excesses and deficits are left after i scans for each arc, or they become fewer too slowly.

        The remaining excesses of a congested network take longer than those settled, so there is no use in waiting for more of them.
        """
        cdef int64_t nodes = self.count_uneven(), part = self.live_arcs + 1000, before = nodes, left
        cdef int i, status
        cdef bint slow = False
        self.scans_left = 0
        for i in range(1, SCANS_PACED + 1):
            self.scans_left += part
            status = self.repair()
            if status != SPENT:
                if slow or i > SCANS_COLD + 1:      # a near tie: the first loss after a change makes a basis
                    self.repair_loss = ARC_NS * <int64_t>self.live_arcs
                return status
            left = self.count_uneven()
            if (i + 1) * max(i, PACE_TAIL) * left > PACE * PACE_TAIL * nodes or left > (before - left) * (SCANS_PACED - i):
                break
            slow |= 4 * left > (4 - i) * nodes and i < 4
            before = left
        return BEHIND

    cdef int repair_within(self, double cold) except -1 nogil:
        """Repair a change; BEHIND once the remaining excesses, at the latest rate, are likely to take it beyond the fraction WORTH of a cold solve."""
        cdef int64_t most = self.scans_left, left = self.count_uneven(), before, work = self.repaired(), last
        cdef int64_t probe = FAR if self.probed or not self.bounded else <int64_t>(WASTE * self.cold(self.record.cold_repair) / (4 * WALK_NS)) + 1000
        cdef int64_t part = min(<int64_t>(2 * SLICE * cold / WALK_NS) + 100, probe)
        cdef int status
        while True:
            self.scans_left = min(part, most)
            most -= self.scans_left
            status = self.repair()
            if status != SPENT:
                return status
            last, work, before, left = work, self.repaired(), left, self.count_uneven()
            if self.needs_probe(work):
                return PROBE
            if most <= 0 or left >= before or work + <double>left * (work - last) / (before - left) > WORTH * cold:
                return BEHIND
            part = min(<int64_t>(SLICE * cold / WALK_NS) + 100, probe)

    cdef int64_t simplex_limit(self, double cold) except? -1 nogil:
        """Time that the simplex may take for a change whose repair was given up, before it is solved from scratch; 0: none."""
        cdef double known = <double>self.recorded()[BY_SIMPLEX], rest = WASTE * cold - self.repaired() - self.probe_time
        if self.usable() and known and known < WORTH * cold:
            rest = max(rest, known + known / 4)
        elif 8 * self.size < self.live_nodes:       # a basis made for small changes serves the next ones, too
            rest = max(rest, WORTH * cold)
        return <int64_t>rest if rest > 0 else 0

    cdef bint needs_probe(self, double work) except -1 nogil:
        """True if repair from scratch is to be tried for a change of this estimated time."""
        return self.bounded and not self.probed and not self.deadline and work > WASTE * self.cold(self.record.cold_repair)

    cdef bint easier_now(self, int64_t sources) noexcept nogil:
        """True if repair may have become the fastest from scratch: it was, the change is large, or fewer nodes have a supply."""
        return self.record.cold_way == REPAIR or 4 * self.size > self.live_nodes or 8 * sources < 7 * self.record.cold_size

    cdef bint mostly_changed(self) noexcept nogil:
        """True if the change reached more than half of all nodes, as where a cluster has just been filled: old distances mean little then."""
        return 2 * self.size > self.live_nodes

    cdef bint centring_pays(self, int status) except -1 nogil:
        """True if distances to the hub as potentials have lately made repair faster by more than they cost.

        Each kind of potentials is measured where it was used.  Where only one is known the other is tried once repair has become expensive.
        """
        cdef int64_t price = CENTRE_NS * <int64_t>self.live_arcs, work = self.repaired(), each
        cdef int64_t *astray = &self.record.astray
        cdef int64_t *centred = &self.record.centred
        if not self.reshaped or self.hub < 0 or not self.size or 4 * work < price:
            return False
        each = min(work // self.size * (GIVEN_UP if status == BEHIND else 1), RECORD_MAX) + 1
        if self.record.is_centred:
            centred[0] = each
            if self.mostly_changed():     # the potentials that repair leaves are likely to be as bad as those before
                astray[0] = max(astray[0], ASTRAY_FIRST * each)
            astray[0] -= astray[0] >> 8
        else:
            astray[0] = each
            centred[0] -= centred[0] >> 6
        self.record.is_centred = 0
        if centred[0]:
            return astray[0] > 0 and <double>(astray[0] - centred[0]) * self.size > price
        return work > 8 * price

    # == the record ===========================================================================================

    cdef int64_t repaired(self) noexcept nogil:
        """Time of repair in this solve, in about ns."""
        return (WALK_NS * self.count[WALK_SCANS] + SEARCH_NS * self.count[SEARCH_SCANS] + SETTLE_NS * self.count[SETTLED]
                + AUGMENT_NS * self.count[AUGMENTATIONS] + PUSH_NS * self.count[PUSHES] - self.probe_time)

    cdef int64_t* recorded(self) except NULL nogil:
        """Recorded times for changes of this size."""
        return &self.record.recent[fs_high_bit(<uint64_t>self.size) + 1 if self.size else 0][0]

    cdef double expected(self, int way) except -1 nogil:
        """Estimated time of an algorithm, from the recorded change nearest in size; by default 0 for repair and two passes over the network for the simplex."""
        cdef int bits = fs_high_bit(<uint64_t>self.size) + 1 if self.size else 0, i, side, at
        for i in range(SIZES):
            for side in range(2):
                at = bits - i if side == 0 else bits + i
                if 0 <= at < SIZES and self.record.recent[at][way]:
                    return <double>self.record.recent[at][way] * (self.size if way == BY_REPAIR else 1)
        return 0 if way == BY_REPAIR else 2 * SLOT_NS * <double>self.live_arcs + NODE_NS * self.live_nodes

    cdef int learn(self, int way, int64_t work) except -1 nogil:
        """Update the time of an algorithm: an exponential moving average with weight 1/4 for the latest solve."""
        cdef int64_t *known = self.recorded()
        cdef bint better = known[BY_SIMPLEX] < <double>known[BY_REPAIR] * self.size
        if known[way]:
            known[way] = (3 * known[way] + work) // 4 + 1
        else:               # one solve says little about the simplex
            known[way] = (<int64_t>self.expected(way) + work) // 2 + 1 if way == BY_SIMPLEX else work + 1
        if known[BY_SIMPLEX] and known[BY_REPAIR] and better != (known[BY_SIMPLEX] < <double>known[BY_REPAIR] * self.size):
            self.solves_since_try, self.solves_until_try = 0, TRY_FIRST
        return 0

    cdef int learn_repair(self, bint spent) except -1 nogil:
        cdef int64_t work = WALK_NS * self.count[WALK_SCANS] + SEARCH_NS * self.count[SEARCH_SCANS] + SETTLE_NS * self.count[SETTLED], each
        work = max(work - self.probe_time, 0)
        if not self.size:
            return 0
        each = work // self.size
        if spent:           # a lower bound on its time; without the penalty, near ties would be tried and given up again and again
            each = max(GIVEN_UP * each, 3 * self.recorded()[BY_REPAIR])
            work *= 2
        self.learn(BY_REPAIR, min(each, RECORD_MAX))
        if not self.usable() and not self.reshaped and self.solved:
            self.repair_loss += <int64_t>max(work - self.expected(BY_SIMPLEX), 0)
        return 0

    cdef double cold(self, Timed last) except -1 nogil:
        """Estimated time of a cold solve of the network, from the last one; FAR if there was none."""
        return <double>last.time * (self.live_arcs + 1000) / (last.arcs + 1000) if last.time else FAR

    cdef int note_cold(self, int64_t work, int way) except -1 nogil:
        """Record the time of an algorithm from scratch; repair also resets all arcs."""
        if way == REPAIR:
            work += START_NS * <int64_t>self.live_arcs
        self.record.cold.time, self.record.cold.arcs, self.record.cold_size, self.record.cold_way = min(work, RECORD_MAX) + 1, self.live_arcs, self.size, way
        if way == REPAIR:
            self.record.cold_repair, self.record.probes_failed = self.record.cold, 0
        return 0

    cdef int probe_failed(self) except -1 nogil:
        self.record.probes_failed += 1
        if self.record.probes_failed == PROBES:
            self.record.cold_repair.time = 0
        return 0

    cdef bint is_promising(self, int way, double cold) except -1 nogil:
        """False if an algorithm has lately taken longer than a cold solve, for changes of this size; the record decays, so it is tried again some solves later."""
        cdef int64_t *known = self.recorded() + way
        if known[0] * (<double>self.size if way == BY_REPAIR else 1) <= cold:
            return True
        known[0] -= known[0] >> 3
        return False

    cdef object write_record(self):
        """The record as a vector."""
        cdef Py_ssize_t i
        cdef int64_t[::1] record = _empty(sizeof(Record) // sizeof(int64_t), np.int64)
        for i in range(record.shape[0]):
            record[i] = (<int64_t *>&self.record)[i]
        return record.base

    cdef object read_record(self, const int64_t[::1] record):
        """Load the vector of `write_record`, or of an earlier version: the times by size alone.  Return None, or a text that names the fault."""
        cdef Py_ssize_t i
        if record.shape[0] != WAYS * SIZES and record.shape[0] != <Py_ssize_t>(sizeof(Record) // sizeof(int64_t)):
            return "record: wrong length"
        for i in range(record.shape[0]):
            if not 0 <= record[i] < 2 * POT_MAX:
                return f"record[{i}]: {record[i]} is out of range"
            (<int64_t *>&self.record)[i] = record[i]
        return None
