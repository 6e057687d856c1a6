"""A debugged agent in a process of its own: `python -m tests.debug.process WHAT URL LOG`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from wick_graph import Agent, tool
from wick_graph.debug import DebugSession
from wick_graph.store.leases import check
from wick_graph.store.ledger import Ledger
from wick_graph.testing import ScriptedModel, calls

WAIT: Any = 60
KILLS = ("before the intent", "in the call", "after the result")
"""When the process is killed at its second call; the other two have ended by then or never will."""


def agent_of(url: str, log: Path) -> Agent:
    """Make the agent; every model call and every tool call is a line of the log."""

    @tool
    def act(n: int) -> str:
        """Do something once."""
        with log.open("a") as file:
            file.write(f"act {n}\n")
        if n == 2 and (log.parent / "die").exists():
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


def die(what: str) -> None:
    """Let the second call's process be killed between a commit of the ledger and the journal's."""
    begin, finish = Ledger.begin, Ledger.finish

    def begun(ledger: Ledger, key: str, name: str, args: Any, replay: Any) -> Any:
        if args == {"n": 2}:
            with ledger._core.writing(ledger._lease.thread_id, alone=True) as db:
                check(ledger._core, db, ledger._lease)  # the journal's moments join this commit
            os.kill(os.getpid(), signal.SIGKILL)
        return begin(ledger, key, name, args, replay)

    def finished(ledger: Ledger, key: str, name: str, args: Any, fields: Any) -> None:
        finish(ledger, key, name, args, fields)
        if args == {"n": 2}:
            os.kill(os.getpid(), signal.SIGKILL)

    if what == "before the intent":
        Ledger.begin = begun  # type: ignore[assignment, method-assign]  # this process ends by it
    else:
        Ledger.finish = finished  # type: ignore[assignment, method-assign]  # as above


def main(what: str, url: str, log: str) -> None:
    """Record a run, keep one at a stop, be killed at one or in a call, or end while one is held."""
    agent = agent_of(url, Path(log))
    if what == "in the call":
        (Path(log).parent / "die").touch()
    elif what in KILLS:
        die(what)
    if what in ("record", *KILLS):
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
