"""A real control plane: etcd and kube-apiserver, built by tests/run/kube/build.sh, with played kubelets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from bench.kubernetes.plane import MERGE, PROGRAMS, Client, Refused, control_plane

__all__ = ["MERGE", "PROGRAMS", "Refused", "Server", "apply", "kube_server"]


class Server(Client):
    """An API server; `ask` has all rights, `client` those of a service account."""

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


@contextmanager
def kube_server(folder: Path) -> Iterator[tuple[Server, str]]:
    """A control plane, and the token of the service account flowsched."""
    with control_plane(folder) as plane, Server(plane.port, plane.admin) as server:
        yield server, plane.account
