"""The documentation: its examples run, its links lead somewhere, and its reference has every public name."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pages import DOCS, PAGES, ROOT, blocks, run_commands, run_python

import flowsched as fs

NAMES = {path.relative_to(DOCS).as_posix(): path for path in PAGES}
WITH_EXAMPLES = [name for name, path in NAMES.items() if blocks(path.read_text(encoding="utf-8"))]
SHORT = (
    "tutorials/first_round.md",
    "tutorials/solver.md",
)  # the pages whose examples the short run tries, as the README's
TEXTS = [ROOT / name for name in ("README.md", "DESIGN.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PUBLIC = (
    "flowsched",
    "flowsched.policy",
    "flowsched.sim",
    "flowsched.fgm",
    "flowsched.hrm",
    "flowsched.metrics",
    "flowsched.run",
    "flowsched.serve",
    "flowsched.sharing",
)
OPTIONAL = {"sqlalchemy", "simpy", "distributed", "starlette", "uvicorn"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in WITH_EXAMPLES],
)
def test_the_examples_of_a_page_print_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of one page share their names and a folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(fs.__file__).parents[1]))  # for programs that an example starts
    page, names = NAMES[name], dict[str, Any]()
    with mock.patch.dict(os.environ):  # what an example sets is its own
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.kind == "python":
                run_python(block, page, names)
            else:
                run_commands(block, page)


def test_tutorials_and_guides_have_examples_that_print() -> None:
    for name in WITH_EXAMPLES:
        if name.startswith("tutorials/"):
            assert any(block.printed for block in blocks(NAMES[name].read_text(encoding="utf-8"))), name
    guides = [name for name in NAMES if name.startswith(("tutorials/", "howto/")) and not name.endswith("index.md")]
    assert set(guides) <= set(WITH_EXAMPLES)


def shown() -> set[str]:
    """The full names of everything that the reference shows."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "reference").glob("*.md")))
    return set(re.findall(r"^\.\. (?:auto(?:class|exception|function|data)|py:data):: (\S+)$", text, re.MULTILINE))


@pytest.mark.parametrize("module", PUBLIC)
def test_the_reference_has_every_public_name(module: str) -> None:
    """A name that two modules share is shown once, under either."""
    try:
        home = importlib.import_module(module)
    except ImportError as missing:
        pytest.skip(str(missing))
    names = shown()
    front = set(fs.__all__)
    missing = [
        name
        for name in home.__all__
        if f"{module}.{name}" not in names and not (name in front and f"flowsched.{name}" in names)
    ]
    assert missing == []


def test_everything_that_the_reference_shows_exists() -> None:
    for name in sorted(shown()):
        module, _, last = name.rpartition(".")
        try:
            thing: Any = getattr(importlib.import_module(module), last)
        except ImportError as missing:
            if "pip install" in str(missing) or (missing.name or "").partition(".")[0] in OPTIONAL:
                continue
            raise
        if inspect.isclass(thing) or inspect.isroutine(thing):
            assert inspect.getdoc(thing), name


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", "")).replace(" ", "-")


@pytest.mark.parametrize("path", [*TEXTS, *PAGES], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_between_files_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^(`{3,}).*?^\1", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", text):
        link = target[0] or target[1]
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        folder = path.parents[1] if path.name.endswith("_failures.md") else path.parent  # of the page that includes it
        there = (folder / file).resolve() if file else path
        assert there.exists(), f"{path.name}: {link}"
        if anchor and there.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, f"{path.name}: {link}"


@pytest.mark.parametrize("script", ["figures/network.py", "figures/speed.py", "benchmarks/make.py"])
@pytest.mark.long
def test_what_scripts_have_drawn_and_written_is_up_to_date(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / script), "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# A message that an installed flowsched prints may name an extra: pip finds the package in the environment.  A page may not:
# there is no such package on PyPI, so its reader would install nothing, or another package of that name.
_UNPUBLISHED = re.compile(r"pip install\b[^`\n]*?(?<![\w./-])['\"]?flowsched\b(?!/)")


def test_pages_install_from_source_only() -> None:
    assert _UNPUBLISHED.search("$ pip install 'flowsched[sim]' scipy") and _UNPUBLISHED.search("pip install flowsched")
    assert not _UNPUBLISHED.search("pip install ./examples/snakemake_scheduler_plugin_flowsched")
    for path in [*TEXTS, *PAGES, *(ROOT / "examples").rglob("*.md")]:
        assert not _UNPUBLISHED.search(path.read_text(encoding="utf-8")), path
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "bench").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                assert not _UNPUBLISHED.search(ast.get_docstring(node) or ""), path


def test_messages_name_extras_that_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    texts = [*PAGES, *TEXTS, *(ROOT / "src").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
    for path in texts:
        for named in re.findall(
            r"pip install (?:-e )?['\"](?:flowsched|\.)\[([a-z,]+)\]", path.read_text(encoding="utf-8")
        ):
            assert set(named.split(",")) <= extras.keys(), f"{path}: {named}"


@pytest.mark.parametrize("path", sorted((DOCS / "benchmarks").glob("*.md")), ids=lambda path: path.name)
def test_a_benchmark_page_is_one_screen(path: Path) -> None:
    """Full tables and methods are pages of their own; a screen has about 40 lines of 100 characters."""
    text = path.read_text(encoding="utf-8").partition("```{toctree}")[0]
    for name in re.findall(r"```\{include\} (\S+)", text):
        text += (path.parent / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("```", ":", "| ---"))]
    columns = max((line.count("|") - 1 for line in lines if line.startswith("|")), default=1)
    assert len(lines) + sum(len(line) // (130 if columns > 3 else 110) for line in lines if line.startswith("|")) <= 45
