"""`wick init`: a first agent that runs at once, and nothing that was there is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.test_process import mounted, of_stream, plain
from tests.source import ROOT
from tests.support.command import Inside
from wick_graph import Agent, Server, load
from wick_graph.config import load_config
from wick_graph.hooks import ApprovalHook
from wick_graph.tools.builtin_tools import builtin

FILES = ["agents.yaml", "mytools.py", "myhooks.py", "test_agent.py", ".gitignore"]


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Inside:
    """An empty folder of a user without keys and without trust."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:1")
    monkeypatch.delenv("WICK_MODEL", raising=False)
    monkeypatch.delenv("WICK_TRUST", raising=False)
    made = tmp_path / "app"
    made.mkdir()
    return Inside(made, capfd)


def content(folder: Path) -> dict[str, bytes | str]:
    """Return what a folder holds, links unread."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink()
        else path.read_bytes() if path.is_file() else "folder"
        for path in folder.rglob("*")
    }  # fmt: skip


def test_it_writes_an_agent_that_runs_at_once(folder: Inside) -> None:
    assert "no such file; run wick init" in folder.wick("run", "Hello").err
    made = folder.wick("init", "a desk")
    assert (made.code, made.err) == (0, "")
    last = made.out.splitlines()[-1]
    assert last.startswith("next: cd 'a desk' && ")
    assert last.endswith(""" run 'Where is my order? find_order(number="A-17")'""")
    assert sorted(path.name for path in (folder.path / "a desk").iterdir()) == sorted(FILES)
    inside = Inside(folder.path / "a desk", folder.captured)
    assert inside.wick("validate").out == "agents.yaml: ok, 1 agent: default\n"
    ran = inside.wick("run", "-t", "mine", 'Where is my order? find_order(number="A-17")')
    assert ran.code == 0
    assert "using the scripted demo model" in ran.err
    assert "card **** 1111" in ran.out
    assert all("4111" not in text for _, text in inside.messages())
    paid = inside.wick("run", "-t", "b", 'refund(number="B-04", amount=240)')
    assert "stopped: interrupted" in paid.err
    assert "240.00 EUR" in inside.wick("resume", "b", "--all-approve").out
    with (inside.path / "mytools.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert "not trusted in its present state" in inside.wick("run", "Hello").err


def test_it_says_as_json_what_it_did(folder: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/wick"])
    (folder.path / ".gitignore").write_text("mine\n", "utf-8")
    (folder.path / "-d").mkdir()
    assert folder.wick("init", "--json", "--", "-d").json["next"].startswith("cd -- -d && ")
    made = folder.wick("init", "--json").json
    assert made["files"] == FILES[:-1]
    assert made["next"].startswith("/usr/bin/wick run ")
    assert (folder.path / ".gitignore").read_text("utf-8") == "mine\n"
    digest = folder.wick("trust", "--show").out.strip()
    assert made["trusted"] == digest


@pytest.mark.parametrize("name", [*FILES[:-1], "mytools", "myhooks"])
@pytest.mark.parametrize("kind", ["file", "folder", "link to nowhere"])
def test_it_overwrites_nothing(folder: Inside, name: str, kind: str) -> None:
    path = folder.path / name
    if kind == "file":
        path.write_text("mine", "utf-8")
    elif kind == "folder":
        path.mkdir()
        (path / "__init__.py").write_text("raise SystemExit", "utf-8")
    else:
        path.symlink_to(folder.path.parent / "elsewhere")
    before = content(folder.path.parent)
    refused = folder.wick("init")
    assert (refused.code, refused.out) == (2, "")
    said = f"wick: {name} exists, and wick init overwrites nothing; name another folder\n"
    assert refused.err == said
    assert content(folder.path.parent) == before


def test_a_folder_that_cannot_be_used_gets_one_sentence(folder: Inside) -> None:
    (folder.path / "file").write_text("mine", "utf-8")
    for where in ("file", "file/below"):
        refused = folder.wick("init", where)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert "name another folder" in refused.err
    assert content(folder.path) == {"file": b"mine"}


@pytest.mark.parametrize("name", ["re.py", "wick_graph/__init__.py", "wick_graph.py"])
def test_code_that_was_there_is_never_trusted(folder: Inside, name: str) -> None:
    path = folder.path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("raise SystemExit('ran')\n", "utf-8")
    refused = folder.wick("init")
    assert refused.code == 2
    assert "names two modules" in refused.err
    assert not (folder.path.parent / "state").exists()
    assert "names two modules" in folder.wick("run", "Hello").err


def test_what_it_writes_has_good_form(folder: Inside) -> None:
    folder.wick("init")
    for command in (["check", "--select", "E,F,I,B,UP,PT,RET,SIM"], ["format", "--check"]):
        checked = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "."],
            cwd=folder.path,
            capture_output=True,
            text=True,
        )
        assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
def test_what_it_writes_has_good_types_and_passes_its_tests(folder: Inside) -> None:
    folder.wick("init")
    for command in (["mypy", "--strict", "."], ["pytest", "-q", "-p", "no:cacheprovider"]):
        checked = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=folder.path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert checked.returncode == 0, checked.stdout


QUESTION = "Where is my order A-17?"
SCRIPT = "steps: [{call: find_order, args: {number: A-17}}, It was sent on Monday.]"
MODEL = "scripted:talk.yaml"


@pytest.fixture
def entered(folder: Inside, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inside]:
    """The folder of a first agent, in which the test works."""
    folder.wick("init")
    folder.write(talk=SCRIPT)
    monkeypatch.setenv("WICK_MODEL", MODEL)
    with folder.entered():
        sys.path.insert(0, str(folder.path))
        yield folder


def by_python() -> Agent:
    """The agent of agents.yaml, made in Python."""
    import myhooks  # type: ignore[import-not-found]  # noqa: PLC0415  # wick init wrote it
    import mytools  # type: ignore[import-not-found]  # noqa: PLC0415  # as above

    return Agent(
        "default",
        MODEL,
        system_prompt=load_config("agents.yaml").agents["default"].system_prompt,
        tools=[*builtin(["calculate"], Path.cwd()), mytools.find_order, mytools.refund],
        hooks=[ApprovalHook({"refund": "amount > 50"}), myhooks.HideCards()],
    )


async def test_by_file_by_python_and_mounted_it_gives_equal_events(entered: Inside) -> None:
    ask = {"messages": [{"role": "user", "content": QUESTION}]}
    found: dict[str, list[dict[str, Any]]] = {}
    with load() as file:
        found["file"] = [event.to_dict() for event in file["default"].stream(QUESTION)]
        async with mounted(Server(file, auth=False), together=True) as http:
            answer = await http.post("/wick/agents/default/stream", json=ask)
            found["mounted"] = of_stream(answer.text)
    with by_python() as agent:
        found["python"] = [event.to_dict() for event in agent.stream(QUESTION)]
    told = {name: plain(events) for name, events in found.items()}
    assert "card **** 1111" in json.dumps(told["file"])
    assert told["file"][-1]["event"] == "done"
    assert told["mounted"] == told["file"]
    assert told["python"] == told["file"]
