"""Rankers behind one interface: ``fit`` on source contexts, ``score`` for (task, capability) pairs."""
