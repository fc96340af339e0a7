"""A node agent: the stacked queues of one machine with real processes (Linux only)."""

from flowsched.hrm.agent.agent import Agent
from flowsched.hrm.agent.commands import Ended

__all__ = ["Agent", "Ended"]
