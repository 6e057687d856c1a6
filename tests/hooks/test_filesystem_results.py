"""Long results of tools: kept whole in a file, shown in part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import Door, async_door, sync_door, wild
from tests.hooks.filing import one, run, told
from wick_graph import Agent
from wick_graph.backends import FileSystem, LocalBackend, saved_results
from wick_graph.constants import MAX_RESULT_CHARS, RESULT_HEAD_CHARS, RESULT_TAIL_CHARS
from wick_graph.testing import ScriptedModel, calls
from wick_graph.tools import FuncTool, tool


def big(args: dict[str, Any]) -> str:
    """Return a text of the length that is asked for."""
    return "".join(str(i % 10) for i in range(args["n"]))


BIG = FuncTool(
    "big",
    "Return a long text",
    {"type": "object", "properties": {"n": {"type": "integer"}}},
    big,
)


@pytest.mark.parametrize("door", [sync_door, async_door])
def test_a_long_result_is_kept_whole_and_shown_in_part(local: LocalBackend, door: Door) -> None:
    whole, n = big({"n": 200_000}), 200_000
    exact, cut = told(
        run(
            local,
            wild("big", n=MAX_RESULT_CHARS),
            wild("big", n=n),
            tools=[BIG],
            door=door,
        )
    )
    assert exact == big({"n": MAX_RESULT_CHARS})
    head, tail = whole[:RESULT_HEAD_CHARS], whole[-RESULT_TAIL_CHARS:]
    assert cut.startswith(f"{head}\n\n... (truncated {n - 4_000} characters) ...\n\n[")
    assert cut.endswith(tail)
    assert len(cut) < 5_000
    path = cut.split("whole result is in ")[1].split(";")[0]
    assert path.startswith(f"{local.workdir}/.wick/results/big-")
    assert Path(path).read_text() == whole
    assert one(local, "read_file", path=path) == whole
    assert len(json.loads(one(local, "grep", pattern="0123", path=path))["matches"]) == 1
    assert (Path(local.workdir) / ".wick" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("size", [MAX_RESULT_CHARS + 1])
def test_the_first_character_too_many_cuts(fs: FileSystem, size: int) -> None:
    (cut,) = told(run(fs, wild("big", n=size), tools=[BIG]))
    assert f"... (truncated {size - 4_000} characters) ..." in cut


def test_what_the_file_tools_give_comes_back_whole(local: LocalBackend) -> None:
    text = "0123456789\n" * 20_000
    local.write("t", text.encode())
    assert one(local, "read_file", path="t") == text
    result = run(local, wild("execute", command="cat t t t t"))
    assert "... (truncated" in told(result)[0]


def test_a_tool_that_says_so_is_never_cut(local: LocalBackend) -> None:
    @tool(max_output=None)
    def long() -> str:
        """Return much."""
        return "x" * 100_000

    @tool(max_output=5_000)
    def short() -> str:
        """Return less than is usual."""
        return "y" * 6_000

    whole, cut = told(run(local, calls(("long", {}), ("short", {})), tools=[long, short]))
    assert whole == "x" * 100_000
    assert "... (truncated 2000 characters) ..." in cut


def test_without_the_hook_a_long_result_is_cut_all_the_same() -> None:
    script = ScriptedModel([wild("big", n=100_000), "done"])
    (cut,) = told(Agent(model=script, tools=[BIG], store=False).invoke("go"))
    assert "... (truncated 96000 characters) ..." in cut
    assert "whole result" not in cut


def test_a_result_that_cannot_be_kept_is_cut_all_the_same(tmp_path: Path) -> None:
    (tmp_path / ".wick").symlink_to("/nowhere")
    (cut,) = told(run(LocalBackend(tmp_path), wild("big", n=100_000), tools=[BIG]))
    assert "... (truncated 96000 characters) ..." in cut
    assert "whole result" not in cut


def test_old_results_give_way(local: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_results, "MAX_KEPT_FILES", 3)
    for i in range(6):
        local.keep(f"r{i}", b"x")
    assert len(local.ls(".wick/results").entries) == 3
    monkeypatch.setattr(saved_results, "MAX_KEPT_BYTES", 10)
    local.keep("big", b"x" * 9)
    assert sum(entry.size for entry in local.ls(".wick/results").entries) <= 10
