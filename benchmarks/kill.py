"""What a SIGKILL costs, side by side: wick_graph, LangGraph and DBOS under one killer.

    python benchmarks/kill.py --trials 40

Every contender does the same: four turns of three tool calls that take 4 ms each. A trial kills it
three times, a moment after it has written so many lines of its log (drawn by one seed for all),
and then lets it finish. Counted are the calls that started again although they had ended, and of
these the ones of which the client had been told; and calls that nobody may repeat and that started
twice. DBOS needs `pip install dbos`; without it its row is left out, and that is said.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.durability import agent_process
from tests.durability.agent_process import CALLS, CONFIG, TURNS, Log, Planned
from tests.durability.test_kill import SEED, life, read, rerun

Work = Callable[[str, Log, str], None]


def langgraph(durability: str, *, per_call: bool) -> Work:
    """LangGraph's own loop on its SqliteSaver: one node for all tools, or one task per call."""

    def work(url: str, log: Log, replay: str) -> None:
        def act(n: int) -> str:
            """Have an effect on the world that can be counted."""
            log.write("start", n)
            time.sleep(0.004)
            log.write("end", n)
            return f"done {n}"

        def one_node() -> Any:
            graph: Any = StateGraph(MessagesState)
            model = Planned(log=log)
            graph.add_node("model", lambda s: {"messages": [model.invoke(s["messages"])]})

            def tools(state: Any) -> Any:
                calls = state["messages"][-1].tool_calls
                done = [ToolMessage(act(**c["args"]), tool_call_id=c["id"]) for c in calls]
                return {"messages": done}

            graph.add_node("tools", tools)
            graph.add_edge(START, "model")
            graph.add_conditional_edges(
                "model", lambda s: "tools" if s["messages"][-1].tool_calls else END
            )
            graph.add_edge("tools", "model")
            return graph

        with SqliteSaver.from_conn_string(url.removeprefix("sqlite:///")) as saver:
            if per_call:
                graph: Any = create_agent(Planned(log=log), [act], checkpointer=saver)
            else:
                graph = one_node().compile(checkpointer=saver)
            begun = saver.get_tuple(CONFIG) is not None
            given = None if begun else {"messages": [("user", "go")]}
            stream = graph.stream(given, CONFIG, stream_mode="updates", durability=durability)
            for part in stream:
                for message in (part.get("tools") or {}).get("messages", []):
                    log.write("ack", message.tool_call_id)
        log.write("done", "done")

    return work


def dbos(url: str, log: Log, replay: str) -> None:
    """A DBOS workflow whose steps are the model calls and the tool calls; recovered at start."""
    from dbos import DBOS, SetWorkflowID  # noqa: PLC0415  # it may not be installed

    logging.disable(logging.CRITICAL)
    settings: Any = {"name": "kill", "system_database_url": url, "log_level": "CRITICAL"}
    engine: Any = DBOS(config=settings)

    @DBOS.step()
    def model(turn: int) -> bool:
        log.write("model", turn)
        time.sleep(0.003)
        return turn < TURNS

    @DBOS.step()
    def act(n: int) -> str:
        log.write("start", n)
        time.sleep(0.004)
        log.write("end", n)
        return f"done {n}"

    @DBOS.workflow()
    def loop() -> str:
        turn = 0
        while model(turn):
            for i in range(CALLS):
                act(turn * CALLS + i)
                log.write("ack", f"c{turn}_{i}")
            turn += 1
        return "finished"

    DBOS.launch()
    with SetWorkflowID("t"):
        handle: Any = DBOS.start_workflow(loop)
    handle.get_result()
    log.write("done", "done")
    engine.destroy()


def contenders() -> dict[str, Work]:
    found: dict[str, Work] = {
        "wick_graph": agent_process.ours,
        "wick_graph, ledger taken out": agent_process.without_ledger,
        "LangGraph, one tools node, sync": langgraph("sync", per_call=False),
        "LangGraph, one tools node, async": langgraph("async", per_call=False),
        "LangGraph `create_agent`, sync": langgraph("sync", per_call=True),
        "LangGraph `create_agent`, async": langgraph("async", per_call=True),
        "LangGraph `create_agent`, exit": langgraph("exit", per_call=True),
    }
    if importlib.util.find_spec("dbos") is None:
        print("DBOS is not installed: its row is left out", file=sys.stderr)
    else:
        found["DBOS"] = dbos
    return found


def measured(work: Work, trials: int) -> Counter[str]:
    dice, total = random.Random(SEED), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for n in range(trials):
            place = Path(folder) / str(n)
            place.mkdir()
            for _ in range(3):
                if life(work, place, "never", dice.randint(1, 20), dice.uniform(0, 0.004)):
                    total["kills"] += 1
            for _ in range(4):
                life(work, place, "never", None)
                if read(place)[-1:] == [("done", "done")]:
                    break
            lines = read(place)
            found = rerun(lines)
            total += found
            total["trials with such"] += bool(found)
            starts = Counter(name for word, name in lines if word == "start")
            total["starts too many"] += sum(count - 1 for count in starts.values())
            total["ended"] += ("done", "done") in lines
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill wick_graph, LangGraph and DBOS alike.")
    parser.add_argument("--trials", type=int, default=20)
    trials = parser.parse_args().trials
    print("| | kills | run again after the client was told | run again after they had ended |")
    print("|---|---:|---:|---:|", flush=True)
    for name, work in contenders().items():
        total = measured(work, trials)
        told, ended = total["told, run again"], total["ended, run again"]
        trials_with = total["trials with such"]
        print(
            f"| {name} | {total['kills']} | {told} | {ended + told} (in {trials_with} of {trials} "
            f"runs) |",
            flush=True,
        )
        if total["ended"] != trials:
            print(f"{name}: {trials - total['ended']} runs did not end", file=sys.stderr)


if __name__ == "__main__":
    main()
