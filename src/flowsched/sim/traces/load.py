"""Traces of any format, by name or path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from flowsched.boundary.validate import mapping, nearest, ordered, quoted, text, whole
from flowsched.cluster.model import Machine, Resources
from flowsched.exceptions import InputError, TraceError
from flowsched.sim.synthetic import SYNTHETIC, synthetic
from flowsched.sim.tables import LIMIT, is_json, json_records, not_text
from flowsched.sim.traces.azure import AZURE
from flowsched.sim.traces.batsim import BATSIM
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.traces.google import GOOGLE_2011, GOOGLE_2019
from flowsched.sim.traces.gpu_clusters import GAVEL, PAI, PHILLY
from flowsched.sim.traces.kubernetes import KUBERNETES
from flowsched.sim.traces.machines import read_machines
from flowsched.sim.traces.openb import OPENB
from flowsched.sim.traces.slurm import SACCT
from flowsched.sim.traces.swf import SWF
from flowsched.sim.traces.table import AMOUNTS, COLUMNS, CSV, JSONL, PARQUET, is_column, read_frame
from flowsched.sim.traces.wfcommons import WFCOMMONS
from flowsched.sim.workload import QOS_PRIORITY, Trace, Workload

_W = TypeVar("_W", bound=Workload)

_FORMATS = (
    OPENB, GOOGLE_2011, GOOGLE_2019, PHILLY, PAI, AZURE, SACCT, BATSIM, WFCOMMONS, KUBERNETES, JSONL, CSV, GAVEL, SWF, PARQUET,
)  # fmt: skip

TRACE_FORMATS: dict[str, TraceFormat] = {known.name: known for known in _FORMATS}
"""Formats by name, in the order in which they are tried; a further `TraceFormat` may be added."""

TABLES = (CSV, JSONL, PARQUET)
"""Formats of tables, whose columns may have other names."""


def recognised(path: str | Path, format: str | None = None, *, table: bool = False) -> TraceFormat:
    """Return the format of a trace by its contents, or by the name that is given; errors as of `load_trace`.

    A `table` is one whatever its columns are.
    """
    if format is not None:
        if format not in TRACE_FORMATS:
            raise InputError(
                f"format: unknown name {quoted(format)}; known: {', '.join(TRACE_FORMATS)}{nearest(format, TRACE_FORMATS)}"
            )
        return TRACE_FORMATS[format]
    source = TraceSource(Path(path))
    if table:
        return PARQUET if PARQUET.recognises(source) else JSONL if source.line.startswith("{") else CSV
    for known in TRACE_FORMATS.values():
        if known.recognises(source):
            return known
    if source.text.lstrip().startswith(("{", "[")) and not is_json(source.text):
        next(json_records(source.path), None)  # which says where the first object is broken
    if binary := not_text(source.path):
        raise TraceError(f"{path}{binary}")
    if source.path.is_file() and not source.text.strip():
        raise TraceError(f"{path}: the file is empty")
    lines = [line.strip() for line in source.text.splitlines()]
    place = f", line {lines.index(source.line) + 1}" if source.line else ""
    raise TraceError(
        f"{path}{place}: in none of the known formats ({', '.join(TRACE_FORMATS)}); a CSV trace needs the columns arrival and duration, by these or by "
        f"given names (columns, --columns){_found(source)}"
    )


def _found(source: TraceSource) -> str:
    names = ", ".join(source.header) if len(source.header) > 1 else ""
    return f"; found {quoted(names, 200)[1:-1]}" if names else ""


def load_trace(
    name_or_path: str | Path,
    format: str | None = None,
    *,
    variant: str | None = None,
    machines: str | Path | Sequence[Machine] | None = None,
    qos_priority: Mapping[str, int] = QOS_PRIORITY,
    limit: int = LIMIT,
    columns: Mapping[str, str] | None = None,
    skip_bad: bool = False,
) -> Workload:
    """Load a trace by path, or a synthetic workload by its name.

    Parameters
    ----------
    name_or_path : str or Path
        ``"model"`` (`Workload.model`), or one of `SYNTHETIC`; or the file or directory of a trace in one of `TRACE_FORMATS`.  The guide "Simulate your own trace" has
        the files, columns, units and defaults of each.  Every file may be gzipped (``.gz``).
    format : str, optional
        Name of the format; by default it is recognised from the contents.
    variant : str, optional
        For an openb directory, the list of pods: ``"default"`` (the default), ``"gpuspec33"``, ...  For SWF, ``"nodes"``
        (the default: a processor is a task, the nodes are machines) or ``"pool"`` (a job is a task, all processors are one
        machine).  For a trace of Gavel, the GPU on which jobs run: ``"v100"`` (the default), ``"p100"``, ``"k80"``.
    machines : str, Path or sequence of Machine, optional
        Replacement for the trace's machines: a text such as ``"32xcpu=4"`` or a file, see `read_machines`.
    qos_priority : mapping of str to int
        Priority (lower is better) of each quality-of-service class of an openb trace.
    limit : int
        Largest number of characters of a file, after decompression.
    columns : mapping of str to str, optional
        For a table of any program (CSV, JSON lines, Parquet): its names of columns by those of flowsched, such as
        ``{"arrival": "Submit Time", "duration": "Run Time", "demand.cpu": "ReqCPUS"}``.  Other columns are used if flowsched
        knows their names.
    skip_bad : bool
        Skip rows of a table that cannot be read, with a note that counts them, instead of raising TraceError.

    Returns
    -------
    Trace
        A `Workload` for the name of a synthetic one.  A trace whose files name no machines has only those that are given.

    Raises
    ------
    TraceError
        No such trace, an unknown format, a missing column, a bad number, no rows, a file that is too large.
    InputError
        An unknown format or variant; machines with a resource that the trace does not have.

    Notes
    -----
    `Trace.notes` counts the omissions and assumptions of the reader.
    """
    if not isinstance(name_or_path, str | Path):
        raise InputError(f"name_or_path: a name or a path expected, got {quoted(name_or_path)}")
    whole("limit", limit, 1)
    machines = None if machines is None else _machines(machines)
    name = str(name_or_path)
    if name == "model" or name in SYNTHETIC:
        if variant is not None or format is not None:
            raise InputError(f"variant, format: {name} has none; scale and load change it")
        workload = Workload.model() if name == "model" else synthetic(name)
    else:
        path = Path(name_or_path)
        if not path.exists():
            raise TraceError(f"{path}: no such file or directory (known by name: model, {', '.join(SYNTHETIC)})")
        columns = _columns(columns)
        known = recognised(path, format, table=bool(columns))
        if (columns or skip_bad) and known not in TABLES:
            raise InputError(f"columns, skip_bad: {known.title} is no table of {', '.join(one.name for one in TABLES)}")
        if variant is not None and known.variants is not None and variant not in known.variants:
            there = f"; there are: {', '.join(known.variants)}" if known.variants else ""
            raise InputError(f"variant: {known.title} has no {quoted(variant)}{there}")
        try:
            workload = known.read(
                TraceSource(path), TraceOptions(variant, qos_priority, limit, machines, columns, skip_bad)
            )
        except (NotADirectoryError, IsADirectoryError):
            kind = "directory" if path.is_dir() else "file"
            raise TraceError(f"{path}: a {kind}, which a trace of the format {known.name} is not") from None
    return workload if machines is None else _with_machines(workload, machines)


def from_frame(
    frame: Any,
    *,
    machines: str | Path | Sequence[Machine] = (),
    columns: Mapping[str, str] | None = None,
    skip_bad: bool = False,
    name: str = "frame",
) -> Trace:
    """Return the workload of a table in memory.

    Parameters
    ----------
    frame : pandas, polars or Arrow table, or mapping of str to sequence
        A row per task, in the columns of a CSV trace: ``arrival`` and ``duration`` in seconds or as dates and time spans,
        amounts such as ``cpu`` or ``demand.NAME``, and further ones; see the guide "Simulate your own trace".
    machines : str, Path or sequence of Machine
        Such as ``"32xcpu=4,mem=16G"``.
    columns, skip_bad
        See `load_trace`.
    name : str
        Name of the workload, and of the table in errors.

    Raises
    ------
    TraceError
        A value cannot be read; it names row and column.
    InputError
        No such column, or columns of different lengths.

    Examples
    --------
    >>> import flowsched as fs
    >>> table = {"Submit": ["2026-01-01 08:00", "2026-01-01 08:05"], "Elapsed": ["1h", "90s"], "cpu": [4, 1]}
    >>> work = fs.sim.Workload.from_frame(table, machines="2xcpu=4", columns={"arrival": "Submit", "duration": "Elapsed"})
    >>> [(arrival.time, *arrival.durations) for arrival in work.arrivals]
    [(0.0, 3600.0), (300.0, 90.0)]
    """
    given = _machines(machines)
    return _with_machines(read_frame(frame, name, TraceOptions(columns=_columns(columns), skip_bad=skip_bad)), given)


Workload.from_frame = staticmethod(from_frame)  # here, since a reader of tables needs the class


def _machines(machines: str | Path | Sequence[Machine]) -> Sequence[Machine]:
    return read_machines(machines) if isinstance(machines, str | Path) else ordered("machines", machines)


def _columns(columns: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the given names of columns, checked."""
    columns = {} if columns is None else mapping("columns", columns)
    for name, given in columns.items():
        if not is_column(text("columns", name)):
            raise InputError(f"columns: {quoted(name)} is no column of tasks{nearest(name, (*COLUMNS, *AMOUNTS))}")
        text(f"columns[{name!r}]", given)
    return columns


def _with_machines(workload: _W, machines: Sequence[Machine]) -> _W:
    resources = Resources(workload.resources)
    for machine in machines:
        resources.capacity(f"machine {machine.id!r}", machine.capacity)
    return replace(workload, machines=machines, machine_events=())
