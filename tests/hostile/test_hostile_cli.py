"""The command line under bad circumstances: Ctrl-C at random moments, readers that go away, full disks, absurd arguments.

Whatever happens, there is no traceback, no half-written file, and an exit status that says what it was.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from effort import FUZZ, effort

import flowsched as fs
from flowsched import cli, sim
from flowsched.cli import endings
from flowsched.files import replace
from flowsched.sim import AuditError

PROGRAM = (sys.executable, "-c", "from _flowsched_cli import main; main()")
SMALL = ("--scale", "0.02", "--limit", "80")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals, pipes and /dev/full")


def limited() -> None:
    """As much memory as a command may need, and no more."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def started(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "preexec_fn": limited}
    return subprocess.Popen([*PROGRAM, *map(str, arguments)], **{**given, **options})


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, (out or b"").decode(), (err or b"").decode()


def calm(err: str) -> None:
    """An error of a line or two."""
    assert "Traceback" not in err and "Exception ignored" not in err, err[-2000:]
    assert len(err) < 5000


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(cli.application(), list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "run.journal"
    assert invoke("simulate", *SMALL, "--journal", path, "--quiet").exit_code == 0
    return path


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "net.min"
    n, rng = 3000, random.Random(1)
    arcs = [
        (rng.randrange(1, n + 1), rng.randrange(1, n + 1), rng.randrange(9), rng.randrange(99)) for _ in range(4 * n)
    ]
    arcs += [(i, i % n + 1, 10**6, 1000) for i in range(1, n + 1)]
    lines = [f"p min {n} {len(arcs)}", "n 1 100", f"n {n // 2} -100", *(f"a {t} {h} 0 {c} {w}" for t, h, c, w in arcs)]
    path.write_text("\n".join(lines) + "\n")
    return path


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

    monkeypatch.setattr("flowsched.experiments.run", run)
    result = invoke("bench", "sequence")
    assert result.exit_code == 130 and result.stderr == "Interrupted.\n"


def test_a_mistake_of_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr("flowsched.experiments.run", run)
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


STREAMS = ["simulate", "solve", *(["replay", "bench", "help"] if FUZZ else [])]


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


def test_unread_progress_ends_nothing(tmp_path: Path) -> None:
    process = started("simulate", *SMALL, "--json", tmp_path / "s.json", stdout=subprocess.DEVNULL)
    assert process.stderr is not None
    process.stderr.close()
    process.stderr = None
    assert process.wait(timeout=120) == 0
    whole(tmp_path / "s.json")


# -- files ---------------------------------------------------------------------------------------------------------------


def test_two_outputs_are_never_one_file(tmp_path: Path, journal: Path) -> None:
    here = tmp_path / "x"
    (tmp_path / "link").symlink_to(here)
    (tmp_path / "old").write_text("old")
    os.link(tmp_path / "old", tmp_path / "hard")
    (tmp_path / "sub").mkdir()
    for one, other in (
        (here, here),
        (here, tmp_path / "link"),
        (here, tmp_path / "sub" / ".." / "x"),
        (tmp_path / "old", tmp_path / "hard"),
    ):
        for first, second in (("--json", "--report"), ("--json", "--journal"), ("--report", "--journal")):
            result = invoke("simulate", *SMALL, first, one, second, other)
            assert result.exit_code == 2 and "are the same file" in result.stderr, result.stderr
            assert result.stdout == "" and not here.exists() and (tmp_path / "old").read_text() == "old"
    before = journal.read_bytes()
    (tmp_path / "journal").symlink_to(journal)
    for path in (journal, tmp_path / "journal"):
        result = invoke("replay", journal, "--json", path)
        assert result.exit_code == 2 and "are the same file" in result.stderr
        assert journal.read_bytes() == before
    text = "p min 2 1\nn 1 1\nn 2 -1\na 1 2 0 1 1\n"
    (tmp_path / "p.min").write_text(text)
    assert invoke("solve", tmp_path / "p.min", "-o", tmp_path / "p.min").exit_code == 2
    assert (tmp_path / "p.min").read_text() == text
    assert invoke("simulate", *SMALL, "--json", "/dev/null", "--report", "/dev/null").exit_code == 0


def test_an_output_that_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowsched.cli.simulate._workload", lambda options: pytest.fail("it has begun"))
    assert "no such directory" in invoke("simulate", "--json", tmp_path / "no" / "x").stderr
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    result = invoke("simulate", "--json", tmp_path / "x")
    assert result.exit_code == 2 and "no file can be written in" in result.stderr


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    replace(path, "äöü")
    assert path.read_text(encoding="utf-8") == "äöü"
    os.chmod(path, 0o640)
    (tmp_path / "link").symlink_to("x")
    replace(tmp_path / "link", b"new")
    assert path.read_bytes() == b"new" and (tmp_path / "link").is_symlink() and path.stat().st_mode & 0o777 == 0o640
    for broken in ("fsync", "replace", "fchmod"):
        for error in (KeyboardInterrupt, PermissionError, MemoryError):

            def fail(*_: Any, error: Any = error) -> None:
                raise error

            with monkeypatch.context() as patch, pytest.raises(error):
                patch.setattr(os, broken, fail)
                replace(path, b"half")
            assert path.read_bytes() == b"new" and sorted(p.name for p in tmp_path.iterdir()) == ["link", "x"]
    mask = os.umask(0o027)
    try:
        replace(tmp_path / "y", "")
        assert (tmp_path / "y").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(mask)
    with pytest.raises(IsADirectoryError):
        replace(tmp_path, "a directory")


# -- arguments -----------------------------------------------------------------------------------------------------------

ABSURD = [
    "1e308",
    "-1",
    "0",
    "nan",
    "inf",
    "1e-320",
    "1" + "0" * 30,
    "1" + "0" * 400,
    "1" + "0" * 5000,
    "x" * 100_000,
    "\x1b[2J",
    "\u202e",
]
OPTIONS = [
    "--load",
    "--scale",
    "--limit",
    "--interval",
    "--until",
    "--compress",
    "--seed",
    "--variant",
    "--policy",
    "--preempted",
    "--trace",
]


@pytest.mark.parametrize("option", OPTIONS)
def test_an_absurd_argument_is_a_short_error_or_does_no_harm(option: str) -> None:
    for value in ABSURD:
        if option == "--until" and value in ("0", "1" + "0" * 30):
            continue
        small = [x for x in SMALL if option not in SMALL] or []
        result = invoke("simulate", *(small or ("--limit", "20")), "--quiet", option, value)
        assert result.exit_code in (0, 2, 74), (option, value[:20], result.stderr[-500:])
        calm(result.stderr)
        assert len(result.stderr) < 1200, result.stderr[:300]
        assert result.stderr.replace("\n", "").isprintable()
        assert result.exit_code == 0 or result.stderr.strip()


def test_absurd_arguments_of_other_commands(tmp_path: Path, journal: Path, problem: Path) -> None:
    for arguments in (
        ("solve", problem, "--time-limit", "1e308"), ("solve", problem, "--time-limit", "1" + "0" * 400), ("solve", "x" * 200),
        ("solve", problem, "--algorithm", "x" * 10_000), ("replay", journal, "--policy", "x" * 10_000), ("x" * 10_000,),
        ("replay", journal, "--policy", "os:path"), ("replay", journal, "--policy", ":"), ("replay", tmp_path),
        ("bench", "x" * 10_000), ("bench", "sequence", "--data", "x" * 300), ("solve", tmp_path), ("--" + "x" * 10_000,),
    ):  # fmt: skip
        if arguments[:2] == ("bench", "sequence"):
            continue
        result = invoke(*arguments)
        calm(result.stderr)
        assert result.exit_code in (0, 1, 2, 3, 5) and len(result.stderr) < 1500, (arguments[0], result.stderr[:500])


def test_what_an_error_quotes_is_printable_and_short() -> None:
    text = endings.shortened("a\x1b[31mred\u202e " + "x" * 10_000 + " /" + "d" * 200 + "/" + "e" * 200 + "\nsecond")
    assert "\x1b" not in text and "\u202e" not in text and "x" * 81 not in text
    assert "/" + "d" * 200 + "/" + "e" * 200 in text and text.endswith("\nsecond")
    assert len(endings.shortened("word " * 100_000)) <= 4000


# -- reports -------------------------------------------------------------------------------------------------------------


def test_nothing_in_a_report_is_markup_that_came_from_outside(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&$\\frac{1}{2}$"
    machines = [fs.Machine(evil, {"cpu": 1, "mem": 1, "gpu": 1}, labels={"gpu_model": evil})]
    jobs = [
        sim.Arrival(
            float(i),
            fs.JobSubmitted(f"{evil}{i}", [fs.Task(f"{evil}{i}", {"cpu": 1}, {evil: [evil]})], user=evil),
            [5.0],
        )
        for i in range(3)
    ]
    work = sim.Workload(evil, jobs, machines, facts={evil: evil}, units={"cpu": evil})
    metrics = sim.Simulation(fs.Scheduler(), work, facts={"policy": evil}).run()
    path = tmp_path / "report.html"
    sim.write_report(metrics, path)
    text = path.read_text()
    assert "<script" not in text and "onerror=alert(2)>" not in text and "<img src=x" not in text
    assert "&lt;script&gt;" in text


def test_an_audit_that_fails_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise AuditError("at 0 s: machine 'm' is above capacity")

    monkeypatch.setattr(sim.Simulation, "run", broken)
    result = invoke("simulate", *SMALL)
    assert result.exit_code == 1 and "above capacity" in result.stderr
