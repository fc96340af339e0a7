"""Commands that start under odd circumstances, and the reports that every executor has to give."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flowsched as fs
from flowsched.run import Command, Driver, ExitStatusError

NAMES = """PATH IFS ENV BASH_ENV LD_PRELOAD LD_LIBRARY_PATH HOME SHELLOPTS BASHOPTS PWD OLDPWD OPTIND PS4 LC_ALL LANG TERM UID PPID
    RANDOM SECONDS LINENO SHLVL _ POSIXLY_CORRECT CDPATH MAIL TMPDIR PYTHONHOME PYTHONPATH status run file boot mask why sessions
    API_KEY flowsched_control""".split()

VALUES = [
    "",
    "/opt/none/bin",
    " \n\t",
    "a",
    "/none.so",
    "x=y=z",
    "$(touch /none)`id`",
    "'\"\\",
    "ä\n\nö\n",
    "-n",
    "posix:noexec:errexit",
    "0",
]


def environments(count: int, seed: int, names: Sequence[str] = NAMES) -> list[dict[str, str]]:
    chance = random.Random(seed)
    drawn = [{name: chance.choice(VALUES) for name in chance.sample(names, chance.randint(1, 8))} for _ in range(count)]
    return [{"PATH": "/opt/tool/bin"}, {"PATH": ""}, {}, dict.fromkeys(names, "/none"), *drawn]


async def begins_once_with_its_environment(one: Driver, folder: Path, there: list[dict[str, str]]) -> None:
    """Each command is a program that writes its environment, and runs once."""
    commands = {
        f"t{i}": Command(["/usr/bin/env", "-0"], own | {"MARK": f"<{i}>"}, output=folder / f"out.{i}")
        for i, own in enumerate(there)
    }
    job = fs.JobSubmitted("odd", [fs.Task(task, {"cpu": 1}) for task in commands])
    ends = {task: await future for task, future in one.submit(job, commands).items()}
    assert set(ends.values()) == {0}
    assert one.stats["started"] == one.stats["ended"] == len(there) and not one.stats.get("lost")
    for i, own in enumerate(there):
        text = (folder / f"out.{i}").read_text()
        assert text.count("MARK=<") == 1, "it ran once"
        found = dict(line.partition("=")[::2] for line in text.split("\0") if line)
        assert {name: found.get(name) for name in own} == own
        assert (folder / f"out.{i}").stat().st_mode & 0o777 == 0o600


async def one_that_kills_its_group_has_failed(one: Driver, folder: Path, wrap: Any = lambda command: command) -> None:
    """It uses up its retries; others are not touched, and none of its processes is left."""
    bad = f"echo x >> {folder}/bad; sleep 1000 & echo $! >> {folder}/pids; kill -9 0; sleep 1000"
    lines = {"bad": bad} | {f"good{i}": f"sleep 0.3; echo x >> {folder}/good{i}" for i in range(3)}
    job = fs.JobSubmitted("group", [fs.Task(task, {"cpu": 1}) for task in lines])
    futures = one.submit(job, {task: wrap(Command(line)) for task, line in lines.items()}, retries=2)
    try:
        await futures["bad"]
    except ExitStatusError as error:
        assert error.status == 137, error
    else:
        raise AssertionError("it did not fail")
    assert [await futures[f"good{i}"] for i in range(3)] == [0, 0, 0]
    assert all((folder / name).read_text() == "x\n" for name in ("good0", "good1", "good2"))
    assert (folder / "bad").read_text() == "x\n" * 3 and not one.stats.get("lost")
    for pid in (folder / "pids").read_text().split():
        path = Path(f"/proc/{pid}/stat")
        assert not path.exists() or path.read_text().rpartition(") ")[2][0] in "ZX"


async def reasons_are_in_the_errors(one: Driver, folder: Path, wrap: Any = lambda command: command) -> None:
    (folder / "plain").write_text("no program\n")
    (folder / "file").write_text("")
    cases: dict[str, tuple[Command, int, str]] = {
        "folder": (
            Command(["/bin/true"], directory=folder / "no 'such'"),
            126,
            f"cannot enter folder {folder}/no 'such'",
        ),
        "program": (Command(["/no/such program"]), 127, "command not found: /no/such program"),
        "name": (Command(["no-such-name"]), 127, "command not found: no-such-name"),
        "own path": (Command(["ls"], {"PATH": "/opt/none"}), 127, "command not found: ls"),
        "plain": (Command([str(folder / "plain")]), 126, f"{folder}/plain"),
        "output": (Command(["/bin/true"], output=folder / "file" / "x"), 126, f"cannot write {folder}/file/x"),
        "line": (Command("no-such-name"), 127, "command that is not found"),
    }
    job = fs.JobSubmitted("bad", [fs.Task(task, {"cpu": 1}) for task in cases])
    futures = one.submit(job, {task: wrap(command) for task, (command, _, _) in cases.items()})
    for task, (_, status, reason) in cases.items():
        try:
            await futures[task]
        except ExitStatusError as error:
            assert error.status == status and reason in str(error) and "\n" not in str(error), (task, str(error))
        else:
            raise AssertionError(task)
    permission = str(futures["plain"].exception()).lower()
    assert "permission denied" in permission
