"""TREC files: distinct ranks under our tie rule, whatever scores and ids look like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolshift.experiment.export import export_trec, qrels_lines, ranking, run_lines, tie_keys, trec_id
from toolshift.measures import evaluate_lists
from toolshift.runs.files import write_json
from toolshift.runs.seeds import id_hashes, keyed_hash, seed_of
from toolshift.views.manifest import write_table

MEASURES = ("MRR", "NDCG@5", "HR@3")


def table(rows: list[tuple[str, str, float]]) -> pa.Table:
    task, capability, score = zip(*rows, strict=True)
    return pa.table(
        {
            "task_id": pa.array(task).dictionary_encode(),
            "capability_id": pa.array(capability).dictionary_encode(),
            "score": list(score),
        }
    )


def test_lines_by_hand() -> None:
    lines = list(run_lines(table([("q2", "a", -1.0), ("q1", "b", 0.25), ("q2", "c", 3.0), ("q1", "a", 0.5)]), tag="m"))
    assert lines == ["q1 Q0 a 1 2 m\n", "q1 Q0 b 2 1 m\n", "q2 Q0 c 1 2 m\n", "q2 Q0 a 2 1 m\n"]


def test_ties_follow_the_keyed_hash_and_differences_below_the_grid_are_ties() -> None:
    documents = [f"d{i}" for i in range(6)]
    hashes = keyed_hash(seed_of("ties"), id_hashes(["q"])[0], id_hashes(documents))
    expected = [documents[i] for i in np.argsort(hashes)]
    scores = [0.5 + 1e-12 * i for i in range(6)]
    lines = run_lines(table([("q", d, s) for d, s in zip(documents, scores, strict=True)]), tag="m")
    assert [line.split()[2] for line in lines] == expected
    apart = run_lines(table([("q", d, 2e-9 * i) for i, d in enumerate(documents)]), tag="m")
    assert [line.split()[2] for line in apart] == documents[::-1]


lists = st.lists(
    st.integers(2, 8).flatmap(
        lambda n: st.tuples(
            st.lists(st.sampled_from([0.0, 0.5, 0.5 + 1e-12, 1.0, -3.0]), min_size=n, max_size=n),
            st.lists(st.booleans(), min_size=n, max_size=n).filter(any),
        )
    ),
    min_size=1,
    max_size=4,
)


@given(lists)
def test_the_exported_order_has_the_values_of_the_hashed_tie_rule(cases: list[tuple[list[float], list[bool]]]) -> None:
    tasks = [f"q{i}" for i in range(len(cases))]
    task = np.repeat(np.arange(len(cases)), [len(s) for s, _ in cases])
    capability = np.concatenate([np.arange(len(s)) for s, _ in cases])
    names = [f"d{i}" for i in range(8)]
    scores = np.concatenate([s for s, _ in cases])
    relevant = np.concatenate([np.array(r, bool) for _, r in cases])
    offsets = np.cumsum([0, *(len(s) for s, _ in cases)])
    keys = tie_keys(tasks, names, task=task, capability=capability)
    order = ranking(scores, task=task, keys=keys)
    exported = np.empty(len(order))
    exported[order] = -np.arange(len(order), dtype=float)
    ours = evaluate_lists(scores, relevant, offsets=offsets, measures=MEASURES, ties="keys", tie_keys=keys)
    theirs = evaluate_lists(exported, relevant, offsets=offsets, measures=MEASURES)
    for name in MEASURES:
        np.testing.assert_array_equal(ours.values[name], theirs.values[name])


@given(st.lists(st.text(max_size=6), unique=True))
def test_ids_have_no_blanks_and_stay_different(names: list[str]) -> None:
    written = [trec_id(name) for name in names]
    assert len(set(written)) == len(names)
    assert not any(len(name.split()) > 1 for name in written)


def test_qrels_hold_the_scored_tasks_alone() -> None:
    manifest = pa.table(
        {
            "task_id": ["q1", "q1", "q2"],
            "capability_id": ["a b", "c", "c"],
            "role": pa.array(["positive", "semantic", "positive"]).dictionary_encode(),
        }
    )
    assert list(qrels_lines(manifest, tasks={"q1"})) == ["q1 0 a%20b 1\n", "q1 0 c 0\n"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two seeds, two targets, two views; a third task is in a manifest but was not scored."""
    write_json(tmp_path / "run.json", {"model": "m", "seeds": [7, 8]})
    for target, query in (("A", "q1"), ("B", "q2")):
        for seed in (7, 8):
            rows = [(query, "x", float(seed)), (query, "y", 7.5)]
            both = pa.concat_tables(
                [table(rows).add_column(0, "view", pa.array([v] * 2)) for v in ("mixed", "natural")]
            )
            write_table(tmp_path / "scores" / target / f"seed={seed}.parquet", both)
    manifest = {"task_id": ["q1", "q1", "q2", "q2", "q3"], "capability_id": ["x", "y", "x", "y", "x"]}
    for view in ("mixed", "natural"):
        role = ["positive", "ordinary", "ordinary", "positive", "positive"]
        write_table(tmp_path / "manifests" / f"{view}.parquet", pa.table({**manifest, "role": role}))
    return tmp_path


def test_a_run_is_exported_once_with_one_file_per_seed(run: Path) -> None:
    written = export_trec(run)
    names = ["mixed.qrels", "mixed.run", "mixed.seed=8.run", "natural.qrels", "natural.run", "natural.seed=8.run"]
    assert sorted(p.name for p in written) == names == sorted(p.name for p in (run / "trec").iterdir())
    assert (run / "trec/natural.run").read_text() == (
        "q1 Q0 y 1 2 m.seed=7\nq1 Q0 x 2 1 m.seed=7\nq2 Q0 y 1 2 m.seed=7\nq2 Q0 x 2 1 m.seed=7\n"
    )
    assert (run / "trec/natural.seed=8.run").read_text().startswith("q1 Q0 x 1 2 m.seed=8\n")
    assert (run / "trec/mixed.qrels").read_text() == "q1 0 x 1\nq1 0 y 0\nq2 0 x 0\nq2 0 y 1\n"
    assert export_trec(run) == []
    (run / "trec/natural.qrels").unlink()
    assert len(export_trec(run)) == len(names)
