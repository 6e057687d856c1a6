"""`wick acp` in a process of its own: sessions, approvals, kills, and what is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError, schema

from tests.protocols.support import Editor, Process, editing, said, write
from wick_graph.config import load_config
from wick_graph.protocols.acp import Door
from wick_graph.server import Service

NOTES = '''\
import os

from wick_graph.tools import tool


print("loaded")


@tool(replay="never")
def note(text: str) -> str:
    """Note a text."""
    print("noted")
    os.system("echo from a child; cat")
    with open("noted.txt", "a") as file:
        file.write(text + "\\n")
    return "noted"
'''
WORDS = " ".join(f"word{i}" for i in range(120))
TELLS = f"""\
chunk_delay: 0.02
steps:
- {{text: I note it., calls: [{{tool: note, args: {{text: once}}}}]}}
- {WORDS}
- And again.
"""
NOTED = """\
store: sqlite:///wick.db
agents:
  default:
    model: scripted:tells.yaml
    tools: ['notes:note']
  careful:
    model: scripted:tells.yaml
    tools: ['notes:note']
    approvals: {note: true}
"""


async def ask(server: Any, key: str, text: str = "What is 21*2?") -> str:
    made = await server.prompt(session_id=key, prompt=said(text))
    reason: str = made.stop_reason
    return reason


async def begin(server: Any, path: Path, mode: str) -> str:
    made = await server.new_session(cwd=str(path))
    await server.set_session_mode(session_id=made.session_id, mode_id=mode)
    key: str = made.session_id
    return key


def test_sessions(tmp_path: Path) -> None:
    write(tmp_path)

    async def work() -> None:
        async with editing(tmp_path) as (editor, server, _):
            for part in (a_prompt, an_approval, a_plan_and_a_file, a_question, a_cancel, refusals):
                editor.shown.clear()
                editor.asked.clear()
                await part(tmp_path, editor, server)

    asyncio.run(work())


async def a_prompt(path: Path, editor: Editor, server: Any) -> None:
    made = await server.new_session(cwd=str(path))
    modes = [one.id for one in made.modes.available_modes]
    assert modes == ["default", "slow", "careful", "writer", "asks"]
    assert await ask(server, made.session_id) == "end_turn"
    call = ["tool_call", "tool_call_update", "tool_call_update"]
    assert editor.kinds() == ["agent_message_chunk", *call, "agent_message_chunk"]
    assert editor.text() == "Let me see.It is 42."
    assert [*editor.calls().values()] == [["pending", "in_progress", "completed"]]
    [result] = [one for one in editor.shown if getattr(one, "status", "") == "completed"]
    assert [one.content.text for one in result.content] == ["42"]
    live = [one.model_dump() for one in editor.shown]
    editor.shown.clear()
    await server.load_session(session_id=made.session_id, cwd=str(path))
    assert editor.text("user_message_chunk") == "What is 21*2?"
    assert editor.text() == "Let me see.It is 42."
    assert [*editor.calls().values()] == [["completed"]]
    assert [one.model_dump() for one in editor.shown[1:]][-1] == live[-1]
    listed = (await server.list_sessions(cwd=str(path))).sessions
    assert [(one.session_id, one.cwd) for one in listed] == [(made.session_id, str(path))]


async def an_approval(path: Path, editor: Editor, server: Any) -> None:
    key = await begin(server, path, "careful")
    assert await ask(server, key) == "end_turn"
    [(call, options)] = editor.asked
    assert (call.raw_input, options) == ({"expression": "21*2"}, ["allow_once", "reject_once"])
    assert editor.calls() == {call.tool_call_id: ["pending", "in_progress", "completed"]}
    editor.shown.clear()
    editor.decide = lambda call: "reject"
    assert await ask(server, key) == "end_turn"
    assert [*editor.calls().values()] == [["pending", "in_progress", "failed"]]
    editor.shown.clear()
    editor.decide = lambda call: "admin"  # an option that was not offered decides nothing
    assert await ask(server, key) == "cancelled"
    assert [*editor.calls().values()] == [["pending"]]
    editor.decide = lambda call: "approve"


async def a_plan_and_a_file(path: Path, editor: Editor, server: Any) -> None:
    key = await begin(server, path, "writer")
    assert await ask(server, key) == "end_turn"
    [plan] = [one for one in editor.shown if one.session_update == "plan"]
    assert [(one.content, one.status) for one in plan.entries] == [
        ("Write it", "in_progress"),
        ("Read it", "pending"),
    ]
    [(call, _)] = editor.asked
    assert [one.path for one in call.locations] == [str(path / "notes.md")]
    assert (call.content[1].path, call.content[1].new_text) == (str(path / "notes.md"), "Hello")
    assert (path / "notes.md").read_text() == "Hello"


async def a_question(path: Path, editor: Editor, server: Any) -> None:
    key = await begin(server, path, "asks")
    assert await ask(server, key) == "end_turn"
    assert editor.text() == "Which one\n- a\n- b"
    editor.shown.clear()
    assert await ask(server, key, "a") == "end_turn"
    assert editor.text() == "You chose."
    assert next(iter(editor.calls().values()))[-1] == "completed"
    assert editor.asked == []


async def a_cancel(path: Path, editor: Editor, server: Any) -> None:
    key = await begin(server, path, "slow")
    asked = asyncio.create_task(ask(server, key))
    await editor.until(lambda: "word3" in editor.text())
    await server.cancel(session_id=key)
    assert await asked == "cancelled"
    assert "word119" not in editor.text()
    key = await begin(server, path, "careful")
    editor.silent = True
    asked = asyncio.create_task(ask(server, key))
    await editor.until(lambda: editor.asked)
    await server.cancel(session_id=key)
    assert await asked == "cancelled"
    editor.silent = False
    assert await ask(server, key) == "end_turn"  # the call that nobody allowed is not run


async def refusals(path: Path, editor: Editor, server: Any) -> None:
    for work, words in (
        (server.new_session(cwd="here"), "cwd: give an absolute path"),
        (server.load_session(cwd=str(path), session_id="th_0"), "session not found"),
        (ask(server, "th_0"), "session not found"),
        (server.list_sessions(cursor="x"), "cursor: it is not one of ours"),
    ):
        with pytest.raises(RequestError, match=words):
            await work
    made = await server.new_session(
        cwd="/", mcp_servers=[schema.McpServerStdio(name="evil", command="x", args=[], env=[])]
    )
    with pytest.raises(RequestError, match="modeId: there is no agent 'evil'"):
        await server.set_session_mode(session_id=made.session_id, mode_id="evil")
    sound: Any = schema.AudioContentBlock(type="audio", data="AAAA", mime_type="audio/wav")
    with pytest.raises(RequestError, match=r"prompt\[0\]: audio with binary data is not taken"):
        await server.prompt(session_id=made.session_id, prompt=[sound])
    link: Any = schema.ResourceContentBlock(type="resource_link", name="a.py", uri="file:///a.py")
    assert (
        await server.prompt(session_id=made.session_id, prompt=[*said("Look at "), link])
    ).stop_reason == "end_turn"
    assert editor.text("agent_thought_chunk") == (
        "MCP servers are named in agents.yaml; not used: evil"
    )
    editor.shown.clear()
    await server.load_session(session_id=made.session_id, cwd=str(path))
    assert editor.text("user_message_chunk") == "Look at [@a.py](file:///a.py)"


def test_a_reply_that_the_provider_ended_early(tmp_path: Path) -> None:
    talk = "steps: [{text: It is, finish: length}, {text: I may, finish: content_filter}, whole]"
    write(tmp_path, talk=talk)

    async def ends() -> list[str]:
        async with editing(tmp_path) as (_, server, _):
            key = (await server.new_session(cwd=str(tmp_path))).session_id
            return [await ask(server, key, word) for word in ("a", "b", "c")]

    assert asyncio.run(ends()) == ["max_tokens", "refusal", "end_turn"]


async def test_a_prompt_that_is_cancelled_as_its_reply_is_cut_off_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, talk="steps: [{text: It is, finish: length}]")
    service = Service(load_config(tmp_path / "agents.yaml"))
    door, real = Door(service), Door._follow

    async def left(*args: Any) -> Any:
        end = await real(*args)
        await door.cancel(key)
        return end

    monkeypatch.setattr(Door, "_follow", left)
    try:
        door.on_connect(Editor())
        key = (await door.new_session(str(tmp_path))).session_id
        assert (await door.prompt(said("a"), key)).stop_reason == "cancelled"
    finally:
        await service.drain(1)
        service.close()


@pytest.mark.parametrize("end", ["killed", "left"])
def test_a_run_that_was_cut_off_goes_on_when_it_is_loaded(tmp_path: Path, end: str) -> None:
    write(tmp_path, agents=NOTED, tells=TELLS)
    (tmp_path / "notes.py").write_text(NOTES, "utf-8")

    async def begin_it() -> tuple[str, str]:
        async with editing(tmp_path, "--trust") as (editor, server, process):
            key = (await server.new_session(cwd=str(tmp_path))).session_id
            asked = asyncio.create_task(ask(server, key, "Note it."))
            await editor.until(lambda: "word3" in editor.text())
            if end == "killed":
                process.kill()
            else:
                assert await process.left() == 0
            with pytest.raises((ConnectionError, RequestError)):
                await asked
            return key, editor.text()

    async def go_on(key: str) -> None:
        async with editing(tmp_path, "--trust") as (editor, server, _):
            await server.load_session(session_id=key, cwd=str(tmp_path))
            await editor.until(lambda: "word119" in editor.text())
            assert await ask(server, key, "Again.") == "end_turn"
            assert editor.text("user_message_chunk") == "Note it."
            assert editor.text() == f"I note it.{WORDS}And again."
            assert [*editor.calls().values()] == [["completed"]]
            editor.shown.clear()
            await server.load_session(session_id=key, cwd=str(tmp_path))
            assert editor.text() == f"I note it.{WORDS}And again."

    key, shown = asyncio.run(begin_it())
    assert "word119" not in shown
    asyncio.run(go_on(key))
    assert (tmp_path / "noted.txt").read_text() == "once\n"


def test_an_approval_that_a_killed_process_asked_for(tmp_path: Path) -> None:
    write(tmp_path, agents=NOTED, tells=TELLS.replace("chunk_delay: 0.02\n", ""))
    (tmp_path / "notes.py").write_text(NOTES, "utf-8")

    async def begin_it() -> str:
        async with editing(tmp_path, "careful", "--trust") as (editor, server, process):
            made = await server.new_session(cwd=str(tmp_path))
            assert made.modes is None  # the command line chose the agent
            editor.silent = True
            asked = asyncio.create_task(ask(server, made.session_id))
            await editor.until(lambda: editor.asked)
            process.kill()
            with pytest.raises((ConnectionError, RequestError)):
                await asked
            key: str = made.session_id
            return key

    async def go_on(key: str) -> None:
        async with editing(tmp_path, "careful", "--trust") as (editor, server, process):
            await server.load_session(session_id=key, cwd=str(tmp_path))
            await editor.until(lambda: "word119" in editor.text())
            assert [call.raw_input for call, _ in editor.asked] == [{"text": "once"}]
            assert "loaded" in process.complaints()  # what is printed is no part of the protocol
            assert "from a child" in process.complaints()

    asyncio.run(go_on(asyncio.run(begin_it())))
    assert (tmp_path / "noted.txt").read_text() == "once\n"


def test_lines_that_are_no_messages(tmp_path: Path) -> None:
    write(tmp_path)

    async def work() -> list[dict[str, Any]]:
        process = Process(tmp_path, "default")
        try:
            writer, reader = await process.streams()
            for line in (
                b"{",
                b"[1]",
                b"",
                b"\xff",
                b"[" * 100_000,
                b'{"id": 1}',
                b'{"method": 1}',
            ):
                writer.write(line + b"\n")
            writer.write(
                b'{"jsonrpc": "2.0", "id": 7, "method": "session/nothing", "params": {}}\n'
            )
            answers = [json.loads(await reader.readline()) for _ in range(5)]
            writer.close()
            assert await process.ended() == 0
            return answers
        finally:
            process.kill()

    answers = asyncio.run(work())
    assert [one["id"] for one in answers] == [None] * 4 + [7]
    assert answers[0]["error"] == {"code": -32700, "message": "send one JSON object in each line"}
