"""Where the program ``flowsched`` starts.

A package of its own, because importing anything of flowsched imports NumPy: Ctrl-C in the middle of that would come out as
a traceback, or as an error of whatever was being imported.  Until everything is imported, it ends the process at once.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["main"]


def main() -> None:
    """Run the command line, see `flowsched.cli.main`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have it ignored
        signal.signal(signal.SIGINT, _leave)
    from flowsched.cli import main as run

    run()


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: nothing has been begun."""
    try:
        os.write(2, b"Interrupted.\n")
    finally:
        os._exit(130)
