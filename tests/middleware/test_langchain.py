"""LangChain's own middleware, as it is installed, inside of the loop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NotRequired

import pytest
from deepagents.backends import FilesystemBackend
from deepagents.middleware import MemoryMiddleware
from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    PIIMiddleware,
    ShellToolMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
    hook_config,
)
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.types import Command

from tests.engine.support import Door, add, async_door, roles, sync_door, wild
from wick_graph import Agent, BaseHook, load
from wick_graph.errors import ConfigError, WickError
from wick_graph.middleware import MiddlewareHook
from wick_graph.testing import ScriptedModel, calls, error

DOORS = pytest.mark.parametrize("door", [sync_door, async_door])


def agent_of(middleware: Any, *steps: Any, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(list(steps), cursor="fifo")
    listed = middleware if isinstance(middleware, list) else [middleware]
    hooks = [m if isinstance(m, BaseHook) else MiddlewareHook(m) for m in listed]
    options.setdefault("tools", [add])
    return Agent("it", model, hooks=hooks, **options), model


def seen(model: ScriptedModel, at: int) -> list[str]:
    return [message.text for message in model.calls[at].messages]


# --- the installed ones --------------------------------------------------------------------------


@DOORS
def test_pii_is_redacted_in_the_thread(door: Door) -> None:
    agent, model = agent_of(PIIMiddleware("email"), "Hello.", "Again.")
    result = door(agent, "I am ada@example.com")
    assert seen(model, 0) == ["I am [REDACTED_EMAIL]"]
    assert [m.text for m in result.messages] == ["I am [REDACTED_EMAIL]", "Hello."]
    door(agent, "Who am I?", thread_id=result.thread_id)
    assert seen(model, 1)[0] == "I am [REDACTED_EMAIL]"


@DOORS
def test_pii_is_redacted_in_the_results_of_tools(door: Door) -> None:
    def whoami() -> str:
        """Say who the user is."""
        return "ada@example.com"

    guard = PIIMiddleware("email", strategy="mask", apply_to_tool_results=True)
    agent, model = agent_of(guard, wild("whoami"), "Done.", tools=[whoami])
    result = door(agent, "Who am I?")
    assert seen(model, 1)[-1] == "ada@****.com"
    assert result.messages[2].text == "ada@****.com"


def test_pii_that_is_blocked_ends_the_run_with_its_reason() -> None:
    agent, model = agent_of(PIIMiddleware("email", strategy="block"))
    with pytest.raises(WickError, match=r"hook PIIMiddleware\[email\] ModifyRequest"):
        agent.invoke("I am ada@example.com")
    assert not model.calls


@DOORS
def test_old_tool_results_are_cleared_for_the_model_alone(door: Door) -> None:
    edits = [ClearToolUsesEdit(trigger=20, keep=1)]
    steps = [wild("add", a=1, b=n) for n in range(3)]
    agent, model = agent_of(ContextEditingMiddleware(edits=edits), *steps, "Done.")
    result = door(agent, "Add things up, one after the other, please, and tell me all about it")
    assert seen(model, 3)[2::2] == ["[cleared]", "[cleared]", "3"]
    assert [m.text for m in result.messages if m.type == "tool"] == ["1", "2", "3"]


@DOORS
def test_calls_above_a_limit_are_answered_and_not_run(door: Door) -> None:
    ran: list[float] = []

    def note(n: float) -> str:
        """Note a number."""
        ran.append(n)
        return "noted"

    limit = ToolCallLimitMiddleware(run_limit=2)
    three = calls(*[("note", {"n": n}) for n in range(3)], unchecked=True)
    agent, model = agent_of(limit, three, "Done.", wild("note", n=9), "Ok.", tools=[note])
    result = door(agent, "Note three")
    assert sorted(ran) == [0, 1]
    answers = [m for m in result.messages if isinstance(m, ToolMessage)]
    assert [m.status for m in answers] == ["success", "success", "error"]
    assert "limit" in answers[2].text
    door(agent, "Note one more", thread_id=result.thread_id)
    assert ran[-1] == 9, "a run's limit begins anew with each input"


@DOORS
def test_a_limit_of_a_thread_is_kept_in_the_store(door: Door, tmp_path: Path) -> None:
    limit = ToolCallLimitMiddleware(thread_limit=1, exit_behavior="end")
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    first, _ = agent_of(limit, wild("add", a=1, b=1), "2.", store=url)
    with first:
        thread = door(first, "1+1?").thread_id
    other, model = agent_of(limit, wild("add", a=2, b=2), store=url)
    with other:
        result = door(other, "2+2?", thread_id=thread)
        state = other.graph.get_state({"configurable": {"thread_id": thread}}).values
    assert result.stopped_because == "limit"
    assert roles(result.messages)[-3:] == ["ai", "tool", "ai"]
    assert "limit" in result.text
    assert len(model.calls) == 1
    assert state["middleware"]["thread_tool_call_count"] == {"__all__": 1}


@DOORS
def test_a_limit_of_model_calls_ends_the_run_before_the_model(door: Door) -> None:
    limit = ModelCallLimitMiddleware(run_limit=1)
    agent, model = agent_of(limit, wild("add", a=1, b=1), "Three.")
    result = door(agent, "1+1?")
    assert "limits exceeded" in result.text
    assert result.stopped_because == "limit"
    assert len(model.calls) == 1
    again = door(agent, "And?", thread_id=result.thread_id)
    assert again.text == "Three."


@DOORS
def test_a_model_chooses_the_tools_that_are_offered(door: Door) -> None:
    def multiply(a: float, b: float) -> str:
        """Multiply two numbers."""
        return f"{a * b:g}"

    chosen = calls(("ToolSelectionResponse", {"tools": ["add"]}), unchecked=True)
    chooser = ScriptedModel([chosen, chosen], cursor="fifo")
    selector = LLMToolSelectorMiddleware(model=chooser, max_tools=1)
    agent, model = agent_of(selector, wild("add", a=1, b=2), "3.", tools=[multiply, add])
    assert door(agent, "1+2?").text == "3."
    assert [call.tool_names for call in model.calls] == [("add",), ("add",)]


@DOORS
def test_another_model_answers_when_the_first_fails(door: Door) -> None:
    spare = ScriptedModel(["From the spare."])
    fallback = ModelFallbackMiddleware(spare)
    agent, model = agent_of(fallback, error(ValueError("bad request")))
    result = door(agent, "Hello?")
    assert result.text == "From the spare."
    assert len(model.calls) == len(spare.calls) == 1


@DOORS
def test_a_history_is_summarised_in_the_thread(door: Door) -> None:
    writer = ScriptedModel(["They greeted."])
    shorten = SummarizationMiddleware(model=writer, trigger=("messages", 3), keep=("messages", 1))
    agent, model = agent_of(shorten, "One.", "Two.", "Three.")
    thread = door(agent, "A").thread_id
    result = door(agent, "B", thread_id=thread)
    assert "They greeted." in seen(model, 1)[0]
    assert seen(model, 1)[1:] == ["B"]
    assert roles(result.messages) == ["human", "human", "ai"]
    assert door(agent, "C", thread_id=thread).text == "Three."


@DOORS
def test_a_middlewares_own_tools_and_fields(door: Door) -> None:
    todo = {"content": "Write", "status": "in_progress"}
    agent, model = agent_of(TodoListMiddleware(), wild("write_todos", todos=[todo]), "Noted.")
    result = door(agent, "Plan")
    state = agent.graph.get_state({"configurable": {"thread_id": result.thread_id}}).values
    assert state["middleware"]["todos"] == [todo]
    assert state["todos"] == [], "a field is no channel of the engine's own"
    assert "write_todos" in model.calls[0].system
    assert model.calls[0].tool_names == ("add", "write_todos")


def _into_the_old(old: Any, new: Any) -> Any:
    old.extend(new)
    return old


class Logged(AgentState[Any]):
    log: Annotated[NotRequired[list[str]], _into_the_old]


class Logging(AgentMiddleware[Any, Any, Any]):
    state_schema = Logged

    def __init__(self) -> None:
        self.written = [["b"], ["a"]]

    def before_model(self, state: Any, runtime: Any) -> Any:
        return {"log": self.written[0]}

    def after_model(self, state: Any, runtime: Any) -> Any:
        return {"log": self.written[1]}


@DOORS
def test_a_reducer_that_changes_the_old_value_in_place_is_applied_once(
    door: Door, tmp_path: Path
) -> None:
    store, config = f"sqlite:///{tmp_path}/t.db", {"configurable": {"thread_id": "t"}}
    for turn in (1, 2):
        made = Logging()
        with Agent(
            "a", ScriptedModel(["x"] * turn), hooks=[MiddlewareHook(made)], store=store
        ) as agent:
            door(agent, "go", thread_id="t")
            state = agent.graph.get_state(config)  # type: ignore[arg-type]  # a dict is one
            assert state.values["middleware"]["log"] == ["b", "a"] * turn
        assert made.written == [["b"], ["a"]]


@DOORS
def test_a_tool_is_tried_again(door: Door) -> None:
    tries: list[int] = []

    @tool
    def shaky() -> str:
        """Fail once."""
        tries.append(1)
        return "ok"

    class Once(ToolRetryMiddleware):
        """Retry on what a tool answers; tools never raise through the engine."""

    agent, _ = agent_of(Once(max_retries=1), wild("shaky"), "Done.", tools=[shaky])
    assert door(agent, "Go").tool_calls[0]["output"] == "ok"
    assert len(tries) == 1


@DOORS
def test_memory_files_of_deepagents_are_shown_to_the_model(door: Door, tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Always answer in Latin.", encoding="utf-8")
    backend = FilesystemBackend(root_dir=tmp_path, virtual_mode=True)
    memory = MemoryMiddleware(backend=backend, sources=["/AGENTS.md"])
    agent, model = agent_of(memory, "Salve.", system_prompt="Be kind.")
    door(agent, "Hello")
    assert model.calls[0].system.startswith("Be kind.\n\n")
    assert "Always answer in Latin." in model.calls[0].system


@DOORS
def test_dangling_calls_are_patched_by_deepagents_or_by_us(door: Door) -> None:
    agent, _ = agent_of(PatchToolCallsMiddleware(), "One.", "Fine.")
    thread = door(agent, "Hello").thread_id
    asked = AIMessage("", tool_calls=[{"name": "add", "args": {"a": 1, "b": 2}, "id": "c1"}])
    agent.graph.update_state({"configurable": {"thread_id": thread}}, {"messages": [asked]})
    result = door(agent, "Well?", thread_id=thread)
    assert roles(result.messages) == ["human", "ai", "ai", "tool", "human", "ai"]


# --- what the adapter promises -------------------------------------------------------------------


class CountState(AgentState[Any]):
    notes: NotRequired[Annotated[list[str], lambda old, new: [*old, *new]]]
    last: NotRequired[str]


@tool
def jot(text: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Jot something down."""
    return Command(update={"notes": [text], "messages": [ToolMessage("ok", tool_call_id=call_id)]})


class Notes(AgentMiddleware[CountState, Any, Any]):
    state_schema = CountState
    tools = [jot]  # noqa: RUF012  # as LangChain's own classes declare it

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        self.log.append("before_agent")
        return {"notes": ["opened"]}

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        self.log.append(f"before_model {state['notes']}")
        return {"last": str(len(state["messages"]))}

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self.log.append(f"wrap_model_call {request.state['last']}")
        return handler(request)

    def after_model(self, state: Any, runtime: Any) -> None:
        self.log.append(f"after_model {state['messages'][-1].type}")

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.log.append(f"wrap_tool_call {request.tool_call['name']} {request.state['notes']}")
        return handler(request)


class AsyncNotes(Notes):
    """The same, as `async def` alone."""

    before_agent = AgentMiddleware.before_agent  # type: ignore[assignment]  # not overridden
    before_model = AgentMiddleware.before_model  # type: ignore[assignment]  # not overridden
    wrap_model_call = AgentMiddleware.wrap_model_call
    after_model = AgentMiddleware.after_model  # type: ignore[assignment]  # not overridden
    wrap_tool_call = AgentMiddleware.wrap_tool_call

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return Notes.before_agent(self, state, runtime)

    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        return Notes.before_model(self, state, runtime)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        self.log.append(f"wrap_model_call {request.state['last']}")
        return await handler(request)

    async def aafter_model(self, state: Any, runtime: Any) -> None:
        Notes.after_model(self, state, runtime)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.log.append(f"wrap_tool_call {request.tool_call['name']} {request.state['notes']}")
        return await handler(request)


@DOORS
@pytest.mark.parametrize("kind", [Notes, AsyncNotes])
def test_each_method_runs_in_its_place(door: Door, kind: type[Notes]) -> None:
    log: list[str] = []
    two = calls(("jot", {"text": "x"}), ("jot", {"text": "y"}), unchecked=True)
    agent, _ = agent_of(kind(log), two, "Done.")
    result = door(agent, "Go")
    assert sorted(log[:6], key=log.index) == log[:6]
    assert log == [
        "before_agent",
        "before_model ['opened']",
        "wrap_model_call 1",
        "after_model ai",
        "wrap_tool_call jot ['opened']",
        "wrap_tool_call jot ['opened']",
        "before_model ['opened', 'x', 'y']",
        "wrap_model_call 4",
        "after_model ai",
    ]
    state = agent.graph.get_state({"configurable": {"thread_id": result.thread_id}}).values
    assert state["middleware"] == {"notes": ["opened", "x", "y"], "last": "4"}


def test_a_thread_goes_on_under_other_hooks_and_keeps_what_they_do_not_know(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    with agent_of(Notes([]), "One.", store=url)[0] as first:
        thread = first.invoke("Go").thread_id
        steps = len(list(first.graph.get_state_history({"configurable": {"thread_id": thread}})))
    with agent_of([], "Two.", store=url)[0] as bare:
        assert bare.invoke("On", thread_id=thread).text == "Two."
        config: Any = {"configurable": {"thread_id": thread}}
        assert bare.graph.get_state(config).values["middleware"]["notes"] == ["opened"]
        assert len(list(bare.graph.get_state_history(config))) == 2 * steps
    log: list[str] = []
    with agent_of(Notes(log), "Three.", store=url)[0] as last:
        last.invoke("On", thread_id=thread)
    assert log[1] == "before_model ['opened', 'opened']"


class Stops(AgentMiddleware):
    def __init__(self, phase: str) -> None:
        self.phase = phase

    def _stop(self, phase: str) -> Any:
        return {"jump_to": "end", "messages": [AIMessage("No.")]} if self.phase == phase else None

    @hook_config(can_jump_to=["end"])
    def before_agent(self, state: Any, runtime: Any) -> Any:
        return self._stop("before_agent")

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> Any:
        return self._stop("before_model")

    @hook_config(can_jump_to=["end"])
    def after_model(self, state: Any, runtime: Any) -> Any:
        return self._stop("after_model")


@DOORS
@pytest.mark.parametrize("phase", ["before_agent", "before_model", "after_model"])
def test_a_jump_to_the_end_ends_the_run(door: Door, phase: str) -> None:
    agent, model = agent_of([PIIMiddleware("url"), Stops(phase)], wild("add", a=1, b=2), "Next.")
    result = door(agent, "Go")
    assert (result.text, result.stopped_because) == ("No.", "done")
    asked = phase == "after_model"
    assert len(model.calls) == asked
    assert roles(result.messages) == ["human", *(["ai", "tool"] if asked else []), "ai"]
    if not asked:
        assert "wick_end" not in str(model.calls)


class Rewrites(AgentMiddleware):
    def after_model(self, state: Any, runtime: Any) -> Any:
        reply = state["messages"][-1]
        changed = [{**call, "args": {"a": 10, "b": 20}} for call in reply.tool_calls]
        return {"messages": [reply.model_copy(update={"tool_calls": changed})]} if changed else None


@DOORS
def test_a_reply_can_be_changed_before_its_calls_run(door: Door) -> None:
    agent, _ = agent_of(Rewrites(), wild("add", a=1, b=2), "Done.")
    (called,) = door(agent, "1+2?").tool_calls
    assert (called["args"], called["output"]) == ({"a": 10, "b": 20}, "30")


# --- what is refused -----------------------------------------------------------------------------


class AtTheEnd(AgentMiddleware):
    def after_agent(self, state: Any, runtime: Any) -> None:
        """Do something late."""


class Loops(AgentMiddleware):
    @hook_config(can_jump_to=["model"])
    def after_model(self, state: Any, runtime: Any) -> None:
        """Ask again."""


@pytest.mark.parametrize(
    ("middleware", "says"),
    [
        (AtTheEnd(), "the middleware AtTheEnd acts after the run"),
        (ShellToolMiddleware(), "the middleware ShellToolMiddleware acts after the run"),
        (Loops(), "Loops jumps from after_model to 'model'"),
        (HumanInTheLoopMiddleware({"add": True}), "write approvals: into the agent instead"),
        (PIIMiddleware("email", apply_to_output=True), "rewrites the stream of a reply"),
        (add, "is not a LangChain middleware"),
        (PIIMiddleware, "is not a LangChain middleware"),
    ],
)
def test_what_cannot_be_carried_over_is_refused(middleware: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        MiddlewareHook(middleware)


# --- agents.yaml ---------------------------------------------------------------------------------

FILE = """
agents:
  default:
    model: "scripted:script.yaml"
    tools: [add]
    middleware:
      - use: PIIMiddleware
        args: {pii_type: email, strategy: mask}
      - use: ContextEditingMiddleware
        args: {edits: [{use: ClearToolUsesEdit, args: {trigger: 50, keep: 1}}]}
      - use: ModelFallbackMiddleware
        args: {first_model: "scripted:spare.yaml", additional_models: ["scripted:spare.yaml"]}
      - use: ToolCallLimitMiddleware
        args: {run_limit: 3}
      - use: deepagents.MemoryMiddleware
        args:
          backend: {use: deepagents.FilesystemBackend, args: {root_dir: ROOT, virtual_mode: true}}
          sources: [/none.md]
"""


def test_a_file_names_them(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    text = FILE.replace("ROOT", f"{tmp_path}/workspace")
    (tmp_path / "agents.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "script.yaml").write_text("steps:\n- text: Hello.\n", encoding="utf-8")
    (tmp_path / "spare.yaml").write_text("steps:\n- text: Spare.\n", encoding="utf-8")
    with load(tmp_path / "agents.yaml") as agents:
        agent = agents["default"]
        names = [name for name in agent.spec.hooks.names if "Middleware" in name]
        result = agent.invoke("I am ada@example.com")
    assert names == [
        "PIIMiddleware[email]",
        "ContextEditingMiddleware",
        "ModelFallbackMiddleware",
        "ToolCallLimitMiddleware",
        "MemoryMiddleware",
    ]
    assert [m.text for m in result.messages] == ["I am ada@****.com", "Hello."]


BACKENDS = [
    ("FilesystemBackend", "virtual_mode: true", "could write .*which governs agents"),
    ("FilesystemBackend", "virtual_mode: false", "add virtual_mode: true"),
    ("LocalShellBackend", "timeout: 9", "could write .*which governs agents"),
]


@pytest.mark.parametrize(("kind", "more", "says"), BACKENDS)
def test_its_file_tools_reach_nothing_that_governs(
    tmp_path: Path, kind: str, more: str, says: str
) -> None:
    """The tools of a middleware know none of our rules: its folder must hold nothing of it."""
    used = f"{{use: deepagents.{kind}, args: {{root_dir: {tmp_path}, {more}}}}}"
    entry = f"{{use: deepagents.FilesystemMiddleware, args: {{backend: {used}}}}}"
    text = f"agents: {{default: {{model: 'scripted:s.yaml', middleware: [{entry}]}}}}\n"
    (tmp_path / "agents.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "s.yaml").write_text("steps: [ready]", encoding="utf-8")
    with load(tmp_path / "agents.yaml") as agents, pytest.raises(ConfigError, match=says):
        agents["default"]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{use: PIMiddleware}", "langchain.agents.middleware has no PIMiddleware.*PIIMiddleware"),
        ("{use: PIIMiddleware, args: {pii: x}}", "PIIMiddleware does not take these arguments"),
        ("{use: os.system}", "'os.system' cannot be named here"),
        ("{use: deepagents.middleware.os.system}", "cannot be named here"),
        ("{use: hook_config}", "has no hook_config"),
        ("{use: ShellToolMiddleware}", "acts after the run"),
        ("{args: {pii_type: email}}", "use"),
        ("{use: PIIMiddleware, pii_type: email}", "unknown key"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, entry: str, says: str) -> None:
    text = f"agents:\n  default:\n    model: scripted:demo\n    middleware:\n    - {entry}\n"
    (tmp_path / "agents.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"(?s)agents\.yaml.*middleware.*{says}"):
        load(tmp_path / "agents.yaml")["default"]
