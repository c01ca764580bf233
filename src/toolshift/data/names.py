"""ToolBench's name standardisation, kept bit-compatible with upstream because its gold labels rely on it.

Source: ``standardize``, ``change_name`` and ``standardize_category`` of OpenBMB/ToolBench (toolbench/utils.py), as
described in the SOURCE.md that accompanies the release files.
"""

from __future__ import annotations

import hashlib
import re

# Upstream repeats "^" inside the class, where it is a literal: carets survive standardisation.
_OUTSIDE = re.compile("[^\u4e00-\u9fa5^a-z^A-Z^0-9^_]")
_REPEATED_UNDERSCORES = re.compile("_{2,}")
_VERSION_SUFFIX = re.compile(r"_v\d+$", re.IGNORECASE)
_CATEGORY_SEPARATORS = re.compile("[ ,/]")


def standardize(name: str) -> str:
    """Return upstream's key form of a tool or API name; may be empty (a name without any ASCII or CJK character).

    >>> standardize("  Get 5-day Forecast ")
    'get_5_day_forecast'
    >>> standardize("2captcha")
    'get_2captcha'
    """
    key = _REPEATED_UNDERSCORES.sub("_", _OUTSIDE.sub("_", name)).lower().strip("_")
    return f"get_{key}" if key[:1].isdigit() else key


def standardize_category(name: str) -> str:
    """Return the folder name of a category: blanks, commas and slashes become one underscore, case is kept."""
    return _CATEGORY_SEPARATORS.sub("_", name.strip()).replace("__", "_")


def local_name(name: str) -> str:
    """Return ``standardize(name)``, or where that is empty ``unnamed-`` and 8 hex digits of the name's sha256."""
    return standardize(name) or f"unnamed-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def without_version(name: str) -> str:
    """Return the name without the ``_v2`` that the release appends to the second product of the same name."""
    return _VERSION_SUFFIX.sub("", name)
