"""What runs cost, and budgets that stop politely."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import genai_prices
import pytest
from langchain_core.messages import AIMessage
from langgraph.types import interrupt

from tests.engine.support import Door, add, wild
from wick_graph import Agent, BaseHook
from wick_graph.core.usage import Cost, Usage, cost_in, cost_of, cost_of_messages, published_price
from wick_graph.errors import ConfigError
from wick_graph.hooks.budget import Budget, BudgetHook
from wick_graph.hooks.summarization import SummarizationHook
from wick_graph.testing import Lane, ScriptedModel, When, calls, text


def price(usage: Usage, model: str, provider: str | None) -> Decimal | None:
    """Ten cents for a thousand tokens."""
    return Decimal(usage.total_tokens) / 10_000


def unknown(usage: Usage, model: str, provider: str | None) -> Decimal | None:
    return None


def step(total: int) -> Any:
    return calls(("add", {"a": 1, "b": 2}), usage=(total, 0))


def agent_of(budget: Budget | None, *steps: Any, prices: Any = price, **options: Any) -> Agent:
    hooks = [BudgetHook(budget, prices=prices)]
    options.setdefault("tools", [add])
    return Agent(model=ScriptedModel(list(steps)), hooks=hooks, **options)


def costs(agent: Agent, thread: str = "t") -> tuple[Cost, Cost]:
    """Return what the thread and its last run have cost."""
    state = agent.graph.get_state({"configurable": {"thread_id": thread}}).values["cost"]
    return Cost.of(state), Cost.of(state, "run_")


def test_cost_is_counted_per_call_run_and_thread(door: Door) -> None:
    agent = agent_of(None, step(1_000), text("one", usage=(2_000, 0)), text("two", usage=(500, 0)))
    result = door(agent, "?", thread_id="t")
    replies = [m for m in result.messages if isinstance(m, AIMessage)]
    assert [cost_in(m) for m in replies] == [Cost(100_000_000), Cost(200_000_000)]
    assert costs(agent) == (Cost(300_000_000), Cost(300_000_000))
    again = door(agent, "?", thread_id="t")
    assert (again.thread_cost, again.cost) == costs(agent) == (Cost(350_000_000), Cost(50_000_000))
    assert again.to_dict()["cost"] == {"nano_usd": 50_000_000, "unpriced": 0}
    assert costs(agent)[0].usd == Decimal("0.35")


@pytest.mark.parametrize(
    ("budget", "sentence"),
    [
        pytest.param(Budget(usd=0.15), "Stopped: the budget of $0.15 for this run", id="usd"),
        pytest.param(Budget(tokens=1_100), "Stopped: the budget of 1100 tokens for", id="tokens"),
        pytest.param(Budget(usd=Decimal("0.2")), "the budget of $0.20 for this run", id="reached"),
    ],
)
def test_a_spent_budget_ends_the_run_politely(door: Door, budget: Budget, sentence: str) -> None:
    agent = agent_of(budget, step(1_000), step(1_000), "never")
    result = door(agent, "?", thread_id="t")
    assert result.stopped_because == "limit"
    assert sentence in result.text
    assert [m.type for m in result.messages] == ["human", "ai", "tool", "ai", "tool", "ai"]
    assert result.usage.calls == 2
    assert agent.threads.get("t").stopped_because == "limit"


def test_a_budget_that_suffices_is_not_seen(door: Door) -> None:
    agent = agent_of(Budget(usd=0.3001), step(1_000), step(1_000), text("ok", usage=(1_000, 0)))
    result = door(agent, "?")
    assert (result.text, result.stopped_because) == ("ok", "done")


@pytest.mark.parametrize(("per", "second"), [("run", "done"), ("thread", "limit")])
def test_the_next_run_has_its_own_budget_or_the_threads(door: Door, per: Any, second: str) -> None:
    agent = agent_of(
        Budget(usd=0.1, per=per), text("one", usage=(1_000, 0)), text("two", usage=(1, 0))
    )
    assert door(agent, "?", thread_id="t").stopped_because == "done"
    assert door(agent, "?", thread_id="t").stopped_because == second
    assert door(agent, "?", thread_id="other").stopped_because == "done"


def test_what_a_run_has_spent_survives_a_resume_in_another_process(
    door: Door, tmp_path: Path
) -> None:
    def ask() -> str:
        """Ask."""
        return str(interrupt("?"))

    script = [calls(("ask", {}), usage=(1_000, 0)), "never"]
    store = f"sqlite:///{tmp_path}/t.db"
    with agent_of(Budget(usd=0.1), *script, tools=[ask], store=store) as agent:
        assert door(agent, "?", thread_id="t").stopped_because == "interrupted"
    with agent_of(Budget(usd=0.1), *script, tools=[ask], store=store) as agent:
        result = agent.resume("t", "yes")
    assert result.stopped_because == "limit"
    assert "budget of $0.10" in result.text


def test_without_a_price_a_budget_in_dollars_stops_and_says_why(door: Door) -> None:
    agent = agent_of(Budget(usd=5.0), step(10), "never", prices=unknown)
    result = door(agent, "?")
    assert result.stopped_because == "limit"
    assert "no price is known for this model" in result.text
    assert "in tokens" in result.text


def test_without_a_price_a_budget_in_tokens_works(door: Door) -> None:
    agent = agent_of(Budget(tokens=100), step(10), "ok", prices=unknown)
    assert door(agent, "?", thread_id="t").text == "ok"
    assert costs(agent)[0] == Cost(0, 2)


def test_a_reply_without_counts_is_estimated_and_never_free(door: Door) -> None:
    class Uncounted(ScriptedModel):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            result = super()._generate(*args, **kwargs)
            message: Any = result.generations[0].message
            message.usage_metadata = None
            return result

        async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
            return self._generate(*args, **kwargs)

    script: Any = [wild("add", a=1, b=2), "never"]
    model: Any = Uncounted(script)  # type: ignore[call-arg]  # pydantic hides the constructor
    hook = BudgetHook(Budget(tokens=1_000), prices=price)
    agent = Agent(model=model, tools=[add], hooks=[hook])
    result = door(agent, "x" * 4_000, thread_id="t")
    assert result.stopped_because == "limit"
    assert costs(agent)[0].unpriced == 1


def test_the_calls_of_other_hooks_cost_too(door: Door) -> None:
    lanes = [
        Lane("s", [text("SHORT", usage=(100, 0))] * 2, when=When(purpose="summarize")),
        Lane("m", [text("ok", usage=(10, 0))], when=When(purpose="agent"), cursor="fifo"),
    ]
    hooks = [SummarizationHook(200), BudgetHook(prices=price)]
    agent = Agent(model=ScriptedModel(lanes=lanes), hooks=hooks)
    config: Any = {"configurable": {"thread_id": "t"}}
    history = [AIMessage("y" * 400, id="1"), AIMessage("y" * 400, id="2"), AIMessage("z", id="3")]
    agent.graph.update_state(config, {"messages": history}, as_node="model")
    assert door(agent, "And?", thread_id="t").text == "ok"
    assert costs(agent)[0] == Cost(21_000_000)


def test_prices_are_the_published_ones() -> None:
    usage = Usage(input_tokens=2_000_000, output_tokens=1_000_000, cache_read=1_000_000)
    found: Any = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=2_000_000, output_tokens=1_000_000, cache_read_tokens=1_000_000
        ),
        "gpt-5-mini",
        provider_id="openai",
    )
    price = found.model_price
    assert published_price(usage, "gpt-5-mini", "openai") == (
        price.input_mtok + price.cache_read_mtok + price.output_mtok
    )
    assert published_price(usage, "no-such-model", "openai") is None
    assert published_price(usage, "whatever", "no-such-provider") is None
    assert published_price(usage, "llama3.1:8b", "ollama") == 0


def test_the_cost_of_messages_is_added_up() -> None:
    def reply(model: str, **more: Any) -> AIMessage:
        usage: Any = {"input_tokens": 1_000, "output_tokens": 0, "total_tokens": 1_000}
        metadata = {"model_name": model, "model_provider": "openai", **more}
        return AIMessage("x", usage_metadata=usage, response_metadata=metadata)

    one = cost_of(reply("gpt-5-mini"))
    assert one.nano_usd > 0
    chain = [reply("gpt-5-mini"), reply("nobody"), AIMessage("by hand"), reply("gpt-5-mini")]
    assert cost_of_messages(chain) == one + one + Cost(unpriced=1)


@pytest.mark.parametrize("wrong", [{"usd": 0}, {"tokens": 0}, {"usd": -1}])
def test_a_budget_of_nothing_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="more than zero"):
        Budget(**wrong)


def test_without_the_extra_a_budget_in_dollars_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(ConfigError, match=r'pip install "wick-graph\[cost\]"'):
        BudgetHook(Budget(usd=1))
    BudgetHook(Budget(tokens=1))


@pytest.mark.parametrize("per", ["run", "thread"])
def test_a_budget_that_is_exactly_used_up_is_used_up(per: Any) -> None:
    prefix = "run_" if per == "run" else ""
    tokens, dollars = Budget(tokens=10, per=per), Budget(usd=1, per=per)
    for used, ends in ((9, False), (10, True), (11, True)):
        assert bool(tokens.spent_up({"cost": {f"{prefix}tokens": used}})) is ends
    for nano, ends in ((999_999_999, False), (1_000_000_000, True)):
        assert bool(dollars.spent_up({"cost": {f"{prefix}nano_usd": nano}})) is ends


class AsksAgain(BaseHook):
    """Calls the model until it says more than no."""

    name = "again"

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        reply = next(request)
        while reply.text == "no":
            reply = next(request)
        return reply


def test_a_hook_that_asks_again_does_not_get_beyond_the_budget(door: Door) -> None:
    model = ScriptedModel([text("no", usage=(60, 0)) for _ in range(3)], cursor="fifo")
    budget = BudgetHook(Budget(tokens=100), prices=price)
    result = door(Agent(model=model, hooks=[AsksAgain(), budget]), "?", thread_id="t")
    assert len(model.calls) == 2
    assert result.stopped_because == "limit"
    assert result.text == "Stopped: the budget of 100 tokens for this run is used up."
