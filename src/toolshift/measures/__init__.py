"""Ranking measures, vectorised over packed candidate lists, with one tie rule. A leaf: imports no other stage."""

from __future__ import annotations

from toolshift.measures import ranking as _ranking  # noqa: F401  (fills the registry)
from toolshift.measures.lists import ListValues, evaluate_lists, expected_random, trec_keys
from toolshift.measures.registry import Measure, known_forms, measure, parse_measure

__all__ = [
    "ListValues",
    "Measure",
    "evaluate_lists",
    "expected_random",
    "known_forms",
    "measure",
    "parse_measure",
    "trec_keys",
]
