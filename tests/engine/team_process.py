"""A process that dies after another agent has taken over, and one that goes on.

python -m tests.engine.team_process team|swarm DATABASE [die]
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph_swarm import create_handoff_tool, create_swarm

from wick_graph import Agent, BaseHook, SqlSaver
from wick_graph.subagents import Handoff
from wick_graph.testing import ScriptedModel, call


class Dies(BaseHook):
    """Kill the process before the agent that took over asks its model."""

    name = "dies"

    def modify_request(self, request: Any, ctx: Any) -> Any:
        if ctx.state.get("active") == "billing" or ctx.agent == "billing":
            os.kill(os.getpid(), signal.SIGKILL)
        return request


def shop(store: Any, *, dies: bool = False) -> Agent:
    """Build an agent with another that can take over."""
    model = ScriptedModel(["skipped", "Paid back.", "Still billing."])
    billing = Agent("billing", model, system_prompt="You do billing.")
    return Agent(
        "desk",
        ScriptedModel([call("transfer_to_billing")]),
        hooks=[Dies()] if dies else [],
        handoffs={"billing": Handoff(billing, "Money.")},
        store=store,
    )


def swarm(saver: BaseCheckpointSaver[Any], *, dies: bool = False) -> Any:
    """Build a swarm of two agents, as langgraph-swarm does."""
    desk = Agent(
        "desk",
        ScriptedModel([call("transfer_to_billing")]),
        tools=[create_handoff_tool(agent_name="billing")],
    )
    model = ScriptedModel(["skipped", "Paid back.", "Still billing."])
    billing = Agent("billing", model, hooks=[Dies()] if dies else [])
    graph = create_swarm([desk.graph, billing.graph], default_active_agent="desk")
    return graph.compile(checkpointer=saver)


def main(what: str, url: str, *more: str) -> None:
    if what == "team":
        with shop(url, dies=bool(more)) as agent:
            result = agent.invoke("Money back!", thread_id="t") if more else agent.resume("t")
            print(result.text)
        return
    with SqlSaver.from_url(url) as saver:
        given: Any = {"messages": [("user", "Money back!")]} if more else None
        config: Any = {"configurable": {"thread_id": "t"}}
        state = swarm(saver, dies=bool(more)).invoke(given, config)
        print(state["messages"][-1].text, state["active_agent"])


if __name__ == "__main__":
    main(*sys.argv[1:])
