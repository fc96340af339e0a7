"""Stored measurements as one page: each published figure next to ours, with the agreement of sign and order."""

from __future__ import annotations

import base64
import html
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from bench.rows import shown
from flowsched.boundary.files import replace
from flowsched.sim.report import page

__all__ = ["Agreement", "agreement", "site", "write_site"]

_SAME = 0.02
"""Published figures that differ by no more than this part have no order; neither have ours."""

_ALIKE = 0.1
"""A ratio that differs from 1 by no more keeps a published ratio of 1."""

_FIGURE = re.compile(r"(ratio )?(?:about |up to )?(?:([<>]) ?)?(\d+(?:\.\d+)?)(?: s)?")
"""A figure in words: ``ratio about 2``, ``ratio up to 10``, ``> 5 s``."""

_SPAN = re.compile(r"(-?\d+(?:\.\d+)?) to (-?\d+(?:\.\d+)?)")

_CSS = """
h2 { font-size: 21px; margin: 44px 0 4px; } h3 { font-size: 15px; margin: 20px 0 4px; }
.wide { overflow-x: auto; } td { width: auto; } td.note { width: auto; min-width: 180px; }
thead th { padding-left: 16px; } thead th:nth-child(2), thead th:last-child { text-align: left; }
thead th:nth-child(-n+2) { padding-left: 0; } td { white-space: nowrap; } td.note { white-space: normal; } tbody th { white-space: normal; min-width: 150px; } tbody th + th { color: var(--soft); }
.yes { color: #16806a; } .no { color: #b3364f; font-weight: 600; } nav a { margin-right: 14px; } .drawn { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr)); gap: 16px; margin: 16px 0; }
details { margin-top: 12px; } summary { cursor: pointer; color: var(--soft); } ul { padding-left: 20px; } p { margin: 6px 0; }
p.state { color: #b3364f; font-weight: 600; }
"""

_MEDIA = {".png": "image/png", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class Agreement:
    """How rows agree with the published figures.

    Attributes
    ----------
    signs : dict of int to bool
        By number of a row that has two numbers or two texts: True where they have the same sign, or are the same text.
    orders : dict of str to (int, int)
        By metric of several rows: pairs of settings that are in the published order, and pairs that have one.
    """

    signs: Mapping[int, bool]
    orders: Mapping[str, tuple[int, int]]


def agreement(rows: Sequence[Mapping[str, Any]]) -> Agreement:
    """Compare rows, as stored, with the figures of their source."""
    signs: dict[int, bool] = {}
    alike: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for i, row in enumerate(rows):
        ours, theirs = row["value"], row["source_value"]
        if isinstance(theirs, str):
            found = _words(row, theirs)
            if found is not None:
                signs[i] = found
        elif isinstance(ours, int | float) and isinstance(theirs, int | float):
            signs[i] = (ours > 0) - (ours < 0) == (theirs > 0) - (theirs < 0)
            alike[row["metric"]].setdefault(row["setting"], (float(ours), float(theirs)))
    orders: dict[str, tuple[int, int]] = {}
    for metric, figures in alike.items():
        pairs = [(_order(a[1], b[1]), _order(a[0], b[0])) for a, b in combinations(figures.values(), 2)]
        compared = [(theirs, ours) for theirs, ours in pairs if theirs and ours]
        if compared:
            orders[metric] = sum(theirs == ours for theirs, ours in compared), len(compared)
    return Agreement(signs, orders)


def _words(row: Mapping[str, Any], text: str) -> bool | None:
    """Return True if a row agrees with words of its source, such as a bound, a ratio, "less"; None if it cannot be judged."""
    ours, found, span = row["value"], _FIGURE.fullmatch(text), _SPAN.fullmatch(text)
    if span is not None and isinstance(ours, int | float):
        return (ours > 0) == (float(span[1]) > 0) == (float(span[2]) > 0)
    baseline = row["baseline"]
    if found is None and isinstance(ours, int | float) and isinstance(baseline, int | float):
        if text == "equal":
            return _order(ours, baseline) == 0
        return ours < baseline if {"less", "least"} & {*text.split()} else None
    if found is None:
        return ours == text if isinstance(ours, str) else None
    of_ratio, bound, figure = found[1] is not None, found[2], float(found[3])
    ours = row["ratio"] if of_ratio else ours
    if not isinstance(ours, int | float):
        return None
    if bound:
        return ours > figure if bound == ">" else ours < figure
    if of_ratio and figure == 1:
        return abs(ours - 1) <= _ALIKE
    return (ours > 1) == (figure > 1) if of_ratio else (ours > 0) == (figure > 0)


def _order(a: float, b: float) -> int:
    return 0 if abs(a - b) <= _SAME * max(abs(a), abs(b)) else 1 if a < b else -1


def write_site(folder: Path, names: Iterable[str]) -> Path:
    """Write ``index.html`` from ``data/NAME.json`` and ``plots/NAME/``, for those of the names that are there."""
    found: list[tuple[dict[str, Any], list[Path]]] = []
    for name in names:
        path = folder / "data" / f"{name}.json"
        if path.is_file():
            found.append((json.loads(path.read_text(encoding="utf-8")), sorted((folder / "plots" / name).glob("*.*"))))
    replace(folder / "index.html", site(found))
    return folder / "index.html"


def site(measured: Sequence[tuple[Mapping[str, Any], Sequence[Path]]]) -> str:
    """Return the page of measurements, as `python -m bench --json` writes them, each with its plots."""
    links = " ".join(f'<a href="#{found["experiment"]}">{found["experiment"]}</a>' for found, _ in measured)
    parts = "\n".join(_experiment(found, plots) for found, plots in measured)
    body = f"""<nav>{links}</nav>
<p>“Ours” is measured here, “published” is what the source states. Sign: both figures are above, at or below zero, both
ratios are above 1 or not, ours is within {_ALIKE:.0%} of a published ratio of 1, keeps the published bound, or both are the same words. Order: of two settings with the same metric the same one has the larger figure; figures within
{_SAME:.0%} have no order.</p>
{parts}
"""
    return page("Published figures and ours", f"{len(measured)} measurements", body, _CSS)


def _experiment(found: Mapping[str, Any], plots: Sequence[Path]) -> str:
    rows, of = found["rows"], found.get("environment", {})
    agrees = agreement(rows)
    ours = [i for i, row in enumerate(rows) if row["source_value"] is not None]
    facts = [
        found["experiment"],
        of.get("cpu"),
        of.get("date"),
        f"seed {found['seed']}",
        "quick" if found["quick"] else "full",
    ]
    lines = [f'<h2 id="{found["experiment"]}">{html.escape(found["title"][:1].upper() + found["title"][1:])}</h2>']
    lines.append(f"<p>python -m bench {html.escape(', '.join(str(fact) for fact in facts if fact))}</p>")
    if not found.get("complete", True):
        lines.append('<p class="state">Broken off: these are the rows until then.</p>')
    for word in ("wrong", "failed"):
        lines += [f'<p class="state">{word.upper()}: {html.escape(text)}</p>' for text in found.get(word, ())]
    if ours:
        same, count = sum(agrees.signs.values()), len(agrees.signs)
        signs = f": the sign agrees in {same} of {count}" if count else ""
        lines.append(f"<h3>Published figures{signs}</h3>")
        lines.append(_rows(rows, ours, agrees))
    if agrees.orders:
        lines.append("<h3>Order of the settings</h3><ul>")
        for metric, (agreed, pairs) in agrees.orders.items():
            lines.append(
                f"<li>{html.escape(metric)}: {_mark(agreed == pairs, f'{agreed} of {pairs} pairs as published')}</li>"
            )
        lines.append("</ul>")
    lines.append(f'<div class="drawn">{"".join(_image(path) for path in plots if path.suffix in _MEDIA)}</div>')
    if found["notes"]:
        lines.append(f"<h3>Deviations explained, and reductions</h3><ul>{_items(found['notes'])}</ul>")
    others = [i for i in range(len(rows)) if i not in set(ours)]
    if others:
        lines.append(f"<details><summary>{len(others)} further rows</summary>{_rows(rows, others, agrees)}</details>")
    return "\n".join(lines)


def _rows(rows: Sequence[Mapping[str, Any]], which: Sequence[int], agrees: Agreement) -> str:
    cells = []
    for i in which:
        row = rows[i]
        unit, sign = row["unit"], agrees.signs.get(i)
        mark = "" if sign is None else _mark(sign, "same" if sign else "differs")
        texts = (shown(row["value"], unit), shown(row["baseline"], unit), shown(row["source_value"], unit))
        figures = "".join(f"<td>{html.escape(text)}</td>" for text in texts)
        names = "".join(f"<th>{html.escape(row[name])}</th>" for name in ("setting", "metric"))
        cells.append(f"<tr>{names}{figures}<td>{mark}</td><td class=note>{html.escape(row['note'])}</td></tr>")
    heads = "".join(
        f"<th>{name}</th>" for name in ("setting", "metric", "ours", "baseline", "published", "sign", "note")
    )
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(cells)}</tbody></table></div>'


def _mark(good: bool, text: str) -> str:
    return f'<span class="{"yes" if good else "no"}">{html.escape(text)}</span>'


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{html.escape(text)}</li>" for text in texts)


def _image(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{html.escape(path.stem)}" src="data:{_MEDIA[path.suffix]};base64,{data}">'
