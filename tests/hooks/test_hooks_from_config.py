"""Which hooks a configuration switches on, from the YAML file to the model's prompt."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import Door, add
from wick_graph import Agent, BaseHook, load
from wick_graph.backends import LocalBackend
from wick_graph.config import AgentConfig, control_plane, parse_config
from wick_graph.errors import ConfigError
from wick_graph.hooks import (
    FilesystemHook,
    MemoryHook,
    SkillsHook,
    SummarizationHook,
    TodoListHook,
    TracingHook,
)
from wick_graph.hooks.from_config import activate, budget_of, secrets_of
from wick_graph.loading import Agents, build_agent, outline
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, calls, text

ALWAYS = ["tracing", "todolist", "summarization"]
LOCAL = "backend: {type: local, workdir: w}"
DOCKER = "backend: {type: docker, image: python, workdir: /w}"
SKILLS = "skills: {paths: [skills]}"
MEMORY = "memory: {paths: [AGENTS.md]}"
ROWS = [
    pytest.param([], ALWAYS, id="G-05"),
    pytest.param([LOCAL], ["tracing", "todolist", "filesystem", "summarization"], id="G-06"),
    pytest.param([SKILLS], ALWAYS, id="G-07 without a backend"),
    pytest.param(
        [LOCAL, SKILLS],
        ["tracing", "todolist", "filesystem", "skills", "summarization"],
        id="G-07",
    ),
    pytest.param([MEMORY], ALWAYS, id="G-08 without a backend"),
    pytest.param(
        [LOCAL, MEMORY],
        ["tracing", "todolist", "filesystem", "memory", "summarization"],
        id="G-08",
    ),
    pytest.param(
        [LOCAL, "skills: {paths: []}", "memory: {paths: []}"],
        ["tracing", "todolist", "filesystem", "summarization"],
        id="no paths",
    ),
    pytest.param(
        [MEMORY, SKILLS, LOCAL],
        ["tracing", "todolist", "filesystem", "skills", "memory", "summarization"],
        id="H-11",
    ),
    pytest.param(
        [DOCKER, SKILLS, MEMORY],
        ["tracing", "todolist", "filesystem", "skills", "memory", "summarization"],
        id="G-03 docker",
    ),
    pytest.param(["budget: {tokens: 9}"], [*ALWAYS, "budget"], id="budget"),
]


def parsed(folder: Path, *lines: str) -> Any:
    body = "\n".join(f"    {line}" for line in ("model: scripted:demo", *lines))
    return parse_config(f"agents:\n  a:\n{body}\n", source="agents.yaml", base_dir=folder)


@pytest.mark.parametrize(("lines", "names"), ROWS)
def test_a_configuration_switches_on_exactly_these_hooks_in_this_order(
    tmp_path: Path, lines: list[str], names: list[str]
) -> None:
    file = parsed(tmp_path, *lines)
    looked_at = outline("a", file)
    assert list(looked_at.spec.hooks.names) == names
    assert [*tmp_path.iterdir()] == [], "to look at an agent makes no folder"
    with build_agent("a", file) as agent:
        assert list(agent.spec.hooks.names) == names


def test_the_folder_of_a_backend_is_made(tmp_path: Path) -> None:
    with build_agent("a", parsed(tmp_path, "backend: {type: local, workdir: ./w/../deep/er}")):
        assert (tmp_path / "deep" / "er").is_dir()


def test_a_tilde_is_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    with build_agent("a", parsed(tmp_path, 'backend: {type: local, workdir: "~/w"}')):
        assert (tmp_path / "home" / "w").is_dir()
        assert not (tmp_path / "~").exists()


def test_a_folder_that_cannot_be_made_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "w").write_text("a file")
    with pytest.raises(ConfigError, match=r"agents.yaml:4: agents.a.backend: "):
        build_agent("a", parsed(tmp_path, LOCAL))


@pytest.mark.parametrize(
    ("written", "limits"),
    [
        ("budget: 0.5", (0.5, None, "run")),
        ("budget: 2", (2, None, "run")),
        ("budget: {usd: 0.25, per: thread}", (0.25, None, "thread")),
        ("budget: {tokens: 100}", (None, 100, "run")),
        ("budget: {}", (None, None, "run")),
    ],
)
def test_a_budget_may_be_a_number_or_a_block(tmp_path: Path, written: str, limits: Any) -> None:
    budget = budget_of(parsed(tmp_path, written).agent("a").budget)
    usd = None if budget.usd is None else float(budget.usd)
    assert (usd, budget.tokens, budget.per) == limits


@pytest.mark.parametrize("written", ["0", "-1", "much", "{usd: 0}", "{dollars: 1}", "true"])
def test_a_wrong_budget_is_refused_with_its_place(tmp_path: Path, written: str) -> None:
    with pytest.raises(ConfigError, match=r"agents.yaml:4: agents.a.budget"):
        parsed(tmp_path, f"budget: {written}")


def test_a_budget_of_a_file_ends_a_run(tmp_path: Path) -> None:
    script = "steps: [{call: ls, usage: [90, 20]}, never]"
    (tmp_path / "s.yaml").write_text(script)
    lines = ("model: scripted:s.yaml", "tools: [ls]", "budget: {tokens: 100}")
    body = "\n".join(f"    {line}" for line in lines)
    file = parse_config(f"agents:\n  a:\n{body}\n", source="agents.yaml", base_dir=tmp_path)
    with build_agent("a", file) as agent:
        result = agent.invoke("go")
    assert result.stopped_because == "limit"
    assert "100 tokens" in result.text


SEEDS_SAMPLE = """\
name: code-assistant
model: claude-sonnet-4-20250514
system_prompt: "You are a coding assistant."
context_window: 128000          # SummarizationHook uses this
backend:
  type: docker                  # FilesystemHook activated (needs a backend)
  image: python:3.12-slim
  workdir: /workspace
skills:
  paths:                        # SkillsHook activated
    - /workspace/skills
memory:
  paths:                        # MemoryHook activated
    - /workspace/AGENTS.md
"""


def test_the_literal_sample_activates_the_hooks_of_the_table_in_their_order(tmp_path: Path) -> None:
    """I-06, H-11: whatever stands behind the backend."""
    config = parse_config(SEEDS_SAMPLE, source="agents.yaml", base_dir=tmp_path).agent()
    with LocalBackend(tmp_path) as backend:
        hooks = activate(config, backend)
    table = [
        TracingHook,
        TodoListHook,
        FilesystemHook,
        SkillsHook,
        MemoryHook,
        SummarizationHook,
    ]
    assert [type(hook) for hook in hooks] == table
    names = ["tracing", "todolist", "filesystem", "skills", "memory", "summarization"]
    assert [hook.name for hook in hooks] == names
    assert [hook.name for hook in activate(config, None)] == ALWAYS


def test_every_key_of_a_configuration_is_known_as_a_secret(tmp_path: Path) -> None:
    text = """\
name: a
model: {model: a:b, api_key: first-key, fallbacks: [c:d, {model: e:f, api_key: second-key}]}
search: {url: "https://example.org", api_key: third-key}
"""
    config = parse_config(text, source="agents.yaml", base_dir=tmp_path).agent()
    assert secrets_of(config) == ["first-key", "second-key", "third-key"]
    assert secrets_of(AgentConfig()) == []


SAMPLE = """\
name: code-assistant
model: scripted:script.yaml
system_prompt: "You are a coding assistant."
context_window: 128000
store: sqlite:///t.db
backend:
  type: local
  workdir: workspace
skills:
  paths: [skills]
memory:
  paths: [AGENTS.md]
"""
SCRIPT = """\
steps:
  - {call: read_file, args: {path: skills/csv/SKILL.md}}
  - {call: edit_file, args: {path: AGENTS.md, old_text: tea, new_text: coffee}}
  - noted
  - and again
"""


def test_the_sample_activates_files_skills_and_memory(door: Door, tmp_path: Path) -> None:
    """I-06, SK-09, ME-07: the skill is read, the memory edited, and both are there next time."""
    skill = tmp_path / "workspace/skills/csv"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: csv-analyzer\ndescription: Analyze\n---\nBODY")
    (tmp_path / "workspace/AGENTS.md").write_text("I like tea.")
    (tmp_path / "script.yaml").write_text(SCRIPT)
    file = parse_config(SAMPLE, source="agents.yaml", base_dir=tmp_path)
    with Agents(file) as agents:
        agent = agents[file.default_id]
        result = door(agent, "Go", thread_id="t")
        model: Any = agent.spec.model.model
        first = model.calls[0]
    assert first.system.startswith("You are a coding assistant.\n\nAvailable Skills:\n")
    assert "- [csv-analyzer] Analyze → Read skills/csv/SKILL.md for full" in first.system
    assert "I like tea." in first.system
    assert "BODY" not in first.system
    assert "BODY" in result.messages[2].text
    assert (tmp_path / "workspace/AGENTS.md").read_text() == "I like coffee."
    with Agents(parse_config(SAMPLE, source="agents.yaml", base_dir=tmp_path)) as agents:
        agent = agents[file.default_id]
        assert door(agent, "Again", thread_id="t").text == "and again"
        model = agent.spec.model.model
        assert "I like coffee." in model.calls[0].system


def test_the_window_of_the_configuration_counts(door: Door, tmp_path: Path) -> None:
    file = parsed(tmp_path, "context_window: 1000")
    agent = build_agent("a", file)
    assert agent.spec.model.context_window == 1000
    assert AgentConfig().context_window is None


class NoOp(BaseHook):
    def __init__(self, name: str) -> None:
        self.name = name

    def before_agent(self, state: Any, ctx: Any) -> Any:
        return None

    def modify_request(self, request: Any, ctx: Any) -> Any:
        return request

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        return next(request)

    def after_model(self, message: Any, ctx: Any) -> Any:
        return None

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        return next(call)


class Adds(NoOp):
    def modify_request(self, request: Any, ctx: Any) -> Any:
        return request.append_system("Be brief.")


class Writes(NoOp):
    def after_model(self, message: Any, ctx: Any) -> Any:
        return {"files": {f"f{ctx.iteration}": "x" * 2_000}}


@pytest.mark.sisters(2)
@pytest.mark.parametrize("before", [[], [Adds("one")]], ids=["to none", "to one"])
def test_six_hooks_that_do_nothing_cost_nothing(
    door: Door, tmp_path: Path, before: list[BaseHook]
) -> None:
    def stored(hooks: list[BaseHook], name: str) -> tuple[int, int, dict[str, int]]:
        file = tmp_path / f"{name}.db"
        steps = [
            calls(("add", {"a": i, "b": 1}, f"c{i}"), id=f"r{i}", usage=(10, 10)) for i in range(9)
        ]
        model = ScriptedModel([*steps, text("done", id="last", usage=(10, 10))])
        store = f"sqlite:///{file}"
        # Without the journal, which notes the hooks that took part.
        with Agent(model=model, tools=[add], hooks=hooks, store=store, journal="off") as agent:
            assert isinstance(agent.store, SqlSaver)
            agent.store._core._flusher.close()  # nothing is written because time has passed
            assert door(agent, "?", thread_id="t").text == "done"
            config: Any = {"configurable": {"thread_id": "t"}}
            checkpoints = len([*agent.graph.get_state_history(config)])
        with contextlib.closing(sqlite3.connect(file)) as db:
            names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            count = 'SELECT count(*) FROM "{}"'.format
            rows = {name: db.execute(count(name)).fetchone()[0] for (name,) in names}
        return checkpoints, file.stat().st_size, rows

    six = [NoOp(f"hook-{i}") for i in range(6)]
    plain = stored(before, "none")
    with_six = stored([*before, *six], "six")
    # LangGraph saves the input's step beside its first writes: where these come first, the first
    # message has a row for each of the two.
    assert abs(with_six[2].pop("items") - plain[2].pop("items")) <= 1
    assert abs(with_six[1] - plain[1]) <= 4096  # a row more may need a page
    assert (with_six[0], with_six[2]) == (plain[0], plain[2])
    writing = [*before, *six[:5], Writes("hook-5")]
    assert stored(writing, "writes") != plain, "what is stored would be seen"


SCHEMA = '{"title": "City", "type": "object", "properties": {"name": {"type": "string"}}}'


@pytest.mark.parametrize("written", ["city.json", SCHEMA])
def test_an_output_of_the_file(tmp_path: Path, written: str) -> None:
    (tmp_path / "city.json").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "script.yaml").write_text(
        "steps: [{calls: [{tool: City, args: {name: Bern}}]}]", encoding="utf-8"
    )
    (tmp_path / "agents.yaml").write_text(
        "agents:\n  a:\n    model: scripted:script.yaml\n"
        f"    output: {{schema: {written}, strategy: tool, retries: 1}}\n",
        encoding="utf-8",
    )
    with load(tmp_path / "agents.yaml") as agents:
        assert agents["a"].invoke("Go").output == {"name": "Bern"}
        output = agents["a"].spec.output
        assert output is not None
        assert output.retries == 1
        governs = str(tmp_path / "city.json") in control_plane(agents.config)
    assert governs is (written == "city.json")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("{schema: none.json}", "agents.a.output.schema: none.json cannot be read: No such file"),
        ("{schema: list.json}", "agents.a.output.schema: it holds no JSON schema"),
        ("{schema: {type: 5}}", "agents.a.output.schema: output_type is no JSON schema at"),
        ("{schema: {}, strategy: best}", "agents.a.output.strategy"),
        ("{strategy: tool}", "agents.a.output.schema"),
    ],
)
def test_a_wrong_output_is_refused(tmp_path: Path, output: str, message: str) -> None:
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    (tmp_path / "agents.yaml").write_text(
        f"agents:\n  a:\n    model: scripted:demo\n    output: {output}\n", encoding="utf-8"
    )
    with (
        pytest.raises(ConfigError, match=re.escape(message)),
        load(tmp_path / "agents.yaml") as agents,
    ):
        _ = agents["a"]
