"""The debugger's language: every command, in a recording."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wick_graph.debug.terminal import Reply, Shell
from wick_graph.debug.terminal.registry import commands_in
from wick_graph.debug.terminal.shell import COMMANDS
from wick_graph.errors import DebugError, ExpressionError

GARBAGE = (
    *("", "zzz", "-1", "99999999999999999999", "[", "{", '"', "'", "@99", "@", "#0", "a b c d"),
    *("messages[", "messages[-99]", "x = [", "= 3", "\x00", "💥", "x" * 5_000, "((((", "@-1 @-1"),
)


def said(shell: Shell, line: str) -> list[str]:
    return shell.execute(line).lines


def told(shell: Shell, *lines: str) -> str:
    return "\n".join(said for line in lines for said in shell.execute(line).lines)


@pytest.mark.parametrize("name", [c.names[0] for c in COMMANDS.all if c.names[0] != "quit"])
def test_nothing_that_is_typed_is_a_traceback(name: str, shell: Shell) -> None:
    for rest in GARBAGE:
        shell._collecting = None
        ((_, answer),) = shell.run([f"{name} {rest}".rstrip()])
        assert isinstance(answer, Reply) or str(answer).strip()


def test_every_name_has_help_and_can_be_cut_short(shell: Shell) -> None:
    for command in COMMANDS.all:
        assert command.usage.split()[0] == command.names[0]
        assert told(shell, f"help {command.names[-1]}").startswith(command.usage)
    listed = told(shell, "help")
    assert all(command.names[0] in listed for command in COMMANDS.all)
    assert COMMANDS.find("reverse-c", {}).names[0] == "reverse-continue"
    with pytest.raises(DebugError, match="may be reverse-continue, reverse-finish"):
        COMMANDS.find("reverse-", {})
    with pytest.raises(DebugError, match="did you mean continue"):
        COMMANDS.find("contnue", {})


@pytest.mark.parametrize(
    ("line", "position"),
    [
        pytest.param("s", "t/b0@1", id="step"),
        pytest.param("n", "t/b0@1", id="next"),
        pytest.param("nn", "t/b0@1", id="nextnode"),
        pytest.param("turn", "t/b0@3.3", id="turn"),
        pytest.param("c", "t/b0#62", id="continue"),
        pytest.param("until @6", "t/b0@6", id="until-place"),
        pytest.param("until len(messages) > 1", "t/b0@3.8", id="until-expression"),
        pytest.param("@-1", "t/b0@8", id="at"),
        pytest.param("#12", "t/b0@3.3", id="number"),
        pytest.param("b0@4", "t/b0@4", id="branch"),
        pytest.param("last", "t/b0#62", id="last"),
        pytest.param("error", "t/b0@6.9", id="error"),
        pytest.param("goto @error", "t/b0@6.9", id="goto"),
    ],
)
def test_verbs_move(line: str, position: str, shell: Shell) -> None:
    shell.execute(line)
    assert str(shell.session.position) == position


@pytest.mark.parametrize(
    ("forth", "back"),
    [("s", "rs"), ("n", "rn"), ("nn", "pn"), ("turn", "pt"), ("c", "rc"), ("fin", "rf")],
)
def test_each_verb_has_one_back(forth: str, back: str, shell: Shell) -> None:
    shell.execute("@3")
    before = str(shell.session.position)
    shell.execute(forth)
    assert str(shell.session.position) != before
    shell.execute(back)
    assert str(shell.session.position) == before


def test_an_empty_line_repeats_a_step_and_nothing_else(shell: Shell) -> None:
    shell.execute("@3")
    shell.execute("s")
    shell.execute("")
    assert str(shell.session.position) == "t/b0@3.3"
    shell.execute("p step")
    assert shell.execute("").lines == []
    assert str(shell.session.position) == "t/b0@3.3"


def test_the_end_of_a_recording_is_said(shell: Shell) -> None:
    shell.execute("last")
    reply = shell.execute("c")
    assert "end of the recording" in reply.lines[0]
    assert not reply.stop.moved


def test_breakpoints_are_made_listed_changed_and_deleted(shell: Shell) -> None:
    assert said(shell, "b tool:add if error") == ["  1  break tool:add if error"]
    said(shell, "watch todos")
    said(shell, "tbreak route:end")
    assert len(said(shell, "info breaks")) == 3
    assert said(shell, "b") == said(shell, "info breaks")
    said(shell, "condition 1 args.a == 2")
    assert "args.a == 2" in said(shell, "b")[0]
    said(shell, "disable 2")
    assert "(disabled)" in said(shell, "b")[1]
    said(shell, "d 2")
    assert [line.split()[0] for line in said(shell, "b")] == ["1", "3"]
    with pytest.raises(DebugError, match="no breakpoint 9"):
        shell.execute("d 9")
    said(shell, "delete")
    assert "there are no breakpoints" in said(shell, "b")[0]


def test_where_it_would_stop_is_listed_of_the_whole_past(shell: Shell) -> None:
    said(shell, "b tool:add:after if error")
    (line,) = said(shell, "hits 1")
    assert "negative numbers are not added" in line
    assert str(shell.session.position) == "t/b0#1"


def test_a_log_point_tells_of_the_past_at_once(shell: Shell) -> None:
    lines = said(shell, 'log tool:add:after "{tool} {args.a} {error}"')
    assert lines[0].endswith('log tool:add:after "{tool} {args.a} {error}"')
    assert sorted(lines[1:]) == [
        "add -3 negative numbers are not added",
        "add 1 None",
        "add 2 None",
    ]


def test_commands_of_a_breakpoint_run_at_each_stop(shell: Shell) -> None:
    for line in ("b tool:add if error", "commands 1", "p tool", "call", "end"):
        shell.execute(line)
    text = told(shell, "c")
    assert (
        text.splitlines()[-3:]
        == [
            "add",
            'add({"a": -3, "b": 11})  call_1_3',
            "  ✕ negative numbers are not added",
        ]
        or "asked for with" in text
    )


def test_commands_that_call_themselves_end(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "again"
    path.write_text(f"source {path}\n", encoding="utf-8")
    with pytest.raises(DebugError, match="without end"):
        shell.execute(f"source {path}")


def test_frames_are_chosen_and_asked_about(shell: Shell) -> None:
    shell.execute("@6.5")
    stack = said(shell, "bt")
    assert stack[0].startswith("▶ 0")
    assert "tool add" in "\n".join(stack)
    assert said(shell, "up")[0].startswith("1")
    assert said(shell, "bt")[1].startswith("▶ 1")
    shell.execute("down")
    with pytest.raises(DebugError, match="innermost"):
        shell.execute("down")
    shell.execute("up")
    shell.execute("s")
    assert shell.frame == 0


def test_values_are_printed_and_displayed(shell: Shell) -> None:
    shell.execute("@8")
    assert said(shell, "p len(messages)") == ["5"]
    assert said(shell, "p messages[0].content") == ["add"]
    assert said(shell, "display step") == ["step = 8"]
    assert said(shell, "pn")[-1] == "step = 7"
    said(shell, "undisplay step")
    assert "step =" not in told(shell, "nn")
    assert "messages = 5 items, the last tool add: Error: negative" in told(shell, "state")
    assert said(shell, "state memory") == ['{"notes": "be brief"}']


def test_requests_blame_and_routes_are_shown(shell: Shell) -> None:
    shell.execute("turn")
    request = told(shell, "request")
    assert request.startswith("request @3.3\n")
    assert "user: add" in request
    assert 'settings {"temperature": 0.3}' in request
    blame = said(shell, "blame")
    assert any(line.startswith("+ system   guard #12") and "Be careful." in line for line in blame)
    assert any(line.startswith("+ message  todo") and "Mind the time." in line for line in blame)
    route = said(shell, "route")
    assert route[0] == "route: tools: the reply calls 3 tool(s)"
    assert any("✓ route: tools" in line for line in route)


@pytest.mark.parametrize(
    ("at", "first"),
    [("@3.3", "request @3.3"), ("@3.4", "request @3.3 (before here)"), ("@2", "(after here)")],
)
def test_which_request_is_shown_is_said_first(at: str, first: str, shell: Shell) -> None:
    shell.execute(at)
    for command in ("request", "blame"):
        assert said(shell, command)[0].endswith(first)


def test_what_a_hook_changed_is_said_to_be_elsewhere(shell: Shell) -> None:
    shell.execute("@2")
    while (here := shell.session.here) and "changed" not in shell.session.inspect.line(here):
        assert said(shell, "diff") == ["nothing changed"] or here.step > 2
        shell.execute("s")
    assert said(shell, "diff") == ["nothing of the state changed; `blame` shows the request"]


def test_why_says_who_wrote_it(shell: Shell) -> None:
    shell.execute("last")
    text = told(shell, "why messages[4].content")
    assert "by tool:add (call call_1_3)" in text
    assert "because" in text


def test_changes_are_shown_first(shell: Shell) -> None:
    shell.execute("@6.9")
    assert "negative numbers are not added" in told(shell, "diff")
    assert "todos" in told(shell, "diff @1 @8") or "messages" in told(shell, "diff @1 @8")
    assert "tool add: Error: negative" in told(shell, "history messages")


def test_texts_are_found_and_turning_points_too(shell: Shell) -> None:
    assert "negative" in told(shell, "search negative numbers")
    found = shell.execute('bisect @1 @last "len(messages) > 4"')
    assert found.data["step"] > 3
    with pytest.raises(ExpressionError, match="nope"):
        shell.execute("bisect @1 @last nope > 1")
    assert "they are the same" in told(shell, "compare 0 0")


def test_words_of_a_line_are_completed(shell: Shell) -> None:
    assert shell.complete("rev") == [
        "reverse-continue", "reverse-finish", "reverse-next", "reverse-step", "reverse-until",
    ]  # fmt: skip
    assert shell.complete("b tool:a") == ["tool:add"]
    assert "tools" in shell.complete("tbreak to")
    assert shell.complete("why mess") == ["messages"]
    assert shell.complete("export h") == ["html"]
    assert shell.complete("nonsense x") == []


def test_aliases_and_files_of_commands(shell: Shell, tmp_path: Path) -> None:
    shell.execute("alias boom = goto @error")
    shell.execute("boom")
    assert str(shell.session.position) == "t/b0@6.9"
    shell.execute("b tool:*")
    shell.execute("watch todos if len(todos) == 0")
    path = tmp_path / "breaks"
    assert "wrote 2 to" in told(shell, f"save breakpoints {path}")
    before = said(shell, "b")
    shell.execute("delete")
    shell.execute(f"source {path}")
    after = said(shell, "b")
    assert [line[3:] for line in before] == [line[3:] for line in after]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param("break nofile.py:3", "nofile.py:3 is never reached", id="no-line"),
        pytest.param('log tool:* "{foo"', "has a brace without its other", id="unclosed-brace"),
        pytest.param('log tool:* "foo}"', "has a brace without its other", id="unopened-brace"),
        pytest.param("alias c = quit", "c is a command already", id="alias-hides"),
        pytest.param("alias quit = next", "quit is a command already", id="alias-hides-quit"),
        pytest.param("alias zz = nonsense", "there is no command 'nonsense'", id="alias-of-none"),
        pytest.param("pause", "nothing runs that could be paused", id="pause"),
    ],
)
def test_what_could_only_mislead_is_refused(line: str, said: str, shell: Shell) -> None:
    with pytest.raises(DebugError, match=re.escape(said)):
        shell.execute(line)
    assert not list(shell.session.breakpoints)
    assert shell.aliases == {}


@pytest.mark.parametrize(
    "expression",
    [
        "len(messages) > 4",
        '"len(messages) > 4"',
        "'len(messages) > 4'",
        '"a" == "a" and node == "x"',
    ],
)
def test_an_expression_may_stand_in_quotes_as_a_whole(expression: str, shell: Shell) -> None:
    if expression[1] == "a":
        with pytest.raises(DebugError, match="is untrue from"):
            shell.execute(f"bisect @1  @last {expression}")
    else:
        assert shell.execute(f"bisect @1  @last {expression}").data["step"] > 3


def test_a_line_that_swallows_its_next_command_is_refused() -> None:
    for text in ("p {1; c", "run what's up; c"):
        with pytest.raises(DebugError, match="is missing in"):
            commands_in(text)


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("c; bt ;rc", ["c", "bt", "rc"]),
        ('log tool:* "a; b"; c', ['log tool:* "a; b"', "c"]),
        ("p {'a;b': [1]}; n", ["p {'a;b': [1]}", "n"]),
        (";;", []),
        ('p "a\\";b"; c', ['p "a\\";b"', "c"]),
        ("run what's up", ["run what's up"]),
        ("p )]; c", ["p )]", "c"]),
    ],
)
def test_semicolons_separate_commands(text: str, commands: list[str]) -> None:
    assert commands_in(text) == commands
