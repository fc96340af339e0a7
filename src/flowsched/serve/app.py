"""The service over HTTP: routes, the token, limits of a request, and answers in JSON."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import logging
import re
import time
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.resources import files
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import nearest, quoted
from flowsched.cluster import Cluster
from flowsched.cluster.model import MICRO
from flowsched.cluster.records import TaskRecord
from flowsched.exceptions import FlowschedError, UnknownIdError
from flowsched.rounds.values import Round
from flowsched.scheduler import Scheduler
from flowsched.serve import openapi, wire
from flowsched.serve.access import OPERATOR, Access, Role, Tokens
from flowsched.serve.service import Service
from flowsched.serve.wire import RequestError, Row
from flowsched.version import __version__

_EMPTY: dict[Hashable, Any] = {}


try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route
except ImportError as missing:
    raise ImportError("the service needs starlette and uvicorn: pip install 'flowsched[serve]'") from missing

_LOGGER = logging.getLogger("flowsched.serve")

_KEY = re.compile(openapi.KEY)

_SMALL = 1000
"""Bytes of an answer that is not worth compressing."""

_NONE = re.compile(r"q\s*=\s*0(\.0*)?")
"""A client's refusal of an encoding."""


@dataclass(frozen=True)
class RequestLimits:
    """Limits of a request.

    Parameters
    ----------
    body : int
        Number of bytes.
    events : int
    seconds : float
        Time limit of the head of a request, of its body, and of a client's receipt of a piece of a stream.
    connections : int
        Number of connections.  The requests in progress of one user, or of the tokens of one other role, are at most half as many.
    """

    body: int = 8 << 20
    events: int = 10_000
    seconds: float = 10.0
    connections: int = 1000


def application(service: Service, token: str | Tokens, limits: RequestLimits = RequestLimits()) -> Starlette:
    """Return the ASGI application of a service; it starts and stops the service with itself.

    Parameters
    ----------
    token : str or Tokens
        A single token may do everything.
    """
    return _Routes(service, token, limits).application()


_Handler = Callable[[Request], Awaitable[Response]]


class _Routes:
    def __init__(self, service: Service, token: str | Tokens, limits: RequestLimits) -> None:
        self._service, self._limits = service, limits
        self._tokens = Tokens([(token, OPERATOR)]) if isinstance(token, str) else token
        self._busy = Counter[Access]()
        """Requests in progress."""

    def application(self) -> Starlette:
        routes = [
            Route(one.path.replace("{task}", "{task:path}"), self._handler(one), methods=[one.method])
            for one in openapi.OPERATIONS
        ]
        errors: Any = {HTTPException: self._http_error}
        return Starlette(routes=routes, exception_handlers=errors, lifespan=self._life)

    def _handler(self, one: openapi.Operation) -> _Handler:
        handler: _Handler = getattr(self, f"_{one.name}")
        if one.roles is None:
            return self._answered(handler)
        names = [*openapi.QUERIES.get(one.name, ()), *openapi.TEXTS.get(one.name, ())]

        async def known(request: Request) -> Response:
            for name in request.query_params:
                if name not in names:
                    known = ", ".join(names) or "none"
                    raise RequestError(f"query: {quoted(name)}: unknown; known: {known}{nearest(name, names)}")
            return await handler(request)

        return self._guarded(known, one.roles)

    @asynccontextmanager
    async def _life(self, app: Starlette) -> AsyncIterator[None]:
        async with self._service:
            yield

    # -- around every request -----------------------------------------------------------------------------------

    def _answered(self, handler: _Handler) -> _Handler:
        """Turn errors into responses."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestError as error:
                return _json(error.answer(), error.status, {"connection": "close"} if isinstance(error, _Cut) else None)
            except UnknownIdError as error:
                return _json({"error": str(error)}, 404)
            except FlowschedError as error:
                return _json({"error": str(error)}, 422)
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception:
                _LOGGER.exception("%s %s", request.method, request.url.path)
                return _json({"error": "internal error; the service's log has it"}, 500)

        return answer

    def _guarded(self, handler: _Handler, roles: Sequence[Role]) -> _Handler:
        """Refuse requests without a token, or with that of another role."""

        async def checked(request: Request) -> Response:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            access = self._tokens.find(given.strip())
            if access is None or scheme.lower() != "bearer":
                error = {"error": "the token is missing or wrong; send 'Authorization: Bearer TOKEN'"}
                return _json(error, 401, {"www-authenticate": "Bearer", "connection": "close"})
            if access.role not in roles:
                error = {"error": f"a token of the role {' or '.join(roles)} expected, this one has {access.role}"}
                return _json(error, 403, {"connection": "close"})
            if self._busy[access] >= max(1, self._limits.connections // 2):
                error = {"error": f"{self._busy[access]} requests are in progress with such tokens; repeat it later"}
                return _json(error, 429, {"retry-after": "1", "connection": "close"})
            request.state.access = access
            with self._in_progress(access):
                return await handler(request)

        return self._answered(checked)

    @contextmanager
    def _in_progress(self, access: Access) -> Iterator[None]:
        self._busy[access] += 1
        try:
            yield
        finally:
            self._busy[access] -= 1

    async def _http_error(self, request: Request, error: Any) -> Response:
        headers = dict(error.headers or {})
        return _json({"error": f"{error.detail}: {request.method} {request.url.path}"}, error.status_code, headers)

    async def _body(self, request: Request) -> bytes:
        """Read the body, within the limits of size and time."""
        most, stated = self._limits.body, request.headers.get("content-length", "0")
        parts, size = [], int(stated) if stated.isdecimal() and len(stated) < 20 else most + 1
        try:
            async with asyncio.timeout(self._limits.seconds):
                if size <= most:
                    size = 0
                    async for part in request.stream():
                        parts.append(part)
                        size += len(part)
                        if size > most:
                            break
        except TimeoutError:
            raise _Cut(f"body: it did not arrive within {self._limits.seconds:g} seconds", 408) from None
        if size > most:
            raise _Cut(f"body: more than {most} bytes", 413)
        return b"".join(parts)

    async def _decoded(self, request: Request) -> tuple[bytes, list[Any]]:
        body = await self._body(request)
        if len(body) < 1 << 16:
            return body, self._parsed(body)
        return body, await asyncio.to_thread(self._parsed, body)

    def _parsed(self, body: bytes) -> list[Any]:
        return wire.decode(wire.parse(body), self._limits.events)

    # -- requests -----------------------------------------------------------------------------------------------

    async def _events(self, request: Request) -> Response:
        key = request.headers.get("idempotency-key")
        if key is not None and not _KEY.fullmatch(key):
            raise RequestError("Idempotency-Key: 1 to 200 visible ASCII characters expected")
        body, events = await self._decoded(request)
        digest = "" if key is None else hashlib.sha256(body).hexdigest()
        return _json(await self._service.tell(events, key, digest, request.state.access))

    async def _what_if(self, request: Request) -> Response:
        _, events = await self._decoded(request)
        return _json(await self._service.what_if(events, request.state.access))

    async def _rounds(self, request: Request) -> Response:
        newest = self._service.rounds
        after, wait, limit = (_number(request, "rounds", name, newest.newest) for name in ("after", "wait", "limit"))
        await newest.more(after, wait)
        rounds = newest.after(after, limit)
        text = b'{"newest":%d,"rounds":[%s]}' % (after + len(rounds), b",".join(rounds))
        return Response(text, media_type="application/json")

    async def _stream(self, request: Request) -> Response:
        after = _number(request, "stream", "after", self._service.rounds.newest)
        self._service.rounds.after(after, 0)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(
            self._lines(after, request.state.access), headers=headers, media_type="application/x-ndjson"
        )

    async def _lines(self, after: int, access: Access) -> AsyncIterator[bytes]:
        """Yield rounds as lines of JSON; an empty line means that there are none at present."""
        newest = self._service.rounds
        with self._in_progress(access):
            while True:
                try:
                    rounds = newest.after(after, 100)
                except RequestError as gone:
                    yield wire.spelt(gone.answer()) + b"\n"
                    return
                if rounds:
                    after += len(rounds)
                    yield b"\n".join((*rounds, b""))
                elif newest.closed:
                    return
                else:
                    yield b"\n"
                    await newest.more(after, 5.0)

    async def _state(self, request: Request) -> Response:
        service, access = self._service, request.state.access

        def state() -> bytes:
            return wire.spelt({"round": service.made, **_state(service.scheduler, access)})

        return await _packed(request, await service.ask(state))

    async def _overview(self, request: Request) -> Response:
        service, access = self._service, request.state.access
        first, tasks, machines = (_number(request, "overview", name) for name in ("first", "tasks", "machines"))
        past = list(service.past)

        def overview() -> bytes:
            shown = _overview(service.scheduler, access, service.last, first, tasks, machines)
            return wire.spelt(
                {"round": service.made, "version": __version__, "now": time.time(), "past": past, **shown}
            )

        return await _packed(request, await service.ask(overview))

    async def _explain(self, request: Request) -> Response:
        service, said, access = self._service, request.path_params["task"], request.state.access
        machine = request.query_params.get("machine")

        def reason() -> Row:
            cluster = service.scheduler.cluster
            task = _id(said, cluster.tasks)
            record = cluster.tasks.get(task)
            if record is not None and not access.sees(record.group.job.job.user):
                raise UnknownIdError(f"unknown task {quoted(task)}")
            where = () if machine is None else (_id(machine, cluster.machines),)
            why = wire.reason(service.scheduler.explain(task, *where))
            return {"task": task, **why, "machine": cluster.placement(task)}

        return _json(await service.ask(reason))

    async def _metrics(self, request: Request) -> Response:
        try:
            expose = self._exposition
        except ImportError as missing:
            raise RequestError(str(missing), 501) from None
        return Response(await self._service.ask(expose), media_type="text/plain; version=0.0.4; charset=utf-8")

    @cached_property
    def _exposition(self) -> Callable[[], bytes]:
        from flowsched.metrics import PrometheusCollector

        collector = PrometheusCollector(self._service.scheduler)
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(collector)
        return partial(generate_latest, registry)

    async def _openapi(self, request: Request) -> Response:
        return Response(self._described, media_type="application/json")

    @cached_property
    def _described(self) -> bytes:
        return wire.spelt(openapi.document(self._limits.events))

    async def _health(self, request: Request) -> Response:
        service = self._service
        status = "ok" if service.open else "failed" if service.failed is not None else "stopping"
        return _json({"status": status, "version": __version__}, 200 if service.open else 503)

    async def _page(self, request: Request) -> Response:
        page, policy = self._live
        headers = {"content-security-policy": policy, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
                   "cache-control": "no-cache"}  # fmt: skip
        return Response(page, media_type="text/html", headers=headers)

    @cached_property
    def _live(self) -> tuple[bytes, str]:
        """Live page, and its content security policy."""
        page = files("flowsched.serve").joinpath("live.html").read_bytes()
        script = page[page.index(b"<script>") + 8 : page.rindex(b"</script>")]
        digest = b64encode(hashlib.sha256(script).digest()).decode()
        return page, (
            f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )


class _Cut(RequestError):
    """A request whose rest is not read."""


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(wire.spelt(value), status, headers, "application/json")


async def _packed(request: Request, text: bytes) -> Response:
    """Return a large answer in JSON, compressed where the client takes that."""
    headers = {"vary": "accept-encoding"}
    accepted = [part.partition(";") for part in request.headers.get("accept-encoding", "").lower().split(",")]
    if len(text) > _SMALL and any(
        name.strip() == "gzip" and not _NONE.fullmatch(quality.strip()) for name, _, quality in accepted
    ):
        text = await asyncio.to_thread(gzip.compress, text, 1)
        headers["content-encoding"] = "gzip"
    return Response(text, 200, headers, "application/json")


def _number(request: Request, operation: str, name: str, newest: int = 0) -> int:
    query = openapi.QUERIES[operation][name]
    said = request.query_params.get(name)
    if said is None:
        return newest if query.default is None else query.default
    if not re.fullmatch(r"[0-9]{1,16}", said) or int(said) > query.most:
        raise RequestError(f"{name}: a whole number from 0 to {query.most} expected")
    return int(said)


def _id(said: str, known: Any) -> Any:
    """Return the id of a text: the text itself, or its value as JSON."""
    if said in known:
        return said
    try:
        value = wire.parse(said.encode())
        value = tuple(value) if isinstance(value, list) else value
        return value if value in known else said
    except (RequestError, TypeError):
        return said


def _state(scheduler: Scheduler, access: Access) -> Row:
    """Return all machines, and the jobs, users and tasks that may be seen, with the numbers of the runs."""
    cluster = scheduler.cluster
    jobs = [record for record in cluster.jobs.values() if access.sees(record.job.user)]
    tasks: Iterable[TaskRecord] = cluster.tasks.values()
    if access.restricted:
        tasks = (task for task in tasks if access.sees(task.group.job.job.user))
    return {
        "events": cluster.events,
        "resources": cluster.resources.names,
        "machines": list(_machines(cluster, None)),
        "users": [{"id": user.id, "quota": user.quota} for user in cluster.users.values() if access.sees(user.id)],
        "jobs": [
            {"id": r.job.id, "user": r.job.user, "priority": r.job.priority, "gang": r.job.gang, "closed": r.job.closed,
             "tasks": len(r.tasks)}
            for r in jobs
        ],
        "tasks": [_task(cluster, task) for task in tasks],
    }  # fmt: skip


def _task(cluster: Cluster, task: TaskRecord) -> Row:
    row = {"id": task.id, "job": task.group.job.job.id}
    if task.row < 0:
        return {**row, "since": task.since}
    since = {"since": task.began, "machine": cluster.by_row[task.row].id, "run": task.run}
    return {**row, **since, **({"devices": task.devices} if task.devices else {})}


def _machines(cluster: Cluster, most: int | None) -> Iterator[Row]:
    inventory = cluster.inventory
    for record in islice(cluster.machines.values(), most):
        capacity, free = inventory.capacity[record.row] / MICRO, inventory.free[record.row] / MICRO
        state = "failed" if record.failed else "drained" if record.drained else "up"
        yield {"id": record.id, "rack": record.rack, "state": state, "tasks": len(record.tasks),
               "capacity": capacity.tolist(), "used": (capacity - free).tolist()}  # fmt: skip


def _overview(scheduler: Scheduler, access: Access, last: Round | None, first: int, tasks: int, machines: int) -> Row:
    """Return the data of the live page: machines, waiting tasks from position `first` on, users and counts.

    A restricted access has the tasks, counts and reasons of its user, and the machines as they are.
    """
    cluster = scheduler.cluster
    waiting = _EMPTY if last is None else last.waiting
    metrics = scheduler.metrics()
    users = _users(cluster, _EMPTY if last is None else last.shares, access)
    running, queued = metrics["tasks_running"], metrics["tasks_waiting"]
    codes: Any = metrics["waiting_by_reason"]
    shown: Iterable[Hashable] = waiting
    if access.restricted:
        running, queued = (sum(user[name] for user in users) for name in ("running", "waiting"))
        shown = [id for id in waiting if id in cluster.tasks and access.sees(cluster.tasks[id].group.job.job.user)]
        codes = Counter(waiting[id].code.value for id in shown)
    return {
        "role": access.role,
        "events": cluster.events,
        "resources": cluster.resources.names,
        "machines": list(_machines(cluster, machines)),
        "all_machines": len(cluster.machines),
        "waiting": list(_queue(cluster, waiting, islice(shown, first, first + tasks))),
        "all_waiting": queued,
        "codes": {code: count for code, count in codes.items() if count},
        "users": users,
        "tasks_running": running,
        **{name: metrics[name] for name in ("rounds_total", "placements_total", "preemptions_total")},
    }


def _queue(cluster: Cluster, waiting: Any, shown: Iterable[Hashable]) -> Iterator[Row]:
    """Yield waiting tasks with their reasons."""
    for id in shown:
        task = cluster.tasks.get(id)
        if task is not None and task.row < 0:
            group, why = task.group, waiting[id]
            demand = dict(zip(cluster.resources.names, (group.cls.demand / MICRO).tolist(), strict=True))
            yield {"id": id, "job": group.job.job.id, "user": group.job.job.user, "since": task.since,
                   "priority": group.job.job.priority, "demand": {name: amount for name, amount in demand.items() if amount},
                   **wire.reason(why)}  # fmt: skip


def _users(cluster: Cluster, shares: Any, access: Access) -> list[Row]:
    """Return users: tasks, the part of each resource of the working machines, and the entitlement if it is known."""
    amounts: dict[Hashable, NDArray[np.int64]] = {}
    counts: dict[Hashable, list[int]] = {}
    for job in cluster.jobs.values():
        user = job.job.user
        if job.tasks and access.sees(user):
            used = amounts.setdefault(user, np.zeros(len(cluster.resources.names), np.int64))
            count = counts.setdefault(user, [0, 0])
            for group in job.each_group():
                running = group.tasks - len(group.waiting)
                used += running * group.cls.demand
                count[0] += running
                count[1] += len(group.waiting)
    rows = [record.row for record in cluster.machines.values() if not record.failed]
    whole = np.maximum(cluster.inventory.capacity[rows].sum(axis=0), 1)
    return [
        {"user": user, "running": counts[user][0], "waiting": counts[user][1], "share": (used / whole).tolist(),
         **({"entitled": shares[user].entitled} if user in shares else {})}
        for user, used in amounts.items()
    ]  # fmt: skip
