"""`wick schema`: what may stand in agents.yaml, for editors."""

from __future__ import annotations

from typing import Annotated

from wick_graph.cli import output


def schema(debug: Annotated[bool, output.DEBUG] = False) -> None:
    """Print the JSON schema of agents.yaml.

    Editors complete and check a file by it: in its first line, write
    `# yaml-language-server: $schema=` and where the schema is.
    """
    from wick_graph.config.jsonschema import json_schema
    from wick_graph.tools.builtin_tools import BUILTINS

    output.print_json(json_schema(BUILTINS))
