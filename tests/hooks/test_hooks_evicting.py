"""Results that are lists of content blocks: what is too long of them is kept in a file too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage

from tests.engine.support import Door
from wick_graph import Agent, FuncTool, ToolResult
from wick_graph.backends import LocalBackend
from wick_graph.hooks import FilesystemHook
from wick_graph.testing import ScriptedModel, call

IMAGE: dict[str, Any] = {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"}
HEAD, TAIL = "a" * 50_000, "b" * 50_000
BLOCKS: list[Any] = [IMAGE, {"type": "text", "text": HEAD}, TAIL, IMAGE]


def tool_of(result: Any) -> FuncTool[..., Any]:
    return FuncTool("look", "Look.", {"type": "object"}, lambda args, ctx: result(ctx))


MADE = [
    pytest.param(lambda ctx: ToolMessage(BLOCKS, tool_call_id=ctx.call_id), id="ToolMessage"),
    pytest.param(
        lambda ctx: ToolResult(ctx.call_id, "look", output=HEAD + TAIL, content=BLOCKS),
        id="ToolResult",
    ),
]


@pytest.mark.parametrize("made", MADE)
def test_the_text_of_blocks_is_kept_whole_and_shown_in_part(
    door: Door, tmp_path: Path, made: Any
) -> None:
    model = ScriptedModel([call("look"), "ok"])
    hooks = [FilesystemHook(LocalBackend(tmp_path))]
    result = door(Agent(model=model, tools=[tool_of(made)], hooks=hooks, store=False), "?")
    content: Any = result.messages[2].content
    first, text, last = content
    assert first == last == IMAGE
    shown = text["text"]
    assert shown.startswith("a" * 2_000 + "\n\n... (truncated 96000 characters) ...\n\n")
    assert shown.endswith("b" * 2_000)
    path = re.search(r"the whole result is in (\S+);", shown)
    assert path
    assert Path(path[1]).read_text() == HEAD + TAIL


@pytest.mark.parametrize("made", MADE)
def test_without_the_hook_it_is_cut_all_the_same(door: Door, made: Any) -> None:
    model = ScriptedModel([call("look"), "ok"])
    result = door(Agent(model=model, tools=[tool_of(made)], store=False), "?")
    content: Any = result.messages[2].content
    first, text, last = content
    assert first == last == IMAGE
    assert len(text["text"]) < 5_000
    assert "... (truncated 96000 characters) ..." in text["text"]


def test_blocks_that_are_short_enough_stay_as_they_are(door: Door, tmp_path: Path) -> None:
    blocks: list[Any] = [IMAGE, {"type": "text", "text": "x" * 80_000}]
    tool = tool_of(lambda ctx: ToolMessage(blocks, tool_call_id=ctx.call_id))
    model = ScriptedModel([call("look"), "ok"])
    hooks = [FilesystemHook(LocalBackend(tmp_path))]
    result = door(Agent(model=model, tools=[tool], hooks=hooks, store=False), "?")
    assert result.messages[2].content == blocks
    assert not (tmp_path / ".wick").exists()
