"""LangChain tools work as they do in LangGraph: callbacks, injection, Commands, interrupts."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    StructuredTool,
    Tool,
    ToolException,
)
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field

from wick_graph.errors import ConfigError, ToolError
from wick_graph.messages import ToolCall
from wick_graph.tools import ToolContext, bind_tool, failure, normalise

STATE = {"messages": [HumanMessage("hi")], "todos": [1], "foo": "bar"}


def context(config: Any = None, **changes: Any) -> ToolContext:
    values: dict[str, Any] = {
        "call_id": "call_1",
        "name": "t",
        "key": "k",
        "index": 0,
        "attempt": 1,
        "thread_id": "th",
        "run_id": "run",
        "agent": "a",
        "state": STATE,
        "config": config,
    }
    return ToolContext(**{**values, **changes})


def run(tool: Any, args: dict[str, Any], ctx: ToolContext | None = None) -> str:
    """Check, call and normalise, as the engine does; returns the output."""
    bound = bind_tool(tool)
    assert bound.check(args) is None
    value = bound.call(args, ctx or context())
    if bound.is_async:
        value = asyncio.run(value)
    result = normalise(value, ToolCall(id="call_1", name=bound.name, args=args))
    assert result.error is None
    return result.output


@langchain_tool
def multiply(a: int, b: int = 2) -> int:
    """Multiply two numbers."""
    return a * b


@langchain_tool
async def later(a: int) -> str:
    """Wait a little."""
    await asyncio.sleep(0)
    return f"{a} later"


@langchain_tool
def injected(
    a: int,
    call_id: Annotated[str, InjectedToolCallId],
    state: Annotated[dict[str, Any], InjectedState],
    foo: Annotated[str, InjectedState("foo")],
    config: RunnableConfig,
    absent: Annotated[str, InjectedState("absent")] = "default",
) -> str:
    """See everything."""
    return f"{a} {call_id} {sorted(state)} {foo} {absent} {config['tags']}"


@langchain_tool
def runtime_tool(a: int, runtime: ToolRuntime) -> str:
    """See the runtime."""
    return f"{a} {runtime.tool_call_id} {runtime.state['foo']} {runtime.config['tags']}"


class Search(BaseTool):
    name: str = "search"
    description: str = "Search."

    def _run(self, query: str, runtime: ToolRuntime[None, Any]) -> str:
        return f"{query} {runtime.tool_call_id}"


class AsyncSearch(BaseTool):
    name: str = "search"
    description: str = "Search."

    def _run(self, query: str) -> str:
        raise NotImplementedError

    async def _arun(self, query: str) -> str:
        return f"async {query}"


class Input(BaseModel):
    text: str = Field(description="Any text")
    mode: str | None = None


CASES: list[Any] = [
    pytest.param(multiply, {"a": 3}, "6", False, id="decorated"),
    pytest.param(later, {"a": 1}, "1 later", True, id="async"),
    pytest.param(Search(), {"query": "q"}, "q call_1", False, id="subclass"),
    pytest.param(AsyncSearch(), {"query": "q"}, "async q", True, id="async-subclass"),
    pytest.param(
        StructuredTool.from_function(
            lambda text, mode=None: f"{text}{mode}", name="t", description="D", args_schema=Input
        ),
        {"text": "x"},
        "xNone",
        False,
        id="structured",
    ),
    pytest.param(
        Tool("upper", lambda text: text.upper(), "Upper."),
        {"__arg1": "abc"},
        "ABC",
        False,
        id="single-input",
    ),
]


@pytest.mark.parametrize(("tool", "args", "output", "is_async"), CASES)
def test_every_kind_of_tool_runs(
    tool: BaseTool, args: dict[str, Any], output: str, is_async: bool
) -> None:
    assert bind_tool(tool).is_async is is_async
    assert run(tool, args) == output


def test_name_description_and_schema_are_the_tools_own() -> None:
    bound = bind_tool(multiply)
    assert bound.schema == {
        "type": "function",
        "function": {
            "name": "multiply",
            "description": "Multiply two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
                "required": ["a"],
            },
        },
    }
    assert bound.source is multiply


def test_arguments_are_checked_before_the_tool_sees_them() -> None:
    bound = bind_tool(multiply)
    assert bound.check({"a": "x", "c": 1}) == (
        'invalid arguments: a: expected integer, got the string "x"; '
        "c: unknown argument, known are a, b"
    )
    assert "b: missing" not in (bound.check({}) or "")


@pytest.mark.parametrize("tool", [injected, runtime_tool, Search()])
def test_injected_parameters_are_hidden_from_the_model(tool: BaseTool) -> None:
    assert set(bind_tool(tool).parameters["properties"]) <= {"a", "query"}


def test_injected_parameters_are_filled_in() -> None:
    ctx = context({"tags": ["x"]})
    assert run(injected, {"a": 1}, ctx) == (
        "1 call_1 ['foo', 'messages', 'todos'] bar default ['x']"
    )
    assert run(runtime_tool, {"a": 1}, ctx) == "1 call_1 bar ['x']"


def test_a_model_cannot_forge_an_injected_parameter() -> None:
    @langchain_tool
    def whoami(user: Annotated[str, InjectedToolArg] = "nobody") -> str:
        """Say who is asking."""
        return user

    bound = bind_tool(whoami)
    assert "user: unknown argument" in (bound.check({"user": "admin"}) or "")
    assert bound.call({"user": "admin"}, context()).content == "nobody"
    forged = {"a": 1, "call_id": "other", "state": {}, "foo": "forged", "absent": "forged"}
    assert bind_tool(injected).call(forged, context({"tags": []})).content == (
        "1 call_1 ['foo', 'messages', 'todos'] bar default []"
    )


def test_a_state_key_that_is_not_there_is_a_tool_error() -> None:
    @langchain_tool
    def needs(value: Annotated[str, InjectedState("nowhere")]) -> str:
        """Need it."""
        return value

    with pytest.raises(ToolError, match="'nowhere' in the state"):
        bind_tool(needs).call({}, context())


def test_a_store_that_is_not_there_is_a_tool_error() -> None:
    @langchain_tool
    def needs(store: Annotated[BaseStore, InjectedStore()]) -> str:
        """Need it."""
        return str(store)

    with pytest.raises(ToolError, match="needs a store"):
        bind_tool(needs).call({}, context())


class Recorder(BaseCallbackHandler):
    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        self.events.append(("start", serialized["name"], kwargs["inputs"], kwargs["tool_call_id"]))

    def on_tool_end(self, output: Any, **kwargs: Any) -> None:
        self.events.append(("end", output.content))

    def on_tool_error(self, error: BaseException, **kwargs: Any) -> None:
        self.events.append(("error", str(error)))


@pytest.mark.parametrize("tool", [runtime_tool, later], ids=["sync", "async"])
def test_callbacks_hear_the_call(tool: BaseTool) -> None:
    recorder = Recorder()
    output = run(tool, {"a": 1}, context({"callbacks": [recorder], "tags": []}))
    assert recorder.events == [("start", tool.name, {"a": 1}, "call_1"), ("end", output)]


@langchain_tool
def refuse(text: str) -> str:
    """Refuse."""
    raise ToolException(f"will not {text}")


def test_an_exception_reaches_callbacks_and_the_engine() -> None:
    recorder = Recorder()
    with pytest.raises(ToolException) as caught:
        bind_tool(refuse).call({"text": "go"}, context({"callbacks": [recorder]}))
    assert recorder.events[-1] == ("error", "will not go")
    assert failure(ToolCall(id="c", name="refuse"), caught.value).error == "will not go"


def test_an_error_that_the_tool_handles_itself_is_a_failure() -> None:
    tool = refuse.model_copy(update={"handle_tool_error": True})
    value = bind_tool(tool).call({"text": "go"}, context())
    result = normalise(value, ToolCall(id="call_1", name="refuse"))
    assert (result.error, result.output) == ("will not go", "")


def test_content_and_artifact() -> None:
    def look() -> tuple[str, list[int]]:
        """Look."""
        return "seen", [1, 2]

    tool = StructuredTool.from_function(look, response_format="content_and_artifact")
    value = bind_tool(tool).call({}, context())
    result = normalise(value, ToolCall(id="call_1", name="look"))
    assert (result.output, result.artifact) == ("seen", [1, 2])


def test_a_command_updates_the_state() -> None:
    @langchain_tool
    def note(text: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Note it."""
        return Command(
            update={"todos": [text], "messages": [ToolMessage("noted", tool_call_id=call_id)]}
        )

    value = bind_tool(note).call({"text": "x"}, context())
    result = normalise(value, ToolCall(id="call_1", name="note"))
    assert (result.output, result.update) == ("noted", {"todos": ["x"]})


def remote(**schema: Any) -> StructuredTool:
    """Make a tool as adapters of remote tools make them: a JSON schema and `**arguments`."""

    async def call(runtime: Any = None, **arguments: Any) -> Any:
        return f"{arguments} {type(runtime).__name__}"

    return StructuredTool(
        name="far.away",
        description="Go far.",
        args_schema={"type": "object", "properties": {"q": {"type": "string"}}, **schema},
        coroutine=call,
    )


def test_a_tool_with_a_json_schema() -> None:
    bound = bind_tool(remote(required=["q"]))
    assert bound.name == "far_away"
    assert bound.check({}) == "invalid arguments: q: missing, expected string"
    assert bound.check({"q": "x", "more": 1}) is None
    assert bind_tool(remote(additionalProperties=False)).check({"more": 1}) is not None
    assert run(remote(), {"q": "x"}) == "{'q': 'x'} ToolRuntime"


def test_options_come_from_metadata_or_the_caller() -> None:
    tool = multiply.model_copy(
        update={"metadata": {"wick_graph": {"replay": "safe", "retries": 2}}}
    )
    bound = bind_tool(tool)
    assert (bound.replay, bound.retries) == ("safe", 2)
    assert bind_tool(tool, retries=0, timeout=3).timeout == 3
    assert bind_tool(multiply).replay == "never"


def test_a_tool_of_free_text_is_refused() -> None:
    tool = Tool("free", lambda text: text, "Free.", metadata={"type": "custom_tool"})
    with pytest.raises(ConfigError, match="takes free text"):
        bind_tool(tool)


# --- inside of a graph


class State(TypedDict, total=False):
    foo: str
    out: str


def graph_around(tool: Any, **compile_: Any) -> Any:
    bound = bind_tool(tool)

    def step(state: State, config: RunnableConfig) -> State:
        ctx = context(config, state=state)
        value = bound.call({"a": 1}, ctx)
        if bound.is_async:
            value = asyncio.run(value)
        return {"out": normalise(value, ToolCall(id="call_1", name=bound.name)).output}

    graph = StateGraph(State)
    graph.add_node("step", step)
    graph.set_entry_point("step")
    graph.set_finish_point("step")
    return graph.compile(**compile_)


def test_store_context_and_writer_are_the_graphs_own() -> None:
    @langchain_tool
    def use(
        a: int, store: Annotated[BaseStore, InjectedStore()], runtime: ToolRuntime[Any, Any]
    ) -> str:
        """Use them."""
        store.put(("n",), "k", {"a": a})
        runtime.stream_writer({"progress": a})
        return f"{runtime.store is store} {runtime.state['foo']} {runtime.context}"

    store = InMemoryStore()
    graph = graph_around(use, store=store)
    parts = list(
        graph.stream({"foo": "bar"}, context={"user": 1}, stream_mode=["custom", "values"])
    )
    assert ("custom", {"progress": 1}) in parts
    assert parts[-1][1]["out"] == "True bar {'user': 1}"
    item = store.get(("n",), "k")
    assert item is not None
    assert item.value == {"a": 1}


def test_an_interrupt_in_a_tool_passes_and_resumes() -> None:
    @langchain_tool
    def ask(a: int) -> str:
        """Ask."""
        return f"{a} {interrupt('sure?')}"

    graph = graph_around(ask, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": str(uuid4())}}
    waiting = graph.invoke({"foo": "bar"}, config)
    assert waiting["__interrupt__"][0].value == "sure?"
    assert graph.invoke(Command(resume="yes"), config)["out"] == "1 yes"
