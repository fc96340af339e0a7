"""JSON of the service: requests become events, rounds become JSON; errors name their place in the request."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from math import isfinite
from typing import Any, NoReturn

from flowsched.boundary.validate import nearest, quoted
from flowsched.cluster import events as ev
from flowsched.cluster.model import Task
from flowsched.exceptions import FlowschedError, InputError
from flowsched.rounds.values import Delta, Place, Preempt, Reason

Row = dict[str, Any]

DEEPEST = 8
"""Largest nesting depth of an event; an event of a task with requirements needs 6."""

LONGEST_ID = 1000


class RequestError(InputError):
    """A refused request, with its HTTP status.

    `place` is further members of the response: the index of the event, the field.
    """

    def __init__(self, message: str, status: int = 400, **place: Any) -> None:
        super().__init__(message)
        self.status, self.place = status, place

    def answer(self) -> Row:
        """Return the body of the response."""
        return {"error": str(self), **self.place}


# -- in -------------------------------------------------------------------------------------------------------------


def parse(body: bytes) -> Any:
    """Parse a JSON text; NaN and whole numbers beyond 64 bits are refused."""
    try:
        return json.loads(body.decode(), parse_int=_whole, parse_constant=_no_number)
    except RecursionError:
        raise RequestError("body: nested too deep") from None
    except ValueError as error:
        raise RequestError(f"body: no JSON: {error}") from None


def _whole(digits: str) -> int:
    value = int(digits) if len(digits) <= 20 else 1 << 64
    if abs(value) >= 1 << 63:
        raise ValueError(f"a whole number beyond 64 bits: {digits[:24]}")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def decode(body: Any, most: int) -> list[ev.Event]:
    """Return the events of a request: a list of objects, or an object with such a list under ``events``.

    The message of a RequestError names the index and the field.
    """
    if isinstance(body, dict) and body.keys() == {"events"}:
        body = body["events"]
    if not isinstance(body, list):
        raise RequestError(f"body: a list of events expected, got {quoted(body)}")
    if len(body) > most:
        raise RequestError(f"body: {len(body)} events; at most {most} in one request", 413)
    return [_event(i, record) for i, record in enumerate(body)]


def _event(index: int, record: Any) -> ev.Event:
    def refuse(field: str, message: str) -> NoReturn:
        raise RequestError(f"events[{index}]: {field}: {message}", index=index, field=field)

    if not isinstance(record, dict):
        raise RequestError(f"events[{index}]: an object expected, got {quoted(record)}", index=index)
    if not _shallow(record, DEEPEST):
        raise RequestError(
            f"events[{index}]: nested too deep, or an id of more than {LONGEST_ID} characters", index=index
        )
    kind = record.get("kind")
    if not isinstance(kind, str):
        refuse("kind", f"the name of an event expected, got {quoted(kind)}")
    known = kind_fields(kind)
    if known is None:
        kinds = list(filter(kind_fields, ev.__all__))
        hint = nearest(kind, kinds) or f"; known: {', '.join(kinds)}"
        refuse("kind", f"unknown, got {quoted(kind)}{hint}")
    for name in known:
        if known[name] and name not in record:
            refuse(name, "is missing")
    for name in record:
        if name not in known and name != "kind":
            refuse(name, f"unknown; known: {', '.join(known)}{nearest(name, known)}")
    tasks = record.get("tasks", [])
    if not isinstance(tasks, list):
        refuse("tasks", f"a list of tasks expected, got {quoted(tasks)}")
    described = {f"tasks[{i}]": task for i, task in enumerate(tasks)}
    if kind == "TaskSubmitted":
        described["task"] = record["task"]
    for place, task in described.items():
        if not isinstance(task, dict):
            refuse(place, f"an object expected, got {quoted(task)}")
        if "id" not in task:
            refuse(f"{place}.id", "is missing")
        for name in task:
            if name not in _TASK:
                refuse(f"{place}.{name}", f"unknown; known: {', '.join(_TASK)}{nearest(name, _TASK)}")
    try:
        return ev.from_dict(record)
    except FlowschedError as error:
        raise RequestError(f"events[{index}]: {error}", index=index) from None
    except Exception as error:
        raise RequestError(f"events[{index}]: {kind}: {error}", index=index) from None


_TASK = tuple(f.name for f in fields(Task))


@cache
def kind_fields(name: str) -> dict[str, bool] | None:
    """Return the fields of a kind of event, True for required ones; None for an unknown kind."""
    kind = getattr(ev, name, None) if name in ev.__all__ else None
    if not isinstance(kind, type) or not issubclass(kind, ev.Event) or kind is ev.Event:
        return None
    return {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(kind)}


def _shallow(value: Any, left: int) -> bool:
    if type(value) is str:
        return len(value) <= LONGEST_ID
    if type(value) is dict:
        return left > 0 and all(len(name) <= LONGEST_ID for name in value) and _all(value.values(), left)
    return type(value) is not list or (left > 0 and _all(value, left))


def _all(values: Iterable[Any], left: int) -> bool:
    return all(_shallow(value, left - 1) for value in values)


# -- out ------------------------------------------------------------------------------------------------------------


def spelt(value: Any) -> bytes:
    """Return a value as one line of JSON; infinite numbers and NaN become null."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False, default=_other)
    except ValueError:
        text = json.dumps(_finite(value), separators=(",", ":"), default=_other)
    return text.encode()


def _other(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def deltas(accepted: Iterable[Delta], runs: Mapping[Hashable, int]) -> Row:
    """Return the deltas that have happened, by kind; starts have the number of their run."""
    placed, migrated, preempted = list[Row](), list[Row](), list[Row]()
    for delta in accepted:
        row: Row = {"task": delta.task, "machine": delta.machine}
        if isinstance(delta, Preempt):
            preempted.append({**row, "by": delta.by})
            continue
        row |= {"run": runs.get(delta.task), "devices": delta.devices}
        if isinstance(delta, Place):
            placed.append(row)
        else:
            migrated.append({**row, "from": delta.old, "by": delta.by})
    return {"placed": placed, "migrated": migrated, "preempted": preempted}


def reason(why: Reason) -> Row:
    """Return a reason."""
    return {"code": why.code.value, "detail": {shape: dict(blockers) for shape, blockers in why.detail.items()},
            "price": why.price, "unblocked_by": why.unblocked_by}  # fmt: skip


def reasons(waiting: Mapping[Hashable, Reason], tasks: Iterable[Hashable]) -> list[Row]:
    """Return the reasons of some of the waiting tasks; tasks with the same reason are grouped."""
    together: dict[int, tuple[Reason, list[Hashable]]] = {}
    for task in tasks:
        why = waiting.get(task)
        if why is not None:
            together.setdefault(id(why), (why, []))[1].append(task)
    return [{**reason(why), "tasks": alike} for why, alike in together.values()]
