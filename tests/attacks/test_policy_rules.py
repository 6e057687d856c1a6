"""No argument passes for a part of a rule, and no spelling of a path passes by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import wild
from wick_graph import Agent
from wick_graph.backends import LocalBackend
from wick_graph.expressions import compile_expression
from wick_graph.hooks import FilesystemHook
from wick_graph.hooks.approvals import ApprovalHook
from wick_graph.testing import ScriptedModel
from wick_graph.tools import FuncTool

OPEN = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}


def asks(rule: Any, schema: Any = OPEN, **args: Any) -> bool:
    ran: list[Any] = []

    def run(args: dict[str, Any]) -> str:
        ran.append(args)
        return "ran"

    free = FuncTool("free", "Take anything.", schema, run)
    model = ScriptedModel([wild("free", **args), "Done."])
    agent = Agent(model=model, tools=[free], hooks=[ApprovalHook({"free": rule})])
    stopped = agent.invoke("Go").stopped_because == "interrupted"
    assert stopped is not bool(ran)
    return stopped


@pytest.mark.parametrize(
    ("rule", "args"),
    [
        ("true", {"true": False}),
        ("path != null", {"path": "x", "null": "x"}),
        ("(path == 'x') == true", {"path": "x", "true": False}),
        ("not false", {"false": True}),
    ],
)
def test_words_are_words(rule: str, args: dict[str, Any]) -> None:
    properties: Any = {name: {} for name in ("true", "false", "null", "path")}
    assert asks(rule, {"type": "object", "properties": properties}, **args)


def test_words_are_words_in_expressions() -> None:
    names = {"true": False, "false": True, "null": 1}
    found = compile_expression("[true, false, null]").evaluate(names)
    assert found == [True, False, None]


@pytest.mark.parametrize(
    ("rule", "args", "expected"),
    [
        ("n > 5", {"n": 1}, False),
        ("n > 5", {"n": 1, "recursive": True}, True),
        ("n > 5", {"n": 1, "len": 3}, True),
        (False, {"n": 1, "recursive": True}, False),
    ],
)
def test_an_argument_that_the_schema_does_not_name_makes_a_rule_ask(
    rule: Any, args: dict[str, Any], expected: bool
) -> None:
    assert asks(rule, **args) is expected


@pytest.mark.sisters(6)
@pytest.mark.parametrize(
    "path",
    [
        "secret/key",
        "./secret/key",
        ".//secret///key",
        "safe/../secret/key",
        "safe/./../secret/./key",
        "secret/../secret/key",
        "../{name}/../{name}/secret/key",
        "{work}/secret/key",
        "/{work}/secret/key",
        "{work}/../{name}/secret/key",
        "{work}/safe/..//secret/key",
        "{link}/secret/key",
    ],
)
@pytest.mark.parametrize(
    "rule",
    [
        "glob(path, 'secret/*')",
        "glob(path, './secret/*')",
        "glob(path, '{work}/secret/*')",
        "glob(args.path, 'secret/*')",
        "glob(args['path'], 'secret//*')",
        "not glob(path, 'safe/*')",
        "not glob(path, '{work}/safe/*')",
        "any([glob(str(path), 'secret/*')])",
    ],
)
def test_glob_compares_the_file_and_not_its_spelling(tmp_path: Path, path: str, rule: str) -> None:
    work, link = tmp_path / "work", tmp_path / "link"
    for folder in ("secret", "safe"):
        (work / folder).mkdir(parents=True)
    link.symlink_to(work)
    names = {"work": work, "name": "work", "link": link}
    if "{link}" in path:
        names["work"] = link
        work = link
    with LocalBackend(work) as backend:
        hooks = [ApprovalHook({"write_file": rule.format(**names)}), FilesystemHook(backend)]
        given = path.format(**{**names, "work": tmp_path / "work"})
        step = wild("write_file", path=given, content="x")
        agent = Agent(model=ScriptedModel([step, "Done."]), hooks=hooks)
        assert agent.invoke("Go").stopped_because == "interrupted"
    assert not (tmp_path / "work/secret/key").exists()


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("safe/a", "not glob(path, 'safe/*')"),
        ("x/../safe/a", "not glob(path, 'safe/*')"),
        ("a..b/c", "glob(path, 'secret/*')"),
        ("secret/../a", "glob(path, 'secret/*')"),
    ],
)
def test_what_is_elsewhere_is_not_asked_about(path: str, rule: str) -> None:
    assert not asks(rule, path=path)


def test_texts_that_are_no_paths_are_compared_as_they_are() -> None:
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    assert asks("glob(command, '*a/../b*')", schema, command="rm a/../b")
    assert not asks("glob(command, 'rm b')", schema, command="rm a/../b")


@pytest.mark.parametrize("name", ["path", "file_path", "paths", "source", "destination", "cwd"])
def test_arguments_that_hold_paths_are_known_by_their_names(name: str) -> None:
    schema = {"type": "object", "properties": {name: {}}}
    given: Any = ["x/../secret/a"] if name == "paths" else "x/../secret/a"
    rule = f"glob({name}[0], 'secret/*')" if name == "paths" else f"glob({name}, 'secret/*')"
    assert asks(rule, schema, **{name: given})


def test_an_address_is_compared_as_it_is() -> None:
    schema = {"type": "object", "properties": {"source": {}}}
    assert asks("glob(source, 'https://x/*')", schema, source="https://x/a")
