"""A tiny random language model: likelihoods against the model itself, and PORTS trained with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolshift.models.base import Limits
from toolshift.models.generative import preference
from toolshift.models.generative.ports import Ports, PortsStandin, Samples
from toolshift.models.generative.preference import LanguageModel, answers_of, tool_prompt

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 ():,;_-\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal model over characters with random weights."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    path = tmp_path_factory.mktemp("lm")
    vocabulary = {"<unk>": 0, **{c: i + 1 for i, c in enumerate(CHARACTERS)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(path)
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.5,
    )
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return LanguageModel(str(folder))


def by_hand(model: LanguageModel, prompt: str, answer: str) -> float:
    """Token by token, each with all that stands before it."""
    begin = model._tokenizer(prompt)["input_ids"]
    end = model._tokenizer(f" {answer}", add_special_tokens=False)["input_ids"]
    losses = []
    for k, token in enumerate(end):
        with torch.inference_mode():
            logits = model._model(input_ids=torch.tensor([begin + end[:k]])).logits[0, -1]
        losses.append(-float(torch.log_softmax(logits.double(), dim=0)[token]))
    return float(np.mean(losses))


def test_mean_token_nll(model: LanguageModel) -> None:
    asked = [("tool: rain\ncall:", "get_rain(city)"), ("call:", "x"), ("a much longer prompt than that:", "send()")]
    found = model.mean_nll(asked, max_length=256)
    np.testing.assert_allclose(found, [by_hand(model, p, a) for p, a in asked], rtol=1e-4)
    assert len(set(np.round(found, 6))) == 3


def test_neighbours_change_nothing_and_nothing_is_asked_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = LanguageModel(str(folder))
    alone = fresh.mean_nll([("call:", "x")], max_length=64)
    together = LanguageModel(str(folder)).mean_nll([("a long prompt, call:", "y"), ("call:", "x")], max_length=64)
    np.testing.assert_allclose(together[1], alone[0], rtol=1e-5)

    def never(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(fresh, "_forward", never)
    np.testing.assert_array_equal(fresh.mean_nll([("call:", "x")] * 2, max_length=64), [alone[0]] * 2)


def test_a_long_prompt_loses_its_beginning(model: LanguageModel) -> None:
    whole = model.mean_nll([("zzzzzzzzzz" + "abcd", "xy")], max_length=7)
    np.testing.assert_allclose(whole[0], by_hand(model, "abcd", "xy"), rtol=1e-4)


def test_the_answer_is_the_documented_call(worlds: Any, make: Any) -> None:
    api, tool, ask = worlds.Api, worlds.Tool, worlds.Ask
    tools = [
        tool("rain", "A", (api("get_rain", ("city", "date"), ("unit",)), api("list_rain"), api("other"))),
        tool("wind", "A", (api("get_wind"),), " ".join(f"w{i}" for i in range(20))),
    ]
    asks = [
        ask("both", "A", "x", (("rain", "get_rain", "list_rain"), ("wind", "get_wind"))),
        ask("none", "B", "y", (("wind",),)),
    ]
    world = worlds.of(worlds.records(tools, asks))
    source = make.source(world, worlds.Rules(length=8, hard=4), target="B")
    rain, wind, task = world.tool("rain"), world.tool("wind"), world.task("both")
    found = answers_of(np.array([task, task]), np.array([rain, wind]), source=source)
    assert found == ["get_rain(city, date); list_rain()", "get_wind()"]
    # The labels of the held-out domain are not there to be read.
    (hidden,) = answers_of(np.array([world.task("none")]), np.array([wind]), source=source)
    assert hidden == " ".join(f"w{i}" for i in range(12))


def test_the_preference_is_the_likelihood_of_the_answer(
    fixed_world: Any, worlds: Any, make: Any, folder: Path, model: LanguageModel
) -> None:
    source, bank = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D0"), fixed_world.bank()
    corpus = fixed_world.corpus
    task = int(source.tasks[0])
    gold = int(source.fold.labels.gold[[task]].indices[0])
    other = (gold + 1) % corpus.n_capabilities
    samples = Samples(
        task=np.array([task]), tools=np.array([[gold, other, gold]]), valid=np.array([[True, True, False]])
    )
    row = Ports(llm_path=str(folder), document_words=5)
    found = row.preference(samples, source=source, bank=bank, device="cpu")
    (answer,) = answers_of(samples.task, np.array([gold]), source=source)
    prompts = [tool_prompt(corpus.capability_texts[c], corpus.task_texts[task], words=5) for c in (gold, other)]
    np.testing.assert_allclose(found[0, :2], [-by_hand(model, p, answer) for p in prompts], rtol=1e-4)
    assert found[0, 2] == 0.0


def test_training_with_a_model(fixed_world: Any, worlds: Any, make: Any, folder: Path) -> None:
    source, bank = make.source(fixed_world, worlds.Rules(length=8, hard=4), target="D0"), fixed_world.bank()
    pairs, limits = make.all_pairs(fixed_world.corpus), Limits(epochs=1, max_tasks=None)
    common: dict[str, Any] = {"learning_rate": 0.02, "batch_tasks": 8, "max_samples": 16, "beta": 0.1}
    rows = [Ports(llm_path=str(folder), **common), PortsStandin(**common)]
    found = []
    for row in (*rows, rows[0], replace(rows[0], beta=1e6)):
        (last,) = row.epochs(source, bank=bank, seed=1, limits=limits)
        assert last.contexts_seen == ("D1", "D2", "D3")
        found.append(last.score(pairs, bank=bank, seed=1))
    np.testing.assert_array_equal(found[0], found[2])
    assert np.abs(found[0] - found[1]).max() > 1e-4  # another preference
    assert np.abs(found[0] - found[3]).max() > 1e-4  # no preference


def test_one_model_per_process(folder: Path) -> None:
    assert preference.load_language_model(str(folder), "cpu") is preference.load_language_model(str(folder), "cpu")
