"""What is nested too deep is a sentence, wherever it comes in, and leaves the thread as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from wick_graph import Agent, BaseHook, ToolResult
from wick_graph.constants import MAX_NESTING, TOO_DEEP
from wick_graph.errors import MessageError, StorageError, WickError
from wick_graph.events import Done
from wick_graph.testing import ScriptedModel, call
from wick_graph.tools.bound import bind_tool

DEPTHS = [MAX_NESTING + 20, 400, 1_100, 5_000]
CONFIG: Any = {"configurable": {"thread_id": "t"}}


def deep(levels: int, kind: str = "list") -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if kind == "list" else {"a": value}
    return value


def takes(x: Any) -> str:
    """Take anything."""
    return "taken"


class Calls(BaseChatModel):
    """Call `takes` with these arguments, then answer."""

    args: Any
    content: Any = ""

    @property
    def _llm_type(self) -> str:
        return "calls"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        message = AIMessage("ok")
        if messages[-1].type == "human":
            asked: Any = [{"name": "takes", "args": {"x": self.args}, "id": "c"}]
            message = AIMessage(self.content, tool_calls=asked)
        return ChatResult(generations=[ChatGeneration(message=message)])


@pytest.mark.sisters(4)
@pytest.mark.parametrize("kind", ["list", "dict"])
@pytest.mark.parametrize("levels", DEPTHS)
@pytest.mark.parametrize("journal", ["steps", "full"])
def test_a_models_arguments(
    levels: int, kind: str, journal: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with Agent(model=Calls(args=deep(levels, kind)), tools=[takes], journal=journal) as agent:
        for _ in range(2):  # and the next turn
            result = agent.invoke("?", thread_id="t")
            assert result.text == "ok"
            assert result.tool_calls[-1]["error"] == f"invalid arguments: {TOO_DEEP}"
    assert not caplog.records, "the journal has all of it"


async def test_a_models_arguments_in_a_stream() -> None:
    with Agent(model=Calls(args=deep(3_000)), tools=[takes]) as agent:
        events = [event async for event in agent.astream("?", thread_id="t")]
        assert json.dumps([event.to_dict() for event in events])
        assert isinstance(events[-1], Done)


def test_arguments_that_are_just_not_too_deep_run() -> None:
    with Agent(model=Calls(args=deep(MAX_NESTING - 1)), tools=[takes]) as agent:
        assert agent.invoke("?").tool_calls[0]["output"] == "taken"


def test_one_deep_call_among_others_keeps_its_place() -> None:
    class Three(Calls):
        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            made = super()._generate(messages, *args, **kwargs)
            message: Any = made.generations[0].message
            if message.tool_calls:
                fine: Any = {**message.tool_calls[0], "args": {"x": 1}}
                message.tool_calls = [{**fine, "id": "a"}, *message.tool_calls, {**fine, "id": "b"}]
            return made

    with Agent(model=Three(args=deep(3_000)), tools=[takes]) as agent:
        made = agent.invoke("?").tool_calls
    assert [(one["id"], one["output"]) for one in made][::2] == [("a", "taken"), ("b", "taken")]
    assert made[1]["error"] == f"invalid arguments: {TOO_DEEP}"


def test_a_block_of_a_reply() -> None:
    """As Anthropic's adapter leaves calls in the content too."""
    block = {"type": "tool_use", "id": "c", "name": "takes", "input": deep(3_000, "dict")}
    with Agent(model=Calls(args=deep(3_000), content=[block]), tools=[takes]) as agent:
        assert agent.invoke("?", thread_id="t").text == "ok"
        assert agent.invoke("?", thread_id="t").text == "ok"


def test_a_text_of_arguments() -> None:
    text = '{"x": ' + "[" * 3_000 + "]" * 3_000 + "}"
    invalid: Any = {
        "name": "takes",
        "args": text,
        "id": "c",
        "error": None,
        "type": "invalid_tool_call",
    }

    class Text(Calls):
        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            made = super()._generate(messages, *args, **kwargs)
            message: Any = made.generations[0].message
            if message.tool_calls:
                message.tool_calls, message.invalid_tool_calls = [], [invalid]
            return made

    with Agent(model=Text(args=1), tools=[takes]) as agent:
        result = agent.invoke("?", thread_id="t")
        assert TOO_DEEP in result.tool_calls[0]["error"]
        assert agent.invoke("?", thread_id="t").text == "ok"


def test_what_a_hook_puts_in_a_calls_place() -> None:
    class Deepen(BaseHook):
        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            return next(call.replace(args={"x": deep(3_000)}))

    with Agent(
        model=ScriptedModel([call("takes", x=1), "ok"]), tools=[takes], hooks=[Deepen()]
    ) as a:
        assert a.invoke("?").tool_calls[0]["error"] == f"invalid arguments: {TOO_DEEP}"


def test_arguments_of_a_tool_that_is_called_by_hand() -> None:
    tool = bind_tool(takes)
    assert tool.check({"x": deep(3_000)}) == f"invalid arguments: {TOO_DEEP}"
    assert tool.check({"x": deep(50)}) is None


@pytest.mark.parametrize("levels", DEPTHS)
def test_messages_of_a_caller(levels: int) -> None:
    value = deep(levels, "dict")
    block = {"type": "text", "text": "x", "more": value}
    asked: Any = [{"name": "takes", "args": {"x": value}, "id": "c"}]
    with Agent(model=ScriptedModel(["ok"])) as agent:
        for given in (
            [{"role": "user", "content": [block]}],
            HumanMessage([block]),
            HumanMessage("x", additional_kwargs={"more": value}),
        ):
            with pytest.raises(MessageError, match=TOO_DEEP):
                agent.invoke(given, thread_id="t")
        chain = [HumanMessage("x"), AIMessage("", tool_calls=asked)]
        with pytest.raises(MessageError, match=TOO_DEEP):
            agent.graph.invoke({"messages": chain}, CONFIG)
        assert agent.threads.get("t") is None
        assert agent.invoke("?", thread_id="t").text == "ok"


@pytest.mark.parametrize("levels", DEPTHS[1:])
def test_what_is_written_to_the_state(levels: int) -> None:
    value = deep(levels)

    def update() -> ToolResult:
        """Write too much."""
        return ToolResult("", "update", "x", update={"files": {"a": value}})

    def ask() -> str:
        """Ask with too much."""
        return str(interrupt(value))

    with Agent(
        model=ScriptedModel([call("update"), "ok", call("ask"), "ok"]), tools=[update, ask]
    ) as a:
        assert "nested deeper" in a.invoke("?", thread_id="t").tool_calls[0]["error"]
        with pytest.raises(StorageError, match="nested deeper"):
            a.graph.update_state(CONFIG, {"files": {"a": value}})
        with pytest.raises(StorageError, match="nested deeper"):
            a.graph.invoke({"messages": [HumanMessage("x")], "files": {"a": value}}, CONFIG)
        with pytest.raises(WickError, match="nested deeper"):
            a.invoke("?", thread_id="t")
        assert a.invoke("and now?", thread_id="t").text == "ok"


@pytest.mark.parametrize("saver", [InMemorySaver, None], ids=["memory", "ours"])
def test_results_of_a_tool_under_any_saver(saver: Any) -> None:
    """Also where there is no ledger, which knows what can be stored."""
    value = deep(100_000, "dict")

    def update() -> ToolResult:
        """Write too much."""
        return ToolResult("", "update", "x", update={"files": value})

    def artifact() -> ToolResult:
        """Keep too much."""
        return ToolResult("", "artifact", "fine", artifact=value)

    model = ScriptedModel([call("update"), call("artifact"), "ok", "and on"])
    given = {} if saver is None else {"store": saver(), "journal": "off"}
    with Agent("a", model, tools=[update, artifact], **given) as agent:
        first, second = agent.invoke("?", thread_id="t").tool_calls
        assert "its state update is refused: " in first["error"]
        assert "nested deeper" in first["error"]
        assert second["output"] == "fine"
        assert agent.invoke("?", thread_id="t").text == "and on"


def test_an_answer_to_an_interrupt() -> None:
    def ask() -> str:
        """Ask."""
        return str(interrupt("which?"))

    with Agent(model=ScriptedModel([call("ask"), "ok"]), tools=[ask]) as agent:
        agent.invoke("?", thread_id="t")
        with pytest.raises(StorageError, match="nested deeper"):
            agent.resume("t", deep(3_000))
        assert agent.resume("t", "that").text == "ok"


def test_yaml(tmp_path: Path) -> None:
    from wick_graph.config import load_config  # noqa: PLC0415 - of this test alone
    from wick_graph.errors import ConfigError  # noqa: PLC0415 - of this test alone

    path = tmp_path / "agents.yaml"
    for levels in DEPTHS:
        path.write_text(f"agents: {'[' * levels}{']' * levels}")
        with pytest.raises(ConfigError):
            load_config(path)
