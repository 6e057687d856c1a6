"""A text read as agents.yaml of the folder /srv, in an empty environment."""

from __future__ import annotations

from pathlib import Path

from wick_graph.config import AgentsFile, parse_config


def parse(text: str, base_dir: Path = Path("/srv")) -> AgentsFile:
    return parse_config(text, source="agents.yaml", base_dir=base_dir, env={})
