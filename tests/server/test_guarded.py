"""Guardrails and handoffs over HTTP: the same end, and no piece of a refused text on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.server.support import SECONDS, frames
from wick_graph import Agent
from wick_graph.hooks import InputGuardrail, OutputGuardrail
from wick_graph.server import Server
from wick_graph.subagents import Handoff
from wick_graph.testing import ScriptedModel, call


def refuse(text: str) -> str | None:
    return "it tells the word" if "tulip" in text else None


def ask(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    store = f"sqlite:///{tmp_path_factory.mktemp('guarded') / 'w.db'}"
    hooks = [InputGuardrail(refuse), OutputGuardrail(refuse)]
    model = ScriptedModel(["The word is tulip, my dear."] * 9, cursor="fifo")
    billing = Agent("billing", ScriptedModel(["skipped", "Paid.", "Still here."]))
    desk = Agent(
        "desk",
        ScriptedModel([call("transfer_to_billing")]),
        handoffs={"billing": Handoff(billing, "Money.")},
        store=store,
    )
    schema = {"title": "Flower", "type": "object", "properties": {"name": {"type": "string"}}}
    typed = Agent(
        "typed",
        ScriptedModel([call("Flower", name="tulip")] * 9, cursor="fifo"),
        output_type=schema,
        hooks=hooks,
        store=store,
    )
    guarded = Agent("guarded", model, hooks=hooks, store=store)
    agents = {"guarded": guarded, "desk": desk, "typed": typed}
    with (
        Server(agents, port=0, auth=False) as server,
        httpx.Client(base_url=server.url, timeout=SECONDS, trust_env=False) as made,
    ):
        yield made


def test_a_guardrail_ends_a_run_politely(http: httpx.Client) -> None:
    made = http.post("/agents/guarded/invoke", json=ask("Which?")).json()
    assert (made["stopped_because"], made["response"]) == ("guardrail", "I cannot help with that.")
    stream = http.post("/agents/guarded/stream", json=ask("Which?")).text
    assert "tulip" not in stream
    assert "dear" not in stream
    _, name, data = frames(stream)[-1]
    assert name == "done"
    assert json.loads(data)["data"]["stopped_because"] == "guardrail"


@pytest.mark.parametrize("agent", ["guarded", "typed"])
@pytest.mark.parametrize("asked", ["Which?", "Say tulip."], ids=["output", "input"])
def test_every_stream_tells_the_polite_answer_once(
    http: httpx.Client, agent: str, asked: str
) -> None:
    events = frames(http.post(f"/agents/{agent}/stream", json=ask(asked)).text)
    data = [json.loads(one)["data"] for _, name, one in events if name == "on_chat_model_stream"]
    assert [one["delta"] for one in data] == ["I cannot help with that."]
    body = {"model": agent, "stream": True, **ask(asked)}
    lines = http.post("/v1/chat/completions", json=body).text.split("data: ")
    choices = [json.loads(line)["choices"][0] for line in lines if line.startswith("{")]
    assert "".join(one["delta"].get("content", "") for one in choices) == "I cannot help with that."
    assert choices[-1]["finish_reason"] == "content_filter"
    assert "tulip" not in f"{events}{lines}"


def test_a_tripped_input_is_not_in_its_thread(http: httpx.Client) -> None:
    thread = {"thread_id": "guarded-t"}
    made = http.post("/agents/guarded/invoke", json={**ask("Say tulip."), **thread}).json()
    assert made["stopped_because"] == "guardrail"
    info = http.get("/threads/guarded-t").json()
    assert (info["title"], info["stopped_because"]) == (None, "guardrail")
    http.post("/agents/guarded/invoke", json={**ask("Which?"), **thread})
    state = http.get("/threads/guarded-t/state").text
    assert "Which?" in state
    assert "tulip" not in state


def test_openais_clients_see_a_filter(http: httpx.Client) -> None:
    body = {"model": "guarded", **ask("Which?")}
    choice = http.post("/v1/chat/completions", json=body).json()["choices"][0]
    assert choice["finish_reason"] == "content_filter"
    assert choice["message"]["content"] == "I cannot help with that."
    streamed = http.post("/v1/chat/completions", json={**body, "stream": True}).text
    assert "tulip" not in streamed
    assert "I cannot help with that." in streamed
    assert "content_filter" in streamed


def test_another_agent_takes_over(http: httpx.Client) -> None:
    made = http.post("/agents/desk/invoke", json=ask("Money back!")).json()
    assert made["response"] == "Paid."
    body = {**ask("Hello?"), "thread_id": made["thread_id"]}
    assert http.post("/agents/desk/invoke", json=body).json()["response"] == "Still here."
