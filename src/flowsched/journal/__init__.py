"""What happened, on disk: the journal, snapshots, exports, and what is recovered from them."""

from flowsched.journal.journal import Fsync, Journal
from flowsched.journal.records import Header, Seal

__all__ = ["Fsync", "Header", "Journal", "Seal"]
