"""SummarizationHook, through an agent: when it acts, what is sent then, and what never happens."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from tests.engine.support import Door
from wick_graph import Agent, BaseHook, events
from wick_graph.hooks import summarization
from wick_graph.hooks.summarization import SummarizationHook
from wick_graph.testing import (
    Lane,
    ScriptedModel,
    When,
    call,
    context_overflow,
    error,
    text,
)

SUMMARIZE = When(purpose="summarize")


PIECES = 2
"""Calls that a summary of `chain(30)` takes: it is more than one call may read."""


def model_of(main: Any, *summaries: Any, each: int = PIECES) -> ScriptedModel:
    """Play main steps for the agent, in order, and in a lane of their own the summaries.

    Each summary is given `each` times: once for each piece of what is summarised.
    """
    main_lane = Lane("agent", main, when=When(purpose="agent"), cursor="fifo")
    steps = [summary for summary in summaries for _ in range(each)]
    return ScriptedModel(lanes=[Lane("s", steps, when=SUMMARIZE, cursor="fifo"), main_lane])


def agent_of(model: ScriptedModel, window: int | None = 1000, **options: Any) -> Agent:
    options.setdefault("tools", [])
    return Agent(model=model, hooks=[SummarizationHook(window)], **options)


def chain(count: int, each: int = 40) -> list[BaseMessage]:
    """Questions and answers in turn, `each` tokens long."""
    kinds = (HumanMessage, AIMessage)
    return [kinds[i % 2](f"{i:03} ".ljust(4 * each, "x"), id=f"m{i}") for i in range(count)]


def sent(model: ScriptedModel, purpose: str = "agent") -> list[Any]:
    return [c for c in model.calls if c.purpose == purpose]


def seeded(agent: Agent, messages: list[BaseMessage]) -> Any:
    """Put messages into a thread without a run."""
    config: Any = {"configurable": {"thread_id": "t"}}
    agent.graph.update_state(config, {"messages": messages}, as_node="model")
    return config


def starts(call: Any) -> list[str]:
    """Name the messages of a request after the system prompt: the first word of each."""
    return [m.text.split()[0] for m in call.messages if m.type != "system"]


@pytest.mark.parametrize(
    ("extra", "summaries"),
    [pytest.param(0, 0, id="equal"), pytest.param(4, PIECES, id="above")],
)
def test_it_acts_above_85_percent_of_the_window(door: Door, extra: int, summaries: int) -> None:
    model = model_of(["ok"], "SHORT")
    agent = agent_of(model)
    seeded(agent, chain(20))
    door(agent, "q".ljust(200 + extra, "q"), thread_id="t")
    assert len(sent(model, "summarize")) == summaries


def test_the_default_window_is_the_models(door: Door) -> None:
    model = model_of(["ok", "ok"], "SHORT")
    agent = agent_of(model, None)
    seeded(agent, chain(4, 27_200 - 20))
    door(agent, "q" * 4 * 80, thread_id="t")
    assert (summarization.threshold(128_000), len(sent(model, "summarize"))) == (108_800, 0)
    door(agent, "q" * 80, thread_id="t")
    assert len(sent(model, "summarize")) == PIECES


@pytest.mark.parametrize("what", ["prompt", "tools"])
def test_everything_that_is_sent_is_counted(door: Door, what: str) -> None:
    def long_tool(a: int) -> str:
        return ""

    long_tool.__doc__ = "Describe. " * 60
    options: dict[str, Any] = {"system_prompt": "p" * 600} if what == "prompt" else {}
    options["tools"] = [long_tool] if what == "tools" else []
    model = model_of(["ok"], "SHORT")
    agent = agent_of(model, **options)
    seeded(agent, chain(18))
    door(agent, "q" * 200, thread_id="t")
    assert len(sent(model, "summarize")) == PIECES


def test_images_are_counted(door: Door) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    model = model_of(["ok"], "SHORT")
    agent = agent_of(model)
    seeded(agent, [HumanMessage([{"type": "text", "text": "see"}, image] * 9, id="i"), *chain(6)])
    door(agent, "q" * 200, thread_id="t")
    assert len(sent(model, "summarize")) == 1


def test_the_request_is_prompt_summary_and_the_rest(door: Door) -> None:
    model = model_of(["ok"], "SHORT")
    agent = agent_of(model, system_prompt="Base.")
    seeded(agent, chain(30))
    result = door(agent, "And now?", thread_id="t")
    for asked in sent(model, "summarize"):
        assert asked.system.startswith("Summarize ")
        assert "concisely" in asked.system
        assert (asked.tools, asked.settings) == ((), {"max_tokens": 125})
        assert [m.type for m in asked.messages] == ["system", "human"]
    first, last = (c.messages[-1].text for c in sent(model, "summarize"))
    assert "000 xx" in first
    assert "027 xx" in last
    assert "028 xx" not in last
    (main,) = sent(model)
    assert main.system == "Base."
    assert starts(main) == ["[Conversation", "028", "029", "And"]
    assert "SHORT" in main.messages[1].text
    assert len(result.messages) == 32, "the history is whole"
    assert result.text == "ok"


@pytest.mark.parametrize(("count", "kept"), [(100, 10), (5, 2), (1, 2), (39, 3)])
def test_how_much_is_kept(count: int, kept: int) -> None:
    assert summarization.kept(count) == kept


def test_the_words_and_tokens_of_a_summary() -> None:
    assert summarization.limits(128_000) == (4_096, 2_000)
    assert "fewer than 2,000 words" in summarization.instructions(2_000)


def test_a_summary_is_used_until_the_rest_has_grown_above_the_threshold_again(door: Door) -> None:
    model = model_of(["1", "2", "3"], "FIRST", "SECOND")
    agent = agent_of(model)
    seeded(agent, chain(30))
    door(agent, "And?", thread_id="t")
    door(agent, "More?", thread_id="t")
    assert len(sent(model, "summarize")) == PIECES
    assert starts(sent(model)[1])[:2] == ["[Conversation", "028"]
    seeded(agent, [m.model_copy(update={"id": f"n{m.id}"}) for m in chain(20)])
    door(agent, "Last?", thread_id="t")
    again = [c.messages[-1].text for c in sent(model, "summarize")][PIECES:]
    assert "FIRST" in again[0]
    assert "028 xx" in again[0]
    assert "027 xx" not in "".join(again), "what the first summary stands for is not told again"
    assert "SECOND" in sent(model)[2].messages[0].text
    assert "FIRST" not in sent(model)[2].messages[0].text


def test_calls_stay_with_their_results_and_the_question_stays(door: Door) -> None:
    model = model_of(["ok"], "SHORT")
    agent = agent_of(model)
    asked = {"name": "add", "args": {"a": 1, "b": 2}, "type": "tool_call"}
    history: list[BaseMessage] = [HumanMessage("QUESTION", id="q")]
    for i in range(8):
        ids = [f"c{i}{j}" for j in range(3)]
        requests: Any = [{**asked, "id": call_id} for call_id in ids]
        history.append(AIMessage("", tool_calls=requests, id=f"a{i}"))
        history += [
            ToolMessage("r" * 150, tool_call_id=call_id, name="add", id=call_id) for call_id in ids
        ]
    agent.graph.update_state(seeded(agent, history), {"iteration": 8}, as_node="tools")
    assert agent.resume("t").text == "ok"
    (main,) = sent(model)
    assert [m.type for m in main.messages] == ["human", "human", "ai", "tool", "tool", "tool"]
    assert main.messages[1].text == "QUESTION"
    assert main.messages[2].id == "a7"
    assert "QUESTION" in sent(model, "summarize")[0].messages[-1].text, "later turns need it"


def test_system_messages_at_the_head_of_a_thread_stay_there(door: Door) -> None:
    model = model_of(["ok"], "SHORT")
    agent = agent_of(model)
    seeded(agent, [SystemMessage("RULE", id="s"), *chain(30)])
    door(agent, "And?", thread_id="t")
    (main,) = sent(model)
    assert [m.text[:5] for m in main.messages[:2]] == ["RULE", "[Conv"]
    assert "RULE" not in sent(model, "summarize")[0].messages[-1].text


@pytest.mark.parametrize("count", [pytest.param(n, id=f"Q-33 {n}") for n in (1, 2, 3)])
def test_there_may_be_nothing_to_summarise(door: Door, count: int) -> None:
    model = model_of(["ok", "ok"], "SHORT")
    agent = agent_of(model)
    before = [HumanMessage("short", id="m0"), AIMessage("y" * 4_000, id="m1")][: count - 1]
    if before:
        seeded(agent, before)
    assert door(agent, "x" * 8_000, thread_id="t").text == "ok"
    assert sent(model, "summarize") == []


@pytest.mark.parametrize("failing", [error("no"), text("  "), call("add", a=1, b=1)])
def test_a_summary_that_fails_leaves_the_request_as_it_is(door: Door, failing: Any) -> None:
    model = model_of(["ok"], failing)
    agent = agent_of(model)
    seeded(agent, chain(30))
    result = door(agent, "And?", thread_id="t")
    assert result.text == "ok"
    assert len(sent(model)[0].messages) == 31
    assert not agent.graph.get_state({"configurable": {"thread_id": "t"}}).values.get("summary")


def test_arguments_and_results_of_writes_are_cut(door: Door) -> None:
    long = "w" * 5_000
    args = {"path": "p", "content": long}
    requests: Any = [{"name": "write_file", "args": args, "id": "c", "type": "tool_call"}]
    old = [
        HumanMessage("write", id="h"),
        AIMessage("", tool_calls=requests, id="a"),
        ToolMessage(long, tool_call_id="c", name="write_file", id="t"),
        ToolMessage("v" * 3_000, tool_call_id="d", name="read", id="u"),
    ]
    (written,) = summarization.chunks(old, 128_000)
    assert '→ tool_call: write_file({"path": "p", "content": "www' in written
    assert written.count("w" * 2_000 + "... [truncated]") == 2
    assert "w" * 2_001 not in written
    assert "v" * 3_000 in written


def test_what_is_too_long_for_one_call_is_summarised_in_pieces(door: Door) -> None:
    model = model_of(["ok"], "ONE", "TWO", "THREE", "FOUR", each=1)
    agent = agent_of(model)
    seeded(agent, chain(44))
    door(agent, "And?", thread_id="t")
    asked = sent(model, "summarize")
    assert len(asked) == 3
    assert all(len(c.messages[-1].text) < 0.6 * 1000 * 4 + 800 for c in asked)
    assert "ONE" in asked[1].messages[-1].text
    assert "TWO" in asked[2].messages[-1].text
    assert "THREE" in sent(model)[0].messages[0].text


def test_a_history_without_end_costs_a_limited_number_of_calls() -> None:
    pieces = summarization.chunks([HumanMessage("y" * 200_000)], 1_000)
    assert len(pieces) == summarization.MAX_CHUNKS
    assert "parts of the conversation are left out" in pieces[2]


def test_a_providers_refusal_is_answered_once_with_a_summary(door: Door) -> None:
    main = [context_overflow(300), "ok"]
    model = model_of(main, *["SHORT"] * 20)
    agent = agent_of(model, 100_000)
    seeded(agent, chain(20))
    assert door(agent, "And?", thread_id="t").text == "ok"
    assert starts(sent(model)[-1]) == ["[Conversation", "019", "And?"]


def test_a_second_refusal_is_the_runs_error(door: Door) -> None:
    model = model_of([context_overflow(1), context_overflow(1)], *["SHORT"] * 20)
    agent = agent_of(model, 100_000)
    seeded(agent, chain(20))
    with pytest.raises(Exception, match="LLM call: "):
        door(agent, "And?", thread_id="t")
    assert len(sent(model)) == 2


def test_a_refusal_that_no_summary_can_mend_is_the_providers(door: Door) -> None:
    model = model_of([context_overflow(1)], "SHORT")
    agent = agent_of(model, 100_000)
    with pytest.raises(Exception, match="LLM call: .*longer than 1 tokens"):
        door(agent, "A longer question?", thread_id="t")
    assert sent(model, "summarize") == []


def test_other_errors_are_not_answered_with_a_summary(door: Door) -> None:
    model = model_of([error("broken")], "SHORT")
    agent = agent_of(model)
    seeded(agent, chain(10))
    with pytest.raises(Exception, match="broken"):
        door(agent, "And?", thread_id="t")
    assert sent(model, "summarize") == []


def test_usage_of_the_summariser_is_the_runs(door: Door) -> None:
    model = model_of([text("ok", usage=(100, 1))], text("SHORT", usage=(1_000, 20)))
    agent = agent_of(model)
    seeded(agent, chain(30))
    result = door(agent, "And?", thread_id="t")
    for usage in (result.usage, result.thread_usage):
        assert (usage.input_tokens, usage.output_tokens, usage.calls) == (2_100, 41, 3)


def stream_of(agent: Agent, kind: str) -> list[events.Event]:
    if kind == "stream":
        return [*agent.stream("And?", thread_id="t")]

    async def read() -> list[events.Event]:
        return [event async for event in agent.astream("And?", thread_id="t")]

    return asyncio.run(read())


@pytest.mark.parametrize("kind", ["stream", "astream"])
def test_no_reader_sees_the_summariser(kind: str) -> None:
    model = model_of(["the answer"], "SECRET summary")
    agent = agent_of(model)
    seeded(agent, chain(30))
    seen = stream_of(agent, kind)
    assert [e.event for e in seen if "stream" not in e.event] == [
        "on_chat_model_start",
        "on_chat_model_end",
        "done",
    ]
    assert "SECRET" not in repr([e.to_dict() for e in seen])
    assert len(sent(model, "summarize")) == PIECES


@pytest.mark.parametrize("kind", ["stream", "astream"])
def test_langgraphs_messages_mode_leaves_the_summariser_out(kind: str) -> None:
    model = model_of(["the answer"], "SECRET summary")
    agent = agent_of(model)
    config = seeded(agent, chain(30))
    given: Any = {"messages": [HumanMessage("And?")]}

    async def read() -> list[Any]:
        return [c async for c in agent.graph.astream(given, config, stream_mode="messages")]

    if kind == "stream":
        seen = [*agent.graph.stream(given, config, stream_mode="messages")]
    else:
        seen = asyncio.run(read())
    told = "".join(chunk.text for chunk, _ in seen)
    assert "the answer" in told
    assert "SECRET" not in told
    assert len(sent(model, "summarize")) == PIECES


def test_another_model_may_write_the_summaries(door: Door) -> None:
    model = model_of(["ok"])
    writer = ScriptedModel(lanes=[Lane("s", ["BY ANOTHER"] * PIECES, when=SUMMARIZE)])
    hook = SummarizationHook(1000, writer)
    agent = Agent(model=model, hooks=[hook])
    seeded(agent, chain(30))
    result = door(agent, "And?", thread_id="t")
    assert "BY ANOTHER" in model.calls[0].messages[0].text
    assert result.model == "scripted"


def test_inner_hooks_see_the_summarisers_call_with_its_purpose(door: Door) -> None:
    class Sees(BaseHook):
        name = "sees"

        def wrap_model_call(self, request: Any, next: Any) -> Any:
            seen.append(request.purpose)
            return next(request)

    seen: list[str] = []
    model = model_of(["ok"], "SHORT")
    agent = Agent(model=model, hooks=[SummarizationHook(1000), Sees()])
    seeded(agent, chain(30))
    door(agent, "And?", thread_id="t")
    assert seen == ["summarize"] * PIECES + ["agent"]


def test_the_summary_is_there_in_another_process(door: Door, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/t.db"
    with agent_of(model_of(["one"], "KEPT"), store=store) as agent:
        seeded(agent, chain(30))
        door(agent, "And?", thread_id="t")
    model = model_of(["two"])
    with agent_of(model, store=store) as agent:
        assert door(agent, "More?", thread_id="t").text == "two"
        state = agent.graph.get_state({"configurable": {"thread_id": "t"}})
        assert len(state.values["messages"]) == 34
    assert "KEPT" in model.calls[0].messages[0].text
    assert len(model.calls[0].messages) == 6


def test_a_summary_of_a_message_that_is_gone_does_not_count(door: Door) -> None:
    model = model_of(["one", "two"], "OLD")
    agent = agent_of(model)
    config = seeded(agent, chain(30))
    door(agent, "And?", thread_id="t")
    gone: Any = agent.graph.get_state(config).values["summary"]["upto"]
    assert gone == "m27"
    agent.graph.update_state(
        config, {"messages": [RemoveMessage(id=f"m{i}") for i in range(5, 30)]}, as_node="model"
    )
    door(agent, "More?", thread_id="t")
    assert starts(sent(model)[1])[0] == "000"


def test_a_loop_that_grows_is_summarised_on_its_way(door: Door) -> None:
    def page(number: int) -> str:
        """Read a page."""
        return f"page {number} ".ljust(600, ".")

    steps = [call("page", number=i) for i in range(12)]
    model = model_of([*steps, "done"], *[f"summary {i}" for i in range(12)])
    agent = agent_of(model, tools=[page])
    result = door(agent, "Read it all")
    assert result.text == "done"
    assert len(result.messages) == 26
    assert 1 <= len(sent(model, "summarize")) <= 4
    for asked in sent(model):
        assert any(m.text == "Read it all" for m in asked.messages)
        ids = [c["id"] for m in asked.messages if isinstance(m, AIMessage) for c in m.tool_calls]
        assert ids == [m.tool_call_id for m in asked.messages if isinstance(m, ToolMessage)]


def test_a_question_that_is_summarised_in_its_turn_is_known_in_the_next_one(door: Door) -> None:
    """While it is open it is shown as it is; afterwards only the summary tells of it."""
    steps = [call("look"), call("look"), call("look"), "done", "And more."]
    model = model_of(steps, "SHORT", each=20)

    def look() -> str:
        """Look."""
        return "r" * 1_500

    agent = agent_of(model, tools=[look])
    door(agent, "My name is Ann. Look.", thread_id="t")
    door(agent, "Who am I?", thread_id="t")
    asked = "".join(c.messages[-1].text for c in sent(model, "summarize"))
    shown = "".join(m.text for m in sent(model)[-1].messages)
    assert "My name is Ann" in asked + shown
