"""Refused requests name the index and the field of the error."""

from __future__ import annotations

import json
import re
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

import flowsched as fs
import flowsched.serve
from flowsched.cluster.events import to_dict
from flowsched.rounds.values import ReasonCode
from flowsched.serve import wire
from flowsched.serve.wire import RequestError

EVENTS = [
    fs.MachineAdded("m", {"cpu": 4}, rack="r", labels={"a": "b"}, taints=[("k", "v", "NoSchedule")]),
    fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1}, {"a": ("b",)}, data={"m": 3})], user="u", gang=1),
    fs.TaskSubmitted("j", fs.Task(7, {"cpu": 1})),
    fs.TaskCompleted(7, run=1),
    fs.JobRemoved(("a", 1)),
]


def test_every_event_comes_back_unchanged() -> None:
    body = wire.spelt([to_dict(event) for event in EVENTS])
    decoded = wire.decode(wire.parse(body), 10)
    assert [to_dict(event) for event in decoded] == json.loads(json.dumps([to_dict(event) for event in EVENTS]))
    assert wire.decode({"events": []}, 10) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b'[{"kind": ', "no JSON"),
        (b"[NaN]", "NaN is no number"),
        (b"[" * 100_000, "nested too deep"),
        (b"[1" + b"0" * 30 + b"]", "beyond 64 bits"),
        (b"[1" + b"0" * 10_000 + b"]", "beyond 64 bits"),
        (b"[-9223372036854775809]", "beyond 64 bits"),
    ],
)
def test_what_is_no_json_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words) as raised:
        wire.parse(body)
    assert raised.value.status == 400 and len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("body", "index", "field", "words"),
    [
        ({}, None, None, "a list of events"),
        (7, None, None, "a list of events"),
        ([7], 0, None, "an object"),
        ([{"kind": []}], 0, "kind", "name of an event"),
        ([{"kind": "Event"}], 0, "kind", "unknown, got 'Event'; known: JobRemoved, "),
        ([{"kind": "from_dict"}], 0, "kind", "unknown"),
        ([{"kind": "MachineFailed", "id": "m"}, {"kind": "TaskCompleted"}], 1, "task", "is missing"),
        ([{"kind": "TaskCompleted", "task": "t", "tusk": 1}], 0, "tusk", "unknown"),
        ([{"kind": "JobSubmitted", "id": "j", "tasks": 5}], 0, "tasks", "a list of tasks"),
        ([{"kind": "JobSubmitted", "id": "j", "tasks": [{"id": 1}, {}]}], 0, "tasks[1].id", "is missing"),
        ([{"kind": "JobSubmitted", "id": "j", "tasks": [{"id": 1, "cpu": 2}]}], 0, "tasks[0].cpu", "unknown"),
        ([{"kind": "TaskSubmitted", "job": "j", "task": "t"}], 0, "task", "an object"),
        ([{"kind": "JobSubmitted", "id": "j", "tasks": [{"id": {}}]}], 0, None, "id"),
        ([{"kind": "JobSubmitted", "id": "j", "tasks": [{"id": 1, "constraints": 4}]}], 0, None, "constraints"),
        ([{"kind": "MachineFailed", "id": "m" * 2000}], 0, None, "more than 1000"),
        ([{"kind": "MachineFailed", "id": [[[[[[[[[1]]]]]]]]]}], 0, None, "too deep"),
    ],
)
def test_an_error_names_the_event_and_the_field(body: Any, index: int | None, field: str | None, words: str) -> None:
    with pytest.raises(RequestError) as raised:
        wire.decode(body, 10)
    answer = raised.value.answer()
    assert words in answer["error"] and answer.get("index") == index and answer.get("field") == field
    assert len(answer["error"]) < 500


def test_too_many_events_are_refused() -> None:
    with pytest.raises(RequestError, match="at most 10") as raised:
        wire.decode([{}] * 11, 10)
    assert raised.value.status == 413


def test_numbers_that_are_not_finite_become_null() -> None:
    assert wire.spelt({"a": inf, "b": [nan, 1.5], "c": ("x",)}) == b'{"a":null,"b":[null,1.5],"c":["x"]}'


def test_the_page_has_words_for_every_reason() -> None:
    page = (Path(flowsched.serve.__file__).parent / "live.html").read_text(encoding="utf-8")
    words = page[page.index("const WORDS = {") : page.index("const CHARTS")]
    assert set(re.findall(r"([A-Z_]{4,}): \"", words)) == set(ReasonCode) - {ReasonCode.RUNNING}
