"""`wick debug`: what it opens, its exit codes, its lines for programs, a person at a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.debugger.conftest import Wick
from tests.debugger.typist import Typist
from tests.journal.support import agent_of
from tests.source import ROOT
from tests.support import forked
from wick_graph import Agent
from wick_graph.cli.app import call
from wick_graph.exports.plain import Hider
from wick_graph.exports.wickrun import write_wickrun
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel


def test_a_finished_thread_answers_a_script(journal: Journal, wick: Wick) -> None:
    script = "break tool:* if error; c; bt; why messages[1].content; rc; request"
    code, out, err = wick("--thread", "t", "--batch", "-e", script)
    assert (code, err) == (0, "")
    assert out[0] == "  1  break tool:* if error"
    assert out[1].startswith("breakpoint 1")
    assert "✕ tool add failed: negative numbers are not added" in out[2]
    assert out[3].startswith("▶ 0  tool add")
    assert any("written @3" in line and "by model" in line for line in out)
    assert out[-2:] == ["user: add", "user: Mind the time."]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param("bt; c", 0, id="done"),
        pytest.param("nonsense; bt", 1, id="refused"),
        pytest.param("b tool:add; c", 3, id="breakpoint"),
        pytest.param("watch todos; c", 3, id="watch"),
        pytest.param("b tool:add; c; rc", 0, id="back"),
        pytest.param("b tools if nope; c", 3, id="condition"),
        pytest.param("q; nonsense", 0, id="quit"),
    ],
)
def test_the_exit_code_says_how_a_script_ended(
    script: str, code: int, journal: Journal, wick: Wick
) -> None:
    assert wick("-t", "t", "--batch", "-e", script)[0] == code


def test_what_is_refused_does_not_hide_the_rest(journal: Journal, wick: Wick) -> None:
    code, out, err = wick("-t", "t", "--batch", "-e", "nonsense; p 1 + 1")
    assert (code, out) == (1, ["2"])
    assert err == "wick: there is no command 'nonsense'; `help` lists the commands\n"


def test_a_condition_that_fails_stops_there_and_says_why(journal: Journal, wick: Wick) -> None:
    _, out, _ = wick("-t", "t", "--batch", "-e", "b tools if nope > 1; c; p step")
    assert "nope" in "\n".join(out[1:3])
    assert out[-1] == "4"


@pytest.mark.slow
def test_scripts_come_from_files_options_and_standard_input(
    journal: Journal, wick: Wick, folder: Path
) -> None:
    (folder / "script").write_text("# find it\nc\n\np error\n", encoding="utf-8")
    _, out, _ = wick("-t", "t", "--batch", "-b", "catch-all", "-x", "script")
    code, out, _ = wick("-t", "t", "--batch", "-b", "tool:add if error", "-x", "script")
    assert (code, out[-1]) == (3, "ToolError: negative numbers are not added") or "negative" in out[
        -1
    ]
    done = run(folder, "-t", "t", "--batch", given="@error\np tool\n")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "add")


def run(folder: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return forked.run(
        [sys.executable, "-m", "wick_graph", "debug", *arguments],
        cwd=folder,
        env=env,
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_file_opens_without_its_store(
    journal: Journal, saver: SqlSaver, folder: Path, wick: Wick
) -> None:
    write_wickrun(journal, saver, folder / "t.wickrun", Hider.of(journal))
    script = "catch error; c; p tool; why todos; request"
    first = wick("-t", "t", "--batch", "-e", script)
    saver.close()
    for name in ("store.db", "agents.yaml"):
        (folder / name).unlink()
    again = wick("t.wickrun", "--batch", "-e", script)
    assert again == first
    assert again[0] == 3


EXECUTES = (
    *("run hello; c", "fork @3; live; c", "fork @3; live --in-place; c", "live"),
    *("restart; live; c", "answer 5", "last; preview"),
)
"""Scripts that run something, or ask the thread's store what would run."""


def exported(folder: Path, journal: Any) -> None:
    """Record a thread in a store of its own, and write it to a file."""
    with SqlSaver.from_url(f"sqlite:///{folder}/elsewhere.db") as saver:
        with Agent("adder", ScriptedModel(["Far."]), store=saver, journal=journal) as agent:
            agent.invoke("add", thread_id="s")
        made = Journal(saver, "s")
        write_wickrun(made, saver, folder / "s.wickrun", Hider.of(made))


def kept(saver: SqlSaver) -> list[Any]:
    return [(info, Journal(saver, info.thread_id).last()) for info in saver.threads.list()]


@pytest.mark.parametrize("local", ["steps", "off", None])
@pytest.mark.parametrize("far", ["steps", "off"])
def test_a_file_runs_nothing_on_another_thread_of_its_id(
    far: Any, local: Any, saver: SqlSaver, folder: Path, wick: Wick
) -> None:
    (folder / "script.yaml").write_text("steps: [Near., Wrong.]\n", encoding="utf-8")
    exported(folder, far)
    if local is not None:
        with Agent("adder", ScriptedModel(["Near."]), store=saver, journal=local) as agent:
            agent.invoke("private", thread_id="s")
    before = kept(saver)
    for script in EXECUTES:
        code, _, err = wick("s.wickrun", "--batch", "-e", script)
        assert (code, "bring the thread there with `wick threads export`" in err) == (1, True), err
    code, _, err = wick("s.wickrun", "hello", "--batch", "-e", "c")
    assert (code, "does not have the thread of this file" in err) == (1, True), err
    assert kept(saver) == before
    code, out, _ = wick("s.wickrun", "--batch", "-e", "last; p messages[-1].content")
    assert (code, out[-1]) == (0, "Far.")


def test_a_file_is_replayed_where_its_thread_is_not(folder: Path, wick: Wick) -> None:
    (folder / "script.yaml").write_text("steps: [Near.]\n", encoding="utf-8")
    assert call(["run", "adder", "add", "--thread", "s"]) == 0
    assert call(["export", "--thread", "s", "--to", "wickrun", "-o", "s.wickrun"]) == 0
    (folder / "store.db").unlink()
    code, out, err = wick("s.wickrun", "--batch", "-e", "replay")
    assert (code, "it did what was recorded" in out) == (0, True), err
    code, _, err = wick("s.wickrun", "--batch", "-e", "run hello")
    assert (code, "does not have the thread of this file" in err) == (1, True), err


@pytest.mark.parametrize("recorded", ["steps", "off"])
def test_a_file_of_a_thread_that_is_here_is_run(
    recorded: Any, saver: SqlSaver, folder: Path, wick: Wick
) -> None:
    (folder / "script.yaml").write_text("steps: [Near., Later.]\n", encoding="utf-8")
    with Agent("adder", ScriptedModel(["One.", "Two."]), store=saver, journal=recorded) as agent:
        agent.invoke("add", thread_id="s")
        made = Journal(saver, "s")
        write_wickrun(made, saver, folder / "s.wickrun", Hider.of(made))
        agent.invoke("more", thread_id="s")  # the thread went on, and is still the same one
    if recorded == "steps":
        code, out, err = wick("s.wickrun", "--batch", "-e", "policy model live; fork @3; live; c")
        assert (code, "this is thread s-fork1, a copy; s stays as it is" in out) == (0, True), err
    code, _, err = wick("s.wickrun", "hello", "--batch", "-e", "c")
    assert code == 0, err
    code, out, _ = wick("-t", "s", "--batch", "-e", "last; p messages[-2].content; p len(messages)")
    assert (code, out[-2:]) == (0, ["hello", "6"])


def test_the_last_thread_is_found(journal: Journal, wick: Wick) -> None:
    code, out, _ = wick("--last", "--batch", "-e", "list 0")
    assert (code, "run of adder" in out[0]) == (0, True)


def test_mistakes_are_sentences(journal: Journal, wick: Wick, folder: Path) -> None:
    for arguments, said in (
        (("-t", "nope"), "there is no thread nope"),
        (("nope.wickrun",), "cannot be read"),
        (("x.wickrun", "-t", "t"), "a file or a thread, not both"),
        (("nobody",), "nobody"),
        (("-t", "t", "-x", "none"), "none cannot be read"),
    ):
        code, _, err = wick(*arguments, "--batch", "-e", "bt")
        assert code != 0
        assert said in err
        assert "Traceback" not in err


def test_a_thread_without_a_journal_says_so(saver: SqlSaver, wick: Wick) -> None:
    agent, _ = agent_of(saver, journal="off")
    agent.invoke("add", thread_id="v")
    code, out, err = wick("-t", "v", "--batch", "-e", "last; p len(messages); request")
    assert "recorded without a journal" in err
    assert "6" in out
    assert code == 1


@pytest.mark.slow
def test_programs_get_an_object_a_line(journal: Journal, folder: Path) -> None:
    lines = [
        '{"id": 7, "command": "break tool:add if error"}',
        "c",
        "bt",
        "nonsense",
        "{",
        'log tool:add "x {args.a}"',
        "quit",
        "bt",
    ]
    done = run(folder, "-t", "t", "--mi", given="\n".join(lines))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert len(answers) == 7
    made, hit, stack, refused, broken, log, left = answers
    assert (made["id"], made["ok"], made["data"]["number"]) == (7, True, 1)
    assert (hit["stop"]["reason"], hit["stop"]["breakpoint"]) == ("breakpoint", 1)
    assert hit["position"] == hit["stop"]["position"] == "t/b0@6.9"
    assert stack["data"][-1]["kind"] == "agent"
    assert (refused["ok"], refused["code"]) == (False, "debug")
    assert broken["error"].startswith("a line is a command")
    assert len(log["lines"]) == 4
    assert left["ok"]


@pytest.mark.slow
def test_a_script_that_cannot_be_taken_apart_is_refused_as_a_whole(
    journal: Journal, folder: Path, wick: Wick
) -> None:
    code, out, err = wick("-t", "t", "--batch", "-e", "p 1; p {2; c")
    assert (code, out) == (2, [])
    assert "} is missing in 'p {2; c'" in err
    done = run(folder, "-t", "t", "--mi", "-e", "p {2; c", given="p 3\nquit\n")
    refused, three, _ = (json.loads(line) for line in done.stdout.splitlines())
    assert (refused["ok"], "is missing" in refused["error"]) == (False, True)
    assert (three["data"], done.returncode) == (3, 0)


@pytest.mark.slow
def test_a_program_is_answered_before_it_says_more(journal: Journal, folder: Path) -> None:
    with forked.Popen(
        [sys.executable, "-m", "wick_graph", "debug", "-t", "t", "--mi"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in (1, 2):
            process.stdin.write(json.dumps({"id": number, "command": "s"}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == number


def test_who_has_no_agent_to_run_is_told_how_a_past_is_opened(journal: Journal, wick: Wick) -> None:
    code, _, err = wick("t", "--batch", "-e", "bt")
    assert (code, "no agent t" in err, "wick debug --thread ID" in err) == (2, True, True)


def test_what_nobody_asked_is_not_answered(wick: Wick, folder: Path) -> None:
    (folder / "script.yaml").write_text("steps: [Done.]\n", encoding="utf-8")
    assert wick("adder", "add", "--no-stop", "--batch", "-e", "c")[0] == 0
    code, _, err = wick("--last", "--batch", "-e", "answer 5")
    assert (code, "waits for no answer" in err) == (1, True)
    assert wick("--last", "--batch", "-e", "info record")[1][-1].startswith("1 ")


MADE = """\
from wick_graph import Agent
from wick_graph.testing import ScriptedModel


def add(a: float, b: float) -> str:
    'Add two numbers.'
    return f"{a + b:g}"


def agent():
    return Agent("from_code", ScriptedModel(["Done."]), tools=[add])
"""


@pytest.fixture
def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command appends the folder
    (folder / "made.py").write_text(MADE, encoding="utf-8")
    sys.modules.pop("made", None)
    yield
    sys.modules.pop("made", None)


def test_the_agent_that_is_named_is_the_one_looked_at(
    made: None, journal: Journal, wick: Wick, folder: Path
) -> None:
    script = "break made.py:6; c; p args.a; graph"
    code, out, err = wick("made:agent", "-t", "t", "--batch", "-e", script)
    assert (code, err) == (3, "")
    assert out[0] == "  1  break made.py:6"
    assert out[3] == "1"
    assert out[4].startswith("thread t · done")
    code, _, err = wick("-t", "t", "--batch", "-e", "break made.py:6")
    assert (code, "no hook or tool of this agent" in err) == (1, True)


def test_the_graph_of_an_agent_in_code_is_drawn(
    made: None, saver: SqlSaver, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Agent("stranger", ScriptedModel(["Done."]), store=saver) as agent:
        agent.invoke("go", thread_id="s")
    assert call(["graph", "made:agent", "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["agent"] == "from_code"
    assert call(["graph", "-t", "s"]) == 2
    said = capsys.readouterr()
    assert "agent stranger, which is not in agents.yaml; name it as module:name" in said.err
    assert said.out == ""
    assert call(["graph", "made:agent", "-t", "s", "-f", "json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["run"]["status"] == "done"
    assert "belongs to the agent stranger, but from_code is drawn" in said.err


def test_a_picture_whose_form_is_not_known_is_refused(
    saver: SqlSaver, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["graph", "-o", "x.png"]) == 2
    assert "x.png has no known suffix; end it in one of .svg" in capsys.readouterr().err
    assert not (folder / "x.png").exists()


# --- a person at a terminal ----------------------------------------------------------------------


@pytest.fixture
def terminal(journal: Journal, saver: SqlSaver, folder: Path) -> Any:
    saver.close()
    made = Typist(folder, "debug", "-t", "t")
    yield made
    made.end()


def interrupt(terminal: Any, prompt: str) -> None:
    """Press Ctrl-C until there is a new prompt: readline does not see one just before it waits."""
    for _ in range(20):
        terminal.sendintr()
        if terminal.expect_exact([prompt, pexpect.TIMEOUT], timeout=5) == 0:
            return
    pytest.fail("Ctrl-C made no new prompt")


def test_a_person_finds_the_cause_and_prepares_another_way(terminal: Any) -> None:
    """Each line that is typed, and what is read after it."""
    transcript = [
        ("catch error", "1  catch error"),
        ("c", "tool add failed: negative numbers are not added"),
        ("bt", "node tools  (step @6, visit 3)"),
        ("why messages[1].tool_calls[2].args", "written @3"),
        ("rn", "(wdb PAST t/b0@6"),
        ("@error", "(wdb PAST t/b0@6.9 tool.exit add)"),
        ("display step", "step = 6"),
        ("pn", "(wdb PAST t/b0@6 node.enter)"),
        ("undisplay", "(wdb PAST t/b0@6 node.enter)"),
        ("last", "run done"),
        ("c", "`rc` goes back; `live` really goes on, after `fork @N` from there"),
        ("rc", "catch 1, error"),
        ("set args.a = 4", "nothing has run yet; `live` runs it"),
        ("live", "script.yaml"),
        ("help positions", "@12.3    the third moment in it"),
        ("pause", "wick: nothing runs that could be paused"),
        ("q", pexpect.EOF),
    ]
    terminal.expect_exact("(wdb PAST t/b0#1 run.enter) ")
    for typed, read in transcript:
        terminal.sendline(typed)
        if read is pexpect.EOF:
            terminal.expect(read)
        else:
            terminal.expect_exact(read)
    assert terminal.wait() == 0


@pytest.mark.slow
def test_a_person_steps_completes_and_leaves(terminal: Any, folder: Path) -> None:
    terminal.expect_exact("t: run 1 of adder with scripted, done; 62 moments")
    terminal.expect_exact("(wdb PAST t/b0#1 run.enter) ")
    terminal.sendline("s")
    terminal.expect_exact("(wdb PAST t/b0@1 node.enter) ")
    terminal.sendline("")
    terminal.expect_exact("(wdb PAST t/b0@1.2 hook.enter) ")
    terminal.send("b tool:ad\t")
    terminal.expect_exact("b tool:add")
    terminal.sendline(" if error")
    terminal.expect_exact("1  break tool:add if error")
    terminal.sendline("c")
    terminal.expect_exact("(wdb PAST t/b0@6.9 tool.exit add) ")
    terminal.sendline("nonsense")
    terminal.expect_exact("wick: there is no command 'nonsense'")
    terminal.expect_exact("(wdb PAST t/b0@6.9 tool.exit add) ")
    interrupt(terminal, "(wdb PAST t/b0@6.9 tool.exit add) ")
    terminal.sendline("commands 1")
    terminal.expect_exact("> ")
    terminal.sendline("end")
    terminal.expect_exact("(wdb PAST")
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    assert terminal.wait() == 0
    kept = folder / "wick" / "debug_history"
    assert "nonsense" in kept.read_text(encoding="utf-8")
    assert kept.stat().st_mode & 0o077 == 0
