"""Three agents, one below the other; one of them dies in the middle of its work, once.

`python -m tests.subagents.process FOLDER THREAD LEVEL WHEN begin|resume`
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from wick_graph import Agent, tool
from wick_graph.store import SqlSaver
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, calls, text

LEVELS = ("top", "mid", "low")


def main(folder: Path, thread: str, level: str, when: str, how: str) -> None:
    with SqlSaver.from_url(f"sqlite:///{folder / 'threads.db'}") as store:
        top = family(folder, level, when, store)
        result = top.invoke("Go", thread_id=thread) if how == "begin" else top.resume(thread)
        print(result.text, result.thread_usage.input_tokens)


def family(folder: Path, level: str, when: str, store: Any) -> Agent:
    below: dict[str, Subagent] = {}
    for name in reversed(LEVELS):
        steps = [call("note", text=f"{name} begins")]
        steps += [call("blast")] if (name, when) == (level, "before") else []
        steps += [call("delegate_to_agent", agent=one, task="Go on") for one in below]
        steps += [call("blast")] if (name, when) == (level, "after") else []
        steps += [call("note", text=f"{name} ends"), text(f"{name} is done.", usage=(10, 1))]
        tools = [*effects(folder), *([delegation(below)] if below else [])]
        agent = Agent(name, ScriptedModel(steps), store=store, tools=tools)
        below = {name: Subagent(agent, f"Does {name}")}
    return agent


def call(name: str, **args: Any) -> Any:
    return calls((name, args), usage=(10, 1), unchecked=True)


def effects(folder: Path) -> list[Any]:
    @tool
    def note(text: str) -> str:
        """Do something that must not be done twice."""
        with (folder / "effects").open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
        return "noted"

    @tool(replay="safe")
    def blast() -> str:
        """Kill this process, the first time."""
        if not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "survived"

    return [note, blast]


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
