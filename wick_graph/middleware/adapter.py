"""One LangChain middleware as a hook: each method runs in its phase.

before_agent       before_agent, once per input
before_model       modify_request: the changed thread is what the request shows
wrap_model_call    wrap_model_call
after_model        after_model, in the order of the hooks
wrap_tool_call     wrap_tool_call
jump_to: end       the run ends with the middleware's message
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelResponse,
    PIIMiddleware,
)
from langchain.agents.middleware.internal_call_transformer import InternalCallTransformer
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, convert_to_messages

from wick_graph.backends import Root, Rules
from wick_graph.backends.guard import Guard
from wick_graph.config.code import called
from wick_graph.core.request import ModelRequest, StateView, peek
from wick_graph.core.state import reduce_messages
from wick_graph.errors import ConfigError, WickError, did_you_mean
from wick_graph.hooks.onion import compile_hooks
from wick_graph.hooks.protocol import BaseHook, HookContext, Verdict
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.middleware.langchain_views import (
    CHANNEL,
    JUMP,
    CallView,
    Fields,
    from_langchain,
    rebased,
    reply_of,
    to_langchain,
)
from wick_graph.models.resolve import resolve_model
from wick_graph.tools.langchain_tool import runtime_of
from wick_graph.tools.result import normalise
from wick_graph.types import StoppedBecause

# --- What a middleware may do here; anything else is refused before a run.


Method = tuple[Callable[..., Any], bool]
"""A middleware's method for a phase, and whether it is an `async def`."""

_JUMPS: Final = {
    "before_agent": frozenset({"end", "model"}),
    "before_model": frozenset({"end", "model"}),
    "after_model": frozenset({"end", "tools"}),
}
"""Jump targets of each phase; the graph has no others."""


def method_of(middleware: AgentMiddleware[Any, Any, Any], phase: str) -> Method | None:
    """Find a middleware's method for a phase: its `def`, else its `async def`, else nothing."""
    for name, is_async in ((phase, False), (f"a{phase}", True)):
        if getattr(type(middleware), name) is not getattr(AgentMiddleware, name):
            return _called(getattr(middleware, name), name), is_async
    return None


def _called(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Adapt a method to the arguments state, runtime and config; it may omit the last.

    LangGraph passes a node what its parameters name; middleware uses these names.
    """
    if "wrap" in name or "config" in inspect.signature(fn).parameters:
        return fn
    return lambda state, runtime, config: fn(state, runtime)


def check(middleware: Any) -> None:
    """Refuse a middleware that cannot run as a hook.

    Raises:
        ConfigError: It is not a middleware, or does something that this loop cannot do.
    """
    if not isinstance(middleware, AgentMiddleware):
        raise ConfigError(
            f"{middleware!r:.80} is not a LangChain middleware; pass an AgentMiddleware object"
        )
    why = _refusal(middleware)
    if why is not None:
        raise ConfigError(f"the middleware {middleware.name} {why}")


def _refusal(middleware: AgentMiddleware[Any, Any, Any]) -> str | None:
    if isinstance(middleware, HumanInTheLoopMiddleware):
        return (
            "would ask the model again after each answer; write approvals: into the agent instead"
        )
    if method_of(middleware, "after_agent") is not None:
        return "acts after the run (after_agent), for which this loop has no step"
    for phase, known in _JUMPS.items():
        methods = (getattr(middleware, name) for name in (phase, f"a{phase}"))
        jumps = [to for method in methods for to in getattr(method, "__can_jump_to__", ())]
        unknown = [jump for jump in jumps if jump not in known]
        if unknown:
            return f"jumps from {phase} to {unknown[0]!r}, which this loop cannot do"
    if isinstance(middleware, PIIMiddleware) and not middleware.apply_to_output:
        return None  # it redacts tool results for the model, which works here
    if any(made is not InternalCallTransformer for made in middleware.transformers):
        return (
            "rewrites the stream of a reply, which readers get here directly from the model; "
            "apply it to the input or to tool results only"
        )
    return None


# --- The folders of middleware's file tools; they must not contain what governs agents.


_FILES: Final = "deepagents.FilesystemBackend"

_ON_DISK: Final = frozenset({_FILES, "deepagents.LocalShellBackend"})


def must_hold_nothing(block: Any, rules: Rules) -> None:
    """Refuse middleware tools that could write what governs agents: they ignore our rules.

    Args:
        block: A map of `use` and `args`, as written in the file.
        rules: What tools must not touch; if empty, nothing is refused.

    Raises:
        ConfigError: A folder in it contains such a file, or has no bounds.
    """
    for use, args in _backends(block) if rules.control else ():
        if use == _FILES and args.get("virtual_mode") is not True:
            raise ConfigError(f"{use} could write everywhere; add virtual_mode: true to its args")
        folder = Path(str(args.get("root_dir") or ".")).absolute()
        if not folder.is_dir():
            continue
        with Root(folder) as root:
            held = Guard(root, rules).held()
        if held:
            raise ConfigError(
                f"{use} could write {held[0].rstrip('/')}, which governs agents; "
                "give it a folder of its own, such as root_dir: ./workspace"
            )


def _backends(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        args = value.get("args")
        if value.get("use") in _ON_DISK:
            yield str(value["use"]), args if isinstance(args, Mapping) else {}
        for inner in value.values():
            yield from _backends(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _backends(inner)


END: Final = "wick_end"
"""A request's setting that replaces the model call: the middleware's name, and the last message.

The hook that set it removes it again; no model ever gets it.
"""

ENDED: Final = "ended_by"
"""Key in the metadata of a reply that a middleware gave instead of a model."""

_LIMITS: Final = frozenset({"ModelCallLimitMiddleware", "ToolCallLimitMiddleware"})


class MiddlewareHook(BaseHook):
    """Run a LangChain `AgentMiddleware` as a hook.

    Its state fields are kept in the channel `middleware`. If a method exists as `def` and as
    `async def`, both `invoke` and `ainvoke` call the `def`.

    Raises:
        ConfigError: It does something that is not supported here; the text says what.
    """

    def __init__(self, middleware: AgentMiddleware[Any, Any, Any]) -> None:
        check(middleware)
        self.name = middleware.name
        self.middleware: Final = middleware
        self.fields: Final = Fields.of(middleware)
        self.reducers: Final = self.fields.reducers
        self._own: Final = {tool.name: tool for tool in getattr(middleware, "tools", None) or ()}
        self._because: Final[StoppedBecause] = (
            "limit" if type(middleware).__name__ in _LIMITS else "done"
        )
        vars(self).update(self._phases())

    def tools(self, state: Mapping[str, Any]) -> Sequence[Any]:
        """Return the middleware's own tools."""
        return tuple(self._own.values())

    def _phases(self) -> dict[str, Callable[..., Any]]:
        """Make methods only for the phases that the middleware uses."""
        found = {phase: method_of(self.middleware, phase) for phase in _AROUND}
        before_model = method_of(self.middleware, "before_model")
        phases: dict[str, Callable[..., Any]] = {}
        if found["before_agent"] or self.fields.run_scoped:
            phases["before_agent"] = self._opening(*(found["before_agent"] or (None, False)))
        if found["before_agent"] or before_model:
            phases["modify_request"] = self._composing(*(before_model or (None, False)))
        if found["wrap_model_call"] or found["before_agent"] or before_model:
            phases["wrap_model_call"] = self._asking(*(found["wrap_model_call"] or (None, False)))
        if found["after_model"]:
            phases["after_model"] = self._judging(*found["after_model"])
        if found["wrap_tool_call"] or self._own:
            phases["wrap_tool_call"] = self._calling(*(found["wrap_tool_call"] or (None, False)))
        return phases

    # --- before_agent ----------------------------------------------------------------------------

    def _opening(self, fn: Callable[..., Any] | None, is_async: bool) -> Callable[..., Any]:
        def before(state: Mapping[str, Any], ctx: HookContext) -> tuple[Any, ...]:
            return self._view(self._reset(state)), runtime_of(ctx.config), ctx.config

        def after(update: Any, state: Mapping[str, Any], ctx: HookContext) -> Any:
            made = self.fields.split(update or {})
            held = {**dict.fromkeys(self.fields.run_scoped), **made.get(CHANNEL, {})}
            if (update or {}).get(JUMP) == "end":
                held[JUMP] = [self.name, ctx.run_id, _last_words(made)]
            return {**made, CHANNEL: held} if held else made

        return _around(fn or _nothing, is_async, before, after)

    def _reset(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.fields.fold(state, {CHANNEL: dict.fromkeys(self.fields.run_scoped)})

    # --- modify_request --------------------------------------------------------------------------

    def _composing(self, fn: Callable[..., Any] | None, is_async: bool) -> Callable[..., Any]:
        def before(request: ModelRequest, ctx: HookContext) -> tuple[Any, ...]:
            return self._view(request.state), runtime_of(ctx.config), ctx.config

        def after(update: Any, request: ModelRequest, ctx: HookContext) -> Any:
            made = self.fields.split(update or {})
            if (update or {}).get(JUMP) == "end":
                end = {"by": self.name, "text": _last_words(made)}
                request = request.with_settings(**{END: end})
            if "messages" in made:
                made["messages"] = convert_to_messages(_listed(made["messages"]))
                messages = reduce_messages(peek(request.state, "messages"), made["messages"])
                request = rebased(request, messages)
            if CHANNEL in made:
                request = _with_state(request, self.fields.fold(request.state, made))
            return request, made

        changed = _around(fn or _nothing, is_async, before, after)

        def unless_ended(request: ModelRequest, ctx: HookContext) -> Any:
            if END in request.settings:  # a hook before this one has ended the run
                return request
            jump = (peek(request.state, CHANNEL) or {}).get(JUMP)
            if jump and jump[:2] == [self.name, ctx.run_id]:
                return request.with_settings(**{END: {"by": self.name, "text": jump[2]}})
            return changed(request, ctx)

        async def aunless_ended(request: ModelRequest, ctx: HookContext) -> Any:
            made = unless_ended(request, ctx)
            return await made if not isinstance(made, ModelRequest) else made

        return aunless_ended if is_async else unless_ended

    # --- wrap_model_call -------------------------------------------------------------------------

    def _asking(self, fn: Callable[..., Any] | None, is_async: bool) -> Callable[..., Any]:
        def sync(request: ModelRequest, next: Any) -> Any:
            if fn is None or END in request.settings:
                return self._ended(request) or next(request)
            shown = to_langchain(request, self._view(request.state))
            return self._replied(
                fn(shown, lambda made: _response(next(self._sent(made, shown, request)))), request
            )

        async def async_(request: ModelRequest, next: Any) -> Any:
            if fn is None or END in request.settings:
                return self._ended(request) or await next(request)
            shown = to_langchain(request, self._view(request.state))

            async def handler(made: Any) -> Any:
                return _response(await next(self._sent(made, shown, request)))

            return self._replied(await fn(shown, handler), request)

        return async_ if is_async else sync

    def _sent(self, made: Any, shown: Any, request: ModelRequest) -> ModelRequest:
        return from_langchain(made, shown, request, self.name)

    def _replied(self, result: Any, request: ModelRequest) -> Any:
        reply, update = reply_of(result, self.name)
        return reply, self.fields.split(update)

    def _ended(self, request: ModelRequest) -> Any:
        end = request.settings.get(END)
        if not end or end["by"] != self.name:
            return None
        reply = AIMessage(end["text"], response_metadata={ENDED: self.name})
        return (reply, {"stop_reason": self._because}) if end["text"] else (reply, {})

    # --- after_model -----------------------------------------------------------------------------

    def _judging(self, fn: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
        def before(reply: AIMessage, ctx: HookContext) -> tuple[Any, ...]:
            messages = [*(peek(ctx.state, "messages") or ()), reply]
            return self._view(ctx.state, messages), runtime_of(ctx.config), ctx.config

        def after(update: Any, reply: AIMessage, ctx: HookContext) -> Any:
            return self._verdict(update, reply) if update else None

        judged = _around(fn, is_async, before, after)

        def of_a_model(reply: AIMessage, ctx: HookContext) -> Any:
            return None if ENDED in reply.response_metadata else judged(reply, ctx)

        async def aof_a_model(reply: AIMessage, ctx: HookContext) -> Any:
            made = of_a_model(reply, ctx)
            return made if made is None else await made

        return aof_a_model if is_async else of_a_model

    def _verdict(self, update: Mapping[str, Any], reply: AIMessage) -> Verdict:
        made = self.fields.split(update)
        messages = convert_to_messages(_listed(made.pop("messages", ())))
        now = next((m for m in messages if isinstance(m, AIMessage) and m.id == reply.id), None)
        called = {call["id"] for call in (now or reply).tool_calls}
        answers, others = {}, []
        for message in messages:
            if isinstance(message, ToolMessage) and message.tool_call_id in called:
                call = ToolCall(id=message.tool_call_id, name=message.name or "")
                answers[message.tool_call_id] = normalise(message, call)
            elif message is not now:
                others.append(message)
        ends = update.get(JUMP) == "end"
        if others and not ends:
            made["messages"] = others
        return Verdict(
            answers=answers,
            end=ends,
            because=self._because,
            update=made,
            reply=now,
            then=tuple(others) if ends else (),
        )

    # --- wrap_tool_call --------------------------------------------------------------------------

    def _calling(self, fn: Callable[..., Any] | None, is_async: bool) -> Callable[..., Any]:
        def sync(call: ToolCall, next: Any) -> Any:
            view = self._seen(call)
            passed = fn or _passed
            made = passed(view.request, lambda asked: view.came(next(view.wanted(asked))))
            return self._result(view.result(made), call)

        async def async_(call: ToolCall, next: Any) -> Any:
            view = self._seen(call)

            async def handler(asked: Any) -> Any:
                return view.came(await next(view.wanted(asked)))

            assert fn is not None
            return self._result(view.result(await fn(view.request, handler)), call)

        return async_ if is_async else sync

    def _seen(self, call: ToolCall) -> CallView:
        return CallView(call, self._view(call.ctx.state), self._own.get(call.name))

    def _result(self, result: ToolResult, call: ToolCall) -> ToolResult:
        """Move the fields that the middleware's own tools update to its channel."""
        if not result.update or call.name not in self._own:
            return result
        return result.replace(update=self.fields.split(result.update))

    def _view(
        self, state: Mapping[str, Any], messages: Sequence[BaseMessage] | None = None
    ) -> StateView:
        return self.fields.view(state, messages)


_AROUND: Final = ("before_agent", "wrap_model_call", "after_model", "wrap_tool_call")


def _around(
    fn: Callable[..., Any],
    is_async: bool,
    before: Callable[..., tuple[Any, ...]],
    after: Callable[..., Any],
) -> Callable[..., Any]:
    """Call a method between the two translations, as `def` or as `async def`."""

    def sync(value: Any, ctx: HookContext) -> Any:
        return after(fn(*before(value, ctx)), value, ctx)

    async def async_(value: Any, ctx: HookContext) -> Any:
        return after(await fn(*before(value, ctx)), value, ctx)

    return async_ if is_async else sync


def _nothing(state: Any, runtime: Any, config: Any) -> None:
    """Replace a method that a middleware lacks."""


def _passed(request: Any, handler: Any) -> Any:
    return handler(request)


def _response(reply: AIMessage) -> Any:
    return ModelResponse(result=[reply])


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _last_words(made: dict[str, Any]) -> str:
    """Remove from an update the text with which a middleware ends a run."""
    messages: list[BaseMessage] = convert_to_messages(_listed(made.pop("messages", ())))
    text = ""
    if messages and isinstance(messages[-1], AIMessage) and not messages[-1].tool_calls:
        text = messages.pop().text
    if messages:
        made["messages"] = messages
    return text


def _with_state(request: ModelRequest, state: Mapping[str, Any]) -> ModelRequest:
    return replace(request, state=state)


# --- Make the middleware that a configuration names.


_LIBRARIES: Final = {
    "": ("langchain.agents.middleware",),
    "deepagents": ("deepagents.middleware", "deepagents.backends"),
}
"""Libraries with classes that a file can name without their module."""

_BLOCK: Final = frozenset({"use", "args"})

_MODELS: Final = ("model", "first_model", "additional_models")
"""Parameters that take models; their names are resolved like all others in the file."""


Load = Callable[[str], Any]
"""Returns what `module:name` names."""


def make(
    name: str, args: Mapping[str, Any], base_dir: Path, load: Load | None = None
) -> MiddlewareHook:
    """Make a hook from a named middleware and its arguments; see `make_object`."""
    return MiddlewareHook(make_object(name, args, base_dir, load))


def own_hook(name: str, args: Mapping[str, Any], base_dir: Path, load: Load) -> Any:
    """Make a hook of one's own; see `make_object`.

    Raises:
        ConfigError: It is no hook.
    """
    made = make_object(name, args, base_dir, load)
    if isinstance(made, AgentMiddleware):
        raise ConfigError(f"{name} is a LangChain middleware; write it under middleware:")
    compile_hooks([made])
    return made


def must_exist(name: str, args: Mapping[str, Any]) -> None:
    """Refuse a class that does not exist, also in the arguments; make nothing.

    Raises:
        ConfigError: The class does not exist, or cannot be named in a file.
    """
    if ":" not in name:  # one's own code is looked up by its source
        _class(name)
    for item in args.values():
        for part in item if isinstance(item, list | tuple) else (item,):
            if isinstance(part, Mapping) and "use" in part and part.keys() <= _BLOCK:
                must_exist(str(part["use"]), part.get("args") or {})


def make_object(
    name: str, args: Mapping[str, Any], base_dir: Path, load: Load | None = None
) -> Any:
    """Make the object that a block with `use` and `args` describes.

    Args:
        name: A public class of `langchain.agents.middleware`, `deepagents.` and one of its own, or
            `module:name`, which may name an object too.
        args: Arguments by parameter name. A map of only `use` and `args` means an object that is
            made in the same way.
        base_dir: The folder for relative paths in the names of models.
        load: Loads `module:name`; without it, no code is loaded.

    Raises:
        ConfigError: The class does not exist, its arguments do not fit, or it cannot run here.
    """
    if ":" in name and load is not None:
        found = load(name)
        if inspect.isclass(found) or inspect.isroutine(found) or isinstance(found, partial):
            return called(
                found, name, *_arguments(found, args, partial(_own_value, base_dir, load))
            )
        if args:
            raise ConfigError(
                f"{name} is an object, which takes no args; name a class or a function"
            )
        return found
    cls = _class(name)
    try:
        positional, named = _arguments(cls, args, partial(_value, base_dir, load))
        return cls(*positional, **named)
    except WickError:
        raise
    except Exception as error:  # any error of the class about its arguments
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"{name} does not take these arguments: {reason}") from error


def _class(name: str) -> Any:
    library, _, short = name.rpartition(".")
    if library not in _LIBRARIES:
        raise ConfigError(
            f"{name!r:.200} cannot be named here; use a class of langchain.agents.middleware, "
            "deepagents. and one of its own, or your own as module:name"
        )
    known: list[str] = []
    for place in _LIBRARIES[library]:
        try:
            module = import_module(place)
        except ImportError:
            raise ConfigError(f"{name} needs {library}; install it") from None
        found = getattr(module, short, None) if short in module.__all__ else None
        if inspect.isclass(found):
            return found
        known += [n for n in module.__all__ if inspect.isclass(getattr(module, n, None))]
    raise ConfigError(f"{_LIBRARIES[library][0]} has no {short}{did_you_mean(short, known)}")


def _arguments(
    cls: Any, args: Mapping[str, Any], value: Callable[[str, Any], Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Divide arguments into positional and keyword ones; a list may give positional ones."""
    values = {key: value(key, item) for key, item in args.items()}
    try:
        parameters = inspect.signature(cls).parameters.values()
    except ValueError:  # code in C may not say what it takes
        return [], values
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    if rest is None or rest not in values:
        return [], values
    before = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    positional = [values.pop(name) for name in before if name in values]
    return [*positional, *values.pop(rest)], values


def _value(base_dir: Path, load: Load | None, key: str, item: Any) -> Any:
    if isinstance(item, str) and key in _MODELS:
        return resolve_model(item, base_dir=base_dir).model
    if key in _MODELS and isinstance(item, list | tuple):
        return [_value(base_dir, load, key, part) for part in item]
    return _own_value(base_dir, load, key, item)


def _own_value(base_dir: Path, load: Load | None, key: str, item: Any) -> Any:
    if isinstance(item, Mapping) and "use" in item and item.keys() <= _BLOCK:
        return make_object(str(item["use"]), item.get("args") or {}, base_dir, load)
    if isinstance(item, list | tuple):
        return [_own_value(base_dir, load, key, part) for part in item]
    return item
