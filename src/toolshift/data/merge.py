"""Several datasets as one set of records, for protocols that hold out whole datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from toolshift.data.errors import AdapterError
from toolshift.data.records import Library, Records, Report, Section
from toolshift.data.task_file import spilled


def merged(parts: Sequence[Records]) -> Records:
    """One library and one list of tasks. Ids carry their dataset already; domains get it as a prefix.

    A task without a domain gets its dataset as one, so that its candidates are those that its own dataset judges; a
    capability without a domain keeps none. A dataset in which no task has a domain therefore has no other domain that a
    contextual negative could come from (validity.md section 7).

    Raises:
        AdapterError: if there is none, one dataset twice, or one that no score may be reported on.
    """
    ordered = sorted(parts, key=lambda records: records.dataset)
    names = [records.dataset for records in ordered]
    if not names or len(set(names)) < len(names):
        raise AdapterError(f"datasets to put together must be different ones, got {names}")
    for records in ordered:
        if records.unscorable:
            raise AdapterError(f"{records.dataset}: {records.unscorable}")
    if len(ordered) == 1:
        return ordered[0]
    capabilities = [
        replace(c, domain=f"{c.dataset}/{c.domain}" if c.domain else "")
        for records in ordered
        for c in records.library.capabilities
    ]
    endpoints = [e for records in ordered for e in records.library.endpoints]
    by_id = sorted(ordered, key=lambda records: f"{records.dataset}/")  # what the ids of their tasks start with
    tasks = (
        replace(t, domain=f"{t.dataset}/{t.domain}" if t.domain else t.dataset)
        for records in by_id
        for t in records.tasks
    )
    return Records(
        dataset="+".join(names),
        library=Library(
            tuple(sorted(capabilities, key=lambda c: c.capability_id)),
            tuple(sorted(endpoints, key=lambda e: e.endpoint_id)),
        ),
        tasks=spilled(tasks),
        report=_report(ordered),
        apart=spilled(t for records in by_id for t in records.apart),
    )


def _report(parts: Sequence[Records]) -> Report:
    sections: dict[str, Section] = {}
    notes: Mapping[str, int] = {}
    for records in parts:
        sections |= {f"{records.dataset}/{name}": section for name, section in records.report.sections.items()}
        notes = {**notes, **{f"{records.dataset}/{name}": count for name, count in records.report.notes.items()}}
    total = {
        name: sum(getattr(records.report, name) for records in parts)
        for name in ("tasks", "capabilities", "endpoints", "gold_pairs", "domains", "ordered_tasks")
    }
    return Report(sections=sections, notes=notes, **total)
