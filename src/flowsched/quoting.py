"""How an error message quotes what was handed over: short, on one line, in characters that any terminal prints.

A message holds at most some 80 characters of a value.  Quoting never fails, whatever the value says of itself.
"""

from __future__ import annotations

from typing import Any

__all__ = ["quoted"]

_WORDY = 3000
"""Bits of a whole number that is given by its size instead: Python refuses to spell out one of 4,300 digits."""


def quoted(value: Any, most: int = 80) -> str:
    """Return ``repr(value)``, cut after `most` characters."""
    try:
        if isinstance(value, int) and value.bit_length() > _WORDY:
            return f"a whole number of about {value.bit_length() * 30103 // 100000:,} digits"
        if isinstance(value, str | bytes | bytearray) and len(value) > most:
            value = value[:most]  # or repr would copy all of it
            return f"{_plain(value)[:most]}..."
        text = _plain(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= most else f"{text[:most]}..."


def _plain(value: Any) -> str:
    """`repr` without what moves the cursor or cannot be encoded."""
    text = repr(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
