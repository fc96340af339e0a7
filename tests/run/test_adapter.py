"""What executors have in common: the machines that are told, acts under way, and records of runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

import flowsched as fs
from flowsched.run import Driver, Ended, ExecutorError, Run, Stopped
from flowsched.run.adapter import GARBLED, Adapter, Folder, Held, record, recorded

MACHINES = st.dictionaries(
    st.sampled_from("abc"), st.tuples(st.builds(lambda cpus: {"cpu": cpus}, st.integers(1, 3)), st.booleans())
)
"""What there is: capacities, and marks of machines that take no new tasks."""


@given(st.lists(MACHINES, max_size=8), st.sets(st.sampled_from("abc")))
def test_what_is_shown_is_what_a_scheduler_has(
    views: list[dict[str, tuple[dict[str, float], bool]]], used: set[str]
) -> None:
    sched, adapter = fs.Scheduler(resources=("cpu",)), Adapter[Held]()
    adapter.held = {number: Held(Run(number, number, id)) for number, id in enumerate(used)}
    told: list[Any] = []
    adapter.tell = told.append
    known: set[str] = set()
    for view in views:
        now = {id: fs.MachineAdded(id, has, labels={"name": id}) for id, (has, _) in view.items()}
        unused = {id for id, (_, drained) in view.items() if drained}
        del told[:]
        adapter.show(now, unused)
        sched.apply(*told)
        # A machine that takes no new tasks when it is first seen is told once it does, or where it has runs.
        known = {id for id in view if id in known or id not in unused or id in used}
        there = {id: (m.drained, m.machine.capacity) for id, m in sched.cluster.machines.items()}
        assert there.keys() == known
        for id, (drained, capacity) in there.items():
            assert drained == (id in unused) and (drained or capacity == view[id][0])
        del told[:]
        adapter.show(now, unused)
        assert not told


def test_acts_are_waited_for_and_then_cancelled() -> None:
    ended: list[str] = []

    async def act(name: str, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
            ended.append(name)
        except asyncio.CancelledError:
            ended.append(f"{name} was cancelled")
            raise

    async def look() -> None:
        ended.append("look")
        raise OSError

    async def main() -> None:
        adapter = Adapter()
        adapter.later(act("short", 0.01))
        adapter.later(act("long", 60.0))
        await adapter.end_acts(0.2)
        assert ended == ["short", "long was cancelled"]
        del ended[:]
        adapter.later(adapter.follow(look, 0.01, OSError))
        while len(ended) < 3:
            await asyncio.sleep(0.01)
        await adapter.end_acts()

    asyncio.run(main())


def test_records_are_found_by_the_next_driver(tmp_path: Path) -> None:
    runs = [Run(number, ("task", number), "m", (0, 2)) for number in (2, 1)]
    first = Folder(tmp_path / "folder", sync=True)
    assert first.open() == []
    for run in runs:
        first.write(run, job=f"job {run.number}")
    first.file(runs[0], "json").with_name(".2.json.a.tmp").write_text('{"run"')  # what a kill leaves
    second = Folder(tmp_path / "folder", sync=False)
    with pytest.raises(fs.InputError, match="another driver"):
        second.open()
    first.close()
    assert second.open() == [(run, recorded(record(run, job=f"job {run.number}"))[1]) for run in reversed(runs)]
    second.remove(runs[0])
    second.remove(runs[0])
    assert [path.name for path in second.path.glob("*.json*")] == ["1.json"]
    second.close()
    temporary = Folder(None, sync=False)
    assert temporary.open() == []
    temporary.write(runs[0])
    temporary.close()
    assert not temporary.path.exists()


# -- what goes wrong in the background -------------------------------------------------------------------------


class Slow(Adapter[Held]):
    """A machine on which runs do nothing, and a look that does what a script says, once for each of its words.

    ``fine``: it answers; ``away``: it does not answer; ``odd``: it raises what nobody expects.  The last one is repeated.
    """

    def __init__(self, script: list[str]) -> None:
        super().__init__()
        self.script, self.looks, self.stopped = script, 0, list[int]()

    async def open(self, tell: Any) -> list[Run]:
        self.tell = tell
        self.show({"m": fs.MachineAdded("m", {"cpu": 1})})
        self.later(self.follow(self.look, 0.001, OSError))
        return []

    async def look(self) -> None:
        word = self.script[min(self.looks, len(self.script) - 1)]
        self.looks += 1
        if word == "away":
            raise ConnectionError("nothing there")
        if word == "odd":
            raise KeyError("column")
        if word == "end":
            for held in list(self.held.values()):
                self.finish(held, Ended(held.run.number))

    def start(self, run: Run) -> None:
        self.held[run.number] = Held(run)

    def halt(self, held: Held) -> None:
        self.stopped.append(held.run.number)
        self.finish(held, Stopped(held.run.number))

    def release(self, run: Run) -> None:
        self.held.pop(run.number, None)

    async def close(self) -> None:
        await self.end_acts()


@given(st.lists(st.sampled_from(["fine", "away", "odd"]), max_size=30), st.sampled_from(["end", "odd"]))
@settings(deadline=None, max_examples=effort(15, 400))
def test_a_driver_ends_well_or_with_the_reason_whatever_its_executor_meets(script: list[str], last: str) -> None:
    """Ten odd looks in a row end it, and nothing else does."""

    row = most = 0
    for word in script:
        row = row + 1 if word == "odd" else 0
        most = max(most, row)
    good = last == "end" and most < GARBLED

    async def main() -> None:
        async with asyncio.timeout(20), Driver(fs.Scheduler(resources=("cpu",)), Slow([*script, last])) as driver:
            job = fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})])
            await driver.submit(job, {"t": 1})["t"]

    if good:
        asyncio.run(main())
    else:
        with pytest.raises(ExecutorError, match="Slow cannot go on: KeyError: 'column'"):
            asyncio.run(main())


def test_an_act_that_raises_ends_the_driver_and_stops_what_runs() -> None:
    async def main() -> None:
        executor = Slow(["fine"])

        async def act() -> None:
            raise ZeroDivisionError("by zero")

        driver = Driver(fs.Scheduler(resources=("cpu",)), executor)
        await driver.__aenter__()
        (future,) = driver.submit(fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]), {"t": 1}).values()
        while not driver.running():
            await asyncio.sleep(0.01)
        executor.later(act())
        for waits in (future, driver.drained()):
            with pytest.raises(ExecutorError, match="Slow cannot go on: ZeroDivisionError: by zero") as told:
                await waits
            assert isinstance(told.value.__cause__, ZeroDivisionError)
        with pytest.raises(ExecutorError, match="by zero"):
            await driver.close()
        assert executor.stopped == [1]

    asyncio.run(main())


@given(
    st.text(max_size=60) | st.sampled_from(['{"run": 1}', '{"run": 1, "event": {}}', "[]", "null", "1", '{"run": []}'])
)
def test_a_record_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(fs.InputError, match="the record of a run expected"):
        recorded(text)
