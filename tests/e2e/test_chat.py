"""`wick chat` as a person meets it: a process of its own, at a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import wick_graph
from tests.support.command import Folder, Terminal

AGENTS = """\
agents:
  default:
    model: scripted:talk.yaml
    tools: [calculate, request_user_input]
    approvals: {calculate: "len(expression) > 3"}
    max_iterations: 9
  other: {model: 'scripted:talk.yaml'}
"""
PROMPT = "\n> "
ASKS = "r replace its result: "


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path).write(agents=AGENTS)


def kinds(folder: Folder) -> list[str]:
    return [kind for kind, _ in folder.messages()]


def say(terminal: Terminal, text: str, shown: str = PROMPT) -> str:
    terminal.press(f"{text}\n")
    return terminal.wait_for(shown)


def test_a_talk(folder: Folder) -> None:
    call = "{text: Let me see., calls: [{tool: calculate, args: {expression: 1+1}}]}"
    folder.write(talk=f"steps: [Good day., {call}, 'It is 2, voilà.']")
    with folder.at_terminal("chat", "-t", "mine") as terminal:
        begun = terminal.wait_for(PROMPT)
        assert "default (scripted:talk.yaml), thread mine; /help lists" in begun
        assert say(terminal, "Hello").startswith("Hello\nGood day.\n")
        answer = say(terminal, "What is 1+1?").splitlines()
        assert answer == [
            "What is 1+1?",
            "Let me see.",
            '→ calculate(expression="1+1")',
            "← 2",
            "It is 2, voilà.",
            "> ",
        ]
        assert say(terminal, "") == "\n> "
        helped = say(terminal, "/help")
        commands = ["help", "model", "thread", "threads", "new", "undo", "resume", "quit"]
        assert re.findall(r"^/(\w+) .*  ", helped, re.M) == commands
        assert re.search(
            r"thread mine \(continue: .+ run -t mine \"…\"\)", say(terminal, "/thread")
        )
        assert "unknown command /hlp; did you mean /help?" in say(terminal, "/hlp")
        assert "unknown command /x; /help lists the commands" in say(terminal, "/x")
        assert "/quit takes nothing behind it" in say(terminal, "/quit now")
        assert "there is nothing to resume" in say(terminal, "/resume")
        terminal.press("/quit\n")
        code, rest = terminal.end()
    assert code == 0
    assert re.search(r"thread mine \(continue: .+ run -t mine \"…\"\)\n\Z", rest)
    assert kinds(folder) == ["human", "ai", "human", "ai", "tool", "ai"]


def test_the_last_turn_is_taken_back_and_threads_and_models_change(folder: Folder) -> None:
    call = "{text: Let me see., calls: [{tool: calculate, args: {expression: 1+1}}]}"
    folder.write(talk=f"steps: [First., {call}, Second., Third.]", brief="steps: [Brief.]")
    folder.write(agents=AGENTS.replace("    max_iterations: 9\n", "    ttl: never\n"))
    with folder.at_terminal("chat", "-t", "mine") as terminal:
        terminal.wait_for(PROMPT)
        assert "there is nothing to undo" in say(terminal, "/undo")
        say(terminal, "One")
        say(terminal, "Two")
        undone = say(terminal, "/undo")
        assert "what its tools have done stays done" in undone
        assert "Thread mine keeps them (/threads mine)" in undone
        other = re.search(r"^thread (th_\w+)$", undone, re.M)
        assert other is not None
        assert "Let me see." in say(terminal, "Three")
        assert "the model is scripted:talk.yaml" in say(terminal, "/model")
        assert "wick: The model 'nix' names no provider" in say(terminal, "/model nix")
        assert "the model is scripted:brief.yaml" in say(terminal, "/model scripted:brief.yaml")
        listed = say(terminal, "/threads")
        assert f"* {other[1]}  One\n" in listed
        assert "  mine  One" in listed
        assert "thread mine" in say(terminal, "/threads min")
        assert "there is no thread nope" in say(terminal, "/threads nope")
        fresh = re.search(r"^thread (th_\w+)$", say(terminal, "/new"), re.M)
        assert fresh is not None
        assert "Brief." in say(terminal, "Four")
        say(terminal, "/undo")
        terminal.press("\x04")
        code, rest = terminal.end()
    assert code == 0
    assert "-m scripted:brief.yaml" in rest
    assert folder.messages("human") == [("human", "One"), ("human", "Two")]
    assert folder.messages("human", thread_id=other[1]) == [("human", "One"), ("human", "Three")]
    assert folder.messages("human", thread_id=fresh[1]) == [("human", "Four")]


def test_the_part_of_a_reply_that_was_shown_before_ctrl_c_is_in_the_thread(folder: Folder) -> None:
    folder.write(talk="{chunk_delay: 0.1, steps: ['one two three " + "four " * 300 + "']}")
    folder.write(brief="{cursor: fifo, steps: [Brief.]}")
    with folder.at_terminal("chat", "-t", "mine") as terminal:
        terminal.wait_for(PROMPT)
        shown = say(terminal, "Go", "three")
        terminal.press("\x03")
        shown += terminal.wait_for("stopped: cancelled; /resume continues it")
        terminal.wait_for(PROMPT)
        say(terminal, "/model scripted:brief.yaml")
        assert "Brief." in say(terminal, "Shorter")
        terminal.press("\x04")
        terminal.end()
    held = folder.messages()
    assert [kind for kind, _ in held] == ["human", "ai", "human", "ai"]
    said = re.search(r"one two three(?: four)*", " ".join(shown.split()))
    assert said is not None
    # All that was shown, and at most the word that came as the key was pressed.
    assert held[1][1].strip() in (said[0], f"{said[0]} four")


@pytest.mark.slow
def test_questions_are_asked_in_the_talk(folder: Folder) -> None:
    calls = (
        "{calls: [{tool: calculate, args: {expression: 21*2}},"
        " {tool: request_user_input, args: {question: 'Which?', options: [red, blue]}}]}"
    )
    folder.write(talk=f"steps: [{calls}, Thanks.]")
    with folder.at_terminal("chat", "-t", "mine") as terminal:
        terminal.wait_for(PROMPT)
        say(terminal, "Go", ASKS)
        assert "? (" in say(terminal, "y", "answer: ")
        answered = say(terminal, "1")
        assert "← request_user_input: red\n" in answered
        assert "← calculate: 42\n" in answered
        assert answered.endswith("\nThanks.\n> ")
        terminal.press("\x04")
        code, _ = terminal.end()
    assert code == 0
    assert kinds(folder) == ["human", "ai", "tool", "tool", "ai"]


@pytest.mark.slow
def test_a_question_that_is_left_waits_and_is_asked_again(folder: Folder) -> None:
    call = "{calls: [{tool: calculate, args: {expression: 21*2}}]}"
    folder.write(talk=f"steps: [{call}, Thanks.]")
    with folder.at_terminal("chat", "-t", "mine") as terminal:
        terminal.wait_for(PROMPT)
        say(terminal, "Go", ASKS)
        terminal.interrupt("stopped: interrupted: the run waits for 1 answer")
        terminal.wait_for("/resume asks again; a new message continues without the answers")
        terminal.wait_for(PROMPT)
        say(terminal, "/resume", ASKS)
        terminal.press("\x04")
        terminal.wait_for(PROMPT)
        terminal.press("\x04")
        code, rest = terminal.end()
    assert code == 0
    assert re.search(r"thread mine \(continue: .+ resume mine\)\n\Z", rest)
    with folder.at_terminal("chat", "--thread", "mine") as terminal:
        terminal.wait_for(ASKS)
        assert "Thanks." in say(terminal, "y")
        terminal.press("\x04")
        assert terminal.end()[0] == 0


def test_ctrl_c_cancels_the_run_and_not_the_talk(folder: Folder) -> None:
    call = "{text: Wait., calls: [{tool: calculate, args: {expression: 1+1}}]}"
    folder.write(talk=f"steps: [{call}, {{delay: 80, text: Never.}}]")
    with folder.at_terminal("chat", "-t", "mine") as terminal:
        terminal.wait_for(PROMPT)
        say(terminal, "Go", "← 2\n")
        terminal.press("\x03")
        assert "stopped: cancelled; /resume continues it" in terminal.wait_for(PROMPT)
        terminal.press("half a line")
        terminal.interrupt("Ctrl-D quits")
        terminal.wait_for(PROMPT)
        assert terminal.process.poll() is None
        say(terminal, "/resume", "/resume\n")
        terminal.interrupt(PROMPT)
        terminal.press("\x04")
        assert terminal.end()[0] == 0
    thread = folder.thread()
    assert (thread.status, thread.stopped_because) == ("idle", "cancelled")


@pytest.mark.slow
def test_a_run_that_fails_does_not_end_the_talk(folder: Folder) -> None:
    folder.write(talk="steps: [{error: the cable is out}]")
    with folder.at_terminal("chat", "-t", "mine") as terminal:
        terminal.wait_for(PROMPT)
        assert re.search(r"\nwick: LLM call: .+the cable is out\n", say(terminal, "Hello"))
        assert re.search(r"\nwick: LLM call: .+the cable is out\n", say(terminal, "/resume"))
        terminal.press("\x04")
        assert terminal.end()[0] == 0
    assert kinds(folder) == ["human"]


@pytest.mark.slow
def test_threads_whose_time_is_up_go_meanwhile_and_the_own_one_stays(folder: Folder) -> None:
    """The sweeper is at work; the thread of the talk is kept alive."""
    folder.write(talk="steps: [Good day., Still here.]")
    text = AGENTS.replace("max_iterations: 9", "ttl: 0.6s")
    folder.write(agents=text)
    with wick_graph.load(folder.path / "agents.yaml") as agents:
        agents["default"].invoke("Hello", thread_id="old")
    sweeps = "import sys; from wick_graph.store import SqlSaver; from wick_graph.cli import main\n"
    sweeps += "own = SqlSaver.sweeper\nSqlSaver.sweeper = lambda self: own(self, 0.05)\n"
    sweeps += "sys.argv = ['wick', 'chat', '-t', 'mine']\nmain()\n"
    (folder.path / "quick.py").write_text(sweeps, "utf-8")
    with folder.at_terminal(script="quick.py") as terminal:
        terminal.wait_for(PROMPT)
        say(terminal, "Hello")
        with folder.store as store:
            first = store.threads.list()[0].last_access
            left = store.threads.list()
            while [t.thread_id for t in left] != ["mine"] or left[0].last_access == first:
                left = store.threads.list()
        assert "Still here." in say(terminal, "And now?")
        terminal.press("\x04")
        assert terminal.end()[0] == 0


@pytest.mark.slow
def test_without_a_terminal_there_is_no_talk(folder: Folder) -> None:
    refused = folder.wick("chat")
    says = 'wick: wick chat needs a terminal; elsewhere use wick run "…"\n'
    assert (refused.code, refused.out, refused.err) == (2, "", says)


@pytest.mark.slow
def test_an_agent_that_is_not_there_is_refused(folder: Folder) -> None:
    with folder.at_terminal("chat", "nobody") as terminal:
        code, shown = terminal.end()
    assert code == 2
    assert "no agent nobody" in shown
