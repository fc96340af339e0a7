"""Machines for traces that have none, or instead of theirs."""

from __future__ import annotations

import re
from pathlib import Path

from flowsched.boundary.validate import named, quoted
from flowsched.cluster.model import Machine
from flowsched.exceptions import InputError
from flowsched.sim.traces.formats import TraceSource
from flowsched.sim.traces.openb import NODE_COLUMNS, read_nodes
from flowsched.sim.traces.table import start_machines

__all__ = ["read_machines"]

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
        An amount that is no number, a resource twice, no machine.
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
                capacity[name] = float(amount)
            except ValueError:
                raise InputError(f"machines: {name}: a number expected, got {quoted(amount)}") from None
        machines += [Machine(f"m{len(machines) + i}", capacity, labels=labels) for i in range(int(found[1]))]
    if not machines:
        raise InputError("machines: none")
    return machines
