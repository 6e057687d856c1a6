"""A process that dies while a task of it runs, and one after it.

`python -m tests.subagents.origin_process FOLDER delegated|background begin|go on`

It prints where the task's agent thinks that the conversation is held.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

from tests.gateway.mailing import finder
from tests.subagents.process import call, effects
from wick_graph import Agent, tool
from wick_graph.gateway.messages import InboundMessage
from wick_graph.gateway.turns import TaskWatch
from wick_graph.store import SqlSaver
from wick_graph.subagents import Background, Subagent, delegation
from wick_graph.subagents.background import TaskEnd
from wick_graph.testing import ScriptedModel
from wick_graph.tools import ToolContext

ORIGIN = {"channel": "telegram", "chat_id": "7", "role": "user", "session": "telegram:7"}


def main(folder: Path, kind: str, how: str) -> None:
    @tool(replay="safe")
    def where(ctx: ToolContext) -> str:
        """Tell where the conversation is held."""
        return json.dumps(dict(ctx.origin))

    with SqlSaver.from_url(f"sqlite:///{folder / 'threads.db'}") as store:
        steps: list[Any] = [call("note", text="before"), call("blast"), call("where"), "Done."]
        tools = [*effects(folder), where]
        clerk = Agent("clerk", ScriptedModel(steps), store=store, tools=tools)
        below = {"clerk": Subagent(clerk, "Does it")}
        if kind == "delegated":
            mine = [call("delegate_to_agent", agent="clerk", task="Work"), "Fine."]
            boss = Agent("boss", ScriptedModel(mine), store=store, tools=[delegation(below)])
            given = {"messages": [("user", "Go")], "origin": ORIGIN}
            boss.invoke(given, thread_id="th_boss", idempotency_key="1")
        else:
            _background(folder, store, below, how)
        for info in store.threads.list():
            if info.parent == "th_boss":
                state = clerk.graph.get_state({"configurable": {"thread_id": info.thread_id}})
                said = [m.text for m in state.values["messages"] if m.type == "tool"]
                print(said[-1])


def _background(folder: Path, store: SqlSaver, below: Any, how: str) -> None:
    told = threading.Event()

    async def receive(message: InboundMessage) -> None:
        key = message.native_id
        await store.mailbox.run(store.mailbox.receive, key, message.key, message.to_json())

    class Watch(TaskWatch):
        async def ended(self, end: TaskEnd) -> None:
            await super().ended(end)
            told.set()

    watch = Watch(store.mailbox, receive)
    tasks = Background(below)
    tasks.watcher = watch
    model = ScriptedModel([call("start_async_task", agent="clerk", task="Work"), "Started."])
    boss = Agent("boss", model, store=store, hooks=[tasks])
    if how == "begin":
        boss.invoke({"messages": [("user", "Go")], "origin": ORIGIN}, thread_id="th_boss")
    else:
        asyncio.run(watch.announce_unseen(finder(boss=boss)))
    assert told.wait(60)  # in the first process the task kills it
    tasks.close()
    (row,) = store.mailbox.inbox()
    print(json.dumps(dict(row.message)))
    print(json.dumps(store.mailbox.facts("task/")))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
