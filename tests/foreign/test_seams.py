"""This release of LangGraph has each seam, and each tells what nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from tests.foreign.graphs import loop, react, retried
from wick_graph.debug import record
from wick_graph.debug.recording import Recording
from wick_graph.foreign import seams
from wick_graph.store import SqlSaver

TOLD = {
    "runs": "run.enter",
    "tasks": "node.enter",
    "retries": "node.retry",
    "branches": "route.taken",
    "checkpoints": "node.cached",
    "updates": "state.update",
}
"""By seam, a moment that comes from it alone."""


def places() -> Iterator[Any]:
    for seam, found in seams._SEAMS.items():
        for module, name, parameters, _ in found:
            yield pytest.param(module, name, parameters, id=f"{seam}-{name}")


@pytest.mark.parametrize(("module", "name", "parameters"), [*places()])
def test_this_release_has_each_place(module: str, name: str, parameters: tuple[str, ...]) -> None:
    assert seams._found(module, name, parameters) is not None


def test_a_place_with_other_parameters_counts_as_missing() -> None:
    assert seams._found("langgraph.pregel", "Pregel.stream", ("self", "other")) is None
    assert seams._found("langgraph.pregel", "Pregel.gone", ("self",)) is None
    assert seams._found("langgraph.gone", "Pregel.stream", ("self",)) is None


@pytest.fixture(scope="module")
def told() -> Iterator[Recording]:
    """What is recorded of a few runs with all that the seams tell."""
    where: Any = {"configurable": {"thread_id": "t"}}
    with SqlSaver.from_url("sqlite://") as copies:
        with record(store=copies) as recording:
            assert seams.SEAMS.lacks == []
            for made in (retried(InMemorySaver()), loop(InMemorySaver()), react(InMemorySaver())):
                for given in made.inputs:
                    made.graph.invoke(given, where)
                where = {"configurable": {"thread_id": f"{len(recording.runs)}"}}
            again = loop(InMemorySaver())
            again.graph.invoke(again.inputs[0], where)
            again.graph.update_state(where, {"n": 1}, as_node="b")
        yield recording


def test_each_seam_is_named() -> None:
    assert {*TOLD, "answers"} == seams._SEAMS.keys()  # that one tells nothing: it holds and edits


@pytest.mark.parametrize("seam", TOLD)
def test_each_seam_tells_its_moments(seam: str, told: Recording) -> None:
    assert told.problems == []
    assert told.moments(TOLD[seam])


def test_the_layers_of_middleware_are_found(told: Recording) -> None:
    layers = [seams.name_of_layer(fn) for _, fn, _, _ in seams.layers_of(react(None).graph)]
    assert dict.fromkeys(layers).keys() == {"Prompting", "Passing", "Doubling"}
    assert {moment.name for moment in told.moments("hook.enter")} == {*layers}
