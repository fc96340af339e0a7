"""Limits of compression of a machine, by measurement: what is lost when more CPU is wanted than there is.

Source: M.-S. Zhou, X.-S. Dong, H. Chen and X.-J. Zhang, "Dynamically Fine-grained Scheduling
Method in Cloud Environment", Journal of Software 31(12), 2020 (FGM),
section 2.1 and Fig. 4.

The source measures the performance of a machine by the demand on it.  Up to full use it grows with the demand; beyond
that, tasks are compressed, and competing costs some of it.  Here equal processes, the *probes*, each want a small part of
one CPU: they work for that part of a period, and sleep for the rest of it.  With ``k`` of them the demand is ``k`` parts,
the compression is ``r = 1 - capacity / demand``, and the performance is the work that all of them do in a second.

* The *contention* is the loss per unit of compression: the least-squares slope of ``1 - performance / best`` by ``r``,
  through 0, not below 0.
* The *limit* is the largest compression up to which the performance is that of full use, as condition (2) demands; at most
  `MOST`, by which a task takes a quarter longer.  Where nothing is lost, more compression would only delay tasks.

Both hold for a machine: `Limits.stale` says why they no longer hold.

Linux only.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from flowsched.boundary.validate import number
from flowsched.exceptions import InputError

MOST = 0.2
"""The largest limit of compression."""

DEFAULT = 0.1
"""The source's limit."""

DEMANDS = (0.6, 0.8, 1.0, 1.05, 1.1, 1.15, 1.25, 1.4)
"""Demands at which a machine is measured, as parts of its capacity."""

_PERIOD = 0.05

_BUSY = 0.1
"""Part of the CPUs in use by others beyond which the measurement is in doubt."""

_MEMORY = 0.05
"""Part by which memory may differ on the same machine, as by an update of the kernel."""

_PROBE = """
import sys, time
part, period, seconds = map(float, sys.argv[1:])
block = bytearray(1 << 20)
def chunk():
    for i in range(0, len(block), 4096):
        block[i] = (block[i] + i) & 255
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
done, begin = 0, time.monotonic()
while (now := time.monotonic() - begin) < seconds:
    start = time.thread_time()
    while time.thread_time() - start < part * period:
        chunk()
        done += 1
    rest = (int(now / period) + 1) * period - (time.monotonic() - begin)
    if rest > 0:
        time.sleep(rest)
print(done / (time.monotonic() - begin))
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of compression of a machine.

    Parameters
    ----------
    compression : float
        Largest compression of CPU, see `FineGrained` (`compressible`).
    contention : float
        See `FineGrained`.
    machine : mapping of str to object
        The machine that was measured, see `here`; empty for one that was not.
    measured : float
        Time of the measurement, in seconds since 1970.
    busy : float
        Part of the CPUs that others used meanwhile.
    levels : sequence of (float, float)
        Demand, as a part of the capacity, and performance, as a part of the best.
    """

    compression: float = DEFAULT
    contention: float = 0.0
    machine: Mapping[str, Any] = field(default_factory=dict)
    measured: float = 0.0
    busy: float = 0.0
    levels: Sequence[tuple[float, float]] = ()

    def stale(self) -> str:
        """Return why the machine has to be measured; "" if it need not."""
        if not self.machine:
            return "it was not measured"
        now = here()
        for name, then in self.machine.items():
            same = abs(now[name] - then) <= _MEMORY * then if name == "memory" else now[name] == then
            if not same:
                return f"the machine has changed ({name}: {then} then, {now[name]} now)"
        return ""

    @property
    def doubtful(self) -> bool:
        """True if others used much of the machine during the measurement."""
        return self.busy > _BUSY

    def text(self) -> str:
        """Return it as JSON, for `read`."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Limits:
        """Read limits from a file; raise InputError if it has none."""
        try:
            known = json.loads(Path(path).read_text())
            limits = cls(**known | {"levels": [tuple(level) for level in known["levels"]]})
            number("compression", limits.compression, 0)
            number("contention", limits.contention, 0)
            if limits.compression >= 1:
                raise InputError("compression: a number below 1 expected")
        except (OSError, ValueError, TypeError, LookupError, InputError) as error:
            raise InputError(f"{path}: limits of `flowsched measure` expected: {error}") from None
        return limits


def place() -> Path:
    """Return the file of this machine's limits, by the user."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return folder / "flowsched" / f"limits-{platform.node() or 'machine'}.json"


def here() -> dict[str, Any]:
    """Return what a measurement depends on: CPUs, their model, MiB of memory, the release of the kernel."""
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    kernel = ".".join(platform.release().split(".")[:2])
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    model = found[1] if found else platform.machine()
    return {"CPUs": len(os.sched_getaffinity(0)), "model": model, "memory": memory, "kernel": kernel}


def measure(seconds: float = 1.5, repeats: int = 3, say: Callable[[str], object] = lambda line: None) -> Limits:
    """Measure this machine; takes about a second more than `seconds` for each of `DEMANDS`, `repeats` times.

    Parameters
    ----------
    seconds : float
    repeats : int
        The median performance of each demand counts.
    say : callable
        Called with a line after each step.
    """
    cpus = len(os.sched_getaffinity(0))
    part = min(0.5, cpus / 20)
    counts = list(dict.fromkeys(round(demand * cpus / part) for demand in DEMANDS))
    found: dict[int, list[float]] = {count: [] for count in counts}
    foreign: list[float] = []
    for turn in range(repeats):
        for count in counts:
            spent = _spent()
            begin = time.monotonic()
            work, own = _performance(count, part, seconds)
            used = (_spent() - spent - own) / (time.monotonic() - begin)
            found[count].append(work)
            foreign.append(max(used, 0.0) / cpus)
            say(
                f"{turn + 1} of {repeats}: demand {count * part / cpus:.0%} of {cpus} CPUs: {work:,.0f} units of work a second"
            )
    # Compared within a turn, since the machine may slow down meanwhile.
    full = [max(found[count][turn] for count in counts if count * part <= cpus * 1.0001) for turn in range(repeats)]
    levels = [
        (count * part / cpus, median(work / most for work, most in zip(found[count], full, strict=True)))
        for count in counts
    ]
    compression, contention = derived(levels)
    best = max(work for _, work in levels)
    shown = [(round(demand, 4), round(work / best, 4)) for demand, work in levels]
    return Limits(compression, contention, here(), time.time(), round(median(foreign), 4), shown)


def derived(levels: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the limit of compression and the contention by the performance at each demand.

    Parameters
    ----------
    levels : sequence of (float, float)
        Demand, as a part of the capacity, ascending, and performance in any unit.
    """
    demand, work = np.array(levels, np.float64).T
    if not (len(demand) and (work > 0).all() and (demand <= 1.0001).any()):
        raise InputError("measure: no performance without compression")
    over = demand > 1.0001
    full = work[~over].max()
    rate, loss = 1 - 1 / demand[over], 1 - work[over] / full
    square = float(rate @ rate)
    contention = max(float(rate @ loss) / square, 0.0) if square else 0.0
    # Condition (2): throughput must not fall, except by the error of a measurement.
    limit = 0.0
    for compression, lost in zip(rate.tolist(), loss.tolist(), strict=True):
        if lost > _NOISE:
            break
        limit = compression
    return min(round(limit, 3), MOST), round(contention, 3)


_NOISE = 0.02
"""Loss that a measurement may have by chance."""


def _performance(count: int, part: float, seconds: float) -> tuple[float, float]:
    """Return the work that a number of probes do in a second, and the CPU seconds that they used."""
    command = [sys.executable, "-I", "-S", "-c", _PROBE, str(part), str(_PERIOD), str(seconds)]
    probes: list[subprocess.Popen[str]] = []
    before = os.times()
    try:
        probes.extend(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
        )
        for probe in probes:
            assert probe.stdout is not None
            probe.stdout.readline()
        for probe in probes:
            assert probe.stdin is not None
            probe.stdin.write("go\n")
            probe.stdin.flush()
        work = sum(_told(probes))
    finally:
        for probe in probes:
            probe.kill()
            probe.communicate()
    after = os.times()
    return work, sum(after[:4]) - sum(before[:4])


def _told(probes: Sequence[subprocess.Popen[str]]) -> Iterator[float]:
    for probe in probes:
        assert probe.stdout is not None
        yield float(probe.stdout.readline())


def _spent() -> float:
    """Return the CPU seconds of the machine that were not idle."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
