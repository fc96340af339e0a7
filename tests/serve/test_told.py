"""Keys of requests: a request counts exactly if its events have happened, whenever the service was killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from effort import effort

import flowsched as fs
from flowsched.serve import ToldRequests


def begun(path: Path) -> tuple[fs.Scheduler, ToldRequests]:
    sched = fs.Scheduler(resources=("cpu",), journal=path)
    return sched, ToldRequests(sched.journal)


def request(sched: fs.Scheduler, told: ToldRequests, key: str, *events: fs.Event) -> None:
    """Carry out a request as the service does."""
    before = sched.cluster.events
    told.begin(key, "d")
    sched.apply(*events, atomic=True)
    told.note(key, "d", before, len(events))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(5, 1000)))
def test_after_any_kill_the_keys_are_those_whose_events_happened(seed: int, tmp_path: Path) -> None:
    """A request happens whole, or is refused, or the service is killed before or after it."""
    rng = np.random.default_rng(seed)
    sched, told = begun(tmp_path / "state.db")
    happened, dropped = dict[str, int](), set[str]()
    for number in range(60):
        key, size = f"k{number}", int(rng.integers(1, 5))
        events = [fs.MachineAdded((number, i), {"cpu": 1}) for i in range(size)]
        match rng.integers(6):
            case 0:
                sched.apply(*events)
                continue
            case 1:
                with pytest.raises(fs.DuplicateIdError):
                    request(sched, told, key, *events, events[0])
                dropped.add(key)
            case 2:
                told.begin(key, "d")
                dropped.add(key)
                sched.journal.close()
                sched, told = begun(tmp_path / "state.db")
            case 3:
                sched.compact()
            case kind:
                request(sched, told, key, *events)
                happened[key] = size
                if kind == 4:
                    sched.journal.close()
                    sched, told = begun(tmp_path / "state.db")
    sched.journal.close()
    sched, told = begun(tmp_path / "state.db")
    assert {key: told.find(key).size for key in happened | dict.fromkeys(dropped) if told.find(key)} == happened
    assert all(told.find(key).before + size <= sched.cluster.events for key, size in happened.items())


def test_lives_are_counted(tmp_path: Path) -> None:
    for life in (1, 2, 3):
        sched, told = begun(tmp_path / "state.db")
        assert told.life == life
        if life == 2:
            sched.compact()
        sched.journal.close()


def test_the_oldest_keys_are_forgotten(tmp_path: Path) -> None:
    sched = fs.Scheduler(resources=("cpu",), journal=tmp_path / "state.db")
    told = ToldRequests(sched.journal, kept=10)
    for i in range(100):
        request(sched, told, f"k{i}", fs.MachineAdded(i, {"cpu": 1}))
        assert told.find(f"k{i}") and told.find(f"k{max(i - 9, 0)}") and not told.find(f"k{i - 10}")
    again = ToldRequests(sched.journal, kept=10)
    assert not again.find("k89") and again.find("k90").before == 90


def test_a_request_that_was_refused_names_no_later_call(tmp_path: Path) -> None:
    sched, told = begun(tmp_path / "state.db")
    with pytest.raises(fs.UnknownMachineError):
        request(sched, told, "refused", fs.MachineRemoved("m"))
    sched.apply(fs.MachineAdded("m", {"cpu": 1}))
    assert not ToldRequests(sched.journal).find("refused")
