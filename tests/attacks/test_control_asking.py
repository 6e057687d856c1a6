"""Files that other programs obey: tools ask before they change one, or refuse if nobody answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import async_door, sync_door, wild
from tests.source import ROOT
from wick_graph import Agent
from wick_graph.backends import OBEYED, ExtraRoot, LocalBackend, Rules
from wick_graph.hooks import BaseHook, FilesystemHook
from wick_graph.hooks.approvals import ApprovalHook, Approve, Edit, Reject
from wick_graph.loading import load
from wick_graph.testing import ScriptedModel

NAMED = (
    *(
        ".git/hooks/pre-commit",
        ".git/config",
        "a/b/conftest.py",
        "Makefile",
        "makefile",
        "setup.py",
    ),
    *(".github/workflows/x.yml", ".vscode/tasks.json", ".husky/pre-push"),
    *(".pre-commit-config.yaml", ".mcp.json", "CLAUDE.md", "AGENTS.md", ".env", ".env.local"),
    *("sub/.ENV", "AGENTS.YAML", "x/../Makefile", "Makefile/"),
)
FREE = (
    "package.txt",
    "a/makefile.txt",
    "github/workflows/x",
    ".github/x.md",
    "my.env",
    "readme.md",
)


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[LocalBackend]:
    with LocalBackend(tmp_path) as backend:
        yield backend


def agent_for(fs: Any, path: str, *hooks: Any, **options: Any) -> Agent:
    model = ScriptedModel([wild("write_file", path=path, content="made"), "done"])
    return Agent(model=model, hooks=[*hooks, FilesystemHook(fs)], **options)


def answer_of(result: Any) -> str:
    return str(next(m.text for m in result.messages if m.type == "tool"))


@pytest.mark.parametrize("path", NAMED)
def test_a_change_of_what_others_obey_waits_for_a_person(
    fs: LocalBackend, tmp_path: Path, path: str
) -> None:
    result = agent_for(fs, path).invoke("go", thread_id="t")
    assert result.stopped_because == "interrupted"
    (question,) = (one.value for one in result.interrupts)
    assert (question["kind"], question["tool"]) == ("approval", "write_file")
    assert "other programs run or obey" in question["why"]
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("path", FREE)
def test_other_files_ask_nobody(fs: LocalBackend, tmp_path: Path, path: str) -> None:
    assert agent_for(fs, path).invoke("go").stopped_because == "done"
    assert (tmp_path / path).read_text() == "made"


@pytest.mark.parametrize("door", [sync_door, async_door])
@pytest.mark.parametrize(
    ("decision", "path", "said"),
    [
        (Approve(), "Makefile", "bytes_written"),
        (Edit(args={"path": "setup.py", "content": "made"}), "setup.py", "bytes_written"),
        (Edit(args={"path": "free", "content": "made"}), "free", "bytes_written"),
        (Reject(), "", "rejected"),
    ],
)
def test_what_a_person_decides_is_done(
    fs: LocalBackend, tmp_path: Path, door: Any, decision: Any, path: str, said: str
) -> None:
    agent = agent_for(fs, "Makefile")
    door(agent, "go", thread_id="t")
    ended = agent.resume("t", decision)
    assert ended.stopped_because == "done"
    assert said in answer_of(ended)
    assert [one.name for one in tmp_path.iterdir()] == ([path] if path else [])


def test_an_edit_waits_too(fs: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1")
    steps = [wild("edit_file", path=".env", old_text="1", new_text="2"), "done"]
    agent = Agent(model=ScriptedModel(steps), hooks=[FilesystemHook(fs)])
    assert agent.invoke("go", thread_id="t").stopped_because == "interrupted"
    assert (tmp_path / ".env").read_text() == "A=1"
    agent.resume("t", Approve())
    assert (tmp_path / ".env").read_text() == "A=2"


def test_a_person_is_asked_once(fs: LocalBackend, tmp_path: Path) -> None:
    agent = agent_for(fs, "Makefile", ApprovalHook({"write_file": True}))
    assert agent.invoke("go", thread_id="t").stopped_because == "interrupted"
    assert agent.resume("t", Approve()).stopped_because == "done"
    assert (tmp_path / "Makefile").read_text() == "made"


def test_a_rule_that_asks_for_nothing_does_not_open_it(fs: LocalBackend, tmp_path: Path) -> None:
    agent = agent_for(fs, "Makefile", ApprovalHook({"write_file": False}))
    assert agent.invoke("go", thread_id="t").stopped_because == "interrupted"
    assert [*tmp_path.iterdir()] == []


def test_where_nobody_can_answer_it_is_refused(fs: LocalBackend, tmp_path: Path) -> None:
    result = agent_for(fs, "Makefile", store=False).invoke("go")
    assert result.stopped_because == "done"
    assert "is protected: other programs run or obey 'Makefile'; ask the user" in answer_of(result)
    assert [*tmp_path.iterdir()] == []


def test_a_hook_that_changes_an_approved_call_is_asked_about(
    fs: LocalBackend, tmp_path: Path
) -> None:
    """What was allowed are these arguments: not another path put in their place further in."""

    class Swap(BaseHook):
        name = "swap"
        phases = ("wrap_tool_call",)

        async def wrap_tool_call(self, call: Any, next: Any) -> Any:
            return await next(call.replace(args={**call.args, "path": "Makefile"}, raw_args=""))

    agent = agent_for(fs, "free", ApprovalHook({"write_file": True}), Swap())
    agent.invoke("go", thread_id="t")
    again = agent.resume("t", Approve())
    assert again.stopped_because == "interrupted"
    assert [*tmp_path.iterdir()] == []


def test_one_list_is_made_longer_and_shorter(tmp_path: Path) -> None:
    rules = Rules(protect=("*.tf", "deploy/prod"), writable=("setup.py", ".github/workflows/**"))
    with LocalBackend(tmp_path, rules=rules) as fs:
        asks = {p for p in ("a/x.tf", "deploy/prod/y", "deploy/test/y", "Makefile") if fs.asks(p)}
        assert asks == {"a/x.tf", "deploy/prod/y", "Makefile"}
        fs.write("setup.py", b"made")
        fs.write("a/.github/workflows/x.yml", b"made")
        assert any("tools may change 'setup.py', '.github/workflows/**'" in n for n in fs.notices)


def test_what_governs_is_not_opened_by_the_second_list(tmp_path: Path) -> None:
    rules = Rules(control=(f"{tmp_path}/agents.yaml",), writable=("agents.yaml", "*"))
    with LocalBackend(tmp_path, rules=rules) as fs:
        assert fs.asks("agents.yaml") == ""
        with pytest.raises(Exception, match="governs agents"):
            fs.write("agents.yaml", b"hijacked", allowed=True)


def test_memory_is_written_by_file_tools_without_a_question(tmp_path: Path) -> None:
    extra = [ExtraRoot(f"{tmp_path}/AGENTS.md", writable=True)]
    with LocalBackend(tmp_path, extra_roots=extra) as fs:
        assert agent_for(fs, "AGENTS.md").invoke("go").stopped_because == "done"
        assert fs.asks("sub/AGENTS.md"), "another file of that name is no memory"


def test_the_list_names_what_it_must() -> None:
    for name in (".git", "conftest.py", "Makefile", "setup.py", ".github/workflows", ".vscode"):
        assert name in OBEYED
    for name in (".husky", ".pre-commit-config.yaml", ".mcp.json", "CLAUDE.md", "AGENTS.md"):
        assert name in OBEYED
    said = (ROOT / "docs" / "how-to" / "sandbox.md").read_text("utf-8")
    assert [name for name in OBEYED if f"`{name}`" not in said] == [], "sandbox.md lists all"


SAMPLE = """\
agents:
  default:
    model: scripted:talk.yaml
    backend: {type: local, execute: 'off'}
    protect: [infra]
    writable: [Makefile]
  plain: {model: 'scripted:talk.yaml', tools: [ls]}
"""


def test_a_file_says_both_lists_and_gets_a_folder(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(SAMPLE, "utf-8")
    (tmp_path / "talk.yaml").write_text("steps: [{call: ls}, done]", "utf-8")
    with load(tmp_path / "agents.yaml") as agents:
        agents["default"]
        (fs,) = agents.backends
        assert fs.workdir == str(tmp_path / "workspace")
        assert (tmp_path / "workspace").is_dir()
        assert fs.asks("infra/x")
        assert not fs.asks("Makefile")
        assert any("tools may change 'Makefile'" in notice for notice in fs.notices)
        listed = answer_of(agents["plain"].invoke("go"))
        assert "agents.yaml" in listed, "without a backend, an agent reads the file's folder"
