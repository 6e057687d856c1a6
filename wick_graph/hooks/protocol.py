"""The protocol of a hook: one class with five optional phases.

A hook is configuration: one object serves all threads at once, so it must not hold data of a run.
Such data goes into the state, as an update that a phase returns with its value.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    NoReturn,
    Protocol,
    TypeVar,
    get_args,
    runtime_checkable,
)
from weakref import WeakSet

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.errors import GraphBubbleUp

from wick_graph import langgraph_config
from wick_graph.constants import CHARS_PER_TOKEN, DEFAULT_CONTEXT_WINDOW
from wick_graph.core.request import ModelRequest, shown
from wick_graph.errors import HookError
from wick_graph.messages import ToolCall, ToolResult, estimate_tokens
from wick_graph.types import Phase, StoppedBecause

if TYPE_CHECKING:
    from wick_graph.backends import Rules

PHASES: Final[tuple[Phase, ...]] = get_args(Phase)

ModelCallNext = Callable[[ModelRequest], AIMessage | Awaitable[AIMessage]]
"""`next` of `wrap_model_call`: awaited in an `async def`, called in a `def`."""

ToolCallNext = Callable[[ToolCall], ToolResult | Awaitable[ToolResult]]
"""`next` of `wrap_tool_call`."""

IN_PLACE: Final = "__wick_in_place__"

F = TypeVar("F", bound=Callable[..., Any])


def in_place(phase: F) -> F:
    """Mark an `async def` phase that awaits only its `next`, so that it runs in place.

    A phase without the mark may block or wait, so either `invoke` or `ainvoke` must run it on
    another thread or loop. A marked phase costs only a function call in both.
    """
    setattr(phase, IN_PLACE, True)
    return phase


def request_tokens(request: ModelRequest) -> int:
    """Estimate the tokens of a request's system prompt and messages, without its tools."""
    return len(request.system_text) // CHARS_PER_TOKEN + estimate_tokens(shown(request))


@dataclass(frozen=True, slots=True)
class HookContext:
    """The context of a hook's call."""

    agent: str
    thread_id: str | None
    run_id: str
    iteration: int
    """Model calls of this run so far."""
    config: Mapping[str, Any] = field(repr=False)
    """LangChain's `RunnableConfig`, for models and tools that a hook calls itself."""
    model_name: str = ""
    """The name of the agent's model."""
    context_window: int = DEFAULT_CONTEXT_WINDOW
    """Tokens in the context window of the agent's model."""
    tokens_of: Callable[[ModelRequest], int] = field(default=request_tokens, repr=False)
    """Estimate the tokens of a whole request, including the tools' schemas."""
    state: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The thread's state at the start of the step, read only; values are copies."""
    model: Any = field(default=None, repr=False)
    """The agent's model, as a `ModelChoice`."""
    tools_of: Callable[[Mapping[str, Any]], Mapping[str, Any]] = field(
        default=lambda state: {}, repr=False
    )
    """Return the tools of a state by name."""
    outputs: Collection[str] = ()
    """Names of the tools that give the agent's output."""

    @property
    def context(self) -> Any:
        """The caller's context, of the agent's `context_schema`; None without one."""
        return langgraph_config.context_of(self.config)

    def register_tool(self, tool: object) -> NoReturn:
        """Refuse: a tool registered during a run would be missing after a restart.

        Raises:
            HookError: Always; it names the alternative.
        """
        raise HookError(
            f"cannot register the tool {getattr(tool, 'name', tool)!r} during a run: it would be "
            "missing when the thread is resumed; return it from the hook's tools(state) instead"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `after_model` decides about a reply.

    Raises:
        HookError: A field is of the wrong type.
    """

    answers: Mapping[str, ToolResult | str] = field(default_factory=dict)
    """Results for calls that must not run, by call id."""
    end: bool = False
    """Whether the run ends with this reply; its open calls are then refused."""
    because: StoppedBecause = "done"
    """The reason, if the run ends."""
    update: Mapping[str, Any] = field(default_factory=dict)
    reply: AIMessage | None = None
    """A replacement for the reply; it keeps the reply's id."""
    then: Sequence[BaseMessage] = ()
    """Messages after the reply and its answers, if the run ends."""

    def __post_init__(self) -> None:
        answers: Any = self.answers
        if not isinstance(answers, Mapping):
            raise HookError(f"a verdict's answers map call ids to results, not {answers!r:.80}")
        for call_id, answer in answers.items():
            if not isinstance(call_id, str) or not isinstance(answer, ToolResult | str):
                raise HookError(
                    f"a verdict's answer is a text or a ToolResult by the id of its call, "
                    f"not {call_id!r:.80}: {answer!r:.80}"
                )
        if self.because not in get_args(StoppedBecause):
            known = ", ".join(get_args(StoppedBecause))
            raise HookError(f"a verdict's because is one of {known}, not {self.because!r:.80}")


ANSWER: Final = "I cannot help with that."
"""The answer of a guardrail that has no words of its own."""


class Tripwire(GraphBubbleUp):
    """End the run politely with `stopped_because="guardrail"`; any phase and any tool raises it.

    If it is raised before the run's first model call, the thread does not keep the input.

    Args:
        reason: Why, in a sentence for `Result.reason`.
        answer: The answer that the person reads; empty for none.
    """

    def __init__(self, reason: str, *, answer: str = ANSWER) -> None:
        super().__init__(reason)
        self.reason, self.answer = str(reason), str(answer)
        self.writes: list[tuple[str, Any]] = []
        """What the node has written before."""


class BaseHook:
    """A hook that changes nothing; override what you need, as `def` or `async def`.

    A phase's method may return its value alone or `(value, update)`, where `update` is written to
    the state. `before_agent` returns only an update, or None.
    """

    name: str = "base"
    phases: ClassVar[Sequence[Phase]] = PHASES
    """The phases of this hook; overriding the method of another phase is an error."""
    workdir_names: Sequence[str] = ()
    """Absolute names of the working directory of its tools; empty if it has none."""
    joins: bool = False
    """Whether this hook binds an agent too that hands the conversation over to its own."""
    withholds: bool = False
    """Whether readers get the model's text only after the hooks, because one may refuse it."""

    def tools(self, state: Mapping[str, Any]) -> Sequence[Any]:
        """Return the tools of this hook: a pure function, called again at every step."""
        return ()

    def before_agent(self, state: Mapping[str, Any], ctx: HookContext) -> Any:
        """Prepare a run: called once per input, never on resume. An error ends the run."""

    def modify_request(self, request: ModelRequest, ctx: HookContext) -> Any:
        """Change the request of this model call; the change is not stored in the thread."""
        return request

    def wrap_model_call(self, request: ModelRequest, next: ModelCallNext) -> Any:
        """Act before or after the model call, replace it, or repeat it."""
        return next(request)

    def after_model(self, message: AIMessage, ctx: HookContext) -> Any:
        """Judge a reply before its calls run; return a `Verdict`, an update, or None."""

    def wrap_tool_call(self, call: ToolCall, next: ToolCallNext) -> Any:
        """Act around one tool call; after a resume, the part before `next` runs again."""
        return next(call)


# --- What hooks with tools for files must leave alone. It is here, so that an agent without such a
# hook loads none of what they need.


@runtime_checkable
class KeepsFrom(Protocol):
    """A hook or a backend that could change what governs agents."""

    def keep_from(self, rules: Rules) -> None:
        """Protect more files and folders.

        Raises:
            ConfigError: Commands could change them.
        """


@runtime_checkable
class InFiles(Protocol):
    """A store in local files."""

    @property
    def files(self) -> tuple[str, ...]:
        """Return the absolute paths of its files."""
        ...


_STORES: Final[WeakSet[InFiles]] = WeakSet()
"""The stores of all agents of this process: a sub-agent's tools leave them all alone."""

_STORES_LOCK: Final = threading.Lock()


def note_store(store: object) -> None:
    """Protect a store from the tools of all agents."""
    if isinstance(store, InFiles):
        with _STORES_LOCK:
            _STORES.add(store)


def store_files() -> set[str]:
    """Return the files of the stores of all agents of this process."""
    with _STORES_LOCK:
        return {file for store in _STORES for file in store.files}
