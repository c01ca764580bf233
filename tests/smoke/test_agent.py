"""``scripts/agent.py`` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolshift.agents.tools import read_tools
from toolshift.experiment.agent import main
from toolshift.models.ntilc.encoder import NtilcEncoder, fine_tuned

TOOLS = [
    {"name": "rope_length", "description": "Length of rope for an anchorage of some depth.", "parameters": {
        "type": "object", "properties": {"depth": {"type": "number"}}, "required": ["depth"]}},
    {"name": "list_harbours", "description": "Names of all known harbours."},
]  # fmt: skip
QUERY = "query=Compute the length of rope for an anchorage of depth 4, and list the names of all harbours."


def run(tools: Any, folder: Path, *arguments: str) -> Any:
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    return tools.wait(tools.start(folder, "tools=tools.json", *arguments, script="agent"), folder)


def test_functions_are_called_and_their_results_recorded_and_replayed(tools: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def rope_length(depth):\n    return depth * 5\n")
    given = ("executor=functions", "functions=mine.py", "results=results.jsonl", "format=json")
    done = run(tools, tmp_path, QUERY, *given)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert [(o["kind"], o["tool"], o.get("result"), o.get("reason")) for o in found["outcomes"]] == [
        ("selected", "rope_length", "20", None),
        ("error", "list_harbours", None, "no_function"),
    ]
    replay = run(
        tools, tmp_path, QUERY, "executor=cached", "results=results.jsonl", "format=json", "allow=[rope_length]"
    )
    assert replay.code == 0, replay.err
    again = json.loads(replay.out)["outcomes"]
    assert again[0] == found["outcomes"][0]
    assert again[1]["reason"] == "not_allowed"


def test_bad_commands_are_refused_without_a_traceback(tools: Any, tmp_path: Path) -> None:
    for arguments, code, message in (
        (("qery=x",), 2, "did you mean 'query'"),
        ((QUERY, "executor=functions"), 2, "belong together"),
        ((QUERY, "tools=absent.json"), 1, "absent.json: no such file"),
        ((QUERY, "allow=[rope]"), 1, "did you mean 'rope_length'"),
        ((QUERY, "llm.model=nobody"), 1, "nothing is recorded of nobody"),
    ):
        done = run(tools, tmp_path, *arguments)
        done.refuse_traceback()
        assert (done.code, message in done.err) == (code, True), done.err


def test_a_local_model_from_a_folder_writes_calls_that_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for extra in ("outlines", "llguidance"):
        pytest.importorskip(extra, reason="the extra `llm` is not installed")
    _save_causal(tmp_path / "causal")
    _save_encoder(tmp_path / "trained")
    outcomes = here(tmp_path, capsys, f"local.path={tmp_path / 'causal'}", f"encoder.checkpoint={tmp_path / 'trained'}")
    assert {o["kind"] for o in outcomes} == {"selected"}
    for outcome in outcomes:
        expected = {"rope_length": {"depth": float}, "list_harbours": {}}[outcome["tool"]]
        assert {name: type(float(value)) for name, value in outcome["arguments"].items()} == expected


def test_a_trained_encoder_is_used_and_an_index_of_faiss_finds_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("faiss")
    _save_encoder(tmp_path / "trained")
    exact, flat = (
        here(tmp_path, capsys, f"encoder.checkpoint={tmp_path / 'trained'}", f"index={index}")
        for index in ("exact", "flat")
    )
    assert [(o["tool"], o["kind"]) for o in exact] == [(o["tool"], o["kind"]) for o in flat]
    encoder, toolbox = NtilcEncoder.load(tmp_path / "trained"), read_tools(tmp_path / "tools.json")
    vectors = encoder.encode_tools([tool.text for tool in toolbox.tools])
    for one, other in zip(exact, flat, strict=True):
        cosines = encoder.encode_queries([one["intent"]])[0] @ vectors.T
        assert one["tool"] == toolbox.tools[cosines.argmax()].name
        if one["kind"] == "selected":
            assert [one["score"], other["score"]] == pytest.approx([cosines.max()] * 2, abs=1e-5)


def test_folders_without_a_model_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    for key, message in (("local.path", "no causal language model"), ("encoder.checkpoint", "NTILC training")):
        assert main([QUERY, f"tools={tmp_path / 'tools.json'}", f"{key}={tmp_path / 'empty'}"]) == 1
        assert message in capsys.readouterr().err


def here(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    """The outcomes of a dry run in this process."""
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    code = main([QUERY, f"tools={folder / 'tools.json'}", "format=json", *arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)["outcomes"]


def _save_causal(folder: Path) -> None:
    """A random GPT-2 of one layer over bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<end>"]
    inner = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>").save_pretrained(folder)
    torch.manual_seed(0)
    end = len(pieces) - 1
    config = GPT2Config(
        vocab_size=len(pieces), n_positions=2048, n_embd=8, n_layer=1, n_head=1, bos_token_id=end, eos_token_id=end
    )
    GPT2LMHeadModel(config).save_pretrained(folder)


def _save_encoder(folder: Path) -> None:
    """An encoder whose backbone is a small random BERT over the words of the tools."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = sorted({word.strip(".") for tool in TOOLS for word in str(tool["description"]).lower().split()})
    start = folder.parent / "start"
    start.mkdir()
    (start / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    BertTokenizerFast(str(start / "vocab.txt")).save_pretrained(start)
    config = BertConfig(
        vocab_size=len(words) + 5, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=128,
    )  # fmt: skip
    torch.manual_seed(0)
    BertModel(config).save_pretrained(start)
    net, _, tokenizer = fine_tuned(start, ["rope"], ["rope"], seed=1)
    NtilcEncoder(net=net.eval(), tokenizer=tokenizer, query_length=32, tool_length=64).save(folder)
