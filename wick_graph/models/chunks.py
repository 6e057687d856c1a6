"""Merge the chunks of a streamed reply, and read tool arguments strictly."""

from __future__ import annotations

import functools
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    InvalidToolCall,
    ToolCall,
    ToolCallChunk,
    UsageMetadata,
)
from langchain_core.messages.ai import add_ai_message_chunks, add_usage

from wick_graph.constants import TOO_DEEP
from wick_graph.messages.base import changed_copy
from wick_graph.messages.content import is_deep

# --- A tool call's arguments, as the model wrote them, read strictly.


_SHOWN_CHARS: Final = 200


class BadArgumentsError(ValueError):
    """Explain to the model why a text is not the arguments of a call."""


def read_arguments(raw: str) -> dict[str, Any]:
    """Read the arguments of a call; an empty text means none, as for a tool without parameters.

    Raises:
        BadArgumentsError: the text is not one whole JSON object.
    """
    if not raw.strip():
        return {}
    try:
        # allow line breaks inside texts: models write them, and the meaning is clear
        value = json.loads(raw, strict=False, parse_constant=_refuse)
    except RecursionError:
        raise BadArgumentsError(TOO_DEEP) from None
    except ValueError as error:
        raise BadArgumentsError(f"{error}, in {_shown(raw)}") from None
    if value is None:
        return {}
    if is_deep(value):  # from Python 3.12 on its reader of JSON stops at no depth
        raise BadArgumentsError(TOO_DEEP)
    if not isinstance(value, dict):
        raise BadArgumentsError(f"an object is needed, not a {type(value).__name__}")
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _shown(raw: str) -> str:
    return raw if len(raw) <= _SHOWN_CHARS else f"{raw[:_SHOWN_CHARS]}…"


# --- Merge the chunks of a streamed reply in one pass.
#
# LangChain adds chunks two by two, and reads partial arguments as if they were complete. Here the
# cost is linear in the stream, and arguments count only if they are whole JSON.


Content = str | list[str | dict[str, Any]]

_KEPT: Final = frozenset({"id", "index", "output_version", "model_provider"})
"""Keys of texts that name something: equal ones are not joined."""

_LATEST: Final = frozenset({"index", "created", "timestamp"})
"""Keys of numbers that name something: the latest counts, not the sum."""

_OWN_IDS: Final = "lc_"
"""Prefix of ids that LangChain made because the provider gave none."""


def merge_chunks(chunks: Sequence[AIMessageChunk]) -> AIMessage:
    """Merge the chunks of one reply.

    The index of a tool call, then its id, identifies it, so parallel calls may come interleaved.
    A call with arguments that are not one whole JSON object goes into `invalid_tool_calls`, with
    its place among all calls as its `index`.

    Raises:
        ConnectionError: there is no chunk at all.
    """
    if not chunks:
        raise ConnectionError("the model's stream ended before it began")
    calls, bad = _tool_calls(chunks)
    message = AIMessage(
        content=_content(chunks),
        additional_kwargs=_merge_dicts([c.additional_kwargs for c in chunks], join=True),
        response_metadata=_merge_dicts([c.response_metadata for c in chunks], join=False),
        usage_metadata=_usage(chunks),
        id=_best_id(c.id for c in chunks),
        name=next((c.name for c in chunks if c.name), None),
        tool_calls=calls,
    )
    message.invalid_tool_calls = bad  # its constructor would refuse the index
    return message


class Pieces:
    """Collect the chunks of a reply; a sequence of plain text keeps only its text.

    Otherwise a long reply is thousands of objects, and the garbage collector visits each.
    """

    __slots__ = ("_chunks", "_id", "_text", "_texts")

    def __init__(self) -> None:
        self._chunks: list[AIMessage] = []
        self._texts: list[list[str] | None] = []
        """For each kept chunk, its text and the texts of the chunks merged into it."""
        self._text: list[str] | None = None
        self._id: str | None = None

    def more(self, chunk: AIMessage) -> str | None:
        """Add a chunk that is nothing but more text of the reply; return this, or None."""
        held = chunk.__dict__
        content = held["content"]
        if (
            self._text is None
            or type(content) is not str
            or type(chunk) is not AIMessageChunk
            or (held["id"] != self._id and held["id"] is not None)
            or _says_more(held)
        ):
            return None
        self._text.append(content)
        return content

    def keep(self, chunk: AIMessage) -> None:
        """Add a chunk as it is."""
        content = chunk.content
        plain = type(content) is str and type(chunk) is AIMessageChunk
        self._chunks.append(chunk)
        self._text, self._id = ([content] if plain else None), chunk.id  # type: ignore[list-item]  # just looked
        self._texts.append(self._text)

    def chunks(self) -> list[AIMessage]:
        """Return chunks with the same sum."""
        return [
            chunk if text is None or len(text) < 2 else changed_copy(chunk, content="".join(text))
            for chunk, text in zip(self._chunks, self._texts, strict=True)
        ]


def _says_more(held: Mapping[str, Any]) -> bool:
    """Say whether a chunk with these fields is more than a piece of text."""
    return bool(
        held["additional_kwargs"]
        or held["response_metadata"]
        or held["tool_call_chunks"]
        or held["usage_metadata"]
        or held["name"]
    )


@dataclass(slots=True)
class _Call:
    """One tool call as its pieces come in."""

    id: str | None
    name: str = ""
    pieces: list[str] = field(default_factory=list)

    def take(self, chunk: ToolCallChunk) -> None:
        name = chunk.get("name") or ""
        if name != self.name:  # some servers repeat the whole name in every piece
            self.name += name
        if chunk.get("args"):
            self.pieces.append(chunk["args"] or "")
        self.id = self.id or chunk.get("id")


def _tool_calls(chunks: Iterable[AIMessageChunk]) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    found: list[_Call] = []
    latest: dict[Hashable, _Call] = {}
    for message in chunks:
        for chunk in message.tool_call_chunks:
            call = _call_for(chunk, found, latest)
            call.take(chunk)
    good: list[ToolCall] = []
    bad: list[InvalidToolCall] = []
    for place, call in enumerate(found):
        raw = "".join(call.pieces)
        try:
            arguments = read_arguments(raw)
        except BadArgumentsError as error:
            why = str(error)
            bad.append(
                InvalidToolCall(
                    type="invalid_tool_call",
                    name=call.name,
                    args=raw,
                    id=call.id,
                    error=why,
                    index=place,
                )
            )
        else:
            good.append(ToolCall(type="tool_call", name=call.name, args=arguments, id=call.id))
    return good, bad


def _call_for(chunk: ToolCallChunk, found: list[_Call], latest: dict[Hashable, _Call]) -> _Call:
    """Return the call that a piece belongs to; make it if the piece is the first."""
    index, call_id = chunk.get("index"), chunk.get("id")
    if index is not None:
        known = latest.get(("index", index))
        if known and (not call_id or not known.id or known.id == call_id):
            return known
    elif call_id:
        if known := latest.get(("id", call_id)):
            return known
    elif found and not chunk.get("name"):
        return found[-1]
    call = _Call(id=call_id)
    found.append(call)
    if index is not None:
        latest["index", index] = call
    elif call_id:
        latest["id", call_id] = call
    return call


def _content(chunks: Sequence[AIMessageChunk]) -> Content:
    contents = [c.content for c in chunks]
    if all(isinstance(c, str) for c in contents):
        return "".join(contents)  # type: ignore[arg-type]  # just looked
    if any(c.response_metadata.get("output_version") == "v1" for c in chunks):
        # blocks of this form are also parsed while they are merged: LangChain does it
        return add_ai_message_chunks(*chunks).content
    blocks = _Blocks()
    for content in contents:
        blocks.take(content or "")
    return blocks.done()


class _Blocks:
    """A list of content blocks as its pieces come in: blocks of one index are one block."""

    def __init__(self) -> None:
        self._parts: list[list[Any]] = []
        self._places: dict[Hashable, int] = {}

    def take(self, content: Content) -> None:
        for block in [content] if isinstance(content, str) else content:
            if isinstance(block, str):
                self._text(block)
            else:
                self._block(block)

    def _text(self, text: str) -> None:
        if self._parts and isinstance(self._parts[-1][0], str):
            self._parts[-1].append(text)
        elif text:
            self._parts.append([text])

    def _block(self, block: Mapping[str, Any]) -> None:
        index = block.get("index")
        index = index if isinstance(index, int | str) else None
        place = None if index is None else self._places.get(index)
        if place is not None and _same_id(self._parts[place][0], block):
            self._parts[place].append({k: v for k, v in block.items() if k != "type"})
            return
        if index is not None:
            self._places[index] = len(self._parts)
        self._parts.append([dict(block)])

    def done(self) -> Content:
        return [
            "".join(parts) if isinstance(parts[0], str) else _merge_dicts(parts, join=True)
            for parts in self._parts
        ]


def _same_id(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    ids = {block.get("id") for block in (first, second)} - {None, ""}
    return len(ids) < 2


def _merge_dicts(dicts: Iterable[Mapping[str, Any]], *, join: bool) -> dict[str, Any]:
    """Merge values key by key; `join` adds up texts and numbers, else the latest counts."""
    values: dict[str, list[Any]] = {}
    for one in dicts:
        for key, value in one.items():
            known = values.setdefault(key, [])
            if value is not None:
                known.append(value)
    return {key: _merge(key, found, join) for key, found in values.items()}


def _merge(key: str, values: list[Any], join: bool) -> Any:
    if len(values) < 2:
        return values[0] if values else None
    last = values[-1]
    if isinstance(last, dict) and all(isinstance(v, dict) for v in values):
        return _merge_dicts(values, join=join)
    if isinstance(last, list) and all(isinstance(v, list) for v in values):
        return _merge_lists(values)
    if not join or any(type(v) is not type(last) for v in values):
        return last
    if isinstance(last, str):
        return values[0] if key in _KEPT else "".join(values)
    if isinstance(last, int) and not isinstance(last, bool) and key not in _LATEST:
        return sum(values)
    return last


def _merge_lists(lists: Iterable[list[Any]]) -> list[Any]:
    """Concatenate lists, but merge blocks with the same index."""
    out = _Items()
    for items in lists:
        out.take(items)
    return out.done()


class _Items(_Blocks):
    """A list of anything; only blocks with an index are merged."""

    def take(self, content: Any) -> None:
        for item in content:
            if isinstance(item, dict) and item.get("index") is not None:
                self._block(item)
            else:
                self._parts.append([item])

    def done(self) -> list[Any]:
        return [p[0] if len(p) == 1 else _merge_dicts(p, join=True) for p in self._parts]


def _usage(chunks: Iterable[AIMessageChunk]) -> UsageMetadata | None:
    reported = [c.usage_metadata for c in chunks if c.usage_metadata]
    return functools.reduce(add_usage, reported) if reported else None


def _best_id(ids: Iterable[str | None]) -> str | None:
    """Return the provider's own id if there is one, else the run's, else any."""
    found = [i for i in ids if i]
    ranked = sorted(found, key=lambda i: (i.startswith(_OWN_IDS), not i.startswith("lc_run-")))
    return ranked[0] if ranked else None
