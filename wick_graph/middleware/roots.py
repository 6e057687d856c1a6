"""The folders on which file tools of middleware work: what governs agents is in none of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from wick_graph.backends import Root, Rules
from wick_graph.backends.guard import Guard
from wick_graph.errors import ConfigError

_FILES: Final = "deepagents.FilesystemBackend"
_ON_DISK: Final = frozenset({_FILES, "deepagents.LocalShellBackend"})


def must_hold_nothing(block: Any, rules: Rules) -> None:
    """Refuse a middleware whose tools could write what governs agents: they know no rules of ours.

    Args:
        block: A map of `use` and `args`, as it is written.
        rules: What tools leave alone; without any, nothing is refused.

    Raises:
        ConfigError: A folder in it holds a part of that, or has no bounds.
    """
    for use, args in _backends(block) if rules.control else ():
        if use == _FILES and args.get("virtual_mode") is not True:
            raise ConfigError(f"{use} could write everywhere; add virtual_mode: true to its args")
        folder = Path(str(args.get("root_dir") or ".")).absolute()
        if not folder.is_dir():
            continue
        with Root(folder) as root:
            held = Guard(root, rules).held()
        if held:
            raise ConfigError(
                f"{use} could write {held[0].rstrip('/')}, which governs agents; "
                "give it a folder of its own, such as root_dir: ./workspace"
            )


def _backends(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        args = value.get("args")
        if value.get("use") in _ON_DISK:
            yield str(value["use"]), args if isinstance(args, Mapping) else {}
        for inner in value.values():
            yield from _backends(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _backends(inner)
