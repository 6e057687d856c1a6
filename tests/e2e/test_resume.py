"""`wick run` that has to ask, and `wick resume`, in processes of their own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Folder

AGENTS = """\
agents:
  default:
    model: scripted:talk.yaml
    tools: [calculate, request_user_input]
    approvals: {calculate: "len(expression) > 3"}
"""
CALLS = """\
steps:
  - calls:
      - {tool: calculate, args: {expression: 21*2}}
      - {tool: calculate, args: {expression: 1+1}}
      - {tool: calculate, args: {expression: 10*10}}
      - {tool: request_user_input, args: {question: "Which colour?", options: [red, blue]}}
  - "All done."
"""
ASKS = "r replace its result: "
REJECTED = "Error: the user rejected this call; it was not run: "


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path).write(agents=AGENTS, talk=CALLS)


def results(folder: Folder) -> list[str]:
    return [text for _, text in folder.messages("tool")]


def test_without_a_terminal_the_run_waits_and_says_how_to_answer(folder: Folder) -> None:
    ran = folder.wick("run", "-t", "mine", "Go")
    assert (ran.code, ran.out) == (0, "")
    first, second, third = re.findall(r"^\? \(([0-9a-f]{8})\)", ran.err, re.M)
    lines = ran.err.splitlines()
    assert f"? ({first}) may calculate run? the rule len(expression) > 3 holds" in lines
    assert '    "expression": "21*2"' in lines
    assert "← calculate: 2" in lines
    assert lines[lines.index(f"? ({third}) Which colour?") + 1 :][:2] == ["  1 red", "  2 blue"]
    assert "stopped: interrupted: the run waits for 3 answers" in lines
    flags = f"--approve {first}, --reject {first}, --edit {first}=JSON or --answer {first}=TEXT"
    assert f"  {flags}" in lines
    assert f"  --answer {third}=TEXT" in lines
    assert re.fullmatch(r"thread mine \(continue: .+ resume mine\)", lines[-1])

    edit = f'{first}={{"expression": "20+3"}}'
    some = folder.wick("resume", "mine", "--edit", edit, "--reject", f"{second[:5]}=too big")
    assert (some.code, some.out) == (0, "")
    assert some.err.splitlines()[0] == (
        "resuming; it had stopped: interrupted: the run waits for 3 answers"
    )
    assert "stopped: interrupted: the run waits for 1 answer" in some.err
    done = folder.wick("resume", "mine", "--answer", f"{third}=2", "--json")
    assert (done.code, done.err) == (0, "")
    assert (done.json["response"], done.json["stopped_because"]) == ("All done.", "done")
    assert results(folder) == ["23", "2", f"{REJECTED}too big", "blue"]


@pytest.mark.slow
def test_at_a_terminal_a_person_is_asked_at_once(folder: Folder) -> None:
    with folder.at_terminal("run", "-t", "mine", "Go") as terminal:
        shown = terminal.wait_for(ASKS)
        assert '"expression": "21*2"' in shown
        terminal.press("what?\n")
        terminal.wait_for(ASKS)
        terminal.press("y\n")
        terminal.wait_for('"expression": "10*10"')
        terminal.wait_for(ASKS)
        terminal.press("n\n")
        terminal.wait_for("why, for the model (Enter for no reason): ")
        terminal.press("no need\n")
        terminal.wait_for("2 blue")
        terminal.wait_for("answer: ")
        terminal.press("2\n")
        code, rest = terminal.end()
    assert code == 0
    assert "All done.\n" in rest
    assert rest.splitlines()[-1].startswith("thread mine (continue: ")
    assert terminal.shown.count('→ calculate(expression="21*2")') == 1
    assert results(folder) == ["42", "2", f"{REJECTED}no need", "blue"]


@pytest.mark.slow
def test_a_question_that_is_left_waits_and_is_asked_by_resume(folder: Folder) -> None:
    with folder.at_terminal("run", "-t", "mine", "Go") as terminal:
        terminal.wait_for(ASKS)
        terminal.interrupt("stopped: interrupted: the run waits for 3 answers")
        code, rest = terminal.end()
    assert code == 0
    assert re.search(r"thread mine \(continue: .+ resume mine\)\n\Z", rest)
    assert folder.thread().status == "waiting"

    with folder.at_terminal("resume", "mine") as terminal:
        terminal.wait_for("stopped: interrupted: the run waits for 3 answers")
        terminal.wait_for(ASKS)
        terminal.press("e\n")
        terminal.wait_for('arguments: {"expression": "21*2"}')
        terminal.press("\x15{\n")  # Ctrl-U takes the line away
        terminal.wait_for("the arguments are not JSON")
        terminal.wait_for(ASKS)
        terminal.press("e\n")
        terminal.wait_for('arguments: {"expression": "21*2"}')
        terminal.press('\x15{"expression": "7*7"}\n')
        terminal.wait_for(ASKS)
        terminal.press("r\n")
        terminal.wait_for("answer: ")
        terminal.press("A hundred.\n")
        terminal.wait_for("answer: ")
        terminal.press("\n")
        terminal.wait_for("answer: ")
        terminal.press("mauve\n")
        code, rest = terminal.end()
    assert code == 0
    assert "All done.\n" in rest
    assert results(folder) == ["49", "2", "A hundred.", "mauve"]


@pytest.mark.slow
def test_a_question_cannot_hide_anything_from_the_person(folder: Folder) -> None:
    args = json.dumps({"expression": "1+\u202e1\u200b\x1b[2J"})
    folder.write(talk=f"steps: [{{calls: [{{tool: calculate, args: {args}}}]}}, ok]")
    with folder.at_terminal("run", "-t", "mine", "Go") as terminal:
        shown = terminal.wait_for(ASKS)
        terminal.press("\x04")
        assert terminal.end()[0] == 0
    asked = shown[shown.index("may calculate run?") :]
    assert "\\u{202e}" in asked
    assert "\\u{200b}" in asked
    assert "\x1b" not in asked


@pytest.mark.sisters
@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (signal.SIGINT, "resuming; it had stopped: cancelled"),
        (
            signal.SIGKILL,
            "resuming; its last run has no end: its process died, or is still running",
        ),
    ],
)
def test_it_goes_on_after_a_run_that_was_cut_off(
    folder: Folder, sent: signal.Signals, why: str
) -> None:
    call = "{text: Wait., calls: [{tool: calculate, args: {expression: 1+1}}]}"
    folder.write(talk=f"steps: [{call}, {{delay: 80, text: Never.}}]")
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with folder.start("run", "-t", "mine", "Go", **pipes) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == '→ calculate(expression="1+1")\n'.encode()
        assert process.stderr.readline() == "← 2\n".encode()
        process.send_signal(sent)
        process.communicate(timeout=60)
    folder.write(talk=f"steps: [{call}, Ready.]")
    ended = folder.wick("resume", "mine")
    assert (ended.code, ended.out, ended.err.splitlines()[0]) == (0, "Ready.\n", why)
    assert results(folder) == ["2"]
