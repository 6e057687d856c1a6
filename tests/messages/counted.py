"""A message that counts how often its content is read."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import HumanMessage


class Counted(HumanMessage):
    """Counts in `reads`."""

    reads: int = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "content":
            object.__setattr__(self, "reads", object.__getattribute__(self, "reads") + 1)
        return super().__getattribute__(name)
