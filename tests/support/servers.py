"""A PostgreSQL server of the tests' own: a throw-away cluster on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


def find_server() -> Path | None:
    """The folder with initdb and pg_ctl, of the newest version there is."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "pg_ctl").exists()), None)


@dataclass(frozen=True)
class Server:
    """A server that can be stopped and started."""

    url: str
    start: Callable[[], None]
    stop: Callable[[], None]
    """As if its machine had failed: connections break, nothing is finished."""


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a fresh server; skips the test where PostgreSQL is not installed."""
    with postgres_server() as server:
        yield server.url


@contextmanager
def postgres_server() -> Iterator[Server]:
    """A fresh server; skips the test where PostgreSQL is not installed."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'flowsched[sql]'")
    tools = find_server()
    if tools is None:
        pytest.skip("no PostgreSQL server on this machine (initdb, pg_ctl): apt-get install postgresql")
    # The server refuses to run as root.
    who: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="flowsched-pg-"))
    try:
        if who:
            shutil.chown(folder, "postgres", "postgres")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        data = folder / "data"

        def tool(name: str, *arguments: str) -> None:
            with (folder / f"{name}.out").open("w") as out:
                subprocess.run([tools / name, *arguments], check=True, stdout=out, stderr=out, cwd=folder, **who)

        tool("initdb", "-D", str(data), "-U", "flowsched", "-A", "trust", "--no-locale", "-E", "UTF8")
        options = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder} -c max_connections=60"

        def start() -> None:
            tool("pg_ctl", "-D", str(data), "-l", str(folder / "log"), "-w", "-o", options, "start")

        def stop() -> None:
            tool("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")

        start()
        try:
            yield Server(f"postgresql://flowsched@127.0.0.1:{port}/postgres", start, stop)
        finally:
            if (data / "postmaster.pid").exists():
                stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
