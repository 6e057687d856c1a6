"""Compile a list of hooks, once, into the layers that the nodes' wrappers run.

`[A, B, C]` becomes `A(B(C(call)))`. What a hook does not override costs nothing at run time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from langgraph.errors import GraphBubbleUp

from wick_graph.core.bridge import Bridge
from wick_graph.core.moments import Abort, Listener, Moment, Replace, Skip, notify
from wick_graph.core.redaction import REDACTOR
from wick_graph.core.state import private_update, problem
from wick_graph.errors import ConfigError, HookError
from wick_graph.hooks.approvals import ApprovalHook
from wick_graph.hooks.protocol import IN_PLACE, PHASES, BaseHook, Tripwire
from wick_graph.types import Phase, StoppedBecause

TITLES: Final[Mapping[Phase, str]] = {
    "before_agent": "BeforeAgent",
    "modify_request": "ModifyRequest",
    "wrap_model_call": "WrapModelCall",
    "after_model": "AfterModel",
    "wrap_tool_call": "WrapToolCall",
}
"""Names of the phases in error texts."""

_REASONS: Final = ("", *get_args(StoppedBecause))


@dataclass(frozen=True, slots=True)
class Layer:
    """One hook in one phase."""

    hook: str
    phase: Phase
    fn: Callable[..., Any]
    is_async: bool
    in_place: bool = False
    """Whether it awaits only `next`, so that both drivers can run it in their own body."""
    own: Sequence[str] = ()
    """The agent's own channels, which its updates may name beside the engine's."""

    def error(self, problem: object) -> HookError:
        """Build the error that names this hook and phase."""
        text = REDACTOR.text(f"hook {self.hook} {TITLES[self.phase]}: {problem}")
        return HookError(text)


@dataclass(frozen=True, slots=True)
class Hooks:
    """A list of hooks, compiled."""

    names: tuple[str, ...]
    before_agent: tuple[Layer, ...]
    modify_request: tuple[Layer, ...]
    wrap_model_call: tuple[Layer, ...]
    after_model: tuple[Layer, ...]
    wrap_tool_call: tuple[Layer, ...]
    tool_sources: tuple[tuple[str, Callable[[Mapping[str, Any]], Sequence[Any]]], ...]
    """Hooks that add tools: name and function of the state."""
    notices: tuple[str, ...] = ()
    """Notices of hooks for a person before a run, one line each."""
    approvals: tuple[ApprovalHook, ...] = ()
    """Approval hooks; their rules also bind the tasks that the agent delegates."""
    folders: tuple[str, ...] = ()
    """Absolute names of the working directory of file tools."""
    withholds: bool = False
    """Whether readers get the model's text only after the hooks."""
    reducers: Mapping[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    """Reducers of the keys that hooks keep in the channel `middleware`."""

    def layers(self, phase: Phase) -> tuple[Layer, ...]:
        """Return one phase's layers, outermost or first layer first."""
        found: tuple[Layer, ...] = getattr(self, phase)
        return found


def compile_hooks(hooks: Sequence[Any], own: Sequence[str] = ()) -> Hooks:
    """Adapt each hook's methods and check them; `own` are the channels of the agent.

    Raises:
        ConfigError: They are not a list, or a hook is a class instead of an object, has no name
            or the name of another hook, lists an unknown phase, or overrides the method of a phase
            that it does not list.
    """
    if not isinstance(hooks, list | tuple):
        raise ConfigError(f"hooks must be a list of hooks, not {_kind(hooks)}")
    by_phase: dict[Phase, list[Layer]] = {phase: [] for phase in PHASES}
    names: list[str] = []
    sources = []
    reducers: dict[str, Callable[[Any, Any], Any]] = {}
    for hook in hooks:
        name = _name(hook, names)
        names.append(name)
        listed = _listed(hook, name)
        for phase in PHASES:
            fn = _override(hook, phase)
            if fn is None:
                continue
            if phase not in listed:
                raise ConfigError(
                    f"hook {name} has a method {phase} but does not list the phase; "
                    f"add {phase!r} to its phases or remove the method"
                )
            here = getattr(fn, IN_PLACE, False)
            by_phase[phase].append(Layer(name, phase, fn, _is_async(fn), here, own))
        if (tools := _override(hook, "tools")) is not None:
            sources.append((name, tools))
        reducers.update(getattr(hook, "reducers", None) or {})
    return Hooks(
        names=tuple(names),
        tool_sources=tuple(sources),
        notices=tuple(line for hook in hooks for line in getattr(hook, "notices", ())),
        approvals=tuple(hook for hook in hooks if isinstance(hook, ApprovalHook)),
        folders=next((hook.workdir_names for hook in hooks if _names_workdir(hook)), ()),
        withholds=any(isinstance(hook, BaseHook) and hook.withholds for hook in hooks),
        reducers=reducers,
        **{phase: tuple(layers) for phase, layers in by_phase.items()},
    )


@dataclass(slots=True)
class Onion:
    """Run one value through the layers of a wrapping phase and a base call."""

    layers: tuple[Layer, ...]
    base: Callable[[Any], Any]
    """The innermost body, an `async def`."""
    bridge: Bridge
    listener: Listener
    takes: type
    """Type of the value for `next`; a layer that passes anything else fails."""
    gives: type
    """Type of the value that every layer must return."""
    updates: list[tuple[str, Any]]
    """State updates of the layers, in the order of their return."""
    call_id: str | None = None
    fresh: Callable[[Any], Any] = lambda value: value
    """Tells a value for `next` what the layers have written by then: a layer may call it again."""

    async def run(self, value: Any, depth: int = 0) -> Any:
        """Return what the outermost layer makes of it.

        Raises:
            HookError: A layer raised, or returned or passed on something of the wrong type.
        """
        if depth == len(self.layers):
            return await self.base(value)
        layer = self.layers[depth]
        passed: list[BaseException] = []

        async def inner(changed: Any) -> Any:
            if not isinstance(changed, self.takes):
                raise layer.error(f"called next with {_kind(changed)}, not {self.takes.__name__}")
            try:
                return await self.run(self.fresh(changed), depth + 1)
            except BaseException as error:
                passed.append(error)
                raise

        if self.listener.active:
            value = await enter(self.listener, layer, value, self.call_id)
        try:
            result = await self._call(layer, value, inner)
        except Exception as error:
            note(self.listener, layer, error, self.call_id)
            if error in passed or isinstance(error, GraphBubbleUp | HookError):
                raise
            raise layer.error(error) from error
        for swallowed in passed:  # an interrupt stops the run; no layer may swallow it
            if isinstance(swallowed, GraphBubbleUp):
                raise swallowed
        result, update = self._value(layer, result)
        return await leave(self.listener, layer, result, self.call_id, update)

    async def _call(self, layer: Layer, value: Any, inner: Any) -> Any:
        if layer.in_place:
            return await layer.fn(value, inner)
        return await self.bridge.wrap(layer.fn, layer.is_async, value, inner)

    def _value(self, layer: Layer, result: Any) -> tuple[Any, dict[str, Any]]:
        value, update = split(layer, result)
        self.updates.extend(update.items())
        if not isinstance(value, self.gives):
            raise layer.error(
                f"returned {_kind(value)}, not {self.gives.__name__}; return what next gave"
            )
        return value, update


async def apply(
    layer: Layer, bridge: Bridge, listener: Listener, value: Any, ctx: Any
) -> tuple[Any, dict[str, Any]]:
    """Run a layer of a sequential phase; return its value (or None) and its update.

    Raises:
        HookError: The layer raised.
    """
    if listener.active:
        value = await enter(listener, layer, value, None)
    try:
        if layer.in_place:
            result = await layer.fn(value, ctx)
        else:
            result = await bridge.call_user(layer.fn, layer.is_async, value, ctx)
    except GraphBubbleUp as error:
        if isinstance(error, Tripwire):
            note(listener, layer, error, None)
        raise
    except Exception as error:
        note(listener, layer, error, None)
        raise layer.error(error) from error
    if layer.phase == "before_agent":
        made, update = None, check_update(layer, result)
    else:
        made, update = split(layer, result)
    return await leave(listener, layer, made, None, update), update


def split(layer: Layer, result: Any) -> tuple[Any, dict[str, Any]]:
    """Separate a phase's value from its optional state update."""
    if isinstance(result, tuple):
        if len(result) != 2:
            raise layer.error(f"returned a tuple of {len(result)}; return value or (value, update)")
        return result[0], check_update(layer, result[1])
    return result, {}


def check_update(layer: Layer, update: Any) -> dict[str, Any]:
    """Return an update as a dict that shares no mutable data with it.

    Raises:
        HookError: It is not a mapping, or names a channel that the state does not have.
    """
    if update is None:
        return {}
    if not isinstance(update, Mapping):
        raise layer.error(f"returned {_kind(update)} as a state update; return a dict or None")
    made = private_update(update)
    wrong = problem(made, layer.own)
    if wrong is not None:
        raise layer.error(wrong)
    if made.get("stop_reason", "") not in _REASONS:
        raise layer.error(f"stop_reason must be one of {', '.join(_REASONS[1:])}")
    return made


async def enter(listener: Listener, layer: Layer, value: Any, call_id: str | None) -> Any:
    """Tell the listener that a layer begins; return the value that the listener lets it see."""
    moment = Moment("hook", "enter", layer.hook, {"phase": layer.phase, "value": value}, call_id)
    directive = await notify(listener, moment)
    if isinstance(directive, Replace | Skip):
        return directive.value
    if isinstance(directive, Abort):
        raise HookError(f"stopped before hook {layer.hook} {layer.phase}: {directive.reason}")
    return value


async def leave(
    listener: Listener,
    layer: Layer,
    value: Any,
    call_id: str | None,
    update: Mapping[str, Any] | None = None,
) -> Any:
    """Tell the listener how a layer ended; return the value that the listener lets pass."""
    if not listener.active:
        return value
    data = {"phase": layer.phase, "value": value, "update": update or {}}
    said = await notify(listener, Moment("hook", "exit", layer.hook, data, call_id))
    return said.value if isinstance(said, Replace) else value


def note(listener: Listener, layer: Layer, error: Exception, call_id: str | None) -> None:
    """Tell the listener that a layer failed."""
    if listener.active:
        data: dict[str, Any] = {"phase": layer.phase, "value": error, "update": {}}
        listener.record(Moment("hook", "error", layer.hook, data, call_id))


def _names_workdir(hook: Any) -> bool:
    return bool(isinstance(hook, BaseHook) and hook.workdir_names)


def _name(hook: Any, taken: Sequence[str]) -> str:
    if isinstance(hook, type):
        raise ConfigError(f"hooks takes objects: write {hook.__name__}(), not {hook.__name__}")
    name = getattr(hook, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{_kind(hook)} is not a hook: it has no name; derive it from BaseHook")
    if name in taken and name != BaseHook.name:
        raise ConfigError(f"two hooks are named {name!r}; give each its own name")
    return name


def _listed(hook: Any, name: str) -> Sequence[str]:
    phases = getattr(hook, "phases", PHASES)
    phases = phases() if callable(phases) else phases
    unknown = [phase for phase in phases if phase not in PHASES]
    if unknown:
        raise ConfigError(
            f"hook {name} lists the phase {unknown[0]!r}; the phases are {', '.join(PHASES)}"
        )
    return tuple(phases)


def _override(hook: Any, method: str) -> Callable[..., Any] | None:
    fn = getattr(hook, method, None)
    if fn is None or getattr(fn, "__func__", fn) is getattr(BaseHook, method):
        return None
    if not callable(fn):
        raise ConfigError(f"hook {hook.name}: {method} is not a method")
    return fn  # type: ignore[no-any-return]  # a bound method of a user's class


def _is_async(fn: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004  # tests for an async `__call__`
    )


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
