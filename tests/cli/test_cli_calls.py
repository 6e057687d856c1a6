"""The commands, called in this process: every refusal, every option, every way to look."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import interrupt

import wick_graph
from wick_graph.cli import output
from wick_graph.cli.app import call

AGENTS = """\
agents:
  default: {model: scripted:demo, tools: [calculate]}
  other: {model: scripted:demo}
"""
Wick = Callable[..., tuple[int, str, str]]


@pytest.fixture
def wick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Wick:
    monkeypatch.chdir(tmp_path)
    Path("agents.yaml").write_text(AGENTS, "utf-8")

    def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = call(args)
        return (code, *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        pytest.param(["rnu"], "no such command 'rnu'", id="command"),
        pytest.param(["run"], "missing argument 'TEXT'; see wick run --help", id="no words"),
        pytest.param(["run", ""], "the text is empty; say what", id="empty text"),
        pytest.param(["run", "other", " "], "the text is empty; say what", id="blank text"),
        pytest.param(["run", "other"], "other is an agent, but there is no text", id="no text"),
        pytest.param(["run", "oter", "Hi"], "no agent 'oter', only default, other", id="agent"),
        pytest.param(["run", "-t", "ä", "Hi"], "the thread id 'ä' is refused", id="thread"),
        pytest.param(["run", "-m", "nix", "Hi"], "names no provider", id="bare model"),
        pytest.param(["run", "-m", "openai:gpt-5", "Hi"], "set OPENAI_API_KEY", id="no key"),
        pytest.param(["run", "-m", "scripted:no.yaml", "Hi"], "that does not exist", id="script"),
        pytest.param(["graph", "oter"], "did you mean other?", id="graph of none"),
        pytest.param(["graph", "-f", "gif"], "gif", id="format"),
        pytest.param(["hooks", "oter"], "did you mean other?", id="hooks of none"),
        pytest.param(["threads", "list", "--status", "x"], "invalid value", id="status"),
        pytest.param(["threads", "list", "-n", "0"], "invalid value for '--limit'", id="limit"),
        pytest.param(["threads", "show", "a/b"], "the thread id 'a/b' is refused", id="show"),
        pytest.param(["threads", "show", "th_1"], "there is no thread th_1;", id="show none"),
        pytest.param(["threads", "export", "th_1", "-"], "- is no name for a file", id="dash"),
        pytest.param(["export", "-t", "th_1", "-o", "-"], "- is no name for a file", id="dash too"),
        pytest.param(["graph", "-f", "dot", "-o", "-"], "- is no name for a file", id="drawn"),
        pytest.param(["threads", "delete", "-y", "th_1"], "no thread th_1", id="delete none"),
        pytest.param(["validate", "-c", "no.yaml"], "no.yaml: no such file", id="file"),
        pytest.param(["token", "create", "--out", "agents.yaml"], "File exists", id="token file"),
        pytest.param(["token", "create", "--out", "no/x"], "No such file", id="token folder"),
        pytest.param(["token", "create", "--for", "0s"], "would never work", id="token time"),
    ],
)
def test_one_sentence_code_2_and_nothing_stored(
    wick: Wick, tmp_path: Path, args: list[str], sentence: str
) -> None:
    code, out, err = wick(*args)
    (line,) = err.splitlines()
    assert (code, out) == (2, "")
    assert line.startswith("wick: ")
    assert sentence in line
    assert [entry.name for entry in tmp_path.iterdir()] == ["agents.yaml"]


def test_a_token_that_cannot_be_written_is_revoked(
    wick: Wick, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def full(path: Any, *args: Any, **more: Any) -> int:
        if Path(path).name != "mine.token":
            return opened(path, *args, **more)
        opened(path, *args, **more)
        return opened("/dev/full", os.O_WRONLY)  # a disk without room

    monkeypatch.setattr(os, "open", full)
    code, out, err = wick("token", "create", "--out", "mine.token")
    assert (code, out) == (2, "")
    assert err == "wick: cannot write mine.token: No space left on device\n"
    assert not Path("mine.token").exists()
    assert "revoked" in wick("token", "list")[1]


def test_an_mcp_server_says_that_its_port_is_taken(wick: Wick) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = wick("mcp", "--port", str(port))
    assert (code, out) == (2, "")
    assert err.startswith(f"wick: cannot listen on 127.0.0.1:{port} (Address already in use")


def test_without_an_agent_called_default_it_must_be_the_only_one(wick: Wick) -> None:
    Path("one.yaml").write_text("agents: {mine: {model: scripted:demo}}", "utf-8")
    Path("two.yaml").write_text("agents: {mine: {}, yours: {}}", "utf-8")
    assert wick("run", "-c", "one.yaml", "Hi")[0] == 0
    code, _, err = wick("run", "-c", "two.yaml", "Hi")
    assert code == 2
    assert "no agent is called default; name one of mine, yours" in err


def test_standard_input_that_is_no_text_is_refused(
    wick: Wick, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe!")
    with (tmp_path / "bytes").open(encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        code, _, err = wick("run", "-")
    assert code == 2
    assert err == "wick: standard input is not UTF-8 text; send text\n"


def test_a_store_of_somebody_else_is_refused_and_stays_as_it_is(wick: Wick) -> None:
    Path("mine.db").write_bytes(b"not a database" * 20)
    Path("agents.yaml").write_text(f"store: sqlite:///mine.db\n{AGENTS}", "utf-8")
    for command in (["run", "Hi"], ["threads", "list"]):
        code, _, err = wick(*command)
        assert code == 2
        assert "mine.db is not a SQLite database" in err
    assert Path("mine.db").read_bytes() == b"not a database" * 20


def test_threads_in_memory_end_with_the_process(wick: Wick) -> None:
    Path("agents.yaml").write_text(f'store: "sqlite://"\n{AGENTS}', "utf-8")
    code, out, err = wick("run", "-t", "mine", "What is 2+2?")
    assert (code, out) == (0, "2+2 = 4.\n")
    assert err.endswith("thread mine (in memory: it ends with this process)\n")
    assert wick("threads", "list")[1] == "no threads yet\n"


def test_the_command_that_goes_on_names_all_that_it_needs(wick: Wick) -> None:
    Path("two words").mkdir()
    Path("two words/a.yaml").write_text(AGENTS, "utf-8")
    file = ["-c", "two words/a.yaml", "-m", "scripted:demo"]
    _, _, err = wick("run", *file, "-t", "mine", "other", "Hi")
    assert "run -t mine -c 'two words/a.yaml' -m scripted:demo other \"…\")\n" in err
    assert Path("two words/checkpoints/wick.db").exists()


def test_debug_shows_where_an_error_comes_from(wick: Wick) -> None:
    Path("bad.yaml").write_text("steps: [{error: the cable is out}]", "utf-8")
    quiet = wick("run", "-m", "scripted:bad.yaml", "Hi")
    loud = wick("run", "-m", "scripted:bad.yaml", "--debug", "Hi")
    assert "Traceback" not in quiet[2]
    assert "Traceback (most recent call last):" in loud[2]
    assert quiet[0] == loud[0] == 1


def test_a_defect_says_so_and_names_debug(wick: Wick, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: object) -> None:
        raise KeyError("some\nkey")

    monkeypatch.setattr("wick_graph.config.load_config", broken)
    code, _, err = wick("validate")
    assert code == 1
    assert err.startswith(
        "wick: unexpected error (KeyError: 'some\\nkey'); run it again with --debug"
    )


def test_the_reason_is_told_when_a_run_ends_without_an_answer(wick: Wick) -> None:
    Path("mute.yaml").write_text("steps: [{empty: true}]", "utf-8")
    code, out, err = wick("run", "-m", "scripted:mute.yaml", "Hi")
    assert (code, out) == (0, "")
    assert "stopped: empty: the model gave no answer\n" in err


CUT = """\
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from wick_graph import Agent

cut = AIMessage("It is", response_metadata={"finish_reason": "length"})
agent = Agent(model=GenericFakeChatModel(messages=iter([cut])))
"""


def test_an_answer_that_was_cut_is_shown_with_a_note(
    wick: Wick, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("cut_short.py").write_text(CUT, "utf-8")
    code, out, err = wick("run", "--no-stream", "cut_short.py:agent", "Hi")
    assert (code, out) == (0, "It is\n")
    assert "note: the model's reply was cut off at its length limit\n" in err


def test_a_list_that_is_cut_says_so(wick: Wick) -> None:
    for name in ("alpha", "beta"):
        assert wick("run", "-t", name, "What is 2+2?")[0] == 0
    for more in ([], ["--json"]):
        _, out, err = wick("threads", "list", "-n", "1", *more)
        assert ("beta" in out, "alpha" in out) == (True, False)
        assert err == "there are more threads than these 1: see --limit\n"
        assert wick("threads", "list", "-n", "2", *more)[2] == ""


def test_delete_asks_a_person_and_needs_a_flag_where_there_is_none(wick: Wick) -> None:
    assert wick("run", "-t", "mine", "What is 2+2?")[0] == 0
    code, _, err = wick("threads", "delete", "mine")
    assert code == 2
    assert err == "wick: no terminal to confirm on; pass --yes to delete\n"
    assert wick("threads", "delete", "--yes", "mine", "yours")[0] == 2
    assert json.loads(wick("threads", "list", "--json")[1])[0]["thread_id"] == "mine"
    assert wick("threads", "list", "--agent", "other")[1] == "no such threads\n"
    assert wick("threads", "list", "--status", "failed")[1] == "no such threads\n"
    assert wick("threads", "delete", "-y", "mine", "mine")[1] == "deleted mine\n"
    assert wick("threads", "list")[1] == "no threads yet\n"


def test_json_of_threads_has_all_facts(wick: Wick) -> None:
    assert wick("run", "-t", "mine", "What is 2+2?")[0] == 0
    (listed,) = json.loads(wick("threads", "list", "--json", "--agent", "default")[1])
    shown = json.loads(wick("threads", "show", "--json", "mine")[1])
    assert listed["title"] == "What is 2+2?"
    assert (listed["status"], listed["stopped_because"], listed["pinned"]) == (
        "idle",
        "done",
        False,
    )
    assert listed["created"] <= listed["last_access"] < listed["expires_at"]
    assert listed.keys() < shown.keys()
    assert shown["messages"][0] == {"role": "user", "content": "What is 2+2?"}
    assert shown["usage"]["calls"] == 2
    assert shown["waits_for"] == []


def test_a_waiting_thread_shows_its_question_and_does_not_expire(wick: Wick) -> None:
    def approve(what: str) -> str:
        """Ask a person."""
        return str(interrupt(f"May I {what}?"))

    script = {"steps": [{"call": "approve", "args": {"what": "go"}}, "done"]}
    Path("ask.yaml").write_text(json.dumps(script), "utf-8")
    store = f"sqlite:///{Path.cwd()}/checkpoints/wick.db"
    with wick_graph.Agent("asks", "scripted:ask.yaml", tools=[approve], store=store) as agent:
        agent.invoke("Go", thread_id="mine")
    shown = wick("threads", "show", "mine")[1]
    assert "waits for  May I go?\n" in shown
    assert "status     waiting\n" in shown
    assert "expires    not while waiting\n" in shown
    assert json.loads(wick("threads", "show", "--json", "mine")[1])["waits_for"] == ["May I go?"]
    assert wick("threads", "prune", "--dry-run")[1] == "would delete 0 threads\n"


def test_validate_lists_agents(wick: Wick) -> None:
    text = f"{AGENTS}  box: {{backend: {{type: docker, image: x}}, skills: {{paths: [s]}}}}\n"
    Path("agents.yaml").write_text(text, "utf-8")
    code, out, err = wick("validate")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "agents.yaml: ok, 3 agents: default, other, box",
    ]
    told = json.loads(wick("validate", "--json")[1])
    assert told["ok"] is True
    assert told["agents"][0]["tools"] == ["calculate"]


def test_validate_tells_every_mistake_on_a_line_of_its_own(wick: Wick) -> None:
    Path("agents.yaml").write_text(
        "store: mysql://x/y\nagents:\n  one: {model: opnai, tools: [calclate, ls]}\n"
        "  two: {tools: [nothing]}\n",
        "utf-8",
    )
    code, out, err = wick("validate")
    lines = err.splitlines()
    assert (code, out) == (2, "")
    assert all(line.startswith("wick: agents.yaml:") for line in lines)
    assert [part for part in ("calclate", "nothing", "opnai", "mysql") if part not in err] == []
    assert len(lines) == 4
    told = json.loads(wick("validate", "--json")[1])
    assert told["ok"] is False
    assert len(told["errors"]) == 4


def test_hooks_that_a_file_activates_are_named(wick: Wick) -> None:
    code, out, _ = wick("hooks")
    assert code == 0
    assert out.splitlines() == [
        "default: 3 hooks, outermost first",
        "  before_agent     todolist",
        "  modify_request   -",
        "  wrap_model_call  tracing → summarization → model call",
        "  after_model      -",
        "  wrap_tool_call   tracing → tool call",
        "  todolist brings the tools write_todos",
    ]
    told = json.loads(wick("hooks", "other", "--json")[1])
    assert told["agent"] == "other"
    assert [hook["name"] for hook in told["hooks"]] == ["tracing", "todolist", "summarization"]
    assert list(told["phases"]) == [
        *("before_agent", "modify_request", "wrap_model_call", "after_model", "wrap_tool_call")
    ]


@pytest.mark.parametrize("form", ["text", "mermaid", "dot", "json"])
def test_the_graph_needs_no_model_and_shows_nodes_and_labels(wick: Wick, form: str) -> None:
    Path("agents.yaml").write_text("agents: {a: {model: 'openai:gpt-5'}}", "utf-8")
    code, out, err = wick("graph", "--format", form)
    assert (code, err) == (0, "")
    for shown in ("before_agent", "modify_request", "model", "tools", "route: tools", "route: end"):
        assert shown in out
    assert "wrap_tool_call" in out
    assert not Path("checkpoints").exists()


def test_version_tells_what_it_stands_on(wick: Wick) -> None:
    told = json.loads(wick("version", "--json")[1])
    assert list(told) == ["wick_graph", "python", "langgraph", "langchain-core", "sqlite"]
    assert told["wick_graph"] == wick_graph.__version__
    assert wick("version")[1].splitlines() == [f"{name} {told[name]}" for name in told]


@pytest.mark.parametrize(
    "command",
    ["run", "graph", "hooks", "validate", "version", "threads list", "threads prune"],
)
def test_every_command_has_help(wick: Wick, command: str) -> None:
    code, out, err = wick(*command.split(), "--help")
    assert (code, err) == (0, "")
    assert f"Usage: wick {command} " in out
    assert "--debug" in out


def test_the_person_may_say_no(wick: Wick, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wick("run", "-t", "mine", "What is 2+2?")[0] == 0
    monkeypatch.setattr(output, "is_terminal", lambda stream: True)
    monkeypatch.setattr("typer.confirm", lambda text, err: False)
    code, out, err = wick("threads", "delete", "mine")
    assert (code, out) == (1, "")
    assert err.endswith("nothing is deleted\n")
    assert "mine" in wick("threads", "list")[1]
