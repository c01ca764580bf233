"""Any sentence-transformers model from a local folder. Nothing here touches the network unless told to.

Why not ``SentenceTransformer.encode``: it pads each batch to its longest text and lets the last batch be short, and
the CPU picks its matrix kernels by the shape of a batch, so a text's last bits depend on its neighbours (about 1e-7,
measured with all-MiniLM-L6-v2). Here a text's token count alone fixes the shape of its batch: lengths are rounded up
to a bucket, and each bucket always runs with the same number of rows, short batches being filled up. With equal
shapes neither the position in the batch nor the neighbours changed a single byte (CPU, 1 and 2 threads).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolshift.text.encoder import EncoderError, Vectors, fingerprint, model_digests, unit_rows, valid_unicode, versions

_LIBRARIES = ("sentence-transformers", "transformers", "tokenizers", "torch")
_DTYPES = ("float32", "float16", "bfloat16")
# Fine steps where most texts are, coarse ones where a few padded tokens are cheap in proportion.
_BUCKETS = (*range(8, 65, 8), *range(80, 129, 16), *range(160, 257, 32), *range(320, 513, 64))
_TOKENS_PER_ROW_SLOT = 64
_TOKENIZE_BLOCK = 4096


class SentenceTransformerEncoder:
    """A frozen sentence-transformers model; pooling is the model's own, rows are normalised here in any case.

    The empty text is encoded like any other (the model sees its special tokens only) and so has a unit vector.

    Args:
        path: model folder (config.json, weights, tokenizer, modules.json).
        max_length: tokens kept, special ones included; None = what the model's own configuration says.
        batch_size: texts per forward pass of up to 64 tokens; longer texts run in proportionally smaller batches.
        dtype: "float32", "float16" or "bfloat16", the precision of the weights. Vectors are float32.
        device: "cpu", "cuda", "cuda:1", "mps"; only its kind is part of the fingerprint.
        prompt: put in front of every text as it is.

    Raises:
        EncoderError: if the folder or a file in it is missing; the message names it.
        ValueError: if a parameter is out of range.
    """

    backend = "sentence_transformer"

    def __init__(
        self,
        *,
        path: str | Path,
        max_length: int | None = None,
        batch_size: int = 64,
        dtype: str = "float32",
        device: str = "cpu",
        prompt: str = "",
        name: str = "",
    ) -> None:
        if dtype not in _DTYPES:
            raise ValueError(f"dtype {dtype!r} is not one of {', '.join(_DTYPES)}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.path = Path(path).expanduser()
        self._require_model_folder()
        self.name = name or self.path.name
        self.max_length = self._checked_length(max_length)
        self.batch_size, self.dtype, self.device, self.prompt = batch_size, dtype, device, prompt

    @property
    def fingerprint(self) -> str:
        """See ``Encoder.fingerprint``; reads the weights once, imports no torch."""
        return self._fingerprint

    @property
    def dim(self) -> int:
        """Vector length, from the configuration files of the model's modules where they tell, else from the model."""
        return self._dim

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(
            backend="sentence-transformers",
            files=model_digests(self.path),
            normalised=True,
            prompt=self.prompt,
            max_length=self.max_length,
            dtype=self.dtype,
            batch_size=self.batch_size,
            buckets=_BUCKETS,
            device=self.device.split(":")[0],
            versions=versions(*_LIBRARIES),
        )

    @cached_property
    def _dim(self) -> int:
        return self._declared_dim() or int(self._model.get_embedding_dimension())

    def encode(self, texts: Sequence[str]) -> Vectors:
        """See ``Encoder.encode``."""
        out = np.empty((len(texts), self.dim), dtype=np.float32)
        ids = self._token_ids(texts, cut=True)
        buckets = bucket_of(np.fromiter(map(len, ids), dtype=np.int64, count=len(ids)), limit=self.max_length)
        for bucket in np.unique(buckets)[::-1]:  # longest first: running out of memory shows at once
            members = np.flatnonzero(buckets == bucket)
            rows = rows_per_batch(int(bucket), batch_size=self.batch_size)
            for start in range(0, len(members), rows):
                batch = members[start : start + rows]
                out[batch] = self._forward([ids[i] for i in batch], length=int(bucket), rows=rows)
        return out

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """See ``Encoder.truncated``; counts the prompt and the special tokens."""
        flags = np.zeros(len(texts), dtype=bool)
        for start in range(0, len(texts), _TOKENIZE_BLOCK):
            ids = self._token_ids(texts[start : start + _TOKENIZE_BLOCK], cut=False)
            flags[start : start + len(ids)] = [len(row) > self.max_length for row in ids]
        return flags

    def _token_ids(self, texts: Sequence[str], *, cut: bool) -> list[list[int]]:
        if not texts:
            return []
        prompted = [self.prompt + valid_unicode(text) for text in texts]
        limit = {"truncation": True, "max_length": self.max_length} if cut else {"truncation": False}
        encoded = self._model.tokenizer(prompted, padding=False, verbose=False, **limit)
        return encoded["input_ids"]

    def _forward(self, ids: list[list[int]], *, length: int, rows: int) -> Vectors:
        """One batch of the fixed shape (rows, length); rows beyond ``ids`` repeat the last text and are dropped."""
        import torch

        filled = ids + [ids[-1]] * (rows - len(ids))
        batch = self._model.tokenizer.pad(
            {"input_ids": filled}, padding="max_length", max_length=length, return_tensors="pt"
        )
        features = {key: value.to(self.device) for key, value in batch.items()}
        with torch.inference_mode():
            vectors = self._model(features)["sentence_embedding"][: len(ids)]
        return unit_rows(vectors.float().cpu().numpy())

    @cached_property
    def _model(self) -> Any:
        import torch
        from sentence_transformers import SentenceTransformer

        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise EncoderError(f"device {self.device!r} was asked for but this torch sees no GPU; set device=cpu")
        model = SentenceTransformer(
            str(self.path),
            device=self.device,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"dtype": getattr(torch, self.dtype)},
        ).eval()
        if not callable(getattr(model.tokenizer, "pad", None)):
            raise EncoderError(f"{self.path}: the model has no transformers tokenizer; only such models can be used")
        if self.prompt and any(getattr(module, "include_prompt", True) is False for module in model):
            raise EncoderError(f"{self.path}: this model pools without its prompt, which is not supported")
        return model

    def _require_model_folder(self) -> None:
        if not self.path.is_dir():
            raise EncoderError(f"model folder {self.path} does not exist; expected a sentence-transformers model there")
        for required in ("config.json", "modules.json"):
            if not (self.path / required).is_file():
                raise EncoderError(
                    f"{self.path} has no {required}; copy the complete sentence-transformers model there"
                )

    def _checked_length(self, asked: int | None) -> int:
        own = _read(self.path / "sentence_bert_config.json").get("max_seq_length")
        ceiling = _read(self.path / "config.json").get("max_position_embeddings")
        if asked is None:
            asked = own or ceiling
        if not asked:
            raise ValueError(f"{self.path} does not say how long a text may be; set max_length")
        if asked < 3 or (ceiling and asked > ceiling):
            raise ValueError(f"max_length must lie between 3 and the model's {ceiling or 'limit'}, got {asked}")
        return int(asked)

    def _declared_dim(self) -> int | None:
        declared = None
        for module in json.loads((self.path / "modules.json").read_text(encoding="utf-8")):
            config = _read(self.path / module["path"] / "config.json")
            if module["type"].endswith("Dense"):
                declared = config.get("out_features")
            elif module["type"].endswith("Pooling"):
                modes = sum(value is True for key, value in config.items() if key.startswith("pooling_mode_"))
                declared = config.get("word_embedding_dimension") if modes == 1 else None
        return declared


def bucket_of(lengths: NDArray[np.int64], *, limit: int) -> NDArray[np.int64]:
    """Padded length for each token count: the next bucket, never more than ``limit``; above 512 the next 128."""
    ladder = np.asarray(_BUCKETS)
    beyond = -(-lengths // 128) * 128
    within = ladder[np.minimum(np.searchsorted(ladder, lengths), len(ladder) - 1)]
    return np.minimum(np.where(lengths > ladder[-1], beyond, within), max(limit, 1))


def rows_per_batch(bucket: int, *, batch_size: int) -> int:
    """Rows of a batch of that padded length: a token budget bounds memory, and the bucket alone decides."""
    return max(1, min(batch_size, batch_size * _TOKENS_PER_ROW_SLOT // bucket))


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise EncoderError(f"{path} is not valid JSON ({error}); copy the model again") from error
