"""SkillsHook, through an agent on real folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.types import interrupt

from tests.engine.support import Door, add
from wick_graph import Agent
from wick_graph.backends import LocalBackend, Root
from wick_graph.hooks import FilesystemHook, LazySkillsHook, MemoryHook, prompt_files
from wick_graph.hooks.skills import SkillsHook
from wick_graph.testing import ScriptedModel, call


def skill(folder: Path, text: str, file: str = "SKILL.md") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(text.encode())


def agent_of(root: Path, *steps: Any, paths: Any = ("skills",), **options: Any) -> Any:
    model = ScriptedModel(list(steps))
    hooks = [SkillsHook(Root(root), paths)]
    return Agent(model=model, tools=[add], hooks=hooks, **options), model


def catalogue(root: Path, door: Door, paths: Any = ("skills",)) -> list[str]:
    agent, model = agent_of(root, "ok", paths=paths)
    door(agent, "?")
    system: str = model.calls[0].system
    return system.splitlines()


def test_the_catalogue_stands_in_every_request_and_in_no_message(
    door: Door, tmp_path: Path
) -> None:
    skill(tmp_path / "skills/slides", "---\nname: slides\ndescription:  Make slides \n---\nSECRET")
    agent, model = agent_of(tmp_path, call("add", a=1, b=2), "ok", system_prompt="Base.")
    result = door(agent, "?")
    line = "- [slides] Make slides → Read skills/slides/SKILL.md for full instructions"
    assert [c.system for c in model.calls] == [f"Base.\n\nAvailable Skills:\n{line}"] * 2
    assert not any("Available" in m.text or "SECRET" in m.text for m in result.messages)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("just text", "- [deep] → Read", id="SK-03"),
        pytest.param("---\nname: n\ndescription: d\n---\n", "- [n] d → Read", id="SK-04"),
        pytest.param("---\nname: [\n---\n", "- [deep] → Read", id="SK-06"),
        pytest.param("---\nname: n\n", "- [deep] → Read", id="SK-06 open"),
        pytest.param("---\nname: 7\ndescription: no\n---", "- [deep] no → Read", id="no text"),
        pytest.param("\ufeff---\r\nname: n\r\ndescription: d\r\n---", "- [n] d → Read", id="Q-48"),
        pytest.param("---\na: &x 1\nname: *x\n---\n", "- [deep] → Read", id="aliases"),
    ],
)
def test_name_and_description_come_from_the_front_matter(
    door: Door, tmp_path: Path, text: str, expected: str
) -> None:
    skill(tmp_path / "skills/deep", text)
    (line,) = catalogue(tmp_path, door)[1:]
    assert line == f"{expected} skills/deep/SKILL.md for full instructions"


def test_files_are_found_at_any_depth_by_their_exact_name(door: Door, tmp_path: Path) -> None:
    skill(tmp_path / "skills/a/b/c", "")
    skill(tmp_path / "skills", "")
    skill(tmp_path / "skills/no", "", "skill.md")
    (tmp_path / "skills/dir/SKILL.md").mkdir(parents=True)
    skill(tmp_path / "more/x", "")
    found = [line.split(" → ")[0] for line in catalogue(tmp_path, door, ["./skills/", "more"])]
    assert found == ["Available Skills:", "- [skills]", "- [c]", "- [x]"]


@pytest.mark.parametrize("paths", [["skills"], ["none"], []])
def test_without_skills_nothing_is_added(door: Door, tmp_path: Path, paths: list[str]) -> None:
    (tmp_path / "skills").mkdir()
    assert catalogue(tmp_path, door, paths) == []


def test_each_run_reads_the_catalogue_anew(door: Door, tmp_path: Path) -> None:
    skill(tmp_path / "skills/a", "---\nname: one\n---\n")
    agent, model = agent_of(tmp_path, "first", "second", "third")
    door(agent, "?", thread_id="t")
    skill(tmp_path / "skills/a", "---\nname: two\n---\n")
    door(agent, "?", thread_id="t")
    door(agent, "?", thread_id="t")
    names = [c.system.splitlines()[1].split("]")[0] for c in model.calls]
    assert names == ["- [one", "- [two", "- [two"]
    assert all(len(c.system.splitlines()) == 2 for c in model.calls)


def test_the_catalogue_is_there_after_a_resume_by_an_agent_that_never_read_it(
    door: Door, tmp_path: Path
) -> None:
    def ask() -> str:
        """Ask."""
        return str(interrupt("?"))

    skill(tmp_path / "skills/a", "---\nname: kept\n---\n")
    store = f"sqlite:///{tmp_path}/t.db"
    root = Root(tmp_path)
    script: list[Any] = [call("ask"), "ok"]
    first = ScriptedModel(script)
    with Agent(
        model=first, tools=[ask], hooks=[SkillsHook(root, ["skills"])], store=store
    ) as agent:
        assert door(agent, "?", thread_id="t").stopped_because == "interrupted"
    (tmp_path / "skills/a/SKILL.md").unlink()
    second = ScriptedModel(script)
    with Agent(
        model=second, tools=[ask], hooks=[SkillsHook(root, ["skills"])], store=store
    ) as agent:
        assert agent.resume("t", "yes").text == "ok"
    assert "[kept]" in second.calls[0].system


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("---\na\n---\nb", "a"),
        ("---\n---\n", ""),
        ("---  \na\n---\t", "a"),
        ("--- \n--- x\n---\n", "--- x"),
        (" ---\na\n---\n", None),
        ("\n---\na\n---\n", None),
        ("----\na\n---\n", None),
        ("---", None),
        ("", None),
        ("---\na\n---\nb\n---\nc: d\n---", "a"),
    ],
)
def test_front_matter_is_split_by_lines(text: str, block: str | None) -> None:
    assert prompt_files.split(text) == block


def test_skills_and_memory_take_the_backend_of_the_file_tools(door: Door, tmp_path: Path) -> None:
    """The model reads by its tools, at the same path, what the hooks show."""
    says = "---\nname: slides\ndescription: Make slides\n---\nUse few words."
    skill(tmp_path / "skills/slides", says)
    (tmp_path / "AGENTS.md").write_text("Likes tea.")
    backend = LocalBackend(tmp_path, execute=None)
    hooks: list[Any] = [
        FilesystemHook(backend),
        SkillsHook(backend=backend, paths=["skills"]),
        MemoryHook(backend=backend, paths=["AGENTS.md"]),
    ]
    model = ScriptedModel([call("read_file", path="skills/slides/SKILL.md"), "ok"])
    with Agent(model=model, hooks=hooks) as agent:
        door(agent, "?", thread_id="t")
    system = model.calls[0].system
    assert "- [slides] Make slides → Read skills/slides/SKILL.md" in system
    assert "Likes tea." in system
    assert "Use few words." in model.calls[1].messages[-1].text
    assert all(hook.backend is backend for hook in hooks)
    lazy = ScriptedModel([call("activate_skill", name="slides"), "ok"])
    with Agent(model=lazy, hooks=[LazySkillsHook(backend, ["skills"])]) as agent:
        door(agent, "?", thread_id="t")
    assert "Use few words." in lazy.calls[1].system
