"""Files, arguments and reports of the command line: outputs that collide, absurd values, markup from outside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from commands import SMALL, calm, invoke

import flowsched as fs
from flowsched import sim
from flowsched.boundary.files import replace
from flowsched.cli import endings
from flowsched.sim import AuditError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links and signals")


@pytest.mark.long
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
