"""Files, and agents whose parts are switched, through the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.support import serving

pytestmark = pytest.mark.xdist_group("files")  # they share a server

AGENTS = """\
store: sqlite:///wick.db
agents:
  default:
    model: scripted:talk.yaml
    backend: {type: local, workdir: work}
    subagents: {helper: {description: Helps.}}
  helper: {model: 'scripted:talk.yaml'}
"""
BINARY = b"\x89PNG\r\n\x1a\n\x00\xff\xfe"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    work = folder / "work"
    work.mkdir()
    (work / "a.txt").write_text("one\nt\u00f6\n", "utf-8")
    (work / "a.png").write_bytes(BINARY)
    (work / "long.txt").write_text(("x" * 79 + "\n") * 200_000, "utf-8")
    (folder / "secret.txt").write_text("secret", "utf-8")
    (work / "link").symlink_to(folder / "secret.txt")
    return folder


@pytest.fixture(scope="module")
def http(folder: Path) -> Iterator[httpx.Client]:
    with serving(folder, "--no-auth", agents=AGENTS) as served, served.http() as client:
        yield client


@pytest.mark.slow
def test_a_file_comes_back_as_it_was_written(http: httpx.Client) -> None:
    got = http.put("/agents/files/upload", json={"path": "new/b.txt", "content": "t\u00f6\n"})
    assert got.status_code == 200, got.text
    back = http.get("/agents/files/download", params={"path": "new/b.txt"})
    assert back.content == "t\u00f6\n".encode()
    read = http.get("/agents/default/files/read", params={"path": "a.txt"}).json()
    assert (read["content"], read["notes"]) == ("one\nt\u00f6\n", [])
    names = [e["name"] for e in http.get("/agents/default/files/list").json()["entries"]]
    assert {"a.txt", "a.png", "long.txt"} <= {*names}


@pytest.mark.parametrize("path", ["a.png", "long.txt"])
def test_a_part_of_a_file_is_not_given_out_for_all_of_it(http: httpx.Client, path: str) -> None:
    assert http.get("/agents/files/download", params={"path": path}).status_code == 409
    assert http.get("/agents/default/files/read", params={"path": path}).json()["notes"]


@pytest.mark.sisters
@pytest.mark.parametrize("path", ["../secret.txt", "{folder}/secret.txt", "link", "/etc/passwd"])
def test_no_path_leads_out_of_the_folder(http: httpx.Client, folder: Path, path: str) -> None:
    path = path.format(folder=folder)
    for at in (
        "/agents/files/download",
        "/agents/default/files/read",
        "/agents/default/files/list",
    ):
        got = http.get(at, params={"path": path})
        assert got.status_code in (404, 409), (at, got.text)
        assert "secret\n" not in got.text
    put = http.put("/agents/files/upload", json={"path": path, "content": "x"})
    assert put.status_code in (404, 409)
    assert (folder / "secret.txt").read_text("utf-8") == "secret"


def test_a_switched_hook_leaves_the_agent_its_subagents(http: httpx.Client) -> None:
    before = http.get("/agents/default").json()["tools"]
    assert http.patch("/agents/default/hooks", json={"remove": ["todolist"]}).status_code == 200
    after = http.get("/agents/default").json()["tools"]
    assert {*before} - {*after} == {"write_todos"}
