"""The file of keys: a request counts exactly if its events have happened, whenever the service was killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from effort import effort

from flowsched.exceptions import JournalError
from flowsched.serve import ToldRequests


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(5, 1000)))
def test_after_any_kill_the_keys_are_those_whose_events_happened(seed: int, tmp_path: Path) -> None:
    """A request is noted, then it happens whole, or is refused, or the service is killed between the two."""
    rng = np.random.default_rng(seed)
    path = tmp_path / "told"
    events, happened, dropped = 0, set[str](), set[str]()
    told = ToldRequests(path, 0)
    for number in range(60):
        key, size = f"k{number}", int(rng.integers(1, 5))
        match rng.integers(5):
            case 0:  # without a key
                events += size
                continue
            case 1:
                told.note(key, "d", events, size)
                told.refuse(key, events)
                dropped.add(key)
            case 2:
                told.note(key, "d", events, size)
                told.close()
                dropped.add(key)
                told = ToldRequests(path, events)
            case 3:
                told.note(key, "d", events, size)
                events += size
                happened.add(key)
                told.close()
                told = ToldRequests(path, events)
            case _:
                told.note(key, "d", events, size)
                events += size
                happened.add(key)
    told.close()
    for _ in range(2):
        told = ToldRequests(path, events)
        assert {key for key in happened | dropped if told.find(key)} == happened
        events += 100
        told.close()


def test_lives_are_counted(tmp_path: Path) -> None:
    for life in (1, 2, 3):
        told = ToldRequests(tmp_path / "told")
        assert told.life == life
        told.close()


def test_the_oldest_keys_are_forgotten(tmp_path: Path) -> None:
    told = ToldRequests(tmp_path / "told", kept=10)
    for i in range(100):
        told.note(f"k{i}", "d", i, 1)
        assert told.find(f"k{i}") and told.find(f"k{max(i - 9, 0)}")
    told.close()
    size = (tmp_path / "told").stat().st_size
    told = ToldRequests(tmp_path / "told", 100, kept=10)
    assert not told.find("k89") and told.find("k90") and (tmp_path / "told").stat().st_size < size < 2000
    told.close()


def test_two_services_do_not_share_a_file(tmp_path: Path) -> None:
    told = ToldRequests(tmp_path / "told")
    with pytest.raises(JournalError, match="in use"):
        ToldRequests(tmp_path / "told")
    told.close()


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "told").write_text("something else, longer than a head\n")
    with pytest.raises(JournalError):
        ToldRequests(tmp_path / "told")
    assert (tmp_path / "told").read_text().startswith("something")
