"""Recall: tools to remember notes beyond a thread, in the agent's long-term store."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from langgraph.store.base import BaseStore, SearchItem

from wick_graph.core.redaction import REDACTOR, Redactor
from wick_graph.errors import ConfigError, ToolError
from wick_graph.hooks.memory import must_be_no_secret
from wick_graph.hooks.prompt_files import as_data, cut
from wick_graph.hooks.protocol import BaseHook
from wick_graph.langgraph_config import configurable
from wick_graph.messages.content import clean_text, visible
from wick_graph.tools.function_tool import FuncTool
from wick_graph.tools.langchain_tool import runtime_of
from wick_graph.tools.protocol import ToolContext

MAX_NOTE: Final = 8 * 1024
"""Bytes of a note."""

MAX_NAME: Final = 200
"""Characters of the name of a note."""

MAX_FOUND: Final = 20
"""Notes that one call of `recall` returns."""

MAX_SHOWN: Final = 16 * 1024
"""Bytes that it returns."""

_LOOKED_AT: Final = 1_000
"""Notes that are searched for words, if the store cannot search by meaning."""

_FACT: Final = re.compile(r"\{(\w+)\}")

_CUT: Final = re.compile(r"[.\x00]")

_REFUSED: Final = re.compile(r"[%.\x00]")
"""What a label of a namespace cannot hold, and the mark of its replacement."""

_RESERVED: Final = "langgraph"
"""The first label of LangGraph's own namespaces."""

Namespace = Sequence[str] | Callable[[ToolContext], Sequence[str]]
"""Where notes are kept: labels with `{facts}` of a conversation, or a function of a call."""


class Recall(BaseHook):
    """Add the tools `remember` and `recall`: notes that outlive a thread.

    The agent needs a long-term store: `Agent(long_term=…)`. The namespace decides who shares notes:
    `("users", "{user_id}")` gives each user their own. A fact is a field of the run's context, else
    of the conversation's `origin` (`channel`, `chat_id`, `sender_id`), else of its `configurable`;
    `thread_id` and `agent` are known too. Without the fact the tools refuse, and show no other
    user's notes. The model sees notes as data, and a text that looks like a secret is refused.

    Args:
        namespace: The labels, or a function that returns them for a call.
        redactor: Recognises secrets.

    Raises:
        ConfigError: The namespace has no label, or one that is no text.
    """

    name = "recall"
    phases = ()

    def __init__(self, namespace: Namespace, *, redactor: Redactor = REDACTOR) -> None:
        if not callable(namespace):
            given: Any = namespace
            is_text = isinstance(given, str) or any(not isinstance(one, str) for one in given)
            if is_text or not all(given) or not given or any(_CUT.search(one) for one in given):
                raise ConfigError(
                    "recall: a namespace is a list of texts that are not empty and have no dot, "
                    f"not {given!r:.80}"
                )
        self._namespace = namespace
        self._redactor = redactor
        self._tools = (
            FuncTool.from_function(self.remember, replay="key"),
            FuncTool.from_function(self.recall, replay="safe"),
        )

    def tools(self, state: Mapping[str, Any]) -> Sequence[Any]:
        """Return the two tools."""
        return self._tools

    def remember(self, text: str, name: str = "", *, ctx: ToolContext) -> str:
        """Keep a note for later conversations.

        A note of the same name is replaced. With a name and an empty text, the note is forgotten.

        Args:
            text: What to remember; never a secret
            name: Short name of the note; made up if it is left out
            ctx: The call
        """
        namespace, note = namespace_of(ctx, self._namespace), visible(clean_text(text)).strip()
        if (size := len(note.encode())) > MAX_NOTE or len(name) > MAX_NAME:
            raise ToolError(
                f"the note has {size:,} bytes and its name {len(name)} characters; {MAX_NOTE:,} "
                f"and {MAX_NAME} are the most"
            )
        must_be_no_secret(f"{name}\n{note}", self._redactor)
        if not (note or name):
            raise ToolError("the note is empty; write what to remember")
        if not note:
            _store(ctx).delete(namespace, name)
            return f"Forgot {name}."
        key = name or _key(ctx)
        _store(ctx).put(namespace, key, {"text": note})
        return f"Remembered as {key}."

    def recall(self, query: str = "", *, ctx: ToolContext) -> str:
        """Find notes of earlier conversations.

        Args:
            query: What to look for; the first notes if it is left out
            ctx: The call
        """
        store, namespace = _store(ctx), namespace_of(ctx, self._namespace)
        found = store.search(namespace, query=query or None, limit=MAX_FOUND)
        if query and all(item.score is None for item in found):
            found = _with_words(store.search(namespace, limit=_LOOKED_AT), query)
        if not found:
            return "There is no such note."
        lines = [f"- {item.key}: {item.value.get('text', item.value)}" for item in found]
        shown = cut(self._redactor.text("\n".join(lines)), MAX_SHOWN)
        return as_data("remembered", shown)


def namespace_of(ctx: ToolContext, namespace: Namespace) -> tuple[str, ...]:
    """Return the namespace for a call. What a label cannot hold, such as a dot, is escaped.

    Raises:
        ToolError: A fact that it names is unknown here.
    """
    if callable(namespace):
        labels = [_REFUSED.sub(_escape, str(label or "")) for label in namespace(ctx)]
    else:
        facts = {**configurable(ctx.config), **ctx.origin, **_fields(ctx.context)}
        facts |= {"thread_id": ctx.thread_id, "agent": ctx.agent}
        labels = [_FACT.sub(lambda found: _value(facts, found[1]), label) for label in namespace]
    if not labels or not all(labels):
        raise ToolError("the owner of these notes is unknown; answer without them")
    if labels[0] == _RESERVED:
        labels[0] = f"%{ord(_RESERVED[0]):02X}{_RESERVED[1:]}"
    return tuple(labels)


def _fields(context: Any) -> Mapping[str, Any]:
    if is_dataclass(context):
        return {one.name: getattr(context, one.name) for one in fields(context)}
    if isinstance(context, Mapping):
        return context
    return {} if context is None else vars(context)


def _value(facts: Mapping[str, Any], name: str) -> str:
    value = facts.get(name)
    if not isinstance(value, str | int) or value == "":
        raise ToolError(f"the {name} of this conversation is unknown; answer without notes")
    return _REFUSED.sub(_escape, str(value))


def _escape(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def _store(ctx: ToolContext) -> BaseStore:
    store = runtime_of(ctx.config).store
    if store is None:
        raise ToolError("this agent has no long-term store; answer without notes")
    return store


def _key(ctx: ToolContext) -> str:
    """Return a name for a note: the same if its call is repeated."""
    made = json.dumps([ctx.thread_id, ctx.key]).encode()
    return f"note-{hashlib.sha256(made).hexdigest()[:12]}"


def _with_words(items: Sequence[SearchItem], query: str) -> list[SearchItem]:
    """Return the items that have words of a query, those with most words first."""
    words = {*query.casefold().split()}
    counted = [
        (sum(word in f"{item.key} {item.value}".casefold() for word in words), item)
        for item in items
    ]
    counted = [one for one in counted if one[0]]
    counted.sort(key=lambda one: -one[0])
    return [item for _, item in counted[:MAX_FOUND]]
