"""The OpenAPI document: what it describes, and whether the service conforms to it."""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from services import TOKEN, ending, small

import flowsched as fs
from flowsched.cluster import events as ev
from flowsched.serve import openapi, wire

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set[str]()
        return own.union(*map(references, value.values()))
    return set[str]().union(*map(references, value)) if isinstance(value, list) else set()


def test_every_event_with_its_fields_is_described() -> None:
    schemas = openapi.document(50)["components"]["schemas"]
    kinds = {name for name in ev.__all__ if wire.kind_fields(name)}
    assert len(kinds) == 18 and {ref["$ref"].rpartition("/")[2] for ref in schemas["Event"]["oneOf"]} == kinds
    for name in kinds:
        assert schemas[name]["properties"].keys() - {"kind"} == wire.kind_fields(name).keys(), name
        assert all(schemas[name]["properties"].values()), "each field has a type"
    document = openapi.document(50)
    names = {f"#/components/schemas/{name}" for name in schemas}
    assert references(document) <= names and schemas["Events"]["anyOf"][0]["maxItems"] == 50


def test_the_service_serves_it_without_a_token() -> None:
    with ending(small()) as served:
        assert served.request("GET", "/v1/openapi.json", token=None) == (200, openapi.document(50))
        for path, methods in openapi.document(50)["paths"].items():
            for method, operation in methods.items():
                status, _ = served.request(method.upper(), path, token=None)
                assert status == (401 if "security" in operation else 200), path


@pytest.mark.long
@pytest.mark.parametrize(
    "path", ["/v1/events", "/v1/what-if", "/v1/rounds", "/v1/state", "/v1/overview", "/v1/explain"]
)
def test_the_service_conforms_to_it(path: str) -> None:
    """Generated requests, right and wrong ones: each answer has a status and a form that the document names."""
    schemathesis = pytest.importorskip("schemathesis")
    hypothesis = pytest.importorskip("hypothesis")
    with ending(small(10)) as served:
        served.client().tell(
            fs.MachineAdded("m", {"cpu": 2}),
            fs.UserAdded("ada"),
            fs.JobSubmitted("j", [fs.Task(f"t{i}", {"cpu": 1}) for i in range(4)], user="ada"),
        )
        schema = schemathesis.openapi.from_url(f"{served.url}v1/openapi.json")
        checks = schemathesis.checks
        skipped = [checks.positive_data_acceptance]  # an event of the right form may be impossible
        known, count = openapi.QUERIES.get(path.rpartition("/")[2], {}), 0
        for result in schema.include(path_regex=f"^{path}(/{{task}})?$").get_all_operations():
            operation = result.ok()
            for mode in schemathesis.GenerationMode:

                @hypothesis.settings(
                    max_examples=100, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
                )
                @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
                def conforms(case: Any) -> None:
                    nonlocal count
                    if str(case.query.get("wait", "0")).isdecimal():
                        case.query.pop("wait", None)  # it would wait
                    response = case.call(headers={"Authorization": f"Bearer {TOKEN}"})
                    asked = parse_qsl(urlsplit(response.request.url).query, keep_blank_values=True)
                    right = case.method == "GET" and all(name in known and value.isdecimal() for name, value in asked)
                    # an empty list in a query leaves nothing in the URL; 413 is a limit that no schema states
                    fine = [checks.negative_data_rejection] if right or response.status_code == 413 else []
                    case.validate_response(response, excluded_checks=[*skipped, *fine])
                    count += 1

                conforms()
        assert count
