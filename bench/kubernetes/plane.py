"""A control plane on loopback: etcd and kube-apiserver as ``tests/run/kube/build.sh`` builds them, and a client of it."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

__all__ = ["MERGE", "PROGRAMS", "Client", "Plane", "Refused", "control_plane", "free_port", "kubeconfig"]

PROGRAMS = Path(
    os.environ.get("FLOWSCHED_KUBE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flowsched/kube-1.36.3"
)
"""The folder into which the programs are built by default."""

MERGE = "application/strategic-merge-patch+json"

_ADMISSION = ("ServiceAccount", "TaintNodesByCondition")
"""Plug-ins of admission that wait for controllers, which do not run; the others are those of every cluster."""


class Refused(Exception):
    """The server refused a request.

    Attributes
    ----------
    status : int
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status


class Client:
    """Requests to an API server, with a connection for each thread.

    Parameters
    ----------
    port : int
        Of the server on loopback.
    token : str
    """

    def __init__(self, port: int, token: str) -> None:
        self.port, self.url, self.token = port, f"https://127.0.0.1:{port}", token
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._local = threading.local()
        self._open = list[http.client.HTTPSConnection]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of all threads; none of them is in use."""
        for connection in self._open:
            connection.close()

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Return the answer to a request as JSON has it, or as text where it is none.

        Raises
        ------
        Refused
        OSError
            The server was not reached.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        connection = self._connection()
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ConnectionError(str(error)) from None
        if answer.status >= 300:
            raise Refused(answer.status, text.decode(errors="replace"))
        return json.loads(text) if text[:1] == b"{" else text.decode()

    def watch(self, path: str) -> http.client.HTTPResponse:
        """Return the answer to a watch, on a connection of its own."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=600, context=self._tls)
        connection.request("GET", path, None, {"Authorization": f"Bearer {self.token}"})
        answer = connection.getresponse()
        if answer.status >= 300:
            raise Refused(answer.status, answer.read().decode(errors="replace"))
        return answer

    def _connection(self) -> http.client.HTTPSConnection:
        found: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if found is None:
            found = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self._tls)
            self._local.connection = found
            self._open.append(found)
        return found


@dataclass(frozen=True, slots=True)
class Plane:
    """A control plane that runs.

    Parameters
    ----------
    port : int
    admin, account : str
        Tokens: one with all rights, and that of the service account ``flowsched``.
    processes : dict
        By name: ``etcd`` and ``apiserver``.
    commands : dict
        Their command lines, to start one again.
    folder : Path
        With their logs and data.
    """

    port: int
    admin: str
    account: str
    processes: dict[str, subprocess.Popen[bytes]]
    commands: dict[str, list[str]]
    folder: Path

    def start(self, name: str) -> None:
        """Start a process, also one that has ended."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(self.commands[name], stdout=log, stderr=log)

    def wait(self, seconds: float = 120.0) -> None:
        """Wait until the API server is ready.

        Raises
        ------
        RuntimeError
            It is not within some seconds, or a process has ended.
        """
        end = time.monotonic() + seconds
        with Client(self.port, self.admin) as client:
            while True:
                try:
                    if client.ask("GET", "/readyz") == "ok":
                        return
                except (OSError, Refused):
                    pass
                ended = [name for name, each in self.processes.items() if each.poll() is not None]
                if ended or time.monotonic() > end:
                    raise RuntimeError(
                        f"the control plane does not start: {ended or 'not ready'}; logs in {self.folder}"
                    )
                time.sleep(0.2)


def free_port() -> int:
    """Return the number of a port of loopback that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


@contextmanager
def control_plane(
    folder: Path, programs: Path = PROGRAMS, *, off: Sequence[str] = (), options: Sequence[str] = ()
) -> Iterator[Plane]:
    """Run a control plane with its data below `folder`; both processes are killed at the end.

    Parameters
    ----------
    folder, programs : Path
    off : sequence of str
        Plug-ins of admission to do without.
    options : sequence of str
        More options of the API server.
    """
    store, peers, port = free_port(), free_port(), free_port()
    token, other = secrets.token_hex(), secrets.token_hex()
    tokens, key = folder / "tokens", folder / "key.pem"
    tokens.write_text(f'{token},admin,1,"system:masters"\n{other},system:serviceaccount:flowsched:flowsched,2\n')
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    at, peer = f"http://127.0.0.1:{store}", f"http://127.0.0.1:{peers}"
    etcd = [
        programs / "etcd", "--data-dir", folder / "etcd", "--listen-client-urls", at, "--advertise-client-urls", at,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
        "--unsafe-no-fsync", "--quota-backend-bytes", 8 << 30, "--log-level", "warn",
    ]  # fmt: skip
    server = [
        programs / "apiserver", "--etcd-servers", at, "--bind-address", "127.0.0.1", "--secure-port", port,
        "--cert-dir", folder / "certs", "--token-auth-file", tokens, "--authorization-mode", "RBAC",
        "--service-cluster-ip-range", "10.0.0.0/16", "--endpoint-reconciler-type", "none", "--profiling=false",
        "--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key,
        "--service-account-signing-key-file", key, "--disable-admission-plugins", ",".join((*_ADMISSION, *off)), *options,
    ]  # fmt: skip
    commands = {name: list(map(str, command)) for name, command in (("etcd", etcd), ("apiserver", server))}
    plane = Plane(port, token, other, {}, commands, folder)
    try:
        for name in commands:
            plane.start(name)
        plane.wait()
        yield plane
    finally:
        for process in [*plane.processes.values()][::-1]:
            process.kill()  # without its etcd, the API server does not end
            process.wait()


def kubeconfig(path: Path, port: int, token: str) -> Path:
    """Write the credentials of a user."""
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    path.write_text(json.dumps(config))
    return path
