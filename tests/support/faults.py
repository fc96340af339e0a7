"""Memory that ends at a chosen moment, for the hostile tests."""

from __future__ import annotations

from collections.abc import Callable


def fail_object(n: int, call: Callable[[], object]) -> tuple[str, bool]:
    """Make a call in which the n-th allocation of an object fails; return the name of the error, and True if it came that far."""
    import _testcapi

    failed = "nothing raised"
    _testcapi.set_nomemory(n, n + 1)
    try:
        call()
    except Exception as error:  # NumPy makes a ValueError of some
        failed = type(error).__name__
    finally:
        left = _objects_left()
        _testcapi.remove_mem_hooks()
    return failed, not left


def _objects_left() -> bool:
    """Return True if the failing allocation is still to come."""
    try:
        for _ in range(4000):
            [object() for _ in range(8)]
    except MemoryError:
        return True
    return False
