"""One half of a scenario, in a process of its own: begin a run and die amid it, or go on with it.

    python -m tests.support.scenario begin THREAD TEXT WHERE
    python -m tests.support.scenario go-on THREAD

Both work in the current folder, on its agents.yaml. `begin` stops before or after the node `tools`
(`WHERE`), says what it has seen and is killed by its own hand; `go-on` ends the run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import wick_graph as wick
from wick_graph.messages import to_wick


def main(argv: list[str]) -> None:
    what, thread, *more = argv
    agents = wick.load("agents.yaml")
    agent = agents[agents.config.default_id]
    config: Any = {"configurable": {"thread_id": thread}}
    if what == "begin":
        text, where = more
        at: Any = {where: ["tools"]}
        agent.graph.invoke({"messages": [wick.human(text)]}, config, **at)
        said: dict[str, Any] = {"next": list(agent.graph.get_state(config).next)}
    else:
        result = agent.resume(thread)
        said = {
            "text": result.text,
            "stopped": result.stopped_because,
            "messages": [to_wick(message) for message in result.messages],
            "todos": result.todos,
            "files": result.files,
        }
    model: Any = agent.spec.model.model
    said["hooks"] = list(agent.spec.hooks.names)
    said["systems"] = [call.system for call in model.calls]
    said["offered"] = [list(call.tool_names) for call in model.calls]
    print(json.dumps(said), flush=True)
    if what == "begin":
        os.kill(os.getpid(), signal.SIGKILL)
    agents.close()


if __name__ == "__main__":
    main(sys.argv[1:])
