"""What a user does, in a process that `tests.support.windows` has made; prints JSON.

Run as a script: `python -m tests.support.windows tests.e2e.windows_tour FOLDER`. Each part returns
what `test_every_machine.py` looks at, or the traceback of what failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from wick_graph import Agent, BaseHook, Server, SqlSaver, load, machine
from wick_graph.backends import LocalBackend, Root
from wick_graph.backends.docker import DockerBackend
from wick_graph.cli.app import call
from wick_graph.hooks import ApprovalHook
from wick_graph.store import connection
from wick_graph.testing import ScriptedModel
from wick_graph.testing import call as tool_call

FILE = """\
store: sqlite:///threads/wick.db
defaults: {ttl: never, tools: [calculate], model: 'scripted:talk.yaml'}
agents:
  default: {}
  careful: {approvals: {calculate: true}}
"""
STEP = "{text: Let me see., calls: [{tool: calculate, args: {expression: 21*2}}]}"
TALK = f"steps: [{', '.join([STEP, 'It is 42.'] * 9)}]\n"
OWN = """\
store: sqlite:///sealed/wick.db
store_keys: file:keys
agents:
  default:
    model: {{use: "mine:model"}}
    tools: ["mine:twice"]
    mcp_servers: {{far: {{command: ["{python}", "{server}", fine]}}}}
"""
MINE = """\
from wick_graph.testing import ScriptedModel, call

def twice(n: int) -> int:
    \"\"\"Double a number.\"\"\"
    return 2 * n

def model():
    return ScriptedModel([call("twice", n=21), call("far_big"), "Done."])
"""
BAD = Path(__file__).parents[1] / "mcp" / "bad.py"
REFUSED = {
    "local": "{backend: {type: local}}",
    "execute": "{backend: {type: local, execute: local}}",
    "docker": "{backend: {type: docker}}",
    "ls": "{tools: [calculate, ls]}",
    "skills": "{backend: {type: local}, skills: {paths: [skills]}}",
    "memory": "{backend: {type: local}, memory: {paths: [notes.md]}}",
}


def word_count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


class Told(BaseHook):
    """A hook of one's own, with `async def`."""

    name = "told"

    async def modify_request(self, request: Any, ctx: Any) -> Any:
        await asyncio.sleep(0)
        return request.append_system("Be short.")


def made(**more: Any) -> Agent:
    steps: list[Any] = [tool_call("word_count", text="one two three"), "Three."] * 3
    return Agent("counter", ScriptedModel(steps), tools=[word_count], hooks=[Told()], **more)


def agent() -> Any:
    with made() as one:
        said = one.invoke("How many?").text
        streamed = [type(event).__name__ for event in one.stream("Again?")]

        async def later() -> str:
            return (await one.ainvoke("And async?")).text

        return {"said": said, "streamed": streamed[-1], "later": asyncio.run(later())}


def store() -> Any:
    """Write, stop for an approval, go on in another agent, list, sweep, verify."""
    url, found = "sqlite:///own/threads.db", dict[str, Any]()
    Path("own").mkdir()
    Path("own/threads.db").touch()  # an empty file becomes the database
    rules = {"word_count": True}
    with made(store=url, ttl=1.0) as one:
        one.invoke("Old?", thread_id="old")
    steps: list[Any] = [tool_call("word_count", text="one two three"), "Three."]
    asks: dict[str, Any] = {"tools": [word_count], "hooks": [ApprovalHook(rules)], "store": url}
    with Agent("asks", ScriptedModel(steps), **asks) as one:
        found["asked"] = len(one.invoke("How many?", thread_id="user:a").interrupts)
    with Agent("asks", ScriptedModel(steps), **asks) as one:
        found["said"] = one.resume("user:a", {"decision": "approve"}).text
    with SqlSaver.from_url(url) as saver:
        found["listed"] = sorted(info.thread_id for info in saver.threads.list())
        now = time.time()
        saver.clock = lambda: now + 600.0
        found["swept"] = saver.sweep()
        found["left"] = [info.thread_id for info in saver.threads.list()]
    return found


def idle() -> Any:
    """Threads grow old also if each process works for a moment, hours after the last one."""
    url = "sqlite:///idle.db"
    with made(store=url, ttl="3h") as one:
        one.invoke("Old?", thread_id="old")
    gone, wall, steady = [], time.time, connection.steady_time
    for later in (2 * 3600.0, 4 * 3600.0):
        time.time = partial(_later, wall, later)
        connection.steady_time = partial(_later, steady, later)
        with SqlSaver.from_url(url) as saver:
            gone.append(saver.sweep())
    time.time, connection.steady_time = wall, steady
    return gone


def _later(clock: Callable[[], float], seconds: float) -> float:
    return clock() + seconds


HOLDER = """\
import sys
from tests.support import windows
windows.become(("asyncio", "langgraph.graph", "sqlalchemy.dialects.sqlite"))
from wick_graph.store import connection
print(connection.owner().hex(), flush=True)
sys.stdin.read()
"""


def liveness() -> Any:
    """A process is alive until it is killed, and not a moment longer."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    found: dict[str, Any] = {"own": connection.is_alive(connection.owner(), elsewhere=False)}
    with subprocess.Popen([sys.executable, "-c", HOLDER], **pipes) as other:
        assert other.stdout is not None
        holder = bytes.fromhex(other.stdout.readline().decode())
        found["alive"] = connection.is_alive(holder, elsewhere=False)
        other.kill()
        other.wait()
        found["killed"] = connection.is_alive(holder, elsewhere=True)
    there = holder.replace(machine.processes().encode(), b"on another-host")
    found["elsewhere"] = [connection.is_alive(there, elsewhere=one) for one in (True, False)]
    odd = b"/".join((*holder.split(b"/")[:2], b"..\\..\\x" * 99))
    found["odd"] = [connection.is_alive(odd, elsewhere=one) for one in (True, False)]
    return found


def wick(*args: str) -> dict[str, Any]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = call(args)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def commands() -> Any:
    waits = wick("run", "-t", "waits", "careful", "What is 21*2?")
    asked = waits["err"].partition("--approve ")[2].partition(",")[0]
    told = {
        "waits": waits,
        "resume": wick("resume", "waits", "--approve", asked),
        "version": wick("version"),
        "validate": wick("validate"),
        "run": wick("run", "-t", "user:b", "What is 21*2?"),
        "json": wick("run", "--json", "And in JSON?"),
        "list": wick("threads", "list"),
        "show": wick("threads", "show", "user:b"),
        "fork": wick("threads", "fork", "user:b", "forked"),
        "journal": wick("journal", "user:b"),
        "graph": wick("graph"),
        "hooks": wick("hooks"),
        "prune": wick("threads", "prune"),
        "vacuum": wick("threads", "vacuum"),
        "key": wick("store", "key", "--to", "keys"),
        "token": wick("token", "create", "--out", "token"),
        "verify": wick("store", "verify"),
        "take out": wick("threads", "export", "user:b", "out.db"),
        "take in": wick("threads", "import", "out.db", "--as", "again"),
        "repair": wick("store", "repair", "--to", "mended.db"),
        "debug": wick("debug", "-t", "user:b", "--batch", "-e", "goto @3; where"),
        "trust": wick("trust", "-c", "own.yaml"),
        "own code": wick("run", "-c", "own.yaml", "-t", "own", "Twice 21?"),
        "rotate": wick("store", "rotate", "-c", "own.yaml"),
    }
    for form in ("html", "wickrun", "pytest", "chrome", "jsonl"):
        told[f"export {form}"] = wick("export", "-t", "user:b", "--to", form)
    told["debug wickrun"] = wick("debug", "user_b.wickrun", "--batch", "-e", "goto @3; where")
    return told


def refusals() -> Any:
    """Each door to files and commands, by the command line and in Python."""
    said: dict[str, Any] = {}
    for name, block in REFUSED.items():
        Path(f"{name}.yaml").write_text(FILE.replace("default: {}", f"default: {block}"), "utf-8")
        said[name] = [wick(*args, "-c", f"{name}.yaml") for args in (("validate",), ("run", "Hi"))]
    doors: dict[str, Callable[[], object]] = {
        "Root": lambda: Root("."),
        "LocalBackend": lambda: LocalBackend(".", execute="auto"),
        "DockerBackend": lambda: DockerBackend("."),
    }
    for name, door in doors.items():
        try:
            said[name] = repr(door())
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    return {**said, "left": sorted(one.name for one in Path().iterdir())}


ASK = {"messages": [{"role": "user", "content": "How many?"}]}


def server() -> Any:
    """A request by ASGI, and agents that are refused."""

    async def inside() -> Any:
        one = Server(load("agents.yaml"), auth=False)
        transport = httpx.ASGITransport(one.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            found = {"said": (await client.post("/agents/default/invoke", json=ASK)).json()}
            for given in ({"tools": ["ls"]}, {"backend": {"type": "local"}}):
                got = await client.post("/agents", json={"agent_id": "worker", **given})
                found[f"refused {[*given]}"] = [got.status_code, got.json()["error"]]
            return found

    return asyncio.run(inside())


def serve() -> Any:
    """A request over a socket: `wick serve` in the main thread, until Ctrl-C."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found: dict[str, Any] = {}

    ended = threading.Event()

    def visit() -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            while not ended.wait(0.05):
                with contextlib.suppress(httpx.TransportError):
                    found["said"] = client.post("/agents/default/invoke", json=ASK).json()
                    os.kill(os.getpid(), signal.SIGINT)
                    return

    visitor = threading.Thread(target=visit)
    visitor.start()
    found["ended"] = wick("serve", "--no-auth", "--port", str(port))
    ended.set()
    visitor.join()
    return found


def main() -> None:
    """Take the tour."""
    os.chdir(sys.argv[1])
    Path("agents.yaml").write_text(FILE, "utf-8")
    Path("talk.yaml").write_text(TALK, "utf-8")
    Path("own.yaml").write_text(OWN.format(python=sys.executable, server=BAD), "utf-8")
    Path("mine.py").write_text(MINE, "utf-8")
    told: dict[str, Any] = {"platform": sys.platform}
    for part in (agent, store, idle, liveness, commands, refusals, server, serve):
        try:
            told[part.__name__] = part()
        except Exception:
            told[part.__name__] = traceback.format_exc()
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
