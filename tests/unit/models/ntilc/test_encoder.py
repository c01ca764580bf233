"""Head, mean pooling, saving; fine-tuning of a tiny random model without any download."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from toolshift.models.ntilc.encoder import (
    FrozenInputs,
    NtilcEncoder,
    NtilcError,
    fine_tuned,
    network,
    padded,
    scaled,
    text_codes,
    z_of,
)
from toolshift.models.ntilc.signature import Signatures
from toolshift.models.ntilc.training import SCHEDULES, Examples, Objective, Schedule, parameter_groups, train
from toolshift.runs.seeds import id_hashes
from toolshift.text.hashing import Hashing

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = ("rain", "snow", "wind", "hail", "get", "list", "city", "date", "now", "please")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers and random weights with a tokenizer of whole words."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny")
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    tokens = transformers.BertTokenizerFast(str(vocabulary))
    tokens.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS) + 5,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def test_the_head_is_that_of_the_paper() -> None:
    head = network(dim=384, seed=1).head
    shapes = {name: tuple(value.shape) for name, value in head.state_dict().items()}
    assert shapes == {"0.weight": (384, 384), "0.bias": (384,), "3.weight": (128, 384), "3.bias": (128,)}
    assert (type(head[1]).__name__, head[2].p) == ("GELU", 0.1)
    same, other = network(dim=384, seed=1).head, network(dim=384, seed=2).head
    assert torch.equal(head[0].weight, same[0].weight)
    assert not torch.equal(head[0].weight, other[0].weight)


def test_rows_are_unit_and_dropout_is_off_outside_training() -> None:
    net = network(dim=8, seed=1, hidden=8, width=4, dropout=0.5)
    inputs = FrozenInputs(
        query_vectors=np.zeros((0, 8), np.float32), tool_vectors=Hashing(dim=8).encode(WORDS), code=np.arange(10)
    )
    first = z_of(net, inputs.tools, np.arange(10), chunk=3)
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(first, z_of(net, inputs.tools, np.arange(10), chunk=10), atol=1e-6)
    assert net.training  # as it was
    assert z_of(net, inputs.tools, np.arange(0), chunk=3).shape == (0, 4)
    assert scaled(inputs.tool_vectors, device="cpu").square().mean().item() == pytest.approx(1.0)


def test_equal_texts_have_equal_codes() -> None:
    assert text_codes(["a", "b", "a"]).tolist() == [0, 1, 0]


def test_padding_changes_no_vector(tiny: Path) -> None:
    """Mean pooling over the mask, by hand from the hidden states."""
    net, inputs, _ = fine_tuned(tiny, ["rain", "please list city date now"], ["rain"], seed=1)
    net.eval()
    both = inputs.queries(np.array([0, 1]))
    assert both["attention_mask"].sum(dim=1).tolist() == [3, 7]
    with torch.no_grad():
        together, alone = net.z(both), net.z(inputs.queries(np.array([0])))
        hidden = net.backbone(**inputs.queries(np.array([0]))).last_hidden_state[0].mean(dim=0)
        by_hand = torch.nn.functional.normalize(net.head(hidden), dim=0)
    torch.testing.assert_close(together[0], alone[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(alone[0], by_hand, atol=1e-5, rtol=0)
    assert padded([[1, 2], [3]], pad=9, device="cpu")["input_ids"].tolist() == [[1, 2], [3, 9]]


def test_texts_are_cut(tiny: Path) -> None:
    _, inputs, _ = fine_tuned(tiny, ["rain " * 90], ["snow " * 90], seed=1, query_length=6, tool_length=9)
    assert (len(inputs.query_ids[0]), len(inputs.tool_ids[0])) == (6, 9)


def test_fine_tuning_moves_the_backbone_and_can_be_saved(tiny: Path, tmp_path: Path) -> None:
    tools = [f"{verb} {noun}" for noun in WORDS[:4] for verb in WORDS[4:6]]
    queries = [f"please {tool} now" for tool in tools] * 3
    net, inputs, tokenizer = fine_tuned(tiny, queries, tools, seed=1)
    before = {name: value.clone() for name, value in net.backbone.state_dict().items()}
    schedule = Schedule(
        epochs=12, batch=8, learning_rate=3e-3, neighbours=2, validation=0.0, patience=None, linear=False, warmup=0.0
    )
    fitted = train(
        net,
        Examples.of([[i % 8] for i in range(24)], hashes=id_hashes(map(str, range(24)))),
        inputs=inputs,
        compat=Signatures.of_items([frozenset({str(i)}) for i in range(8)]),
        objective=Objective(lambda2=0.5),
        schedule=schedule,
    )
    assert fitted.curve[-1].loss < 0.5 * fitted.curve[0].loss
    assert any(not torch.equal(value, before[name]) for name, value in net.backbone.state_dict().items())
    encoder = NtilcEncoder(net=fitted.net, tokenizer=tokenizer)
    encoder.save(tmp_path)
    loaded = NtilcEncoder.load(tmp_path)
    for name, texts in (("encode_queries", queries), ("encode_tools", ["", *tools])):
        one, other = getattr(encoder, name)(texts), getattr(loaded, name)(texts)
        assert one.shape == (len(texts), 128)
        np.testing.assert_allclose(one, other, atol=1e-6)
    order = [3, 0, 7]
    np.testing.assert_allclose(
        loaded.encode_tools([tools[i] for i in order]), loaded.encode_tools(tools)[order], atol=1e-5
    )
    hits = (loaded.encode_queries(queries) @ loaded.encode_tools(tools).T).argmax(axis=1) == np.arange(24) % 8
    assert hits.mean() > 0.5


def test_a_frozen_encoder_asks_for_its_base(tmp_path: Path) -> None:
    base = Hashing(dim=16)
    encoder = NtilcEncoder(net=network(dim=16, seed=1, hidden=8, width=4).eval(), base=base)
    encoder.save(tmp_path)
    loaded = NtilcEncoder.load(tmp_path, base=base)
    assert (loaded.width, loaded.encode_tools([]).shape) == (4, (0, 4))
    np.testing.assert_array_equal(loaded.encode_queries(["rain"]), encoder.encode_queries(["rain"]))
    for other in (None, Hashing(dim=32)):
        with pytest.raises(NtilcError, match=r"trained on frozen vectors of hashing .* given is"):
            NtilcEncoder.load(tmp_path, base=other)
    (tmp_path / "head.safetensors").unlink()
    with pytest.raises(NtilcError, match=r"has no head\.safetensors"):
        NtilcEncoder.load(tmp_path, base=base)


def test_what_cannot_be_fine_tuned_is_named(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(NtilcError, match="holds no transformers model with a tokenizer"):
        fine_tuned(tmp_path, ["a"], ["b"], seed=1)


def test_rates_of_backbone_and_head(tiny: Path) -> None:
    net, _, _ = fine_tuned(tiny, ["rain"], ["rain"], seed=1)
    below, above = parameter_groups(net, SCHEDULES["fine_tune_cpu"])
    assert (below["lr"], above["lr"]) == (2e-5, 1e-3)
    assert len(above["params"]) == 4
    assert [g["lr"] for g in parameter_groups(net, SCHEDULES["fine_tune"])] == [2e-5, 2e-5]
    (alone,) = parameter_groups(network(dim=8, seed=1), SCHEDULES["frozen"])
    assert alone["lr"] == 1e-3
