"""What explains a score adds up to it: every part of `toolshift.evaluation.explanation` against the path itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolshift.evaluation.explanation import ExplainedPair, SourceTasks, Term, explain_pairs, requirements_of
from toolshift.models.features import Pairs, on_grid
from toolshift.text.requirements import requirements

TASK = 3


def explained(stages: Any, path: Any, bank: Any, *, task: int = TASK, rows: Any = None) -> tuple[ExplainedPair, ...]:
    corpus = stages.world.corpus
    rows = np.arange(corpus.n_capabilities) if rows is None else rows
    needed, _ = requirements_of(task, bank=bank)
    sources = SourceTasks(rows=np.array([0, 20, 30]), context=("D0", "", "D3"), gold={5: np.array([0, 2])})
    return explain_pairs(path, task, rows, needed=needed, sources=sources, bank=bank)


def sigmoid_of(terms: tuple[Term, ...]) -> float:
    return 1.0 / (1.0 + np.exp(-sum(term.value * term.weight for term in terms)))


@pytest.fixture(scope="module")
def pairs(stages: Any, whole: Any, shared_bank: Any) -> tuple[ExplainedPair, ...]:
    return explained(stages, whole, shared_bank)


def test_the_last_score_is_the_path_s_own(stages: Any, whole: Any, shared_bank: Any, pairs: Any) -> None:
    m = stages.world.corpus.n_capabilities
    own = whole.score(Pairs(task=np.full(m, TASK), capability=np.arange(m)), bank=shared_bank, seed=0)
    np.testing.assert_array_equal([pair.scores.score for pair in pairs], own)
    alone = explained(stages, whole, shared_bank, rows=np.array([4]))
    assert alone == (pairs[4],)


def test_scores_add_up_stage_by_stage(pairs: Any) -> None:
    for pair in pairs:
        scores = pair.scores
        assert scores.s1 == pytest.approx(scores.anchor + scores.relation)
        assert scores.s2 == pytest.approx(scores.s1 + pair.functional.correction.added)
        assert scores.s3 == pytest.approx(scores.s2 + pair.contextual.correction.added)
        assert scores.score == scores.s3
        assert pair.support is None
        for correction in (pair.functional.correction, pair.contextual.correction):
            assert correction.added == pytest.approx(correction.gate * correction.bounded)
            assert correction.gate == pytest.approx(sigmoid_of(correction.gate_terms))


def test_the_functional_correction_follows_from_its_parts(pairs: Any) -> None:
    moved = 0
    for pair in pairs:
        part = pair.functional
        for cell in part.matching:
            assert cell.evidence == part.evidence[cell.requirement][cell.endpoint]
            assert cell.gain == pytest.approx(cell.evidence - part.kappa, abs=1e-6)
        smaller = max(min(len(part.evidence), len(pair.endpoints)), 1)
        assert part.match == pytest.approx(sum(cell.gain for cell in part.matching) / smaller, abs=1e-6)
        assert part.reference == pytest.approx(part.intercept + part.slope * pair.scores.s1)
        if pair.endpoints:
            assert part.reliability == pytest.approx(sigmoid_of(part.reliability_terms), abs=1e-6)
        expected = part.strength * part.reliability * np.tanh((part.match - part.reference) / part.scale)
        assert part.correction.bounded == pytest.approx(expected)
        moved += bool(part.matching)
    assert moved > 0


def test_composed_evidence_is_the_weighted_mean_of_the_channels(pairs: Any) -> None:
    for pair in pairs:
        part, channels = pair.functional, pair.channels
        for j, endpoint in enumerate(pair.endpoints):
            w_a = part.argument_weight * endpoint.has_argument
            w_y = part.type_weight * endpoint.has_type
            for i, row in enumerate(part.evidence):
                total = channels.operation[i][j] + w_a * channels.argument[i][j] + w_y * channels.type[i][j]
                assert row[j] == pytest.approx(total / (1 + w_a + w_y), abs=1e-6)


def test_the_contextual_correction_follows_from_its_parts(stages: Any, whole: Any, pairs: Any) -> None:
    known = 0
    for pair in pairs:
        part = pair.contextual
        assert part.confidence == pytest.approx(sigmoid_of(part.confidence_terms))
        if not part.use.records:
            assert (part.prototypes, part.value, part.correction.bounded) == ((), 0.0, 0.0)
            continue
        known += 1
        assert len(part.prototypes) == 4  # all there are
        for one in part.prototypes:
            assert one.added == pytest.approx(one.eta * (one.routing - one.mean_routing) * one.log_ratio)
            assert one.nearest_task in {stages.world.corpus.task_texts[row] for row in (0, 20, 30)}
        assert part.value == pytest.approx(sum(one.added for one in part.prototypes))
        sizes = [abs(one.added) for one in part.prototypes]
        assert sizes == sorted(sizes, reverse=True)
        expected = part.strength * part.reliability * np.tanh(part.value / part.scale)
        assert part.correction.bounded == pytest.approx(expected)
    assert known > 0
    assert {pair.contextual.use.own_records for pair in pairs} == {0, 2}
    assert pairs[5].contextual.use.own_contexts == ("D0", "D3")


def test_the_pool_names_the_columns_of_the_evidence(stages: Any, shared_bank: Any, pairs: Any) -> None:
    corpus, bank = stages.world.corpus, shared_bank
    text_of = {endpoint.endpoint_id: endpoint.text for endpoint in corpus.endpoints}
    needed, words = requirements_of(TASK, bank=bank)
    for pair in pairs:
        assert len(pair.endpoints) == min(int(corpus.endpoint_count[pair.capability]), 4)
        for j, endpoint in enumerate(pair.endpoints):
            assert endpoint.endpoint_id.startswith(corpus.capability_ids[pair.capability])
            vector = bank.cache.rows([text_of[endpoint.endpoint_id]])[0]
            cosine = np.maximum(needed.vectors @ vector, 0.0)
            column = [row[j] for row in pair.channels.operation]
            np.testing.assert_allclose(column, on_grid(cosine), atol=3e-6)
    assert [word.text for word in words] == list(needed.texts)
    assert len(words) <= len(requirements(corpus.task_texts[TASK]))


def test_stages_that_are_off_have_no_part(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    model = stages.model(beta_relation=0.0, beta_functional=0.0, beta_contextual=0.0)
    path = stages.fit(model, shared_source, bank=shared_bank)
    for pair in explained(stages, path, shared_bank):
        assert (pair.functional, pair.contextual, pair.support) == (None, None, None)
        assert pair.scores.score == pair.scores.anchor == pair.scores.s3
        assert (pair.scores.relation, pair.scores.relation_strength) == (0.0, 0.0)


def test_blend_support_and_control(stages: Any, shared_source: Any, shared_bank: Any) -> None:
    model = stages.model(proposal="blend", beta_support=0.3, context_signal="presence", gates="none")
    path = stages.fit(model, shared_source, bank=shared_bank)
    for pair in explained(stages, path, shared_bank):
        blend = sum(term.value * term.weight for term in pair.scores.anchor_terms)
        assert pair.scores.anchor == pytest.approx(blend)
        assert pair.support is not None
        assert pair.contextual is not None
        assert pair.support.added == pytest.approx(0.3 * pair.support.support)
        assert pair.scores.score == pytest.approx(pair.scores.s3 + pair.support.added)
        assert pair.contextual.prototypes == ()
        assert pair.contextual.value == float(pair.contextual.use.records > 0)
        assert pair.contextual.correction.gate_terms == ()
        assert pair.contextual.correction.added == pair.contextual.correction.bounded
