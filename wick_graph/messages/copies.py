"""Copies of messages: nothing in this package changes a message that it is given."""

from __future__ import annotations

import copy
from typing import Any, Final, TypeVar

from langchain_core.messages import BaseMessage

M = TypeVar("M", bound=BaseMessage)

_SHARED: Final = frozenset({"artifact"})


def copy_message(message: M, **changes: Any) -> M:
    """Return a copy with other values, which keeps the id unless `id` is among the changes.

    The copy shares nothing that can be changed with the original, but a tool's artifact, which
    belongs to the program and may not be copyable. The changes are not validated.
    """
    fields = type(message).model_fields
    own = {
        name: copy.deepcopy(value)
        for name, value in message.__dict__.items()
        if name in fields and name not in _SHARED and isinstance(value, (list, dict))
    }
    return message.model_copy(update={**own, **changes})


def metadata_of(message: BaseMessage) -> dict[str, Any]:
    """Return a copy of what a caller noted about a message; empty if there is nothing."""
    metadata = message.additional_kwargs.get("metadata")
    return copy.deepcopy(metadata) if isinstance(metadata, dict) else {}
