"""Importing a model or a view costs no heavy package."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import importlib, pkgutil, sys
names = []
for package in ("toolshift.views", "toolshift.protocols", "toolshift.models", "toolshift.selection", "toolshift.runs"):
    module = importlib.import_module(package)
    names += [m.name for m in pkgutil.walk_packages(module.__path__, f"{package}.")]
for name in names:
    importlib.import_module(name)
heavy = ("torch", "sklearn", "sentence_transformers", "transformers", "faiss", "matplotlib", "bm25s")
print(len(names), *sorted(set(heavy) & set(sys.modules)))
"""


def test_no_module_imports_a_heavy_package() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True)
    count, *heavy = done.stdout.split()
    assert int(count) >= 25
    assert heavy == []
