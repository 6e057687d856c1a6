"""Which runs the shorter loop of `lean` serves: an agent's, on the LangGraph that it was made for.

On another release, for other source, or if another library has replaced a function of LangGraph,
its own loop runs. So it does for whatever `lean` was not compared with: breakpoints, other stream
modes and durability modes, retries, caches, time limits of steps, and graphs that are part of
another graph.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module, metadata
from operator import attrgetter
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from langgraph.channels import DeltaChannel, UntrackedValue

from wick_graph.langgraph_config import (
    CHECKPOINTER,
    CONFIGURABLE,
    DURABILITY,
    PREGEL,
    RUNTIME,
)

RELEASES: Final = frozenset({"1.2.22", "1.2.23", "1.2.24"})
"""The releases of LangGraph that `lean` is for."""

SOURCES: Final = {
    "langgraph._internal._config": "d5e211ccdf2da684",
    "langgraph._internal._queue": "c58b9bb17e208e26",
    "langgraph.channels.binop": "4eb8cdffdcacdf08",
    "langgraph.checkpoint.base.id": "61756ece23ec2798",
    "langgraph.graph._branch": "fd6a7d2a1d5fed26",
    "langgraph.graph.state": "ccfff0c247570005",
    "langgraph.pregel._algo": "240ffc72f9d1300c 34ec2b51fce24577",
    "langgraph.pregel._checkpoint": "827270b7a6c97bc1",
    "langgraph.pregel._executor": "69e6c0be87ea0450",
    "langgraph.pregel._io": "c0354b6487349ac2",
    "langgraph.pregel._loop": "eafbba2ec5f92456",
    "langgraph.pregel._messages": "1b0a1acd0c02456c 752e8eca3ecb38a1",
    "langgraph.pregel._retry": "e9d635fda3a3411d",
    "langgraph.pregel._runner": "002d8e07a54a8146",
    "langgraph.pregel._utils": "80ec67b64b5aa573",
    "langgraph.pregel._write": "4f40bdad7dda4eed",
    "langgraph.pregel.main": "cf488a40acb87a0f",
    "langgraph.runtime": "e2c527f843a5c019",
}
"""Hashes of each module with a function that `lean` calls, binds or serves itself."""

_USED: Final = {
    "main": (
        *("Pregel.stream", "Pregel.astream", "PregelRunner", "_output"),
        *("SyncPregelLoop", "AsyncPregelLoop", "AsyncQueue"),
    ),
    "_loop": (
        *("PregelLoop.tick", "PregelLoop.after_tick", "PregelLoop.put_writes"),
        *("PregelLoop.output_writes", "map_output_values", "map_output_updates"),
        *("PregelLoop._put_checkpoint", "PregelLoop._prepare_tasks_and_emit_checkpoint"),
        "PregelLoop._first",
        *("SyncPregelLoop.__enter__", "AsyncPregelLoop.__aenter__", "AsyncPregelLoop.__aexit__"),
        *("SyncPregelLoop.__init__", "AsyncPregelLoop.__init__", "put_writes_accepts_task_path"),
        "SyncPregelLoop._checkpointer_put_after_previous",
        "AsyncPregelLoop._checkpointer_put_after_previous",
        *("PregelLoop.__init__", "PregelLoop._emit", "PregelLoop._suppress_interrupt"),
        *("channels_from_checkpoint", "achannels_from_checkpoint", "ensure_message_ids"),
        *("create_checkpoint", "get_new_channel_versions"),
        *("prepare_next_tasks", "apply_writes", "BackgroundExecutor", "AsyncBackgroundExecutor"),
    ),
    "_algo": (
        *("prepare_single_task", "prepare_push_task_send", "local_read", "apply_writes"),
        *("_proc_input", "task_path_str"),
    ),
    "_checkpoint": ("copy_checkpoint", "uuid6"),
    "_runner": (
        *("PregelRunner.tick", "PregelRunner.atick", "PregelRunner.commit"),
        *("run_with_retry", "arun_with_retry", "FuturesDict"),
    ),
    "_write": ("ChannelWrite._write", "ChannelWrite.do_write", "_assemble_writes"),
}
"""What must be LangGraph's own: none of these may be patched."""

_GET: Final = {f"langgraph.pregel.{name}": attrgetter(*used) for name, used in _USED.items()}

switch: Final = {"lean": True}
"""Off, LangGraph's own loop runs: to measure, and to compare both."""

_MODES: Final = frozenset({"values", "updates", "custom"})

_NAMED: Final = frozenset({"stream_mode", "output_keys", "context", "control", "version"})
"""Options that the parts of `lean` never see."""

_RESERVED: Final = frozenset({CHECKPOINTER, RUNTIME, DURABILITY})

_OF_GRAPH: Final = attrgetter(
    *("cache", "cache_policy", "debug", "interrupt_after_nodes", "interrupt_before_nodes"),
    *("node_error_handler_map", "retry_policy", "step_timeout", "stream_eager"),
)

_OF_NODE: Final = attrgetter(
    "cache_policy", "mapper", "retry_policy", "subgraphs", "tags", "timeout"
)

_NODES: Final = ("__start__", "before_agent", "modify_request", "model", "tools")

_found: dict[str, Any] = {}


def lean_for(graph: Any, config: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Return the module `lean` if it serves this run of an agent's graph; else None."""
    found = _usable()
    plain = found and _is_plain(graph) and _asks_nothing_else(graph, config, options)
    return found if plain else None


def lean_for_messages(options: Mapping[str, Any]) -> Any:
    """Return the module `lean` if it serves a stream of messages and of nothing else; else None."""
    others = any(value for name, value in options.items() if name not in _NAMED | {"durability"})
    return None if others or options.get("stream_mode") != "messages" else _usable()


def serves_invoke(*now: Any) -> bool:
    """Return whether `invoke` may do without these functions: whether they are LangGraph's own."""
    if _usable() is None:
        return False
    if now != _found.get("invokes") and is_own(now):
        _found["invokes"] = now
    return now == _found.get("invokes")


def _usable() -> Any:
    """Return the module `lean` if LangGraph is what it was made for; else None."""
    if not switch["lean"]:
        return None
    if "release" not in _found:
        _found["release"] = is_release()
    if not _found["release"]:
        return None
    now = in_use()
    if "lean" not in _found and is_own(now):  # what is replaced for a time is back later
        _found.update(in_use=now, lean=import_module("wick_graph.engine.lean"))
    return _found["lean"] if now == _found.get("in_use") else None


def is_release() -> bool:
    """Return whether LangGraph is a release that `lean` is for."""
    try:
        if metadata.version("langgraph") not in RELEASES:
            return False
        return all(digest(str(sys.modules[one].__file__)) in own for one, own in SOURCES.items())
    except (OSError, KeyError, metadata.PackageNotFoundError):
        return False


def is_own(found: Sequence[Any]) -> bool:
    """Return whether functions and classes are LangGraph's own, and none replaces one of them."""
    own = {os.path.realpath(str(sys.modules[name].__file__)) for name in SOURCES}
    return all(
        type(one) is FunctionType and os.path.realpath(one.__code__.co_filename) in own
        for one in found
        if not isinstance(one, type)
    )


def digest(file: str) -> str:
    """Return the hash of a source file."""
    return hashlib.blake2b(Path(file).read_bytes(), digest_size=8).hexdigest()


def in_use() -> list[Any]:
    """Return the functions and classes of LangGraph that `lean` binds or serves, as they are."""
    found: list[Any] = []
    for module, get in _GET.items():
        found += get(sys.modules[module])
    return found


def _is_plain(graph: Any) -> bool:
    """Return whether a graph has an agent's nodes and none of LangGraph's extras."""
    nodes = graph.nodes
    if tuple(nodes) != _NODES or any(_OF_GRAPH(graph)):
        return False
    if any(any(_OF_NODE(nodes[name])) for name in _NODES[1:]):
        return False
    return _are_plain(tuple(map(type, graph.channels.values())))


@lru_cache(maxsize=64)
def _are_plain(channels: tuple[type[Any], ...]) -> bool:
    """Return whether each channel keeps its value, and is in each checkpoint."""
    return not any(issubclass(one, (DeltaChannel, UntrackedValue)) for one in channels)


def _asks_nothing_else(graph: Any, config: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Return whether all that a run asks LangGraph for is known."""
    for name, value in options.items():
        if value and name not in _NAMED and (name, value) != ("durability", "sync"):
            return False
    mode = options.get("stream_mode") or graph.stream_mode
    if not _MODES.issuperset((mode,) if isinstance(mode, str) else mode):
        return False
    named = {**((graph.config or {}).get(CONFIGURABLE) or {}), **(config.get(CONFIGURABLE) or {})}
    if named.get(DURABILITY, "sync") != "sync":
        return False
    return all(key in _RESERVED for key in named if key.startswith(PREGEL))
