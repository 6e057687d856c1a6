"""Each table of a hook's phases names all of them: a new phase that a table lacks is found here."""

from __future__ import annotations

import json
import re
from dataclasses import fields

import pytest

from tests.source import ROOT
from wick_graph import Agent, BaseHook
from wick_graph.hooks.onion import TITLES, Hooks
from wick_graph.hooks.protocol import PHASES
from wick_graph.journal.page_format import KINDS, PHASE_CODES
from wick_graph.picture.read import NODE_OF
from wick_graph.testing import ScriptedModel

SCHEMA = json.loads((ROOT / "docs" / "moment.schema.json").read_text("utf-8"))["properties"]
PAGE = (ROOT / "docs" / "how-to" / "hooks.md").read_text("utf-8")
TABLES = {
    "hooks.onion.TITLES": [*TITLES],
    "hooks.onion.Hooks": [f.name for f in fields(Hooks) if f.name in PHASES],
    "hooks.protocol.BaseHook": [name for name in vars(BaseHook) if name in PHASES],
    "journal.page_format.PHASE_CODES": [*PHASE_CODES],
    "picture.read.NODE_OF": [*NODE_OF],
    "docs/moment.schema.json": SCHEMA["hook_phase"]["enum"],
    "docs/how-to/hooks.md": re.findall(r"^\| `(\w+)\(", PAGE, re.M),
}


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
    assert set(SCHEMA["kind"]["enum"]) == {kind for kind, _ in KINDS} | {"gap"}
