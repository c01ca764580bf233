"""Scripts with a config file of their own (``conf/<script>.yaml``): no experiment, no sweep, no Hydra groups.

They refuse a command the way ``settings.launch`` does: exit status 2, one line per problem, the nearest valid key.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from toolshift.settings.compose import parse_overrides
from toolshift.settings.errors import ConfigError, exit_code_of, is_user_facing
from toolshift.settings.launch import INTERRUPTED
from toolshift.settings.nearest import nearest
from toolshift.settings.options import conf_folder

Word = Callable[[str, str], str | None]


def command(
    name: str,
    arguments: Sequence[str],
    act: Callable[[], int],
    *,
    interrupted: str = "",
    printable: Callable[[str], str] = str,
) -> int:
    """The exit status of ``act``, 2 for a refused configuration, what an error says of itself otherwise.

    ``-h`` and ``--help`` print ``conf/<name>.yaml``, which explains every key. interrupted: said after Ctrl-C.
    """
    if any(argument in ("-h", "--help") for argument in arguments):
        print((conf_folder() / f"{name}.yaml").read_text(encoding="utf-8"))
        return 0
    try:
        return act()
    except ConfigError as error:
        print("configuration refused:", *(f"  {problem}" for problem in error.problems), sep="\n", file=sys.stderr)
        return exit_code_of(error)
    except KeyboardInterrupt:
        if interrupted:
            print(interrupted, file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if not is_user_facing(error):
            raise
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return exit_code_of(error)


def plain_word(key: str, value: str) -> str | None:
    """A word as it stands, ``null`` for none; nothing in it is an interpolation."""
    del key
    return None if value == "null" else literal(value)


def literal(value: str) -> str:
    """A text in which OmegaConf finds no interpolation."""
    return value.replace("${", "\\${")


def overridden(
    name: str,
    arguments: Sequence[str],
    *,
    keys: Collection[str],
    words: Collection[str] = (),
    word: Word = plain_word,
    refused: Mapping[str, str] | None = None,
    required: Sequence[str] = (),
    folder: Path | None = None,
) -> DictConfig:
    """``conf/<name>.yaml`` with overrides.

    Args:
        name: of the config file.
        arguments: of the command line, ``key=value`` each.
        keys: that may be set.
        words: keys among them whose values are taken as they stand, since they may hold any character.
        word: what becomes of (key, value) of a word.
        refused: other keys -> why they are refused.
        required: keys that need a value.
        folder: ``conf/``.

    Raises:
        ConfigError: one line per problem, with the nearest valid key.
    """
    config = OmegaConf.load((folder or conf_folder()) / f"{name}.yaml")
    assert isinstance(config, DictConfig)
    taken = [a for a in arguments if a.partition("=")[0] in words and "=" in a]
    problems: list[str] = []
    for override in parse_overrides([a for a in arguments if a not in taken]):
        key = override.key_or_group
        if override.is_delete() or override.is_add() or override.is_sweep_override():
            problems.append(f"{override.input_line}: expected key=value")
        elif key in (refused or {}):
            problems.append(f"{override.input_line}: {(refused or {})[key]}")
        elif key not in keys:
            valid = sorted(keys)
            problems.append(f"{key}: no such key; did you mean {nearest(key, valid)!r}? (valid: {', '.join(valid)})")
        else:
            OmegaConf.update(config, key, override.value())
    for key, _, value in (argument.partition("=") for argument in taken):
        OmegaConf.update(config, key, word(key, value))
    missing = [key for key in required if OmegaConf.is_missing(config, key)]
    problems += [f"{key}: a value must be given, {key}=VALUE; --help shows what" for key in missing if not problems]
    if problems:
        raise ConfigError(problems)
    return config
