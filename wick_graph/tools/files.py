"""Look at files; every path goes through a Root."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from wick_graph.backends import Root
from wick_graph.tools.func import FuncTool

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
# What a terminal or a reader of the prompt would obey or not see; JSON leaves these as they are.
_INVISIBLE: Final = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def ls_tool(root: Root) -> FuncTool[..., str]:
    """Make the tool `ls`, which lists directories below a root.

    Its result is a JSON array of `{name, type, size}` sorted by name, at most 1,000 of them; a
    last element `{note}` says how many are missing.
    """

    def ls(args: dict[str, Any]) -> str:
        path = args.get("path") or "."
        entries, total = root.scan_dir(path, MAX_ENTRIES)
        listed: list[dict[str, Any]] = [
            {"name": entry.name, "type": entry.type, "size": entry.size} for entry in entries
        ]
        if total > MAX_ENTRIES:
            listed.append({"note": f"{total - MAX_ENTRIES} more entries are not shown"})
        text = json.dumps(listed, ensure_ascii=False, separators=(",", ":"))
        return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)

    return FuncTool(
        "ls",
        "List files and directories at the given path",
        _PARAMETERS,
        ls,
        aliases={"file_path": "path"},
        replay="safe",
        max_output=None,
    )
