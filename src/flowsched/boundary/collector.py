"""The garbage collector, while many objects are made of which none is garbage.

It belongs to the process: other threads do without it as well meanwhile, and so does a process for good that one of them
forks then.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 256
"""Number of events, or of changed groups, that makes enough objects to wake the collector."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Stop the collector, which would look at every object of the process again and again and find nothing."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
