"""What happened, on disk: the journal, snapshots, exports, and what is recovered from them."""

from flowsched.journal.journal import Fsync, Header, Journal, Seal

__all__ = ["Fsync", "Header", "Journal", "Seal"]
