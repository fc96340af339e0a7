"""Operations of the service, and the OpenAPI document that describes them.

`OPERATIONS` and `QUERIES` are the tables from which the application takes its routes, roles and limits of numbers, and the
document its paths.  The schemas of events come from the fields and annotations of the classes that requests become.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from flowsched.cluster import events as ev
from flowsched.cluster.model import Task
from flowsched.rounds.values import ReasonCode
from flowsched.serve import wire
from flowsched.serve.access import Role
from flowsched.version import __version__

Schema = dict[str, Any]

KEY = "[!-~]{1,200}"
"""Form of an idempotency key."""


@dataclass(frozen=True)
class Query:
    """A whole number in the query of a request.

    Parameters
    ----------
    default : int or None
        None for the number of the newest round.
    most : int
    about : str
    """

    default: int | None
    most: int
    about: str


_AFTER = Query(None, 2**53, "number of a round; rounds after it are returned, by default those that are still to come")

QUERIES: Mapping[str, Mapping[str, Query]] = {
    "rounds": {
        "after": _AFTER,
        "wait": Query(0, 60, "seconds to wait for a round"),
        "limit": Query(1000, 10_000, "number of rounds"),
    },
    "stream": {"after": _AFTER},
    "overview": {
        "first": Query(0, 2**40, "position of the first waiting task"),
        "tasks": Query(200, 10_000, "number of waiting tasks"),
        "machines": Query(2000, 100_000, "number of machines"),
    },
}
"""Numbers in the query of each operation, by its name."""

TEXTS: Mapping[str, Mapping[str, str]] = {"explain": {"machine": "a machine on which the task is not"}}
"""Texts in the query of each operation."""


@dataclass(frozen=True)
class Operation:
    """A method of a path.

    Parameters
    ----------
    name : str
    path : str
    about : str
    roles : tuple of str or None
        Roles that may do it; None if it needs no token.
    answer : str
        Schema of the answer, or its media type if that is not JSON.
    method : str
    """

    name: str
    path: str
    about: str
    roles: tuple[Role, ...] | None
    answer: str
    method: str = "GET"


_ALL: tuple[Role, ...] = get_args(Role)
_WHOLE: tuple[Role, ...] = ("read", "operator")
_CHANGING: tuple[Role, ...] = ("user", "operator")

OPERATIONS = (
    Operation("page", "/", "the live page", None, "text/html"),
    Operation("health", "/healthz", "state of the service", None, "Health"),
    Operation("openapi", "/v1/openapi.json", "this document", None, "Document"),
    Operation("metrics", "/metrics", "metrics for Prometheus", _WHOLE, "text/plain"),
    Operation("events", "/v1/events", "apply events, all or none", _CHANGING, "Told", "POST"),
    Operation("what_if", "/v1/what-if", "the round that would follow events", _CHANGING, "Supposed", "POST"),
    Operation("rounds", "/v1/rounds", "rounds after a number", _WHOLE, "Rounds"),
    Operation("stream", "/v1/rounds/stream", "rounds as lines of JSON, without end", _WHOLE, "application/x-ndjson"),
    Operation("state", "/v1/state", "machines, users, jobs and tasks", _ALL, "State"),
    Operation("overview", "/v1/overview", "the data of the live page", _ALL, "Overview"),
    Operation("explain", "/v1/explain/{task}", "the reason why a task waits", _ALL, "Explained"),
)

_PROBLEMS = {
    400: "malformed", 401: "the token is missing or wrong", 403: "not allowed with this token", 404: "unknown id",
    408: "the request did not come in time", 409: "an id is taken", 410: "rounds that are not kept", 413: "too large",
    422: "an impossible event, or the key of another request", 429: "too many requests in progress",
    501: "prometheus-client is not installed", 503: "the service is stopping, has failed, or has no more connections",
}  # fmt: skip


def document(events: int) -> Schema:
    """Return the OpenAPI document of a service that takes this number of events in one request."""
    schemas = {**_event_schemas(events), **_ANSWERS}
    return {
        "openapi": "3.1.0",
        "info": {"title": "flowsched", "version": __version__, "summary": "A scheduler as a service."},
        "paths": {one.path: {one.method.lower(): _operation(one)} for one in OPERATIONS},
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(one: Operation) -> Schema:
    parameters: list[Schema] = [
        {"name": name, "in": "query", "description": query.about,
         "schema": {"type": "integer", "minimum": 0, "maximum": query.most,
                    **({} if query.default is None else {"default": query.default})}}
        for name, query in QUERIES.get(one.name, {}).items()
    ]  # fmt: skip
    parameters += [
        {"name": name, "in": "query", "description": about, "schema": {"type": "string"}}
        for name, about in TEXTS.get(one.name, {}).items()
    ]
    problems = {503} if one.roles is None else {400, 401, 403, 429, 503}
    if one.name in ("rounds", "stream"):
        problems |= {410}
    if one.name == "metrics":
        problems |= {501}
    if one.name == "explain":
        parameters += [
            {"name": "task", "in": "path", "required": True, "description": "a text, or another id as JSON",
             "schema": {"type": "string", "minLength": 1}},
        ]  # fmt: skip
        problems |= {404}
    found: Schema = {"operationId": one.name, "summary": one.about}
    if one.method == "POST":
        problems |= {404, 408, 409, 413, 422}
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref("Events")}}}
    if one.name == "events":
        parameters.append(
            {"name": "Idempotency-Key", "in": "header", "description": "repeated requests with one key happen once",
             "schema": {"type": "string", "pattern": f"^{KEY}$"}}
        )  # fmt: skip
    if one.roles is not None:
        found["security"] = [{"token": []}]
        found["description"] = f"Roles: {', '.join(one.roles)}."
    content: Schema = (
        {one.answer: {"schema": {"type": "string"}}} if "/" in one.answer else {"application/json": {"schema": _ref(one.answer)}}
    )  # fmt: skip
    responses: Schema = {"200": {"description": one.about, "content": content}}
    for status in sorted(problems):
        name = "Health" if one.name == "health" else "Error"
        responses[str(status)] = {
            "description": _PROBLEMS[status], "content": {"application/json": {"schema": _ref(name)}},
        }  # fmt: skip
    return {**found, "parameters": parameters, "responses": responses}


# -- schemas of requests --------------------------------------------------------------------------------------------


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_WHOLE_NUMBER = {"type": "integer", "minimum": -(2**63) + 1, "maximum": 2**63 - 1}


def _event_schemas(most: int) -> dict[str, Schema]:
    kinds = {name: known for name in ev.__all__ if (known := wire.kind_fields(name)) is not None}
    listed = {"type": "array", "items": _ref("Event"), "maxItems": most}
    one_of = {"type": "object", "properties": {"events": listed}, "required": ["events"], "additionalProperties": False}
    return {
        "Id": {"anyOf": [{"type": "string", "maxLength": wire.LONGEST_ID}, _WHOLE_NUMBER, {"type": "number"},
                         {"type": "boolean"}, {"type": "null"}, {"type": "array", "items": _ref("Id"), "maxItems": 4}]},
        "Events": {"anyOf": [listed, one_of]},
        "Event": {"oneOf": [_ref(name) for name in kinds],
                  "discriminator": {"propertyName": "kind", "mapping": {name: _ref(name)["$ref"] for name in kinds}}},
        "Task": _record(Task, ["id"], {}),
        **{
            name: _record(getattr(ev, name), ["kind", *(field for field in known if known[field])], {"kind": {"const": name}})
            for name, known in kinds.items()
        },
    }  # fmt: skip


def _record(cls: type, required: list[str], more: dict[str, Schema]) -> Schema:
    hints = get_type_hints(cls)
    properties = {**more, **{field.name: _schema(hints[field.name]) for field in fields(cls)}}
    about = (cls.__doc__ or "").partition("\n")[0].strip()
    return {"type": "object", "description": about, "properties": properties, "required": required,
            "additionalProperties": False}  # fmt: skip


_PLAIN: dict[Any, Schema] = {
    float: {"type": "number"}, int: _WHOLE_NUMBER, bool: {"type": "boolean"}, NoneType: {"type": "null"},
    str: {"type": "string", "maxLength": wire.LONGEST_ID}, Hashable: _ref("Id"), Task: _ref("Task"),
}  # fmt: skip


def _schema(annotation: Any) -> Schema:
    """Return the schema of the JSON that becomes a value of a type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if origin in (Union, UnionType):
        return {"anyOf": [_schema(one) for one in arguments]}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    if origin is Sequence:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin is tuple:
        parts = [_schema(one) for one in arguments]
        return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
    return {}  # requirements on labels have several forms


# -- schemas of answers ---------------------------------------------------------------------------------------------

_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_MAYBE = {"type": ["number", "null"]}
_NUMBERS = {"type": "array", "items": _NUMBER}


def _object(members: Schema, *optional: str) -> Schema:
    return {"type": "object", "properties": members, "required": [name for name in members if name not in optional]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_ID = _ref("Id")
_DEVICES = {"type": ["array", "null"], "items": _COUNT}
_RUN = {"type": ["integer", "null"]}
_ENDED = _list(_object({"task": _ID, "run": _COUNT, "machine": _ID, "why": _TEXT}))
_REASON = {
    "code": {"enum": [code.value for code in ReasonCode]},
    "detail": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": _COUNT}},
    "price": _MAYBE,
    "unblocked_by": _list(_TEXT),
}
_DELTAS = {
    "placed": _list(_object({"task": _ID, "machine": _ID, "run": _RUN, "devices": _DEVICES})),
    "migrated": _list(_object({"task": _ID, "machine": _ID, "run": _RUN, "devices": _DEVICES, "from": _ID, "by": _ID})),
    "preempted": _list(_object({"task": _ID, "machine": _ID, "by": _ID})),
}
_REASONS = _list(_object({**_REASON, "tasks": _list(_ID)}))
_MACHINES = _list(_object({
    "id": _ID, "rack": _ID, "state": {"enum": ["up", "drained", "failed"]}, "tasks": _COUNT, "capacity": _NUMBERS,
    "used": _NUMBERS,
}))  # fmt: skip
_ROUND = _object({
    "round": _COUNT, "now": _NUMBER, "events": _COUNT, **_DELTAS, "ended": _ENDED, "waiting": _COUNT, "reasons": _REASONS,
    "again_at": _MAYBE,
})  # fmt: skip

_ANSWERS: dict[str, Schema] = {
    "Error": _object({"error": _TEXT, "index": _COUNT, "field": _TEXT, "round": _COUNT}, "index", "field", "round"),
    "Health": _object({"status": {"enum": ["ok", "failed", "stopping"]}, "version": _TEXT}),
    "Document": {"type": "object"},
    "Told": _object(
        {"events": _COUNT, "after": _COUNT, "ended": _ENDED, "repeated": {"const": True}}, "after", "ended", "repeated"
    ),
    "Supposed": _object({"now": _NUMBER, **_DELTAS, "waiting": _REASONS, "again_at": _MAYBE}),
    "Rounds": _object({"newest": _COUNT, "rounds": _list(_ROUND)}),
    "State": _object({
        "round": _COUNT, "events": _COUNT, "resources": _list(_TEXT), "machines": _MACHINES,
        "users": _list(_object({"id": _ID, "quota": _NUMBER})),
        "jobs": _list(_object({"id": _ID, "user": _ID, "priority": {"type": "integer"}, "gang": {"type": ["integer", "null"]},
                               "closed": {"type": "boolean"}, "tasks": _COUNT})),
        "tasks": _list(_object({"id": _ID, "job": _ID, "since": _MAYBE, "machine": _ID, "run": _COUNT, "devices": _DEVICES},
                               "machine", "run", "devices")),
    }),
    "Overview": _object({
        "round": _COUNT, "version": _TEXT, "now": _NUMBER, "role": {"enum": list(get_args(Role))},
        "past": _list(_object({"time": _COUNT, "rounds": _COUNT, "requests": _COUNT, "events": _COUNT, "latency": _NUMBER,
                               "round": _NUMBER})),
        "events": _COUNT, "resources": _list(_TEXT), "machines": _MACHINES, "all_machines": _COUNT,
        "waiting": _list(_object({"id": _ID, "job": _ID, "user": _ID, "since": _MAYBE, "priority": {"type": "integer"},
                                  "demand": {"type": "object", "additionalProperties": _NUMBER}, **_REASON})),
        "all_waiting": _COUNT, "codes": {"type": "object", "additionalProperties": _COUNT},
        "users": _list(_object({"user": _ID, "running": _COUNT, "waiting": _COUNT, "share": _NUMBERS, "entitled": {}},
                               "entitled")),
        "tasks_running": _COUNT, "rounds_total": _COUNT, "placements_total": _COUNT, "preemptions_total": _COUNT,
    }),
    "Explained": _object({"task": _ID, **_REASON, "machine": _ID}),
}  # fmt: skip
