"""wick_graph where Python has only what it has on Windows, played by `tests.support.windows`."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.source import MODULES, ROOT, walk
from tests.support.windows import MODULES as MISSING
from tests.support.windows import NAMES, SIGNALS
from wick_graph import machine

SECONDS = 120
REFUSAL = (
    "this system (win32) cannot confine file tools and commands to a folder; leave out backend, "
    "ls, skills and memory, or run wick_graph on Linux or macOS (on Windows: in WSL or a container)"
)
ALLOWED = ("wick_graph.machine", "wick_graph.backends.", "wick_graph.sandbox.")
"""The others are files and commands, which are refused before anything in them runs."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: tmp_path_factory.mktemp(name) for name in ("work", "state", "temp")}


@pytest.fixture(scope="module")
def told(folders: dict[str, Path]) -> dict[str, Any]:
    """What one process has seen."""
    old = folders["temp"] / f"wick_graph-{'0' * 32}.alive"
    old.touch()
    os.utime(old, (time.time() - 90_000,) * 2)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.windows", "tests.e2e.windows_tour", folders["work"]],
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("COV_")},
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNDEFAULTENCODING": "1",
            "XDG_STATE_HOME": str(folders["state"]),
            "TMPDIR": str(folders["temp"]),
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    failed = [part for part in found.values() if isinstance(part, str) and "Traceback" in part]
    assert not failed, "\n".join(failed)
    return found


def test_an_agent_with_a_tool_and_a_hook_answers(told: dict[str, Any]) -> None:
    assert told["platform"] == "win32"
    assert told["agent"] == {"said": "Three.", "streamed": "Done", "later": "Three."}


def test_a_store_is_written_resumed_swept_and_listed(told: dict[str, Any]) -> None:
    found = told["store"]
    assert (found["asked"], found["said"]) == (1, "Three.")
    assert found["listed"] == ["old", "user:a"]
    assert (found["swept"], found["left"]) == (["old"], ["user:a"])


def test_time_passes_between_processes_that_work_for_a_moment(told: dict[str, Any]) -> None:
    assert told["idle"] == [[], ["old"]]


def test_it_is_known_whether_another_process_lives(
    told: dict[str, Any], folders: dict[str, Path]
) -> None:
    found = told["liveness"]
    assert (found["own"], found["alive"], found["killed"]) == (True, True, False)
    assert found["elsewhere"] == [True, False]
    assert found["odd"] == [True, False]
    left = list(folders["temp"].glob("wick_graph-*.alive"))
    assert [path.stat().st_size for path in left] == [0]  # of the process that was killed


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("version", "wick_graph "),
        ("validate", "agents.yaml: ok, 2 agents: default, careful"),
        ("run", "It is 42."),
        ("json", '"response": "It is 42."'),
        ("waits", "Let me see."),
        ("resume", "It is 42."),
        ("list", "user:b "),
        ("show", "thread     user:b"),
        ("fork", "forked user:b as forked"),
        ("journal", "run of default"),
        ("graph", "before_agent"),
        ("hooks", "default: 3 hooks"),
        ("prune", "deleted 0 threads"),
        ("vacuum", " now"),
        ("take out", "exported user:b to out.db"),
        ("take in", "imported again from out.db"),
        ("repair", "to mended.db"),
        ("debug", "node model"),
        ("debug wickrun", "node model"),
        ("key", "is the current one"),
        ("token", ""),
        ("verify", "the store is whole"),
        ("own code", "Done."),
        ("rotate", "0 rows re-encrypted"),
        ("export html", "wrote user_b.html"),
        ("export wickrun", "wrote user_b.wickrun"),
        ("export pytest", "wrote test_user_b.py"),
        ("export chrome", "wrote user_b.trace.json"),
        ("export jsonl", "wrote user_b.jsonl"),
    ],
)
def test_a_command_works(told: dict[str, Any], name: str, said: str) -> None:
    found = told["commands"][name]
    assert found["code"] == 0, found
    assert said in found["out"], found


def test_a_trusted_program_and_own_code_are_called(told: dict[str, Any]) -> None:
    assert "mine:twice" in told["commands"]["trust"]["err"]
    err = told["commands"]["own code"]["err"]
    assert "→ twice(n=21)\n← 42\n→ far_big()\n← fine\n" in err


@pytest.mark.parametrize("name", ["local", "execute", "docker", "ls", "skills", "memory"])
def test_a_file_with_file_tools_is_refused_alike(told: dict[str, Any], name: str) -> None:
    validated, ran = told["refusals"][name]
    assert validated == ran
    key = "tools" if name == "ls" else "backend"
    assert (ran["code"], ran["out"]) == (2, "")
    assert ran["err"] == f"wick: {name}.yaml:4: agents.default.{key}: {REFUSAL}\n"


@pytest.mark.parametrize("door", ["Root", "LocalBackend", "DockerBackend"])
def test_files_and_commands_are_refused_in_python(told: dict[str, Any], door: str) -> None:
    assert told["refusals"][door] == f"ConfigError: {REFUSAL}"


def test_a_refusal_leaves_no_folder(told: dict[str, Any]) -> None:
    assert not {"workspace", "skills"} & {*told["refusals"]["left"]}
    assert not [name for name in told["refusals"]["left"] if name.startswith(".wick-check")]


@pytest.mark.parametrize("door", ["server", "serve"])
def test_the_server_answers_by_asgi_and_over_a_socket(told: dict[str, Any], door: str) -> None:
    found = told[door]["said"]
    assert (found["response"], found["stopped_because"]) == ("It is 42.", "done")
    assert [one["output"] for one in found["tool_calls"]] == ["42"]


def test_the_server_ends_at_ctrl_c(told: dict[str, Any]) -> None:
    assert told["serve"]["ended"]["code"] == 0, told["serve"]["ended"]


@pytest.mark.parametrize("given", ["tools", "backend"])
def test_the_server_takes_no_agent_with_file_tools(told: dict[str, Any], given: str) -> None:
    assert told["server"][f"refused {[given]}"] == [409, REFUSAL]


# --- One module holds the difference.


@pytest.mark.xdist_group("source")
def test_no_other_module_asks_for_what_windows_lacks() -> None:
    found = []
    for module in MODULES.values():
        if module.name.startswith(ALLOWED):
            continue
        for node in walk(module.tree):
            names = []
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names if one.name in MISSING]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names = [node.attr] if _is_missing(node.value.id, node.attr) else []
            found += [f"{module.name}: {name}" for name in names]
    assert sorted(found) == [
        "wick_graph.cli.watch: readline",  # for who has it
        "wick_graph.debug.terminal.shell: readline",
    ]


def _is_missing(owner: str, name: str) -> bool:
    if owner == "os":
        return NAMES.fullmatch(name) is not None
    if owner == "sys":
        return name == "platform"
    return owner == "signal" and name.startswith("SIG") and name not in (*SIGNALS, "SIG_DFL")


def test_an_address_is_never_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """With SO_REUSEADDR, another program of Windows could take the server's port."""
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
    with socket.socket() as made:
        machine.reserve(made)
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not made.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
