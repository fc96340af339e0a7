"""Time spans, dates and amounts as people and other programs write them.  Each function raises ValueError for other text."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_SPANS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = r"(\d+(?:\.\d+)?)\s*(ms|min|[smhdw])"
_SPAN = re.compile(rf"(?:{_PART}\s*)+", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B?)", re.IGNORECASE)
_POWER = {"": -2, "K": -1, "M": 0, "G": 1, "T": 2, "P": 3}


def seconds(text: str) -> float:
    """Return a time span in seconds.

    Examples
    --------
    >>> seconds("90"), seconds("15m"), seconds("1h 30min"), seconds("1:30:00"), seconds("2-00:00:10")
    (90.0, 900.0, 5400.0, 5400.0, 172810.0)
    """
    text = text.strip()
    if found := _CLOCK.fullmatch(text):
        days, hours, minutes, rest = found.groups()
        return 86400.0 * int(days or 0) + 3600.0 * int(hours or 0) + 60.0 * int(minutes) + float(rest)
    if _SPAN.fullmatch(text):
        return sum(float(amount) * _SPANS[unit.lower()] for amount, unit in re.findall(_PART, text, re.IGNORECASE))
    return float(text)


def moment(text: str) -> float:
    """Return a date of ISO 8601 in seconds since 1970, in UTC unless it states another zone.

    Examples
    --------
    >>> moment("1970-01-02"), moment("1970-01-01T01:00:00+01:00")
    (86400.0, 0.0)
    """
    date = datetime.fromisoformat(text.strip())
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def date(moment: float) -> str:
    """Return a time in seconds since 1970 as a date of ISO 8601, in UTC.

    Examples
    --------
    >>> date(86400.0)
    '1970-01-02T00:00:00Z'
    """
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}"


def mebibytes(text: str) -> float:
    """Return an amount of memory in MiB.  Units are powers of 1,024, with or without i and B; a bare number is of MiB.

    Examples
    --------
    >>> mebibytes("2048"), mebibytes("64G"), mebibytes("1.5 TiB"), mebibytes("512KB")
    (2048.0, 65536.0, 1572864.0, 0.5)
    """
    found = _BYTES.fullmatch(text.strip())
    if found is None or not found[0].rstrip()[-1:].isalpha():
        return float(text)
    return float(found[1]) * 1024.0 ** _POWER[found[2].upper()]


def cores(text: str) -> float:
    """Return a number of cores; ``500m`` is half of one, as in Kubernetes."""
    number, milli = text.strip(), text.strip().endswith("m")
    return float(number[:-1]) / 1000 if milli else float(number)
