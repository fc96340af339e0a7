"""Traces by name or path, whatever their format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flowsched.boundary.validate import quoted, whole
from flowsched.exceptions import InputError, TraceError
from flowsched.sim.tables import LIMIT, plain_or_gzipped
from flowsched.sim.traces.google2011 import event_files, read_google
from flowsched.sim.traces.openb import NODES, PODS, read_openb
from flowsched.sim.workload import QOS_PRIORITY, Workload

__all__ = ["load_trace"]


def load_trace(
    name_or_path: str | Path,
    *,
    variant: str | None = None,
    qos_priority: Mapping[str, int] = QOS_PRIORITY,
    limit: int = LIMIT,
) -> Workload:
    """Load a trace by path, or the bundled workload by its name.

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
    limit : int
        The most characters that a file may have, after decompression.

    Returns
    -------
    Trace
        Of ``"model"`` a `Workload`.

    Raises
    ------
    TraceError
        No such trace, a missing column, a bad number, no rows, a file that is too large.
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
    if not isinstance(name_or_path, str | Path):
        raise InputError(f"name_or_path: a name or a path expected, got {quoted(name_or_path)}")
    whole("limit", limit, 1)
    if str(name_or_path) == "model":
        if variant is not None:
            raise InputError("variant: the model has none; scale and load change it")
        return Workload.model()
    path = Path(name_or_path)
    if not path.exists():
        raise TraceError(f"{path}: no such file or directory (known by name: model)")
    if path.is_file() and path.name.startswith(PODS):
        if variant is not None:
            raise InputError(f"variant: {path.name} is one already; name the directory to choose another")
        return read_openb(path.parent, path, qos_priority, limit)
    if path.is_dir() and plain_or_gzipped(path / NODES):
        pods = plain_or_gzipped(path / f"{PODS}{variant or 'default'}.csv")
        if pods is None:
            known = sorted(p.name.removeprefix(PODS).split(".")[0] for p in path.glob(f"{PODS}*"))
            raise TraceError(
                f"{path}: no variant {quoted(variant or 'default')}; there are: {', '.join(known) or 'none'}"
            )
        return read_openb(path, pods, qos_priority, limit)
    if path.is_dir() and event_files(path, "task"):
        if variant is not None:
            raise InputError("variant: a Google trace has none")
        return read_google(path, limit)
    raise TraceError(f"{path}: neither an openb trace ({NODES}) nor a Google 2011 trace (machine_events, task_events)")
