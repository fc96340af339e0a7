"""Recorded workloads: openb, Google 2011."""

from flowsched.sim.traces.load import load_trace

__all__ = ["load_trace"]
