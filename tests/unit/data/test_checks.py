from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.adapters.toolbench import read
from toolshift.data.checks import (
    check,
    duplicate_endpoints,
    endpoint_key,
    mentions,
    name_forms,
    name_free,
    name_free_flags,
    normalized,
)
from toolshift.data.names import without_version
from toolshift.data.records import Argument, Capability, Endpoint, Library, Task


@pytest.mark.parametrize(
    ("name", "forms"),
    [
        ("Sky View", ("sky view",)),
        ("SkyView_v2", ("sky view", "skyview")),
        ("sky-view/HTTPData", ("sky view http data", "sky view httpdata")),
        ("7 Seas", ("7 seas",)),
        ("Get 7 Seas", ("get 7 seas",)),
        ("빵집 API", ("빵집 api",)),
        ("Go", ()),
        ("list", ()),
        ("Weather", ("weather",)),
        ("", ()),
    ],
)
def test_forms_of_a_name(name: str, forms: tuple[str, ...]) -> None:
    assert name_forms(name) == forms


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ("Please ask SKY-VIEW about rain", "Sky View", True),
        ("Please ask sky view's map", "sky_view", True),
        ("Please ask skyview", "Sky View", False),
        ("The skyline viewer", "sky", False),
        ("My currency converter broke", "CurrencyConverter", True),
        ("Use Netlist now", "Netlist_v2", True),
        ("Go and list all", "Go", False),
    ],
)
def test_mentions_need_word_boundaries_and_ignore_case(text: str, name: str, found: bool) -> None:
    assert mentions(text, [name]) is found


def test_name_free_looks_at_gold_tools_and_gold_apis_only() -> None:
    library = Library(
        tuple(Capability(capability_id=f"d/{n}", dataset="d", name=n) for n in ("other tool", "sky view")),
        (Endpoint(endpoint_id="d/sky view/x", capability_id="d/sky view", operation="Find Rain"),),
    )

    def task(text: str) -> Task:
        return Task(
            task_id="d/1",
            dataset="d",
            domain="",
            text=text,
            gold_capability_ids=("d/sky view",),
            gold_endpoint_ids=("d/sky view/x",),
        )

    assert name_free(task("Will the other tool see wet days?"), library)
    assert not name_free(task("Does Sky View know?"), library)
    assert not name_free(task("Please find rain."), library)
    with pytest.raises(KeyError):
        name_free(replace(task("x"), gold_capability_ids=("d/gone",)), library)


def test_flags_equal_the_single_answer(release: Any, make: Any) -> None:
    entry = make.doc("Food", "Soup Book", "Find Soup")
    rows = [make.row(q, [entry], [["Soup Book", "Find Soup"]]) for q in ("Open the soup book", "Something warm")]
    release.put("instruction/G1_query.json", rows)
    records = read(release.root)
    flags = name_free_flags(records)
    assert flags.dtype == np.bool_
    assert flags.tolist() == [name_free(t, records.library) for t in records.tasks]
    assert {t.text: bool(f) for t, f in zip(records.tasks, flags, strict=True)} == {
        "Open the soup book": False,
        "Something warm": True,
        "Will it rain?": True,
        "A soup, please.": True,
    }


def test_duplicate_endpoint_rows_share_the_whole_key() -> None:
    def endpoint(key: str, **changes: Any) -> Endpoint:
        number = Argument(name="n", type="number", required=True)
        values: dict[str, Any] = {"operation": "Op", "description": "D", "method": "GET", "arguments": (number,)}
        return Endpoint(endpoint_id=f"d/t/{key}", capability_id="d/t", **{**values, **changes})

    optional = Argument(name="o", required=False)
    number = Argument(name="n", type="number", required=True)
    text = Argument(name="n", type="string", required=True)
    library = Library(
        (Capability(capability_id="d/t", dataset="d", name="T"),),
        (
            endpoint("a"),
            endpoint("b", arguments=(number, optional)),
            endpoint("c", arguments=(text,)),
            endpoint("d", method="POST"),
            endpoint("e"),
        ),
    )
    assert duplicate_endpoints(library) == (("d/t/a", "d/t/b", "d/t/e"),)
    assert endpoint_key(library.endpoints[2]) == ("d/t", "Op", "D", "GET", ("n",), ("string",))


def test_counts_over_records(release: Any, make: Any) -> None:
    release.tool("Arts", "soup_book", "Soup Book")
    gone = make.doc("Food", "Old Oven", "Bake")
    rows = [
        make.row("Bake it!", [gone], [["Old Oven", "Bake"]]),
        make.row("bake IT", [gone], [["Old Oven", "Bake"]]),
    ]
    release.put("instruction/G1_query.json", rows)
    checks = check(read(release.root))
    assert checks.as_dict() == {
        "capabilities_without_endpoints": 1,  # Arts/soup_book
        "duplicate_endpoint_rows": 0,
        "empty_capability_descriptions": 2,  # Arts/soup_book and the re-created oven
        "empty_endpoint_descriptions": 2,  # find soup and bake
        "gold_endpoints_by_source": {"both": 2, "task": 2},
        "gold_pairs_by_source": {"both": 2, "task": 2},
        "name_free_tasks": 2,  # the two that do not say "bake"
        "near_duplicate_texts": 1,
        "shared_capability_names": 2,  # the two soup books
        "tasks_without_given": 0,
    }


@given(st.text(), st.text())
def test_a_text_that_holds_the_name_between_blanks_mentions_it(before: str, name: str) -> None:
    if normalized(without_version(name.strip())) in name_forms(name):
        assert mentions(f"{before} {name} .", [name])
    assert normalized(normalized(name)) == normalized(name)
