"""Azure's traces of LLM inference: requests with their numbers of tokens.

Their columns: AzureLLMInferenceDataset2023.md and 2024.md of https://github.com/Azure/AzurePublicDataset.
"""

from __future__ import annotations

from datetime import UTC, datetime

from flowsched.boundary.units import moment
from flowsched.boundary.validate import quoted
from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import Task
from flowsched.exceptions import TraceError
from flowsched.sim.tables import Row, named_rows
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.workload import Arrival, Trace

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

CONTEXT_RATE, GENERATED_RATE = 8000.0, 20.0
"""Tokens a second of one request; an assumption, since the traces have no times of service."""


def _recognises(source: TraceSource) -> bool:
    return {*COLUMNS[1:]} <= {*source.header}


def _read(source: TraceSource, options: TraceOptions) -> Trace:
    moments, durations = [], []
    for row in named_rows(source.path, COLUMNS, options.limit):
        moments.append(_moment(row))
        durations.append(row.integer("ContextTokens") / CONTEXT_RATE + row.integer("GeneratedTokens") / GENERATED_RATE)
    if not moments:
        raise TraceError(f"{source.path}: a header but no requests")
    first = min(moments)
    one = {"request": 1}
    arrivals = [
        Arrival(round(moment - first, 7), JobSubmitted(f"r{i}", (Task(f"r{i}", one),)), (duration,))
        for i, (moment, duration) in enumerate(zip(moments, durations, strict=True))
    ]
    return Trace(
        f"Azure LLM ({source.path.name.split('.')[0]})",
        arrivals,
        [],
        resources=("request",),
        units={"request": "requests"},
        facts={"source": str(source.path), "start": datetime.fromtimestamp(first, UTC).isoformat(" ", "seconds")},
        notes=(
            f"requests take 1/{CONTEXT_RATE:g} s a context token and 1/{GENERATED_RATE:g} s a generated one, as is assumed",
        ),
    )


def _moment(row: Row) -> float:
    """Return a time such as ``2023-11-16 18:17:03.9799600`` as seconds; without a zone it is UTC."""
    text = row.text("TIMESTAMP")
    try:
        return moment(text)
    except ValueError:
        raise row.error(
            "TIMESTAMP", f"a time such as 2023-11-16 18:17:03.9799600 expected, got {quoted(text)}"
        ) from None


AZURE = TraceFormat("azure", "an Azure LLM inference trace", _recognises, _read)
