"""What is taken down of a moment at once, because somebody may change it before it is written.

Requests, calls and messages are never changed, by the engine's own rules. A hook that breaks
them shall not make the journal say what did not happen: so a reply's fields and calls, and the
arguments as they come to the hooks and to the tool, are taken down where hooks are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage

from wick_graph.hooks.compile import Hooks
from wick_graph.journal.fingerprint import packed
from wick_graph.moments import Moment


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as it came."""

    fields: dict[str, Any]
    calls: bytes | None
    """Its calls, encoded; None where nobody could have changed them."""

    @classmethod
    def of(cls, reply: AIMessage, *, touched: bool) -> Reply:
        """Take a reply down."""
        calls = packed(reply.tool_calls) if touched and reply.tool_calls else None
        return cls(dict(reply.__dict__), calls)


@dataclass(frozen=True, slots=True)
class Taking:
    """Knows who sees replies and arguments while a node runs: hooks alone can change them."""

    replies: bool = True
    args: bool = True

    @classmethod
    def of(cls, hooks: Hooks) -> Taking:
        """Look at an agent's hooks."""
        return cls(bool(hooks.wrap_model_call or hooks.after_model), bool(hooks.wrap_tool_call))

    def of_moment(self, moment: Moment) -> Any:
        """Take down what may change of a moment; None for nothing."""
        phase = moment.phase
        if moment.kind == "tool":
            if phase == "replaced" or (self.args and phase in ("enter", "call")):
                return packed(moment.data["args"])
        elif moment.kind == "model" and phase == "response":
            return Reply.of(moment.data["reply"], touched=self.replies)
        return None
