from __future__ import annotations

import pytest

from toolshift.data.catalog import Catalog, EndpointDoc
from toolshift.data.records import Argument


def argument(name: str, kind: str = "", *, required: bool | None = True, description: str = "") -> Argument:
    return Argument(
        name=name, raw_type=kind, type="number" if kind else "unknown", required=required, description=description
    )


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog("d", template="name_description")
    assert made.add_capability("d/t", name="T", origin="library")
    return made


def test_documentations_unite_and_the_first_value_of_a_field_wins(catalog: Catalog) -> None:
    first = EndpointDoc(operation="Op", method="GET", arguments=(argument("a"), argument("b", "NUMBER")))
    second = EndpointDoc(
        operation="op",
        description="Later text.",
        method="POST",
        arguments=(
            argument("a", "NUMBER", required=False, description="words"),
            argument("c", "NUMBER"),
        ),
    )
    assert catalog.add_endpoint("d/t/op", "d/t", doc=first, origin="library")
    assert not catalog.add_endpoint("d/t/op", "d/t", doc=second, origin="task")
    (endpoint,) = catalog.library().endpoints
    assert (endpoint.operation, endpoint.description, endpoint.method) == ("Op", "Later text.", "GET")
    assert endpoint.text == "Op: Later text."
    assert endpoint.source == "both"
    assert [(a.name, a.raw_type, a.type, a.required, a.description) for a in endpoint.arguments] == [
        ("a", "NUMBER", "number", True, "words"),
        ("b", "NUMBER", "number", True, ""),
        ("c", "NUMBER", "number", True, ""),
    ]
    assert catalog.arguments_added == 1


def test_a_parameter_listed_as_required_and_optional_is_required(catalog: Catalog) -> None:
    doc = EndpointDoc(operation="Op", arguments=(argument("a"), argument("a", required=False)))
    catalog.add_endpoint("d/t/op", "d/t", doc=doc, origin="library")
    assert [(a.name, a.required) for a in catalog.library().endpoints[0].arguments] == [("a", True)]


def test_sources_tell_where_a_part_was_seen(catalog: Catalog) -> None:
    catalog.add_capability("d/both", name="B", origin="library")
    assert not catalog.add_capability("d/both", name="other", description="D.", domain="X", origin="task")
    catalog.add_capability("d/a", name="A", origin="task")
    catalog.add_endpoint("d/both/x", "d/both", doc=EndpointDoc(operation="x"), origin="task")
    library = catalog.library()
    assert [(c.capability_id, c.schema_source, c.partial_schema) for c in library.capabilities] == [
        ("d/a", "task", True),
        ("d/both", "both", False),
        ("d/t", "library", False),
    ]
    assert library.capabilities[1].text == "B: D."
    assert library.endpoints[0].source == "task"


def test_operations_are_rendered_in_id_order() -> None:
    catalog = Catalog("d", template="with_operations")
    catalog.add_capability("d/t", name="T", origin="library")
    for name in ("zeta", "alpha"):
        catalog.add_endpoint(f"d/t/{name}", "d/t", doc=EndpointDoc(operation=name), origin="library")
    assert catalog.library().capabilities[0].text == "T | operations: alpha; zeta"
