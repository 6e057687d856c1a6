"""Recorded answers: a replay calls no model and no tool, and what is not recorded fails loudly."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from tests.engine.support import Door
from tests.journal.conftest import Opener
from tests.journal.support import Guard, Todo, agent_of, steps
from wick_graph import Agent, BaseHook, ModelRequest, ToolResult, events, tool
from wick_graph.errors import ModelError, ReplayError, WickError
from wick_graph.journal.replay import replay
from wick_graph.testing import RecordingModel, ReplayModel, ScriptedModel, call, calls


def recorded(url: str, **options: Any) -> Any:
    agent, _ = agent_of(url, **options)
    result = agent.invoke("add", thread_id="t")
    agent.close()
    return result


def silent(**options: Any) -> tuple[Agent, ScriptedModel, list[Any]]:
    """The same agent, with a model that answers nothing and a tool that says when it is called."""
    called: list[Any] = []

    @tool(name="add")
    def wrong(a: float, b: float) -> str:
        """Add two numbers."""
        called.append((a, b))
        return "wrong"

    agent, model = agent_of(False, model=ScriptedModel([]), tools=[wrong], **options)
    return agent, model, called


def told(messages: Any) -> list[tuple[Any, ...]]:
    return [(m.type, m.content, getattr(m, "tool_calls", None)) for m in messages]


def test_a_replay_makes_no_model_and_no_tool_call(url: str, opened: Opener) -> None:
    result = recorded(url)
    agent, model, called = silent()
    replayed = replay(agent, opened())
    assert (model.calls, called) == ((), [])
    assert (replayed.model_calls, replayed.tool_calls) == (2, 3)
    assert told(replayed.values["messages"]) == told(result.messages)
    assert replayed.values["todos"] == []
    assert replayed.values["iteration"] == 2
    assert replayed.values["usage"] == result.thread_usage.to_dict()
    again = [m.what for m in replayed.journal.moments(kind="route")]
    assert again == [m.what for m in opened().moments(kind="route")]


def test_state_updates_and_errors_of_tools_are_replayed(url: str, opened: Opener) -> None:
    def work(log: list[str]) -> Any:
        @tool(name="act")
        def act(n: int) -> ToolResult:
            """Act."""
            log.append(str(n))
            if n == 2:
                raise RuntimeError("broken")
            return ToolResult("", "act", f"did {n}", update={"files": {str(n): "x"}}, artifact=[n])

        return act

    ran: list[str] = []
    script: list[Any] = [calls(("act", {"n": 1}), ("act", {"n": 2})), "ok"]
    result = recorded(url, hooks=[], tools=[work(ran)], model=ScriptedModel(script))
    again: list[str] = []
    agent, _ = agent_of(False, hooks=[], tools=[work(again)], model=ScriptedModel([]))
    values = replay(agent, opened()).values
    assert (sorted(ran), again) == (["1", "2"], [])
    assert values["files"] == result.files == {"1": "x"}
    answers = [(m.text, m.status, m.artifact) for m in values["messages"] if m.type == "tool"]
    assert answers[0] == ("did 1", "success", [1])
    assert answers[1][:2] == (result.messages[3].text, "error")


def test_each_run_of_a_thread_can_be_replayed(url: str, opened: Opener) -> None:
    agent, _ = agent_of(url, hooks=[], model=ScriptedModel(["one", "two"]))
    first = agent.invoke("a", thread_id="t")
    agent.invoke("b", thread_id="t")
    agent.close()
    other, _, _ = silent(hooks=[])
    journal = opened()
    assert [m.text for m in replay(other, journal).values["messages"]] == ["a", "one", "b", "two"]
    assert [m.text for m in replay(other, journal, first.run_id).values["messages"]] == ["a", "one"]


def test_what_differs_today_ends_the_replay_and_says_how(url: str, opened: Opener) -> None:
    class Other(BaseHook):
        name = "other"

        def modify_request(self, request: ModelRequest, ctx: Any) -> Any:
            return request.append_system("Something else.")

    recorded(url)
    agent, model, called = silent(hooks=[Todo(), Other(), Guard()])
    with pytest.raises(WickError) as caught:
        replay(agent, opened())
    text = str(caught.value)
    assert "the recording has no answer to this request; nearest is the request at moment" in text
    assert "+system: Something else." in text
    assert (model.calls, called) == ((), [])


def test_a_call_that_was_not_recorded_is_not_made(url: str, opened: Opener) -> None:
    class More(Todo):
        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            return next(call.replace(args={**call.args, "b": 99}))

    recorded(url)
    agent, _, called = silent(hooks=[More(), Guard()])
    with pytest.raises(ReplayError, match=r"no result for add\(.*'b': 99.*recorded were"):
        replay(agent, opened())
    assert called == []


def test_a_replay_needs_a_beginning(url: str, opened: Opener) -> None:
    agent, _ = agent_of(url, journal="off")
    agent.invoke("add", thread_id="t")
    agent.close()
    with pytest.raises(ReplayError, match="has no journal"):
        replay(agent, opened())


def test_a_replay_model_answers_from_a_thread(door: Door, url: str, opened: Opener) -> None:
    recorded(url)
    agent, _ = agent_of(False, model=ReplayModel(opened()))
    assert door(agent, "add").text == "Done."


def test_an_answer_is_given_once_and_the_last_one_again(url: str, opened: Opener) -> None:
    agent, _ = agent_of(url, hooks=[], model=ScriptedModel(["one", "two"], cursor="fifo"))
    for thread in ("t", "u"):
        agent.invoke("?", thread_id=thread)
    agent.close()
    model = ReplayModel(opened())
    assert [model.invoke([("system", "You add numbers."), ("user", "?")], tools=_schemas()).text
            for _ in range(2)] == ["one", "one"]  # fmt: skip
    assert model.cassette.left == 0
    assert len(model.cassette) == 1


def _schemas() -> list[dict[str, Any]]:
    agent, _ = agent_of(False)
    return [one.schema for one in agent.spec.tools]


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return tmp_path / "tapes" / "run.jsonl"


def test_a_recorded_model_is_replayed_from_its_file(door: Door, tape: Path) -> None:
    inner = ScriptedModel(steps())
    model = RecordingModel(inner, tape)
    agent, _ = agent_of(False, model=model)
    first = door(agent, "add")
    model.close()
    again, _ = agent_of(False, model=ReplayModel(tape))
    second = door(again, "add")
    assert told(second.messages) == told(first.messages)
    assert second.usage == first.usage
    assert len(inner.calls) == 2


@pytest.mark.parametrize("recorded_as", ["stream", "whole"])
@pytest.mark.parametrize("replayed_as", ["stream", "whole"])
def test_streams_and_whole_replies_are_the_same(
    recorded_as: str, replayed_as: str, tape: Path
) -> None:
    def run(model: Any, how: str) -> Any:
        agent = Agent(model=model, tools=[_plus], store=False)
        if how == "whole":
            return agent.invoke("?")
        told = list(agent.stream("?"))
        assert "".join(e.delta for e in told if isinstance(e, events.ChatModelStream)) == "It is 3."
        assert isinstance(told[-1], events.Done)
        return told[-1].result

    inner = ScriptedModel([call("plus", a=1, b=2), "It is 3."])
    recorder = RecordingModel(inner, tape)
    first = run(recorder, recorded_as)
    recorder.close()
    second = run(ReplayModel(tape), replayed_as)
    assert told(second.messages) == told(first.messages)


def _plus(a: float, b: float) -> str:
    return f"{a + b:g}"


_plus.__name__ = "plus"
_plus.__doc__ = "Add."


def test_async_models_are_recorded_too(tape: Path) -> None:
    async def work() -> list[str]:
        model = RecordingModel(ScriptedModel(["one two"]), tape)
        texts: list[str] = [(await model.ainvoke("?")).text]
        model.close()
        texts += [chunk.text async for chunk in ReplayModel(tape).astream("?")]
        return texts

    whole, *pieces = asyncio.run(work())
    assert whole == "".join(pieces) == "one two"


def test_a_miss_shows_the_nearest_request_and_the_difference(tape: Path) -> None:
    model = RecordingModel(ScriptedModel(["a", "b"], cursor="fifo"), tape)
    model.invoke([("system", "Be brief."), ("user", "What is up?")])
    model.invoke([("system", "Be long."), ("user", "Tell me all.")])
    model.close()
    again = ReplayModel(tape)
    with pytest.raises(ReplayError) as caught:
        again.invoke([("system", "Be brief."), ("user", "What is down?")])
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("nearest is request 1 of the file:")
    assert {"-user: What is up?", "+user: What is down?"} <= set(lines)
    with pytest.raises(ReplayError, match=r"\+settings"):
        again.invoke([("system", "Be brief."), ("user", "What is up?")], temperature=1)


def test_a_miss_fails_the_run_loudly(tape: Path) -> None:
    model = RecordingModel(ScriptedModel(["a"]), tape)
    model.invoke("?")
    model.close()
    agent = Agent(model=ReplayModel(tape), store=False)
    with pytest.raises(ModelError, match="the recording has no answer"):
        agent.invoke("other")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("[]", id="other-json"),
        pytest.param("{", id="cut"),
        pytest.param('{"wick_cassette": 99}', id="version"),
        pytest.param('{"wick_cassette": 1, "secret": "00"}\n{"key": 1}', id="row"),
    ],
)
def test_a_file_that_is_no_cassette_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(ReplayError, match="cassette"):
        ReplayModel(path)
    with pytest.raises(ReplayError, match="cannot be read"):
        ReplayModel(tmp_path / "none.jsonl")


def test_secrets_are_hidden_in_the_file_and_found_again(
    tape: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "canary-4711-4711")
    model = RecordingModel(ScriptedModel(["key is ID-99 now"]), tape, redact=[r"ID-\d+"])
    model.invoke("use canary-4711-4711 for ID-99")
    model.close()
    held = tape.read_text(encoding="utf-8")
    assert "canary" not in held
    assert "ID-99" not in held
    reply: AIMessage = ReplayModel(tape).invoke("use canary-4711-4711 for ID-99")
    assert reply.text.startswith("key is •••")
