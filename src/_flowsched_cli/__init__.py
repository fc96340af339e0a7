"""Entry of the program ``flowsched``.

A package of its own, because importing anything of flowsched imports NumPy: Ctrl-C in the middle of that would come out as
a traceback, or as an error of whatever was being imported.  Until everything is imported, it ends the process at once.
Only what Python itself has loaded is imported here: `signal` would take a millisecond in which Ctrl-C is not heard yet.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # of Python itself, without annotations
import os

__all__ = ["main"]


def main() -> None:
    """Run the command line, see `flowsched.cli.main`."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # a shell may have it ignored
        _signal.signal(_signal.SIGINT, _leave)
    from flowsched.cli.app import main as run

    run()


def _leave(number: int, frame: object) -> None:
    """End at once: nothing has been begun."""
    try:
        os.write(2, b"Interrupted.\n")
    finally:
        os._exit(130)
