"""What a thread remembers: the channels of the graph, each with the rule that combines writes.

Only data lives here. The tool registry, the port, the clock and caches belong to the run
(`wick_graph.runtime`) and are made anew in every process.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from langchain_core.messages import AnyMessage
from langgraph.channels.ephemeral_value import EphemeralValue
from typing_extensions import TypedDict

from wick_graph.reducers import add_numbers, last, merge, reduce_messages, tally

# Written out, not through `typing.TypedDict`: LangGraph and pydantic read these annotations at
# run time, and `typing_extensions` gives the same answer on every supported Python.


class Todo(TypedDict):
    """One line of the agent's own list of work."""

    id: str
    title: str
    status: Literal["pending", "in_progress", "done"]


class AgentInput(TypedDict, total=False):
    """What a caller may put in: new messages, and lists to start from."""

    messages: Annotated[list[AnyMessage], reduce_messages]
    todos: Annotated[list[Todo], last]
    files: Annotated[dict[str, Any], merge]


class AgentOutput(TypedDict, total=False):
    """What a caller gets back from `graph.invoke`."""

    messages: Annotated[list[AnyMessage], reduce_messages]
    todos: Annotated[list[Todo], last]
    files: Annotated[dict[str, Any], merge]
    summary: Annotated[dict[str, Any], last]
    usage: Annotated[dict[str, int], add_numbers]
    cost: Annotated[dict[str, int], tally]
    """Money, where a hook counts it: of the thread, and of the run under keys with `run_`."""
    iteration: Annotated[int, last]
    stop_reason: Annotated[str, last]


class AgentState(AgentOutput, total=False):
    """Every channel. `request` lives for one step: it is what `modify_request` tells `model`."""

    memory: Annotated[dict[str, Any], last]
    """Text that a hook loaded once for the run, by source."""
    skills: Annotated[list[dict[str, Any]], last]
    """Catalogue entries that a hook loaded."""
    middleware: Annotated[dict[str, Any], merge]
    """What LangChain's middleware keep, by the names of their fields."""
    seen: Annotated[dict[str, str], merge]
    """Digests of the files' contents that the model knows, by path."""
    request: Annotated[dict[str, Any], EphemeralValue]
    """The overlay: how the next request differs from the thread (`wick_graph.request`)."""


Update = dict[str, Any]
"""A node's or a hook's writes, by channel."""

WRITABLE: Final = frozenset(AgentState.__annotations__)
"""The channels that hooks and tools may name in an update."""

LASTING: Final = tuple(name for name in AgentState.__annotations__ if name != "request")
"""The channels that tools can read: all but the one that is gone by then."""
