"""The journal, snapshots and exports of a scheduler, and recovery from them."""

from flowsched.journal.journal import Durability, Journal
from flowsched.journal.records import Header, Seal

__all__ = ["Durability", "Header", "Journal", "Seal"]
