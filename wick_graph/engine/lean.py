"""LangGraph's loop, served shorter where an agent's topology is known.

The loop stays LangGraph's: `stream`, `astream`, `tick`, `after_tick`, the runner and the tail of
each step are its own functions, bound here to other names for a few that they call. What is other:

- the tasks of a step are made without merging configs, and with one child callback manager;
- a step's writes are applied, the state is read, and a checkpoint is made, without asking each
  channel;
- a task is run without three copies of its config and of its runtime;
- what a node returns is written without asking each of its writers what it writes;
- for `invoke`, which returns the last state, a state is made for no other step if that is the same;
- the saver is called directly, without a task or a thread for what it defers;
- an empty queue of chunks is not asked, and a run that has nothing to wait for ends without tasks;
- a piece of a reply is put into that queue without a wake-up of the loop that it is put in;
- what a run may never use is small, or made when it is first used.

Nothing of LangGraph is patched, and only `AgentGraph` uses `stream` and `astream`, for the runs
that `pinned` names. A step that is not known here takes LangGraph's own functions. Only `pinned`
imports this module, and this alone `lean_state` and `lean_saves`: another release may lack what
they name.
"""

from __future__ import annotations

import asyncio
import binascii
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from operator import itemgetter
from types import FunctionType
from typing import Any, Final

from langchain_core.runnables import Runnable
from langgraph._internal import _config
from langgraph._internal import _constants as key
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.pregel import _algo, _loop, _retry, _runner, main
from langgraph.pregel.protocol import StreamProtocol
from langgraph.runtime import ExecutionInfo, Runtime
from langgraph.types import PregelExecutableTask, Send

from wick_graph.core.stopping import STOPS
from wick_graph.engine import lean_state
from wick_graph.engine.lean_saves import AsyncExecutor, SyncExecutor, takes_path
from wick_graph.engine.lean_state import WEAK, Chunks, Futures
from wick_graph.engine.node_runner import UntracedNode
from wick_graph.engine.small import AsyncExitStack, ExitStack, Few, own_names
from wick_graph.langgraph_config import CHECKPOINT_ID, CHECKPOINT_NS, CONFIGURABLE, RUN

# --- LangGraph's functions, bound to other names.


def bound(function: Any, **names: Any) -> Any:
    """Return a copy of a function that finds these globals in place of its module's."""
    made = FunctionType(
        function.__code__.replace(),
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__
    return made


# --- A stream that carries the last state and interrupts alone.


class LastStream(StreamProtocol):
    """A stream for a reader of the last state and of interrupts, as `invoke` is."""

    __slots__ = ()


# --- The tasks of a step.


_AROUND: Final = (
    key.CONFIG_KEY_CHECKPOINT_NS,
    key.CONFIG_KEY_SCRATCHPAD,
    key.CONFIG_KEY_RESUME_MAP,
)


_READ_STATE: Final[str | None] = getattr(key, "CONFIG_KEY_READ_STATE", None)
"""Where the state is that an edge would give a task that was sent; LangGraph 1.2.22 has it not."""


class LeanTask(PregelExecutableTask):
    """A task. Its runtime gets the execution info when it is run."""

    __slots__ = ()


class _Absent:
    """A class that no channel is of."""


_ABSENT: Final[dict[str, Any]] = {
    "DeltaChannel": _Absent,
    "UntrackedValue": _Absent,
    "ensure_message_ids": lambda specs, writes: None,  # of a `DeltaChannel`
}
"""What LangGraph looks for in each channel at each step; `pinned` has seen that there is none."""


_path_of: Final = lru_cache(maxsize=1_024)(_algo.task_path_str)
"""A task's path as text; a path of equal parts has the same."""


_MARKS: Final = frozenset({*WRITES_IDX_MAP, key.ERROR_SOURCE_NODE})
"""What a task writes that has not simply ended."""

_NAME: Final = itemgetter(0)


_NO_DELTAS: Final = set[Any]()
"""What is never filled, as there is no `DeltaChannel`."""


class _Unread:
    """A set that nothing reads."""

    __slots__ = ()

    def add(self, one: Any) -> None:
        """Forget it."""


_UNREAD: Final = _Unread()


class LeanLoop:
    """The parts of LangGraph's loop that are served here; mixed into its two loops."""

    checkpoint: Any
    checkpoint_config: Any
    prev_checkpoint_config: Any
    updated_channels: Any
    _resume_loaded_writes: Any
    _reapplied_task_ids: Any
    _merged: tuple[Any, Any] | None = None
    _alone: tuple[Any, bool] | None = None
    _fresh: set[str] | None = None
    """The channels that the step before has updated: no node has seen them yet."""

    _end_step = bound(
        _loop.PregelLoop.after_tick,
        apply_writes=lean_state.apply_writes,
        map_output_values=lean_state.output_values,
        **_ABSENT,
    )
    _first_of = bound(
        _loop.PregelLoop._first,
        apply_writes=lean_state.apply_writes,
        map_output_values=lean_state.output_values,
        **_ABSENT,
    )
    _end_run = bound(
        _loop.PregelLoop._suppress_interrupt,
        apply_writes=lean_state.apply_writes,
        map_output_values=lean_state.output_values,
        **_ABSENT,
    )
    _save_checkpoint = _loop.PregelLoop._put_checkpoint
    _put_writes = bound(_loop.PregelLoop.put_writes, task_path_str=_path_of, **_ABSENT)
    _output_writes = bound(
        _loop.PregelLoop.output_writes, map_output_updates=lean_state.output_updates
    )
    _lasts: bool | None = None
    """Whether the state at the end is that of the last step which changed it; None until asked."""
    _owed: Callable[[], Iterable[Any]] | None = None
    """Makes the last state that a `LastStream` gets at the end, or its run if that is stopped."""

    def _first(self: Any, **given: Any) -> Any:
        seen = self.checkpoint["versions_seen"]
        if key.INTERRUPT in seen:  # LangGraph changes it, and checkpoints before it have it too
            seen[key.INTERRUPT] = {**seen[key.INTERRUPT]}
        updated = self._first_of(**given)
        self._stored_delta_writes = self._delta_channels_forced_snapshot = _NO_DELTAS
        self._resume_loaded_writes, self._reapplied_task_ids = (), _UNREAD
        return updated

    def _put_checkpoint(self: Any, metadata: Any) -> None:
        """Save a checkpoint; the configs of those before it are for streams and `exit` alone."""
        save = self._checkpointer_put_after_previous
        if save is None or metadata is self.checkpoint_metadata:  # as when a run ends
            self._save_checkpoint(metadata)
        else:
            self._save(save, metadata)
        self._initial_checkpoint_config = self.checkpoint_config
        if type(self.stream) is LastStream and metadata.get("source") == "loop":
            self.prev_checkpoint_config = None

    def _save(self: Any, save: Any, metadata: Any) -> None:
        """Make a checkpoint and submit it, as LangGraph does if there is no `DeltaChannel`."""
        conf, at, step = self.config[CONFIGURABLE], self.checkpoint_config, self.step
        metadata["step"], metadata["parents"] = step, conf.get(key.CONFIG_KEY_CHECKPOINT_MAP, {})
        self.checkpoint_metadata = metadata
        given = self.checkpoint, self.channels, step, self.updated_channels
        self.checkpoint = made = lean_state.checkpoint_of(*given)
        known = {**at[CONFIGURABLE], CHECKPOINT_NS: conf.get(CHECKPOINT_NS, "")}
        self.prev_checkpoint_config = at if known.get(CHECKPOINT_ID) else None
        versions = {**made["channel_versions"]}
        new = lean_state.new_versions(self.checkpoint_previous_versions, versions)
        self.checkpoint_previous_versions = versions
        self._put_checkpoint_fut = self.submit(
            save,
            getattr(self, "_put_checkpoint_fut", None),  # the first one sets it
            [],
            {**at, CONFIGURABLE: known},
            lean_state.copy_of(made),
            metadata,
            new,
        )
        self.checkpoint_config = {**at, CONFIGURABLE: {**known, CHECKPOINT_ID: made["id"]}}
        self.step = step + 1

    def after_tick(self: Any) -> None:
        """Apply what a step's tasks have written, and save the checkpoint after it."""
        if self.interrupt_after or self._exit_delta_writes is not None:
            self._end_step()
            return
        writes = [write for task in self.tasks.values() for write in task.writes]
        channels, keys = self.channels, self.output_keys
        self.updated_channels = self._fresh = updated = lean_state.apply_writes(
            self.checkpoint,
            channels,
            self.tasks.values(),
            self.checkpointer_get_next_version,
            self.trigger_to_nodes,
        )
        if not updated.isdisjoint((keys,) if isinstance(keys, str) else keys):
            self._emit("values", lean_state.output_values, keys, writes, channels)
        self.checkpoint_pending_writes.clear()
        self.is_replaying = False
        self._put_checkpoint({"source": "loop"})
        self.config[CONFIGURABLE].pop(key.CONFIG_KEY_RESUMING, None)

    def put_writes(self: Any, task_id: str, writes: Any, *, cached: bool = False) -> None:
        """Keep and save what a task has written; what is not usual is LangGraph's to do."""
        task = self.tasks.get(task_id) if type(writes) is Few and writes else None
        save = self.checkpointer_put_writes
        plain = save is None or self.checkpointer_put_writes_accepts_task_path
        if task is None or cached or not plain or not _MARKS.isdisjoint(map(_NAME, writes)):
            self._put_writes(task_id, writes, cached=cached)
            return
        self._written_task_ids.add(task_id)
        others, new = self.checkpoint_pending_writes, [(task_id, *write) for write in writes]
        kept = [one for one in others if one[0] != task_id] if others else others
        self.checkpoint_pending_writes = [*kept, *new]
        if save is not None:
            at, ns = self.checkpoint_config, self.config[CONFIGURABLE].get(CHECKPOINT_NS, "")
            place = {CHECKPOINT_NS: ns, CHECKPOINT_ID: self.checkpoint["id"]}
            config = {**at, CONFIGURABLE: {**at[CONFIGURABLE], **place}}
            self.submit(save, config, writes, task_id, _path_of(task.path))
        self.output_writes(task_id, writes)

    def output_writes(self: Any, task_id: str, writes: Any, *, cached: bool = False) -> None:
        """Stream what a task has written; a `LastStream` gets interrupts alone."""
        if type(self.stream) is not LastStream or writes[0][0] == key.INTERRUPT:
            self._output_writes(task_id, writes, cached=cached)

    def _emit(self: Any, mode: Any, values: Any, *args: Any, **kwargs: Any) -> None:
        if type(self.stream) is not LastStream or mode == "updates":
            super()._emit(mode, values, *args, **kwargs)  # type: ignore[misc]  # LangGraph's loop
        elif mode == "values":
            keys, writes, *rest = args or ((), True)
            if self._lasts is None:
                self._lasts = self._does_last()
            if not (args and self._lasts):
                if made := list(values(*args)):
                    self._owed = made.copy
            elif writes is True or not {*map(_NAME, writes)}.isdisjoint(keys):
                self._owed = partial(values, keys, True, *rest)

    def _does_last(self: Any) -> bool:
        """Return whether the state that is read at the end is that of the last changed step."""
        channels, keys = self.channels, self.output_keys
        changing = (*channels.fleeting, *channels.asked)
        return not isinstance(keys, str) and not any(name in keys for name in changing)

    def _suppress_interrupt(self: Any, *error: Any) -> Any:
        suppressed = self._end_run(*error)
        if self._owed is None:
            return suppressed
        if suppressed or error[0] is None:
            for state in self._owed():
                self.stream((self.checkpoint_ns, "values", state))
        elif isinstance(error[1], STOPS):  # a stream that raises drops what it has not yielded
            self.config[CONFIGURABLE][RUN].untold = [("values", state) for state in self._owed()]
        return suppressed

    def _prepare_tasks_and_emit_checkpoint(self) -> None:
        """Make the next step's tasks; by LangGraph's way if anything is not known here."""
        made = self._next_tasks()
        if made is None:
            super()._prepare_tasks_and_emit_checkpoint()  # type: ignore[misc]  # LangGraph's loop
        else:
            self.tasks = {task.id: task for task in made}

    def _next_tasks(self: Any) -> list[PregelExecutableTask] | None:
        """Make the tasks that are sent and the one that an edge triggers; None if unsure."""
        updated, edges, step = self.updated_channels or (), self.trigger_to_nodes, str(self.step)
        names = {name for channel in edges.keys() & updated for name in edges[channel]}
        if not updated or len(names) > 1 or not self._is_clear():
            return None
        begun = binascii.unhexlify(self.checkpoint["id"].replace("-", ""))
        made: list[PregelExecutableTask] = []
        for at, sent in enumerate(self.channels[key.TASKS].values):
            if not isinstance(sent, Send) or sent.node not in self.nodes or sent.timeout:
                return None
            task_id = _id_of(begun, sent.node, step, sent.node, key.PUSH, str(at))
            path = key.PUSH, at, False
            made.append(self._task(sent.node, task_id, path, _algo.PUSH_TRIGGER, sent.arg))
        for name in names:
            triggers = tuple(sorted(self.nodes[name].triggers))
            if updated is self._fresh or self._is_due(name):
                task_id = _id_of(begun, name, step, name, key.PULL, *triggers)
                made.append(self._task(name, task_id, (key.PULL, name), triggers))
        return made

    def _is_due(self: Any, name: str) -> bool:
        checkpoint = self.checkpoint
        null: Any = _algo.checkpoint_null_version(checkpoint)
        seen, versions = checkpoint["versions_seen"].get(name), checkpoint["channel_versions"]
        return _algo._triggers(self.channels, versions, seen, null, self.nodes[name])

    def _is_clear(self: Any) -> bool:
        """Return whether no writes are left over, and nothing is around its steps."""
        checkpoint = self.checkpoint
        if self.checkpoint_pending_writes or checkpoint["v"] <= 1:
            return False
        if checkpoint["channel_values"].get(key.PREVIOUS):
            return False
        if self._alone is None or self._alone[0] is not self.config:
            self._alone = self.config, self._is_alone()
        return self._alone[1]  # type: ignore[no-any-return]  # made above

    def _is_alone(self: Any) -> bool:
        """Return whether it has no callbacks, and no graph around it, when a run begins."""
        manager, conf = self.manager, self.config[CONFIGURABLE]
        if manager is None or manager.handlers or manager.inheritable_handlers:
            return False
        if self.config.get("run_id") or any(conf.get(name) for name in _AROUND):
            return False
        runtime = conf.get(key.CONFIG_KEY_RUNTIME)
        return type(runtime) is Runtime and runtime.store is self.store and runtime.previous is None

    def _task(
        self: Any, name: str, task_id: str, path: Any, triggers: tuple[str, ...], *sent: Any
    ) -> PregelExecutableTask:
        node, step, ns = self.nodes[name], self.step, f"{name}:{task_id}"
        pad = _algo._scratchpad(
            None, self.checkpoint_pending_writes, task_id, ns, None, step, self.stop
        )
        (given,) = sent or (self._state(node, pad),)
        writes: Any = Few()
        (rest, said, deep), conf = self._base(), self.config[CONFIGURABLE]
        own = {
            "langgraph_step": step,
            "langgraph_node": name,
            "langgraph_triggers": triggers,
            "langgraph_path": path,
            "langgraph_checkpoint_ns": ns,
            **(node.metadata or {}),
        }
        config: Any = {
            **_tagged(rest, node),
            "metadata": _config._merge_metadata(said, own) if deep else {**said, **own},
            "callbacks": lean_state.child_of(self.manager, f"graph:step:{step}"),
            CONFIGURABLE: {
                **conf,
                key.CONFIG_KEY_TASK_ID: task_id,
                key.CONFIG_KEY_SEND: writes.extend,
                key.CONFIG_KEY_READ: partial(
                    lean_state.local_read,
                    pad,
                    self.channels,
                    self.managed,
                    _algo.PregelTaskWrites(path, name, writes, triggers),
                ),
                **self._behind(node, pad, sent),
                key.CONFIG_KEY_CHECKPOINTER: self.checkpointer
                or conf.get(key.CONFIG_KEY_CHECKPOINTER),
                key.CONFIG_KEY_CHECKPOINT_MAP: {
                    **conf.get(key.CONFIG_KEY_CHECKPOINT_MAP, {}),
                    "": self.checkpoint["id"],
                },
                key.CONFIG_KEY_CHECKPOINT_ID: None,
                key.CONFIG_KEY_CHECKPOINT_NS: ns,
                key.CONFIG_KEY_SCRATCHPAD: pad,
            },
            "run_name": name,
        }
        return LeanTask(
            name,
            given,
            node.node,
            writes,
            config,
            triggers,
            node.retry_policy or self.retry_policy,
            None,
            task_id,
            path,
            writers=node.flat_writers,
            subgraphs=node.subgraphs,
        )

    def _state(self: Any, node: Any, pad: Any) -> Any:
        """Return the state, which is the input of a node that an edge triggers."""
        names = node.channels
        if isinstance(names, list) and self.channels.keys() >= set(names):
            state = self.channels.read(names)
            return state if node.mapper is None else node.mapper(state)
        return _algo._proc_input(
            node, self.managed, self.channels, for_execution=True, scratchpad=pad, input_cache=None
        )

    def _behind(self: Any, node: Any, pad: Any, sent: tuple[Any, ...]) -> dict[str, Any]:
        """Return, for a task that was sent, what reads the state; None for others."""
        if _READ_STATE is None:
            return {}
        return {_READ_STATE: partial(self._state, node, pad) if sent else None}

    def _base(self: Any) -> tuple[dict[str, Any], dict[str, Any], bool]:
        """Return the run's config as LangGraph merges it, and its metadata; whether it is deep."""
        config = self.config
        if self._merged is None or self._merged[0] is not config:
            merged: Any = _config.merge_configs(config)
            rest = {**merged, "metadata": None, "callbacks": None}
            rest.pop("run_name", None)
            said = merged.get("metadata") or {}
            deep = any(isinstance(value, Mapping) for value in said.values())
            self._merged = config, (rest, said, deep)
        return self._merged[1]  # type: ignore[no-any-return]  # made above


def _id_of(checkpoint: bytes, *parts: str) -> str:
    """Return a task's id, as LangGraph makes it."""
    found = _digest(checkpoint + "".join(parts).encode())
    return f"{found[:8]}-{found[8:12]}-{found[12:16]}-{found[16:20]}-{found[20:32]}"


_digest: Final = vars(_algo)["xxh3_128_hexdigest"]


def _tagged(config: dict[str, Any], node: Any) -> dict[str, Any]:
    """Add a node's tags to a config; the input's node alone has one, which hides it."""
    if not node.tags:
        return config
    return {**config, "tags": [*(config.get("tags") or ()), *node.tags]}


# --- What a node returns.


def writes_of(node: Any) -> dict[str, Any]:
    """Return what writes a node's dict, as an option of the node; nothing for other nodes."""
    if type(node) is not UntracedNode:
        return {}
    if node.writing is None:
        node.writing = {"write": _writing(node)}
    return node.writing  # type: ignore[no-any-return]  # made above


def _writing(node: UntracedNode) -> Callable[[Any, Any], None]:
    """Return what does for a dict what the writers do that `build_graph` gives a node.

    LangGraph's first is what the dict updates, then what a `Command` asks for, then the edges; what
    decides on an edge comes after it.
    """
    own, *others = node.writers
    updates, _, *edges = own.writes
    known = [(edge.channel, edge.value) for edge in edges]
    branches = [partial(one.func, **one.kwargs) for one in others]

    def write(value: Any, config: Any) -> None:
        if type(value) is not dict:
            node.write(value, config)
            return
        config[CONFIGURABLE][key.CONFIG_KEY_SEND]([*updates.mapper(value), *known])
        for decide in branches:
            decide(value, config=config)

    return write


# --- A task's run.


class _Raises(Runnable[Any, Any]):
    """The rest of a node that has raised, for LangGraph to treat: its writes, and its error."""

    def __init__(self, task: PregelExecutableTask, error: BaseException) -> None:
        self.writes, self.kept, self.error = task.writes, list(task.writes), error

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        """Raise again."""
        self.writes.extend(self.kept)
        raise self.error

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        """Raise again."""
        self.invoke(input, config)


def _begin(task: PregelExecutableTask, given: dict[str, Any] | None) -> Any:
    """Complete a task's config, and return it."""
    config: Any = task.config
    conf = config[CONFIGURABLE]
    run: Runtime[Any] = conf[key.CONFIG_KEY_RUNTIME]
    info = ExecutionInfo(
        conf[key.CONFIG_KEY_CHECKPOINT_MAP][""],
        conf[key.CONFIG_KEY_CHECKPOINT_NS],
        task.id,
        conf.get(key.CONFIG_KEY_THREAD_ID),
        None,
        1,
        time.time(),
    )
    conf[key.CONFIG_KEY_RUNTIME] = Runtime(
        context=run.context,
        store=run.store,
        stream_writer=run.stream_writer,
        heartbeat=run.heartbeat,
        previous=run.previous,
        execution_info=info,
        server_info=run.server_info,
        control=run.control,
    )
    conf.update(given or {})
    task.writes.clear()
    return config


def run_with_retry(
    task: PregelExecutableTask, retry_policy: Any, configurable: dict[str, Any] | None = None
) -> Any:
    """Run a task once; LangGraph treats its errors."""
    if type(task) is not LeanTask or retry_policy:
        return _retry.run_with_retry(task, retry_policy, configurable)
    config = _begin(task, configurable)
    try:
        return task.proc.invoke(task.input, config, **writes_of(task.proc))
    except BaseException as error:
        again = replace(task, proc=_Raises(task, error))
        return _retry.run_with_retry(again, retry_policy, configurable)


async def arun_with_retry(
    task: PregelExecutableTask,
    retry_policy: Any,
    stream: bool = False,
    configurable: dict[str, Any] | None = None,
) -> Any:
    """Run a task once; LangGraph treats its errors."""
    if type(task) is not LeanTask or retry_policy or stream:
        return await _retry.arun_with_retry(task, retry_policy, stream, configurable)
    config = _begin(task, configurable)
    try:
        return await task.proc.ainvoke(task.input, config, **writes_of(task.proc))
    except BaseException as error:
        again = replace(task, proc=_Raises(task, error))
        return await _retry.arun_with_retry(again, retry_policy, stream, configurable)


_NO_NODES: Final = frozenset[str]()

_NO_IDS: Final = frozenset[int]()
"""Of the errors that the graph's own handlers treat, if it has none."""


class LeanRunner(_runner.PregelRunner):
    """LangGraph's runner, with the two functions above."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        nodes: Any = self.error_handler_nodes or _NO_NODES
        self.error_handler_nodes = nodes
        if not self.node_error_handler_map:
            ids: Any = _NO_IDS
            self._handled_exception_ids = ids

    tick = bound(
        _runner.PregelRunner.tick,
        run_with_retry=run_with_retry,
        FuturesDict=Futures,
        weakref=WEAK,
    )
    atick = bound(
        _runner.PregelRunner.atick,
        arun_with_retry=arun_with_retry,
        FuturesDict=Futures,
        weakref=WEAK,
    )


# --- LangGraph's loops with these parts.


class PlainLoop(_loop.PregelLoop):
    """What LangGraph's two loops inherit, without looking for what no channel is."""

    __init__ = bound(_loop.PregelLoop.__init__, deque=Few, **_ABSENT)


class SyncLoop(LeanLoop, _loop.SyncPregelLoop, PlainLoop):
    """LangGraph's loop for `stream`."""

    __slots__ = own_names(_loop.SyncPregelLoop)

    __init__ = bound(
        _loop.SyncPregelLoop.__init__,
        put_writes_accepts_task_path=takes_path,
        ExitStack=ExitStack,
    )
    __enter__ = bound(
        _loop.SyncPregelLoop.__enter__,
        deque=Few,
        BackgroundExecutor=SyncExecutor,
        channels_from_checkpoint=lean_state.channels_from_checkpoint,
    )


class AsyncLoop(LeanLoop, _loop.AsyncPregelLoop, PlainLoop):
    """LangGraph's loop for `astream`."""

    __slots__ = own_names(_loop.AsyncPregelLoop)

    __init__ = bound(
        _loop.AsyncPregelLoop.__init__,
        put_writes_accepts_task_path=takes_path,
        AsyncExitStack=AsyncExitStack,
    )
    __aenter__ = bound(
        _loop.AsyncPregelLoop.__aenter__,
        deque=Few,
        AsyncBackgroundExecutor=AsyncExecutor,
        achannels_from_checkpoint=lean_state.achannels_from_checkpoint,
    )

    async def __aexit__(self, *error: Any) -> bool | None:
        """Leave: without a task to wait if no save goes on, nor one to tell handlers if none is."""
        task = asyncio.current_task()
        saves: Any = self.submit
        if error[0] or saves.__self__.tasks or task is None or task.cancelling():
            return await super().__aexit__(*error)
        manager: Any = self.manager
        if not manager.handlers:
            manager.on_chain_end = _ended
        return await self.stack.__aexit__(*error)


async def _ended(outputs: Any) -> None:
    """End a run as LangChain's manager does without handlers."""


# --- LangGraph's `stream` and `astream` with these parts.


def _output(
    stream_mode: Any, print_mode: Any, subgraphs: Any, getter: Any, *rest: Any
) -> Iterator[Any] | tuple[()]:
    """Yield the chunks that wait; do not ask an empty queue."""
    if not getter.__self__._queue:
        return ()
    return main._output(stream_mode, print_mode, subgraphs, getter, *rest)


_PARTS: Final[dict[str, Any]] = {
    "SyncPregelLoop": SyncLoop,
    "AsyncPregelLoop": AsyncLoop,
    "PregelRunner": LeanRunner,
    "_output": _output,
    "AsyncQueue": Chunks,
    "weakref": WEAK,
}


def _partial(function: Any, *args: Any) -> Any:
    """Bind arguments; a chunk that is put in the loop's own thread needs no wake-up of the loop."""
    loop = getattr(function, "__self__", None)
    if not isinstance(loop, asyncio.AbstractEventLoop):
        return partial(function, *args)
    (put,) = args

    def put_chunk(chunk: Any) -> None:
        if asyncio._get_running_loop() is loop:
            put(chunk)
        else:
            function(put, chunk)

    return put_chunk


astream_messages: Final[Callable[..., Any]] = bound(main.Pregel.astream, partial=_partial)
"""LangGraph's own loop, for the stream mode `messages` alone: what is put keeps its order."""

stream: Final[Callable[..., Iterator[Any]]] = bound(main.Pregel.stream, **_PARTS)

astream: Final[Callable[..., Any]] = bound(main.Pregel.astream, **_PARTS)

last: Final[Callable[..., Iterator[Any]]] = bound(
    main.Pregel.stream, **_PARTS, StreamProtocol=LastStream
)
"""`stream` for a reader of the last state and of interrupts alone."""

alast: Final[Callable[..., Any]] = bound(main.Pregel.astream, **_PARTS, StreamProtocol=LastStream)
"""The same of `astream`."""
