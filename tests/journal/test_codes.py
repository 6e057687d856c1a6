"""Numbers on disk stand in explicit tables: what a release has written, every later one reads."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType
from typing import Any, Final, get_args

import ormsgpack
import pytest

from tests.journal.conftest import Opener
from tests.journal.support import agent_of
from tests.journal.test_lost import killed, run_fatally
from wick_graph.errors import StorageError
from wick_graph.journal import encode, page_format, recorder
from wick_graph.store import codec
from wick_graph.store import shapes as compact
from wick_graph.store.row_format import DELTA, DICT, LIST
from wick_graph.testing import ScriptedModel, call
from wick_graph.types import Phase, Replay

FROZEN: dict[tuple[ModuleType, str], dict[Any, int]] = {
    (page_format, "KINDS"): {
        ("run", "enter"): 0,
        ("run", "exit"): 1,
        ("run", "error"): 2,
        ("node", "enter"): 3,
        ("node", "exit"): 4,
        ("node", "error"): 5,
        ("hook", "enter"): 6,
        ("hook", "exit"): 7,
        ("hook", "error"): 8,
        ("model", "request"): 9,
        ("model", "replaced"): 10,
        ("model", "response"): 11,
        ("model", "error"): 12,
        ("model", "retry"): 13,
        ("model", "fallback"): 14,
        ("model", "chunk"): 15,
        ("route", "taken"): 16,
        ("tool", "enter"): 17,
        ("tool", "call"): 18,
        ("tool", "replaced"): 19,
        ("tool", "return"): 20,
        ("tool", "exit"): 21,
        ("tool", "error"): 22,
        ("interrupt", "raise"): 23,
        ("interrupt", "answer"): 24,
        ("event", "event"): 25,
        ("event", "lost"): 26,
        ("node", "retry"): 27,
        ("node", "cached"): 28,
        ("state", "update"): 29,
        ("agent", "spawn"): 30,
        ("agent", "return"): 31,
    },
    (page_format, "NODES"): {"before_agent": 0, "modify_request": 1, "model": 2, "tools": 3},
    (page_format, "PHASE_CODES"): {
        "before_agent": 0,
        "modify_request": 1,
        "wrap_model_call": 2,
        "after_model": 3,
        "wrap_tool_call": 4,
    },
    (page_format, "ABOUT"): dict(
        zip(
            (
                *("agent", "model", "hooks", "graph", "code", "versions", "level", "mode", "base"),
                *("first", "steps", "visits", "last", "stopped", "wick-graph", "langgraph"),
                *("langchain-core", "before_agent", "modify_request", "tools"),
            ),
            range(20),
            strict=True,
        )
    ),
    (encode, "REPLAY_CODES"): {"safe": 0, "key": 1, "never": 2},
}
"""What journals hold; a line may be added, and none may change."""
TAGS = {
    **{"TUPLE": 1, "SET": 2, "FROZENSET": 3, "DEQUE": 4, "TEXT": 5, "INT": 6, "PAIRS": 7},
    **{"DATETIME": 8, "DATE": 9, "TIME": 10, "TIMEDELTA": 11, "UUID": 12, "DECIMAL": 13},
    **{"PATH": 14, "COMPACT": 16, "SEND": 18, "INTERRUPT": 19, "COMMAND": 20, "OVERWRITE": 21},
    **{"DELTA": 22, "EXCEPTION": 23, "TIMEOUT": 24, "ALLOWED": 25, "BLOB": 26, "PATTERN": 27},
    **{"IP": 28, "ARRAY": 29, "KEYED": 30, "END": 127},
}
CLASSES = {
    **{"HumanMessage": 1, "AIMessage": 2, "ToolMessage": 3, "SystemMessage": 4, "ChatMessage": 5},
    **{"FunctionMessage": 6, "RemoveMessage": 7, "HumanMessageChunk": 8, "AIMessageChunk": 9},
    **{"ToolMessageChunk": 10, "SystemMessageChunk": 11, "ChatMessageChunk": 12},
    **{"FunctionMessageChunk": 13, "Document": 14},
}
LETTERS = {
    **{"content": "c", "additional_kwargs": "k", "response_metadata": "r", "type": "t"},
    **{"name": "n", "id": "i", "tool_calls": "u", "invalid_tool_calls": "v"},
    **{"usage_metadata": "g", "tool_call_chunks": "h", "chunk_position": "p"},
    **{"tool_call_id": "o", "artifact": "a", "status": "s", "role": "l", "metadata": "m"},
    **{"page_content": "d", "example": "e"},
}


def name_of(table: tuple[ModuleType, str]) -> str:
    return f"{table[0].__name__}.{table[1]}"


@pytest.mark.parametrize("table", FROZEN, ids=name_of)
def test_a_table_of_the_journal_is_what_it_was(table: tuple[ModuleType, str]) -> None:
    module, name = table
    assert getattr(module, name) == FROZEN[table]


@pytest.mark.parametrize("table", FROZEN, ids=name_of)
def test_a_table_of_the_journal_is_spelt_out(table: tuple[ModuleType, str]) -> None:
    """Nothing computes a number: neither the order of a literal nor that of another table."""
    module, name = table
    made = [
        node.value
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name
    ]
    (value,) = made
    assert isinstance(value, ast.Dict)
    assert ast.literal_eval(value) == FROZEN[table]


def test_what_a_row_tells_of_its_run_is_short_and_read_as_it_was_written() -> None:
    about = {"agent": "a", "visits": {"model": 2, "tools": 1, "other": 3}, "by": b"x", "redact": []}
    packed = page_format.pack_about(about)
    assert len(packed) < len(ormsgpack.packb(about))
    assert page_format.unpack_about(packed) == about
    assert page_format.unpack_about(ormsgpack.packb(about)) == about  # as older releases wrote it


def test_places_in_the_journal_are_what_they_were() -> None:
    assert page_format.FORMAT == 1
    places = [
        page_format.AT,
        page_format.UP,
        page_format.DEPTH,
        page_format.PLACE,
        page_format.NAME,
        page_format.FIELDS,
    ]
    assert places == [1, 2, 3, 4, 5, 6]
    assert (encode.APPEND, encode.REPLACE, encode.REMOVE, encode.SET) == (0, 1, 2, 3)
    used = "input_tokens output_tokens total_tokens cache_read cache_write reasoning"
    assert " ".join(encode.USAGE) == used


def test_numbers_of_stored_values_are_what_they_were() -> None:
    assert codec.FORMAT == 1
    assert {tag.name: int(tag) for tag in codec.Tag} == TAGS
    assert {shape.cls.__name__: n for n, shape in compact.BY_NUMBER.items()} == CLASSES
    letters = [
        (field, letter) for shape in compact.BY_NUMBER.values() for field, letter, _ in shape.fields
    ]
    assert set(letters) <= set(LETTERS.items())
    assert (LIST, DICT, DELTA) == (0, 1, 2)


def test_all_that_can_be_written_has_a_number() -> None:
    assert set(get_args(Phase)) <= set(page_format.PHASE_CODES)
    assert set(get_args(Replay)) <= set(encode.REPLAY_CODES)
    for codes in FROZEN.values():
        assert len(set(codes.values())) == len(codes)


ROUTE: Final = "route", "taken"

LATER: dict[str, tuple[Any, Any, Any]] = {
    "a kind": (recorder.PLANS, ROUTE, recorder.PLANS[ROUTE]._replace(code=99)),
    "a node": (page_format.NODES, "tools", 99),
    "a phase": (page_format.PHASE_CODES, "after_model", 99),
}
"""What a later release writes with a number of its own."""


@pytest.mark.parametrize("what", LATER)
def test_an_unknown_number_reads_as_a_gap_and_hides_nothing_else(
    what: str, url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, name, number = LATER[what]
    asked: list[Any] = [call("add", a=1, b=1), "Done."]
    agent_of(url, model=ScriptedModel(asked))[0].invoke("add", thread_id="known")
    known = list(opened("known").moments())
    # A later release is this one with another number in its table; readers use the inverse ones.
    monkeypatch.setitem(table, name, number)
    agent_of(url, model=ScriptedModel(asked))[0].invoke("add", thread_id="later")
    monkeypatch.undo()

    def is_later(at: int) -> bool:
        m = known[at]
        return name in ((m.kind, m.phase), m.node, m.hook_phase)

    journal = opened("later")
    seen = list(journal.moments())
    assert [m.seq for m in seen] == [m.seq for m in known]
    assert any(map(is_later, range(len(known))))
    for at, moment in enumerate(seen):
        if is_later(at):
            assert (moment.kind, moment.phase, moment.status) == ("gap", "unknown", "lost")
            with pytest.raises(StorageError, match="a later release of wick_graph wrote it"):
                journal.moment(moment.seq)
        else:
            assert (moment.what, moment.name) == (known[at].what, known[at].name)
            journal.to_dict(moment)
    assert len(journal.problems()) == sum(map(is_later, range(len(known))))
    assert [m.seq for m in journal.backwards()] == [m.seq for m in seen][::-1]
    assert journal.state_at(seen[-1].seq).values["messages"]


def test_a_run_goes_on_behind_a_dead_one_with_unknown_nodes(
    url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run follows the dead one's pages, and counts the visits that it can name."""
    monkeypatch.setitem(page_format.NODES, "tools", 99)
    killed(lambda: run_fatally(url))
    monkeypatch.undo()
    model = ScriptedModel(["fine"], cursor="fifo")
    agent_of(url, hooks=[], model=model)[0].invoke("again", thread_id="t")
    journal = opened()
    dead, _ = journal.runs()
    entered = list(journal.moments(2, kind="node.enter"))
    assert dead.status == "lost"
    before = [m for m in journal.moments(1, kind="node.enter") if m.name == "model"]
    assert [m.visit for m in entered if m.name == "model"] == [len(before) + 1]


def test_names_become_numbers_at_two_levels_and_names_again() -> None:
    about = {
        "agent": "a",
        "own": [{"agent": 1}],
        "visits": {"model": 2, "tools": {"agent": 3}, "mine": {}},
        "hooks": [],
    }
    packed = page_format.pack_about(about)
    assert ormsgpack.unpackb(packed, option=ormsgpack.OPT_NON_STR_KEYS) == {
        0: "a",
        "own": [{"agent": 1}],
        11: {1: 2, 19: {"agent": 3}, "mine": {}},
        2: [],
    }
    assert list(page_format.unpack_about(packed).items()) == list(about.items())
