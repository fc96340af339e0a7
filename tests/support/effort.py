"""Effort of the random tests: little by default, for minutes under FLOWSCHED_FUZZ=1."""

from __future__ import annotations

import os

FUZZ = os.environ.get("FLOWSCHED_FUZZ", "0") not in ("", "0")


def effort(default: int, fuzz: int) -> int:
    """Return how many examples, seeds or steps to try in this run."""
    return fuzz if FUZZ else default
