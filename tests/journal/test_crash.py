"""Schedulers killed at random moments: what they had been told and had told is there again, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from effort import effort
from fgm_lives import known_of
from lives import flow_of, said, world_of
from mortals import BORN

import flowsched as fs
from flowsched.fgm import FineGrained
from flowsched.policy.serialize import describe

RUNS = effort(4, 200)
CALLS = 150
"""Killed after so many calls at most; it would live for longer."""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")


@pytest.fixture(scope="module")
def mortals() -> Iterator[subprocess.Popen]:
    here = Path(__file__).parents[1] / "support"
    path = os.pathsep.join([str(here), str(Path(fs.__file__).parents[1])])
    with subprocess.Popen(
        [sys.executable, str(here / "mortals.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as process:  # fmt: skip
        yield process
        process.stdin.close()


def killed(mortals: subprocess.Popen, who: str, seed: int, folder: Path) -> list[str]:
    """Let one live until a moment of its own; what it knew to be done."""
    notes = folder / "notes"
    mortals.stdin.write(f"{who} {seed} {9 * CALLS} {folder / 'journal'} {notes}\n")
    mortals.stdin.flush()
    child = int(mortals.stdout.readline())
    random = Random(seed)
    least = random.randrange(CALLS)
    while not notes.exists() or notes.read_bytes().count(b"\n") < least:
        time.sleep(0.001)
        os.kill(child, 0)  # it is alive, or the test fails here
    time.sleep(random.uniform(0, 0.01))
    os.kill(child, signal.SIGKILL)
    assert mortals.stdout.readline() == "ended\n"
    return notes.read_text().splitlines()[1:]


def state_of(sched: fs.Scheduler | FineGrained) -> tuple:
    known = known_of(sched) if isinstance(sched, FineGrained) else None
    return world_of(sched), flow_of(sched), describe(sched.policy), known


@pytest.mark.parametrize(
    ("who", "seed"),
    [("Scheduler", seed) for seed in range(RUNS)]
    + [(who, seed) for who in ("FineGrained", "Quotas") for seed in range(RUNS // 2)],
)
def test_nothing_told_is_lost_and_nothing_happens_twice(
    mortals: subprocess.Popen, tmp_path: Path, who: str, seed: int
) -> None:
    known = killed(mortals, who, seed, tmp_path)
    again = BORN[who][0](seed, tmp_path / "journal")
    assert not (again.recovery.differences if again.recovery else known)  # None: killed before it had begun
    unhurt, life = after(who, seed, known)
    if state_of(again) != state_of(unhurt) and (kept := without_last_round(who, seed, known)) is not None:
        earlier, before = after(who, seed, known[:kept])
        if state_of(again) == state_of(earlier):
            unhurt, life = earlier, before
    if state_of(again) != state_of(unhurt):
        next(life)  # the call that was under way when it was killed had been written down already
    assert state_of(again) == state_of(unhurt)
    assert said(again.schedule(1e6)) == said(unhurt.schedule(1e6))
    again.network.certify()


def after(who: str, seed: int, known: list[str]) -> tuple[fs.Scheduler | FineGrained, Iterator[str]]:
    """One without journal, after the same calls."""
    begin, lives = BORN[who]
    unhurt = begin(seed)
    life = lives(seed, unhurt, 9 * CALLS)
    assert [next(life) for _ in known] == known
    return unhurt, life


def without_last_round(who: str, seed: int, known: list[str]) -> int | None:
    """The number of calls before the last round, if it was neither committed nor followed by what is written."""
    last = max((i for i, name in enumerate(known) if name == "schedule"), default=None)
    if last is None or any(
        name.split()[0] in ("commit", "policy", "compact", "observe", "update", "learn") for name in known[last + 1 :]
    ):
        return None
    events = [after(who, seed, known[:count])[0].cluster.events for count in (last, len(known))]
    return last if events[0] == events[1] else None
