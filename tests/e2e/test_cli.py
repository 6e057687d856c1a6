"""The command `wick` as people use it: a process of its own, real files, a real terminal."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import secrets
import select
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import wick_graph
from tests.source import ROOT
from tests.support import forked
from wick_graph.store import SqlSaver

CONFIG = """\
agents:
  default:
    model: {model}
    tools: [calculate, ls]
    ttl: {ttl}
  keeper:
    model: scripted:demo
    ttl: never
"""
TALK = """\
steps:
  - {text: Let me look., calls: [{tool: calculate, args: {expression: 21*2}}, {tool: ls}]}
  - "The answer is 42, voilà [bold]."
  - "And the second one."
"""
THREAD = re.compile(r"thread (th_[0-9a-f]{16}) \(continue: (.+) \"…\"\)")


@dataclass
class Place:
    """A folder with an agents.yaml, and the processes that are started in it."""

    folder: Path

    @property
    def database(self) -> Path:
        return self.folder / "checkpoints" / "wick.db"

    def write(self, model: str = "scripted:demo", ttl: str = "1h", **scripts: str) -> Place:
        (self.folder / "agents.yaml").write_text(CONFIG.format(model=model, ttl=ttl), "utf-8")
        for name, text in scripts.items():
            (self.folder / f"{name}.yaml").write_text(text, "utf-8")
        return self

    def env(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "WICK_MODEL"))}
        own = {"PYTHONPATH": str(ROOT), "OLLAMA_HOST": "http://127.0.0.1:1", "COLUMNS": "100"}
        return {**kept, **own, **more}

    def start(self, *args: str, **more: Any) -> subprocess.Popen[bytes]:
        env = self.env(**more.pop("env", {}))
        command = [sys.executable, "-m", "wick_graph", *args]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        return forked.Popen(command, cwd=self.folder, env=env, **streams)

    def wick(self, *args: str, stdin: bytes = b"", **env: str) -> Ended:
        with self.start(*args, stdin=subprocess.PIPE, env=env) as process:
            out, err = process.communicate(stdin, timeout=90)
        return Ended(process.returncode, out.decode(), err.decode())


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@dataclass(frozen=True)
class Talk:
    place: Place
    thread_id: str
    first: Ended
    second: Ended
    third: Ended


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Talk:
    place = Place(tmp_path_factory.mktemp("talk")).write("scripted:talk.yaml", talk=TALK)
    first = place.wick("run", "What is 21*2, and what is here?", PYTHONIOENCODING="latin-1")
    found = THREAD.search(first.err)
    assert found, first.err
    go_on = shlex.split(found[2])
    assert go_on[:3] == [Path(sys.executable).name, "-m", "wick_graph"]
    second = place.wick(*go_on[3:], "And now?", "--json")
    place.write("scripted:demo")
    third = place.wick("run", "--json", "--stream", "-t", found[1], "What is 6*7?")
    return Talk(place, found[1], first, second, third)


def test_run_prints_the_answer_and_shows_the_calls_beside_it(talk: Talk) -> None:
    assert talk.first.code == 0
    assert talk.first.out == "Let me look.\nThe answer is 42, voilà [bold].\n"
    lines = talk.first.err.splitlines()
    assert '→ calculate(expression="21*2")' in lines
    assert "→ ls()" in lines
    assert "← calculate: 42" in lines
    assert any(line.startswith("← ls: [{") and len(line) <= 120 for line in lines)
    assert lines[-1].startswith(f"thread {talk.thread_id} ")


def test_the_command_that_is_shown_goes_on_in_a_second_process(talk: Talk) -> None:
    assert talk.second.code == 0
    assert talk.second.err == ""
    result = talk.second.json
    assert result["thread_id"] == talk.thread_id
    assert result["response"] == "And the second one."
    assert result["stopped_because"] == "done"
    assert result["model"] == "scripted:talk.yaml"
    assert [m["role"] for m in result["messages"]] == [
        *("user", "assistant", "tool", "tool", "assistant", "user", "assistant")
    ]
    assert result["usage"]["calls"] == 1
    assert result["thread_usage"]["calls"] == 3


def test_json_with_stream_writes_an_event_a_line(talk: Talk) -> None:
    events = [json.loads(line) for line in talk.third.out.splitlines()]
    kinds = [event["event"] for event in events]
    assert talk.third.code == 0
    assert kinds[0] == "on_chat_model_start"
    assert kinds[-1] == "done"
    assert {"on_tool_start", "on_tool_end", "on_chat_model_stream"} <= set(kinds)
    assert events[-1]["data"]["stopped_because"] == "done"
    assert {event["thread_id"] for event in events} == {talk.thread_id}
    text = "".join(e["data"]["delta"] for e in events if e["event"] == "on_chat_model_stream")
    assert "6*7 = 42" in text


def test_threads_are_listed_with_what_becomes_of_them(talk: Talk) -> None:
    listed = talk.place.wick("threads", "list")
    header, row = listed.out.splitlines()
    columns = ("THREAD", "AGENT", "STATUS", "STEPS")
    assert listed.code == 0
    assert header.split() == [*columns, "LAST", "USED", "EXPIRES", "TITLE"]
    assert row.startswith(talk.thread_id)
    assert re.search(r"  default +idle +\d+ +\d+[sm] ago  ", row)
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d \(in 5\dm\) ", row)
    assert row.endswith("What is 21*2, and what is here?")


def test_a_thread_is_shown_with_its_messages(talk: Talk) -> None:
    shown = talk.place.wick("threads", "show", talk.thread_id)
    assert shown.code == 0
    assert f"thread     {talk.thread_id}\n" in shown.out
    assert "[Human]\nWhat is 21*2, and what is here?\n" in shown.out
    assert "→ tool_call: calculate(id=" in shown.out
    assert "[AI]\nThe answer is 42, voilà [bold].\n" in shown.out


def test_text_comes_from_standard_input(place: Place) -> None:
    ended = place.write().wick("run", "-", "--no-stream", stdin=b"What is 1200+34?\n")
    assert ended.code == 0
    assert ended.out == "1200+34 = 1234.\n"
    assert '→ calculate(expression="1200+34")' in ended.err


@pytest.mark.slow
def test_an_argument_is_text_also_in_a_locale_without_utf_8(place: Place) -> None:
    words = ("run", "--json", "-m", "scripted:demo", "é")
    ended = place.write().wick(*words, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["messages"][0]["content"] == "é"


def test_a_model_that_fails_ends_with_code_1_and_the_thread_goes_on(place: Place) -> None:
    place.write("scripted:bad.yaml", bad="steps: [{error: the cable is out}]")
    failed = place.wick("run", "-t", "mine", "Hello")
    assert failed.code == 1
    assert failed.out == ""
    complaint, thread = failed.err.splitlines()
    assert complaint.startswith("wick: LLM call: ")
    assert complaint.endswith("the cable is out")
    assert thread.startswith("thread mine (continue: ")
    as_json = place.wick("run", "--json", "Hello")
    assert as_json.code == 1
    assert as_json.json["stopped_because"] == "failed"
    assert "the cable is out" in as_json.json["error"]
    go_on = place.write().wick("run", "-t", "mine", "What is 2*4?")
    assert go_on.code == 0
    assert go_on.out == "2*4 = 8.\n"


@pytest.mark.slow
def test_a_named_model_that_is_not_there_is_no_demo(place: Place) -> None:
    port = "http://127.0.0.1:1"
    config = f"{{model: test, base_url: {port}/v1, retries: 0, timeout: 5}}"
    ended = place.write(config).wick("run", "What is 2*3?")
    assert ended.code == 1
    assert ended.out == ""
    assert ended.err.startswith("wick: LLM call: ")


def test_the_limit_is_an_answer_that_says_why(place: Place) -> None:
    call = "{call: calculate, args: {expression: 1+1}, unchecked: true}"
    loop = f"steps: [{call}, {call}]"
    place.write("scripted:loop.yaml\n    max_iterations: 2", loop=loop)
    ended = place.wick("run", "Count")
    assert ended.code == 0
    assert ended.out == "Stopped after 2 steps without a final answer.\n"
    assert "stopped: limit: the agent may make 2 model calls in one run" in ended.err


def test_ctrl_c_cancels_and_leaves_a_thread_that_goes_on(place: Place) -> None:
    slow = "steps: [{text: Wait., calls: [{tool: ls}]}, {delay: 80, text: Never.}]"
    place.write("scripted:slow.yaml", slow=slow)
    with place.start("run", "-t", "mine", "Go") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"Wait.\n"
        assert process.stderr.readline() == "→ ls()\n".encode()
        assert process.stderr.readline().startswith("← [".encode())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == b""
    assert err.decode().startswith("stopped: cancelled\nthread mine (continue: ")
    (facts,) = place.wick("threads", "list", "--json").json
    assert (facts["status"], facts["stopped_because"]) == ("idle", "cancelled")
    go_on = place.write().wick("run", "-t", "mine", "--json", "What is 3*5?")
    assert go_on.json["response"] == "3*5 = 15."
    assert [m["role"] for m in go_on.json["messages"]][:3] == ["user", "assistant", "tool"]


def test_a_reader_that_leaves_ends_it_quietly(place: Place) -> None:
    words = " ".join(f"w{i}" for i in range(400))
    place.write("scripted:long.yaml", long=f"chunk_delay: 0.01\nsteps: ['{words}']")
    with place.start("run", "Talk") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"w"
        process.stdout.close()
        err = process.stderr.read()
        process.wait(60)
    assert process.returncode == 141
    assert err == b""


@pytest.mark.parametrize("words", [["version"], ["version", "--json"], ["threads", "list"]])
def test_an_output_that_is_full_is_said_to_be(place: Place, words: list[str]) -> None:
    place.write("scripted")
    place.wick("run", "Talk")
    with Path("/dev/full").open("wb") as full:
        process = place.start(*words, stdout=full)
    err = process.communicate(timeout=60)[1].decode()
    assert (process.returncode, err.count("\n")) == (1, 1)
    assert err.startswith("wick: the output cannot be written: No space left on device")


def test_a_terminal_gets_no_control_characters_from_a_model(place: Place) -> None:
    evil = r"""steps:
      - {text: "a\e[31mb\r\x9bc", calls: [{tool: calculate, args: {expression: "\e[2J"}}]}
      - ok
    """
    place.write("scripted:evil.yaml", evil=evil)
    shown = in_terminal(place, "run", "Hello")
    assert "a␛[31mb�c\r\n" in shown
    assert "\x1b" not in shown
    assert "\r\nok\r\n" in shown
    assert '→ calculate(expression="\\u001b[2J")' in shown


def in_terminal(place: Place, *args: str) -> str:
    """Run a command with a terminal on all its streams; return what a person would get."""
    master, slave = pty.openpty()
    env = {"NO_COLOR": "1", "TERM": "xterm"}
    process = place.start(*args, stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    shown = b""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if not select.select([master], [], [], 1)[0]:
            continue
        try:
            shown += os.read(master, 65_536)
        except OSError:  # the other end is closed
            break
    os.close(master)
    assert process.wait(60) == 0
    return shown.decode()


def test_the_demo_calls_the_tools_and_says_what_it_is(place: Place) -> None:
    dice = random.SystemRandom()
    a, b, c = (dice.randint(100, 999) for _ in range(3))
    sums = {f"{a}*{b}": a * b, f"{b}+{c}": b + c, f"({a}-{c})*2": (a - c) * 2}
    ended = place.write("auto").wick("run", f"What are {', '.join(sums)}, and which files?")
    assert ended.code == 0
    assert ended.err.startswith("No model key and no Ollama found: using the scripted demo model")
    for text, value in sums.items():
        assert f"{text} = {value}." in ended.out.splitlines()
    assert "agents.yaml" in ended.out


def test_the_demo_says_what_the_tool_said() -> None:
    word = secrets.token_hex(8)

    def calculate(expression: str) -> str:
        """Calculate.

        Args:
            expression: What to calculate.
        """
        return word

    with wick_graph.Agent(model="scripted:demo", tools=[calculate]) as agent:
        assert word in agent.invoke("What is 21*2?").text


@pytest.mark.slow
def test_looking_creates_nothing(place: Place) -> None:
    place.write()
    listed = place.wick("threads", "list")
    assert (listed.code, listed.out) == (0, "no threads yet\n")
    shown = place.wick("threads", "show", "th_1")
    assert shown.code == 2
    assert shown.err == "wick: there is no thread th_1; `wick threads list` shows the threads\n"
    assert not place.database.exists()


@pytest.mark.slow
def test_threads_are_pruned_when_their_time_is_up_and_deleted_when_asked(place: Place) -> None:
    place.write(ttl="0.05s")
    with wick_graph.load(place.folder / "agents.yaml") as agents:
        for agent, thread in (("default", "brief"), ("default", "pinned"), ("keeper", "kept")):
            agents[agent].invoke("What is 1+1?", thread_id=thread)
        agents["default"].threads.pin("pinned")
    listed = place.wick("threads", "list").out
    assert re.search(r"brief .* ago\) ", listed)
    assert re.search(r"pinned .* never \(pinned\) ", listed)
    assert re.search(r"kept +keeper .* never ", listed)

    dry = place.wick("threads", "prune", "--dry-run")
    assert dry.out == "would delete brief\nwould delete 1 thread\n"
    assert place.wick("threads", "prune").out == "deleted brief\ndeleted 1 thread\n"

    done = place.wick("threads", "delete", "--yes", "pinned")
    assert (done.code, done.out) == (0, "deleted pinned\n")
    with SqlSaver.from_url(f"sqlite:///{place.database}") as store:
        (left,) = store.threads.list()
    assert (left.thread_id, left.expires_at) == ("kept", None)


@pytest.mark.sisters
@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        pytest.param(["run", "--jsn", "Hi"], "no such option: --jsn", id="flag"),
        pytest.param(["run", "nobody", "Hi"], "no agent 'nobody', only default, ", id="agent"),
        pytest.param(["run", "-t", "a b", "Hi"], "the thread id 'a b' is refused", id="thread id"),
        pytest.param(["run", "-c", "no.yaml", "Hi"], "no.yaml: no such file", id="file"),
        pytest.param(["run", "-m", "opnai:x", "Hi"], "No provider is called 'opnai'", id="model"),
    ],
)
def test_what_is_refused_gets_one_sentence_and_leaves_nothing(
    place: Place, args: list[str], sentence: str
) -> None:
    refused = place.write().wick(*args)
    assert refused.code == 2
    assert refused.out == ""
    (line,) = refused.err.splitlines()
    assert line.startswith("wick: ")
    assert sentence in line
    assert [entry.name for entry in place.folder.iterdir()] == ["agents.yaml"]


HELP = """\
import sys
from wick_graph.cli.app import call
code = call(["--help"])
heavy = {"langchain", "langchain_core", "langgraph", "sqlalchemy", "pydantic", "rich", "yaml"}
print(code, sorted(heavy & {name.partition(".")[0] for name in sys.modules}), len(sys.modules))
"""


def test_help_is_there_at_once(place: Place) -> None:
    run = [sys.executable, "-c", HELP]
    done = subprocess.run(run, env=place.env(), capture_output=True, text=True, check=True)
    *shown, last = done.stdout.splitlines()
    assert any(line.strip().startswith("threads ") for line in shown)
    code, imported, modules = last.split()
    assert (code, imported) == ("0", "[]")
    assert int(modules) < 320  # what the time goes to, on any machine; 230 of them take 0.15 s
