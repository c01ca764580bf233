"""An encoder without weights: hashed words and character n-grams, for tests and for machines without a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolshift.data.types import split_words
from toolshift.text.encoder import Vectors, fingerprint, unit_rows, valid_unicode, versions

_NGRAMS = (3, 5)


class Hashing:
    """Signed feature hashing of words and of character 3-5-grams inside words, L2-normalised.

    Each of the two parts is scaled to length one before they are added, else the many n-grams would drown the words.
    It measures shared spelling, nothing else. A text without any feature (the empty text) gets the constant row.

    Raises:
        ValueError: if ``dim`` < 2 or ``batch_size`` < 1.
    """

    name = "hashing"
    max_length = 0

    def __init__(self, *, dim: int = 384, batch_size: int = 1024) -> None:
        if dim < 2 or batch_size < 1:
            raise ValueError(f"hashing needs dim >= 2 and batch_size >= 1, got {dim} and {batch_size}")
        self.dim, self.batch_size = dim, batch_size

    @property
    def fingerprint(self) -> str:
        """See ``Encoder.fingerprint``. Batch size is left out: rows are computed one by one."""
        return fingerprint(backend=self.name, dim=self.dim, ngrams=_NGRAMS, versions=versions("scikit-learn"))

    def encode(self, texts: Sequence[str]) -> Vectors:
        """See ``Encoder.encode``."""
        blocks = [self._encode(texts[i : i + self.batch_size]) for i in range(0, len(texts), self.batch_size)]
        return np.concatenate(blocks) if blocks else np.zeros((0, self.dim), dtype=np.float32)

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Nothing is ever cut."""
        return np.zeros(len(texts), dtype=bool)

    def _encode(self, texts: Sequence[str]) -> Vectors:
        words, ngrams = self._parts
        texts = [valid_unicode(text) for text in texts]
        return unit_rows(words.transform(texts).toarray() + ngrams.transform(texts).toarray())

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        from sklearn.feature_extraction.text import HashingVectorizer

        vectorizer: Any = HashingVectorizer  # its annotations know neither callables nor None
        shared: dict[str, Any] = {"n_features": self.dim, "alternate_sign": True, "norm": "l2", "dtype": np.float64}
        return (
            vectorizer(analyzer=split_words, **shared),
            vectorizer(analyzer="char_wb", ngram_range=_NGRAMS, **shared),
        )
