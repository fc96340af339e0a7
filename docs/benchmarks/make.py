"""Measure, and write the tables of the benchmark pages.

python docs/benchmarks/make.py run NAME [--quick] [--data DIR]     measure, keep the rows in data/NAME.json
python docs/benchmarks/make.py                                     write tables/ from data/: a page of all rows, some summaries
python docs/benchmarks/make.py --check                             fail if a table is not what its data gives
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from bench.rows import shown  # noqa: E402
from bench.statements import PUBLICATIONS, Statement, Verdict, judged  # noqa: E402

DATA, TABLES, PICTURES = HERE / "data", HERE / "tables", HERE / "pictures"


def measure(name: str, options: list[str]) -> None:
    """Run `python -m bench` and keep its rows with the environment and the command."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "bench", name, *options]
        subprocess.run([*command, "--json", str(rows), "--plots", str(PICTURES)], check=True, cwd=ROOT)
        found = json.loads(rows.read_text(encoding="utf-8"))
    quick = " --quick" if found["quick"] else ""
    data = " --data DIR" if "--data" in options else ""
    own = "".join(f" {option}" for option in found.get("options", ()))
    of = found["environment"]
    facts = {
        "date": of["date"].partition("T")[0],
        "on": f"{of['cpu']}, {of['cores']} cores, {of['system'].partition('-')[0]}",
        "load": round(os.getloadavg()[1], 1),
        "command": f"python -m bench {name}{quick}{data}{own} --seed {found['seed']}",
        "flowsched": of["flowsched"],
        "python": of["python"].rpartition(" ")[2],
    }
    (DATA / f"{name}.json").write_text(json.dumps(facts | found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def cell(text: str) -> str:
    """Text that stays within its cell."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def figure(value: Any, unit: str = "") -> str:
    """A figure whose unit stays on its line; words may wrap."""
    text = shown(value, unit)
    return text if isinstance(value, str) else text.replace(" ", "\N{NO-BREAK SPACE}")


def table(found: dict[str, Any]) -> str:
    """The page with all rows of an experiment."""
    said = [
        f"# All rows of `{found['experiment']}`",
        "",
        f"Command: `{found['command']}`. Date: {found['date']}. Version: {found['flowsched']}, Python {found['python']}.",
        f"Machine: {found['on']}; load average during the run: {found['load']}.",
    ]
    if found["quick"]:
        said.append("**A quick run:** smaller and fewer than the full measurement.")
    columns = ["setting", "metric", "value", "compared with", "ratio", "paper", "note"]
    lines = [
        [
            row["setting"],
            row["metric"],
            figure(row["value"], row["unit"]),
            figure(row["baseline"], row["unit"]),
            figure(row["ratio"]),
            figure(row["source_value"], row["unit"]),
            row["note"],
        ]
        for row in found["rows"]
    ]
    used = [i for i in range(len(columns)) if i < 3 or any(line[i] for line in lines)]
    right = {2, 3, 4, 5}
    head = "| " + " | ".join(columns[i] for i in used) + " |"
    rule = "| " + " | ".join("--:" if i in right else "---" for i in used) + " |"
    body = ["| " + " | ".join(cell(line[i]) for i in used) + " |" for line in lines]
    notes = [f"* {cell(note)}" for note in found["notes"]]
    return "\n".join([*said, "", head, rule, *body, *([""] if notes else []), *notes]) + "\n"


PIVOTS: dict[str, tuple[str, re.Pattern[str], dict[str, str]] | tuple[str, re.Pattern[str], dict[str, str], bool]] = {
    "sirius": (
        "load, tasks that change in a round",
        re.compile(
            r"load of (?P<line>\d+%: .*) change@(?P<column>(?:kernel|scheduler): [^@]*@compared: (?:a newly|cost|the fastest|cs2)).*"
        ),
        {
            "": "kernel: a round",
            "kernel: a round@compared: cost": "cost scaling from scratch / ours",
            "kernel: a round@compared: the fastest": "the fastest from scratch / ours",
            "kernel: a round@compared: cs2": "cs2 / ours",
            "scheduler: schedule()@compared: a newly": "schedule(): newly built / kept",
            "scheduler: apply() and schedule()@compared: a newly": "the same with events",
        },
        True,
    ),
    "backlog": (
        "mean wait",
        re.compile(r"(?P<line>.*): (?P<column>.*)@wait, mean@.*"),
        {name: name for name in ("flowsched", "FIFO", "first fit", "EASY", "SJF", "DRF")},
    ),
    "decision": (
        "CPU time, median",
        re.compile(r"(?P<line>.*)@(?P<change>(?:one|\d+) tasks? ends?), (?:one|\d+) comes?: (?P<column>[^@]*)@.*"),
        {"a decision, median": "decision", "a decision, p99": "p99"}
        | {name: name for name in ("apply", "update", "solve", "read", "commit")},
    ),
    "sequence": (
        "largest deviation from the quota",
        re.compile(r"(?P<line>.*)@largest deviation from the quota: (?P<column>figure[^@]*)@.*"),
        {
            "figure 3, spare of the user that is owed most": "sequence",
            "figure 3, largest spare first (the source's rule)": "sequence, the paper's rule for spares",
            "figure 4, rounding; the rest stays free": "rounding",
            "figure 4, rounding; the rest to the largest task": "rounding, the rest to the largest task",
        },
    ),
}
"""Summaries: heading, an expression for ``setting@metric@note`` that names line and column, the columns with their headings, and
True where the ratio is shown; the column "" has the first figure of a line."""


def summary(
    found: dict[str, Any], heading: str, named: re.Pattern[str], columns: dict[str, str], ratio: bool = False
) -> str:
    """The rows of one kind, a line for each setting."""
    lines: dict[str, dict[str, str]] = {}
    for row in found["rows"]:
        of = named.fullmatch(f"{row['setting']}@{row['metric']}@{row['note']}")
        if of and of["column"] in columns:
            change = of.groupdict().get("change")
            line = of["line"] if change in (None, "one task ends") else f"{of['line']}, {change}"
            text = figure(row["value"], row["unit"])
            ours = lines.setdefault(line, {})
            ours[of["column"]] = figure(row["ratio"]) if ratio else text
            ours.setdefault("", text)
    columns = {name: text for name, text in columns.items() if any(name in of for of in lines.values())}
    head = f"| {heading} | " + " | ".join(columns.values()) + " |"
    rule = "| --- |" + " --: |" * len(columns)
    body = [
        f"| {cell(line)} | " + " | ".join(of.get(name, "") for name in columns) + " |" for line, of in lines.items()
    ]
    return "\n".join([head, rule, *body]) + "\n"


WORDS = {False: "**fails**", True: "holds", None: ""}
"""A verdict in a table."""


def claims(some: list[tuple[Statement, Verdict]], folder: str) -> list[str]:
    """The lines of a table of statements, with links to their pictures from a page next to `folder`."""
    lines = ["| where | the publication | here |", "| --- | --- | --- |"]
    for claim, (verdict, seen) in some:
        where = claim.where
        if (PICTURES / f"{claim.picture}.svg").is_file():
            where = f"[{where}]({folder}pictures/{claim.picture}.svg)"
        text = claim.text + (f" ({claim.why})" if claim.why else "")
        shown_ = f"`pytest {claim.test}`" if claim.test else seen
        lines.append(f"| {where} | {cell(text)} | {f'{WORDS[verdict]}: ' if WORDS[verdict] else ''}{cell(shown_)} |")
    return lines


def count(some: list[tuple[Statement, Verdict]]) -> str:
    """The numbers of statements that hold, fail and are open."""
    verdicts = [verdict for _, (verdict, _) in some]
    holds, fails, left = (verdicts.count(one) for one in (True, False, None))
    return f"{holds} statements hold, {fails} fail, and {left} cannot be tested here or have no rows in this run."


def statements(measured: dict[str, dict[str, Any]]) -> str:
    """The page of all statements."""
    lines = [
        "# Statements of the publications, and results here",
        "",
        'Every sign, order and factor that the four publications state, failures first. "About k" holds between k / 1.5 and',
        '1.5 k, "up to k" from k / 1.5 on, "alike" within a tenth. A figure of the first column leads to the picture.',
        "No input of a measurement is another system's figure. `python -m bench all --site DIR` makes the same page of a new run.",
    ]
    for name, title in PUBLICATIONS.items():
        found = measured[name]
        some = judged(name, found["rows"])
        lines += [
            "",
            f"## {title}",
            "",
            f"`{found['command']}`, {found['date']}. {count(some)}",
            "",
            *claims(some, "../"),
        ]
    return "\n".join(lines) + "\n"


def failures(name: str, found: dict[str, Any]) -> str:
    """The statements of a publication that fail, for its page."""
    some = judged(name, found["rows"])
    bad = [one for one in some if one[1][0] is False]
    more = f"[All of them](tables/statements.md#{anchor(PUBLICATIONS[name])})."
    return "\n".join([f"{count(some)} {more}", "", *claims(bad, "")]) + "\n"


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def texts(name: str, found: dict[str, Any]) -> dict[str, str]:
    """The files that a measurement gives, by name."""
    files = {f"{name}.md": table(found)}
    if name in PIVOTS:
        files[f"{name}_summary.md"] = summary(found, *PIVOTS[name])
    if name in PUBLICATIONS:
        files[f"{name}_failures.md"] = failures(name, found)
    return files


def main() -> int:
    """Measure, write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something would change")
    actions = parser.add_subparsers(dest="action")
    run = actions.add_parser("run", help="measure")
    run.add_argument("name")
    run.add_argument("--quick", action="store_true")
    run.add_argument("--seed", type=int)
    run.add_argument("--data", help="directory of recorded inputs")
    given = parser.parse_args()
    if given.action == "run":
        data = ["--data", os.path.abspath(given.data)] if given.data else []
        seed = [] if given.seed is None else ["--seed", str(given.seed)]
        measure(given.name, [*(["--quick"] if given.quick else []), *seed, *data])
    measured = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(DATA.glob("*.json"))}
    files = {"statements.md": statements(measured)}
    for name, found in measured.items():
        files |= texts(name, found)
    stale = []
    for name, text in files.items():
        to = TABLES / name
        if not to.exists() or to.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not given.check:
                TABLES.mkdir(exist_ok=True)
                to.write_text(text, encoding="utf-8")
    if given.check and stale:
        print("not up to date:", *stale, "- run docs/benchmarks/make.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
