"""An agent that must ask before its tool runs, on the thread t."""

from __future__ import annotations

from typing import Any

from wick_graph import Agent, tool
from wick_graph.hooks.approvals import ApprovalHook
from wick_graph.testing import ScriptedModel, calls

ON: Any = {"configurable": {"thread_id": "t"}}


class Box:
    """A tool whose runs are counted, and an agent that must ask before it."""

    def __init__(self, *paths: str, hooks: Any = None, store: Any = None, **rules: Any) -> None:
        self.ran: list[str] = []

        @tool
        def write(path: str, text: str = "") -> str:
            """Write a file."""
            self.ran.append(path)
            return f"wrote {path}"

        asked = [("write", {"path": path}) for path in paths]
        hooks = hooks or [ApprovalHook(rules or {"write": True})]
        self.model = ScriptedModel([calls(*asked), "Done.", "Done again."])
        self.agent = Agent(model=self.model, tools=[write], hooks=hooks, store=store)

    @property
    def answers(self) -> list[str]:
        """What the model reads of its calls, in their order."""
        messages = self.agent.graph.get_state(ON).values["messages"]
        return [m.text for m in messages if m.type == "tool"]
