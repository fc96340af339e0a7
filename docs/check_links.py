"""Check the links of the built site: every page, picture and anchor that a page names is there.  Nothing is fetched.

python docs/check_links.py docs/_build/html
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ELSEWHERE = ('src="http', 'src="//', 'rel="stylesheet" type="text/css" href="http', "@import url(http")
"""Marks of resources that a browser would fetch from another site."""


class Page(HTMLParser):
    """The anchors and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note ids and links."""
        for name, value in attrs:
            if value and name in ("id", "name"):
                self.anchors.add(value)
            if value and name in ("href", "src"):
                self.links.append(value)


def faults(site: Path) -> list[str]:
    """Links that lead nowhere, and resources that a browser would fetch from elsewhere."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.exists():
                found.append(f"{name}: {link}: no such file")
            elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].anchors:
                found.append(f"{name}: {link}: no such anchor")
    return found


def fetched(site: Path) -> list[str]:
    """Styles, scripts, fonts and pictures that come from the network."""
    found = []
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(site)
        found += [f"{name}: {mark}...: comes from the network" for mark in ELSEWHERE if mark in text]
    return found


def main() -> int:
    """Check one folder."""
    site = Path(sys.argv[1])
    if not (site / "index.html").exists():
        print(f"{site}: no site there")
        return 2
    wrong = faults(site) + fetched(site)
    print(*sorted(wrong), sep="\n")
    print(f"{len(list(site.rglob('*.html')))} pages, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
