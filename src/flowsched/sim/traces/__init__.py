"""Recorded workloads: their formats, what reads them, and what writes them."""

from flowsched.sim.traces.load import load_trace

__all__ = ["load_trace"]
