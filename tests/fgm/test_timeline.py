"""Matching: the compression bound, the kernel against Algorithm 2 written out, and predictions."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import numpy as np
import pytest
from effort import effort
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flowsched.cluster.model import MICRO
from flowsched.exceptions import InputError
from flowsched.fgm import Stages, Timeline, Timelines, compression, match, max_compression
from flowsched.fgm._course import Course
from flowsched.fgm.timeline import Classes

LIMIT = 0.1
PARTS = st.integers(0, 40).map(lambda tenths: tenths / 10)


def test_compression_is_what_is_missing() -> None:
    assert compression([4.2, 4.0, 3.0, 0.0], 4.0).round(6).tolist() == [0.047619, 0, 0, 0]


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, 1), st.floats(0, 0.99))
def test_the_bound_on_compression(before: float, newcomer: float, loss: float, limit: float) -> None:
    bound = float(max_compression(before, newcomer, contention=loss, limit=limit))
    assert 0 <= bound <= limit
    assert float(max_compression(before, 0.0, contention=loss, limit=limit)) == 0
    assert float(max_compression(before, newcomer, contention=min(1.0, loss + 0.1), limit=limit)) <= bound
    if bound and before + newcomer > 0:  # throughput does not fall (2)
        assert (1 - bound) * (1 - loss) * (before + newcomer) >= before * (1 - 1e-9)


def test_bad_bounds_are_refused() -> None:
    for arguments in ((-1, 1, 0.0, 0.1), (1, math.nan, 0.0, 0.1), (1, 1, 2.0, 0.1), (1, 1, 0.0, 1.0)):
        with pytest.raises(InputError):
            max_compression(*arguments[:2], contention=arguments[2], limit=arguments[3])


# -- matching ------------------------------------------------------------------------------------------------------


def algorithm_2(
    task: Stages, machine: Timeline, soft: list[bool], limit: float, contention: float, copies: int = 1
) -> bool:
    """As in the source, one comparison at a time; resources that a stage does not want are not asked for."""
    start = 0.0
    for seconds, wanted in zip(task.seconds, task.demand, strict=True):
        end = start + seconds
        for n, (n_end, left) in enumerate(zip(machine.ends, machine.available, strict=True)):
            n_start = machine.ends[n - 1] if n else 0.0
            if n_start < end and n_end > start and seconds > 0:
                for d, want in enumerate(copies * wanted):
                    total = machine.total[d]
                    bound = 0.0
                    if soft[d] and left[d] > 0:
                        used = total - left[d]
                        bound = float(max_compression(used, want, contention=contention * limit, limit=limit))
                    if want > 0 and left[d] + bound * total < want - 1e-9:
                        return False
        start = end
    return True


@st.composite
def tasks(draw: st.DrawFn, most: int = 4) -> Stages:
    count = draw(st.integers(1, most))
    seconds = draw(st.lists(st.integers(1, 6), min_size=count, max_size=count))
    demand = draw(st.lists(st.tuples(PARTS, PARTS), min_size=count, max_size=count))
    return Stages(seconds, demand)


@st.composite
def machines(draw: st.DrawFn) -> Timeline:
    count = draw(st.integers(1, 6))
    ends = np.cumsum(draw(st.lists(st.integers(1, 6), min_size=count, max_size=count)), dtype=float)
    ends[-1] = math.inf
    available = draw(st.lists(st.tuples(st.floats(-1, 8), PARTS), min_size=count, max_size=count))
    return Timeline(ends, np.minimum(np.round(available, 6), 8), [8, 4])


@settings(max_examples=effort(15, 10_000))
@given(tasks(), machines(), st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from([0.0, 0.5]))
def test_the_kernel_does_what_algorithm_2_says(
    task: Stages, machine: Timeline, limit: float, contention: float
) -> None:
    """Sound and complete: what is refused has a stage that cannot be met."""
    expected = algorithm_2(task, machine, [True, False], limit, contention)
    assert match(task, machine, limit=[limit, 0], contention=contention) == expected


@given(tasks(), machines())
def test_as_many_fit_as_counted(task: Stages, machine: Timeline) -> None:
    lines = Timelines(2, slots=8)
    lines.grow(1)
    lines.ends[0, : len(machine.ends)] = machine.ends
    lines.reach[0, : len(machine.ends)] = np.rint(machine.available * MICRO)
    count = int(lines.fits(Classes([task], 2), np.zeros(1, np.int64), 0.0)[0][0, 0])
    if count < 1000:
        assert algorithm_2(task, machine, [False, False], 0, 0, max(count, 1)) == (count > 0)
        assert not algorithm_2(task, machine, [False, False], 0, 0, count + 1)
    else:
        assert not task.demand.any() or (machine.available.max() > 0)


@settings(max_examples=effort(15, 5000))
@given(st.lists(tasks(), min_size=1, max_size=5), st.lists(machines(), min_size=1, max_size=5), st.floats(0, 20))
def test_many_pairs_at_once_are_pairs(classes: list[Stages], rows: list[Timeline], now: float) -> None:
    lines = Timelines(2, slots=8)
    lines.grow(len(rows))
    for row, machine in enumerate(rows):
        lines.ends[row, : len(machine.ends)] = machine.ends
        lines.reach[row, : len(machine.ends)] = np.rint(machine.available * MICRO)
    count, short = lines.fits(Classes(classes, 2), np.arange(len(rows)), now)
    assert ((count > 0) == (short < 0)).all()
    for row, machine in enumerate(rows):
        later = machine.ends > now + 1e-6
        rest = Timeline(machine.ends[later] - now, machine.available[later], machine.total)
        for c, task in enumerate(classes):
            ends, starts = np.r_[0, np.cumsum(task.seconds)], np.r_[0, rest.ends]
            if np.abs(ends[:, None] - starts[None, :])[1:, 1:].min() > 1e-5:  # boundaries that meet depend on rounding
                assert (count[c, row] > 0) == algorithm_2(task, rest, [False, False], 0, 0)


def test_no_rounding_decides() -> None:
    """What is wanted is all that there is, or a millionth more; many inverses times their numbers are not 1."""
    wanted = np.array([*range(1, 200), 4_900_000, 10**9 + 7, 10**12 + 39, 2**53 + 1, 2**60 + 9])
    lines = Timelines(1, slots=2)
    lines.grow(2 * len(wanted))
    lines.reach[: 2 * len(wanted), 0, 0] = np.concatenate([wanted, wanted - 1])
    classes = Classes([Stages([math.inf], [[want / MICRO]]) for want in wanted.tolist()], 1)
    classes.want[:, 0] = wanted
    count, short = lines.fits(classes, np.arange(2 * len(wanted)), 0.0)
    enough, lacking = count[:, : len(wanted)].diagonal(), count[:, len(wanted) :].diagonal()
    assert (enough == 1).all()
    assert (lacking == 0).all()
    assert ((count > 0) == (short < 0)).all()


def test_boundaries_that_meet_do_not_overlap() -> None:
    machine = Timeline([2, 5, math.inf], [[1.0], [2.0], [4.0]], [4])
    assert match(Stages([2, 3, 1], [[1.0], [2.0], [4.0]]), machine)
    assert not match(Stages([2.1, 3, 1], [[1.5], [2.0], [4.0]]), machine)
    assert match(Stages([math.inf], [[1.0]]), machine)
    assert not match(Stages([math.inf], [[1.5]]), machine)


def test_what_is_not_wanted_is_not_asked_for() -> None:
    machine = Timeline([math.inf], [[2.0, -1.0]], [4, 4])
    assert match(Stages([1], [[2.0, 0.0]]), machine)
    assert not match(Stages([1], [[2.0, 0.1]]), machine)


def test_amounts_beyond_what_a_double_holds() -> None:
    huge = 2.0**33  # 2**53 micro-units and more
    machine = Timeline([math.inf], [[2 * huge]], [2 * huge])
    assert match(Stages([1], [[huge]]), machine)
    assert not match(Stages([1], [[3 * huge]]), machine)


@pytest.mark.parametrize(
    "arguments",
    [
        ([1], [[1.0]], [1]),
        ([2, 1, math.inf], [[1.0]] * 3, [1]),
        ([math.inf], [[1.0, 2.0]], [1]),
        ([math.inf], [[1.0]], [-1]),
    ],
)
def test_bad_timelines_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InputError):
        Timeline(*arguments)
    with pytest.raises(InputError):
        match(Stages([1], [[1.0]]), Timeline([math.inf], [[1.0]], [1]), limit=[0.1, 0.1])


def test_threads_match_at_the_same_time() -> None:
    """The lock of the interpreter is released: Python goes on while the kernel works."""
    lines = Timelines(2)
    lines.grow(4000)
    lines.reach[:] = MICRO
    classes = Classes([Stages(np.ones(8), np.full((8, 2), 0.5)) for _ in range(200)], 2)
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.3:
        lines.fits(classes, np.arange(4000), 0.0)
    end = time.perf_counter()
    done.set()
    thread.join()
    assert sum(begin < tick < end for tick in ticks) > 5


# -- prediction ----------------------------------------------------------------------------------------------------

A = Stages([1, 2], [[1.0, 2.0], [0.8, 2.0]])
B = Stages([1, 3], [[2.2, 2.0], [1.5, 2.0]])


class Machine:
    """One machine of 4 cores and 8 GB on which these tasks begin at time 0."""

    def __init__(self, members: list[Stages], slots: int = 16, contention: float = 0.0, compress: bool = True) -> None:
        self.lines = Timelines(2, slots=slots)
        self.lines.grow(1)
        classes, n = Classes(members, 2), len(members)
        self.course = Course(np.array([LIMIT, 0]), np.array([1, 0], np.uint8), contention)
        self.total = np.array([[4, 8]]) * MICRO
        self.turn, self.entry = np.arange(n), np.arange(n)
        self.stage, self.left, self.time = np.zeros(n, np.int64), classes.seconds[classes.at[:-1]], np.zeros(1)
        self.course.tasks(
            self.turn, self.entry, self.stage, self.left, np.full(n, 0.5), np.zeros(n, np.int64), np.zeros(n)
        )
        self.course.rows(
            self.time, np.zeros(1), np.zeros(1), np.zeros((1, 2), np.int64), np.array([compress], np.uint8),
            self.lines.ends, self.lines.available, self.lines.reach,
        )  # fmt: skip
        self.course.stock(classes.at, classes.seconds, classes.want)
        self.rows, self.at, self.members = np.zeros(1, np.int64), np.array([0, n]), np.arange(n)

    def forecast(self) -> Timelines:
        same = self.at, self.members
        self.course.forecast(self.rows, *same, *same, self.turn, self.entry, self.total, 0.0)
        return self.lines

    def plan(self, now: float = 0.0) -> tuple[int, float, list[float]]:
        finish = np.empty(len(self.members))
        short, worst = self.course.plan(
            0, self.members, self.members, self.turn, self.entry, self.total, now, finish, np.empty(len(finish))
        )
        return short, worst, finish.tolist()


def test_the_figures_of_the_source() -> None:
    """Three tasks at once: 4.2 of 4 cores are wanted, so the first stage takes 1.05 and everything ends at 4.05."""
    machine = Machine([A, A, B])
    short, worst, finish = machine.plan()
    assert finish == pytest.approx([3.05, 3.05, 4.05])
    assert worst == pytest.approx(0.2 / 4.2)
    assert short == -1
    lines = machine.forecast()
    assert lines.ends[0, :4].tolist() == pytest.approx([1.05, 3.05, 4.05, math.inf])
    assert (lines.available[0, :4, 0] / MICRO).tolist() == pytest.approx([-0.2, 0.9, 2.5, 4])


def throughput(wanted: float, contention: float) -> float:
    """What 4 cores do of what is wanted, by equations (1) and (5)."""
    rate = float(compression(wanted, min(wanted, 4.0)))
    return wanted * (1 - rate) * (1 - contention * rate)


@pytest.mark.parametrize("contention", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("used", [0.4, 1.0, 3.0, 3.7, 3.85, 3.97, 3.99, 4.0, 4.2])
def test_the_reach_is_that_of_the_bound(used: float, contention: float) -> None:
    """The most that a newcomer may want: up to it throughput does not fall, inequality (2), and the limit is kept."""
    reach = Machine([Stages([10], [[used, 1.0]])], contention=contention).forecast().reach[0, 0, 0] / MICRO
    left = 4 - used
    if left <= 0:
        assert reach == pytest.approx(left)
        return
    for want, fits in ((reach - 1e-4, True), (reach + 1e-4, False)):
        rises = throughput(used + want, contention) >= throughput(used, contention)
        assert (rises and want - left <= LIMIT * 4) == fits


@given(
    used=st.floats(0, 1), want=st.floats(0.001, 0.4), limit=st.floats(0, 0.3), contention=st.floats(0, 2),
    cores=st.sampled_from([1.0, 4.0, 32.0]),
)  # fmt: skip
def test_a_placement_is_refused_only_by_the_two_bounds(
    used: float, want: float, limit: float, contention: float, cores: float
) -> None:
    before, after = used * cores, (used + want) * cores
    over = after - cores
    rate = max(0.0, over / after)
    gain = after * (1 - rate) * (1 - contention * rate) - before
    assume(min(abs(over), abs(over - limit * cores), abs(gain)) > 1e-4 and used < 0.999)
    expected = over <= 0 or (over <= limit * cores and gain > 0)
    machine = Timeline([math.inf], [[cores - before]], [cores])
    assert match(Stages([10], [[want * cores]]), machine, limit=[limit], contention=contention) == expected


def test_contention_takes_longer_than_sharing() -> None:
    rate = 0.2 / 4.2
    assert Machine([A, A, B], contention=0.5).plan()[2][2] == pytest.approx(1 / ((1 - rate) * (1 - 0.5 * rate)) + 3)


def test_over_commitment_is_told() -> None:
    assert Machine([A] * 5).plan()[0] == 1  # 10 GB of 8
    assert Machine([B, B]).plan()[0] == -1  # 4.4 of 4 cores are the limit
    assert Machine([B, B, A]).plan()[0] == 0
    assert Machine([A, A, B], compress=False).plan()[0] == 0


def test_stages_without_a_slot_are_taken_together() -> None:
    members = [Stages([i + 1.0], [[0.1, 0.1]]) for i in range(10)]
    whole, few = Machine(members), Machine(members, slots=4)
    assert few.plan()[2] == whole.plan()[2]
    fine, rough = whole.forecast(), few.forecast()
    assert rough.ends[0].tolist() == [1, 2, 10, math.inf]
    assert (rough.available[0, :2] == fine.available[0, :2]).all()
    assert (rough.available[0, 2] == fine.available[0, 2]).all()  # the least of all later ones
    assert (rough.available[0, 3] == fine.available[0, 10]).all()


def test_what_is_left_over_of_a_longer_timeline_is_not_looked_at() -> None:
    machine = Machine([Stages([3, 3, 3, 3], [[1.0, 1], [2.0, 1], [0.5, 1], [1.5, 1]]), Stages([100], [[1.0, 1]])])
    lines = machine.forecast()
    assert [int(lines.present(machine.rows, now)[0]) for now in (2.0, 10.0, 99.0, 1000.0)] == [0, 3, 4, 5]
    machine.at, machine.members, machine.turn, machine.entry = (array[1:] for array in (
        np.array([0, 0, 1]), machine.members, machine.turn, machine.entry
    ))  # fmt: skip
    lines = machine.forecast()
    assert [int(lines.present(machine.rows, now)[0]) for now in (2.0, 10.0, 99.0, 1000.0)] == [0, 0, 0, 1]


def test_states_are_moved_on_when_asked_and_only_then() -> None:
    machine = Machine([A, B])
    machine.plan(2.0)
    machine.forecast()
    assert machine.stage.tolist() == [0, 0]
    machine.course.advance(machine.rows, machine.at, machine.members, machine.total, 1.5)
    assert machine.stage.tolist() == [1, 1]
    assert machine.left == pytest.approx([1.5, 2.5])
    machine.course.advance(machine.rows, machine.at, machine.members, machine.total, 1.0)  # no way back
    assert machine.left == pytest.approx([1.5, 2.5])


def test_who_should_be_done_and_is_not_goes_on_for_a_while() -> None:
    machine = Machine([A])
    machine.course.advance(machine.rows, machine.at, machine.members, machine.total, 3.2)
    assert machine.stage.tolist() == [1]
    assert machine.left.tolist() == [0.5]
    machine.course.advance(machine.rows, machine.at, machine.members, machine.total, 4.0)
    assert machine.left.tolist() == [1.0]  # twice as long


def test_the_kernel_checks_what_it_is_given() -> None:
    machine = Machine([A, B])
    rows, at, members, total = machine.rows, machine.at, machine.members, machine.total
    for wrong in (
        (rows + 1, at, members, total),
        (rows, at, members + 1, total),
        (rows, at[:1], members, total),
        (rows, at, members[:1], total),
        (rows, at, members, total[:, :1]),
    ):
        with pytest.raises((IndexError, ValueError)):
            machine.course.advance(*wrong, 1.0)
    with pytest.raises(IndexError):
        machine.course.stock(np.array([0, 0]), np.ones(1), np.ones((1, 2), np.int64))
    with pytest.raises(ValueError, match="one length"):
        machine.course.tasks(*(np.zeros(n, np.int64) for n in (2, 1, 2)), *np.zeros((2, 2)), members, np.zeros(2))
