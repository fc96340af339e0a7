"""Queries of processes that the tests did not start themselves."""

from __future__ import annotations

from pathlib import Path


def alive(pid: int) -> bool:
    """Return True for a process that has not ended; a process that nothing has waited for has ended, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False


__all__ = ["alive"]
