"""Files of the set-up agree with one another, and no module of the package is heavy to import."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
LOCKS = sorted(file.stem for file in (ROOT / "requirements").glob("*.lock"))
# What the issue calls the packages of the card.
CARD = [
    "torch",
    "hydra-core",
    "omegaconf",
    "sentence-transformers",
    "faiss-cpu",
    "pandas",
    "scipy",
    "networkx",
    "python-louvain",
    "wandb",
    "pytest",
]


def lock(name: str) -> dict[str, Requirement]:
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    lines = [re.sub(r"\s*\\$", "", line) for line in text.splitlines() if line and line[0] not in " #"]
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines)}


def pin(requirement: Requirement) -> str:
    (specifier,) = requirement.specifier
    assert specifier.operator == "=="
    return specifier.version


def torch_pin() -> str:
    match = re.search(r"TORCH:-torch==([\d.]+)", (ROOT / "requirements" / "setup.sh").read_text())
    assert match
    return match.group(1)


def conda_pins() -> dict[str, str]:
    environment: dict[str, Any] = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [part["pip"] for part in environment["dependencies"] if isinstance(part, dict)]
    pinned = [Requirement(line) for line in pip if not line.startswith("--")]
    return {canonicalize_name(requirement.name): pin(requirement) for requirement in pinned}


def test_environment_yml_names_the_card_at_the_locked_versions() -> None:
    pins = conda_pins()
    assert set(CARD) <= set(pins)
    locked = {name: pin(requirement) for name, requirement in lock("cpu").items()} | {"torch": torch_pin()}
    assert pins == {name: locked.get(name) for name in pins}


def test_environment_yml_names_every_dependency_of_the_card_once() -> None:
    text = (ROOT / "environment.yml").read_text()
    assert len(re.findall(r"^ +- [\w-]+==", text, flags=re.M)) == len(conda_pins())


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_hashes_and_one_version(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    blocks = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text).strip())
    assert blocks
    assert all("--hash=sha256:" in block for block in blocks)
    cpu = lock("cpu")
    assert all(pin(requirement) == pin(cpu[key]) for key, requirement in lock(name).items() if key in cpu)


def test_the_lock_covers_pyproject_and_leaves_torch_out() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    locked = lock("cpu")
    for line in [*project["dependencies"], *extras["dev"], *extras["tracking"]]:
        requirement = Requirement(line)
        if requirement.name != "torch":
            assert requirement.specifier.contains(pin(locked[canonicalize_name(requirement.name)])), line
    assert not [name for name in locked if name == "torch" or name.startswith(("nvidia-", "triton"))]
    assert Requirement(project["dependencies"][0]).specifier.contains(torch_pin())


@pytest.mark.skipif(not list((ROOT / ".venv").glob(".setup-*")), reason="this environment is not from make setup")
def test_the_environment_is_the_locked_one() -> None:
    for name, requirement in lock("cpu").items():
        if requirement.marker is None or requirement.marker.evaluate():
            assert importlib.metadata.version(name) == pin(requirement), name


def test_extras_of_the_setup_have_a_lock_and_an_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(LOCKS) - {"cpu"} == {"gpu", "llm", "notebooks"} <= set(extras)
    assert "faiss-gpu" in lock("gpu")
    assert "faiss-cpu" not in lock("gpu")


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    # Inside `make test` these would make the inner make report as a sub-make.
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
    )


def test_make_lists_every_target() -> None:
    listed = make()
    assert listed.returncode == 0, listed.stderr
    names = {line.split()[0] for line in listed.stdout.splitlines() if line.strip()}
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.M)
    assert phony
    assert names == set(phony.group(1).split())
    wanted = {"setup", "lodo", "test", "lint", "data", "paper", "tables", "check-tables", "bench", "status", "help"}
    assert wanted <= names


def test_an_unknown_extra_is_refused() -> None:
    refused = make("setup", "EXTRAS=nonsense")
    assert refused.returncode != 0
    assert "choose from gpu, llm, notebooks" in refused.stderr


def test_scripts_of_the_setup_are_executable_and_parse() -> None:
    for name in (".ci/run", "requirements/setup.sh", "requirements/compile.sh"):
        assert os.access(ROOT / name, os.X_OK), name
        assert subprocess.run(["bash", "-n", ROOT / name], check=False).returncode == 0, name


def test_ci_runs_lint_and_the_test_command_of_the_readme() -> None:
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert "make lint" in commands
    assert "make test" in commands
    assert "make test" in (ROOT / "README.md").read_text()


def test_importing_the_package_imports_no_learning_framework() -> None:
    program = """
import importlib, pkgutil, sys, toolshift
for module in pkgutil.walk_packages(toolshift.__path__, "toolshift."):
    importlib.import_module(module.name)
heavy = ("torch", "sentence_transformers", "transformers", "faiss", "sklearn")
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
