"""One table of breakpoints: through each door of the debugger, each stops at the same moments."""

from __future__ import annotations

import json
import re

import pytest

from tests.debugger.conftest import Wick
from wick_graph.cli.app import call
from wick_graph.debug import DebugSession
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver

Found = list[tuple[str, int]]
"""Why and at which moment it stopped, again and again until the recording ended."""
HIT = frozenset({"breakpoint", "watch", "catch", "condition-error"})

TABLE = [
    pytest.param("break model", ["node.enter"] * 2, id="node"),
    pytest.param("break tools:exit", ["node.exit"] * 3, id="node-exit"),
    pytest.param("break hook:guard", ["hook.enter"] * 7, id="hook"),
    pytest.param("break hook:todo.modify_request:exit", ["hook.exit"] * 2, id="hook-phase-exit"),
    pytest.param("break tool:add", ["tool.call"] * 3, id="tool"),
    pytest.param("break tool:a*:enter", ["tool.enter"] * 3, id="tool-glob-enter"),
    pytest.param("break tool:add:after", ["tool.exit"] * 3, id="tool-after"),
    pytest.param("break tool:* if error", ["tool.exit"], id="tool-if-error"),
    pytest.param("break tool:add if args.a == 2", ["tool.call"], id="condition"),
    pytest.param("break tool:add hit 2", ["tool.call"], id="hit"),
    pytest.param("break tool:add hit >=2", ["tool.call"] * 2, id="hit-from"),
    pytest.param("break hook:* hit %5", ["hook.enter"] * 2, id="hit-each"),
    pytest.param("tbreak tool:add", ["tool.call"], id="temporary"),
    pytest.param("break model:request if len(messages) > 2", ["model.request"], id="request"),
    pytest.param("break model:response", ["model.response"] * 2, id="response"),
    pytest.param("break route", ["route.taken"] * 2, id="route"),
    pytest.param("break route:end", ["route.taken"], id="route-label"),
    pytest.param("break run:exit", ["run.exit"], id="run-exit"),
    pytest.param("break tool:nobody", [], id="never"),
    pytest.param("break interrupt", [], id="no-interrupt"),
    pytest.param("break tools if nope > 1", ["node.enter"] * 3, id="condition-fails"),
    pytest.param("watch todos", ["node.exit"] * 2, id="watch"),
    pytest.param("watch messages[1].content", ["node.exit"], id="watch-path"),
    pytest.param("watch iteration if iteration > 1", ["node.exit"], id="watch-if"),
    pytest.param("catch error", ["tool.exit"], id="catch"),
    pytest.param("catch tool-error", ["tool.exit"], id="catch-tool-error"),
    pytest.param("catch model-error", [], id="catch-nothing"),
    pytest.param('log tool:add "{args.a}"', [], id="log"),
]


def through_python(spec: str, saver: SqlSaver) -> Found:
    with DebugSession.open(saver, "t") as session:
        session.add(spec)
        found: Found = []
        while (stop := session.cont()).reason in HIT:
            assert stop.entry is not None
            found.append((stop.reason, stop.entry.seq))
    return found


def through_batch(spec: str, wick: Wick, many: int) -> Found:
    """Read the stops off what a script prints; the reason is the first word of its line."""
    script = "; ".join([spec, *["c", "p [seq]"] * many, "c"])
    code, out, _ = wick("-t", "t", "--batch", "-e", script)
    found: Found = []
    reason = ""
    for line in out[1:]:
        if head := re.match(r"(breakpoint|watch|catch) 1, ", line):
            reason = "condition-error" if "cannot be evaluated" in line else head[1]
        elif reason and (at := re.fullmatch(r"\[(\d+)\]", line)):
            found.append((reason, int(at[1])))
            reason = ""
    assert code == 0
    return found


def through_lines(
    spec: str, many: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Found:
    monkeypatch.setattr("sys.stdin", iter([f"{spec}\n", *["c\n"] * (many + 1), "quit\n"]))
    assert call(["debug", "-t", "t", "--mi"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    stops = [answer["stop"] for answer in answers if answer.get("stop")]
    assert stops[-1]["reason"] == "end"
    return [(stop["reason"], stop["seq"]) for stop in stops if stop["reason"] in HIT]


@pytest.mark.sisters(9)
@pytest.mark.parametrize(("spec", "kinds"), TABLE)
def test_each_door_stops_at_the_same_moments(
    spec: str,
    kinds: list[str],
    journal: Journal,
    saver: SqlSaver,
    wick: Wick,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = through_python(spec, saver)
    assert [journal.moment(seq).what for _, seq in found] == kinds
    assert through_batch(spec, wick, len(kinds)) == found
    assert through_lines(spec, len(kinds), monkeypatch, capsys) == found
