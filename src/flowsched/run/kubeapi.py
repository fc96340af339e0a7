"""Requests to a Kubernetes API server: single ones, lists, and watches, on the event loop.

Only credentials and settings of the official client are used, so any version of it will do.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

from flowsched.boundary.validate import quoted
from flowsched.exceptions import FlowschedError
from flowsched.version import __version__

LOGGER = logging.getLogger("flowsched")

Changes = list[tuple[str, dict[str, Any] | None]]
"""Objects by path in the order of their changes; None for one that is deleted."""

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

_CONNECTIONS = 64
"""Largest number of connections, those of watches included."""

_SILENT = 10.0
"""Seconds without a byte of the server after which a request has failed."""

_WATCH = 60
"""Seconds after which the server ends a watch."""

_FIRST, _MOST = 0.1, 10.0
"""Seconds until a request is repeated: at first, doubled with each failure, and at most."""

_PAGE = 500
"""Largest number of objects in an answer to a list."""

_TOKEN = 10.0
"""Seconds for which credentials are kept before the client is asked again."""

_DENIED = (401, 403, 404)
"""Answers that stay until the account or the server changes."""


class KubernetesError(FlowschedError):
    """The API server refused a request, or a pod failed without an exit status.

    Attributes
    ----------
    status : int
        Of the HTTP answer, or 0.
    after : float or None
        Seconds after which the server wants to be asked again.
    """

    def __init__(self, message: str, status: int = 0, after: float | None = None) -> None:
        super().__init__(message, status)
        self.status, self.after = status, after

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def passes(self) -> bool:
        """True if the request may succeed later: the server was not reached, is too busy, or has failed."""
        return self.status in (0, 429) or self.status >= 500


class Backoff:
    """Times between attempts, which double; those that the server names are kept, and all are spread."""

    def __init__(self) -> None:
        self._seconds = _FIRST

    def after(self, error: BaseException) -> float:
        """Return the seconds to wait after an error."""
        named = getattr(error, "after", None)
        seconds = self._seconds if named is None else max(named, self._seconds)
        self._seconds = min(2 * self._seconds, _MOST)
        return seconds * random.uniform(1.0, 1.25)


class Api:
    """Requests to an API server with the credentials of a client of the official package.

    By default the client is that of the current context, or of the pod in which this runs.
    """

    def __init__(self, client: Any = None) -> None:
        try:
            import aiohttp
        except ImportError:
            raise KubernetesError("Kubernetes: aiohttp is missing: pip install 'flowsched[kubernetes]'") from None
        if client is None:
            from kubernetes import client as package
            from kubernetes import config

            load: Any = config.load_config  # without annotations
            try:
                load()
            except config.ConfigException as error:
                raise KubernetesError(f"Kubernetes: {error}") from None
            client = package.ApiClient()
        self._settings = client.configuration
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=_ssl(self._settings))
        silent = aiohttp.ClientTimeout(total=None, sock_connect=_SILENT, sock_read=_SILENT)
        self._session = aiohttp.ClientSession(connector=connector, timeout=silent)
        self._failures = aiohttp.ClientError, OSError
        self._options: dict[str, Any] = {"proxy": getattr(self._settings, "proxy", None)}
        if getattr(self._settings, "tls_server_name", None):
            self._options["server_hostname"] = self._settings.tls_server_name
        self._headers: dict[str, str] = {}
        self._fresh = float("-inf")
        self._watches: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End the watches and the connections."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        await self._session.close()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer to a request as JSON has it; the request is repeated until there is one.

        The body of a ``PATCH`` is a strategic merge patch.
        """
        backoff = Backoff()
        while True:
            try:
                return await self.once(method, path, body)
            except KubernetesError as error:
                if not error.passes:
                    raise
                LOGGER.info("%s", error)
                seconds = backoff.after(error)
            await asyncio.sleep(seconds)

    async def once(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer to a request, which is made once, as JSON has it."""
        answer = await self.request(method, path, body)
        try:
            return json.loads(answer)
        except ValueError:  # cut off on the way
            raise KubernetesError(f"{method} {path}: JSON expected, got {quoted(answer[:200])}") from None

    async def request(self, method: str, path: str, body: Any = None) -> bytes:
        """Return the answer to a request, which is made once."""
        try:
            async with await self._open(method, path, body) as answer:
                data: bytes = await answer.read()
                return data
        except self._failures as error:
            raise KubernetesError(f"{method} {path}: {str(error) or type(error).__name__}") from None

    async def _open(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Send a request, and return its answer, whose body is not read yet."""
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        headers = {**await self._credentials(), "Content-Type": kind}
        data = None if body is None else json.dumps(body)
        url = self._settings.host + path
        answer = await self._session.request(method, url, data=data, headers=headers, **self._options, **options)
        if answer.status >= 300:
            async with answer:
                raise _refusal(method, path, answer, await answer.text(errors="replace"))
        return answer

    async def _credentials(self) -> dict[str, str]:
        """Return the headers of a request.  The client may read files or run a program for them, so a thread asks it."""
        now = asyncio.get_running_loop().time()
        if now - self._fresh > _TOKEN:
            self._fresh = now
            given = await asyncio.to_thread(self._settings.auth_settings)
            self._headers = {auth["key"]: auth["value"] for auth in given.values() if auth["in"] == "header"}
            self._headers |= {"Accept": "application/json", "User-Agent": f"flowsched/{__version__}"}
        return self._headers

    async def list(self, kind: str) -> tuple[dict[str, dict[str, Any]], str]:
        """Return all objects of a kind, and their version.  They come in pages, and from the first one again if these expire."""
        objects: dict[str, dict[str, Any]] = {}
        rest = ""
        while True:
            try:
                answer = await self.ask("GET", f"{KINDS[kind]}?limit={_PAGE}{rest}")
            except KubernetesError as error:
                if error.status != 410 or not rest:
                    raise
                LOGGER.info("list of %s: %s; it begins again", kind, error)
                objects, rest = {}, ""
                continue
            objects.update((path_of(kind, one), one) for one in answer["items"])
            rest = answer["metadata"].get("continue") or ""
            if not rest:
                return objects, answer["metadata"]["resourceVersion"]
            rest = f"&continue={quote(rest)}"

    def watch(self, kind: str, version: str, tell: Callable[[Changes, bool], object]) -> None:
        """Call `tell` with the objects that have changed since a version.

        Its other argument is True if these are all objects, as they are first if no version is given.
        """
        task = asyncio.create_task(self._watch(kind, version, tell))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _watch(self, kind: str, version: str, tell: Callable[[Changes, bool], object]) -> None:
        import aiohttp

        quiet = aiohttp.ClientTimeout(total=None, sock_connect=_SILENT, sock_read=1.5 * _WATCH)
        said, backoff = "", Backoff()
        while True:
            try:
                if not version:
                    objects, version = await self.list(kind)
                    tell([*objects.items()], True)
                query = f"watch=1&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds={_WATCH}"
                async with await self._open("GET", f"{KINDS[kind]}?{query}", timeout=quiet) as answer:
                    if said:
                        LOGGER.warning("watch of %s: it goes on", kind)
                    said, backoff, rest = "", Backoff(), b""
                    async for chunk in answer.content.iter_any():
                        *lines, rest = (rest + chunk).split(b"\n")
                        changes: Changes = []
                        for event in map(json.loads, lines):
                            if event["type"] == "ERROR":
                                raise KubernetesError(f"{event['object']}", event["object"]["code"])
                            version = event["object"]["metadata"]["resourceVersion"]
                            if event["type"] != "BOOKMARK":
                                there = event["type"] != "DELETED"
                                changes.append((path_of(kind, event["object"]), event["object"] if there else None))
                        if changes:
                            tell(changes, False)
            except Exception as error:
                status = getattr(error, "status", 0)
                if status == 410:
                    version = ""
                    continue
                if not isinstance(error, (KubernetesError, *self._failures)):
                    version = ""  # an event that was not understood may have changed something
                text = f"{type(error).__name__}: {error}"
                if isinstance(error, KubernetesError):
                    text = str(error)
                elif isinstance(error, self._failures):
                    text = "the connection was lost"
                quietly = text == said or status == 404  # the server has no such kind
                LOGGER.log(logging.INFO if quietly else logging.WARNING, "watch of %s: %s", kind, text)
                said = text
                await asyncio.sleep(5.0 if status in _DENIED else backoff.after(error))


def _ssl(settings: Any) -> Any:
    """Return the TLS context of a client's settings."""
    context, data = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), getattr(settings, "ca_cert_data", None)
    if settings.ssl_ca_cert or data:
        context.load_verify_locations(settings.ssl_ca_cert, cadata=data)
    elif settings.verify_ssl:
        context.load_default_certs()
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    if not settings.verify_ssl or settings.assert_hostname is False:
        context.check_hostname = False
    if not settings.verify_ssl:
        context.verify_mode = ssl.CERT_NONE
    return context


def _refusal(method: str, path: str, answer: Any, text: str) -> KubernetesError:
    with suppress(ValueError, LookupError, TypeError):
        text = json.loads(text)["message"]
    after = None
    with suppress(ValueError):
        after = max(float(answer.headers.get("Retry-After", "")), 0.0)
    return KubernetesError(f"{method} {path}: {answer.status} {text[:500]}", answer.status, after)


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
