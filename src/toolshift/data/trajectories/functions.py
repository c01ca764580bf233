"""Function names of ToolBench's agents, ``<api>_for_<tool>``, and the endpoints they mean.

Source: ``change_name``, ``fetch_api_json`` and ``api_json_to_openai_json`` of OpenBMB/ToolBench (toolbench/inference):
an API name that is a reserved word is prefixed, and a name of over 64 characters loses its beginning. The name says
nothing of the category, and hundreds of tool names occur in several; what else the agent was given decides.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from toolshift.data.names import standardize
from toolshift.data.records import Library
from toolshift.data.rendering import clean

LIMIT = 64
_RESERVED = frozenset(("from", "class", "return", "false", "true", "id", "and"))
_SAID = re.compile(r'The description of this function is: "(.*)"\s*\Z', re.DOTALL)
_TOOL = re.compile(r'This is the subfunction for tool "([^"]*)"')


def function_name(api: str, tool: str) -> str:
    """The uncut function name of native names.

    >>> function_name("Get 5-day Forecast", "Sky View")
    'get_5_day_forecast_for_sky_view'
    >>> function_name("ID", "Sky View")
    'is_id_for_sky_view'
    """
    return _joined(standardize(api), standardize(tool))


def cut(name: str) -> str:
    """What upstream leaves of a function name: its last 64 characters.

    >>> len(cut("a" * 70 + "_for_b")), cut("short_for_b")
    (64, 'short_for_b')
    """
    return name[-LIMIT:]


def _joined(api: str, tool: str) -> str:
    return f"{f'is_{api}' if api in _RESERVED else api}_for_{tool}"


def said_description(text: str) -> str:
    """The API's own description inside that of a function; empty where there is none."""
    match = _SAID.search(text)
    return clean(match[1]) if match else ""


def said_tool(text: str, name: str) -> str:
    """The standardised tool name that a function's description, or else its name, tells."""
    match = _TOOL.search(text)
    return match[1] if match else name.rpartition("_for_")[2]


@dataclass(frozen=True, slots=True)
class _Candidate:
    endpoint_id: str
    capability_id: str
    description: str


class FunctionIndex:
    """Endpoints of a library by function name, uncut and cut."""

    def __init__(self, library: Library, *, dataset: str) -> None:
        self._found: dict[str, list[_Candidate]] = {}
        self._tools: dict[str, list[str]] = {}
        start = f"{dataset}/"
        for capability in library.capabilities:
            if not capability.capability_id.startswith(start):
                continue
            stem = capability.capability_id.rpartition("/")[2]
            tools = list(dict.fromkeys((standardize(capability.name), standardize(stem))))
            for tool in tools:
                self._tools.setdefault(tool, []).append(capability.capability_id)
            for endpoint in library.endpoints_of[capability.capability_id]:
                apis = {standardize(endpoint.operation), endpoint.endpoint_id.rpartition("/")[2]}
                found = _Candidate(endpoint.endpoint_id, capability.capability_id, clean(endpoint.description))
                for name in sorted({_joined(api, tool) for api in apis for tool in tools}):
                    self._add(name, found)

    def _add(self, name: str, found: _Candidate) -> None:
        for key in dict.fromkeys((name, cut(name))):
            entries = self._found.setdefault(key, [])
            if found not in entries:
                entries.append(found)

    def capabilities(self, tool: str) -> Sequence[str]:
        """Capabilities of a standardised tool name, sorted."""
        return self._tools.get(tool, ())

    def candidates(self, name: str) -> Sequence[str]:
        """Endpoints that a function name may mean, sorted."""
        return [found.endpoint_id for found in self._lookup(name)]

    def resolve(self, name: str, *, listed: Collection[str] = (), told: str = "") -> str | None:
        """The endpoint that a function name means, None where the library has none.

        Of several, the one whose description is what the agent was ``told``, then the one whose tool offers most of
        ``listed``, the functions given to the agent, then the first by id.
        """
        candidates = self._lookup(name)
        if len(candidates) < 2:
            return candidates[0].endpoint_id if candidates else None
        offers = Counter(tool for other in listed for tool in {c.capability_id for c in self._lookup(other)})
        best = min(
            candidates,
            key=lambda c: (not (told and _agree(c.description, told)), -offers[c.capability_id], c.endpoint_id),
        )
        return best.endpoint_id

    def _lookup(self, name: str) -> Sequence[_Candidate]:
        return self._found.get(name) or self._found.get(cut(name), ())


def _agree(known: str, told: str) -> bool:
    """Agents are told the first 512 characters or so: one text may be the beginning of the other."""
    return bool(known) and (known.startswith(told) or told.startswith(known))
