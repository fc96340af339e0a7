"""The state of a round: it holds for the round, and every way out undoes it."""

from __future__ import annotations

import numpy as np
import pytest

import flowsched as fs
from flowsched.builder import Builder
from flowsched.builder.scope import RoundScope
from flowsched.cluster.records import Group


class Stopped(BaseException):
    """Neither a result nor an error: something like Ctrl-C."""


def small() -> tuple[Builder, list[Group]]:
    """Two machines full of tasks of bad priority; a job waits, and another one of two groups."""
    sched = fs.Scheduler(fs.Policy(preemption=fs.PreemptionCost(1.0)))
    sched.apply(
        fs.MachineAdded("a", {"cpu": 1}, slots=1),
        fs.MachineAdded("b", {"cpu": 1}, slots=1),
        fs.JobSubmitted("runs", [fs.Task(("r", i), {"cpu": 1}) for i in range(2)], priority=9),
    )
    sched.commit(sched.schedule(0.0))
    sched.apply(
        fs.JobSubmitted("j", [fs.Task("j", {"cpu": 1})], priority=9),
        fs.JobSubmitted("k", [fs.Task("k1", {"cpu": 1}), fs.Task("k2", {"cpu": 0.5})], priority=9),
    )
    sched.schedule(1.0)
    return sched.builder, [group for members in sched.cluster.waiting.values() for group in members]


def numbers(builder: Builder) -> list[list[int]]:
    """Arcs with their ends and numbers; ids that were assigned again have moved nothing else."""
    builder.batch.flush()
    net = builder.network
    return [a.tolist() for a in (net.arcs(), net.tail(), net.head(), net.capacity(), net.cost(), net.supply())]


def disturb(builder: Builder, scope: RoundScope, groups: list[Group]) -> None:
    """All that a round may do, with something to be seen in the network."""
    before = numbers(builder)
    scope.withhold(groups[0])
    scope.leave_out(groups[1], until_change=False)
    scope.urge(groups[2:])
    cls = groups[0].cls.index
    scope.evictions.offer(cls, np.array([0, 1]), np.array([5, 5]))
    scope.evictions.refuse(cls, 1)
    assert builder.network.num_arcs == len(before[0]) + 1
    assert [a == b for a, b in zip(numbers(builder), before, strict=True)] == [False] * 5 + [True]


def test_the_end_of_a_round_undoes_it() -> None:
    builder, groups = small()
    before = numbers(builder)
    with builder.round(1.0) as scope:
        disturb(builder, scope, groups)
    assert numbers(builder) == before


@pytest.mark.parametrize("error", [ValueError, Stopped])
def test_so_does_an_error_in_it(error: type[BaseException]) -> None:
    builder, groups = small()
    before = numbers(builder)
    with pytest.raises(error, match="in the middle"), builder.round(1.0) as scope:
        disturb(builder, scope, groups)
        raise error("in the middle")
    assert numbers(builder) == before


def test_an_error_in_undoing_does_not_hide_the_one_on_its_way() -> None:
    builder, groups = small()
    with pytest.raises(Stopped), builder.round(1.0) as scope:
        scope.withhold(groups[0])
        scope.evictions = None  # type: ignore[assignment]
        raise Stopped


def test_a_round_taken_back_forgets_evictions_and_nothing_else() -> None:
    builder, groups = small()
    with builder.round(1.0) as scope:
        disturb(builder, scope, groups)
        scope.restart()
        assert not scope.evictions.refused
        assert groups[0] in scope.withheld
        assert groups[2] in scope.urged


def test_a_machine_that_refused_in_one_round_may_make_room_in_the_next() -> None:
    builder, _ = small()
    builder.cluster.apply(
        fs.MachineUpdated("a", capacity={"cpu": 2}),  # only its slot is missing, which the flow can see
        fs.JobSubmitted("good", [fs.Task("g", {"cpu": 1})], priority=1),
    )

    def entering() -> list[int]:
        """Capacities of the arcs by which the good job may come to each machine."""
        with builder.round(2.0) as scope:
            builder.update(builder.cluster.changes(2.0), scope)
            (cls,) = [cls for cls in builder.cluster.waiting if cls.priority == 1]
            capacities: list[int] = builder.offers(np.array([cls.index]))[0].tolist()
            scope.evictions.refuse(cls.index, 0)
            assert builder.offers(np.array([cls.index]))[0].tolist() == [0, *capacities[1:]]
            return capacities

    first = entering()
    assert first[0], "else there is nothing to refuse"
    assert entering() == first


def test_a_group_left_out_until_a_change_stays_withheld() -> None:
    builder, groups = small()
    with builder.round(1.0) as scope:
        scope.leave_out(groups[0], until_change=True)
        scope.withhold(groups[1])
    with builder.round(1.0) as scope:
        assert list(scope.withheld) == [groups[0]]
    builder.cluster.apply(fs.MachineAdded("c", {"cpu": 1}))
    with builder.round(1.0) as scope:
        assert not scope.withheld
    assert not builder.left_out
