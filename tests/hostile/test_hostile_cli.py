"""The command line under bad circumstances: Ctrl-C at random moments, readers that go away, full disks, absurd arguments.

Whatever happens, there is no traceback, no half-written file, and an exit status that says what it was.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from commands import PROGRAM, SMALL, calm, ended, invoke, started
from effort import FUZZ, effort

import flowsched as fs
from flowsched import cli, sim

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals, pipes and /dev/full")


# -- Ctrl-C --------------------------------------------------------------------------------------------------------------


def commands(folder: Path, journal: Path, problem: Path) -> dict[str, tuple[Sequence[object], Sequence[str]]]:
    """Each command with the files that it writes."""
    return {
        "simulate": (
            ["simulate", *SMALL, "--json", folder / "s.json", "--report", folder / "s.html", "--journal", folder / "s.j"],
            ["s.json", "s.html"],
        ),
        "replay": (["replay", journal, "--json", folder / "r.json"], ["r.json"]),
        "solve": (["solve", problem, "-o", folder / "x.sol", "--certify"], ["x.sol"]),
        "bench": (["bench", "sequence", "--quick", "--json", folder / "b.json", "--plots", folder / "p"], ["b.json"]),
        "help": (["--help"], []),
    }  # fmt: skip


def whole(path: Path) -> None:
    """A file that is there is there in full."""
    if path.suffix == ".json":
        json.loads(path.read_text())
    elif path.suffix == ".html":
        assert path.read_text().rstrip().endswith("</html>")
    elif path.suffix == ".sol":
        assert "\ns " in path.read_text() and path.read_text().endswith("\n")


@pytest.fixture(scope="module")
def durations(tmp_path_factory: pytest.TempPathFactory, journal: Path, problem: Path) -> dict[str, float]:
    """Seconds of each command, undisturbed."""
    found = {"bench": 2.0}
    for name, (arguments, _) in commands(tmp_path_factory.mktemp("whole"), journal, problem).items():
        if name == "bench":
            continue  # it takes many times as long
        begun = time.monotonic()
        code, _, err = ended(started(*arguments))
        found[name] = time.monotonic() - begun
        assert code == 0, err
    return found


@pytest.mark.parametrize("seed", range(effort(1, 40)))
@pytest.mark.parametrize("name", ["simulate", "replay", "solve", "bench", "help"])
@pytest.mark.long
def test_ctrl_c_at_a_random_moment_ends_a_command_without_a_traceback(
    name: str, seed: int, tmp_path: Path, journal: Path, problem: Path, durations: dict[str, float]
) -> None:
    arguments, files = commands(tmp_path, journal, problem)[name]
    rng = random.Random(f"{name}{seed}")
    process = started(*arguments)
    time.sleep(0.06 + rng.random() * durations[name])  # before that it is Python's own start
    process.send_signal(signal.SIGINT)
    if rng.random() < 0.3:  # impatience
        time.sleep(rng.random() * 0.1)
        process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    if "Traceback" in err and "_flowsched_cli" not in err:
        pytest.skip("it came while Python itself started")
    calm(err)
    assert code in (0, 130) and (code == 0 or "Interrupted" in err), (code, err)
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")]
    for file in files:
        if (tmp_path / file).exists():
            whole(tmp_path / file)
        else:
            assert code == 130
    if (tmp_path / "s.j").exists() and (tmp_path / "s.j").stat().st_size:
        assert not fs.replay(tmp_path / "s.j").differences


def test_ctrl_c_while_a_stream_is_solved(problem: Path) -> None:
    process = started("solve", "--incremental", stdin=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(problem.read_bytes() + b"c EOI\n")
    process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, err) == (130, "Interrupted.\n")


def interrupting(at: int) -> Callable[[sim.Progress], None]:
    rounds = 0

    def progress(_: sim.Progress) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == at:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_simulation_tells_what_it_has_measured() -> None:
    work = sim.Workload.model(tasks=80, scale=0.02)
    for at in (1, 5, 20):
        simulation = sim.Simulation(fs.Scheduler(), work)
        with pytest.raises(KeyboardInterrupt):
            simulation.run(progress=interrupting(at))
        metrics = simulation.metrics()
        assert sum(metrics.account().values()) == 80 and metrics.counts["rounds"] == at
        json.dumps(metrics.to_dict())


@pytest.mark.parametrize("seed", range(effort(3, 200)))
@pytest.mark.long
def test_a_simulation_is_measured_whatever_moment_it_was_interrupted_at(seed: int) -> None:
    """In any line of the simulation's own code (calls of the scheduler are whole or have not been)."""
    rng = random.Random(seed)
    work = sim.Workload.model(tasks=60, scale=0.02, seed=seed)
    simulation = sim.Simulation(fs.Scheduler(), work, interval=rng.choice([None, 60.0]))
    left = rng.randrange(1, 4000)

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        if "/flowsched/sim/" not in frame.f_code.co_filename:
            return None
        left -= 1
        if not left:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        simulation.run()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    metrics = simulation.metrics()
    assert sum(metrics.account().values()) == 60
    json.dumps(metrics.to_dict())


def test_a_simulation_that_is_stopped_ends_with_figures_that_agree() -> None:
    work = sim.Workload.model(tasks=80, scale=0.02)
    simulation = sim.Simulation(fs.Scheduler(), work)
    metrics = simulation.run(progress=lambda progress: simulation.stop() if progress.rounds == 10 else None)
    assert metrics.counts["rounds"] == 10 and sum(metrics.account().values()) == 80
    assert metrics.tasks["running"] == metrics.series["running"][-1]
    assert metrics.facts["end"] < sim.Simulation(fs.Scheduler(), work).run().facts["end"]


def test_what_an_interrupt_breaks_on_its_way_out_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise KeyError("half-done")

    monkeypatch.setattr("bench.run", run)
    result = invoke("bench", "sequence", "--quiet")
    assert result.exit_code == 130 and result.stderr == "Interrupted.\n"


def test_a_mistake_of_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr("bench.run", run)
    assert isinstance(CliRunner().invoke(cli.application(), ["bench", "sequence"]).exception, KeyError)


# -- streams -------------------------------------------------------------------------------------------------------------


def writing(folder: Path, journal: Path, problem: Path) -> dict[str, Sequence[object]]:
    return {
        "simulate": ["simulate", *SMALL, "--json", folder / "s.json", "--report", folder / "s.html", "--journal", folder / "s.j"],
        "replay": ["replay", journal, "--json", folder / "r.json"],
        "bench": ["bench", "sequence", "--quick", "--json", folder / "b.json", "--plots", folder / "p"],
        "solve": ["solve", problem],
        "help": ["--help"],
    }  # fmt: skip


STREAMS = [
    "solve",
    *(
        pytest.param(name, marks=pytest.mark.long)
        for name in ["simulate", *(["replay", "bench", "help"] if FUZZ else [])]
    ),
]


@pytest.mark.parametrize("name", STREAMS)
def test_a_reader_that_goes_away_ends_a_command_quietly_with_its_files_written(
    name: str, tmp_path: Path, journal: Path, problem: Path
) -> None:
    arguments = writing(tmp_path, journal, problem)[name]
    process = started(*arguments)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    code, _, err = ended(process)
    calm(err)
    assert code == 141, err
    assert "promise" not in err and "Error" not in err
    for option in ("--json", "--report", "--journal"):
        if option in arguments:
            path = Path(str(arguments[arguments.index(option) + 1]))
            assert path.stat().st_size > 0
            whole(path)
    if name == "bench":
        assert list((tmp_path / "p").iterdir())


@pytest.mark.parametrize("name", STREAMS)
def test_a_full_disk_is_an_error_of_one_line(name: str, tmp_path: Path, journal: Path, problem: Path) -> None:
    arguments = writing(tmp_path, journal, problem)[name]
    with open("/dev/full", "wb") as full:
        code, _, err = ended(started(*arguments, stdout=full))
    calm(err)
    assert code == 74 and "No space left on device" in err.splitlines()[-1], (code, err)


@pytest.mark.parametrize("option", ["--json", "--report", "--journal"] if FUZZ else ["--json"])
def test_a_full_disk_under_a_file_is_an_error_of_one_line(option: str) -> None:
    code, _, err = ended(started("simulate", *SMALL, option, "/dev/full", "--quiet"))
    calm(err)
    assert code in (2, 74) and len(err.splitlines()) == 1, (code, err)


@pytest.mark.parametrize(
    ("closed", "code"),
    [("0<&-", 0), ("1>&-", 74), ("2>&-", 0), ("0<&- 1>&- 2>&-", 74)] if FUZZ else [("0<&- 1>&-", 74)],
)
@pytest.mark.long
def test_closed_streams_are_no_files_of_ours(closed: str, code: int, tmp_path: Path) -> None:
    """The journal must not get the number of the standard output, and what is printed."""
    words = f'exec "$@" {closed}'
    arguments = ["simulate", *SMALL, "--journal", str(tmp_path / "j"), "--json", str(tmp_path / "s.json")]
    done = subprocess.run(
        ["sh", "-c", words, "sh", *PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    calm(done.stderr)
    assert done.returncode == code, done.stderr
    whole(tmp_path / "s.json")
    assert not fs.replay(tmp_path / "j").differences


def test_closed_input_is_empty_input() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 0<&-', "sh", *PROGRAM, "solve", "-"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    calm(done.stderr)
    assert done.returncode == 1 and "no problem line" in done.stderr


@pytest.mark.long
def test_unread_progress_ends_nothing(tmp_path: Path) -> None:
    process = started("simulate", *SMALL, "--json", tmp_path / "s.json", stdout=subprocess.DEVNULL)
    assert process.stderr is not None
    process.stderr.close()
    process.stderr = None
    assert process.wait(timeout=120) == 0
    whole(tmp_path / "s.json")
