"""A signal handler that raises; a journal and a problem for the command line."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from calls import Stop
from commands import SMALL, invoke


@pytest.fixture
def raising_handler() -> Iterator[None]:
    def handler(number: int, frame: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "run.journal"
    assert invoke("simulate", *SMALL, "--journal", path, "--quiet").exit_code == 0
    return path


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "net.min"
    n, rng = 3000, random.Random(1)
    arcs = [
        (rng.randrange(1, n + 1), rng.randrange(1, n + 1), rng.randrange(9), rng.randrange(99)) for _ in range(4 * n)
    ]
    arcs += [(i, i % n + 1, 10**6, 1000) for i in range(1, n + 1)]
    lines = [f"p min {n} {len(arcs)}", "n 1 100", f"n {n // 2} -100", *(f"a {t} {h} 0 {c} {w}" for t, h, c, w in arcs)]
    path.write_text("\n".join(lines) + "\n")
    return path
