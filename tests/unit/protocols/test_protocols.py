"""The other protocols: targets, contexts and sources of tasks written out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from toolshift.data.merge import merged
from toolshift.protocols import fixed_split, in_domain, leave_one_dataset_out, leave_one_group_out, leave_one_out
from toolshift.protocols.folds import TASK_ROLES, FoldTable, SourceRules, fold_table
from toolshift.protocols.leakage import Leakage
from toolshift.protocols.partition import Partition, ProtocolError
from toolshift.views.corpus import Corpus, build_corpus


def renamed(records: Any, dataset: str) -> Any:
    """The same records under another dataset's name."""

    def moved(value: str) -> str:
        return value.replace("toy/", f"{dataset}/", 1)

    library = records.library
    capabilities = tuple(
        replace(c, dataset=dataset, capability_id=moved(c.capability_id)) for c in library.capabilities
    )
    endpoints = tuple(
        replace(e, endpoint_id=moved(e.endpoint_id), capability_id=moved(e.capability_id)) for e in library.endpoints
    )
    tasks = tuple(
        replace(
            t,
            dataset=dataset,
            task_id=moved(t.task_id),
            gold_capability_ids=tuple(map(moved, t.gold_capability_ids)),
            gold_endpoint_ids=tuple(map(moved, t.gold_endpoint_ids)),
        )
        for t in records.tasks
    )
    return replace(records, dataset=dataset, library=type(library)(capabilities, endpoints), tasks=tasks)


@pytest.fixture
def three(worlds: Any) -> Any:
    """Datasets x, y, z. y0 asks what x0 asks in other spelling; y1 needs a tool that x also has; z has no domains."""
    tool, ask = worlds.Tool, worlds.Ask
    x = worlds.records(
        [tool("p", "A", (), "Finds the rain"), tool("q", "B", (), "sends letters")],
        [ask("x0", "A", "find the rain", (("p",),)), ask("x1", "B", "send it", (("q",),))],
    )
    y = worlds.records(
        [tool("r", "A", (), "plays music"), tool("s", "A", (), "finds the rain!")],
        [ask("y0", "A", "Find the rain!", (("r",),)), ask("y1", "A", "rainy weather", (("s",),))],
    )
    z = worlds.records([tool("t", "", (), "books trains")], [ask("z0", "", "a train to the sea", (("t",),))])
    return merged([renamed(z, "z"), renamed(x, "x"), renamed(y, "y")])


def table(records: Any, partition: Any, worlds: Any, **rules: Any) -> tuple[Corpus, FoldTable]:
    corpus, labels = build_corpus(records)
    encoder = worlds.WordEncoder()
    found = fold_table(
        partition(corpus),
        corpus,
        labels,
        rules=SourceRules(**rules),
        task_vectors=encoder.encode(corpus.task_texts),
        capability_vectors=encoder.encode(corpus.capability_texts),
    )
    return corpus, found


def roles(corpus: Corpus, found: FoldTable, target: str) -> dict[str, set[str]]:
    """Roles that some task has, with the tasks."""
    named = {r: {corpus.task_ids[i].split("/")[1] for i in found.rows(target, role=r)} for r in TASK_ROLES}
    return {role: names for role, names in named.items() if names}


def test_merged_records_keep_datasets_apart(three: Any) -> None:
    corpus, _ = build_corpus(three)
    assert three.dataset == "x+y+z"
    assert [p.name for p in corpus.parts] == ["x", "y", "z"]
    assert corpus.domains == ("x/A", "x/B", "y/A", "z")
    assert corpus.task_part.tolist() == [0, 0, 1, 1, 2]
    assert corpus.capability_part.tolist() == [0, 0, 1, 1, 2]
    assert [corpus.domains[d] for d in corpus.task_domain] == ["x/A", "x/B", "y/A", "y/A", "z"]
    assert corpus.capability_domain.tolist() == [0, 1, 2, 2, -1]


@pytest.mark.parametrize(
    ("dedup", "expected"),
    [
        ("none", {"test": {"x0", "x1"}, "train": {"y0", "y1", "z0"}}),
        (
            "exact",
            {"test": {"x0", "x1"}, "train": {"z0"}, "duplicate_task": {"y0"}, "duplicate_tool": {"y1"}},
        ),
    ],
)
def test_datasets_are_held_out_and_duplicates_dropped(
    three: Any, worlds: Any, dedup: str, expected: dict[str, set[str]]
) -> None:
    corpus, found = table(three, leave_one_dataset_out.partition, worlds, dedup=dedup)
    assert found.targets == found.context_names == ("x", "y", "z")
    assert roles(corpus, found, "x") == expected
    assert found.held_out_contexts("x") == ("x",)
    assert roles(corpus, found, "z")["test"] == {"z0"}


def test_a_cap_keeps_the_same_tasks_of_every_source(three: Any, worlds: Any) -> None:
    corpus, found = table(three, leave_one_dataset_out.partition, worlds, max_tasks=1)
    for target in ("x", "y", "z"):
        kept = roles(corpus, found, target)
        sources = {"x", "y", "z"} - {target}
        assert {name[0] for name in kept["train"]} == sources
        assert len(kept["train"]) == 2
    kept_of_x = roles(corpus, found, "z")["train"] & {"x0", "x1"}
    assert kept_of_x == roles(corpus, found, "y")["train"] & {"x0", "x1"}


def test_one_dataset_cannot_be_left_out(worlds: Any) -> None:
    records = worlds.records([worlds.Tool("p", "A", ())], [worlds.Ask("a", "A", "x", (("p",),))])
    with pytest.raises(ProtocolError, match="leave_one_dataset_out needs at least two datasets with tasks, toy has 1"):
        table(records, leave_one_dataset_out.partition, worlds)


def leaks(three: Any, worlds: Any, *, at_least: float = 0.95) -> tuple[Corpus, Leakage]:
    corpus, _ = build_corpus(three)
    encoder = worlds.WordEncoder()
    vectors = encoder.encode(corpus.task_texts), encoder.encode(corpus.capability_texts)
    return corpus, Leakage(corpus, *vectors, at_least=at_least)


def test_leakage_counts_both_sides(three: Any, worlds: Any) -> None:
    corpus, found = leaks(three, worlds, at_least=2.0)
    target = np.flatnonzero(corpus.task_part == 0)
    rows = {(what, level, side): (n, of) for what, level, side, n, of in found.rows(target)}
    assert rows["tasks", "exact", "source"] == (0, 3)
    assert rows["tasks", "normalised", "source"] == (1, 3)
    assert rows["tasks", "normalised", "target"] == (1, 2)
    assert rows["tools", "normalised", "source"] == (1, 3)
    assert rows["tools", "normalised", "target"] == (1, 2)
    assert rows["tools", "near", "target"] == rows["tools", "normalised", "target"]


def test_near_texts_are_found_by_cosine(three: Any, worlds: Any) -> None:
    corpus, found = leaks(three, worlds, at_least=0.6)
    near = found.of(np.flatnonzero(corpus.task_part == 2), level="near")
    vectors = worlds.WordEncoder().encode(corpus.task_texts)
    expected = vectors[:4] @ vectors[4] >= 0.6
    np.testing.assert_array_equal(near.source_tasks, [*expected, False])
    assert near.target_tasks.tolist() == [False] * 4 + [bool(expected.any())]


GROUPS = {"first": ["D0", "D1"], "second": ["D2", "D9"]}


def test_groups_hold_out_domains_together(worlds: Any) -> None:
    world = worlds.of(worlds.fixed())
    groups = {**GROUPS, "second": ["D2", "D3", "D9"]}
    found = leave_one_group_out.partition(world.corpus, groups=groups, others="refuse")
    assert found.targets == ("first", "second")
    named = [world.corpus.domains[d] for d in world.corpus.task_domain]
    assert [found.targets[t] for t in found.target_of] == ["first" if d in ("D0", "D1") else "second" for d in named]
    assert found.context_names == world.corpus.domains
    table = fold_table(
        found, world.corpus, world.labels, rules=SourceRules(),
        task_vectors=world.task_vectors, capability_vectors=world.capability_vectors,
    )  # fmt: skip
    assert table.held_out_contexts("first") == ("D0", "D1")


def test_domains_outside_the_groups_are_refused_or_dealt(worlds: Any) -> None:
    corpus = worlds.of(worlds.fixed()).corpus
    with pytest.raises(ProtocolError, match="domain 'D3' is in no group"):
        leave_one_group_out.partition(corpus, groups=GROUPS, others="refuse")
    dealt = leave_one_group_out.partition(corpus, groups=GROUPS, others="by_hash")
    of_d3 = np.unique(dealt.target_of[corpus.task_domain == corpus.domains.index("D3")])
    assert of_d3.size == 1
    assert (dealt.target_of >= 0).all()


@pytest.mark.parametrize(
    ("groups", "others", "message"),
    [
        ({"a": ["D0"], "b": ["D0"]}, "by_hash", "in the groups 'a' and 'b'"),
        ({"a": ["D0", "D1", "D2", "D3"]}, "refuse", "at least two groups with tasks"),
        (GROUPS, "ignore", "expected one of refuse, by_hash"),
    ],
)
def test_unusable_groups(worlds: Any, groups: dict[str, list[str]], others: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        leave_one_group_out.partition(worlds.of(worlds.fixed()).corpus, groups=groups, others=others)


def test_leave_one_out_has_a_target_per_task(three: Any) -> None:
    corpus, _ = build_corpus(three)
    found = leave_one_out.partition(corpus, max_tasks=5)
    assert found.targets == tuple(sorted(t.replace("/", "~") for t in corpus.task_ids))
    assert [found.targets[t] for t in found.target_of] == [t.replace("/", "~") for t in corpus.task_ids]
    with pytest.raises(ProtocolError, match=r"needs 2 to protocol\.params\.max_tasks=4 tasks, x\+y\+z has 5"):
        leave_one_out.partition(corpus, max_tasks=4)


def split(records: Any, names: dict[str, str]) -> Corpus:
    tasks = tuple(replace(t, split=names[t.task_id.split("/")[1]]) for t in records.tasks)
    return build_corpus(replace(records, tasks=tasks))[0]


def test_a_fixed_split_uses_the_release(three: Any) -> None:
    corpus = split(three, {"x0": "train", "x1": "test", "y0": "train", "y1": "dev", "z0": "train"})
    found = fixed_split.partition(corpus, train=["train"], test=["test"], contexts=2)
    assert found.targets == ("test",)
    assert found.target_of.tolist() == [-1, 0, -1, -1, -1]
    assert found.may_train.tolist() == [True, False, True, False, True]
    assert found.context_names == (*corpus.domains, "test split")
    assert [found.context_names[c] for c in found.contexts] == ["x/A", "test split", "y/A", "y/A", "z"]


def test_a_fixed_split_without_domains_deals_contexts_by_hash(worlds: Any) -> None:
    asks = [worlds.Ask(f"t{i}", "", f"task {i}", (("p",),)) for i in range(40)]
    records = worlds.records([worlds.Tool("p", "", ())], asks)
    corpus = split(records, {f"t{i}": "test" if i < 4 else "train" for i in range(40)})
    found: Partition = fixed_split.partition(corpus, train=["train"], test=["test"], contexts=3)
    assert found.context_names == ("group 0", "group 1", "group 2", "test split")
    assert set(found.contexts[4:].tolist()) | set(found.contexts[:4].tolist()) == {0, 1, 2, 3}
    assert [found.context_names[c] == "test split" for c in found.contexts] == [t == 0 for t in found.target_of]


def test_training_tasks_of_one_domain_are_dealt_by_hash_too(three: Any) -> None:
    """Domains of tools and of test tasks do not count: selection holds out contexts of training tasks."""
    corpus = split(three, {"x0": "test", "x1": "test", "y0": "train", "y1": "train", "z0": "test"})
    found = fixed_split.partition(corpus, train=["train"], test=["test"], contexts=2)
    assert found.context_names == ("group 0", "group 1", "test split")


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (["train"], ["tset"], r"no split 'tset'.*splits of x\+y\+z \(tasks\): test 1, train 4"),
        (["train"], ["train"], "'train' is on both sides"),
        ([], ["test"], "a side is empty"),
    ],
)
def test_unusable_splits(three: Any, train: list[str], test: list[str], message: str) -> None:
    corpus = split(three, {"x0": "test", "x1": "train", "y0": "train", "y1": "train", "z0": "train"})
    with pytest.raises(ProtocolError, match=message):
        fixed_split.partition(corpus, train=train, test=test, contexts=2)
    with pytest.raises(ProtocolError, match="contexts must be at least 2, got 1"):
        fixed_split.partition(corpus, train=["train"], test=["test"], contexts=1)


def test_in_domain_draws_a_share_whatever_the_other_tasks(worlds: Any) -> None:
    names = [f"t{i:03d}" for i in range(400)]
    tools = [worlds.Tool("p", "", ())]
    corpus, _ = build_corpus(
        worlds.records(tools, [worlds.Ask(n, "ABC"[i % 3], n, (("p",),)) for i, n in enumerate(names)])
    )
    found = in_domain.partition(corpus, share=0.25, contexts=2)
    held_out = found.target_of == 0
    assert 70 <= held_out.sum() <= 130  # within four deviations of 100
    assert found.targets == ("test",)
    assert (found.may_train == ~held_out).all()
    assert {found.context_names[c] for c in found.contexts[held_out]} == {"test split"}
    assert {found.context_names[c] for c in found.contexts[~held_out]} == {"A", "B", "C"}
    fewer, _ = build_corpus(worlds.records(tools, [worlds.Ask(n, "A", n, (("p",),)) for n in names[::2]]))
    again = in_domain.partition(fewer, share=0.25, contexts=2)
    assert (again.target_of == found.target_of[::2]).all()
    assert again.context_names == ("group 0", "group 1", "test split")


@pytest.mark.parametrize(("share", "contexts"), [(0.0, 2), (1.0, 2), (0.2, 1)])
def test_in_domain_refuses_what_leaves_no_sources(three: Any, share: float, contexts: int) -> None:
    with pytest.raises(ProtocolError, match="share must lie between 0 and 1"):
        in_domain.partition(build_corpus(three)[0], share=share, contexts=contexts)


def test_dataset_names_that_sort_unlike_their_ids(worlds: Any) -> None:
    """ "m-2/..." stands before "m/..." since "-" is smaller than a slash."""
    records = worlds.records([worlds.Tool("p", "A", ())], [worlds.Ask("t", "A", "x", (("p",),))])
    corpus, _ = build_corpus(merged([renamed(records, "m"), renamed(records, "m-2")]))
    assert [corpus.task_ids[p.tasks] for p in corpus.parts] == [(f"{p.name}/t",) for p in corpus.parts]
