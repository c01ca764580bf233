"""From ``conf/`` and overrides to checked ``Settings``, with an explanation where that fails."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.initialize import get_gh_backup, restore_gh_from_backup
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from toolshift.settings import checks
from toolshift.settings.convert import from_mapping
from toolshift.settings.errors import ConfigError
from toolshift.settings.nearest import nearest, suggestion
from toolshift.settings.options import conf_folder, groups, model_names, option_body
from toolshift.settings.schema import Settings
from toolshift.settings.tree import Difference, difference

HYDRA_VERSION_BASE = "1.3"
# The most jobs of a sweep that are composed before the first one starts; every option is among them.
SWEEP_JOBS_CHECKED = 24


def load_settings(config: str = "train", overrides: Sequence[str] = (), *, folder: Path | None = None) -> Settings:
    """Compose ``conf/<config>.yaml`` with Hydra overrides, convert and check.

    Raises:
        ConfigError: with one line per problem and the nearest valid name for a misspelled one.
    """
    folder = folder or conf_folder()
    parsed = parse_overrides(overrides)
    found = [problem for override in parsed for problem in _name_problems(override, folder)]
    if found:
        raise ConfigError(found)
    found = _added_key_problems(config, parsed, folder)
    if found:
        raise ConfigError(found)
    return to_settings(_compose(config, parsed, folder), folder=folder)


def to_settings(cfg: DictConfig, *, folder: Path | None = None) -> Settings:
    """Resolve, convert and check a composed config; the reference row is added to ``models`` if it is not there.

    Raises:
        ConfigError: unknown, missing or ill-typed keys, values out of range, contradictions.
    """
    folder = folder or conf_folder()
    with_reference = _with_reference(cfg, folder)
    missing = sorted(OmegaConf.missing_keys(with_reference))
    if missing:
        raise ConfigError([f"{key}: a value must be given, for example {key}=VALUE" for key in missing])
    try:
        plain = OmegaConf.to_container(with_reference, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(_first_paragraph(error)) from error
    settings = from_mapping(Settings, plain)
    problems = checks.problems(settings, folder=folder)
    if problems:
        raise ConfigError(problems)
    return settings


def difference_from_defaults(settings: Settings, *, config: str = "train") -> tuple[Difference, ...]:
    """What an experiment and a command line changed, against the primary config alone."""
    return difference(settings, load_settings(config))


def parse_overrides(overrides: Sequence[str]) -> list[Override]:
    """Parse Hydra overrides.

    Raises:
        ConfigError: one line per override that is not ``key=value``.
    """
    parser = OverridesParser.create()
    parsed: list[Override] = []
    problems: list[str] = []
    for text in overrides:
        try:
            parsed.append(parser.parse_override(text))
        except HydraException:
            problems.append(
                f"{text!r} is not an override; expected key=value, +key=value or ~key (quote values with spaces)"
            )
    if problems:
        raise ConfigError(problems)
    return parsed


def sweep_jobs(overrides: Sequence[str], *, folder: Path | None = None) -> list[list[str]]:
    """Override lists that together hold every swept choice at least once, at most ``SWEEP_JOBS_CHECKED``.

    Not the full product: a misspelled option is found in time that does not grow with the sweep.
    """
    folder = folder or conf_folder()
    choices = [_choices(override, folder) for override in parse_overrides(overrides)]
    longest = min(max(map(len, choices), default=1), SWEEP_JOBS_CHECKED)
    return [[values[min(i, len(values) - 1)] for values in choices] for i in range(longest)]


def _choices(override: Override, folder: Path) -> list[str]:
    """The override itself, or one override per value of a sweep."""
    text = cast("str", override.input_line)
    if not override.is_sweep_override():
        return [text]
    key = override.get_key_element()
    options = groups(folder).get(override.key_or_group, ())
    value = override.value()
    if hasattr(value, "filter"):
        return [f"{key}={option}" for option in cast("Any", value).filter(list(options))] or [text]
    if not override.is_discrete_sweep():
        raise ConfigError(f"{text}: the built-in sweeper takes lists, range() and glob(), no interval()")
    return [f"{key}={choice}" for choice in override.sweep_string_iterator()]


def _with_reference(cfg: DictConfig, folder: Path) -> DictConfig:
    reference, models = cfg.get("reference"), cfg.get("models")
    if not isinstance(reference, str) or not isinstance(models, DictConfig) or reference in models:
        return cfg
    body = option_body(folder, "model", reference)
    known = sorted({*model_names(folder), *map(str, models)})
    if reference not in known or body is None:
        raise ConfigError(f"reference: there is no model {reference!r}{suggestion(reference, known)}")
    copy = cfg.copy()
    with open_dict(copy):
        copy["models"] = {reference: body, **cast("dict[str, Any]", OmegaConf.to_container(models, resolve=False))}
    return copy


def _compose(config: str, overrides: Sequence[Override], folder: Path) -> DictConfig:
    try:
        return _hydra_compose(config, overrides, folder)
    except (HydraException, OmegaConfBaseException) as error:
        found = _key_problems(overrides, config, overrides, folder)
        raise ConfigError(found or _first_paragraph(error)) from error


def _hydra_compose(config: str, overrides: Sequence[Override], folder: Path) -> DictConfig:
    # Inside a job Hydra is already initialised, and refuses to be so twice.
    outer = get_gh_backup()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(folder), version_base=HYDRA_VERSION_BASE):
            return compose(config, [cast("str", override.input_line) for override in overrides])
    finally:
        restore_gh_from_backup(outer)


def _name_problems(override: Override, folder: Path) -> Iterator[str]:
    """Groups and options, checked without composing anything."""
    group = override.key_or_group
    if override.is_sweep_override():
        yield f"{override.input_line}: several values need -m (a sweep) or brackets (one list): {group}=[a,b]"
        return
    options = groups(folder).get(group)
    if options is None or override.is_delete():
        return
    value = override.value()
    for option in cast("list[object]", value) if isinstance(value, list) else [value]:
        if option is not None and str(option) not in options:
            yield f"{group}={option}: there is no conf/{group}/{option}.yaml{suggestion(str(option), options)}"


def _added_key_problems(config: str, overrides: Sequence[Override], folder: Path) -> list[str]:
    """``+key`` and ``++key`` would pass Hydra; the schema has no room for a key that is not in the files."""
    added = [override for override in overrides if override.is_add() or override.is_force_add()]
    return _key_problems(added, config, overrides, folder) if added else []


def _key_problems(suspects: Sequence[Override], config: str, overrides: Sequence[Override], folder: Path) -> list[str]:
    """The keys of ``suspects`` against the config that the chosen options of all ``overrides`` make up."""
    known_groups = groups(folder)
    chosen = [override for override in overrides if override.key_or_group in known_groups]
    valid = _all_keys(_hydra_compose(config, chosen, folder))
    unknown = [s.key_or_group for s in suspects if not _is_known(s, valid=valid, known_groups=known_groups)]
    candidates = [*valid, *known_groups]
    return [f"{key}: no such key or group; did you mean {_nearest_key(key, candidates)!r}?" for key in unknown]


def _is_known(override: Override, *, valid: Collection[str], known_groups: Collection[str]) -> bool:
    """True for a key of the config, a group, a key of Hydra's own, or a new key of an open mapping."""
    key = override.key_or_group
    parent = key.rpartition(".")[0]
    is_new_entry = override.is_add() and parent.endswith((".grid", ".params", ".options", ".choices", "compare"))
    return key in valid or key in known_groups or key.startswith(("hydra.", "hydra/")) or is_new_entry


def _nearest_key(key: str, valid: Sequence[str]) -> str | None:
    """The nearest full key; a key given without its group matches by its last part."""
    if "." not in key:
        by_last_part = {name.rpartition(".")[2]: name for name in sorted(valid, reverse=True)}
        if key in by_last_part:
            return by_last_part[key]
    return nearest(key, valid)


def _all_keys(cfg: DictConfig) -> list[str]:
    """Dotted keys of inner nodes and leaves, in the order of the config."""

    def walk(node: object, prefix: str) -> Iterator[str]:
        for name, child in cast("Mapping[str, object]", node).items() if isinstance(node, Mapping) else ():
            yield f"{prefix}{name}"
            yield from walk(child, f"{prefix}{name}.")

    return list(walk(OmegaConf.to_container(cfg, resolve=False), ""))


def _first_paragraph(error: BaseException) -> str:
    return str(error).strip().split("\n\n")[0].replace("\n", " ")
