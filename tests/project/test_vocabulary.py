"""The words of docstrings, comments, messages and documentation: standard terms, as the glossary has them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pages import DOCS, ROOT

TERMS = {
    r"\banew\b": "again, from scratch",
    r"\b[Bb]eside\b": "compared with, next to",
    r"\bbut for\b": "except",
    r"\bdear(er|est|ly)?\b": "expensive",
    r"\bfrom nothing\b": "from scratch",
    r"\bso (many|much|long|few|little)\b(?! (as|that)\b)": "a number, an amount, a time",
    r"\b(tell|tells|told|telling)\b": "report, state",
    r"\b([Ww]hoever|[Nn]obody|[Ss]omebody)\b": "a task, a user, a machine",
    r"(?m)^(What|Those|Whether|How many|How much)\b": "a summary that is an imperative or a noun phrase",
    r"(?m)^Let (?!us\b)\w+": "an imperative of the step itself",
    r"\b([Oo]f|[Ff]rom|[Tt]o|[Bb]y|[Ww]ith|[Ff]or|[Tt]han|[Aa]nd) what\b": "the noun that is meant",
}
"""Expressions of no standard English, and their replacements."""

ALLOWED = {
    "builder": 1,
    "cli": 2,
    "docs/explanation/journal.md": 1,
    "fgm": 1,
    "hrm": 6,
    "journal": 4,
    "network": 1,
    "run": 1,
    "scheduler.py": 1,
    "serve": 1,
    "sim": 11,
}
"""Places that stay, by folder or page: names, quoted messages and doctests; no number may grow."""


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file without the code that they quote."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield re.sub(r"```.*?```|`[^`]*`", "", source, flags=re.DOTALL)
    elif path.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield re.sub(r"`[^`]*`", "", node.value)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.string.lstrip("# ")
    else:
        yield from (line.partition("#")[2].strip() for line in source.splitlines())
        yield from re.findall(r'"""(.*?)"""', source, re.DOTALL)


def found(text: str) -> int:
    return sum(len(re.findall(term, text)) for term in TERMS)


def counted() -> dict[str, int]:
    pages = [path for path in DOCS.rglob("*.md") if "_build" not in path.parts]
    folders = (ROOT / "src" / "flowsched", ROOT / "bench")
    sources = [path for folder in folders for kind in ("py", "pyx", "pxd") for path in folder.rglob(f"*.{kind}")]
    counts: Counter[str] = Counter()
    for path in [*ROOT.glob("*.md"), *pages, *sources]:
        parts = path.relative_to(ROOT).parts
        name = parts[2] if parts[0] == "src" else "/".join(parts)
        counts[name] += sum(map(found, texts(path)))
    return {name: count for name, count in sorted(counts.items()) if count}


def test_texts_use_standard_terms() -> None:
    counts = counted()
    worse = {name: count for name, count in counts.items() if count > ALLOWED.get(name, 0)}
    assert not worse, f"more than the allowed places: {worse}; see TERMS"
    fewer = {name: counts.get(name, 0) for name, most in ALLOWED.items() if counts.get(name, 0) < most}
    assert not fewer, f"lower the numbers of ALLOWED to {fewer}"


def test_the_terms_are_seen() -> None:
    bad = ("made anew", "so many tasks", "what is told", "of what runs", "Whether it fits", "Let it rest")
    assert [found(text) for text in bad] == [1] * len(bad)
    assert not found("Return the number of tasks. As much as that?")
