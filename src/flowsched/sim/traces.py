"""Recorded workloads: the openb GPU cluster (CSV) and the Google 2011 cluster (event tables).

Every complaint is a `TraceError` that names the file, the line and the column.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from flowsched.cluster.events import Event, JobSubmitted, MachineAdded, MachineFailed, MachineUpdated
from flowsched.cluster.model import GPU_MODEL, Machine, Task
from flowsched.exceptions import InputError, TraceError
from flowsched.sim.workload import QOS_PRIORITY, Arrival, Workload

__all__ = ["Trace", "load_trace"]

_OPENB_NODES = "openb_node_list_all_node.csv"
_OPENB_PODS = "openb_pod_list_"


@dataclass(frozen=True)
class Trace(Workload):
    """A recorded workload.

    Parameters
    ----------
    different_machine : frozenset
        Jobs of which the trace says that no two tasks may share a machine (Google 2011); recorded, not enforced.
    notes : sequence of str
        What had to be assumed where the trace is silent, with counts.
    """

    different_machine: frozenset[Hashable] = frozenset()
    notes: Sequence[str] = field(default=())


def load_trace(
    name_or_path: str | Path,
    *,
    variant: str | None = None,
    qos_priority: Mapping[str, int] = QOS_PRIORITY,
) -> Workload:
    """A trace by path, or the bundled workload by its name.

    Parameters
    ----------
    name_or_path : str or Path
        ``"model"``; or a directory with ``openb_node_list_all_node.csv`` and ``openb_pod_list_*.csv``; or one such list
        of pods, with the nodes beside it; or a directory with Google 2011 ``machine_events`` and ``task_events`` (CSV
        files, or directories of parts of them).  Every file may be gzipped (``.gz``).
    variant : str, optional
        Which list of pods of an openb directory: ``"default"`` (the default), ``"gpuspec33"``, ...
    qos_priority : mapping of str to int
        Priority (lower is better) of each quality-of-service class of an openb trace.

    Returns
    -------
    Trace
        Of ``"model"`` a `Workload`.

    Raises
    ------
    TraceError
        No such trace, a missing column, a bad number, no rows.
    InputError
        A variant of a trace that has none.

    Notes
    -----
    *openb*: every pod is a job of one task, ``cpu`` in cores, ``mem`` in MiB.  One GPU with ``gpu_milli`` < 1000 is a
    share of a GPU.  A pod arrives at its creation time and runs from its scheduled to its deletion time; one that the
    original cluster never scheduled runs from its creation to its deletion time.

    *Google 2011*: times are seconds, amounts fractions of the largest machine, ``cpu`` and ``mem`` only.  A task runs
    from its last SCHEDULE to the event that ended it (FINISH, FAIL, KILL, LOST), without an end to the end of the
    trace; one that was never scheduled, from its submission.  Priority p (larger is better there) becomes 11 - p.  A
    machine that is removed fails, and comes back when it is added again.
    """
    if str(name_or_path) == "model":
        if variant is not None:
            raise InputError("variant: the model has none; scale and load change it")
        return Workload.model()
    path = Path(name_or_path)
    if not path.exists():
        raise TraceError(f"{path}: no such file or directory (known by name: model)")
    if path.is_file() and path.name.startswith(_OPENB_PODS):
        if variant is not None:
            raise InputError(f"variant: {path.name} is one already; name the directory to choose another")
        return _openb(path.parent, path, qos_priority)
    if path.is_dir() and _either(path / _OPENB_NODES):
        pods = _either(path / f"{_OPENB_PODS}{variant or 'default'}.csv")
        if pods is None:
            known = sorted(p.name.removeprefix(_OPENB_PODS).split(".")[0] for p in path.glob(f"{_OPENB_PODS}*"))
            raise TraceError(f"{path}: no variant {variant or 'default'!r}; there are: {', '.join(known) or 'none'}")
        return _openb(path, pods, qos_priority)
    if path.is_dir() and _parts(path, "task"):
        if variant is not None:
            raise InputError("variant: a Google trace has none")
        return _google(path)
    raise TraceError(f"{path}: neither an openb trace ({_OPENB_NODES}) nor a Google 2011 trace (machine_events, task_events)")


class _Row:
    """One line of a table: columns by name, and errors that say where."""

    def __init__(self, path: Path, line: int, cells: Mapping[str, str]) -> None:
        self.path, self.line, self._cells = path, line, cells

    def error(self, column: str, message: str) -> TraceError:
        return TraceError(f"{self.path}, line {self.line}, column {column!r}: {message}")

    def text(self, column: str) -> str:
        return self._cells[column]

    def number(self, column: str, default: float | None = None) -> float:
        text = self._cells[column]
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise self.error(column, f"a number expected, got {text!r}") from None
        if not (math.isfinite(value) and value >= 0):
            raise self.error(column, f"a finite number >= 0 expected, got {text!r}")
        return value

    def integer(self, column: str, default: int | None = None) -> int:
        text = self._cells[column]
        if not text and default is not None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise self.error(column, f"a whole number expected, got {text!r}") from None
        if value < 0:
            raise self.error(column, f"a whole number >= 0 expected, got {text!r}")
        return value


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, gzipped or not, with their line numbers; blank lines are skipped."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as raw:
            reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8-sig", newline=""))
            for cells in reader:
                if any(cells):
                    yield reader.line_num, [cell.strip() for cell in cells]
    except (OSError, EOFError) as error:
        raise TraceError(f"{path}: {error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: not a CSV file ({error})") from None


def _named(path: Path, columns: Sequence[str]) -> Iterator[_Row]:
    """Rows of a table with a header."""
    lines = _lines(path)
    number, header = next(lines, (1, []))
    if not header:
        raise TraceError(f"{path}: the file is empty")
    missing = [c for c in columns if c not in header]
    if missing:
        raise TraceError(f"{path}, line {number}: no column {missing[0]!r}; the columns are {', '.join(header)}")
    for number, cells in lines:
        if len(cells) != len(header):
            raise TraceError(f"{path}, line {number}: {len(header)} columns expected as in the header, got {len(cells)}")
        yield _Row(path, number, dict(zip(header, cells, strict=True)))


def _positional(path: Path, columns: Sequence[str], least: int) -> Iterator[_Row]:
    """Rows of a table whose columns are known by their place; a first line that starts like a header is skipped."""
    for number, cells in _lines(path):
        if number == 1 and not cells[0].isdigit() and any(c.isalpha() for c in cells[0]):
            continue
        if len(cells) < least:
            raise TraceError(f"{path}, line {number}: no column {columns[len(cells)]!r} ({least} columns expected, got {len(cells)})")
        cells += [""] * (len(columns) - len(cells))
        yield _Row(path, number, dict(zip(columns, cells, strict=False)))


def _either(path: Path) -> Path | None:
    """The file, or the same gzipped."""
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.is_file():
            return candidate
    return None


# openb


def _openb(directory: Path, pods: Path, qos_priority: Mapping[str, int]) -> Trace:
    nodes = _either(directory / _OPENB_NODES)
    if nodes is None:
        raise TraceError(f"{directory / _OPENB_NODES}: no such file; the machines must be beside the pods")
    machines = [
        Machine(
            row.text("sn"),
            {"cpu": row.integer("cpu_milli") / 1000, "mem": row.integer("memory_mib"), "gpu": row.integer("gpu")},
            labels={GPU_MODEL: row.text("model")} if row.text("model") else {},
        )
        for row in _named(nodes, ("sn", "cpu_milli", "memory_mib", "gpu", "model"))
    ]
    if not machines:
        raise TraceError(f"{nodes}: a header but no machines")
    columns = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "creation_time", "deletion_time", "scheduled_time")
    arrivals, unscheduled, seen = [], 0, set()
    for row in _named(pods, columns):
        name = row.text("name")
        if name in seen:
            raise row.error("name", f"pod {name!r} occurs twice")
        seen.add(name)
        arrivals.append(_openb_pod(row, qos_priority))
        unscheduled += not row.text("scheduled_time")
    if not arrivals:
        raise TraceError(f"{pods}: a header but no pods")
    notes = []
    if unscheduled:
        notes.append(f"{unscheduled} pods were never scheduled in the original cluster; they run from creation to deletion here")
    variant = pods.name.removeprefix(_OPENB_PODS).split(".")[0]
    return Trace(f"openb ({variant})", arrivals, machines, facts={"source": str(pods)}, notes=tuple(notes))


def _openb_pod(row: _Row, qos_priority: Mapping[str, int]) -> Arrival:
    gpus, milli = row.integer("num_gpu"), row.integer("gpu_milli", default=0)
    if gpus > 1 and milli not in (0, 1000):
        raise row.error("gpu_milli", f"a share of one GPU needs num_gpu = 1, got {gpus} GPUs with {milli}")
    if milli > 1000:
        raise row.error("gpu_milli", f"at most 1000 expected, got {milli}")
    qos = row.text("qos")
    if qos not in qos_priority:
        raise row.error("qos", f"{', '.join(qos_priority)} expected, got {qos!r}")
    created = row.number("creation_time")
    begun = row.number("scheduled_time", default=created)
    duration = row.number("deletion_time") - begun
    if duration < 0:
        raise row.error("deletion_time", f"it is before the pod began to run ({row.text('deletion_time')} < {begun:g})")
    task = Task(
        row.text("name"),
        {
            "cpu": row.integer("cpu_milli") / 1000,
            "mem": row.integer("memory_mib"),
            "gpu": milli / 1000 if gpus == 1 and milli else gpus,
        },
        {GPU_MODEL: row.text("gpu_spec").split("|")} if row.text("gpu_spec") else {},
    )
    return Arrival(created, JobSubmitted(task.id, (task,), priority=qos_priority[qos]), (duration,))
