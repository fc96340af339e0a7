"""A real control plane: etcd and kube-apiserver, built by tests/run/kube/build.sh, with played kubelets."""

from __future__ import annotations

import json
import os
import secrets
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

PROGRAMS = Path(
    os.environ.get("FLOWSCHED_KUBE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flowsched/kube-1.36.3"
)

MERGE = "application/strategic-merge-patch+json"


class Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status


class Server:
    """An API server; `ask` has all rights, `client` those of a service account."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._tls) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read().decode()) from None
        return json.loads(text) if path != "/readyz" else text.decode()

    def client(self, token: str) -> Any:
        from kubernetes import client

        settings = client.Configuration()
        settings.host, settings.verify_ssl = self.url, False
        settings.api_key, settings.api_key_prefix = {"authorization": token}, {"authorization": "Bearer"}
        return client.ApiClient(settings)

    def node(self, name: str, cpu: str = "4", labels: Any = None, taints: Any = ()) -> None:
        body = {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": list(taints)}}
        self.ask("POST", "/api/v1/nodes", body)
        status = {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "20"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, MERGE)

    def pod(self, name: str, cpu: str = "1", labels: Any = None, **spec: Any) -> Any:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        about = {"name": name, "labels": labels or {}}
        body = {"metadata": about, "spec": {"containers": [container], "schedulerName": "flowsched", **spec}}
        return self.ask("POST", "/api/v1/namespaces/default/pods", body)

    def get(self, name: str) -> Any:
        return self.ask("GET", f"/api/v1/namespaces/default/pods/{name}")

    def where(self, name: str) -> str | None:
        found: str | None = self.get(name)["spec"].get("nodeName")
        return found

    def events(self, name: str) -> set[str]:
        items = self.ask("GET", "/api/v1/namespaces/default/events")["items"]
        return {one["reason"] for one in items if one["involvedObject"]["name"] == name}

    def clean(self) -> None:
        self.ask("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
        self.ask("DELETE", "/api/v1/namespaces/default/events")
        self.ask("DELETE", "/api/v1/nodes")

    def kubelets(self, stop: threading.Event) -> None:
        """End the bound pods that are deleted."""
        while not stop.wait(0.1):
            for one in self.ask("GET", "/api/v1/pods?fieldSelector=spec.nodeName!=")["items"]:
                about = one["metadata"]
                if "deletionTimestamp" in about:
                    try:
                        path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
                        self.ask("DELETE", path, {"gracePeriodSeconds": 0})
                    except Refused as refused:
                        assert refused.status == 404


def apply(server: Server, file: Path) -> None:
    """Create the objects of a file."""
    plural = {"Namespace": "namespaces", "ServiceAccount": "serviceaccounts", "Role": "roles"}
    plural |= {kind: f"{kind.lower()}s" for kind in ("ClusterRole", "ClusterRoleBinding", "RoleBinding")}
    for one in yaml.safe_load_all(file.read_text()):
        space = one["metadata"].get("namespace")
        root = "/api/v1" if one["apiVersion"] == "v1" else f"/apis/{one['apiVersion']}"
        where = f"/namespaces/{space}" if space else ""
        server.ask("POST", f"{root}{where}/{plural[one['kind']]}", one)


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


@contextmanager
def kube_server(folder: Path) -> Iterator[tuple[Server, str]]:
    """A control plane, and the token of the service account flowsched."""
    store, peers, port = _port(), _port(), _port()
    token, other = secrets.token_hex(), secrets.token_hex()
    tokens = folder / "tokens"
    tokens.write_text(f'{token},admin,1,"system:masters"\n{other},system:serviceaccount:flowsched:flowsched,2\n')
    key = folder / "key.pem"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    at, peer = f"http://127.0.0.1:{store}", f"http://127.0.0.1:{peers}"
    etcd = [
        PROGRAMS / "etcd", "--data-dir", folder / "etcd", "--listen-client-urls", at, "--advertise-client-urls", at,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
        "--unsafe-no-fsync", "--log-level", "warn",
    ]  # fmt: skip
    # Two admission plug-ins wait for controllers, which do not run; the others are those of every cluster.
    api = [
        PROGRAMS / "apiserver", "--etcd-servers", at, "--bind-address", "127.0.0.1", "--secure-port", str(port),
        "--cert-dir", folder / "certs", "--token-auth-file", tokens, "--authorization-mode", "RBAC",
        "--service-cluster-ip-range", "10.0.0.0/24", "--endpoint-reconciler-type", "none",
        "--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key,
        "--service-account-signing-key-file", key, "--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition",
    ]  # fmt: skip
    server, processes = Server(f"https://127.0.0.1:{port}", token), []
    try:
        for name, command in (("etcd", etcd), ("api", api)):
            with (folder / f"{name}.log").open("wb") as log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        end = time.monotonic() + 120
        while True:
            try:
                if server.ask("GET", "/readyz") == "ok":
                    break
            except (OSError, Refused):
                pass
            assert time.monotonic() < end and all(each.poll() is None for each in processes), folder
            time.sleep(0.2)
        yield server, other
    finally:
        for process in processes[::-1]:
            process.kill()  # without its etcd, the API server does not end
            process.wait()
