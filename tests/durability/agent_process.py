"""An agent in a process of its own, to be killed: it writes what it does to a log that survives.

    python -m tests.durability.agent_process DATABASE LOG TURNS [REPLAY]

Log lines, appended at once: `start ID` and `end ID` by tools, `ack ID` once a reader was told.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from wick_graph import Agent, events, tool

CALLS = 3
THREAD = "t"


class Log:
    """Lines that are in the file when `write` returns; they survive SIGKILL."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, word: str, name: str) -> None:
        os.write(self.fd, f"{word} {name}\n".encode())


class Planned(BaseChatModel):
    """Call three tools in each of so many turns, then answer; its place comes from the prompt."""

    turns: int = 4

    @property
    def _llm_type(self) -> str:
        return "planned"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        turn = sum(isinstance(m, AIMessage) for m in messages)
        message = AIMessage("finished", id="last")
        if turn < self.turns:
            calls: Any = [
                {"name": "act", "args": {"n": turn * CALLS + i}, "id": f"c{turn}_{i}"}
                for i in range(CALLS)
            ]
            message = AIMessage(f"turn {turn}", tool_calls=calls, id=f"turn{turn}")
        return ChatResult(generations=[ChatGeneration(message=message)])


def agent_of(database: str, log: Log, turns: int, replay: str, pause: float = 0.004) -> Agent:
    @tool(replay=replay)  # type: ignore[call-overload]  # one of the three words, from the command line
    def act(n: int) -> str:
        """Have an effect on the world that can be counted."""
        log.write("start", str(n))
        time.sleep(pause)
        log.write("end", str(n))
        return f"done {n}"

    return Agent(model=Planned(turns=turns), tools=[act], store=f"sqlite:///{database}")


def main(database: str, path: str, turns: str, replay: str = "never") -> None:
    log = Log(path)
    agent = agent_of(database, log, int(turns), replay)
    known = agent.threads.get(THREAD)
    going_on = known is not None and known.steps > 0
    stream = agent.stream_resume(THREAD) if going_on else agent.stream("go", thread_id=THREAD)
    for event in stream:
        if isinstance(event, events.ToolEnd):
            log.write("ack", event.run_id)
        if isinstance(event, events.Failed):
            log.write("failed", event.error.replace("\n", " "))
        if isinstance(event, events.Done):
            log.write("done", event.stopped_because)
    agent.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
