"""Arguments of the wrong kind: one sentence that says what is wrong, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from tests.engine.support import Door, add, agent_of
from wick_graph import Agent, BaseHook, Verdict
from wick_graph.errors import ConfigError, HookError, ModelError
from wick_graph.testing import ScriptedModel, call


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("name", [5, None, ""]),
        ("system_prompt", [5, None, ["x"]]),
        ("tools", [None, 5, "calculate"]),
        ("hooks", [None, 5, "x", BaseHook(), [5], [BaseHook]]),
        ("max_iterations", [True, 0, -1, 2.0, "5", None]),
        ("tool_timeout", [True, 0, -1, "5", float("nan"), float("inf"), []]),
        ("ttl", ["soon", -1, True, float("nan"), [], b"1h", "-3m", 1e400]),
        ("store", [5, True, []]),
        ("journal", [5, "much", None]),
        ("model", [5, None, ScriptedModel]),
    ],
)
def test_an_agent_refuses_what_cannot_work(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ConfigError) as raised:
            Agent(**{"model": ScriptedModel([]), "store": False, name: value})
        said = str(raised.value)
        assert name.rstrip("s") in said
        assert "\n" not in said
        assert len(said) < 300


@pytest.mark.parametrize("config", [5, "thread", [1], {"configurable": 5}])
def test_a_config_that_is_none_is_refused(door: Door, config: Any) -> None:
    agent, _ = agent_of("never")
    with pytest.raises(ConfigError, match="config is a dictionary"):
        door(agent, "?", config=config)


@pytest.mark.parametrize(
    "fields",
    [{"answers": {"c": 5}}, {"answers": {5: "x"}}, {"answers": 5}, {"because": "bored"}],
)
def test_a_verdict_that_is_none_names_its_hook(door: Door, fields: Any) -> None:
    class Judges(BaseHook):
        name = "judges"

        def after_model(self, message: Any, ctx: Any) -> Any:
            return Verdict(**fields)

    agent, _ = agent_of(call("add", a=1, b=2), "never", hooks=[Judges()])
    with pytest.raises(HookError, match=r"^hook judges AfterModel: a verdict's "):
        door(agent, "?")


CHANGES: dict[str, Any] = {
    "with_messages, a number": lambda r: r.with_messages([1]),
    "with_messages, none": lambda r: r.with_messages(None),
    "with_messages, a text": lambda r: r.with_messages("abc"),
    "append": lambda r: r.append("x"),
    "replace": lambda r: r.replace(r.messages[0], "x"),
    "drop": lambda r: r.drop(5),
    "append_system": lambda r: r.append_system(None),
    "replace_system": lambda r: r.replace_system(5),
    "with_tools, a name": lambda r: r.with_tools("add"),
    "with_tools, a number": lambda r: r.with_tools(5),
    "with_settings": lambda r: r.with_settings(response_format=object()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_that_no_request_can_have_names_its_hook(door: Door, change: Any) -> None:
    class Changes(BaseHook):
        name = "changes"

        def modify_request(self, request: Any, ctx: Any) -> Any:
            return change(request)

    agent, model = agent_of("never", hooks=[Changes()])
    with pytest.raises(HookError, match=r"^hook changes ModifyRequest: ") as raised:
        door(agent, "?")
    assert "object has no" not in str(raised.value)
    assert not model.calls


def test_a_setting_of_any_kind_may_be_laid_over_the_call_itself(door: Door) -> None:
    class Sets(BaseHook):
        name = "sets"

        def wrap_model_call(self, request: Any, next: Any) -> Any:
            return next(request.with_settings(marker=object))

    agent, model = agent_of("ok", hooks=[Sets()])
    assert door(agent, "?").text == "ok"
    assert model.calls[0].settings["marker"] is object


class Echoes(BaseChatModel):
    """Answer with a message of the wrong class."""

    @property
    def _llm_type(self) -> str:
        return "echoes"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=HumanMessage("hello"))])


def test_a_model_that_answers_with_a_human_message_is_told_so(door: Door) -> None:
    agent = Agent(model=Echoes(), tools=[])
    with pytest.raises(ModelError, match="LLM call: .* gave a HumanMessage, not an AIMessage"):
        door(agent, "?", thread_id="t")
    assert [
        m.type
        for m in agent.graph.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
    ] == ["human", "chat"]  # the second is the record of the failure


def test_a_tool_is_one_object_of_many_kinds(door: Door) -> None:
    """What is refused above must not refuse what works: tuples and generators of tools do."""
    agent = Agent(model=ScriptedModel(["ok"]), tools=(t for t in [add]), hooks=())  # type: ignore[call-overload]  # an iterable will do
    assert door(agent, "?").text == "ok"
