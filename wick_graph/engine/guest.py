"""A LangGraph graph of the user's own as an agent: it is run, streamed and served as agents are.

The graph keeps its nodes, its state and its model. The engine leases its threads and turns its
model and tool calls into events. It adds no message, no ledger and no journal.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Collection, Generator, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Final, Self
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, ToolMessage, convert_to_messages
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk
from langchain_core.runnables.config import merge_configs
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphBubbleUp
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel

from wick_graph import langgraph_config
from wick_graph.core.moments import Kind, Moment
from wick_graph.core.usage import Usage, usage_of
from wick_graph.engine.agent import Agent
from wick_graph.engine.graph import AgentGraph, RunGraph
from wick_graph.engine.lifecycle import RunCall
from wick_graph.engine.result import Result
from wick_graph.errors import ConfigError, RunError, WickError, describe
from wick_graph.messages import ToolResult
from wick_graph.models.resolve import ModelChoice
from wick_graph.runtime.context import Run
from wick_graph.tools.toolsets import ToolStore
from wick_graph.types import AGENT_ID_PATTERN

_UNNAMED: Final = "LangGraph"
"""The name that LangGraph gives to graphs without one."""

_MODEL: Final = "langgraph"
"""The model's name until the graph has called one."""

_TURNS: Final = 3_335
"""Turns of our loop that make as many supersteps as LangGraph allows by default."""

_MESSAGES: Final = "messages"

_INTERRUPT: Final = "__interrupt__"

_SYNC_ONLY: Final = "langgraph.checkpoint.sqlite"
"""The module with a checkpointer that has no working async methods."""


def is_graph(found: object) -> bool:
    """Return whether an object is a compiled graph of LangGraph."""
    return isinstance(found, Pregel)


class GuestAgent(Agent):
    """A compiled LangGraph graph that is run as agents are; it keeps its own checkpointer.

    Args:
        graph: A graph with a channel `messages` in its input and in its output.
        name: Its name, unless the graph has one that can be the id of an agent.

    Raises:
        ConfigError: It has no such channel.
    """

    def __init__(self, graph: Any, name: str = "graph") -> None:
        own = graph.name if is_graph(graph) else None
        name = own if own and own != _UNNAMED and AGENT_ID_PATTERN.fullmatch(own) else name
        _check(graph, name)
        never = FakeListChatModel(responses=[])
        super().__init__(
            name,
            ModelChoice(model=never, name=_MODEL),
            store=False,
            max_iterations=_TURNS,
            journal="off",
        )
        self.spec = replace(self.spec, guest=True)
        self.source: Any = graph
        """The graph as given."""
        saver = graph.checkpointer
        self.given_store = saver if isinstance(saver, BaseCheckpointSaver) else None
        self._store = _with_async(self.given_store)

    def copy_with(
        self,
        store: str | BaseCheckpointSaver[Any] | bool | None,
        *,
        name: str | None = None,
        model: str | ModelChoice | None = None,
        without: Collection[str] = (),
        tool_store: ToolStore | None = None,
    ) -> Self:
        """Return this graph with its threads in another store; it takes no tools and no hooks.

        Raises:
            ConfigError: A model is given.
        """
        if model is not None:
            raise ConfigError(
                f"{self.name} is a LangGraph graph and has its own model; leave --model out"
            )
        made = super().copy_with(store, name=name)
        made._store = _with_async(made._store)
        return made

    def with_output(self, output_type: Any, retries: int = 0) -> Agent[Any]:
        """Refuse: the graph calls its models itself.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(f"{self.name} is a LangGraph graph and gives its own state, no output")

    def graph_over(self, store: BaseCheckpointSaver[Any] | None) -> RunGraph:
        """Return the graph with its threads in another store, and the life cycle of a run."""
        return GuestGraph.of(self.source, self.spec, store, self._ttl)

    def read_result(self, values: Mapping[str, Any], run: Run) -> Result:
        """Return the result of a run; of the state, only `messages` means the same to the engine.

        Raises:
            RunError: The channel holds no messages.
        """
        try:
            messages = convert_to_messages(values.get(_MESSAGES) or ())
        except Exception as error:  # whatever the graph has written there
            raise RunError(
                f"the channel messages of the graph {self.name} holds something else "
                f"({describe(error)}); let its nodes write LangChain's messages"
            ) from None
        used = sum((usage_of(message) for message in messages), Usage())
        asked = values.get(_INTERRUPT) or ()
        known = {_MESSAGES: messages, _INTERRUPT: asked, "usage": used.to_dict()}
        return super().read_result(known, run)


def lacks_messages(graph: Any) -> str:
    """Name the part of a graph that lacks a channel `messages`: `input`, `output`, `channels`."""
    if not isinstance(graph, CompiledStateGraph):
        return "channels"
    builder = graph.builder
    sides = {"input": builder.input_schema, "output": builder.output_schema}
    found = (side for side, of in sides.items() if _MESSAGES not in builder.schemas.get(of, ()))
    return next(found, "")


def _check(graph: Any, name: str) -> None:
    if isinstance(graph, AgentGraph):
        raise ConfigError(f"{name} is the graph of an agent; name the agent instead")
    if lacks := lacks_messages(graph):
        raise ConfigError(
            f"the graph {name} has no messages among its {lacks}; give it a state with a channel "
            "messages, such as LangGraph's MessagesState, or run it with `wick run --record`"
        )


# --- The graph: its loop is LangGraph's, its runs have the life cycle of an agent's.


class GuestGraph(RunGraph):
    """A graph of the user's own with the life cycle of a run around `stream` and `astream`."""

    @classmethod
    def of(cls, graph: Any, spec: Any, saver: Any, ttl: float | str | None) -> Self:
        """Copy a graph over another checkpointer; both share nodes and channels."""
        kind = type(graph)
        own = cls if kind is CompiledStateGraph else type(cls.__name__, (cls, kind), {})
        made: Any = object.__new__(own)
        made.__dict__ = {**graph.__dict__, "checkpointer": saver}
        made.spec, made.ttl, made.name = spec, ttl, spec.name
        return made  # type: ignore[no-any-return]  # it is of this class

    def _chunks(self, call: RunCall) -> Generator[Any, None, None]:
        observer, call = _begun(call)
        with _named_errors(call), closing(super()._chunks(call)) as chunks:
            for chunk in chunks:
                observer.step(chunk)
                yield chunk
            _end(call, None if call.saver is None else self.get_state(call.config))

    async def _achunks(self, call: RunCall) -> AsyncIterator[Any]:
        observer, call = _begun(call)
        with _named_errors(call):
            async with aclosing(super()._achunks(call)) as chunks:  # type: ignore[type-var]  # a generator
                async for chunk in chunks:
                    observer.step(chunk)
                    await call.run.listener.at(_STEP)
                    yield chunk
            _end(call, None if call.saver is None else await self.aget_state(call.config))


def _begun(call: RunCall) -> tuple[_Observer, RunCall]:
    """Return an observer of the graph's calls, and the run's call without our context.

    Raises:
        ConfigError: Approval rules bind the thread, and a graph cannot keep them.
    """
    run = call.run
    if run.bound:
        raise ConfigError(
            f"the thread {run.thread_id} is bound by approval rules, which the graph "
            f"{call.spec.name} cannot keep; continue it with its own agent"
        )
    run.ran = True
    observer = (_Streamer if run.listener.tokens else _Observer)(run)
    config: dict[str, Any] = {**merge_configs(call.config, {"callbacks": [observer]})}
    own = dict(langgraph_config.configurable(config))
    own.pop(langgraph_config.RUN, None)  # an agent among the nodes has a run of its own
    return observer, replace(call, config={**config, langgraph_config.CONFIGURABLE: own})


@contextmanager
def _named_errors(call: RunCall) -> Iterator[None]:
    """Turn what a node raises into an error of the run, in a sentence."""
    try:
        yield
    except (WickError, GraphBubbleUp):
        raise
    except Exception as error:  # whatever the graph's code raises
        raise RunError(f"the graph {call.spec.name} failed: {describe(error)}") from error


def _end(call: RunCall, state: Any) -> None:
    """Note why the graph's loop ended."""
    call.run.ended = True
    call.run.stopped = "interrupted" if state is not None and state.next else "done"


# --- Its model and tool calls as moments of the run.


_STEP: Final = Moment("node", "enter")
"""A superstep has ended, so its replies are durable."""


class _Observer(BaseCallbackHandler):
    """Reports what LangChain tells of a graph's calls to the listener of its run."""

    run_inline = True

    def __init__(self, run: Run) -> None:
        self._run = run
        self._models: dict[UUID, str] = {}
        self._tools: dict[UUID, tuple[str, str]] = {}
        self._seen: set[str | None] = set()
        """Ids of the replies that were reported, or were there before."""
        self._began = False
        """Whether the state before the first superstep was seen."""
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: UUID, **more: Any
    ) -> None:
        """Report a model call, unless its tags say that it is none of the reader's."""
        metadata = more.get("metadata") or {}
        name = str(metadata.get("ls_model_name") or more.get("name") or "model")
        self._run.model = name
        if langgraph_config.NOSTREAM not in (more.get("tags") or ()):
            self._models[run_id] = name
            self._record("model", "request", name)

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **more: Any) -> None:
        """Report a piece of a reply."""
        name = self._models.get(run_id)
        if name is not None and isinstance(chunk, ChatGenerationChunk) and chunk.text:
            self._record("model", "chunk", name, {"chunk": chunk.message})

    def on_llm_end(self, response: Any, *, run_id: UUID, **more: Any) -> None:
        """Report a reply, and count its tokens."""
        name = self._models.pop(run_id, None)
        made = response.generations[0][0]
        reply = made.message if isinstance(made, ChatGeneration) else None
        if isinstance(reply, AIMessage):
            self._run.usage += usage_of(reply)
            if name is not None:
                self._seen.add(reply.id)
                self._record("model", "response", name, {"reply": reply})

    def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: UUID, inputs: Any = None, **more: Any
    ) -> None:
        """Report a tool call."""
        name = str((serialized or {}).get("name") or more.get("name") or "tool")
        given = inputs if isinstance(inputs, Mapping) else {"input": input_str}
        call_id = str(more.get("tool_call_id") or run_id)
        self._tools[run_id] = name, call_id
        args = json.loads(json.dumps(dict(given), default=str))
        self._record("tool", "enter", name, {"args": args}, call_id)
        self._record("tool", "call", name, {}, call_id)

    def on_tool_end(self, output: Any, *, run_id: UUID, **more: Any) -> None:
        """Report the result of a tool call."""
        message = output if isinstance(output, ToolMessage) else None
        text = str(output) if message is None else message.text
        failed = message is not None and message.status == "error"
        self._returned(run_id, "" if failed else text, text if failed else None)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        """Report a failed tool call; one that asks a question has not failed."""
        if not isinstance(error, GraphBubbleUp):
            self._returned(run_id, "", describe(error))

    def step(self, chunk: Any) -> None:
        """Report the end of a superstep, and a reply that a node wrote without a model call.

        Raises:
            RunCancelled: The run was asked to stop.
        """
        self._run.stop.check()
        if not self._run.listener.active:
            return
        mode, values = chunk if isinstance(chunk, tuple) and len(chunk) == 2 else ("", None)
        if mode == "values" and isinstance(values, Mapping):
            held = values.get(_MESSAGES)
            self._wrote(held if isinstance(held, list) else [])
        self._record("node", "enter")

    def _wrote(self, messages: list[Any]) -> None:
        """Report the last message of the state if it is a new reply."""
        first, self._began = not self._began, True
        last = messages[-1] if messages else None
        if first:  # the state before the first superstep
            self._seen.update(m.id for m in messages if isinstance(m, AIMessage))
        elif isinstance(last, AIMessage) and last.id not in self._seen:
            self._seen.add(last.id)
            self._record("model", "request", _MODEL)
            if last.text and self._run.listener.tokens:
                self._record("model", "chunk", _MODEL, {"chunk": last})
            self._record("model", "response", _MODEL, {"reply": last})

    def _returned(self, run_id: UUID, output: str, error: str | None) -> None:
        name, call_id = self._tools.pop(run_id, ("tool", str(run_id)))
        result = ToolResult(tool_call_id=call_id, name=name, output=output, error=error)
        self._record("tool", "exit", name, {"result": result}, call_id)

    def _record(
        self,
        kind: Kind,
        phase: str,
        name: str = "",
        data: Mapping[str, Any] | None = None,
        call_id: str | None = None,
    ) -> None:
        """Pass a moment on, in the thread of the run's reader."""
        listener = self._run.listener
        if not listener.active:
            return
        moment = Moment(kind, phase, name, data or {}, call_id)
        if self._loop is not None and threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(listener.record, moment)
            return
        with self._lock:
            listener.record(moment)


class _Streamer(_Observer):
    """An observer for which LangChain streams replies: it is known by these two methods."""

    def tap_output_aiter(self, run_id: UUID, output: Any) -> Any:
        """Return the output."""
        return output

    def tap_output_iter(self, run_id: UUID, output: Any) -> Any:
        """Return the output."""
        return output


# --- Checkpointers without async methods.


def _with_async(saver: Any) -> Any:
    """Return a checkpointer with async methods: in threads, if it has none of its own."""
    kind = type(saver)
    if not isinstance(saver, BaseCheckpointSaver):
        return saver
    if kind.aget_tuple is not BaseCheckpointSaver.aget_tuple and kind.__module__ != _SYNC_ONLY:
        return saver
    made = copy(saver)
    made.__class__ = type(kind.__name__, (_InThreads, kind), {})
    return made


class _InThreads(BaseCheckpointSaver[Any]):
    """Async methods that run the sync ones in a thread."""

    async def aget_tuple(self, config: Any) -> Any:
        """Return a checkpoint."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        """Yield checkpoints."""
        for found in await asyncio.to_thread(lambda: [*self.list(config, **options)]):
            yield found

    async def aput(self, *args: Any) -> Any:
        """Store a checkpoint."""
        return await asyncio.to_thread(self.put, *args)

    async def aput_writes(self, *args: Any, **options: Any) -> None:
        """Store the writes of a task."""
        await asyncio.to_thread(lambda: self.put_writes(*args, **options))
