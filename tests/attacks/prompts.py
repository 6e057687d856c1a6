"""Memory and skills as a model is shown them, for the attacks by way of prompts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wick_graph import Agent, BaseHook
from wick_graph.backends import Root
from wick_graph.hooks.memory import MemoryHook
from wick_graph.hooks.skills import SkillsHook
from wick_graph.testing import ScriptedModel

FRAME = re.compile(
    r'<agent_memory id="([0-9a-f]{16})">\n(.*)\n</agent_memory id="\1">\n(.*)', re.DOTALL
)


def row(name: str) -> pytest.MarkDecorator:
    """Give a test without parameters the id of its line."""
    return pytest.mark.parametrize((), [pytest.param(id=name)])


def prompt_of(hook: BaseHook) -> str:
    """Return the system prompt that a model is given."""
    model = ScriptedModel(["ok"])
    Agent(model=model, hooks=[hook], store=False).invoke("?")
    system: str = model.calls[0].system
    return system


def memory(folder: Path, text: str | bytes) -> str:
    """Return what stands in the frame, once it is known that all of it does."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    (folder / "AGENTS.md").write_bytes(data)
    system = prompt_of(MemoryHook(Root(folder), ["AGENTS.md"]))
    match = FRAME.fullmatch(system)
    assert match, system[:300]
    assert system.count(match[1]) == 3, "the opening, the closing, and the sentence on both"
    return match[2]


def skill(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_bytes(text.encode())


def catalogue(folder: Path) -> list[str]:
    system = prompt_of(SkillsHook(Root(folder), ["skills"]))
    return system.splitlines()[1:]
