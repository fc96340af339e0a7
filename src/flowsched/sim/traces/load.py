"""Traces of any format, by name or path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from flowsched.boundary.validate import ordered, quoted, whole
from flowsched.cluster.model import Machine, Resources
from flowsched.exceptions import InputError, TraceError
from flowsched.sim.synthetic import SYNTHETIC, synthetic
from flowsched.sim.tables import LIMIT, is_json, json_records
from flowsched.sim.traces.azure import AZURE
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.traces.google import GOOGLE_2011, GOOGLE_2019
from flowsched.sim.traces.gpu_clusters import GAVEL, PAI, PHILLY
from flowsched.sim.traces.machines import read_machines
from flowsched.sim.traces.openb import OPENB
from flowsched.sim.traces.swf import SWF
from flowsched.sim.traces.table import CSV, JSONL
from flowsched.sim.workload import QOS_PRIORITY, Workload

TRACE_FORMATS: dict[str, TraceFormat] = {
    known.name: known for known in (OPENB, GOOGLE_2011, GOOGLE_2019, PHILLY, PAI, AZURE, JSONL, CSV, GAVEL, SWF)
}
"""Formats by name, in the order in which they are tried; a further `TraceFormat` may be added."""


def recognised(path: str | Path, format: str | None = None) -> TraceFormat:
    """Return the format of a trace by its contents, or by the name that is given; errors as of `load_trace`."""
    if format is not None:
        if format not in TRACE_FORMATS:
            raise InputError(f"format: unknown name {quoted(format)}; known: {', '.join(TRACE_FORMATS)}")
        return TRACE_FORMATS[format]
    source = TraceSource(Path(path))
    for known in TRACE_FORMATS.values():
        if known.recognises(source):
            return known
    if source.text.lstrip().startswith(("{", "[")) and not is_json(source.text):
        next(json_records(source.path), None)  # which says where the first object is broken
    lines = [line.strip() for line in source.text.splitlines()]
    place = f", line {lines.index(source.line) + 1}" if source.line else ""
    raise TraceError(
        f"{path}{place}: in none of the known formats ({', '.join(TRACE_FORMATS)}); CSV needs the columns arrival and duration"
    )


def load_trace(
    name_or_path: str | Path,
    format: str | None = None,
    *,
    variant: str | None = None,
    machines: str | Path | Sequence[Machine] | None = None,
    qos_priority: Mapping[str, int] = QOS_PRIORITY,
    limit: int = LIMIT,
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
    if isinstance(machines, str | Path):
        machines = read_machines(machines)
    elif machines is not None:
        machines = ordered("machines", machines)
    name = str(name_or_path)
    if name == "model" or name in SYNTHETIC:
        if variant is not None or format is not None:
            raise InputError(f"variant, format: {name} has none; scale and load change it")
        workload = Workload.model() if name == "model" else synthetic(name)
    else:
        path = Path(name_or_path)
        if not path.exists():
            raise TraceError(f"{path}: no such file or directory (known by name: model, {', '.join(SYNTHETIC)})")
        known = recognised(path, format)
        if variant is not None and known.variants is not None and variant not in known.variants:
            there = f"; there are: {', '.join(known.variants)}" if known.variants else ""
            raise InputError(f"variant: {known.title} has no {quoted(variant)}{there}")
        try:
            workload = known.read(TraceSource(path), TraceOptions(variant, qos_priority, limit, machines))
        except (NotADirectoryError, IsADirectoryError):
            kind = "directory" if path.is_dir() else "file"
            raise TraceError(f"{path}: a {kind}, which a trace of the format {known.name} is not") from None
    if machines is None:
        return workload
    resources = Resources(workload.resources)
    for machine in machines:
        resources.capacity(f"machine {machine.id!r}", machine.capacity)
    return replace(workload, machines=machines, machine_events=())
