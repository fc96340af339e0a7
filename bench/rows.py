"""Results of experiments: rows of figures, faults, and notes for the reader."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Keep", "Outcome", "Row", "forget", "shown"]

Value = float | int | str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Parameters
    ----------
    experiment : str
        Name of the experiment.
    setting : str
        Object of the measurement: instance, size, load.
    metric : str
        Measured quantity.
    value : float, int or str, optional
        The figure; None if it could not be measured.
    baseline : float, int or str, optional
        The same figure of the object of comparison (named in the metric or the note).
    ratio : float, optional
        Baseline to value or value to baseline, such that more is better.
    source_value : float, int or str, optional
        The figure that the published source states.
    unit : str
        Of value, baseline and source value: "s" (shown as us, ms or s), "B", "%", ...; "" is a plain number.
    note : str
        Anything else that the reader needs: the peer, a reduced size, an absence.
    better : str
        The direction that is better, "less" or "more", where it does not follow from unit or ratio; see `direction`.
    """

    experiment: str
    setting: str
    metric: str
    value: Value
    baseline: Value = None
    ratio: float | None = None
    source_value: Value = None
    unit: str = ""
    note: str = ""
    better: Literal["", "less", "more"] = ""

    @property
    def direction(self) -> Literal["", "less", "more"]:
        """Direction that is better: as stated, less of seconds and bytes, or as the ratio has it; "" if unknown."""
        if self.better or self.unit in ("s", "B", "MB", "MiB"):
            return self.better or "less"
        value, baseline = self.value, self.baseline
        if self.ratio is None or isinstance(value, str) or isinstance(baseline, str) or not value or not baseline:
            return ""
        return "less" if math.isclose(self.ratio, baseline / value) else "more"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, plain numbers and strings only; a figure that is not finite becomes None."""
        return {name: _plain(value) for name, value in asdict(self).items()}


@dataclass
class Outcome:
    """Result of an experiment.

    Parameters
    ----------
    rows : list of Row
    wrong : list of str
        Wrong results: an optimum that differs, an invariant broken.  A slow result is not wrong.
    notes : list of str
        For the reader: inputs that were reduced, rows that were left out, peers that were absent.
    failed : list of str
        Parts that have no rows by a fault of their input: a file that cannot be read.
    """

    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return rows and texts as plain data for JSON."""
        rows = [row.as_dict() for row in self.rows]
        return {"rows": rows, "wrong": list(self.wrong), "failed": list(self.failed), "notes": list(self.notes)}


Keep = Callable[[Callable[[], Outcome]], None]
"""Called once by a run, at its beginning, with a function that returns the rows so far: they are kept if the run breaks off."""


def forget(rows: Callable[[], Outcome]) -> None:
    """Keep nothing: the default `Keep`."""


def shown(value: Value, unit: str = "") -> str:
    """Return a figure in three or four digits with its unit, as tables print it; seconds in a suitable unit."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return "-"
    if unit == "s":
        for scale, name in ((1e-6, "us"), (1e-3, "ms")):
            if 0 < abs(value) < scale * 999.5:
                return f"{_digits(value / scale)} {name}"
    if unit == "%":
        return f"{value:.2f} %"
    return f"{_digits(value)} {unit}".rstrip()


def _digits(value: float) -> str:
    if value == int(value) and abs(value) < 2**53:
        return f"{int(value):,}"
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if magnitude < 0.1 else f"{value:.2f}" if magnitude < 10 else f"{value:.1f}"


def _plain(value: Any) -> Any:
    """Return NumPy's scalars as Python's, which JSON can carry."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
