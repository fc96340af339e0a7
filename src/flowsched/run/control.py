"""The socket by which operators talk to a running driver, and its client.

The socket is ``control`` in the folder of the state.  A request is a line of JSON, and so is its answer.  Only the owner of the
driver's process is answered.  A driver takes the place of a socket that a killed one has left: the caller has locked the state.

An answer to a change means that it is recorded.  A client without an answer sends the same request again, which is done once;
if no driver is left, the records of the state have the answer, or the request has not happened.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from flowsched.exceptions import FlowschedError, InputError
from flowsched.run.records import NAME, opened
from flowsched.run.runs import LOGGER
from flowsched.run.session import CHANGES, Session

SOCKET = "control"

_LONGEST = 1 << 27
"""Bytes of a request: a file of jobs, as a text of JSON."""

_PATH = 100
"""Bytes of a socket's path that every system takes."""


class NoDriverError(FlowschedError):
    """No driver runs over a state, so a request was not answered and has not happened."""


class RefusedError(FlowschedError):
    """The driver refused a request; nothing has happened."""


@contextmanager
def _reachable(folder: Path) -> Iterator[str]:
    """Yield a path of the socket that is short enough for the system."""
    path = str(folder.absolute() / SOCKET)
    if len(os.fsencode(path)) <= _PATH:
        yield path
        return
    if not Path("/proc/self/fd").is_dir():
        raise InputError(f"{folder}: the path is too long for a socket on this system: at most {_PATH} bytes")
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET}"
    finally:
        os.close(fd)


class Control:
    """Answers the requests of operators, in the loop of the driver.

    Parameters
    ----------
    session : Session
    folder : path
        That of the state, which this process has locked.
    """

    def __init__(self, session: Session, folder: Path) -> None:
        self._session, self._folder = session, folder
        self._server: asyncio.Server | None = None
        self._identity: tuple[int, int] | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen; from now on requests are answered."""
        with suppress(FileNotFoundError):
            (self._folder / SOCKET).unlink()  # of a driver that was killed
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _reachable(self._folder) as path:
                before = os.umask(0o177)
                try:
                    listener.bind(path)
                finally:
                    os.umask(before)
            listener.setblocking(False)
            about = (self._folder / SOCKET).stat()
            self._identity = about.st_dev, about.st_ino
            self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_LONGEST)
        except BaseException:
            listener.close()
            raise

    async def close(self) -> None:
        """Answer no more requests."""
        if self._server is None:
            return
        self._server.close()
        with suppress(FileNotFoundError):
            about = (self._folder / SOCKET).stat()
            if (about.st_dev, about.st_ino) == self._identity:
                (self._folder / SOCKET).unlink()
        for client in list(self._clients):
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            if not _is_owner(writer.get_extra_info("socket")):
                return
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(line), default=str).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError, asyncio.IncompleteReadError):  # a client that has gone, or too long a line
            pass
        except asyncio.CancelledError:
            pass
        finally:
            self._clients.discard(task)
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        session = self._session
        try:
            request = json.loads(line)
            kind, body = request["kind"], request.get("body", {})
            if not isinstance(kind, str) or not isinstance(body, dict):
                raise InputError("an object with kind and body expected")
            assert session.driver is not None
            now = session.driver.now
            if kind in CHANGES:
                return {"answer": session.change(request.get("id", ""), kind, body, now)}
            return {"answer": await session.ask(kind, body, now)}
        except FlowschedError as error:
            return {"error": str(error)}
        except (ValueError, LookupError, TypeError):
            return {"error": f"a request in JSON expected, with kind and body, got {line[:80]!r}"}
        except (sqlite3.Error, OSError) as error:
            LOGGER.warning("a request is not recorded: %s", error)
            return {"error": f"the request cannot be recorded, and has not happened: {error}"}


def _is_owner(connection: Any) -> bool:
    """Return True if the other end of a connection is a process of this user or of root."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the mode of the socket allows no others
    _, user, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    return user in (0, os.geteuid())


class DriverClient:
    """A client of the driver over a state.

    Parameters
    ----------
    folder : path
        That of the state.
    patience : float
        Seconds for which a request without an answer is repeated.
    """

    def __init__(self, folder: str | os.PathLike[str], *, patience: float = 10.0) -> None:
        self.folder, self._patience = Path(folder), patience

    def ask(self, kind: str, body: dict[str, Any], id: str | None = None) -> dict[str, Any]:
        """Send a request and return its answer.

        Parameters
        ----------
        kind : str
        body : dict
        id : str, optional
            Identifies a change: with the same id it is done once.  Random by default.

        Raises
        ------
        RefusedError
            The driver refused it.
        NoDriverError
            There is no driver, and the request has not happened.
        """
        request = {"id": id or uuid4().hex, "kind": kind, "body": body}
        line, sent = json.dumps(request).encode() + b"\n", False
        end = time.monotonic() + self._patience
        while True:
            try:
                with _reachable(self.folder) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.settimeout(max(self._patience, 1.0) * 6)
                    connection.connect(path)
                    sent = True
                    connection.sendall(line)
                    with connection.makefile("rb") as file:
                        answer = file.readline()
                if answer.endswith(b"\n"):
                    return _checked(json.loads(answer))
            except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as missing:
                if not sent or time.monotonic() >= end:
                    return self._recorded(request, sent, missing)
            except PermissionError:
                raise NoDriverError(f"{self.folder}: the driver is another user's") from None
            except (ConnectionError, TimeoutError) as gone:
                if time.monotonic() >= end:
                    return self._recorded(request, sent, gone)
            time.sleep(0.1)

    def _recorded(self, request: dict[str, Any], sent: bool, error: Exception) -> dict[str, Any]:
        """Return the answer that a driver recorded before it was killed; raise NoDriverError if there is none."""
        if sent and request["kind"] in CHANGES and (self.folder / NAME).exists():
            db = opened(self.folder)
            try:
                row = db.execute("select answer from requests where id = ?", (request["id"],)).fetchone()
            finally:
                db.close()
            if row is not None:
                return {**json.loads(row[0]), "later": True}
        if not self.folder.is_dir():
            raise NoDriverError(f"{self.folder}: no such folder of a state") from None
        why = "no driver is running" if not sent else "the driver has gone, and has not recorded the request"
        raise NoDriverError(f"{self.folder}: {why}; `flowsched run FILE --state {self.folder}` starts one") from error


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise RefusedError(str(answer["error"]))
    found: dict[str, Any] = answer["answer"]
    return found
