"""Attacks by way of the code that agents.yaml names: its modules, and what lies beside them."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.test_control_trust import home
from tests.support.command import Folder
from wick_graph.cli.app import call
from wick_graph.config import code as loader
from wick_graph.config import digest_of, is_trusted, load_config, trust
from wick_graph.errors import ConfigError
from wick_graph.loading import Agents, backends_in, hooks_of, load
from wick_graph.server import ServerOptions, Service

__all__ = ["home"]

TOOLS = '''
import own_helper
from own_package.inner import deep

def who() -> str:
    """Say who."""
    return own_helper.NAME + deep()

def lazy() -> str:
    """Import later."""
    import own_later
    return own_later.NAME

def hidden() -> str:
    """Import by a name that no source shows."""
    import importlib
    return importlib.import_module("own_" + "hidden").NAME
'''
TEXT = """\
agents:
  default:
    model: scripted:talk.yaml
    tools: ['own_tools:who']
"""
FILES = {
    "agents.yaml": TEXT,
    "talk.yaml": "steps: [{call: who, args: {}}, done]\n",
    "own_tools.py": TOOLS,
    "own_helper.py": "NAME = 'me'\n",
    "own_later.py": "NAME = 'later'\n",
    "own_hidden.py": "NAME = 'hidden'\n",
    "own_package/__init__.py": "from . import other\n",
    "own_package/inner.py": "from .other import *\ndef deep(): return ''\n",
    "own_package/other.py": "x = 1\n",
    "unrelated.py": "x = 1\n",
}


@pytest.fixture
def app(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with agents and modules; what is imported from it is forgotten afterwards."""
    folder = tmp_path / "app"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    monkeypatch.setattr(loader._BESIDE, "hashes", {})
    monkeypatch.setattr(loader._BESIDE, "roots", {})
    yield folder
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def digest(folder: Path) -> str:
    return digest_of(load_config(folder / "agents.yaml"))


def answer(folder: Path) -> str:
    with load(folder / "agents.yaml") as agents:
        return str(agents["default"].invoke("?").tool_calls[0]["output"])


IMPORTED = (
    "own_tools.py",
    "own_helper.py",
    "own_later.py",
    "own_package/__init__.py",
    "own_package/inner.py",
    "own_package/other.py",
)


@pytest.mark.parametrize("name", IMPORTED)
def test_a_module_and_what_it_imports_is_part_of_the_hash(app: Path, name: str) -> None:
    before = digest(app)
    assert digest(app) == before
    (app / name).write_text((app / name).read_text("utf-8") + "# more\n", "utf-8")
    assert digest(app) != before


@pytest.mark.parametrize(
    "name", ["unrelated.py", "talk.yaml", "__pycache__/own_tools.cpython-312.pyc", "own_tools.txt"]
)
def test_what_is_not_imported_is_no_part_of_it(app: Path, name: str) -> None:
    before = digest(app)
    (app / name).parent.mkdir(exist_ok=True)
    (app / name).write_text("x = 2\n", "utf-8")
    assert digest(app) == before


WAYS = {
    "a tool": "tools: ['own_tools:who']",
    "a hook": "hooks: [{use: 'own_tools:who'}]",
    "a nested object": "hooks: [{use: 'json:loads', args: {s: {use: 'own_tools:who'}}}]",
    "middleware": "middleware: [{use: 'own_tools:who'}]",
    "a model": "model: {use: 'own_tools:who'}",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["agent", "defaults"])
def test_no_command_loads_what_nobody_trusted(
    app: Path,
    way: str,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran = app / "ran"
    (app / "own_tools.py").write_text(f"open({str(ran)!r}, 'w')\n", "utf-8")
    model = "" if "model" in WAYS[way] else ", model: 'scripted:talk.yaml'"
    agents = {
        "agent": f"agents: {{default: {{{WAYS[way]}{model}}}}}\n",
        "defaults": f"defaults: {{{WAYS[way]}{model}}}\nagents: {{default: }}\n",
    }
    (app / "agents.yaml").write_text(agents[where], "utf-8")
    monkeypatch.chdir(app)
    for command in (["run", "hello"], ["graph"], ["hooks"], ["mcp"], ["serve", "--no-auth"]):
        assert call(command) == 2
        said = capsys.readouterr().err
        assert "agents.default." in said
        assert "wick trust --config agents.yaml" in said
        assert f"WICK_TRUST={digest(app)}" in said
    assert call(["validate"]) == 2
    assert "own_tools has no who" in capsys.readouterr().err
    assert call(["trust", "--show"]) == 0
    assert str(app / "own_tools.py") in capsys.readouterr().err
    assert not ran.exists()


def test_a_trusted_file_runs_until_a_module_changes(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(app)
    assert call(["trust"]) == 0
    assert call(["run", "hello"]) == 0
    (app / "own_helper.py").write_text("NAME = 'thief'\n", "utf-8")
    capsys.readouterr()
    assert call(["run", "hello"]) == 2
    assert "is not trusted in its present state" in capsys.readouterr().err
    assert call(["run", "hello", "--trust"]) == 0
    monkeypatch.setenv("WICK_TRUST", digest(app))
    assert call(["run", "hello"]) == 0


def test_a_cache_beside_a_module_is_never_run(app: Path, tmp_path: Path) -> None:
    """Python trusts a cache marked unchecked, whatever the module's source says."""
    evil = tmp_path / "evil.py"
    evil.write_text("NAME = 'evil'\n", "utf-8")
    for name in ("own_helper", "own_package/other"):
        source = app / f"{name}.py"
        cached = importlib.util.cache_from_source(str(source))
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(evil), cached, str(source), invalidation_mode=unchecked)
    assert answer(app) == "me"
    assert not [*(app / "__pycache__").glob("own_tools*")], "nothing is cached there either"


@pytest.mark.parametrize("trusted", [True, False])
def test_a_module_that_appears_later_is_not_loaded(app: Path, trusted: bool) -> None:
    """A package goes before a module of its name, and a late import is still to come."""
    (app / "agents.yaml").write_text(TEXT.replace("who", "lazy"), "utf-8")
    (app / "talk.yaml").write_text("steps: [{call: lazy, args: {}}, done]\n", "utf-8")
    file = load_config(app / "agents.yaml")
    if trusted:
        digest_of(file)
    with Agents(file) as agents:
        agent = agents["default"]
        (app / "own_later").mkdir()
        (app / "own_later/__init__.py").write_text("NAME = 'evil'\n", "utf-8")
        assert agent.invoke("?").tool_calls[0]["output"] == "later"


def test_a_module_that_changes_before_it_is_loaded_is_refused(app: Path) -> None:
    (app / "agents.yaml").write_text(TEXT.replace("who", "lazy"), "utf-8")
    (app / "talk.yaml").write_text("steps: [{call: lazy, args: {}}, done]\n", "utf-8")
    with load(app / "agents.yaml") as agents:
        agent = agents["default"]
        (app / "own_later.py").write_text("NAME = 'evil'\n", "utf-8")
        (done,) = agent.invoke("?").tool_calls
    assert "own_later.py has changed since it was checked" in done["error"]


def test_a_module_is_hashed_or_not_loaded(app: Path) -> None:
    (app / "agents.yaml").write_text(TEXT.replace("who", "hidden"), "utf-8")
    (app / "talk.yaml").write_text("steps: [{call: hidden, args: {}}, done]\n", "utf-8")
    with load(app / "agents.yaml") as agents:
        (done,) = agents["default"].invoke("?").tool_calls
    assert "No module named 'own_hidden'" in done["error"]


def test_a_part_of_a_package_that_appears_later_is_not_loaded(app: Path) -> None:
    (app / "own_package/inner.py").write_text(
        "def deep():\n"
        "    try:\n"
        "        from . import own_extra\n"
        "    except ImportError as error:\n"
        "        return f' without {error.name}'\n"
        "    return own_extra.NAME\n",
        "utf-8",
    )
    with load(app / "agents.yaml") as agents:
        agent = agents["default"]
        (app / "own_package/own_extra.py").write_text("NAME = 'evil'\n", "utf-8")
        output = agent.invoke("?").tool_calls[0]["output"]
    assert output == "me without own_package"


def test_what_lies_where_the_command_starts_is_not_imported(app: Path) -> None:
    """`python -m` puts this folder before all others."""
    (app / "own_helper.py").write_text(
        "import importlib\n"
        "try:\n    NAME = importlib.import_module('own_' + 'hidden').NAME\n"
        "except ImportError:\n    NAME = 'none'\n",
        "utf-8",
    )
    folder = Folder(app)
    done = folder.wick("run", "hello", "--trust")
    assert (done.code, "none" in done.err, "hidden" in done.err) == (0, True, False), done.err


def test_a_link_to_a_module_holds_where_it_leads(app: Path) -> None:
    (app / "workspace").mkdir()
    (app / "own_helper.py").rename(app / "workspace/real.py")
    (app / "own_helper.py").symlink_to("workspace/real.py")
    backend = "    backend: {type: local, execute: 'off'}\n"
    (app / "agents.yaml").write_text(TEXT + backend, "utf-8")
    (made,) = backends_in(hooks_of("default", load_config(app / "agents.yaml")))
    with made, pytest.raises(Exception, match="governs agents"):
        made.write("real.py", b"NAME = 'evil'")


def test_a_person_sees_the_arguments_too(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hooks = "    hooks: [{use: 'subprocess:run', args: {args: [rm, -rf, /, ü]}}]\n"
    (app / "agents.yaml").write_text(TEXT + hooks, "utf-8")
    monkeypatch.chdir(app)
    assert call(["trust", "--show"]) == 0
    said = capsys.readouterr().err
    assert 'hooks.0: subprocess:run {"args": ["rm", "-rf", "/", "\\u00fc"]}' in said


def test_trust_is_looked_at_again_before_code_is_loaded(app: Path) -> None:
    file = load_config(app / "agents.yaml")
    trust(file, digest_of(file))
    assert is_trusted(file, digest_of(file))
    (app / "own_tools.py").write_text(TOOLS + "evil = 1\n", "utf-8")
    with pytest.raises(ConfigError, match=r"own_tools\.py has changed since"), Agents(file) as made:
        made["default"]


TWO = {
    "Python's own": ("json", "{folder}/json.py and Python's own|json.py and /"),
    "built in": ("sys", "sys.py and Python's own sys"),
    "installed": ("pydantic", "pydantic.py and /"),
}


@pytest.mark.parametrize("what", TWO)
@pytest.mark.parametrize("nested", [False, True])
def test_two_modules_of_one_name_are_refused(
    app: Path, what: str, nested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = TWO[what][0]
    (app / f"{name}.py").write_text("def who() -> str:\n    'Say.'\n    return ''\n", "utf-8")
    if nested:
        (app / "own_helper.py").write_text(f"import {name}\nNAME = ''\n", "utf-8")
    else:
        (app / "agents.yaml").write_text(TEXT.replace("own_tools", name), "utf-8")
    wanted = rf"agents\.yaml:4: agents\.default\.tools\[0\]: {name} names two modules, {app}/"
    with pytest.raises(ConfigError, match=wanted):
        answer(app)
    monkeypatch.chdir(app)
    assert call(["validate"]) == 2
    assert call(["run", "hello", "--trust"]) == 2


def test_two_files_with_one_name_of_a_module_are_refused(app: Path, tmp_path: Path) -> None:
    assert answer(app) == "me"
    other = tmp_path / "other"
    other.mkdir()
    for name in ("agents.yaml", "talk.yaml"):
        (other / name).write_text(FILES[name], "utf-8")
    (other / "own_tools.py").write_text("def who() -> str:\n    'Say.'\n    return 'b'\n", "utf-8")
    with pytest.raises(ConfigError, match=r"own_tools names two modules, .*other.*; rename one"):
        answer(other)


def test_where_the_command_starts_is_no_place_for_modules(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m wick_graph` would import from there."""
    (app / "own_tools.py").rename(tmp_path / "own_tools.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="there is no module own_tools in"):
        answer(app)


WRONG = {
    "own_nothing:x": "there is no module own_nothing in",
    "own_tools:nobody": "own_tools has no nobody",
    "own_package.nothing:x": "there is no module own_package.nothing in",
    "own_tools.who:x": "there is no module own_tools.who in",
    "own_bad:x": "own_bad cannot be loaded (SyntaxError:",
    "own_exits:x": "own_exits cannot be loaded (SystemExit:",
    "own_needs:x": "own_needs needs nowhere_to_be_found, which is not installed",
    "own_kinds:number": "5 is not a tool",
    "own_kinds:Tool": "Tool",
    "own_kinds:many": "6 is not a tool",
    "own_kinds:untyped": "untyped",
    "own_kinds:os": "is not a tool",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_tool_gets_one_sentence(
    app: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (app / "own_bad.py").write_text("def x(:\n", "utf-8")
    (app / "own_exits.py").write_text("raise SystemExit(3)\nx = 1\n", "utf-8")
    (app / "own_needs.py").write_text("import nowhere_to_be_found\nx = 1\n", "utf-8")
    (app / "own_kinds.py").write_text(
        "import os\nnumber = 5\nclass Tool: pass\nmany = [6]\ndef untyped(x): pass\n", "utf-8"
    )
    (app / "agents.yaml").write_text(TEXT.replace("own_tools:who", name), "utf-8")
    monkeypatch.chdir(app)
    for command in (["run", "hello", "--trust"], ["validate"], ["trust"], ["validate"]):
        code = call(command)
        said = capsys.readouterr().err
        if command == ["trust"] or (command == ["validate"] and code == 0):
            continue  # whoever has not trusted it has its source read only
        assert code == 2, command
        assert "agents.yaml:4: agents.default.tools[0]: " in said
        assert WRONG[name] in said
        assert "Traceback" not in said
    assert command == ["validate"]
    assert code == 2, "what is trusted is loaded to be checked"


@pytest.mark.parametrize("workdir", [".", "workspace"])
def test_tools_never_write_a_module(app: Path, workdir: str) -> None:
    backend = f"    backend: {{type: local, workdir: {workdir}, execute: 'off'}}\n"
    (app / "workspace").mkdir()
    (app / "workspace/own_inside.py").write_text("def f() -> str:\n  'F.'\n  return ''\n", "utf-8")
    names = "['own_tools:who', 'workspace.own_inside:f']"
    text = TEXT.replace("['own_tools:who']", names)
    (app / "agents.yaml").write_text(text + backend, "utf-8")
    (made,) = backends_in(hooks_of("default", load_config(app / "agents.yaml")))
    held = ["own_inside.py"] if workdir == "workspace" else [*IMPORTED, "workspace/own_inside.py"]
    with made:
        for name in held:
            with pytest.raises(Exception, match="governs agents"):
                made.write(name, b"evil = 1\n")
        inner = (app / workdir / held[0]).read_bytes()
        os.link(app / workdir / held[0], app / workdir / "innocent.txt")
        made.write("innocent.txt", b"evil = 1\n")  # a file of its own, in place of the link
        assert (app / workdir / held[0]).read_bytes() == inner
        made.write("free.txt", b"x")


@pytest.mark.parametrize("level", ["landlock", "local"])
def test_a_level_that_could_change_a_module_is_refused(app: Path, level: str) -> None:
    (app / "workspace").mkdir()
    (app / "workspace/own_inside.py").write_text("def f() -> str:\n  'F.'\n  return ''\n", "utf-8")
    text = TEXT.replace("own_tools:who", "workspace.own_inside:f")
    backend = f"    backend: {{type: local, workdir: workspace, execute: {level}}}\n"
    (app / "agents.yaml").write_text(text + backend, "utf-8")
    with pytest.raises(ConfigError, match=r"own_inside\.py|landlock"):
        hooks_of("default", load_config(app / "agents.yaml"))


def test_a_hook_of_ones_own_obeys_the_rules_of_the_file(app: Path) -> None:
    """Its own backend names no rules."""
    (app / "own_hooks.py").write_text(
        "from wick_graph.backends import LocalBackend\n"
        "from wick_graph.hooks import FilesystemHook\n"
        f"def files(): return FilesystemHook(LocalBackend({str(app)!r}, execute=None))\n",
        "utf-8",
    )
    hooks = "    hooks: [{use: 'own_hooks:files'}]\n"
    (app / "agents.yaml").write_text(TEXT + hooks, "utf-8")
    (made,) = backends_in(hooks_of("default", load_config(app / "agents.yaml")))
    with made:
        for name in ("agents.yaml", "own_hooks.py", "own_tools.py"):
            with pytest.raises(Exception, match="governs agents"):
                made.write(name, b"evil")


def test_no_code_is_too_large_or_too_deep_to_be_refused(app: Path) -> None:
    (app / "own_helper.py").write_text("x = " + "(" * 5_000 + ")" * 5_000, "utf-8")
    with pytest.raises(ConfigError, match=r"own_tools cannot be loaded \("):
        answer(app)
    (app / "own_helper.py").write_bytes(b"#" * (loader.MOST_BYTES + 1))
    with pytest.raises(ConfigError, match="is larger than 1024 kB"):
        answer(app)
    (app / "own_helper.py").unlink()
    os.mkfifo(app / "own_helper.py")
    with pytest.raises(ConfigError, match="cannot be loaded|needs own_helper"):
        answer(app)


@pytest.mark.parametrize("how", ["changed", "trusted", "broken"])
def test_a_server_that_reads_again_loads_nothing_new(app: Path, how: str) -> None:
    path = app / "agents.yaml"
    service = Service(load_config(path), ServerOptions(auth=False, reload=True), path=path)
    try:
        assert {Path(one).name for one in service._seen} == {
            "agents.yaml",
            *(Path(name).name for name in IMPORTED),
        }
        text = "NAME = 'new'\n" if how != "broken" else "NAME = \n"
        (app / "own_helper.py").write_text(text, "utf-8")
        if how == "changed":
            with pytest.raises(ConfigError, match="is not trusted in its present state"):
                service._built(path)
            return
        trust(load_config(path), digest(app))
        if how == "broken":
            with pytest.raises(ConfigError, match="own_tools cannot be loaded"):
                service._built(path)
            return
        _, agents = service._built(path)
        assert agents["default"].invoke("?").tool_calls[0]["output"] == "new"
    finally:
        service.close()


def test_no_command_writes_a_module(open_path: Path, home: Path) -> None:
    for name, text in FILES.items():
        (open_path / name).parent.mkdir(parents=True, exist_ok=True)
        (open_path / name).write_text(text, "utf-8")
    backend = "    backend: {type: local, workdir: ., execute: bwrap}\n"
    (open_path / "agents.yaml").write_text(TEXT + backend, "utf-8")
    try:
        (made,) = backends_in(hooks_of("default", load_config(open_path / "agents.yaml")))
    except ConfigError as error:
        pytest.skip(str(error))
    with made:
        for name in IMPORTED:
            made.exec(f"chmod 777 {name}; echo evil > {name}; mv {name} x; rm -f {name}")
            made.exec(f"rm -rf own_package; echo evil > x; ln -f x {name}; cp x {name}")
            assert (open_path / name).read_text("utf-8") == FILES[name]
