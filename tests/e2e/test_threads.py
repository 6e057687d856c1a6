"""`wick threads` and `wick resume` on threads that crashed, in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from tests.support.command import Ended, Folder
from tests.support.recorded import until_written
from wick_graph.cli.app import call

AGENTS = """\
agents:
  default:
    model: scripted:talk.yaml
    tools: [calculate]
    deadline: {deadline}
    retention: {{keep_latest: {kept}}}
"""
TALK = """\
steps:
  - calls:
      - {tool: calculate, args: {expression: 21*2}}
  - "42."
  - "More."
"""
TEN = '''\
"""Ten tools at once: half of them may be repeated, all write down that they began and ended."""

import os, sys, time
from pathlib import Path
from wick_graph import Agent, tool
from wick_graph.testing import ScriptedModel, calls

log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def work(name: str, n: int) -> str:
    os.write(log, f"start {name}{n}\\n".encode())
    if Path("slow").exists() and n >= 2:
        time.sleep(100)
    os.write(log, f"end {name}{n}\\n".encode())
    return f"{name} {n} done"


@tool(replay="safe")
def look(n: int) -> str:
    """Look something up."""
    return work("look", n)


@tool
def act(n: int) -> str:
    """Have an effect."""
    return work("act", n)


steps = [calls(*((name, {"n": n}) for n in range(5) for name in ("look", "act"))), "All done."]


def made(store: str) -> Agent:
    return Agent("default", model=ScriptedModel(steps), tools=[look, act], store=store)


if __name__ == "__main__":
    with made(f"sqlite:///{os.getcwd()}/checkpoints/wick.db") as agent:
        agent.invoke("Go", thread_id=sys.argv[1])
'''
RESUME = '''\
"""The command `wick`, for the agent of ten.py: a file of agents cannot name tools of one's own."""

import wick_graph.loading as loading
from ten import made
from wick_graph.cli import main


def build(agent_id, file, **given):
    store = given["store"]
    agent = made(store() if callable(store) else store)
    return agent


loading.build_agent = build
main()
'''


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "checkpoints").mkdir()
    return Folder(tmp_path).write(agents=AGENTS.format(deadline="never", kept=100), talk=TALK)


@dataclass
class Here:
    """The command in this process: the same doors, without the start of an interpreter."""

    folder: Folder
    capsys: pytest.CaptureFixture[str]

    def wick(self, *args: str) -> Ended:
        code = call(args)
        out, err = self.capsys.readouterr()
        return Ended(code, out, err)


@pytest.fixture
def here(
    folder: Folder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Here:
    monkeypatch.chdir(folder.path)
    return Here(folder, capsys)


def log(folder: Folder) -> list[str]:
    file = folder.path / "log"
    return file.read_text().splitlines() if file.exists() else []


def test_resume_after_a_kill_amid_ten_tools_runs_again_only_what_is_safe(folder: Folder) -> None:
    (folder.path / "ten.py").write_text(TEN)
    (folder.path / "again.py").write_text(RESUME)
    with folder.start("whole", script="ten.py") as process:
        assert process.wait(60) == 0
    whole = folder.messages(thread_id="whole")
    (folder.path / "log").unlink()
    (folder.path / "slow").touch()
    with folder.start("mine", script="ten.py") as process:
        until = time.monotonic() + 60
        while len([line for line in log(folder) if line.startswith("start")]) < 10:
            assert time.monotonic() < until
            time.sleep(0.01)
        ended = [f"{name} {n} done" for name in ("look", "act") for n in range(2)]
        until_written(f"sqlite:///{folder.path}/checkpoints/wick.db", *ended, thread="mine")
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    (folder.path / "slow").unlink()
    began = len(log(folder))
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with folder.start("resume", "mine", script="again.py", **pipes) as process:
        out, err = process.communicate(b"", timeout=60)
    assert (process.returncode, out) == (0, b"All done.\n"), err
    assert b"its process died, or is still running" in err
    again = sorted(line for line in log(folder)[began:] if line.startswith("start"))
    assert again == ["start look2", "start look3", "start look4"]
    mine = folder.messages(thread_id="mine")
    assert [kind for kind, _ in mine] == [kind for kind, _ in whole]
    unknown = [n for n, (_, text) in enumerate(mine) if "interrupted, outcome unknown" in text]
    assert len(unknown) == 3  # act 2, 3 and 4 were under way, and nobody said they may be repeated
    assert [m for n, m in enumerate(mine) if n not in unknown] == [
        m for n, m in enumerate(whole) if n not in unknown
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)
def test_a_run_that_is_told_to_end_closes_its_thread(
    folder: Folder, number: signal.Signals, code: int
) -> None:
    (folder.path / "ten.py").write_text(TEN)
    (folder.path / "again.py").write_text(RESUME)
    (folder.path / "slow").touch()
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with folder.start("run", "-t", "mine", "Go", script="again.py", **pipes) as process:
        until = time.monotonic() + 60
        while len([line for line in log(folder) if line.startswith("start")]) < 10:
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate(b"", timeout=60)
    assert (process.returncode, out) == (code, b""), err
    assert b"stopped: cancelled" in err
    info = folder.thread()
    assert (info.status, info.stopped_because) == ("idle", "cancelled")
    with folder.store as store:
        assert store.leases.epoch("mine") is None
    (folder.path / "slow").unlink()
    with folder.start("threads", "resume", "mine", script="again.py", **pipes) as process:
        out, err = process.communicate(b"", timeout=60)
    assert (process.returncode, out) == (0, b"All done.\n"), err


@pytest.mark.slow
def test_a_deadline_is_said_and_resume_goes_on_with_the_step(folder: Folder) -> None:
    (folder.path / "ten.py").write_text(TEN.replace("store=store)", "store=store, deadline=LIMIT)"))
    text = (folder.path / "ten.py").read_text()
    (folder.path / "ten.py").write_text(
        text.replace("log = os", 'LIMIT = 3 if Path("slow").exists() else None\nlog = os')
    )
    (folder.path / "again.py").write_text(RESUME)
    (folder.path / "slow").touch()
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with folder.start("run", "-t", "mine", "Go", script="again.py", **pipes) as process:
        out, err = process.communicate(b"", timeout=60)
    assert process.returncode == 0, err
    (folder.path / "slow").unlink()
    with folder.start("resume", "mine", script="again.py", **pipes) as process:
        out, err = process.communicate(b"", timeout=60)
    assert (process.returncode, out) == (0, b"All done.\n"), err
    assert err.decode().splitlines()[0] == (
        "resuming; it had stopped: limit: the run was longer than its deadline of 3 s"
    )
    assert [kind for kind, _ in folder.messages()].count("human") == 1


def test_threads_are_forked_moved_named_pinned_and_measured(folder: Folder, here: Here) -> None:
    assert here.wick("run", "-t", "mine", "What is\n21*2?").code == 0
    with folder.store as store:
        config: Any = {"configurable": {"thread_id": "mine"}}
        asked = next(
            saved.config["configurable"]["checkpoint_id"]
            for saved in store.list(config)
            if [m.type for m in saved.checkpoint["channel_values"].get("messages", [])]
            == ["human", "ai"]
        )
    made = here.wick("threads", "fork", "mine", "other", "--json")
    assert (made.code, made.json["parent"]) == (0, "mine")
    early = here.wick("threads", "fork", "mine", "early", "--at", asked)
    assert early.out.startswith("forked mine as early (")
    assert folder.messages(thread_id="other") == folder.messages()
    assert folder.messages(thread_id="early") == folder.messages()[:2]
    assert here.wick("resume", "early").out == "42.\n"
    assert folder.messages(thread_id="early") == folder.messages()

    assert here.wick("threads", "rename", "other", "Plan B").out == "renamed other\n"
    assert here.wick("threads", "pin", "other").out == "pinned other\n"
    shown = here.wick("threads", "show", "other", "--json").json
    assert (shown["title"], shown["pinned"], shown["parent"]) == ("Plan B", True, "mine")
    assert here.wick("threads", "show", "mine", "--json").json["title"] == "What is"
    assert here.wick("threads", "pin", "other", "--off", "--json").json["pinned"] is False

    file = folder.path / "mine.thread"
    assert here.wick("threads", "export", "mine", str(file)).code == 0
    again = here.wick("threads", "export", "mine", str(file))
    assert (again.code, again.err) == (
        2,
        f"wick: {file} is there already; choose another name, or delete it first\n",
    )
    taken = here.wick("threads", "import", str(file))
    assert taken.code == 2
    assert "thread 'mine' exists already" in taken.err
    assert here.wick("threads", "import", str(file), "--as", "back").out == (
        f"imported back from {file}\n"
    )
    assert folder.messages(thread_id="back") == folder.messages()

    sizes = here.wick("threads", "du", "--json").json
    assert {row["thread_id"] for row in sizes["threads"]} == {"mine", "other", "early", "back"}
    assert all(row["bytes"] == sum(row["parts"].values()) > 0 for row in sizes["threads"])
    head, *_ = here.wick("threads", "du").out.splitlines()
    assert head.split() == ["THREAD", "SIZE", "PARTS"]
    gone = here.wick("threads", "delete", "-y", "--json", "other", "early", "back")
    assert gone.json == {"deleted": ["other", "early", "back"]}
    freed = here.wick("threads", "vacuum", "--json").json
    assert 0 < freed["after"] <= freed["before"]
    assert here.wick("threads", "prune", "--json").json == {"deleted": []}


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        pytest.param(["fork", "no", "x"], "there is no thread no; ", id="fork"),
        pytest.param(["fork", "mine", "mine"], "thread 'mine' exists already", id="onto itself"),
        pytest.param(["fork", "mine", "x", "--at", "?"], "has no checkpoint '?'", id="nowhere"),
        pytest.param(["fork", "mine", "a b"], "the thread id 'a b' is refused", id="id"),
        pytest.param(["export", "no", "f"], "there is no thread no; ", id="export"),
        pytest.param(["import", "f"], "there is no file f; export a thread first", id="no file"),
        pytest.param(["import", "talk.yaml"], "talk.yaml", id="no database"),
        pytest.param(["pin", "no"], "there is no thread no; ", id="pin"),
        pytest.param(["rename", "no", "x"], "there is no thread no; ", id="rename"),
    ],
)
def test_what_cannot_be_done_is_said(
    folder: Folder, here: Here, args: list[str], sentence: str
) -> None:
    with folder.store as store:
        config: Any = {"configurable": {"thread_id": "mine", "checkpoint_ns": ""}}
        store.put(config, empty_checkpoint(), {"source": "input", "step": -1}, {})
    done = here.wick("threads", *args)
    assert done.code in (1, 2)
    assert done.err.startswith("wick: ")
    assert sentence in done.err
    assert not (folder.path / "f").exists()
    with folder.store as store:
        assert [info.thread_id for info in store.threads.list()] == ["mine"]


def test_only_the_latest_checkpoints_are_kept_where_the_file_says_so(
    folder: Folder, here: Here
) -> None:
    folder.write(agents=AGENTS.format(deadline="never", kept=3))
    for _ in range(2):
        assert here.wick("run", "-t", "mine", "Again").code == 0
    assert folder.thread().steps == 3
    kinds = [kind for kind, _ in folder.messages()]
    assert kinds == ["human", "ai", "tool", "ai", "human", "ai"]
