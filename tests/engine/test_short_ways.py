"""The shorter ways to a model and around a node: the same result, and nobody is passed over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
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
    data = message.model_dump(exclude={"id": True, "additional_kwargs": {"timestamp"}})
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


class Streaming(Plain):
    """A chat model that streams, and says with its last piece why it ended."""

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        self.managers.append(run_manager)
        for word in ("one ", "two ", "three"):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
        last = AIMessageChunk(content="", response_metadata={"model_name": "plain"})
        yield ChatGenerationChunk(message=last, generation_info={"finish_reason": "stop"})


def streamed(agent: Agent, style: str, **options: Any) -> list[events.Event]:
    if style == "stream":
        return list(agent.stream("?", **options))

    async def collect() -> list[events.Event]:
        return [event async for event in agent.astream("?", **options)]

    return asyncio.run(collect())


both = pytest.mark.parametrize("style", ["stream", "astream"])


@both
def test_a_streamed_reply_is_the_same_whether_somebody_listens_or_not(style: str) -> None:
    class Tokens(Ear):
        def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
            self.heard.append(token)

    ear = Tokens()
    alone = streamed(Agent(model=Streaming(managers=[])), style)
    told = streamed(Agent(model=Streaming(managers=[])), style, config={"callbacks": [ear]})
    assert ear.heard[:4] == ["start", "one ", "two ", "three"]
    assert ear.heard[-1] == "end"
    pieces = [
        [e.delta for e in seen if isinstance(e, events.ChatModelStream)] for seen in (alone, told)
    ]
    assert pieces == [["one ", "two ", "three"]] * 2
    ends = [seen[-1] for seen in (alone, told)]
    assert all(isinstance(end, events.Done) for end in ends)
    replies = [facts(end.result.messages[-1]) for end in ends if isinstance(end, events.Done)]
    assert replies[0] == replies[1]
    assert replies[0]["response_metadata"] == {"model_name": "plain", "finish_reason": "stop"}


@both
@pytest.mark.parametrize("way", ["v1", "own", "limited"])
def test_a_stream_that_is_not_plain_takes_the_long_way_or_waits(style: str, way: str) -> None:
    waited: list[str] = []

    class Own(Streaming):
        def stream(self, *args: Any, **kwargs: Any) -> Any:
            return iter([AIMessageChunk(content="own")])

        async def astream(self, *args: Any, **kwargs: Any) -> Any:
            yield AIMessageChunk(content="own")

    limiter = InMemoryRateLimiter(requests_per_second=1_000, check_every_n_seconds=0.001)
    limiter.acquire = lambda *, blocking=True: waited.append("x") or True  # type: ignore[method-assign,func-returns-value]  # a spy on a real limiter

    async def acquire(*, blocking: bool = True) -> bool:
        waited.append("x")
        return True

    limiter.aacquire = acquire  # type: ignore[method-assign]  # a spy on a real limiter
    options: dict[str, Any] = {
        "v1": {"output_version": "v1"},
        "own": {},
        "limited": {"rate_limiter": limiter},
    }
    model = (Own if way == "own" else Streaming)(managers=[], **options[way])
    end = streamed(Agent(model=model), style)[-1]
    assert isinstance(end, events.Done)
    assert end.result.text == ("own" if way == "own" else "one two three")
    assert len(waited) == (way == "limited")
