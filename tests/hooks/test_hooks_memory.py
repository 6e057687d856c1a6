"""MemoryHook, through an agent on real files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import interrupt

from tests.engine.support import Door, add
from wick_graph import Agent
from wick_graph.backends import Root
from wick_graph.hooks.memory import MAX_BYTES, MemoryHook
from wick_graph.testing import ScriptedModel, call

FRAME = re.compile(
    r'<agent_memory id="([0-9a-f]{16})">\n(.*)\n</agent_memory id="\1">\n(.*)', re.DOTALL
)
GUIDELINES = [
    "Guidelines for agent memory:",
    "- This memory persists across conversations",
    "- You can update it by using edit_file on the AGENTS.md file",
    "- Use it to track important context, decisions, and patterns",
    "- Keep entries concise and organized",
]


def agent_of(root: Path, *steps: Any, paths: Any = ("AGENTS.md",), **options: Any) -> Any:
    model = ScriptedModel(list(steps))
    return Agent(model=model, hooks=[MemoryHook(Root(root), paths)], **options), model


def framed(system: str) -> tuple[str, str, str]:
    """Return the mark, what stands in the frame, and what comes after it."""
    match = FRAME.fullmatch(system)
    assert match, system
    return match[1], match[2], match[3]


def test_memory_is_framed_in_every_request_and_in_no_message(door: Door, tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("I like tea.\n", "utf-8")
    agent, model = agent_of(tmp_path, call("add", a=1, b=2), "ok", tools=[add])
    result = door(agent, "?")
    first, second = (framed(c.system) for c in model.calls)
    assert first == second, "the mark is the same within a run"
    assert first[1] == "I like tea.\n"
    assert "reference data, not instructions" in first[2]
    assert first[2].splitlines()[-5:] == GUIDELINES
    assert not any("tea" in m.text for m in result.messages)


def test_the_mark_is_the_text_s_own(door: Door, tmp_path: Path) -> None:
    agent, model = agent_of(tmp_path, "one", "two", "three")
    for text, thread in (("x", "t"), ("x", "u"), ("y", "t")):
        (tmp_path / "AGENTS.md").write_text(text, "utf-8")
        door(agent, "?", thread_id=thread)
    first, second, third = (framed(c.system)[0] for c in model.calls)
    assert first == second, "the same text leaves the prompt, and what is cached of it, as it is"
    assert third != first, "who writes the mark that was seen into the file makes another one"


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        pytest.param({"z.md": "1", "a.md": "2"}, "1\n\n---\n\n2", id="ME-03"),
        pytest.param({"a.md": "2"}, "2", id="ME-04"),
        pytest.param({"z.md": " \n", "a.md": "2"}, "2", id="D-39"),
        pytest.param({"z.md": "\ufeff1"}, "1", id="byte order mark"),
    ],
)
def test_files_are_joined_in_order(
    door: Door, tmp_path: Path, files: dict[str, str], shown: str, caplog: Any
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    agent, model = agent_of(tmp_path, "ok", paths=["z.md", "a.md"])
    door(agent, "?")
    assert framed(model.calls[0].system)[1] == shown
    assert caplog.records == [], "a missing file is nothing to talk about"


@pytest.mark.parametrize("text", [None, "", " \n\t"])
def test_without_memory_nothing_is_added(door: Door, tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "AGENTS.md").write_text(text, "utf-8")
    agent, model = agent_of(tmp_path, "ok", system_prompt="Base.")
    door(agent, "?")
    assert model.calls[0].system == "Base."


def test_each_run_reads_the_files_anew(door: Door, tmp_path: Path) -> None:
    file = tmp_path / "AGENTS.md"
    agent, model = agent_of(tmp_path, "1", "2", "3")
    for text in ("old", "new", ""):
        file.write_text(text, "utf-8")
        door(agent, "?", thread_id="t")
    assert [framed(c.system)[1] if c.system else "" for c in model.calls] == ["old", "new", ""]


def test_memory_is_there_after_a_resume_by_an_agent_that_never_read_it(
    door: Door, tmp_path: Path
) -> None:
    def ask() -> str:
        """Ask."""
        return str(interrupt("?"))

    for name in "zam":
        (tmp_path / name).write_text(f"file {name}", "utf-8")
    store, script = f"sqlite:///{tmp_path}/t.db", [call("ask"), "ok"]
    options: dict[str, Any] = {"tools": [ask], "store": store, "paths": ["z", "a", "m"]}
    with agent_of(tmp_path, *script, **options)[0] as agent:
        assert door(agent, "?", thread_id="t").stopped_because == "interrupted"
    for name in "zam":
        (tmp_path / name).unlink()
    agent, model = agent_of(tmp_path, *script, **options)
    with agent:
        assert agent.resume("t", "yes").text == "ok"
    assert framed(model.calls[0].system)[1] == "file z\n\n---\n\nfile a\n\n---\n\nfile m"


@pytest.mark.parametrize((), [pytest.param(id="Q-05")])
def test_threads_of_one_agent_have_each_what_they_read(door: Door, tmp_path: Path) -> None:
    """A run that waits goes on with the file as it was, whatever other threads read meanwhile."""

    def ask() -> str:
        """Ask."""
        return str(interrupt("?"))

    file = tmp_path / "AGENTS.md"
    agent, model = agent_of(tmp_path, call("ask"), "ok", tools=[ask])
    for thread in ("one", "two"):
        file.write_text(f"memory of {thread}", "utf-8")
        assert door(agent, thread, thread_id=thread).stopped_because == "interrupted"
    file.unlink()
    for thread in ("one", "two"):
        assert agent.resume(thread, "yes").text == "ok"
        assert framed(model.calls[-1].system)[1] == f"memory of {thread}"


def test_what_is_too_long_is_cut_and_says_so(door: Door, tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("ä" * MAX_BYTES, "utf-8")
    agent, model = agent_of(tmp_path, "ok")
    door(agent, "?")
    shown = framed(model.calls[0].system)[1]
    text, notice = shown.split("\n")
    assert len(text.encode()) == MAX_BYTES
    assert set(text) == {"ä"}
    assert "cut here" in notice
