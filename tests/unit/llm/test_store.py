"""Recorded answers: keys, files, several writers, damage."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.llm.errors import StoreError
from toolshift.llm.outcomes import REASONS, Answer, Invalid, Usage
from toolshift.llm.request import Request
from toolshift.llm.store import ReplayStore, is_final


def test_the_key_is_of_model_prompt_and_parameters(kit: Any) -> None:
    base = kit.request()
    others = [
        kit.request("hello!"),
        kit.request(model="m/2"),
        kit.request(system="be long"),
        kit.request(temperature=0.5),
        kit.request(max_tokens=65),
        kit.request(seed=1),
    ]
    assert kit.request().key == base.key == kit.request(temperature=0).key
    assert len({base.key, *(r.key for r in others)}) == 7
    assert base.prompt_hash == others[1].prompt_hash == others[3].prompt_hash
    assert base.prompt_hash not in {others[0].prompt_hash, others[2].prompt_hash}
    assert kit.request("ab", system="c").key != kit.request("b", system="ca").key


def test_the_key_is_stable() -> None:
    """Another key would orphan every recorded answer."""
    request = Request(model="m", system="s", user="u", temperature=0.7, max_tokens=8)
    assert request.key == "7301e87f5bb37c9ca4b4f05df867d122e04140745375e49728907f0d2b8a34f2"


def test_half_surrogates_reach_no_server(kit: Any) -> None:
    request = kit.request("a\ud83d b")
    assert request.user == "a\ufffd b"
    json.dumps(request.body).encode()
    assert kit.request("\ud83d\ude00").user == "\U0001f600"


outcomes = st.one_of(
    st.builds(
        Answer, text=st.text(st.characters(codec="utf-8"), min_size=1), usage=st.builds(Usage, st.integers(0, 9))
    ),
    st.builds(Invalid, reason=st.sampled_from(REASONS), detail=st.text(st.characters(codec="utf-8"))),
)


@given(outcome=outcomes)
def test_what_is_put_is_got(outcome: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    store = ReplayStore(tmp_path_factory.mktemp("store"))
    request = Request(model="m", system="s", user="u", temperature=0.0, max_tokens=8)
    assert store.get(request) is None
    assert store.put(request, outcome) == outcome
    assert store.get(request) == outcome


def test_files(kit: Any, tmp_path: Path) -> None:
    store, request = ReplayStore(tmp_path), kit.request()
    assert not store.has_model("m/1")
    store.put(request, Answer(text="fine"))
    path = tmp_path / "m%2F1" / request.key[:2] / f"{request.key}.json"
    content = json.loads(path.read_text())
    assert content["model"] == "m/1"
    assert content["prompt_sha256"] == request.prompt_hash
    assert content["parameters"] == {"temperature": 0.0, "max_tokens": 64, "seed": None}
    assert content["outcome"]["text"] == "fine"
    assert store.has_model("m/1")
    assert not store.has_model("m")
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == sorted([".lock", path.name])


def test_the_first_final_outcome_stays(kit: Any, tmp_path: Path) -> None:
    store, request = ReplayStore(tmp_path), kit.request()
    assert store.put(request, Invalid(reason="timeout")) == Invalid(reason="timeout")
    assert store.put(request, Invalid(reason="unreachable")) == Invalid(reason="unreachable")
    assert store.put(request, Answer(text="one")) == Answer(text="one")
    assert store.put(request, Answer(text="two")) == Answer(text="one")
    assert store.put(request, Invalid(reason="cut")) == Answer(text="one")
    assert [r for r in REASONS if not is_final(Invalid(reason=r))] == [  # type: ignore[arg-type]
        "unreachable",
        "server_error",
        "rate_limited",
        "timeout",
    ]


def _write(root: Path, writer: int) -> list[str]:
    store = ReplayStore(root)
    kept = []
    for i in range(20):
        request = Request(model="m", system="s", user=str(i), temperature=0.0, max_tokens=8)
        outcome = store.put(request, Answer(text=f"writer {writer}"))
        assert isinstance(outcome, Answer)
        kept.append(outcome.text)
    return kept


def test_several_writers_agree(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        first, second = pool.starmap(_write, [(tmp_path, 0), (tmp_path, 1)])
    assert first == second
    assert len(list(tmp_path.rglob("*.json"))) == 20
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("change", ["", "{", "[]", '{"format": 1}', "other key", "other format", "other reason"])
def test_a_damaged_file_is_named(kit: Any, tmp_path: Path, change: str) -> None:
    store, request = ReplayStore(tmp_path), kit.request()
    store.put(request, Invalid(reason="cut"))
    path = store.path(request)
    whole = path.read_text()
    edits = {
        "other key": whole.replace(request.key, "0" * 64),
        "other format": whole.replace('"format": 1', '"format": 2'),
        "other reason": whole.replace('"cut"', '"tired"'),
    }
    path.write_text(edits.get(change, change))
    assert path.read_text() != whole
    with pytest.raises(StoreError, match="delete this file") as caught:
        store.get(request)
    assert path.name in str(caught.value)
    assert caught.value.user_facing
