"""`wick run` that has to ask where nobody can be asked, and every option of `wick resume`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wick_graph
from tests.support.command import Ended, Folder
from wick_graph.cli.app import call
from wick_graph.testing import ScriptedModel

AGENTS = """\
agents:
  default:
    model: scripted:talk.yaml
    tools: [calculate, request_user_input]
    approvals: {calculate: "len(expression) > 3"}
    max_iterations: 3
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
Wick = Callable[..., Ended]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path).write(agents=AGENTS, talk=CALLS)


@pytest.fixture
def wick(folder: Folder, capsys: pytest.CaptureFixture[str]) -> Wick:
    def run(*args: str) -> Ended:
        capsys.readouterr()
        return Ended(call(args), *capsys.readouterr())

    return run


def ids(ended: Ended) -> list[str]:
    """Read the ids as a person does, in the order in which they are shown."""
    return re.findall(r"^\? \(([0-9a-f]{8})\)", ended.err, re.M)


def test_all_calls_are_approved_at_once_and_questions_are_not(wick: Wick, folder: Folder) -> None:
    asked = wick("run", "-t", "mine", "Go", "--json")
    assert asked.code == 0
    assert len(asked.json["interrupts"]) == 3
    waiting = wick("resume", "mine", "--json").json
    assert waiting["stopped_because"] == "interrupted"
    assert [i["value"]["index"] for i in waiting["interrupts"]] == [0, 2, 3]
    left = wick("resume", "mine", "--all-approve", "--json")
    (question,) = left.json["interrupts"]
    assert question["value"]["question"] == "Which colour?"
    done = wick("resume", "mine", "--answer", f"{question['id']}=green")
    assert (done.code, done.out) == (0, "All done.\n")
    assert [text for _, text in folder.messages("tool")] == ["42", "2", "100", "green"]


def test_an_option_for_one_call_counts_before_the_one_for_all(wick: Wick, folder: Folder) -> None:
    first, second, third = ids(wick("run", "-t", "mine", "Go"))
    args = ("--answer", f"{first}=A hundred.", "--answer", f"{third}=1", "--all-approve")
    assert wick("resume", "mine", *args).code == 0
    assert [text for _, text in folder.messages("tool")] == ["A hundred.", "2", "100", "red"]


def test_events_can_be_had_as_lines(wick: Wick) -> None:
    assert wick("run", "-t", "mine", "Go").code == 0
    lines = wick("resume", "mine", "--all-approve", "--json", "--stream").out.splitlines()
    told = [json.loads(line) for line in lines]
    assert [e["event"] for e in told if e["event"] in ("interrupt", "done")] == [
        "interrupt",
        "done",
    ]
    (asked,) = [e for e in told if e["event"] == "interrupt"]
    assert asked["run_id"] == asked["data"]["value"]["call_id"]


@pytest.mark.sisters(3)
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nobody"], "there is no thread nobody; `wick threads list` shows the threads"),
        (["a b"], "the thread id 'a b' is refused"),
        (["mine", "--approve", "zz"], "the id 'zz' fits no open question; waiting: "),
        (["mine", "--approve", ""], "the id '' fits no open question"),
        (["mine", "--approve", "QUESTION"], "this is a question; write --answer"),
        (["mine", "--edit", "CALL"], "write --edit ID=JSON"),
        (["mine", "--edit", "CALL={"], "the arguments are not JSON"),
        (["mine", "--edit", "CALL=3"], "the arguments are not a JSON object"),
        (["mine", "--answer", "CALL"], "write --answer ID=TEXT"),
        (["mine", "--approve", "CALL", "--reject", "CALL"], "a question is answered twice"),
    ],
)
def test_what_is_refused_gets_one_sentence_and_changes_nothing(
    wick: Wick, folder: Folder, args: list[str], says: str
) -> None:
    first, _, question = ids(wick("run", "-t", "mine", "Go"))
    named = [arg.replace("CALL", first).replace("QUESTION", question) for arg in args]
    refused = wick("resume", *named)
    (line,) = refused.err.splitlines()
    assert (refused.code, refused.out) == (2, "")
    assert says in line
    assert ids(wick("resume", "mine"))[::2] == [first, question]


def test_looking_for_a_thread_creates_nothing(wick: Wick, folder: Folder) -> None:
    assert wick("resume", "mine").code == 2
    assert not (folder.path / "checkpoints").exists()


def test_arguments_that_the_tool_refuses_are_asked_about_again(wick: Wick) -> None:
    first, *_ = ids(wick("run", "-t", "mine", "Go"))
    again = wick("resume", "mine", "--edit", f'{first}={{"expr": 3}}')
    assert again.code == 0
    assert "expression: missing" in again.err or "expression: expected string" in again.err
    assert len(ids(again)) >= 3


def test_the_list_of_threads_shows_what_they_wait_for(wick: Wick) -> None:
    assert wick("run", "-t", "mine", "Go").code == 0
    shown = wick("threads", "show", "mine").out
    rule = "may calculate run? the rule len(expression) > 3 holds"
    assert f"waits for  {rule}; {rule}; Which colour?\n" in shown


# --- why it stopped ------------------------------------------------------------------------------


def stopped(wick: Wick) -> list[str]:
    ended = wick("resume", "mine")
    assert ended.code == 0, ended.err
    first = ended.err.splitlines()[0]
    assert first.startswith("resuming; it had stopped: ")
    return [first.removeprefix("resuming; it had "), ended.out]


def test_a_thread_that_is_done_has_nothing_to_go_on_with(wick: Wick, folder: Folder) -> None:
    folder.write(talk="steps: [Hello.]")
    assert wick("run", "-t", "mine", "Hi").code == 0
    over = wick("resume", "mine")
    assert (over.code, over.out) == (0, "")
    first, second, third = over.err.splitlines()
    assert first == "stopped: done"
    assert second == "there is nothing to resume; send a new message"
    assert re.fullmatch(r"thread mine \(continue: .+ run -t mine \"…\"\)", third)
    assert wick("resume", "mine", "--json").json["response"] == "Hello."


def test_it_goes_on_after_the_limit_with_a_word(wick: Wick, folder: Folder) -> None:
    step = "{call: calculate, args: {expression: 1+1}, unchecked: true}"
    folder.write(talk=f"steps: [{step}, {step}, {step}, Ready.]")
    assert wick("run", "-t", "mine", "Count").code == 0
    limit = "stopped: limit: the agent may make 3 model calls in one run"
    assert stopped(wick) == [limit, "Ready.\n"]
    assert folder.messages("human") == [("human", "Count"), ("human", "Go on.")]


def test_it_goes_on_after_a_failure(wick: Wick, folder: Folder) -> None:
    folder.write(talk="steps: [{error: the cable is out}]")
    assert wick("run", "-t", "mine", "Hello").code == 1
    folder.write(talk="steps: [Hello.]")
    why, out = stopped(wick)
    assert why.startswith("stopped: failed: LLM call: ")
    assert out == "Hello.\n"
    first, record, last = folder.messages()
    assert (first, last) == (("human", "Hello"), ("ai", "Hello."))
    assert record == ("chat", "LLM call: RuntimeError: the cable is out")


def test_it_goes_on_after_an_empty_reply(wick: Wick, folder: Folder) -> None:
    folder.write(talk="steps: ['']")
    assert "stopped: empty" in wick("run", "-t", "mine", "Hello").err
    folder.write(talk="steps: [Now.]")
    assert stopped(wick) == ["stopped: empty: the model gave no answer", "Now.\n"]


def test_it_goes_on_from_a_breakpoint(wick: Wick, folder: Folder) -> None:
    folder.write(talk="steps: [Hello.]")
    config: Any = {"configurable": {"thread_id": "mine"}}
    with wick_graph.load(folder.path / "agents.yaml") as agents:
        given = {"messages": [("user", "Hi")]}
        agents["default"].graph.invoke(given, config, interrupt_before=["model"])
    assert stopped(wick) == ["stopped: interrupted: the run is at a breakpoint", "Hello.\n"]


def test_a_thread_of_an_agent_that_is_gone_says_so(wick: Wick, folder: Folder) -> None:
    (folder.path / "checkpoints").mkdir()
    with (
        folder.store as store,
        wick_graph.Agent("other", ScriptedModel(["Hi."]), store=store) as agent,
    ):
        agent.invoke("Hello", thread_id="mine")
    refused = wick("resume", "mine")
    says = "thread mine belongs to the agent other, which the file lacks; it has default"
    assert (refused.code, refused.err) == (2, f"wick: agents.yaml: {says}\n")


def test_a_thread_in_memory_cannot_be_answered_later(wick: Wick, folder: Folder) -> None:
    folder.write(agents="store: 'sqlite://'\n" + AGENTS)
    ran = wick("run", "-t", "mine", "Go")
    assert ran.code == 0
    assert ran.err.splitlines()[-1] == "thread mine (in memory: it ends with this process)"


def test_a_rule_that_is_gone_does_not_answer_what_waits(wick: Wick, folder: Folder) -> None:
    """The file asks for nothing any more; the thread still does."""
    wick("run", "-t", "mine", "Go")
    folder.write(agents=re.sub(r"    approvals: .*\n", "", AGENTS), talk=CALLS)
    left = wick("resume", "mine", "--json").json
    assert [i["value"]["index"] for i in left["interrupts"]] == [0, 2, 3]
    (question,) = wick("resume", "mine", "--all-approve", "--json").json["interrupts"]
    assert wick("resume", "mine", "--answer", f"{question['id']}=red").code == 0
    assert [text for _, text in folder.messages("tool")] == ["42", "2", "100", "red"]


def test_a_fork_is_approved_by_what_it_shows(wick: Wick, folder: Folder) -> None:
    wick("run", "-t", "mine", "Go")
    assert wick("threads", "fork", "mine", "copy").code == 0
    (question,) = wick("resume", "copy", "--all-approve", "--json").json["interrupts"]
    assert question["value"]["question"] == "Which colour?"
