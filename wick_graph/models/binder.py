"""Bind tools and settings to models once for each combination, not once for each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wick_graph.models.call import bind

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

    from wick_graph.models.resolve import ModelChoice
    from wick_graph.tools.bound import BoundTool


class Binder:
    """Remember bound models by the identity of what went into them."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def bind(
        self,
        option: ModelChoice,
        tools: Sequence[BoundTool],
        settings: Mapping[str, Any],
        withheld: bool,
    ) -> Runnable[Any, Any]:
        """Return the model with these tools and settings bound to it."""
        key = (id(option.model), tuple(map(id, tools)), withheld, repr(sorted(settings.items())))
        known = self._made.get(key)
        if known is None:
            if len(self._made) > 256:  # settings that differ on every call must not pile up
                self._made.clear()
            schemas = [tool.schema for tool in tools]
            bound = bind(option.model, schemas, withheld=withheld, settings=settings)
            known = self._made[key] = (bound, option.model, tuple(tools))  # keeps the ids alive
        runnable: Runnable[Any, Any] = known[0]
        return runnable
