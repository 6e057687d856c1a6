"""What a model reads of a call of `execute`."""

from __future__ import annotations

from typing import Any

from tests.engine.support import wild
from tests.sandbox.fixtures import Cell
from wick_graph import Agent
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.testing import ScriptedModel


def told(cell: Cell, **args: Any) -> str:
    """Have an agent make the call; return what its model reads."""
    script = ScriptedModel([wild("execute", **args), "done"])
    result = Agent(model=script, hooks=[FilesystemHook(cell.fs)], store=False).invoke("go")
    assert result.stopped_because == "done"
    (text,) = (m.text for m in result.messages if m.type == "tool")
    return text
