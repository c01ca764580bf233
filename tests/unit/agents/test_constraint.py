"""A random model that is held to a schema writes nothing but calls that fit it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from toolshift.agents.constraint import LocalWriter, Written, grammar, response_format
from toolshift.agents.outcomes import Invalid
from toolshift.agents.tools import Toolbox, read_tools
from toolshift.models.ntilc.arguments import Faulty, Limits, SchemaError, normalised, read_arguments

SMALL = Limits(string=3, items=2, depth=1)
MANY = 250


def random_schema(rng: random.Random, *, depth: int = 0) -> dict[str, Any]:
    """A schema of an object with up to three arguments of any kind, nested at most twice."""
    names = rng.sample(["a", "b_2", "c d", "é", '"'], rng.randint(0, 3))
    properties = {name: random_part(rng, depth=depth) for name in names}
    return {"type": "object", "properties": properties, "required": rng.sample(names, rng.randint(0, len(names)))}


def random_part(rng: random.Random, *, depth: int) -> dict[str, Any]:
    low = rng.randint(-50, 50)
    simple: list[dict[str, Any]] = [
        {"type": "string"},
        {"type": "string", "minLength": 1, "maxLength": 2},
        {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 2000)},
        {"type": "float", "minimum": low},
        {"type": "number", "multipleOf": 0.1},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1e-3},
        {"type": "boolean"},
        {"type": ["integer", "null"]},
        {"enum": rng.sample(["x", "y z", 1, None, True, 2.5], 2)},
        {"const": "fixed"},
        {"type": "string", "pattern": "^[ab]+$"},
        {"type": "string", "format": rng.choice(["date", "email", "uri", "duration"])},
        {"type": "unheard of"},
        {},
    ]
    if depth >= 2 or rng.random() < 0.7:
        return rng.choice(simple)
    inner = random_part(rng, depth=depth + 1)
    return rng.choice(
        [
            {"type": "array", "items": inner, "minItems": rng.randint(0, 1), "maxItems": 2},
            {"type": "tuple", "items": [inner, {"type": "boolean"}]},
            {"anyOf": [inner, {"type": "boolean"}]},
            {"allOf": [inner, {"description": "both"}]},
            {"type": "dict"},
            {"type": "object", "additionalProperties": inner, "minProperties": 1},
            random_schema(rng, depth=depth + 1),
            {"$ref": "#"},
        ]
    )


def possible(schema: dict[str, Any]) -> bool:
    """Whether a finite call fits a random schema: no required part needs the whole schema inside itself. One look is
    enough, since what is possible without any reference is possible where the reference stands, too."""
    if "$ref" in schema:
        return False
    if "anyOf" in schema:
        return any(possible(part) for part in schema["anyOf"])
    if "allOf" in schema:
        return all(possible(part) for part in schema["allOf"])
    if schema.get("minItems") == 1:
        return possible(schema["items"])
    if schema.get("minProperties") == 1:
        return possible(schema["additionalProperties"])
    return all(possible(schema["properties"][name]) for name in schema.get("required", ()))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("seed", range(4))
def test_a_thousand_random_schemas_give_only_valid_calls(tiny: tuple[Any, Any], seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    rng = random.Random(seed)
    schemas: list[dict[str, Any]] = []
    while len(schemas) < MANY:
        raw = random_schema(rng)
        if possible(raw):
            schemas.append(normalised(raw, limits=SMALL))
        else:
            with pytest.raises(SchemaError):
                normalised(raw, limits=SMALL)
    writer = LocalWriter(model=tiny[0], tokenizer=tiny[1], max_tokens=2000, sample=True, limits=SMALL)
    texts = writer.texts(["x"] * MANY, schemas)
    found = [read_arguments(text, schema) for (text, _), schema in zip(texts, schemas, strict=True)]
    wrong = [(t, f, s) for (t, _), f, s in zip(texts, found, schemas, strict=True) if isinstance(f, Faulty)]
    assert not wrong, wrong[:2]
    assert len({text for text, _ in texts}) > MANY / 3  # the model is not held to one and the same text


OPEN: list[tuple[dict[str, Any], int]] = [  # a part of a schema, the most characters of a value with a text of 5
    ({"type": "string"}, 6 * 5 + 2),
    ({"type": "number"}, 27),
    ({"type": "number", "minimum": 2.0**60}, 30),
    ({"type": "integer"}, 17),
    ({}, 6 * 5 + 2),
    ({"type": "string", "pattern": "^a+$"}, 5 + 2),
    ({"type": "string", "pattern": "x[0-9]{2,}"}, 6 * 20 + 2),
    ({"type": "string", "format": "email"}, 64 + 2),
    ({"type": "string", "format": "uri"}, 64 + 2),
    ({"type": "string", "format": "duration"}, 64 + 2),
    ({"type": "array"}, 2 * (6 * 5 + 2) + 4),
    ({"type": "object"}, 2 * (40 + 3 + 6 * 5 + 2) + 4),
]


@pytest.mark.parametrize(("part", "longest"), OPEN, ids=lambda value: json.dumps(value))
@pytest.mark.parametrize("liked", ["9", "0.", "-1", "e9", "x0a:", "Pa", "\\u0", '{"', "[", "é"])
def test_a_call_ends_whatever_the_model_likes_to_write(
    tiny: tuple[Any, Any], part: dict[str, Any], longest: int, liked: str
) -> None:
    from llguidance import LLMatcher
    from llguidance.hf import from_tokenizer

    tokens = from_tokenizer(tiny[1])
    schema = normalised({"type": "object", "properties": {"v": part}, "required": ["v"]})
    matcher = LLMatcher(tokens, grammar(schema, limits=Limits(string=5, items=2)))
    wanted, end, written = tiny[1](liked)["input_ids"], tiny[1].eos_token_id, []
    while not matcher.is_stopped() and len(written) <= 400:
        allowed = {token for token, bias in enumerate(matcher.compute_logit_bias()) if bias}
        likes = [token for token in wanted if token in allowed]
        token = (likes or sorted(allowed - {end}) or [end])[0]
        matcher.consume_token(token)
        written += [token] if token != end else []
    assert len(written) - len('{"v":}') <= longest
    assert not isinstance(read_arguments(tiny[1].decode(written), schema), Faulty)


def test_a_schema_that_no_decoder_can_be_held_to_does_not_end_the_others(tiny: tuple[Any, Any], tmp_path: Path) -> None:
    properties = {
        "never": {"type": "integer", "minimum": 5, "maximum": 2},
        "unread": {"type": "string", "pattern": "^(?!b)[ab]{2}$", "maxLength": 2},
        "plain": {"type": "boolean"},
    }
    tools = [
        {"name": name, "parameters": {"type": "object", "properties": {"v": part}, "required": ["v"]}}
        for name, part in properties.items()
    ]
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(tools))
    toolbox = read_tools(path)
    writer = LocalWriter(model=tiny[0], tokenizer=tiny[1], max_tokens=50, limits=SMALL)
    never, unread, plain = writer.write_all([("q", "i", toolbox.by_name[name]) for name in properties])
    assert isinstance(never, Invalid)
    assert never.reason == "schema"
    assert "'v' is unsatisfiable" in never.detail
    # Written as a text without its pattern, which the check does not let pass.
    assert isinstance(unread, Invalid)
    assert (unread.reason, unread.text[:6]) == ("schema", '{"v":"')
    assert isinstance(plain, Written)


def test_the_limit_of_tokens_gives_a_cut_call_not_an_abstention(tiny: tuple[Any, Any], toolbox: Toolbox) -> None:
    writer = LocalWriter(model=tiny[0], tokenizer=tiny[1], max_tokens=4, sample=True)
    found = writer.write("q", "i", tool=toolbox.by_name["tide_table"])
    assert isinstance(found, Invalid)
    assert found.reason == "cut"
    assert found.usage.completion_tokens == 4


def test_a_tool_without_arguments_asks_nobody_and_others_in_the_batch_keep_their_place(
    tiny: tuple[Any, Any], toolbox: Toolbox
) -> None:
    writer = LocalWriter(model=tiny[0], tokenizer=tiny[1], max_tokens=200, sample=True, limits=SMALL)
    calls = [("q", "i", toolbox.by_name[name]) for name in ("list_harbours", "rope_length", "list_harbours")]
    found = writer.write_all(calls)
    assert all(isinstance(one, Written) for one in found)
    assert [sorted(one.arguments) for one in found if isinstance(one, Written)] == [[], ["depth"], []]


def test_response_format_is_strict_where_it_can_be(toolbox: Toolbox) -> None:
    form, is_strict = response_format(toolbox.by_name["tide_table"])
    assert is_strict
    assert form["json_schema"]["name"] == "tide_table"
    assert form["json_schema"]["schema"]["required"] == ["harbour", "days"]
