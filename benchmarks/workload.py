"""What every contender is given: models that cost next to nothing, and tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

QUESTION = "go"


class Turns(BaseChatModel):
    """Call one tool so many times, then answer."""

    turns: int = 25
    pause: float = 0.0
    """Seconds that a reply takes."""
    on_call: Callable[[], Any] | None = None
    """Told when the model is asked."""

    @property
    def _llm_type(self) -> str:
        return "turns"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.reply(messages))])

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kw: Any) -> ChatResult:
        if self.pause:
            await asyncio.sleep(self.pause)
        return ChatResult(generations=[ChatGeneration(message=self.reply(messages))])

    def reply(self, messages: list[BaseMessage]) -> AIMessage:
        """Answer a history; how far it is can be seen from its length alone."""
        if self.on_call is not None:
            self.on_call()
        done = len(messages) // 2
        if done >= self.turns - 1:
            return AIMessage("done " * 30)
        call = {"name": "look", "args": {"n": done}, "id": f"c{done}", "type": "tool_call"}
        return AIMessage("thinking " * 20, tool_calls=[call])


class Once(Turns):
    """Answer at once, however long the history is."""

    def reply(self, messages: list[BaseMessage]) -> AIMessage:
        if self.on_call is not None:
            self.on_call()
        return AIMessage("done " * 30)


class Fan(Turns):
    """Call ten tools in one reply, then answer."""

    def reply(self, messages: list[BaseMessage]) -> AIMessage:
        if any(message.type == "tool" for message in messages):
            return AIMessage("done")
        calls: Any = [
            {"name": "nap", "args": {}, "id": f"c{i}", "type": "tool_call"} for i in range(10)
        ]
        return AIMessage("", tool_calls=calls)


class Tokens(BaseChatModel):
    """Stream so many tokens, each made as a provider's client makes it."""

    tokens: int = 2_000

    @property
    def _llm_type(self) -> str:
        return "tokens"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("token " * self.tokens))])

    async def _astream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        manager = kwargs.get("run_manager")
        for _ in range(self.tokens):
            chunk = self.chunk()
            if manager is not None:
                await manager.on_llm_new_token("token ", chunk=chunk)
            yield chunk

    def chunk(self) -> ChatGenerationChunk:
        """Make one piece."""
        return ChatGenerationChunk(message=AIMessageChunk(content="token "))


class CheapTokens(Tokens):
    """Stream tokens that cost nothing to make, so that what is measured is who carries them."""

    def chunk(self) -> ChatGenerationChunk:
        """Copy a piece without pydantic's checks."""
        piece, message = object.__new__(ChatGenerationChunk), object.__new__(AIMessageChunk)
        for made, pattern in ((message, _MESSAGE), (piece, _PIECE)):
            object.__setattr__(made, "__dict__", dict(pattern.__dict__))
            object.__setattr__(made, "__pydantic_fields_set__", pattern.__pydantic_fields_set__)
            object.__setattr__(made, "__pydantic_extra__", None)
            object.__setattr__(made, "__pydantic_private__", None)
        message.__dict__["response_metadata"] = {}
        piece.__dict__["message"] = message
        return piece


_MESSAGE = AIMessageChunk(content="token ")
_PIECE = ChatGenerationChunk(message=_MESSAGE)


async def look(n: int) -> str:
    """Look."""
    return f"{n}: " + "result " * 100


async def nap() -> str:
    """Take 50 ms."""
    await asyncio.sleep(0.05)
    return "slept"


def question() -> dict[str, Any]:
    """Make an input for a LangGraph graph."""
    return {"messages": [HumanMessage(QUESTION)]}


def addressed(thread: str) -> Any:
    """Make the config of a thread; no contender's own limit of steps is to end a run."""
    return {"configurable": {"thread_id": thread}, "recursion_limit": 100_000}
