"""Small SVG drawings by hand: shapes on a panel of their own, so that a picture looks right on light and dark pages."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

STYLE = """
  .panel { fill: #fbfcfd; stroke: #d5dbe3 }
  .box { fill: #eaf1fb; stroke: #3d6fb5 } .warm { fill: #fdf0e3; stroke: #b8762b } .cool { fill: #e6f4ee; stroke: #2f8560 }
  text { fill: #1d2733; font-family: "DejaVu Sans", Verdana, Arial, sans-serif; font-size: 13px }
  .small { font-size: 11px; fill: #566374 } .bold { font-weight: bold }
  .arc { stroke: #5b6b80; fill: none } .wait { stroke: #b8762b } .stay { stroke: #2f8560 } .grid { stroke: #dde3ea }
  .tip { fill: #5b6b80 } .tipwait { fill: #b8762b } .tipstay { fill: #2f8560 }
  .a { stroke: #3d6fb5; fill: none } .b { stroke: #b8762b; fill: none } .c { stroke: #2f8560; fill: none }
  .d { stroke: #9b4f96; fill: none } .fa { fill: #3d6fb5 } .fb { fill: #b8762b } .fc { fill: #2f8560 } .fd { fill: #9b4f96 }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #1b2028; stroke: #39424f }
    .box { fill: #22344d; stroke: #7fabe6 } .warm { fill: #453320; stroke: #e0a860 } .cool { fill: #1f3d31; stroke: #6cc39c }
    text { fill: #e3e8ee } .small { fill: #a8b3c0 }
    .arc { stroke: #93a2b5 } .wait { stroke: #e0a860 } .stay { stroke: #6cc39c } .grid { stroke: #333c48 }
    .tip { fill: #93a2b5 } .tipwait { fill: #e0a860 } .tipstay { fill: #6cc39c }
    .a { stroke: #7fabe6 } .b { stroke: #e0a860 } .c { stroke: #6cc39c } .d { stroke: #cf8fca }
    .fa { fill: #7fabe6 } .fb { fill: #e0a860 } .fc { fill: #6cc39c } .fd { fill: #cf8fca }
  }
"""


class Drawing:
    """An SVG picture in progress."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def add(self, tag: str, text: str = "", **attributes: object) -> None:
        """Add an element; ``cls`` is its class, and underscores in names stand for hyphens."""
        named = {"class" if k == "cls" else k.replace("_", "-"): v for k, v in attributes.items()}
        inner = " ".join(f'{name}="{escape(str(value))}"' for name, value in named.items())
        self.parts.append(f"<{tag} {inner}>{escape(text)}</{tag}>" if text else f"<{tag} {inner}/>")

    def text(self, x: float, y: float, text: str, cls: str = "", anchor: str = "middle") -> None:
        """Add a line of text."""
        self.add("text", text, x=f"{x:g}", y=f"{y:g}", cls=cls, text_anchor=anchor)

    def box(self, x: float, y: float, w: float, h: float, *lines: str, cls: str = "box", round: float = 8) -> None:
        """Add a box with its centre at (x, y), and lines of text in it: the first one bold, the others small."""
        self.add(
            "rect", x=f"{x - w / 2:g}", y=f"{y - h / 2:g}", width=f"{w:g}", height=f"{h:g}", rx=f"{round:g}", cls=cls
        )
        top = y - 8 * (len(lines) - 1) + 4.5
        for i, line in enumerate(lines):
            self.text(x, top + 16 * i, line, cls="small" if i else "bold")

    def arc(self, *path: str, kind: str = "") -> None:
        """Add an arrow along an SVG path."""
        self.add("path", d=" ".join(path), cls=f"arc {kind}".strip(), stroke_width="1.6", marker_end=f"url(#tip{kind})")

    def svg(self) -> str:
        """The whole picture."""
        tips = "".join(
            f'<marker id="tip{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0L8 4L0 8z" class="tip{kind}"/></marker>'
            for kind in ("", "wait", "stay")
        )
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        panel = f'<rect x="1" y="1" width="{self.width - 2}" height="{self.height - 2}" rx="10" class="panel"/>'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{escape(self.title)}</title>'
        return "\n".join([head, f"<style>{STYLE}</style>", f"<defs>{tips}</defs>", panel, *self.parts, "</svg>\n"])


def write(drawing: Drawing, name: str) -> int:
    """Write the picture next to the site's other files; with ``--check`` fail instead if it would change."""
    path, text = Path(__file__).parents[1] / "_static" / name, drawing.svg()
    if "--check" in sys.argv:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return 0
        print(f"{name} is not up to date: run the scripts in docs/figures")
        return 1
    path.write_text(text, encoding="utf-8")
    return 0
