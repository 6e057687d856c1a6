"""What the engine's tests share: both doors, and hooks that write down what they see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from langchain_core.messages import BaseMessage

from wick_graph import Agent, BaseHook, Result
from wick_graph.testing import ScriptedModel, Step, calls

Door = Callable[..., Result]


def sync_door(agent: Agent, given: Any, **options: Any) -> Result:
    return agent.invoke(given, **options)


def async_door(agent: Agent, given: Any, **options: Any) -> Result:
    return asyncio.run(agent.ainvoke(given, **options))


def add(a: float, b: float) -> str:
    """Add two numbers."""
    return f"{a + b:g}"


def roles(messages: list[BaseMessage]) -> list[str]:
    return [m.type for m in messages]


def wild(name: str, **args: Any) -> Step:
    """Call a tool with arguments that the script does not check."""
    return calls((name, args), unchecked=True)


def agent_of(*steps: Any, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(list(steps))
    options.setdefault("tools", [add])
    return Agent(model=model, **options), model


class Recorder(BaseHook):
    """Write each phase's beginning and end to a list that all recorders share."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def before_agent(self, state: Any, ctx: Any) -> Any:
        self.log.append(f"{self.name}.before_agent")

    def modify_request(self, request: Any, ctx: Any) -> Any:
        self.log.append(f"{self.name}.modify_request")
        return request.append_system(f"[{self.name}]")

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        self.log.append(f"{self.name}.model(")
        reply = next(request)
        self.log.append(f"{self.name}.model)")
        return reply

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        self.log.append(f"{self.name}.tool({call.id}")
        result = next(call)
        self.log.append(f"{self.name}.tool){call.id}")
        return result


class AsyncRecorder(Recorder):
    """The same, written as `async def`."""

    async def before_agent(self, state: Any, ctx: Any) -> Any:
        await asyncio.sleep(0)
        super().before_agent(state, ctx)

    async def modify_request(self, request: Any, ctx: Any) -> Any:
        await asyncio.sleep(0)
        return super().modify_request(request, ctx)

    async def wrap_model_call(self, request: Any, next: Any) -> Any:
        await asyncio.sleep(0)
        self.log.append(f"{self.name}.model(")
        reply = await next(request)
        self.log.append(f"{self.name}.model)")
        return reply

    async def wrap_tool_call(self, call: Any, next: Any) -> Any:
        self.log.append(f"{self.name}.tool({call.id}")
        result = await next(call)
        self.log.append(f"{self.name}.tool){call.id}")
        return result
