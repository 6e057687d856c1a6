"""Each shape of message with each provider: 200 in this turn and every later one, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.providers import table
from tests.providers.shapes import SHAPES, Shape
from tests.providers.strict import Strict
from tests.providers.world import COLUMNS, PROVIDERS, World, model_of
from wick_graph import Agent
from wick_graph.errors import MessageError
from wick_graph.models import resolve_model
from wick_graph.store import SqlSaver


@dataclass
class Ground:
    kit: Strict
    store: SqlSaver
    models: dict[str, Any]
    agents: dict[str, Agent]

    def world(self, provider: str) -> World:
        self.kit.forget()
        return World(self.kit, self.store, provider, self.models, self.agents)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    kit = Strict()
    store = SqlSaver.from_url(f"sqlite:///{tmp_path_factory.mktemp('providers')}/threads.db")
    models: dict[str, Any] = {
        name: resolve_model(model_of(kit, name), env={}) for name in PROVIDERS
    }
    try:
        yield Ground(kit, store, models, {})
        assert not kit.failures, kit.failures
    finally:
        store.close()
        kit.close()


@pytest.mark.sisters(61)
@pytest.mark.parametrize("provider", COLUMNS)
@pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])
def test_a_shape_is_answered_or_refused_as_the_docs_say(
    ground: Ground, shape: Shape, provider: str
) -> None:
    world = ground.world(provider)
    assert table.outcome(shape, provider) == ("refused" if shape.refused else "200")
    if shape.refused:
        with pytest.raises(MessageError, match=shape.refused):
            shape.play(world)
        assert not world.kit.asked
        assert ground.store.threads.get(world.thread) is None
        return
    shape.play(world)
    world.live_on(fork=(SHAPES.index(shape) + COLUMNS.index(provider)) % 2 == 0)
    assert not world.kit.refused


def test_the_docs_hold_the_matrix() -> None:
    assert table.written() == table.section(), "run `python -m tests.providers.table`"
