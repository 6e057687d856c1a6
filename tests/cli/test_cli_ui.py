"""`wick ui`: a server on loopback that a link opens once, over a thread or over a file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.debug.support import World
from tests.server.support import SECONDS
from tests.source import ROOT
from tests.support import forked
from wick_graph.cli.app import call

SIGN_IN = "/ui/api/v1/sign-in"
AGENTS = """\
store: sqlite:///store.db
agents: {default: {model: 'scripted:demo'}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with agents, a recorded thread, and its file."""
    (tmp_path / "agents.yaml").write_text(AGENTS, "utf-8")
    agent, _ = World().agent(f"sqlite:///{tmp_path / 'store.db'}")
    agent.invoke("add them", thread_id="t-recorded")
    agent.close()
    monkeypatch.chdir(tmp_path)
    assert call(["export", "--thread", "t-recorded", "--to", "wickrun", "-o", "t.wickrun"]) == 0
    return tmp_path


@contextmanager
def opened(folder: Path, *args: str) -> Iterator[tuple[str, str, str]]:
    """Run the command; give its address, the link's token and its thread."""
    process = forked.Popen(
        [sys.executable, "-m", "wick_graph", "ui", "--no-open", *args],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/ui/#link=(wl_[\w-]+)&thread=(.+)", line)
        assert found is not None, line
        yield found[1], found[2], found[3]
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)


@contextmanager
def signed_in(url: str, link: str) -> Iterator[httpx.Client]:
    """Use the link, and try it once more."""
    with httpx.Client(base_url=url, timeout=SECONDS, trust_env=False) as client:
        headers = {"Authorization": f"Bearer {link}", "Origin": url}
        done = client.post(SIGN_IN, json={}, headers=headers)
        assert done.status_code == 200, done.text
        assert client.post(SIGN_IN, json={}, headers=headers).status_code == 401
        client.headers.update({"X-Wick-Secret": done.json()["secret"], "Origin": url})
        yield client


def test_a_thread_is_shown_by_a_link_that_works_once(folder: Path) -> None:
    with opened(folder, "-t", "t-rec") as (url, link, thread), signed_in(url, link) as http:
        assert thread == "t-recorded"
        assert "admin" in http.get("/ui/api/v1/me").json()["scopes"]
        assert http.get(f"/ui/api/v1/threads/{thread}/recording").json()["last"] > 10
        assert http.get("/threads").status_code == 401  # the cookie is for the page alone


def test_a_file_is_shown_and_can_only_be_read(folder: Path) -> None:
    before = (folder / "t.wickrun").read_bytes()
    with opened(folder, "t.wickrun") as (url, link, thread), signed_in(url, link) as http:
        assert http.get("/ui/api/v1/me").json()["scopes"] == ["read"]
        moments = http.get(f"/ui/api/v1/threads/{thread}/moments").json()["moments"]
        assert [row["kind"] for row in moments][:2] == ["run", "node"]
        session = http.post(f"/ui/api/v1/threads/{thread}/sessions", json={})
        assert session.status_code == 403
    assert (folder / "t.wickrun").read_bytes() == before


def test_what_cannot_be_shown_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["ui", "t.wickrun", "-t", "t-recorded"]) != 0
    assert "name a file or a thread, not both" in capsys.readouterr().err
    assert call(["ui", "-t", "nowhere"]) != 0
    assert "there is no thread nowhere" in capsys.readouterr().err
    assert call(["ui", "gone.wickrun"]) != 0
    assert "gone.wickrun cannot be read" in capsys.readouterr().err
