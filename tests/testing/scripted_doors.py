"""The four ways to call a model, as one."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, message_chunk_to_message
from langchain_core.runnables import Runnable

DOORS = ("invoke", "ainvoke", "stream", "astream")


async def ask(
    model: Runnable[Any, AIMessage], prompt: str | list[BaseMessage], door: str, **kwargs: Any
) -> AIMessage:
    if door == "invoke":
        return model.invoke(prompt, **kwargs)
    if door == "ainvoke":
        return await model.ainvoke(prompt, **kwargs)
    if door == "stream":
        chunks = list(model.stream(prompt, **kwargs))
    else:
        chunks = [chunk async for chunk in model.astream(prompt, **kwargs)]
    whole: Any = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    message = message_chunk_to_message(whole)
    assert isinstance(message, AIMessage)
    return message
