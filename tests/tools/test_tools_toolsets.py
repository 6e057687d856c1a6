"""The registry keeps its order; built-in tools come by name; `ls` stays in its directory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from wick_graph.backends import Root
from wick_graph.config.schema import SearchConfig
from wick_graph.errors import ConfigError, ToolError
from wick_graph.tools import (
    BUILTINS,
    BoundTool,
    FuncTool,
    ToolRegistry,
    ToolSetting,
    bind_tool,
    bind_tools,
    builtin,
)
from wick_graph.tools.builtin_tools import ls_tool
from wick_graph.tools.result import MAX_ENTRIES


def made(name: str, text: str = "") -> FuncTool[..., str]:
    return FuncTool(name, f"Say {text or name}", {"type": "object"}, lambda args: text or name)


def test_tools_are_kept_in_order() -> None:
    registry = ToolRegistry([made("b"), made("a")])
    bound = registry.register(made("c"))
    assert registry.names() == ("b", "a", "c")
    assert [tool.name for tool in registry.all()] == ["b", "a", "c"]
    assert [tool.name for tool in registry.list()] == ["b", "a", "c"]
    assert [tool.name for tool in registry] == ["b", "a", "c"]
    assert [schema["function"]["name"] for schema in registry.schemas()] == ["b", "a", "c"]
    assert registry.get("c") is bound
    assert registry.get("d") is None
    assert "a" in registry
    assert "d" not in registry
    assert len(registry) == 3


def test_a_name_that_is_taken_is_refused() -> None:
    registry = ToolRegistry([made("a", "old")])
    with pytest.raises(ConfigError, match="two tools are called a"):
        registry.register(made("a", "new"))
    assert registry.get("a").call({}, None) == "old"  # type: ignore[union-attr,arg-type]  # it is there


def test_an_override_takes_the_place() -> None:
    """L-07: a hook's tool runs where an agent's tool has its name."""
    registry = ToolRegistry([made("a", "old"), made("b")])
    registry.register(made("a", "new"), override=True)
    assert registry.names() == ("a", "b")
    assert registry.get("a").call({}, None) == "new"  # type: ignore[union-attr,arg-type]  # it is there


def test_names_clash_after_they_are_made_usable() -> None:
    with pytest.raises(ConfigError, match="two tools are called a_b"):
        bind_tools([made("a.b"), made("functions.a b")])


def test_a_copy_grows_by_itself() -> None:
    registry = ToolRegistry([made("a")])
    copy = registry.copy()
    copy.register(made("b"))
    assert (registry.names(), copy.names()) == (("a",), ("a", "b"))


# --- built-in tools


def test_built_in_tools_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    tools = builtin(["ls", "calculate", "add"], tmp_path)
    assert [tool.name for tool in tools] == ["ls", "calculate", "add"]
    assert {tool.replay for tool in tools} == {"safe"}
    assert all(isinstance(tool, BoundTool) and tool.description for tool in tools)


def test_every_built_in_tool_can_be_made(tmp_path: Path) -> None:
    search = SearchConfig(url="http://127.0.0.1:9/search")
    setting = ToolSetting(tmp_path, search)
    assert [BUILTINS[name](setting).name for name in BUILTINS] == list(BUILTINS)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        pytest.param(["calcluate"], "'calcluate'; did you mean calculate", id="D-17"),
        pytest.param(["xyz"], "no built-in tool 'xyz'; known are calculate, add, ls", id="unknown"),
        pytest.param(
            ["internet_search"],
            "internet_search needs an endpoint to ask; add search:",
            id="search",
        ),
        pytest.param(["add", "add"], "add is named twice", id="twice"),
    ],
)
def test_names_that_are_refused(tmp_path: Path, names: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        builtin(names, tmp_path)


def test_a_directory_is_needed_only_by_tools_that_use_one(tmp_path: Path) -> None:
    assert builtin(["calculate"], tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="cannot be opened"):
        builtin(["ls"], tmp_path / "nowhere")


# --- ls


def listing(root: Path, **args: Any) -> Any:
    bound = bind_tool(ls_tool(Root(root)))
    assert bound.check(args) is None
    return json.loads(bound.call(args, None))  # type: ignore[arg-type]  # it needs no context


def test_ls_gives_names_types_and_sizes(tmp_path: Path) -> None:
    """F-05."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "inner").write_text("1")
    (tmp_path / "a.txt").write_text("four")
    (tmp_path / "c").symlink_to("a.txt")
    assert listing(tmp_path) == [
        {"name": "a.txt", "type": "file", "size": 4},
        {"name": "b", "type": "dir", "size": 0},
        {"name": "c", "type": "symlink", "size": 0},
    ]
    inner = [{"name": "inner", "type": "file", "size": 1}]
    assert listing(tmp_path, path="b") == inner
    assert listing(tmp_path, path=f"{tmp_path}/b/") == inner
    assert listing(tmp_path, file_path="b") == inner
    assert listing(tmp_path, path="") == listing(tmp_path)


def test_the_schema_of_ls(tmp_path: Path) -> None:
    """K-08, K-08b, D-06: the path may be left out."""
    bound = bind_tool(ls_tool(Root(tmp_path)))
    assert bound.description == "List files and directories at the given path"
    assert bound.parameters["properties"]["path"]["type"] == "string"
    assert "required" not in bound.parameters
    assert (bound.replay, bound.max_output) == ("safe", None)
    assert bound.check({"path": 3}) is not None


@pytest.mark.parametrize("path", ["..", "../..", "/etc", "/", "link", "link/x", "a\0", "missing"])
def test_ls_stays_in_its_directory(tmp_path: Path, path: str) -> None:
    """F-04."""
    root = tmp_path / "w"
    root.mkdir()
    (root / "link").symlink_to("/etc")
    with pytest.raises(ToolError):
        listing(root, path=path)


def test_a_long_listing_says_what_is_missing(tmp_path: Path) -> None:
    for i in range(MAX_ENTRIES + 5):
        (tmp_path / f"{i:05}").touch()
    found = listing(tmp_path)
    assert len(found) == MAX_ENTRIES + 1
    assert found[0]["name"] == "00000"
    assert found[-1] == {"note": "5 more entries are not shown"}


def test_names_that_a_terminal_would_obey_are_escaped(tmp_path: Path) -> None:
    odd = ["new\nline", "esc\x1b[31m", "bidi\u202etxt", "zero\u200bwidth"]
    for name in odd:
        (tmp_path / name).touch()
    text = bind_tool(ls_tool(Root(tmp_path))).call({}, None)  # type: ignore[arg-type]  # no context
    assert text.isprintable()
    assert sorted(entry["name"] for entry in json.loads(text)) == sorted(odd)


def test_a_name_that_is_no_utf8_is_listed(tmp_path: Path) -> None:
    try:
        os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9", os.O_CREAT))
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    assert listing(tmp_path)[0]["name"] == "caf\\xe9"
