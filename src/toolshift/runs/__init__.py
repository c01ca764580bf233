"""Leaf: run identity, ledger, seeds by name, files written atomically, environment capture, progress."""
