"""Context of a node: the agent's compiled parts, its run, and the bridge."""

from __future__ import annotations

import json
import math
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.store.base import BaseStore

from wick_graph import langgraph_config
from wick_graph.constants import CHARS_PER_TOKEN, DEFAULT_TOOL_TIMEOUT_SECONDS, MAX_ITERATIONS
from wick_graph.core.bridge import Bridge
from wick_graph.core.context import ContextSchema
from wick_graph.core.moments import NULL_LISTENER, JournalOptions, Listener, Listeners, Place
from wick_graph.core.request import ModelRequest, raw, shown, state_view
from wick_graph.core.state import LASTING, StateSchema, add_numbers
from wick_graph.core.stopping import Stop
from wick_graph.core.usage import Usage
from wick_graph.errors import ConfigError
from wick_graph.hooks.onion import Hooks
from wick_graph.hooks.protocol import HookContext
from wick_graph.messages.base import Lent, PrefixTexts
from wick_graph.messages.lowering import Lowering, Portable
from wick_graph.messages.provider_dicts import Processors
from wick_graph.messages.tokens import PrefixEstimate, sent_tokens
from wick_graph.messages.validation import PrefixValidator
from wick_graph.models.call import Processing
from wick_graph.models.resolve import Binder, ModelChoice
from wick_graph.models.structured import Output
from wick_graph.store.journal_rows import JournalRows
from wick_graph.store.leases import Lease, Leases, Writer
from wick_graph.store.ledger import Ledger
from wick_graph.store.threads import Threads
from wick_graph.store.warm import Kept
from wick_graph.tools.bound import BoundTool
from wick_graph.tools.toolsets import Beside, Offered, Toolbox
from wick_graph.types import OnBusy, StoppedBecause

ACTIVE: Final = "active"
"""The channel with the agent that has taken over; only agents with handoffs have it."""


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """A resolved agent: everything that its graph is compiled from."""

    name: str
    model: ModelChoice
    hooks: Hooks
    system_prompt: str = ""
    tools: tuple[BoundTool, ...] = ()
    fixed: frozenset[str] = frozenset()
    """Names of tools that no hook's tool may replace."""
    max_iterations: int = MAX_ITERATIONS
    """Limit of model calls in one run; the last one gets no tools."""
    tool_timeout: float | None = DEFAULT_TOOL_TIMEOUT_SECONDS
    """Seconds for a tool without a timeout of its own; None for no limit."""
    deadline: float | None = None
    """Time limit of a run in seconds; None for no limit."""
    keep_latest: int | None = None
    """Checkpoints of a thread that are kept after a run; None for all."""
    journal: JournalOptions = field(default_factory=JournalOptions)
    """Settings of its journal, which only an engine store keeps."""
    processors: Processors = field(default_factory=Processors)
    """Functions that change messages last before the model, and replies first after it."""
    beside: tuple[Beside, ...] = ()
    """Sources of tools that can change at run time."""
    context: ContextSchema | None = None
    """The type of what each caller gives beside the input; None for nothing."""
    state: StateSchema = field(default_factory=lambda: StateSchema({}))
    """The channels of its own."""
    parts: Mapping[str, AgentSpec] = field(default_factory=dict, repr=False)
    """Of an agent with handoffs: this agent with the prompt, tools and model of each other."""
    long_term: BaseStore | None = field(default=None, repr=False, compare=False)
    """LangGraph's store for what outlives threads."""
    guest: bool = False
    """The graph is the user's own: the engine records nothing of it, and adds no messages."""
    output: Output | None = None
    """What it gives; None for a text."""
    toolbox: Toolbox = field(init=False, repr=False)
    binder: Binder = field(init=False, repr=False, default_factory=Binder)
    channels: tuple[str, ...] = field(init=False, repr=False, default=LASTING)
    """The channels that tools can read."""
    recorded: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)
    """Cache: the agent's description in recordings."""
    caches: WeakKeyDictionary[Kept, Caches] = field(
        init=False, repr=False, compare=False, default_factory=WeakKeyDictionary
    )
    """Cache: by a thread's kept messages, what the last run has worked out about them."""

    def active(self, state: Mapping[str, Any]) -> AgentSpec:
        """Return the part that is active in a state; itself if none is."""
        name = state.get(ACTIVE)  # a tool or an edit may write anything
        return self.parts.get(name, self) if isinstance(name, str) else self

    @property
    def withholds(self) -> bool:
        """Whether no reader gets a reply's text before the hooks have passed it."""
        return self.hooks.withholds

    def __post_init__(self) -> None:
        _check(self)
        toolbox = Toolbox(
            self.tools,
            self.hooks.tool_sources,
            self.beside,
            () if self.output is None else self.output.forms,
            self.fixed,
        )
        others = bool(self.tools or self.hooks.tool_sources or self.beside)
        if self.output is not None and self.output.way_of(self.model, others) == "tool":
            toolbox.offer_output()
        object.__setattr__(self, "toolbox", toolbox)
        object.__setattr__(self, "channels", (*LASTING, *self.state.names))


def _check(spec: AgentSpec) -> None:
    """Check values early that would fail only on use.

    Raises:
        ConfigError: A value has the wrong type or is out of range.
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
    """The engine's requirements of a checkpointer, beyond LangGraph's protocol."""

    leases: Leases
    """The leases of threads."""

    @property
    def threads(self) -> Threads:
        """The list of threads."""

    def note_graph(self, graph: Any) -> object:
        """Learn the classes that a graph's state may have; return the list of all."""

    def ledger(self, lease: Lease) -> Ledger:
        """Return the ledger of a lease's thread."""

    def journal_rows(self, thread_id: str) -> JournalRows:
        """Return the rows of a thread's journal."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Caches:
    """What an agent has worked out about a thread's messages; each part looks at what is new only.

    One run at a time has it. If the messages are kept for the next run, so is this.
    """

    spec: AgentSpec
    lowering: Lowering
    """The lowered part."""
    processing: Processing
    """The processed part."""
    validator: PrefixValidator = field(default_factory=PrefixValidator)
    """The checked part of what models get."""
    portable: Portable = field(default_factory=Portable)
    """The portable part."""
    fittings: dict[int, Any] = field(default_factory=dict)
    """The messages fitted to each model's provider."""
    texts: PrefixTexts = field(default_factory=PrefixTexts)
    """The part of what models get that is plain text."""
    sizes: PrefixEstimate = field(default_factory=lambda: PrefixEstimate(sent_tokens))
    """The counted part."""
    sound: list[BaseMessage] = field(default_factory=list)
    """The part in which every call has its answer, and every answer its call."""
    keys: Any = None
    """The journal's: keys of the requests so far."""
    lends: bool = False
    """The next run gets the same messages, so code outside of the engine may not change them."""

    def lent(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """Return messages for a model; those that are kept cannot be changed through it."""
        return Lent(messages) if self.lends else messages

    @classmethod
    def of(cls, spec: AgentSpec, run: Run) -> Caches:
        """Return what the agent's last run of the thread has left, or an empty one."""
        kept = run.writer.kept
        made = None if kept is None else spec.caches.pop(kept, None)
        if made is None:
            processing = Processing(spec.processors)
            made = cls(spec, Lowering(spec.name, render=processing.rendered), processing)
        made.lends = kept is not None
        if run.journal is not None:
            made.keys = run.journal.continue_keys(made.keys)
        return made

    def leave(self, run: Run) -> None:
        """Leave this to the next run of the thread, if its messages are kept."""
        if run.writer.kept is not None:
            self.spec.caches[run.writer.kept] = self


_COUNTING: Final = threading.Lock()
"""Parallel calls count in threads of their own."""


@dataclass(slots=True)
class Run:
    """One run in this process: from an input to its end."""

    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    thread_id: str | None = None
    listener: Listener = NULL_LISTENER
    reader: Any = field(default=None, repr=False)
    """The listener of the run's event stream; None without a reader."""
    started: float = field(default_factory=time.monotonic)
    ran: bool = False
    """Whether a node of the graph has run."""
    ended: bool = False
    """Whether the router has decided to end."""
    stopped: StoppedBecause | Literal[""] = ""
    """Why the run ended; empty while it runs."""
    reason: str = ""
    """Which limit or guardrail ended the run, in a sentence; empty without one."""
    withdrawn: bool = False
    """A guardrail has refused the input, so the thread must not keep it."""
    stop: Stop = field(default_factory=Stop, repr=False)
    """The request to stop the run."""
    deadline: float | None = None
    """Time limit in seconds; None uses the agent's."""
    on_busy: OnBusy = "reject"
    """Policy if another run uses the thread."""
    force: bool = False
    """Continue a poisoned thread, and clear its crash count."""
    answers: tuple[ToolMessage, ...] = ()
    """Of the input: results of calls in the thread."""
    named: bool = False
    """Of the input: its messages have ids, so the thread may hold them already."""
    context: Any = field(default=None, repr=False)
    """The caller's context, checked; no part of it is ever stored."""
    context_schema: ContextSchema | None = field(default=None, repr=False)
    """Its type; a sub-agent of the same type gets it too."""
    key: str | None = None
    """The caller's idempotency key; `run_id` is made of it."""
    writer: Writer = field(default_factory=Writer, repr=False)
    """The lease of the thread and the commit policy; the store reads it at every write."""
    journal: Any = field(default=None, repr=False)
    """The listener that records it (`wick_graph.journal`); None without a journal."""
    debugger: Any = field(default=None, repr=False)
    """The attached debugger (`wick_graph.core.moments.Debugger`), or None."""
    ledger: Ledger | None = field(default=None, repr=False)
    """The thread's ledger of tool calls; None without an engine store."""
    resumed: bool = False
    """The run continues another one, and may meet calls that have already run."""
    waited: bool = False
    """The run continues a thread that waited for an answer, so nothing was interrupted there."""
    bound: tuple[Any, ...] = ()
    """Approval rules (`ApprovalHook`) of the delegating agents, outermost first."""
    pending: dict[str, Any] = field(default_factory=dict, repr=False)
    """Of a resumed run: open approval questions of its thread, by call id."""
    asked: dict[str, list[Any]] | None = field(default=None, repr=False)
    """Of a resumed run: all questions of its thread in the ledger; None until read."""
    cleared: dict[str, str] = field(default_factory=dict, repr=False)
    """Hashes of the calls that a person allowed in this run, by ledger key."""
    observed: bool = False
    """Steps are visible before the run ends, so each must be durable first."""
    usage: Usage = field(default_factory=Usage)
    """Token usage of this run's model calls."""
    model: str = ""
    """The model of the last reply; differs from the agent's after a fallback."""
    caches: Caches | None = field(default=None, repr=False)
    """What it has worked out about the thread's messages; None until a node asks for it."""
    untold: Sequence[tuple[str, Any]] = field(default=(), repr=False)
    """Of a stopped run: chunks that the shorter loop (`engine/lean.py`) told no reader."""
    around: Run | None = field(default=None, repr=False)
    """Of an agent that runs inside a call of another one: that one's run."""
    place: str = ""
    """Of such an agent: the namespace of the call around it."""
    within: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict, repr=False)
    """What agents inside nodes have used, by the node's namespace and the channel."""

    def inner(self, place: str) -> Run:
        """Return the part of this run that is an agent inside one of its calls.

        It has the thread, its lease and its ledger. Its end is not the end of this run, its
        messages are other ones, and what it says is no part of this run's answer.
        """
        made = replace(self, around=self, usage=Usage(), model="", caches=None, pending={})
        made.place, made.within = place, {}
        made.asked, made.cleared, made.untold = None, {}, ()
        made.listener, made.reader = Listeners.without(self.listener, self.reader), None
        made.ran = made.ended = made.withdrawn = False
        made.stopped = made.reason = ""
        return made

    def count(self, used: Usage) -> None:
        """Add the usage of a model call, to the runs around this one too."""
        with _COUNTING:
            run: Run | None = self
            while run is not None:
                run.usage += used
                run = run.around
        if self.around is not None:
            self.spend("usage", used.to_dict())

    def spend(self, channel: str, numbers: Mapping[str, int]) -> None:
        """Note numbers for the calls around this run, which write them to their own channels."""
        run = self
        while run.around is not None:
            with _COUNTING:
                kept = run.around.within.setdefault(run.place, {})
                kept[channel] = add_numbers(kept.get(channel), numbers)
            run = run.around

    def used_within(self, place: str) -> list[tuple[str, Any]]:
        """Take what agents inside a node have used: in its namespace, or in a graph that it ran."""
        with _COUNTING:
            own = [at for at in self.within if at == place or at.startswith(f"{place}|")]
            return [one for at in own for one in self.within.pop(at).items()]

    def with_context(self, spec: AgentSpec, given: Any) -> Any:
        """Return the run's context; what the caller gives is checked once.

        Raises:
            ConfigError: It does not fit the agent's schema, or the agent takes none.
        """
        schema = spec.context
        if schema is not None and self.context_schema is not schema:
            self.context, self.context_schema = schema.read(spec.name, given), schema
        elif schema is None and given is not None:
            if not spec.guest:  # LangGraph checks that of a graph
                raise ConfigError(
                    f"the agent {spec.name} takes no context; give it a context_schema, or leave "
                    "context= out"
                )
            self.context = given
        return self.context


class NodeContext(NamedTuple):
    """The argument of a node's body beside the state."""

    spec: AgentSpec
    run: Run
    bridge: Bridge
    config: Mapping[str, Any]
    listener: Listener = NULL_LISTENER
    """The listener of this visit of the node."""

    @property
    def task_id(self) -> str:
        """The superstep task that runs this node."""
        return langgraph_config.task_of(self.config)

    def for_hooks(self, state: Mapping[str, Any]) -> HookContext:
        """Make the context for hooks."""
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
            outputs=self.spec.toolbox.output,
        )

    def for_requests(self, state: Mapping[str, Any]) -> HookContext | None:
        """Make the context of a request; None if no hook sees the agent's requests.

        The journal holds a request until a commit, and with its context all of the node's visit.
        """
        hooks = self.spec.hooks
        if hooks.wrap_model_call or hooks.modify_request or self.spec.output is not None:
            return self.for_hooks(state)
        return None

    def tokens_of(self, request: ModelRequest) -> int:
        """Estimate the tokens of a request: prompt, messages and tool schemas."""
        known = self.tools(request.state)
        tools = sum(schema_tokens(known[name]) for name in request.tools if name in known)
        messages = self.caches.sizes.tokens(shown(request))
        return len(request.system_text) // CHARS_PER_TOKEN + messages + tools

    def lower(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """Lower a list of messages with seven roles to the form that every provider takes."""
        caches = self.caches
        return caches.portable.apply(caches.lowering.lower(messages))

    @property
    def caches(self) -> Caches:
        """What is known of the thread's messages."""
        run = self.run
        if run.caches is None:
            run.caches = Caches.of(self.spec, run)
        return run.caches

    @property
    def processing(self) -> Processing:
        """Applies the agent's processors in this run."""
        return self.caches.processing

    def tools(self, state: Mapping[str, Any]) -> Offered:
        """Return the tools that exist in this state, by name, in order."""
        return self.spec.toolbox.at(state)


_TOKENS: Final[WeakKeyDictionary[BoundTool, int]] = WeakKeyDictionary()


def schema_tokens(tool: BoundTool) -> int:
    """Estimate the tokens of a tool's schema."""
    if (known := _TOKENS.get(tool)) is None:  # a strong cache would keep a tool's files open
        known = len(json.dumps(tool.schema, ensure_ascii=False)) // CHARS_PER_TOKEN
        _TOKENS[tool] = known
    return known


def place_of(node: str, config: Mapping[str, Any]) -> Place:
    """Return the visit of a node that a config belongs to."""
    return Place(node, *langgraph_config.visit_of(config))


def run_of(config: Mapping[str, Any]) -> Run:
    """Return the run in a config; make one inside a foreign graph, which has none."""
    run = langgraph_config.configurable(config).get(langgraph_config.RUN)
    return run if isinstance(run, Run) else Run(thread_id=langgraph_config.thread_of(config))
