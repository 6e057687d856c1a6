"""What was secret where a run was recorded stays hidden in an export that is made elsewhere."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import interrupt
from pydantic import SecretStr

from tests.journal.support import agent_of
from wick_graph import tool
from wick_graph.cli.app import call as command
from wick_graph.core.moments import JournalOptions
from wick_graph.exports.plain import Hider
from wick_graph.exports.wickrun import open_wickrun
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, call

FROM_ENV = "canary-environment-4711"
FROM_MODEL = "canary-model-4712"
BY_PATTERN = "CANARY-4713"
ASKED = "canary-asked-4714"
CANARIES = (FROM_ENV, FROM_MODEL, BY_PATTERN, ASKED)
FORMS = ("html", "wickrun", "chrome", "jsonl")


@tool(name="look")
def look(where: str) -> str:
    """Look."""
    interrupt({"question": f"is it {ASKED}?"})
    return f"{FROM_MODEL} and {BY_PATTERN} are there"


@pytest.fixture
def recorded(saver: SqlSaver, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """A thread that waits for an answer; nothing of its secrets is known here any more."""
    monkeypatch.setenv("BACKEND_API_KEY", FROM_ENV)
    monkeypatch.setenv("OTHER_API_KEY", ASKED)
    steps: list[Any] = [call("look", where=FROM_ENV), call("look", where="there"), "Done."]
    model = ScriptedModel(steps, api_key=SecretStr(FROM_MODEL))
    options = JournalOptions("steps", (r"CANARY-\d+",))
    agent, _ = agent_of(saver, hooks=[], tools=[look], model=model, journal=options)
    agent.invoke(f"find {FROM_ENV}", thread_id="t")
    agent.resume("t", "yes")
    monkeypatch.delenv("BACKEND_API_KEY")
    monkeypatch.delenv("OTHER_API_KEY")
    return Journal(saver, "t")


def contents(path: Path) -> Iterator[bytes]:
    yield path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from (archive.read(name) for name in archive.namelist())


@pytest.mark.parametrize("form", FORMS)
def test_no_form_shows_what_only_the_recording_process_knew(
    form: str, recorded: Journal, folder: Path
) -> None:
    state = repr(recorded.state_at(recorded.last()).values)
    assert [canary in state for canary in CANARIES] == [True, True, True, False]
    out = folder / "out"
    assert command(["export", "-t", "t", "--to", form, "-o", str(out)]) == 0
    for content in contents(out):
        for canary in CANARIES:
            assert canary.encode() not in content, canary
    assert form == "chrome" or any("•••".encode() in content for content in contents(out))


@pytest.mark.parametrize("form", FORMS)
def test_no_form_shows_a_secret_field_of_what_a_tool_returns(
    form: str, saver: SqlSaver, folder: Path
) -> None:
    """The model reads a result as a text; a result may hold JSON in a text of its own."""
    inner = json.dumps({"client_secret": 'in"ner-4717', "kept": "kept-4718"})

    @tool(name="look")
    def look() -> dict[str, Any]:
        """Look."""
        return {"db_password": "short-1", "raw": inner, "shown": str({"token": "it's-4719"})}

    agent, _ = agent_of(saver, hooks=[], tools=[look], model=ScriptedModel([call("look"), "Done."]))
    agent.invoke("find", thread_id="t")
    assert "short-1" in repr(agent.graph.get_state({"configurable": {"thread_id": "t"}}).values)
    out = folder / "out"
    assert command(["export", "-t", "t", "--to", form, "-o", str(out)]) == 0
    for content in contents(out):
        assert [one for one in (b"short-1", b"ner-4717", b"s-4719") if one in content] == []
    assert form == "chrome" or any(b"kept-4718" in content for content in contents(out))


def test_a_result_that_ends_before_a_secret_field_does_stays_in_a_file(
    saver: SqlSaver, folder: Path
) -> None:
    """What is stored behind a text is no part of it."""
    cut = 'head: {"a": 1, "token": "'

    @tool(name="look")
    def look() -> str:
        """Look."""
        return cut

    agent, _ = agent_of(saver, hooks=[], tools=[look], model=ScriptedModel([call("look"), "Done."]))
    agent.invoke("find", thread_id="t")
    assert command(["export", "-t", "t", "--to", "wickrun", "-o", "t.wickrun"]) == 0
    with open_wickrun(folder / "t.wickrun") as recording:
        assert recording.manifest["redaction"] == {"values": 0, "replayable": True}
        messages = recording.journal.state_at(recording.journal.last()).values["messages"]
        assert messages[2].text == cut


def test_the_lines_of_a_journal_hide_it_too(
    recorded: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["journal", "t"]) == 0
    assert command(["journal", "t", "--json"]) == 0
    out = capsys.readouterr().out
    assert "•••" in out
    assert [canary for canary in CANARIES if canary in out] == []


def test_a_file_says_nothing_of_the_secrets_that_it_hides(recorded: Journal, folder: Path) -> None:
    (run, *_) = recorded.runs()
    assert {length for length, _ in run.secrets} >= {len(FROM_ENV), len(ASKED)}
    assert run.redact == (r"CANARY-\d+",)
    assert command(["export", "-t", "t", "--to", "wickrun", "-o", "t.wickrun"]) == 0
    with open_wickrun(folder / "t.wickrun") as recording:
        assert [(r.secrets, r.redact) for r in recording.journal.runs()] == [((), ())] * 2


def test_the_patterns_of_a_file_from_elsewhere_are_not_run(recorded: Journal) -> None:
    hider = Hider.of(recorded, trusted=False)
    assert hider.value(BY_PATTERN) == BY_PATTERN
    assert Hider.of(recorded).value(BY_PATTERN).startswith("•••")


def test_a_thread_without_secrets_is_marked_nowhere(journal: Journal) -> None:
    assert [(run.secrets, run.redact) for run in journal.runs()] == [((), ())]
