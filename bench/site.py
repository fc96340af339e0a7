"""Stored measurements as one page: which statements of the publications hold, pictures, and every row.

Marks belong to `bench.statements` alone.  A published figure without a statement stands next to ours without a mark.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.rows import shown
from bench.statements import PUBLICATIONS, STATEMENTS, Statement, Verdict, judged
from flowsched.boundary.files import replace
from flowsched.sim.report import page

__all__ = ["site", "write_site"]

_CSS = """
h2 { font-size: 21px; margin: 44px 0 4px; } h3 { font-size: 15px; margin: 20px 0 4px; }
a { color: #2563c9; } nav a { margin-right: 14px; white-space: nowrap; } code { font-size: 13px; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } .wide td { white-space: nowrap; width: auto; } .wide td.note { white-space: normal; min-width: 180px; }
.wide thead th { padding-left: 16px; } .wide thead th:nth-child(-n+2) { padding-left: 0; text-align: left; }
.wide tbody th { white-space: normal; min-width: 150px; } .wide tbody th + th { color: var(--soft); }
.said td, .said thead th, .index td, .index thead th { text-align: left; width: auto; padding-left: 0; padding-right: 16px; white-space: normal; }
.index table { width: auto; } .index th { white-space: normal; }
.yes { color: #16806a; } .no { color: #b3364f; font-weight: 600; } .open { color: var(--soft); }
.drawn { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 20px; margin: 16px 0; align-items: start; }
.drawn img { background: #fff; border-radius: 6px; }
details { margin-top: 12px; } summary { cursor: pointer; color: var(--soft); } ul { padding-left: 20px; } p { margin: 6px 0; }
p.state { color: #b3364f; font-weight: 600; }
@media (prefers-color-scheme: dark) { a { color: #8ab4ff; } .yes { color: #5cc9ae; } .no, p.state { color: #ff8fa3; } }
@media (max-width: 760px) {
  .said thead { display: none; } .said tr { display: block; border-bottom: 1px solid var(--line); padding: 6px 0; }
  .said td, .said th { display: block; border: 0; padding: 0; white-space: normal; }
  .said th { color: var(--soft); }
}
"""

_MEDIA = {".png": "image/png", ".svg": "image/svg+xml"}

_WORD = {True: ("yes", "holds"), False: ("no", "fails"), None: ("open", "")}

Measured = tuple[Mapping[str, Any], Sequence[Path]]


def write_site(folder: Path, names: Iterable[str]) -> Path:
    """Write ``index.html`` from ``data/NAME.json`` and ``plots/NAME/``, for those of the names that are there."""
    found: list[Measured] = []
    for name in names:
        path = folder / "data" / f"{name}.json"
        if path.is_file():
            found.append((json.loads(path.read_text(encoding="utf-8")), sorted((folder / "plots" / name).glob("*.*"))))
    replace(folder / "index.html", site(found))
    return folder / "index.html"


def site(measured: Sequence[Measured]) -> str:
    """Return the page of measurements, as `python -m bench --json` writes them, each with its plots."""
    names = [found["experiment"] for found, _ in measured]
    ordered = sorted(measured, key=lambda one: one[0]["experiment"] not in PUBLICATIONS)  # the publications first
    links = " ".join(f'<a href="#{name}">{name}</a>' for name in names)
    body = f"""<nav>{links}</nav>
{_index(measured)}
{"".join(_experiment(found, plots) for found, plots in ordered)}
"""
    return page("Statements of publications, and results here", f"{len(measured)} measurements", body, _CSS)


def _index(measured: Sequence[Measured]) -> str:
    """The number of statements that hold, fail and are open, by publication."""
    lines = []
    for found, _ in measured:
        name = found["experiment"]
        if name in PUBLICATIONS:
            verdicts = [verdict for _, (verdict, _) in judged(name, found["rows"])]
            counts = "".join(f"<td>{verdicts.count(one)}</td>" for one in (False, True, None))
            lines.append(f'<tr><th><a href="#{name}">{PUBLICATIONS[name]}</a></th>{counts}</tr>')
    if not lines:
        return ""
    return f"""<p>A mark stands where a publication states a sign, an order or a factor. “About k” holds between k / 1.5 and 1.5 k,
“up to k” from k / 1.5 on, “alike” within a tenth. Other published figures stand next to ours without a mark. Open: not in this run, or not testable here.</p>
<div class="index"><table><thead><tr><th>statements of</th><th>fail</th><th>hold</th><th>open</th></tr></thead>
<tbody>{"".join(lines)}</tbody></table></div>"""


def _experiment(found: Mapping[str, Any], plots: Sequence[Path]) -> str:
    rows, name, of = found["rows"], found["experiment"], found.get("environment", {})
    date = str(of.get("date", "")).partition("T")[0]
    facts = [of.get("cpu"), date, f"seed {found['seed']}", "quick" if found["quick"] else "full"]
    title = PUBLICATIONS.get(name, found["title"][:1].upper() + found["title"][1:])
    lines = [f'<h2 id="{name}">{html.escape(title)}</h2>']
    lines.append(
        f"<p><code>python -m bench {name}</code>: {html.escape(', '.join(str(fact) for fact in facts if fact))}</p>"
    )
    if not found.get("complete", True):
        lines.append('<p class="state">Broken off: these are the rows until then.</p>')
    for word in ("wrong", "failed"):
        lines += [f'<p class="state">{word.upper()}: {html.escape(text)}</p>' for text in found.get(word, ())]
    claims = judged(name, rows)
    order = {
        claim.picture: i for i, claim in reversed([*enumerate(one for one in STATEMENTS if one.experiment == name)])
    }
    pictures = sorted(
        (path for path in plots if path.suffix in _MEDIA), key=lambda path: order.get(path.stem, len(order))
    )
    drawn = {path.stem: path for path in pictures}
    if claims:
        lines.append(_claims(claims, drawn))
    lines.append(f'<div class="drawn">{"".join(map(_image, drawn.values()))}</div>')
    if found["notes"]:
        lines.append(
            f"<details><summary>Deviations and reductions</summary><ul>{_items(found['notes'])}</ul></details>"
        )
    published = [row for row in rows if row["source_value"] is not None]
    others = [row for row in rows if row["source_value"] is None]
    for word, some in (("rows with a published figure", published), ("further rows", others)):
        if some:
            lines.append(f"<details><summary>{len(some)} {word}</summary>{_rows(some)}</details>")
    return "\n".join(lines)


def _claims(claims: Sequence[tuple[Statement, Verdict]], drawn: Mapping[str, Path]) -> str:
    cells = []
    for claim, (verdict, seen) in claims:
        css, word = _WORD[verdict]
        where = html.escape(claim.where)
        if claim.picture in drawn:
            where = f'<a href="#{claim.picture}">{where}</a>'
        text = html.escape(claim.text) + (f" <small>({html.escape(claim.why)})</small>" if claim.why else "")
        mark = f'<span class="{css}">{word}</span> {html.escape(seen)}' if word else html.escape(seen)
        cells.append(f"<tr><th>{where}</th><td>{text}</td><td>{mark}</td></tr>")
    heads = "<tr><th>where</th><th>the publication</th><th>here</th></tr>"
    return f'<div class="said"><table><thead>{heads}</thead><tbody>{"".join(cells)}</tbody></table></div>'


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    cells = []
    for row in rows:
        texts = (shown(row[name], row["unit"]) for name in ("value", "baseline", "source_value"))
        figures = "".join(f"<td>{html.escape(text)}</td>" for text in texts)
        names = "".join(f"<th>{html.escape(row[name])}</th>" for name in ("setting", "metric"))
        cells.append(f"<tr>{names}{figures}<td class=note>{html.escape(row['note'])}</td></tr>")
    heads = "".join(f"<th>{name}</th>" for name in ("setting", "metric", "ours", "baseline", "published", "note"))
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(cells)}</tbody></table></div>'


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{html.escape(text)}</li>" for text in texts)


def _image(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img id="{path.stem}" alt="{html.escape(path.stem)}" src="data:{_MEDIA[path.suffix]};base64,{data}">'
