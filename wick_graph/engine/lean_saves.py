"""The executors of LangGraph's loop, which call our saver directly; `lean` tells when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from langgraph.pregel import _executor, _loop

from wick_graph import langgraph_config
from wick_graph.runtime.context import Run
from wick_graph.store import SqlSaver
from wick_graph.store.saver import Direct

# --- The saver, called directly.
#
# A save that is deferred takes no time. LangGraph gives each to a task or a thread all the same.

Now = Callable[[], None]

Defer = Callable[[], Now | None]


@dataclass(slots=True)
class _Saves:
    """What LangGraph submits of one kind in one run, if it is our saver's."""

    saver: Any
    """Any: its methods may be patched while a run goes on."""
    direct: Direct
    own: tuple[Any, Any] | None = None
    """The saver's methods for checkpoints, if they are ours; None for writes."""
    behind: bool = False
    added: dict[str, Any] | None = None
    """What the run's config adds to the metadata of its checkpoints, once that is known."""

    @classmethod
    def of(cls, fn: Any) -> _Saves | None:
        """Return what a function saves; None if it is another's."""
        owner = getattr(fn, "__self__", None)
        if isinstance(owner, SqlSaver):
            is_own = _is_own(fn, "put_writes") or _is_own(fn, "aput_writes")
            return cls(owner, owner.direct) if is_own else None
        if getattr(fn, "__name__", "") != "_checkpointer_put_after_previous":
            return None
        assert owner is not None
        saver: Any = owner.checkpointer
        if not (isinstance(saver, SqlSaver) and _is_own(saver.put, "put")):
            return None
        if not _is_own(saver.aput, "aput"):
            return None
        own = saver.put, saver.aput
        return cls(saver, saver.direct, own, isinstance(owner, _loop.SyncPregelLoop))

    def defer(self, args: tuple[Any, ...]) -> Defer | None:
        """Return what defers a save that LangGraph submits; None if it must be submitted."""
        if self.own is None:
            return partial(self.direct.writes, *args)
        before, others, config, checkpoint, metadata, *versions = args
        if (self.saver.put, self.saver.aput) != self.own:
            return None
        if others or not (before is None or before is DONE or _has_worked(before)):
            return None
        if self.added is None:
            self.added = self.direct.added(config, metadata)
        whole = {**metadata, **self.added}
        return partial(self.direct.checkpoint, self.behind, config, checkpoint, whole, *versions)


class _Known(dict[Any, _Saves | None]):
    """What each function saves that a run submits."""

    def __missing__(self, fn: Any) -> _Saves | None:
        self[fn] = made = _Saves.of(fn)
        return made


def _is_own(method: Any, name: str) -> bool:
    """Return whether a saver's method is our store's, neither overridden nor replaced."""
    code = getattr(method, "__code__", None)  # a bound method gives its function's
    return code is not None and (code.co_filename, code.co_name) == (_SAVER, name)


def _has_worked(future: Any) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


_SAVER: Final = SqlSaver.get_next_version.__code__.co_filename


class _Done:
    """What has ended without a result: all that a run asks of the future of a deferred save."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield

    def done(self) -> bool:
        """Return True."""
        return True

    def result(self) -> None:
        """Return nothing, at once."""


DONE: Final = _Done()

IN_A_ROW: Final = 8
"""The most checkpoints that are deferred without a turn of the loop: some 5 ms."""

BESIDE_OTHERS: Final = 2
"""As above, while others wait for their turn: from a tool's result to the model's call.

With a turn for each, what hundreds of runs hold in the middle of a step outlives many collections
of garbage. A run with a reader gives it its turn at once.
"""

_UNKNOWN: Final = (None,)
"""Of a loop that does not tell what waits: others may."""


class AsyncExecutor(_executor.AsyncBackgroundExecutor):
    """LangGraph's executor, which calls the saver in the loop, without a task."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._known = _Known()
        self._later = 0
        """Saves that have not begun: of checkpoints, and of writes behind one."""
        own = isinstance(self.loop, asyncio.BaseEventLoop)
        self._ready: Any = vars(self.loop).get("_ready", _UNKNOWN) if own else _UNKNOWN
        """What waits for its turn in asyncio's loop."""
        run = langgraph_config.configurable(config).get(langgraph_config.RUN)
        self._beside = BESIDE_OTHERS if isinstance(run, Run) and not run.observed else 0
        self._in_a_row = 0
        """Checkpoints that were deferred since the loop had a turn."""

    def submit(self, fn: Any, *args: Any, **options: Any) -> Any:
        """Submit a call.

        A checkpoint, which the run awaits, begins when a task would if the run is cancelled, and
        now and then, sooner if others wait for their turn: so the loop looks who comes.
        """
        saves = self._known[fn]
        defer = None if saves is None else saves.defer(args)
        if saves is None or defer is None or asyncio._get_running_loop() is not self.loop:
            return super().submit(fn, *args, **options)
        at_once = saves.own is None and not self._later
        if at_once or (not self._later and self._goes_on()):
            again = _deferred(defer)
            if again is None:
                self._in_a_row += not at_once
                return DONE
            defer = again
        future = self.loop.create_future()
        if at_once:
            _save(future, saves.direct, defer)
        self._in_a_row = 0
        self.tasks[future] = (False, True)
        future.add_done_callback(self.done)
        if not at_once:
            self._later += 1
            self.loop.call_soon(self._begin, future, saves.direct, defer)
        return future

    async def __aexit__(self, *error: Any) -> None:
        try:
            await super().__aexit__(*error)
        finally:
            self._known.clear()  # its methods hold the loop, which holds this

    def _goes_on(self) -> bool:
        """Return whether the run may go on without a turn of the loop."""
        if self._in_a_row >= (self._beside if self._ready else IN_A_ROW):
            return False
        task = asyncio.current_task()
        return task is None or not task.cancelling()

    def _begin(self, future: asyncio.Future[None], direct: Direct, defer: Defer) -> None:
        self._later -= 1
        if not future.done():  # cancelled before it began, as LangGraph's task would be
            _save(future, direct, defer)


def _deferred(defer: Defer) -> Defer | None:
    """Defer a save; return how to go on if that is not all of it.

    A checkpoint that is saved at once begins in its turn: LangGraph gives the input's messages
    their ids before.
    """
    try:
        now = defer()
    except (Exception, asyncio.CancelledError) as error:
        return partial(_raise, error)
    return None if now is None else lambda: now


def _raise(error: BaseException) -> Now:
    raise error


def _save(future: asyncio.Future[None], direct: Direct, defer: Defer) -> None:
    """Defer a save, or begin it."""
    try:
        now = defer()
        if now is None:
            future.set_result(None)
        else:
            direct.save(now, future)
    except asyncio.CancelledError:
        future.cancel()
    except Exception as error:
        future.set_exception(error)
    except BaseException as error:
        future.set_exception(error)
        raise


class SyncExecutor(_executor.BackgroundExecutor):
    """LangGraph's executor, which defers in the caller's thread what may be deferred."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._known = _Known()

    def submit(self, fn: Any, *args: Any, **options: Any) -> Any:
        """Submit a call; a save that is deferred is done at once."""
        saves = self._known[fn]
        defer = None if saves is None else saves.defer(args)
        if defer is None:
            return super().submit(fn, *args, **options)
        try:
            now = defer()
        except Exception as error:
            future: Future[None] = Future()
            self.tasks[future] = (False, True)
            future.set_exception(error)
            return future
        return DONE if now is None else super().submit(now)

    def __exit__(self, *error: Any) -> bool | None:
        try:
            return super().__exit__(*error)
        finally:
            self._known.clear()


def takes_path(save: Any) -> bool:
    """Return whether a saver's method takes the path of a task; our own is not inspected."""
    own = _is_own(save, "put_writes") or _is_own(save, "aput_writes")
    return own or bool(vars(_loop)["put_writes_accepts_task_path"](save))
