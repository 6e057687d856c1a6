"""A block of the store does what one of `contextlib` does, for generators that raise again."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from wick_graph.store.blocks import block

Make = Callable[[Callable[..., Iterator[Any]]], Callable[..., AbstractContextManager[Any]]]


@pytest.fixture(params=[block, contextlib.contextmanager], ids=["block", "contextlib"])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


def opened(log: list[str], *, first: Exception | None = None) -> Iterator[str]:
    log.append("enter")
    if first is not None:
        raise first
    try:
        yield "held"
        log.append("works")
    except BaseException as error:
        log.append(type(error).__name__)
        raise
    finally:
        log.append("leave")


def test_it_gives_what_the_function_yields_and_goes_on_after_the_block(make: Make) -> None:
    log: list[str] = []
    with make(opened)(log) as held:
        log.append(held)
    assert log == ["enter", "held", "works", "leave"]


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), GeneratorExit(), StopIteration(1)]
)
def test_the_blocks_error_passes_through(make: Make, error: BaseException) -> None:
    log: list[str] = []

    def work() -> None:
        raise error

    with pytest.raises(type(error)) as raised, make(opened)(log):
        work()
    assert raised.value is error
    assert log == ["enter", type(error).__name__, "leave"]
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names[-1] == "work"
    assert "opened" not in names or isinstance(error, StopIteration)


def test_an_error_before_the_block_is_raised(make: Make) -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="first"), make(opened)(log, first=ValueError("first")):
        log.append("never")
    assert log == ["enter"]


def test_another_error_takes_the_place_of_the_blocks(make: Make) -> None:
    @make
    def explained() -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise KeyError("explained") from error

    with pytest.raises(KeyError, match="explained") as raised, explained():
        raise ValueError("cause")
    assert isinstance(raised.value.__cause__, ValueError)


def test_a_block_that_returns_in_the_middle_ends_its_function(make: Make) -> None:
    log: list[str] = []

    def early() -> int:
        with make(opened)(log):
            return 1

    assert early() == 1
    assert log == ["enter", "works", "leave"]


def test_what_a_block_does_not_serve_is_refused() -> None:
    @block
    def twice() -> Iterator[None]:
        yield
        yield

    @block
    def swallowing() -> Iterator[None]:
        with contextlib.suppress(ValueError):
            yield

    with pytest.raises(RuntimeError, match="more than once"), twice():
        pass
    with pytest.raises(RuntimeError, match="does not raise"), swallowing():
        raise ValueError("lost")
