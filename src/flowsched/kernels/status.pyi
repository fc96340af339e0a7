"""Statuses of the compiled kernels."""

from typing import Final

__test__: Final[dict[str, str]]

AGAIN: Final[int]
BEHIND: Final[int]
BEYOND: Final[int]
CHEAP: Final[int]
DECLINED: Final[int]
EASY: Final[int]
INFEASIBLE: Final[int]
INTERRUPTED: Final[int]
JOINED: Final[int]
LATE: Final[int]
OK: Final[int]
PROBE: Final[int]
RANGE: Final[int]
SPENT: Final[int]
STUCK: Final[int]
UNBOUNDED: Final[int]
UNPROVEN: Final[int]
WHOLE: Final[int]
