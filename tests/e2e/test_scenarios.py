"""Whole stories over SQLite: a process dies amid each of them, and another one ends it."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from tests.support.command import SECONDS, Folder
from tests.support.containers import IMAGE

HOOKS = ["tracing", "todolist", "filesystem", "summarization"]
FILE_TOOLS = ["ls", "read_file", "write_file", "edit_file", "glob", "grep", "execute"]
LOCAL = "{type: local, workdir: workspace, execute: local}"
DOCKER = "{{type: docker, image: {image}, docker_host: {host}, folder: workspace, workdir: {work}}}"
BEFORE, AFTER = "interrupt_before", "interrupt_after"


@pytest.fixture(params=["local", "docker"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """How an agent's backend is written; both show the folder under its own path."""
    if request.param == "local":
        return LOCAL
    host = request.getfixturevalue("container_engine").host
    return DOCKER.format(image=IMAGE, host=host, work=tmp_path / "workspace")


@dataclass(frozen=True)
class Story:
    """An agent of a folder, which is told something."""

    place: Folder
    text: str

    @property
    def work(self) -> Path:
        return self.place.path / "workspace"

    def tell(self, where: str) -> dict[str, Any]:
        """Tell it in one process up to a breakpoint at `tools`, and go on in a second one."""
        begun = self._process("begin", "mine", self.text, where, code=-signal.SIGKILL)
        assert set(begun["next"]) == {"tools" if where == BEFORE else "modify_request"}
        ended = self._process("go-on", "mine", code=0)
        assert begun["hooks"] == ended["hooks"]
        assert (ended["stopped"], self.place.thread().stopped_because) == ("done", "done")
        ended["systems"] = [*begun["systems"], *ended["systems"]]
        ended["offered"] = [*begun["offered"], *ended["offered"]]
        return ended

    def _process(self, *args: str, code: int) -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.support.scenario", *args]
        ran = forked.run(
            command,
            cwd=self.place.path,
            env=self.place.env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ran.returncode == code, ran.stderr
        said: dict[str, Any] = json.loads(ran.stdout)
        return said


def story(folder: Path, text: str, agent: str, script: str) -> Story:
    indented = "".join(f"    {line}\n" for line in agent.strip().splitlines())
    agents = f"agents:\n  default:\n    model: scripted:script.yaml\n{indented}"
    place = Folder(folder).write(
        agents=agents, script=script.replace("{work}", f"{folder}/workspace")
    )
    (folder / "workspace").mkdir()
    return Story(place, text)


def roles(told: dict[str, Any]) -> list[str]:
    return [message["role"] for message in told["messages"]]


def outputs(told: dict[str, Any]) -> list[str]:
    return [m["content"] for m in told["messages"] if m["role"] == "tool"]


@pytest.mark.slow
@pytest.mark.parametrize((), [pytest.param(id="I-01")])
def test_a_file_is_read(tmp_path: Path, backend: str) -> None:
    code = "from fastapi import FastAPI\napp = FastAPI()\n"
    script = """\
steps:
  - {call: read_file, args: {path: "{work}/main.py"}}
  - The file contains a FastAPI app.
"""
    agent = f"system_prompt: You are a coding assistant.\nbackend: {backend}"
    read = story(tmp_path, "Read the main.py file", agent, script)
    (read.work / "main.py").write_text(code)
    told = read.tell(BEFORE)
    assert roles(told) == ["user", "assistant", "tool", "assistant"]
    asked, answer = told["messages"][1:3]
    assert asked["content"] == ""
    assert asked["tool_calls"][0]["id"] == answer["tool_call_id"]
    assert (answer["name"], answer["content"]) == ("read_file", code)
    assert told["text"] == "The file contains a FastAPI app."
    assert len(told["systems"]) == 2
    for system in told["systems"]:
        assert system.startswith("You are a coding assistant."), "sent, and stored nowhere"


@pytest.mark.slow
@pytest.mark.parametrize((), [pytest.param(id="I-02")])
def test_two_numbers_are_added(tmp_path: Path) -> None:
    script = "steps: [{call: add, args: {a: 2, b: 3}}, The sum of 2 and 3 is 5]"
    told = story(tmp_path, "Add 2+3", "tools: [add]", script).tell(AFTER)
    assert outputs(told) == ["5"]
    assert told["text"] == "The sum of 2 and 3 is 5"
    assert len(told["systems"]) == 2, "two iterations"


@pytest.mark.slow
@pytest.mark.parametrize((), [pytest.param(id="I-03")])
def test_a_presentation_is_made_by_a_skill(tmp_path: Path, backend: str) -> None:
    body = "Write one slide for each point.\n" + "x" * 70_000
    script = """\
steps:
  - {call: read_file, args: {path: skills/slides/SKILL.md}}
  - {call: write_file, args: {path: presentation.md, content: "# AI Presentation"}}
  - I've created your presentation about AI.
"""
    # commands without a sandbox would not leave the skills beside them alone
    held = backend.replace("execute: local", "execute: 'off'")
    agent = f"backend: {held}\nskills: {{paths: [skills]}}"
    made = story(tmp_path, "Create a presentation about AI", agent, script)
    (made.work / "skills/slides").mkdir(parents=True)
    front = "---\nname: slides\ndescription: Create presentations\n---\n"
    (made.work / "skills/slides/SKILL.md").write_text(front + body)
    told = made.tell(BEFORE)
    assert len(told["systems"]) == 3, "three iterations"
    line = "- [slides] Create presentations → Read skills/slides/SKILL.md for full instructions"
    assert all(line in system for system in told["systems"]), "read once, and there after a restart"
    read, wrote = outputs(told)
    assert read == front + body, "below 80,000 characters nothing is cut"
    path = str(made.work / "presentation.md")
    assert json.loads(wrote) == {"path": path, "bytes_written": 17}
    assert told["files"] == {path: "# AI Presentation"}
    assert Path(path).read_text() == "# AI Presentation"


@pytest.mark.slow
@pytest.mark.parametrize((), [pytest.param(id="I-04")])
def test_a_state_holds_messages_todos_and_files(tmp_path: Path, backend: str) -> None:
    script = """\
steps:
  - calls:
      - {tool: write_file, args: {path: "{work}/hello.py", content: print('hello')}}
      - tool: write_todos
        args:
          todos:
            - {id: "1", title: Create hello.py, status: done}
            - {id: "2", title: Add unit tests, status: pending}
  - Created hello.py with a simple print statement.
"""
    made = story(tmp_path, "Create a hello.py file", f"backend: {backend}", script)
    told = made.tell(AFTER)
    assert roles(told) == ["user", "assistant", "tool", "tool", "assistant"]
    assert outputs(told)[1] == "Updated 2 todo(s)"
    assert told["todos"] == [
        {"id": "1", "title": "Create hello.py", "status": "done"},
        {"id": "2", "title": "Add unit tests", "status": "pending"},
    ]
    assert told["files"] == {f"{made.work}/hello.py": "print('hello')"}
    assert told["hooks"] == HOOKS


class Search(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        data = json.dumps({"results": [{"title": "Go", "url": "https://go.dev"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def search_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Search) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/search"
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize((), [pytest.param(id="I-05")])
def test_three_tools_are_called_at_once(tmp_path: Path, backend: str, search_url: str) -> None:
    script = """\
steps:
  - calls:
      - {tool: read_file, args: {path: x.py}}
      - {tool: calculate, args: {expression: 2+3}}
      - {tool: internet_search, args: {query: go}}
  - calls:
      - {tool: execute, args: {command: "cat x.py; pwd"}}
  - All three are here.
"""
    agent = f"""\
tools: [calculate, internet_search]
search: {{url: "{search_url}"}}
backend: {backend}
"""
    asked = story(tmp_path, "Look at three things", agent, script)
    (asked.work / "x.py").write_text("x = 1\n")
    told = asked.tell(BEFORE)
    assert roles(told) == ["user", "assistant", *["tool"] * 3, "assistant", "tool", "assistant"]
    read, sum_, found, ran = outputs(told)
    assert (read, sum_) == ("x = 1\n", "5")
    assert json.loads(found) == [{"title": "Go", "url": "https://go.dev"}]
    done = json.loads(ran)
    assert (done["stdout"], done["exit_code"]) == (f"x = 1\n{asked.work}\n", 0)
    ids = [call["id"] for call in told["messages"][1]["tool_calls"]]
    assert [m["tool_call_id"] for m in told["messages"][2:5]] == ids, "in the order of the calls"


@pytest.mark.slow
@pytest.mark.parametrize((), [pytest.param(id="I-06")])
def test_the_sample_has_files_skills_and_memory(tmp_path: Path, backend: str) -> None:
    # a container shows them read-only in its folder; without a sandbox they lie outside of it
    base = tmp_path if backend == LOCAL else tmp_path / "workspace"
    script = f"""\
steps:
  - {{call: read_file, args: {{path: {base}/skills/csv/SKILL.md}}}}
  - {{call: edit_file, args: {{path: {base}/AGENTS.md, old_text: tea, new_text: coffee}}}}
  - {{call: execute, args: {{command: cat {base}/AGENTS.md}}}}
  - Noted.
"""
    agent = f"""\
name: code-assistant
system_prompt: You are a coding assistant.
context_window: 128000
backend: {backend}
skills: {{paths: [{base}/skills]}}
memory: {{paths: [{base}/AGENTS.md]}}
"""
    noted = story(tmp_path, "I prefer coffee", agent, script)
    (base / "skills/csv").mkdir(parents=True)
    (base / "skills/csv/SKILL.md").write_text("---\ndescription: Analyze\n---\nBODY\n")
    (base / "AGENTS.md").write_text("I like tea.")
    told = noted.tell(AFTER)
    assert told["hooks"] == [*HOOKS[:3], "skills", "memory", HOOKS[3]]
    assert told["offered"] == [["write_todos", *FILE_TOOLS]] * 4
    for system in told["systems"]:
        at = [
            system.index(part) for part in ("You are a coding", "Available Skills:", "I like tea.")
        ]
        assert at == sorted(at), "prompt, skills, memory; as they were when the run began"
        assert "BODY" not in system
    assert "BODY" in outputs(told)[0]
    assert json.loads(outputs(told)[2])["stdout"] == "I like coffee."
