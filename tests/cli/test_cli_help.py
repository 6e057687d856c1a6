"""Help without an argument, short options that mean one thing, and the packages of extras."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from tests.source import ROOT
from wick_graph.cli.app import app, call
from wick_graph.errors import missing_extra


@pytest.mark.parametrize("group", [[], ["threads"], ["store"], ["token"], ["tools"]])
def test_a_group_without_a_command_shows_its_help(
    group: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(group) == 0
    bare = capsys.readouterr()
    assert call([*group, "--help"]) == 0
    assert bare == capsys.readouterr()
    assert bare.out.startswith(f"Usage: {' '.join(['wick', *group])} ")


def commands(group: Any, path: str = "wick") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def test_a_short_option_means_one_thing_in_every_command() -> None:
    meanings: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, command in commands(typer.main.get_command(app)):
        for option in command.params:
            for short in (opt for opt in option.opts if re.fullmatch("-[a-zA-Z]", opt)):
                long = next(opt for opt in option.opts if opt.startswith("--"))
                meanings[short][long].append(path)
    assert {short: dict(longs) for short, longs in meanings.items() if len(longs) > 1} == {}
    assert set(meanings["-c"]) == {"--config"}
    assert "wick debug" in meanings["-c"]["--config"]


def test_the_readme_names_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (every,) = project["optional-dependencies"]["all"]
    extras = re.fullmatch(r"wick-graph\[(.+)\]", every)
    assert extras is not None
    line = next(x for x in (ROOT / "README.md").read_text("utf-8").splitlines() if "pip inst" in x)
    assert re.findall(r"[a-z]+", line.partition("[")[2])[:1] == ["openai"]
    assert set(re.findall(r"[a-z0-9]+", line.partition("[")[2])) >= {*extras[1].split(","), "all"}


def test_every_missing_extra_is_named_with_its_command_and_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = set()
    for path in sorted((ROOT / "wick_graph").rglob("*.py")):
        text = path.read_text("utf-8")
        named |= set(re.findall(r"""missing_extra\([^)]*['"]([a-z]+)['"]\)""", text))
        assert "pip install 'wick-graph" not in text, path
        assert path.name == "errors.py" or 'pip install "wick-graph[' not in re.sub(
            r'"""(?s:.*?)"""', "", text
        ), path
    assert named <= set(project["optional-dependencies"])
    assert {"server", "mcp", "postgres", "encrypt", "docker", "cost", "otel"} <= named
    said = missing_extra("an encrypted store", "cryptography", "encrypt")
    assert said == (
        "an encrypted store needs cryptography, which is not installed; "
        'run pip install "wick-graph[encrypt]"'
    )
