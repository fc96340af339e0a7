"""Draw the cost of a change compared with other solvers, from the rows of `python -m bench solver`.

``python docs/figures/speed.py``
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from drawing import Drawing, write

LEFT, RIGHT, TOP, BOTTOM = 78, 440, 48, 260
MOST = 100_000
COLUMNS = {"k = 1": "1", "k = 10": "10", "k = 100": "100", "k = 1000": "1,000", "cold": "from scratch"}
LINES = {
    "10,000 x 4, 20,000 tasks": ("a", "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z"),
    "10,000 x 4, 39,000 tasks": ("b", "M-5 -5h10v10h-10z"),
    "10,000 x 4, 60,000 tasks": ("c", "M0 -6l6 10h-12z"),
    "12,500 x 12, 145,000 tasks": ("d", "M0 -6l6 6l-6 6l-6 -6z"),
}
"""Rows of the figure: the style of the line, and the path of its mark."""


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
    d = Drawing(460, 372, "Speed-up over the best other solver")
    d.text(16, 26, "Speed-up: time of the best other solver / ours", "bold", "start")

    def y(ratio: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * math.log10(ratio) / math.log10(MOST)

    at_change = {change: LEFT + 20 + (RIGHT - LEFT - 60) * i / (len(COLUMNS) - 1) for i, change in enumerate(COLUMNS)}
    for power in range(6):
        at = y(10**power)
        d.add("line", x1=LEFT, x2=RIGHT, y1=f"{at:g}", y2=f"{at:g}", cls="grid")
        d.text(LEFT - 8, at + 4, f"{10**power:,} x", "small", "end")
    for change, name in COLUMNS.items():
        d.text(at_change[change], BOTTOM + 18, name, "small")
    d.text((LEFT + RIGHT) / 2, BOTTOM + 42, "tasks that leave and arrive in a round (machines x slots below)", "small")
    found = ratios()
    for i, (line, (style, mark)) in enumerate(LINES.items()):
        points = [(at_change[change], y(found[line][change])) for change in COLUMNS if change in found[line]]
        d.add("polyline", points=" ".join(f"{px:.1f},{py:.1f}" for px, py in points), cls=style, stroke_width="2")
        left, top = 24 + 224 * (i % 2), BOTTOM + 72 + 26 * (i // 2)
        for px, py in (*points, (left, top - 4)):
            d.add("path", d=mark, transform=f"translate({px:.1f} {py:.1f})", cls=f"f{style}")
        machines, _, tasks = line.partition(", ")
        d.text(left + 12, top, f"{tasks}, {machines}", "", "start")
    return d


if __name__ == "__main__":
    sys.exit(write(draw(), "speed.svg"))
