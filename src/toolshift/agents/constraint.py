"""Arguments under the constraint of one tool's schema (Algorithm 1 line 6).

Behind an OpenAI-compatible endpoint the schema goes along as ``response_format``, and the server holds its decoder to
it. A local causal language model of transformers is held to it here, by Outlines [T] with its llguidance backend [R]:
unlike the default one that knows ranges of numbers, and says so where it cannot hold to a schema. Either way the
result is checked before anything is called.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from toolshift.agents.asking import WRITER, Model, arguments_prompt
from toolshift.agents.outcomes import NO_TOKENS, AgentError, Invalid
from toolshift.agents.tools import Tool
from toolshift.llm.outcomes import Answer, Usage
from toolshift.models.ntilc.arguments import (
    DEFAULT_LIMITS,
    Faulty,
    Limits,
    Schema,
    SchemaError,
    read_arguments,
    strict,
    takes_nothing,
    writable,
)

# The finest that the backend counts in is 1 / _PARTS; from _LARGE on in whole numbers.
_PARTS, _LARGE = 10**9, 10**6
_NAME = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Arguments that fit the schema of their tool. usage: tokens of writing them."""

    arguments: dict[str, Any]
    usage: Usage = NO_TOKENS


class ArgumentWriter(Protocol):
    """Writes the arguments of a call."""

    def write(self, query: str, intent: str, *, tool: Tool) -> Written | Invalid:
        """Arguments for one tool. A tool without arguments gets ``{}`` and nobody is asked."""
        ...


def checked(text: str, *, intent: str, tool: Tool, usage: Usage, nulls: bool = False) -> Written | Invalid:
    """The arguments in a written text."""
    found = read_arguments(text, tool.schema, nulls=nulls)
    if isinstance(found, Faulty):
        return Invalid(intent=intent, reason=found.reason, detail=found.detail, tool=tool.name, text=text, usage=usage)
    return Written(arguments=found, usage=usage)


def response_format(tool: Tool, *, limits: Limits = DEFAULT_LIMITS) -> tuple[dict[str, Any], bool]:
    """The field ``response_format`` for a tool's arguments, and whether it is the strict form (`strict`)."""
    narrow = writable(tool.schema, limits=limits)
    closed = strict(narrow)
    name = (_NAME.sub("_", tool.name).strip("_") or "arguments")[:64]
    form = {"name": name, "schema": narrow if closed is None else closed, "strict": closed is not None}
    return {"type": "json_schema", "json_schema": form}, closed is not None


@dataclass(frozen=True, kw_only=True)
class EndpointWriter:
    """Arguments from a language model behind an endpoint. constrain: send the schema as ``response_format``; without
    it the schema stands in the prompt alone, for servers that do not know the field."""

    model: Model
    constrain: bool = True
    limits: Limits = DEFAULT_LIMITS

    def write(self, query: str, intent: str, *, tool: Tool) -> Written | Invalid:
        """See `ArgumentWriter.write`."""
        if takes_nothing(tool.schema):
            return Written(arguments={})
        form, is_strict = response_format(tool, limits=self.limits) if self.constrain else (None, False)
        prompt = arguments_prompt(
            query, intent, name=tool.endpoint.operation, description=tool.description, schema=tool.schema
        )
        outcome = self.model.ask(WRITER, prompt, response_format=form)
        if isinstance(outcome, Answer):
            return checked(outcome.text, intent=intent, tool=tool, usage=outcome.usage, nulls=is_strict)
        reason = "cut" if outcome.reason == "cut" else "no_answer"
        detail = outcome.detail if reason == "cut" else f"{outcome.reason}: {outcome.detail}".rstrip(": ")
        return Invalid(intent=intent, reason=reason, detail=detail, tool=tool.name, usage=outcome.usage)


@dataclass(frozen=True, kw_only=True)
class LocalWriter:
    """Arguments from a local causal language model whose tokens are masked so that only the schema can be written.

    model, tokenizer: of transformers. max_tokens: room for one call; a call that needs more is ``cut``. sample: draw
    tokens (torch's generator) instead of taking the best ones.
    """

    model: Any
    tokenizer: Any
    max_tokens: int = 512
    sample: bool = False
    limits: Limits = DEFAULT_LIMITS
    _outlines: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def load(
        folder: Path, *, max_tokens: int = 512, device: str = "cpu", limits: Limits = DEFAULT_LIMITS
    ) -> LocalWriter:
        """A model out of a folder; nothing is downloaded.

        Raises:
            AgentError: if the folder holds no causal language model.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer

        try:
            model: Any = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
            model = model.to(device).eval()
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise AgentError(f"{folder}: no causal language model of transformers ({error})") from error
        return LocalWriter(model=model, tokenizer=tokenizer, max_tokens=max_tokens, limits=limits)

    def write(self, query: str, intent: str, *, tool: Tool) -> Written | Invalid:
        """See `ArgumentWriter.write`."""
        (found,) = self.write_all([(query, intent, tool)])
        return found

    def write_all(self, calls: Sequence[tuple[str, str, Tool]]) -> list[Written | Invalid]:
        """Arguments of several (query, intent, tool), in one batch. A tool to whose schema no decoder can be held is
        ``invalid`` and does not end the others."""
        found: dict[int, Written | Invalid] = {}
        ask: list[tuple[int, str]] = []
        for number, (_, intent, tool) in enumerate(calls):
            if takes_nothing(tool.schema):
                found[number] = Written(arguments={})
                continue
            try:
                ask.append((number, self._grammar(tool.schema)))
            except SchemaError as error:
                found[number] = Invalid(intent=intent, reason="schema", detail=str(error), tool=tool.name)
        texts = self._held([self._prompt(*calls[number]) for number, _ in ask], [held for _, held in ask])
        for (number, _), (text, usage) in zip(ask, texts, strict=True):
            found[number] = checked(text, intent=calls[number][1], tool=calls[number][2], usage=usage)
        return [found[number] for number in range(len(calls))]

    def texts(self, prompts: Sequence[str], schemas: Sequence[Schema]) -> list[tuple[str, Usage]]:
        """What the model writes after each prompt under each (normalised) schema, and the tokens of both.

        Raises:
            AgentError: if Outlines is not installed.
            SchemaError: if no decoder can be held to one of the schemas.
        """
        return self._held(prompts, [self._grammar(schema) for schema in schemas])

    def _grammar(self, schema: Schema) -> str:
        _ = self._parts  # says how to install what is missing
        return grammar(schema, limits=self.limits)

    def _held(self, prompts: Sequence[str], grammars: Sequence[str]) -> list[tuple[str, Usage]]:
        if not prompts:
            return []
        masks = _masks(grammars, self._parts)
        generator = self._parts.outlines.Generator(self._parts.model, processor=masks)
        texts = generator.batch(
            list(prompts),
            max_new_tokens=self.max_tokens,
            do_sample=self.sample,
            pad_token_id=self.tokenizer.pad_token_id,
        )
        return [
            (text, Usage(*(len(self.tokenizer(part)["input_ids"]) for part in (prompt, text))))
            for prompt, text in zip(prompts, texts, strict=True)
        ]

    def _prompt(self, query: str, intent: str, tool: Tool) -> str:
        prompt = arguments_prompt(
            query, intent, name=tool.endpoint.operation, description=tool.description, schema=tool.schema
        )
        if getattr(self.tokenizer, "chat_template", None) is None:
            return f"{WRITER}\n\n{prompt}\n\nArguments:\n"
        messages = [{"role": "system", "content": WRITER}, {"role": "user", "content": prompt}]
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    @cached_property
    def _parts(self) -> _Outlines:
        return _Outlines.of(self.model, self.tokenizer)


@dataclass(frozen=True)
class _Outlines:
    """The library, its model and the token table of its backend: made once for a model."""

    outlines: Any
    model: Any
    tokens: Any

    @staticmethod
    def of(model: Any, tokenizer: Any) -> _Outlines:
        try:
            import llguidance  # noqa: F401  (the backend imports it)
            import outlines
            from outlines.backends.llguidance import LLGuidanceBackend
        except ImportError as error:
            raise AgentError(
                "arguments of a local model need Outlines: install the extra `llm` (make setup EXTRAS=llm)"
            ) from error
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        wrapped = outlines.from_transformers(model, tokenizer)
        return _Outlines(outlines, wrapped, LLGuidanceBackend(wrapped).llg_tokenizer)


def grammar(schema: Schema, *, limits: Limits = DEFAULT_LIMITS) -> str:
    """The grammar of a normalised schema: no optional blanks and no endless decimals, which a weak model would write.

    A pattern that the library cannot read (look-around, back-references) is left to the check of the call.

    Raises:
        SchemaError: if the library cannot hold a decoder to the schema, which it says of one that nothing fits, too.
    """
    narrow = _mapped(writable(schema, limits=limits), _rounded)
    found, problem = _compiled(narrow)
    if problem:
        found, still = _compiled(_mapped(narrow, _without_unread_pattern))
        if still:
            raise SchemaError(f"no decoder can be held to this schema: {problem}")
    return found


def _compiled(schema: Schema) -> tuple[str, str]:
    """A grammar, and why it cannot be used."""
    from llguidance import LLMatcher

    found = LLMatcher.grammar_from_json_schema(json.dumps(schema | {"x-guidance": {"whitespace_flexible": False}}))
    failed, messages = LLMatcher.validate_grammar_with_warnings(found)
    return found, "; ".join(messages) or "no reason given" if failed else ""


def _mapped(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """A writable schema with every schema in it changed."""
    result = {**change(schema)}
    for key in {"properties", "patternProperties"} & set(result):
        result[key] = {name: _mapped(part, change) for name, part in result[key].items()}
    for key in {"anyOf", "prefixItems"} & set(result):
        result[key] = [_mapped(part, change) for part in result[key]]
    if "items" in result:
        result["items"] = _mapped(result["items"], change)
    return result


def _rounded(schema: Schema) -> Schema:
    """Numbers of at most nine decimals between two bounds that are part of the range.

    The backend lets 0 pass where it is the excluded end of a range below 1. A range too narrow for nine decimals stays.
    """
    kind = schema.get("type", ())
    if "number" not in ((kind,) if isinstance(kind, str) else kind) or {"enum", "const"} & set(schema):
        return schema
    low = max(_inside(schema[k], k, up=True) for k in ("minimum", "exclusiveMinimum") if k in schema)
    high = min(_inside(schema[k], k, up=False) for k in ("maximum", "exclusiveMaximum") if k in schema)
    if high - low < 2 / _PARTS:
        return schema
    kept = {key: value for key, value in schema.items() if key not in ("exclusiveMinimum", "exclusiveMaximum")}
    return {"multipleOf": 1 / _PARTS} | kept | {"minimum": low, "maximum": high}


def _inside(bound: float, key: str, *, up: bool) -> float:
    """The first number of nine decimals, or none where it is large, that a bound lets pass; up: the bound is a low one.

    >>> _inside(0, "exclusiveMinimum", up=True), _inside(0.5, "maximum", up=False)
    (1e-09, 0.5)
    """
    parts = _PARTS if abs(bound) < _LARGE else 1  # a float has 15 safe digits
    place = Fraction(repr(bound)) * parts
    found = math.ceil(place) if up else math.floor(place)
    if key.startswith("exclusive") and found == place:
        found += 1 if up else -1
    return found if parts == 1 else float(Fraction(found, parts))


def _without_unread_pattern(schema: Schema) -> Schema:
    if "pattern" not in schema or not _compiled({"type": "string", "pattern": schema["pattern"]})[1]:
        return schema
    return {key: value for key, value in schema.items() if key != "pattern"}


def _masks(grammars: Sequence[str], parts: _Outlines) -> Any:
    """A logits processor of Outlines with a grammar for every row of a batch; its own takes one for all rows, and
    compiles a kernel for the mask when it first runs."""
    import numpy as np
    import torch
    from llguidance import LLMatcher
    from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
    from outlines.processors import OutlinesLogitsProcessor

    class RowMasks(OutlinesLogitsProcessor):
        def __init__(self) -> None:
            super().__init__(parts.model.tensor_library_name)
            self.matchers = [LLMatcher(parts.tokens, one) for one in grammars]
            self.live: list[int] = []
            self.mask = allocate_token_bitmask(len(grammars), parts.tokens.vocab_size)

        def process_logits(self, input_ids: Any, logits: Any) -> Any:
            assert len(input_ids) == len(self.matchers), "beams and several samples of one prompt are not made here"
            last = input_ids[:, -1].tolist()
            for row in self.live:
                self.matchers[row].consume_token(last[row])
            for row in self.live or range(len(self.matchers)):
                fill_next_token_bitmask(self.matchers[row], self.mask, row)
            # A finished row keeps its last mask, which allows the end alone, until the longest row is done.
            self.live = [row for row, matcher in enumerate(self.matchers) if not matcher.is_stopped()]
            allowed = np.unpackbits(self.mask.view(np.uint8), axis=1, bitorder="little").astype(bool)
            kept = torch.zeros(logits.shape, dtype=torch.bool)  # a model may have more columns than its tokenizer
            width = min(kept.shape[1], allowed.shape[1])
            kept[:, :width] = torch.from_numpy(allowed[:, :width])
            return logits.masked_fill(~kept.to(logits.device), float("-inf"))

    return RowMasks()
