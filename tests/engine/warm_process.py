"""Another process on the same store: it does what its standard input says, a line at a time.

python -m tests.engine.warm_process DATABASE
"""

from __future__ import annotations

import os
import sys
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from wick_graph import Agent, BaseHook, SqlSaver


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def shown(messages: Any) -> list[Any]:
    """Return what a model reads of messages."""
    return [
        (m.type, m.content, [(c["name"], dict(c["args"])) for c in getattr(m, "tool_calls", ())])
        for m in messages
    ]


class Adder(BaseChatModel):
    """Call a tool once in each turn, then answer; notes what it was sent."""

    seen: list[Any] = []  # noqa: RUF012 - pydantic copies it
    vandal: bool = False
    """Change all that it gets."""

    @property
    def _llm_type(self) -> str:
        return "adder"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.seen.append(shown(messages))
        last = messages[-1]
        if self.vandal:
            for message in messages:
                message.content = "LEAK"
                message.additional_kwargs["LEAK"] = True
                for call in getattr(message, "tool_calls", ()):
                    call["args"]["LEAK"] = True
        if last.type == "human":
            n = len(self.seen)
            asked: Any = {"name": "add", "args": {"a": n, "b": 1}, "id": f"c{n}"}
            return ChatResult(
                generations=[ChatGeneration(message=AIMessage("", tool_calls=[asked]))]
            )
        return ChatResult(generations=[ChatGeneration(message=AIMessage(f"done {len(self.seen)}"))])


class Dies(BaseHook):
    """Kill the process behind the tool."""

    name = "dies"

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        next(call)
        os._exit(9)


def adding(saver: Any, **options: Any) -> tuple[Agent, Adder]:
    """Make an agent and its model."""
    model = Adder(vandal=options.pop("vandal", False))
    return Agent("adder", model, tools=[add], store=saver, **options), model


def act(agent: Agent, saver: SqlSaver, what: str, thread: str = "t") -> None:
    """Do one thing to a thread."""
    at: Any = {"configurable": {"thread_id": thread}}
    graph = agent.graph
    held = graph.get_state(at).values.get("messages") or []
    if what == "turn":
        agent.invoke("other", thread_id=thread)
    elif what == "append":
        graph.update_state(at, {"messages": [HumanMessage("added")]}, as_node="tools")
    elif what == "edit" and held:
        changed = held[len(held) // 2].model_copy(update={"content": "edited"})
        graph.update_state(at, {"messages": [changed]}, as_node="tools")
    elif what == "remove" and len(held) > 8:
        gone = [RemoveMessage(id=m.id) for m in held[:4]]
        graph.update_state(at, {"messages": gone}, as_node="tools")
    elif what == "fork":
        ends = [s for s in graph.get_state_history(at) if not s.next and s.values.get("messages")]
        if ends:
            graph.invoke({"messages": [("user", "forked")]}, ends[-1].config)
    elif what == "again":
        agent.threads.delete(thread)
        agent.invoke("again", thread_id=thread)
    elif what == "prune":
        saver.prune([thread])


def main(url: str) -> None:
    with SqlSaver.from_url(url) as saver:
        agent, _ = adding(saver)
        dying, _ = adding(saver, hooks=[Dies()])
        for line in sys.stdin:
            what = line.strip()
            if what == "die":
                dying.invoke("kill me", thread_id="t")
            act(agent, saver, what)
            print("ok", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
