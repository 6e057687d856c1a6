"""What holds of every phase of a hook: a new phase that a table or a reader lacks is found here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.source import ROOT
from wick_graph import Agent, BaseHook, tool
from wick_graph.debug import DebugSession
from wick_graph.exports.plain import Hider, as_jsonl
from wick_graph.hooks.onion import TITLES, Hooks
from wick_graph.hooks.protocol import PHASES
from wick_graph.journal import Journal
from wick_graph.journal.page_format import KINDS, PHASE_CODES
from wick_graph.picture.read import NODE_OF
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, call
from wick_graph.types import Phase

SCHEMA = json.loads((ROOT / "docs" / "moment.schema.json").read_text("utf-8"))
HELD = SCHEMA["properties"]
PAGE = (ROOT / "docs" / "how-to" / "hooks.md").read_text("utf-8")
NODES = (ROOT / "docs" / "explanation" / "graph.md").read_text("utf-8")
TABLES = {
    "hooks.onion.TITLES": [*TITLES],
    "hooks.onion.Hooks": [f.name for f in fields(Hooks) if f.name in PHASES],
    "hooks.protocol.BaseHook": [name for name in vars(BaseHook) if name in PHASES],
    "journal.page_format.PHASE_CODES": [*PHASE_CODES],
    "picture.read.NODE_OF": [*NODE_OF],
    "docs/moment.schema.json": HELD["hook_phase"]["enum"],
    "docs/how-to/hooks.md": re.findall(r"^\| `(\w+)\(", PAGE, re.M),
    "docs/explanation/graph.md": [
        phase
        for row in re.findall(r"^\| `\w+` \|.*\| (.*) \|$", NODES, re.M)
        for phase in re.findall(r"`(\w+)`", row)
    ],
}
WAIT: Any = 60
UPDATE = {"memory": {"note": "kept"}}
TOLD = [{"channel": "memory", "op": "set", "path": "note"}]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_names_every_phase(table: str) -> None:
    assert sorted(TABLES[table]) == sorted(PHASES)


def test_a_node_tells_the_hooks_of_all_its_phases() -> None:
    """What LangGraph's own pictures show of a node."""
    for phase, node in NODE_OF.items():
        hook = type("Only", (BaseHook,), {"name": "only", phase: lambda self, *args: None})()
        graph = Agent(model=ScriptedModel([]), hooks=[hook]).graph
        shown = {name: (spec.metadata or {}).get("hooks") for name, spec in graph.nodes.items()}
        assert [name for name, hooks in shown.items() if hooks == "only"] == [node], phase


def test_the_schema_of_moments_names_every_kind() -> None:
    assert set(HELD["kind"]["enum"]) == {kind for kind, _ in KINDS} | {"gap"}


def writer(phase: Phase) -> BaseHook:
    """Make a hook that only writes: a bare update if the phase may return None, else a pair."""
    own: Callable[..., Any] = getattr(BaseHook, phase)

    def act(self: BaseHook, value: Any, other: Any) -> Any:
        made = own(self, value, other)
        return UPDATE if made is None else (made, UPDATE)

    hook: BaseHook = type("Writer", (BaseHook,), {"name": "writer", phase: act})()
    return hook


@pytest.mark.parametrize("phase", PHASES)
def test_what_a_phase_writes_is_stored_recorded_shown_and_exported(
    tmp_path: Path, phase: Phase
) -> None:
    url = f"sqlite:///{tmp_path / 't.db'}"

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    agent = Agent(
        model=ScriptedModel([call("add", a=1, b=2), "Done."]),
        tools=[add],
        hooks=[writer(phase)],
        store=url,
    )
    with agent, DebugSession(agent) as session:
        session.add(f"break hook:writer.{phase}:exit")
        stop = session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        live = []
        while stop.reason == "breakpoint":
            assert session.here is not None
            live.append((session.here.seq, session.inspect.details()["update"]))
            stop = session.cont(timeout=WAIT)
        assert stop.reason == "finished", session.error
        assert session.inspect.state("memory", "@last") == UPDATE["memory"]
    with SqlSaver.from_url(url) as saver:
        journal = Journal(saver, "t")
        ends = list(journal.moments(kind="hook.exit"))
        assert live == [(end.seq, journal.details(end)["update"]) for end in ends]
        assert [update for _, update in live] == [TOLD] * max(1, len(live))
        for end in ends:
            assert (end.hook_phase, end.node) == (phase, NODE_OF[phase])
            assert bool(end.call_id) is (end.node == "tools")
        for row in as_jsonl(journal, Hider.of(journal)):
            Draft202012Validator(SCHEMA).validate(json.loads(row))


@pytest.mark.parametrize("phase", [phase for phase, node in NODE_OF.items() if node == "tools"])
def test_a_reply_is_stored_before_a_hook_sees_its_calls(tmp_path: Path, phase: Phase) -> None:
    """Else a crash asks the model again, after the hook has acted on the lost reply."""
    url = f"sqlite:///{tmp_path / 't.db'}"
    own: Callable[..., Any] = getattr(BaseHook, phase)
    stored: list[str] = []

    def look(self: BaseHook, value: Any, other: Any) -> Any:
        with SqlSaver.from_url(url) as reader:
            found = reader.get_tuple({"configurable": {"thread_id": "t"}})
        assert found is not None
        stored.append(found.checkpoint["channel_values"]["messages"][-1].type)
        return own(self, value, other)

    @tool(replay="never")
    def send(to: str) -> str:
        """Send."""
        return "sent"

    hook = type("Looker", (BaseHook,), {"name": "looker", phase: look})()
    with SqlSaver.from_url(url) as saver:
        saver._core._flusher.close()  # so that nothing is written because time has passed
        model = ScriptedModel([call("send", to="x"), "Done."])
        Agent(model=model, tools=[send], hooks=[hook], store=saver).invoke("go", thread_id="t")
    assert stored == ["ai"]
