"""The shared state of several schedulers: claims, units, heartbeats, in a database."""
