"""The command line: ``flowsched COMMAND``, one file per command."""

from flowsched.cli.app import application, main

__all__ = ["application", "main"]
