"""The file on its disk: paths that belong to its folder, and files that are not read or trusted."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.config.parsing import parse
from wick_graph.config import load_config
from wick_graph.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    file = folder / "agents.yaml"
    file.write_text(text, encoding="utf-8")
    return file


# the store


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        pytest.param(None, "sqlite:////srv/checkpoints/wick.db", id="default"),
        pytest.param("sqlite:///x/y.db", "sqlite:////srv/x/y.db", id="relative"),
        pytest.param("sqlite:///x.db?a=b", "sqlite:////srv/x.db?a=b", id="query"),
        pytest.param("sqlite+pysqlite:///x.db", "sqlite+pysqlite:////srv/x.db", id="driver"),
        pytest.param("sqlite:////var/x.db", "sqlite:////var/x.db", id="absolute"),
        pytest.param("sqlite:///:memory:", "sqlite:///:memory:", id="memory"),
        pytest.param("sqlite://", "sqlite://", id="memory-short"),
        pytest.param("sqlite:///file:x?uri=true", "sqlite:///file:x?uri=true", id="uri"),
        pytest.param("postgresql://u@h/db", "postgresql://u@h/db", id="postgresql"),
        pytest.param("postgresql:///db", "postgresql:///db", id="postgresql-local"),
    ],
)
def test_a_relative_database_belongs_to_the_files_folder(store: str | None, expected: str) -> None:
    line = "" if store is None else f"store: {json.dumps(store)}\n"
    assert parse(f"{line}name: x\n").store_url == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("file:own.keys", "file:/srv/own.keys", id="relative"),
        pytest.param("file:/etc/wick.keys", "file:/etc/wick.keys", id="absolute"),
        pytest.param("env:WICK_KEYS", "env:WICK_KEYS", id="variable"),
    ],
)
@pytest.mark.parametrize("agents", ["name: x\n", "agents: {x: {}}\n"], ids=["one", "several"])
def test_a_file_of_keys_belongs_to_the_files_folder(
    written: str, expected: str, agents: str
) -> None:
    assert parse(f"store_keys: {written}\n{agents}").keys_source == expected
    assert parse(agents).keys_source is None


def test_an_empty_store_is_the_default_one() -> None:
    assert parse("store:\nname: x\n").store_url == "sqlite:////srv/checkpoints/wick.db"


def test_a_folder_that_no_url_can_express_is_refused() -> None:
    text = "name: x\nstore: sqlite:///x.db\n"
    with pytest.raises(ConfigError, match=r"^agents.yaml:2: store: cannot be in a folder with"):
        parse(text, Path("/srv/what?"))


# files


def test_paths_belong_to_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    write(tmp_path / "conf", "name: x\n")
    file = load_config("conf/agents.yaml", env={})
    assert file.base_dir == tmp_path / "conf"
    assert file.source == "conf/agents.yaml"
    assert file.store_url == f"sqlite:///{tmp_path}/conf/checkpoints/wick.db"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    pipe, latin, big = tmp_path / "pipe", tmp_path / "latin.yaml", tmp_path / "big.yaml"
    os.mkfifo(pipe)
    latin.write_bytes(b"name: x\nsystem_prompt: caf\xe9\n")
    big.write_bytes(b"#" * (256 * 1024 + 1))
    expected = {
        tmp_path / "none.yaml": ": no such file; run wick init, or name another one",
        tmp_path: ": is a folder; name the file in it",
        pipe: ": is not a regular file; name another one",
        Path("/dev/zero"): ": is not a regular file; name another one",
        latin: ":2: not UTF-8; save the file in that encoding",
        big: ": larger than 256 kB; split it up",
        latin / "x": ": cannot be read: Not a directory",
    }
    for path, text in expected.items():
        with pytest.raises(ConfigError) as caught:
            load_config(path, env={})
        assert str(caught.value) == f"{path}{text}"


def test_a_file_name_with_a_nul(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a possible file name"):
        load_config(f"{tmp_path}/a\0b", env={})


PLAIN = "model: {model: m, api_key: sk-123}\n"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        pytest.param(PLAIN, "model.api_key", id="key"),
        pytest.param("model: {model: m, params: {auth_token: t}}", "model.params.auth_token",
                     id="params"),
        pytest.param("agents: {a: {model: {model: m, fallbacks: [{model: n, api_key: k}]}}}",
                     "agents.a.model.fallbacks[0].api_key", id="fallback"),
        pytest.param("name: x\nstore: postgresql://u:pw@h/d", "store", id="password-in-url"),
        pytest.param("model: {model: m, api_key: '${X:-sk-kiwi}'}", "model.api_key", id="default"),
        pytest.param("model: {model: m, api_key: '${X}'}", None, id="from-environment"),
        pytest.param("name: x\nstore: postgresql://u:${X}@h/d", None, id="url-from-environment"),
        pytest.param("name: x\nmax_tokens: 5", None, id="max-tokens"),
    ],
)  # fmt: skip
def test_a_file_that_everyone_can_change(tmp_path: Path, text: str, secret: str | None) -> None:
    file = write(tmp_path, text)
    file.chmod(0o644)
    assert load_config(file, env={"X": "x"}).notices == ()
    file.chmod(file.stat().st_mode | stat.S_IWOTH)
    (notice,) = load_config(file, env={"X": "x"}).notices
    assert notice.startswith(f"{file} can be changed by every user of this machine")
    assert (f"holds a secret in plain text ({secret})" in notice) == (secret is not None)
    assert "kiwi" not in notice


def test_skills_and_memory_that_lie_beside_the_file_are_reported(tmp_path: Path) -> None:
    keys = "skills: {paths: [skills, none]}\nmemory: {paths: [AGENTS.md]}\n"
    file = write(tmp_path, f"backend: {{type: local, workdir: ws}}\n{keys}")
    for folder in (tmp_path, tmp_path / "ws"):
        (folder / "skills").mkdir(parents=True)
        (folder / "AGENTS.md").write_text("Tea.")
    (tmp_path / "skills" / "SKILL.md").touch()
    (notice,) = load_config(file, env={}).notices
    assert notice == (
        "agents.default.skills: a relative path starts at the backend's folder, where "
        f"{tmp_path}/ws/skills holds nothing; move {tmp_path}/skills there, "
        "or write its absolute path"
    )
    (tmp_path / "ws" / "skills" / "SKILL.md").touch()
    assert load_config(file, env={}).notices == ()
    (tmp_path / "ws" / "AGENTS.md").write_text("")  # as a sandbox makes it
    assert "agents.default.memory: " in load_config(file, env={}).notices[0]


@pytest.mark.parametrize(("text", "warned"), [(PLAIN, True), ("name: x\n", False)])
def test_a_file_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, warned: bool
) -> None:
    file = write(tmp_path, text)
    if os.getuid() == 0:
        os.chown(file, 12_345, -1)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    assert load_config(file, env={}).notices == ()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    for path in (file, link):
        notices = load_config(path, env={}).notices
        assert [f"{path} belongs to another user" in notice for notice in notices] == (
            [True] if warned else []
        )


def test_a_text_has_no_notices() -> None:
    assert parse(PLAIN).notices == ()
