"""LangGraph's private places at which a run can be heard; the one module that knows them.

Each seam is patched while a recording is open, and only if its signature is the known one. What is
missing is listed by `Seams.lacks`, and callbacks then record what they can. A patch calls what was
there before, so it chains with those of other tools. When it is closed, it restores the original
only if it is still the outermost one; else it stays in the chain, and does nothing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any, Final, Protocol
from weakref import WeakSet

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from wick_graph.core.bridge import ASYNC_BRIDGE, SYNC_BRIDGE, Bridge, run_to_end

Call = Callable[..., Any]

Layer = tuple[str, Any, Any, Any]
"""Phase of a middleware's layer, its function, and the object and attribute that hold it."""


class Heard(BaseCallbackHandler):
    """What hears one run; also LangChain's callback handler of everything in it."""

    run_inline = True

    holds = False
    """Whether it may hold the run, and answer its models and tools."""

    async def hold(self, visit: Any, bridge: Bridge, given: Any = None) -> Any:
        """Hold the run at the moment that was told last; return what a layer is to be given."""
        return given

    async def asked(self, visit: Any, bridge: Bridge, call: Call, *given: Any) -> Any:
        """Call a model with its messages, its callbacks and its options, or answer for it."""
        raise NotImplementedError

    async def used(self, visit: Any, bridge: Bridge, call: Call, *given: Any) -> Any:
        """Call a tool with its arguments and the id of its call, or answer for it."""
        raise NotImplementedError

    def begin(self) -> None:
        """Note that the run begins."""

    async def abegin(self) -> None:
        """Do `begin` without blocking the loop."""

    def end(self, error: BaseException | None) -> None:
        """Note its end, and how."""

    async def aend(self, error: BaseException | None) -> None:
        """Do `end` without blocking the loop."""

    def loop_begins(self, loop: Any) -> None:
        """Note that the loop of the graph, or of a subgraph, has read its checkpoint."""

    def checkpoint(self, loop: Any) -> None:
        """Note that a loop has made a checkpoint."""

    def wrote(self, loop: Any, task_id: str, writes: Any, *, cached: bool) -> None:
        """Note what a loop stores as a task's writes."""

    def enter(self, task: Any) -> Any:
        """Note that a task runs; return its visit."""
        raise NotImplementedError

    def leave(self, visit: Any, error: BaseException | None) -> None:
        """Note that it ended."""

    def retry(self, visit: Any, policy: Any, error: Exception) -> None:
        """Note that a policy would repeat a failed task."""

    def branch(self, visit: Any, branch: Any, result: Any) -> None:
        """Note the result of a conditional edge."""

    def layer(self, visit: Any, phase: str, name: str, given: Any) -> Call:
        """Note that a middleware's layer gets a request or a call; return what notes its end."""
        raise NotImplementedError


MUTE: Final = Heard()
"""Hears nothing: of a run that is recorded elsewhere."""


class Opener(Protocol):
    """Decides what is recorded."""

    def hear(self, graph: Any, input: Any, config: Any) -> Heard | None:
        """Return what hears a run that begins; None if it is not recorded here."""

    def updated(self, graph: Any, config: Any, supersteps: Any, made: Any) -> Any:
        """Return what notes an `update_state`.

        It is called with the checkpoint that `made` addresses, read from its attribute `saver`,
        or with None if that is None.
        """

    def fail(self, error: Exception) -> None:
        """Note that one of these could not be done."""


HEARD: Final[ContextVar[Heard | None]] = ContextVar("wick_heard", default=None)
"""What hears the run of this context."""

VISIT: Final[ContextVar[Any]] = ContextVar("wick_visit", default=None)
"""The visit of the running task."""

_UPDATING: Final[ContextVar[bool]] = ContextVar("wick_updating", default=False)

_LAYERS: Final = (
    ("wrap_model_call_handler", "wrap_model_call"),
    ("awrap_model_call_handler", "wrap_model_call"),
)
"""Names of the cells of `create_agent`'s model node, and their phase."""

_WRAPPERS: Final = ("_wrap_tool_call", "_awrap_tool_call")
"""Attributes of a `ToolNode`."""

_OF: Final = "_wick_layer_of"

_CHAT_MODELS: Final = "langchain_core.language_models.chat_models"

_configured: Final[list[bool]] = []


class Patch:
    """One patched attribute."""

    def __init__(self, owner: Any, name: str, make: Callable[[Patch, Call], Call]) -> None:
        self.owner, self.name, self.live = owner, name, True
        self.original: Call = getattr(owner, name)
        self.made = functools.wraps(self.original)(make(self, self.original))
        setattr(owner, name, self.made)

    def close(self) -> None:
        """Restore the original, unless another tool has patched it since."""
        self.live = False
        if getattr(self.owner, self.name) is self.made:
            setattr(self.owner, self.name, self.original)


class Seams:
    """The patches of all open recordings of this process."""

    def __init__(self) -> None:
        self.lacks: list[str] = []
        """The seams that this release of LangGraph does not have."""
        self._opener: Opener | None = None
        self._patches: list[Patch] = []
        self._graphs: WeakSet[Any] = WeakSet()
        self._held: list[tuple[Any, str, Any]] = []

    def open(self, opener: Opener) -> None:
        """Patch what is there."""
        self._opener, self.lacks = opener, []
        if not _configured:
            register_configure_hook(HEARD, inheritable=True)
            _configured.append(True)
        for seam, places in _SEAMS.items():
            found = [_found(*place[:3]) for place in places]
            if None in found:
                self.lacks.append(seam)
                continue
            for owner, (_, name, _, make) in zip(found, places, strict=True):
                self._patches.append(
                    Patch(owner, name.rpartition(".")[2], functools.partial(make, self))
                )

    def close(self) -> None:
        """Undo `open`, except where another tool has patched since."""
        while self._patches:
            self._patches.pop().close()
        while self._held:
            owner, name, made = self._held.pop()
            if getattr(owner, name, None) is made:
                setattr(owner, name, getattr(made, _OF))
        self._graphs.clear()
        self._opener = None

    def hear(self, graph: Any, input: Any, config: Any) -> Heard | None:
        """Ask the opener, and make the layers of a graph that is heard audible."""
        opener = self._opener
        if opener is None:
            return None
        try:
            heard = opener.hear(graph, input, config)
        except Exception as error:  # such as a config of another type: the run tells it itself
            opener.fail(error)
            return None
        if (heard or HEARD.get()) is not None:
            self._open_layers(graph)
        return heard

    @property
    def opener(self) -> Opener | None:
        """What decides; None while no recording is open."""
        return self._opener

    def _open_layers(self, graph: Any) -> None:
        try:
            if graph in self._graphs:
                return
            self._graphs.add(graph)
            found = list(layers_of(graph))
        except Exception:  # a release with other closures, or a graph without a hash
            return
        for phase, fn, owner, name in found:
            made = _heard_layer(phase, fn)
            setattr(owner, name, made)
            self._held.append((owner, name, made))


def _found(module: str, name: str, parameters: tuple[str, ...]) -> Any:
    """Return the owner of a seam; None if there is none with these parameters."""
    try:
        owner = import_module(module)
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        known = list(inspect.signature(getattr(owner, last)).parameters)
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    return owner if known[: len(parameters)] == [*parameters] else None


# --- runs ----------------------------------------------------------------------------------------


def _stream(seams: Seams, patch: Patch, original: Call) -> Call:
    def stream(self: Any, input: Any, config: Any = None, **kwargs: Any) -> Any:
        heard = seams.hear(self, input, config) if patch.live else None
        if heard is None:
            return original(self, input, config, **kwargs)
        return _driven(heard, lambda: original(self, input, config, **kwargs))

    return stream


def _astream(seams: Seams, patch: Patch, original: Call) -> Call:
    def astream(self: Any, input: Any, config: Any = None, **kwargs: Any) -> Any:
        heard = seams.hear(self, input, config) if patch.live else None
        if heard is None:
            return original(self, input, config, **kwargs)
        return _adriven(heard, lambda: original(self, input, config, **kwargs))

    return astream


class _Steps:
    """The run's own steps: what hears it is known in them only, not to the caller."""

    def __init__(self, heard: Heard) -> None:
        self._own = None if heard is MUTE else heard
        self._outer = HEARD.get(), VISIT.get()

    def __enter__(self) -> None:
        _swap(self._own, None)

    def __exit__(self, *error: object) -> None:
        _swap(*self._outer)


def _swap(heard: Heard | None, visit: Any) -> None:
    HEARD.set(heard)
    VISIT.set(visit)


_END: Final = object()


def _driven(heard: Heard, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    error: BaseException | None = None
    steps, chunks = _Steps(heard), iter(make())
    heard.begin()
    try:
        while True:
            with steps:
                chunk = next(chunks, _END)
            if chunk is _END:
                break
            yield chunk
    except BaseException as raised:
        error = raised
        raise
    finally:
        try:
            with steps:
                if (close := getattr(chunks, "close", None)) is not None:  # a generator's
                    close()
        finally:
            heard.end(error)


async def _adriven(heard: Heard, make: Callable[[], AsyncIterator[Any]]) -> AsyncIterator[Any]:
    error: BaseException | None = None
    steps, chunks = _Steps(heard), aiter(make())
    await heard.abegin()
    try:
        while True:
            with steps:
                chunk = await anext(chunks, _END)
            if chunk is _END:
                break
            yield chunk
    except BaseException as raised:
        error = raised
        raise
    finally:
        try:
            with steps:
                if (close := getattr(chunks, "aclose", None)) is not None:
                    await close()
        finally:
            await heard.aend(error)


# --- loops: checkpoints and writes ---------------------------------------------------------------

_HEARS: Final = "_wick_hears"
"""Attribute of a loop: what hears it; its writes come from threads without the run's context."""


def _first(seams: Seams, patch: Patch, original: Call) -> Call:
    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        heard = HEARD.get()
        if heard is not None and patch.live:
            setattr(self, _HEARS, heard)
            heard.loop_begins(self)
        return original(self, *args, **kwargs)

    return first


def _put_checkpoint(seams: Seams, patch: Patch, original: Call) -> Call:
    def put_checkpoint(self: Any, metadata: Any) -> Any:
        before = self.checkpoint["id"]
        made = original(self, metadata)
        heard = getattr(self, _HEARS, None) if patch.live else None
        if heard is not None and self.checkpoint["id"] != before:
            heard.checkpoint(self)
        return made

    return put_checkpoint


def _put_writes(seams: Seams, patch: Patch, original: Call) -> Call:
    def put_writes(self: Any, task_id: str, writes: Any, *, cached: bool = False) -> Any:
        made = original(self, task_id, writes, cached=cached)
        if patch.live and (heard := getattr(self, _HEARS, None)) is not None:
            heard.wrote(self, task_id, writes, cached=cached)
        return made

    return put_writes


# --- tasks ---------------------------------------------------------------------------------------


class _Visit:
    """A task that runs: told of at its start and its end."""

    def __init__(self, heard: Heard, task: Any) -> None:
        self._heard, self._task = heard, task

    def __enter__(self) -> Any:
        self._visit = self._heard.enter(self._task)
        self._token = VISIT.set(self._visit)
        return self._visit

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        VISIT.reset(self._token)
        self._heard.leave(self._visit, error)


def _hold(visit: Any, given: Any = None) -> Any:
    """Hold a run at the moment just told, if a debugger wants to; return what a layer is given."""
    if (heard := HEARD.get()) is not None and heard.holds:
        return run_to_end(heard.hold(visit, SYNC_BRIDGE, given))
    return given


async def _ahold(visit: Any, given: Any = None) -> Any:
    """Do `_hold` without blocking the loop."""
    if (heard := HEARD.get()) is not None and heard.holds:
        return await heard.hold(visit, ASYNC_BRIDGE, given)
    return given


def _run_task(seams: Seams, patch: Patch, original: Call) -> Call:
    def run_with_retry(task: Any, *args: Any, **kwargs: Any) -> Any:
        heard = HEARD.get()
        if heard is None or not patch.live:
            return original(task, *args, **kwargs)
        with _Visit(heard, task) as visit:
            _hold(visit)
            made = original(task, *args, **kwargs)
        _hold(visit)
        return made

    return run_with_retry


def _arun_task(seams: Seams, patch: Patch, original: Call) -> Call:
    async def arun_with_retry(task: Any, *args: Any, **kwargs: Any) -> Any:
        heard = HEARD.get()
        if heard is None or not patch.live:
            return await original(task, *args, **kwargs)
        with _Visit(heard, task) as visit:
            await _ahold(visit)
            made = await original(task, *args, **kwargs)
        await _ahold(visit)
        return made

    return arun_with_retry


def _should_retry(seams: Seams, patch: Patch, original: Call) -> Call:
    def should_retry_on(retry_policy: Any, exc: Exception) -> Any:
        made = original(retry_policy, exc)
        if made and patch.live and (heard := HEARD.get()) is not None:
            heard.retry(VISIT.get(), retry_policy, exc)
        return made

    return should_retry_on


def _finish(seams: Seams, patch: Patch, original: Call) -> Call:
    def finish(self: Any, writer: Any, input: Any, result: Any, config: Any) -> Any:
        if patch.live and (heard := HEARD.get()) is not None:
            heard.branch(VISIT.get(), self, result)
        return original(self, writer, input, result, config)

    return finish


# --- models and tools, for a debugger that holds them or answers for them -------------------------


def _generate(seams: Seams, patch: Patch, original: Call) -> Call:
    def generate(
        self: Any, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Any:
        heard, visit = HEARD.get(), VISIT.get()
        if heard is None or visit is None or not (heard.holds and patch.live):
            return original(self, messages, stop, run_manager, **kwargs)
        call = functools.partial(_answered, original, self, stop, run_manager)
        return run_to_end(heard.asked(visit, SYNC_BRIDGE, call, messages, run_manager, kwargs))

    return generate


def _agenerate(seams: Seams, patch: Patch, original: Call) -> Call:
    async def agenerate(
        self: Any, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Any:
        heard, visit = HEARD.get(), VISIT.get()
        if heard is None or visit is None or not (heard.holds and patch.live):
            return await original(self, messages, stop, run_manager, **kwargs)
        call = functools.partial(_answered, original, self, stop, run_manager)
        return await heard.asked(visit, ASYNC_BRIDGE, call, messages, run_manager, kwargs)

    return agenerate


def _answered(original: Call, model: Any, stop: Any, manager: Any, given: Any, more: Any) -> Any:
    return original(model, given, stop, manager, **more)


def is_streamed() -> bool:
    """Return whether a model that tells of its request streams: `_generate` gets no such call."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == _CHAT_MODELS:
            return "generate" not in frame.f_code.co_name
        frame = frame.f_back
    return True


def _used(original: Call, tool: Any, args: Any, kwargs: Any, given: Any) -> Any:
    return original(tool, given, *args, **kwargs)


def plain_input(tool: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's arguments as callbacks see them: without the injected ones."""
    filtered: dict[str, Any] = tool._filter_injected_args(given)
    return filtered


def _use(seams: Seams, patch: Patch, original: Call) -> Call:
    def run(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        heard, visit = HEARD.get(), VISIT.get()
        if heard is None or visit is None or not (heard.holds and patch.live):
            return original(self, tool_input, *args, **kwargs)
        call = functools.partial(_used, original, self, args, kwargs)
        return run_to_end(heard.used(visit, SYNC_BRIDGE, call, self, tool_input, kwargs))

    return run


def _ause(seams: Seams, patch: Patch, original: Call) -> Call:
    async def arun(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        heard, visit = HEARD.get(), VISIT.get()
        if heard is None or visit is None or not (heard.holds and patch.live):
            return await original(self, tool_input, *args, **kwargs)
        call = functools.partial(_used, original, self, args, kwargs)
        return await heard.used(visit, ASYNC_BRIDGE, call, self, tool_input, kwargs)

    return arun


# --- `update_state` ------------------------------------------------------------------------------


@contextmanager
def _updating() -> Iterator[None]:
    """Hear one update once: LangGraph's own doors call one another."""
    token = _UPDATING.set(True)
    try:
        yield
    finally:
        _UPDATING.reset(token)


def _update(seams: Seams, patch: Patch, original: Call) -> Call:
    def bulk_update_state(self: Any, config: Any, supersteps: Any) -> Any:
        if not patch.live or _UPDATING.get():
            return original(self, config, supersteps)
        with _updating():
            made = original(self, config, supersteps)
        if (opener := seams.opener) is not None:
            try:
                note = opener.updated(self, config, supersteps, made)
                note(None if note.saver is None else note.saver.get_tuple(made))
            except Exception as error:
                opener.fail(error)
        return made

    return bulk_update_state


def _aupdate(seams: Seams, patch: Patch, original: Call) -> Call:
    async def abulk_update_state(self: Any, config: Any, supersteps: Any) -> Any:
        if not patch.live or _UPDATING.get():
            return await original(self, config, supersteps)
        with _updating():
            made = await original(self, config, supersteps)
        if (opener := seams.opener) is not None:
            try:
                note = opener.updated(self, config, supersteps, made)
                note(None if note.saver is None else await note.saver.aget_tuple(made))
            except Exception as error:
                opener.fail(error)
        return made

    return abulk_update_state


# --- the middleware of `create_agent` ------------------------------------------------------------


def layers_of(graph: Any) -> Iterator[Layer]:
    """Yield the layers of an agent's middleware, the outermost first."""
    for node in graph.nodes.values():
        bound = node.bound
        for fn in (getattr(bound, "func", None), getattr(bound, "afunc", None)):
            cells = _cells(getattr(fn, "func", fn))
            for name, phase in _LAYERS:
                if name in cells and cells[name].cell_contents is not None:
                    yield from _in_chain(phase, cells[name])
        for attribute in _WRAPPERS:
            if callable(getattr(bound, attribute, None)):
                held = getattr(bound, attribute)
                cells = _cells(held)
                if {"outer", "inner"} <= cells.keys():
                    yield from _in_chain("wrap_tool_call", cells["outer"])
                    yield from _in_chain("wrap_tool_call", cells["inner"])
                elif not hasattr(held, _OF):
                    yield "wrap_tool_call", held, bound, attribute


def needs_loop(graph: Any) -> bool:
    """Return whether a part of a graph has an async form only: a node, a tool or a layer."""
    for part in (node.bound for node in graph.nodes.values()):
        tools = getattr(part, "tools_by_name", None) or {}
        if _is_async_only(part, "func", "afunc"):
            return True
        if any(_is_async_only(tool, "func", "coroutine") for tool in tools.values()):
            return True
    layers = any(_is_async_layer(phase, fn) for phase, fn, _, _ in layers_of(graph))
    return layers or any(needs_loop(inner) for _, inner in graph.get_subgraphs())


def _is_async_only(part: Any, sync: str, other: str) -> bool:
    return getattr(part, sync, None) is None and getattr(part, other, None) is not None


def _is_async_layer(phase: str, fn: Any) -> bool:
    """Return whether a middleware's layer lacks its sync form: the base class refuses there."""
    sync = getattr(getattr(inspect.unwrap(fn), "__self__", None), phase, None)
    return getattr(sync, "__qualname__", "").startswith("AgentMiddleware.")


def _in_chain(phase: str, cell: Any) -> Iterator[Layer]:
    held = cell.cell_contents
    cells = _cells(held)
    if "single_handler" in cells:
        yield from _in_chain(phase, cells["single_handler"])
    elif {"outer", "inner"} <= cells.keys():
        yield from _in_chain(phase, cells["outer"])
        yield from _in_chain(phase, cells["inner"])
    elif not hasattr(held, _OF):
        yield phase, held, cell, "cell_contents"


def _cells(fn: Any) -> dict[str, Any]:
    code = getattr(fn, "__code__", None)
    if code is None or hasattr(fn, _OF) or hasattr(fn, "__wrapped__"):
        return {}
    return dict(zip(code.co_freevars, fn.__closure__ or (), strict=True))


def name_of_layer(fn: Any) -> str:
    """Return the name of the middleware that a layer belongs to."""
    owner: Any = getattr(inspect.unwrap(fn), "__self__", None)
    try:
        return str(owner.name)
    except AttributeError:
        return str(getattr(fn, "__name__", "layer"))


def _heard_layer(phase: str, fn: Any) -> Any:
    name = name_of_layer(fn)

    def begun(request: Any) -> Call | None:
        heard, visit = HEARD.get(), VISIT.get()
        if heard is None or visit is None:
            return None
        return heard.layer(visit, phase, name, request)

    def layer(request: Any, handler: Any) -> Any:
        if (ended := begun(request)) is None:
            return fn(request, handler)
        try:
            made = fn(_hold(VISIT.get(), request), handler)
        except BaseException as error:
            ended(error)
            raise
        ended(made)
        _hold(VISIT.get())
        return made

    async def alayer(request: Any, handler: Any) -> Any:
        if (ended := begun(request)) is None:
            return await fn(request, handler)
        try:
            made = await fn(await _ahold(VISIT.get(), request), handler)
        except BaseException as error:
            ended(error)
            raise
        ended(made)
        await _ahold(VISIT.get())
        return made

    waits = inspect.iscoroutinefunction(inspect.unwrap(fn)) or inspect.iscoroutinefunction(fn)
    made = functools.wraps(fn)(alayer if waits else layer)
    setattr(made, _OF, fn)
    return made


_LOOP: Final = "langgraph.pregel._loop"

_MODELS: Final = "langchain_core.language_models"

_GENERATE: Final = ("self", "messages", "stop", "run_manager")

_SEAMS: Final[dict[str, tuple[tuple[str, str, tuple[str, ...], Any], ...]]] = {
    "runs": (
        ("langgraph.pregel", "Pregel.stream", ("self", "input", "config"), _stream),
        ("langgraph.pregel", "Pregel.astream", ("self", "input", "config"), _astream),
    ),
    "tasks": (
        ("langgraph.pregel._runner", "run_with_retry", ("task",), _run_task),
        ("langgraph.pregel._runner", "arun_with_retry", ("task",), _arun_task),
    ),
    "retries": (
        ("langgraph.pregel._retry", "_should_retry_on", ("retry_policy", "exc"), _should_retry),
    ),
    "branches": (
        (
            "langgraph.graph._branch",
            "BranchSpec._finish",
            ("self", "writer", "input", "result", "config"),
            _finish,
        ),
    ),
    "checkpoints": (
        (_LOOP, "PregelLoop._first", ("self",), _first),
        (_LOOP, "PregelLoop._put_checkpoint", ("self", "metadata"), _put_checkpoint),
        (_LOOP, "PregelLoop.put_writes", ("self", "task_id", "writes", "cached"), _put_writes),
    ),
    "answers": (
        (_MODELS, "BaseChatModel._generate_with_cache", _GENERATE, _generate),
        (_MODELS, "BaseChatModel._agenerate_with_cache", _GENERATE, _agenerate),
        ("langchain_core.tools", "BaseTool.run", ("self", "tool_input"), _use),
        ("langchain_core.tools", "BaseTool.arun", ("self", "tool_input"), _ause),
    ),
    "updates": (
        ("langgraph.pregel", "Pregel.bulk_update_state", ("self", "config", "supersteps"), _update),
        (
            "langgraph.pregel",
            "Pregel.abulk_update_state",
            ("self", "config", "supersteps"),
            _aupdate,
        ),
    ),
}
"""By what it tells, the places of a seam: module, name, first parameters, and its patch."""

SEAMS: Final = Seams()
"""The seams of this process."""
