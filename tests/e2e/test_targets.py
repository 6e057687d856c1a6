"""Agents made in Python, at every command that takes the agents of a file."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.command import Folder, Inside
from wick_graph.cli import select
from wick_graph.targets import Target, load_target, parse_target

APP = '''
from wick_graph import Agent, load, tool
from wick_graph.hooks import ApprovalHook
from wick_graph.testing import ScriptedModel, call

@tool
def word_count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())

def made(name, **more):
    steps = [call("word_count", text="one two three"), f"Three, says {name}."] * 5
    return Agent(name, ScriptedModel(steps), tools=[word_count], **more)

agent = made("counter")
agents = {"counter": agent, "billing": made("clerk")}
stored = made("stored", store="sqlite:///own.db")
memory = made("memory", store=False)

def paying(name):
    def pay() -> str:
        """Pay."""
        return f"paid by {name}"

    steps = [call("pay"), f"Paid, says {name}."]
    return Agent(model=ScriptedModel(steps), tools=[pay], hooks=[ApprovalHook({"pay": True})])

unnamed = {"billing": paying("billing"), "support": paying("support")}

def from_file():
    return load("agents/agents.yaml")

apart = {"a": stored, "b": made("b", store="sqlite:///other.db")}
text = "no agent"

def factory():
    return agents

def with_config(config):
    return agent

async def later():
    return agent

def broken():
    raise RuntimeError("no key")
'''
SAID = "Three, says counter."


@pytest.fixture
def processes(tmp_path: Path) -> Folder:
    """The folder, with a process for each command."""
    (tmp_path / "app.py").write_text(APP, "utf-8")
    return Folder(tmp_path)


@pytest.fixture
def folder(processes: Folder, capfd: pytest.CaptureFixture[str]) -> Inside:
    return Inside(processes.path, capfd)


NOTES = """
import gc
from wick_graph import Agent
from wick_graph.testing import ScriptedModel, call

class Notes:
    def __init__(self):
        self.file = open("notes.txt", "w")
        self.commands = {"note": self.note}  # a cycle: only a collection ends it

    def note(self, text: str) -> str:
        \"""Note a text.\"""
        self.file.write(text)
        return f"{gc.get_freeze_count()} {gc.get_threshold()[0]}"

agent = Agent("notes", ScriptedModel([call("note", text="all"), "Noted."]), tools=[Notes().note])
"""


def test_the_collector_of_a_command_passes_over_its_libraries_alone(processes: Folder) -> None:
    """In a process that no test has made: what one forks from has settled before."""
    (processes.path / "app.py").write_text(NOTES, "utf-8")
    command = [sys.executable, "-m", "wick_graph", "run", "app:agent", "Note it.", "--json"]
    done = subprocess.run(command, cwd=processes.path, env=processes.env, stdout=-1, check=True)
    (called,) = json.loads(done.stdout)["tool_calls"]
    frozen, threshold = map(int, called["output"].split())
    assert frozen > 10_000
    assert threshold == 50_000
    assert (processes.path / "notes.txt").read_text("utf-8") == "all"


CYCLE = """
import os

class Notes:
    def __init__(self):
        self.itself = self  # only a collection ends it

    def __del__(self, write=os.write, to=os.open("notes.txt", os.O_CREAT | os.O_WRONLY)):
        write(to, b"all")

notes = Notes()

def note(text: str) -> str:
    \"""Note a text.\"""
    return text
"""
AGENTS = "agents: {clerk: {model: 'scripted:talk.yaml', tools: ['own:note']}}"
ENDED = """
import atexit, gc, os
atexit.register(lambda: os.write(2, f"frozen: {gc.get_freeze_count()}".encode()))
from wick_graph.cli import main
main()
"""


def frozen_at_the_end(processes: Folder, *args: str, code: int = 0) -> int:
    """Run a command in a process that no test has made; return what its end does not look at."""
    done = subprocess.run(
        [sys.executable, "-c", ENDED, *args],
        cwd=processes.path, env=processes.env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return int(done.stderr.partition("frozen: ")[2])


@pytest.mark.parametrize("command", ["--help", "schema"])
def test_what_loads_no_code_ends_without_a_look_through_the_libraries(
    processes: Folder, command: str
) -> None:
    assert frozen_at_the_end(processes, command) > 10_000


def test_what_loads_code_and_nothing_else_looks_at_it_at_its_end(processes: Folder) -> None:
    (processes.path / "own.py").write_text(CYCLE, "utf-8")
    assert frozen_at_the_end(processes, "tools", "serve", "own.py:nothing", code=2) == 0
    assert (processes.path / "notes.txt").read_text("utf-8") == "all"


@pytest.mark.parametrize("forked", [False, True])
def test_a_check_ends_the_users_objects_and_passes_over_the_libraries(
    processes: Folder, forked: bool
) -> None:
    """To look through these at the end takes a quarter of the time."""
    processes.write(agents=AGENTS, talk="steps: [Hi]")
    (processes.path / "own.py").write_text(CYCLE, "utf-8")
    if forked:
        assert processes.wick("validate", "--trust").code == 0
    else:
        assert frozen_at_the_end(processes, "validate", "--trust") > 10_000
    assert (processes.path / "notes.txt").read_text("utf-8") == "all"


def test_a_run_goes_on_in_the_next_process(processes: Folder) -> None:
    first = processes.wick("run", "app:agent", "How many?")
    assert (first.code, first.out.strip()) == (0, SAID)
    thread = re.search(r"thread (\S+) \(continue: .* run -t (\S+) app:agent ", first.err)
    assert thread is not None
    again = processes.wick("run", "-t", thread[1], "app:agent", "And now?")
    assert (again.code, again.out.strip()) == (0, SAID)
    rows = json.loads(processes.wick("threads", "--app", "app:agent", "list", "--json").out)
    assert [row["thread_id"] for row in rows] == [thread[1]]
    told = processes.wick("journal", "--app", "app:agent", thread[1]).out
    assert told.count("run of counter") == 2
    done = processes.wick("resume", "--app", "app:agent", thread[1])
    assert (done.code, "there is nothing to resume" in done.err) == (0, True)


@pytest.mark.parametrize("target", ["app.py:agent", "app:agents#counter", "app:factory#counter"])
def test_a_target_is_written_in_other_ways(folder: Folder, target: str) -> None:
    done = folder.wick("run", target, "How many?")
    assert (done.code, done.out.strip()) == (0, SAID)


def test_what_one_command_names_is_forgotten_by_the_next(folder: Folder) -> None:
    assert folder.wick("run", "app:agent", "How many?").code == 0
    assert select.target() is None
    refused = folder.wick("run", "How many?")
    assert (refused.code, "agents.yaml" in refused.err) == (2, True)


def test_an_agent_of_a_mapping_has_its_id(folder: Folder) -> None:
    done = folder.wick("run", "-t", "t", "app:agents#billing", "How many?")
    assert done.out.strip() == "Three, says clerk."
    assert "run -t t 'app:agents#billing'" in done.err
    assert folder.wick("resume", "--app", "app:agents", "t").code == 0
    drawn = json.loads(folder.wick("graph", "app:agents", "-t", "t", "-f", "json").out)
    assert drawn["agent"] == "billing"


def test_an_approved_call_runs_in_the_agent_that_asked(folder: Folder) -> None:
    first = folder.wick("run", "-t", "t", "app:unnamed#support", "Pay.")
    assert "interrupted" in first.err
    done = folder.wick("resume", "--app", "app:unnamed", "t", "--all-approve")
    assert (done.code, done.out.strip()) == (0, "Paid, says support.")
    assert "paid by support" in done.err
    assert "#support" in done.err


def test_the_agents_of_a_file_may_be_named_in_code(folder: Folder) -> None:
    (folder.path / "agents").mkdir()
    text = "agents: {default: {model: 'scripted:demo', tools: [calculate]}}\n"
    (folder.path / "agents" / "agents.yaml").write_text(text, "utf-8")
    assert "calculate" in folder.wick("graph", "app:from_file").out
    assert folder.wick("hooks", "app:from_file").code == 0
    assert folder.wick("run", "app:from_file", "What is 21*2?").out.strip() == "21*2 = 42."


def test_words_without_quotes_are_no_target(folder: Folder) -> None:
    folder.write(agents="agents: {default: {model: 'scripted:demo'}}")
    done = folder.wick("run", "app:broken", "for", "me")
    assert (done.code, "put a text of several words in quotes" in done.err) == (2, True)


def test_a_text_is_no_target(folder: Folder) -> None:
    done = folder.wick("run", "app:agent")
    assert (done.code, "agents.yaml: no such file" in done.err) == (2, True)


def test_its_own_store_is_used(folder: Folder) -> None:
    assert folder.wick("run", "-t", "t", "app:stored", "How many?").code == 0
    assert (folder.path / "own.db").exists()
    assert not (folder.path / "checkpoints").exists()
    rows = json.loads(folder.wick("threads", "--app", "app:stored", "list", "--json").out)
    assert [row["thread_id"] for row in rows] == ["t"]


def test_an_agent_without_a_store_keeps_nothing(folder: Folder) -> None:
    done = folder.wick("run", "app:memory", "How many?")
    assert (done.out.strip(), "in memory" in done.err) == ("Three, says memory.", True)


def test_another_model_is_used(folder: Folder) -> None:
    (folder.path / "other.yaml").write_text("steps: [Other.]\n", "utf-8")
    done = folder.wick("run", "-m", "scripted:other.yaml", "app:agent", "How many?")
    assert done.out.strip() == "Other."


def test_it_is_drawn_listed_and_debugged(folder: Folder) -> None:
    assert "word_count" in folder.wick("graph", "app:agent").out
    assert "no hooks" in folder.wick("hooks", "app:agent").out
    assert not (folder.path / "checkpoints").exists()
    told = folder.wick("debug", "app:agent", "How many?", "--batch", "-e", "c; p iteration")
    assert told.out.splitlines()[-1] == "2"


REFUSED = [
    ("nope:agent", "there is no module nope"),
    ("nope.py:agent", "there is no file nope.py"),
    ("app:agnet", "app has no agnet; did you mean agent?"),
    ("app:text", "app:text is a str; name an agent, or a mapping of agents"),
    ("app:later", "app:later is async; name a plain function"),
    ("app:with_config", "app:with_config needs arguments (missing a required argument: 'config')"),
    ("app:broken", "app:broken() failed (RuntimeError: no key)"),
    ("app:apart", "its agents have different stores"),
    ("app:agents", "no agent is called default; name one of counter, billing"),
    ("app:agents#clerk", "no agent clerk; it has counter, billing"),
    ("bad:agent", "bad cannot be loaded (ZeroDivisionError: division by zero)"),
    ("needs:agent", "needs needs nowhere_at_all, which is not installed"),
    ("this:agent", "this names two modules"),
]


@pytest.mark.parametrize(("target", "sentence"), REFUSED)
def test_what_is_wrong_is_one_sentence(folder: Folder, target: str, sentence: str) -> None:
    for name, text in {"bad": "1 / 0", "needs": "import nowhere_at_all", "this": ""}.items():
        if target.startswith(name):
            (folder.path / f"{name}.py").write_text(text, "utf-8")
    done = folder.wick("run", target, "Hi")
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert sentence in line
    assert not (folder.path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("app:agent", Target("app", "agent")),
        ("a.b.c:make", Target("a.b.c", "make")),
        ("./src/app.py:agent#x-1", Target("./src/app.py", "agent", "x-1")),
        (r"C:\src\app.py:agent#x", Target(r"C:\src\app.py", "agent", "x")),
        (r"C:\src\app.py", None),
        ("openai:gpt-5", None),
        ("Remember: buy milk", None),
        ("app:", None),
        (":agent", None),
        ("app:agent#", None),
        ("src/app:agent", None),
    ],
)
def test_targets_are_told_from_texts(text: str, target: Target | None) -> None:
    assert parse_target(text) == target


def test_agents_in_a_program(folder: Inside) -> None:
    path = str(folder.path / "app.py")
    with folder.entered(), load_target(f"{path}:agents") as agents:
        assert [*agents] == ["counter", "billing"]
        assert agents["billing"].invoke("?", thread_id="t").text == "Three, says clerk."
        info = agents.store.threads.get("t")
        assert info is not None
        assert info.agent == "billing"


def served(folder: Folder, *args: str) -> tuple[subprocess.Popen[Any], str]:
    process = folder.start("serve", *args, "--port", "0", stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = str(process.stderr.readline())
    found = re.search(r"serving (.*) on (http://\S+),", line)
    assert found, line
    assert found[1] == "counter, billing"
    return process, found[2]


def test_a_server_keeps_tenants_apart_and_takes_runs_up(processes: Folder) -> None:
    process, url = served(processes, "app:agents")
    create = ("token", "create", "--app", "app:agents", "--tenant")
    tokens = [processes.wick(*create, name).out.strip() for name in ("anna", "bert")]
    ask = {"messages": [{"role": "user", "content": "How many?"}], "thread_id": "t"}
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        first, second = ({"Authorization": f"Bearer {token}"} for token in tokens)
        done = http.post("/agents/billing/invoke", json=ask, headers=first)
        assert done.json()["response"] == "Three, says clerk."
        assert http.get("/threads/t", headers=first).json()["status"] == "idle"
        assert http.get("/threads/t", headers=second).status_code == 404
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert (processes.path / "checkpoints" / "wick.db").exists()


def test_a_test_is_exported_for_the_agent_of_the_target(folder: Folder) -> None:
    folder.wick("run", "-t", "t", "app:agent", "How many?")
    export = ("export", "--to", "pytest", "-t", "t", "-o", "test_t.py")
    assert folder.wick(*export, "--app", "app:agent").code == 0
    assert "from app import agent" in (folder.path / "test_t.py").read_text("utf-8")
    for target in ("app:agents", "app.py:agent"):
        done = folder.wick(*export, "--app", target)
        assert (done.code, "name it with --agent module:name" in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("app:agents#billing",), "all agents of app:agents are served; leave #billing out"),
        (("app:agents", "--reload"), "restart the server to reload Python"),
        (("app:memory",), "the server keeps the threads of each tenant apart"),
        (("agents",), "'agents' is not a target"),
    ],
)
def test_what_cannot_be_served(folder: Folder, args: tuple[str, ...], sentence: str) -> None:
    done = folder.wick("serve", *args)
    assert (done.code, sentence in done.err) == (2, True), done.err
