"""What stops a row before it asks anything. None of these messages holds a key."""

from __future__ import annotations


class NotAvailable(RuntimeError):
    """The model behind a row was not configured, recorded or installed: the row is not run, the others are.

    ``not_run`` tells the experiment that this is a hole to print, not a failure.
    """

    user_facing = True
    not_run = True


class EndpointError(RuntimeError):
    """An endpoint was configured and cannot be used: a missing key, a bad address, a refused request."""

    user_facing = True


class StoreError(RuntimeError):
    """A recorded answer is unreadable; the message names the file and says what to do."""

    user_facing = True
