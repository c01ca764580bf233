"""A hand-written miniature release in ToolBench's layout, which each test changes in one place; and real files."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Release:
    """A release below ``root``; every ``put`` writes one file below ``root/toolbench``."""

    root: Path

    def put(self, relative: str, content: Any) -> Path:
        """Write JSON, or bytes as they are; a name that ends in .gz is packed."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        path = self.root / "toolbench" / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if relative.endswith(".gz") else data)
        return path

    def tool(self, category: str, stem: str, name: str, *apis: dict[str, Any], description: Any = "") -> Path:
        content = {"tool_name": name, "tool_description": description, "api_list": list(apis)}
        return self.put(f"toolenv/tools/{category}/{stem}.json", content)


def api(name: str, *required: str, description: str = "", optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """An API of a tool file; parameters are NUMBERs."""
    return {
        "name": name,
        "description": description,
        "method": "get",
        "required_parameters": [{"name": p, "type": "NUMBER", "description": "", "default": ""} for p in required],
        "optional_parameters": [{"name": p, "type": "NUMBER", "description": "", "default": ""} for p in optional],
    }


def doc(category: str, tool: str, name: str, *required: str, description: str = "") -> dict[str, Any]:
    """An ``api_list`` entry of a query row."""
    entry = api(name, *required, description=description)
    del entry["name"], entry["description"]
    named = {"category_name": category, "tool_name": tool, "api_name": name, "api_description": description}
    return {**named, **entry}


def row(query: Any, docs: list[Any], gold: list[Any], query_id: int = 0) -> dict[str, Any]:
    return {"query": query, "api_list": docs, "relevant APIs": gold, "query_id": query_id}


@dataclass(frozen=True)
class Make:
    """The builders above, handed to tests as one fixture (test modules import nothing from each other)."""

    api = staticmethod(api)
    doc = staticmethod(doc)
    row = staticmethod(row)


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """Two tools of Weather and Food, one query row for each."""
    r = Release(tmp_path / "root")
    r.tool(
        "Weather", "sky_view", "Sky View", api("Get Forecast", "lat", description="Coming days."), description="Sky."
    )
    r.tool("Food", "soup_book", "Soup Book", api("Find Soup", optional=("page",)), description="All soups.")
    r.put(
        "test_instruction/G1_tool.json",
        [
            row("Will it rain?", [doc("Weather", "Sky View", "Get Forecast", "lat")], [["Sky View", "Get Forecast"]]),
            row("A soup, please.", [doc("Food", "Soup Book", "Find Soup")], [["Soup Book", "Find Soup"]], 1),
        ],
    )
    return r


@pytest.fixture
def toolbench_tools() -> Path:
    root = os.environ.get("TOOLSHIFT_DATA")
    if not root:
        pytest.skip("TOOLSHIFT_DATA is not set; it must name the folder that holds toolbench/")
    tools = Path(root) / "toolbench" / "toolenv" / "tools"
    if not tools.is_dir():
        pytest.skip(f"{tools} does not exist")
    return tools
