"""The whole loop over real HTTP: an OpenAI-compatible server on loopback, LangChain's client."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from tests.support import forked
from tests.support.provider import Call, Provider, Reply
from wick_graph import Agent, events
from wick_graph.errors import ModelError

REPO = Path(__file__).parents[2]


def add(a: float, b: float) -> str:
    """Add two numbers."""
    return f"{a + b:g}"


def spec(provider: Provider, **more: Any) -> dict[str, Any]:
    return {"model": "test-model", "base_url": provider.url, "api_key": "k", **more}


def turn(n: int) -> list[Reply]:
    asked = [
        Call(name="add", args={"a": n, "b": 1}, id=f"c{n}"),
        Call(name="add", args={"a": n, "b": 2}, id=f"d{n}"),
    ]
    return [Reply(calls=asked), Reply(text=f"answer {n}")]


def test_both_doors_mixed_twice_each_with_one_client(provider: Provider) -> None:
    """A client remembers the loop it was first used in; a loop per call would break it."""
    for n in range(6):
        provider.say(*turn(n))
    model = ChatOpenAI(base_url=provider.url, api_key="k", model="m", max_retries=0)  # type: ignore[arg-type]  # a SecretStr or a text
    with Agent(model=model, tools=[add]) as agent:
        texts = []
        for _ in range(2):
            texts.append(agent.invoke("a").text)

            async def inside() -> list[str]:
                return [(await agent.ainvoke("b")).text, agent.invoke("c").text]

            texts += asyncio.run(inside())
    assert texts == [f"answer {n}" for n in range(6)]
    provider.assert_complete()


@pytest.mark.parametrize("door", ["stream", "astream"])
def test_interleaved_parallel_calls_come_out_right_in_a_stream(
    provider: Provider, door: str
) -> None:
    provider.say(*turn(5))
    with Agent(model=spec(provider), tools=[add]) as agent:
        seen = asyncio.run(_collect(agent)) if door == "astream" else list(agent.stream("?"))
    done = seen[-1]
    assert isinstance(done, events.Done)
    assert [m.text for m in done.result.messages] == ["?", "", "6", "7", "answer 5"]
    deltas = [e.delta for e in seen if isinstance(e, events.ChatModelStream)]
    assert len(deltas) > 1
    assert "".join(deltas) == "answer 5"
    assert done.result.usage.total_tokens == 36
    first, second = provider.bodies
    assert first["stream"] is True
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "tool", "tool"]
    assert [t["function"]["name"] for t in first["tools"]] == ["add"]


async def _collect(agent: Agent) -> list[events.Event]:
    return [event async for event in agent.astream("?")]


def test_a_rate_limit_is_waited_out_and_told(provider: Provider) -> None:
    provider.say(Reply(status=429, headers={"retry-after": "0"}), "fine")
    with Agent(model=spec(provider)) as agent:
        seen = list(agent.stream("?"))
    assert [type(e).__name__ for e in seen].count("ChatModelRetry") == 1
    assert seen[-1].result.text == "fine"  # type: ignore[union-attr]  # the last event is Done
    assert len(provider.bodies) == 2


def test_a_cut_stream_is_tried_again_and_leaves_nothing_behind(provider: Provider) -> None:
    provider.say(Reply(text="half an answer, and then", cut_after=600), "the whole answer")
    with Agent(model=spec(provider)) as agent:
        *_, done = agent.stream("?")
    assert [m.text for m in done.result.messages] == ["?", "the whole answer"]  # type: ignore[union-attr]  # the last event is Done


def test_a_fallback_answers_when_the_first_model_has_failed_for_good(provider: Provider) -> None:
    provider.say(Reply(status=401), "from the second")
    chain = spec(provider, fallbacks=[spec(provider, model="second")])
    with Agent(model=chain) as agent:
        result = agent.invoke("?")
    assert (result.text, result.model) == ("from the second", "openai:second")


def test_a_refused_key_fails_the_run_with_one_sentence_and_the_thread_lives(
    provider: Provider,
) -> None:
    provider.say(Reply(status=401, error="bad key"), "better")
    with Agent(model=spec(provider)) as agent:
        with pytest.raises(ModelError, match="^LLM call: .*bad key"):
            agent.invoke("a", thread_id="t")
        assert agent.invoke("b", thread_id="t").text == "better"


def test_malformed_arguments_are_answered_and_the_model_tries_again(provider: Provider) -> None:
    broken = Call(name="add", args='{"a": 1, "b": ', id="c1")
    provider.say(Reply(calls=[broken]), "sorry")
    with Agent(model=spec(provider), tools=[add]) as agent:
        result = agent.invoke("?")
    assert result.text == "sorry"
    assert result.messages[2].text.startswith("Error: invalid JSON arguments")


@pytest.mark.slow
def test_the_ten_lines_of_the_readme_go_on_in_a_second_process(
    provider: Provider, tmp_path: Path
) -> None:
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    [script] = [b for b in re.findall(r"```python\n(.*?)```", readme, re.S) if "sys.argv[1]" in b]
    code = [line for line in script.splitlines() if line.strip() and not line.startswith("#")]
    assert len(code) <= 11
    (tmp_path / "chat.py").write_text(script, encoding="utf-8")
    asked = Call(name="word_count", args={"text": "one two three"}, id="c1")
    provider.say(Reply(calls=[asked]), "Three words.", "You asked me to count words.")
    env = {
        **os.environ,
        "OPENAI_API_KEY": "k",
        "OPENAI_BASE_URL": provider.url,
        "PYTHONPATH": str(REPO),
    }
    said = []
    for question in ("How many words has 'one two three'?", "What did I ask?"):
        command = [sys.executable, "chat.py", question]
        done = forked.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.strip())
    assert said == ["Three words.", "You asked me to count words."]
    texts = [m["content"] for m in provider.bodies[-1]["messages"]]
    assert texts[2:4] == ["3", "Three words."]
    assert texts[-1] == "What did I ask?"


@pytest.mark.local_llm
def test_a_real_small_model_runs_a_two_step_tool_loop() -> None:
    """Assert the protocol, not the prose: which events come, and that calls are answered."""
    url, name = os.environ.get("WICK_TEST_BASE_URL"), os.environ.get("WICK_TEST_MODEL")
    assert url, "set WICK_TEST_BASE_URL and WICK_TEST_MODEL to a running OpenAI-compatible server"
    assert name, "set WICK_TEST_MODEL to a model that the server has"
    model = {"model": name, "base_url": url, "api_key": "none", "temperature": 0}
    prompt = "Use the tool add for every sum. Then answer in one sentence."
    with Agent(model=model, tools=[add], system_prompt=prompt) as agent:
        seen = list(agent.stream("What is 17 + 25? Call add."))
        done = seen[-1]
        assert isinstance(done, events.Done), seen[-1]
        kinds = [type(e).__name__ for e in seen]
        assert kinds.index("ToolStart") < kinds.index("ToolEnd")
        assert "ChatModelStream" in kinds
        asked = [c for c in done.result.tool_calls if c["name"] == "add"]
        assert asked
        assert all("error" not in c for c in asked)
        assert done.result.usage.calls >= 2
