"""Thread ids that are shortened to what is unique, where the thread must exist."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from wick_graph.cli.app import call
from wick_graph.store import SqlSaver

AGENTS = "agents: {default: {model: 'scripted:demo'}}\n"
IDS = ("job-1", "job-10", "job-11", "th_6f3a", "th_6fb1")
Wick = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shortened")
    (path / "agents.yaml").write_text(AGENTS, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        assert [call(["run", "-t", thread, "Hi"]) for thread in IDS] == [0] * len(IDS)
    url = f"sqlite:///{path}/checkpoints/wick.db"
    with SqlSaver.from_url(url, tenant="other") as store:
        store.threads.open("secret-1", agent="default", ttl=None, run_id="r")
    return path


@pytest.fixture
def wick(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Wick:
    monkeypatch.chdir(folder)

    def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = call(args)
        return (code, *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    "command",
    [
        "threads show TH",
        "threads rename TH Title",
        "threads pin TH --off",
        "threads export TH made.thread",
        "threads resume TH",
        "resume TH",
        "journal TH",
        "export --thread TH --to jsonl -o made.jsonl",
        "graph --thread TH",
        "debug --thread TH --batch -e where",
    ],
)
def test_a_beginning_that_fits_one_thread_names_it(wick: Wick, command: str) -> None:
    whole = wick(*command.replace("TH", "th_6fb1").split())
    Path("made.thread").unlink(missing_ok=True)
    short = wick(*command.replace("TH", "th_6fb").split())
    Path("made.thread").unlink(missing_ok=True)
    assert short[0] == whole[0]
    assert short[2].startswith("thread th_6fb1\n")
    if "show" not in command:  # its times are relative
        assert short[1] == whole[1]
    assert "th_6fb1" in short[1] + short[2].partition("\n")[2] or "pin" not in command


def test_an_exact_id_wins(wick: Wick) -> None:
    code, out, err = wick("threads", "show", "job-1", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["thread_id"] == "job-1"


@pytest.mark.parametrize("command", ["threads show", "resume", "journal", "debug --batch --thread"])
def test_one_that_fits_several_is_a_sentence_with_the_candidates(wick: Wick, command: str) -> None:
    code, out, err = wick(*command.split(), "th_6f")
    assert (code, out) == (2, "")
    assert err == "wick: the thread id th_6f fits th_6f3a, th_6fb1; write more of it\n"


@pytest.mark.parametrize("given", ["th_6f3a9", "TH_6f3", "secret", "h_6f3a"])
def test_one_that_fits_none_is_unknown_and_tenants_are_apart(wick: Wick, given: str) -> None:
    code, out, err = wick("threads", "show", given)
    assert (code, out) == (2, "")
    assert err == f"wick: there is no thread {given}; `wick threads list` shows the threads\n"


def test_what_makes_a_thread_takes_ids_as_they_are(wick: Wick) -> None:
    assert wick("run", "-t", "th_", "Hi")[0] == 0
    assert wick("threads", "fork", "job-11", "job-")[0] == 0
    listed = {one["thread_id"] for one in json.loads(wick("threads", "list", "--json")[1])}
    assert listed >= {*IDS, "th_", "job-"}
    assert wick("threads", "delete", "--yes", "th_", "job-")[0] == 0


def test_delete_without_a_question_takes_whole_ids_only(wick: Wick) -> None:
    code, _, err = wick("threads", "delete", "--yes", "th_6f3")
    assert code == 2
    assert err.startswith("wick: there is no thread th_6f3;")
    assert wick("threads", "show", "th_6f3a")[0] == 0
