"""What a model or a tool said acts on no terminal, also where it comes through a pipe."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.journal.support import agent_of
from wick_graph import ToolError, tool
from wick_graph.cli import output
from wick_graph.cli.app import call as command
from wick_graph.constants import TURNING
from wick_graph.debug import DebugSession
from wick_graph.debug.terminal import Shell
from wick_graph.picture.model import clean
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, call, calls

TURNED = "".join(map(chr, TURNING))
EVIL = f"\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\rred{TURNED}"
ACTS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{TURNED}]")
"""Control characters but for tabs and ends of lines, and what turns the direction of reading."""
Said = Callable[..., str]


@pytest.fixture
def evil(saver: SqlSaver) -> None:
    @tool(name="look")
    def look(where: str) -> str:
        """Look."""
        raise ToolError(f"nothing at {EVIL}")

    made_up = calls((f"no{EVIL}tool", {"x": EVIL}), unchecked=True)
    steps: list[Any] = [call("look", where=EVIL), made_up, f"It is {EVIL}."]
    agent, _ = agent_of(saver, hooks=[], tools=[look], model=ScriptedModel(steps))
    agent.invoke(f"Look at {EVIL}", thread_id="t")


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    def run(*arguments: str) -> str:
        command([*arguments])
        captured = capsys.readouterr()
        return captured.out + captured.err

    return run


@pytest.mark.sisters(2)
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("debug", "-t", "t", "--batch", "-e", script), id=script)
        for script in (
            "moments",
            "@error; bt; call; why messages[-1].content; state",
            "last; p messages; p messages[-1].content; state messages; display error; diff @1",
            "turn; turn; request; blame; response; search owned; tokens; info tools; compare 0 0",
            'log tool:* "{tool} {args} {error}"; catch error; c; hits 2; history messages',
        )
    ]
    + [
        pytest.param(("debug", "-t", "t", "--mi", "-e", "moments; @error; call"), id="mi"),
        pytest.param(("threads", "show", "t"), id="threads-show"),
        pytest.param(("threads", "show", "t", "--json"), id="threads-show-json"),
        pytest.param(("threads", "list"), id="threads-list"),
        pytest.param(("journal", "t"), id="journal"),
        pytest.param(("journal", "t", "--json"), id="journal-json"),
        pytest.param(("graph", "adder", "-t", "t"), id="graph"),
        *(
            pytest.param(("graph", "adder", "-t", "t", "--format", form), id=f"graph-{form}")
            for form in ("svg", "html", "mermaid", "dot")
        ),
    ],
)
def test_no_listing_in_a_pipe_holds_what_a_terminal_obeys(
    arguments: tuple[str, ...], evil: None, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", iter(["quit\n"]))
    text = said(*arguments)
    assert text.strip()
    assert ACTS.findall(text) == []


def test_programs_get_the_text_itself(
    evil: None, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", iter(["quit\n"]))
    told = said("debug", "-t", "t", "--mi", "-e", "last; state messages[0].content").splitlines()
    assert json.loads(told[1])["data"] == f"Look at {EVIL}"
    assert json.loads(said("threads", "show", "t", "--json"))["messages"][0]["content"] == (
        f"Look at {EVIL}"
    )


def test_the_list_is_that_of_the_standard() -> None:
    kinds = {unicodedata.bidirectional(chr(code)) for code in range(0x110000)}
    assert {unicodedata.bidirectional(char) for char in TURNED} >= {
        *("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
    } & kinds
    for mark in "\u200e\u200f\u061c":
        assert mark in TURNED


def test_the_page_shows_them_and_obeys_none(evil: None, said: Said, tmp_path: Path) -> None:
    where = tmp_path / "t.html"
    said("export", "-t", "t", "--to", "html", "-o", str(where))
    page = where.read_text("utf-8")
    assert re.findall(f"[{TURNED}]", page) == []
    assert "owned" in page
    assert "\\\\u202e" in page, "JSON for the six characters of an escape"


@pytest.mark.parametrize("char", TURNED)
def test_a_title_a_name_and_a_table_show_them(
    char: str, saver: SqlSaver, evil: None, said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    saver.threads.rename("t", f"gpj{char}.exe")
    listed = said("threads", "list")
    assert f"gpj\\u{ord(char):04x}.exe" in listed
    assert char not in listed
    assert char not in said("threads", "show", "t")
    output.table(("A", "B"), [(f"x{char}", f"y{char}")])
    assert char not in capsys.readouterr().out
    assert char not in clean(f"name{char}")


def test_the_prompt_of_a_person_holds_none(evil: None, saver: SqlSaver) -> None:
    with DebugSession.open(saver, "t") as session:
        shell = Shell(session)
        shell.execute("until kind == 'tool' and tool != 'look'")
        assert "owned" in shell.prompt
        assert ACTS.findall(shell.prompt) == []
