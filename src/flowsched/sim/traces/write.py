"""Workloads written as CSV or JSON lines, in the columns of `flowsched.sim.traces.table`."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flowsched.boundary.files import replace
from flowsched.boundary.validate import quoted
from flowsched.cluster.events import MachineAdded, MachineDrained, MachineFailed, MachineRemoved, MachineUpdated
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import InputError
from flowsched.sim.traces.table import AMOUNTS, COLUMNS, EVENTS, MACHINE_COLUMNS
from flowsched.sim.workload import Workload


def write_trace(workload: Workload, path: str | Path) -> None:
    """Write a workload as CSV or JSON lines, so that what is read again simulates the same.

    Parameters
    ----------
    workload : Workload
    path : str or Path
        ``.csv`` writes the machines to ``.machines.csv`` beside it; ``.jsonl`` writes one file.  With ``.gz`` behind, they
        are compressed.  Each file is written whole or not at all.

    Raises
    ------
    InputError
        Another ending; an id that is no text; a property of tasks or machines that the columns do not have.
    OSError
        A file cannot be written.
    """
    path = Path(path)
    packed, name = path.suffix == ".gz", path.name.removesuffix(".gz")
    if not name.endswith((".csv", ".jsonl")):
        raise InputError(f"{path}: the name must end with .csv, .jsonl, .csv.gz or .jsonl.gz")
    about: dict[str, Any] = {"trace": _line(workload.name), "resources": list(workload.resources)}
    if workload.horizon is not None:
        about["horizon"] = workload.horizon
    about |= {f"unit.{name}": unit for name, unit in workload.units.items()}
    notes = [_line(note) for note in getattr(workload, "notes", ())]
    machines, tasks = list(_machine_rows(workload)), list(_task_rows(workload))
    if name.endswith(".jsonl"):
        first = about | ({"note": notes} if notes else {})
        lines = [json.dumps(row, ensure_ascii=False) for row in (first, *machines, *tasks)]
        _write(path, "\n".join(lines) + "\n", packed)
        return
    about["resources"] = "|".join(workload.resources)
    remarks = [f"# {key}: {value}\n" for key, value in about.items()] + [f"# note: {note}\n" for note in notes]
    if machines:
        beside = path.with_name(name.removesuffix(".csv") + ".machines.csv" + ".gz" * packed)
        _write(beside, _table(machines, MACHINE_COLUMNS), packed)
    _write(path, "".join(remarks) + _table(tasks, COLUMNS), packed)


def _write(path: Path, text: str, packed: bool) -> None:
    replace(path, gzip.compress(text.encode(), 6, mtime=0) if packed else text)


def _table(rows: Iterable[Mapping[str, Any]], first: tuple[str, ...]) -> str:
    """Return rows as CSV, with the columns that any has."""
    rows = list(rows)
    found = dict.fromkeys(column for row in rows for column in row)
    columns = [c for c in first if c in found] + [c for c in found if c not in first]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _machine_rows(workload: Workload) -> Iterator[dict[str, Any]]:
    """Yield the machines and their events as rows."""
    kinds = {kind: name for name, kind in EVENTS.items()}
    for machine in workload.machines:
        yield {"machine": _id("machine", machine.id), **_properties(machine, workload.resources)}
    for event in workload.machine_events:
        if type(event) not in kinds:
            raise InputError(f"{event!r}: an event of a machine expected")
        assert isinstance(event, MachineAdded | MachineUpdated | MachineDrained | MachineFailed | MachineRemoved)
        row = {"machine": _id("machine", event.id), "time": event.time, "event": kinds[type(event)]}
        yield row | (_properties(event, workload.resources) if isinstance(event, MachineAdded | MachineUpdated) else {})


def _properties(thing: Machine | MachineAdded | MachineUpdated, resources: tuple[str, ...]) -> dict[str, Any]:
    if thing.taints:
        raise InputError(f"machine {thing.id!r}: taints have no column")
    row: dict[str, Any] = {} if thing.rack is None else {"rack": _id("rack", thing.rack)}
    row |= {} if thing.slots is None else {"slots": thing.slots}
    row |= _amounts("capacity", thing.capacity, resources)
    return row | {f"label.{name}": _text("label", value) for name, value in (thing.labels or {}).items()}


def _amounts(kind: str, amounts: Any, resources: tuple[str, ...]) -> dict[str, float]:
    if amounts is None:
        return {}
    pairs = amounts.items() if isinstance(amounts, Mapping) else zip(resources, amounts, strict=True)
    return {name if name in AMOUNTS else f"{kind}.{name}": float(value) for name, value in pairs}


def _task_rows(workload: Workload) -> Iterator[dict[str, Any]]:
    plain = Task("")
    for arrival in workload.arrivals:
        job = arrival.job
        about = {
            "job": _id("job", job.id), "arrival": arrival.time, "user": None if job.user is None else _id("user", job.user),
            "priority": job.priority or None, "gang": job.gang, "deadline": job.deadline,
        }  # fmt: skip
        for task, duration in zip(job.tasks, arrival.durations, strict=True):
            for name in ("prefers", "avoids", "apart_in_rack", "tolerations"):
                if getattr(task, name) != getattr(plain, name):
                    raise InputError(f"task {task.id!r}: {name} has no column")
            row = {
                "task": _id("task", task.id), **about, "duration": "inf" if math.isinf(duration) else duration,
                "estimate": task.duration, "kind": None if task.kind is None else _id("kind", task.kind), "apart": task.apart,
            }  # fmt: skip
            row |= {f"duration.{_text('GPU model', m)}": t for m, t in workload.run_times.get(task.id, {}).items()}
            row |= {f"data.{_id('machine', source)}": float(amount) for source, amount in dict(task.data).items()}
            row |= _amounts("demand", task.demand, workload.resources)
            for label, values in task.constraints.items():
                if not isinstance(values, tuple | list) or not all(isinstance(v, str) and "|" not in v for v in values):
                    raise InputError(f"task {task.id!r}: constraints[{label!r}] is no list of texts without '|'")
                row[f"constraint.{label}"] = "|".join(values)
            yield {column: value for column, value in row.items() if value is not None}


def _id(what: str, value: Hashable) -> str:
    return _text(f"{what} {value!r}", value)


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value or value != value.strip():
        raise InputError(
            f"{what}: a text expected that neither is empty nor begins or ends with a blank, got {quoted(value)}"
        )
    return value


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")
