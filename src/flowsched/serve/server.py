"""Server of a service: uvicorn, with limits for slow clients and its own shutdown.

Slow clients cannot use up the connections.  A connection *waits* while it has no request in progress: before its first
head, during a slow one, and between requests.  When nine tenths of all connections are taken, a new one replaces the one
that has waited longest.  A fast client waits for milliseconds, so it is the slow ones that go.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from flowsched.exceptions import InputError
from flowsched.serve.access import Tokens
from flowsched.serve.app import RequestLimits, application
from flowsched.serve.service import Service

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as missing:
    raise ImportError("the service needs starlette and uvicorn: pip install 'flowsched[serve]'") from missing

_HEAD = 32 << 10
"""Largest size of a head in bytes."""

_FILES = 256
"""Open files apart from the connections that are counted; aborted connections stay open for one turn of the event loop."""

_ACCEPTED, _QUEUED = 32, 1024
"""Connections that are accepted in one turn of the event loop, and that may wait for it."""


def is_loopback(host: str) -> bool:
    """Return True for an address that is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bound(host: str, port: int, patience: float = 0.0) -> socket.socket:
    """Return a socket that listens at the address; port 0 takes a free one.

    `patience` is in seconds: a process that was killed releases its lock before its address, or after it.
    """
    end = time.monotonic() + patience
    while True:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind, protocol)  # asyncio sends at once only if the protocol is named
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_QUEUED)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= end:
                raise InputError(f"cannot listen at {host}:{port}: {error.strerror or error}") from None
            time.sleep(0.02)
        else:
            return listener


def check_certificate(chain: str, key: str) -> None:
    """Refuse files that are no certificate in PEM and its key.

    Raises
    ------
    InputError
    """
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(chain, key, password="")
    except ssl.SSLError:
        raise InputError(
            f"{chain}, {key}: a certificate and its key, in PEM and without a passphrase, expected"
        ) from None
    except OSError as error:
        raise InputError(f"{chain}, {key}: cannot be read: {error.strerror}") from None


def _protocol(seconds: float, most: int) -> type[H11Protocol]:
    waiting: dict[H11Protocol, None] = {}
    """Connections without a request in progress; the one that has waited longest is first."""
    crowded = most - max(1, most // 10)

    class Protocol(H11Protocol):
        """Connection that is closed if the head of a request, or the receipt of a response, takes too long."""

        _head: asyncio.TimerHandle | None = None
        _full: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > crowded and waiting:
                oldest = next(iter(waiting))
                del waiting[oldest]
                oldest.transport.abort()
            waiting[self] = None
            self._expect_head()

        def data_received(self, data: bytes) -> None:
            if self._head is None and self._between():
                self._expect_head()
            super().data_received(data)

        def handle_events(self) -> None:
            super().handle_events()
            if not self._between():
                waiting.pop(self, None)
                self._unset_head()

        def on_response_complete(self) -> None:
            if not self.transport.is_closing():
                waiting[self] = None
            super().on_response_complete()

        def connection_lost(self, error: Exception | None) -> None:
            waiting.pop(self, None)
            self._unset_head()
            self.resume_writing()
            super().connection_lost(error)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._full = self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._full is not None:
                self._full.cancel()
                self._full = None

        def _between(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _expect_head(self) -> None:
            self._head = self.loop.call_later(seconds, self._late)

        def _unset_head(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

        def _late(self) -> None:
            if not self.transport.is_closing():
                self.transport.write(_LATE)
                self.transport.close()

    return Protocol


_LATE_BODY = b'{"error":"the head of the request did not come in time"}'
_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_LATE_BODY), _LATE_BODY)
)


def _affordable(connections: int) -> int:
    """Raise the process's limit of open files as far as necessary and possible; return the connections it has room for."""
    try:
        import resource
    except ImportError:
        return connections  # Windows has no such limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        connections = max(soft // 2, soft - _FILES)
    return connections


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `serve`."""
        yield


async def serve(
    service: Service,
    listener: socket.socket,
    token: str | Tokens,
    *,
    limits: RequestLimits = RequestLimits(),  # noqa: B008, it is frozen
    begun: Callable[[], object] | None = None,
    certificate: tuple[str, str] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or a failure of the service; then finish the current work.

    Parameters
    ----------
    listener : socket
        See `bound`.
    token : str or Tokens
        A single token may do everything.
    begun : callable, optional
        Called as soon as requests are accepted.
    certificate : (str, str), optional
        Files of the certificate chain and of its key, in PEM: requests come by TLS.  See `check_certificate`.

    Raises
    ------
    BaseException
        The exception that ended the service.
    """
    limits = replace(limits, connections=_affordable(limits.connections))
    chain, key = certificate or (None, None)
    config = uvicorn.Config(
        application(service, token, limits), http=_protocol(limits.seconds, limits.connections), ws="none", lifespan="on", log_config=None,
        access_log=False, server_header=False, timeout_keep_alive=60, timeout_graceful_shutdown=5,
        limit_concurrency=limits.connections, h11_max_incomplete_event_size=_HEAD, backlog=_ACCEPTED, loop="asyncio",
        ssl_certfile=chain, ssl_keyfile=key,
    )  # fmt: skip
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    server, loop = _Server(config), asyncio.get_running_loop()

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True
        service.stop()

    signals = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]
    for number in signals:
        loop.add_signal_handler(number, stop)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if not serving.done():
            listener.listen(_QUEUED)  # the server's own call has made the queue as short as a turn
            if begun is not None:
                begun()
        owner = asyncio.create_task(service.wait())
        await asyncio.wait([serving, owner], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
        await owner
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
    if service.failed is not None:
        raise service.failed
