"""How much a tool's documentation helps a frozen causal language model to write the target answer (PORTS)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from toolshift.data.records import Endpoint
from toolshift.models.base import Source
from toolshift.models.generative.requests import shortened
from toolshift.views.corpus import Rows

if TYPE_CHECKING:
    import torch

_FALLBACK_WORDS = 12
_BATCH = 8


class MissingModel(FileNotFoundError):
    """A folder was named for a language model and holds none."""

    user_facing = True


def check_folder(path: str) -> None:
    """Refuse a folder without a model before anything is read.

    Raises:
        MissingModel: if the folder, its config.json or its weights are not there.
    """
    folder = Path(path)
    weights = [f for pattern in ("*.safetensors", "*.bin") for f in folder.glob(pattern)] if folder.is_dir() else []
    if not weights or not (folder / "config.json").is_file():
        raise MissingModel(
            f"llm_path={path}: expected a folder with config.json, weights (*.safetensors or *.bin) and a tokenizer"
        )


def tool_prompt(documentation: str, task: str, *, words: int) -> str:
    """A tool and the task before the answer; the wording is ours [R]."""
    return f"Tool: {shortened(documentation, words=words)}\nRequest: {task}\nCall:"


def answers_of(tasks: Rows, positives: Rows, *, source: Source) -> list[str]:
    """The documented call of the gold endpoints of each (task, positive tool): operation and required arguments. The
    first words of the tool's text where the release names no endpoint. Reads labels of the sources alone."""
    corpus, gold = source.fold.corpus, source.fold.labels.gold_endpoints
    found = []
    for task, tool in zip(tasks.tolist(), positives.tolist(), strict=True):
        low, high = corpus.endpoint_offsets[tool], corpus.endpoint_offsets[tool + 1]
        rows = gold.indices[gold.indptr[task] : gold.indptr[task + 1]]
        calls = [call_text(corpus.endpoints[e]) for e in sorted(rows) if low <= e < high]
        found.append("; ".join(calls) or shortened(corpus.capability_texts[tool], words=_FALLBACK_WORDS))
    return found


def call_text(endpoint: Endpoint) -> str:
    """``operation(argument, argument)`` with the required arguments."""
    return f"{endpoint.operation}({', '.join(a.name for a in endpoint.required_arguments)})"


@lru_cache(maxsize=1)
def load_language_model(path: str, device: str) -> LanguageModel:
    """The model of a folder, once per process; nothing is downloaded and no code of the folder is run."""
    return LanguageModel(path, device=device)


class LanguageModel:
    """A frozen causal language model; remembers what it was asked, since folds and settings ask the same.

    Args:
        path: folder in the layout of `transformers`.
        device: of torch.
    """

    def __init__(self, path: str, *, device: str = "cpu") -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True)
        model: Any = AutoModelForCausalLM.from_pretrained(path, local_files_only=True)
        self._model = model.to(device).eval()
        self.device = device
        self._memo: dict[tuple[str, str, int], float] = {}

    def mean_nll(self, asked: Sequence[tuple[str, str]], *, max_length: int) -> NDArray[np.float64]:
        """(n,) mean negative log-likelihood per token of each answer after its prompt, natural logarithm.

        asked: (prompt, answer) pairs. max_length: tokens of both; a longer prompt loses its beginning.
        """
        missing = sorted({(p, a, max_length) for p, a in asked} - set(self._memo), key=lambda k: (-len(k[0]), k))
        for start in range(0, len(missing), _BATCH):
            chunk = missing[start : start + _BATCH]
            values = self._forward([self._tokens(p, a, max_length) for p, a, _ in chunk])
            self._memo.update(zip(chunk, values, strict=True))
        return np.array([self._memo[p, a, max_length] for p, a in asked], np.float64)

    def _tokens(self, prompt: str, answer: str, max_length: int) -> tuple[list[int], list[int]]:
        end = self._tokenizer(f" {answer}", add_special_tokens=False)["input_ids"][: max_length // 2]
        begin = self._tokenizer(prompt)["input_ids"][-(max_length - len(end)) :]
        if not begin or not end:
            raise ValueError(f"the tokenizer makes no token of {(prompt if not begin else answer)!r}")
        return list(begin), list(end)

    def _forward(self, sequences: Sequence[tuple[list[int], list[int]]]) -> list[float]:
        import torch

        width = max(len(begin) + len(end) for begin, end in sequences)
        ids = torch.zeros(len(sequences), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, (begin, end) in enumerate(sequences):
            both = begin + end
            ids[row, : len(both)] = torch.tensor(both)
            mask[row, : len(both)] = 1
        with torch.inference_mode():
            logits = self._model(input_ids=ids.to(self.device), attention_mask=mask.to(self.device)).logits
        return [self._nll(logits[row], begin=len(begin), end=end) for row, (begin, end) in enumerate(sequences)]

    @staticmethod
    def _nll(logits: torch.Tensor, *, begin: int, end: list[int]) -> float:
        """Token k is predicted at position k - 1."""
        import torch

        predicted = logits[begin - 1 : begin - 1 + len(end)].double()
        target = torch.tensor(end, device=logits.device)
        return float(torch.nn.functional.cross_entropy(predicted, target))
