"""Attacks on what a command of agents.yaml runs beside the file that it names."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.test_control_trust import home
from tests.source import ROOT
from wick_graph.cli.app import call
from wick_graph.config import digest_of, load_config, trust, trusted
from wick_graph.errors import ConfigError
from wick_graph.loading import Agents, backends_in, hooks_of, load
from wick_graph.server import ServerOptions, Service
from wick_graph.tools import mcp

__all__ = ["home"]

PLAIN = "steps: [{call: own_add, args: {a: 1, b: 2}}, done]\n"
FILES = {
    "srv/server.py": "import helper\n",
    "srv/helper.py": "x = 1\n",
    "pkg/__init__.py": "",
    "pkg/__main__.py": "x = 1\n",
    "lib/inner.py": "x = 1\n",
    "node_modules/.bin/tool": "x\n",
    "Makefile": "serve:\n",
    "run.sh": "exec true\n",
    "talk.yaml": "steps: [ready]\n",
}


@pytest.fixture
def app(tmp_path: Path, home: Path) -> Path:
    folder = tmp_path / "app"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def written(folder: Path, server: str, agent: str = "") -> Path:
    """Write a file with one agent and one server."""
    path = folder / "agents.yaml"
    text = (
        f"agents:\n  default:\n    model: scripted:talk.yaml\n{agent}"
        f"    mcp_servers:\n      own: {server}\n"
    )
    path.write_text(text, "utf-8")
    return path


def hash_of(path: Path) -> str:
    return digest_of(load_config(path))


BESIDE = {
    "a module beside the script": ("{command: [python3, srv/server.py]}", "srv/json.py"),
    "a module that the script imports": ("{command: [python3, srv/server.py]}", "srv/helper.py"),
    "a module by name": ("{command: [python3, -m, pkg]}", "pkg/__main__.py"),
    "a module in its place": ("{command: [python3, -m, json.tool]}", "json.py"),
    "code in a word": ("{command: [python3, -c, 'import pkg']}", "pkg/__init__.py"),
    "a shell": ("{command: [bash, -c, ./run.sh]}", "run.sh"),
    "a shell with more": ("{command: [bash, -c, 'cd lib;PYTHONPATH=x ./new']}", "lib/new"),
    "a package here": ("{command: [npx, -y, .]}", "package.json"),
    "a package by name": ("{command: [npx, tool]}", "node_modules/.bin/tool"),
    "make": ("{command: [make, serve]}", "Makefile"),
    "a variable": ("{command: [python3], cwd: srv, env: {PYTHONPATH: '../lib:x'}}", "lib/json.py"),
    "a path with a flag": ("{command: [run, --root=../lib], cwd: srv}", "lib/deep/x.py"),
    "a file to come": ("{command: [python3, ../new/x.py], cwd: srv}", "new/y.py"),
    "where it starts": ("{command: [run], cwd: srv}", "srv/anything"),
    "an empty folder": ("{command: [run], cwd: srv}", "srv/new/__init__.py"),
}


@pytest.mark.parametrize("how", BESIDE)
def test_what_a_command_may_run_is_part_of_the_hash(app: Path, how: str) -> None:
    server, changed = BESIDE[how]
    path = written(app, server)
    before = hash_of(path)
    assert hash_of(path) == before
    (app / changed).parent.mkdir(parents=True, exist_ok=True)
    (app / changed).write_text("hijacked\n", "utf-8")
    assert hash_of(path) != before


NOT_RUN = ("checkpoints/wick.db", "workspace/x.py", "workspace.tenants/a/x.py", ".git/index", "log")


@pytest.mark.parametrize("changed", NOT_RUN)
def test_what_changes_while_agents_run_is_none(app: Path, changed: str) -> None:
    agent = "    backend: {type: local, execute: 'off'}\n"
    path = written(app, "{command: [python3, srv/server.py], data: [log]}", agent)
    before = hash_of(path)
    (app / changed).parent.mkdir(parents=True, exist_ok=True)
    (app / changed).write_text("data\n", "utf-8")
    assert hash_of(path) == before


def test_a_link_is_followed_and_never_to_where_tools_write(app: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x.py").write_text("x = 1\n", "utf-8")
    (app / "srv/linked").symlink_to(elsewhere)
    agent = "    backend: {type: local, execute: 'off'}\n"
    path = written(app, "{command: [python3, server.py], cwd: srv}", agent)
    before = hash_of(path)
    (elsewhere / "x.py").write_text("x = 2\n", "utf-8")
    assert hash_of(path) != before
    (app / "workspace").mkdir()
    for target in ("../workspace", "../workspace/new.py"):
        (app / "srv/linked").unlink()
        (app / "srv/linked").symlink_to(target)
        with pytest.raises(ConfigError, match="is a link to a folder that tools write"):
            hash_of(path)


def test_a_folder_that_is_too_large_is_refused_and_not_cut(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(app, "{command: [python3, server.py], cwd: srv}")
    monkeypatch.setattr(trusted, "MOST_FILES", 10)
    assert hash_of(path)
    for number in range(9):
        (app / f"srv/{number}").touch()
    said = r"agents\.yaml:5: agents\.default\.mcp_servers\.own: .* holds more than 10 files"
    with pytest.raises(ConfigError, match=said):
        hash_of(path)
    monkeypatch.chdir(app)
    assert call(["run", "hello", "--trust"]) == 2
    assert "give the server a folder of its own with cwd:" in capsys.readouterr().err
    monkeypatch.setattr(trusted, "MOST_FILES", 100)
    monkeypatch.setattr(trusted, "MOST_BYTES", 100)
    (app / "srv/0").write_bytes(b"x" * 101)
    with pytest.raises(ConfigError, match="0 MiB; give the server a folder"):
        hash_of(path)


def test_a_pipe_is_not_waited_for(app: Path) -> None:
    os.mkfifo(app / "srv/pipe")
    assert hash_of(written(app, "{command: [python3, server.py], cwd: srv}"))


WRITABLE = {
    "it starts there": ("{command: [uvx, some-server]}", "."),
    "it starts there by name": ("{command: [run], cwd: desk}", "./desk"),
    "a script": ("{command: [python3, desk/x.py]}", "./desk"),
    "a script by a way around": ("{command: [python3, srv/../desk/./x.py]}", "./desk"),
    "a script by its whole path": ("{command: [python3, APP/desk/x.py]}", "./desk"),
    "a module": ("{command: [python3, -m, desk.x]}", "./desk"),
    "code in a word": ("{command: [python3, -c, 'import desk']}", "./desk"),
    "a shell": ("{command: [bash, -c, 'cd desk;./x']}", "./desk"),
    "a variable": ("{command: [python3], env: {PYTHONPATH: 'srv:desk'}}", "./desk"),
    "a module behind its flag": ("{command: [python3, -mdesk.x]}", "./desk"),
    "a folder behind its flag": ("{command: [node, -Idesk]}", "./desk"),
    "a file of arguments": ("{command: [javac, '@desk/args']}", "./desk"),
    "an address of a file": ("{command: [deno, run, 'file://desk/x.js']}", "./desk"),
    "behind a variable": ("{command: [sh, -c, '$PWD/desk/x']}", "./desk"),
    "a folder of tenants": ("{command: [python3, desk.tenants/x.py]}", "./desk"),
    "a link": ("{command: [python3, link/x.py]}", "./desk"),
}


@pytest.mark.sisters(6)
@pytest.mark.parametrize("how", WRITABLE)
@pytest.mark.parametrize("kind", ["type: local, execute: 'off', workdir:", "type: docker, folder:"])
def test_tools_never_write_where_a_command_starts_or_reads(
    app: Path, kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = WRITABLE[how]
    (app / "desk").mkdir()
    if "link" in how:
        (app / "link").symlink_to("desk")
    agent = f"    backend: {{{kind} {folder}}}\n"
    path = written(app, server.replace("APP", str(app)), agent)
    said = "give the server a folder of its own with cwd:|a link to a folder that tools"
    with load(path) as agents, pytest.raises(ConfigError, match=said):
        agents["default"]
    monkeypatch.chdir(app)
    assert call(["run", "hello", "--trust"]) == 2
    assert call(["validate"]) == 2
    with pytest.raises(ConfigError, match=said):
        Service(load_config(path), ServerOptions(auth=False))


def test_another_agents_tools_write_there_no_more(app: Path) -> None:
    path = written(app, "{command: [python3, desk/x.py]}")
    text = path.read_text("utf-8")
    more = "  other: {backend: {type: local, execute: 'off', workdir: desk}}\n"
    path.write_text(text + more, "utf-8")
    with load(path) as agents, pytest.raises(ConfigError, match="tools write there"):
        agents["other"]


def test_a_folder_inside_is_protected_and_data_are_not(app: Path) -> None:
    """A server's folder below a working directory can be read; what it only stores is shared."""
    (app / "srv/notes").mkdir()
    agent = "    backend: {type: local, execute: 'off', workdir: .}\n"
    path = written(app, "{command: [run, --notes=../shared], cwd: srv, data: [../shared]}", agent)
    (backend,) = backends_in(hooks_of("default", load_config(path)))
    with backend:
        for name in ("srv/helper.py", "srv/json.py", "srv/new/x.py", "srv"):
            with pytest.raises(Exception, match="governs agents"):
                backend.write(name, b"hijacked")
        backend.write("shared/x", b"mine")
        backend.write("free.py", b"mine")


SERVER = """\
import helper
from mcp.server.mcpserver import MCPServer
app = MCPServer("own")

@app.tool()
def add(a: float, b: float) -> str:
    "Add."
    return f"{a + b:g} by {helper.NAME}"

@app.tool()
def die() -> str:
    "End."
    import os
    os._exit(1)

app.run()
"""


@pytest.fixture
def real(app: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A file with a server that speaks MCP, and imports what lies beside it."""
    monkeypatch.setattr(mcp, "LIST_SECONDS", 60.0)  # a busy machine takes long to start it
    (app / "srv/server.py").write_text(SERVER, "utf-8")
    (app / "srv/helper.py").write_text("NAME = 'us'\n", "utf-8")

    def made(*flags: str) -> Path:
        words = ", ".join(f"'{word}'" for word in (sys.executable, *flags, "server.py"))
        return written(app, f"{{command: [{words}], cwd: srv}}")

    return made


ADD = "{call: own_add, args: {a: 1, b: 2}}"
DIE = "{call: own_die, args: {}}"


def answers(agents: Any) -> list[str]:
    result = agents["default"].invoke("go")
    return [str(m.text) for m in result.messages if m.type == "tool"]


@pytest.mark.slow
def test_a_server_is_looked_at_before_each_start(real: Callable[..., Path], app: Path) -> None:
    path = real()
    (app / "talk.yaml").write_text(f"steps: [{ADD}, {DIE}, done, {ADD}, done]\n", "utf-8")
    file = load_config(path)
    trust(file, digest_of(file))
    with Agents(file) as agents:
        agents["default"]
        assert answers(agents)[0] == "3 by us"
        (app / "srv/helper.py").write_text("NAME = 'others'\n", "utf-8")
        answer = answers(agents)[0]
        assert "srv/helper.py has changed" in answer
        assert "wick trust" in answer
        again = load_config(path)
        trust(again, digest_of(again))
        assert answers(agents)[0] == "3 by others", "a person trusted it anew"


@pytest.mark.slow
def test_a_program_that_loads_a_file_decides_itself(real: Callable[..., Path], app: Path) -> None:
    (app / "talk.yaml").write_text(f"steps: [{ADD}, {DIE}, done, {ADD}, done]\n", "utf-8")
    with load(real()) as agents:
        assert answers(agents)[0] == "3 by us"
        (app / "srv/helper.py").write_text("NAME = 'others'\n", "utf-8")
        assert answers(agents)[0] == "3 by others"


def compiled(module: Path, text: str) -> Path:
    """Put into `__pycache__` what Python runs in place of the module, without a look at it."""
    other = module.with_name("other.py")
    other.write_text(text, "utf-8")
    cache = Path(importlib.util.cache_from_source(str(module)))
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(other), str(cache), invalidation_mode=mode)
    other.unlink()
    return cache


@pytest.mark.slow
def test_what_lies_in_caches_of_python_is_not_run(
    real: Callable[..., Path], app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(trusted.PYCACHE, raising=False)
    path = real()
    (app / "talk.yaml").write_text(f"steps: [{ADD}, done]\n", "utf-8")
    before = hash_of(path)
    compiled(app / "srv/helper.py", "NAME = 'others'\n")
    assert hash_of(path) == before
    with load(path) as agents:
        assert answers(agents) == ["3 by us"]


@pytest.mark.parametrize("flags", [("-I",), ("-Es",)])
def test_a_python_that_heeds_no_variable_has_its_caches_hashed(
    real: Callable[..., Path], app: Path, flags: tuple[str, ...]
) -> None:
    path = real(*flags)
    before = hash_of(path)
    compiled(app / "srv/helper.py", "NAME = 'others'\n")
    assert hash_of(path) != before


def test_the_source_is_where_it_is_said_to_be() -> None:
    said = (ROOT / "docs" / "how-to" / "sandbox.md").read_text("utf-8")
    assert f"{trusted.MOST_FILES:,} files" in said
    assert f"{trusted.MOST_BYTES // 2**20} MiB" in said
