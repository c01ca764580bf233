"""Building a library out of several documentations of the same tools.

A release documents a tool in its library, inside task rows, or in both. The catalogue unites them: the first
documentation that fills a field wins, arguments are united by name in order of appearance, and where each part was seen
is kept (``SchemaSource``), because tools known from task rows alone are an artefact to control (validity.md section 3).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from toolshift.data.records import Argument, Capability, Endpoint, Library, SchemaSource
from toolshift.data.rendering import capability_text, endpoint_text

Origin = Literal["library", "task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointDoc:
    """One documentation of one operation, as a release gives it."""

    operation: str
    description: str = ""
    method: str = ""
    arguments: tuple[Argument, ...] = ()
    returns: tuple[str, ...] = ()


@dataclass(slots=True)
class _EndpointDraft:
    capability_id: str
    operation: str
    description: str
    method: str
    returns: tuple[str, ...]
    arguments: dict[str, Argument]
    origins: set[Origin]


@dataclass(slots=True)
class _CapabilityDraft:
    name: str
    description: str
    domain: str
    origins: set[Origin]
    endpoint_ids: list[str] = field(default_factory=list)


class Catalog:
    """Collects documentations under ids; ``library`` freezes them.

    Documentations must arrive in an order that does not depend on hashing: the first one wins.
    """

    def __init__(self, dataset: str, *, template: str) -> None:
        self.dataset = dataset
        self.template = template
        self.arguments_added = 0
        self._capabilities: dict[str, _CapabilityDraft] = {}
        self._endpoints: dict[str, _EndpointDraft] = {}

    def add_capability(
        self, capability_id: str, *, name: str, description: str = "", domain: str = "", origin: Origin
    ) -> bool:
        """Add or complete a capability; returns False where it was known already."""
        draft = self._capabilities.get(capability_id)
        if draft is None:
            self._capabilities[capability_id] = _CapabilityDraft(name, description, domain, {origin})
            return True
        draft.description = draft.description or description
        draft.origins.add(origin)
        return False

    def add_endpoint(self, endpoint_id: str, capability_id: str, *, doc: EndpointDoc, origin: Origin) -> bool:
        """Add an endpoint to a known capability, or complete it; returns False where it was known already."""
        draft = self._endpoints.get(endpoint_id)
        if draft is None:
            self._endpoints[endpoint_id] = _EndpointDraft(
                capability_id,
                doc.operation,
                doc.description,
                doc.method,
                doc.returns,
                _by_name(doc.arguments),
                {origin},
            )
            self._capabilities[capability_id].endpoint_ids.append(endpoint_id)
            return True
        draft.description = draft.description or doc.description
        draft.method = draft.method or doc.method
        draft.returns = draft.returns or doc.returns
        draft.origins.add(origin)
        before = len(draft.arguments)
        for argument in doc.arguments:
            known = draft.arguments.get(argument.name)
            draft.arguments[argument.name] = argument if known is None else _completed(known, argument)
        self.arguments_added += len(draft.arguments) - before
        return False

    def library(self) -> Library:
        """Freeze everything, sorted by id and rendered with the catalogue's template."""
        return Library(
            capabilities=tuple(self._capability(key, draft) for key, draft in sorted(self._capabilities.items())),
            endpoints=tuple(_endpoint(key, draft) for key, draft in sorted(self._endpoints.items())),
        )

    def _capability(self, capability_id: str, draft: _CapabilityDraft) -> Capability:
        operations = [self._endpoints[e].operation for e in sorted(draft.endpoint_ids)]
        return Capability(
            capability_id=capability_id,
            dataset=self.dataset,
            name=draft.name,
            description=draft.description,
            domain=draft.domain,
            text=capability_text(draft.name, draft.description, operations, template=self.template),
            schema_source=_source(draft.origins),
        )


def _endpoint(endpoint_id: str, draft: _EndpointDraft) -> Endpoint:
    return Endpoint(
        endpoint_id=endpoint_id,
        capability_id=draft.capability_id,
        operation=draft.operation,
        description=draft.description,
        method=draft.method,
        arguments=tuple(draft.arguments.values()),
        returns=draft.returns,
        text=endpoint_text(draft.operation, draft.description),
        source=_source(draft.origins),
    )


def _by_name(arguments: Iterable[Argument]) -> dict[str, Argument]:
    named: dict[str, Argument] = {}
    for argument in arguments:
        named.setdefault(argument.name, argument)
    return named


def _completed(known: Argument, other: Argument) -> Argument:
    if known.raw_type and known.description and known.required is not None:
        return known
    typed = known if known.raw_type else other
    return replace(
        known,
        raw_type=typed.raw_type,
        type=typed.type,
        required=other.required if known.required is None else known.required,
        description=known.description or other.description,
    )


def _source(origins: set[Origin]) -> SchemaSource:
    if len(origins) > 1:
        return "both"
    return "task" if "task" in origins else "library"
