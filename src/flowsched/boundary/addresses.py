"""Addresses without their secrets, for messages and logs."""

from __future__ import annotations

import re

_PASSWORD = re.compile(r"(://[^\s/?#:@]*):.*@", re.DOTALL)
"""Of an address, up to the last @: one in a password may not have been escaped."""

_UNFINISHED = re.compile(r"(://[^\s/?#:@]*):(?!\d*(?:[/?#\s'\",\])]|$)|\*\*\*)[^\s'\"]*")
"""An address without @, with something after the colon that is no port: perhaps a password without a host."""

_PARAMETER = re.compile(
    r"""(?i)(\b[\w.-]*(?:pass|password|passwd|passphrase|pwd|secret|token|credentials?|api_?key)["']?\s*[=:]\s*)"""
    r"""('[^']*'|"[^"]*"|[^&\s'",}]+)"""
)
"""Of an address's query, or of a list or table of names and values."""


def masked(text: str) -> str:
    """Return a text with ``***`` in place of passwords in addresses; more is masked where that is in doubt."""
    if "://" in text:
        text = _UNFINISHED.sub(r"\1:***", _PASSWORD.sub(r"\1:***@", text))
    return _PARAMETER.sub(r"\1***", text)
