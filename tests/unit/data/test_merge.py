"""Several datasets as one: ids, domains, counts, and what must not be put together."""

from __future__ import annotations

import pytest

from toolshift.data.errors import AdapterError
from toolshift.data.merge import merged
from toolshift.data.records import Capability, Endpoint, Library, Records, Report, Section, Task


def records(dataset: str, *, domain: str = "", apart: bool = False, unscorable: str = "") -> Records:
    tool, call = f"{dataset}/tool", f"{dataset}/tool/call"
    capability = Capability(capability_id=tool, dataset=dataset, name="tool", domain=domain, text="a tool")
    endpoint = Endpoint(endpoint_id=call, capability_id=tool, operation="call", text="call")
    task = Task(
        task_id=f"{dataset}/t", dataset=dataset, domain=domain, text="do it",
        gold_capability_ids=(tool,), gold_endpoint_ids=(call,),
    )  # fmt: skip
    none = Task(
        task_id=f"{dataset}/n", dataset=dataset, domain=domain, text="no", gold_capability_ids=(),
        no_gold="irrelevance",
    )  # fmt: skip
    report = Report(
        sections={"rows": Section(rows_read=3, records=2, dropped={"empty": 1})}, notes={"merged": 4},
        tasks=1, capabilities=1, endpoints=1, gold_pairs=1, domains=int(bool(domain)), ordered_tasks=0,
    )  # fmt: skip
    return Records(
        dataset=dataset,
        library=Library((capability,), (endpoint,)),
        tasks=(task,),
        report=report,
        apart=(none,) if apart else (),
        unscorable=unscorable,
    )


def test_ids_stay_and_domains_carry_their_dataset() -> None:
    both = merged([records("b", apart=True), records("a", domain="Maps")])
    assert both.dataset == "a+b"
    assert [t.task_id for t in both.tasks] == ["a/t", "b/t"]
    assert [t.domain for t in both.tasks] == ["a/Maps", "b"]
    assert [c.domain for c in both.library.capabilities] == ["a/Maps", ""]
    assert [t.task_id for t in both.apart] == ["b/n"]


def test_accounts_add_up() -> None:
    report = merged([records("b"), records("a", domain="Maps")]).report
    assert (report.rows_read, report.records, report.dropped) == (6, 4, {"a/rows:empty": 1, "b/rows:empty": 1})
    assert (report.tasks, report.capabilities, report.domains) == (2, 2, 1)
    assert report.notes == {"a/merged": 4, "b/merged": 4}


def test_one_dataset_is_left_as_it_is() -> None:
    alone = records("a", domain="Maps")
    assert merged([alone]) is alone


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "different ones"),
        ([records("a"), records("a")], r"different ones, got \['a', 'a'\]"),
        ([records("a"), records("b", unscorable="an excerpt")], "b: an excerpt"),
    ],
)
def test_what_cannot_be_put_together(parts: list[Records], message: str) -> None:
    with pytest.raises(AdapterError, match=message):
        merged(parts)


def test_tasks_are_sorted_by_id_where_one_name_starts_another() -> None:
    # "maps-2/" comes before "maps/", since the hyphen comes before the slash.
    both = merged([records("maps", apart=True), records("maps-2", apart=True)])
    assert [task.task_id for task in both.tasks] == ["maps-2/t", "maps/t"]
    assert [task.task_id for task in both.apart] == ["maps-2/n", "maps/n"]
    assert both.dataset == "maps+maps-2"
