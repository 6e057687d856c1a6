"""Lines of files as breakpoints: they stop where what stands there is entered, or say why not."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.debug.support import WAIT, World
from tests.journal.support import Guard, Todo
from wick_graph import Agent, load, tool
from wick_graph.debug import DebugSession
from wick_graph.debug.locations import locations_at
from wick_graph.testing import call

AGENTS = """\
store: false
agents:
  main:
    model: "scripted:script.yaml"
    system_prompt: Add.
    tools: [calculate, ls]
  other:
    model: "scripted:script.yaml"
    tools:
      - calculate
      - ls
    max_iterations: 3
    subagents:
      main: {description: It adds.}
"""


@tool
def decorated(b: int) -> str:
    """Say something."""
    return f"said {b}"


def line_of(fn: Any, text: str) -> int:
    """Return the line of a function that holds a text."""
    lines, first = inspect.getsourcelines(fn)
    return first + next(at for at, line in enumerate(lines) if text in line)


@pytest.fixture
def agent(world: World) -> Iterator[Agent]:
    script = call("add", a=1, b=1), call("decorated", b=1), "Done."
    made, _ = world.agent(None, *script, tools=[tool(world.add), decorated])
    with made:
        yield made


@pytest.mark.parametrize(
    ("file", "fn", "text", "location", "stops"),
    [
        ("support.py", World.add, "self.added", "tool:add", ["tool.call add"]),
        ("debug/test_lines.py", decorated.fn, "said", "tool:decorated", ["tool.call decorated"]),
        (
            "support.py",
            Guard.after_model,
            "return",
            "hook:guard.after_model",
            ["hook.enter guard"] * 3,
        ),
        ("support.py", Todo.before_agent, "def", "hook:todo.before_agent", ["hook.enter todo"]),
    ],
    ids=["tool", "decorated-tool", "hook", "first-line"],
)
def test_a_line_of_code_stops_where_its_hook_or_tool_is_entered(
    file: str, fn: Any, text: str, location: str, stops: list[str], agent: Agent
) -> None:
    spec = f"break {file}:{line_of(fn, text)}"
    with DebugSession(agent) as session:
        made = session.add(spec)
        assert (made.verified, made.bound, made.spec) == (True, (location,), spec)
        stop = session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        found = []
        while stop.entry is not None and stop.reason == "breakpoint":
            found.append(f"{stop.entry.what} {stop.entry.name}")
            stop = session.cont(timeout=WAIT)
        assert found == stops
        assert session.error is None
        session.breakpoints.condition(made.number, "visit > 100")
        session.goto("@first")
        assert session.cont().reason == "end"


@pytest.mark.parametrize(
    ("line", "locations"),
    [
        (3, ()),
        (4, ("model:request",)),
        (5, ("modify_request",)),
        (6, ("tool:calculate", "tool:ls")),
        (10, ("tool:calculate",)),
        (11, ("tool:ls",)),
        (12, ()),
        (13, ("handoff",)),
        (14, ("agent:main",)),
        (99, ()),
    ],
)
def test_a_line_of_an_agents_file(line: int, locations: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(AGENTS, encoding="utf-8")
    with DebugSession() as session:
        made = session.add(f"break {file}:{line}")
        assert made.bound == locations
        assert made.verified is bool(locations)
        assert bool(made.note) is not bool(locations)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nowhere.py:1", "no hook or tool"),
        ("support.py:1", "no hook or tool"),
        ("no/such/agents.yaml:1", "cannot be read"),
        ("{folder}/broken.yaml:1", "cannot be read"),
        ("{folder}/large.yaml:1", "too large"),
    ],
)
def test_a_line_that_stands_for_nothing_says_why(
    text: str, why: str, agent: Agent, tmp_path: Path
) -> None:
    (tmp_path / "broken.yaml").write_text("a: [", encoding="utf-8")
    (tmp_path / "large.yaml").write_bytes(b"#" * 1_000_001)
    with DebugSession(agent) as session:
        made = session.add(f"break {text.format(folder=tmp_path)}")
        assert not made.verified
        assert why in made.note
    assert locations_at("tool:add", agent) is None
    with DebugSession() as session:
        assert "from an agent alone" in session.add("break support.py:1").note


def test_the_shown_file_is_one_of_agents(tmp_path: Path) -> None:
    """The table above is about a file that loads."""
    (tmp_path / "script.yaml").write_text("- Done.\n", encoding="utf-8")
    file = tmp_path / "agents.yaml"
    file.write_text(AGENTS.replace("store: false\n", ""), encoding="utf-8")
    assert {"main", "other"} <= set(load(file))
