"""The deployment sequence against plain proportional rounding: shares of users, heartbeat by heartbeat.

Source: Wang, Hong and Feng, "Resource deployment strategy for multi-user cluster": its tables 1 and 2 recomputed, and
its two experiments (figures 1 to 4, which it draws without stating numbers: users are to get their own shares).
"""

from __future__ import annotations

import heapq
import textwrap
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bench import controller
from bench.controller import Point
from bench.drawing import COLOURS, chart, write
from bench.rows import Keep, Outcome, Row, forget
from flowsched.sharing.deployment import Deployment
from flowsched.sharing.deployment_sequence import DeploymentSequence, sequence

__all__ = ["TITLE", "plot", "run"]

TITLE = "proportional sharing over time: the deployment sequence against proportional rounding"

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_NAME = "sequence"
_USERS = "ABCD"
_MACHINES = 10
_SAMPLES = 100
_DRAWS = 500
_TABLE_1 = [[3, 2], [6, 4], [9, 6], [13, 7], [16, 9], [19, 11], [22, 13], [25, 15]]
_TABLE_2 = [[12, 14], [35, 24], [52, 35], [76, 40], [85, 47]]
_PRINTED_2 = [[12, 14], [35, 24], [52, 33], [76, 38], [85, 45]]


@dataclass(frozen=True)
class _Setting:
    """One of the source's experiments."""

    name: str
    quotas: tuple[int, ...]
    units: int
    horizon: float
    beat: float
    sizes: tuple[int, int]
    seconds: tuple[float, float]
    slow: int = -1

    def task(self, rng: np.random.Generator, user: int) -> tuple[int, float]:
        """Draw size and duration of the user's next task."""
        size = int(rng.integers(self.sizes[0], self.sizes[1] + 1))
        seconds = float(rng.uniform(*self.seconds)) * size * (3 if user == self.slow else 1)
        return size, seconds


_FIXED = _Setting("10:8:6:5, tasks of one CPU, 20-30 s", (10, 8, 6, 5), 10, 5000.0, 1.0, (1, 1), (20.0, 30.0))
_SIZES = _Setting("20:14:8:5, tasks of 5-40 MB, 1 s per MB", (20, 14, 8, 5), 100, 1000.0, 1.0, (5, 40), (1.0, 1.0))
_SLOW = _Setting(
    "1:1:1:1, tasks of A run three times as long", (1, 1, 1, 1), 10, 3000.0, 1.0, (1, 1), (20.0, 30.0), slow=0
)

_BEATS = (1.0, 10.0, 20.0, 40.0)
"""Seconds between two heartbeats of a machine.  The source expects up to 1 s, and states none for its figures."""

# A policy maps the number of free units and the queues (of sizes) to the number of tasks that start from each queue's head.
Policy = Callable[[int, list[list[int]]], Sequence[int]]


def _by_sequence(sharing: Deployment) -> Policy:
    """Return the policy of the deployment sequence with its ledger."""

    def deal(free: int, queues: list[list[int]]) -> Sequence[int]:
        tasks: list[int] = sharing.deal_sizes(free, dict(enumerate(queues))).tasks.tolist()
        return tasks

    return deal


def _proportional(quotas: Sequence[int], rest: bool) -> Policy:
    """Return a policy: units of a heartbeat by quota, rounded; the rest stays free, or (`rest`) goes to the largest task that fits."""

    def deal(free: int, queues: list[list[int]]) -> Sequence[int]:
        left, started = free, []
        for quota, queue in zip(quotas, queues, strict=True):
            own = min(left, int(Fraction(free * quota, sum(quotas)) + Fraction(1, 2)))
            started.append(_fitting(queue, own))
            left -= sum(queue[: started[-1]])
        if rest:
            spares = [
                (-queue[n], user) for user, (queue, n) in enumerate(zip(queues, started, strict=True)) if n < len(queue)
            ]
            for size, user in sorted(spares):
                while -size <= left and started[user] < len(queues[user]) and queues[user][started[user]] == -size:
                    left += size
                    started[user] += 1
        return started

    return deal


def _fitting(queue: list[int], units: int) -> int:
    return int(np.searchsorted(np.cumsum(queue), units, "right")) if queue else 0


@dataclass
class _Usage:
    """Tasks that ran: user, start, duration, size."""

    tasks: NDArray[np.float64]
    setting: _Setting

    def by_user(self, at: float) -> Floats:
        """Return the units times seconds that each user has used."""
        user, start, seconds, size = self.tasks.T
        used = np.clip(at - start, 0.0, seconds) * size
        total: Floats = np.bincount(user.astype(np.int64), used, minlength=len(self.setting.quotas)).astype(np.float64)
        return total

    def shares(self, at: float) -> Floats:
        """Return each user's fraction of the total usage."""
        used = self.by_user(at)
        shares: Floats = used / max(float(used.sum()), 1e-9)
        return shares


def _simulate(setting: _Setting, policy: Policy, seed: int, sharing: Deployment | None = None) -> _Usage:
    """Simulate machines that report free units every heartbeat, one after the other; every user always has tasks."""
    users = len(setting.quotas)
    draws = [np.random.default_rng([seed, user]) for user in range(users)]
    queues: list[list[tuple[int, float]]] = [[] for _ in range(users)]
    free = [setting.units] * _MACHINES
    ending: list[list[tuple[float, int, int, float]]] = [[] for _ in range(_MACHINES)]
    ran: list[tuple[float, float, float, float]] = []
    for step in range(int(setting.horizon / setting.beat) * _MACHINES):
        now, machine = step * setting.beat / _MACHINES, step % _MACHINES
        while ending[machine] and ending[machine][0][0] <= now:
            _, size, user, seconds = heapq.heappop(ending[machine])
            free[machine] += size
            if sharing is not None and sharing.ticks > 1:
                sharing.finished(user, size, round(seconds))
        if not free[machine]:
            continue
        for user, queue in enumerate(queues):
            while sum(size for size, _ in queue) < 2 * setting.units:
                queue.append(setting.task(draws[user], user))
        for user, count in enumerate(policy(free[machine], [[size for size, _ in queue] for queue in queues])):
            for size, seconds in queues[user][:count]:
                heapq.heappush(ending[machine], (now + seconds, size, user, seconds))
                free[machine] -= size
                ran.append((user, now, seconds, size))
            del queues[user][:count]
    return _Usage(np.array(ran), setting)


def _tables(outcome: Outcome) -> None:
    """Add rows of the worked examples."""
    row = DeploymentSequence([5, 3]).draw([5] * 8).cumsum(axis=0).tolist()
    outcome.rows.append(
        Row(_NAME, "quotas 5:3", "sequence", "".join("AB"[i] for i in sequence([5, 3])), source_value="ABAABABA")
    )
    for i, (got, want) in enumerate(zip(row, _TABLE_1, strict=True)):
        outcome.rows.append(
            Row(_NAME, f"table 1, after {5 * (i + 1)} units", "A/B in all", _pair(got), source_value=_pair(want))
        )
    if row != _TABLE_1:
        outcome.wrong.append(f"table 1: {row} instead of {_TABLE_1}")
    sharing = Deployment({"A": 50, "B": 30})
    queues: dict[Hashable, list[int]] = {"A": [12, 15, 8, 6, 11, 10, 14, 9], "B": [8, 6, 10, 11, 5, 7, 6, 5]}
    total = np.zeros(2, np.int64)
    for free, want, printed in zip((30, 35, 32, 31, 20), _TABLE_2, _PRINTED_2, strict=True):
        beat = sharing.deal_sizes(free, queues)
        queues = {user: queues[user][n:] for user, n in zip("AB", beat.tasks.tolist(), strict=True)}
        total += beat.units
        note = "" if want == printed else "the source's sum for B slips by 2 here"
        outcome.rows.append(
            Row(_NAME, f"table 2, {free} M free", "A/B in all", _pair(total), source_value=_pair(printed), note=note)
        )
        if total.tolist() != want:
            outcome.wrong.append(f"table 2, {free} M free: {total.tolist()} instead of {want}")


def _rules(outcome: Outcome, seed: int) -> None:
    """Add rows of both rules of the source, which calls them equivalent."""
    rng = np.random.default_rng(seed)
    equal = mirrored = 0
    for _ in range(_DRAWS):
        quotas = rng.integers(1, 13, int(rng.integers(2, 6))).tolist()
        deficit, ratio = sequence(quotas, "max_deficit"), sequence(quotas, "min_ratio")
        equal += bool((deficit == ratio).all())
        mirrored += bool((deficit == ratio[::-1]).all())
    for metric, count in (("equal sequences", equal), ("one is the other one reversed", mirrored)):
        outcome.rows.append(Row(
            _NAME, "both rules, random quotas", metric, 100 * count / _DRAWS, unit="%", note=f"{_DRAWS} draws of 2 to 5 users",
        ))  # fmt: skip


def _pair(values: Sequence[int] | Ints) -> str:
    return "/".join(str(int(value)) for value in values)


def _compare(outcome: Outcome, setting: _Setting, runs: dict[str, _Usage]) -> None:
    """Add rows of one experiment; the first run is the sequence, the second the baseline."""
    ideal = np.array(setting.quotas) / sum(setting.quotas)
    (name, ours), (other, baseline) = list(runs.items())[:2]
    end = setting.horizon
    shares = ours.shares(end), baseline.shares(end)
    for i, user in enumerate(_USERS):
        outcome.rows.append(Row(
            _NAME, setting.name, f"share of {user}, whose quota is {100 * ideal[i]:.2f} %", 100 * shares[0][i], 100 * shares[1][i],
            unit="%", note=f"baseline: {other}",
        ))  # fmt: skip
    later = np.linspace(0.2 * end, end, _SAMPLES)
    for label, at in (("at the end", [end]), ("at worst after a fifth of the time", later)):
        worst = [max(float(np.abs(usage.shares(t) / ideal - 1).max()) for t in at) for usage in (ours, baseline)]
        outcome.rows.append(Row(
            _NAME, setting.name, f"largest deviation from the quota, {label}", 100 * worst[0], 100 * worst[1],
            ratio=worst[1] / max(worst[0], 1e-9), unit="%", note=f"baseline: {other}",
        ))  # fmt: skip
    capacity = _MACHINES * setting.units * end
    for label, usage in runs.items():
        if usage is not ours and usage is not baseline:
            outcome.rows.append(Row(
                _NAME, setting.name, f"largest deviation from the quota, at the end: {label}",
                100 * float(np.abs(usage.shares(end) / ideal - 1).max()), unit="%",
            ))  # fmt: skip
        used = float(usage.by_user(end).sum()) / capacity
        outcome.rows.append(Row(_NAME, setting.name, f"utilisation: {label}", 100 * used, unit="%"))
    if abs(shares[0] / ideal - 1).max() > 0.1:
        outcome.wrong.append(f"{setting.name}: {name} deviates by more than 10 % from the quotas")


def _beats(outcome: Outcome, seeds: Sequence[int]) -> None:
    """Add rows of figures 3 and 4 where machines report more seldom: the source's rule, ours, and proportional rounding."""
    ideal = np.array(_SIZES.quotas) / sum(_SIZES.quotas)
    for beat in _BEATS:
        setting = replace(_SIZES, beat=beat)
        rules: dict[str, Callable[[], Policy]] = {
            "figure 3, spare of the user that is owed most": partial(_by_sequence_of, setting, "owed"),
            "figure 3, largest spare first (the source's rule)": partial(_by_sequence_of, setting, "largest"),
            "figure 4, rounding; the rest stays free": partial(_proportional, setting.quotas, False),
            "figure 4, rounding; the rest to the largest task": partial(_proportional, setting.quotas, True),
        }
        for label, rule in rules.items():
            runs = [_simulate(setting, rule(), seed) for seed in seeds]
            apart = [100 * float(np.abs(run.shares(setting.horizon) / ideal - 1).max()) for run in runs]
            used = [float(run.by_user(setting.horizon).sum()) for run in runs]
            part = 100 * float(np.mean(used)) / (_MACHINES * setting.units * setting.horizon)
            outcome.rows.append(Row(
                _NAME, f"{_SIZES.name}, a heartbeat every {beat:g} s", f"largest deviation from the quota: {label}",
                float(np.mean(apart)), unit="%", note=f"utilisation {part:.0f} %; seeds: {len(runs)}",
            ))  # fmt: skip


def _by_sequence_of(setting: _Setting, spares: Literal["largest", "owed"]) -> Policy:
    return _by_sequence(_sharing(setting, spares))


def _speed(outcome: Outcome, quick: bool) -> None:
    """Add rows of the speed of the arithmetic against walking the sequence."""
    quotas = [1_000_003, 500_009, 7, 1] if not quick else [100_003, 50_021, 7, 1]
    start = time.thread_time()
    entries = sequence(quotas)
    written = time.thread_time() - start
    outcome.rows.append(Row(_NAME, f"{len(entries):,} entries", "writing the sequence out", written, unit="s"))
    turns = DeploymentSequence(quotas)
    units = 10**9 + 12345
    start = time.thread_time()
    counts = turns.draw(units)
    drawn = time.thread_time() - start
    start = time.thread_time()
    walked = np.bincount(entries[: units % len(entries)], minlength=4) + units // len(entries) * np.array(quotas)
    walk = time.thread_time() - start
    outcome.rows.append(Row(
        _NAME, "a billion units", "drawing", drawn, written + walk, (written + walk) / drawn, unit="s", note="baseline: writing one period out and counting",
    ))  # fmt: skip
    if counts.tolist() != walked.tolist():
        outcome.wrong.append(f"drawing {units} units: {counts.tolist()} instead of {walked.tolist()}")
    small, many = DeploymentSequence([10, 8, 6, 5]), np.random.default_rng(0).integers(0, 30, 1_000_000)
    start = time.thread_time()
    small.draw(many)
    outcome.rows.append(
        Row(_NAME, "10:8:6:5", "drawing, one of a million heartbeats", (time.thread_time() - start) / 1e6, unit="s")
    )


@dataclass
class _Runs(Outcome):
    """The outcome, with the runs that the plots need."""

    runs: list[tuple[_Setting, dict[str, _Usage]]] = field(default_factory=list)
    controller: list[Point] = field(default_factory=list)


def run(*, quick: bool, seed: int = 0, say: Callable[[str], None], keep: Keep = forget) -> Outcome:
    """Run tables, both experiments of the source, one with time as part of the measure, and speed."""
    outcome = _Runs()
    keep(lambda: outcome)
    _tables(outcome)
    _rules(outcome, seed)
    for setting in (_FIXED, _SIZES):
        say(setting.name)
        horizon = setting.horizon / 5 if quick and setting is _FIXED else setting.horizon
        setting = replace(setting, horizon=horizon)
        runs = {"deployment sequence": _simulate(setting, _by_sequence(_sharing(setting)), seed)}
        plain = {
            f"proportional, rounded; the rest {where}": _simulate(setting, _proportional(setting.quotas, rest), seed)
            for where, rest in (("stays free", False), ("to the largest task", True))
        }
        # The baseline is the fairer one of the two.
        ideal = np.array(setting.quotas) / sum(setting.quotas)
        runs.update(sorted(plain.items(), key=lambda item: float(np.abs(item[1].shares(horizon) / ideal - 1).max())))
        if setting.sizes != (1, 1):
            runs["sequence, largest spare first"] = _simulate(setting, _by_sequence(_sharing(setting, "largest")), seed)
        _compare(outcome, setting, runs)
        outcome.runs.append((setting, runs))
    say(_SLOW.name)
    timed = _sharing(_SLOW, ticks=25)
    runs = {
        "units times seconds": _simulate(_SLOW, _by_sequence(timed), seed, timed),
        "units alone": _simulate(_SLOW, _by_sequence(_sharing(_SLOW)), seed),
    }
    _compare(outcome, _SLOW, runs)
    outcome.runs.append((_SLOW, runs))
    say("heartbeats")
    _beats(outcome, (seed,) if quick else (seed, seed + 1, seed + 2))
    say("a controller of the cluster's size")
    outcome.controller = controller.measure(quick, seed)
    controller.add_rows(outcome, outcome.controller, _NAME)
    say("speed")
    _speed(outcome, quick)
    outcome.notes.append(
        "A controller: the publication proposes one without a rule; both rules are ours. Value: the drop in the optimum's cost."
    )
    outcome.notes.append(
        "Tasks of their own sizes: left-over grains go to the spare of the user who is owed most. The source's rule, the largest "
        "spare first, is the row 'sequence, largest spare first': most tasks start as spares here, and it does not see who is owed."
    )
    outcome.notes.append(
        "Heartbeats: with few grains free at a time, most tasks start as spares, and the source's rule follows sizes, not "
        "quotas. From 20 s on most tasks fit into parts, and both rules are near the quotas, at the price of idle machines. "
        "The source says of figure 4 that rounding comes near the quotas with fine grains; here it does so at no heartbeat."
    )
    return outcome


def _sharing(setting: _Setting, spares: Literal["largest", "owed"] = "owed", ticks: int = 1) -> Deployment:
    return Deployment(dict(enumerate(setting.quotas)), spares=spares, ticks=ticks)


def plot(outcome: Outcome, folder: Path) -> list[Path]:
    """Plot the usage of each user over time by its quota: lines that lie together are fair (figures 1 to 4)."""
    assert isinstance(outcome, _Runs)
    files = []
    for number, (setting, runs) in enumerate(outcome.runs):
        figure, panels = chart(setting.name, 2.4, len(runs), 2)
        at = np.linspace(0.0, setting.horizon, _SAMPLES)
        ideal = _MACHINES * setting.units * at / sum(setting.quotas)
        for axes, (label, usage) in zip(panels, runs.items(), strict=True):
            used = np.array([usage.by_user(t) for t in at]) / np.array(setting.quotas)
            for i, user in enumerate(_USERS):
                axes.plot(at, used[:, i], label=f"{user} ({setting.quotas[i]})", linestyle=("-", "--", "-.", ":")[i])
            axes.plot(at, ideal, color=COLOURS[4], linewidth=0.8, label="the quota")
            axes.set_title(textwrap.fill(label, 30), fontsize=8, fontweight="normal")
            axes.set_xlabel("s")
        figure.supylabel("units x s used, per unit of quota", fontsize=8.5)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
        files.append(write(figure, folder, f"sequence-{number + 1}"))
    if outcome.controller:
        files.append(controller.draw(outcome.controller, folder))
    return files
