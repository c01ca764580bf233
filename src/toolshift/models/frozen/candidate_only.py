"""Control row: a logistic model on label-free features of the candidate, never of the task (validity.md section 3).

Where it ranks clearly better than chance, the view gives its positives away by how their files look, and a table on
that view proves nothing about tool selection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from toolshift.models.base import Scorer, Scores, Source, SourceMeasure
from toolshift.models.features import FeatureBank, Pairs
from toolshift.views.corpus import Corpus

FEATURES = (
    "log endpoints",
    "log text length",
    "log documentation length",
    "share of endpoints with required arguments",
    "mean required arguments",
    "mean optional arguments",
    "share of typed arguments",
    "share of endpoints with a description",
    "partial schema",
    "log tools in category",
)


@dataclass(frozen=True, kw_only=True)
class CandidateOnly:
    """L2-regularised logistic regression over ``FEATURES``, fitted on the source lists of all views."""

    C: float = 1.0
    fit_per_seed: ClassVar[bool] = False

    def fit(self, source: Source, *, bank: FeatureBank, measure: SourceMeasure, seed: int) -> Scorer:
        """Fit positives against negatives of the source lists, features standardised on the same rows.

        Raises:
            ValueError: if the sources have no list in any view.
        """
        from sklearn.linear_model import LogisticRegression

        features = bank.per_capability(candidate_features)
        lists = [source.manifests[view] for view in sorted(source.manifests)]
        rows = np.concatenate([m.capability for m in lists])
        if not rows.size:
            raise ValueError(f"target {source.target}: the sources have no list in any view, so nothing can be fitted")
        positive = np.concatenate([m.positive for m in lists])
        # Candidates repeat over lists, so the likelihood is the same with one weighted row per (capability, label).
        distinct, weight = np.unique(rows * 2 + positive, return_counts=True)
        x, y = features[distinct // 2], distinct % 2
        mean = np.average(x, axis=0, weights=weight)
        spread = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight))
        # What is constant on the sources teaches nothing; its rounding noise must not be blown up to a weight.
        varies = spread > 1e-9 * np.maximum(np.abs(mean), 1.0)
        scale = np.where(varies, spread, 1.0)
        standardised = np.where(varies, (x - mean) / scale, 0.0)
        model = LogisticRegression(C=self.C, max_iter=1000, tol=1e-7).fit(standardised, y, sample_weight=weight)
        coefficients = np.asarray(model.coef_[0] / scale, np.float64)
        return FittedCandidateOnly(coefficients=coefficients, contexts_seen=source.contexts)


@dataclass(frozen=True, kw_only=True)
class FittedCandidateOnly:
    """A linear score over candidate features; coefficients: (len(FEATURES),)."""

    coefficients: NDArray[np.float64]
    contexts_seen: tuple[str, ...]

    @property
    def record(self) -> Mapping[str, Any]:
        """Coefficients by feature name."""
        return {"coefficients": dict(zip(FEATURES, self.coefficients.tolist(), strict=True))}

    def score(self, pairs: Pairs, *, bank: FeatureBank, seed: int) -> Scores:
        """(p,) linear scores of the candidate alone."""
        return bank.per_capability(candidate_features)[pairs.capability] @ self.coefficients


def candidate_features(corpus: Corpus) -> NDArray[np.float64]:
    """(m, len(FEATURES)) what a tool's files look like; reads no task and no label."""
    size = corpus.n_capabilities
    owner = corpus.endpoint_capability
    count = np.maximum(corpus.endpoint_count, 1)

    def per_endpoint(values: list[float]) -> NDArray[np.float64]:
        return np.bincount(owner, weights=np.array(values, np.float64), minlength=size).astype(np.float64)

    required = [len(e.required_arguments) for e in corpus.endpoints]
    total = [len(e.arguments) for e in corpus.endpoints]
    typed = per_endpoint([sum(a.type != "unknown" for a in e.arguments) for e in corpus.endpoints])
    arguments = per_endpoint(list(map(float, total)))
    category = np.bincount(corpus.capability_domain + 1, minlength=1)[corpus.capability_domain + 1]
    return np.column_stack(
        [
            np.log1p(corpus.endpoint_count),
            np.log1p([len(t) for t in corpus.capability_texts]),
            np.log1p(per_endpoint([float(len(e.text)) for e in corpus.endpoints])),
            per_endpoint([float(r > 0) for r in required]) / count,
            per_endpoint(list(map(float, required))) / count,
            (arguments - per_endpoint(list(map(float, required)))) / count,
            typed / np.maximum(arguments, 1),
            per_endpoint([float(bool(e.description)) for e in corpus.endpoints]) / count,
            corpus.partial_schema.astype(np.float64),
            np.log1p(category),
        ]
    )
