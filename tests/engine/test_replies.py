"""What a reply may hold and a thread may not; and results that are answers themselves."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool as langchain_tool

from tests.engine.support import Door, add, agent_of, roles
from wick_graph import Agent, BaseHook, FuncTool, tool
from wick_graph.errors import ConfigError
from wick_graph.events import ChatModelStream, Done
from wick_graph.hooks import ApprovalHook, Reject
from wick_graph.server.schemas import run_answer
from wick_graph.testing import call, calls


class Odd:
    """Something of a provider's own."""


class Given(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def answering(*replies: AIMessage, **options: Any) -> Agent:
    """Make an agent whose model gives exactly these objects."""
    return Agent(model=Given(messages=iter(replies)), **{"tools": [], **options})


def stored(agent: Agent) -> Any:
    return agent.graph.get_state({"configurable": {"thread_id": "t"}}).values["messages"]


@pytest.mark.parametrize("content", ["a\ud800b", [{"type": "text", "text": "a\ud800b"}]])
def test_half_a_surrogate_pair_never_gets_into_a_thread(door: Door, content: Any) -> None:
    reply = AIMessage(content, additional_kwargs={"why\udfff": ["\udc00"]})
    agent = answering(reply, AIMessage("again"))
    assert door(agent, "?", thread_id="t").text == "a\ufffdb"
    assert stored(agent)[-1].additional_kwargs["why\ufffd"] == ["\ufffd"]
    assert door(agent, "And?", thread_id="t").text == "again"


def test_a_call_with_half_a_pair_is_answered_and_not_run(door: Door) -> None:
    seen: list[str] = []

    @tool
    def look(word: str) -> str:
        """Look."""
        seen.append(word)
        return "done"

    asked = AIMessage(
        "", tool_calls=[{"name": "look", "args": {"word": "\ud800"}, "id": "c\ud800"}]
    )
    agent = answering(asked, AIMessage("ok"), tools=[look])
    assert door(agent, "?", thread_id="t").text == "ok"
    assert seen == []
    assert "half of a surrogate pair" in stored(agent)[2].text
    assert stored(agent)[1].tool_calls[0]["args"] == {"word": "\ufffd"}


@pytest.mark.parametrize("field", ["response_metadata", "additional_kwargs"])
@pytest.mark.parametrize(
    "build",
    [lambda: Odd(), lambda: {"deep": [Odd()]}, lambda: {1: {2, 3}, "x": Odd}, lambda: 2**80],
)
def test_an_object_of_a_providers_own_becomes_a_note(door: Door, field: str, build: Any) -> None:
    """It fails no step, and what can be kept beside it is kept."""
    odd = {field: {"kept": 1, "raw": build()}}
    agent = answering(AIMessage("fine", **odd), AIMessage("again"))
    assert door(agent, "?", thread_id="t").text == "fine"
    left = getattr(stored(agent)[-1], field)
    assert left["kept"] == 1
    assert "Odd" not in repr(left["raw"]) or "not_stored" in repr(left["raw"])
    assert door(agent, "And?", thread_id="t").text == "again"


def test_a_circle_in_metadata_ends_no_run(door: Door) -> None:
    circle: dict[str, Any] = {"a": Odd()}
    circle["me"] = circle
    agent = answering(AIMessage("fine", additional_kwargs={"c": circle}))
    assert door(agent, "?", thread_id="t").text == "fine"


# --- results that are answers --------------------------------------------------------------------


@tool(return_direct=True)
def final(text: str) -> str:
    """Give the answer."""
    return text


@langchain_tool("final", return_direct=True)
def theirs(text: str) -> str:
    """Give the answer."""
    return text


@pytest.mark.parametrize("one", [final, theirs], ids=["ours", "langchain"])
def test_a_direct_result_is_the_answer(door: Door, one: Any) -> None:
    agent, model = agent_of(call("final", text="42"), "next", tools=[one])
    result = door(agent, "?", thread_id="t")
    assert (result.text, result.stopped_because, len(model.calls)) == ("42", "done", 1)
    assert roles(result.messages) == ["human", "ai", "tool", "ai"]
    assert result.usage.calls == 1
    again = door(agent, "And?", thread_id="t")
    assert again.text == "next", (
        "the thread is well-formed, and the next input is asked of the model"
    )


def test_two_direct_results_are_one_answer(door: Door) -> None:
    both = calls(("final", {"text": "a"}, "x"), ("final", {"text": "b"}, "y"))
    agent, _ = agent_of(both, tools=[final])
    assert door(agent, "?").text == "a\n\nb"


@pytest.mark.parametrize(
    "reply",
    [
        calls(("final", {"text": "a"}, "x"), ("add", {"a": 1, "b": 2}, "y")),
        calls(("final", {"text": ""}, "x")),
        calls(("final", {"wrong": 1}, "x"), unchecked=True),
    ],
    ids=["beside another", "empty", "failed"],
)
def test_the_model_is_asked_where_a_direct_result_is_no_answer(door: Door, reply: Any) -> None:
    agent, model = agent_of(reply, "mine", tools=[final, add])
    assert door(agent, "?").text == "mine"
    assert len(model.calls) == 2


def test_a_direct_tool_of_a_hook_counts_and_a_rejected_call_does_not(door: Door) -> None:
    class Brings(BaseHook):
        name = "brings"

        def tools(self, state: Any) -> Any:
            return [final]

    hooks = [ApprovalHook({"final": "text == 'b'"}), Brings()]
    agent, _ = agent_of(call("final", text="a"), call("final", text="b"), "mine", hooks=hooks)
    assert door(agent, "?", thread_id="t").text == "a"
    asked = door(agent, "And?", thread_id="t")
    assert asked.stopped_because == "interrupted"
    assert agent.resume("t", Reject("no")).text == "mine"


def test_what_return_direct_may_be() -> None:
    with pytest.raises(ConfigError, match="return_direct must be true or false"):
        FuncTool("x", "X.", {"type": "object"}, lambda args: "", return_direct=1)  # type: ignore[arg-type]  # the point


def _refusing(how: str) -> AIMessage:
    block = {"type": "refusal", "refusal": "I will not."}
    if how == "beside":  # chat completions
        return AIMessage("", additional_kwargs={"refusal": "I will not."})
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Bad."}]}
    return AIMessage(
        [thought, block if how == "block" else {"type": "non_standard", "value": block}]
    )


@pytest.mark.parametrize("how", ["beside", "block", "foreign"])
def test_a_refusal_is_the_answer(door: Door, how: str) -> None:
    agent = answering(_refusing(how))
    result = door(agent, "Do it.", thread_id="t")
    assert (result.text, result.output) == ("I will not.", "I will not.")
    assert result.stopped_because == "done"
    (last,) = [m for m in stored(agent) if m.type == "ai"]
    assert last.text == "I will not."


@pytest.mark.parametrize("how", ["beside", "block"])
def test_a_stream_tells_a_refusal(how: str) -> None:
    model = GenericFakeChatModel(messages=iter([_refusing(how)]), disable_streaming=True)
    said = [e for e in Agent(model=model).stream("Do it.") if isinstance(e, ChatModelStream)]
    assert [event.delta for event in said if event.delta] == ["I will not."]


def test_words_beside_a_refusal_stay_the_answer(door: Door) -> None:
    reply = AIMessage("Sorry.", additional_kwargs={"refusal": "I will not."})
    assert door(answering(reply), "Do it.").text == "Sorry."


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"finish_reason": "length"}, "cut off at its length limit"),
        ({"stop_reason": "max_tokens"}, "cut off at its length limit"),
        ({"finish_reason": "content_filter"}, "content filter"),
        ({"finish_reason": "SAFETY"}, "content filter"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content filter",
        ),
        ({"finish_reason": "stop"}, ""),
    ],
)
def test_an_answer_that_the_provider_ended_early_says_so(told: dict[str, Any], why: str) -> None:
    result = answering(AIMessage("It is", response_metadata=told)).invoke("Hi.")
    assert (result.stopped_because, result.text) == ("done", "It is")
    assert why in result.reason
    assert bool(why) == bool(result.reason)
    assert result.to_dict().get("reason", "") == result.reason
    assert run_answer(result).get("reason", "") == result.reason
    *_, end = answering(AIMessage("It is", response_metadata=told)).stream("Hi.", tokens=False)
    assert isinstance(end, Done)
    assert end.data().get("reason", "") == end.reason == result.reason
