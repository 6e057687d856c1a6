"""A run that another process recorded and finished: everything is answered from its file alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.source import ROOT
from tests.support import forked

RECORD = """\
from tests.journal.support import PROMPT, Guard, Todo, add
from wick_graph import Agent, tool
from wick_graph.testing import ScriptedModel, call

script = [call("add", a=1, b=2), call("add", a=-3, b=1), "Done."]
with Agent("adder", ScriptedModel(script), system_prompt=PROMPT, store="sqlite:///store.db",
           hooks=[Todo(), Guard()], tools=[tool(add)]) as agent:
    assert agent.invoke("add", thread_id="T").stopped_because == "done"
"""
DEBUG = """\
import socket, sys


def refuse(*args, **kwargs):
    raise AssertionError("the network is used")


socket.socket.connect = socket.socket.connect_ex = socket.create_connection = refuse
socket.socket.sendto = socket.getaddrinfo = refuse
sys.argv = ["wick", "debug", *sys.argv[1:]]
from wick_graph.cli import main

main()
"""
SCRIPT = "break tool:* if error; c; bt; why messages[-1].content; rc; request"


def python(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if "KEY" not in name.upper()}
    return forked.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_finished_run_of_another_process_answers_all(tmp_path: Path) -> None:
    done = python(tmp_path, RECORD)
    assert done.returncode == 0, done.stderr
    (tmp_path / "agents.yaml").write_text(
        "store: sqlite:///store.db\nagents:\n  adder: {model: openai:gpt-none}\n", encoding="utf-8"
    )
    done = python(tmp_path, DEBUG, "--thread", "T", "--batch", "-e", SCRIPT)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "  1  break tool:* if error"
    assert lines[1].startswith("breakpoint 1")
    assert "✕ tool add failed: negative numbers are not added" in lines[2]
    stack, rest = lines[3:6], "\n".join(lines[6:])
    assert stack[0].startswith("▶ 0  tool add")
    assert "node tools  (step @7, visit 2)" in stack[1]
    assert "agent adder  thread T" in stack[2]
    assert "messages[-1].content  written @6" in rest
    assert "by model in node model" in rest
    assert "because  the reply answers model:request @6" in rest
    assert "→ run of adder (input: 1 message)" in rest
    assert lines[-2:] == ["user: add", "user: Mind the time."]
    assert 'settings {"temperature": 0.3}' in rest
    assert "system: Be careful." in rest
