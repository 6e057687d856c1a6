"""A run that ends early gives the same result on the shorter loop and on LangGraph's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from langgraph.types import interrupt

from tests.engine.lean_cases import Numbered, error_seen, plain
from tests.engine.support import add, async_door, sync_door
from wick_graph import Agent, BaseHook, Result, tool
from wick_graph.engine import lifecycle, pinned
from wick_graph.hooks import ApprovalHook, Budget, BudgetHook, InputGuardrail, Tripwire
from wick_graph.testing import ScriptedModel, call, calls

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def stream_door(agent: Any, given: Any, **options: Any) -> Result:
    return ended([*agent.stream(given, **options)])


def astream_door(agent: Any, given: Any, **options: Any) -> Result:
    async def read() -> list[Any]:
        return [event async for event in agent.astream(given, **options)]

    return ended(asyncio.run(read()))


def ended(events: list[Any]) -> Result:
    last = events[-1]
    if last.result is None:
        raise last.exception
    found: Result = last.result
    return found


DOORS = {
    "invoke": sync_door,
    "ainvoke": async_door,
    "stream": stream_door,
    "astream": astream_door,
}


class Bell:
    """Stops the run of an agent at a place that the test has chosen."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.agent: Any = None
        self.alarms: list[Callable[[], Any]] = []
        self.others: list[threading.Thread] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.armed = False

    def alarm(self, seconds: float, ring: Callable[..., Any], *args: Any) -> Callable[[], None]:
        """Keep what a deadline does, in place of `lifecycle.alarm`."""
        self.alarms.append(partial(ring, *args))
        return lambda: None

    def ring(self) -> None:
        if self.how == "deadline":
            self.alarms[-1]()
        elif self.how == "task":
            self.tasks.append(asyncio.ensure_future(self.agent.acancel("t")))
        else:
            other = threading.Thread(target=self.agent.cancel, args=("t",))
            self.others.append(other)
            other.start()

    async def stop(self) -> None:
        """Stop the run, and wait for that."""
        self.ring()
        await asyncio.sleep(5)


class Stopping(BaseHook):
    """Stop the run at one of its phases."""

    name = "stopping"

    def __init__(self, bell: Bell, phase: str) -> None:
        self.bell, self.phase = bell, phase

    async def _at(self, phase: str) -> None:
        if self.bell.armed and phase == self.phase:
            self.bell.ring()
            await asyncio.sleep(0)  # the async door cancels it here, the other waits for its end

    async def before_agent(self, state: Any, ctx: Any) -> Any:
        await self._at("before_agent")

    async def modify_request(self, request: Any, ctx: Any) -> Any:
        await self._at("modify_request")
        return request

    async def wrap_model_call(self, request: Any, next: Any) -> Any:
        await self._at("wrap_model_call")
        reply = await next(request)
        await self._at("after the reply")
        return reply


def halting(bell: Bell) -> list[Any]:
    """Make the tools, of which two stop their run."""
    gone = threading.Event()

    @tool
    async def halt(n: int) -> str:
        """Stop the run."""
        await bell.stop()
        return "late"

    @tool
    def block(n: int) -> str:
        """Stop the run from a thread that it abandons."""
        bell.ring()
        gone.wait(0.5)
        return "late"

    @tool
    def ask(n: int) -> str:
        """Ask."""
        return f"answered {interrupt({'n': n})}"

    @tool
    def boom(n: int) -> str:
        """Fail."""
        raise ValueError(f"boom {n}")

    return [halt, block, ask, boom, add]


def seen(lean: bool, run: Callable[[], Any]) -> list[str]:
    """Run on one of the loops; return what was seen, with names numbered."""
    pinned.switch["lean"] = lean
    try:
        return Numbered().all(run())
    finally:
        pinned.switch["lean"] = True


# --- What stops it comes from outside.


STOPPED: Mapping[str, tuple[list[Any], str]] = {
    "in a tool": ([call("halt", n=1), "end"], ""),
    "in a tool of a thread": ([call("block", n=1), "end"], ""),
    "beside a tool that has ended": ([calls(("add", {"a": 1, "b": 2}), ("halt", {"n": 1}))], ""),
    "beside another one": ([calls(("halt", {"n": 1}), ("halt", {"n": 2}))], ""),
    "in the second tool": ([call("add", a=1, b=2), call("halt", n=1), "end"], ""),
    "before the agent": (["end"], "before_agent"),
    "at the request": (["end"], "modify_request"),
    "in the model": (["end"], "wrap_model_call"),
    "after the reply": ([call("add", a=1, b=2), "end"], "after the reply"),
}


def stop(bell: Bell, door: str, script: list[Any], phase: str) -> list[Any]:
    hooks: list[Any] = [Stopping(bell, phase)] if phase else []
    model = ScriptedModel(["one", *script])
    bell.agent = agent = Agent(model=model, tools=halting(bell), store="sqlite://", hooks=hooks)
    assert sync_door(agent, "first", thread_id="t").text == "one"
    bell.armed = True
    options: Any = {"deadline": 60} if bell.how == "deadline" else {}
    found = DOORS[door](agent, "hi", thread_id="t", **options)
    for other in bell.others:
        other.join(30)
    held = agent.graph.get_state(CONFIG).values
    told = len(found.messages)  # the thread may also hold what a step has left that did not end
    assert [m.id for m in found.messages] == [m.id for m in held["messages"][:told]]
    assert found.thread_usage.to_dict() == held["usage"]
    assert found.tool_calls or phase
    return [plain(found), plain(found.tool_calls)]


def cases() -> Iterator[tuple[str, str, str]]:
    """Yield each way with each door and each stop that it can have."""
    for way, (_, phase) in STOPPED.items():
        for door in DOORS:
            yield way, door, "deadline"
            if not phase:  # a hook is not cut off in the sync door
                yield way, door, "thread"
            if not phase and door.startswith("a") and way != "in a tool of a thread":
                yield way, door, "task"


@pytest.mark.parametrize(("way", "door", "how"), [*cases()])
def test_a_run_that_is_stopped_gives_the_whole_conversation(
    way: str, door: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[Any]:
        bell = Bell(how)
        monkeypatch.setattr(lifecycle, "alarm", bell.alarm)
        return stop(bell, door, *STOPPED[way])

    ours = seen(True, run)
    assert ours == seen(False, run)
    assert "limit" in ours[0] if how == "deadline" else "cancelled" in ours[0]
    assert "'first'" in ours[0]
    assert "'hi'" in ours[0]


@pytest.mark.parametrize("door", DOORS)
def test_a_run_without_a_store_gives_it_too(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Any]:
        bell = Bell("deadline")
        monkeypatch.setattr(lifecycle, "alarm", bell.alarm)
        agent = Agent(model=ScriptedModel([call("halt", n=1)]), tools=halting(bell), store=False)
        found = DOORS[door](agent, "hi", deadline=60)
        assert [m.type for m in found.messages] == ["human", "ai"]
        assert found.thread_usage.total_tokens == found.usage.total_tokens > 0
        return [plain(found), plain(found.tool_calls)]

    assert seen(True, run) == seen(False, run)


# --- It stops by itself.


class Ending(BaseHook):
    """End the run after its first reply."""

    name = "ending"

    def after_model(self, reply: Any, ctx: Any) -> Any:
        return {"stop_reason": "limit"}


class Failing(BaseHook):
    """Fail at the second request."""

    name = "failing"

    def modify_request(self, request: Any, ctx: Any) -> Any:
        if len(request.messages) > 3:
            raise ValueError("not again")
        return request


def refuse(text: str) -> None:
    if text == "hi":
        raise Tripwire("no")


ADD = call("add", a=1, b=2)

BY_ITSELF: Mapping[str, tuple[list[Any], dict[str, Any]]] = {
    "done": ([ADD, "end"], {}),
    "stop_reason": ([ADD, "end"], {"hooks": lambda: [Ending()]}),
    "budget": ([ADD, "end"], {"hooks": lambda: [BudgetHook(Budget(tokens=4))]}),
    "max_iterations": ([ADD, ADD, ADD, "end"], {"max_iterations": 2}),
    "guardrail": (["end"], {"hooks": lambda: [InputGuardrail(refuse)]}),
    "a tool that fails": ([call("boom", n=1), "end"], {}),
    "a hook that fails": ([ADD, "end"], {"hooks": lambda: [Failing()]}),
    "a question": ([call("ask", n=1), "end"], {}),
    "a question beside a tool": ([calls(("add", {"a": 1, "b": 2}), ("ask", {"n": 1}))], {}),
    "an approval": ([ADD, "end"], {"hooks": lambda: [ApprovalHook({"add": True})]}),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("way", BY_ITSELF)
def test_a_run_that_ends_early_by_itself_gives_the_same(way: str, door: str) -> None:
    script, options = BY_ITSELF[way]

    def run() -> list[Any]:
        made: Any = {**options, "hooks": options.get("hooks", list)()}
        agent = Agent(
            model=ScriptedModel(["one", *script]),
            tools=halting(Bell("")),
            store="sqlite://",
            **made,
        )
        DOORS[door](agent, "first", thread_id="t")
        try:
            found = DOORS[door](agent, "hi", thread_id="t")
            return [plain(found), plain(found.tool_calls)]
        except Exception as error:
            return [error_seen(error)]

    assert seen(True, run) == seen(False, run)
