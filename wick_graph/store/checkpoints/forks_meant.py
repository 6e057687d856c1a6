"""Which forks of a thread are meant: two runs that know nothing of each other must not make one.

LangGraph itself lets two runs continue the same checkpoint; the one that comes last becomes the
thread's head, and what the other did is gone from it. Here a checkpoint must continue the head,
unless its parent was asked for by its id, which is how a fork is made on purpose.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, TypeVar

from wick_graph.errors import ThreadBusyError

_KEPT: Final = 4_096

K = TypeVar("K")
Place = tuple[str, str]
"""Thread and namespace."""


class MeantForks:
    """What readers asked for lately; unlike caches, this is never forgotten because of an error."""

    def __init__(self) -> None:
        self._asked: OrderedDict[tuple[str, str, bytes], None] = OrderedDict()
        self._empty: OrderedDict[Place, None] = OrderedDict()

    def ask(self, place: Place, checkpoint: bytes) -> None:
        """Note that a checkpoint was asked for by its id, and may be continued."""
        _note(self._asked, (*place, checkpoint))

    def look(self, place: Place, *, found: bool) -> None:
        """Note whether somebody who looked for a thread's head found one."""
        if found:
            self._empty.pop(place, None)
        else:
            _note(self._empty, place)

    def check(self, place: Place, own: bytes, parent: bytes | None, head: bytes | None) -> None:
        """Refuse a checkpoint that would leave the head aside without anybody meaning it.

        Raises:
            ThreadBusyError: Another run or an update was faster.
        """
        if head is None or head in (own, parent):
            return
        fresh = parent is None and place not in self._empty
        meant = fresh or (parent is not None and (*place, parent) in self._asked)
        if not meant:
            raise ThreadBusyError(
                f"thread {place[0]} was changed by another run or update since this one read it; "
                "nothing of this step was stored, so run it again from the thread's latest state"
            )


def _note(kept: OrderedDict[K, None], key: K) -> None:
    kept[key] = None
    kept.move_to_end(key)
    while len(kept) > _KEPT:
        kept.popitem(last=False)
