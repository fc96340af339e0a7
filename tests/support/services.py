"""A service as a process of its own, which tests talk to over sockets, and kill."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import flowsched
from flowsched.serve import Client

TOKEN = "a-token-of-the-tests"

_SMALL = """
import asyncio, sys
import flowsched as fs
from flowsched.serve import Service
from flowsched.serve.app import RequestLimits
from flowsched.serve.server import bound, serve
listener = bound("127.0.0.1", 0)
limits = RequestLimits(body=20_000, events=50, seconds=float(sys.argv[2]), connections=50)
service = Service(fs.Scheduler(resources=("cpu", "gpu")), kept=20_000)
url = f"Serving at http://127.0.0.1:{listener.getsockname()[1]}/"
asyncio.run(serve(service, listener, sys.argv[1], limits=limits, begun=lambda: print(url, flush=True)))
"""
"""A service with limits that a test reaches."""


class Served:
    """A running service."""

    def __init__(self, *command: str, **environment: str) -> None:
        self.clients: list[Client] = []
        own = {"PYTHONPATH": str(Path(flowsched.__file__).parents[1]), "FLOWSCHED_TOKEN": TOKEN}
        self.process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **own, **environment},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        if not self.said.startswith("Serving at"):
            raise AssertionError(self.process.communicate())
        self.url = self.said.split()[-1].partition("#")[0]

    @classmethod
    def of(cls, process: subprocess.Popen[str], url: str) -> Served:
        """A service that was begun otherwise."""
        served = cls.__new__(cls)
        served.process, served.url, served.clients = process, url, []
        return served

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2].strip("/"))

    def client(self, **settings: Any) -> Client:
        """A client that is closed when this has ended."""
        client = Client(self.url, TOKEN, **settings)
        self.clients.append(client)
        return client

    def ended(self) -> tuple[int, str, str]:
        """Status, output and errors once it has ended."""
        out, err = self.process.communicate(timeout=60)
        for client in self.clients:
            client.close()
        return self.process.returncode, out, err

    def request(
        self, method: str, path: str, body: Any = None, token: str | None = TOKEN, **headers: str
    ) -> tuple[int, Any]:
        """Status and answer of one request."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            given = {} if token is None else {"Authorization": f"Bearer {token}"}
            told = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, told, {**given, **{k.replace("_", "-"): v for k, v in headers.items()}})
            response = connection.getresponse()
            text = response.read()
            kind = response.getheader("content-type", "")
            return response.status, json.loads(text) if kind == "application/json" else text
        finally:
            connection.close()

    def raw(self, *pieces: bytes) -> bytes:
        """Send bytes; return all that comes until the service closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as plug:
            got = b""
            try:
                for piece in pieces:
                    plug.sendall(piece)
                while part := plug.recv(65536):
                    got += part
            except ConnectionError:
                pass  # closed with unread bytes of ours
            return got

    def kill(self) -> None:
        self.process.kill()
        self.ended()

    def stop(self) -> tuple[int, str]:
        """Status and standard error after SIGTERM."""
        self.process.terminate()
        status, _, err = self.ended()
        return status, err


def small(seconds: float = 0.5) -> Served:
    return Served("-c", _SMALL, TOKEN, str(seconds))


def command(*options: object, **environment: str) -> Served:
    """``flowsched serve``."""
    return Served("-m", "flowsched", "serve", *map(str, options), **environment)


@contextmanager
def ending(served: Served) -> Iterator[Served]:
    """A service that has ended afterwards, calmly if it still ran."""
    try:
        yield served
    finally:
        if served.process.poll() is None:
            status, err = served.stop()
            assert status == 0 and "Traceback" not in err, err
