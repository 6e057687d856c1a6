"""Locations of breakpoints in a run. All interfaces of the debugger share this grammar.

model | tools | before_agent | modify_request     node entry; `:exit` its end
NAME | node:GLOB                                  a node of a recorded graph; `:exit` its end
hook:NAME[.PHASE][:exit]                          a hook's layer
tool:GLOB[:enter|:after]                          before arguments are used; before hooks; after
model:request | model:response                    the exact request, the exact reply
route[:LABEL]                                     the decision; the edge `tools` or `end` taken
agent:NAME[:exit] | handoff                       an agent's own entry, or a task given to it; any
interrupt | retry | compact | run[:exit]

A line of a file, `tools.py:12` or `agents.yaml:14`, means one of these: the hook or tool with that
line in its code, or the key of an agents file. The run stops before its entry, not within it; use a
Python debugger to step through Python statements.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final

from wick_graph.config.yaml_reader import read_yaml
from wick_graph.debug.view import View
from wick_graph.errors import ConfigError, DebugError
from wick_graph.expressions import glob_match
from wick_graph.hooks.protocol import PHASES
from wick_graph.journal.entry import Entry
from wick_graph.journal.page_format import NODES

Fits = Callable[[View], bool]

_AFTER: Final = frozenset({"error", "result", "output"})
"""Names that are known only at the end of a call."""

_SUMMARY: Final = "summarize"

_AWAITED: Final = "delegate_to_agent"

_GIVES: Final = frozenset({_AWAITED, "start_async_task"})
"""Tools that delegate a task to another agent; a background task outlives the call."""

RETRIES: Final = ("model.retry", "model.fallback", "node.retry")
"""Moments at which something is tried again."""

_PLAIN: Final[Mapping[str, tuple[str, ...]]] = {
    "model:request": ("model.request",),
    "model:response": ("model.response",),
    "route": ("route.taken",),
    "interrupt": ("interrupt.raise",),
    "retry": RETRIES,
    "run": ("run.enter",),
    "run:exit": ("run.exit", "run.error"),
}

WORDS: Final = (*NODES, *(f"{n}:exit" for n in NODES), *_PLAIN, "compact", "handoff")
"""The locations that need no name."""

_EDGES: Final = ("tools", "end")

PLACES: Final = (*WORDS, *(f"route:{label}" for label in _EDGES))
"""The locations that every agent has."""

GENERAL: Final = tuple(_PLAIN)
"""The locations that every graph has."""


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed location."""

    text: str
    fits: Fits


def read_location(
    text: str, uses: frozenset[str] = frozenset(), shape: Mapping[str, Any] | None = None
) -> Location:
    """Read a location; `uses` are the names in its condition.

    `shape` is that of a recorded graph that is no agent's: it has nodes of its own.

    Raises:
        DebugError: It is not a location.
    """
    text = text.strip()
    if text in _PLAIN:
        wanted = _PLAIN[text]
        return Location(text, lambda view: view.entry.what in wanted)
    head, _, rest = text.partition(":")
    if head == "node" and rest:
        return Location(text, _node(rest))
    if shape is not None and head in shape["nodes"] and rest in ("", "exit"):
        return Location(text, _node(text))
    if shape is None and head in NODES and rest in ("", "exit"):
        ends = ("exit", "error") if rest else ("enter",)
        return Location(text, lambda view: _is_node(view.entry, head, ends))
    if head in ("compact", "handoff") and not rest:
        return Location(text, _is_compaction if head == "compact" else _is_handoff)
    if head == "route" and rest and shape is not None:
        return Location(text, lambda view: rest.strip() in view.entry.fields.get("q", ()))
    made = _MAKERS.get(head)
    if made is not None and rest:
        return Location(text, made(rest, uses))
    nodes = NODES if shape is None else shape["nodes"]
    raise DebugError(
        f"{text[:80]!r} is no location; write a node ({', '.join(nodes)}), hook:NAME, tool:NAME, "
        "model:request, model:response, route:LABEL, agent:NAME, handoff, interrupt, retry, "
        "compact or run"
    )


def _node(rest: str) -> Fits:
    """Match a node of any graph by its name, or by its path in the graphs around it."""
    name = rest.removesuffix(":exit")
    ends = ("exit", "error") if rest.endswith(":exit") else ("enter",)

    def fits(view: View) -> bool:
        entry = view.entry
        if entry.kind != "node" or entry.phase not in ends:
            return False
        return _globs(entry.name, name) or _globs(entry.name.rpartition("/")[2], name)

    return fits


def _hook(rest: str, uses: frozenset[str]) -> Fits:
    name, _, end = rest.partition(":")
    if end not in ("", "exit"):
        raise DebugError(f"hook:{rest} is no location; after the name there is only :exit")
    name, _, phase = name.partition(".")
    if phase and phase not in PHASES:
        raise DebugError(f"hooks have no phase {phase!r}; their phases are {', '.join(PHASES)}")
    ends = ("exit", "error") if end else ("enter",)

    def fits(view: View) -> bool:
        entry = view.entry
        if entry.kind != "hook" or entry.phase not in ends:
            return False
        return _globs(entry.name, name) and phase in ("", entry.hook_phase)

    return fits


def _tool(rest: str, uses: frozenset[str]) -> Fits:
    name, _, when = rest.rpartition(":") if rest.endswith((":enter", ":after")) else (rest, "", "")
    when = when or ("after" if uses & _AFTER else "call")
    phases = {"enter": ("enter",), "after": ("exit", "error"), "call": ("call",)}[when]

    def fits(view: View) -> bool:
        entry = view.entry
        if entry.kind != "tool" or not _globs(entry.name, name):
            return False
        return entry.is_call if when == "call" else entry.phase in phases

    return fits


def _route(rest: str, uses: frozenset[str]) -> Fits:
    label = rest.removeprefix("route:").strip()
    if label not in _EDGES:
        raise DebugError(f"the router has no edge {label!r}; its edges are tools and end")

    def fits(view: View) -> bool:
        return view.entry.kind == "route" and (view.route or {}).get("chosen") == f"route: {label}"

    return fits


def _agent(rest: str, uses: frozenset[str]) -> Fits:
    """Match the ends of an agent's own runs, and of calls that delegate to it."""
    ends = rest.endswith(":exit")
    name = rest.removesuffix(":exit")
    run = ("run.exit", "run.error") if ends else ("run.enter",)
    call = ("tool.exit", "tool.error") if ends else ("tool.call",)
    gives = {_AWAITED} if ends else _GIVES

    def fits(view: View) -> bool:
        entry = view.entry
        if entry.what in run:
            return _globs(entry.name, name)
        return entry.what in call and entry.name in gives and _globs(_given_to(view), name)

    return fits


def _given_to(view: View) -> str:
    args = view.args
    return str(args.get("agent", "")) if isinstance(args, Mapping) else ""


_MAKERS: Final[Mapping[str, Callable[[str, frozenset[str]], Fits]]] = {
    "hook": _hook,
    "tool": _tool,
    "route": _route,
    "agent": _agent,
}


def _is_node(entry: Entry, name: str, phases: tuple[str, ...]) -> bool:
    return entry.kind == "node" and entry.name == name and entry.phase in phases


def _is_compaction(view: View) -> bool:
    return view.entry.what == "model.request" and view.details.get("purpose") == _SUMMARY


def _is_handoff(view: View) -> bool:
    return view.entry.what == "tool.call" and view.entry.name in _GIVES


def _globs(name: str, pattern: str) -> bool:
    return name == pattern or glob_match(name, pattern)


def fits_error(what: str) -> Fits:
    """Return the predicate for the moments of a catch.

    Raises:
        DebugError: The kind cannot be caught.
    """
    made = _CATCHES.get(what)
    if made is None:
        raise DebugError(f"{what[:40]!r} cannot be caught; catch one of {', '.join(CATCHES)}")
    return made


def _error(view: View) -> bool:
    """Return whether an error begins here; outer moments only pass it on."""
    entry = view.entry
    if not entry.fails:
        return False
    text = (entry.error or "").partition(": ")[2]
    for place in range(view.at - 1, max(view.at - 40, -1), -1):
        inner = view.views.timeline.entries[place]
        if inner.run == entry.run and inner.fails and inner.depth >= entry.depth:
            said = (inner.error or "").partition(": ")[2]
            return not (said and said in text)
    return True


def _budget(view: View) -> bool:
    entry = view.entry
    if entry.what == "run.exit":
        return view.details.get("stopped_because") == "limit"
    ended = any(write.get("channel") == "stop_reason" for write in _writes(view, entry))
    return entry.kind == "hook" and entry.name == "budget" and (ended or entry.fails)


def _writes(view: View, entry: Entry) -> list[dict[str, Any]]:
    return view.writes if entry.what == "hook.exit" and entry.name == "budget" else []


_CATCHES: Final[Mapping[str, Fits]] = {
    "error": _error,
    "tool-error": lambda v: v.entry.what in ("tool.exit", "tool.error") and v.entry.fails,
    "model-error": lambda view: view.entry.what == "model.error" and view.entry.fails,
    "hook-error": lambda view: view.entry.what == "hook.error" and view.entry.fails,
    "interrupt": lambda view: view.entry.what == "interrupt.raise",
    "retry": lambda view: view.entry.what in RETRIES,
    "divergence": lambda view: False,  # a replay always stops there
    "budget": _budget,
}

CATCHES: Final = tuple(_CATCHES)
"""Predicates of catches, by kind."""

# --- lines of files ----------------------------------------------------------------------------

LINE: Final = re.compile(r"(?P<file>.+\.(?:ya?ml|py)):(?P<line>[1-9]\d{0,6})")
"""The form of a file's line."""

_LARGEST: Final = 1_000_000
"""Largest size of an agents file in bytes."""

_KEYS: Final = {"model": "model:request", "system_prompt": "modify_request", "subagents": "handoff"}
"""Locations of an agent's keys, except its lists."""

Bound = tuple[tuple[str, ...], str]
"""Locations, and why there are none; empty if there are some."""


def locations_at(text: str, agent: Any) -> Bound | None:
    """Return the locations of a file's line; None if the text is not one."""
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
    """Yield the hooks and tools with a line in their code, with their numbers of lines."""
    for location, fn in _code(spec):
        try:
            where = inspect.getsourcefile(fn)
            source, first = inspect.getsourcelines(fn)
        except (OSError, TypeError):  # it is not Python code, or its file is gone
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
        return (), "no run reaches anything at this line"
    return tuple(dict.fromkeys(made)), ""


def _of_key(path: tuple[str | int, ...], data: Any) -> Iterator[str]:
    """Yield the locations of an agent's key: `("agents", "a", "tools", 0)` is a tool."""
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
