"""A process that dies while it works on a background task, and one that awaits the task.

`python -m tests.subagents.background_process FOLDER begin|await`
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from tests.subagents.process import effects
from wick_graph import Agent
from wick_graph.store import SqlSaver
from wick_graph.subagents import Background, Subagent
from wick_graph.testing import ScriptedModel, calls, respond


def call(name: str, **args: Any) -> Any:
    return calls((name, args), unchecked=True)


def await_all(asked: Any) -> Any:
    said = [m for m in asked.messages if m.type == "tool" and m.name == "start_async_task"]
    return call("await_async_tasks", task_ids=[json.loads(m.text)["task_id"] for m in said])


def main(folder: Path, how: str) -> None:
    with SqlSaver.from_url(f"sqlite:///{folder / 'threads.db'}") as store:
        steps = [call("note", text="before"), call("blast"), call("note", text="after"), "Done."]
        clerk = Agent("clerk", ScriptedModel(steps), store=store, tools=effects(folder))
        tasks = Background({"clerk": Subagent(clerk, "Does it")})
        begins = [call("start_async_task", agent="clerk", task="Work"), "Started."]
        mine: list[Any] = begins if how == "begin" else [respond(await_all), "Finished."]
        model = ScriptedModel(mine, cursor="fifo")
        boss = Agent("boss", model, store=store, hooks=[tasks])
        result = boss.invoke("Go", thread_id="th_boss")
        if how == "begin":
            threading.Event().wait(60)  # the task kills this process
        print(result.tool_calls[0]["output"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
