"""Client of the service, with the standard library alone."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

from flowsched.cluster.events import Event, to_dict
from flowsched.exceptions import FlowschedError


class ServiceError(FlowschedError):
    """The service refused a request.

    Attributes
    ----------
    status : int
        HTTP status.
    answer : dict
        Body of the response: ``error``, and ``index`` for a refused event.
    """

    def __init__(self, status: int, answer: dict[str, Any]) -> None:
        super().__init__(f"{status}: {answer.get('error', answer)}")
        self.status, self.answer = status, answer


class Client:
    """A client of ``flowsched serve``; for one thread at a time.

    Parameters
    ----------
    url : str
        For example ``http://127.0.0.1:8642``.
    token : str
    timeout : float
        Seconds without a response after which a connection is closed.
    patience : float
        Seconds for which a request is repeated if there is no response, or the service is stopping.
    """

    def __init__(self, url: str, token: str, *, timeout: float = 30.0, patience: float = 60.0) -> None:
        parts = urlsplit(url)
        self._make = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._where = parts.netloc
        self._headers = {"Authorization": f"Bearer {token}"}
        self._timeout, self._patience = timeout, patience
        self._connection: HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def tell(self, *events: Event, key: str | None = None) -> dict[str, Any]:
        """Report events, all or none; they happen once even if the request is repeated.

        Parameters
        ----------
        key : str, optional
            Identifies the request; random by default.

        Returns
        -------
        dict
            ``events``, ``after`` and ``ended``; see the reference of the service.

        Raises
        ------
        ServiceError
            The events were refused.
        OSError
            No response has come; a call with the same key repeats the request.
        """
        body = json.dumps([to_dict(event) for event in events], allow_nan=False)
        return self._asked("POST", "/v1/events", body, {"Idempotency-Key": key or uuid.uuid4().hex})

    def what_if(self, *events: Event) -> dict[str, Any]:
        """Return the round that would follow these events."""
        return self._asked("POST", "/v1/what-if", json.dumps([to_dict(event) for event in events], allow_nan=False))

    def rounds(self, after: int | None = None, *, wait: int = 0) -> dict[str, Any]:
        """Return ``rounds`` after a number, by default none, and the ``newest`` number; wait up to `wait` seconds for one."""
        asked = {"wait": wait} if after is None else {"after": after, "wait": wait}
        return self._asked("GET", f"/v1/rounds?{urlencode(asked)}")

    def stream(self, after: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield rounds as they are made, on a separate connection, until the service stops."""
        connection = self._make(self._where, timeout=self._timeout)
        try:
            query = "" if after is None else f"?after={after}"
            connection.request("GET", f"/v1/rounds/stream{query}", headers=self._headers)
            response = connection.getresponse()
            if response.status != 200:
                raise ServiceError(response.status, json.loads(response.read()))
            yield from (json.loads(line) for line in response if line.strip())
        finally:
            connection.close()

    def state(self) -> dict[str, Any]:
        """Return machines, jobs, users and tasks, and the number of the ``round`` that they follow."""
        return self._asked("GET", "/v1/state")

    def overview(self, *, tasks: int = 200, machines: int = 2000) -> dict[str, Any]:
        """Return counts, users, machines, and the first waiting tasks with their reasons."""
        return self._asked("GET", f"/v1/overview?{urlencode({'tasks': tasks, 'machines': machines})}")

    def explain(self, task: str) -> dict[str, Any]:
        """Return the reason why a task waits."""
        return self._asked("GET", f"/v1/explain/{quote(task, safe='')}")

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _asked(self, method: str, path: str, body: str | None = None, more: Iterable[Any] = ()) -> dict[str, Any]:
        end = time.monotonic() + self._patience
        while True:
            try:
                if self._connection is None:
                    self._connection = self._make(self._where, timeout=self._timeout)
                self._connection.request(method, path, body, {**self._headers, **dict(more)})
                response = self._connection.getresponse()
                answer = json.loads(response.read())
            except (OSError, HTTPException, ValueError) as error:
                self.close()
                if time.monotonic() >= end:
                    raise OSError(f"{method} {path}: no response: {error}") from error
            else:
                if response.status < 400:
                    return answer  # type: ignore[no-any-return]
                if response.status != 503 or time.monotonic() >= end:
                    raise ServiceError(response.status, answer)
            time.sleep(0.1)
