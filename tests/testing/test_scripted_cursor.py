"""Which step a call gets: threads, restarts, forks, retries, summaries."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.exceptions import ContextOverflowError, ModelRateLimitError, ModelTimeoutError
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)
from langgraph.checkpoint.memory import InMemorySaver

from tests.support import forked
from tests.testing.scripted_doors import DOORS, ask
from wick_graph.errors import ConfigError
from wick_graph.models.scripted.reply import ScriptedCut
from wick_graph.testing import (
    Lane,
    ScriptedModel,
    StepLike,
    UnexpectedModelCall,
    attempts,
    call,
    context_overflow,
    cut_stream,
    delay,
    empty,
    error,
    rate_limit,
    text,
    timeout,
)

SCRIPT = ["one", "two", "three", "four"]


def thread_of(model: ScriptedModel, turns: int) -> list[BaseMessage]:
    thread: list[BaseMessage] = []
    for turn in range(turns):
        thread.append(HumanMessage(f"question {turn}", id=f"q{turn}"))
        thread.append(model.invoke(thread))
    return thread


def answer(model: ScriptedModel, thread: list[BaseMessage]) -> str:
    return str(model.invoke(thread).content)


def test_a_thread_goes_through_the_script_turn_by_turn() -> None:
    thread = thread_of(ScriptedModel(SCRIPT), 4)
    assert [m.content for m in thread[1::2]] == SCRIPT


def test_every_new_thread_starts_at_the_beginning() -> None:
    model = ScriptedModel(SCRIPT)
    thread_of(model, 3)
    assert answer(model, [HumanMessage("hi", id="other")]) == "one"


def test_the_same_prompt_gets_the_same_step_again() -> None:
    model = ScriptedModel(SCRIPT)
    thread = thread_of(model, 2)
    assert [answer(model, thread[:3]) for _ in range(3)] == ["two"] * 3


def test_a_fork_goes_on_from_where_it_forks() -> None:
    model = ScriptedModel(SCRIPT)
    thread = thread_of(model, 3)
    assert answer(model, [*thread[:2], HumanMessage("another way")]) == "two"


def test_another_process_goes_on_where_this_one_stopped() -> None:
    thread = [*thread_of(ScriptedModel(SCRIPT), 2), HumanMessage("and now?")]
    program = (
        "import json, sys\n"
        "from langchain_core.messages import messages_from_dict\n"
        "from wick_graph.testing import ScriptedModel\n"
        "thread = messages_from_dict(json.load(sys.stdin))\n"
        f"print(ScriptedModel({SCRIPT!r}).invoke(thread).content)\n"
    )
    done = forked.run(
        [sys.executable, "-c", program],
        input=json.dumps(messages_to_dict(thread)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "three"


def test_a_thread_that_lost_its_metadata_is_counted() -> None:
    thread = thread_of(ScriptedModel(SCRIPT), 2)
    bare = [type(m)(content=m.content) for m in thread]
    assert answer(ScriptedModel(SCRIPT), [*bare, HumanMessage("next")]) == "three"


def test_faults_do_not_count_when_replies_are_counted() -> None:
    model = ScriptedModel([rate_limit(), "one", timeout(), empty(), "two"])
    thread = [HumanMessage("a"), AIMessage("one"), HumanMessage("b"), AIMessage("two")]
    with pytest.raises(UnexpectedModelCall, match="cursor: 5 of 5"):
        model.invoke([*thread, HumanMessage("c")])


def test_a_greeting_before_the_first_question_does_not_count() -> None:
    thread: list[BaseMessage] = [AIMessage("Welcome!"), HumanMessage("hi")]
    assert answer(ScriptedModel(SCRIPT), thread) == "one"


@pytest.mark.parametrize("place", [0, 2, 4])
def test_system_text_anywhere_does_not_move_the_cursor(place: int) -> None:
    model = ScriptedModel(SCRIPT)
    thread = [*thread_of(model, 2), HumanMessage("next")]
    thread.insert(place, SystemMessage("injected"))
    assert answer(model, thread) == "three"


def test_a_summary_that_keeps_one_reply_does_not_move_the_cursor() -> None:
    model = ScriptedModel(SCRIPT)
    thread = thread_of(model, 3)
    short = [HumanMessage("Summary: much was said."), *thread[-2:], HumanMessage("next")]
    assert answer(model, short) == "four"


def test_a_summary_without_any_reply_starts_over() -> None:
    model = ScriptedModel(SCRIPT)
    thread_of(model, 3)
    assert answer(model, [HumanMessage("Summary."), HumanMessage("next")]) == "one"


def test_a_reply_rewritten_by_hand_still_counts_once() -> None:
    model = ScriptedModel(SCRIPT)
    thread = thread_of(model, 2)
    thread[-1] = AIMessage("rewritten", id=thread[-1].id)
    assert answer(model, [*thread, HumanMessage("next")]) == "three"


def test_a_reply_of_another_script_does_not_count() -> None:
    backup = ScriptedModel(["from the backup"], model_name="backup")
    thread = thread_of(ScriptedModel(SCRIPT), 1)
    thread.append(HumanMessage("next"))
    reply = backup.invoke(thread)
    assert reply.content == "from the backup"
    assert reply.id == "msg_backup_1"
    assert answer(ScriptedModel(SCRIPT), [*thread, reply, HumanMessage("next")]) == "two"


def test_lanes_of_one_thread_have_cursors_of_their_own() -> None:
    lanes = [Lane("maths", ["m1", "m2"], when={"last": "sum"})]
    model = ScriptedModel(["t1", "t2"], lanes=lanes)
    thread: list[BaseMessage] = []
    for question in ("sum", "talk", "sum", "talk"):
        thread += [HumanMessage(question), model.invoke([*thread, HumanMessage(question)])]
    assert [m.content for m in thread[1::2]] == ["m1", "t1", "m2", "t2"]
    assert [m.id for m in thread[1::2]] == ["msg_maths_1", "msg_1", "msg_maths_2", "msg_2"]


def test_fifo_takes_the_steps_in_the_order_of_the_calls() -> None:
    model = ScriptedModel(["a", rate_limit(), "b"], cursor="fifo")
    assert answer(model, [HumanMessage("hi")]) == "a"
    with pytest.raises(ModelRateLimitError):
        model.invoke("hi")
    assert answer(model, [HumanMessage("hi")]) == "b"
    with pytest.raises(UnexpectedModelCall, match=r"cursor: 3 of 3 \(fifo\)"):
        model.invoke("hi")


def test_a_lane_may_have_another_cursor_than_the_script() -> None:
    lanes = [Lane("summary", ["s1", "s2"], when={"last": "^Summarise"}, cursor="fifo")]
    model = ScriptedModel(SCRIPT, lanes=lanes)
    prompts = ["Summarise", "hi", "Summarise", "hi"]
    assert [model.invoke(p).content for p in prompts] == ["s1", "one", "s2", "one"]


class TestFaults:
    @pytest.mark.parametrize("door", DOORS)
    async def test_the_retry_after_a_fault_gets_the_next_step(self, door: str) -> None:
        model = ScriptedModel([rate_limit(0.25), timeout(), "ok", "next"])
        with pytest.raises(ModelRateLimitError) as limited:
            await ask(model, "hi", door)
        with pytest.raises(ModelTimeoutError):
            await ask(model, "hi", door)
        reply = await ask(model, "hi", door)
        assert reply.content == "ok"
        thread = [HumanMessage("hi"), reply, HumanMessage("more")]
        assert (await ask(model, thread, door)).content == "next"
        problem: Any = limited.value
        assert problem.status_code == 429
        assert problem.response.headers["retry-after"] == "0.25"
        assert problem.is_retryable
        model.assert_complete()

    def test_attempts_is_another_way_to_write_it(self) -> None:
        model = ScriptedModel([attempts(rate_limit(), delay(0, timeout()), text("ok")), "next"])
        for expected in (ModelRateLimitError, ModelTimeoutError):
            with pytest.raises(expected):
                model.invoke("hi")
        reply = model.invoke("hi")
        assert reply.content == "ok"
        assert answer(model, [HumanMessage("hi"), reply, HumanMessage("more")]) == "next"

    def test_attempts_before_the_last_must_leave_nothing_behind(self) -> None:
        with pytest.raises(ConfigError, match="faults"):
            attempts("an answer", "another")

    def test_a_fault_is_raised_once_per_conversation(self) -> None:
        model = ScriptedModel([error("down"), "up"])
        for user in ("ann", "bob"):
            with pytest.raises(RuntimeError, match="down"):
                model.invoke([HumanMessage("hi", id=user)])
        for user in ("ann", "bob"):
            assert answer(model, [HumanMessage("hi", id=user)]) == "up"

    def test_the_next_message_after_a_failed_run_gets_the_next_step(self) -> None:
        model = ScriptedModel([error(ValueError("down")), "up"])
        with pytest.raises(ValueError, match="down"):
            model.invoke([HumanMessage("hi", id="a")])
        assert answer(model, [HumanMessage("hi", id="a"), HumanMessage("again", id="b")]) == "up"

    def test_a_fault_at_the_end_is_raised_every_time(self) -> None:
        model = ScriptedModel(["one", error(ValueError)])
        thread = [*thread_of(model, 1), HumanMessage("next")]
        for _ in range(3):
            with pytest.raises(ValueError, match=r"^$"):
                model.invoke(thread)
        model.assert_complete()

    def test_an_empty_reply_that_was_not_kept_is_not_given_again(self) -> None:
        model = ScriptedModel([empty(), "something"])
        assert answer(model, [HumanMessage("hi")]) == ""
        assert answer(model, [HumanMessage("hi")]) == "something"

    def test_an_empty_reply_that_was_kept_is_behind(self) -> None:
        model = ScriptedModel([empty(), "something", "more"])
        thread = [*thread_of(model, 2), HumanMessage("next")]
        assert [m.content for m in thread[1::2]] == ["", "something"]
        assert answer(model, thread) == "more"

    @pytest.mark.parametrize("door", ["stream", "astream"])
    async def test_a_stream_is_cut_after_its_chunks(self, door: str) -> None:
        model = ScriptedModel([cut_stream(2, "one two three four"), "whole"])
        got: list[str] = []

        async def read() -> None:
            if door == "stream":
                got.extend(str(chunk.content) for chunk in model.stream("hi"))
            async for chunk in model.astream("hi"):
                got.append(str(chunk.content))

        with pytest.raises(ScriptedCut, match="after 2 chunks"):
            await read()
        assert got == ["one", " two"]
        assert (await ask(model, "hi", door)).content == "whole"

    @pytest.mark.parametrize(("after", "chunks"), [(0, 0), (3, 3), (99, 4)])
    def test_a_cut_stream_never_ends_well(self, after: int, chunks: int) -> None:
        got: list[AIMessageChunk] = []
        with pytest.raises(ConnectionError):
            got.extend(ScriptedModel([cut_stream(after, "one two three four")]).stream("hi"))
        assert [c.content for c in got] == ["one", " two", " three", " four"][:chunks]

    def test_without_streaming_a_cut_comes_at_once(self) -> None:
        with pytest.raises(ConnectionError, match="after 0 chunks"):
            ScriptedModel([cut_stream(2)]).invoke("hi")

    @pytest.mark.parametrize("cursor", ["prompt", "fifo"])
    def test_an_overflow_lasts_until_the_prompt_is_short(self, cursor: str) -> None:
        model = ScriptedModel([context_overflow(above_tokens=10), "fits"], cursor=cursor)
        for _ in range(2):
            with pytest.raises(ContextOverflowError, match="longer than 10 tokens"):
                model.invoke([HumanMessage("x" * 44, id="a")])
        assert answer(model, [HumanMessage("x" * 40, id="a")]) == "fits"

    def test_threads_at_once_each_see_the_fault_once(self) -> None:
        model = ScriptedModel([rate_limit(), "ok"])
        outcomes: list[list[str]] = []
        gate = threading.Barrier(8)

        def run(user: int) -> None:
            seen = []
            gate.wait()
            for _ in range(3):
                try:
                    seen.append(answer(model, [HumanMessage("hi", id=str(user))]))
                except ModelRateLimitError:
                    seen.append("limited")
            outcomes.append(seen)

        threads = [threading.Thread(target=run, args=(user,)) for user in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert outcomes == [["limited", "ok", "ok"]] * 8


def test_it_plays_through_a_stock_agent_across_two_models_and_a_saver() -> None:
    def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    steps: list[StepLike] = [call("double", n=21), "It is 42.", call("double", n=4), "It is 8."]
    saver = InMemorySaver()
    config: Any = {"configurable": {"thread_id": "t"}}
    first: Any = create_agent(ScriptedModel(steps), tools=[double], checkpointer=saver)
    done = first.invoke({"messages": [("user", "21?")]}, config)
    assert done["messages"][-1].content == "It is 42."
    model = ScriptedModel(steps)
    second: Any = create_agent(model, tools=[double], checkpointer=saver)
    done = second.invoke({"messages": [("user", "4?")]}, config)
    assert done["messages"][-1].content == "It is 8."
    results = [m.content for m in done["messages"] if isinstance(m, ToolMessage)]
    assert results == ["42", "8"]
    model.assert_complete()


def test_messages_survive_a_round_trip_with_their_mark() -> None:
    thread = thread_of(ScriptedModel(SCRIPT), 1)
    back = messages_from_dict(json.loads(json.dumps(messages_to_dict(thread))))
    assert back[-1].response_metadata["script"] == {"name": "scripted", "lane": "main", "step": 0}
