"""Protocols: which tasks are held out, which may be learned from, and which are purged from the sources."""
