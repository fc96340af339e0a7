"""Sessions for `nox`: the short tests on each Python in an environment of its own, and the steps of `.ci/run` by name."""

from __future__ import annotations

import nox

PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
STEPS = ("long", "lint", "types", "examples", "docs", "nx_suite", "measurements", "debug", "fuzz", "servers", "hostile", "kubernetes", "clusters", "embeddings", "archives")  # fmt: skip

nox.options.sessions = ["lint", "types", "tests"]
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Install what the README says, and run the short tests; arguments after ``--`` are pytest's."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", *session.posargs)


def _add(step: str) -> None:
    @nox.session(name=step, venv_backend="none")
    def session(session: nox.Session) -> None:
        session.run(".ci/run", "tools", step, external=True)

    session.__doc__ = f"Run the step `{step}` of `.ci/run`, in `.venv`."


for _step in STEPS:
    _add(_step)
