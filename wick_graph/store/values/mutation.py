"""Debug mode: find elements that were changed in place and not written.

Elements are recognised by identity, which is what makes a step cheap. One that a step writes is
compared with what is stored; one that is changed in place without that is not saved again. In debug
mode each is encoded again at every step and compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Any, Final

from langchain_core.messages import BaseMessage

from wick_graph.errors import StorageError
from wick_graph.store.values.codec import Codec

_KEPT: Final = 200_000
_CHANGEABLE: Final = (list, dict, set, bytearray)


class Marks:
    """What the elements of a thread's values looked like when they were saved."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, bytes]] = {}

    def check(
        self,
        codec: Codec,
        values: Iterable[Any],
        channel: str,
        changed: Collection[int] | None = (),
    ) -> None:
        """Compare elements with what they were; new ones are noted.

        Those of the ids `changed` are saved again, and may differ; None for all.

        Raises:
            StorageError: names the first element that was changed in place.
        """
        for index, value in enumerate(values):
            if not isinstance(value, _CHANGEABLE) and not hasattr(value, "__dict__"):
                continue
            mark = blake2b(b"".join(codec.split(value)), digest_size=16).digest()
            known = self._seen.get(id(value))
            saved = changed is None or id(value) in changed
            if known is None or known[0] is not value or saved:
                if len(self._seen) >= _KEPT:
                    self._seen.clear()
                self._seen[id(value)] = (value, mark)
            elif known[1] != mark:
                raise StorageError(
                    f"{_named(value)} at index {index} of channel {channel!r} was changed in place "
                    "after it was saved and never written; return it from the node that changes it"
                )


def _named(value: Any) -> str:
    if isinstance(value, BaseMessage):
        return f"message {value.id!r}"
    return f"the {type(value).__name__}"
