"""Findings of the solver's experiment: rows with a goal first, then details; and faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bench.rows import Outcome, Row
from bench.solver.peers import Measured

__all__ = ["Findings", "Goal", "Say", "mean", "median"]

Say = Callable[[str], None]
Times = Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True)
class Goal:
    """A figure that must be reached and one to aim at; with `most`, not to be exceeded."""

    must: float
    aim: float
    most: bool = False

    def judge(self, figure: float) -> str:
        """Return a text of the goal, marked if it is missed."""
        reached = figure <= self.must if self.most else figure >= self.must
        sign = "<=" if self.most else ">="
        return f"goal {sign} {self.must:g} (aim {self.aim:g}){'' if reached else ': MISSED'}"


@dataclass
class Findings:
    """Collects rows and faults."""

    say: Say
    goals: list[Row] = field(default_factory=list)
    details: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def compare(
        self, setting: str, metric: str, ours: float, peers: dict[str, float], goal: Goal | None = None, note: str = ""
    ) -> None:
        """Add a row against the fastest peer, and details against the others."""
        ranked = sorted(peers, key=peers.__getitem__)
        for rank, peer in enumerate(ranked):
            ratio = peers[peer] / ours
            words = [f"best peer: {peer}"] if rank == 0 else [peer]
            if rank == 0 and goal:
                words.append(goal.judge(ratio))
            if rank == 0 and note:
                words.append(note)
            row = Row("solver", setting, metric, ours, peers[peer], ratio, unit="s", note="; ".join(words))
            (self.goals if rank == 0 and goal else self.details).append(row)
            if rank == 0:
                self.say(f"{setting}: {metric}: {ratio:.3g} of {row.note}")
        if not peers:
            row = Row("solver", setting, metric, ours, unit="s", note="no peer is installed")
            (self.goals if goal else self.details).append(row)

    def times(
        self,
        setting: str,
        metric: str,
        ours: Times,
        peers: Mapping[str, Times] | None = None,
        goal: Goal | None = None,
        note: str = "",
    ) -> None:
        """Add the rows of the median and of the mean: against peers, see `compare`, or without them."""
        for name, average, aim in ((metric, median, goal), (f"{metric}, mean", mean, None)):
            if peers is None:
                self.figure(setting, name, average(ours), "s", aim, note)
            else:
                self.compare(
                    setting, name, average(ours), {peer: average(seconds) for peer, seconds in peers.items()}, aim, note
                )

    def figure(
        self,
        setting: str,
        metric: str,
        value: float,
        unit: str = "",
        goal: Goal | None = None,
        note: str = "",
        better: Literal["", "less", "more"] = "",
    ) -> None:
        """Add a row without a peer."""
        words = [goal.judge(value)] if goal else []
        if goal:
            better = "less" if goal.most else "more"
        row = Row(
            "solver", setting, metric, value, unit=unit, note="; ".join(words + ([note] if note else [])), better=better
        )
        (self.goals if goal else self.details).append(row)
        if better:
            self.say(f"{setting}: {metric}: {value:.3g}: {row.note}")

    def summary(
        self, setting: str, ratios: dict[str, float], worst: Goal | None = None, mean: Goal | None = None
    ) -> None:
        """Add the worst of the ratios, with its name, and their geometric mean; nothing if there are none."""
        if not ratios:
            return
        least = min(ratios, key=ratios.__getitem__)
        average = float(np.exp(np.mean(np.log(list(ratios.values())))))
        for metric, value, goal, note in (
            ("worst ratio", ratios[least], worst, least),
            ("geometric mean of the ratios", average, mean, ""),
        ):
            self.figure(setting, metric, value, "", goal, note, better="more")

    def check(self, setting: str, cost: int, peers: dict[str, Measured]) -> None:
        """Note peers that found another optimum."""
        for peer, measured in peers.items():
            if measured.cost != cost:
                self.wrong.append(f"{setting}: {peer} finds {measured.cost}, flowsched {cost}")

    def outcome(self) -> Outcome:
        """Return the outcome, rows with goals first."""
        return Outcome(self.goals + self.details, self.wrong, self.notes, self.failed)


def median(values: Times) -> float:
    """Return the median as a Python float."""
    return float(np.median(values))


def mean(values: Times) -> float:
    """Return the mean as a Python float."""
    return float(np.mean(values))
