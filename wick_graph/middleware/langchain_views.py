"""Convert requests, tool calls and state to LangChain's types and back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, NotRequired, Required, cast, get_args, get_origin

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain.agents.middleware.types import AgentState, ExtendedModelResponse, ModelResponse
from langchain.agents.middleware.types import ModelRequest as LangChainRequest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.channels import BinaryOperatorAggregate, EphemeralValue, LastValue, UntrackedValue
from langgraph.channels.base import BaseChannel
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command
from typing_extensions import get_type_hints

from wick_graph.core.request import ModelRequest, Section, StateView, over, raw, thread_of
from wick_graph.core.request import shown as shown_request
from wick_graph.core.state import folding
from wick_graph.errors import ConfigError, HookError
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.messages.base import owned
from wick_graph.models.resolve import ModelChoice
from wick_graph.tools.bound import BoundTool
from wick_graph.tools.langchain_tool import runtime_of
from wick_graph.tools.result import normalise

# --- The state fields of middleware, all in one channel.
#
# The channels of a graph never depend on its hooks, so a thread can resume with other hooks. The
# channel `middleware` holds the fields of all middleware by name: as in LangChain, two middleware
# share a field of the same name.


CHANNEL: Final = "middleware"

JUMP: Final = "jump_to"

_COMMON: Final = frozenset(AgentState.__annotations__)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one middleware."""

    names: frozenset[str] = frozenset()
    run_scoped: frozenset[str] = frozenset()
    """Fields that are reset with each input."""
    reducers: Mapping[str, Callable[[Any, Any], Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, middleware: AgentMiddleware[Any, Any, Any]) -> Fields:
        """Read the fields of a middleware's state schema.

        Raises:
            ConfigError: A field has a channel type that is not supported here.
        """
        hints = get_type_hints(middleware.state_schema, include_extras=True)
        own = {name: hint for name, hint in hints.items() if name not in _COMMON}
        scoped: set[str] = set()
        reducers: dict[str, Callable[[Any, Any], Any]] = {}
        for name, hint in own.items():
            for mark in _marks(hint):
                if (channel := _channel(mark)) is not None:
                    if issubclass(channel, UntrackedValue | EphemeralValue):
                        scoped.add(name)
                    elif channel is BinaryOperatorAggregate and not inspect.isclass(mark):
                        reducers[name] = mark.operator
                    elif channel is not LastValue:
                        raise ConfigError(
                            f"the middleware {middleware.name} keeps {name!r} in a "
                            f"{channel.__name__}, which is not supported here"
                        )
                elif _is_reducer(mark):
                    reducers[name] = mark
        return cls(frozenset(own), frozenset(scoped), reducers)

    def view(
        self, state: Mapping[str, Any], messages: Sequence[BaseMessage] | None = None
    ) -> StateView:
        """Return the state as the middleware sees it: the thread's, and its own fields.

        Args:
            state: The thread's state.
            messages: A replacement for the thread's messages.
        """
        state = raw(state)
        held = state.get(CHANNEL) or {}
        own = {name: value for name, value in held.items() if value is not None}
        hidden = (CHANNEL, "request")
        seen = {name: value for name, value in state.items() if name not in hidden}
        seen["messages"] = (state.get("messages") or []) if messages is None else messages
        return StateView({**seen, **{name: own[name] for name in self.names if name in own}})

    def split(self, update: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a middleware's update to our channels."""
        own = {name: value for name, value in update.items() if name in self.names}
        rest = {name: value for name, value in update.items() if name not in {*own, JUMP}}
        return {**rest, CHANNEL: own} if own else rest

    def fold(self, state: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
        """Return a state after an update of our channel."""
        state = raw(state)
        if CHANNEL not in update:
            return dict(state)
        return {**state, CHANNEL: folding(self.reducers)(state.get(CHANNEL), update[CHANNEL])}


def _marks(hint: Any) -> tuple[Any, ...]:
    while get_origin(hint) in (Required, NotRequired):
        (hint,) = get_args(hint)
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _channel(mark: Any) -> type[BaseChannel[Any, Any, Any]] | None:
    kind = mark if inspect.isclass(mark) else type(mark)
    return kind if issubclass(kind, BaseChannel) else None


def _is_reducer(mark: Any) -> bool:
    if not callable(mark) or inspect.isclass(mark):
        return False
    try:
        taken = inspect.signature(mark).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in taken) == 2


# --- Convert a model request to LangChain's and back.


CHOICE = "tool_choice"


class Shown(LangChainRequest[Any]):
    """A request that copies its messages when a middleware first reads them."""

    def __getattr__(self, name: str) -> Any:  # called only for missing attributes
        fill = vars(self).get("_fill") if name == "messages" else None
        if fill is None:
            raise AttributeError(f"a model request has no {name!r}")
        messages = vars(self)[name] = fill()
        return messages


def to_langchain(request: ModelRequest, view: Mapping[str, Any]) -> LangChainRequest[Any]:
    """Convert a request for middleware; its messages and state are copies."""
    ctx = request.ctx
    known = ctx.tools_of(request.state)
    text = request.system_text
    settings = dict(request.settings)
    choice: ModelChoice = request.model or ctx.model
    made = Shown(
        model=choice.model,
        messages=[],
        system_message=SystemMessage(text) if text else None,
        tool_choice=settings.pop(CHOICE, None),
        tools=[tool_of(known[name]) for name in request.tools if name in known],
        state=view,  # type: ignore[arg-type]  # any mapping with messages will do
        runtime=runtime_of(ctx.config),
        model_settings=settings,
    )
    del vars(made)["messages"]
    vars(made)["_fill"] = lambda: owned(shown_request(request))
    return made


def from_langchain(
    made: LangChainRequest[Any], shown: LangChainRequest[Any], request: ModelRequest, by: str
) -> ModelRequest:
    """Apply a middleware's changes to our request.

    Raises:
        HookError: Our request cannot express a change.
    """
    if made.response_format is not None:
        raise HookError(f"{by} sets response_format, which is not supported here")
    if "messages" in vars(made):  # else the middleware has not read them
        request = request.with_messages(made.messages)
    request = request.with_tools(_names(made.tools, request, by))
    settings = dict(made.model_settings)
    if made.tool_choice is not None:
        settings[CHOICE] = made.tool_choice
    request = _prompted(replace(request, settings=settings), made.system_message, by)
    if made.model is shown.model:
        return request
    if not isinstance(made.model, BaseChatModel):
        raise HookError(f"{by} asks a {type(made.model).__name__}; give it a chat model")
    return replace(request, model=_choice(made.model, request))


def reply_of(result: Any, by: str) -> tuple[AIMessage, Mapping[str, Any]]:
    """Read the reply and the update that a middleware returned around a model call.

    Raises:
        HookError: It does not have exactly one reply, or its command does more than update.
    """
    update: Mapping[str, Any] = {}
    if isinstance(result, ExtendedModelResponse):
        update = _updated(result.command, by)
        result = result.model_response
    if isinstance(result, ModelResponse):
        if result.structured_response is not None:
            raise HookError(f"{by} gives a structured response, which is not supported here")
        replies = [message for message in result.result if isinstance(message, AIMessage)]
        if len(result.result) != 1 or not replies:
            raise HookError(f"{by} gives {len(result.result)} messages for one reply; give one")
        result = replies[0]
    if not isinstance(result, AIMessage):
        raise HookError(f"{by} returned a {type(result).__name__}, not a reply of the model")
    return result, update


def tool_of(tool: BoundTool) -> BaseTool:
    """Show a tool as a LangChain tool; others than LangChain's own cannot be called."""
    if isinstance(tool.source, BaseTool):
        return tool.source

    def call(**_: Any) -> str:
        raise HookError(f"{tool.name} is called by the engine; return a request that offers it")

    return StructuredTool(
        name=tool.name, description=tool.description, args_schema=tool.parameters, func=call
    )


def rebased(request: ModelRequest, messages: Sequence[BaseMessage]) -> ModelRequest:
    """Return the request for a thread with changed messages."""
    base = thread_of(request)
    whole = ((0, len(base)),) if base else ()
    if request.segments == whole:
        return over(request, messages)
    now = {message.id: message for message in messages}
    old = {message.id for message in base}
    mine = {id(message) for message in base}
    kept = [
        now.get(message.id) if id(message) in mine else message
        for message in shown_request(request)
    ]
    left = [message for message in kept if message is not None]
    left += [message for message in messages if message.id not in old]
    return over(request, messages).with_messages(left)


def _names(tools: Sequence[Any], request: ModelRequest, by: str) -> list[str]:
    known = request.ctx.tools_of(request.state)
    names = []
    for tool in tools:
        function = tool.get("function") or {} if isinstance(tool, dict) else {}
        name = function.get("name") if isinstance(tool, dict) else getattr(tool, "name", None)
        if name not in known:
            raise HookError(f"{by} offers the tool {tool!r:.80}, which the agent does not have")
        names.append(str(name))
    return names


def _prompted(request: ModelRequest, message: SystemMessage | None, by: str) -> ModelRequest:
    before, after = request.system_text, message.text if message is not None else ""
    if after == before:
        return request
    if before and after.startswith(f"{before}\n\n"):
        return request.append_system(after[len(before) + 2 :], source=by)
    return request.replace_system(*((Section(after, by),) if after else ()))


def _choice(model: BaseChatModel, request: ModelRequest) -> ModelChoice:
    usual: ModelChoice = request.ctx.model
    for choice in usual.leaves():
        if choice.model is model:
            return replace(choice, fallbacks=())
    name = getattr(model, "model_name", None) or getattr(model, "model", None)
    shown = name if isinstance(name, str) and name else type(model).__name__
    return ModelChoice(model=model, name=shown, context_window=usual.context_window)


def _updated(command: Command[Any] | None, by: str) -> Mapping[str, Any]:
    if command is None:
        return {}
    if command.goto or command.resume or command.graph:
        raise HookError(f"{by} returned a command with goto, resume or graph; only update is taken")
    if not isinstance(command.update, Mapping | None):
        raise HookError(f"{by} returned a command with an update that is not a mapping")
    return command.update or {}


# --- Convert a tool call to LangChain's and back.


class CallView:
    """One call as a middleware sees it."""

    def __init__(self, call: ToolCall, view: Mapping[str, Any], tool: BaseTool | None) -> None:
        self._call = call if tool is None else _seeing(call, view)
        self._given: list[tuple[Any, ToolResult]] = []
        ctx = call.ctx
        runtime = runtime_of(ctx.config)
        self.request = ToolCallRequest(
            tool_call=call.to_langchain(),
            tool=tool,
            state=view,
            runtime=ToolRuntime(
                state=cast(Any, view),
                context=runtime.context,
                config=ensure_config(ctx.config),
                stream_writer=runtime.stream_writer,
                tool_call_id=call.id,
                store=runtime.store,
                execution_info=runtime.execution_info,
                server_info=runtime.server_info,
            ),
        )

    def wanted(self, request: ToolCallRequest) -> ToolCall:
        """Return the call that a middleware passes on."""
        asked = request.tool_call
        return self._call.replace(name=asked["name"], args=dict(asked["args"]))

    def came(self, result: ToolResult) -> ToolMessage | Command[Any]:
        """Show a result like LangChain's tool node."""
        message: ToolMessage | Command[Any] = result.to_message()
        if result.update:
            update = dict(result.update)
            update["messages"] = [*update.get("messages", ()), message]
            message = Command(update=update)
        self._given.append((message, result))
        return message

    def result(self, made: Any) -> ToolResult:
        """Read what a middleware returned; an unchanged result is returned itself."""
        for shown, result in self._given:
            if made is shown:
                return result
        return normalise(made, self._call)


def _seeing(call: ToolCall, view: Mapping[str, Any]) -> ToolCall:
    """Add the middleware's fields to the state of a call of its own tool."""
    return call.replace(ctx=replace(call.ctx, state=view))
