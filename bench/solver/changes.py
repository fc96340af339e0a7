"""Recorded changes of recorded scheduling networks, as records of an incremental DIMACS stream."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from time import thread_time

import numpy as np

from bench.solver import peers
from bench.solver.findings import Findings
from flowsched.cli.solvers import without_lower
from flowsched.network.dimacs_stream import IncrementalSession
from flowsched.network.flow_network import FlowNetwork
from flowsched.network.problem import FlowProblem

__all__ = ["measure"]


def measure(findings: Findings, folder: Path) -> None:
    """Add rows of each change file on its graph: the stream's round against OR-tools from scratch."""
    ours: list[float] = []
    theirs: dict[str, list[float]] = {}
    for graph in sorted(folder.glob("graph_*m_*crs_*j.in*")):
        stem = graph.name.partition(".")[0]
        for change in sorted(folder.glob(f"{stem}_*.in*")):
            if change.name.startswith(f"{stem}_incremental"):  # a list of the others
                continue
            network, cost, seconds = _round(_lines(graph), _lines(change))
            ours.append(seconds)
            problem = without_lower(_problem(network))
            for peer, solve in peers.cold_peers().items():
                measured = solve(problem)
                fixed = int((network.lower() * network.cost()).sum())  # cost of the lower bounds, sent in advance
                measured.cost += fixed
                findings.check(f"flowlessly, {change.name}", cost, {peer: measured})
                theirs.setdefault(peer, []).append(measured.total)
    if ours:
        setting = f"flowlessly, {len(ours)} change files"
        findings.times(setting, "records read to flow written", ours, theirs, None, "peers: solve from scratch")


def _round(graph: list[bytes], change: list[bytes]) -> tuple[FlowNetwork, int, float]:
    """Return the network after both, its optimum, and the seconds of the second: parse, mutate, solve, write."""
    seconds = 0.0

    def stream() -> Iterator[bytes]:
        nonlocal seconds
        yield from [*graph, b"c EOI\n"]
        seconds = -thread_time()
        yield from [*change, b"c EOI\n"]
        seconds += thread_time()

    answers = io.StringIO()
    session = IncrementalSession(stream(), answers)
    session.run()
    cost = [int(line.split()[1]) for line in answers.getvalue().splitlines() if line.startswith("s ")][-1]
    return session.network, cost, seconds


def _problem(network: FlowNetwork) -> FlowProblem:
    nodes = network.nodes()
    index = {node: place for place, node in enumerate(nodes.tolist())}
    tail, head = (np.array([index[node] for node in ends.tolist()]) for ends in (network.tail(), network.head()))
    return FlowProblem(tail, head, network.capacity(), network.cost(), network.supply(), network.lower())


def _lines(path: Path) -> list[bytes]:
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    return data.splitlines()
