"""A process that dies right after it has queued a message, and one that goes on.

`python -m tests.gateway.message_process FOLDER begin|go on`
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from wick_graph import Agent
from wick_graph.gateway.delivery import Delivery
from wick_graph.gateway.tools import message_tool
from wick_graph.store import SqlSaver
from wick_graph.store.mailbox import Mailbox
from wick_graph.testing import ScriptedModel, call

ORIGIN = {"channel": "telegram", "chat_id": "7", "role": "owner"}


def main(folder: Path, how: str) -> None:
    with SqlSaver.from_url(f"sqlite:///{folder / 'threads.db'}") as store:
        box, queue = store.mailbox, Mailbox.queue

        def queued(*given: Any, **more: Any) -> Any:
            made = queue(box, *given, **more)
            with (folder / "queued").open("a", encoding="utf-8") as file:
                file.write(".")
            if how == "begin":
                os.kill(os.getpid(), signal.SIGKILL)
            return made

        box.queue = queued  # type: ignore[method-assign]  # the process dies behind its commit
        steps: list[Any] = [call("message", content="Half way"), "Done."]
        agent = Agent(
            "a", ScriptedModel(steps), store=store, tools=[message_tool(Delivery(box, {}).put, {})]
        )
        given = {"messages": [("user", "Go")], "origin": ORIGIN}
        agent.invoke(given, thread_id="t", idempotency_key="1")
        rows = box.outbox()
        times = len((folder / "queued").read_text(encoding="utf-8"))
        print(times, rows[0].chat, [row.message["content"] for row in rows])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
