"""The request of one model call: what hooks see and change, and its compact form.

A request is the thread's messages plus the hooks' changes, held as segments: a range of the
thread, or a message of its own. So a request never copies the history. Its *overlay*, the data
form in the state between `modify_request` and `model`, stays a few lines long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn, SupportsIndex, TypeVar, overload

from langchain_core.messages import BaseMessage, SystemMessage

from wick_graph.errors import HookError
from wick_graph.messages.base import owned, private

# --- Views of a thread: each access returns a copy.
#
# Third-party hooks, tools and middleware read the thread through these views. A model gets the
# messages themselves: copying all of them at each call would cost O(thread). A view copies only
# what is accessed, so its cost does not depend on the thread's length.


V = TypeVar("V")


class StateView(Mapping[str, Any]):
    """The thread's state, read-only: each access returns a new copy.

    Raises:
        HookError: The caller tried to change it.
    """

    __slots__ = ("_state",)

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Any:
        # Plain lists of copies: much code, pydantic's too, bypasses a list's methods.
        return owned(self._state[name])

    def __contains__(self, name: object) -> bool:
        return name in self._state

    def __iter__(self) -> Iterator[str]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)

    def __repr__(self) -> str:
        return f"StateView({dict(self)!r})"

    def __or__(self, other: Any) -> Any:
        return {**self, **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return {**other, **self} if isinstance(other, Mapping) else NotImplemented

    def copy(self) -> dict[str, Any]:
        """Return a dict of copies."""
        return dict(self)

    __copy__ = copy

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (dict(self),)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise HookError("the state is read-only; return the changes as a state update")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = pop = popitem = setdefault = clear = _refuse


def state_view(state: Mapping[str, Any]) -> StateView:
    """Wrap a state in a read-only view."""
    return state if type(state) is StateView else StateView(state)


def raw(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state behind a view: the thread's own values, which must not be changed."""
    return state._state if type(state) is StateView else state  # asked often: no ABC is


def peek(state: Mapping[str, Any], name: str, default: V | None = None) -> Any | V | None:
    """Read one value of a state without a copy; only for code that changes nothing."""
    return raw(state).get(name, default)


AGENT: Final = "agent"
"""The purpose of a model call that answers the user; calls made by hooks have others."""

Segment = tuple[int, int] | BaseMessage
"""A range `[start, stop)` of the thread's messages, or a message of this request alone."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the system prompt, with its author."""

    text: str
    source: str = ""


class MessageView(Sequence[BaseMessage]):
    """The messages of a request, read-only.

    Access by index, slice or iteration returns copies: the caller may change one and put it back
    with `replace`. Neither the thread nor the request changes with the copy.

    Raises:
        HookError: The caller tried to change the list.
    """

    __slots__ = ("_base", "_length", "_segments")

    def __init__(self, base: Sequence[BaseMessage], segments: tuple[Segment, ...]) -> None:
        self._base, self._segments = base, segments
        self._length = sum(s[1] - s[0] if isinstance(s, tuple) else 1 for s in segments)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[BaseMessage]:
        for segment in self._segments:
            if isinstance(segment, tuple):
                for at in range(*segment):
                    yield private(self._base[at])
            else:
                yield private(segment)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageView | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __add__(self, other: Iterable[BaseMessage]) -> list[BaseMessage]:
        return [*self, *other]

    def __radd__(self, other: Iterable[BaseMessage]) -> list[BaseMessage]:
        return [*other, *self]

    def copy(self) -> list[BaseMessage]:
        """Return a list of copies."""
        return [*self]

    __copy__ = copy

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, ([*self],)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise HookError(
            "the messages of a request are read-only; return request.append(…), replace(…), "
            "drop(…) or with_messages(…)"
        )

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse

    @overload
    def __getitem__(self, index: int) -> BaseMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[BaseMessage]: ...
    def __getitem__(self, index: int | slice) -> BaseMessage | list[BaseMessage]:
        if isinstance(index, slice):
            return [private(m) for m in raw_messages(self)[index]]
        if index < 0:
            index += self._length
        for segment in self._segments:
            size = segment[1] - segment[0] if isinstance(segment, tuple) else 1
            if 0 <= index < size:
                found = self._base[segment[0] + index] if isinstance(segment, tuple) else segment
                return private(found)
            index -= size
        raise IndexError("no message at this index")

    def to_list(self) -> list[BaseMessage]:
        """Return a list of copies."""
        return [*self]


def raw_messages(view: MessageView) -> list[BaseMessage]:
    """Return the messages behind a view: the thread's own, which must not be changed."""
    out: list[BaseMessage] = []
    for segment in view._segments:
        if isinstance(segment, tuple):
            out.extend(view._base[segment[0] : segment[1]])
        else:
            out.append(segment)
    return out


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The content of one model call; every change returns a new request."""

    _base: Sequence[BaseMessage]
    """The thread's messages themselves."""
    segments: tuple[Segment, ...]
    system: tuple[Section, ...] = ()
    tools: tuple[str, ...] = ()
    """Names of the offered tools, in order."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments for the model (`temperature`, `tool_choice`, …)."""
    withheld: bool = False
    """True on the last call of a run, when the model must answer and may not call tools."""
    purpose: str = AGENT
    """Purpose of the call. Any other than `agent` belongs to a hook (`summarize`): its usage counts
    for the run, and no reader sees it. Only `wrap_model_call` may set it."""
    model: Any = field(default=None, repr=False)
    """A `ModelChoice` to call in place of the agent's model. Only `wrap_model_call` may set it."""
    state: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The thread's state, read-only: each access returns a copy. It has what earlier calls of the
    step wrote, but for `messages`, `iteration` and channels of your own with reducers."""
    ctx: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, messages: Sequence[BaseMessage], **fields: Any) -> ModelRequest:
        """Make a request with all messages of a thread."""
        return cls(_base=messages, segments=((0, len(messages)),) if messages else (), **fields)

    def __post_init__(self) -> None:
        if type(self.state) is not StateView:
            object.__setattr__(self, "state", StateView(self.state))

    @property
    def base(self) -> MessageView:
        """The thread's messages, also those that the request leaves out."""
        return MessageView(self._base, ((0, len(self._base)),))

    @property
    def messages(self) -> MessageView:
        """The conversation without the system prompt."""
        return MessageView(self._base, self.segments)

    @property
    def system_text(self) -> str:
        """The system prompt as the model reads it: the sections, joined by blank lines."""
        return "\n\n".join(s.text for s in self.system if s.text)

    def to_messages(self) -> list[BaseMessage]:
        """Return copies of the messages for the model, after the system prompt, if any."""
        return [private(message) for message in as_sent(self)]

    def append_system(self, text: str, *, source: str = "") -> ModelRequest:
        """Add a section to the system prompt; user messages stay unchanged."""
        return replace(self, system=(*self.system, Section(_text(text), source)))

    def replace_system(self, *sections: Section | str) -> ModelRequest:
        """Replace the whole system prompt."""
        made = tuple(s if isinstance(s, Section) else Section(_text(s)) for s in sections)
        return replace(self, system=made)

    def append(self, *messages: BaseMessage) -> ModelRequest:
        """Add messages at the end, for this request only."""
        return replace(self, segments=(*self.segments, *map(_message, messages)))

    def replace(self, old: BaseMessage | str, new: BaseMessage) -> ModelRequest:
        """Replace a message, given as itself or by its id."""
        return self._swap(old, (_message(new),))

    def drop(self, *messages: BaseMessage | str) -> ModelRequest:
        """Leave messages out, given as themselves or by their ids."""
        request = self
        for message in messages:
            request = request._swap(message, ())
        return request

    def with_messages(self, messages: Iterable[BaseMessage]) -> ModelRequest:
        """Replace all messages; sequences of the thread's own messages stay ranges."""
        if isinstance(messages, str) or not isinstance(messages, Iterable):
            raise HookError(f"the messages of a request are a list, not {messages!r:.80}")
        if isinstance(messages, MessageView) and messages._base is self._base:
            return replace(self, segments=messages._segments)
        place = {m.id: at for at, m in enumerate(self._base)}
        segments: list[Segment] = []
        for message in map(_message, messages):
            at = place.get(message.id)
            if at is None or not _same(message, self._base[at]):
                segments.append(message)
                continue
            previous = segments[-1] if segments else None
            if isinstance(previous, tuple) and previous[1] == at:
                segments[-1] = (previous[0], at + 1)
            else:
                segments.append((at, at + 1))
        return replace(self, segments=tuple(segments))

    def with_tools(self, names: Iterable[str]) -> ModelRequest:
        """Offer other tools, by name."""
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise HookError(f"the tools of a request are a list of names, not {names!r:.80}")
        return replace(self, tools=tuple(dict.fromkeys(names)))

    def with_settings(self, **settings: Any) -> ModelRequest:
        """Add keyword arguments for the model; new values win."""
        return replace(self, settings={**self.settings, **settings})

    def _swap(self, old: BaseMessage | str, new: tuple[BaseMessage, ...]) -> ModelRequest:
        wanted = old if isinstance(old, str) else _message(old).id
        for i, segment in enumerate(self.segments):
            if not isinstance(segment, tuple):
                if wanted == segment.id if wanted is not None else _same(old, segment):
                    return self._spliced(i, new)
                continue
            for at in range(*segment):
                message = self._base[at]
                if message is old or (wanted is not None and message.id == wanted):
                    before = ((segment[0], at),) if at > segment[0] else ()
                    after = ((at + 1, segment[1]),) if at + 1 < segment[1] else ()
                    return self._spliced(i, (*before, *new, *after))
        raise HookError(f"the request has no message {wanted or old!r} to replace or drop")

    def _spliced(self, i: int, new: tuple[Segment, ...]) -> ModelRequest:
        return replace(self, segments=(*self.segments[:i], *new, *self.segments[i + 1 :]))


def shown(request: ModelRequest) -> list[BaseMessage]:
    """Return a request's messages, not copies, in a new list; they must not be changed."""
    return raw_messages(request.messages)


def thread_of(request: ModelRequest) -> Sequence[BaseMessage]:
    """Return the messages of a request's thread, not copies; they must not be changed."""
    return request._base


def over(request: ModelRequest, messages: Sequence[BaseMessage]) -> ModelRequest:
    """Return the request for a changed thread, with all its messages."""
    segments: tuple[Segment, ...] = ((0, len(messages)),) if messages else ()
    state = {**raw(request.state), "messages": messages}
    return replace(request, _base=messages, segments=segments, state=StateView(state))


def as_sent(request: ModelRequest) -> list[BaseMessage]:
    """Return the messages for the model, not copies, after the system prompt, if any."""
    messages, text = shown(request), request.system_text
    return [SystemMessage(text), *messages] if text else messages


def _same(one: Any, other: BaseMessage) -> bool:
    """Return whether two messages are the same object or equal copies."""
    if one is other:
        return True
    try:
        return bool(one == other)
    except Exception:  # values that cannot be compared, such as arrays
        return False


def _message(given: Any) -> BaseMessage:
    if not isinstance(given, BaseMessage):
        raise HookError(f"a request holds LangChain messages, not {given!r:.80}")
    return given


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise HookError(f"a section of the system prompt is a text, not {given!r:.80}")
    return given


def stamp(state: Mapping[str, Any]) -> list[Any]:
    """Return the stamp of an overlay: the iteration and the last message."""
    state = raw(state)
    messages = state.get("messages") or ()
    return [state.get("iteration", 0), messages[-1].id if messages else None]


def to_overlay(request: ModelRequest, system_prompt: str) -> dict[str, Any]:
    """Encode a request as data: ids for ranges, and no copy of the agent's own prompt."""
    base = request._base
    return {
        "stamp": stamp(request.state),
        "system": [[None if s.text == system_prompt else s.text, s.source] for s in request.system],
        "tools": list(request.tools),
        "settings": dict(request.settings),
        "withheld": request.withheld,
        "messages": [
            [base[s[0]].id, base[s[1] - 1].id] if isinstance(s, tuple) else s
            for s in request.segments
        ],
    }


def from_overlay(
    overlay: Mapping[str, Any] | None, state: Mapping[str, Any], system_prompt: str, ctx: Any = None
) -> ModelRequest | None:
    """Decode a request; None if the overlay is absent or has another stamp."""
    if not overlay or list(overlay.get("stamp") or ()) != stamp(state):
        return None
    messages = peek(state, "messages") or []
    segments: list[Segment] = []
    for part in overlay["messages"]:
        if isinstance(part, BaseMessage):
            segments.append(part)
            continue
        start, stop = position(messages, part[0]), position(messages, part[1])
        if start is None or stop is None or stop < start:
            return None
        segments.append((start, stop + 1))
    return ModelRequest(
        _base=messages,
        segments=tuple(segments),
        system=tuple(
            Section(system_prompt if text is None else text, source)
            for text, source in overlay["system"]
        ),
        tools=tuple(overlay["tools"]),
        settings=owned(overlay["settings"]),
        withheld=bool(overlay["withheld"]),
        state=state,
        ctx=ctx,
    )


def position(messages: Sequence[BaseMessage], message_id: str) -> int | None:
    """Return the position of a message by its id, or None."""
    find = getattr(messages, "find", None)
    if find is not None:
        found: int | None = find(message_id)
        return found
    for at in (0, len(messages) - 1) if messages else ():  # nearly every range is the whole thread
        if messages[at].id == message_id:
            return at
    return next((at for at, m in enumerate(messages) if m.id == message_id), None)
