"""A model request in LangChain's terms, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse
from langchain.agents.middleware.types import ModelRequest as LangChainRequest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command

from wick_graph.errors import HookError
from wick_graph.messages.copies import owned
from wick_graph.models.resolve import ModelChoice
from wick_graph.request import ModelRequest, Section, over, shown, thread_of
from wick_graph.tools.bound import BoundTool
from wick_graph.tools.langchain_tool import runtime_of

CHOICE = "tool_choice"


class Shown(LangChainRequest[Any]):
    """A request whose messages are copied when a middleware first looks at them."""

    def __getattr__(self, name: str) -> Any:  # asked only for what is not there yet
        fill = vars(self).get("_fill") if name == "messages" else None
        if fill is None:
            raise AttributeError(f"a model request has no {name!r}")
        messages = vars(self)[name] = fill()
        return messages


def to_langchain(request: ModelRequest, view: Mapping[str, Any]) -> LangChainRequest[Any]:
    """Write a request as middleware read it; its messages and state are its own."""
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
    vars(made)["_fill"] = lambda: owned(shown(request))
    return made


def from_langchain(
    made: LangChainRequest[Any], shown: LangChainRequest[Any], request: ModelRequest, by: str
) -> ModelRequest:
    """Carry what a middleware changed in a request over to ours.

    Raises:
        HookError: It wants something that a request of ours cannot say.
    """
    if made.response_format is not None:
        raise HookError(f"{by} sets response_format, which is not carried over")
    if "messages" in vars(made):  # else nobody has looked at them
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
    """Read what a middleware returned around a model call: a reply, and an update.

    Raises:
        HookError: There is no single reply in it, or its command does more than update.
    """
    update: Mapping[str, Any] = {}
    if isinstance(result, ExtendedModelResponse):
        update = _updated(result.command, by)
        result = result.model_response
    if isinstance(result, ModelResponse):
        if result.structured_response is not None:
            raise HookError(f"{by} gives a structured response, which is not carried over")
        replies = [message for message in result.result if isinstance(message, AIMessage)]
        if len(result.result) != 1 or not replies:
            raise HookError(f"{by} gives {len(result.result)} messages for one reply; give one")
        result = replies[0]
    if not isinstance(result, AIMessage):
        raise HookError(f"{by} returned a {type(result).__name__}, not a reply of the model")
    return result, update


def tool_of(tool: BoundTool) -> BaseTool:
    """Show a tool as LangChain's; what is none of its own cannot be called, only looked at."""
    if isinstance(tool.source, BaseTool):
        return tool.source

    def call(**_: Any) -> str:
        raise HookError(f"{tool.name} is called by the engine; return a request that offers it")

    return StructuredTool(
        name=tool.name, description=tool.description, args_schema=tool.parameters, func=call
    )


def rebased(request: ModelRequest, messages: Sequence[BaseMessage]) -> ModelRequest:
    """Show the same request over a thread whose messages were changed."""
    base = thread_of(request)
    whole = ((0, len(base)),) if base else ()
    if request.segments == whole:
        return over(request, messages)
    now = {message.id: message for message in messages}
    old = {message.id for message in base}
    mine = {id(message) for message in base}
    kept = [now.get(message.id) if id(message) in mine else message for message in shown(request)]
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
    for choice in (usual, *usual.fallbacks):
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
        raise HookError(f"{by} returned a command whose update is no mapping")
    return command.update or {}
