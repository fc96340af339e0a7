"""Recorded workloads: their formats, readers and writers."""

from flowsched.sim.traces.load import load_trace

__all__ = ["load_trace"]
