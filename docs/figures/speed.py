"""Draw the cost of a change compared with other solvers, from the rows of `python -m bench solver`.

``python docs/figures/speed.py``
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from drawing import Drawing, write

LEFT, RIGHT, TOP, BOTTOM = 90, 560, 60, 300
MOST = 100_000
COLUMNS = {"k = 1": "1", "k = 10": "10", "k = 100": "100", "k = 1000": "1,000", "cold": "from scratch"}
LINES = {
    "10,000 x 4, 20,000 tasks": "a",
    "10,000 x 4, 39,000 tasks": "b",
    "10,000 x 4, 60,000 tasks": "c",
    "12,500 x 12, 145,000 tasks": "d",
}


def ratios() -> dict[str, dict[str, float]]:
    """The best other solver's time over ours, by size and by number of changes."""
    data = json.loads((Path(__file__).parents[1] / "benchmarks/data/solver.json").read_text(encoding="utf-8"))
    found: dict[str, dict[str, float]] = {line: {} for line in LINES}
    for row in data["rows"]:
        size, _, change = row["setting"].rpartition(", ")
        if size in LINES and row["metric"] in ("round", "build included") and row["note"].startswith("best peer"):
            found[size][change] = row["ratio"]
    return found


def draw() -> Drawing:
    """Ratios on a logarithmic axis, over the number of tasks that change."""
    d = Drawing(860, 370, "Speed-up over the best other solver")
    d.text(LEFT - 60, 30, "Speed-up: time of the best other solver / time of flowsched", "bold", "start")

    def y(ratio: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * math.log10(ratio) / math.log10(MOST)

    at_change = {change: LEFT + 40 + (RIGHT - LEFT - 80) * i / (len(COLUMNS) - 1) for i, change in enumerate(COLUMNS)}
    for power in range(6):
        at = y(10**power)
        d.add("line", x1=LEFT, x2=RIGHT, y1=f"{at:g}", y2=f"{at:g}", cls="grid")
        d.text(LEFT - 8, at + 4, f"{10**power:,} x", "small", "end")
    for change, name in COLUMNS.items():
        d.text(at_change[change], BOTTOM + 18, name, "small")
    d.text((LEFT + RIGHT) / 2, BOTTOM + 42, "tasks that leave and arrive in a round", "small")
    found = ratios()
    for i, (line, mark) in enumerate(LINES.items()):
        points = [(at_change[change], y(found[line][change])) for change in COLUMNS if change in found[line]]
        d.add("polyline", points=" ".join(f"{px:.1f},{py:.1f}" for px, py in points), cls=mark, stroke_width="2")
        for px, py in points:
            d.add("circle", cx=f"{px:.1f}", cy=f"{py:.1f}", r="4", cls=f"f{mark}")
        machines, _, tasks = line.partition(", ")
        at = 110 + 44 * i
        d.add("circle", cx=595, cy=at - 4, r="5", cls=f"f{mark}")
        d.text(610, at, tasks, "", "start")
        d.text(610, at + 16, "{} machines of {} slots".format(*machines.split(" x ")), "small", "start")
    return d


if __name__ == "__main__":
    sys.exit(write(draw(), "speed.svg"))
