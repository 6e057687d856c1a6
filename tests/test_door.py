"""The package's door, and what happens when it is imported: nothing."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import langgraph._internal._constants as langgraph_constants
import pytest
from langgraph.constants import TAG_NOSTREAM
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.graph.state import _CHANNEL_BRANCH_TO

import wick_graph
from tests.source import IMPORTABLE, MODULES, ROOT, is_type_checking
from wick_graph import langgraph_config
from wick_graph.core import state

HEAVY = ("langchain", "langgraph", "langsmith", "sqlalchemy", "pydantic", "openai", "httpx")


def test_door_is_small_and_its_table_is_whole() -> None:
    names = set(wick_graph.__all__)
    assert len(wick_graph.__all__) == len(names) <= 25
    assert names == {*wick_graph._HOME, "events", "__version__"}
    shown = {
        alias.name
        for block in MODULES["wick_graph"].tree.body
        if is_type_checking(block)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert shown == names - {"__version__"}, "what type checkers see is what is there"


@pytest.mark.parametrize("name", wick_graph.__all__)
def test_name_at_the_door_resolves_and_is_documented(name: str) -> None:
    value: Any = getattr(wick_graph, name)
    if name != "__version__":
        own = value.__doc__
        assert own, "it says nothing"
        assert not own.startswith(f"{name}("), "a dataclass's made-up text is no documentation"


def test_door_has_no_other_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_this_name'"):
        wick_graph.nothing_of_this_name  # noqa: B018  # looking it up is what raises
    assert dir(wick_graph) == sorted(wick_graph.__all__)


WATCHED = """
import json, os, sys, threading
seen = {"did": [], "read": []}
def watch(event, args):
    write = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    if event == "open" and isinstance(args[2], int) and args[2] & write:
        seen["did"].append(f"open {args[0]}")
    elif event in ("os.mkdir", "os.rename", "os.remove", "subprocess.Popen", "os.fork"):
        seen["did"].append(f"{event} {args[0]}")
    elif event == "socket.connect" or (event == "socket.bind" and args[1] != ("::1", 0)):
        seen["did"].append(f"{event} {args[1]}")  # urllib3 looks for IPv6 by binding to ::1
class Watched(dict):
    def __getitem__(self, key):
        seen["read"].append(key)
        return super().__getitem__(key)
    def get(self, key, default=None):
        seen["read"].append(key)
        return super().get(key, default)
    def __contains__(self, key):
        seen["read"].append(key)
        return super().__contains__(key)
os.environ = Watched(os.environ)
sys.addaudithook(watch)
try:
    BODY
except SystemExit as end:
    assert not end.code, end.code
seen["modules"] = sorted({name.partition(".")[0] for name in sys.modules})
seen["threads"] = threading.active_count()
sys.stdout.write("\\n" + json.dumps(seen) + "\\n")
"""
"""Runs a program, and tells at the end what it read of the environment and did to the system."""


def watch(body: str, cwd: Path) -> tuple[dict[str, Any], str]:
    """Run a program under watch; return what it did and what it printed."""
    command = [sys.executable, "-B", "-c", WATCHED.replace("BODY", body)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert list(cwd.iterdir()) == []
    printed, _, last = done.stdout.rstrip("\n").rpartition("\n")
    return json.loads(last), printed.strip()


def heavy(seen: dict[str, Any]) -> list[str]:
    return [name for name in seen["modules"] if name.startswith(HEAVY)]


def test_the_watch_sees_what_it_is_for(tmp_path: Path) -> None:
    """Guards the tests below: each of these must be noticed."""
    body = "import threading, time, pydantic; print('x'); os.getenv('A'); os.environ['PATH']; \\\n"
    body += "    open(os.devnull, 'w').close(); \\\n"
    body += "    threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
    seen, printed = watch(body, tmp_path)
    assert printed == "x"
    assert "pydantic" in heavy(seen)
    assert {"A", "PATH"} <= set(seen["read"])
    assert seen["did"] == [f"open {os.devnull}"]
    assert seen["threads"] == 2


def test_importing_the_door_is_light_and_silent(tmp_path: Path) -> None:
    seen, printed = watch("import wick_graph", tmp_path)
    assert heavy(seen) == []
    assert (seen["did"], seen["read"], seen["threads"], printed) == ([], [], 1, "")


def test_importing_everything_is_silent(tmp_path: Path) -> None:
    # procrastinate's croniter runs `file` to ask whether Python has 32 bits
    names = [name for name in IMPORTABLE if not name.startswith("wick_graph.worker")]
    body = f"import importlib; [importlib.import_module(n) for n in {names!r}]"
    seen, printed = watch(body, tmp_path)
    assert (seen["did"], seen["threads"], printed) == ([], 1, "")


@pytest.mark.parametrize("argument", ["--help", "version"])
def test_help_and_version_are_light(argument: str, tmp_path: Path) -> None:
    body = f"sys.argv = ['wick', {argument!r}]; from wick_graph.cli import main; main()"
    seen, printed = watch(body, tmp_path)
    assert printed
    # typer itself reads a command's options with pydantic
    assert {*heavy(seen)} <= {"pydantic", "pydantic_core"}
    assert seen["did"] == []


def test_the_tag_that_hides_a_call_is_langgraphs_own() -> None:
    assert langgraph_config.NOSTREAM == TAG_NOSTREAM


def test_the_task_of_writes_without_a_task_is_langgraphs_own() -> None:
    assert langgraph_config.TASKS == langgraph_constants.TASKS
    assert langgraph_config.NULL_TASK_ID == langgraph_constants.NULL_TASK_ID


def test_the_channel_that_triggers_a_node_is_langgraphs_own() -> None:
    assert _CHANNEL_BRANCH_TO == langgraph_config.TO + "{}"


OWN = (
    "TYPE_CHECKING",
    "RUN",
    "WRITER",
    "PATH",
    "RULES",
    "LONG_TERM",
    "NOSTREAM",
    "NULL_TASK_ID",
    "STEP",
    "PULL",
    "PUSH",
    "PREGEL",
    "TASKS",
    "TO",
    "HIDDEN",
)


@pytest.mark.parametrize(
    "name", [n for n in vars(langgraph_config) if n.isupper() and n not in OWN]
)
def test_key_is_langgraphs_own(name: str) -> None:
    theirs = "CONF" if name == "CONFIGURABLE" else f"CONFIG_KEY_{name}"
    assert getattr(langgraph_config, name) == getattr(langgraph_constants, theirs)


def test_our_own_key_is_none_of_langgraphs_and_stays_out_of_metadata() -> None:
    for own in (langgraph_config.RUN, langgraph_config.WRITER, langgraph_config.PATH):
        assert own.startswith("__")
        assert own not in langgraph_constants.RESERVED


def test_the_id_that_removes_all_messages_is_langgraphs_own() -> None:
    assert state.REMOVE_ALL == REMOVE_ALL_MESSAGES


UNUSED = (
    *("wick_graph.config.schema", "wick_graph.config.fields", "wick_graph.config.yaml_reader"),
    *("wick_graph.models.demo", "wick_graph.models.scripted", "wick_graph.journal.blame"),
    *("wick_graph.debug", "wick_graph.picture", "wick_graph.exports", "wick_graph.loading"),
    *("wick_graph.client", "wick_graph.service", "wick_graph.gateway", "wick_graph.server"),
    *(
        "wick_graph.cli",
        "wick_graph.testing",
        "wick_graph.subagents",
        "wick_graph.tools.mcp_transport",
    ),
    *("wick_graph.store.postgres", "sqlalchemy.dialects.postgresql"),
    *("yaml", "jsonschema", "referencing", "attr", "fastapi", "uvicorn", "typer", "psycopg", "mcp"),
)
"""What an agent that is made in Python may never use."""

AGENT = """
import sys
from wick_graph import Agent
from wick_graph.store.texts import Prepared
import gc
print(*(name for name in sys.argv[1:] if name in sys.modules))
print(*(one.order for one in gc.get_objects() if type(one) is Prepared and one.made))
"""


def test_an_agent_is_imported_without_what_it_may_never_use() -> None:
    """A module in this list costs each process that imports an agent; so does compiled SQL."""
    known = {name for name in UNUSED if name.startswith("wick_graph.")}
    assert known <= set(MODULES), "a name has changed"
    command = [sys.executable, "-c", AGENT, *UNUSED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


TURNS = """
import sys
from wick_graph import Agent
from wick_graph.store import texts
from wick_graph.testing import ScriptedModel, call
if sys.argv[2] == "stale":
    texts._MADE = {}  # as when a module that makes the texts has changed
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
def said(store):
    model = ScriptedModel([call("add", a=1, b=2), "Three."] * 4)
    with Agent("sum", model, tools=[add], store=store) as agent:
        return [len(agent.invoke("1 + 2?", thread_id="t").messages) for _ in range(2)][-1]
unstored = said(False)
assert not [name for name in sys.modules if name.startswith("sqlalchemy")]
print(unstored, said(f"sqlite:///{sys.argv[1]}"))
"""

OPENED = """
import sys
from wick_graph.store import SqlSaver
with SqlSaver.from_url("sqlite://") as saver:
    loaded = {*sys.modules}
    saver.threads.list(agent="a", status="idle")
    saver.threads.due()
    saver.sweep()
    saver.delete_thread("t")
late = {*sys.modules} - loaded
print(*(name for name in late if name.startswith(("sqlalchemy", "wick_graph.store"))))
"""


def last_words(program: str, *args: object) -> list[str]:
    """Run a program, and return the words of its last line."""
    command = [sys.executable, "-W", "error", "-c", program, *map(str, args)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("states", [("new", "new"), ("stale", "new"), ("new", "stale")])
def test_sqlalchemy_is_loaded_for_a_store_alone(states: tuple[str, str], tmp_path: Path) -> None:
    """Its import is a seventh of an agent's; the second process continues the thread."""
    for count, texts in zip((8, 16), states, strict=True):
        assert last_words(TURNS, tmp_path / "threads.db", texts) == ["4", str(count)]


def test_an_open_store_has_loaded_what_it_needs() -> None:
    """An import amid its work could be interrupted, meet another one, or find another release."""
    assert last_words(OPENED) == []
