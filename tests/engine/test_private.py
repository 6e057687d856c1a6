"""What others see of a thread is their own: every way of reaching it, and every way of changing it.

Each case changes something in place, in one phase, under one door. A change raises, or changes a
copy: what the model is sent, the state in memory and the database are as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import copy
import json
import operator
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    message_to_dict,
)
from langchain_core.tools import tool as langchain_tool
from langgraph.prebuilt import InjectedState, ToolRuntime
from pydantic import TypeAdapter

from tests.debug.support import WAIT
from tests.engine.support import Door, async_door, sync_door
from wick_graph import Agent, BaseHook, ToolContext, ToolResult, Verdict
from wick_graph.core.request import ModelRequest, StateView
from wick_graph.debug import DebugSession
from wick_graph.errors import HookError
from wick_graph.hooks import PHASES
from wick_graph.middleware import MiddlewareHook
from wick_graph.models.call import is_empty
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, calls, text

DOORS = pytest.mark.parametrize("door", [sync_door, async_door])
Change = Callable[[Any], Any]
"""Changes what it is given in place."""

# --- ways of changing ----------------------------------------------------------------------------


def _a_message(message: BaseMessage) -> None:
    """Change everything of a message that can be changed."""
    if isinstance(message.content, list):
        for block in message.content:
            if isinstance(block, dict):
                block["text"] = "LEAK"
        message.content.append({"type": "text", "text": "LEAK"})
    else:
        message.content += "LEAK"
    message.additional_kwargs["LEAK"] = 1
    message.response_metadata.setdefault("wick", {})["LEAK"] = 1
    for call in getattr(message, "tool_calls", ()):
        call["args"]["LEAK"] = 1
        call["args"].setdefault("deep", {"list": []})["list"].append("LEAK")
        call["name"] = "LEAK"


def _each(messages: Any) -> None:
    for message in messages:
        _a_message(message)


def _data(value: Any) -> None:
    """Change data, however deep."""
    if isinstance(value, dict):
        for item in list(value.values()):
            _data(item)
        value["LEAK"] = "LEAK"
    elif isinstance(value, list):
        for item in list(value):
            _data(item)
        value.append("LEAK")
    elif isinstance(value, BaseMessage):
        _a_message(value)


def _unpacked(messages: Any) -> None:
    first, *rest = messages
    _each([first, *rest])


def _passed(*messages: BaseMessage) -> None:
    _each(messages)


def _filled(messages: Any) -> None:
    made: list[Any] = []
    made[:] = messages
    made += messages
    made.extend(messages)
    _each(made)


def _next_of(messages: Any) -> None:
    every = iter(messages)
    _a_message(next(every))


REACHES: dict[str, Change] = {
    "index": lambda m: _each([m[0], m[-1]]),
    "index by index": lambda m: _each(m[at] for at in range(len(m))),
    "slice": lambda m: _each(m[:]),
    "slice with a step": lambda m: _each(m[::-2]),
    "for": _each,
    "next": _next_of,
    "list": lambda m: _each(list(m)),
    "tuple": lambda m: _each(tuple(m)),
    "star": lambda m: _each([*m]),
    "arguments": lambda m: _passed(*m),
    "unpacking": _unpacked,
    "into a list": _filled,
    "reversed": lambda m: _each(reversed(m)),
    "sorted": lambda m: _each(sorted(m, key=lambda message: message.type)),
    "filter": lambda m: _each(filter(None, m)),
    "map": lambda m: list(map(_a_message, m)),
    "zip": lambda m: _each(one for one, _ in zip(m, m, strict=True)),
    "enumerate": lambda m: _each(one for _, one in enumerate(m)),
    "min": lambda m: _a_message(min(m, key=lambda message: message.type)),
    "comprehension": lambda m: _each([message for message in m if message in m]),
    "plus": lambda m: _each(m + [HumanMessage("x")]),  # noqa: RUF005  # the operator is the point
    "plus on the right": lambda m: _each([HumanMessage("x")] + m),  # noqa: RUF005  # as above
    "copy": lambda m: _each(copy.copy(m)),
    "deepcopy": lambda m: _each(copy.deepcopy(m)),
    "pickle": lambda m: _each(pickle.loads(pickle.dumps(m))),
    "match": lambda m: _matched(m),
}
"""Every way in which messages are taken out of a sequence."""


def _matched(messages: Any) -> None:
    match messages:
        case [first, *_]:
            _a_message(first)


def _then(change: Callable[[], Any], messages: Any) -> None:
    change()
    _each(messages)


LISTS: dict[str, Change] = {
    "append": lambda m: m.append(HumanMessage("LEAK")),
    "extend": lambda m: m.extend([HumanMessage("LEAK")]),
    "insert": lambda m: m.insert(0, HumanMessage("LEAK")),
    "pop": lambda m: _a_message(m.pop()),
    "pop the first": lambda m: _a_message(m.pop(0)),
    "remove": lambda m: m.remove(m[0]),
    "clear": lambda m: m.clear(),
    "reverse": lambda m: _then(m.reverse, m),
    "sort": lambda m: _then(lambda: m.sort(key=lambda message: message.type), m),
    "set": lambda m: m.__setitem__(0, HumanMessage("LEAK")),
    "set a slice": lambda m: _then(lambda: m.__setitem__(slice(0, 1), []), m),
    "delete": lambda m: _then(lambda: m.__delitem__(0), m),
    "+=": lambda m: m.__iadd__([HumanMessage("LEAK")]),
    "*=": lambda m: _then(lambda: m.__imul__(2), m),
}
"""Every way in which a list is changed."""

MAPPINGS: dict[str, Change] = {
    "set": lambda s: s.__setitem__("todos", ["LEAK"]),
    "delete": lambda s: s.__delitem__("todos"),
    "update": lambda s: s.update(todos=["LEAK"]),
    "pop": lambda s: s.pop("todos"),
    "popitem": lambda s: s.popitem(),
    "clear": lambda s: s.clear(),
    "setdefault": lambda s: s.setdefault("cost", {})["LEAK"],
    "|=": lambda s: s.__ior__({"todos": ["LEAK"]}),
    "values": lambda s: _data(list(s.values())),
    "items": lambda s: _data([value for _, value in s.items()]),
    "get": lambda s: _data([s.get(name) for name in s]),
    "index": lambda s: _data([s[name] for name in s]),
    "dict": lambda s: _data(dict(s)),
    "double star": lambda s: _data({**s}),
    "or": lambda s: _data(s | {}),
    "or on the right": lambda s: _data({} | s),
    "copy": lambda s: _data(copy.copy(s)),
    "deepcopy": lambda s: _data(copy.deepcopy(s)),
    "pickle": lambda s: _data(pickle.loads(pickle.dumps(s))),
}
"""Every way in which a state is read or changed."""


def _tried(change: Change, value: Any) -> None:
    """Change in place, or be told clearly that it cannot be."""
    with suppress(HookError, AttributeError, TypeError, IndexError, KeyError):
        change(value)


def _ways(messages: Any) -> None:
    for change in (*REACHES.values(), *LISTS.values()):
        _tried(change, messages())


def _states(state: Any) -> None:
    for change in MAPPINGS.values():
        _tried(change, state())
    if "messages" in state():
        _ways(lambda: state()["messages"])
        _ways(lambda: state().get("messages"))


# --- who sees the thread -------------------------------------------------------------------------


def _request(request: ModelRequest) -> None:
    _ways(lambda: request.messages)
    _ways(lambda: request.base)
    _ways(request.messages.to_list)
    _ways(request.to_messages)
    _states(lambda: request.state)
    _states(lambda: request.ctx.state)


class Vandal(BaseHook):
    """Change in place whatever it can reach, in every phase, and return nothing of it."""

    name = "vandal"

    def __init__(self) -> None:
        self.phases_seen: set[str] = set()
        self.errors: list[BaseException] = []
        self.kept: list[Any] = []

    def _did(self, phase: str) -> None:
        self.phases_seen.add(phase)
        for value in self.kept:  # what it wrote or was given before this step
            _data(value)

    def tools(self, state: Any) -> Any:
        self._did("tools")
        _states(lambda: state)
        return ()

    def before_agent(self, state: Any, ctx: Any) -> Any:
        self._did("before_agent")
        _states(lambda: state)
        _states(lambda: ctx.state)

    def modify_request(self, request: Any, ctx: Any) -> Any:
        self._did("modify_request")
        _request(request)
        _states(lambda: ctx.state)
        return request

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        self._did("wrap_model_call")
        _request(request)
        reply = next(request)
        self.kept.append(reply)
        return reply

    def after_model(self, message: Any, ctx: Any) -> Any:
        self._did("after_model")
        _a_message(message)
        _states(lambda: ctx.state)
        self.kept.append(message)

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        self._did("wrap_tool_call")
        _states(lambda: call.ctx.state)
        result = next(call)
        _data(call.args)
        self.kept += [call.args, result.update, result.artifact, result.content]
        return result


class AsyncVandal(Vandal):
    """The same, as `async def`."""

    async def before_agent(self, state: Any, ctx: Any) -> Any:
        return super().before_agent(state, ctx)

    async def modify_request(self, request: Any, ctx: Any) -> Any:
        return super().modify_request(request, ctx)

    async def wrap_model_call(self, request: Any, next: Any) -> Any:
        reply = await next(request)
        return super().wrap_model_call(request, lambda _: reply)

    async def after_model(self, message: Any, ctx: Any) -> Any:
        return super().after_model(message, ctx)

    async def wrap_tool_call(self, call: Any, next: Any) -> Any:
        result = await next(call)
        return super().wrap_tool_call(call, lambda _: result)


class VandalMiddleware(AgentMiddleware[Any, Any, Any]):
    """The same, as LangChain's middleware."""

    def before_agent(self, state: Any, runtime: Any) -> Any:
        _states(lambda: state)

    def before_model(self, state: Any, runtime: Any) -> Any:
        _states(lambda: state)

    def after_model(self, state: Any, runtime: Any) -> Any:
        _states(lambda: state)

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        _states(lambda: request.state)
        given = request.messages
        response = handler(request)
        _ways(lambda: given)
        return response

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        _states(lambda: request.state)
        _states(lambda: request.runtime.state)
        result = handler(request)
        _data(request.tool_call["args"])
        return result


def _todos() -> list[dict[str, str]]:
    return [{"id": "1", "title": "one", "status": "pending"}]


class Note:
    """Write to the state, and keep hold of what it wrote."""

    name = "note"
    description = "Note something."
    parameters: ClassVar = {"type": "object", "properties": {"deep": {"type": "object"}}}

    def __init__(self) -> None:
        self.todos = _todos()
        self.artifact = {"rows": [1]}
        self.args: Any = None

    def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
        for value in (self.args, self.todos[1:], self.artifact.get("LEAK")):
            _data(value)
        _states(lambda: ctx.state)
        self.args = args
        update = {"todos": self.todos, "files": {"/a": {"content": None, "size": 1}}}
        return ToolResult(ctx.call_id, ctx.name, "noted", update=update, artifact=self.artifact)


@langchain_tool
def spy(
    deep: dict[str, Any],
    state: Annotated[dict[str, Any], InjectedState],
    messages: Annotated[list[Any], InjectedState("messages")],
    todos: Annotated[Any, InjectedState("todos")],
    runtime: ToolRuntime,
) -> str:
    """Look at the state."""
    _ways(lambda: state["messages"])
    _ways(lambda: messages)
    _data([todos, deep, dict(state)])
    _states(lambda: runtime.state)
    return "spied"


SCRIPT = (
    calls(("note", {"deep": {"list": ["a"]}})),
    calls(("spy", {"deep": {"list": ["b"]}})),
    text("done"),
)
ASKED = HumanMessage([{"type": "text", "text": "Do it."}], additional_kwargs={"k": {"l": [1]}})


def _agent(path: Path, hooks: list[Any], **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(SCRIPT * 2)
    store = f"sqlite:///{path}"
    return Agent(model=model, tools=[Note(), spy], hooks=hooks, store=store, **options), model


def _shown(messages: Any) -> list[Any]:
    """Write messages as data, without what differs from run to run."""
    made = json.dumps([message_to_dict(message) for message in messages], default=str)
    data = json.loads(made)
    for one in data:
        for name in ("id", "response_metadata", "usage_metadata"):
            one["data"].pop(name, None)
        one["data"]["additional_kwargs"].pop("timestamp", None)
    return data  # type: ignore[no-any-return]


def _seen(agent: Agent, thread: str) -> dict[str, Any]:
    values = agent.graph.get_state({"configurable": {"thread_id": thread}}).values
    hidden = ("messages", "request", "usage", "cost")
    others = {name: value for name, value in values.items() if name not in hidden}
    return {"messages": _shown(values["messages"]), **others}


def _facts(path: Path, hooks: list[Any], door: Door) -> dict[str, Any]:
    """Run twice over one thread; tell what was sent, what is in memory and what is stored."""
    agent, model = _agent(path, hooks)
    with agent:
        door(agent, [copy.deepcopy(ASKED)], thread_id="t")
        door(agent, [HumanMessage("And again.")], thread_id="t")
        sent = [_shown(call.messages) for call in model.calls]
        memory = _seen(agent, "t")
    fresh, _ = _agent(path, [])
    with fresh:
        stored = _seen(fresh, "t")
    return {"sent": sent, "memory": memory, "stored": stored}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same runs with nobody who looks."""
    facts = _facts(tmp_path_factory.mktemp("calm") / "t.db", [], sync_door)
    assert facts["memory"] == facts["stored"]
    return facts


VANDALS: dict[str, Callable[[], Any]] = {
    "hook": Vandal,
    "async hook": AsyncVandal,
    "middleware": lambda: MiddlewareHook(VandalMiddleware()),
}


@pytest.mark.sisters(4)
@DOORS
@pytest.mark.parametrize("vandal", VANDALS.values(), ids=VANDALS)
def test_what_is_changed_in_place_changes_nothing(
    tmp_path: Path, untouched: dict[str, Any], vandal: Callable[[], Any], door: Door
) -> None:
    made = vandal()
    facts = _facts(tmp_path / "t.db", [made], door)
    assert "LEAK" not in json.dumps(facts, default=str)
    assert facts == untouched
    if isinstance(made, Vandal):
        assert made.phases_seen == {"tools", *PHASES}


@pytest.mark.parametrize("way", [*REACHES, *LISTS])
def test_each_way_to_the_messages(way: str) -> None:
    """One way at a time: one that fails early in the tests above would hide the rest."""
    thread = [
        HumanMessage([{"type": "text", "text": "a"}], id="1"),
        AIMessage(
            "b", id="2", tool_calls=[{"name": "x", "args": {"deep": {"list": []}}, "id": "c"}]
        ),
        HumanMessage("c", id="3", additional_kwargs={"k": [1]}),
    ]
    before = copy.deepcopy(thread)
    change = REACHES.get(way) or LISTS[way]
    request = ModelRequest.of(thread, state={"messages": thread})
    for given in (request.messages, request.base, request.state["messages"]):
        if way in LISTS and not isinstance(given, list):
            with pytest.raises(HookError, match="read-only"):
                change(given)
        else:
            change(given)
        assert thread == before
        assert request.messages == before
        assert not any(one is other for one in given for other in thread)


@pytest.mark.parametrize("way", MAPPINGS)
def test_each_way_to_the_state(way: str) -> None:
    state = {"todos": _todos(), "files": {"/a": {"lines": ["x"]}}, "iteration": 1}
    before = copy.deepcopy(state)
    _tried(MAPPINGS[way], StateView(state))
    assert state == before
    with pytest.raises(HookError, match="return the changes as a state update"):
        StateView(state)["todos"] = []


@DOORS
def test_what_a_hook_writes_is_not_shared_with_it(tmp_path: Path, door: Door) -> None:
    class Writer(BaseHook):
        name = "writer"
        note = HumanMessage([{"type": "text", "text": "noted"}])
        todos = _todos()
        reply: Any = None

        def before_agent(self, state: Any, ctx: Any) -> Any:
            return {"messages": [self.note], "todos": self.todos}

        def modify_request(self, request: Any, ctx: Any) -> Any:
            _a_message(self.note)
            _data(self.todos)
            return request

        def after_model(self, message: Any, ctx: Any) -> Any:
            self.reply = message
            return Verdict(reply=message)

        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            _a_message(self.reply)
            return next(call)

    agent, model = _agent(tmp_path / "t.db", [Writer()])
    with agent:
        door(agent, [copy.deepcopy(ASKED)], thread_id="t")
        assert "LEAK" not in json.dumps(_seen(agent, "t"), default=str)
        assert "LEAK" not in repr(model.calls)


@DOORS
def test_a_copy_that_is_returned_counts(tmp_path: Path, door: Door) -> None:
    """A copy that was changed is put back by `replace`, and the thread keeps what it has."""

    class Shout(BaseHook):
        name = "shout"

        def modify_request(self, request: Any, ctx: Any) -> Any:
            made = request.messages[0]
            made.content = "LOUD"
            return request.replace(made, made)

    class ShoutMiddleware(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            request.messages[0].content += "!"
            request.messages.append(HumanMessage("and more"))
            return handler(request)

    model = ScriptedModel(["ok"])
    hooks = [Shout(), MiddlewareHook(ShoutMiddleware())]
    with Agent(model=model, hooks=hooks, store=f"sqlite:///{tmp_path}/t.db") as agent:
        door(agent, "hello", thread_id="t")
        assert [m.text for m in model.calls[0].messages] == ["LOUD!", "and more"]
        assert [m["data"]["content"] for m in _seen(agent, "t")["messages"]] == ["hello", "ok"]


def test_unchanged_copies_stay_ranges_of_the_thread() -> None:
    """So the caches that know messages by identity know them still, and the overlay is small."""
    thread = [HumanMessage(f"{n}", id=f"{n}") for n in range(6)]
    request = ModelRequest.of(thread)
    assert request.with_messages(request.messages).segments == ((0, 6),)
    assert request.with_messages(list(request.messages)[2:]).segments == ((2, 6),)
    assert request.with_messages(request.messages[:2] + request.messages[4:]).segments == (
        (0, 2),
        (4, 6),
    )
    changed = list(request.messages)
    changed[3].content = "other"
    assert request.with_messages(changed).segments == ((0, 3), changed[3], (4, 6))


@DOORS
def test_below_and_beside(tmp_path: Path, door: Door) -> None:
    """A sub-agent's hooks, a fork, and a run that goes on after an interrupt."""
    path = tmp_path / "t.db"
    inner = Agent(name="inner", model=ScriptedModel(["inner done"]), hooks=[Vandal()])
    below = delegation({"inner": Subagent(inner, "Does it.")})
    model = ScriptedModel(
        [calls(("delegate_to_agent", {"agent": "inner", "task": "go"})), text("done")] * 2
    )
    with Agent(model=model, tools=[below], hooks=[Vandal()], store=f"sqlite:///{path}") as agent:
        door(agent, "hello", thread_id="t")
        agent.threads.fork("t", "u")
        door(agent, "hello", thread_id="u")
        for thread in ("t", "u"):
            assert "LEAK" not in json.dumps(_seen(agent, thread), default=str)
        assert "LEAK" not in repr(model.calls)


def test_in_a_debugger(tmp_path: Path, untouched: dict[str, Any]) -> None:
    """Held at each moment of the run, and gone on with."""
    agent, model = _agent(tmp_path / "t.db", [Vandal()])
    with agent, DebugSession(agent) as session:
        stop = session.run([copy.deepcopy(ASKED)], thread_id="t", timeout=WAIT)
        while stop.reason not in ("finished", "failed", "cancelled", "interrupt"):
            stop = session.verb("step", timeout=WAIT)
        assert stop.reason == "finished"
        assert "LEAK" not in json.dumps(_seen(agent, "t"), default=str)
        calls_of_one_run = untouched["sent"][: len(model.calls)]
        assert [_shown(call.messages) for call in model.calls] == calls_of_one_run


def test_reading_costs_nothing_before_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Any] = []
    real = copy.deepcopy

    def noted(message: Any) -> Any:
        copied.append(message)
        return real(message)

    monkeypatch.setattr("wick_graph.messages.base.private", noted)
    monkeypatch.setattr("wick_graph.core.request.private", noted)

    class Quiet(BaseHook):
        name = "quiet"

        def modify_request(self, request: Any, ctx: Any) -> Any:
            assert len(request.messages) > 100
            return request.append_system("Be kind.")

        def wrap_model_call(self, request: Any, next: Any) -> Any:
            request.state["iteration"]
            return next(request)

    agent = Agent(model=ScriptedModel(["ok"]), hooks=[Quiet()])
    asyncio.run(agent.ainvoke([HumanMessage("x") for _ in range(200)], thread_id="t"))
    assert copied == []


def _in_c(messages: Any) -> list[BaseMessage]:
    """Take messages out of a list as code in C does: past its methods."""
    validated = TypeAdapter(list[AnyMessage]).validate_python(messages)
    passed: Any = operator.concat([], messages)
    return [*validated, *passed]


class InC(BaseHook):
    """Change what code in C takes out of the state's messages."""

    name = "in c"

    def before_agent(self, state: Any, ctx: Any) -> Any:
        _each(_in_c(state["messages"]))

    def after_model(self, message: Any, ctx: Any) -> Any:
        _each(_in_c(ctx.state["messages"]))


class InCMiddleware(AgentMiddleware[Any, Any, Any]):
    """The same, as LangChain's middleware."""

    def before_model(self, state: Any, runtime: Any) -> Any:
        _each(_in_c(state["messages"]))

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        given = list(request.messages)
        response = handler(request.override(messages=given))
        _each(_in_c(given))
        _each(_in_c(request.messages))
        return response


@DOORS
@pytest.mark.parametrize("hook", [InC, lambda: MiddlewareHook(InCMiddleware())])
def test_code_in_c_gets_copies_too(tmp_path: Path, hook: Any, door: Door) -> None:
    path = tmp_path / "t.db"
    agent, model = _agent(path, [hook()])
    with agent:
        for ask in (copy.deepcopy(ASKED), HumanMessage("And again.")):
            door(agent, [ask], thread_id="t")
        assert "LEAK" not in json.dumps(_seen(agent, "t"), default=str)
        assert "LEAK" not in repr(model.calls)


def test_a_middleware_that_passes_a_request_on_copies_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []

    class Passing(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            with monkeypatch.context() as patch:
                patch.setattr("wick_graph.messages.base.private", looked.append)
                patch.setattr("wick_graph.core.request.private", looked.append)
                asked = request.state["iteration"]
                assert asked == 0
            return handler(request)

    class Looking(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            assert request.messages is request.messages
            assert type(copy.copy(request).messages) is list
            with pytest.raises(AttributeError, match="no 'other'"):
                request.other  # noqa: B018  # looking is the point
            request.messages.append(HumanMessage("more"))
            return handler(request)

    model = ScriptedModel(["ok"])
    hooks = [MiddlewareHook(Passing()), MiddlewareHook(Looking())]
    Agent(model=model, hooks=hooks).invoke([HumanMessage("x") for _ in range(5)], thread_id="t")
    assert looked == []
    assert [m.text for m in model.calls[0].messages] == ["x"] * 5 + ["more"]


def test_a_reply_is_the_engines_own_as_soon_as_the_hooks_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who was given it on the way out may change it at any time, from a thread of its own."""
    kept: list[Any] = []

    class Keeping(BaseHook):
        name = "keeping"

        def wrap_model_call(self, request: Any, next: Any) -> Any:
            kept.append(next(request))
            return kept[-1]

    def late(reply: AIMessage) -> bool:
        _data(kept)
        return is_empty(reply)

    monkeypatch.setattr(sys.modules["wick_graph.nodes.model"], "is_empty", late)
    result = Agent(model=ScriptedModel(["ok"]), hooks=[Keeping()]).invoke("hi", thread_id="t")
    assert "LEAK" in repr(kept)
    assert "LEAK" not in repr(result.messages)
