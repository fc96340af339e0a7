"""Settings of the whole test run, and the shared states that several folders test with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from effort import FUZZ, effort
from hypothesis import HealthCheck, settings
from servers import postgres

if TYPE_CHECKING:
    from flowsched.hrm import Store

# A deadline would make the outcome depend on the machine; new examples are for FLOWSCHED_FUZZ=1, a default run can be repeated.
settings.register_profile(
    "flowsched",
    max_examples=effort(25, 100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=not FUZZ,
)
settings.load_profile("flowsched")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what the short run leaves out."""
    left_out = [item for item in terminalreporter.stats.get("deselected", []) if item.get_closest_marker("long")]
    if left_out:
        terminalreporter.write_line(
            f"The short run left out {len(left_out)} long tests; `python -m pytest -m long` runs them, `-m ''` all."
        )


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    from flowsched.hrm import Store

    if request.param == "postgresql":
        store = Store(request.getfixturevalue("server"))
        store.clear()
    else:
        store = Store("sqlite://" if request.param == "memory" else f"sqlite:///{tmp_path}/state.db")
    yield store
    store.close()
