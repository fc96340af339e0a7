"""Pods of a Kubernetes cluster: ``flowsched kube-scheduler`` compared with kube-scheduler on one API server.

The workloads are those of scheduler_perf (see `bench.kubernetes.shapes`), on etcd and kube-apiserver as
``tests/run/kube/build.sh`` builds them.  Both schedulers run as processes, in turn, on the same nodes (see
`bench.kubernetes.drive`), and each placement is checked by `bench.kubernetes.verify`.
"""

from __future__ import annotations

import importlib.util
import random
import re
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.drawing import chart, write
from bench.kubernetes.drive import GATES, KUBE, OURS, Cluster, Figures, Process
from bench.kubernetes.plane import PROGRAMS, Client, control_plane
from bench.kubernetes.saturation import PROFILES, allocated, make_nodes
from bench.kubernetes.shapes import SHAPES, read
from bench.rows import Keep, Outcome, Row, forget

__all__ = ["CLOCK", "TITLE", "plot", "run"]

TITLE = "pods of a Kubernetes cluster, compared with kube-scheduler on the same API server"

CLOCK = "wall clock; CPU time where a row says so"

SATURATION = "GPUs"
"""Name of the measurement of `bench.kubernetes.saturation` among the workloads."""

_NAME = "kubernetes"
_NEEDED = ("etcd", "apiserver", "scheduler_perf")
_GPU_NODES = 20
_PACKAGES = ("aiohttp", "kubernetes", "yaml")
_GOAL_RATE, _GOAL_CPU = 1.3, 2.0


def run(
    *,
    quick: bool,
    seed: int = 0,
    say: Callable[[str], None],
    keep: Keep = forget,
    nodes: Sequence[int] = (),
    programs: Path | None = None,
    shapes: Sequence[str] = (),
    turns: int = 3,
) -> Outcome:
    """Run the workloads under both schedulers.

    Parameters
    ----------
    quick : bool
        Two workloads on 100 nodes.
    seed : int
        Draws the order in which nodes are created, and which scheduler has the first turn.
    say, keep : callable
    nodes : sequence of int
        Numbers of nodes; by default 500.
    programs : Path, optional
        The folder with etcd, apiserver, scheduler and scheduler_perf; by default that of ``build.sh``.
    shapes : sequence of str
        Of `bench.kubernetes.shapes.SHAPES`, or `SATURATION`; by default all.
    turns : int
        Runs of each scheduler up to 1,000 nodes; one beyond.
    """
    outcome, folder = Outcome(), programs or PROGRAMS
    keep(lambda: outcome)
    missing = [name for name in _NEEDED if not (folder / name).exists()]
    if missing:
        outcome.notes.append(
            f"No rows: {', '.join(missing)} missing in {folder}.  tests/run/kube/build.sh builds them (Go 1.26, 9 minutes "
            "of CPU time); --programs DIR names another folder."
        )
        return outcome
    absent = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if absent:
        outcome.notes.append(f"No rows: {', '.join(absent)} missing: pip install '.[kubernetes]'.")
        return outcome
    kinds = [OURS, KUBE] if (folder / "scheduler").exists() else [OURS]
    if len(kinds) == 1:
        outcome.notes.append(f"No comparison: kube-scheduler is missing in {folder}, so the rows have flowsched alone.")
    outcome.notes.append(
        f"Turns of each scheduler: {1 if quick else turns}, and one beyond 1,000 nodes; medians.  scheduler_perf's numbers of pods, in "
        "proportion to the nodes.  Gang is a workload of our own, as that release of scheduler_perf has none.  "
        f"Goals: ratio {_GOAL_RATE} in pods/s, {_GOAL_CPU:g} in CPU time."
    )
    rnd = random.Random(seed)
    options = ["--feature-gates", GATES, "--runtime-config", "scheduling.k8s.io/v1alpha2=true"]
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plane = stack.enter_context(control_plane(scratch, folder, off=("Priority",), options=options))
        cluster = Cluster(stack.enter_context(Client(plane.port, plane.admin)), rnd)
        for size in nodes or ((100,) if quick else (500,)):
            for name in (
                [one for one in shapes if one != SATURATION]
                if shapes
                else (("SchedulingBasic", "PodAntiAffinity") if quick else SHAPES)
            ):
                workload = read(folder / "scheduler_perf", name, size)
                cluster.set_nodes(workload)
                runs: dict[str, list[Figures]] = {kind: [] for kind in kinds}
                for _ in range(1 if quick or size > 1000 else turns):
                    for kind in rnd.sample(kinds, len(kinds)):
                        gates = GATES if name == "Gang" else ""

                        def start(kind: str = kind, gates: str = gates) -> Process:
                            return Process(kind, plane, folder, scratch, gates)

                        try:
                            found = cluster.run(workload, start, say)
                        except RuntimeError as error:
                            outcome.notes.append(f"{name}, {size:,} nodes: {error}.")
                            continue
                        runs[kind].append(found)
                        say(
                            f"{name}, {size} nodes, {kind}: {len(found.times)}/{found.pods} pods, "
                            f"{len(found.times) / max(found.span, 1e-9):.0f}/s, CPU {1e3 * found.cpu / found.pods:.2f} ms "
                            f"per pod, {found.memory:.0f} MiB"
                        )
                _report(outcome, name, size, runs)
        if SATURATION in shapes or not (shapes or quick):
            steps = 20 if quick else 60
            make_nodes(cluster.client, _GPU_NODES)
            for profile, (kind, settings) in PROFILES.items():
                if kind in kinds:

                    def begin(kind: str = kind, settings: Sequence[str] = settings) -> Process:
                        return Process(kind, plane, folder, scratch, settings=settings)

                    part, large = allocated(cluster.client, begin, _GPU_NODES, steps, seed)
                    say(
                        f"{SATURATION}, {profile}: {100 * part:.1f} % of the GPUs, {100 * large:.1f} % of the 8-GPU pods"
                    )
                    setting = f"{SATURATION}, {_GPU_NODES} nodes of 8, {steps} departures: {profile}"
                    outcome.rows.append(
                        Row(_NAME, setting, "GPUs allocated, mean", 100 * part, unit="%", better="more")
                    )
                    outcome.rows.append(
                        Row(_NAME, setting, "8-GPU pods with a node", 100 * large, unit="%", better="more")
                    )
    return outcome


def _report(outcome: Outcome, name: str, size: int, turns: dict[str, list[Figures]]) -> None:
    """Add the rows of a workload, and its wrong results."""
    for kind, runs in turns.items():
        for found in runs:
            if found.broken:
                text = f"{name}, {size:,} nodes, {kind}: {len(found.broken)} rules broken: {found.broken[0]}"
                (outcome.wrong if kind == OURS else outcome.notes).append(text)
    ours, theirs = turns[OURS], turns.get(KUBE, [])
    if not ours:
        return
    setting = f"{name}, {size:,} nodes, {ours[0].pods:,} pods"
    lost = {kind: max((one.pods - len(one.times) for one in runs), default=0) for kind, runs in turns.items()}
    note = "; ".join(f"{kind} left {number:,} pods without a node" for kind, number in lost.items() if number)

    def add(metric: str, unit: str, of: Callable[[Figures], float], more: bool) -> None:
        value = statistics.median(map(of, ours))
        baseline = statistics.median(map(of, theirs)) if theirs else None
        ratio = None
        if baseline and value:
            ratio = value / baseline if more else baseline / value
        better = "more" if more else "less"
        outcome.rows.append(
            Row(_NAME, setting, metric, value, baseline, ratio, None, unit, note, better)  # type: ignore[arg-type]
        )

    def at(part: float) -> Callable[[Figures], float]:
        return lambda found: (
            found.times[min(int(part * len(found.times)), len(found.times) - 1)] if found.times else 0.0
        )

    add("pods/s", "", lambda found: len(found.times) / max(found.span, 1e-9), True)
    add("creation to binding, p50", "s", at(0.5), False)
    add("creation to binding, p99", "s", at(0.99), False)
    add("CPU time of the scheduler per pod", "s", lambda found: found.cpu / max(len(found.times), 1), False)
    add("peak memory of the scheduler", "MiB", lambda found: found.memory, False)


def plot(outcome: Outcome, folder: Path) -> list[Path]:
    """Plot pods/s and CPU time per pod by workload, one file for each number of nodes."""
    import numpy as np

    sizes: dict[str, dict[str, dict[str, Row]]] = {}
    for row in (row for row in outcome.rows if not row.setting.startswith(f"{SATURATION}, ")):
        name, size = re.split(", ", row.setting)[:2]
        sizes.setdefault(size, {}).setdefault(name, {})[row.metric] = row
    paths = []
    for size, names in sizes.items():
        figure, panels = chart(f"Pods on {size}", 3.0, 2)
        at = np.arange(len(names))
        for axes, metric, scale, label in (
            (panels[0], "pods/s", 1.0, "pods/s"),
            (panels[1], "CPU time of the scheduler per pod", 1e3, "CPU time per pod, ms"),
        ):
            rows = [rows[metric] for rows in names.values()]
            for shift, of, who in ((0.0, "value", "flowsched"), (0.4, "baseline", "kube-scheduler")):
                axes.barh(at + shift, [scale * float(getattr(row, of) or 0.0) for row in rows], 0.38, label=who)
            axes.set_yticks(at + 0.2, list(names), fontsize=8)
            axes.invert_yaxis()
            axes.set_xlabel(label)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        paths.append(write(figure, folder, f"kubernetes-{size.partition(' ')[0].replace(',', '')}"))
    return paths
