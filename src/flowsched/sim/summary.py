"""The figures of a simulation as tables of text, for the terminal and the report alike."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowsched.sim.metrics import Metrics, Percentiles
from flowsched.sim.users import incidents, owners, scarce, shares, users

CODES = {
    "NO_FIT": "no machine has room now",
    "NEVER_FITS": "no machine is large enough",
    "FILTERED": "its constraints exclude every machine that is large enough",
    "NO_SLOT": "all slots are taken",
    "SHARE": "its job or user is at its share",
    "QUOTA": "too little is left of a quota of its user or job",
    "GANG_SHORT": "too few of its gang could start",
    "DEADLINE": "a deadline would be missed",
    "CONSTRAINT": "a constraint of the policy forbids it",
    "OUTBID": "others got the room",
    "WAIT_CHEAPER": "waiting costs less",
    "HELD": "held back",
    "TIME_LIMIT": "the time limit passed first",
    "CONFLICT": "the world changed before the commit",
    "PENDING": "the next round decides",
    "UNDECIDED": "it arrived after the last round",
}

_NEAR = ("from the task's machine", "from others in its rack", "from elsewhere")

_PHASES = {
    "update": "graph update",
    "solve": "solve",
    "read": "read, check and explain",
    "schedule": "whole decision",
    "apply": "hearing the events",
    "commit": "commit",
}


_MOST_USERS = 20
"""Users up to which each has a row."""


@dataclass(frozen=True)
class Table:
    """A titled table; the first column holds names, the others numbers (and `notes`, if any, a remark at the end)."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: bool = False


def tables(metrics: Metrics) -> list[Table]:
    """Return all tables, in reading order."""
    found = [
        _tasks(metrics),
        user_table(metrics),
        _usage(metrics),
        _fragmentation(metrics),
        _energy(metrics),
        _input(metrics),
    ]
    found += [_wait(metrics), _turnaround(metrics), _latency(metrics), _network(metrics)]
    return [table for table in found if table.rows]


def story(metrics: Metrics) -> list[str]:
    """Return what happened to machines and to the tasks on them, a line each, in order of time."""
    return [f"{_clock(time)}  {what}" for time, what in incidents(metrics)]


def _clock(seconds: float) -> str:
    """Return a time as hours and minutes."""
    minutes = int(seconds // 60)
    return f"{minutes // 60}:{minutes % 60:02}"


def facts_line(metrics: Metrics) -> str:
    """Return the facts of a run in a line."""
    facts = metrics.facts
    if facts["interval"] is None:
        rounds = "a round per event"
    else:
        rounds = f"rounds every {duration(facts['interval'])}" + (" and on events" if facts["on_events"] else "")
    parts = [f"{facts['machines']:,} machines", f"{facts['tasks']:,} tasks"]
    parts += [f"{what} {facts[what]}" for what in ("policy", "scheduler") if what in facts]
    parts += [rounds, f"{duration(facts['end'])} simulated in {duration(metrics.wall_seconds)}"]
    parts += [f"arrivals {facts['compress']:g} times as fast as recorded"] if "compress" in facts else []
    parts += [f"links of {facts['network']}"] if facts.get("network") else []
    parts += ["no task ever ends"] if facts.get("hold") else []
    parts += ["the time to decide is charged"] if facts["charge_solver"] else []
    return ", ".join(parts)


def resource_label(name: str) -> str:
    """Return the printed name of a resource."""
    return {"cpu": "CPU", "mem": "memory", "gpu": "GPU"}.get(name, name)


def duration(seconds: float) -> str:
    """Return a time span in a suitable unit, to three digits."""
    if math.isnan(seconds):
        return "-"
    if math.isinf(seconds):
        return "for ever"
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if seconds >= 2 * size or (size <= 1.0 and seconds >= size):
            return f"{_three(seconds / size)} {unit}"
    return f"{seconds * 1e6:.0f} µs" if seconds > 0 else "0 s"


def amount(value: float, unit: str) -> str:
    """Return an amount of a resource with its unit; large MiB become GiB or TiB."""
    if unit == "MiB":
        for size, name in ((1024**2, "TiB"), (1024, "GiB")):
            if value >= size:
                return f"{_three(value / size)} {name}"
    text = f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def _percent(share: float) -> str:
    return "0 %" if share == 0 else f"{100 * share:.{1 if share >= 0.0995 else 2}f} %"


def _tasks(metrics: Metrics) -> Table:
    total = max(metrics.facts["tasks"], 1)

    def row(label: str, n: int, note: str = "") -> tuple[str, str, str, str]:
        return label, f"{n:,}", _percent(n / total), note

    rows = [
        row("placed (started at least once)", metrics.placed),
        row("completed", metrics.tasks["completed"]),
        row("running at the end", metrics.tasks["running"]),
        row("waiting at the end", metrics.tasks["waiting"]),
        row("never fits", metrics.tasks["never_fits"]),
    ]
    if metrics.tasks["not_arrived"]:
        rows.append(row("not arrived by the end", metrics.tasks["not_arrived"]))
    lacking = _obstacles(metrics)
    for code, n in metrics.waiting.items():
        rows.append(row(f"  {code}", n, CODES.get(code, "") + lacking.get(code, "")))
    return Table("Tasks", ("", "tasks", "share", ""), rows, notes=True)


def _obstacles(metrics: Metrics) -> dict[str, str]:
    """Return, by reason code, the obstacles and the machines (mean over its tasks) that have them, in words."""
    machines: dict[str, Counter[str]] = defaultdict(Counter)
    tasks: Counter[str] = Counter()
    for reason in metrics.reasons.values():
        tasks[reason.code.value] += 1
        for obstacles in reason.detail.values():
            machines[reason.code.value].update(obstacles)
    words: dict[str, str] = {}
    for code, counter in machines.items():
        mean = [(what, round(n / tasks[code])) for what, n in counter.most_common(4)]
        some = [f"{what} on {n:,} machines" for what, n in mean if n]
        words[code] = ": " + ", ".join(some) if some else ""
    return words


def user_table(metrics: Metrics) -> Table:
    """Return a row per user: parts of the scarcest resource, waiting time and stopped tasks; no rows without several users."""
    names = users(metrics)
    if not 1 < len(names) <= _MOST_USERS or not len(metrics.runs["start"]):
        return Table("", (), ())
    found, arrivals = shares(metrics), np.array(metrics.table["arrival"], np.float64)
    first, last = float(arrivals.min()), float(arrivals.max())

    def column(amounts: NDArray[np.float64] | None) -> list[str]:
        parts = None if amounts is None else found.parts(amounts, first, last)
        return ["-"] * len(names) if parts is None else [_percent(part) for part in parts.tolist()]

    columns = [column(found.asked), column(found.entitled), column(found.received)]
    of_task = np.array([names.index(user) for user in owners(metrics)])
    waited, stopped = (np.array(metrics.table[name], np.float64) for name in ("waited", "preempted"))
    rows = []
    for i, name in enumerate(names):
        mine = of_task == i
        rows.append(
            (
                name,
                f"{mine.sum():,}",
                *(part[i] for part in columns),
                duration(float(waited[mine].mean())),
                f"{stopped[mine].sum():,.0f}",
            )
        )
    label, fair = resource_label(scarce(metrics)), "entitled" if metrics.facts.get("policy") == "shares" else "max-min"
    return Table(
        f"Users, and their parts of the {label}s up (means from the first to the last arrival)",
        ("", "tasks", "asked for", fair, "received", "waited, mean", "preempted"),
        rows,
    )


def _usage(metrics: Metrics) -> Table:
    units = metrics.facts.get("units", {})
    rows = [
        (
            resource_label(name),
            amount(use.capacity, units.get(name, "")),
            _percent(metrics.offered[name].mean),
            _percent(use.mean),
            _percent(use.peak),
            amount(use.peak_amount, units.get(name, "")),
            _percent(use.final),
        )
        for name, use in metrics.usage.items()
    ]
    return Table(
        "Allocated (means from the first to the last arrival)",
        ("", "capacity", "asked for", "mean", "peak", "peak amount", "at the end"),
        rows,
    )


def _fragmentation(metrics: Metrics) -> Table:
    found, rows = metrics.fragmentation, []
    if found is not None and len(found.time):
        whole = float(found.capacity.max())
        name, unit = resource_label(found.resource), metrics.facts.get("units", {}).get(found.resource, "")
        rows = [
            (
                f"{name}, of no use to a task of the workload",
                _percent(found.share),
                "-" if math.isnan(found.rate) else _percent(found.rate),
                amount(float(found.lost.max()), unit),
                _percent(float(found.lost[-1]) / whole) if whole else "-",
            )
        ]
    return Table("Fragmentation (means over the run)", ("", "of all", "of what is free", "peak", "at the end"), rows)


def _energy(metrics: Metrics) -> Table:
    found, rows = metrics.energy, list[tuple[str, ...]]()
    if found is not None:
        watts = metrics.series["watts_idle"]
        rows = [
            ("all machines", energy(found.total), f"{found.mean:,.0f} W", f"{found.peak:,.0f} W"),
            ("of it without tasks", energy(found.idle), "", f"{watts.max(initial=0.0):,.0f} W"),
            ("of it for work that was lost", energy(found.lost), "", ""),
        ]
    return Table(f"Energy, by {metrics.facts.get('power')}", ("", "energy", "mean", "peak"), rows)


def _input(metrics: Metrics) -> Table:
    counts, rows = metrics.counts, list[tuple[str, ...]]()
    near = counts["data_on_machine"], counts["data_in_rack"]
    for label, read in zip(_NEAR, (*near, counts["data_read"] - sum(near)), strict=True):
        if counts["data_read"]:
            rows.append((label, amount(read, ""), _percent(max(read, 0.0) / counts["data_read"])))
    return Table("Input of tasks", ("", "read", "share"), rows)


def energy(joules: float) -> str:
    """Return an energy in a suitable unit, to three digits."""
    if math.isnan(joules):
        return "-"
    unit, size = ("MWh", 3.6e9) if joules >= 3.6e9 else ("kWh", 3.6e6)
    return f"{_three(joules / size)} {unit}" if joules >= 3.6e3 else f"{_three(joules)} J"


def _distribution(name: str, values: Percentiles) -> tuple[str, ...]:
    return (name, *(duration(v) for v in (values.p50, values.p90, values.p99, values.max, values.mean)))


def bounded(seconds: float, metrics: Metrics) -> str:
    """Format a waiting time of all tasks; one that exceeds the run is written as a lower bound."""
    if math.isfinite(seconds) or not len(metrics.unstarted):
        return duration(seconds)
    return f"> {duration(metrics.longest_wait)}"


def _wait(metrics: Metrics) -> Table:
    never = len(metrics.unstarted)
    rows = [_distribution(f"{metrics.placed:,} tasks that started", metrics.wait())]
    if never:
        every = metrics.wait_of_all()
        rows.append(_distribution(f"{never:,} that never started, until the end", Percentiles.of(metrics.unstarted)))
        points = (bounded(p, metrics) for p in (every.p50, every.p90, every.p99, every.max))
        rows.append((f"all {every.n:,} (Kaplan-Meier)", *points, f">= {duration(every.mean)}"))
    again = metrics.wait_again()
    if again.n:
        rows.append(_distribution(f"{again.n:,} that were stopped, waiting again", again))
    return Table("Waiting time, from arrival to first start", ("", "p50", "p90", "p99", "max", "mean"), rows)


def _turnaround(metrics: Metrics) -> Table:
    done, reading = metrics.turnaround(), metrics.reading()
    rows = [_distribution(f"{done.n:,} tasks that completed", done)] if done.n else []
    if reading.max > 0:
        rows.append(_distribution(f"{reading.n:,} that read input, for that", reading))
    return Table("Turnaround, from arrival to end", ("", "p50", "p90", "p99", "max", "mean"), rows)


def _latency(metrics: Metrics) -> Table:
    rows = [_distribution(label, metrics.latency(phase)) for phase, label in _PHASES.items()]
    return Table("Decision latency per round (wall clock)", ("", "p50", "p90", "p99", "max", "mean"), rows)


def _network(metrics: Metrics) -> Table:
    rounds, counts = metrics.rounds, metrics.counts
    slow = metrics.slowdown()
    changes = Percentiles.of(rounds["changes"].astype(float))
    rows = (
        ("rounds", f"{counts['rounds']:,.0f}" + (f", {n:,} skipped" if (n := counts["rounds_skipped"]) else "")),
        (
            "network at its largest",
            f"{int(rounds['nodes'].max(initial=0)):,} nodes, {int(rounds['arcs'].max(initial=0)):,} arcs",
        ),
        ("changes per round (p50, p99)", f"{changes.p50:,.0f}, {changes.p99:,.0f}" if changes.n else "-"),
        ("solve time, all rounds", duration(float(rounds["solve"].sum()))),
        ("decision time, all rounds", duration(float(rounds["schedule"].sum()))),
        ("preemptions", f"{counts['preemptions']:,.0f}"),
        ("migrations", f"{counts['migrations']:,.0f}"),
        ("conflicts", f"{counts['conflicts']:,.0f}"),
        ("machine failures", f"{counts['machine_failures']:,.0f}"),
        ("work lost", duration(counts["lost_seconds"])),
        ("bounded slowdown (mean, p99)", f"{slow.mean:,.2f}, {slow.p99:,.2f}" if slow.n else "-"),
    )
    return Table("Rounds and network", ("", ""), rows)
