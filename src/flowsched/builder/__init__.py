"""The cluster as a flow network: the arcs that an event changes, and the starts that a flow proposes."""

from flowsched.builder.builder import Builder

__all__ = ["Builder"]
