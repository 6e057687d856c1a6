"""A debugged agent in a process of its own: `python -m tests.debug.process WHAT URL LOG`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from wick_graph import Agent, tool
from wick_graph.debug import DebugSession
from wick_graph.testing import ScriptedModel, calls

WAIT: Any = 60


def agent_of(url: str, log: Path) -> Agent:
    """Make the agent; every model call and every tool call is a line of the log."""

    @tool
    def act(n: int) -> str:
        """Do something once."""
        with log.open("a") as file:
            file.write(f"act {n}\n")
        if n == 2 and (log.parent / "die").exists():
            while not {"act 1", "act 3"} <= set(log.read_text().splitlines()):
                time.sleep(0.005)  # so that none has been recorded as begun, and not begun
            os.kill(os.getpid(), signal.SIGKILL)
        if n == 3:
            raise ValueError("three is too many")
        return f"did {n}"

    class Counted(ScriptedModel):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            with log.open("a") as file:
                file.write("model\n")
            return super()._generate(messages, *args, **kwargs)

    script: Any = [calls(*(("act", {"n": n}) for n in (1, 2, 3))), "Done."]
    model: Any = Counted
    model = model(script)
    return Agent("actor", model, system_prompt="Act.", tools=[act], store=url)


def main(what: str, url: str, log: str) -> None:
    """Record a run, keep one at a stop, be killed at one or in a call, or end while one is held."""
    agent = agent_of(url, Path(log))
    if what == "die":
        (Path(log).parent / "die").touch()
    if what in ("record", "die"):
        agent.invoke("go", thread_id="t")
        return
    session = DebugSession(agent)
    session.breakpoints.break_("tool:act", "args.n == 2")
    stop = session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
    assert stop.reason == "breakpoint", stop
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exit":
        sys.exit(7)
    print(session.detach("keep"))
    agent.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
