"""Rounds that are carried out, for tests that continue from their decisions."""

from __future__ import annotations

import flowsched as fs


def step(sched: fs.Scheduler, now: float = 0.0) -> fs.Round:
    """A round, committed whole."""
    rnd = sched.schedule(now)
    done = sched.commit(rnd)
    assert done.accepted == rnd.deltas and not done.conflicts
    return rnd
