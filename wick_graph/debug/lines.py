"""Lines of files as locations: the hook or tool whose code holds a line, the key of an agents file.

A run is stopped before what stands at the line is entered, not within it: stepping through the
statements of Python code is a Python debugger's work.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any, Final

from wick_graph.config.reader import read_yaml
from wick_graph.errors import ConfigError
from wick_graph.hooks.protocol import PHASES

LINE: Final = re.compile(r"(?P<file>.+\.(?:ya?ml|py)):(?P<line>[1-9]\d{0,6})")
"""How a line of a file is written."""
_LARGEST: Final = 1_000_000
"""Bytes of an agents file."""
_KEYS: Final = {"model": "model:request", "system_prompt": "modify_request", "subagents": "handoff"}
"""What the keys of an agent are about, beside its lists."""
Bound = tuple[tuple[str, ...], str]
"""Locations, and why there are none; empty where there are some."""


def locations_at(text: str, agent: Any) -> Bound | None:
    """Say which locations a line stands for; None if the text is no line of a file."""
    found = LINE.fullmatch(text.strip())
    if found is None:
        return None
    line = int(found["line"])
    if not found["file"].endswith(".py"):
        return _of_yaml(Path(found["file"]), line)
    spec = getattr(agent, "spec", None)
    if spec is None:
        return (), "its hooks and tools are known from an agent alone; open the thread with one"
    held = [(size, at) for size, at in _holding(spec, PurePath(found["file"]), line)]
    if not held:
        return (), "no hook or tool of this agent has its code at this line"
    least = min(size for size, _ in held)
    return tuple(dict.fromkeys(at for size, at in held if size == least)), ""


def _holding(spec: Any, file: PurePath, line: int) -> Iterator[tuple[int, str]]:
    """Yield the hooks and tools whose code holds a line, each with its number of lines."""
    for location, fn in _code(spec):
        try:
            where = inspect.getsourcefile(fn)
            source, first = inspect.getsourcelines(fn)
        except (OSError, TypeError):  # it is not written in Python, or its file is gone
            continue
        same = where is not None and PurePath(where).parts[-len(file.parts) :] == file.parts
        if same and first <= line < first + len(source):
            yield len(source), location


def _code(spec: Any) -> Iterator[tuple[str, Any]]:
    for tool in spec.tools:
        for name in ("fn", "func", "coroutine", "execute"):
            fn = getattr(tool.source, name, None)
            if callable(fn):
                yield f"tool:{tool.name}", inspect.unwrap(fn)
                break
        else:
            yield f"tool:{tool.name}", inspect.unwrap(tool.source)
    for phase in PHASES:
        for layer in spec.hooks.layers(phase):
            yield f"hook:{layer.hook}.{phase}", inspect.unwrap(layer.fn)


def _of_yaml(file: Path, line: int) -> Bound:
    try:
        if file.stat().st_size > _LARGEST:
            return (), "the file is too large for one of agents"
        tree = read_yaml(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        return (), f"the file cannot be read: {error}"
    there = [path for path, at in tree.lines.items() if at == line]
    made = [at for path in there for at in _of_key(path, tree.data)]
    if not made:
        return (), "nothing that a run comes to stands at this line"
    return tuple(dict.fromkeys(made)), ""


def _of_key(path: tuple[str | int, ...], data: Any) -> Iterator[str]:
    """Yield what a key of an agent is about: `("agents", "a", "tools", 0)` is the tool there."""
    value = data
    for part in path:
        value = value[part]
    keys = path[2:] if path[:1] == ("agents",) else path[path[:1] == ("defaults",) :]
    match keys:
        case ("tools",) if isinstance(value, list):
            yield from (f"tool:{name}" for name in value)
        case ("tools", int()):
            yield f"tool:{value}"
        case ("subagents", str() as name):
            yield f"agent:{name}"
        case (str() as key,) if key in _KEYS:
            yield _KEYS[key]
