"""LangGraph's config: its keys, spelt in this module alone, and the checkpoint it addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wick_graph.errors import StorageError

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


# --- LangGraph's config keys: the one module that knows how they are spelt.
#
# LangGraph keeps what belongs to a task in `config["configurable"]` under reserved names. The ones
# used here have been stable since 1.0; a test compares them with the installed release.


CONFIGURABLE: Final = "configurable"

THREAD_ID: Final = "thread_id"

CHECKPOINT_ID: Final = "checkpoint_id"

CHECKPOINT_NS: Final = "checkpoint_ns"

PREGEL: Final = "__pregel_"
"""What LangGraph's own reserved names begin with."""

TASK_ID: Final = "__pregel_task_id"

READ: Final = "__pregel_read"

CHECKPOINTER: Final = "__pregel_checkpointer"

RUNTIME: Final = "__pregel_runtime"

PULL: Final = "__pregel_pull"

PUSH: Final = "__pregel_push"
"""In a task's path: a node that an edge triggered, and one that a `Send` triggered."""

TASKS: Final = "__pregel_tasks"
"""The channel of what `Send` sends."""

TO: Final = "branch:to:"
"""Before a node's name: the channel that triggers it."""

DURABILITY: Final = "__pregel_durability"
"""LangGraph's: when a step is stored: `sync`, `async` or `exit`."""

CHECKPOINT_MAP: Final = "checkpoint_map"
"""The checkpoint that each graph around a task began its superstep from, by namespace."""

STEP: Final = "langgraph_step"

NOSTREAM: Final = "nostream"
"""Tag of a model call that LangGraph's `messages` stream leaves out."""

HIDDEN: Final = ("__", "branch:", "join:")
"""Prefixes of channels that LangGraph makes for itself."""

NULL_TASK_ID: Final = "00000000-0000-0000-0000-000000000000"
"""Task id of writes that no task made; they belong to the state at once."""

RUN: Final = "__wick_run"
"""Ours: the run's context. Keys that begin with `__` never reach a checkpoint's metadata."""

WRITER: Final = "__wick_writer"
"""Ours: the lease and the commit policy of a write; the store reads nothing else of ours."""

PATH: Final = "__wick_path"
"""Ours: the chain of agents that delegated to this run, the outermost first."""

RESUMING: Final = "__pregel_resuming"
"""LangGraph's: whether the outermost graph resumes."""

RULES: Final = "__wick_rules"
"""Ours: the approval rules that a task inherits, with the thread that it comes from."""

LONG_TERM: Final = "__wick_long_term"
"""Ours: the long-term store of the agent that delegates a task, as LangGraph's `Runtime`."""

Config = Mapping[str, Any]


def configurable(config: Config | None) -> dict[str, Any]:
    """Return the configurable part of a config, empty if it has none."""
    found: dict[str, Any] | None = config.get(CONFIGURABLE) if config else None
    return found or {}


def leads_on(values: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint with these values triggers a node."""
    return bool(values.get(TASKS)) or any(name.startswith(TO) for name in values)


def thread_of(config: Config | None) -> str | None:
    """Return the thread that a config addresses."""
    thread = configurable(config).get(THREAD_ID)
    return None if thread is None else str(thread)


def handlers_of(config: Config | None) -> list[Any] | None:
    """Return LangChain's callback handlers; None if the config does not tell them."""
    callbacks: Any = (config or {}).get("callbacks")
    if isinstance(callbacks, list):
        return callbacks
    handlers: list[Any] | None = getattr(callbacks, "handlers", None)
    return handlers


def path_of(config: Config | None) -> tuple[str, ...]:
    """Return the chain of agents that delegated to a run; empty for a user's own run."""
    return tuple(configurable(config).get(PATH) or ())


def context_of(config: Config | None) -> Any:
    """Return the context that the caller gave to the run; None without one."""
    runtime: Any = configurable(config).get(RUNTIME)
    return None if runtime is None else runtime.context


def is_nested(config: Config | None) -> bool:
    """Say whether a graph is called from within a task of another graph."""
    return TASK_ID in configurable(config)


def depth_of(config: Config | None) -> int:
    """Count the graphs that the running task's graph is inside of."""
    return str(configurable(config).get(CHECKPOINT_NS, "")).count("|")


def is_resuming(config: Config | None) -> bool:
    """Say whether a graph that another graph calls resumes together with it."""
    return bool(configurable(config).get(RESUMING))


def place_of_graph(config: Config | None) -> dict[str, Any]:
    """Return where the checkpoints of the running task's graph lie."""
    known = configurable(config)
    inside = str(known.get(CHECKPOINT_NS, "")).rpartition("|")[0]
    return {CONFIGURABLE: {THREAD_ID: known.get(THREAD_ID), CHECKPOINT_NS: inside}}


def task_of(config: Config | None) -> str:
    """Return the id of the running task: the same after a crash, another after a fork."""
    return str(configurable(config).get(TASK_ID, ""))


def visit_of(config: Config | None) -> tuple[str, str, int]:
    """Return the running task, the checkpoint its outermost superstep began from, and its number.

    The task's id is the same after a crash, another after a fork.
    """
    if not config:
        return "", "", 0
    known: Mapping[str, Any] = config.get(CONFIGURABLE) or {}
    began = known.get(CHECKPOINT_MAP) or {}
    step = (config.get("metadata") or {}).get(STEP)
    number = step if isinstance(step, int) else 0
    return str(known.get(TASK_ID, "")), str(began.get("", "")), number


def began_from(config: Config | None) -> str:
    """Return the checkpoint from which the running superstep of a task's own graph began."""
    known = configurable(config)
    graph = str(known.get(CHECKPOINT_NS, "")).rpartition("|")[0]
    return str((known.get(CHECKPOINT_MAP) or {}).get(graph, ""))


def read_state(config: Config | None, channels: Sequence[str]) -> dict[str, Any]:
    """Read channels as they were when the running superstep began."""
    read = configurable(config).get(READ)
    if read is None:
        return {}
    state: dict[str, Any] = read(list(channels))
    return state


def without_task(config: Config | None) -> dict[str, Any]:
    """Return a copy of a config without what ties it to a task of another graph."""
    own = {
        key: value
        for key, value in configurable(config).items()
        if not key.startswith(("__pregel_", "checkpoint_"))
    }
    return {**(config or {}), CONFIGURABLE: own}


def with_configurable(config: Config | None, **values: Any) -> dict[str, Any]:
    """Return a copy of a config with values added to its configurable part."""
    return {**(config or {}), CONFIGURABLE: {**configurable(config), **values}}


def with_tag(config: Config | None, tag: str) -> dict[str, Any]:
    """Return a copy of a config with a tag added."""
    return {**(config or {}), "tags": [*((config or {}).get("tags") or ()), tag]}


def with_metadata(config: Config | None, **values: Any) -> dict[str, Any]:
    """Return a copy of a config with values added to its metadata."""
    return {**(config or {}), "metadata": {**((config or {}).get("metadata") or {}), **values}}


# --- The thread, namespace and checkpoint that a LangGraph config addresses.


class Address(NamedTuple):
    """One place in the store."""

    thread_id: str
    ns: str
    checkpoint_id: str | None

    def config(self) -> RunnableConfig:
        """Return the config that addresses this place."""
        return {
            CONFIGURABLE: {
                THREAD_ID: self.thread_id,
                CHECKPOINT_NS: self.ns,
                CHECKPOINT_ID: self.checkpoint_id,
            }
        }


def address_of(config: RunnableConfig) -> Address:
    """Return the place that a config addresses; without a checkpoint it is the latest one.

    Raises:
        StorageError: the config names no thread.
    """
    asked: Mapping[str, Any] = config.get(CONFIGURABLE) or {}  # no call more: for each save
    thread_id = asked.get(THREAD_ID)
    if thread_id is None:
        raise StorageError(
            f'the config names no thread; pass {{"{CONFIGURABLE}": {{"{THREAD_ID}": "..."}}}}'
        )
    return Address(str(thread_id), asked.get(CHECKPOINT_NS) or "", asked.get(CHECKPOINT_ID) or None)
