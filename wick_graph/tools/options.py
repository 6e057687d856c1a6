"""How a tool may be called: what it declares beside its name and its schema."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, get_args

from wick_graph.constants import MAX_RESULT_CHARS
from wick_graph.errors import ConfigError
from wick_graph.tools.protocol import UNSET, Unset
from wick_graph.types import Replay


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """Declare what the engine may do with a tool's calls.

    Raises:
        ConfigError: A value is out of its range, or `retries` is set for a tool that may not run
            twice.
    """

    replay: Replay = "never"
    """What may happen to a call that was under way at a crash: `safe` runs it again, `key` runs
    it again with the same `ToolContext.key`, `never` tells the model that the outcome is unknown.
    """
    timeout: float | Unset | None = UNSET
    """Seconds; None for no limit."""
    retries: int = 0
    """Further attempts after an error; only where `replay` is `safe` or `key`."""
    concurrency: int | None = None
    """Calls of this tool that may run at once in this process; None for no limit."""
    max_output: int | None = MAX_RESULT_CHARS
    """Code points of the result that the model sees; None for all of them."""
    return_direct: bool = False
    """The result is the answer: a run whose last calls are all of such tools ends with it, unless
    one of them failed."""

    def __post_init__(self) -> None:
        if self.replay not in get_args(Replay):
            raise ConfigError(f"replay must be safe, never or key, not {self.replay!r}")
        if not (self.timeout is None or self.timeout is UNSET or _seconds(self.timeout)):
            raise ConfigError(
                f"timeout must be a number of seconds above 0, or None, not {self.timeout!r}"
            )
        _at_least("retries", self.retries, 0)
        if self.concurrency is not None:
            _at_least("concurrency", self.concurrency, 1)
        if self.max_output is not None:
            _at_least("max_output", self.max_output, 1)
        if not isinstance(self.return_direct, bool):
            raise ConfigError(f"return_direct must be true or false, not {self.return_direct!r}")
        if self.retries and self.replay == "never":
            raise ConfigError(
                "only a tool that may run twice can be retried; "
                "declare replay='safe' or replay='key', or leave retries at 0"
            )


_NAMES: Final = tuple(field.name for field in fields(ToolOptions))


def options_of(source: object, changes: Mapping[str, Any] | None = None) -> ToolOptions:
    """Read the options that an object has as attributes; `changes` come before them."""
    values = {name: getattr(source, name) for name in _NAMES if hasattr(source, name)}
    return ToolOptions(**{**values, **(changes or {})})


def _seconds(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value > 0


def _at_least(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, not {value!r}")
