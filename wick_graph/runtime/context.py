"""What a node works with: the agent's compiled parts, its run, and the driver."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol

from langchain_core.messages import BaseMessage, ToolMessage

from wick_graph import langgraph_config
from wick_graph.constants import CHARS_PER_TOKEN, DEFAULT_TOOL_TIMEOUT_SECONDS, MAX_ITERATIONS
from wick_graph.core.bridge import Bridge
from wick_graph.core.moments import NULL_LISTENER, JournalOptions, Listener, Place
from wick_graph.core.request import ModelRequest, raw, shown, state_view
from wick_graph.core.stopping import Stop
from wick_graph.core.usage import Usage
from wick_graph.errors import ConfigError
from wick_graph.hooks.onion import Hooks
from wick_graph.hooks.protocol import HookContext
from wick_graph.messages.lowering import Lowering, Portable
from wick_graph.messages.provider_dicts import Processors
from wick_graph.messages.tokens import PrefixEstimate, sent_tokens
from wick_graph.messages.validation import PrefixValidator
from wick_graph.models.call import Processing
from wick_graph.models.resolve import Binder, ModelChoice
from wick_graph.store.journal_rows import JournalRows
from wick_graph.store.leases import Lease, Leases, Writer
from wick_graph.store.ledger import Ledger
from wick_graph.store.threads import Threads
from wick_graph.tools.bound import BoundTool
from wick_graph.tools.toolsets import Beside, Offered, Toolbox
from wick_graph.types import OnBusy, StoppedBecause


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """An agent, resolved: everything that its graph is compiled from."""

    name: str
    model: ModelChoice
    hooks: Hooks
    system_prompt: str = ""
    tools: tuple[BoundTool, ...] = ()
    max_iterations: int = MAX_ITERATIONS
    """Model calls in one run; the last of them is made without tools."""
    tool_timeout: float | None = DEFAULT_TOOL_TIMEOUT_SECONDS
    """Seconds for a tool that says nothing of its own; None for no limit."""
    deadline: float | None = None
    """Seconds that a whole run may take; None for no limit."""
    keep_latest: int | None = None
    """Checkpoints of a thread that are kept when a run has ended; None for all."""
    journal: JournalOptions = field(default_factory=JournalOptions)
    """What is recorded of its runs, where the store is ours."""
    processors: Processors = field(default_factory=Processors)
    """What it does to messages last before its model, and first after it."""
    beside: tuple[Beside, ...] = ()
    """Where tools come from that come and go."""
    toolbox: Toolbox = field(init=False, repr=False)
    binder: Binder = field(init=False, repr=False, default_factory=Binder)
    recorded: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)
    """What recordings say of the agent, once somebody has asked."""

    def __post_init__(self) -> None:
        _check(self)
        toolbox = Toolbox(self.tools, self.hooks.tool_sources, self.beside)
        object.__setattr__(self, "toolbox", toolbox)


def _check(spec: AgentSpec) -> None:
    """Refuse what would fail only when it is used.

    Raises:
        ConfigError: A value is of the wrong type or out of its range.
    """
    steps, limit = spec.max_iterations, spec.tool_timeout
    if not isinstance(spec.name, str) or not spec.name:
        raise ConfigError(f"name must be a text that is not empty, not {spec.name!r:.80}")
    if not isinstance(spec.system_prompt, str):
        raise ConfigError(f"system_prompt must be a text, not {spec.system_prompt!r:.80}")
    if type(steps) is not int or steps < 1:
        raise ConfigError(f"max_iterations must be a whole number of 1 or more, not {steps!r:.80}")
    if spec.keep_latest is not None and (type(spec.keep_latest) is not int or spec.keep_latest < 1):
        raise ConfigError(f"keep_latest must be 1 or more, or None, not {spec.keep_latest!r:.80}")
    if limit is not None and (type(limit) not in (int, float) or not 0 < limit < math.inf):
        raise ConfigError(f"tool_timeout must be seconds above 0, or None, not {limit!r:.80}")


class EngineStore(Protocol):
    """What a run needs of a checkpointer beside LangGraph's own protocol."""

    leases: Leases
    """Who may write to which thread."""

    @property
    def threads(self) -> Threads:
        """The list of threads."""

    def ledger(self, lease: Lease) -> Ledger:
        """Return the tool calls of the thread that a lease is for."""

    def journal_rows(self, thread_id: str) -> JournalRows:
        """Return the rows of a thread's journal."""


@dataclass(slots=True)
class Run:
    """One input and everything that it sets in motion, in this process."""

    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    thread_id: str | None = None
    listener: Listener = NULL_LISTENER
    reader: Any = field(default=None, repr=False)
    """The listener of whoever reads the run's events; None where nobody does."""
    started: float = field(default_factory=time.monotonic)
    ran: bool = False
    """A node of the graph has run."""
    ended: bool = False
    """The router has said `end`."""
    stopped: StoppedBecause | Literal[""] = ""
    """Why the run ended; empty while it goes on."""
    stop: Stop = field(default_factory=Stop, repr=False)
    """Where others ask the run to stop."""
    deadline: float | None = None
    """Seconds that it may take; None leaves it to the agent."""
    on_busy: OnBusy = "reject"
    """What becomes of it where another run goes on in its thread."""
    force: bool = False
    """The run goes on although its thread is poisoned; what it is charged with is forgotten."""
    answers: tuple[ToolMessage, ...] = ()
    """Of the input: results of calls that the thread must know."""
    named: bool = False
    """Of the input: messages have ids, so the thread may hold them already."""
    key: str | None = None
    """The caller's idempotency key; `run_id` is made of it."""
    writer: Writer = field(default_factory=Writer, repr=False)
    """The right to write to the thread, and what may wait; the store reads it at every write."""
    journal: Any = field(default=None, repr=False)
    """The listener that records it (`wick_graph.journal`); None where nothing is recorded."""
    debugger: Any = field(default=None, repr=False)
    """Who watches the run and may hold it (`wick_graph.core.moments.Debugger`); None for nobody."""
    ledger: Ledger | None = field(default=None, repr=False)
    """The thread's record of tool calls; None where the store is not ours."""
    resumed: bool = False
    """The run goes on where another one stopped, and may meet calls that have run already."""
    waited: bool = False
    """The run goes on in a thread that waited for an answer: nothing was cut off there."""
    bound: tuple[Any, ...] = ()
    """Rules of approval (`ApprovalHook`) of the agents that gave the task, the outermost first."""
    pending: dict[str, Any] = field(default_factory=dict, repr=False)
    """Of a resumed run: questions of approval that its thread waits for, by call id."""
    asked: dict[str, list[Any]] | None = field(default=None, repr=False)
    """Of a resumed run: all questions of its thread in the ledger; None before they are read."""
    cleared: dict[str, str] = field(default_factory=dict, repr=False)
    """Hashes of the calls that a person has allowed in this run, by the calls' keys."""
    observed: bool = False
    """Somebody is told of steps before the run ends: what they are told of must be durable."""
    usage: Usage = field(default_factory=Usage)
    """What the model calls of this run have used."""
    model: str = ""
    """The model that gave the last reply; differs from the agent's after a fallback."""
    validator: PrefixValidator = field(default_factory=PrefixValidator, repr=False)
    """Remembers the checked part of the history, so that a step checks only what is new."""
    lowering: Lowering | None = field(default=None, repr=False)
    """Remembers the lowered part likewise."""
    processing: Processing | None = field(default=None, repr=False)
    """Remembers what the agent's processors made, likewise."""
    portable: Portable = field(default_factory=Portable, repr=False)
    """Remembers the portable part likewise."""
    fittings: dict[int, Any] = field(default_factory=dict, repr=False)
    """Remembers, for each model that was asked, what was fitted to its provider."""
    sizes: PrefixEstimate = field(default_factory=lambda: PrefixEstimate(sent_tokens), repr=False)
    """Remembers the counted part likewise."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What a node's body is given beside the state."""

    spec: AgentSpec
    run: Run
    bridge: Bridge
    config: Mapping[str, Any]
    listener: Listener = NULL_LISTENER
    """What listens to this visit of the node."""

    @property
    def task_id(self) -> str:
        """The superstep task that runs this node."""
        return langgraph_config.task_of(self.config)

    def for_hooks(self, state: Mapping[str, Any]) -> HookContext:
        """Make what hooks see of all this."""
        return HookContext(
            agent=self.spec.name,
            thread_id=self.run.thread_id or langgraph_config.thread_of(self.config),
            run_id=self.run.run_id,
            iteration=raw(state).get("iteration", 0),
            config=self.config,
            model_name=self.spec.model.name,
            context_window=self.spec.model.context_window,
            tokens_of=self.tokens_of,
            state=state_view(state),
            model=self.spec.model,
            tools_of=self.tools,
        )

    def tokens_of(self, request: ModelRequest) -> int:
        """Estimate the tokens of all that a request sends: prompt, messages, tools' schemas."""
        known = self.tools(request.state)
        tools = sum(schema_tokens(known[name]) for name in request.tools if name in known)
        messages = self.run.sizes.tokens(shown(request))
        return len(request.system_text) // CHARS_PER_TOKEN + messages + tools

    def lower(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """Turn a chain of seven roles into what a model reads, as every provider takes it."""
        if self.run.lowering is None:
            self.run.lowering = Lowering(self.spec.name, render=self.processing.rendered)
        return self.run.portable.apply(self.run.lowering.lower(messages))

    @property
    def processing(self) -> Processing:
        """What applies the agent's processors in this run."""
        if self.run.processing is None:
            self.run.processing = Processing(self.spec.processors)
        return self.run.processing

    def tools(self, state: Mapping[str, Any]) -> Offered:
        """Return the tools that exist in this state, by name, in their order."""
        return self.spec.toolbox.at(state)


@lru_cache(maxsize=4096)
def schema_tokens(tool: BoundTool) -> int:
    """Estimate what a tool's schema adds to every prompt."""
    return len(json.dumps(tool.schema, ensure_ascii=False)) // CHARS_PER_TOKEN


def place_of(node: str, config: Mapping[str, Any]) -> Place:
    """Say which visit of a node a config belongs to."""
    return Place(node, *langgraph_config.visit_of(config))


def run_of(config: Mapping[str, Any]) -> Run:
    """Return the run that a config carries; inside a foreign graph there is none: make one."""
    run = langgraph_config.configurable(config).get(langgraph_config.RUN)
    return run if isinstance(run, Run) else Run(thread_id=langgraph_config.thread_of(config))
