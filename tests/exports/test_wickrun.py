"""`.wickrun`: what is in the thread is in the file, but for secrets."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.journal.support import agent_of
from wick_graph import tool
from wick_graph.errors import StorageError, WickError
from wick_graph.exports.plain import Hider
from wick_graph.exports.wickrun import open_wickrun, write_wickrun
from wick_graph.journal import Journal
from wick_graph.journal.journal import line_of
from wick_graph.journal.replay import replay
from wick_graph.store import SqlSaver
from wick_graph.store.maintenance import tenant_of
from wick_graph.testing import ScriptedModel, call

CANARY = "canary-4711-4711"
_THREAD: Any = {"configurable": {"thread_id": "v"}}


def written(journal: Journal, saver: SqlSaver, path: Path) -> Path:
    write_wickrun(journal, saver, path, Hider.of(journal))
    return path


def lines(journal: Journal) -> list[str]:
    return [line_of(journal, moment) for moment in journal.moments()]


def test_everything_comes_back(journal: Journal, saver: SqlSaver, tmp_path: Path) -> None:
    path = written(journal, saver, tmp_path / "t.wickrun")
    with open_wickrun(path) as recording:
        again = recording.journal
        assert recording.thread_id == "t"
        assert lines(again) == lines(journal)
        requests = [again.request_at(m.seq) for m in again.moments(kind="model.request")]
        assert [r.exact for r in requests] == [True, True]
        for seq in range(1, journal.last() + 1):
            assert again.state_at(seq) == journal.state_at(seq)
        assert again.blame(55) == journal.blame(55)
        assert recording.manifest["redaction"] == {"values": 0, "replayable": True}


def test_it_is_replayed_from_the_file_alone(
    journal: Journal, saver: SqlSaver, tmp_path: Path
) -> None:
    path = written(journal, saver, tmp_path / "t.wickrun")
    agent, model = agent_of(False, model=ScriptedModel([]))
    with open_wickrun(path) as recording:
        replayed = replay(agent, recording.journal)
    assert (replayed.model_calls, replayed.tool_calls, model.calls) == (2, 3, ())


def test_readers_find_the_moments_as_text(
    journal: Journal, saver: SqlSaver, tmp_path: Path
) -> None:
    path = written(journal, saver, tmp_path / "t.wickrun")
    with zipfile.ZipFile(path) as archive:
        rows = [json.loads(line) for line in archive.read("moments.jsonl").splitlines()]
    assert [row["seq"] for row in rows] == list(range(1, journal.last() + 1))


def test_a_thread_of_several_runs_and_one_without_a_journal(
    saver: SqlSaver, tmp_path: Path
) -> None:
    agent, _ = agent_of(saver, hooks=[], model=ScriptedModel(["one", "two"]))
    agent.invoke("a", thread_id="u")
    agent.invoke("b", thread_id="u")
    with open_wickrun(written(Journal(saver, "u"), saver, tmp_path / "u.wickrun")) as recording:
        assert [run.stopped_because for run in recording.journal.runs()] == ["done", "done"]
    silent, _ = agent_of(saver, journal="off")
    silent.invoke("add", thread_id="v")
    with open_wickrun(written(Journal(saver, "v"), saver, tmp_path / "v.wickrun")) as recording:
        assert recording.journal.runs() == []
        held = recording.saver.get_tuple({"configurable": {"thread_id": "v"}})
        assert held is not None
        assert held.checkpoint["channel_values"]["messages"][-1].text == "Done."


def test_secrets_stay_behind(
    saver: SqlSaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool(name="look")
    def look(where: str) -> str:
        """Look."""
        return f"found {CANARY} there"

    monkeypatch.setenv("SOME_API_KEY", CANARY)
    model = ScriptedModel([call("look", where=CANARY), "It is ID-99."])
    agent, _ = agent_of(saver, hooks=[], tools=[look], model=model)
    agent.invoke(f"find {CANARY}", thread_id="s")
    journal = Journal(saver, "s")
    path = tmp_path / "s.wickrun"
    assert write_wickrun(journal, saver, path, Hider.of(journal, [r"ID-\d+"])) > 0
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            assert CANARY.encode() not in archive.read(name)
    with open_wickrun(path) as recording:
        messages = recording.journal.state_at(recording.journal.last()).values["messages"]
        assert [CANARY in repr(m) for m in messages] == [False] * 4
        assert messages[-1].text.startswith("It is •••")
        assert recording.journal.secret() != journal.secret()
        assert recording.manifest["redaction"]["replayable"] is False
        with pytest.raises(WickError, match="no answer to this request"):
            replay(agent_of(False, hooks=[], tools=[look])[0], recording.journal)


def _zip(path: Path, **members: Any) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return path


def test_files_that_are_none_are_refused(journal: Journal, saver: SqlSaver, tmp_path: Path) -> None:
    good = written(journal, saver, tmp_path / "t.wickrun")
    bad = tmp_path / "x.wickrun"
    bad.write_bytes(b"nothing")
    with pytest.raises(StorageError, match=r"is no \.wickrun file"):
        open_wickrun(bad).__enter__()
    with pytest.raises(StorageError, match="cannot be read"):
        open_wickrun(tmp_path / "none.wickrun").__enter__()
    bad.write_bytes(good.read_bytes()[:-4_000])
    with pytest.raises(StorageError, match=r"is no \.wickrun file"):
        open_wickrun(bad).__enter__()
    whole = good.read_bytes()
    at = whole.rindex(b"PK\x05\x06") + 16  # where the list of members begins
    bad.write_bytes(whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :])
    with pytest.raises(StorageError, match="or is damaged; export it again"):
        open_wickrun(bad).__enter__()
    manifest = json.dumps({"wickrun": 99, "thread": "t"})
    with pytest.raises(StorageError, match="another release"):
        open_wickrun(_zip(bad, manifest__json=manifest)).__enter__()
    manifest = json.dumps({"wickrun": 1, "thread": "t"})
    with pytest.raises(StorageError):
        open_wickrun(_zip(bad, manifest__json=manifest, thread__db=b"no database")).__enter__()


def test_a_thread_that_was_forked_and_went_on_both_ways(saver: SqlSaver, tmp_path: Path) -> None:
    agent, _ = agent_of(saver, hooks=[], model=ScriptedModel(["one", "two", "three"]))
    agent.invoke("a", thread_id="v")
    at = next(iter(agent.graph.get_state_history(_THREAD)))
    agent.invoke("b", thread_id="v")
    agent.graph.update_state(at.config, {"messages": []}, as_node="tools")
    agent.invoke("c", config=at.config)
    states = [step.values for step in agent.graph.get_state_history(_THREAD)]
    with open_wickrun(written(Journal(saver, "v"), saver, tmp_path / "v.wickrun")) as recording:
        again, _ = agent_of(recording.saver, hooks=[], model=ScriptedModel([]))
        found = [step.values for step in again.graph.get_state_history(_THREAD)]
    assert found == states
    assert len(states) > 8


def test_a_thread_stays_its_tenants(url: str, tmp_path: Path) -> None:
    with SqlSaver.from_url(url, tenant="anna") as saver:
        agent, _ = agent_of(saver)
        agent.invoke("add", thread_id="t")
        path = written(Journal(saver, "t"), saver, tmp_path / "t.wickrun")
    with open_wickrun(path) as recording:
        assert recording.manifest["tenant"] == "anna"
        assert recording.journal.problems() == []
        assert [info.thread_id for info in recording.saver.threads.list()] == ["t"]
        assert tenant_of(recording.saver) == "anna"
