"""The encoder: queries and tools to unit vectors of one space (spec/ntilc.md section 1).

[C] head Linear(384, 384) - GELU - Dropout(0.1) - Linear(384, 128), L2-normalised. [T] MiniLM below it, trainable, mean
pooling over the attention mask. [R] frozen: the head alone, on cached vectors; these have unit length and are scaled by
sqrt(d), so that the first layer sees coordinates of unit size and not a bias with a little noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from toolshift.models.ntilc.signature import Rows
from toolshift.runs.files import read_json, write_binary, write_json
from toolshift.runs.seeds import seed_of
from toolshift.text.encoder import Encoder, Vectors, valid_unicode

if TYPE_CHECKING:
    import torch

Weights = Mapping[str, "NDArray[np.float32]"]
QUERY_LENGTH, TOOL_LENGTH = 96, 256
_HEAD, _META, _BACKBONE = "head.safetensors", "encoder.json", "backbone"
_CHUNK_ROWS = 4096


class NtilcError(RuntimeError):
    """Something about a registry, its queries or a saved encoder cannot be used; the message says what to do."""

    user_facing = True


class Inputs(Protocol):
    """What the network reads for query rows and tool rows. No tool is a negative of one that reads the same (code)."""

    @property
    def code(self) -> Rows:
        """(n,) one number per distinct rendering."""
        ...

    @property
    def chunk(self) -> int:
        """Rows at once without gradients."""
        ...

    def queries(self, rows: Rows) -> Any:
        """Input of the network for query rows."""
        ...

    def tools(self, rows: Rows) -> Any:
        """Input of the network for tool rows."""
        ...


@dataclass(frozen=True, kw_only=True)
class FrozenInputs:
    """Cached unit vectors. query_vectors: (q, d), tool_vectors: (n, d)."""

    query_vectors: Vectors
    tool_vectors: Vectors
    code: Rows
    device: str = "cpu"
    chunk: int = _CHUNK_ROWS

    def queries(self, rows: Rows) -> torch.Tensor:
        """(r, d) scaled vectors."""
        return scaled(self.query_vectors[rows], device=self.device)

    def tools(self, rows: Rows) -> torch.Tensor:
        """(r, d) scaled vectors."""
        return scaled(self.tool_vectors[rows], device=self.device)


@dataclass(frozen=True, kw_only=True)
class TokenInputs:
    """Token ids of all texts, cut to the lengths of the encoder; padded when a batch is made."""

    query_ids: Sequence[Sequence[int]]
    tool_ids: Sequence[Sequence[int]]
    pad: int
    code: Rows
    device: str = "cpu"
    chunk: int = 64

    @staticmethod
    def of(
        queries: Sequence[str],
        tools: Sequence[str],
        *,
        tokenizer: Any,
        query_length: int = QUERY_LENGTH,
        tool_length: int = TOOL_LENGTH,
        device: str = "cpu",
    ) -> TokenInputs:
        """Tokenise every text once."""
        return TokenInputs(
            query_ids=token_ids(queries, tokenizer=tokenizer, max_length=query_length),
            tool_ids=token_ids(tools, tokenizer=tokenizer, max_length=tool_length),
            pad=int(tokenizer.pad_token_id or 0),
            code=text_codes(tools),
            device=device,
        )

    def queries(self, rows: Rows) -> dict[str, torch.Tensor]:
        """Padded ids and mask, (r, longest)."""
        return padded([self.query_ids[i] for i in rows], pad=self.pad, device=self.device)

    def tools(self, rows: Rows) -> dict[str, torch.Tensor]:
        """Padded ids and mask, (r, longest)."""
        return padded([self.tool_ids[i] for i in rows], pad=self.pad, device=self.device)


def text_codes(texts: Sequence[str]) -> Rows:
    """(n,) one number per distinct text."""
    number: dict[str, int] = {}
    return np.array([number.setdefault(text, len(number)) for text in texts], np.int64)


def scaled(vectors: Vectors, *, device: str) -> torch.Tensor:
    """Unit rows times sqrt(d)."""
    import torch

    rows = np.asarray(vectors, np.float32)
    return torch.from_numpy(rows * np.float32(math.sqrt(rows.shape[1]))).to(device)


def token_ids(texts: Sequence[str], *, tokenizer: Any, max_length: int) -> list[list[int]]:
    """Token ids of every text, special ones included, at most ``max_length``."""
    if not texts:
        return []
    found = tokenizer([valid_unicode(t) for t in texts], truncation=True, max_length=max_length, padding=False)
    return found["input_ids"]


def padded(ids: Sequence[Sequence[int]], *, pad: int, device: str) -> dict[str, torch.Tensor]:
    """Ids and attention mask of a batch, filled up to its longest text."""
    import torch

    longest = max((len(row) for row in ids), default=1)
    table = torch.full((len(ids), longest), pad, dtype=torch.long)
    mask = torch.zeros((len(ids), longest), dtype=torch.long)
    for i, row in enumerate(ids):
        table[i, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[i, : len(row)] = 1
    return {"input_ids": table.to(device), "attention_mask": mask.to(device)}


@cache
def _network_type() -> Any:
    """The class of `network`; made when first needed, because torch is heavy."""
    import torch

    class Network(torch.nn.Module):
        def __init__(self, head: torch.nn.Module, backbone: Any, prototypes: Any) -> None:
            super().__init__()
            self.head, self.backbone, self.prototypes = head, backbone, prototypes

        def forward(self, queries: Any, tools: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
            unit = None if self.prototypes is None else torch.nn.functional.normalize(self.prototypes, dim=1)
            return self.z(queries), self.z(tools), unit

        def z(self, x: Any) -> torch.Tensor:
            if self.backbone is not None:
                hidden, mask = self.backbone(**x).last_hidden_state, x["attention_mask"].unsqueeze(-1)
                x = (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
            return torch.nn.functional.normalize(self.head(x).float(), dim=-1)

    return Network


def network(
    *,
    dim: int,
    seed: int,
    hidden: int = 384,
    width: int = 128,
    dropout: float = 0.1,
    backbone: Any = None,
    prototypes: int = 0,
    device: str = "cpu",
) -> Any:
    """A torch module; ``z(inputs)`` gives (n, width) unit rows. The start of all weights follows from ``seed`` alone.

    dim: coordinates that the head reads. backbone: a transformers model below the head; None where vectors are cached.
    prototypes: number of learned tool prototypes, 0 for none.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of("ntilc", seed) % 2**62)
        head = torch.nn.Sequential(
            torch.nn.Linear(dim, hidden), torch.nn.GELU(), torch.nn.Dropout(dropout), torch.nn.Linear(hidden, width)
        )
        learned = torch.nn.Parameter(torch.randn(prototypes, width)) if prototypes else None
    return _network_type()(head, backbone, learned).to(device)


def load_backbone(path: Path) -> tuple[Any, Any]:
    """(model, tokenizer) of a transformers folder, for fine-tuning; nothing is downloaded.

    Raises:
        NtilcError: if it cannot be read.
    """
    from transformers import AutoModel, AutoTokenizer

    try:
        model = AutoModel.from_pretrained(str(path), local_files_only=True, add_pooling_layer=False)
        return model, AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    except (OSError, ValueError, TypeError) as error:
        raise NtilcError(
            f"{path} holds no transformers model with a tokenizer that could be fine-tuned: {error}"
        ) from error


def fine_tuned(
    path: Path,
    queries: Sequence[str],
    tools: Sequence[str],
    *,
    seed: int,
    query_length: int = QUERY_LENGTH,
    tool_length: int = TOOL_LENGTH,
    device: str = "cpu",
) -> tuple[Any, TokenInputs, Any]:
    """(network with its backbone, inputs, tokenizer) for fine-tuning the model of a folder on these texts."""
    backbone, tokenizer = load_backbone(path)
    inputs = TokenInputs.of(
        queries, tools, tokenizer=tokenizer, query_length=query_length, tool_length=tool_length, device=device
    )
    net = network(dim=int(backbone.config.hidden_size), seed=seed, backbone=backbone, device=device)
    return net, inputs, tokenizer


def head_weights(net: Any) -> Weights:
    """Copies of the weights of the head, which later steps leave alone."""
    return {name: value.detach().cpu().numpy().copy() for name, value in net.head.state_dict().items()}


def head_of(weights: Weights, *, device: str = "cpu") -> Any:
    """A network with a given head, for inference."""
    import torch

    width, hidden, dim = weights["3.weight"].shape[0], weights["0.weight"].shape[0], weights["0.weight"].shape[1]
    net = network(dim=dim, seed=0, hidden=hidden, width=width, device=device)
    net.head.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})
    return net.eval()


def z_of(net: Any, read: Any, rows: Rows, *, chunk: int) -> NDArray[np.float32]:
    """(r, h) unit rows without gradients or dropout, in chunks; ``read``: ``queries`` or ``tools`` of `Inputs`."""
    import torch

    training = net.training
    net.eval()
    with torch.inference_mode():
        parts = [net.z(read(rows[i : i + chunk])).float().cpu().numpy() for i in range(0, rows.size, chunk)]
    net.train(training)
    return np.concatenate(parts) if parts else np.zeros((0, net.head[-1].out_features), np.float32)


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file, atomically."""

    def save(stream: IO[bytes]) -> None:
        stream.write(content)

    return write_binary(path, save)


@dataclass(frozen=True, kw_only=True)
class NtilcEncoder:
    """A trained encoder of texts: what an index and an agent use.

    base: the frozen encoder below the head, or None where the network has a backbone, which then comes with its
    tokenizer.
    """

    net: Any
    base: Encoder | None = None
    tokenizer: Any = None
    query_length: int = QUERY_LENGTH
    tool_length: int = TOOL_LENGTH
    device: str = "cpu"

    @property
    def width(self) -> int:
        """Length of a vector."""
        return int(self.net.head[-1].out_features)

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, width) unit rows of intents."""
        return self._encode(texts, max_length=self.query_length)

    def encode_tools(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, width) unit rows of tool renderings (`toolshift.models.ntilc.signature.render_tool`)."""
        return self._encode(texts, max_length=self.tool_length)

    def _encode(self, texts: Sequence[str], *, max_length: int) -> NDArray[np.float32]:
        rows = np.arange(len(texts))
        if self.base is not None:
            vectors = self.base.encode(texts)
            return z_of(self.net, lambda r: scaled(vectors[r], device=self.device), rows, chunk=_CHUNK_ROWS)
        ids = token_ids(texts, tokenizer=self.tokenizer, max_length=max_length)
        order = np.argsort([-len(row) for row in ids], kind="stable")  # equal lengths together: little padding
        pad = int(self.tokenizer.pad_token_id or 0)
        found = z_of(self.net, lambda r: padded([ids[i] for i in r], pad=pad, device=self.device), order, chunk=64)
        result = np.empty_like(found)
        result[order] = found
        return result

    def save(self, folder: Path) -> Path:
        """Write the encoder into a folder; that of a frozen encoder names its base by fingerprint."""
        from safetensors.numpy import save

        content = save({name: np.ascontiguousarray(value) for name, value in head_weights(self.net).items()})
        (folder / _META).unlink(missing_ok=True)  # written last: a folder with it is complete
        write_bytes(folder / _HEAD, content)
        if self.base is None:
            self.net.backbone.save_pretrained(str(folder / _BACKBONE))
            self.tokenizer.save_pretrained(str(folder / _BACKBONE))
        meta = {
            "base": self.base.fingerprint if self.base else None,
            "base_name": self.base.name if self.base else None,
            "query_length": self.query_length,
            "tool_length": self.tool_length,
        }
        return write_json(folder / _META, meta)

    @staticmethod
    def load(folder: Path, *, base: Encoder | None = None, device: str = "cpu") -> NtilcEncoder:
        """Read what `save` wrote; ``base``: the frozen encoder that the head was trained on.

        Raises:
            NtilcError: if the folder is incomplete, or ``base`` is missing or another encoder.
        """
        from safetensors.numpy import load_file

        for name in (_META, _HEAD):
            if not (folder / name).is_file():
                raise NtilcError(f"{folder} has no {name}: expected a folder that a finished NTILC training wrote")
        meta = read_json(folder / _META)
        net, tokenizer = head_of(load_file(folder / _HEAD), device=device), None
        if meta["base"] is None:
            net.backbone, tokenizer = load_backbone(folder / _BACKBONE)
            net, base = net.to(device).eval(), None
        elif base is None or base.fingerprint != meta["base"]:
            given = "none" if base is None else f"{base.name} ({base.fingerprint[:16]})"
            raise NtilcError(
                f"{folder} was trained on frozen vectors of {meta['base_name']} ({meta['base'][:16]}), "
                f"given is {given}: configure the same encoder, or train again"
            )
        return NtilcEncoder(
            net=net,
            base=base,
            tokenizer=tokenizer,
            query_length=int(meta["query_length"]),
            tool_length=int(meta["tool_length"]),
            device=device,
        )
