"""Machines for traces that have none, or instead of theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from flowsched.boundary.units import mebibytes
from flowsched.boundary.validate import instance, named, quoted
from flowsched.cluster.model import Machine
from flowsched.exceptions import InputError, TraceError
from flowsched.sim.tables import LIMIT, Row, cells_of, json_records, named_rows, positional_rows
from flowsched.sim.traces.formats import TraceSource
from flowsched.sim.traces.google import MACHINE_COLUMNS, machine_rows, machines_of
from flowsched.sim.traces.openb import NODE_COLUMNS, read_nodes
from flowsched.sim.traces.table import Reader, start_machines
from flowsched.sim.workload import Workload, in_order

_PART = re.compile(r"\s*(\d{1,7})\s*x\s*(.*)", re.DOTALL)


def read_machines(text: str | Path) -> list[Machine]:
    """Return the machines that a text describes, or those of a file.

    Parameters
    ----------
    text : str or Path
        ``"32xcpu=4"``, 32 machines with 4 cores each; ``"8xcpu=96,gpu=8,label.gpu_model=T4 + 4xcpu=32"``.  Any other text is the path of a CSV
        table with a column ``machine``, or of a list of nodes of openb.

    Raises
    ------
    InputError
        An amount that is not a number, a resource twice, no machine.
    TraceError
        A file that cannot be read; it names file, line and column.

    Examples
    --------
    >>> for machine in read_machines("2xcpu=4,gpu=1"):
    ...     print(machine.id, dict(machine.capacity))
    m0 {'cpu': 4.0, 'gpu': 1.0}
    m1 {'cpu': 4.0, 'gpu': 1.0}
    """
    if isinstance(text, Path) or not _PART.fullmatch(text):
        path = Path(text)
        if not path.is_file():
            raise InputError(f"machines: {quoted(str(text))} is neither a file nor such as 32xcpu=4,mem=16384")
        return read_nodes(path) if {*NODE_COLUMNS} <= {*TraceSource(path).header} else start_machines(path)
    machines: list[Machine] = []
    for part in text.split("+"):
        found = _PART.fullmatch(part)
        if not found:
            raise InputError(f"machines: COUNTxNAME=AMOUNT,... expected, got {quoted(part.strip())}")
        capacity: dict[str, float] = {}
        labels: dict[str, str] = {}
        for name, amount in named("machines", found[2], "NAME=AMOUNT").items():
            if name.startswith("label.") and amount:
                labels[name.removeprefix("label.")] = amount
                continue
            try:
                capacity[name] = mebibytes(amount) if name == "mem" else float(amount)
            except ValueError:
                form = "a number of MiB, or an amount such as 64G," if name == "mem" else "a number"
                raise InputError(f"machines: {name}: {form} expected, got {quoted(amount)}") from None
        machines += [Machine(f"m{len(machines) + i}", capacity, labels=labels) for i in range(int(found[1]))]
    if not machines:
        raise InputError("machines: none")
    return machines


def with_machine_events(workload: Workload, path: str | Path, *, limit: int = LIMIT) -> Workload:
    """Return a workload with further events of its machines, and further machines.

    Parameters
    ----------
    path : str or Path
        CSV or JSON lines in the columns of the guide "Simulate your own trace" (``machine``, ``time``, ``event``, ``until``, ...), or
        Google's ``machine_events`` of 2011 or 2019.  It may be gzipped.
    limit : int
        Largest number of characters of the file, after decompression.

    Raises
    ------
    TraceError
        No such file, a missing column, a bad number, a resource that the workload does not have, an event of a machine that
        is not there then; it names file, line and column.

    Examples
    --------
    >>> import flowsched as fs, pathlib, tempfile
    >>> work = fs.sim.synthetic("poisson", tasks=100, scale=0.02)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "outages.csv")
    >>> _ = path.write_text("time,machine,event,until\\n10,m0,fail,25\\n")
    >>> [event.time for event in fs.sim.with_machine_events(work, path).machine_events]
    [10.0, 25.0]
    """
    instance("workload", workload, Workload)
    path = Path(path)
    if not path.is_file():
        raise TraceError(f"{path}: no such file")
    source = TraceSource(path)
    columns = {*source.record} or {*source.header}
    if "machine_id" in columns:
        return _of_google(workload, path, machine_rows([path], limit))
    if not source.record and source.header and source.header[0].isdigit():
        return _of_google(workload, path, positional_rows(path, MACHINE_COLUMNS, 3, limit))
    reader = Reader(path, {machine.id for machine in workload.machines}, workload.resources)
    if source.record:
        for line, record in json_records(path, limit):
            reader.machine(cells_of(path, line, record))
    else:
        for row in named_rows(path, ("machine",), limit):
            reader.machine(row)
    events = reader.events(workload.machines, workload.machine_events)
    return replace(workload, machines=[*workload.machines, *reader.machines], machine_events=events)


def _of_google(workload: Workload, path: Path, rows: Iterable[Row]) -> Workload:
    """Return the workload with the machines and events of a table of Google's."""
    machines, events, told = machines_of(rows)
    for column, name in (("cpu", "cpu"), ("memory", "mem")) if told else ():
        if name not in workload.resources:
            message = f"machines have {name}, but the workload's resources are {', '.join(workload.resources)}"
            raise told[0].error(column, message)
    known = {machine.id for machine in workload.machines}
    for machine, row in zip(machines, told, strict=False):
        if machine.id in known:
            raise row.error("machine", f"machine {quoted(machine.id)} is there already at 0 s")
    own, later = workload.machine_events, told[len(machines) :]

    def error(i: int, message: str) -> TraceError:
        return later[i - len(own)].error("machine", message) if i >= len(own) else TraceError(f"{path}: {message}")

    machines = [*workload.machines, *machines]
    return replace(workload, machines=machines, machine_events=in_order(machines, [*own, *events], error))
