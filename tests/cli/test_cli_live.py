"""What a person sees of a run, event by event."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from wick_graph import events
from wick_graph.cli import output
from wick_graph.cli.watch import Live, call_text
from wick_graph.engine.result import Result


def end(text: str = "", **more: Any) -> events.Done:
    result = Result(
        text=text,
        thread_id="th_1",
        stopped_because="done",
        model="m",
        messages=[AIMessage(text)] if text else [],
    )
    return events.Done(result=result, **more)


def start() -> events.ChatModelStart:
    return events.ChatModelStart(name="m")


def piece(text: str) -> events.ChatModelStream:
    return events.ChatModelStream(name="m", delta=text)


def reply(text: str, calls: int = 0) -> events.ChatModelEnd:
    made = tuple({"id": str(i), "name": "t", "args": {}} for i in range(calls))
    return events.ChatModelEnd(name="m", content=text, tool_calls=made)


ANSWER = [start(), piece("It "), piece("is."), reply("It is."), end("It is.")]


@pytest.mark.parametrize(
    ("told", "tokens", "printed"),
    [
        pytest.param(ANSWER, True, "It is.\n", id="streamed"),
        pytest.param(ANSWER, False, "It is.\n", id="at the end"),
        pytest.param([start(), reply("Whole."), end("Whole.")], True, "Whole.\n", id="one piece"),
        pytest.param([start(), piece("a\n"), reply("a\n"), end("a\n")], True, "a\n", id="newline"),
        pytest.param([end("From a hook.")], True, "From a hook.\n", id="no model call"),
        pytest.param(
            [start(), piece("x"), reply("x", 1), end("Stopped.")], True, "x\nStopped.\n", id="limit"
        ),
        pytest.param([start(), piece("x"), reply("x", 1), end("y")], False, "y\n", id="last only"),
        pytest.param([start(), reply(""), end()], True, "", id="empty"),
    ],
)
def test_the_answer_is_printed_once(
    told: list[events.Event], tokens: bool, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    live = Live(tokens=tokens)
    for event in told:
        live(event)
    assert capsys.readouterr().out == printed
    assert live.result is not None


@pytest.mark.parametrize("tokens", [True, False])
def test_a_fallback_is_named_once(tokens: bool, capsys: pytest.CaptureFixture[str]) -> None:
    fails = events.ChatModelRetry(name="down", error="no", delay=0)
    live = Live(tokens=tokens)
    told: list[Any] = [start(), fails, fails, *ANSWER]
    for event in told:
        live(event)
    assert capsys.readouterr().err.splitlines()[2:] == ["m answers instead of down"]


def test_a_reply_that_begins_anew_stands_on_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    again = events.ChatModelRetry(name="m", error="cut\noff", delay=1.25)
    live = Live(tokens=True)
    for event in (start(), piece("It"), again, piece("It is."), reply("It is."), end("It is.")):
        live(event)
    out, err = capsys.readouterr()
    assert out == "It\nIt is.\n"
    assert err == "the model call failed (cut off); trying again in 1.2 s\n"


def test_calls_are_named_where_several_are_on_their_way(capsys: pytest.CaptureFixture[str]) -> None:
    live = Live(tokens=True)
    live(reply("", 1))
    live(events.ToolStart(name="one", args={"a": "b\nc"}, run_id="1"))
    live(events.ToolEnd(name="one", output="line\nline", run_id="1"))
    live(reply("", 2))
    live(events.ToolEnd(name="two", output="Error: no", error="no", run_id="2"))
    assert capsys.readouterr().err.splitlines() == [
        r'→ one(a="b\nc")',
        "← line line",
        "← two: failed: no",
    ]


def test_what_a_run_waits_for_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    live = Live(tokens=True)
    live(events.Interrupted(value="May I?"))
    live(events.Interrupted(value={"ask": "May I?"}))
    live(events.Interrupted())
    assert capsys.readouterr().err.splitlines() == [
        "? May I?",
        '? {"ask": "May I?"}',
        "? it is at a breakpoint",
    ]


def test_a_call_is_one_short_line() -> None:
    text = output.shorten(call_text("write", {"path": "a", "text": "é" * 5_000, "n": 1}), 100)
    assert text.startswith('write(path="a", text="ééé')
    assert text.endswith("…, n=1)")
    assert len(output.shorten("x" * 500, 100)) == 100


def test_control_characters_are_made_visible() -> None:
    every = "".join(map(chr, range(0xA0)))
    assert re.sub(r"[\n\t -~]", "", output.safe(every)).isprintable()
    assert output.safe("Zoë\n\t→ [b]") == "Zoë\n\t→ [b]"
