"""Statements of the four publications that can hold or fail, and their verdicts on measured rows.

A statement is a sign, an order or a factor that a publication states.  A figure without such words is no statement: the rows
show it next to ours without a mark.  A verdict is True (holds), False (fails) or None (the run at hand does not have the rows,
a quick run for example).  What cannot hold or fail on this machine has no judge, and a reason.

"About k" holds between k / 1.5 and 1.5 k, "up to k" from k / 1.5 on, "alike" within a tenth.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.rows import shown

__all__ = ["PUBLICATIONS", "STATEMENTS", "Rows", "Statement", "Verdict", "judged"]

PUBLICATIONS = {
    "sirius": "Sirius (Journal of Software, 2017)",
    "fgm": "FGM (Zhou et al., 2020)",
    "hrm": "HRM (Tang et al., 2022)",
    "sequence": "The deployment sequence (Wang, Hong and Feng)",
}
"""Publications by the measurement that repeats them."""

Verdict = tuple[bool | None, str]
"""True, False, or None where the rows are absent; and the figures that it is about."""

Judge = Callable[["Rows"], Verdict | None]

_ABOUT = 1.5
_ALIKE = 0.1


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a publication.

    Parameters
    ----------
    experiment : str
        Of `bench.NAMES`: the measurement with the rows.
    where : str
        Figure, table or section.
    text : str
        In the publication's words, translated and shortened.
    judge : callable, optional
        Returns the verdict on rows, or None without them; absent if the statement cannot be tested here.
    why : str
        Reason why it cannot be tested here, or a restriction of the test.
    picture : str
        Name of the plot that shows it, without suffix.
    test : str
        A test of the suite that asserts it, in the place of rows: a worked example.
    """

    experiment: str
    where: str
    text: str
    judge: Judge | None = None
    why: str = ""
    picture: str = ""
    test: str = ""

    def verdict(self, rows: Sequence[Mapping[str, Any]]) -> Verdict:
        """Return the verdict on rows as `python -m bench --json` stores them."""
        if self.test:
            return True, "asserted by a test"
        if self.judge is None:
            return None, "cannot be tested here"
        return self.judge(Rows(rows)) or (None, "not in this run")

    @property
    def command(self) -> str:
        """The command that measures it, or "" if none does."""
        if self.test:
            return f"pytest {self.test}"
        return f"python -m bench {self.experiment}" if self.judge else ""


class Rows:
    """Stored rows, by expressions of setting, metric and note."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows

    def find(self, setting: str, metric: str, note: str = "") -> list[Mapping[str, Any]]:
        """Return the rows that match, in their order."""
        return [
            row
            for row in self._rows
            if re.search(setting, row["setting"]) and re.search(metric, row["metric"]) and re.search(note, row["note"])
        ]

    def values(self, setting: str, metric: str, note: str = "", of: str = "value") -> list[float]:
        """Return the numbers of the rows that match: their values, baselines or ratios."""
        return [float(row[of]) for row in self.find(setting, metric, note) if isinstance(row[of], int | float)]


def judged(experiment: str, rows: Sequence[Mapping[str, Any]]) -> list[tuple[Statement, Verdict]]:
    """Return the statements of a measurement with their verdicts: failures first, then those that hold, then the others."""
    found = [(one, one.verdict(rows)) for one in STATEMENTS if one.experiment == experiment]
    return sorted(found, key=lambda pair: {False: 0, True: 1, None: 2}[pair[1][0]])


def _span(values: Sequence[float], unit: str = "") -> str:
    low, high = shown(min(values), unit), shown(max(values), unit)
    return low if low == high else f"{low} to {high}"


def _all(
    setting: str, metric: str, good: Callable[[float], bool], note: str = "", of: str = "ratio", unit: str = ""
) -> Judge:
    """Return a judge: every figure of these rows is good."""

    def judge(rows: Rows) -> Verdict | None:
        values = rows.values(setting, metric, note, of)
        return (all(map(good, values)), _span(values, unit)) if values else None

    return judge


def _most(setting: str, metric: str, factor: float, note: str = "") -> Judge:
    """Return a judge: the largest ratio reaches about this factor."""

    def judge(rows: Rows) -> Verdict | None:
        values = rows.values(setting, metric, note, "ratio")
        return (max(values) >= factor / _ABOUT, f"up to {shown(max(values))}") if values else None

    return judge


def _above(value: float) -> bool:
    return value > 1


def _about(factor: float) -> Callable[[float], bool]:
    return lambda value: factor / _ABOUT <= value <= factor * _ABOUT


def _alike(value: float) -> bool:
    return abs(value - 1) <= _ALIKE


def _within(low: float, high: float) -> Callable[[float], bool]:
    return lambda value: low <= value <= high


# ---- Sirius

_RANDOM, _FIRMAMENT, _HARD = "compared: random queue", "compared: Firmament", "compared: GPU machines only"


def _sirius_7(load: str) -> list[Statement]:
    setting = rf"^7: {load} load of \d+%$"
    return [
        Statement("sirius", "Figure 7", f"{load} load: Sirius's SNP is above Random's",
                  _all(setting, "SNP", lambda ratio: ratio > 1 + _ALIKE, _RANDOM), picture="sirius-snp"),
        Statement("sirius", "Figure 7", f"{load} load: about twice Random's",
                  _all(setting, "SNP", _about(2), _RANDOM), picture="sirius-snp"),
        Statement("sirius", "Figure 7", f"{load} load: near Firmament's",
                  _all(setting, "SNP", _alike, _FIRMAMENT), picture="sirius-snp"),
    ]  # fmt: skip


def _growth_order(figure: int) -> Judge:
    """CS grows fastest with the number of tasks, then the queue, ICS least."""

    def judge(rows: Rows) -> Verdict | None:
        found = rows.find(rf"^{figure}: ", "^growth of ICS$")
        if not found or not isinstance(found[0]["value"], float):
            return None
        ics, queue = found[0]["value"], found[0]["baseline"]
        cs = float(found[0]["note"].rpartition("CS ")[2])
        return ics < queue < cs, f"ICS {shown(ics)}, queue {shown(queue)}, CS {shown(cs)}"

    return judge


def _linear(figure: int) -> Judge:
    """From half of the tasks to all of them, no time grows by much more or less than two."""

    def judge(rows: Rows) -> Verdict | None:
        found = rows.find(rf"^{figure}: ", "^growth of ICS$")
        if not found or not isinstance(found[0]["value"], float):
            return None
        values = [found[0]["value"], found[0]["baseline"], float(found[0]["note"].rpartition("CS ")[2])]
        return all(map(_about(2), values)), _span(values)

    return judge


def _twenty(rows: Rows) -> Verdict | None:
    values = rows.values(r"^8: 20 GPU tasks, [\d.]+ times slower", "mean run time", _HARD, "ratio")
    return (all(value > 1 + 1e-9 for value in values), f"{_span(values)} times as fast") if values else None


def _ten(rows: Rows) -> Verdict | None:
    found = rows.find(r"^9: 10 GPU tasks$", "on a GPU", _RANDOM)
    return (found[0]["value"] == 100 > found[0]["baseline"], f"{shown(found[0]['value'])} % on GPUs, Random {shown(found[0]['baseline'])} %") if found else None  # fmt: skip


def _wait_grows(rows: Rows) -> Verdict | None:
    found = rows.find(r"^9: (30|40) GPU tasks$", "mean wait", _HARD)
    return (all(row["value"] < row["baseline"] for row in found), ", ".join(f"{shown(row['value'], 's')} against {shown(row['baseline'], 's')}" for row in found)) if found else None  # fmt: skip


def _bounds(rows: Rows) -> Verdict | None:
    found = rows.find(r"^7: shares", "largest distance from the max-min share")
    return (found[0]["value"] < found[0]["baseline"], f"{shown(found[0]['value'], '%')} with bounds, {shown(found[0]['baseline'], '%')} without") if found else None  # fmt: skip


def _memory_grows(rows: Rows) -> Verdict | None:
    values = rows.values("^15: ", "peak memory", "random queue of slots")
    return (values == sorted(values) and len(values) > 1, _span(values, "MiB")) if values else None


_SIRIUS = [
    Statement("sirius", "Figure 3", "3 and 4 tasks on four machines: each job runs two", test="tests/policy/test_fairness.py::test_the_example_of_sirius"),
    Statement("sirius", "Figure 4", "a utility of 1 on the GPU machine, 0 on the other: the task runs on the GPU machine", test="tests/policy/test_utility.py::test_the_example_of_the_source"),
    Statement("sirius", "Figure 5", "priorities 1, 2, 5 on one slot: the first runs", test="tests/scheduler/test_scheduler.py::test_priorities_1_2_5_on_one_slot"),
    *(one for load in ("batch", "service", "mixed") for one in _sirius_7(load)),
    Statement("sirius", "Figure 7", "the bounds on capacity make it fair", _bounds,
              "judged by shares: SNP is the same without bounds"),
    Statement("sirius", "Figure 8", "10 tasks: alsched's rule places by GPU, Random does not", _ten, picture="sirius-gpu-time"),
    Statement("sirius", "Figure 8", "10 tasks: half of Random's run time",
              why="by how much a GPU shortens a run is an input here: there is none"),
    Statement("sirius", "Figure 8", "20 tasks: Sirius's run time is below that of Swarm (a hard constraint here)", _twenty,
              picture="sirius-gpu-time"),
    Statement("sirius", "Figure 9", "more tasks: Sirius's wait is below Swarm's", _wait_grows, picture="sirius-gpu-wait"),
    Statement("sirius", "Figure 10", "equal priority: TPC-H takes more than 5 s",
              _all("^10: ", "^TPC-H", lambda seconds: seconds > 5, of="value", unit="s"),
              "lengths of tasks are inputs", "sirius-priority"),
    Statement("sirius", "Figure 10", "equal priority: near Kubernetes",
              _all("^10: ", ": mean run time", _alike, "that preempts"), "a queue by priority and age here", picture="sirius-priority"),
    Statement("sirius", "Figure 11", "TPC-H first: below 1 s",
              _all("^11: .*first", "^TPC-H", lambda seconds: seconds < 1, "that preempts", "value", "s"), picture="sirius-priority"),
    Statement("sirius", "Figure 11", "TPC-H first: about 5 times less than with equal priority",
              _all("^11: ", "gain by priority", lambda ratio: ratio >= 5 / _ABOUT),
              "judged as at least", "sirius-priority"),
    Statement("sirius", "Figure 11", "TPC-H first: near Kubernetes, which preempts, too",
              _all("^11: .*first", "^TPC-H", _alike, "that preempts"), picture="sirius-priority"),
    *(one for figure, machines in ((12, "5,000"), (13, "10,000")) for one in (
        Statement("sirius", f"Figure {figure}", f"{machines} machines: all three grow about linearly with the tasks", _linear(figure), picture=f"sirius-latency-{figure}"),
        Statement("sirius", f"Figure {figure}", f"{machines} machines: CS takes far longer than ICS and the queue (judged: twice as long as ICS)",
                  _all(f"^{figure}: ", "^ICS: round$", lambda ratio: ratio > 2, "CS\\)"), picture=f"sirius-latency-{figure}"),
        Statement("sirius", f"Figure {figure}", f"{machines} machines: CS grows fastest, then the queue, ICS least", _growth_order(figure), picture=f"sirius-latency-{figure}"),
        Statement("sirius", f"Figure {figure}", f"{machines} machines: ICS takes up to 10 times less than CS",
                  _most(f"^{figure}: ", "^ICS: round$", 10, "CS\\)"), "judged as at least", f"sirius-latency-{figure}"),
    )),
    Statement("sirius", "Figure 13", "10,000 machines: ICS takes less than the queue, one that looks at all machines",
              _all("^13: ", "^ICS: round$", _above, "looks at all machines"), picture="sirius-latency-13"),
    Statement("sirius", "Figure 13", "10,000 machines: ICS takes less than a queue that draws machines",
              _all("^13: ", "^ICS: round$", _above, "draws until"), picture="sirius-latency-13"),
    Statement("sirius", "Section 3.2", "CS takes more than 90 s on 100,000 machines",
              _all("^3.2: 100,000", "cost scaling", lambda seconds: seconds > 90, of="value", unit="s"),
              "another machine and program"),
    Statement("sirius", "Section 3.2", "on the Google trace, the network changes little between rounds",
              _all("^3.2: google2011", "tasks that change in a second", lambda part: part < 10, of="value", unit="%"),
              "needs the trace; judged as below 10 % of the running tasks a second"),
    Statement("sirius", "Table 3", "ICS as printed, each re-solve from epsilon = C and potentials 0, takes up to 10 times less than CS",
              _most("^table 3", "as printed", 10),
              "ours is another algorithm"),
    Statement("sirius", "Figure 14", "CPU about 1.5 times Random's",
              _all("^14: ", "CPU time of a round$", _about(1 / 1.5), "all resources"),
              "of a random queue over all resources", "sirius-cpu"),
    Statement("sirius", "Figure 14", "CPU above Random's",
              _all("^14: ", "CPU time of a round$", lambda ratio: ratio < 1, "all resources"),
              "of a random queue over all resources", "sirius-cpu"),
    Statement("sirius", "Figure 15", "memory about twice Random's",
              _all("^15: ", "peak memory", _about(1 / 2), "all resources"), picture="sirius-memory"),
    Statement("sirius", "Figure 15", "memory above Random's",
              _all("^15: ", "peak memory", lambda ratio: ratio < 1, "all resources"), picture="sirius-memory"),
    Statement("sirius", "Figure 15", "memory grows with the cluster", _memory_grows, picture="sirius-memory"),
]  # fmt: skip


# ---- FGM

_BASELINES = ("FIFO", "Capacity", "Fair", "DRF")
_OFFLINE, _ONLINE, _CLOUD = (
    rf"^{name}, 400 GB$" for name in ("offline, dedicated", "online, dedicated", "online, cloud")
)
_FORM = "FGM greedy"
"""The loop of Algorithm 1, as in the publication; the flow form is within 3 points of it."""


def _by_name(rows: Rows, setting: str, metric: str) -> dict[str, float]:
    found = {name: rows.values(setting, rf"^{name}: {metric}$") for name in (*_BASELINES, _FORM)}
    return {name: values[0] for name, values in found.items() if values}


def _gains(setting: str, metric: str, less: bool = True) -> Callable[[Rows], dict[str, float]]:
    """Return a function: gains of FGM over the four baselines in percent."""

    def gains(rows: Rows) -> dict[str, float]:
        of = _by_name(rows, setting, metric)
        return {name: 100 * (1 - of[_FORM] / of[name]) for name in _BASELINES if name in of and _FORM in of}

    return gains


def _gain(setting: str, metric: str, good: Callable[[dict[str, float]], bool]) -> Judge:
    def judge(rows: Rows) -> Verdict | None:
        found = _gains(setting, metric)(rows)
        text = ", ".join(f"{name} {value:.0f} %" for name, value in found.items())
        return (good(found), text) if len(found) == len(_BASELINES) else None

    return judge


def _order(setting: str, metric: str, good: Callable[[dict[str, float]], bool], unit: str = "") -> Judge:
    def judge(rows: Rows) -> Verdict | None:
        of = _by_name(rows, setting, metric)
        text = ", ".join(f"{name} {shown(value, unit)}" for name, value in of.items())
        return (good(of), text) if len(of) == len(_BASELINES) + 1 else None

    return judge


def _spanned(setting: str, metric: str, good: Callable[[float, float], bool]) -> Judge:
    """Return a judge of a row whose value is words such as ``10.7 to 23.4``."""

    def judge(rows: Rows) -> Verdict | None:
        found = [row for row in rows.find(setting, metric) if isinstance(row["value"], str)]
        if not found:
            return None
        low, high = (float(part) for part in found[0]["value"].split(" to "))
        return good(low, high), found[0]["value"]

    return judge


def _grows_with_volume(environment: str) -> Judge:
    """The mean gain in makespan of the upper half of the volumes is above that of the lower half."""

    def judge(rows: Rows) -> Verdict | None:
        gains = []
        for row in rows.find(rf"^online, {environment}, \d+ GB$", "gain in makespan over the baselines"):
            if row["metric"].startswith("FGM flow"):
                low, high = (float(part) for part in row["value"].split(" to "))
                gains.append((int(row["setting"].split(", ")[-1].split()[0]), (low + high) / 2))
        gains.sort()
        if len(gains) < 4:
            return None
        half = len(gains) // 2
        first, last = (sum(gain for _, gain in part) / len(part) for part in (gains[:half], gains[half:]))
        return last > first, f"{first:.0f} % up to {gains[half - 1][0]} GB, {last:.0f} % above"

    return judge


def _cloud_longer(rows: Rows) -> Verdict | None:
    here, there = (_by_name(rows, setting, "makespan") for setting in (_ONLINE, _CLOUD))
    if len(here) < 5 or len(there) < 5:
        return None
    ratios = [there[name] / here[name] for name in here]
    return all(ratio > 1 for ratio in ratios), f"{_span(ratios)} times as long"


def _cloud_gain_larger(rows: Rows) -> Verdict | None:
    here, there = (_gains(setting, "makespan")(rows) for setting in (_ONLINE, _CLOUD))
    if len(here) < 4 or len(there) < 4:
        return None
    return all(there[name] > here[name] for name in here), ", ".join(f"{name} {here[name]:.0f} -> {there[name]:.0f} %" for name in here)  # fmt: skip


def _close(published: Mapping[str, float]) -> Callable[[dict[str, float]], bool]:
    return lambda gains: all(_about(published[name])(gains[name]) if gains[name] > 0 else False for name in published)


def _fgm_bars(where: str, text: str, judge: Judge, why: str = "", picture: str = "") -> Statement:
    return Statement("fgm", where, text, judge, why, picture)


_FGM = [
    Statement("fgm", "Figures 1 to 3", "by requests the end is at 7, by stages at 4.05",
              test="tests/fgm/test_adapter.py::test_the_figures_by_the_public_api"),
    _fgm_bars("Figure 7", "DRF is the fairest, FIFO the least fair",
              _order(_OFFLINE, "Jain fairness", lambda of: of["FIFO"] == min(of.values()) and of["DRF"] >= max(of.values()) - 1e-3)),
    _fgm_bars("Figure 7", "FGM is fairer than Fair, Capacity and FIFO",
              _order(_OFFLINE, "Jain fairness", lambda of: of[_FORM] > max(of[name] for name in ("Fair", "Capacity", "FIFO")))),
    _fgm_bars("Figure 7", "FGM is 0.31 % less fair than DRF (judged: by at most 0.5 %)",
              _all(_OFFLINE, f"{_FORM}: fairness below DRF", lambda value: value <= 0.5, of="value", unit="%")),
    _fgm_bars("Figure 8", "response: FIFO longest, then Capacity",
              _order(_OFFLINE, "mean response", lambda of: of["FIFO"] > of["Capacity"] > max(of["Fair"], of["DRF"], of[_FORM]), "s"),
              "response is waiting plus matching: the workload decides the order"),
    _fgm_bars("Figure 8", "response: FGM takes longer than Fair and DRF (by 75 ms)",
              _order(_OFFLINE, "mean response", lambda of: of[_FORM] > max(of["Fair"], of["DRF"]), "s"), "by any amount"),
    _fgm_bars("Figure 9", "mean job: ahead of all four", _gain(_OFFLINE, "mean job completion", lambda of: min(of.values()) > 0), picture="fgm-completion-offline-dedicated-400GB"),
    _fgm_bars("Figure 9", "mean job: by about 31, 34, 52 and 20 %",
              _gain(_OFFLINE, "mean job completion", _close({"FIFO": 30.92, "Capacity": 34.49, "Fair": 52.09, "DRF": 19.97}))),
    _fgm_bars("Figure 9", "mean job: DRF is the best baseline, Fair the worst",
              _order(_OFFLINE, "mean job completion", lambda of: of["DRF"] < min(of["FIFO"], of["Capacity"]) and of["Fair"] > max(of["FIFO"], of["Capacity"]), "s")),
    _fgm_bars("Figure 10", "jobs below 100 s: no gain over Fair and DRF (judged: shorter half, within 10 %)",
              _all(_OFFLINE, f"{_FORM}: gain in completion of the shorter half over (Fair|DRF)", lambda gain: abs(gain) <= 10, of="value", unit="%"),
              picture="fgm-completion-offline-dedicated-400GB"),
    _fgm_bars("Figure 10", "longer jobs gain (judged: longer half, over all four)",
              _all(_OFFLINE, f"{_FORM}: gain in completion of the longer half", lambda gain: gain > 0, of="value", unit="%"),
              picture="fgm-completion-offline-dedicated-400GB"),
    _fgm_bars("Figure 11", "makespan: ahead of all four", _gain(_OFFLINE, "makespan", lambda of: min(of.values()) > 0)),
    _fgm_bars("Figure 11", "makespan: by about 19 to 28 %", _gain(_OFFLINE, "makespan", lambda of: all(19.47 / _ABOUT <= value <= 27.94 * _ABOUT for value in of.values()))),
    _fgm_bars("Figure 12", "tasks of small jobs lose 1.8 to 5.5 s (judged: none is shorter)",
              _spanned(_ONLINE, f"{_FORM}: seconds saved in the run of a task of a small job", lambda low, high: high <= 0)),
    _fgm_bars("Figure 12", "tasks of large jobs gain 6.8 to 39 s (judged: none is longer)",
              _spanned(_ONLINE, f"{_FORM}: seconds saved in the run of a task of a large job", lambda low, high: low >= 0)),
    _fgm_bars("Figure 12", "all tasks lose 1.2 to 3.5 s",
              _spanned(_ONLINE, f"{_FORM}: seconds saved in the run of a task$", lambda low, high: high <= 0)),
    _fgm_bars("Figure 13", "the gain in makespan grows with the volume", _grows_with_volume("dedicated"), picture="fgm-makespan-online-dedicated"),
    _fgm_bars("Figure 13", "at 400 GB it is up to about 31 %",
              _spanned(_ONLINE, f"{_FORM}: gain in makespan over the baselines", lambda low, high: _about(31)(high)), picture="fgm-makespan-online-dedicated"),
    _fgm_bars("Figure 14", "cloud: FGM is 0.09 % less fair than DRF (judged: by at most 0.5 %)",
              _all(_CLOUD, f"{_FORM}: fairness below DRF", lambda value: value <= 0.5, of="value", unit="%")),
    _fgm_bars("Figure 15", "cloud: tasks of small jobs lose 2.3 s to Fair and DRF, and gain 5 s over the others",
              _spanned(_CLOUD, f"{_FORM}: seconds saved in the run of a task of a small job", lambda low, high: low < 0 < high)),
    _fgm_bars("Figure 15", "cloud: tasks of large jobs gain 35 to 135 s (judged: they gain)",
              _spanned(_CLOUD, f"{_FORM}: seconds saved in the run of a task of a large job", lambda low, high: low > 0)),
    _fgm_bars("Figure 15", "cloud: all tasks gain 4.2 to 16.9 s (judged: they gain)",
              _spanned(_CLOUD, f"{_FORM}: seconds saved in the run of a task$", lambda low, high: low > 0)),
    _fgm_bars("Figure 16", "cloud: mean job ahead of all four by about 36 to 62 %",
              _gain(_CLOUD, "mean job completion", lambda of: all(35.74 / _ABOUT <= value <= 61.87 * _ABOUT for value in of.values()))),
    _fgm_bars("Figure 17", "cloud: the longest job ends first under FGM", _order(_CLOUD, "makespan", lambda of: of[_FORM] == min(of.values()), "s"),
              "by the end of the last job", "fgm-completion-online-cloud-400GB"),
    _fgm_bars("Figure 18", "cloud: makespans are longer than without other load", _cloud_longer, picture="fgm-makespan-online-cloud"),
    _fgm_bars("Figure 18", "cloud: the gain grows with the volume", _grows_with_volume("cloud"), picture="fgm-makespan-online-cloud"),
    _fgm_bars("Figure 18", "cloud: makespan ahead of all four", _gain(_CLOUD, "makespan", lambda of: min(of.values()) > 0), picture="fgm-makespan-online-cloud"),
    _fgm_bars("Figure 18", "cloud: by about 57 to 62 %",
              _gain(_CLOUD, "makespan", lambda of: all(57.48 / _ABOUT <= value <= 62.4 * _ABOUT for value in of.values())), picture="fgm-makespan-online-cloud"),
    _fgm_bars("Figures 13, 18", "the gain in makespan is larger in the cloud", _cloud_gain_larger),
]  # fmt: skip


# ---- HRM


def _hrm_60(rows: Rows) -> Verdict | None:
    values = rows.values(r"^60 jobs x 40 on 1050 machines", "completion, mean", "no queues", "ratio")
    return (all(map(_alike, values)), _span(values)) if values else None


def _hrm_delay(rows: Rows, jobs: int, metric: str) -> list[Mapping[str, Any]]:
    return rows.find(rf"^{jobs} jobs x 40 on 1050 machines, random", metric, "no queues")


def _hrm_60_delay(rows: Rows) -> Verdict | None:
    found = _hrm_delay(rows, 60, "delay until running, mean")
    return (_alike(found[0]["ratio"]), _two(found[0])) if found else None


def _two(row: Mapping[str, Any]) -> str:
    return f"{shown(row['value'], row['unit'])} against {shown(row['baseline'], row['unit'])}"


def _hrm_120(rows: Rows) -> Verdict | None:
    found = _hrm_delay(rows, 120, "delay until running, mean")
    return (_about(0.04)(found[0]["baseline"] - found[0]["value"]), _two(found[0])) if found else None


def _hrm_180(factor: float) -> Judge:
    def judge(rows: Rows) -> Verdict | None:
        found = _hrm_delay(rows, 180, "delay until running, worst")
        return (found[0]["ratio"] > factor, _two(found[0])) if found else None

    return judge


def _headline(rows: Rows) -> Verdict | None:
    parts = [1 / found[0]["ratio"] for jobs in (60, 120, 180) if (found := _hrm_delay(rows, jobs, "delay until running, mean"))]  # fmt: skip
    return (_about(0.75)(sum(parts) / len(parts)), ", ".join(f"{part:.2f}" for part in parts) + f"; mean {sum(parts) / len(parts):.2f}") if len(parts) > 1 else None  # fmt: skip


def _busy(rows: Rows) -> Verdict | None:
    one, six = (rows.values(r" jobs/s, 1050", rf"^busyness, {count} schedulers") for count in (1, 6))
    if len(one) < 2 or len(six) < 2:
        return None
    return one[-1] / one[0] > six[-1] / six[0], f"times {one[-1] / one[0]:.1f} and {six[-1] / six[0]:.1f}"


def _conflicts_grow(rows: Rows) -> Verdict | None:
    values = rows.values(" jobs/s, 1050", "conflict ratio, six that take the first")
    return (values == sorted(values), f"{values[0]:.0f} to {values[-1]:.0f} %") if len(values) > 1 else None


def _conflicts_45(rows: Rows) -> Verdict | None:
    values = rows.values(" jobs/s, 1050", "conflict ratio, six that take the first")
    return (_about(45)(values[-1]), f"{values[-1]:.0f} %") if len(values) > 1 else None


def _lengths(rows: Rows, length: int) -> list[float]:
    return rows.values(rf"^containers of .*queue length {length}$", "completion against length 1")


def _length_2(rows: Rows) -> Verdict | None:
    gains = [-value for value in _lengths(rows, 2)]
    return (min(gains) > 0 and _about(15)(max(gains)), f"{_span(gains)} %") if gains else None


def _length_3(rows: Rows) -> Verdict | None:
    two, three = _lengths(rows, 2), _lengths(rows, 3)
    worse = sum(b > a for a, b in zip(two, three, strict=True))
    return (worse >= 5, f"worse in {worse} of {len(two)}") if two and three else None


def _table_1(metric: str) -> Callable[[Rows], list[float]]:
    return lambda rows: rows.values(r"^table 1: \d detections", metric)


def _table_1_time(factor: float) -> Judge:
    def judge(rows: Rows) -> Verdict | None:
        values = _table_1("time of 720 images")(rows)
        return (values[0] / values[-1] >= factor, ", ".join(shown(value, "s") for value in values)) if len(values) > 2 else None  # fmt: skip

    return judge


def _table_1_use(factor: float) -> Judge:
    def judge(rows: Rows) -> Verdict | None:
        values = _table_1("use of the device")(rows)
        return (values[-1] / values[0] >= factor, ", ".join(f"{value:.0f} %" for value in values)) if len(values) > 2 else None  # fmt: skip

    return judge


_DISK = "^12: .*hard disk"
_CORE = "a core stands for the GPU"

_HRM = [
    Statement("hrm", "Abstract", "scheduling delay is about 75 % of the central scheduler's (mean over 60, 120 and 180 jobs)", _headline),
    Statement("hrm", "Figure 6", "60 jobs: completion alike under one and six schedulers", _hrm_60, picture="hrm_bursts"),
    Statement("hrm", "Figure 6", "60 jobs: delay alike, 50 ms", _hrm_60_delay, picture="hrm_bursts"),
    Statement("hrm", "Figure 6", "120 jobs: six are ahead by about 40 ms", _hrm_120, picture="hrm_bursts"),
    Statement("hrm", "Figure 6", "180 jobs: worst delay of six is below that of one", _hrm_180(1), picture="hrm_bursts"),
    Statement("hrm", "Figure 6", "180 jobs: by about 5.6 times (2.5 and 14 s)", _hrm_180(5.6 / _ABOUT), picture="hrm_bursts"),
    Statement("hrm", "Figure 6", "60 stream jobs wait longer than batch jobs under one scheduler",
              _all("^60 stream jobs", "delay until all run", lambda ratio: ratio < 1)),
    Statement("hrm", "Figure 7(a)", "ten times the rate: delay of one is above 2 times that at the lowest rate",
              _all(" 4.5 jobs/s, 1050", "delay against the lowest rate, 1 ", lambda value: value > 2, of="value"),
              "5 ms of decision a container are an input", "hrm_rates"),
    Statement("hrm", "Figure 7(b)", "busyness of one grows faster than that of six", _busy, picture="hrm_rates"),
    Statement("hrm", "Figure 8", "conflicts grow with the rate", _conflicts_grow, picture="hrm_conflicts"),
    Statement("hrm", "Figure 8", "at ten times the rate about 45 %", _conflicts_45, picture="hrm_conflicts"),
    Statement("hrm", "Figure 9(a)", "HRM is level with Mesos", _all("^9: .*load of 30%", "completion, mean", _alike, "Mesos"),
              "Mesos and YARN are simulated; the publication states no load: 30 %", "hrm_frameworks"),
    Statement("hrm", "Figure 9(a)", "the same at 80 % load", _all("^9: .*load of 80%", "completion, mean", _alike, "Mesos"), picture="hrm_frameworks"),
    Statement("hrm", "Figure 9(a)", "HRM is ahead of YARN's Capacity and Fair", _all("^9: ", "completion, mean", _above, "YARN"), picture="hrm_frameworks"),
    Statement("hrm", "Figure 9(b)", "a stream alone takes the same time under all (judged: as started by hand)",
              _all(r"^9\(b\)", "time under the agent", lambda ratio: abs(1 / ratio - 1) <= 2 * _ALIKE), "within a fifth"),
    Statement("hrm", "Figure 10", "1 to 3 batch jobs: a micro-batch takes the same time with and without stacking",
              _all("^[13] batch jobs next to it", "without stacking against with", _alike, of="value"), picture="hrm_streams"),
    Statement("hrm", "Figure 10", "5 to 9 batch jobs: 2 to 3 times as long without stacking",
              _all("^[579] batch jobs next to it", "without stacking against with", _within(2 / _ABOUT, 3 * _ABOUT), of="value"), picture="hrm_streams"),
    Statement("hrm", "Figure 10", "5 batch processes: a process with stacking takes the same time as alone (measured)",
              _all("^a process that computes on one core, 5 ", "time, with stacking", _alike)),
    Statement("hrm", "Figure 11", "queue length 2 is faster than 1, by up to about 15 %", _length_2, picture="hrm_lengths"),
    Statement("hrm", "Figure 11", "length 3 is worse than 2 in 5 of 8 jobs", _length_3, picture="hrm_lengths"),
    Statement("hrm", "Table 1", "three detections at once on one GPU halve the time", _table_1_time(2 / 1.1), _CORE),
    Statement("hrm", "Table 1", "three at once are faster than one", _table_1_time(1 + 1e-9), _CORE),
    Statement("hrm", "Table 1", "use of the GPU doubles (24 to 73 %)", _table_1_use(2), _CORE),
    Statement("hrm", "Table 1", "use of the GPU grows", _table_1_use(1 + 1e-9), _CORE),
    Statement("hrm", "Table 1", "GPU memory 2,865, 5,720, 8,575 MB", why="there is no GPU here"),
    Statement("hrm", "Figure 12", "detection next to word count uses the GPU as alone", _all(_DISK, "use of the device", _alike), _CORE),
    Statement("hrm", "Figure 12", "together they use the CPU more than word count alone", _all(_DISK, "use of the CPU$", _above)),
    Statement("hrm", "Figure 12", "CPU: 78 % of word count alone become about 93 %", _all(_DISK, "use of the CPU$", _within(1 + 0.19 / _ABOUT, 1 + 0.19 * _ABOUT))),
    Statement("hrm", "Abstract", "CPU use rises by 25 % and more if batch and streams share the cluster",
              why="the abstract names no experiment; Figure 12's 78 to 93 % are 19 %"),
]  # fmt: skip


# ---- the deployment sequence


def _same_words(setting: str, metric: str) -> Judge:
    def judge(rows: Rows) -> Verdict | None:
        found = rows.find(setting, metric)
        same = sum(row["value"] == row["source_value"] for row in found)
        return (same == len(found), f"{same} of {len(found)}") if found else None

    return judge


def _deviation(setting: str, limit: float, of: str = "value", above: bool = False) -> Judge:
    return _all(
        setting,
        "largest deviation from the quota, at the end$",
        lambda value: (value > limit) == above,
        of=of,
        unit="%",
    )


def _finer(rows: Rows) -> Verdict | None:
    """Rounding deviates less with finer grains (Figure 4) than with whole CPUs (Figure 2)."""
    coarse, fine = (rows.values(setting, "largest deviation from the quota, at the end$", of="baseline") for setting in ("^10:8:6:5", "^20:14:8:5, tasks of 5-40 MB, 1 s per MB$"))  # fmt: skip
    return (fine[0] < coarse[0], f"{coarse[0]:.0f} %, then {fine[0]:.0f} %") if coarse and fine else None


_SEQUENCE = [
    Statement("sequence", "Section 2.1", "quotas 5:3 give ABAABABA", _same_words("^quotas 5:3$", "sequence")),
    Statement("sequence", "Section 2.1", "both rules, largest deficit and least ratio, give the same sequence",
              _all("^both rules", "equal sequences", lambda part: part == 100, of="value", unit="%"),
              "one is the other one reversed, in all cases"),
    Statement("sequence", "Table 1", "eight heartbeats of 5 units", _same_words("^table 1", "A/B in all")),
    Statement("sequence", "Table 2", "five heartbeats of tasks of their own size", _same_words("^table 2", "A/B in all"),
              "the publication's own sums for B slip by 2 from the third row on"),
    Statement("sequence", "Figure 1", "one CPU a task: users get their quotas (judged: within 5 %)", _deviation("^10:8:6:5", 5), picture="sequence-1"),
    Statement("sequence", "Figure 2", "one CPU a task: proportional rounding does not (judged: off by more than 5 %)",
              _deviation("^10:8:6:5", 5, "baseline", above=True), picture="sequence-1"),
    Statement("sequence", "Figure 3", "tasks of 5 to 40 MB: users get their quotas (judged: within 5 %)",
              _deviation("^20:14:8:5, tasks of 5-40 MB, 1 s per MB$", 5), "with ours for spares: the one that is owed most", "sequence-2"),
    Statement("sequence", "Figure 3", "the same with its own rule for spares, the largest that fits",
              _all("^20:14:8:5, tasks of 5-40 MB, 1 s per MB$", "at the end: sequence, largest spare first", lambda value: value <= 5, of="value", unit="%"), picture="sequence-2"),
    Statement("sequence", "Figure 4", "with finer grains, proportional rounding comes nearer to the quotas than in Figure 2", _finer, picture="sequence-2"),
    Statement("sequence", "Abstract", "free resources are always used (judged: above 90 % of the units)",
              _all("tasks of (one CPU|5-40 MB, 1 s per MB$)", "^utilisation: deployment sequence", lambda value: value > 90, of="value", unit="%")),
    Statement("sequence", "Section 4", "a controller should grow and shrink the cluster in time",
              why="a proposal without a rule or figures; `python -m bench sequence` has one of ours"),
]  # fmt: skip

STATEMENTS: tuple[Statement, ...] = (*_SIRIUS, *_FGM, *_HRM, *_SEQUENCE)
"""All of them, in the order of the publications and their figures."""
