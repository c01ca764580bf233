"""The entry behind ``scripts/agent.py``: NTILC's tool loop on one request, with a config of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from omegaconf import OmegaConf

from toolshift.settings.convert import from_mapping
from toolshift.settings.errors import ConfigError
from toolshift.settings.nearest import nearest
from toolshift.settings.options import conf_folder
from toolshift.settings.single import command, literal, overridden, plain_word

if TYPE_CHECKING:
    from toolshift.agents.constraint import ArgumentWriter
    from toolshift.agents.executor import Arguments, Executor
    from toolshift.agents.loop import Agent, Episode
    from toolshift.agents.planning import Planner, Synthesiser
    from toolshift.agents.search import ToolEncoder
    from toolshift.agents.tools import Tool, Toolbox
    from toolshift.models.ntilc.arguments import Limits

# Taken as they stand: a request holds commas, quotes and brackets.
WORDS = ("query", "tools", "functions", "results")
_ALL = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderPlace:
    """``encoder``: the frozen encoder's folder, and that of a trained one."""

    path: str | None
    checkpoint: str | None
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmPlace:
    """``llm``: an OpenAI-compatible endpoint and the store of its answers (`toolshift.llm.endpoint`)."""

    model: str | None
    base_url: str | None
    api_key_env: str | None
    mode: Literal["replay", "record", "live"]
    store: str
    timeout_s: float
    attempts: int
    max_tokens: int
    response_format: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlace:
    """``local``: a causal language model that writes the arguments."""

    path: str | None
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLimits:
    """``limits``: see `toolshift.models.ntilc.arguments.Limits`."""

    depth: int
    description: int
    string: int
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """``conf/agent.yaml``."""

    query: str
    tools: str
    executor: Literal["dry_run", "functions", "cached"]
    functions: str | None
    results: str | None
    allow: tuple[str, ...]
    confirm: bool
    timeout_s: float
    min_score: float | None
    index: Literal["exact", "flat", "ivf", "hnsw"]
    format: Literal["text", "json"]
    encoder: EncoderPlace
    llm: LlmPlace
    local: LocalPlace
    limits: SizeLimits


def main(arguments: Sequence[str]) -> int:
    """Check the command line, then run the loop. Returns the exit status: 2 for a refused command."""
    return command("agent", arguments, lambda: _run(load(arguments)))


def _run(settings: AgentSettings) -> int:
    print(shown(build(settings).run(settings.query), form=settings.format))
    return 0


def load(arguments: Sequence[str], *, folder: Path | None = None) -> AgentSettings:
    """``conf/agent.yaml`` with overrides.

    Raises:
        ConfigError: one line per problem, with the nearest valid key.
    """
    body = OmegaConf.to_container(OmegaConf.load((folder or conf_folder()) / "agent.yaml"))
    keys = _keys(cast("Mapping[str, Any]", body))
    config = overridden(
        "agent", arguments, keys=keys, words=WORDS, word=_word, required=("query", "tools"), folder=folder
    )
    settings = from_mapping(AgentSettings, cast("Any", OmegaConf.to_container(config, resolve=True)))
    problems = _contradictions(settings)
    if problems:
        raise ConfigError(problems)
    return settings


def _word(key: str, value: str) -> str | None:
    return literal(value) if key == "query" else plain_word(key, value)


def _keys(config: Mapping[str, Any], prefix: str = "") -> list[str]:
    found: list[str] = []
    for key, value in config.items():
        found += _keys(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [f"{prefix}{key}"]
    return found


def _contradictions(settings: AgentSettings) -> list[str]:
    problems: list[str] = []
    if not settings.query.strip():
        problems.append("query: the request is empty")
    if (settings.executor == "functions") != (settings.functions is not None):
        problems.append("functions: executor=functions and functions=FILE belong together")
    if settings.executor == "cached" and settings.results is None:
        problems.append("results: executor=cached needs results=FILE")
    if settings.executor == "dry_run" and settings.results is not None:
        problems.append("results: a dry run neither reads nor makes results; give executor=cached or functions")
    if settings.min_score is not None and not -1 <= settings.min_score <= 1:
        problems.append(f"min_score: a cosine, expected -1 to 1, got {settings.min_score:g}")
    for key, value in (("timeout_s", settings.timeout_s), ("llm.max_tokens", settings.llm.max_tokens)):
        if value <= 0:
            problems.append(f"{key}: expected a number above 0, got {value:g}")
    return problems


# ----------------------------------------------------------------------------------------------------------- the parts


def build(settings: AgentSettings) -> Agent:
    """The loop as configured.

    Raises:
        UserError: or another user-facing error, if a file, an encoder or an endpoint cannot be used.
    """
    from toolshift.agents.executor import Dispatcher
    from toolshift.agents.loop import Agent
    from toolshift.agents.search import ToolSearch
    from toolshift.agents.tools import read_tools
    from toolshift.models.ntilc.arguments import Limits

    at = settings.limits
    limits = Limits(depth=at.depth, description=at.description, string=at.string, items=at.items)
    toolbox = read_tools(Path(settings.tools), limits=limits)
    planner, writer, synthesiser = _language(settings, limits=limits)
    return Agent(
        planner=planner,
        search=ToolSearch.of(toolbox, _encoder(settings.encoder), backend=settings.index),
        writer=writer,
        dispatcher=Dispatcher(
            executor=_executor(settings),
            allow=_allowed(settings.allow, toolbox),
            confirm=_confirm if settings.confirm else None,
            timeout_s=settings.timeout_s,
        ),
        synthesiser=synthesiser,
        min_score=settings.min_score,
    )


def _language(settings: AgentSettings, *, limits: Limits) -> tuple[Planner, ArgumentWriter, Synthesiser]:
    """Planner, writer and synthesis: of the endpoint, of the local model, or the stand-ins."""
    from toolshift.agents import standins
    from toolshift.agents.asking import Model
    from toolshift.agents.constraint import EndpointWriter, LocalWriter
    from toolshift.agents.planning import ModelPlanner, ModelSynthesiser
    from toolshift.llm.client import client_of
    from toolshift.llm.endpoint import Endpoint

    llm, local = settings.llm, settings.local
    planner: Planner = standins.PlannerStandin()
    writer: ArgumentWriter = standins.WriterStandin()
    synthesiser: Synthesiser = standins.SynthesiserStandin()
    if llm.model is not None:
        endpoint = Endpoint(
            base_url=llm.base_url, model=llm.model, api_key_env=llm.api_key_env, mode=llm.mode, store=llm.store,
            timeout_s=llm.timeout_s, attempts=llm.attempts,
        )  # fmt: skip
        model = Model(client=client_of(endpoint), max_tokens=llm.max_tokens)
        planner, synthesiser = ModelPlanner(model), ModelSynthesiser(model)
        writer = EndpointWriter(model=model, constrain=llm.response_format, limits=limits)
    if local.path is not None:
        device = settings.encoder.device
        writer = LocalWriter.load(Path(local.path), max_tokens=local.max_tokens, device=device, limits=limits)
    return planner, writer, synthesiser


def _encoder(place: EncoderPlace) -> ToolEncoder:
    from toolshift.agents.search import FrozenTools
    from toolshift.models.ntilc.encoder import NtilcEncoder
    from toolshift.text.minilm import MiniLM

    if place.checkpoint is None:
        return FrozenTools(MiniLM(path=place.path, device=place.device))
    base = MiniLM(path=place.path, device=place.device) if _on_frozen(Path(place.checkpoint)) else None
    return NtilcEncoder.load(Path(place.checkpoint), base=base, device=place.device)


def _on_frozen(checkpoint: Path) -> bool:
    """Whether a trained encoder is a head on a frozen one: it then comes without a backbone of its own."""
    return not (checkpoint / "backbone").is_dir()


def _executor(settings: AgentSettings) -> Executor:
    from toolshift.agents.executor import Cached, DryRun, Functions

    if settings.executor == "dry_run":
        return DryRun()
    behind = Functions(_functions(Path(settings.functions))) if settings.functions is not None else None
    if settings.results is not None:
        return Cached(Path(settings.results), behind=behind)
    assert behind is not None, "checked with the settings"
    return behind


def _functions(path: Path) -> Mapping[str, Callable[..., Any]]:
    """The public functions of a Python file, by name."""
    from runpy import run_path

    from toolshift.agents.outcomes import AgentError

    if not path.is_file():
        raise AgentError(f"{path}: no such file; expected Python functions named as the tools")
    found = run_path(str(path))
    return {name: value for name, value in found.items() if callable(value) and not name.startswith("_")}


def _allowed(names: Sequence[str], toolbox: Toolbox) -> frozenset[str] | None:
    """The allow-list; a name that no tool has is an error, since it was meant to allow something."""
    from toolshift.agents.outcomes import AgentError

    if tuple(names) == _ALL:
        return None
    unknown = [name for name in names if name not in toolbox.by_name]
    if unknown:
        known = nearest(unknown[0], list(toolbox.by_name)) if toolbox.by_name else None
        raise AgentError(f"allow: no tool is called {unknown[0]!r}" + (f"; did you mean {known!r}?" if known else ""))
    return frozenset(names)


def _confirm(tool: Tool, arguments: Arguments) -> bool:
    """Ask on the terminal; without one the answer is no."""
    from toolshift.models.ntilc.arguments import canonical

    print(f"call {tool.name}({canonical(dict(arguments))})? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# ---------------------------------------------------------------------------------------------------------- the answer


def shown(episode: Episode, *, form: Literal["text", "json"]) -> str:
    """An episode for the terminal."""
    import json
    from dataclasses import asdict

    if form == "json":
        rows = [{"kind": outcome.kind, **asdict(outcome)} for outcome in episode.outcomes]
        content = {**asdict(episode), "outcomes": rows, "counts": episode.counts}
        return json.dumps(content, indent=2, ensure_ascii=False)
    lines = [line for number, outcome in enumerate(episode.outcomes, 1) for line in _lines(number, outcome)]
    total = ", ".join(f"{name} {seconds:.3f}" for name, seconds in episode.seconds.items())
    usage = episode.usage
    tokens = f"tokens: {usage.prompt_tokens} read, {usage.completion_tokens} written"
    return "\n".join([*lines, "", episode.answer, "", f"seconds: {total}; {tokens}"])


def _lines(number: int, outcome: Any) -> list[str]:
    from toolshift.models.ntilc.arguments import canonical

    lines = [f"{number}. {outcome.intent}"]
    tool = getattr(outcome, "tool", "") or getattr(outcome, "nearest", "")
    score = f" (cosine {outcome.score:.3f})" if tool and hasattr(outcome, "score") else ""
    call = canonical(dict(outcome.arguments)) if hasattr(outcome, "arguments") else ""
    reason = f": {outcome.reason.replace('_', ' ')}" if hasattr(outcome, "reason") else ""
    detail = getattr(outcome, "detail", "")
    lines.append(f"   {outcome.kind}{reason}" + (f" - {tool} {call}".rstrip() + score if tool else ""))
    return [*lines, f"   {detail}"] if detail else lines
