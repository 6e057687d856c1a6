"""Typed agents that wait for an answer go on in another process, by each door, with all they had.

One process begins all threads, another goes on with those of Python's doors, and a command or a
server with each of the others. A process costs more than a thread, so they share what they can.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.e2e.typed_desk import BERN, CONTEXT, DOORS, FILE, KINDS, PAID, SCHEMA, STEPS, answer_to
from tests.server.support import Served
from tests.support import forked
from tests.support.command import Folder

pytestmark = pytest.mark.xdist_group("typed_resume")  # they share a folder

NEEDS = re.compile("needs a context of Ctx, also to resume a thread")


@dataclass
class Desk(Folder):
    """The folder with the agents' file."""

    def play(self, door: str, *threads: str) -> dict[str, Any]:
        """Play a part with these threads in a process of its own."""
        done = forked.run(
            [sys.executable, "-m", "tests.e2e.typed_desk", door, *threads],
            cwd=self.path,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr.decode()
        made: dict[str, Any] = json.loads(done.stdout)
        return made


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    path = tmp_path_factory.mktemp("desk")
    (path / "city.json").write_text(json.dumps(SCHEMA))
    (path / "context.json").write_text(json.dumps(CONTEXT))
    (path / "wick.keys").write_text(b64encode(secrets.token_bytes(32)).decode())
    (path / "wick.keys").chmod(0o600)
    made = Desk(path)
    made.write(agents=FILE.replace("MODULE", "tests.e2e.typed_desk"))
    made.write(**{name: yaml.safe_dump({"steps": steps}) for name, steps in STEPS.items()})
    return made


def threads(door: str) -> list[str]:
    return [f"{kind}-{door}" for kind in KINDS]


@pytest.fixture(scope="module")
def asked(desk: Desk) -> dict[str, Any]:
    """Begin a thread of each kind for each door, which then waits; return the questions."""
    names = [*(one for door in (*DOORS, "cli") for one in threads(door)), "interrupt-debug"]
    made = desk.play("begin", *names)
    for thread, seen in made.items():
        assert (seen["stopped"], seen["paid"]) == ("interrupted", None)
        assert len(seen["asked"]) == (2 if thread.startswith("sibling") else 1)
    return {thread: seen["asked"] for thread, seen in made.items()}


def check_tools(kind: str, said: list[str]) -> None:
    """Check that each call saw the context, and that an invalid output was answered beside it."""
    assert f"ann pays 10 with a key of {len(CONTEXT['key'])}" in said
    assert said[-1] == "The answer was accepted."
    assert ("ann chose b" in said) is (kind in ("interrupt", "sibling"))
    assert ("Ann" in said) is (kind == "question")
    assert ("guide takes over." in said) is (kind == "handoff")
    assert any("people" in one for one in said) is (kind == "beside")


def test_python_goes_on(desk: Desk, asked: dict[str, Any]) -> None:
    went = desk.play("go", *(one for door in DOORS for one in threads(door)))
    assert len(went) == len(DOORS) * len(KINDS)
    for thread, seen in went.items():
        kind = thread.partition("-")[0]
        assert NEEDS.search(seen["without"]), (thread, seen["without"])
        found = thread, seen["output"], seen["stopped"], seen["paid"]
        assert found == (thread, BERN, "done", PAID[kind])
        assert seen.get("last", BERN) == BERN
        check_tools(kind, seen["tools"])
    kept = b"".join(path.read_bytes() for path in desk.path.glob("wick.db*"))
    assert kept
    assert CONTEXT["key"].encode() not in kept
    for seen in desk.play("fork", *(f"approval-{door}" for door in DOORS)).values():
        assert (seen["people"], seen["paid"]) == (7, PAID["approval"])


def flags(asked: list[dict[str, Any]]) -> Iterator[str]:
    """Say the answers as options of a command."""
    for one in asked:
        answer = answer_to(one["value"])
        yield from (
            ("--approve", one["id"])
            if isinstance(answer, dict)
            else ("--answer", f"{one['id']}={answer}")
        )


def test_the_command_line_goes_on(desk: Desk, asked: dict[str, Any]) -> None:
    given = ("--trust", "--context", "context.json", "--json")
    ran = desk.wick("run", "-t", "approval-cli", "approval", "Never mind.", *given)
    assert (ran.code, ran.json["output"]) == (0, BERN), ran.err
    assert "ann pays 5" not in ran.out
    for kind in ("interrupt", "handoff", "beside"):
        said = [*flags(asked[f"{kind}-cli"])]
        if kind == "beside":
            without = desk.wick("resume", f"{kind}-cli", *said, "--trust")
            assert without.code != 0
            assert NEEDS.search(without.err), without.err
        done = desk.wick("resume", f"{kind}-cli", *said, *given)
        assert done.code == 0, done.err
        assert done.json["output"] == BERN
        check_tools(kind, [one.get("error") or one["output"] for one in done.json["tool_calls"]])


def test_the_debugger_of_the_command_line_takes_a_context(
    desk: Desk, asked: dict[str, Any]
) -> None:
    for more, says in (
        ((), "needs a context of Ctx"),
        (("--context", "context.json"), "the run is over: done"),
    ):
        done = desk.wick(
            *(
                "debug",
                "--trust",
                "-t",
                "interrupt-debug",
                "--batch",
                "-e",
                "answer b; continue",
                *more,
            )
        )
        assert says in done.out + done.err
    assert done.out.splitlines()[-1] == json.dumps(BERN)


def test_an_mcp_server_refuses_at_its_start_what_needs_a_context(desk: Desk) -> None:
    done = desk.wick("mcp", "--trust")
    assert done.code == 2
    assert "needs a context of Ctx" in done.err
    assert "over MCP no caller gives one, so give its fields defaults" in done.err


@pytest.fixture
def server(desk: Desk) -> Iterator[Served]:
    served = Served(desk.path, ("--no-auth", "--trust"))
    try:
        yield served.start()
    finally:
        if served.process is not None:
            served.process.kill()
            served.process.communicate()


def test_another_server_goes_on(desk: Desk, server: Served) -> None:
    body = {"messages": [{"role": "user", "content": "Go"}]}
    waiting = {}
    with server.http() as http:
        for kind in KINDS:
            refused = http.post(f"/agents/{kind}/invoke", json=body)
            assert refused.status_code == 400
            assert NEEDS.search(refused.json()["error"])
            asked = http.post(f"/agents/{kind}/invoke", json={**body, "context": CONTEXT})
            assert asked.status_code == 200, asked.text
            waiting[kind] = asked.json()
            assert waiting[kind]["stopped_because"] == "interrupted"
    server.kill()
    server.start()
    with server.http() as http:
        for kind, asked in waiting.items():
            answer = {one["id"]: answer_to(one["value"]) for one in asked["interrupts"]}
            given = {"thread_id": asked["thread_id"], "answer": answer}
            done = http.post(f"/agents/{kind}/resume", json=given)
            assert done.status_code == 200, done.text
            assert done.json()["structured_response"] == BERN
            check_tools(
                kind, [one.get("error") or one["output"] for one in done.json()["tool_calls"]]
            )
    kept = b"".join(path.read_bytes() for path in desk.path.glob("wick.db*"))
    assert CONTEXT["key"].encode() not in kept
