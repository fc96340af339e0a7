"""Histories of late, doubled and lost answers, machines that go and come: no task is lost, none ends or runs twice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from typing import Any

import pytest
from effort import effort
from executors import FakeExecutor
from hypothesis import given, settings
from hypothesis import strategies as st

import flowsched as fs
from flowsched.run import Ended, Failed, Left, Run, Started, Stopped, TaskCancelledError, TaskLostError, Told
from flowsched.run.dispatch import Dispatcher
from flowsched.run.executor import Work
from flowsched.run.runs import PATIENCE


class World:
    """A dispatcher over a fake executor, and what its callers are told."""

    def __init__(
        self, policy: fs.Policy | None = None, losses: int = 1000, ahead: float = 0.0, holding: bool = False
    ) -> None:
        self.demand: dict[Hashable, float] = {}
        self.executor = FakeExecutor(self.demand, holding)
        scheduler = fs.Scheduler(policy, resources=("cpu",))
        self.dispatch = Dispatcher(scheduler, self.executor, losses, ahead=ahead)
        self.late: list[Told] = []
        self.executor.tell = self.late.append
        self.now = 0.0
        self.ends: dict[Hashable, list[Any]] = {}
        self.tasks: list[Hashable] = []
        self.jobs = 0
        self.job_of: dict[Hashable, Hashable] = {}
        self.smaller: set[Hashable] = set()  # machines that became so while they were in use

    def machine(self, name: str, cpus: float = 4) -> None:
        self.executor.machines[name] = cpus
        self.dispatch.hear(fs.MachineAdded(name, {"cpu": cpus}), self.now)

    def submit(
        self, count: int, cpu: float = 1, retries: int = 0, time_limit: float | None = None, **job: Any
    ) -> list[str]:
        self.jobs += 1
        names = [f"{self.jobs}.{i}" for i in range(count)]
        self.demand.update(dict.fromkeys(names, cpu))
        self.tasks += names
        work = []
        for name in names:
            ends = self.ends[name] = []
            done = lambda value, error, ends=ends: ends.append(error if error is not None else value)  # noqa: E731
            work.append(Work(name, f"do {name}", done, time_limit))
            self.job_of[name] = self.jobs
        tasks = [fs.Task(name, {"cpu": cpu}, retries=retries or None) for name in names]
        self.dispatch.submit(fs.JobSubmitted(self.jobs, tasks, **job), work)
        return names

    def hear(self, told: Told) -> None:
        self.dispatch.hear(told, self.now)
        self.check()

    def round(self) -> None:
        self.dispatch.overdue(self.now)
        self.dispatch.round(self.now)
        self.check()

    def runs_of(self, task: str) -> list[int]:
        return [number for number, run in self.executor.running.items() if run.task == task]

    def check(self) -> None:
        """The books agree with each other, and with what the callers know."""
        dispatch, cluster = self.dispatch, self.dispatch.scheduler.cluster
        dispatch.flush()
        assert all(len(ends) <= 1 for ends in self.ends.values())
        assert {task for task, ends in self.ends.items() if not ends} == set(dispatch.work) == set(cluster.tasks)
        placed = {task: cluster.placement(task) for task in cluster.tasks if cluster.placement(task) is not None}
        assert {task: active.run.machine for task, active in dispatch.runs.of.items()} == placed
        assert set(dispatch.runs.by_number) == {n for runs in dispatch.runs.on.values() for n in runs}
        started = {n for n in dispatch.runs.by_number if n not in dispatch.runs.held}
        assert len(started) == dispatch.active
        assert {r.number for r in dispatch.running()} <= started
        busy = {active.run.machine for active in dispatch.runs.by_number.values() if not active.counted}
        roomless, held_back = set(), set()
        waits = lambda run: run.machine in busy or run.task in dispatch.runs.stopping  # noqa: E731
        gangs = {one.run.gang for one in dispatch.runs.held.values() if waits(one.run)} - {None}
        for active in dispatch.runs.by_number.values():
            machine = active.run.machine
            if active.held and active.run.gang in gangs:
                held_back.add(machine)
            if machine in held_back and machine not in busy:  # for the others of a gang
                assert active.since == math.inf
            elif active.since == math.inf and machine not in busy and active.run.task not in dispatch.runs.stopping:
                # It waits for room, or for its turn; only an executor that holds it back was told of it.
                taken = (dispatch.ahead._rooms[machine].taken[0] - dispatch.ahead._rooms[machine].left[0]) / 1e6
                assert machine in roomless or taken + self.demand[active.run.task] > self.executor.machines[machine]
                assert active.held or (active.waits and active.run.number in self.executor.held)
                roomless.add(machine)
            elif active.held:
                assert machine in busy or active.run.task in dispatch.runs.stopping
        assert roomless <= dispatch.ahead._beyond | self.smaller
        for machine, room in dispatch.ahead._rooms.items():
            those = [
                active.run.task
                for active in dispatch.runs.by_number.values()
                if active.run.machine == machine and active.since < math.inf
            ]
            assert room.taken[0] == 1e6 * sum(self.demand.get(task, 1) for task in those)
            assert room.taken[0] - room.left[0] >= 0
            assert room.taken[0] - room.left[0] <= room.capacity[0] or machine in self.smaller
            assert len(room.since) == len(those) - sum(
                active.left for active in dispatch.runs.by_number.values() if active.run.machine == machine
            )
            assert (
                machine in dispatch.ahead._beyond
                or machine in dispatch.refused
                or cluster.machines[machine].machine.capacity["cpu"] == self.executor.machines[machine]
            )
        assert set(cluster.jobs) == {self.job_of[task] for task in dispatch.work}
        assert {task: active.counted for task, active in dispatch.runs.of.items()} == {
            task: cluster.tasks[task].run for task in placed
        }
        assert not any(active.counted for active in dispatch.runs.stopping.values())
        assert not cluster.stale_events

    def finish(self) -> None:
        """All that runs ends, all machines are there: every task ends."""
        self.machine("m0"), self.machine("m1")
        for _ in range(200):
            self.now += PATIENCE
            self.round()
            while self.late:
                self.hear(self.late.pop(0))
            for number in [*self.executor.running, *self.executor.left]:
                self.hear(self.executor.end(number, "stopped" if number in self.executor.asked else "ended"))
            if not self.dispatch.work and not self.dispatch.active:
                break
        self.check()
        assert all(len(self.ends[task]) == 1 for task in self.tasks)
        assert not self.dispatch.active and not self.dispatch.runs.held and not self.executor.over
        self.round()
        assert not self.dispatch.ahead._beyond


STEP = st.tuples(
    st.sampled_from(
        "submit submit urgent gang limited cancel round round round machine shrink shrink odd remove fail vanish begin leave leave end end failed lost stopped "
        "swallow late repeat unknown refuse wait".split()
    ),
    st.integers(0, 7),
)


@settings(max_examples=effort(50, 2000))
@given(st.lists(STEP, min_size=5, max_size=60), st.sampled_from([0.0, 0.4, 5.0]), st.booleans())
def test_histories(steps: list[tuple[str, int]], ahead: float, holding: bool) -> None:
    policy = fs.Policy(preemption=fs.PreemptionCost(), waiting=fs.WaitCost(first=5))
    world = World(policy, ahead=ahead, holding=holding)
    executor, told = world.executor, list[Told]()
    world.machine("m0")
    for what, i in steps:
        world.now += 0.5
        running = [*executor.left, *executor.running]
        number = running[i % len(running)] if running else 0
        match what:
            case "submit":
                world.submit(1 + i % 3, 1 + i % 2, retries=i % 2, priority=5)
            case "urgent":
                world.submit(1, 3, priority=0)
            case "gang":
                world.submit(2, 2, retries=9, priority=1, gang=2)
            case "limited":
                world.submit(2, 1, retries=1, time_limit=2.0, priority=5)
            case "cancel" if world.tasks:
                world.dispatch.cancel(world.tasks[i % len(world.tasks)], world.now)
            case "round":
                world.round()
            case "machine" if f"m{i % 3}" not in executor.machines:
                world.machine(f"m{i % 3}")
            case "machine":  # told twice
                world.hear(fs.MachineAdded(f"m{i % 3}", {"cpu": executor.machines[f"m{i % 3}"]}))
            case "shrink" if f"m{i % 3}" in executor.machines:
                executor.machines[f"m{i % 3}"] = 1 + i % 4
                world.smaller.add(f"m{i % 3}")
                world.hear(fs.MachineUpdated(f"m{i % 3}", {"cpu": 1 + i % 4}))
            case "odd":  # a description that the scheduler cannot take
                one = world.dispatch.scheduler.cluster.machines.get(f"m{i % 3}")
                world.hear((fs.MachineAdded, fs.MachineUpdated)[i % 2](f"m{i % 3}", {"disk": 1}))
                assert one is None or one.failed or one.drained
            case "remove" | "fail":
                executor.lose(f"m{i % 3}")
                world.hear((fs.MachineRemoved if what == "remove" else fs.MachineFailed)(f"m{i % 3}"))
            case "vanish" if (
                f"m{i % 3}" in executor.machines
            ):  # it went and came back smaller, and its going was not told
                executor.lose(f"m{i % 3}")
                executor.machines[f"m{i % 3}"] = 2
                world.hear(fs.MachineRemoved(f"m{i % 3}"))
                world.hear(fs.MachineAdded(f"m{i % 3}", {"cpu": 2}))
            case "begin" if running:
                world.hear(Started(number))
            case "leave" if number in executor.running:
                world.hear(executor.leave(number))
                world.hear(Left(number))
            case "end" | "failed" | "lost" | "stopped" if running:
                told.append(executor.end(number, "ended" if what == "end" else what))
                world.hear(told[-1])
            case "swallow" if (
                number in executor.asked
            ):  # the end of a run that was to stop is never told: it is asked again
                executor.end(number, "stopped")
            case "late" if world.late:
                told.append(world.late.pop(i % len(world.late)))
                world.hear(told[-1])
            case "repeat" if told:
                stale = world.dispatch.stats["stale"]
                world.hear(told[i % len(told)])
                assert world.dispatch.stats["stale"] == stale + 1
            case "unknown":
                world.hear((Ended, Stopped, Started)[i % 3](10**9 + i))
            case "refuse":
                executor.refuses = i % 2 == 0
            case "wait":
                world.now += PATIENCE
                world.dispatch.overdue(world.now)
        world.check()
    executor.refuses = False
    world.finish()


Displaced = tuple[World, str, str, int]


@pytest.fixture
def displaced() -> Displaced:
    """A machine of one core, the task that runs there, the one that has taken its place, and the run that is stopping."""
    world = World(fs.Policy(preemption=fs.PreemptionCost()))
    world.machine("m0", 1)
    (low,) = world.submit(1, priority=5)
    world.round()
    (urgent,) = world.submit(1, priority=0)
    world.round()
    (number,) = world.executor.asked
    return world, low, urgent, number


def test_a_task_that_makes_way_is_stopped_before_the_other_starts() -> None:
    world = World(fs.Policy(preemption=fs.PreemptionCost()))
    world.machine("m0", 4)
    low = world.submit(4, priority=5)
    world.round()
    urgent = world.submit(1, 4, priority=0)
    world.round()
    assert len(world.executor.asked) == 4 and not world.runs_of(urgent[0])
    for number in world.executor.asked[:3]:
        world.hear(world.executor.end(number, "stopped"))
    assert not world.runs_of(urgent[0])
    world.hear(world.executor.end(world.executor.asked[3], "stopped"))
    assert world.runs_of(urgent[0])
    assert world.dispatch.stats["stopped"] == 4
    world.hear(world.executor.end(world.runs_of(urgent[0])[0], "ended"))
    world.round()
    assert all(world.runs_of(task) for task in low)
    world.finish()


@pytest.mark.parametrize("going", ["stopped", "machine gone"])
def test_a_gang_starts_at_once_when_the_last_of_its_machines_is_free(going: str) -> None:
    """It would hold the room where there is some, and wait in vain, if it began there before."""
    world = World(fs.Policy(preemption=fs.PreemptionCost()))
    world.machine("m0", 2)
    world.submit(1, 2, priority=5)
    world.round()
    world.machine("m1", 2)
    gang = world.submit(2, 2, priority=0, gang=2)
    world.round()
    placement = world.dispatch.scheduler.cluster.placement
    assert {placement(task) for task in gang} == {"m0", "m1"}
    assert not any(world.runs_of(task) for task in gang)
    (number,) = world.executor.asked
    if going == "stopped":
        world.hear(world.executor.end(number, "stopped"))
        runs = [world.executor.running[world.runs_of(task)[0]] for task in gang]
        assert [run.gang for run in runs] == [2, 2]
        assert {run.number for run in world.executor.starts[-2:]} == {run.number for run in runs}
    else:  # the scheduler leaves the other one where it is, and nothing has to stop for that
        world.executor.lose("m0")
        world.hear(fs.MachineRemoved("m0"))
        assert [placement(task) for task in gang if world.runs_of(task)] == ["m1"]
    world.finish()


def test_a_task_that_goes_elsewhere_starts_there_after_it_has_stopped(displaced: Displaced) -> None:
    world, low, urgent, number = displaced
    world.machine("m1", 1)
    world.round()
    assert world.dispatch.scheduler.cluster.placement(low) == "m1"
    assert world.runs_of(low) == [number]
    world.hear(world.executor.end(number, "stopped"))
    assert world.executor.running[world.runs_of(low)[0]].machine == "m1"
    assert world.runs_of(urgent)
    world.finish()


def test_a_task_that_is_done_before_it_stops_does_not_run_again(displaced: Displaced) -> None:
    world, low, urgent, number = displaced
    world.hear(world.executor.end(number, "ended"))
    assert world.ends[low] == [f"result of {low}"]
    assert world.runs_of(urgent)
    world.finish()
    assert len(world.executor.starts) == 2


def test_retries_and_losses_are_counted_apart() -> None:
    world = World(losses=2)
    world.machine("m0", 1)
    (task,) = world.submit(1, retries=1)
    for how in ("lost", "failed", "lost"):
        world.round()
        world.hear(world.executor.end(*world.runs_of(task), how))
        assert not world.ends[task]
    world.round()
    world.hear(world.executor.end(*world.runs_of(task), "failed"))
    (error,) = world.ends[task]
    assert str(error) == "failed"
    (task,) = world.submit(1, retries=1)
    for _ in range(3):
        assert not world.ends[task]
        world.round()
        world.executor.lose("m0")
        world.hear(fs.MachineRemoved("m0"))
        world.machine("m0", 1)
    assert isinstance(world.ends[task][0], TaskLostError)


def test_a_failure_is_followed_by_a_rest_and_a_run_elsewhere() -> None:
    world = World()
    world.machine("m0", 1)
    world.machine("m1", 1)
    task = "own"
    ends: list[Any] = []
    world.ends[task], world.job_of[task] = ends, task
    work = Work(task, "do it", lambda value, error: ends.append(error))
    world.dispatch.submit(fs.JobSubmitted(task, [fs.Task(task, {"cpu": 1}, retries=1, backoff=5.0)]), [work])
    world.round()
    world.hear(world.executor.end(*world.runs_of(task), "lost"))
    world.round()
    world.hear(world.executor.end(*world.runs_of(task), "failed"))
    world.now = 1.0
    world.round()
    assert not world.runs_of(task) and 5.0 <= world.dispatch.wake <= 6.0
    world.now = world.dispatch.wake
    world.round()
    lost, failed, third = (run.machine for run in world.executor.starts)
    assert {failed, third} == {"m0", "m1"} and lost == failed and not ends
    world.hear(world.executor.end(*world.runs_of(task), "failed"))
    assert [str(error) for error in ends] == ["failed"]


def test_a_time_limit_stops_the_run_and_holds_its_room_until_it_has_stopped() -> None:
    world = World()
    world.machine("m0", 1)
    (slow,) = world.submit(1, time_limit=10.0)
    (other,) = world.submit(1)
    world.round()
    (number,) = world.runs_of(slow)
    world.now = 4.0
    world.hear(Started(number))
    world.hear(Started(number))
    world.now = 13.0
    world.round()
    assert not world.executor.asked
    world.now = 14.0
    assert world.dispatch.wake <= world.now
    world.round()
    assert world.executor.asked == [number] and not world.runs_of(other)
    world.now += PATIENCE
    world.round()
    assert world.executor.asked == [number, number]
    world.hear(world.executor.end(number, "stopped"))
    assert isinstance(world.ends[slow][0], fs.TimeLimitError)
    world.round()
    assert world.runs_of(other)


def test_a_cancelled_task_ends_after_its_run() -> None:
    world = World()
    world.machine("m0", 1)
    running, waiting = world.submit(2)
    world.round()
    world.dispatch.cancel(waiting, world.now)
    world.dispatch.cancel(running, world.now)
    world.check()
    assert isinstance(world.ends[waiting][0], TaskCancelledError) and not world.ends[running]
    world.hear(world.executor.end(*world.runs_of(running), "failed"))
    assert isinstance(world.ends[running][0], TaskCancelledError)


def test_a_new_task_of_a_cancelled_ones_name_is_another_one(displaced: Displaced) -> None:
    world, low, urgent, number = displaced
    world.dispatch.cancel(low, world.now)
    world.check()
    ends: list[Any] = world.ends[low].copy()
    again = world.ends[low] = []
    world.job_of[low] = "again"
    work = Work(low, "do it again", lambda value, error: again.append(value))
    world.dispatch.submit(fs.JobSubmitted("again", [fs.Task(low, {"cpu": 1})]), [work])
    world.hear(world.executor.end(number, "ended"))
    assert isinstance(ends[0], TaskCancelledError) and again == []
    world.finish()
    assert again == [f"result of {low}"]
    assert world.ends[urgent] == [f"result of {urgent}"]


def test_a_machine_that_is_refused_is_counted() -> None:
    world = World()
    world.hear(fs.MachineAdded("m0", {"cpu": -1}))
    world.hear(fs.MachineRemoved("m9"))
    assert world.dispatch.stats == Counter(refused=1, stale=1)


def test_a_description_that_is_refused_is_kept_and_tried_again() -> None:
    world = World()
    machines = world.dispatch.scheduler.cluster.machines
    world.hear(fs.MachineAdded("odd", {"disk": 1}, "r", slots=3))
    with pytest.raises(fs.InputError, match="all machines are refused: machine 'odd'.*'disk'"):
        world.dispatch.check_machines()
    world.machine("m0")
    world.dispatch.check_machines()
    world.executor.machines["odd"] = 2
    world.hear(fs.MachineUpdated("odd", labels={"a": "b"}))  # of the same odd capacity
    assert [*machines] == ["m0"] and [*world.dispatch.refused] == ["odd"]
    world.hear(fs.MachineUpdated("odd", {"cpu": 2}))
    told = machines["odd"].machine
    assert (told.rack, told.slots, told.labels, told.capacity) == ("r", 3, {"a": "b"}, {"cpu": 2})
    assert not world.dispatch.refused
    names = world.submit(5)
    world.round()
    world.hear(fs.MachineUpdated("m0", {"cpu": float("nan")}))
    assert machines["m0"].drained and len(world.executor.running) == 5
    world.executor.machines["m0"] = 3
    world.smaller.add("m0")
    world.hear(fs.MachineUpdated("m0", {"cpu": 3}))
    assert not machines["m0"].drained and not world.dispatch.refused and names
    world.hear(fs.UsageSampled("nobody", {"cpu": 1}))
    world.hear(fs.MachineDrained("m7")), world.hear(fs.MachineUpdated("m7"))
    assert world.dispatch.stats["refused"] == 4 and world.dispatch.stats["stale"] == 2


def test_what_is_adopted_may_be_more_than_a_machine_has() -> None:
    world = World()
    world.machine("m0", 6)
    world.submit(8)
    world.round()
    before = [Run(number, run.task, run.machine) for number, run in world.executor.running.items()]
    world.executor.machines["m0"] = 4
    world.smaller.add("m0")
    work, world.dispatch = world.dispatch.work, Dispatcher(fs.Scheduler(resources=("cpu",)), world.executor, ahead=0.0)
    tasks = [fs.Task(name, {"cpu": 1}) for name in work]
    world.dispatch.submit(fs.JobSubmitted(1, tasks), work.values())
    world.dispatch.recover([fs.MachineAdded("m0", {"cpu": 4})], before, 5.0)
    world.check()
    assert len(world.dispatch.running()) == 6 and not world.executor.asked
    for left in (5, 4, 4):
        world.hear(world.executor.end(next(iter(world.executor.running)), "ended"))
        world.round()
        assert len(world.executor.running) == left
    world.finish()


@pytest.mark.parametrize("known", [True, False])
def test_the_next_driver_takes_over_what_runs(known: bool) -> None:
    """With the scheduler of before; or with one that has not heard of the starts, as after a power failure."""
    world = World()
    world.machine("m0", 3)
    names = world.submit(4)
    if known:
        world.round()
    else:
        for number, task in enumerate(names[:3], 1):
            world.executor.start(Run(number, task, "m0"))
    gone, kept, ended = (world.runs_of(task)[0] for task in names[:3])
    del world.executor.running[gone]
    stray = Run(77, "of another life", "m0")
    world.executor.running[77] = stray
    before = [Run(number, run.task, run.machine) for number, run in world.executor.running.items()]
    said = world.executor.end(ended, "ended")
    work, world.dispatch = world.dispatch.work, Dispatcher(world.dispatch.scheduler, world.executor)
    world.dispatch.attach(work.values())
    world.dispatch.recover([fs.MachineAdded("m0", {"cpu": 3}), said], before, 5.0)
    world.check()
    assert world.executor.asked == [77] and world.ends[names[2]] == [f"result of {names[2]}"]
    world.round()
    assert world.runs_of(names[1]) == [kept]
    assert not world.runs_of(names[0]), "the stray one has to end first"
    world.hear(world.executor.end(77, "failed"))
    assert len(world.runs_of(names[0])) == 1 and world.runs_of(names[0])[0] > 77
    world.finish()


def nine_tasks_for_two_places(world: World) -> list[str]:
    """Two of them have ended, so that the driver looks ahead; return their names."""
    world.machine("m0", 2)
    names = world.submit(9)
    world.round()
    for _ in range(2):
        world.now += 0.1
        world.hear(world.executor.end(next(iter(world.executor.running)), "ended"))
        world.round()
    return names


def test_a_run_that_had_no_room_is_no_loss_of_its_task() -> None:
    world = World(losses=0, ahead=1.0, holding=True)
    names = nine_tasks_for_two_places(world)
    began = {run.task for run in world.executor.running.values()}
    told = {run.task for run in world.executor.held.values()}
    assert len(began) == 2 and told
    world.executor.lose("m0")
    world.hear(fs.MachineRemoved("m0"))
    assert {name for name in names if world.ends[name] and isinstance(world.ends[name][0], TaskLostError)} == began
    world.finish()
    assert all(world.ends[name] == [f"result of {name}"] for name in told)


def test_the_next_driver_knows_what_a_machine_really_has() -> None:
    """The books of the one before gave it more, for runs that were not started."""
    world = World(ahead=1.0)
    names = nine_tasks_for_two_places(world)
    cluster, before = world.dispatch.scheduler.cluster, list(world.executor.running.values())
    assert cluster.machines["m0"].machine.capacity["cpu"] > 2 and len(world.dispatch.runs.held) > 0
    work, world.dispatch = world.dispatch.work, Dispatcher(world.dispatch.scheduler, world.executor, ahead=0.0)
    world.dispatch.attach(work.values())
    world.dispatch.recover([fs.MachineAdded("m0", {"cpu": 2})], before, 5.0)
    world.check()
    world.round()
    assert cluster.machines["m0"].machine.capacity["cpu"] == 2
    assert list(world.executor.running.values()) == before and not world.executor.asked
    world.finish()
    assert world.dispatch.stats["lost"] == 0 and all(world.ends[name] == [f"result of {name}"] for name in names)


def test_a_machine_that_is_not_there_any_more_is_removed() -> None:
    world = World()
    world.machine("m0", 1), world.machine("m1", 1)
    names = world.submit(2)
    world.round()
    there = next(run for run in world.executor.running.values() if run.machine == "m1")
    work, world.dispatch = world.dispatch.work, Dispatcher(world.dispatch.scheduler, world.executor)
    world.executor.lose("m0")
    world.dispatch.attach(work.values())
    world.dispatch.recover([fs.MachineAdded("m1", {"cpu": 1})], [there], 5.0)
    world.check()
    assert [run.task for run in world.dispatch.running()] == [there.task]
    world.finish()
    assert all(len(world.ends[name]) == 1 for name in names)


def test_an_error_of_a_run_that_failed_is_the_callers() -> None:
    world = World()
    world.machine("m0", 1)
    (task,) = world.submit(1)
    world.executor.refuses = True
    world.round()
    world.check()
    assert isinstance(world.ends[task][0], OSError)
    world.hear(Failed(1, RuntimeError("late")))
    assert world.dispatch.stats["stale"] == 1
