"""Requests to a Kubernetes API server: single ones, lists, and watches.

Only credentials, settings and connections of the official client are used, so any version of it will do.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar

from flowsched.boundary.validate import quoted
from flowsched.exceptions import FlowschedError

LOGGER = logging.getLogger("flowsched")

Changes = dict[str, dict[str, Any] | None]

T = TypeVar("T")

KINDS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "namespaces": "/api/v1/namespaces",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "csinodes": "/apis/storage.k8s.io/v1/csinodes",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
    "podgroups": "/apis/scheduling.k8s.io/v1alpha2/podgroups",
}
"""Paths of the lists that are watched."""

_CONNECTIONS = 24
"""Connections that are kept: one for each watch and each thread, and some that a new watch needs before an old one has ended."""

_DENIED = (401, 403, 404)
"""Answers that stay until the account or the server changes."""


class KubernetesError(FlowschedError):
    """The API server refused a request, or a pod failed without an exit status.

    Attributes
    ----------
    status : int
        Of the HTTP answer, or 0.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class Api:
    """Requests to an API server, through a client of the official package; all but `call` and `ask` block.

    By default the client is that of the current context, or of the pod in which this runs.
    """

    def __init__(self, client: Any = None) -> None:
        if client is None:
            from kubernetes import client as package
            from kubernetes import config

            load: Any = config.load_config  # without annotations
            try:
                load()
            except config.ConfigException as error:
                raise KubernetesError(f"Kubernetes: {error}") from None
            client = package.ApiClient()
        self._client = client
        pool = client.rest_client.pool_manager.connection_pool_kw
        pool["maxsize"] = max(pool.get("maxsize") or 0, _CONNECTIONS)  # others would be made again for each request
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="flowsched-kubernetes")
        self._closed = threading.Event()
        self._watches: dict[str, Any] = {}

    def close(self) -> None:
        """End the watches."""
        self._closed.set()
        for watch in list(self._watches.values()):
            with suppress(Exception):
                watch.shutdown()
        self._threads.shutdown(wait=False)

    async def call(self, request: Callable[..., T], *arguments: Any) -> T:
        """Return the answer to a request, which is made in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, request, *arguments)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer to a request as JSON has it; the request is repeated until there is one.

        The body of a ``PATCH`` is a strategic merge patch.
        """
        while True:
            answer = b""
            try:
                answer = await self.call(self.request, method, path, body)
                return json.loads(answer)
            except KubernetesError as error:
                if error.status and error.status != 429 and error.status < 500:
                    raise
                LOGGER.info("%s", error)
            except ValueError:  # cut off on the way
                LOGGER.warning("%s %s: JSON expected, got %s", method, path, quoted(answer[:200]))
            await asyncio.sleep(1.0)

    def request(self, method: str, path: str, body: Any = None) -> bytes:
        answer = self._open(method, path, body)
        if answer.status >= 300:
            text = answer.data.decode(errors="replace")
            with suppress(ValueError):
                text = json.loads(text)["message"]
            raise KubernetesError(f"{method} {path}: {answer.status} {text[:500]}", answer.status)
        return bytes(answer.data)

    def _open(self, method: str, path: str, body: Any = None, stream: bool = False) -> Any:
        """Send a request by the connections of the client, with its credentials."""
        from urllib3.exceptions import HTTPError

        settings = self._client.configuration
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": kind}
        headers |= {auth["key"]: auth["value"] for auth in settings.auth_settings().values() if auth["in"] == "header"}
        data = None if body is None else json.dumps(body)
        try:
            return self._client.rest_client.pool_manager.request(
                method,
                settings.host + path,
                body=data,
                headers=headers,
                preload_content=not stream,
                timeout=90.0 if stream else 10.0,
                retries=False,
            )
        except HTTPError as error:
            raise KubernetesError(f"{method} {path}: {error}") from None

    def list(self, kind: str) -> tuple[dict[str, dict[str, Any]], str]:
        answer = json.loads(self.request("GET", KINDS[kind]))
        return {path_of(kind, one): one for one in answer["items"]}, answer["metadata"]["resourceVersion"]

    def watch(self, kind: str, version: str, tell: Callable[[Changes, bool], object]) -> None:
        """Call `tell` with objects that have changed since a version, by path, None for one that is deleted.

        Its other argument is True if these are all objects.  A RuntimeError of it ends the watch.
        """
        from urllib3.exceptions import HTTPError

        said = ""
        while not self._closed.is_set():
            try:
                if not version:
                    objects, version = self.list(kind)
                    tell(dict(objects), True)
                query = f"watch=1&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=60"
                with closing(self._open("GET", f"{KINDS[kind]}?{query}", stream=True)) as answer:
                    self._watches[kind] = answer
                    if answer.status != 200:
                        raise KubernetesError(f"watch of {kind}: {answer.status}", answer.status)
                    for event in _events(answer):
                        if event["type"] == "ERROR":
                            raise KubernetesError(f"watch of {kind}: {event['object']}", event["object"]["code"])
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            there = event["type"] != "DELETED"
                            tell({path_of(kind, event["object"]): event["object"] if there else None}, False)
                    said = ""
            except Exception as error:
                if isinstance(error, RuntimeError) and "loop is closed" in str(error):
                    return
                if getattr(error, "status", 0) == 410:
                    version = ""
                elif not self._closed.is_set():
                    if not isinstance(error, KubernetesError | HTTPError | OSError):
                        version = ""  # an event that was not understood may have changed something
                    text = f"{type(error).__name__}: {error}"
                    quiet = text == said or getattr(error, "status", 0) == 404  # the server has no such kind
                    LOGGER.log(logging.INFO if quiet else logging.WARNING, "watch of %s: %s", kind, text)
                    said = text
                    self._closed.wait(5.0 if getattr(error, "status", 0) in _DENIED else 1.0)


def _events(answer: Any) -> Iterator[dict[str, Any]]:
    rest = b""
    for chunk in answer.stream(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from map(json.loads, lines)


def path_of(kind: str, one: Mapping[str, Any]) -> str:
    """Return the name by which an object is known: the path of a pod, ``NAMESPACE/NAME``, or its name."""
    about = one["metadata"]
    if kind == "pods":
        return f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
    return f"{about['namespace']}/{about['name']}" if "namespace" in about else str(about["name"])


@contextmanager
def allowed(status: int) -> Iterator[None]:
    """Ignore an error of that status."""
    try:
        yield
    except KubernetesError as error:
        if error.status != status:
            raise
