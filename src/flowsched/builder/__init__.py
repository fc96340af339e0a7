"""The world as a flow network: which arcs an event changes, and what a flow proposes."""

from flowsched.builder.builder import Builder

__all__ = ["Builder"]
