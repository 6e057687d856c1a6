"""The saver under a user's own graph stores the answers to an agent's questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from wick_graph import Agent, SqlSaver
from wick_graph.hooks import ApprovalHook, Approve, Edit, Reject, Respond
from wick_graph.store.codec import Codec
from wick_graph.testing import ScriptedModel, call

CONFIG: Any = {"configurable": {"thread_id": "t"}}

DECISIONS = {
    "approve": (Approve(), [5]),
    "edit": (Edit(args={"amount": 1}), [1]),
    "reject": (Reject("no"), []),
    "respond": (Respond("later"), []),
}

NODES: dict[str, Callable[[Agent], Any]] = {
    "agent": lambda agent: agent,
    "graph": lambda agent: agent.graph,
    "platform": lambda agent: agent.platform_graph(),
    "function": lambda agent: lambda state, config: agent.graph.invoke(state, config),
}


@pytest.mark.parametrize("by_id", [False, True], ids=["alone", "by id"])
@pytest.mark.parametrize("door", ["invoke", "ainvoke"])
@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_answers_in_a_graph_of_the_users_own(
    name: str, node: str, door: str, by_id: bool
) -> None:
    ran: list[int] = []

    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return f"paid {amount}"

    agent = Agent(
        "desk",
        ScriptedModel([call("pay", amount=5), "Done."]),
        tools=[pay],
        hooks=[ApprovalHook({"pay": True})],
    )
    built: Any = StateGraph(MessagesState)
    built.add_node("desk", NODES[node](agent))
    built.add_edge(START, "desk")
    decision, expected = DECISIONS[name]
    with SqlSaver.from_url("sqlite://") as saver:
        graph = built.compile(checkpointer=saver)

        def run(given: Any) -> Any:
            if door == "invoke":
                return graph.invoke(given, CONFIG)
            return asyncio.run(graph.ainvoke(given, CONFIG))

        (asked,) = run({"messages": [("user", "hi")]})["__interrupt__"]
        assert ran == []
        found = run(Command(resume={asked.id: decision} if by_id else decision))
        assert found["messages"][-1].text == "Done."
        assert ran == expected
        assert graph.get_state(CONFIG).next == ()


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_is_stored_as_plain_data(name: str) -> None:
    decision, _ = DECISIONS[name]
    codec = Codec()
    assert codec.loads_typed(codec.dumps_typed(decision)) == decision.to_dict()
    kept = {"answers": [decision], "by": (decision, {1: decision})}
    plain = decision.to_dict()
    assert codec.unpack(codec.pack(kept)) == {"answers": [plain], "by": (plain, {1: plain})}
