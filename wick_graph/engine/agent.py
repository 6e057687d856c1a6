"""`Agent`, the entry point for programs: converts inputs and outputs around the graph."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, Self, overload

from langchain_core.runnables import Runnable
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore
from typing_extensions import TypedDict, TypeVar, Unpack

from wick_graph import langgraph_config
from wick_graph.config import code_folders, trust_folder
from wick_graph.constants import (
    COMPACTION_KEEP,
    COMPACTION_MESSAGES,
    COMPACTION_PERCENT,
    DEFAULT_TOOL_TIMEOUT_SECONDS,
    MAX_ITERATIONS,
    OUTPUT_RETRIES,
)
from wick_graph.core.bridge import ASYNC_BRIDGE, SYNC_BRIDGE, Bridge, run_to_end
from wick_graph.core.context import ContextSchema, GivesTasks
from wick_graph.core.moments import JournalLevel, JournalOptions
from wick_graph.core.state import StateSchema
from wick_graph.durations import seconds
from wick_graph.engine.compaction import Compaction, Terms, compact
from wick_graph.engine.graph import ChainStep, RunGraph, build_graph
from wick_graph.engine.handoffs import Handoff, team
from wick_graph.engine.lifecycle import RunOptions
from wick_graph.engine.result import Result, checked_thread_id, result_of
from wick_graph.engine.streaming import CONTINUE, Call, OutputReader, aread, call_of, read
from wick_graph.engine.thread_turn import cancel, engine_store
from wick_graph.errors import ConfigError
from wick_graph.events import Event
from wick_graph.hooks import compile_hooks
from wick_graph.hooks.protocol import KeepsFrom, note_store
from wick_graph.hooks.summarization import SummarizationHook
from wick_graph.messages import Processors
from wick_graph.models.resolve import ModelChoice, resolve_model
from wick_graph.models.structured import Output, OutputStrategy, OutputT
from wick_graph.runtime.context import AgentSpec, EngineStore, Run
from wick_graph.store import SqlSaver
from wick_graph.store.connection import STORES
from wick_graph.store.saver import dialect_of
from wick_graph.store.sqlite import files_behind
from wick_graph.tools.bound import bind_tools
from wick_graph.tools.mcp import McpServer
from wick_graph.tools.toolsets import Beside, ToolRegistry, ToolStore

Model = str | Mapping[str, Any] | Runnable[Any, Any] | ModelChoice
"""What the argument `model` takes."""

ContextT = TypeVar("ContextT", default=Any, contravariant=True)
"""The type of an agent's context."""

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
X = TypeVar("X", default=Any)


class AgentOptions(TypedDict, total=False):
    """The further arguments of an `Agent`, for type checkers; its docstring says what they do."""

    system_prompt: str
    tools: Sequence[Any]
    hooks: Sequence[Any]
    store: str | BaseCheckpointSaver[Any] | bool | None
    max_iterations: int
    ttl: str | float | None
    tool_timeout: float | None
    deadline: str | float | None
    keep_latest: int | None
    journal: JournalLevel | JournalOptions
    processors: Processors | None
    tool_store: ToolStore | None
    mcp_servers: Sequence[McpServer]
    allow_client_system: bool
    base_dir: Path | None
    output_retries: int
    context_subject: str
    state_schema: type | None
    handoffs: Mapping[str, Handoff] | None
    long_term: BaseStore | None


class Agent(ChainStep, Generic[OutputT, ContextT]):
    """An agent: a model, a prompt, tools, hooks, and the store of its threads.

    Args:
        name: Shown in listings and traces.
        model: `provider:model`, a mapping with `base_url` and the like, `auto`, or any LangChain
            chat model, bare or with `with_fallbacks`, `with_retry`, `bind` and `with_config`.
        system_prompt: Sent before the messages of every model call; never stored in a thread.
        tools: Plain functions, `@tool` functions, LangChain tools, or objects with `name`,
            `description`, `parameters` and `execute`.
        hooks: Outermost first.
        store: A SQLAlchemy URL, any LangGraph checkpointer, None for memory, False for no store.
        long_term: LangGraph's store for what outlives threads, such as a `SqlStore`: tools reach
            it by `ToolRuntime.store` and `get_store()`. Sub-agents without one use it too.
        max_iterations: Model calls in one run.
        ttl: How long an idle thread is kept: seconds, `30m`, `7d`, or `never`. By default the
            store decides, possibly by thread namespace.
        tool_timeout: Seconds for a tool without a timeout of its own; None for no limit.
        deadline: Time limit of a run (`90s`, `10m`, seconds); it then ends as `limit`.
        keep_latest: Checkpoints of a thread that are kept once a run has ended; None for all.
        journal: What a `SqlSaver` records of runs: `off`, `steps`, or `full`, which keeps the
            pieces of streamed replies too; with patterns of secrets as `JournalOptions`.
        processors: Functions that change messages last before the model, and its replies first
            after it; see `wick_graph.messages.Processors`.
        tool_store: Tools that can change while the agent exists; it gets those for all agents, and
            those for its name.
        mcp_servers: Servers that provide tools; the constructor fetches their tool lists.
        allow_client_system: Whether inputs may contain messages of the role `system`.
        base_dir: Base directory of relative paths in `model`.
        output_type: What it gives: a type, a tuple of types, a JSON schema, or one of these in a
            strategy of `wick_graph.models`; a text by default.
        output_retries: How often a run asks its model again for a valid output.
        context_schema: The type of what each call gives as `context=`: a dataclass, a pydantic
            model or a TypedDict. Tools and hooks read it as `ctx.context`; nothing stores it.
        context_subject: The field of the context that a server sets to the caller's identity.
        state_schema: A `TypedDict` of the agent's own channels, with reducers as in LangGraph. They
            are kept with the thread, and hooks and tools read and write them.
        handoffs: Agents that can take over the conversation, by the names that the models see.

    Raises:
        ConfigError: An argument is invalid.
        ModelError: The model cannot be found or built.
    """

    hooks: Sequence[Any]
    """The hooks as given, outermost first."""
    tools: Sequence[Any]
    """The tools as given."""
    handoffs: Mapping[str, Handoff]
    """The agents that can take over, by the names that the models see."""
    _model: ModelChoice | None
    """What a copy uses in place of all models of its team."""

    # Type checkers see one of these; the names of the other arguments stand in `AgentOptions`.
    @overload
    def __init__(
        self: Agent[str, X],
        name: str = ...,
        model: Model = ...,
        *,
        output_type: None = None,
        context_schema: type[X] | None = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[A, X],
        name: str = ...,
        model: Model = ...,
        *,
        output_type: type[A] | OutputStrategy[A],
        context_schema: type[X] | None = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[A | B, X],
        name: str = ...,
        model: Model = ...,
        *,
        output_type: tuple[type[A], type[B]],
        context_schema: type[X] | None = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[A | B | C, X],
        name: str = ...,
        model: Model = ...,
        *,
        output_type: tuple[type[A], type[B], type[C]],
        context_schema: type[X] | None = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[dict[str, Any], X],
        name: str = ...,
        model: Model = ...,
        *,
        output_type: Mapping[str, Any],
        context_schema: type[X] | None = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[Any, X],
        name: str = ...,
        model: Model = ...,
        *,
        output_type: Any,
        context_schema: type[X] | None = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    def __init__(
        self,
        name: str = "agent",
        model: Model = "auto",
        *,
        system_prompt: str = "",
        tools: Sequence[Any] = (),
        hooks: Sequence[Any] = (),
        store: str | BaseCheckpointSaver[Any] | bool | None = None,
        long_term: BaseStore | None = None,
        max_iterations: int = MAX_ITERATIONS,
        ttl: str | float | None = STORES,
        tool_timeout: float | None = DEFAULT_TOOL_TIMEOUT_SECONDS,
        deadline: str | float | None = None,
        keep_latest: int | None = None,
        journal: JournalLevel | JournalOptions = "steps",
        processors: Processors | None = None,
        tool_store: ToolStore | None = None,
        mcp_servers: Sequence[McpServer] = (),
        allow_client_system: bool = True,
        base_dir: Path | None = None,
        output_type: Any = None,
        output_retries: int = OUTPUT_RETRIES,
        context_schema: type[Any] | None = None,
        context_subject: str = "",
        state_schema: type | None = None,
        handoffs: Mapping[str, Handoff] | None = None,
    ) -> None:
        own = StateSchema.of(state_schema)
        self._alone = AgentSpec(
            name=name,
            model=_choice(model, base_dir),
            hooks=compile_hooks(hooks, own.names),
            system_prompt=system_prompt,
            tools=ToolRegistry(tools).all(),
            max_iterations=max_iterations,
            tool_timeout=tool_timeout,
            deadline=None if deadline is None else seconds(deadline),
            keep_latest=keep_latest,
            journal=JournalOptions.of(journal),
            processors=_processors(processors),
            beside=_beside(name, tool_store, mcp_servers),
            output=Output.of(output_type, output_retries),
            context=ContextSchema.of(context_schema, context_subject),
            state=own,
            long_term=long_term,
        )
        self.handoffs, self._model = {**(handoffs or {})}, None
        self.spec = team(self._alone, hooks, self.handoffs)
        _check_children(self._alone, hooks)
        self.name = name
        self.hooks, self.tools = (*hooks,), (*tools,)
        self.given_store = store
        """The argument `store`; None if the agent leaves the choice to its host."""
        self.allow_client_system = allow_client_system
        self._ttl = _ttl(ttl)
        self._attach(store)

    def _attach(self, store: Any) -> None:
        """Open the store, and keep the tools of the hooks away from it."""
        _check_approvals(self.spec, store)
        _keep_from(self.hooks, store)
        self._store, self._owns_store = _open_store(store)
        note_store(self._store)

    def copy_with(
        self,
        store: str | BaseCheckpointSaver[Any] | bool | None,
        *,
        name: str | None = None,
        model: str | ModelChoice | None = None,
        without: Collection[str] = (),
        tool_store: ToolStore | None = None,
    ) -> Self:
        """Return this agent with its threads in another store.

        Args:
            store: As for a new agent.
            name: A name to use instead of its own.
            model: A model to use instead of its own.
            without: Names of hooks to leave out.
            tool_store: Tools that come and go, for all agents or for this one.

        Raises:
            ConfigError: Its commands could change the store.
            ModelError: The model cannot be found or built.
        """
        made = copy(self)
        vars(made).pop("graph", None)
        named = zip(self.hooks, self.spec.hooks.names, strict=True)
        made.hooks = [hook for hook, name in named if name not in without]
        if isinstance(model, str):
            model = resolve_model(model)
        made.name = name or self.name
        alone = self._alone
        made._alone = replace(
            alone,
            name=made.name,
            model=model or alone.model,
            hooks=compile_hooks(made.hooks, alone.state.names),
            beside=(*alone.beside, *_beside(made.name, tool_store, ())),
            guest=self.spec.guest,
        )
        made._model = model or self._model
        made.spec = team(made._alone, made.hooks, self.handoffs, made._model)
        made._attach(store)
        return made

    def with_output(self, output_type: Any, retries: int = OUTPUT_RETRIES) -> Agent[Any, ContextT]:
        """Return this agent, over the same store, with another output.

        Raises:
            ConfigError: An argument is invalid.
        """
        return self._varied(output=Output.of(output_type, retries))

    def with_tools(self, tools: Sequence[Any]) -> Agent[Any, ContextT]:
        """Return this agent, over the same store, with more tools; they replace none of its own.

        Raises:
            ConfigError: One of them is not a tool, or two have the same name.
        """
        more = bind_tools(tools)
        return self._varied(beside=(lambda: more, *self._alone.beside))

    def _varied(self, **changes: Any) -> Agent[Any, ContextT]:
        made: Agent[Any, ContextT] = copy(self)
        vars(made).pop("graph", None)
        made._owns_store = False
        made._alone = replace(self._alone, **changes)
        made.spec = team(made._alone, self.hooks, self.handoffs, self._model)
        return made

    @cached_property
    def graph(self) -> RunGraph:
        """The compiled LangGraph graph; all of LangGraph's methods work on it."""
        return self.graph_over(self._store)

    def graph_over(self, store: BaseCheckpointSaver[Any] | None) -> RunGraph:
        """Return the graph with its threads in another store."""
        graph = build_graph(self.spec, store)
        graph.ttl = self._ttl
        return graph

    @property
    def processors(self) -> Processors:
        """The functions that change messages around the model."""
        return self.spec.processors

    @property
    def store(self) -> BaseCheckpointSaver[Any] | None:
        """The checkpointer that holds the threads."""
        return self._store

    @property
    def threads(self) -> Any:
        """The list of threads: `list`, `get`, `delete`, `pin`.

        Raises:
            ConfigError: The store is not a `SqlSaver`, and keeps no such list.
        """
        store = engine_store(self._store)
        if store is None:
            raise ConfigError("this agent's store keeps no list of threads; give it a database URL")
        return store.threads

    def invoke(
        self,
        input: Any,
        *,
        thread_id: str | None = None,
        context: ContextT | Mapping[str, Any] | None = None,
        config: Any = None,
        **options: Unpack[RunOptions],
    ) -> Result[OutputT]:
        """Answer an input, and return the result of the run.

        Args:
            input: A text, a message, a dict with role and content, or a list of these.
            thread_id: The conversation to continue; a new one by default.
            context: Of the agent's `context_schema`, as an instance or as a mapping of its fields.
            config: More of LangChain's `RunnableConfig` (callbacks, tags, metadata, …).
            options: `idempotency_key`, `on_busy` and `deadline`; see `RunOptions`.

        Raises:
            MessageError: The input is invalid; nothing is stored.
            ThreadBusyError: Another run uses the thread, and `on_busy` is `reject`.
            WickError: The run failed; the next message continues the thread.
        """
        call = self._call(input, thread_id, context, config, options)
        return self._result(call, self.graph.invoke(call.input, call.config))

    async def ainvoke(
        self,
        input: Any,
        *,
        thread_id: str | None = None,
        context: ContextT | Mapping[str, Any] | None = None,
        config: Any = None,
        **options: Unpack[RunOptions],
    ) -> Result[OutputT]:
        """Answer an input; see `invoke`."""
        call = self._call(input, thread_id, context, config, options)
        return self._result(call, await self.graph.ainvoke(call.input, call.config))

    def stream(
        self,
        input: Any,
        *,
        thread_id: str | None = None,
        context: ContextT | Mapping[str, Any] | None = None,
        config: Any = None,
        tokens: bool = True,
        **options: Unpack[RunOptions],
    ) -> Iterator[Event]:
        """Answer an input, and yield events; the last one is `Done` or `Failed`.

        An invalid input raises here; later errors come as `Failed`. The run waits for a slow
        reader, and is cancelled when the reader leaves.

        Raises:
            MessageError: The input is invalid; nothing is stored.
        """
        return self._stream(self._call(input, thread_id, context, config, options), tokens)

    def astream(
        self,
        input: Any,
        *,
        thread_id: str | None = None,
        context: ContextT | Mapping[str, Any] | None = None,
        config: Any = None,
        tokens: bool = True,
        **options: Unpack[RunOptions],
    ) -> AsyncIterator[Event]:
        """Answer an input, and yield events; see `stream`."""
        return self._astream(self._call(input, thread_id, context, config, options), tokens)

    def resume(
        self,
        thread_id: str,
        answer: Any = CONTINUE,
        *,
        context: ContextT | Mapping[str, Any] | None = None,
        config: Any = None,
        force: bool = False,
        debug: Any = None,
    ) -> Result[OutputT]:
        """Continue a thread from its head: after a crash, a breakpoint, or with an answer.

        Args:
            thread_id: The conversation.
            answer: The answer to an interrupt; a mapping from interrupt ids if several wait.
            context: As for `invoke`; it is not stored, so it is given again.
            config: More of LangChain's `RunnableConfig`.
            force: Continue a poisoned thread at once, although its runs crashed the process.
            debug: A `wick_graph.debug.DebugSession`, which can hold the run at each of its moments.

        Raises:
            ConfigError: The agent has no store, so there is no thread.
            RunError: The thread is poisoned; or the run failed.
        """
        options: RunOptions = {"force": force, "debug": debug}
        call = self._call(CONTINUE, thread_id, context, config, options, answer)
        return self._result(call, self.graph.invoke(call.input, call.config))

    async def aresume(
        self,
        thread_id: str,
        answer: Any = CONTINUE,
        *,
        context: ContextT | Mapping[str, Any] | None = None,
        config: Any = None,
        force: bool = False,
        debug: Any = None,
    ) -> Result[OutputT]:
        """Continue a thread from its head; see `resume`."""
        options: RunOptions = {"force": force, "debug": debug}
        call = self._call(CONTINUE, thread_id, context, config, options, answer)
        return self._result(call, await self.graph.ainvoke(call.input, call.config))

    def stream_resume(
        self,
        thread_id: str,
        answer: Any = CONTINUE,
        *,
        context: ContextT | Mapping[str, Any] | None = None,
        config: Any = None,
        tokens: bool = True,
        force: bool = False,
        debug: Any = None,
    ) -> Iterator[Event]:
        """Continue a thread from its head, as `resume` does, and yield events."""
        options: RunOptions = {"force": force, "debug": debug}
        call = self._call(CONTINUE, thread_id, context, config, options, answer)
        return self._stream(call, tokens)

    def astream_resume(
        self,
        thread_id: str,
        answer: Any = CONTINUE,
        *,
        context: ContextT | Mapping[str, Any] | None = None,
        config: Any = None,
        tokens: bool = True,
        force: bool = False,
        debug: Any = None,
    ) -> AsyncIterator[Event]:
        """Continue a thread from its head, as `aresume` does, and yield events."""
        options: RunOptions = {"force": force, "debug": debug}
        call = self._call(CONTINUE, thread_id, context, config, options, answer)
        return self._astream(call, tokens)

    def platform_graph(self) -> RunGraph:
        """Return the graph without checkpointer and store, for a platform that brings its own.

        Name it in a `langgraph.json`. Without the agent's store there is no ledger of tool calls:
        a call that was running when the process died may run twice.
        """
        graph = build_graph(replace(self.spec, long_term=None))
        graph.ttl = self._ttl
        return graph

    def cancel(self, thread_id: str) -> bool:
        """Cancel the running run of a thread, in any process; return False if there is none.

        The run abandons its model call and its tools, and its children end with it. When this
        returns, the thread can be used again: finished results are kept, and running calls count
        as unknown.
        """
        return run_to_end(cancel(self._saver(), checked_thread_id(thread_id), SYNC_BRIDGE))

    async def acancel(self, thread_id: str) -> bool:
        """Cancel the running run of a thread; see `cancel`."""
        return await cancel(self._saver(), checked_thread_id(thread_id), ASYNC_BRIDGE)

    def compact(
        self,
        thread_id: str,
        *,
        messages: int = COMPACTION_MESSAGES,
        percent: int = COMPACTION_PERCENT,
        keep: int = COMPACTION_KEEP,
        model: str | ModelChoice | None = None,
        force: bool = False,
    ) -> Compaction:
        """Summarise the old part of a thread, between two runs; the history stays whole.

        The agent's `SummarizationHook` sends the summary in place of what it covers. If anything
        fails, nothing changes. If a run goes on, the summary is stored after its end.

        Args:
            thread_id: The conversation.
            messages: Summarise if there are more messages behind the last summary.
            percent: Summarise if they need more of the model's context window.
            keep: Messages that stay as they are, and with them the calls of their results.
            model: The model for the summary; the agent's own by default.
            force: Summarise a shorter thread too.

        Raises:
            ConfigError: The agent has no `SummarizationHook` or no store with threads.
        """
        terms = Terms(messages=messages, percent=percent, keep=keep, force=force)
        return run_to_end(self._compact(thread_id, SYNC_BRIDGE, terms, model))

    async def acompact(
        self,
        thread_id: str,
        *,
        messages: int = COMPACTION_MESSAGES,
        percent: int = COMPACTION_PERCENT,
        keep: int = COMPACTION_KEEP,
        model: str | ModelChoice | None = None,
        force: bool = False,
    ) -> Compaction:
        """Summarise the old part of a thread; see `compact`."""
        terms = Terms(messages=messages, percent=percent, keep=keep, force=force)
        return await self._compact(thread_id, ASYNC_BRIDGE, terms, model)

    async def _compact(
        self, thread_id: str, bridge: Bridge, terms: Terms, model: str | ModelChoice | None
    ) -> Compaction:
        if self.spec.guest:
            raise ConfigError(
                f"{self.name} is a LangGraph graph with a state of its own, which has no summary; "
                "only an agent's threads can be compacted"
            )
        if not any(isinstance(hook, SummarizationHook) for hook in self.hooks):
            raise ConfigError(
                f"the agent {self.name} has no SummarizationHook, which sends summaries; "
                "add one to its hooks"
            )
        choice = resolve_model(model) if isinstance(model, str) else model
        checked = checked_thread_id(thread_id)
        return await compact(self.graph, self._saver(), checked, bridge, terms, choice)

    def close(self) -> None:
        """Close the store, if this agent opened it."""
        if self._owns_store and isinstance(self._store, SqlSaver):
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.close)

    def _saver(self) -> EngineStore:
        store = engine_store(self._store)
        if store is None:
            raise ConfigError("this agent's store knows no runs; give it a database URL")
        return store

    def _call(
        self,
        given: Any,
        thread_id: str | None,
        context: Any,
        config: Any,
        options: RunOptions,
        answer: Any = CONTINUE,
    ) -> Call:
        call = call_of(
            given,
            thread_id,
            config,
            options,
            answer,
            self.name,
            self.allow_client_system,
            self.spec.state.names,
        )
        brought = langgraph_config.configurable(call.config).get(langgraph_config.CHECKPOINTER)
        if given is CONTINUE and self._store is None and brought is None:
            raise ConfigError("this agent keeps no threads to go on with; give it a database URL")
        call.run.with_context(self.spec, context)
        return call

    def read_result(self, values: Mapping[str, Any], run: Run) -> Result[OutputT]:
        """Return the result of a run: its end, and the state that it left."""
        name, output = self.spec.model.name, self.spec.output
        return result_of(values, run, run.thread_id or "", name, output)

    def _result(self, call: Call, values: Any) -> Result[OutputT]:
        return self.read_result(values or {}, call.run)

    def _stream(self, call: Call, tokens: bool) -> Iterator[Event]:
        def run() -> Result[OutputT]:
            return self._result(call, self.graph.invoke(call.input, call.config))

        return read(call, tokens, run, self._output_reader(), withheld=self.spec.withholds)

    def _output_reader(self) -> OutputReader | None:
        return None if self.spec.output is None else OutputReader(self.spec.output)

    def _astream(self, call: Call, tokens: bool) -> AsyncIterator[Event]:
        async def run() -> Result[OutputT]:
            return self._result(call, await self.graph.ainvoke(call.input, call.config))

        return aread(call, tokens, run, self._output_reader(), withheld=self.spec.withholds)


def _choice(model: Model, base_dir: Path | None) -> ModelChoice:
    return model if isinstance(model, ModelChoice) else resolve_model(model, base_dir=base_dir)


def _ttl(ttl: Any) -> float | str | None:
    try:
        return ttl if ttl is None or ttl == STORES else seconds(ttl)
    except ConfigError as error:
        raise ConfigError(f"ttl: {ttl!r:.80} is {error}") from None


def _processors(given: Any) -> Processors:
    made = Processors() if given is None else given
    if not isinstance(made, Processors) or not (callable(made.inbound) and callable(made.outbound)):
        raise ConfigError(
            "processors must be a wick_graph.messages.Processors of two functions, "
            f"not {given!r:.80}"
        )
    return made


def _check_approvals(spec: AgentSpec, store: Any) -> None:
    """Refuse approval rules if no store can keep a question until it is answered."""
    asking = (hook for part in (spec, *spec.parts.values()) for hook in part.hooks.approvals)
    if store is False and any(hook.may_ask for hook in asking):
        raise ConfigError(
            f"the agent {spec.name} asks for approval and has no store to keep the question in; "
            "leave store=False out, or leave the approvals out"
        )


def _check_children(spec: AgentSpec, hooks: Sequence[Any]) -> None:
    """Refuse tools and hooks with agents that need a context which this one does not have."""
    for part in (*hooks, *(tool.source for tool in spec.tools)):
        if isinstance(part, GivesTasks):
            part.check_caller(spec.context)


def _beside(
    name: str, tool_store: ToolStore | None, servers: Sequence[McpServer]
) -> tuple[Beside, ...]:
    for server in servers:
        server.tools()  # an unreachable one loses only its tools; a wrong name raises now
    stored = () if tool_store is None else (partial(tool_store.at, name),)
    return (*stored, *(server.known for server in servers))


def _keep_from(hooks: Sequence[Any], store: Any) -> None:
    """Protect the agent's store, its code and the user's trust records from its tools.

    Raises:
        ConfigError: Commands of its backend could write them.
    """
    guards = [hook for hook in hooks if isinstance(hook, KeepsFrom)]
    if not guards:
        return
    from wick_graph.backends import Rules  # noqa: PLC0415  # only for agents with files

    files: tuple[str, ...] = ()
    if isinstance(store, str):
        files = dialect_of(store).files
    elif isinstance(store, SqlSaver):
        files = store.files
    else:
        files = files_behind(getattr(store, "conn", None))  # LangGraph's own saver
    rules = Rules(control=(f"{trust_folder()}/",), code=code_folders(), stores=files)
    for hook in guards:
        hook.keep_from(rules)


def _open_store(store: Any) -> tuple[BaseCheckpointSaver[Any] | None, bool]:
    if store is False:
        return None, False
    if store is None:
        return SqlSaver.from_url("sqlite://"), True
    if isinstance(store, str):
        return SqlSaver.from_url(store), True
    if isinstance(store, BaseCheckpointSaver):
        return store, False
    raise ConfigError(
        f"store takes a URL, a LangGraph checkpointer, None or False, not a {type(store).__name__}"
    )
