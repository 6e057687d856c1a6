"""What a caller may say of one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from typing_extensions import TypedDict

from wick_graph import keys
from wick_graph.config.durations import seconds
from wick_graph.errors import ConfigError
from wick_graph.graph.lifecycle_again import INPUT, input_hash, run_id_of
from wick_graph.runtime import Run
from wick_graph.types import OnBusy

_LONGEST_KEY: Final = 255


class RunOptions(TypedDict, total=False):
    """Options of one run, for every door that takes an input."""

    idempotency_key: str | None
    """Repeating a call with the same key and thread is harmless: a run that has ended gives its
    result again, one that died goes on. Without a thread id, the key decides the thread too."""
    on_busy: OnBusy
    """Where another run goes on in the thread: `reject` (the default) raises `ThreadBusyError`,
    `queue` waits its turn, `cancel_running` ends the other run."""
    deadline: str | float | None
    """How long the run may take, its time in a queue included (`90s`, `10m`, seconds); then what
    is under way is left, and the run ends with `stopped_because="limit"`."""
    force: bool
    """Go on although the thread is poisoned, at once; what it was charged with is forgotten."""
    debug: Any
    """A `wick_graph.debug.DebugSession`, which can stop the run at every moment of it."""


def opted(
    run: Run, options: RunOptions, value: Mapping[str, Any] | None, config: dict[str, Any]
) -> dict[str, Any]:
    """Note a caller's options in the run, and return the config to run it with.

    Raises:
        ConfigError: An option is unknown or refused.
    """
    unknown = sorted(set(options) - set(RunOptions.__annotations__))
    if unknown:
        raise ConfigError(
            f"there is no option {unknown[0]!r}; known: {', '.join(RunOptions.__annotations__)}"
        )
    run.on_busy = options.get("on_busy") or "reject"
    run.force = bool(options.get("force"))
    run.debugger = options.get("debug")
    if (limit := options.get("deadline")) is not None:
        run.deadline = seconds(limit)
    key = options.get("idempotency_key")
    if key is None:
        return config
    if not isinstance(key, str) or not 0 < len(key) <= _LONGEST_KEY:
        raise ConfigError(f"an idempotency key is a text of 1 to {_LONGEST_KEY} characters")
    run.key = key
    run.run_id = run_id_of(run.thread_id or "", key)
    messages = (value or {}).get("messages") or ()
    return keys.with_metadata(config, run_id=run.run_id, **{INPUT: input_hash(messages)})
