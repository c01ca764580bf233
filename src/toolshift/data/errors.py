"""Errors of the data stage. All are written for the person who runs the program, not for its authors."""

from __future__ import annotations


class AdapterError(ValueError):
    """Raw files cannot be turned into records: the message says which file, what was expected and what to do."""

    user_facing = True
