"""The public API: ranking, margins, adding and removing, refusals, and every example of its documentation."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolshift
from toolshift import api
from toolshift.api import LONGEST_QUERY, NEAR_TIE, Ranker, checked_query
from toolshift.data.records import Capability, Library
from toolshift.experiment.method import Method, Sources, moved
from toolshift.experiment.tool_index import ToolIndex
from toolshift.models.frozen.semantic_cosine import SemanticCosine
from toolshift.models.tact.path import Path as TactPath
from toolshift.models.tact.profiles import Lookup, Profiles, ProfileSettings
from toolshift.models.tact.support import FittedSupport
from toolshift.text.hashing import Hashing

ROOT = Path(__file__).resolve().parents[2]
TOOLS = [
    {"name": "get_weather", "description": "Weather forecast for a city."},
    {"name": "book_table", "description": "Reserve a table in a restaurant."},
    {"name": "send_mail", "description": "Send an e-mail to somebody."},
]


def hashing(scorer: Any = None, *, name: str = "semantic_cosine", sources: Sources | None = None) -> Method:
    return Method(
        name=name,
        scorer=scorer or SemanticCosine(),
        encoder=Hashing(batch_size=1),
        max_truncated_share=1.0,
        about=name,
        sources=sources,
    )


@pytest.fixture
def ranker(tmp_path: Path) -> Ranker:
    return Ranker(method=hashing(), cache=tmp_path).index(TOOLS)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:
        call()
    assert getattr(caught.value, "user_facing", False), repr(caught.value)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_scores_are_the_cosines_of_the_public_texts_and_margins_their_differences(ranker: Ranker) -> None:
    query, encoder = "forecast of the weather", Hashing()
    found = ranker.rank(query, k=3)
    texts = {c.capability_id: c.text for c in ranker.tools.capabilities}
    vector = encoder.encode([query])[0]
    for place, one in enumerate(found, start=1):
        assert one.rank == place
        assert one.score == pytest.approx(float(encoder.encode([texts[one.tool_id]])[0] @ vector), abs=2e-6)
    assert found[0].tool_id == "tools/get_weather"
    assert [one.margin for one in found[:2]] == [found[0].score - found[1].score, found[1].score - found[2].score]
    assert found[2].margin is None
    assert ranker.rank(query, k=1) == found[:1]


def test_equal_tools_tie_and_are_ordered_by_id(tmp_path: Path) -> None:
    twins = [
        {"name": "b", "description": "x y"},
        {"name": "b", "description": "x y", "parameters": {"properties": {"q": {}}}},
    ]
    ranker = Ranker(method=hashing(), cache=tmp_path).index(twins)
    answer = ranker.answer("x y", k=5)
    first, second = answer.ranked
    assert (first.tool_id, second.tool_id) == ("tools/b", "tools/b#2")
    assert (first.score, first.margin, first.is_near_tie) == (second.score, 0.0, True)
    assert answer.notes == ("near tie: 'b' has the same score as 'b'", "asked for 5 tools, the index holds 2")


def test_a_clear_winner_is_no_near_tie(ranker: Ranker) -> None:
    answer = ranker.answer("weather forecast for a city", k=1)
    assert answer.ranked[0].margin is not None and answer.ranked[0].margin >= NEAR_TIE
    assert answer.notes == ()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 14))
def test_the_best_are_those_of_a_full_sort(values: list[int], count: int) -> None:
    scores = np.array(values, np.float64)
    whole = sorted(range(len(values)), key=lambda i: (-values[i], i))
    assert api._order(scores, count) == whole[:count]


def test_adding_and_removing_give_what_indexing_the_rest_gives(ranker: Ranker, tmp_path: Path) -> None:
    new = {"name": "aaa_first", "description": "Weather of the sea."}
    assert ranker.add(new) == ("tools/aaa_first",)
    ranker.remove("book_table")
    other = Ranker(method=hashing(), cache=tmp_path / "other").index([TOOLS[2], new, TOOLS[0]])
    assert ranker.tools == other.tools
    for query in ("weather", "table in a restaurant"):
        assert ranker.rank(query, k=9) == other.rank(query, k=9)


def test_what_was_embedded_once_is_read_from_disk(ranker: Ranker, tmp_path: Path, monkeypatch: Any) -> None:
    before = sorted(path.name for path in tmp_path.rglob("shard-*"))
    ranker.rank("a request leaves nothing behind")
    monkeypatch.setattr(Hashing, "_encode", lambda *_: pytest.fail("encoded again"))
    Ranker(method=hashing(), cache=tmp_path).index(TOOLS[::-1])
    assert sorted(path.name for path in tmp_path.rglob("shard-*")) == before


@pytest.mark.parametrize("model", ["semantic_cosine", "bm25", "endpoint_schema_match", "rrf"])
def test_models_by_name_and_many_requests_as_one_by_one(model: str, tmp_path: Path) -> None:
    ranker = toolshift.load(model, encoder="hashing", cache=tmp_path).index(TOOLS)
    queries = ["the weather in a city", "a table", "mail somebody", "the weather in a city"]
    assert [a.ranked for a in ranker.answers(queries, 3)] == [ranker.rank(query, 3) for query in queries]
    assert ranker.rank("weather forecast")[0].name == "get_weather"
    explained = ranker.explain("weather forecast", "get_weather")
    assert sum(part.added for part in explained.why.parts) == pytest.approx(explained.tool.score)
    assert explained.why.shared_words == ("weather", "forecast")
    assert explained.why.operations[0].operation == "get_weather"


# ------------------------------------------------------------------------------------------------------------- refusals


def test_bad_requests(ranker: Ranker) -> None:
    assert "the request is empty" in refused(lambda: ranker.rank(" \n"))
    assert f"at most {LONGEST_QUERY} are read" in refused(lambda: ranker.rank("x" * (LONGEST_QUERY + 1)))
    assert "expected a text, got int" in refused(lambda: ranker.rank(3))  # type: ignore[arg-type]
    for k in (0, -1, True, 2.0):
        assert "expected a whole number of at least 1" in refused(lambda k=k: ranker.rank("x", k=k))  # type: ignore[arg-type]
    assert len(ranker.rank("x" * LONGEST_QUERY)) == 3
    assert checked_query(" broken \ud800 half ") == "broken \ufffd half"


def test_bad_tools_leave_the_index_as_it_was(ranker: Ranker) -> None:
    before = ranker.tools
    taken = refused(lambda: ranker.add([{"name": "new", "parameters": {}}, TOOLS[0]]))
    assert taken == (
        "tools/get_weather: the index has such a tool already; remove the old one first, or give the new one another "
        "name"
    )
    assert "did you mean 'get_weather'" in refused(lambda: ranker.remove(["send_mail", "get_wether"]))
    assert "no tools found" in refused(lambda: ranker.add([]))
    assert "no such tool" in refused(lambda: ranker.explain("x", "nothing"))
    assert ranker.tools == before


def test_a_name_that_two_tools_have_needs_the_id(ranker: Ranker) -> None:
    ranker.index([*TOOLS, {"name": "send_mail", "description": "Another one."}])
    assert "2 tools have this name: tools/send_mail, tools/send_mail#2" in refused(
        lambda: ranker.remove("send_mail#"[:-1])
    )
    ranker.remove("tools/send_mail#2")
    assert len(ranker.tools.capabilities) == 3


def test_no_tools(ranker: Ranker) -> None:
    assert "call index(tools) first" in refused(lambda: Ranker(method=hashing(), cache=Path("x")).rank("x"))
    ranker.remove([c.capability_id for c in ranker.tools.capabilities])
    assert "the index holds no tools" in refused(lambda: ranker.rank("x"))
    assert ranker.add(TOOLS[0]) == ("tools/get_weather",)
    assert len(ranker.rank("x")) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"run_or_model": "semantic_cosin"}, "did you mean 'semantic_cosine'"),
        ({"run_or_model": ""}, "a run's hash or folder, or the name of a model"),
        ({"run_or_model": "tact"}, "tact learns, so it needs a finished run"),
        ({"run_or_model": "bm25", "target": "Cars"}, "has no target and no seed"),
        ({"run_or_model": "bm25", "encoder": "minilmm"}, "did you mean 'minilm'"),
    ],
)
def test_what_cannot_be_loaded(arguments: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert said in refused(lambda: toolshift.load(**arguments, outputs=tmp_path, cache=tmp_path))


# -------------------------------------------------------------------------------------------- what a fit knows of tools

SPACE = ProfileSettings(count=1, kind="kmeans", temperature=0.1, prior=5.0, support=5.0, space="raw", lookup="id")


def supported(lookup: Lookup) -> tuple[TactPath, Sources]:
    """A fit of the anchor and source support, with 5 records of run/b and 15 of run/d: S = 1/2 and 3/4."""
    profiles = Profiles(
        settings=ProfileSettings(
            count=1, kind="kmeans", temperature=0.1, prior=5.0, support=5.0, space="raw", lookup=lookup
        ),
        centroids=Hashing().encode(["anything"]),
        base=np.ones(1),
        mean_routing=np.ones(1),
        capabilities=np.array([1, 3]),
        counts=np.array([[5.0], [15.0]]),
        contexts=np.array([1.0, 2.0]),
        n_contexts=2,
        numbers=np.arange(1),
    )
    path = TactPath(space="raw", contexts_seen=("c",)).then(
        FittedSupport(strength=1.0, signal="popularity", profiles=profiles)
    )
    texts = {"a": "alpha", "b": "boats on the sea", "c": "gamma", "d": "dark rooms"}
    library = tuple(
        Capability(capability_id=f"run/{key}", dataset="run", name=key, text=text) for key, text in texts.items()
    )
    return path, Sources(capabilities=library, mean=None, std=None)


def test_records_follow_their_capability_to_its_new_row() -> None:
    path, _ = supported("id")
    (stage,) = moved(path, {3: 0, 1: 7}).stages
    assert isinstance(stage, FittedSupport)
    assert stage.profiles.capabilities.tolist() == [0, 7]
    assert stage.profiles.counts.tolist() == [[15.0], [5.0]]
    assert stage.profiles.contexts.tolist() == [2.0, 1.0]
    (stage,) = moved(path, {1: 2}).stages
    assert isinstance(stage, FittedSupport)
    assert stage.profiles.counts.tolist() == [[5.0]]


def index_of(lookup: Lookup, tmp_path: Path, tools: tuple[Capability, ...]) -> ToolIndex:
    path, sources = supported(lookup)
    method = hashing(path, name="tact", sources=sources)
    return ToolIndex.of(Library(tools, ()), method, cache=tmp_path)


def own(dataset: str, name: str, text: str) -> Capability:
    return Capability(capability_id=f"{dataset}/{name}", dataset=dataset, name=name, text=text)


def test_by_id_a_known_capability_has_its_records_and_a_new_one_gets_exactly_nothing(tmp_path: Path) -> None:
    query = "boats"
    plain = ToolIndex.of(
        Library((own("run", "d", "dark rooms"), own("run", "x", "boats on the sea")), ()), hashing(), cache=tmp_path
    )
    index = index_of("id", tmp_path, plain.library.capabilities)
    (cosines,), (scores,) = plain.scores([query]), index.scores([query])
    assert scores - cosines == pytest.approx([15 / 20, 0.0], abs=2e-6)


def test_by_similarity_a_new_tool_takes_over_records(tmp_path: Path) -> None:
    tools = (own("tools", "ferry", "boats on the sea"), own("tools", "zzz", "xylophone quiz"))
    (cosines,) = ToolIndex.of(Library(tools, ()), hashing(), cache=tmp_path).scores(["boats"])
    (scores,) = index_of("similarity", tmp_path, tools).scores(["boats"])
    added = scores - cosines
    assert 0.5 <= added[0] <= 0.75  # mostly those of the capability with the same text: S = 1/2
    assert added[1] == pytest.approx(0.0, abs=2e-6)  # nothing is similar enough


def test_in_aligned_coordinates_tools_are_standardised_among_themselves_and_requests_by_the_run(tmp_path: Path) -> None:
    encoder, generator = Hashing(), np.random.default_rng(0)
    mean, std = generator.normal(size=encoder.dim), generator.uniform(0.5, 2.0, size=encoder.dim)
    tools = tuple(own("tools", name, f"{name} of the house") for name in ("doors", "lights", "windows"))
    sources = Sources(capabilities=(), mean=mean, std=std)
    path = TactPath(space="aligned", contexts_seen=())
    index = ToolIndex.of(Library(tools, ()), hashing(path, name="tact", sources=sources), cache=tmp_path)
    (scores,) = index.scores(["open the doors"])

    def unit(x: Any) -> Any:
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    vectors = encoder.encode([tool.text for tool in tools]).astype(np.float64)
    query = (encoder.encode(["open the doors"])[0] - mean) / (std + 1e-6)
    rows = (vectors - vectors.mean(axis=0)) / (vectors.std(axis=0) + 1e-6)
    assert scores == pytest.approx(unit(rows) @ unit(query), abs=1e-5)


# ---------------------------------------------------------------------------------------------------- documentation


def test_importing_the_public_names_imports_nothing_heavy() -> None:
    code = """
import sys, toolshift
assert callable(toolshift.load) and toolshift.Ranker.__name__ == "Ranker"
heavy = {"torch", "sentence_transformers", "transformers", "numpy", "pandas", "sklearn"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = toolshift.lod


def test_the_example_of_the_module_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(api, raise_on_error=True).attempted >= 4


@pytest.mark.slow
def test_the_guide_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "your_tools.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.S | re.M)
    tools, python = (next(body for name, body in blocks if name == kind) for kind in ("json", "python"))
    commands = [line for name, body in blocks if not name for line in body.splitlines()]
    monkeypatch.chdir(tmp_path)
    Path("tools.json").write_text(tools)
    Path("scripts").symlink_to(ROOT / "scripts")
    exec(compile(python, "guide", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1 get_forecast ")
    assert lines[2] == "tools/play_music"
    assert lines[-1] == "2"

    kept = [c for c in commands if "run=" not in c and c.startswith(("printf", "python scripts/rank.py tools="))]
    assert len(kept) == 3
    script = "\n".join(command.replace("python ", f"{sys.executable} ", 1) for command in kept)
    where = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=240, check=False, env=where)
    assert done.returncode == 0, done.stderr
    assert "  1 tools/get_forecast " in done.stdout
    assert "why tools/get_forecast: rank 1 of 3" in done.stdout
    answers = Path("answers.jsonl").read_text().splitlines()
    assert ['"name": "send_mail"' in answers[0], '"name": "set_light"' in answers[1]] == [True, True]
    assert '"id": "a"' in answers[0] and '"id": 2' in answers[1]
