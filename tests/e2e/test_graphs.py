"""Compiled LangGraph graphs at the commands that take agents."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command import Ended, Folder
from wick_graph.cli.app import call

GUESTS = '''
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from wick_graph import Agent, SqlSaver
from wick_graph.testing import ScriptedModel, call

def shout(text: str) -> str:
    """Write in capital letters."""
    return text.upper()

def says(*steps):
    return create_agent(ScriptedModel([*steps] * 4), tools=[shout])

agent = says(call("shout", text="hi"), "HI, it is.")

def chain(node, state=MessagesState, **more):
    return StateGraph(state).add_node("node", node).add_edge(START, "node").compile(**more)

def count(state):
    return {"messages": [AIMessage(f"{len(state['messages'])} so far")]}

def ask(state):
    return {"messages": [AIMessage("Hello " + interrupt("Who are you?"))]}

def fail(state):
    raise LookupError("no such thing")

plain, asking, failing = chain(count), chain(ask), chain(fail)
own = chain(count, checkpointer=InMemorySaver())
kept = chain(count, checkpointer=SqlSaver.from_url("sqlite:///own.db"))

files = []

def file(node=count):
    import sqlite3
    files.append(sqlite3.connect("lg.db", check_same_thread=False))
    return chain(node, checkpointer=SqliteSaver(files[-1]))

def filed():
    return file(ask)

def odd(state):
    return {"messages": 5}

class Odd(TypedDict):
    messages: int

class Silent(TypedDict):
    text: str

class Shown(TypedDict):
    messages: list

odd = chain(odd, Odd)
silent = chain(lambda state: {"text": ""}, Silent)
mute = StateGraph(MessagesState, output_schema=Silent).add_node("n", count)
mute = mute.add_edge(START, "n").add_node("o", lambda s: {"text": ""}, input_schema=Silent)
mute = mute.add_edge("n", "o").compile()
built = StateGraph(MessagesState)
mixed = {"own": Agent("own", ScriptedModel(["Mine."])), "graph": plain}
inner = mixed["own"].graph
doubled = {1: plain, "1": mixed["own"]}

def make():
    with open("made.txt", "a") as file:
        file.write("made\\n")
    return plain
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("guests")
    (path / "guests.py").write_text(GUESTS, "utf-8")
    before, modules = [*sys.path], {*sys.modules}
    yield path
    sys.path[:] = before
    for name in {*sys.modules} - modules:
        if str(path) in str(getattr(sys.modules[name], "__file__", "")):
            for file in vars(sys.modules.pop(name)).get("files", ()):
                file.close()


@pytest.fixture
def wick(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Run a command of the folder in this process."""
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> Ended:
        code = call(arguments)
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return run


Wick = Callable[..., Ended]


def test_a_langchain_agent_is_run_and_goes_on(wick: Wick) -> None:
    first = wick("run", "-t", "a", "guests:agent", "Shout.")
    assert (first.code, first.out.strip()) == (0, "HI, it is."), first.err
    assert "→ shout(" in first.err
    assert "run -t a guests:agent" in first.err
    again = wick("run", "-t", "a", "guests:agent", "Again.", "--json").json
    assert (again["response"], again["model"]) == ("HI, it is.", "scripted")
    assert again["tool_calls"][0]["output"] == "HI"
    assert again["usage"]["calls"] == 2
    assert len([m for m in again["messages"] if m["role"] == "user"]) == 2
    rows = wick("threads", "--app", "guests:agent", "list", "--json").json
    assert [(row["agent"], row["status"]) for row in rows if row["thread_id"] == "a"] == [
        ("agent", "idle")
    ]


def test_its_events_are_those_of_agents(wick: Wick) -> None:
    lines = wick("run", "guests:agent", "Shout.", "--json", "--stream").out.splitlines()
    kinds = [json.loads(line)["event"] for line in lines]
    once = [kind for at, kind in enumerate(kinds) if kind not in kinds[at - 1 : at]]
    assert once == [
        *("on_chat_model_start", "on_chat_model_end", "on_tool_start", "on_tool_end"),
        *("on_chat_model_start", "on_chat_model_stream", "on_chat_model_end", "done"),
    ]


def test_a_reply_that_no_model_gave_is_shown_once(wick: Wick) -> None:
    done = wick("run", "guests:plain", "Hello")
    assert (done.code, done.out) == (0, "1 so far\n")


def test_its_question_is_answered_in_the_next_command(wick: Wick) -> None:
    first = wick("run", "-t", "asks", "guests:asking", "Hi")
    assert (first.code, first.out) == (0, "")
    assert "Who are you?" in first.err
    assert "resume asks --app guests:asking" in first.err
    question = re.search(r"--answer ([0-9a-f]+)=", first.err)
    assert question is not None
    args = ("resume", "--app", "guests:asking", "asks", "--answer", f"{question[1]}=Bob")
    done = wick(*args)
    assert (done.code, done.out) == (0, "Hello Bob\n")


def test_a_failure_is_one_sentence_and_the_run_is_resumed(wick: Wick) -> None:
    done = wick("run", "-t", "fails", "guests:failing", "Hi")
    assert (done.code, done.out) == (1, "")
    sentence = "the graph failing failed: LookupError: no such thing"
    assert f"wick: {sentence}" in done.err
    again = wick("resume", "--app", "guests:failing", "fails")
    assert (again.code, f"stopped: failed: {sentence}" in again.err) == (1, True)


def test_a_question_in_its_own_checkpointer_is_answered_in_a_chat(wick: Wick, folder: Path) -> None:
    first = wick("run", "-t", "filed", "guests:filed", "Hi")
    assert "chat -t filed guests:filed" in first.err
    with Folder(folder).at_terminal("chat", "-t", "filed", "guests:filed") as terminal:
        terminal.wait_for("Who are you?")
        terminal.press("Bob\n")
        terminal.wait_for("Hello Bob")
        terminal.press("/quit\n")
        assert terminal.end()[0] == 0


def test_its_own_checkpointer_is_kept(wick: Wick, folder: Path) -> None:
    done = wick("run", "-t", "mem", "guests:own", "Hi")
    assert (done.out, "in memory" in done.err) == ("1 so far\n", True)
    for number in (1, 3):  # LangGraph's own, without async methods
        done = wick("run", "-t", "own-file", "guests:file", "Hi")
        assert (done.code, done.out) == (0, f"{number} so far\n"), done.err
    assert "run -t own-file guests:file" in done.err
    for number in (1, 3):
        assert wick("run", "-t", "db", "guests:kept", "Hi").out == f"{number} so far\n"
    assert (folder / "own.db").exists()
    lost = wick("resume", "--app", "guests:file", "own-file")
    assert (lost.code, "keeps its threads in its own checkpointer" in lost.err) == (2, True)


def test_it_is_drawn_with_and_without_a_thread(wick: Wick) -> None:
    drawn = wick("graph", "guests:agent", "-f", "json").json
    assert {box["id"] for box in drawn["nodes"]} >= {"model", "tools"}
    wick("run", "-t", "drawn", "guests:plain", "Hi")
    laid = wick("graph", "guests:plain", "-t", "drawn", "-f", "json").json
    assert laid["run"]["thread_id"] == "drawn"


def test_it_is_debugged(wick: Wick, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("state\n"))
    done = wick("debug", "guests:plain", "Hi", "--batch")
    assert (done.code, "messages" in done.out) == (0, True), done


def test_a_thread_without_a_recording_is_debugged(
    wick: Wick, monkeypatch: pytest.MonkeyPatch
) -> None:
    wick("run", "-t", "told", "guests:plain", "Hi")
    monkeypatch.setattr("sys.stdin", io.StringIO("state\n"))
    done = wick("debug", "guests:plain", "-t", "told", "--batch")
    assert (done.code, "recorded without a journal" in done.err) == (0, True), done


@pytest.mark.parametrize(
    "args",
    [
        ("hooks", "guests:plain"),
        ("journal", "--app", "guests:mixed", "mixed"),
    ],
)
def test_what_needs_a_recording_is_refused_by_name(wick: Wick, args: tuple[str, ...]) -> None:
    wick("run", "-t", "told", "guests:plain", "Hi")
    wick("run", "-t", "mixed", "guests:mixed#graph", "Hi")
    done = wick(*args)
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert "is a LangGraph graph, not a wick agent" in line
    assert f"wick {args[0]} needs" in line


def test_agents_and_graphs_are_in_one_mapping(wick: Wick) -> None:
    assert wick("run", "guests:mixed#own", "Hi").out.strip() == "Mine."
    assert wick("run", "guests:mixed#graph", "Hi").out == "1 so far\n"


def test_a_thread_of_an_agent_keeps_its_state(wick: Wick) -> None:
    wick("run", "-t", "wicks", "guests:mixed#own", "Hi")
    done = wick("run", "-t", "wicks", "guests:mixed#graph", "Hi")
    assert (done.code, done.out) == (1, "")
    assert "the thread wicks belongs to the agent own, and the graph graph has no" in done.err
    (row,) = [
        row
        for row in wick("threads", "--app", "guests:mixed", "list", "--json").json
        if row["thread_id"] == "wicks"
    ]
    assert (row["agent"], row["status"]) == ("own", "idle")


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("guests:silent", "the graph silent has no messages among its input"),
        ("guests:mute", "the graph mute has no messages among its output"),
        (
            "guests:built",
            "guests:built is a StateGraph that is not compiled; name an agent, or a mapping",
        ),
        ("guests:inner", "own is the graph of an agent; name the agent instead"),
        ("guests:doubled", "two of its keys are one id as a text"),
    ],
)
def test_what_is_no_such_graph(wick: Wick, target: str, sentence: str) -> None:
    done = wick("run", target, "Hi")
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err, done.err


def test_messages_that_are_none_are_a_sentence(wick: Wick) -> None:
    done = wick("run", "guests:odd", "Hi")
    assert (done.code, "let its nodes write LangChain's messages" in done.err) == (1, True)


def test_another_model_is_refused(wick: Wick) -> None:
    done = wick("run", "-m", "scripted:demo", "guests:plain", "Hi")
    assert (done.code, "has its own model; leave --model out" in done.err) == (2, True)


def test_a_factory_runs_once_in_a_command(wick: Wick, folder: Path) -> None:
    made = folder / "made.txt"
    for args in (
        ("run", "-t", "made", "guests:make", "Hi"),
        ("graph", "guests:make", "-t", "made"),
        ("resume", "--app", "guests:make", "made"),
    ):
        made.write_text("")
        assert wick(*args).code == 0
        assert made.read_text() == "made\n", args


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("run", "-c", "x.yaml", "guests:plain", "Hi"), "--config names a file, and guests:plain"),
        (("hooks", "-c", "x.yaml", "guests:mixed#own"), "--config names a file"),
        (("graph", "-c", "x.yaml", "guests:mixed#own"), "--config names a file"),
        (("debug", "--config", "x.yaml", "guests:mixed#own", "Hi"), "--config names a file"),
        (("threads", "--app", "guests:plain", "list", "-c", "x.yaml"), "--config names a file"),
        (("run", "--trust", "guests:plain", "Hi"), "--trust is for a file"),
        (("serve", "--trust", "guests:plain"), "--trust is for a file"),
    ],
)
def test_a_file_beside_a_target_is_refused(
    wick: Wick, args: tuple[str, ...], sentence: str
) -> None:
    done = wick(*args)
    assert (done.code, sentence in done.err) == (2, True), done.err


# --- langgraph.json


@pytest.fixture
def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    made = folder / "project"
    if not made.exists():
        (made / "src").mkdir(parents=True)
        (made / "src" / "helping.py").write_text("NAME = 'helped'\n", "utf-8")
        (made / "lg_agent.py").write_text(
            "import os, helping\nfrom guests import chain\n"
            "from langchain_core.messages import AIMessage\n"
            "said = lambda s: {'messages': [AIMessage(helping.NAME + os.environ['LG_NAME'])]}\n"
            "graph = chain(said)\n",
            "utf-8",
        )
        (made / "lg_broken.py").write_text("1 / 0\n", "utf-8")
        (made / ".env").write_text("# a name\nexport LG_NAME='. by env'\nPATH=/nowhere\n", "utf-8")
        known = {
            "dependencies": ["./src", "..", "langchain_openai"],
            "graphs": {
                "my-agent": "./lg_agent.py:graph",
                "other": {"path": "./lg_broken.py:graph"},
            },
            "env": ".env",
        }
        (made / "langgraph.json").write_text(json.dumps(known), "utf-8")
    monkeypatch.delenv("LG_NAME", raising=False)
    before = os.environ.copy()
    yield made
    os.environ.clear()
    os.environ.update(before)


def test_a_langgraph_json_is_read_when_it_is_named(wick: Wick, project: Path) -> None:
    path = os.environ["PATH"]
    done = wick("run", "-t", "lgj", "project/langgraph.json:my-agent", "Hi")
    assert (done.code, done.out) == (0, "helped. by env\n"), done.err
    assert os.environ["PATH"] == path
    assert "run -t lgj project/langgraph.json:my-agent" in done.err
    drawn = wick("graph", "project/langgraph.json#my-agent", "-t", "lgj", "-f", "json").json
    assert drawn["agent"] == "my-agent"


@pytest.mark.parametrize(
    ("text", "target", "sentence"),
    [
        (None, ":other", "lg_broken.py cannot be loaded (ZeroDivisionError"),
        (None, "", "lg_broken.py cannot be loaded"),
        (None, ":nope", "has no graph nope, only my-agent, other"),
        ("{", "", "cannot be read"),
        ("[]", "", "names no graphs"),
        ('{"graphs": {"a": 5}}', ":a", "5 names no graph; write ./file.py:name"),
        ('{"graphs": {"a": "./x.py:g"}, "env": "no.env"}', ":a", "no.env cannot be read"),
        ('{"graphs": {"a": "./x.py:g"}, "env": "bad.env"}', ":a", "bad.env:1: write NAME=value"),
        ('{"graphs": {"a": "./x.py:g"}}', ":a", "there is no file"),
        ("[" * 100_000, "", "cannot be read"),
        ('{"graphs": {"a": "./x.py:g"}, "env": 5}', ":a", "env is neither a file nor variables"),
        ('{"graphs": {"a": "./x.py:g"}, "env": {"A=B": "x"}}', ":a", "'A=B' cannot be set"),
        ('{"graphs": {"a": "./x.py:g"}, "env": {"": "x"}}', ":a", "'' cannot be set"),
        ('{"graphs": {"a": "./x.py:g"}, "env": {"A": null}}', ":a", "'A' cannot be set"),
        ('{"graphs": {"a": "./x.py:g"}, "env": {"A": "\\u0000"}}', ":a", "'A' cannot be set"),
        ('{"graphs": {"a": "./x.py:g"}, "env": {"A": "\\ud800"}}', ":a", "'A' cannot be set"),
        ('{"graphs": {"a": "./x.py:g"}, "dependencies": 7}', ":a", "dependencies is not a list"),
        ('{"graphs": {"a": "./x.py:g"}, "dependencies": [".\\u0000"]}', ":a", "is not a list of"),
    ],
)
def test_what_is_wrong_in_it_is_one_sentence(
    wick: Wick, project: Path, text: str | None, target: str, sentence: str
) -> None:
    place = "project/langgraph.json"
    if text is not None:
        (project.parent / "langgraph.json").write_text(text, "utf-8")
        (project.parent / "bad.env").write_text("not a setting\n", "utf-8")
        place = "langgraph.json"
    done = wick("run", f"{place}{target}", "Hi")
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert sentence in line


def test_a_chat_with_a_graph(folder: Path) -> None:
    with Folder(folder).at_terminal("chat", "guests:own") as terminal:
        terminal.wait_for("> ")
        terminal.press("/resume\n")
        terminal.wait_for("nothing to resume")
        terminal.press("Hi\n")
        terminal.wait_for("1 so far")
        terminal.press("/quit\n")
        code, _ = terminal.end()
    assert code == 0


def test_a_chat_asks_what_a_graph_asks(folder: Path) -> None:
    with Folder(folder).at_terminal("chat", "guests:asking") as terminal:
        terminal.wait_for("> ")
        terminal.press("Hi\n")
        terminal.wait_for("Who are you?")
        terminal.press("Bob\n")
        terminal.wait_for("Hello Bob")
        terminal.press("/quit\n")
        code, _ = terminal.end()
    assert code == 0
