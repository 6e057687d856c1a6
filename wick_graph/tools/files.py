"""Look at files; every path goes through a Root."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from wick_graph.backends import Entry, Root
from wick_graph.messages.invisible import visible_json
from wick_graph.tools.func import FuncTool
from wick_graph.tools.protocol import ToolContext
from wick_graph.tracing import refusals

MAX_ENTRIES: Final = 1_000
_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "description": "Directory path to list; the working directory if it is left out",
        }
    },
}


def answer(value: Any) -> str:
    """Write a value as compact JSON in which no character is hidden."""
    return visible_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def listing_json(entries: Sequence[Entry], total: int) -> str:
    """Write a directory as `ls` answers: an array, with a note at its end if it is not all."""
    listed: list[dict[str, Any]] = [
        {"name": entry.name, "type": entry.type, "size": entry.size} for entry in entries
    ]
    if total > len(listed):
        listed.append({"note": f"{total - len(listed)} more entries are not shown"})
    return answer(listed)


def ls_tool(root: Root) -> FuncTool[..., str]:
    """Make the tool `ls`, which lists directories below a root.

    Its result is a JSON array of `{name, type, size}` sorted by name, at most 1,000 of them; a
    last element `{note}` says how many are missing.
    """

    def ls(args: dict[str, Any], ctx: ToolContext | None = None) -> str:
        with refusals(ctx):
            return listing_json(*root.scan_dir(args.get("path") or ".", MAX_ENTRIES))

    return FuncTool(
        "ls",
        "List files and directories at the given path",
        _PARAMETERS,
        ls,
        aliases={"file_path": "path"},
        replay="safe",
        max_output=None,
    )
