"""Newest rounds of a service, as text, and the requests that wait for the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from flowsched.serve.wire import RequestError

__all__ = ["NewestRounds"]


class NewestRounds:
    """Rounds in the order of their consecutive numbers; the oldest are dropped.

    Parameters
    ----------
    newest : int
        Number before that of the first round.
    kept : int
        Number of bytes of rounds that are kept.

    Attributes
    ----------
    newest : int
        Number of the last round.
    closed : bool
        True if no more rounds follow.
    """

    def __init__(self, newest: int, kept: int) -> None:
        self.newest, self.closed = newest, False
        self._kept, self._bytes = kept, 0
        self._texts: deque[bytes] = deque()
        self._more = asyncio.Event()

    def add(self, text: bytes) -> None:
        """Add the next round."""
        self.newest += 1
        self._texts.append(text)
        self._bytes += len(text)
        while self._bytes > self._kept and len(self._texts) > 1:
            self._bytes -= len(self._texts.popleft())
        more, self._more = self._more, asyncio.Event()
        more.set()

    def close(self) -> None:
        """Wake up all waiting requests."""
        self.closed = True
        self._more.set()

    def after(self, number: int, most: int = 1000) -> list[bytes]:
        """Return the rounds after a number, the oldest first.

        Raises
        ------
        RequestError
            Status 410: some of them are no longer kept, or belong to another life of the service.
        """
        first = self.newest - len(self._texts)
        if not first <= number <= self.newest:
            raise RequestError(
                f"after: the rounds after {number} are not kept; read /v1/state, and go on from its round", 410,
                round=self.newest,
            )  # fmt: skip
        return [self._texts[i] for i in range(number - first, min(number - first + most, len(self._texts)))]

    async def more(self, number: int, timeout: float) -> None:
        """Wait for rounds after a number, up to `timeout` seconds, or for the end of the service."""
        more = self._more
        if self.newest <= number and not self.closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await more.wait()
