"""What executors have in common: the machines that are told, acts under way, and records of runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowsched as fs
from flowsched.run import Run
from flowsched.run.adapter import Adapter, Folder, Held, record, recorded

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
    first.file(runs[0], "json.new").write_text('{"run"')  # what a kill leaves
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
