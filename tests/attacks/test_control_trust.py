"""What agents.yaml starts is started only after a person has trusted it in this very form."""

from __future__ import annotations

import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wick_graph import machine
from wick_graph.cli import select
from wick_graph.cli.app import call
from wick_graph.config import digest_of, is_trusted, load_config, trust, trust_folder, trusted
from wick_graph.errors import ConfigError
from wick_graph.loading import backends_in, hooks_of, load
from wick_graph.server import ServerOptions, Service

TEXT = """\
agents:
  default:
    model: scripted:talk.yaml
    mcp_servers:
      own:
        command: ["{python}", server.py, --data=lib]
        data: [ran]
        env: {{KEY: "${{SECRET:-none}}"}}
"""
SERVER = "import pathlib; pathlib.Path('ran').touch()\n"
USE = "agents: {default: {model: 'scripted:talk.yaml', middleware: [{use: TodoListMiddleware}]}}\n"
PLAIN = "agents: {default: {model: 'scripted:talk.yaml', system_prompt: 'Answer.'}}\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's trust is kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("WICK_TRUST", raising=False)
    return tmp_path / "state"


@pytest.fixture
def folder(tmp_path: Path, home: Path) -> Path:
    made = tmp_path / "app"
    (made / "lib").mkdir(parents=True)
    (made / "agents.yaml").write_text(TEXT.format(python=sys.executable), "utf-8")
    (made / "server.py").write_text(SERVER, "utf-8")
    (made / "lib/inner.py").write_text("x = 1\n", "utf-8")
    (made / "talk.yaml").write_text("steps: [ready]", "utf-8")
    return made


def digest(folder: Path) -> str:
    return digest_of(load_config(folder / "agents.yaml"))


def change(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


DEFAULTS = "defaults: {mcp_servers: {b: {command: [b]}}}\n"
MORE = "  more: {model: 'scripted:talk.yaml'}\n"
CHANGES = {
    "another word": ("agents.yaml", "server.py", "./server.py"),
    "a variable": ("agents.yaml", "KEY:", "LD_PRELOAD:"),
    "the name of a variable": ("agents.yaml", "${SECRET", "${OTHER"),
    "the module": ("server.py", "ran", "owned"),
    "a file of a folder": ("lib/inner.py", "1", "2"),
    "another program": (
        "agents.yaml",
        "agents:\n",
        "defaults: {mcp_servers: {b: {command: [b]}}}\nagents:\n",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_what_is_started_is_another_file(folder: Path, what: str) -> None:
    before = digest(folder)
    text = (folder / "agents.yaml").read_text("utf-8")
    if what == "another program":  # defaults count where an agent has no key of its own
        (folder / "agents.yaml").write_text(
            text + "  more: {model: 'scripted:talk.yaml'}\n", "utf-8"
        )
        assert digest(folder) == before
    change(folder, *CHANGES[what])
    assert digest(folder) != before


def test_what_starts_nothing_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(folder)
    change(folder, "agents.yaml", "    model:", "    system_prompt: Be somebody else.\n    model:")
    monkeypatch.setenv("SECRET", "another value")
    assert digest(folder) == before


def test_a_module_that_is_new_is_a_change(folder: Path) -> None:
    before = digest(folder)
    (folder / "lib/new.py").write_text("x = 1\n", "utf-8")
    assert digest(folder) != before


def test_trust_is_kept_for_the_user_alone(folder: Path, home: Path) -> None:
    file = load_config(folder / "agents.yaml")
    assert not is_trusted(file, digest(folder))
    kept = trust(file, digest(folder))
    assert kept == home / "wick_graph/trusted.json" == trust_folder() / "trusted.json"
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert is_trusted(file, digest(folder))
    kept.chmod(0o666)
    assert not is_trusted(file, digest(folder)), "others could have written it"
    kept.chmod(0o600)
    kept.write_text("no json")
    assert not is_trusted(file, digest(folder))


def test_files_that_are_trusted_at_once_are_all_trusted(folder: Path, home: Path) -> None:
    names = [f"agents{n}.yaml" for n in range(12)]
    for name in names:
        shutil.copy(folder / "agents.yaml", folder / name)
    found = {name: load_config(folder / name) for name in names}
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda file: trust(file, digest_of(file)), found.values()))
    assert [name for name, file in found.items() if not is_trusted(file, digest_of(file))] == []


@pytest.mark.parametrize("what", ["a folder", "a pipe", "no file of this user"])
def test_a_lock_that_cannot_be_had_keeps_nobody_from_trusting(
    folder: Path, home: Path, what: str
) -> None:
    lock = home / "wick_graph/trusted.lock"
    lock.parent.mkdir(parents=True)
    if what == "a folder":
        lock.mkdir()
    elif what == "a pipe":
        os.mkfifo(lock)
    else:
        lock.symlink_to(home / "nowhere/at all")
    file = load_config(folder / "agents.yaml")
    trust(file, digest(folder))
    assert is_trusted(file, digest(folder))


def test_a_lock_that_is_held_for_long_keeps_nobody_from_trusting(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one of a process that was stopped."""
    monkeypatch.setattr(trusted, "_LOCK_SECONDS", 0.1)
    path = home / "wick_graph/trusted.lock"
    path.parent.mkdir(parents=True)
    with path.open("wb") as held:
        assert machine.lock(held.fileno(), wait=False)
        file = load_config(folder / "agents.yaml")
        trust(file, digest(folder))
    assert is_trusted(file, digest(folder))


def test_trust_is_of_one_file(folder: Path, tmp_path: Path) -> None:
    """A copy elsewhere may be another project's, with other modules beside it by tomorrow."""
    trust(load_config(folder / "agents.yaml"), digest(folder))
    copy = tmp_path / "copy"
    folder.rename(copy)
    assert not is_trusted(load_config(copy / "agents.yaml"), digest(copy))


def test_a_hash_of_the_environment_is_trusted_anywhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = load_config(folder / "agents.yaml")
    monkeypatch.setenv("WICK_TRUST", f"aaaa, {digest(folder)}")
    assert is_trusted(file, digest(folder))
    monkeypatch.setenv("WICK_TRUST", digest(folder)[:-1])
    assert not is_trusted(file, digest(folder))


COMMANDS = (
    ["run", "hello"],
    ["resume", "t"],
    ["threads", "retry", "t"],
    ["mcp"],
    ["serve", "--no-auth"],
    ["debug", "default"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_no_command_starts_what_nobody_trusted(
    folder: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert call(command) == 2
    said = capsys.readouterr().err
    assert "agents.default.mcp_servers.own" in said
    assert "wick trust --config agents.yaml" in said
    assert f"WICK_TRUST={digest(folder)}" in said
    assert not (folder / "ran").exists()
    assert not (folder / "checkpoints").exists(), "no store is opened either"


@pytest.mark.parametrize("command", [["graph"], ["hooks"], ["run", "hello"]], ids=lambda w: w[0])
def test_code_is_not_loaded_to_look_at_an_agent(
    folder: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    (folder / "agents.yaml").write_text(USE, "utf-8")
    assert call(command) == 2
    assert "agents.default.middleware.0: TodoListMiddleware" in capsys.readouterr().err
    assert call(["trust"]) == 0
    assert call(command) == 0


def test_looking_starts_no_program_and_asks_for_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert call(["graph"]) == 0
    assert call(["validate"]) == 0
    assert not (folder / "ran").exists()


def test_trust_by_command_by_hash_and_by_option(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert call(["trust", "--show"]) == 0
    shown = capsys.readouterr()
    assert shown.out.strip() == digest(folder)
    assert "server.py" in shown.err
    assert not home.exists(), "to show is not to trust"
    assert ran(folder, ["--trust"])
    assert not ran(folder, [])
    monkeypatch.setenv("WICK_TRUST", digest(folder))
    assert ran(folder, [])
    monkeypatch.delenv("WICK_TRUST")
    assert call(["trust"]) == 0
    assert ran(folder, [])
    (folder / "server.py").write_text(SERVER + "# changed\n", "utf-8")
    assert not ran(folder, [])


def ran(folder: Path, options: list[str]) -> bool:
    """Say whether a run starts the server, which speaks no MCP: the agent goes on without it."""
    code = call(["run", "hello", *options])
    started = (folder / "ran").exists()
    (folder / "ran").unlink(missing_ok=True)
    assert code == (0 if started else 2)
    return started


def test_a_file_that_starts_nothing_needs_no_trust(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "agents.yaml").write_text(PLAIN, "utf-8")
    assert call(["run", "hello"]) == 0
    assert call(["trust"]) == 0
    assert not home.exists()


@pytest.mark.parametrize(("typed", "trusted"), [("y", True), ("n", False), ("", False)])
def test_at_a_terminal_a_person_is_asked_once(
    folder: Path,
    typed: str,
    trusted: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []
    monkeypatch.chdir(folder)
    monkeypatch.setattr(select, "can_ask", lambda: True)

    def answer(text: str) -> str:
        asked.append(text)
        return typed

    monkeypatch.setattr(select, "line", answer)
    if trusted:
        select.trusted_file(Path("agents.yaml"))
        select.trusted_file(Path("agents.yaml"))
    else:
        with pytest.raises(ConfigError, match="is not trusted in its present state"):
            select.trusted_file(Path("agents.yaml"))
    assert len(asked) == 1
    assert "server.py" in capsys.readouterr().err
    assert is_trusted(load_config("agents.yaml"), digest(folder)) is trusted


def test_python_never_asks(folder: Path) -> None:
    (folder / "agents.yaml").write_text(USE, "utf-8")
    with load(folder / "agents.yaml") as agents:
        assert agents["default"].invoke("hello").text == "ready"


@pytest.mark.parametrize("how", ["unknown", "trusted"])
def test_a_server_that_reads_again_starts_nothing_new(folder: Path, how: str) -> None:
    path = folder / "agents.yaml"
    path.write_text(PLAIN, "utf-8")
    service = Service(load_config(path), ServerOptions(auth=False, reload=True), path=path)
    try:
        path.write_text(USE, "utf-8")
        if how == "trusted":
            trust(load_config(path), digest(folder))
            assert service._built(path)[0].agents["default"].middleware
        else:
            with pytest.raises(ConfigError, match="is not trusted in its present state"):
                service._built(path)
        path.write_text(PLAIN.replace("Answer", "Reply"), "utf-8")
        assert service._built(path)[0].agents["default"].system_prompt == "Reply."
    finally:
        service.local.close()


def test_the_book_is_out_of_reach(tmp_path: Path, home: Path) -> None:
    """A working directory that holds the user's own folders holds what governs, too."""
    (tmp_path / "agents.yaml").write_text(
        "agents: {default: {backend: {type: local, workdir: ., execute: 'off'}}}", "utf-8"
    )
    (backend,) = backends_in(hooks_of("default", load_config(tmp_path / "agents.yaml")))
    with backend, pytest.raises(Exception, match="governs agents"):
        backend.write("state/wick_graph/trusted.json", json.dumps({"a": "b"}).encode())
