"""What can be wrong with records that are valid: empty texts, duplicates, names that give the answer away."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolshift.data.names import standardize, without_version
from toolshift.data.records import Endpoint, Library, Records, Task

_WORDS = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_MIN_NAME_LENGTH = 3
# Operation names such as "all" or "list" are found in nearly every request; they give nothing away.
# fmt: off
FUNCTION_WORDS = frozenset({
    "all", "and", "any", "api", "are", "can", "for", "from", "get", "has", "how", "list", "new", "not", "now", "one",
    "out", "per", "set", "some", "test", "the", "this", "use", "what", "who", "with", "you",
})
# fmt: on

EndpointKey = tuple[str, str, str, str, tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """Counts over one dataset's records.

    ``gold_pairs_by_source`` counts (task, gold capability) pairs by the capability's ``schema_source``;
    ``near_duplicate_texts`` counts tasks whose text equals an earlier task's up to case, punctuation and blanks.
    """

    empty_capability_descriptions: int
    empty_endpoint_descriptions: int
    capabilities_without_endpoints: int
    duplicate_endpoint_rows: int
    shared_capability_names: int
    near_duplicate_texts: int
    tasks_without_given: int
    name_free_tasks: int
    gold_pairs_by_source: Mapping[str, int]
    gold_endpoints_by_source: Mapping[str, int]

    def as_dict(self) -> dict[str, object]:
        """A JSON-able form with sorted keys."""
        return {
            name: dict(sorted(value.items())) if isinstance(value, Mapping) else value
            for name in sorted(self.__slots__)
            for value in (getattr(self, name),)
        }


def check(records: Records) -> Checks:
    """Count everything ``Checks`` names."""
    library, tasks = records.library, records.tasks
    source = {c.capability_id: c.schema_source for c in library.capabilities}
    endpoint_source = {e.endpoint_id: e.source for e in library.endpoints}
    names = Counter(normalized(c.name) for c in library.capabilities)
    texts = Counter(normalized(t.text) for t in tasks)
    return Checks(
        empty_capability_descriptions=sum(not c.description for c in library.capabilities),
        empty_endpoint_descriptions=sum(not e.description for e in library.endpoints),
        capabilities_without_endpoints=sum(not group for group in library.endpoints_of.values()),
        duplicate_endpoint_rows=sum(len(group) - 1 for group in duplicate_endpoints(library)),
        shared_capability_names=sum(count for count in names.values() if count > 1),
        near_duplicate_texts=sum(count - 1 for count in texts.values()),
        tasks_without_given=sum(not t.given_candidate_ids for t in tasks),
        name_free_tasks=int(name_free_flags(records).sum()),
        gold_pairs_by_source=dict(sorted(Counter(source[c] for t in tasks for c in t.gold_capability_ids).items())),
        gold_endpoints_by_source=dict(
            sorted(Counter(endpoint_source[e] for t in tasks for e in t.gold_endpoint_ids).items())
        ),
    )


# ---------------------------------------------------------------------------------------------------------- endpoints


def endpoint_key(endpoint: Endpoint) -> EndpointKey:
    """The key of tact.md section 3.2: capability, operation, description, method, required names and their types."""
    required = endpoint.required_arguments
    return (
        endpoint.capability_id,
        endpoint.operation,
        endpoint.description,
        endpoint.method,
        tuple(a.name for a in required),
        tuple(a.type for a in required),
    )


def duplicate_endpoints(library: Library) -> tuple[tuple[str, ...], ...]:
    """Groups of two or more endpoint ids that share an ``endpoint_key``; ids sorted in and between groups."""
    groups: dict[EndpointKey, list[str]] = {}
    for endpoint in library.endpoints:
        groups.setdefault(endpoint_key(endpoint), []).append(endpoint.endpoint_id)
    return tuple(tuple(ids) for ids in groups.values() if len(ids) > 1)


# -------------------------------------------------------------------------------------------------------------- names


def normalized(text: str) -> str:
    """Lower-case words with one blank between them; everything that is no letter or digit separates words."""
    return " ".join(_WORDS.findall(text.lower()))


def name_forms(name: str) -> tuple[str, ...]:
    """The word sequences under which a tool or API name counts as mentioned, sorted.

    These are the native name, the standardised one, and the native one with camelCase split, each without a ``_v2``
    suffix and normalised to words. Ignored are forms of fewer than 3 letters or digits and single function words
    ("all", "list", ...). Ordinary nouns stay ("Weather" names a tool and appears in requests for one), so that
    the name-free slice errs on the side of being too small.
    """
    base = without_version(name.strip())
    key = standardize(base)
    if base[:1].isdigit():
        key = key.removeprefix("get_")  # the standardisation's own prefix is no part of the name
    forms = {normalized(base), normalized(key), normalized(_CAMEL.sub(" ", base))}
    return tuple(sorted(f for f in forms if len(f.replace(" ", "")) >= _MIN_NAME_LENGTH and f not in FUNCTION_WORDS))


def mentions(text: str, names: Iterable[str]) -> bool:
    """Whether any form of any name occurs in the text at word boundaries, whatever the case."""
    return _mentioned(normalized(text), (form for name in names for form in name_forms(name)))


def name_free(task: Task, library: Library) -> bool:
    """Whether the task's text contains no name of a gold capability or gold endpoint (validity.md section 5).

    Raises:
        KeyError: if a gold id is not in the library.
    """
    return not mentions(task.text, _gold_names(task, _names(library, (task,))))


def name_free_flags(records: Records) -> NDArray[np.bool_]:
    """``name_free`` of every task, in task order, shape (tasks,)."""
    names = _names(records.library, records.tasks)
    forms = {key: name_forms(name) for key, name in names.items()}
    return np.fromiter(
        (
            not _mentioned(normalized(task.text), (form for key in _gold_ids(task) for form in forms[key]))
            for task in records.tasks
        ),
        dtype=np.bool_,
        count=len(records.tasks),
    )


def _mentioned(text: str, forms: Iterable[str]) -> bool:
    padded = f" {text} "
    return any(f" {form} " in padded for form in forms)


def _gold_ids(task: Task) -> tuple[str, ...]:
    return (*task.gold_capability_ids, *task.gold_endpoint_ids)


def _gold_names(task: Task, names: Mapping[str, str]) -> Iterator[str]:
    return (names[key] for key in _gold_ids(task))


def _names(library: Library, tasks: Iterable[Task]) -> dict[str, str]:
    """Id -> name of every capability and endpoint that is gold for one of the tasks."""
    wanted = {key for task in tasks for key in _gold_ids(task)}
    names = {c.capability_id: c.name for c in library.capabilities if c.capability_id in wanted}
    # An endpoint id may equal no capability id: it has one more part.
    names.update({e.endpoint_id: e.operation for e in library.endpoints if e.endpoint_id in wanted})
    return names
