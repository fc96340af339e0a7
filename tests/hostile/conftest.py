"""A signal handler that raises."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from calls import Stop


@pytest.fixture
def raising_handler() -> Iterator[None]:
    def handler(number: int, frame: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)
