from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolshift.data.adapters.bfcl import Options, called_name, inputs, read, suite_of
from toolshift.data.errors import AdapterError
from toolshift.data.records import Endpoint, Records, Task
from toolshift.data.rows import BadRow
from toolshift.data.store import load_records

DATA = "bfcl_eval/data"
# The definition of ``mix`` as canonical JSON, written out by hand.
MIX_CANONICAL = (
    '{"description": "Mixes two paints.", "name": "mix", "parameters": {"properties": {"a": {"type": "String"}, '
    '"b": {"description": "Second paint.", "type": "any"}}, "required": ["a"], "type": "dict"}}'
)
MIX: dict[str, Any] = json.loads(MIX_CANONICAL)
MIX_ID = f"bfcl/mix-{hashlib.sha256(MIX_CANONICAL.encode()).hexdigest()[:8]}"


def function(name: str, *properties: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "dict", "properties": {p: {"type": "integer"} for p in properties}, "required": []}
    return {"name": name, "description": f"Does {name}.", "parameters": schema, **more}


def said(*turns: str) -> list[Any]:
    return [[{"role": "user", "content": text}] if text else [] for text in turns]


def entry(identity: str, text: str, *functions: Any) -> dict[str, Any]:
    return {"id": identity, "question": said(text), "function": list(functions)}


def turns(identity: str, classes: list[str], *texts: str, **more: Any) -> dict[str, Any]:
    return {"id": identity, "question": said(*texts), "involved_classes": classes, **more}


def answer(identity: str, *truth: Any) -> dict[str, Any]:
    return {"id": identity, "ground_truth": list(truth)}


@dataclass(frozen=True)
class Release:
    """A release below ``root/bfcl``; every ``put`` writes one file of its data folder."""

    root: Path

    def put(self, name: str, *rows: Any) -> Path:
        """Lines of JSON, or bytes as they are; a name that ends in .gz is packed."""
        path = self.root / "bfcl" / DATA / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = [row for row in rows if isinstance(row, bytes)]
        data = b"".join(raw) if raw else "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    def category(self, name: str, *rows: Any, answers: list[Any] | None = None) -> Path:
        if answers is not None:
            self.put(f"possible_answer/BFCL_v4_{name}.json", *answers)
        return self.put(f"BFCL_v4_{name}.json", *rows)

    def path(self, name: str) -> Path:
        return self.root / "bfcl" / DATA / name


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """One single-turn entry, one multi-turn entry over two classes, one irrelevance entry."""
    r = Release(tmp_path / "root")
    r.category(
        "simple_python",
        entry("simple_python_0", "Mix blue and red.", MIX),
        answers=[answer("simple_python_0", {"mix": {"a": ["blue"], "b": ["red", ""]}})],
    )
    r.put("multi_turn_func_doc/travel_booking.json", function("book_boat", "seats"), function("cancel_boat", "id"))
    r.put("multi_turn_func_doc/posting_api.json", function("post_note", response={"properties": {"note_id": {}}}))
    r.category(
        "multi_turn_base",
        turns("multi_turn_base_0", ["TravelAPI", "TwitterAPI"], "Book a boat.", "", "Tell all, then book again."),
        answers=[
            answer(
                "multi_turn_base_0",
                ["book_boat(seats=2)"],
                [],
                ["post_note('It\\'s booked')", "book_boat(seats=[1, {'x': 2}])"],
            )
        ],
    )
    r.category("irrelevance", entry("irrelevance_0", "Sing to me.", MIX))
    return r


def task(records: Records, start: str) -> Task:
    (found,) = [t for t in (*records.tasks, *records.apart) if t.text.startswith(start)]
    return found


def endpoint(records: Records, name: str) -> Endpoint:
    (found,) = [e for e in records.library.endpoints if e.operation == name]
    return found


def arguments(records: Records, name: str) -> list[tuple[str, str, bool | None]]:
    return [(a.name, a.type, a.required) for a in endpoint(records, name).arguments]


# ------------------------------------------------------------------------------------------------------ plain reading


def test_a_function_is_its_name_and_the_hash_of_its_definition(release: Release) -> None:
    records = read(release.root, strict=True)
    mix = records.library.capabilities[records.library.position[MIX_ID]]
    assert (mix.name, mix.domain, mix.text, mix.schema_source) == ("mix", "python", "mix: Mixes two paints.", "library")
    (only,) = records.library.endpoints_of[MIX_ID]
    assert only.endpoint_id == f"{MIX_ID}/mix"
    assert [(a.raw_type, a.type, a.required, a.description) for a in only.arguments] == [
        ("String", "string", True, ""),
        ("any", "unknown", False, "Second paint."),
    ]
    blue = task(records, "Mix")
    assert blue.task_id == f"bfcl/{hashlib.sha256(b'Mix blue and red.').hexdigest()[:16]}"
    assert blue.gold_endpoint_ids == (f"{MIX_ID}/mix",)
    assert blue.gold_capability_ids == blue.given_candidate_ids == (MIX_ID,)
    assert (blue.domain, blue.ordered, blue.calls) == ("python", False, ())
    assert (blue.split, blue.source) == ("simple_python", "bfcl/BFCL_v4_simple_python.json#1")


def test_the_order_of_keys_is_no_other_definition_and_a_changed_word_is(release: Release) -> None:
    shuffled = dict(reversed(MIX.items()))
    other = {**MIX, "description": "Mixes two drinks."}
    release.category(
        "multiple",
        entry("multiple_0", "Mix a drink.", other, function("shake")),
        entry("multiple_1", "Mix paint.", shuffled),
        answers=[answer("multiple_0", {"mix": {}}), answer("multiple_1", {"mix": {}})],
    )
    records = read(release.root, strict=True)
    assert task(records, "Mix paint.").gold_capability_ids == (MIX_ID,)
    (drink,) = task(records, "Mix a drink.").gold_capability_ids
    assert drink.startswith("bfcl/mix-")
    assert drink != MIX_ID
    notes = records.report.notes
    assert (notes["names_with_several_definitions"], notes["functions_defined_again"]) == (1, 2)
    assert notes["function_names"] == 5


def test_multi_turn_gold_is_ordered_and_classes_have_files_of_other_names(release: Release) -> None:
    records = read(release.root, strict=True)
    boat, note = endpoint(records, "book_boat"), endpoint(records, "post_note")
    trip = task(records, "Book a boat.")
    assert trip.text == "Book a boat.\nTell all, then book again."
    assert trip.ordered
    assert trip.calls == (boat.endpoint_id, note.endpoint_id, boat.endpoint_id)
    assert trip.gold_endpoint_ids == tuple(sorted((boat.endpoint_id, note.endpoint_id)))
    assert len(trip.given_candidate_ids) == 3
    assert trip.domain == "TravelAPI", "one function of each class: the first name"
    domains = {c.name: c.domain for c in records.library.capabilities}
    assert domains == {"mix": "python", "book_boat": "TravelAPI", "cancel_boat": "TravelAPI", "post_note": "TwitterAPI"}
    assert note.returns == ("note_id",)
    assert records.report.ordered_tasks == 1


def test_excluded_functions_are_no_candidates_and_cannot_be_called(release: Release) -> None:
    row = turns("multi_turn_base_1", ["TravelAPI"], "Another.", excluded_function=["cancel_boat"])
    calls = [answer("multi_turn_base_1", ["api.book_boat()"])]
    release.category("multi_turn_long_context", row, answers=calls)
    another = task(read(release.root, strict=True), "Another.")
    assert [c.split("-")[0] for c in another.given_candidate_ids] == ["bfcl/book_boat"]
    release.category("multi_turn_long_context", row, answers=[answer("multi_turn_base_1", ["cancel_boat()"])])
    assert read(release.root).report.dropped == {"entries:unresolved_gold": 1, "gold_calls:unknown_function": 1}


def test_a_class_without_an_entry_in_the_table_has_the_file_of_its_snake_case_name(release: Release) -> None:
    release.put("multi_turn_func_doc/parking_lot.json", function("park"))
    row = turns("m_0", ["ParkingLot"], "Park it.")
    release.category("multi_turn_miss_param", row, answers=[answer("m_0", ["park()"])])
    park = task(read(release.root, strict=True), "Park it.")
    assert park.domain == "parking_lot"


def test_entries_without_gold_are_kept_apart_with_their_reason(release: Release) -> None:
    release.category("live_relevance", entry("live_relevance_0", "Mix blue and red.", MIX))
    release.category(
        "memory", turns("memory_0", ["MemoryAPI"], "What is my name?"), answers=[answer("memory_0", "Ann")]
    )
    release.category("web_search", turns("web_search_0", ["TravelAPI"], "Who?"), answers=[b"never read"])
    records = read(release.root, strict=True)
    apart = {t.text: t for t in records.apart}
    assert {text: t.no_gold for text, t in apart.items()} == {
        "Sing to me.": "irrelevance",
        "Mix blue and red.": "not_annotated",
        "What is my name?": "not_annotated",
        "Who?": "not_annotated",
    }
    assert apart["Sing to me."].given_candidate_ids == (MIX_ID,)
    assert apart["Sing to me."].task_id.endswith("-irrelevance")
    assert apart["What is my name?"].given_candidate_ids == ()
    assert (apart["Who?"].domain, apart["What is my name?"].domain) == ("TravelAPI", "")
    twin = next(t for t in records.tasks if t.text == "Mix blue and red.")
    assert apart[twin.text].task_id == f"{twin.task_id}-not_annotated"
    notes = records.report.notes
    assert (notes["tasks_apart"], notes["tasks_irrelevance"], notes["tasks_not_annotated"]) == (4, 1, 3)
    assert notes["unresolved_classes_of_tasks_apart"] == 1


def test_the_text_is_what_the_user_says(release: Release) -> None:
    messages = [
        {"role": "system", "content": "You mix."},
        {"role": "user", "content": " First.\n"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Then."},
    ]
    release.category(
        "live_simple",
        {"id": "live_simple_0", "question": [messages], "function": [function("stir")]},
        answers=[answer("live_simple_0", {"stir": {}})],
    )
    records = read(release.root, strict=True)
    assert task(records, "First.").text == "First.\nThen."
    assert task(records, "First.").domain == "live"
    assert records.report.notes["messages_left_out"] == 2


def test_equal_texts_unite_their_gold_and_keep_the_first_calls(release: Release) -> None:
    other = {**MIX, "description": "Other."}
    release.category(
        "multiple", entry("multiple_0", "Mix blue and red.", other), answers=[answer("multiple_0", {"mix": {}})]
    )
    text = ("Book a boat.", "Tell all, then book again.")
    release.category(
        "multi_turn_long_context",
        turns("long_0", ["TravelAPI"], *text),
        answers=[answer("long_0", ["cancel_boat(id=1)"])],
    )
    records = read(release.root, strict=True)
    blue = task(records, "Mix blue")
    assert len(blue.gold_capability_ids) == 2
    assert blue.split == "multiple+simple_python"
    trip = task(records, "Book a boat.")
    assert len(trip.gold_endpoint_ids) == 3
    assert [c.split("/")[-1] for c in trip.calls] == ["book_boat", "post_note", "book_boat"]
    notes = records.report.notes
    assert (notes["merged_duplicate_text"], notes["merged_text_with_other_gold"]) == (2, 2)
    assert notes["merged_text_with_other_calls"] == 1


def test_parallel_calls_of_one_function_are_one_gold(release: Release) -> None:
    release.category(
        "parallel", entry("parallel_0", "Mix twice.", MIX), answers=[answer("parallel_0", {"mix": {}}, {"mix": {}})]
    )
    twice = task(read(release.root, strict=True), "Mix twice.")
    assert twice.gold_endpoint_ids == (f"{MIX_ID}/mix",)
    assert not twice.ordered


def test_object_arguments_are_followed_by_what_they_hold(release: Release) -> None:
    place = {"type": "dict", "properties": {"city": {"type": "string"}, "at": {"type": "float"}}, "required": ["city"]}
    deep = {"type": "HashMap", "properties": {"inner": {"type": "dict", "properties": {"leaf": {"type": "long"}}}}}
    properties = {
        "place": place,
        "orders": {"type": "array", "items": {"type": "dict", "properties": {"price": {"type": "double"}}}},
        "names": {"type": "ArrayList", "items": {"type": "string"}},
        "deep": deep,
    }
    odd = {"name": "send", "parameters": {"type": "dict", "properties": properties, "required": ["place"]}}
    release.category("simple_java", entry("java_0", "Send.", odd), answers=[answer("java_0", {"send": {}})])
    records = read(release.root, strict=True)
    assert arguments(records, "send") == [
        ("place", "object", True),
        ("place.city", "string", True),
        ("place.at", "number", False),
        ("orders", "list", False),
        ("orders[].price", "number", None),
        ("names", "list", False),
        ("deep", "object", False),
        ("deep.inner", "object", None),
        ("deep.inner.leaf", "number", None),
    ]
    assert records.report.notes["nested_arguments"] == 5
    flat = read(release.root, options=Options(nested_arguments=False))
    assert [a for a, _, _ in arguments(flat, "send")] == ["place", "orders", "names", "deep"]
    assert task(records, "Send.").domain == "java"


@pytest.mark.parametrize(
    ("category", "suite"),
    [("simple_python", "python"), ("parallel", "python"), ("simple_java", "java"), ("live_multiple", "live")],
)
def test_suites(category: str, suite: str) -> None:
    assert suite_of(category) == suite


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("cd(folder='x')", "cd"),
        (" sort('a,b(c)') ", "sort"),
        ("grep('\\d+', f(1))", "grep"),
        ("a.b.move(source=[1, {'k': (2,)}])", "move"),
    ],
)
def test_call_strings_are_parsed(call: str, name: str) -> None:
    assert called_name(call) == name


@pytest.mark.parametrize(
    "call", ["", "cd", "cd(", "cd(1); rm(2)", "f()()", "(lambda: 1)()", "x = cd()", "[cd()]", "\0"]
)
def test_anything_but_one_call_by_name_is_refused(call: str) -> None:
    with pytest.raises(BadRow, match="malformed_call"):
        called_name(call)


def test_no_call_string_is_evaluated(release: Release, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    call = f"book_boat(seats=open({str(trace)!r}, 'w').write('x'))"
    release.put("possible_answer/BFCL_v4_multi_turn_base.json", answer("multi_turn_base_0", [call]))
    assert len(task(read(release.root, strict=True), "Book a boat.").calls) == 1
    assert not trace.exists()


# ---------------------------------------------------------------------------------------------------- files and wheel


def pack(release: Release, wheel: Path) -> None:
    base = release.root / "bfcl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("bfcl_eval/__init__.py", "raise SystemExit('never run')")
        for path in sorted((base / DATA).rglob("*.json*")):
            archive.write(path, path.relative_to(base).as_posix())


def test_a_wheel_reads_as_its_folder_does(release: Release, tmp_path: Path) -> None:
    release.put("BFCL_v4_format_sensitivity.json", b'{"simple_python": ["simple_python_0"]}')
    release.put("unused_datasets/question/BFCL_v4_sql.json", b"never read")
    expected = read(release.root, strict=True)
    root = tmp_path / "other"
    (root / "bfcl").mkdir(parents=True)
    wheel = root / "bfcl" / "bfcl_eval-1-py3-none-any.whl"
    pack(release, wheel)
    assert read(root, strict=True) == expected
    assert read(wheel, strict=True) == expected
    assert inputs(root) == [wheel]
    name = "toolshift.data.adapters.bfcl:read"
    assert load_records(dataset="bfcl", adapter=name, root=wheel, cache=tmp_path / "c").records == expected
    (root / "bfcl" / "second.whl").write_bytes(wheel.read_bytes())
    with pytest.raises(AdapterError, match="holds 2 wheels; keep one"):
        read(root)


@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_a_damaged_or_foreign_wheel_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "bfcl").mkdir()
    wheel = tmp_path / "bfcl" / "x.whl"
    if content is None:
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("other/data.json", "{}")
    else:
        wheel.write_bytes(content)
    with pytest.raises(AdapterError, match=r"x\.whl: (not a readable wheel|a wheel without bfcl_eval/data)"):
        read(tmp_path)


def test_packed_files_are_read_and_inputs_name_what_is_opened(release: Release) -> None:
    expected = read(release.root)
    path = release.path("BFCL_v4_simple_python.json")
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert read(release.root) == expected
    assert [p.relative_to(release.path("")).as_posix() for p in inputs(release.root)] == [
        "BFCL_v4_irrelevance.json",
        "BFCL_v4_multi_turn_base.json",
        "BFCL_v4_simple_python.json.gz",
        "possible_answer/BFCL_v4_multi_turn_base.json",
        "possible_answer/BFCL_v4_simple_python.json",
        "multi_turn_func_doc/posting_api.json",
        "multi_turn_func_doc/travel_booking.json",
    ]


def test_categories_and_the_template_are_options(release: Release) -> None:
    records = read(release.root, options=Options(categories=("simple_python",), template="with_operations"))
    assert [t.text for t in records.tasks] == ["Mix blue and red."]
    assert records.apart == ()
    assert records.library.capabilities[records.library.position[MIX_ID]].text.endswith(" | operations: mix")
    with pytest.raises(
        AdapterError, match="no category 'simple_pyhton'; expected some of irrelevance, multi_turn_base"
    ):
        read(release.root, options=Options(categories=("simple_pyhton",)))
    with pytest.raises(AdapterError, match="template='x' is unknown"):
        Options(template="x")


# ---------------------------------------------------------------------------------------------------------- bad input


def test_missing_folders_and_files_say_what_to_fetch(release: Release, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"bfcl: no such folder.*Get Berkeley"):
        read(tmp_path / "nowhere")
    (tmp_path / "empty/bfcl").mkdir(parents=True)
    with pytest.raises(AdapterError, match="holds neither bfcl_eval/data/ nor a wheel"):
        read(tmp_path / "empty")
    (tmp_path / "bare/bfcl" / DATA).mkdir(parents=True)
    with pytest.raises(AdapterError, match="holds no BFCL_v4_<category>"):
        read(tmp_path / "bare")
    release.path("possible_answer/BFCL_v4_simple_python.json").unlink()
    with pytest.raises(AdapterError, match=r"possible_answer/BFCL_v4_simple_python\.json: no such file"):
        read(release.root)


def test_missing_class_documentation_is_an_error(release: Release) -> None:
    for name in ("travel_booking", "posting_api"):
        release.path(f"multi_turn_func_doc/{name}.json").unlink()
    with pytest.raises(AdapterError, match="multi_turn_func_doc: no function documentation, which bfcl/BFCL_v4_multi"):
        read(release.root)


def test_one_missing_class_costs_its_entries(release: Release) -> None:
    release.path("multi_turn_func_doc/posting_api.json").unlink()
    assert read(release.root).report.dropped == {"entries:class_without_functions": 1}


def test_two_versions_in_one_folder_are_an_error(release: Release) -> None:
    release.put("BFCL_v3_simple.json", entry("a", "b", MIX))
    with pytest.raises(AdapterError, match="files of v3, v4 lie side by side"):
        read(release.root)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("BFCL_v4_simple_python.json", b"", "is empty"),
        ("possible_answer/BFCL_v4_simple_python.json", b" \n", "is empty"),
        ("multi_turn_func_doc/travel_booking.json", b"", "is empty"),
        ("BFCL_v4_multiple.json.gz", b"no gzip", "cannot be read beyond line 0"),
    ],
)
def test_unreadable_files_are_errors(release: Release, name: str, content: bytes, problem: str) -> None:
    release.put("possible_answer/BFCL_v4_multiple.json", answer("x", {"mix": {}}))
    release.put(name, content)
    if name.endswith(".gz"):
        release.path(name).write_bytes(content)
    with pytest.raises(AdapterError, match=problem):
        read(release.root)


def test_a_cut_gzip_is_an_error(release: Release) -> None:
    path = release.path("BFCL_v4_simple_python.json")
    packed = gzip.compress(path.read_bytes() * 50)
    path.with_name(f"{path.name}.gz").write_bytes(packed[: len(packed) // 2])
    path.unlink()
    with pytest.raises(AdapterError, match=r"BFCL_v4_simple_python\.json\.gz: cannot be read beyond line"):
        read(release.root)


def test_a_folder_for_a_file_is_an_error(release: Release) -> None:
    release.path("BFCL_v4_multiple.json").mkdir()
    with pytest.raises(AdapterError, match=r"BFCL_v4_multiple\.json.*: is a folder, not a file"):
        read(release.root)


GOOD = entry("good", "Good?", MIX)
ODD = {"name": "odd", "parameters": {"properties": {"p": 1}}}
SCHEMA = "arguments:parameters_not_a_schema"


@pytest.mark.parametrize(
    ("row", "truth", "dropped"),
    [
        (b'{"id": "x", "question": [[{"role": "us', None, {"entries:malformed_json": 1}),
        (b'{"id": "\xff"}', None, {"entries:not_utf8": 1}),
        ([1], None, {"entries:not_an_object": 1}),
        ({"question": [], "function": []}, None, {"entries:missing_id": 1}),
        ({"id": 7, "question": [], "function": []}, None, {"entries:wrong_type_of_id": 1}),
        ({"id": "x", "function": []}, None, {"entries:missing_question": 1}),
        ({"id": "x", "question": "?", "function": []}, None, {"entries:wrong_type_of_question": 1}),
        ({"id": "x", "question": [["?"]], "function": []}, None, {"entries:not_an_object": 1}),
        ({"id": "x", "question": said("?")}, None, {"entries:missing_function": 1}),
        (entry("x", " ", MIX), [{"mix": {}}], {"entries:empty_question": 1}),
        (entry("x", "?", MIX), None, {"entries:no_answer": 1}),
        (entry("good", "Again?", MIX), None, {"entries:duplicate_id": 1}),
        (entry("x", "?", MIX), [], {"entries:no_gold_call": 1}),
        (entry("x", "?", MIX), [[], []], {"entries:no_gold_call": 1}),
        (entry("x", "?", MIX), [{"mux": {}}], {"entries:unresolved_gold": 1, "gold_calls:unknown_function": 1}),
        (entry("x", "?", MIX), [3, {"mix": {}}], {"entries:unresolved_gold": 1, "gold_calls:malformed_call": 1}),
        (entry("x", "?", MIX), [{"mix": {}, "b": {}}], {"entries:unresolved_gold": 1, "gold_calls:malformed_call": 1}),
        (entry("x", "?", MIX, 5), [{"mix": {}}], {"functions:not_an_object": 1}),
        (entry("x", "?", {"description": ""}, MIX), [{"mix": {}}], {"functions:missing_name": 1}),
        (entry("x", "?", {"name": "odd", "parameters": [1]}), [{"odd": {}}], {SCHEMA: 1}),
        (entry("x", "?", ODD), [{"odd": {}}], {"arguments:not_an_object": 1}),
        (turns("x", ["Nothing"], "?"), [["f()"]], {"entries:class_without_functions": 1}),
    ],
)  # fmt: skip
def test_unusable_entries_are_counted_by_reason(
    release: Release, row: Any, truth: list[Any] | None, dropped: dict[str, int]
) -> None:
    answers = [answer("good", {"mix": {}})] + ([] if truth is None else [answer("x", *truth)])
    raw = row if isinstance(row, bytes) else json.dumps(row).encode()
    release.category("multiple", json.dumps(GOOD).encode() + b"\n", raw, answers=answers)
    report = read(release.root).report
    assert report.dropped == dropped
    assert report.sections["entries"].rows_read == 5
    with pytest.raises(AdapterError, match=r"bfcl/BFCL_v4_multiple\.json#2"):
        read(release.root, strict=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[]", "not_an_object"),
        (b'{"id": "good"', "malformed_json"),
        (b'{"id": "good"}', "missing_ground_truth"),
        (b'{"id": "good", "ground_truth": []}', "duplicate_id"),
        (b'{"id": "nobody", "ground_truth": []}', "answer_without_entry"),
    ],
)
def test_unusable_answers_are_counted_by_reason(release: Release, line: bytes, reason: str) -> None:
    good = json.dumps(answer("good", {"mix": {}})).encode()
    release.category("multiple", GOOD)
    release.put("possible_answer/BFCL_v4_multiple.json", good + b"\n", line)
    records = read(release.root)
    assert records.report.dropped == {f"answers:{reason}": 1}
    assert records.report.sections["answers"].rows_read == 4
    assert task(records, "Good?").gold_capability_ids == (MIX_ID,)


def test_files_without_any_entry_are_an_error(tmp_path: Path) -> None:
    bare = Release(tmp_path / "bare")
    bare.category("irrelevance", b'["a", "list"]\n')
    with pytest.raises(AdapterError, match="no entry could be read"):
        read(bare.root)


# --------------------------------------------------------------------------------------------------------------- fuzz

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["mix", "Mix.It", "mix it", "빵", "\ud83d", "", "f(1)", "mix(a='b')"])


def odd_object(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects whose keys may be missing or hold anything, and now and then no object at all."""
    usual = st.fixed_dictionaries({}, optional={k: v | JUNK for k, v in fields.items()})
    return st.fixed_dictionaries(fields) | usual | JUNK


SCHEMAS = odd_object(
    properties=st.dictionaries(NAMES, odd_object(type=NAMES, properties=JUNK, items=odd_object(properties=JUNK))),
    required=st.lists(NAMES),
)
FUNCTIONS = st.lists(odd_object(name=NAMES, description=NAMES, parameters=SCHEMAS, response=SCHEMAS), max_size=3)
MESSAGES = st.lists(odd_object(role=st.sampled_from(["user", "system"]), content=NAMES), max_size=2)
IDS = st.sampled_from(["a", "b", "c"])
CLASSES = st.lists(NAMES | st.just("MathAPI"))
ENTRIES = st.lists(
    odd_object(id=IDS, question=st.lists(MESSAGES | JUNK, max_size=2), function=FUNCTIONS)
    | odd_object(id=IDS, question=st.lists(MESSAGES, max_size=2), involved_classes=CLASSES),
    min_size=1,
    max_size=4,
)
CALLS = st.lists(st.dictionaries(NAMES, JUNK, max_size=2) | NAMES | st.lists(NAMES, max_size=2) | JUNK, max_size=3)
ANSWERS = st.lists(odd_object(id=IDS, ground_truth=CALLS), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(entries=ENTRIES, answers=ANSWERS, apart=ENTRIES, functions=FUNCTIONS)
def test_whatever_the_files_hold_every_row_is_accounted_for(
    entries: list[Any], answers: list[Any], apart: list[Any], functions: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        release = Release(Path(folder))
        release.category("multiple", *entries, answers=answers)
        release.category("live_irrelevance", *apart)
        release.category("simple_python", GOOD, answers=[answer("good", {"mix": {}})])
        release.put("multi_turn_func_doc/math_api.json", *functions, MIX)
        records = read(release.root)
        assert read(release.root) == records
    report = records.report
    assert report.rows_read == report.records + sum(report.dropped.values())
    assert report.sections["entries"].rows_read == len(entries) + len(apart) + 1
    assert report.sections["answers"].rows_read == len(answers) + 1
    assert report.sections["class_functions"].rows_read == len(functions) + 1
    merged = report.notes["merged_duplicate_text"] + report.notes["merged_apart_text"]
    assert report.sections["entries"].records == len(records.tasks) + len(records.apart) + merged
    assert report.gold_pairs == sum(len(t.gold_endpoint_ids) for t in records.tasks)
