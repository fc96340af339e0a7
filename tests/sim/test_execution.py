"""Execution in the simulator: contention by the rule, failure for want of memory, foreign load, samples."""

from __future__ import annotations

from typing import Any

import pytest

import flowsched as fs
from flowsched.cluster.events import Event, MachineAdded, MachineFailed, MachineSampled, MachineUpdated, UsageSampled
from flowsched.cluster.model import Machine
from flowsched.exceptions import InputError
from flowsched.fgm import Stages
from flowsched.sim import Arrival, Execution, ForeignLoad, Metrics, Simulation, Workload
from flowsched.sim.baselines import Greedy
from flowsched.sim.orders import fifo

NAMES = ("cpu", "mem")


def run(
    true: dict[str, Stages], requests: dict[str, tuple[float, float]], events: list[Event] | None = None, **options: Any
) -> Metrics:
    """One machine of 4 cores and 8 GB; each task asks for what `requests` says, and needs what `true` says."""
    jobs = [
        Arrival(0, fs.JobSubmitted(name, [fs.Task(name, dict(zip(NAMES, amounts, strict=True)))]), (10.0,))
        for name, amounts in requests.items()
    ]
    work = Workload("small", jobs, [Machine("m", {"cpu": 4, "mem": 8})], events or (), resources=NAMES)
    preempted = options.pop("preempted", "restart")
    scheduler = options.pop("scheduler", None) or Greedy(fifo, NAMES)
    execution = Execution(true, **options)
    return Simulation(scheduler, work, execution=execution, preempted=preempted).run()


def test_without_contention_stages_take_their_time() -> None:
    metrics = run({"a": Stages([3, 4], [[4, 1], [1, 8]])}, {"a": (1, 1)})
    assert metrics.ends.tolist() == [7]


def test_an_unknown_task_runs_as_the_workload_says() -> None:
    assert run({}, {"a": (1, 1)}).ends.tolist() == [10]


@pytest.mark.parametrize(("contention", "speed"), [(0.0, 2 / 3), (0.5, 2 / 3 * (1 - 0.5 / 3))])
def test_what_competes_is_slowed_by_the_rule(contention: float, speed: float) -> None:
    """6 of 4 cores are wanted: each gets two thirds, and loses more by contention."""
    one = Stages([2], [[3, 1]])
    metrics = run({"a": one, "b": one}, {"a": (1, 1), "b": (1, 1)}, contention=contention)
    assert metrics.ends == pytest.approx([2 / speed, 2 / speed])


def test_a_task_that_does_not_use_the_resource_is_not_slowed() -> None:
    metrics = run({"a": Stages([2], [[8, 1]]), "b": Stages([2], [[0, 1]])}, {"a": (1, 1), "b": (1, 1)})
    assert metrics.ends == pytest.approx([4, 2])


def test_speed_returns_when_others_end() -> None:
    metrics = run({"a": Stages([1], [[4, 1]]), "b": Stages([3], [[4, 1]])}, {"a": (1, 1), "b": (1, 1)})
    assert metrics.ends == pytest.approx([2, 4])  # 1 of b's 3 seconds of work is done at 2


def test_over_committed_memory_makes_the_largest_fail() -> None:
    """a and b need 9 of 8 GB from 2 on; b is larger, starts again a second later, and again, until a is done."""
    a, b = Stages([10], [[1, 4]]), Stages([2, 2], [[1, 1], [1, 5]])
    metrics = run({"a": a, "b": b}, {"a": (1, 1), "b": (1, 1)})
    assert metrics.ends == pytest.approx([10, 13])  # b, once more from 9 on, is in its second stage at 11
    assert metrics.counts["task_failures"] == 3
    assert metrics.counts["lost_seconds"] == pytest.approx(9)


def test_memory_that_one_stage_gives_another_may_take_at_once() -> None:
    a, b = Stages([2, 8], [[1, 6], [1, 2]]), Stages([2, 2], [[1, 2], [1, 6]])
    assert run({"a": a, "b": b}, {"a": (1, 1), "b": (1, 1)}).counts["task_failures"] == 0


def test_foreign_load_competes_and_goes() -> None:
    load = [ForeignLoad(0.0, "m", {"cpu": 4}), ForeignLoad(4.0, "m", {})]
    metrics = run({"a": Stages([4], [[4, 1]])}, {"a": (1, 1)}, foreign=load)
    assert metrics.ends == pytest.approx([6])  # half speed until 4


def test_foreign_memory_evicts_but_never_loops() -> None:
    load = [ForeignLoad(1.0, "m", {"mem": 9.0}), ForeignLoad(5.0, "m", {})]
    metrics = run({"a": Stages([4], [[1, 0]])}, {"a": (1, 1)}, foreign=load)
    assert metrics.ends.tolist() == [4]  # it uses none of what is short


class Listener:
    """A scheduler that keeps what it hears."""

    def __init__(self) -> None:
        self.inner = Greedy(fifo, NAMES)
        self.heard: list[Event] = []

    def apply(self, *events: Event) -> None:
        self.heard += events
        self.inner.apply(*events)

    def schedule(self, now: float, time_limit: float | None = None) -> fs.Round:
        return self.inner.schedule(now, time_limit)

    def commit(self, round: fs.Round) -> fs.Commit:
        return self.inner.commit(round)


def test_samples_tell_what_is_used() -> None:
    listener = Listener()
    one = Stages([4], [[3, 1]])
    run(
        {"a": one, "b": one}, {"a": (1, 1), "b": (1, 1)}, scheduler=listener, sample=1.0,
        foreign=[ForeignLoad(0.0, "m", {"cpu": 2, "mem": 1})],
    )  # fmt: skip
    tasks = [event for event in listener.heard if isinstance(event, UsageSampled)]
    machines = [event for event in listener.heard if isinstance(event, MachineSampled)]
    assert {event.task for event in tasks} == {"a", "b"}
    assert all(event.usage["cpu"] == pytest.approx(1.5) for event in tasks)  # half of what is wanted
    assert machines[0].usage == pytest.approx({"cpu": 4.0, "mem": 3.0})
    assert [event.time for event in machines] == pytest.approx([1, 2, 3, 4, 5, 6, 7, 8][: len(machines)])


def test_samples_tell_how_far_tasks_are_if_they_do() -> None:
    told: dict[bool, list[float | None]] = {}
    for progress in (False, True):
        listener = Listener()
        run({"a": Stages([1, 3], [[2, 1], [8, 1]])}, {"a": (1, 1)}, scheduler=listener, sample=1.0, progress=progress)
        told[progress] = [event.progress for event in listener.heard if isinstance(event, UsageSampled)]
    assert not any(told[False])
    # After a second a quarter is done; 8 cores of 4 are half the speed.
    assert told[True] == pytest.approx([0.25, 0.375, 0.5, 0.625, 0.75, 0.875][: len(told[True])])
    assert len(told[True]) >= 6


def test_noise_is_drawn_from_the_seed() -> None:
    heard = []
    for seed in (1, 1, 2):
        listener = Listener()
        run({}, {"a": (1, 1)}, scheduler=listener, sample=1.0, noise=0.1, seed=seed)
        heard.append([event.usage["cpu"] for event in listener.heard if isinstance(event, UsageSampled)])
    assert heard[0] == heard[1] != heard[2]
    assert all(0.5 < value < 1.5 for value in heard[0])


@pytest.mark.parametrize(("preempted", "end"), [("restart", 11.0), ("resume", 8.0)])
def test_a_machine_that_fails_stops_what_runs(preempted: str, end: float) -> None:
    events = [MachineFailed("m", time=3.0), MachineAdded("m", {"cpu": 4, "mem": 8}, time=4.0)]
    metrics = run({"a": Stages([2, 5], [[1, 1], [2, 2]])}, {"a": (1, 1)}, events, preempted=preempted)
    assert metrics.ends == pytest.approx([end])


def test_a_machine_that_grows_speeds_up() -> None:
    events: list[Event] = [MachineUpdated("m", {"cpu": 8, "mem": 8}, time=2.0)]
    assert run({"a": Stages([4], [[8, 1]])}, {"a": (1, 1)}, events).ends == pytest.approx([5])


@pytest.mark.parametrize(
    "options",
    [{"contention": -1}, {"noise": -1}, {"sample": 0}, {"restart": 0}, {"foreign": [ForeignLoad(-1, "m", {})]}],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Execution(**options)


def test_devices_are_not_compressed() -> None:
    work = Workload("g", [], [Machine("m", {"gpu": 1})], resources=("gpu",))
    with pytest.raises(InputError):
        Simulation(fs.Scheduler(resources=("gpu",)), work, execution=Execution(compressible=("gpu",)))
