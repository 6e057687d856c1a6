"""The shorter ways to a model and around a node: the same result, and nobody is passed over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.rate_limiters import InMemoryRateLimiter
from langgraph.config import get_config
from pydantic import Field

from tests.engine.support import Door
from wick_graph import Agent, BaseHook, events
from wick_graph.testing import ScriptedModel, call


class Plain(BaseChatModel):
    """A chat model that overrides nothing but what it must."""

    managers: list[Any] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "plain"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools, **kwargs)

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.managers.append(run_manager)
        usage: Any = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
        text = f"{len(messages)} {sorted(kwargs)}"
        message = AIMessage(
            text, usage_metadata=usage, response_metadata={"model_name": "plain", "end": "stop"}
        )
        return ChatResult(generations=[ChatGeneration(message=message, generation_info={"g": 1})])


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def facts(message: BaseMessage) -> dict[str, Any]:
    """What a message says, without the ids that differ from run to run."""
    data = message.model_dump(exclude={"id"})
    data["response_metadata"] = {k: v for k, v in data["response_metadata"].items() if k != "wick"}
    return data


class Ear(BaseCallbackHandler):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self.heard.append("start")

    def on_llm_end(self, *args: Any, **kwargs: Any) -> None:
        self.heard.append("end")


def test_the_reply_is_the_same_whether_somebody_listens_or_not(door: Door) -> None:
    quiet, heard, ear = Plain(managers=[]), Plain(managers=[]), Ear()
    alone = door(Agent(model=quiet, tools=[add], system_prompt="Hi."), "?")
    told = door(
        Agent(model=heard, tools=[add], system_prompt="Hi."), "?", config={"callbacks": [ear]}
    )
    assert quiet.managers == [None]  # the short way
    assert heard.managers != [None]  # LangChain's own
    assert ear.heard == ["start", "end"]
    assert facts(alone.messages[-1]) == facts(told.messages[-1])
    assert (alone.usage, alone.text) == (told.usage, told.text)


def test_whoever_listens_is_heard(door: Door) -> None:
    ear = Ear()
    with_callbacks = Plain(managers=[], callbacks=[ear])
    door(Agent(model=with_callbacks), "?")
    assert ear.heard == ["start", "end"]

    class Counting(BaseHook):
        name = "counting"
        usage: Any = None

        def wrap_model_call(self, request: Any, next: Any) -> Any:
            with get_usage_metadata_callback() as counted:
                reply = next(request)
            type(self).usage = counted.usage_metadata
            return reply

    door(Agent(model=Plain(managers=[]), hooks=[Counting()]), "?")
    assert Counting.usage["plain"]["total_tokens"] == 7


def test_a_model_that_cannot_stream_is_one_piece_of_a_stream() -> None:
    agent = Agent(model=Plain(managers=[]))
    pieces = [e.delta for e in agent.stream("?") if isinstance(e, events.ChatModelStream)]
    assert pieces == ["1 []"]


def test_a_rate_limiter_is_waited_for(door: Door) -> None:
    limiter = InMemoryRateLimiter(requests_per_second=1_000, check_every_n_seconds=0.001)
    asked: list[str] = []
    limiter.acquire = lambda *, blocking=True: asked.append("sync") or True  # type: ignore[method-assign,func-returns-value]  # a spy on a real limiter

    async def acquire(*, blocking: bool = True) -> bool:
        asked.append("async")
        return True

    limiter.aacquire = acquire  # type: ignore[method-assign]  # a spy on a real limiter
    door(Agent(model=Plain(managers=[], rate_limiter=limiter)), "?")
    assert len(asked) == 1


def test_a_model_with_a_way_of_its_own_is_called_by_it(door: Door) -> None:
    class Own(Plain):
        def invoke(self, *args: Any, **kwargs: Any) -> Any:
            return AIMessage("own")

        async def ainvoke(self, *args: Any, **kwargs: Any) -> Any:
            return AIMessage("own")

    assert door(Agent(model=Own(managers=[])), "?").text == "own"


@pytest.mark.parametrize("listen", [False, True])
def test_a_node_that_fails_raises_the_same_on_both_ways(door: Door, listen: bool) -> None:
    class Broken(Plain):
        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            raise ValueError("broken")

    config = {"callbacks": [Ear()]} if listen else None
    with pytest.raises(Exception, match="^LLM call: ValueError: broken"):
        door(Agent(model=Broken(managers=[])), "?", config=config)


def test_the_nodes_see_their_config_on_the_short_way() -> None:
    seen: list[str] = []

    async def where() -> str:
        """Look at the ambient config."""
        seen.append(get_config()["configurable"]["thread_id"])
        return "here"

    agent = Agent(model=ScriptedModel([call("where"), "ok"]), tools=[where])
    asyncio.run(agent.ainvoke("?", thread_id="t"))
    agent.invoke("?", thread_id="u")
    assert seen == ["t", "u"]
