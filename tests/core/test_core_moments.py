"""Moments of pieces are made only for listeners that want them."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.messages import AIMessageChunk

from wick_graph.core.moments import Directive, Listeners, Moment, NodeListener, Place, Take, taker

PLACE = Place("model", "task", "checkpoint", 1)


class Recorder:
    """A listener that is told of moments."""

    active = tokens = True

    def __init__(self, *, holds: bool) -> None:
        self.holds = holds
        self.moments: list[Moment] = []

    def record(self, moment: Moment) -> None:
        self.moments.append(moment)

    async def at(self, moment: Moment) -> Directive:
        return None


class Reader(Recorder):
    """A listener that takes pieces."""

    def __init__(self, *, holds: bool = False) -> None:
        super().__init__(holds=holds)
        self.taken: list[Any] = []

    def pieces(self, name: str, place: Place | None) -> Take:
        def take(chunk: Any, text: str | None, reply: str) -> Moment | None:
            self.taken.append((name, place, chunk.content, text))
            return Moment("model", "chunk") if self.holds else None

        return take


def test_listeners_that_take_pieces_get_no_moments() -> None:
    first, second = Reader(), Reader(holds=True)
    take = taker(NodeListener(Listeners([first, second]), PLACE), "m")
    assert take(AIMessageChunk(content="a"), "a", "r") is not None
    second.holds = False
    assert take(AIMessageChunk(content="b"), None, "r") is None
    assert first.taken == second.taken == [("m", PLACE, "a", "a"), ("m", PLACE, "b", None)]
    assert not first.moments
    assert not second.moments


def test_all_share_one_moment_if_one_wants_moments() -> None:
    reader, recorder = Reader(), Recorder(holds=True)
    listener = NodeListener(Listeners([reader, recorder]), PLACE)
    chunk = AIMessageChunk(content="a", id="r")
    held = taker(listener, "m")(chunk, "a", "r")
    assert reader.moments == recorder.moments == [held]
    assert held is not None
    assert (held.name, held.data, held.place) == ("m", {"chunk": chunk}, PLACE)
    assert not reader.taken
    assert asyncio.run(listener.at(held)) is None
    recorder.holds = False
    assert taker(listener, "m")(chunk, "a", "r") is None


def test_a_moment_of_a_piece_has_the_reply_s_id_and_the_models_own_piece_stays() -> None:
    recorder = Recorder(holds=False)
    piece = AIMessageChunk(content="a")
    taker(recorder, "m")(piece, "a", "r")
    [moment] = recorder.moments
    assert (moment.data["chunk"].id, moment.data["chunk"].content) == ("r", "a")
    assert piece.id is None
