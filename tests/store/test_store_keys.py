"""Keys of a store: where they come from, and what is refused as one."""

from __future__ import annotations

import base64
import copy
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.encrypted import CANARY, key
from wick_graph.cli.app import call
from wick_graph.errors import StorageError
from wick_graph.store import Keys, SqlSaver
from wick_graph.store.encryption import add_key, new_key

NEW, OLD = (base64.b64encode(key(name)).decode() for name in ("new", "old"))


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{NEW}\n{OLD}\n", id="lines"),
        pytest.param(f"# of this year\n{NEW}  # since May\n\n{OLD}", id="remarks"),
        pytest.param(f"{NEW},{OLD}", id="commas"),
    ],
)
def test_keys_are_read_from_files_and_variables(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WICK_TEST_KEYS", text)
    path = written(tmp_path / "keys", text)
    for keys in (Keys.of(f"file:{path}"), Keys.of("env:WICK_TEST_KEYS"), Keys.from_file(path)):
        assert list(keys.by_id.values()) == [key("new"), key("old")]
        assert keys.by_id[keys.current] == key("new")
        assert keys.ids[0] == keys.current.hex()
        assert Keys.of(keys) is keys


def test_a_key_is_called_the_same_everywhere() -> None:
    assert Keys([key("new")]).ids == ("80bdcb3a",)


def test_keys_are_not_shown_and_do_not_leave() -> None:
    keys = Keys([key("new")])
    assert repr(keys) == f"Keys({keys.ids[0]})"
    with pytest.raises(TypeError, match="stay in the process"):
        copy.copy(keys)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "are empty", id="empty"),
        pytest.param("# nothing\n", "are empty", id="remarks alone"),
        pytest.param("correct horse battery staple", "no key in line 1", id="passphrase"),
        pytest.param(
            base64.b64encode(b"correct horse battery staple!!!!").decode(),
            "text or a pattern",
            id="passphrase of 32 letters",
        ),
        pytest.param(base64.b64encode(bytes(32)).decode(), "text or a pattern", id="zeros"),
        pytest.param(f"{NEW}\n{NEW[:-4]}", "no key in line 2", id="cut short"),
        pytest.param(base64.b64encode(os.urandom(16)).decode(), "no key in line 1", id="16 bytes"),
        pytest.param(f"{NEW}\n{NEW}", "one key twice", id="twice"),
    ],
)
def test_what_is_no_key_is_refused_and_never_quoted(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path / "keys", text)
    with pytest.raises(StorageError, match=says) as caught:
        Keys.from_file(path)
    assert not any(word in str(caught.value) for word in text.split() if len(word) > 8)
    with pytest.raises(StorageError, match=says):
        SqlSaver.from_url(f"sqlite:///{tmp_path}/store.db", keys=f"file:{path}")
    assert [file.name for file in tmp_path.iterdir()] == ["keys"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o622])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / "keys", NEW, mode)
    with pytest.raises(StorageError, match=rf"mode {mode:04o}\); run chmod 600"):
        Keys.from_file(path)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (NEW, "name them as file:PATH or env:NAME"),
        ("file:", "name them as file:PATH or env:NAME"),
        ("env:", "name them as file:PATH or env:NAME"),
        ("env:no name", "not its value"),
        (f"env:{NEW}", "not its value"),
        ("env:WICK_NO_SUCH_KEYS", "WICK_NO_SUCH_KEYS is not set"),
        ("file:no/such/file", "cannot be read: No such file"),
        ("file:.", "cannot be read: Is a directory"),
    ],
)
def test_a_place_without_keys_is_refused(source: str, says: str) -> None:
    with pytest.raises(StorageError, match=says) as caught:
        Keys.of(source)
    assert NEW not in str(caught.value)


def test_a_new_key_comes_before_the_others(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    add_key(path)
    (first,) = Keys.from_file(path).ids
    add_key(path)
    assert Keys.from_file(path).ids[1:] == (first,)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["keys"]
    assert len({new_key() for _ in range(50)}) == 50


# --- in agents.yaml, and at the command line ----------------------------------------------------

FILE = """
store: sqlite:///wick.db
store_keys: {keys}
agents:
  helper: {{model: "scripted:demo"}}
"""
Wick = Callable[..., tuple[int, str, str]]


@pytest.fixture
def wick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Wick:
    """Do a command in a folder with an agents.yaml; return its code and what it printed."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "agents.yaml", FILE.format(keys="file:own.keys"))

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = call(words)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_the_command_works_on_an_encrypted_store(wick: Wick, tmp_path: Path) -> None:
    code, shown, _ = wick("store", "key", "--to", "own.keys")
    (first,) = Keys.from_file(tmp_path / "own.keys").ids
    assert (code, shown) == (0, f"own.keys holds {first}; {first} is the current one\n")
    assert wick("run", f"Say {CANARY}", "--thread", "mine")[0] == 0
    assert CANARY.encode() not in (tmp_path / "wick.db").read_bytes()
    listed = json.loads(wick("threads", "list", "--json")[1])
    assert [(one["thread_id"], one["title"]) for one in listed] == [("mine", f"Say {CANARY}")]
    assert CANARY in wick("threads", "show", "mine")[1]
    assert wick("journal", "mine")[0] == 0
    assert wick("graph", "--thread", "mine")[0] == 0
    assert wick("token", "create", "--name", "me")[0] == 0
    assert wick("threads", "export", "mine", "mine.thread")[0] == 0
    assert wick("threads", "export", "mine", "open.thread", "--plain")[0] == 0
    assert CANARY.encode() not in (tmp_path / "mine.thread").read_bytes()
    assert CANARY.encode() in (tmp_path / "open.thread").read_bytes()
    assert wick("threads", "import", "mine.thread", "--as", "again")[0] == 0
    assert (
        wick("threads", "import", "open.thread", "--as", "third", "--keys", "file:own.keys")[0] == 0
    )
    assert wick("validate")[0] == 0

    assert wick("store", "key", "--to", "own.keys")[0] == 0
    code, shown, _ = wick("store", "rotate", "--json")
    assert code == 0
    assert json.loads(shown)["rows"] > 10
    written(tmp_path / "own.keys", (tmp_path / "own.keys").read_text().splitlines()[0])
    assert first not in Keys.from_file(tmp_path / "own.keys").ids
    assert len(json.loads(wick("threads", "list", "--json")[1])) == 3
    written(tmp_path / "own.keys", NEW)
    code, _, told = wick("threads", "list")
    assert code != 0
    assert "is encrypted with the key" in told


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        pytest.param("env:WICK_NO_SUCH_KEYS", "is not set", id="no variable"),
        pytest.param("file:none.keys", "cannot be read", id="no file"),
        pytest.param(NEW, "never write a key in this file", id="the key itself"),
        pytest.param("'env:no name'", "file:PATH or env:NAME", id="no name"),
        pytest.param("[1]", "text", id="no text"),
    ],
)
def test_mistakes_are_told_with_file_and_line(
    wick: Wick, tmp_path: Path, keys: str, says: str
) -> None:
    written(tmp_path / "agents.yaml", FILE.format(keys=keys))
    code, _, told = wick("validate")
    assert code != 0
    assert says in told
    assert "agents.yaml:3" in told
    assert NEW not in told
    assert not (tmp_path / "wick.db").exists()


def test_a_key_is_printed_where_no_file_is_named(wick: Wick) -> None:
    code, shown, _ = wick("store", "key")
    assert code == 0
    assert len(base64.b64decode(shown, validate=False)) == 32
