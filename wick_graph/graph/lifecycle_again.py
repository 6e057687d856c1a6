"""The same run asked for twice: an idempotency key makes the second asking harmless.

The run's id is made of its thread and its key, and each of its checkpoints bears that id and a
hash of the input. So a run that has ended gives its result again, one that a crash or a failure
ended goes on, and another input under the same key is refused.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import BaseMessage

from wick_graph import keys
from wick_graph.drive import Leaves
from wick_graph.errors import RunError
from wick_graph.usage import Usage, usage_of

if TYPE_CHECKING:
    from wick_graph.graph.lifecycle import Opened

INPUT: Final = "wick_input"
"""The metadata of a run with a key that tells its input from another."""
_OURS: Final = uuid.UUID("6f2b8f0e-51d5-4c55-9b5e-0f2f6f5a7d41")


@dataclass(frozen=True, slots=True)
class Earlier:
    """The end of a run that was asked for again."""

    values: dict[str, Any]
    interrupts: tuple[Any, ...]

    def chunks(self, kwargs: Mapping[str, Any]) -> Iterator[Any]:
        """Yield what LangGraph's stream would yield of a run that does nothing more."""
        modes = kwargs.get("stream_mode") or "values"
        asked = {"__interrupt__": self.interrupts}
        if kwargs.get("version") == "v2":
            if "values" in modes:
                told = {"type": "values", "ns": (), "data": self.values}
                yield {**told, "interrupts": self.interrupts}
        elif isinstance(modes, str):
            if modes == "values":
                yield {**self.values, **asked} if self.interrupts else self.values
        else:
            if "updates" in modes and self.interrupts:
                yield ("updates", asked)
            if "values" in modes:
                yield ("values", self.values)


def run_id_of(thread_id: str, key: str) -> str:
    """Make the id of a run of its thread and its caller's key."""
    return str(uuid.uuid5(_OURS, f"{thread_id}\0{key}"))


def thread_id_of(agent: str, key: str) -> str:
    """Make the id of the thread that a run with a key begins, the same each time."""
    made = blake2b(f"{agent}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8)
    return f"th_{made.hexdigest()}"


def input_hash(messages: Sequence[BaseMessage]) -> str:
    """Tell an input from others, whatever ids its messages bear."""
    said = [[message.type, message.content] for message in messages]
    text = json.dumps(said, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


async def is_repeated(opened: Opened, io: Leaves) -> bool:
    """Say whether the run's key was used in its thread before."""
    if opened.run.key is None or opened.saver is None:
        return False
    return await _newest_of(opened, io) is not None


async def look_back(opened: Opened, io: Leaves) -> None:
    """Find the run that a key was used for: its end is given again, or it goes on.

    Raises:
        RunError: The key was used for another input.
    """
    run, saver, before = opened.run, opened.saver, opened.before
    if run.key is None or saver is None:
        return
    if before is None and hasattr(saver, "threads"):  # LangGraph's savers have no list of threads
        return
    saved = await _newest_of(opened, io)
    if saved is None:
        return
    opened.untouched = True
    if saved.metadata.get(INPUT) != (opened.config.get("metadata") or {}).get(INPUT):
        raise RunError(
            f"the idempotency key {run.key!r:.80} was used for another input in thread "
            f"{run.thread_id}; take a new key for a new input"
        )
    graph = opened.graph
    at, is_head = await _end_of_turn(opened, saved, io)
    state: Any = await io.either(lambda: graph.get_state(at), lambda: graph.aget_state(at))
    asks = bool(state.interrupts) if before is None else before.status == "waiting"
    waits = is_head and asks
    if is_head and state.next and not waits:
        opened.untouched = False
        opened.input, run.resumed = None, True
        return
    known = graph.output_channels
    names = [known] if isinstance(known, str) else known
    values = {name: state.values[name] for name in names if name in state.values}
    opened.earlier = Earlier(values, tuple(state.interrupts) if waits else ())
    run.usage = _used(values.get("messages") or ())
    run.stopped = state.values.get("stop_reason") or ("cancelled" if state.next else "done")
    if waits:
        run.stopped = "interrupted"


async def _end_of_turn(opened: Opened, saved: Any, io: Leaves) -> tuple[Any, bool]:
    """Find where the turn that a run began has come to: other runs may have gone on with it.

    Returns:
        The config of its last checkpoint, and whether that is the thread's.
    """
    saver = opened.saver
    assert saver is not None
    where: Any = keys.with_configurable(
        None, **{keys.THREAD_ID: opened.run.thread_id, keys.CHECKPOINT_NS: ""}
    )
    own = _id_of(saved)
    later: list[Any] = []

    def walk() -> None:
        for found in saver.list(where):
            if _id_of(found) == own:
                return
            later.append((found.config, found.metadata.get("source")))

    async def awalk() -> None:
        async for found in saver.alist(where):
            if _id_of(found) == own:
                return
            later.append((found.config, found.metadata.get("source")))

    await io.either(walk, awalk)
    end = saved.config
    while later and later[-1][1] != "input":
        end = later.pop()[0]
    return end, not later


def _id_of(saved: Any) -> Any:
    return keys.configurable(saved.config).get(keys.CHECKPOINT_ID)


async def _newest_of(opened: Opened, io: Leaves) -> Any:
    """Return the last checkpoint of the run's id."""
    saver, run = opened.saver, opened.run
    where: Any = keys.with_configurable(
        None, **{keys.THREAD_ID: run.thread_id, keys.CHECKPOINT_NS: ""}
    )
    wanted = {"run_id": run.run_id}

    def newest() -> Any:
        return next(iter(saver.list(where, filter=wanted, limit=1)), None)

    async def anewest() -> Any:
        async for found in saver.alist(where, filter=wanted, limit=1):
            return found
        return None

    return await io.either(newest, anewest)


def _used(messages: Sequence[BaseMessage]) -> Usage:
    """Count what the replies since the last input have used."""
    used = Usage()
    for message in reversed(messages):
        if message.type == "human":
            break
        if message.type == "ai":
            used += usage_of(message)
    return used
