"""Measure, and write the tables of the benchmark pages.

python docs/benchmarks/make.py run NAME [--quick] [--data DIR]     measure, keep the rows in data/NAME.json
python docs/benchmarks/make.py                                     write tables/NAME.md from data/NAME.json
python docs/benchmarks/make.py --check                             fail if a table is not what its data gives
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from bench.rows import shown  # noqa: E402

DATA, TABLES = HERE / "data", HERE / "tables"


def measure(name: str, options: list[str]) -> None:
    """Run `python -m bench` and keep its rows with the environment and the command."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "bench", name, *options]
        subprocess.run([*command, "--json", str(rows)], check=True, cwd=ROOT)
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
    """The rows of an experiment as Markdown."""
    said = [
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


def main() -> int:
    """Measure, write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something would change")
    actions = parser.add_subparsers(dest="action")
    run = actions.add_parser("run", help="measure")
    run.add_argument("name")
    run.add_argument("--quick", action="store_true")
    run.add_argument("--data", help="directory of recorded inputs")
    given = parser.parse_args()
    if given.action == "run":
        data = ["--data", os.path.abspath(given.data)] if given.data else []
        measure(given.name, [*(["--quick"] if given.quick else []), *data])
    stale = []
    for path in sorted(DATA.glob("*.json")):
        text = table(json.loads(path.read_text(encoding="utf-8")))
        to = TABLES / f"{path.stem}.md"
        if not to.exists() or to.read_text(encoding="utf-8") != text:
            stale.append(to.name)
            if not given.check:
                TABLES.mkdir(exist_ok=True)
                to.write_text(text, encoding="utf-8")
    if given.check and stale:
        print("not up to date:", *stale, "- run docs/benchmarks/make.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
