"""Figure 12 and the use in Table 1 by real processes of this machine: a core of its own stands for the GPU.

*Detection* unpacks an image on a core of the CPU, sends it to the device's core, where it is packed again, and waits for
the answer: as on a GPU, the two sides take turns.  *Word count* counts the words of a text and writes the counts to disk.
Both run for ever; their CPU time and their numbers of images and texts are read at both ends of a window.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.rows import Row
from flowsched.exceptions import FlowschedError
from flowsched.hrm import Container, Outcome, ResourceUnit

__all__ = ["mixed"]

_DETECTION = """
import os, random, socket, sys, zlib
core, log = int(sys.argv[1]), open(sys.argv[2], "ab", 0)
packed = zlib.compress(bytes(random.Random(0).choices(range(64), k=1 << 18)))
size = len(zlib.decompress(packed))
host, device = socket.socketpair()
if os.fork():
    device.close()
    while True:
        host.sendall(zlib.decompress(packed))
        if not host.recv(1):
            break
host.close()
os.sched_setaffinity(0, {core})
images = device.makefile("rb")
while image := images.read(size):
    zlib.compress(image, 1)
    log.write(b".")
    device.sendall(b".")
"""

_WORD_COUNT = """
import collections, os, random, sys, tempfile, time
pause, log = float(sys.argv[1]), open(sys.argv[2], "ab", 0)
text = iter(map(str, random.Random(0).choices(range(5000), k=100_000)))
blocks = []
for word in text:
    block, size = [word], len(word)
    while size < 1 << 16 and (word := next(text, "")):
        block.append(word)
        size += len(word) + 1
    blocks.append(" ".join(block))
with tempfile.TemporaryFile() as counts:
    while True:
        found = collections.Counter()
        for block in blocks:
            if pause:
                time.sleep(pause * len(block))
            found.update(block.split())
        counts.seek(0)
        counts.write(repr(found).encode())
        counts.flush()
        os.fsync(counts.fileno())
        log.write(b".")
"""

_DISKS = {"in memory": 0.0, "on a hard disk of 150 MB/s": 1 / 150e6}
"""Seconds that word count waits for a byte of its text."""

_IMAGES = 720
"""Of Table 1."""

_LEAST = 20
"""Least number of images and texts of a window: CPU time is counted in steps of 10 ms."""


def mixed(quick: bool, notes: list[str]) -> list[Row]:
    """Return the rows of Figure 12, and of 1, 2 and 3 detections on one device."""
    try:
        import flowsched.fgm.sampler  # noqa: F401
    except ImportError:
        notes.append("psutil is absent: the use of cores by real processes, Figure 12, is left out")
        return []
    if not hasattr(os, "pidfd_open"):
        return []  # `processes` says so
    device, *cpus = sorted(os.sched_getaffinity(0))
    if not cpus:
        notes.append("there is one core, and none to stand for a GPU: Figure 12 is left out")
        return []
    # Detections, word counts, seconds for a byte.  All take turns, so other load of the machine affects each.
    n = len(cpus)
    counts = [(detections, n, byte) for byte in _DISKS.values() for detections in (0, 1)]
    settings = [(1, 0, 0.0), *counts, (2, 0, 0.0), (3, 0, 0.0)]
    seconds, runs = (0.3, 1) if quick else (2.0, 7)
    each = np.array([[_window(device, cpus, *how, seconds) for how in settings] for _ in range(runs)])
    found = np.median(each, axis=0)
    mean = (_IMAGES / each[:, [0, -2, -1], 2]).mean(axis=0).tolist()  # of the times, not of the rates
    alone, more = found[0], found[-2:]
    others = float(found[:, 4].mean())
    notes.append(f"12, Table 1: other processes had {others:.1f} of {n + 1} cores meanwhile; uses may be less for it.")
    rows: list[Row] = []
    for text, count, both in zip(_DISKS, found[1:-2:2], found[2:-2:2], strict=True):
        where = f"12: detection next to word count, text {text}, {n} core{'s' * (n > 1)} and one in the place of a GPU"
        rows += _beside(where, alone, count, both)
    for n, one, average, (use, took) in zip(
        (1, 2, 3), (alone, *more), mean, ((24.0, 151.3), (61.0, 103.2), (73.0, 69.0)), strict=True
    ):
        where, base = f"table 1: {n} detections at once on one device", "measured; baseline: one at once"
        note = f"{base}; the source's {took:g} s"
        time_of, time_alone = _IMAGES / one[2], _IMAGES / alone[2]
        rows += [
            Row("hrm", where, "use of the device", one[0], alone[0], one[0] / alone[0], use, "%", base, better="more"),
            Row("hrm", where, f"time of {_IMAGES} images", time_of, time_alone, time_alone / time_of, None, "s", note),
            Row("hrm", where, f"time of {_IMAGES} images, mean", average, mean[0], mean[0] / average, None, "s", base),
        ]
    return rows


def _beside(where: str, alone: NDArray[np.float64], count: NDArray[np.float64], both: NDArray[np.float64]) -> list[Row]:
    """Return the rows of detection and word count together, compared with each alone."""
    note = "measured; baseline: {}"
    rows = [
        Row("hrm", where, metric, value, base, value / base, published, unit, note.format(of), better="more")
        for metric, value, base, published, unit, of in (
            ("use of the device", both[0], alone[0], "as alone", "%", "detection alone"),
            ("use of the CPU", both[1], count[1], 93.0, "%", "word count alone; the source's 78 %"),
            ("use of the CPU, against detection", both[1], alone[1], 93.0, "%", "detection alone; the source's 35 %"),
            ("images per second", both[2], alone[2], "as alone", "", "detection alone"),
            ("texts per second", both[3], count[3], None, "", "word count alone"),
        )
    ]
    rate = both[2] / alone[2] + both[3] / count[3]
    note = "measured; rates of both, each against its own alone; 1 is one after the other"
    return [*rows, Row("hrm", where, "work of both in the same time", rate, note=note, better="more")]


def _window(device: int, cpus: list[int], detections: int, counts: int, byte: float, seconds: float) -> list[float]:
    """Return the use of the device and of the CPU's cores in percent, images and texts per second, and the cores of others."""
    from flowsched.fgm.sampler import Sampler
    from flowsched.hrm.agent import Agent

    gpu = ResourceUnit("gpu", "this machine", vcore=len(cpus), gmem=3, gpu=0, cpus=tuple(cpus), shared=True)
    cpu = ResourceUnit("cpu", "this machine", vcore=len(cpus), cpus=tuple(cpus))
    with tempfile.TemporaryDirectory() as folder, Agent([gpu, cpu]) as agent:
        logs = {kind: [Path(folder, f"{kind}{i}") for i in range(n)] for kind, n in (("d", detections), ("c", counts))}
        for kind, code, unit, first in (("d", _DETECTION, "gpu", device), ("c", _WORD_COUNT, "cpu", byte)):
            for log in logs[kind]:
                log.touch()
                share = {"vcore": 0.25 * len(cpus), "gmem": 1} if kind == "d" else {"vcore": 1}
                line = [sys.executable, "-I", "-S", "-c", code, str(first), str(log)]
                if agent.submit(unit, Container(log.name, **share), line).outcome is not Outcome.STARTED:
                    raise FlowschedError(f"a process of the experiment does not start: {log.name}")
        while not all(log.stat().st_size for some in logs.values() for log in some):  # they have begun
            if ended := agent.step(timeout=0.01):
                raise FlowschedError(f"a process of the experiment failed: {ended[0]}")
        pids = {kind: [agent.pid(log.name) for log in logs[kind]] for kind in "dc"}
        devices = [
            int(child) for pid in pids["d"] for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
        tasks = {"device": devices, "all": [*pids["d"], *pids["c"]]}
        sampler = Sampler({task: some for task, some in tasks.items() if some}, "machine", units={"cpu": 1})  # type: ignore[misc]

        def done() -> list[int]:
            return [sum(log.stat().st_size for log in logs[kind]) for kind in "dc"]

        sampler.sample()
        before, begin = done(), time.perf_counter()
        pieces = [0, 0]
        while min(n for n, some in zip(pieces, logs.values(), strict=True) if some) < _LEAST:
            if ended := agent.step(timeout=seconds):
                raise FlowschedError(f"a process of the experiment failed: {ended[0]}")
            pieces = np.subtract(done(), before).tolist()
        took = time.perf_counter() - begin
        cores = {getattr(one, "task", "machine"): one.usage["cpu"] for one in sampler.sample()}
    device_, ours = cores.get("device", 0.0), cores["all"]
    others = max(cores["machine"] - ours, 0.0)
    return [100 * device_, 100 * (ours - device_) / len(cpus), pieces[0] / took, pieces[1] / took, others]
