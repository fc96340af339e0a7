"""SECURITY.md against what commands do: which files they write with which permissions, what listens, what a page loads."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import pytest

import flowsched as fs
from flowsched.boundary import private
from flowsched.boundary.validate import masked
from flowsched.exceptions import InputError, JournalError
from flowsched.journal import Journal
from flowsched.run import Command, Driver, LocalExecutor

TEXT = (Path(__file__).parents[2] / "SECURITY.md").read_text()

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes and permissions of Linux")


def table(heading: str) -> list[list[str]]:
    """Rows of the first table after a heading."""
    rows = re.search(r"\n\| --- .*?\n((?:\|.*\n)+)", TEXT.partition(f"## {heading}\n")[2])
    assert rows is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows[1].splitlines()]


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def until(condition: object, seconds: float = 60.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def listening(pid: int) -> set[str]:
    """Addresses at which a process listens."""
    links = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.add(os.readlink(fd))
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in links:
                found.add(words[1])
    return found


JOBS = """
[machine]
cpu = 2
[[job]]
name = "a"
command = "echo $API_KEY; sleep 1000"
environment = {API_KEY = "s3cret"}
"""

HRM = """
[store]
url = "sqlite:///STORE"
[scheduler]
period = 0.05
[agent]
period = 0.05
state = "AGENT"
output = "LOGS"
[agent.node]
cores = 2
mem = 100
"""


@pytest.mark.long
def test_files_that_commands_write(tmp_path: Path, begun: list[subprocess.Popen[bytes]], no_umask: None) -> None:
    """Each is in the table, with its mode, also under a umask of 0; only `flowsched serve` listens, where the table says."""
    known: dict[Path, int] = {}

    def look() -> None:
        for path in tmp_path.rglob("*"):
            try:
                known[path.relative_to(tmp_path)] = path.stat().st_mode
            except OSError:
                continue

    environment = os.environ | {
        "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "FLOWSCHED_HRM": str(tmp_path / "hrm.toml"),
        "FLOWSCHED_TOKEN": "x" * 20, "PYTHONPATH": str(Path(fs.__file__).parents[1]),
    }  # fmt: skip

    def command(*words: str, wait: bool = True) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "flowsched", *words], cwd=tmp_path, env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        begun.append(process)
        if wait:
            assert process.wait(120) == 0, words
        return process

    (tmp_path / "jobs.toml").write_text(JOBS)
    (tmp_path / "hrm.toml").write_text(HRM)
    (tmp_path / "hrm_jobs.toml").write_text(JOBS.replace("[machine]\ncpu = 2", ""))
    given = {path.name for path in tmp_path.iterdir()}
    listens: dict[str, set[str]] = {}
    run = command("run", "jobs.toml", "--state", "STATE", "--output", "OUTPUT", wait=False)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve = command("serve", "--journal", "JOURNAL", "--port", str(port), wait=False)
    until(lambda: list(tmp_path.glob("OUTPUT/*.log")) and (tmp_path / "JOURNAL").exists())
    parts = {part: command("hrm", part, wait=False) for part in ("negotiator", "scheduler", "agent")}
    until((tmp_path / "STORE").exists)
    command("hrm", "submit", "hrm_jobs.toml")
    until(lambda: [path for path in tmp_path.glob("LOGS/*.log") if path.stat().st_size])
    until(lambda: listening(serve.pid))
    for name, process in {"run": run, "serve": serve, **{f"hrm {part}": one for part, one in parts.items()}}.items():
        listens[name] = listening(process.pid)
    look()
    assert run.poll() is None
    serve.send_signal(signal.SIGTERM)
    assert serve.wait(60) == 0
    command("journal", "export", "JOURNAL", "-o", "EXPORT")
    for process in (run, *parts.values()):
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    look()
    where = {"STATE", "OUTPUT", "JOURNAL", "STORE", "AGENT", "LOGS", "EXPORT"}
    assert {path.parts[0].partition(".")[0].partition("-")[0] for path in known} - given >= where
    rows = table("Files that are written")
    patterns = [
        (pattern.rstrip("/"), int(mode, 8)) for _, cell, mode in rows for pattern in re.findall("`([^`]+)`", cell)
    ]
    for path, mode in known.items():
        if path.name not in given or len(path.parts) > 1:
            # An asterisk does not stand for a slash.
            modes = {
                mode for pattern, mode in patterns
                if len(pattern.split("/")) == len(path.parts) and fnmatchcase(str(path), pattern)
            }  # fmt: skip
            assert mode & 0o777 in modes, (str(path), oct(mode))
    assert listens.pop("serve") == {f"0100007F:{port:04X}"} and not any(listens.values())
    assert [row[0] for row in table("Listening")] == [
        "`flowsched serve`",
        "`flowsched kube-scheduler --listen`",
        "`flowsched run --state`",
    ]


@pytest.mark.long
def test_files_on_a_host(tmp_path: Path, no_umask: None) -> None:
    pytest.importorskip("asyncssh")
    from sshd import hosts

    from flowsched.run.ssh import SSHExecutor

    async def main(name: str, options: dict[str, object], home: Path) -> None:
        executor = SSHExecutor([name], ("cpu",), name="mine", options=options, poll=0.05, grace=0.2)
        async with Driver(fs.Scheduler(resources=("cpu",)), executor) as one:
            line = Command(f"umask > {tmp_path}/umask; sleep 1000", {"API_KEY": "s3cret"}, output="out/a b")
            one.submit(fs.JobSubmitted("j", [fs.Task("a", {"cpu": 1})]), {"a": line})
            while not (tmp_path / "umask").exists() or not (tmp_path / "umask").stat().st_size:
                await asyncio.sleep(0.05)
            found = {path.relative_to(home): path.stat().st_mode for path in home.rglob("*") if path.name != ".bashrc"}
            assert any("s3cret" in (home / path).read_text() for path in found if path.name == "script")
            assert (tmp_path / "umask").read_text() != "0077\n"  # that of the login, not of the records
            for path, mode in found.items():
                assert mode & 0o777 == (0o700 if (home / path).is_dir() else 0o600), (path, oct(mode))

    with hosts(1) as (host,):
        asyncio.run(main(host.name, host.options, host.home))


def test_what_the_live_page_loads() -> None:
    page = (Path(fs.__file__).parent / "serve" / "live.html").read_text()
    assert set(re.findall(r"https?://([\w.-]+)", page)) == set()


@pytest.mark.parametrize(
    "fault", ["writable", *(pytest.param(fault, marks=pytest.mark.long) for fault in ("group", "other's", "link"))]
)
def test_folders_of_others_are_refused(tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "state"
    folder.mkdir(0o700)
    if fault == "link":
        (tmp_path / "link").symlink_to(folder)
        folder = tmp_path / "link"
    elif fault == "other's":
        if os.geteuid():
            pytest.skip("only root gives folders away")
        os.chown(folder, 12345, 12345)
    else:
        folder.chmod(0o777 if fault == "writable" else 0o770)
    with pytest.raises(InputError, match="where no other may write"):
        private.folder("folder", folder)
    if fault == "link":
        return
    with pytest.raises(InputError, match="where no other may write"):
        asyncio.run(_opened(folder))
    jobs = tmp_path / "jobs.toml"
    jobs.write_text("[[job]]\nname = 'a'\ncommand = 'true'\n")
    line = [
        sys.executable,
        "-m",
        "flowsched",
        "run",
        str(jobs),
        "--state",
        str(folder),
        "--output",
        str(tmp_path / "o"),
    ]
    refused = subprocess.run(line, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "where no other may write" in refused.stderr
    assert not list(folder.iterdir())


async def _opened(folder: Path) -> None:
    await LocalExecutor({"cpu": 1}, folder=folder).open(print)


@pytest.mark.parametrize("fault", ["folder", "file", "other's"])
def test_files_that_others_may_alter_are_refused(tmp_path: Path, fault: str) -> None:
    pytest.importorskip("sqlalchemy")
    from flowsched.hrm import Store

    folder = tmp_path / "open"
    folder.mkdir()
    for name in ("journal", "state.db"):
        if fault != "folder":
            (folder / name).touch()
        if fault == "file":
            (folder / name).chmod(0o666)
        elif fault == "other's":
            if os.geteuid():
                pytest.skip("only root gives files away")
            os.chown(folder / name, 12345, 12345)
    if fault == "folder":
        folder.chmod(0o777)
    before = sorted(folder.iterdir())
    with pytest.raises(JournalError, match="all users may write|another user"):
        fs.Scheduler(resources=("cpu",), journal=Journal(folder / "journal"))
    with pytest.raises(InputError, match="all users may write|another user"):
        Store(f"sqlite:///{folder}/state.db")
    assert sorted(folder.iterdir()) == before
    if fault == "folder":
        folder.chmod(0o1777)  # as /tmp: others cannot take the file away
        fs.Scheduler(resources=("cpu",), journal=Journal(folder / "journal"))


def test_a_journal_keeps_the_permissions_that_it_was_given(tmp_path: Path) -> None:
    """A new one is its owner's alone, and so are the files next to it."""
    path = tmp_path / "state.db"
    journal = Journal(path)
    fs_before = fs.Scheduler(resources=("cpu",), journal=journal)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    path.chmod(0o640)
    fs_before.compact()
    journal.close()
    assert path.stat().st_mode & 0o777 == 0o640


# -- passwords ------------------------------------------------------------------------------------------------------

SECRETS = [
    "s3cret",
    "s3cret:pw",
    "pw/s3cret",
    "p@s3cret",
    "s3cret?x=1",
    "a#s3cret",
    "s3cret'\"",
    "%40s3cret",
    "s3cret" * 40,
    "s3cret\nx@y",
]

FORMS = [
    "postgres://hrm:{}@db.example/hrm",
    "postgresql://hrm:{}@db.example:notaport/hrm",
    "postgresql://hrm:{}@db.example:99999/hrm",
    "postgresql+psycopg://hrm:{}@[::1]:x/hrm",
    "postgresql://hrm:{}",
    "postgresql://:{}@:1x/",
    "mysql://hrm:{}@db/hrm",
    "https://me:{}@host/x",
    "postgresql://hrm@db:x/hrm?password={}",
    "postgresql://hrm@db:x/hrm?sslmode=x&sslpassword={}",
    "POSTGRES://hrm:{}@db/hrm",
]


@pytest.mark.parametrize("form", FORMS)
def test_no_error_shows_a_password(tmp_path: Path, form: str) -> None:
    pytest.importorskip("sqlalchemy")
    from flowsched.hrm import Store
    from flowsched.hrm.config import read_config

    outer = sys.exc_info()[1]  # CPython keeps one for ever where a tracer of an earlier test raised as a handler ended
    for secret in SECRETS:
        if ("?" in form and set(secret) & set("&'@\n")) or (form.endswith(":{}") and "@" in secret):
            continue  # in a query these are escaped; and with an @ that is an address with a host
        url, said = form.format(secret), []
        for given in (url, [url], {"url": url}, {"password": secret}):
            (tmp_path / "hrm.toml").write_text(f"[store]\nurl = {_toml(given)}\n")
            for act in (partial(Store, given), partial(read_config, tmp_path / "hrm.toml")):
                with pytest.raises(InputError) as caught:
                    act()
                error = caught.value
                assert error.__context__ is outer or (error.__cause__ is None and error.__suppress_context__)
                said.append(str(error))
        assert not [text for text in said if "s3cret" in text]


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {json.dumps(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


def test_addresses_without_secrets_stay_whole() -> None:
    for text in (
        "tcp://10.0.0.1:8786",
        "http://localhost:8642/v1/state",
        "postgresql://me@db:5432/hrm?sslmode=x",
        "user@host:22",
        "a = 1",
    ):
        assert masked(text) == text


@pytest.mark.long
def test_a_password_that_is_refused_by_the_server_is_not_shown(server: str) -> None:
    from flowsched.exceptions import StoreError
    from flowsched.hrm import Store

    with pytest.raises(StoreError) as caught:
        Store(re.sub("//([^@/]*@)?", "//nobody:s3cret@", server))
    text = ""
    error: BaseException | None = caught.value
    while error is not None:
        text, error = f"{text}{error!r}{error}", error.__cause__ or error.__context__
    assert "s3cret" not in text and "nobody:***@" in str(caught.value)


def test_an_environment_is_not_shown_by_an_error(tmp_path: Path) -> None:
    from flowsched.run.jobs import read_jobs

    (tmp_path / "j.toml").write_text("[[job]]\nname = 'a'\ncommand = 'b'\nenvironment = {KEY = 's3cret', B = 5}\n")
    with pytest.raises(InputError, match="'B'") as caught:
        read_jobs(tmp_path / "j.toml", tmp_path)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        *(pytest.param(words, marks=pytest.mark.long) for words in (["serve", "--token-file"], ["hrm", "check"])),
    ],
)
def test_files_without_an_end_are_refused(words: list[str]) -> None:
    line = [sys.executable, "-m", "flowsched", *words, "/dev/zero"]
    refused = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2 and "/dev/zero: more than" in refused.stderr
