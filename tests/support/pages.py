"""Examples in Markdown: blocks of Python and of commands, run in a separate folder, and compared with the page's output."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import flowsched as fs

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)

_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
_OPTIONAL = (
    "networkx",
    "scipy",
    "sqlalchemy",
    "simpy",
    "matplotlib",
    "ortools",
    "click",
    "rich",
    "psutil",
    "prometheus_client",
    "opentelemetry",
    "gymnasium",
    "accasim",
    "pandas",
)


@dataclass(frozen=True)
class Block:
    """A block of a page, and the text below it that it prints, if the page has one."""

    line: int
    kind: str
    code: str
    printed: str | None


def blocks(text: str) -> list[Block]:
    """The blocks of Python and of commands on a page, in order."""
    return [
        Block(text.count("\n", 0, match.start()) + 2, match[1], match[2], match[3]) for match in _BLOCK.finditer(text)
    ]


@contextlib.contextmanager
def optional() -> Iterator[None]:
    """Skip the test where an optional package is missing."""
    try:
        yield
    except ImportError as missing:
        if "pip install" in str(missing) or (missing.name or "").partition(".")[0] in _OPTIONAL:
            pytest.skip(str(missing))
        raise


def run_python(block: Block, page: Path, names: dict[str, Any]) -> None:
    """Run a block and compare what it prints."""
    if 'backend="flowsched"' in block.code:
        pytest.importorskip("networkx")
        if not any(entry.name == "flowsched" for entry in entry_points(group="networkx.backends")):
            pytest.skip("flowsched is not installed here, so NetworkX cannot know it")
    if '"flowsched", "hrm"' in block.code:
        pytest.importorskip("sqlalchemy")
    if '"flowsched", "serve"' in block.code:
        pytest.importorskip("uvicorn")
        pytest.importorskip("starlette")
    out = io.StringIO()
    if str(ROOT / "examples") not in sys.path:
        sys.path.append(str(ROOT / "examples"))  # a user copies the example next to the program
    code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")  # line numbers are those of the page
    with optional(), contextlib.redirect_stdout(out), warnings.catch_warnings():
        exec(code, names)
    if block.printed is not None or out.getvalue():
        assert out.getvalue() == (block.printed or ""), f"{page}:{block.line}"


def run_commands(block: Block, page: Path) -> None:
    """Run the commands of `flowsched`, and compare what they print; ``...`` on the page stands for anything.

    A command follows ``$``.  Its output is below it, or that of all commands in the text below the block.
    """
    printed = ""
    for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        command, _, wanted = re.sub(r"\\\n", "", part).partition("\n")
        if command.startswith("printf "):
            subprocess.run(["sh", "-c", command], check=True, timeout=10)
        program = shutil.which("sqlite3") if command.startswith("sqlite3 ") else None
        if not command.startswith("flowsched ") and program is None:
            continue
        pytest.importorskip("click")
        pytest.importorskip("rich")
        done = subprocess.run(
            shlex.split(command) if program else [sys.executable, "-m", *shlex.split(command)],
            env=os.environ | {"PYTHONPATH": str(Path(fs.__file__).parents[1]), "COLUMNS": "100"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{page}:{block.line}: {command}\n{done.stderr}"
        if wanted.strip():
            assert same_text(wanted, done.stdout), f"{page}:{block.line}: wanted\n{wanted}\ngot\n{done.stdout}"
        printed += done.stdout
    if printed and block.printed is not None:
        wanted = block.printed
        assert same_text(wanted, printed), f"{page}:{block.line}: wanted\n{wanted}\ngot\n{printed}"


def same_text(wanted: str, printed: str) -> bool:
    """Return True if a page's text equals the output; ``...`` stands for anything, spaces for each other."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.DONT_ACCEPT_BLANKLINE
    return doctest.OutputChecker().check_output(wanted, printed, flags)


def words_of(text: str) -> str:
    """The prose of a page: without code, tables, headings, links' targets and marks."""
    text = re.sub(r"^---\n.*?^---\n", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(`{3,}|:{3,}).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in text.splitlines() if not re.match(r"\s*(\||#|<|!\[|\[!\[)", line)]
    prose = "\n".join(re.sub(r"^\s*([*-]|\d+\.)\s+", "\n", line) for line in lines)
    prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", prose)
    return re.sub(r"`[^`]*`", "code", prose)


def sentences(text: str) -> list[str]:
    """The sentences of a page's prose."""
    parts: list[str] = []
    for paragraph in re.split(r"\n\s*\n", words_of(text)):
        parts += re.split(r"(?<=[.:!?])\s+", " ".join(paragraph.split()))
    return [part for part in parts if len(part.split()) > 1]
