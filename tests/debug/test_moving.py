"""The cursor: verbs forwards and backwards, positions, breakpoints. Nothing is ever executed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.debug.conftest import Opener
from tests.debug.support import WAIT, World
from tests.support.often import often
from wick_graph.debug import DebugSession
from wick_graph.debug.cursor import INVERSE
from wick_graph.errors import DebugError, ExpressionError
from wick_graph.testing import calls

FORWARD = ("step", "next", "finish", "nextnode", "turn", "cont")


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebugSession]:
    """Two turns of parallel calls, and a second input behind them."""
    path: Path = tmp_path_factory.mktemp("long") / "store.db"
    script = [
        calls(("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 1}), ("add", {"a": -3, "b": 1})),
        calls(("add", {"a": 4, "b": 1}), ("add", {"a": 5, "b": 1})),
        "Done.",
        "Again.",
    ]
    agent, _ = World().agent(f"sqlite:///{path}", *script)
    agent.invoke("add them", thread_id="t")
    agent.invoke("once more", thread_id="t")
    with DebugSession.open(agent, "t") as session:
        yield session
    agent.close()


UNTIL = ("visit == 2", "kind == 'tool'", "len(messages) > 4", "nothing == 1")
VERBS = sorted(set(INVERSE) - {"until", "reverse_until"})
LOCATIONS = ("tool:add", "model:request", "hook:guard", "route")
PROGRAMS = st.lists(
    st.one_of(
        st.sampled_from([(verb, "") for verb in VERBS]),
        st.tuples(st.sampled_from(["until", "reverse_until"]), st.sampled_from(UNTIL)),
    ),
    min_size=1,
    max_size=12,
)
STOPS = st.sets(st.sampled_from(LOCATIONS))


def moved(session: DebugSession, verb: str, text: str) -> bool:
    if verb == "until":
        return session.until(text, timeout=WAIT).moved
    return (session.reverse_until(text) if text else session.verb(verb, timeout=WAIT)).moved


def there_and_back(session: DebugSession, program: list[tuple[str, str]], stops: set[str]) -> None:
    """Do a program, then undo each of its moves: the cursor is where it was."""
    for breakpoint in session.breakpoints:
        session.breakpoints.delete(breakpoint.number)
    for location in sorted(stops):
        session.breakpoints.break_(location)
    began = session.here
    done = [move for move in program if moved(session, *move)]
    for verb, text in reversed(done):
        moved(session, INVERSE[verb], text)
    assert began is not None
    assert session.here is not None
    assert session.here.seq == began.seq


@pytest.fixture(scope="module")
def replayed(long: DebugSession) -> Iterator[DebugSession]:
    """The second run once more, from the recording."""
    assert long.replay(run=1, timeout=WAIT).reason == "finished"
    assert long.replayed is not None
    yield long.replayed
    long.replayed.close()


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=f"M2-{kind}") for kind in ("long", "replayed")]
)
@settings(deadline=None, max_examples=often(60), suppress_health_check=list(HealthCheck))
@given(start=st.integers(0, 10_000), program=PROGRAMS, stops=STOPS)
def test_forwards_then_backwards_is_the_same_moment(
    kind: str,
    request: pytest.FixtureRequest,
    start: int,
    program: list[tuple[str, str]],
    stops: set[str],
) -> None:
    session: DebugSession = request.getfixturevalue(kind)
    seqs = [entry.seq for entry in session.inspect.moments()]
    session.goto(f"#{seqs[start % len(seqs)]}")
    there_and_back(session, program, stops)


@pytest.mark.parametrize("row", ["M2"])
@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(program=PROGRAMS, stops=STOPS, door=st.sampled_from(["sync", "async"]))
def test_what_a_live_run_did_is_gone_back_over_to_the_same_moment(
    row: str, program: list[tuple[str, str]], stops: set[str], door: Any
) -> None:
    world = World()
    agent, _ = world.agent(None)
    with agent, DebugSession(agent) as session:
        session.run("add them", thread_id="t", door=door, timeout=WAIT)
        there_and_back(session, program, stops)
        assert len(world.added) == len(set(world.added)), "nothing is run twice"


@pytest.mark.parametrize("row", ["M2"])
def test_the_first_stop_of_a_run_has_nothing_before_it(row: str, world: World) -> None:
    agent, _ = world.agent(None)
    with agent, DebugSession(agent) as session:
        entry = session.run("add them", thread_id="t", timeout=WAIT).entry
        stop = session.reverse_step()
        assert (stop.reason, stop.entry, stop.moved) == ("start", entry, False)
        session.cont(timeout=WAIT)
        back = session.reverse_cont().entry
        assert back is not None
        assert entry is not None
        assert back.seq == entry.seq, "the end of a run is left as it was come to"


@pytest.mark.parametrize("verb", [pytest.param(verb, id=f"M2-{verb}") for verb in FORWARD])
def test_a_verb_stops_where_its_depth_says(verb: str, long: DebugSession) -> None:
    """Check each verb against the table of depths, from every moment, both ways."""
    for breakpoint in long.breakpoints:
        long.breakpoints.delete(breakpoint.number)
    entries = long.inspect.moments()
    for at, here in enumerate(entries):
        long.goto(f"#{here.seq}")
        stop = long.verb(verb)
        found = next((e for e in entries[at + 1 :] if fits(verb, here, e)), entries[-1])
        assert stop.entry is not None
        assert stop.entry.seq == found.seq
        long.goto(f"#{here.seq}")
        back = long.verb(INVERSE[verb])
        before = [e for e in entries[:at] if fits(verb, here, e, backwards=True)]
        assert back.entry is not None
        assert back.entry.seq == (before[-1] if before else entries[0]).seq


def fits(verb: str, here: Any, other: Any, *, backwards: bool = False) -> bool:
    """The table of the verbs, written down once more."""
    if verb == "step":
        return True
    if verb == "nextnode":
        return bool(other.what == "node.enter")
    if verb == "turn":
        return bool(other.what == "model.request")
    if verb == "cont":
        return False
    depth = max(here.depth, 1) - (verb == "finish")
    edges = ("node.enter",) if backwards else ("node.exit", "node.error")
    same_visit = other.task == here.task or other.checkpoint != here.checkpoint
    anywhere = here.task is None or here.what in edges or depth < 1
    return bool(other.depth <= depth and (anywhere or same_visit))


def test_moving_executes_nothing(opened: Opener, world: World) -> None:
    before = list(world.added)
    session = opened()
    for verb in (*FORWARD, *(INVERSE[verb] for verb in FORWARD)):
        session.verb(verb)
    assert session.mode == "PAST"
    assert world.added == before


@pytest.mark.parametrize(
    ("text", "what"),
    [
        pytest.param("@1", "node.enter", id="M2-step"),
        pytest.param("@3.2", "hook.enter", id="M2-part"),
        pytest.param("@first", "run.enter", id="M2-first"),
        pytest.param("@last", "run.exit", id="M2-last"),
        pytest.param("@error", "tool.exit", id="M2-error"),
        pytest.param("@-1", "node.enter", id="M2-from-the-end"),
        pytest.param("#12", "model.request", id="M2-seq"),
        pytest.param("t/b0@3.3", "model.request", id="M2-full"),
    ],
)
def test_positions(text: str, what: str, opened: Opener) -> None:
    session = opened()
    assert session.inspect.locate(text).what == what
    stop = session.goto(text)
    assert session.inspect.locate(stop.position) == stop.entry


@pytest.mark.sisters(2)
@pytest.mark.parametrize(
    "text",
    ["@99", "@3.99", "#9999", "12", "@", "b7@1", "other/b0@1", "@" + "9" * 40, "@1.0", "@0", ""],
)
def test_a_position_that_is_none_is_a_sentence(text: str, opened: Opener) -> None:
    session = opened()
    here = session.here
    with pytest.raises(DebugError, match="[a-z]"):
        session.goto(text)
    assert session.here == here


# --- breakpoints -------------------------------------------------------------------------------

SPECS: dict[str, list[int]] = {
    "break model": [10, 53],
    "break model:exit": [17, 60],
    "break modify_request": [6, 49],
    "break hook:todo.modify_request": [7, 50],
    "break hook:guard.after_model:exit": [16, 59],
    "break tool:add": [23, 27, 31],
    "break tool:a*:after": [],
    "break tool:* if error": [],
    "break tool:add if args.a == 2": [],
    "break model:request": [12, 55],
    "break model:request if len(messages) > 2": [55],
    "break model:response if usage.total_tokens > 0 hit 2": [56],
    "break route:tools": [18],
    "break route:end": [61],
    "break run:exit": [62],
    "break model:request hit %2": [55],
    "break model:request hit >=1": [12, 55],
    "tbreak model:request": [12],
    "watch todos": [17, 60],
    "watch memory": [5],
    "watch messages[1] if len(prev.messages) < 2": [17],
    "watch memory.notes": [5],
    "catch error": [],
    "catch tool-error": [],
    'log model:request "{len(messages)}"': [],
}
"""What each stops at; where parallel calls decide the order, only how often is compared."""
COUNTS = {
    "break tool:add": 3,
    "break tool:a*:after": 3,
    "break tool:* if error": 1,
    "break tool:add if args.a == 2": 1,
    "catch error": 1,
    "catch tool-error": 1,
}


@pytest.mark.sisters(5)
@pytest.mark.parametrize("spec", [pytest.param(spec, id=f"M4-{spec}") for spec in SPECS])
def test_breakpoints_stop_where_they_say(spec: str, opened: Opener) -> None:
    session = opened()
    breakpoint = session.add(spec)
    assert breakpoint.spec == spec
    assert breakpoint.verified
    found = []
    while (stop := session.cont()).reason != "end":
        assert stop.breakpoint == breakpoint.number
        found.append(stop.entry.seq if stop.entry else 0)
    if spec in COUNTS:
        assert len(found) == COUNTS[spec]
    else:
        assert found == SPECS[spec]


@pytest.mark.parametrize("spec", [pytest.param(spec, id=f"M4-{spec}") for spec in COUNTS])
def test_the_same_stops_backwards(spec: str, opened: Opener) -> None:
    session = opened()
    session.add(spec)
    there, back = [], []
    while (stop := session.cont()).reason != "end":
        there.append(stop.entry)
    session.goto("@last")
    while (stop := session.reverse_cont()).reason != "start":
        back.append(stop.entry)
    assert back == there[::-1]


def test_log_points_speak_forwards_only_and_about_the_past(opened: Opener) -> None:
    session = opened()
    said: list[str] = []
    session.outputs.listen(lambda output: said.append(output.text))
    log = session.breakpoints.log("tool:*:after", "{tool} gives {output}, {nothing}")
    counted = session.breakpoints.break_("model:request", hit="2")
    session.cont()
    assert sorted(said)[0].startswith("add gives 12!, <")
    assert (len(said), counted.hits) == (3, 2)
    session.goto("@last")
    session.reverse_cont()
    assert (len(said), counted.hits) == (3, 2)
    assert [line.text for line in session.inspect.past_log(log.number)] == said
    assert [entry.what for entry in session.inspect.hits(counted.number)] == ["model.request"] * 2


def test_breakpoints_are_changed_and_saved(opened: Opener) -> None:
    session = opened()
    one = session.add('break tool:add if glob(args.b, "1*")')
    assert session.cont().reason == "condition-error"
    session.breakpoints.condition(one.number, None)
    session.breakpoints.ignore(one.number, 1)
    assert session.cont().breakpoint == 1
    session.breakpoints.disable(1)
    assert session.cont().reason == "end"
    session.breakpoints.enable(1)
    saved = session.breakpoints.specs()
    session.breakpoints.delete(1)
    assert not list(session.breakpoints)
    again = [session.add(spec) for spec in saved]
    assert [found.spec for found in again] == saved
    with pytest.raises(DebugError, match="no breakpoint 1"):
        session.breakpoints.delete(1)


@pytest.mark.sisters(3)
@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("break", DebugError),
        ("break nowhere", DebugError),
        ("break hook:x.no_phase", DebugError),
        ("break hook:x:after", DebugError),
        ("break route:home", DebugError),
        ("break model if (", ExpressionError),
        ("break model if open('x')", ExpressionError),
        ("break model if messages.__class__", ExpressionError),
        ("break model hit twice", DebugError),
        ("break model if", DebugError),
        ("break model hit", DebugError),
        ("break model hit 0", DebugError),
        ("watch [1]", DebugError),
        ("watch messages[", DebugError),
        ("catch fish", DebugError),
        ("log model hello", DebugError),
        ('log model "{("', ExpressionError),
        ("fly model", DebugError),
    ],
)
def test_a_breakpoint_that_is_none_is_refused(
    spec: str, error: type[Exception], opened: Opener
) -> None:
    session = opened()
    if spec == 'log model "{("':
        spec = 'log model "{(}"'
    with pytest.raises(error):
        session.add(spec)
    assert not list(session.breakpoints)


@pytest.mark.parametrize(
    "condition",
    ["args.nothing", "1/0 > 1", "messages + 1", "sorted(messages)", '"x" * 9'],
)
def test_a_condition_that_fails_stops_and_shows_its_error(condition: str, opened: Opener) -> None:
    session = opened()
    session.breakpoints.break_("tool:add", condition)
    stop = session.cont()
    assert stop.reason == "condition-error"
    assert "cannot be evaluated" in stop.text
    assert stop.entry is not None
    assert stop.entry.what == "tool.call"


def test_until_looks_for_a_moment_or_an_expression(opened: Opener) -> None:
    session = opened()
    assert session.until("len(messages) > 4").entry == session.here
    assert session.value("len(messages)") > 4
    assert session.until("@3").entry == session.inspect.locate("@3")
    assert session.reverse_until("len(messages) == 0").moved
    assert session.until("visit > 100").text.startswith("visit > 100 was true at no moment")
    with pytest.raises(ExpressionError):
        session.until("visit >")
