"""Endpoint pool and evidence of pairs: by hand, with an encoder whose vectors are written down; and what is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.data.records import Records
from toolshift.models.features import FeatureBank, Pairs
from toolshift.models.tact import requirements as tact_requirements
from toolshift.models.tact.evidence import ROW, EndpointTable, EvidenceStore, evidence_of
from toolshift.models.tact.requirements import requirement_texts, spans_of
from toolshift.views.corpus import build_corpus

TEXT = "get rain in Oslo"
PAIR = Pairs(task=np.zeros(1, np.int64), capability=np.zeros(1, np.int64))


def angle(cosine: float) -> list[float]:
    """A direction with this cosine to the first axis."""
    return [cosine, float(np.sqrt(1 - cosine**2))]


def evidence(bank: FeatureBank, pairs: Pairs = PAIR) -> Any:
    return EvidenceStore(bank)(pairs)


def with_copy(records: Records, of: str, *, new: str) -> Records:
    """An endpoint once more, under another id."""
    found = next(e for e in records.library.endpoints if e.endpoint_id == of)
    endpoints = sorted([*records.library.endpoints, replace(found, endpoint_id=new)], key=lambda e: e.endpoint_id)
    return replace(records, library=replace(records.library, endpoints=tuple(endpoints)))


@pytest.fixture
def bank_of(worlds: Any, make: Any) -> Any:
    """(apis of one tool, task text, vectors) -> a bank with one task and one tool."""

    def build(
        apis: Sequence[Any], vectors: Mapping[str, Sequence[float]], text: str = TEXT, copies: Mapping[str, str] = {}
    ) -> FeatureBank:
        records = worlds.records([worlds.Tool("x", "A", tuple(apis))], [worlds.Ask("t", "A", text, (("x",),))])
        for new, of in copies.items():
            records = with_copy(records, f"toy/x/{of}", new=f"toy/x/{new}")
        return make.bank(build_corpus(records)[0], vectors)

    return build


# -------------------------------------------------------------------------------------------------------------- by hand


def test_the_three_channels_by_hand(bank_of: Any, worlds: Any) -> None:
    """One requirement, the whole text. Its spans beyond itself: "get rain", "rain", "Oslo". Against "city" they have
    cosine 0, 0 and .8, the text itself 0: best .8. Against "date": nothing positive, 0. So the argument evidence is
    (.8 + 0) / 2. A string is offered, a datetime is not: type evidence 1/2."""
    vectors = {TEXT: [1, 0], "find rain": angle(0.6), "city": [0, 1], "Oslo": [0.6, 0.8], "date": [-1, 0]}
    vectors |= {"rain": [0, -1], "get rain": [0, -1]}
    assert set(spans_of(TEXT)) == {TEXT, "get rain", "rain", "Oslo"}
    (row,) = evidence(bank_of([worlds.Api("find rain", ("city", "date"))], vectors))
    assert (row["requirements"], row["endpoints"]) == (1, 1)
    assert row["operation"][0, 0] == pytest.approx(0.6, abs=1e-6)
    assert row["argument"][0, 0] == pytest.approx(0.4, abs=1e-6)
    assert row["type"][0, 0] == pytest.approx(0.5)
    assert row["has_argument"].tolist() == row["has_type"].tolist() == [True, False, False, False]
    for name in ("operation", "argument", "type"):
        assert np.count_nonzero(row[name]) == 1


def test_optional_arguments_are_no_evidence(bank_of: Any, worlds: Any) -> None:
    vectors = {TEXT: [1, 0], "find rain": angle(0.6), "city": [1, 0]}
    (row,) = evidence(bank_of([worlds.Api("find rain", (), ("city",))], vectors))
    assert not row["has_argument"].any()
    assert not row["argument"].any()


def test_an_unknown_type_is_no_evidence_and_no_mismatch(bank_of: Any, worlds: Any) -> None:
    """unit has no known type: alone it masks the channel; beside a typed one it counts as not offered."""
    vectors = {TEXT: [1, 0], "find rain": angle(0.6), "unit": [1, 0], "city": [1, 0]}
    (row,) = evidence(bank_of([worlds.Api("find rain", ("unit",))], vectors))
    assert row["has_argument"][0]
    assert not row["has_type"].any()
    assert not row["type"].any()
    (row,) = evidence(bank_of([worlds.Api("find rain", ("unit", "city"))], vectors))
    assert row["has_type"][0]
    assert row["type"][0, 0] == pytest.approx(0.5)


def test_negative_cosines_are_no_evidence(bank_of: Any, worlds: Any) -> None:
    vectors = {TEXT: [1, 0], "find rain": [-0.6, 0.8], "city": [-1, 0]}
    (row,) = evidence(bank_of([worlds.Api("find rain", ("city",))], vectors))
    assert row["endpoints"] == 1
    assert row["operation"].max() == row["argument"].max() == 0
    assert row["has_argument"][0]


def test_the_four_nearest_endpoints_are_shared_by_all_requirements(bank_of: Any, worlds: Any) -> None:
    """Two requirements on two axes; six endpoints. By the better of both cosines: f .96, b .9, a .8, d .7 | c .6, e."""
    both = ("Find the snow depth.", "Convert the wind speed.")
    directions = {"a": [0.8, 0.6], "b": [0.436, 0.9], "c": [0.6, -0.8], "d": [-0.714, 0.7], "e": [-0.8, -0.6]}
    directions["f"] = [0.96, -0.28]
    vectors: dict[str, Sequence[float]] = {f"op {n}": v for n, v in directions.items()}
    vectors |= {both[0]: [1, 0], both[1]: [0, 1]}
    text = " ".join(both)
    assert requirement_texts([text], bank=bank_of([], vectors, text)) == [both]
    (row,) = evidence(bank_of([worlds.Api(f"op {n}") for n in directions], vectors, text))
    assert (row["requirements"], row["endpoints"]) == (2, 4)
    expected = [[0.96, 0.436, 0.8, 0.0], [0.0, 0.9, 0.6, 0.7]]
    np.testing.assert_allclose(row["operation"][:2], expected, atol=1e-3)
    assert not row["operation"][2:].any()


def test_equal_endpoints_of_a_full_pool_go_by_id(bank_of: Any, worlds: Any) -> None:
    """Five endpoints with the same cosine; all but "op c" require an argument, and it comes third."""
    names = ["op a", "op b", "op c", "op d", "op e"]
    vectors: dict[str, Sequence[float]] = {n: angle(0.5) for n in names}
    apis = [worlds.Api(n, () if n == "op c" else ("city",)) for n in reversed(names)]
    (row,) = evidence(bank_of(apis, vectors | {TEXT: [1, 0]}))
    assert row["has_argument"].tolist() == [True, True, False, True]
    apis = [worlds.Api(n, () if n == "op e" else ("city",)) for n in names]
    (row,) = evidence(bank_of(apis, vectors | {TEXT: [1, 0]}))
    assert row["has_argument"].all()  # the fifth did not get in


def test_equal_endpoints_are_one(bank_of: Any, worlds: Any) -> None:
    """A copy under another id would push the weakest endpoint out of the pool and match a second requirement."""
    names = {"op a": 0.9, "op b": 0.8, "op c": 0.7, "op d": 0.6}
    vectors: dict[str, Sequence[float]] = {n: angle(c) for n, c in names.items()} | {TEXT: [1, 0]}
    apis = [worlds.Api(n, ("city",)) for n in names]
    plain = evidence(bank_of(apis, vectors))
    for new in ("op a copy", "a first"):
        copied = bank_of(apis, vectors, copies={new: "op a"})
        assert copied.corpus.endpoint_count.tolist() == [5]
        assert EndpointTable.of(copied.corpus).rows.size == 4
        np.testing.assert_array_equal(evidence(copied), plain)


@pytest.mark.parametrize(
    "change", [{"operation": "op z"}, {"description": "more"}, {"method": "POST"}, {"arguments": ()}]
)
def test_endpoints_that_differ_in_what_a_caller_sees_are_two(worlds: Any, change: Any) -> None:
    records = worlds.records([worlds.Tool("x", "A", (worlds.Api("op a", ("city",)),))], [])
    (one,) = records.library.endpoints
    endpoints = (one, replace(one, endpoint_id=f"{one.endpoint_id}/2", **change))
    records = replace(records, library=replace(records.library, endpoints=endpoints))
    assert EndpointTable.of(build_corpus(records)[0]).rows.tolist() == [0, 1]


def test_a_capability_without_endpoints_and_a_task_without_a_verb(worlds: Any, make: Any) -> None:
    tools = [worlds.Tool("bare", "A", ()), worlds.Tool("x", "A", (worlds.Api("find rain", ("city",)),))]
    asks = [worlds.Ask("t0", "A", TEXT, (("x",),)), worlds.Ask("t1", "A", "?!", (("x",),))]
    bank = make.bank(build_corpus(worlds.records(tools, asks))[0], {TEXT: [1, 0]})
    rows = evidence(bank, make.all_pairs(bank.corpus))
    assert rows["requirements"].tolist() == [1, 1, 1, 1]  # without any request the whole text is the requirement
    assert rows["endpoints"].tolist() == [0, 1, 0, 1]
    for name in ("operation", "argument", "type"):
        assert np.isfinite(rows[name]).all()
        assert not rows[name][[0, 2]].any()
    assert not rows["has_argument"][[0, 2]].any()


# --------------------------------------------------------------------------------------------------------- requirements


def test_clauses_that_mean_the_same_never_share_the_four_places(worlds: Any, make: Any) -> None:
    """Six requests, two of them alike: five are left, of which four stay; without the merge both twins would."""
    twins = "Reserve the cheapest possible seat on a plane. Book one very affordable and comfortable flight."
    rest = "Find hotels nearby. Translate the menu. Convert the currency. Check the weather."
    text = f"{twins} {rest}"
    corpus = build_corpus(worlds.records([worlds.Tool("x", "A", ())], [worlds.Ask("t", "A", text, (("x",),))]))[0]
    single = tact_requirements.requirements(text, limit=16)
    assert len(single) == 6
    axes = np.eye(5)
    vectors = dict(zip(single, (axes[0], axes[0], *axes[1:]), strict=True))
    (found,) = requirement_texts([text], bank=make.bank(corpus, vectors))
    assert len(found) == 4
    assert sum("seat" in f or "flight" in f for f in found) == 1
    assert [f for f in single if f in found] == list(found)


def test_requirements_do_not_depend_on_the_other_tasks(fixed_world: Any, shared_bank: FeatureBank) -> None:
    texts = fixed_world.corpus.task_texts
    together = requirement_texts(texts, bank=shared_bank)
    assert together == [requirement_texts([t], bank=shared_bank)[0] for t in texts]
    assert all(1 <= len(group) <= 4 for group in together)


# ------------------------------------------------------------------------------------------------ pairs and persistence


@given(data=st.data())
def test_any_part_of_the_pairs_has_the_same_bits(stages: Any, shared_bank: FeatureBank, data: Any) -> None:
    pairs = stages.pairs()
    whole = evidence_of(shared_bank)(pairs)
    index = np.array(sorted(data.draw(st.sets(st.integers(0, len(pairs) - 1), min_size=1, max_size=12))))
    alone = EvidenceStore(stages.world.bank())(pairs.take(index))
    np.testing.assert_array_equal(alone, whole[index])


def test_evidence_is_in_range_and_empty_where_there_is_nothing(stages: Any, shared_bank: FeatureBank) -> None:
    rows = evidence_of(shared_bank)(stages.pairs())
    assert rows.dtype == ROW
    exists = np.arange(4)[None, :] < rows["endpoints"][:, None]
    for name in ("operation", "argument", "type"):
        assert rows[name].min() >= 0
        assert rows[name].max() <= 1 + 1e-6
        assert not (rows[name].max(axis=1) * ~exists).any()
        assert rows[name].any()
    assert not (rows["has_type"] & ~rows["has_argument"]).any()
    assert not (rows["has_argument"] & ~exists).any()
    assert not (rows["argument"].max(axis=1) * ~rows["has_argument"]).any()
    corpus = stages.world.corpus
    assert (rows["endpoints"] <= np.minimum(corpus.endpoint_count[stages.pairs().capability], 4)).all()


@pytest.fixture
def on_disk(stages: Any, tmp_path: Path) -> Any:
    """A new bank with a folder, as another process would open it."""

    def build() -> FeatureBank:
        bank = stages.world.bank()
        bank.store = tmp_path
        return bank

    return build


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the computations from here on."""
    sizes: list[int] = []
    compute = EvidenceStore._compute

    def counted(self: EvidenceStore, pairs: Pairs, **how: Any) -> Any:
        sizes.append(len(pairs))
        return compute(self, pairs, **how)

    monkeypatch.setattr(EvidenceStore, "_compute", counted)
    return sizes


def test_a_stored_pair_is_read_and_not_computed(
    stages: Any, shared_bank: FeatureBank, on_disk: Any, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolshift.models.tact.evidence._SHARD_PAIRS", 100)
    pairs = stages.pairs().take(slice(0, 250))
    first = EvidenceStore(on_disk())(pairs)
    assert computed == [100, 100, 50]
    again = EvidenceStore(on_disk())
    np.testing.assert_array_equal(again(pairs), first)
    np.testing.assert_array_equal(first, evidence_of(shared_bank)(pairs))
    assert computed == [100, 100, 50]
    again(stages.pairs().take(slice(200, 260)))
    assert computed == [100, 100, 50, 10]


def test_two_stores_on_one_folder(stages: Any, shared_bank: FeatureBank, on_disk: Any, computed: list[int]) -> None:
    pairs = stages.pairs()
    one, other = EvidenceStore(on_disk()), EvidenceStore(on_disk())
    one(pairs.take(slice(0, 40)))
    mixed = pairs.take(slice(20, 60))
    np.testing.assert_array_equal(other(mixed), evidence_of(shared_bank)(mixed))
    assert computed == [40, 20]
    np.testing.assert_array_equal(one(mixed), other(mixed))
    assert computed == [40, 20]


@pytest.mark.parametrize("lost", ["values", "keys"])
def test_half_a_shard_is_computed_again(
    stages: Any, shared_bank: FeatureBank, on_disk: Any, computed: list[int], tmp_path: Path, lost: str
) -> None:
    pairs = stages.pairs().take(slice(0, 30))
    EvidenceStore(on_disk())(pairs)
    (keys,) = tmp_path.rglob("*.keys.npy")
    (keys if lost == "keys" else keys.with_name(keys.name.replace(".keys", ""))).unlink()
    again = EvidenceStore(on_disk())
    np.testing.assert_array_equal(again(pairs), evidence_of(shared_bank)(pairs))
    assert computed == [30, 30]
    EvidenceStore(on_disk())(pairs)
    assert computed == [30, 30]
    assert len(list(tmp_path.rglob("*.npy"))) == 2


@pytest.mark.parametrize("what", ["text", "type", "task", "encoder", "nothing"])
def test_the_folder_is_named_by_everything_that_is_read(worlds: Any, tmp_path: Path, what: str) -> None:
    tool = worlds.Tool("x", "A", (worlds.Api("find rain", ("city",)),))
    ask = worlds.Ask("t", "A", TEXT, (("x",),))
    records = worlds.records([tool], [ask])
    (endpoint,) = records.library.endpoints
    changed = records
    if what == "task":
        changed = worlds.records([tool], [replace(ask, text="get snow in Oslo")])
    elif what in ("text", "type"):
        (argument,) = endpoint.arguments
        new = {"text": {"text": "other"}, "type": {"arguments": (replace(argument, type="number"),)}}[what]
        changed = replace(records, library=replace(records.library, endpoints=(replace(endpoint, **new),)))
    folders = []
    for some in (records, changed):
        bank = worlds.of(some).bank()
        bank.store = tmp_path
        if what == "encoder" and some is changed and folders:
            bank.cache.encoder = type("Other", (worlds.WordEncoder,), {"fingerprint": "e" * 64})()
        folders.append(EvidenceStore(bank).folder)
    assert (folders[0] == folders[1]) == (what == "nothing")
