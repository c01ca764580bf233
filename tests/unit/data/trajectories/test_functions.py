"""Function names of ToolBench's agents against endpoints of a hand-made library."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.catalog import Catalog, EndpointDoc
from toolshift.data.names import standardize
from toolshift.data.records import Library
from toolshift.data.trajectories.functions import FunctionIndex, cut, function_name, said_description, said_tool

LONG = "Get The Very Long Name Of An Operation That Nobody Can Remember"


def library(*tools: tuple[str, str, tuple[tuple[str, str], ...]]) -> Library:
    """(category, tool, ((api, description), ...)) each."""
    catalog = Catalog("toolbench", template="name_description")
    for category, tool, apis in tools:
        capability = f"toolbench/{category}/{standardize(tool)}"
        catalog.add_capability(capability, name=tool, domain=category, origin="library")
        for api, text in apis:
            doc = EndpointDoc(operation=api, description=text)
            catalog.add_endpoint(f"{capability}/{standardize(api)}", capability, doc=doc, origin="library")
    return catalog.library()


def test_reserved_words_get_a_prefix() -> None:
    assert function_name("Class", "My-Tool") == "is_class_for_my_tool"
    assert function_name("Classes", "My-Tool") == "classes_for_my_tool"
    index = FunctionIndex(library(("A", "My-Tool", (("Class", ""),))), dataset="toolbench")
    assert index.resolve("is_class_for_my_tool") == "toolbench/A/my_tool/class"
    assert index.resolve("class_for_my_tool") is None


def test_long_names_are_found_uncut_and_without_their_beginning() -> None:
    index = FunctionIndex(library(("A", "Sky", ((LONG, ""),))), dataset="toolbench")
    name = function_name(LONG, "Sky")
    assert len(name) == 71
    expected = f"toolbench/A/sky/{standardize(LONG)}"
    assert index.resolve(name) == index.resolve(name[7:]) == index.resolve(cut(name)) == expected
    assert index.resolve(name[:64]) is None  # cut from the right: not upstream's rule
    assert index.resolve(name[8:]) is None


def test_of_two_categories_the_one_that_was_given_decides() -> None:
    two = library(
        ("A", "Lookup", (("Find", "Finds tides."), ("Count", ""))),
        ("B", "Lookup", (("Find", "Finds wines."), ("Order", ""))),
    )
    index = FunctionIndex(two, dataset="toolbench")
    name = "find_for_lookup"
    assert index.candidates(name) == ["toolbench/A/lookup/find", "toolbench/B/lookup/find"]
    assert index.resolve(name) == "toolbench/A/lookup/find"
    assert index.resolve(name, listed=[name, "order_for_lookup"]) == "toolbench/B/lookup/find"
    assert index.resolve(name, listed=[name, "count_for_lookup"], told="Finds wines.") == "toolbench/B/lookup/find"
    assert index.resolve(name, told="Finds win") == "toolbench/B/lookup/find"  # told in part


def test_a_tool_is_found_by_its_stem_too() -> None:
    catalog = Catalog("toolbench", template="name_description")
    catalog.add_capability("toolbench/A/sunmoon", name="Sun/Moon", domain="A", origin="library")
    doc = EndpointDoc(operation="Rise")
    catalog.add_endpoint("toolbench/A/sunmoon/rise", "toolbench/A/sunmoon", doc=doc, origin="library")
    index = FunctionIndex(catalog.library(), dataset="toolbench")
    assert index.resolve("rise_for_sun_moon") == index.resolve("rise_for_sunmoon") == "toolbench/A/sunmoon/rise"


def test_other_datasets_are_not_searched() -> None:
    index = FunctionIndex(library(("A", "Sky", (("Find", ""),))), dataset="apibank")
    assert index.resolve("find_for_sky") is None


def test_what_a_description_says() -> None:
    text = (
        'This is the subfunction for tool "sky", you can use this tool.The description of this function is: "Says "hi""'
    )
    assert said_description(text) == 'Says "hi"'
    assert said_tool(text, "x_for_y") == "sky"
    assert said_tool("", "a_for_b_for_c") == "c"
    assert said_description("Nothing of the kind") == ""


@given(api=st.text("abcXYZ 09_-", min_size=1, max_size=90), tool=st.text("abc -_", min_size=1, max_size=20))
def test_every_name_made_from_a_library_is_found_in_it(api: str, tool: str) -> None:
    if not (standardize(api) and standardize(tool)):
        return
    index = FunctionIndex(library(("A", tool, ((api, ""),))), dataset="toolbench")
    expected = f"toolbench/A/{standardize(tool)}/{standardize(api)}"
    assert index.resolve(function_name(api, tool)) == index.resolve(cut(function_name(api, tool))) == expected
