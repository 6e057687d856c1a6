"""How one would first write it: what the attacks on prompts must be able to tell from ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from wick_graph import BaseHook
from wick_graph.core.request import ModelRequest


class NaiveMemory(BaseHook):
    """Put a file into the prompt between two fixed tags."""

    name = "memory"

    def __init__(self, root: Path, paths: Any) -> None:
        self.root, self.paths = root, paths

    def before_agent(self, state: Mapping[str, Any], ctx: Any) -> Any:
        return {"memory": {path: (self.root / path).read_text() for path in self.paths}}

    def modify_request(self, request: ModelRequest, ctx: Any) -> ModelRequest:
        text = "\n\n---\n\n".join(request.state["memory"].values())
        return request.append_system(f"<agent_memory>\n{text}\n</agent_memory>")


class NaiveSkills(BaseHook):
    """List what the front matters say, as they say it."""

    name = "skills"

    def __init__(self, root: Path, paths: Any) -> None:
        self.root, self.paths = root, paths

    def before_agent(self, state: Mapping[str, Any], ctx: Any) -> Any:
        found = []
        for path in self.paths:
            for file in sorted((self.root / path).rglob("SKILL.md")):
                says = self._front_matter(file.read_text())
                name = says.get("name", file.parent.name)
                path = says.get("path", str(file.relative_to(self.root)))
                found.append({"name": name, "description": says.get("description"), "path": path})
        return {"skills": found}

    def modify_request(self, request: ModelRequest, ctx: Any) -> ModelRequest:
        lines = [
            f"- [{s['name']}] {s['description']} → Read {s['path']} for full instructions"
            for s in request.state["skills"]
        ]
        return request.append_system("\n".join(["Available Skills:", *lines]))

    def _front_matter(self, text: str) -> dict[str, Any]:
        match = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
        return yaml.safe_load(match[1]) if match else {}
