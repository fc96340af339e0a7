"""``flowsched doctor``: the conditions on this machine on which other commands depend."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import click

import flowsched
from flowsched.boundary import control_groups, private
from flowsched.cli import endings
from flowsched.exceptions import InputError

_PROBLEM = 1

_EXTRAS = {
    "cli": ("click", "rich"), "sim": ("simpy",), "plot": ("matplotlib",), "serve": ("starlette", "uvicorn"), "sql": ("sqlalchemy",),
    "real": ("psutil",), "prometheus": ("prometheus_client",), "otel": ("opentelemetry",), "ssh": ("asyncssh",),
    "dask": ("distributed",), "ray": ("ray",), "kubernetes": ("kubernetes", "aiohttp"), "nx": ("networkx",), "gavel": ("scipy",),
}  # fmt: skip
"""Modules of the extras."""

_FILES = 1256
"""Open files that a service with all its connections needs."""

_SKEW = 1.0
"""Difference in seconds between this machine's clock and a file system's that is reported."""

_ROOM = 1 << 30
"""Free bytes below which a disk is reported."""

_UNSYNCHRONISED = 5
"""TIME_ERROR, the answer of adjtimex(2)."""


@dataclass(frozen=True)
class Finding:
    """Result of a check; `remedy` is empty if it is ok."""

    check: str
    state: Literal["ok", "warning", "problem"]
    about: str
    remedy: str = ""


@click.command("doctor", cls=endings.Command)
@click.option("--state", type=endings.FOLDER, metavar="DIR", help="Folder of the state of `flowsched run` or an agent.")
@click.option("--journal", type=endings.FILE, metavar="FILE", help="Journal of `flowsched serve`.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the service.")
@click.option("--port", type=click.IntRange(1, 65535), default=8642, show_default=True, help="Port of the service.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a line of JSON.")
def doctor(state: Path | None, journal: Path | None, host: str, port: int, as_json: bool) -> None:
    """Check this machine: extras, control groups, open files, clock, port, and the places of state.

    Each line is ok, a warning (something works in part), or a problem, with a remedy. Nothing is changed.

    \b
    Examples:
      flowsched doctor
      flowsched doctor --state run --journal cluster.journal --json

    \b
    Exit status:
      0    no problem; there may be warnings
      1    a problem
      2, 74, 141  as `flowsched --help` says
    """
    found = [_extras(), _control_groups(), _files(), _clock(), _port(host, port)]
    if state is not None:
        found += _place("state", state)
    if journal is not None:
        found += _place("journal", journal)
    if as_json:
        click.echo(json.dumps({"version": flowsched.__version__, "findings": [asdict(one) for one in found]}))
    else:
        for one in found:
            click.echo(f"{one.state:8} {one.check}: {one.about}")
            if one.remedy:
                click.echo(f"{'':8} -> {one.remedy}")
    if any(one.state == "problem" for one in found):
        raise SystemExit(_PROBLEM)


def _extras() -> Finding:
    there = [extra for extra, modules in _EXTRAS.items() if all(map(find_spec, modules))]
    absent = [extra for extra in _EXTRAS if extra not in there]
    about = f"installed: {', '.join(there) or 'none'}"
    if absent:
        about += f"; not installed: {', '.join(absent)} (pip install 'flowsched[NAME]')"
    return Finding("extras", "ok", about)


def _control_groups() -> Finding:
    if sys.platform != "linux":
        return Finding("control groups", "warning", f"{sys.platform} has none", "limits of memory need Linux")
    root = control_groups.find()
    if root is None:
        return Finding(
            "control groups", "warning", "this user may not use those of version 2: no limits of memory and CPU",
            "run as root, or in a unit with Delegate=yes; --cgroup and HRM's agents use them",
        )  # fmt: skip
    there = set((root / "cgroup.controllers").read_text().split())
    lacking = sorted({"cpu", "memory", "pids"} - there)
    if lacking:
        return Finding("control groups", "warning", f"{root} lacks {', '.join(lacking)}", "enable these controllers")
    return Finding("control groups", "ok", f"{root} has cpu, memory and pids")


def _files() -> Finding:
    try:
        import resource
    except ImportError:
        return Finding("open files", "ok", "no limit")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < _FILES:
        return Finding(
            "open files", "warning", f"at most {hard}, so a service has fewer than 1,000 connections",
            f"raise the hard limit (ulimit -Hn, LimitNOFILE=) to {_FILES}",
        )  # fmt: skip
    return Finding("open files", "ok", "no limit" if hard == resource.RLIM_INFINITY else f"at most {hard}")


def _clock() -> Finding:
    if sys.platform == "linux":
        try:
            state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))  # of zeros: it only reads
        except (OSError, AttributeError):
            state = -1
        if state == _UNSYNCHRONISED:
            return Finding(
                "clock", "warning", "it is not synchronised", "run chronyd, ntpd or systemd-timesyncd on every machine"
            )
        if state >= 0:
            return Finding("clock", "ok", "it is synchronised")
    return Finding("clock", "ok", "the system does not report whether it is synchronised")


def _port(host: str, port: int) -> Finding:
    where = f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        return Finding(
            "port", "warning", f"{where}: {error.strerror or error}", "another --port, or end what listens there"
        )
    return Finding("port", "ok", f"{where} is free")


def _place(check: str, path: Path) -> Iterator[Finding]:
    """Check permissions, free room and clock of the place of a folder or file of state."""
    folder = path if check == "state" else path.absolute().parent
    while check == "state" and not folder.exists():
        folder = folder.absolute().parent
    if not folder.is_dir():
        yield Finding(check, "problem", f"{folder} is no folder", "make it, or name another one")
        return
    if check == "state" and path.exists():
        about = path.lstat()
        if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
            yield Finding(check, "problem", f"{path} belongs to another user", "run as its owner, or name another one")
        elif not path.is_dir() or path.is_symlink() or about.st_mode & 0o022:
            yield Finding(check, "problem", f"others may write to {path}, or it is a link", f"chmod go-w {path}")
    elif check == "journal":
        try:
            private.check_place(check, path)
        except InputError as error:
            yield Finding(check, "problem", str(error).partition(": ")[2], "chmod o-w, or name another place")
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
            skew = abs(os.fstat(file.fileno()).st_mtime - time.time())
    except OSError as error:
        yield Finding(
            check, "problem", f"{folder}: {error.strerror or error}", "let this user write there, or name another place"
        )
        return
    if skew > _SKEW:
        yield Finding(
            check,
            "warning",
            f"{folder}: the clock of its file system differs by {skew:.0f} s",
            "synchronise both clocks",
        )
    free = shutil.disk_usage(folder).free
    if free < _ROOM:
        yield Finding(check, "warning", f"{folder}: {free >> 20} MiB are free", "make room, or name another place")
    else:
        yield Finding(check, "ok", f"{folder}: writable, {free >> 30} GiB are free")
