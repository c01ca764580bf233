"""Candidate views: which capabilities a task is asked to rank, and why each one is in its list."""
