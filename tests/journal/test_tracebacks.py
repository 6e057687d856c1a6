"""Each error keeps where it came from, in 4 kB, without values and without secrets."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import pytest

from tests.source import ROOT
from wick_graph import Agent, BaseHook
from wick_graph.debug import DebugSession
from wick_graph.journal.tracebacks import MAX_BYTES, lines_of, traceback_of
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel


def broken(secret: str) -> None:
    """Fail with a cause and a note."""
    try:
        raise KeyError("inner")
    except KeyError as inner:
        error = ValueError(f"outer {secret}")
        error.add_note("a note")
        raise error from inner


def raised(secret: str = "") -> ValueError:
    with pytest.raises(ValueError, match="outer") as info:
        broken(secret)
    return info.value


def test_an_error_keeps_type_message_notes_frames_and_cause() -> None:
    found = traceback_of(raised())
    assert found is not None
    assert [part["type"] for part in found] == ["ValueError", "KeyError"]
    assert found[0]["notes"] == ["a note"]
    file, line, function, source = found[0]["frames"][-1]
    assert (file, function, source) == (__file__, "broken", "raise error from inner")
    lines = lines_of(found)
    assert lines[:2] == ["ValueError: outer ", "  note: a note"]
    assert f"  {__file__}:{line} in broken" in lines
    assert "caused by:" in lines


def test_no_values_of_variables_are_kept() -> None:
    def fail(hidden: str) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as info:
        fail("hidden" * 3)
    assert "hiddenhidden" not in str(traceback_of(info.value))


def test_what_was_not_raised_has_no_traceback() -> None:
    assert traceback_of(ValueError("x")) is None
    assert traceback_of("x") is None


def test_a_long_error_is_cut_to_its_innermost_frames() -> None:
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise ValueError("x" * 9_000)

    with pytest.raises(ValueError, match="xxx") as info:
        deep(60)
    found = traceback_of(info.value)
    assert found is not None
    assert len(str(found).encode()) <= MAX_BYTES + 2
    assert found[0]["frames"][-1][2] == "deep"


def test_the_errors_of_an_agent_are_shown_with_their_lines_and_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret = "tok-0123456789-secret"
    monkeypatch.setenv("SOME_API_KEY", secret)

    class Breaking(BaseHook):
        def modify_request(self, request: Any, ctx: Any) -> Any:
            raised_here(secret)

    def raised_here(told: str) -> None:
        raise ValueError(f"broken {told}")

    with SqlSaver.from_url("sqlite://") as saver:
        agent = Agent("a", ScriptedModel(["hi"]), hooks=[Breaking()], store=saver)
        with pytest.raises(Exception, match="broken"):
            agent.invoke("hi", thread_id="t")
        with DebugSession.open(saver, "t") as session:
            session.goto("@error")
            told = session.inspect.details()
    text = "\n".join(told["traceback"])
    assert "in raised_here" in text
    assert str(ROOT) in text
    assert secret not in str(told)
    assert "•••" in text


def test_a_frame_without_a_line_is_shown_without_one() -> None:
    """Python has none for what it adds itself; Ctrl-C may come there."""
    made = compile("import sys; frame = sys._getframe()", "added.py", "exec")
    scope: dict[str, Any] = {}
    exec(made.replace(co_linetable=b""), scope)  # no other way to such a frame
    error = ValueError("x").with_traceback(TracebackType(None, scope["frame"], 0, -1))
    assert "added.py" in str(traceback_of(error))
