"""Live runs in the terminal: held, changed, forked, replayed, left and gone on with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.debugger.conftest import Wick
from tests.debugger.typist import Typist
from tests.support.waiting import until
from wick_graph import Agent
from wick_graph.debug import DebugSession
from wick_graph.debug.terminal import Shell, show
from wick_graph.debug.terminal.shell import Doors
from wick_graph.errors import DebugError
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, call

MADE = """\
import time
from pathlib import Path
from wick_graph import Agent, tool
from wick_graph.testing import ScriptedModel, calls

ran = []


@tool
def add(a: float, b: float) -> str:
    '''Add two numbers.'''
    ran.append((a, b))
    return f"{a + b:g}"


@tool
def rest() -> str:
    '''Rest for a while.'''
    Path("rested").touch()
    time.sleep(0.2)
    return "rested"


def agent():
    asked = [("add", {"a": a, "b": 1}) for a in (1, 2, 3)]
    model = ScriptedModel([calls(*asked), "Done."])
    return Agent("adder", model, tools=[add], store="sqlite:///store.db")


def tired():
    script = [*([calls(("rest", {}))] * 60), "Rested."]
    return Agent("tired", ScriptedModel(script), tools=[rest], store="sqlite:///store.db",
                 max_iterations=70)
"""


@pytest.fixture
def code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (folder / "made.py").write_text(MADE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("made", None)
    import made  # type: ignore[import-not-found]  # noqa: PLC0415  # the file that was just written

    yield made
    sys.modules.pop("made", None)


@pytest.fixture
def shell(code: Any) -> Iterator[Shell]:
    agent = code.agent()
    with DebugSession(agent) as session:
        made = Shell(session, Doors(agent=lambda: agent, look=lambda: agent))
        yield made
        made.close()
    agent.close()


def told(shell: Shell, *lines: str) -> str:
    return "\n".join(said for line in lines for said in shell.execute(line).lines)


def test_a_run_is_held_before_the_second_of_three_calls(shell: Shell, code: Any) -> None:
    assert "run of adder" in told(shell, "run add")
    told(shell, "tbreak tool:add if args.a == 2")
    assert "breakpoint 1" in told(shell, "c")
    assert (2, 1) not in code.ran
    assert shell.session.mode == "LIVE stopped (volatile)"
    assert "add" in told(shell, "bt")
    told(shell, 'set args = {"a": 20, "b": 1}')
    text = told(shell, "c")
    assert "Done." in text
    assert sorted(code.ran) == [(1, 1), (3, 1), (20, 1)]
    assert shell.prompt.startswith("(wdb PAST ")


def test_what_was_kept_is_previewed_before_it_goes_on(wick: Wick, code: Any) -> None:
    wick("made:agent", "add", "-b", "tool:add", "--batch", "-e", "c; detach keep")
    told = wick("made:agent", "--last", "--batch", "-e", "last; preview")
    assert told[0] == 0, told
    assert any(line.startswith("tool add: really called") for line in told[1])
    assert code.ran == []


def test_a_recording_without_its_agent_says_how_one_is_named(journal: Journal) -> None:
    with DebugSession.open(journal) as session:
        shell = Shell(session)
        assert "node model" in told(shell, "@1", "preview")
        with pytest.raises(DebugError, match="name one: wick debug AGENT"):
            told(shell, "last", "preview")


def test_a_call_is_skipped_with_an_answer(shell: Shell, code: Any) -> None:
    told(shell, "run add", "tbreak tool:add if args.a == 2", "c", 'skip "nothing"', "c")
    assert sorted(code.ran) == [(1, 1), (3, 1)]
    told(shell, "last")
    assert told(shell, "p messages[3].content") == "nothing"


def test_a_finished_run_is_forked_with_other_arguments(shell: Shell, code: Any) -> None:
    told(shell, "run add", "c")
    del code.ran[:]
    told(shell, "b tool:add if args.a == 2", "first", "c")
    before = told(shell, "moments")
    planned = told(shell, 'set args = {"a": 5, "b": 5}')
    assert "nothing has run yet; `live` runs it" in planned
    assert code.ran == []
    told(shell, "policy add live", "delete")
    text = told(shell, "live")
    if "Done." not in text:
        told(shell, "c")
    assert (5, 5) in code.ran
    assert shell.session.branch == 1
    assert "b1, left b0" in told(shell, "branch")
    told(shell, "branch 0")
    assert told(shell, "moments") == before


def test_what_is_set_at_one_moment_adds_up(shell: Shell, code: Any) -> None:
    told(shell, "run add", "c", "b tool:add if args.a == 2", "first", "c", "delete")
    told(shell, "set args.a = 5", "set args.b = 7")
    assert "args is changed" in told(shell, "fork other")
    told(shell, "policy add live", "set args.b = 8", "live", "c")
    assert (5, 8) in code.ran
    compared = told(shell, "compare 0 1")
    assert compared.startswith("tools, visit 2: ")
    assert "add({'a': 5, 'b': 8}) → 13" in compared
    told(shell, "first")
    assert "is changed" not in told(shell, "fork")


def test_null_is_an_empty_result_and_no_other_edit(shell: Shell, code: Any) -> None:
    told(shell, "run add", "c", "first", "tbreak tool:add:after if args.a == 2", "c")
    for target in ("args", "response"):
        with pytest.raises(DebugError, match=f"null changes no {target}"):
            told(shell, f"set {target} = null")
    del code.ran[:]
    assert "add: answered with a given value" in told(shell, "set result = null")
    assert "Done." in told(shell, "live", "c")
    told(shell, "last")
    assert told(shell, "p messages[3].content") == '""'
    assert code.ran == []


def test_what_is_set_in_a_held_call_adds_up(shell: Shell, code: Any) -> None:
    told(shell, "run add", "tbreak tool:add if args.a == 2", "c")
    told(shell, "set args.a = 5", "set args.b = 7", "c")
    assert sorted(code.ran) == [(1, 1), (3, 1), (5, 7)]


def test_a_key_in_quotes_may_hold_the_sign_of_an_assignment(shell: Shell) -> None:
    told(shell, "run add", "tbreak tool:add if args.a == 2", "c")
    told_back = told(shell, 'set args["a=b"] = "c=d"')
    assert told_back == "add will be run with these arguments"


def test_a_value_is_edited_as_a_text(shell: Shell) -> None:
    told(shell, "run add", "tbreak tool:add if args.a == 2", "c")
    seen = []

    def edit(text: str) -> str:
        seen.append(text)
        return "9"

    shell.doors.edit = edit
    told(shell, "edit args.b", "edit args.b")
    assert seen == ["1", "9"]
    with pytest.raises(DebugError, match="no 'zz'"):
        shell.execute("edit args.zz")


def test_a_run_begins_anew_and_says_before_what_it_does(shell: Shell, code: Any) -> None:
    told(shell, "run add", "tbreak tool:add if args.a == 2", "c")
    text = told(shell, "restart")
    assert "model scripted: really called" in text
    assert "tool add: really called; it has side effects" in text
    assert text.endswith("nothing has run yet; `live` runs it")
    del code.ran[:]
    told(shell, "live")
    assert code.ran == []
    assert "Done." in told(shell, "c")
    assert sorted(code.ran) == [(1, 1), (2, 1), (3, 1)]
    assert shell.session.branch == 1


@pytest.mark.parametrize(
    ("lines", "shown", "ran", "results"),
    [
        pytest.param(
            ["policy add live", "fork @2", "policy add recorded"],
            "model=recorded add=recorded other=recorded missing=ask",
            [],
            ["2", "3", "4"],
            id="recorded-after-fork",
        ),
        pytest.param(
            ["fork @2", "policy other live"],
            "model=recorded other=live missing=ask",
            [(1, 1), (2, 1), (3, 1)],
            ["2", "3", "4"],
            id="live-after-fork",
        ),
        pytest.param(
            ["fork @2", 'mock add "mocked"'],
            "model=recorded add=mock mocked other=recorded missing=ask",
            [],
            ["mocked"] * 3,
            id="mock-after-fork",
        ),
        pytest.param(
            ["restart", "policy add recorded", "policy model recorded"],
            "model=recorded add=recorded other=live missing=ask",
            [],
            ["2", "3", "4"],
            id="recorded-after-restart",
        ),
    ],
)
def test_what_is_said_last_holds_for_the_prepared_fork(
    lines: list[str], shown: str, ran: list[Any], results: list[str], shell: Shell, code: Any
) -> None:
    told(shell, "run add", "c")
    del code.ran[:]
    told(shell, *lines)
    assert told(shell, "policy") == told(shell, "info policy") == shown
    assert shell.plan is not None
    assert shell.plan == shell.session.fork(shell.plan.position, policy=shell.plan.policy)
    assert "Done." in told(shell, "live", "c")
    assert sorted(code.ran) == ran
    told(shell, "last")
    assert [told(shell, f"p messages[{at}].content") for at in (2, 3, 4)] == results


def test_a_replay_calls_nothing_and_says_so(shell: Shell, code: Any) -> None:
    told(shell, "run add", "c")
    del code.ran[:]
    text = told(shell, "replay")
    assert "really called: 0 models, 0 tools" in text
    assert "it did what was recorded" in text
    assert code.ran == []
    assert shell.session.mode == "REPLAY" or shell.outer
    with pytest.raises(DebugError, match="this is a replay; `leave` goes back"):
        shell.execute("replay 1")
    told(shell, "leave")
    assert shell.session.mode == "PAST"


def test_a_faithful_replay_of_any_run_of_a_thread_is_called_so(folder: Path) -> None:
    schema = {"title": "City", "type": "object", "properties": {"name": {"type": "string"}}}
    steps = [call("City", name="Bern"), call("City", name="Ulm")]
    agent = Agent("typed", ScriptedModel(steps), output_type=schema, store="sqlite:///typed.db")
    with agent:
        agent.invoke("Which?", thread_id="t")
        agent.invoke("Which other?", thread_id="t")
        with DebugSession.open("sqlite:///typed.db", "t") as session:
            shell = Shell(session, Doors(look=lambda: agent))
            for line in ("replay 1", "replay 2", "replay"):
                assert "it did what was recorded" in told(shell, line)
                told(shell, "leave")


def test_an_agent_of_a_module_runs_from_the_command_line(code: Any, wick: Wick) -> None:
    script = "tbreak tool:add if args.a == 3; run add; c; p args.a; c"
    exit_code, out, _ = wick("made:agent", "--batch", "-e", script)
    assert exit_code == 0
    assert "3" in out
    assert out[-1] == "Done."
    assert wick("made:nothing", "--batch", "-e", "bt")[2].startswith("wick: made has no nothing")


def test_an_input_on_the_command_line_is_held_at_its_entry(code: Any, wick: Wick) -> None:
    _, out, _ = wick("made:agent", "add", "--batch", "-e", "bt")
    assert "agent adder" in "\n".join(out)
    exit_code, out, _ = wick("made:agent", "add", "--no-stop", "--batch", "-e", "p 1")
    assert (exit_code, "Done." in out) == (0, True)


def test_what_is_kept_goes_on_in_another_process(code: Any, folder: Path, wick: Wick) -> None:
    _, out, _ = wick("made:agent", "add", "--batch", "-e", "turn; detach keep")
    with SqlSaver.from_url("sqlite:///store.db") as saver:
        (info,) = saver.threads.list()
        assert Journal(saver, info.thread_id).last() > 0
    _, out, _ = wick("made:agent", "-t", info.thread_id, "--batch", "-e", "last; live; c")
    assert out[-1] == "Done."


def test_ctrl_c_stops_a_running_run(code: Any, folder: Path) -> None:
    terminal = Typist(folder, "debug", "made:tired")
    try:
        terminal.expect_exact("moving runs nothing")
        terminal.sendline("tbreak tool:rest")
        terminal.sendline("run rest")
        terminal.expect_exact("run of tired")
        terminal.sendline("c")
        terminal.expect_exact("tool:rest")
        terminal.sendline("c")
        until(lambda: (folder / "rested").exists(), "the tool never ran")
        terminal.sendintr()
        terminal.expect(r"\(wdb LIVE stopped \(volatile\)")
        terminal.sendline("abort")
        terminal.expect_exact("(wdb PAST")
        terminal.sendline("q")
        terminal.expect(pexpect.EOF)
        assert terminal.wait() == 0
    finally:
        terminal.end()


def test_a_replay_by_other_code_says_so_and_stops_where_they_part(shell: Shell, code: Any) -> None:
    told(shell, "run add", "c")
    other = code.agent()
    other.spec = replace(other.spec, system_prompt="Subtract.")
    shell.doors.look = lambda: other
    shell.session.agent = None
    lines = shell.execute("replay").lines
    assert lines[0] == "recorded with another prompt, hook list, limit or tool schema"
    assert "+system: Subtract." in lines
    assert shell.last_stop is not None
    assert shell.last_stop.reason == "divergence"
    other.close()


def test_a_long_preview_folds_its_loops() -> None:
    turn = ["node model", "model m", "node tools", "tool add"]
    lines = show.folded(["node before_agent", *turn * 200, "node end"])
    assert lines[1:6] == [*turn, "… the last 4 lines, 200 times in all"]
    assert len(lines) == 7
    assert len(show.folded([f"tool t{at}" for at in range(500)])) <= 40
