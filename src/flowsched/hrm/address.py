"""The address of the shared state, checked before it is used; an error never shows its password."""

from __future__ import annotations

import re
from typing import Any

from flowsched.boundary.validate import quoted
from flowsched.exceptions import InputError

_SERVER = re.compile(
    r"postgresql(?:\+\w+)?://(?:[^:/?@]*(?::[^@]*)?@)?"
    r"(?P<host>\[[^]/?]*\]|[^/:?]*)(?::(?P<port>[^/?]*))?(?P<name>/[^?]*)?(?:\?.*)?",
    re.DOTALL,
)


def address(what: str, url: Any) -> str:
    """Return the URL of a database as it is.

    Raise InputError if it is no text, of another database, or has a port that is none or a password that is not
    escaped.
    """
    kinds = ("sqlite:", "sqlite+", "postgresql:", "postgresql+")
    if not isinstance(url, str) or "\0" in url or "://" not in url or not url.startswith(kinds):
        raise InputError(
            f"{what}: sqlite://, sqlite:///FILE or postgresql://USER@HOST/NAME expected, got {quoted(url)}"
        )
    if url.startswith("postgresql"):
        match = _SERVER.fullmatch(url)
        if match is None or "@" in f"{match['host']}{match['port']}{match['name']}":
            raise InputError(f"{what}: @, : and / of a password are written as %40, %3A and %2F, got {quoted(url)}")
        port = match["port"]
        if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
            raise InputError(f"{what}: a port from 1 to 65535 expected, got {quoted(url)}")
    return url
