"""Call a model: prepare the request, stream, retry, fall back, normalise the reply."""

from __future__ import annotations

import copy
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
)
from langchain_core.runnables import Runnable

from wick_graph import langgraph_config
from wick_graph.constants import TOO_DEEP
from wick_graph.core.bridge import run_to_end
from wick_graph.core.moments import Moment, Take, taker
from wick_graph.core.request import AGENT, ModelRequest, Section, shown
from wick_graph.errors import MessageError, ModelError
from wick_graph.messages import (
    RECORD_ROLES,
    Processors,
    from_response_dict,
    process_for_llm,
    process_llm_response,
    role_of,
    to_llm_dict,
)
from wick_graph.messages.base import PrefixTexts, changed_copy, private, sanitise_tool_name
from wick_graph.messages.content import (
    THOUGHT_KEYS,
    clean_text,
    clean_value,
    flat,
    is_clean,
    is_deep,
    is_plain,
    refusal_in,
    refusal_of,
)
from wick_graph.messages.lowering import labelled
from wick_graph.models.chunks import BadArgumentsError, Pieces, merge_chunks, read_arguments
from wick_graph.models.fast_path import (
    agenerate,
    apieces,
    as_key,
    generate,
    is_cached,
    message_of,
    pieces,
    shorter_stream,
    shorter_way,
)
from wick_graph.models.providers import Fitting, provider_of
from wick_graph.models.retry import classify, retry_delay

if TYPE_CHECKING:
    from wick_graph.core.bridge import Bridge
    from wick_graph.core.moments import Listener
    from wick_graph.core.stopping import Stop
    from wick_graph.models.resolve import Binder, ModelChoice
    from wick_graph.tools.bound import BoundTool


# --- Prepare a model for a call, and a reply for the thread; pure functions.


_BINDING: Final[tuple[str, ...]] = ("tool_choice", "parallel_tool_calls", "strict")
"""Settings that have a meaning only together with tools."""

_NO_CHOICE: Final[Mapping[str, Mapping[str, Any]]] = {
    "anthropic-chat": {"tool_choice": {"type": "none"}},
    "amazon_bedrock_chat": {},
    "amazon_bedrock_converse_chat": {},
}
"""Models, by LangChain's type name, that refuse a history with calls if no tools are declared, and
the settings that forbid the use of tools."""

_OTHER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "chat-google-generative-ai": {"max_tokens": "max_output_tokens"},
    "chat-ollama": {"max_tokens": "num_predict"},
}
"""Settings that have another name in a model."""

_METADATA: Final = ("response_metadata", "additional_kwargs")

_DEEPEST: Final = 20

_LONGEST_NAME: Final = 64

_UNNAMED: Final = "unnamed"

_FINISH: Final = ("finish_reason", "stop_reason", "done_reason", "status")

_TELL_THEIR_END: Final = frozenset({"openai", "anthropic", "ollama", "google_genai"})
"""Providers, as LangChain marks replies, that give the reason why each whole reply ended."""

_CUT_SHORT: Final = frozenset({"length", "max_tokens", "incomplete"})

_WITHHELD: Final = frozenset(
    {"content_filter", "refusal", "safety", "prohibited_content", "blocklist", "recitation", "spii"}
)

CUT: Final = "the model's reply was cut off at its length limit"

FILTERED: Final = "the provider's content filter ended the model's reply"

_THOUGHT: Final = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})

_CALL_BLOCKS: Final = frozenset({"tool_use", "tool_call", "function_call"})


def bind(
    model: BaseChatModel,
    tools: Sequence[dict[str, Any]],
    *,
    withheld: bool,
    settings: Mapping[str, Any],
) -> Runnable[Any, Any]:
    """Give a model its tools, in OpenAI's function form, and the settings of a call.

    With `withheld` the model must answer and not call: it gets no tools. A model that would then
    refuse a history with calls gets them, with a setting that forbids their use.

    Raises:
        ModelError: the model cannot take tools at all.
    """
    kind = model._llm_type
    names = _OTHER_NAMES.get(kind, {})
    given = {names.get(key, key): value for key, value in settings.items()}
    beside = {key: given.pop(key) for key in _BINDING if key in given}
    if kind == "chat-ollama":  # it passes unknown arguments to its client, which refuses them
        own = {key: given.pop(key) for key in list(given) if key in type(model).model_fields}
        model = model.model_copy(update=own) if own else model
    if withheld:
        tools = tools if kind in _NO_CHOICE else ()
        beside = dict(_NO_CHOICE.get(kind, {}))
    if "response_format" in given and _would_parse(model, tools):
        form = {"response_format": given.pop("response_format")}
        more: dict[str, Any] = getattr(model, "extra_body", None) or {}
        given["extra_body"] = {**more, **given.get("extra_body", {}), **form}
    if not tools:
        return model.bind(**given) if given else model
    try:
        return model.bind_tools(list(tools), **beside, **given)
    except NotImplementedError:
        raise ModelError(
            f"{type(model).__name__} cannot call tools: choose another model, or give it no tools."
        ) from None


def _would_parse(model: BaseChatModel, tools: Sequence[Any]) -> bool:
    """Say whether OpenAI's client would parse a structured reply itself.

    It refuses tools with schemas that are not strict, and raises if the reply was cut.
    """
    by_responses = getattr(model, "_use_responses_api", None)
    return by_responses is not None and not by_responses({"tools": tools} if tools else {})


def ensure_whole(message: AIMessage) -> AIMessage:
    """Return a reply if it is complete.

    A stream that is cut between two events looks like any other, except that the provider gave no
    reason for its end. If the provider always gives one, such a reply must not be used.

    Raises:
        ConnectionError: the reply was cut; it is worth another attempt.
    """
    metadata = message.response_metadata
    if metadata.get("model_provider") in _TELL_THEIR_END and not any(map(metadata.get, _FINISH)):
        raise ConnectionError("the model's reply was cut off: the stream ended too early")
    return message


def early_end(message: AIMessage) -> str:
    """Say why the provider ended a reply before its end; empty for a whole one."""
    metadata = message.response_metadata
    more = metadata.get("incomplete_details")  # of OpenAI's Responses
    given = more.get("reason") if isinstance(more, Mapping) else None
    reasons = {str(why).lower() for why in (given, *map(metadata.get, _FINISH))}
    if reasons & _WITHHELD:
        return FILTERED
    return CUT if reasons & _CUT_SHORT else ""


def is_empty(message: AIMessage) -> bool:
    """Tell whether a reply has neither text nor calls; hidden reasoning alone is empty."""
    if message.tool_calls or message.invalid_tool_calls:
        return False
    if isinstance(message, AIMessageChunk) and message.tool_call_chunks:
        return False
    content = message.content
    if isinstance(content, str) or content is None:
        return not (content or "").strip()
    return not any(_says(block) for block in content)


def _says(block: str | dict[str, Any]) -> bool:
    if isinstance(block, str):
        return bool(block.strip())
    kind = block.get("type")
    if kind == "text":
        return bool(str(block.get("text") or "").strip())
    return kind not in _THOUGHT


def normalise_reply(
    message: AIMessage, *, taken: Container[str] = ()
) -> tuple[AIMessage, dict[str, str]]:
    """Prepare a reply for the thread: every call has a unique id, a name and an arguments object.

    Half a surrogate pair, the rest of an escape that was cut in two, becomes U+FFFD. A call with
    one in its arguments must not run, since the model meant something else.

    A call without an id, or with one that was used before in this reply or is in `taken`, gets
    `call_` and twelve hex digits. A call with arguments that are not one JSON object stays in its
    place, without arguments, so that it gets an answer like any other; the model's own text is
    kept in `response_metadata["raw_args"]` under the call's id.

    Returns:
        The reply, and the error texts of calls that must not run, by id.
    """
    if isinstance(message, AIMessageChunk):
        message = merge_chunks([message])
    message = _cleaned(bounded(message))
    changes: dict[str, Any] = {}
    if message.content is None:  # not by its type, but it can be set
        changes["content"] = ""
    asked = _in_order(message.tool_calls, message.invalid_tool_calls)
    if not asked:
        return (message.model_copy(update=changes) if changes else message), {}
    calls, raw, bad = _calls(asked, taken)
    _distrust_the_last(message, calls, bad)
    if calls != message.tool_calls or message.invalid_tool_calls:
        changes |= {"tool_calls": calls, "invalid_tool_calls": []}
    if isinstance(message.content, list):
        changes["content"] = _renamed(message.content, asked, calls)
    if raw:
        changes["response_metadata"] = {**message.response_metadata, "raw_args": raw}
    return (message.model_copy(update=changes) if changes else message), bad


def spoken(reply: AIMessage) -> AIMessage:
    """Return a reply in which a refusal is the text, if it has no other and no calls."""
    words = "" if reply.tool_calls or reply.text.strip() else refusal_in(reply)
    if not words.strip():
        return reply
    if isinstance(reply.content, str):
        return changed_copy(reply, content=words)
    others = [block for block in reply.content if not refusal_of(block)]
    return changed_copy(reply, content=[*others, {"type": "text", "text": words}])


def bounded(message: AIMessage) -> AIMessage:
    """Return a reply without parts that are nested too deeply; the same one if it has none.

    A call with such arguments becomes an invalid one, without them.
    """
    changes: dict[str, Any] = {}
    for name in ("content", *_METADATA):
        value = getattr(message, name)
        if value and type(value) is not str and is_deep(value):
            parts = [flat(part) for part in value] if isinstance(value, list) else flat(value)
            changes[name] = parts
    deep = {at: call for at, call in enumerate(message.tool_calls) if is_deep(call["args"])}
    if deep:
        good = [call for at, call in enumerate(message.tool_calls) if at not in deep]
        invalid = [
            InvalidToolCall(
                type="invalid_tool_call",
                name=call["name"],
                args="",
                id=call["id"],
                error=TOO_DEEP,
                index=at,
            )
            for at, call in deep.items()
        ]
        changes |= {
            "tool_calls": good,
            "invalid_tool_calls": [*message.invalid_tool_calls, *invalid],
        }
    return message.model_copy(update=changes) if changes else message


def storable_reply(message: AIMessage, refusal: Callable[[Any], str | None]) -> AIMessage:
    """Replace the values in a reply that the store cannot hold.

    A provider's class may leave its own objects in a reply's metadata; each becomes a note of its
    type.

    Args:
        message: The reply.
        refusal: Returns why a value cannot be stored, None if it can.
    """
    changes = {}
    for name in _METADATA:
        value = getattr(message, name)
        if not is_plain(value) and refusal(value) is not None:
            changes[name] = _storable(value, refusal)
    return message.model_copy(update=changes) if changes else message


def _storable(value: Any, refusal: Callable[[Any], str | None], depth: int = 0) -> Any:
    why = None if is_plain(value) else refusal(value)
    if why is None:
        return value
    if isinstance(value, dict) and depth < _DEEPEST:
        return {str(key): _storable(item, refusal, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple) and depth < _DEEPEST:
        return [_storable(item, refusal, depth + 1) for item in value]
    return {"not_stored": type(value).__name__, "why": why}


def _cleaned(message: AIMessage) -> AIMessage:
    """Return a reply in which every text can be encoded; the same one if it is so already."""
    changes: dict[str, Any] = {}
    for name in ("content", *_METADATA):
        value = getattr(message, name)
        if not is_clean(value):
            changes[name] = clean_value(value)
    return message.model_copy(update=changes) if changes else message


Asked = ToolCall | InvalidToolCall


def _in_order(good: Iterable[ToolCall], bad: Iterable[InvalidToolCall]) -> list[Asked]:
    """Return all calls in the order in which the model made them, as far as it is known."""
    out: list[Asked] = list(good)
    for call in bad:
        place = call.get("index")
        out.insert(place if isinstance(place, int) and place >= 0 else len(out), call)
    return out


def _calls(
    asked: Iterable[Asked], taken: Container[str]
) -> tuple[list[ToolCall], dict[str, str], dict[str, str]]:
    """Return the calls to keep, the model's text for bad ones, and what is wrong with these."""
    calls: list[ToolCall] = []
    raw: dict[str, str] = {}
    bad: dict[str, str] = {}
    used: set[str] = set()
    for call in asked:
        call_id = clean_text(call["id"] or "")
        if not call_id or call_id in used or call_id in taken:
            call_id = f"call_{uuid.uuid4().hex[:12]}"
        used.add(call_id)
        arguments: Any = call["args"]
        if not isinstance(arguments, dict):
            written = arguments if isinstance(arguments, str) else ""
            try:
                arguments = read_arguments(written)
            except BadArgumentsError as error:
                bad[call_id] = f"invalid JSON arguments: {error}"
                raw[call_id] = clean_text(written)
                arguments = {}
        if call.get("error") == TOO_DEEP:
            bad[call_id] = f"invalid arguments: {TOO_DEEP}"
        if not is_clean(arguments):
            arguments = clean_value(arguments)
            bad[call_id] = "invalid arguments: half of a surrogate pair; send valid Unicode text"
        name = sanitise_tool_name(call["name"] or "")[:_LONGEST_NAME] or _UNNAMED
        calls.append(ToolCall(type="tool_call", name=name, args=arguments, id=call_id))
    return calls, raw, bad


def _distrust_the_last(message: AIMessage, calls: list[ToolCall], bad: dict[str, str]) -> None:
    """Mark the last call of a reply that was cut at its length limit as bad.

    LangChain completes partial arguments when it merges a stream, so a call that looks good may
    be half a call. If another call is known to be broken, the last one is whole.
    """
    if early_end(message) != CUT:
        return
    last = str(calls[-1]["id"])
    if last in bad or not bad:
        bad[last] = (
            "invalid JSON arguments: the reply was cut off at its length limit before this call "
            "was complete; ask for less at once"
        )


def _renamed(content: list[Any], asked: Sequence[Asked], calls: Sequence[ToolCall]) -> list[Any]:
    """Return the content with the calls' ids and names in its blocks, as providers require."""
    waiting = list(zip(asked, calls, strict=True))
    out: list[Any] = []
    for block in content:
        if isinstance(block, dict) and block.get("type") in _CALL_BLOCKS:
            key = "call_id" if "call_id" in block else "id"
            pair = next((p for p in waiting if (p[0]["id"] or "") == (block.get(key) or "")), None)
            if pair:
                waiting.remove(pair)
                block = {**block, key: pair[1]["id"], "name": pair[1]["name"]}
        out.append(block)
    return out


# --- An agent's own processors around its model: last before the provider, and first after it.
#
# A message that a processor leaves unchanged stays the same object, with all that a dictionary
# cannot hold: content blocks, signatures, usage and metadata.


SOURCE = "processor"
"""The source of a system prompt that a processor changed."""


_SPARE: Final = 64


class Processing:
    """Apply an agent's processors to a growing thread, to each message once."""

    __slots__ = ("_done", "_inbound", "_outbound")

    def __init__(self, processors: Processors) -> None:
        self._inbound, self._outbound = processors.inbound, processors.outbound
        self._done: dict[int, tuple[BaseMessage, BaseMessage]] = {}

    def outgoing(self, request: ModelRequest) -> ModelRequest:
        """Return the request with each message as the output processor makes it.

        Raises:
            MessageError: the processor did not return a dictionary of a message.
        """
        if self._outbound is process_for_llm:
            return request
        given = shown(request)
        made = [self._once(message) for message in given]
        if len(self._done) > 2 * len(given) + _SPARE:  # those of earlier runs are of no use
            self._done = {id(one): self._done[id(one)] for one in given if id(one) in self._done}
        if any(new is not old for new, old in zip(made, given, strict=True)):
            request = request.with_messages(made)
        text = request.system_text
        if text and (said := self._out(SystemMessage(text)).text) != text:
            request = request.replace_system(Section(said, SOURCE))
        return request

    def rendered(self, record: ChatMessage) -> BaseMessage:
        """Return what a model reads of a record of another agent."""
        return labelled(record) if self._outbound is process_for_llm else self._out(record)

    def incoming(self, reply: AIMessage) -> AIMessage:
        """Return a reply as the input processor makes it.

        Raises:
            MessageError: the processor returned something other than an assistant's message.
        """
        if self._inbound is process_llm_response:
            return reply
        if isinstance(reply, AIMessageChunk):
            reply = merge_chunks([reply])
        before = to_llm_dict(reply)
        try:
            made = from_response_dict(copy.deepcopy(before), self._inbound)
        except TypeError as error:
            raise MessageError(f"the input processor: {error}") from None
        if not isinstance(made, AIMessage):
            raise MessageError(
                f"the input processor made a {role_of(made)} message of a reply; "
                "return one of the role assistant"
            )
        after = to_llm_dict(made)
        notes = made.additional_kwargs
        reply = _merged(reply, made, before, after)
        return changed_copy(reply, additional_kwargs={**reply.additional_kwargs, **notes})

    def _once(self, message: BaseMessage) -> BaseMessage:
        if role_of(message) in RECORD_ROLES:
            return message  # the chain decides whether a model reads it at all
        known = self._done.get(id(message))
        if known is None or known[0] is not message:
            known = self._done[id(message)] = message, self._out(message)
        return known[1]

    def _out(self, message: BaseMessage) -> BaseMessage:
        before, after = to_llm_dict(message), self._outbound(private(message))
        if not isinstance(after, Mapping):
            raise MessageError(
                f"the output processor returned a {type(after).__name__}; return a dictionary"
            )
        if role_of(message) not in RECORD_ROLES and after == before:
            return message
        made = from_response_dict({"role": before["role"], **after})
        if type(made) is type(message):
            merged: BaseMessage = _merged(message, made, before, after)
            return merged
        return changed_copy(made, id=message.id)


def _merged(old: Any, new: BaseMessage, before: Mapping[str, Any], after: Mapping[str, Any]) -> Any:
    """Return a message with a processor's changes, and the rest as it was."""
    changes: dict[str, Any] = {}
    for name in ("content", "name"):
        if after.get(name) != before.get(name):
            changes[name] = getattr(new, name)
    if isinstance(new, AIMessage) and after.get("tool_calls") != before.get("tool_calls"):
        changes |= {"tool_calls": new.tool_calls, "invalid_tool_calls": new.invalid_tool_calls}
    return changed_copy(old, **changes) if changes else old


# --- Call a model: streamed if a reader wants tokens, with retries, then the fallbacks.


class ModelOwner(Protocol):
    """The agent that calls a model."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def model(self) -> ModelChoice:
        """The model of requests that name none."""
        ...

    @property
    def withholds(self) -> bool:
        """Whether no reader gets a reply's text before the hooks have passed it."""
        ...

    @property
    def binder(self) -> Binder:
        """Remembers bound models."""
        ...


class ModelUse(Protocol):
    """The run that calls a model."""

    model: str
    """The model that gave the last reply; set here."""
    stop: Stop


class MessageCaches(Protocol):
    """What is known of the thread's messages."""

    fittings: dict[int, Any]
    """The messages as fitted to each model's provider; filled here."""
    texts: PrefixTexts
    """The part of what models get that is plain text; filled here."""

    def lent(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """Return messages for a model, which may change what it gets."""
        ...


class ModelCaller(Protocol):
    """What a call needs of the node that makes it."""

    @property
    def spec(self) -> ModelOwner:
        """The agent."""
        ...

    @property
    def run(self) -> ModelUse:
        """The run."""
        ...

    @property
    def caches(self) -> MessageCaches:
        """What is known of the thread's messages."""
        ...

    @property
    def bridge(self) -> Bridge:
        """The bridge between sync and async."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """The node's `RunnableConfig`."""
        ...

    @property
    def listener(self) -> Listener:
        """What listens to the node."""
        ...


def ask(
    ctx: ModelCaller,
    request: ModelRequest,
    messages: list[BaseMessage],
    tools: Sequence[BoundTool],
) -> Coroutine[Any, Any, AIMessage]:
    """Return the reply of the request's model, or of the first of its fallbacks that answers.

    `messages` and `tools` are the request's, as a model reads them.

    Raises:
        Exception: the last model's error, after all retries and fallbacks.
    """
    return _ask(ctx, request.model or ctx.spec.model, request, messages, tools)


async def _ask(
    ctx: ModelCaller,
    first: ModelChoice,
    request: ModelRequest,
    messages: list[BaseMessage],
    tools: Sequence[BoundTool],
) -> AIMessage:
    """Return the reply of a model, or of the first of its fallbacks that answers."""
    option, left = first, [*reversed(first.fallbacks)]
    while True:
        if option.inner is None:
            bound = ctx.spec.binder.bind(option, tools, request.settings, request.withheld)
            fitted = _fitted(ctx, option, messages, bool(tools))
            call, once = _Call(ctx, option, bound, fitted, request.purpose), None
        else:
            call = _Call(ctx, option, option.model, messages, request.purpose)
            once = partial(_ask, ctx, option.inner, request, messages, tools)
        try:
            reply = await call.with_retries(once)
        except Exception as error:
            last = not left or not isinstance(error, first.falls_back_on)
            if last or classify(error) == "overflow":
                raise
            call.tell("fallback", error, 0.0)
            option = left.pop()
            continue
        if request.purpose == AGENT and option.inner is None:
            ctx.run.model = option.name
        return reply


_MODELS: Final = 16
"""How many models the messages of a thread are kept fitted to."""


def _fitted(
    ctx: ModelCaller, option: ModelChoice, messages: list[BaseMessage], tools: bool
) -> list[BaseMessage]:
    """Return the messages in the form of a model's provider."""
    provider = provider_of(option.model, tools)
    if provider is None:
        return messages
    known: Fitting | None = ctx.caches.fittings.get(id(option.model))
    if known is None or known.model is not option.model or known.provider is not provider:
        if len(ctx.caches.fittings) >= _MODELS:  # a hook may make a model for each call
            ctx.caches.fittings.clear()
        known = ctx.caches.fittings[id(option.model)] = Fitting(option.model, provider)
    return known.fit(messages)


@dataclass(frozen=True, slots=True)
class _Call:
    """One bound model and its messages; called as often as its policy allows."""

    ctx: ModelCaller
    option: ModelChoice
    bound: Runnable[Any, Any]
    messages: list[BaseMessage]
    purpose: str

    async def with_retries(self, other: Callable[[], Awaitable[AIMessage]] | None) -> AIMessage:
        """Call the model, or what takes its place, as often as it may be called."""
        started = time.monotonic()
        attempt = 1
        while True:
            try:
                return ensure_whole(await (self._once() if other is None else other()))
            except Exception as error:
                elapsed = time.monotonic() - started
                delay = retry_delay(error, attempt, self.option.retry, elapsed, random.random)
                if delay is None:
                    raise
                self.tell("retry", error, delay)
            await self.ctx.bridge.sleep(delay)
            attempt += 1

    def _once(self) -> Awaitable[AIMessage]:
        ctx, bound, messages = self.ctx, self.bound, self.messages
        hidden = self.purpose != AGENT or ctx.spec.withholds  # no reader may see it, or not yet
        if ctx.listener.tokens and not hidden:
            return self.streamed(self._config())
        if is_cached(self.option.model):
            messages = as_key(messages)
        way = shorter_way(bound, messages, ctx.config, ctx.caches.texts)
        messages = ctx.caches.lent(messages)
        if way is not None:
            return ctx.bridge.long(generate, agenerate, way, messages)
        config = self._config()
        if hidden:
            config = langgraph_config.with_tag(config, langgraph_config.NOSTREAM)
        return ctx.bridge.long(bound.invoke, bound.ainvoke, messages, config)

    def _config(self) -> Any:
        return langgraph_config.with_metadata(
            self.ctx.config, wick_agent=self.ctx.spec.name, wick_purpose=self.purpose
        )

    async def streamed(self, config: Any) -> AIMessage:
        heard, listener, texts = Pieces(), self.ctx.listener, self.ctx.caches.texts
        take = _hearing(heard, self.ctx.run.stop, taker(listener, self.option.name))
        bound, messages = self.bound, self.ctx.caches.lent(self.messages)

        def read() -> None:
            way = shorter_stream(bound, self.messages, config, texts, is_async=False)
            stream: Any = bound.stream(messages, config) if way is None else pieces(way, messages)
            for piece in stream:
                moment = take(piece if way is None else message_of(piece))
                if moment is not None:
                    run_to_end(listener.at(moment))

        async def aread() -> None:
            way = shorter_stream(bound, self.messages, config, texts, is_async=True)
            if way is None:
                stream: Any = bound.astream(messages, config)
            else:
                stream = await apieces(way, messages)
            async for piece in stream:
                moment = take(piece if way is None else message_of(piece))
                if moment is not None:
                    await listener.at(moment)

        await self.ctx.bridge.long(read, aread)
        chunks = heard.chunks()
        if len(chunks) == 1 and not isinstance(chunks[0], AIMessageChunk):
            return chunks[0]  # a model that cannot stream replies in one piece
        return merge_chunks([c for c in chunks if isinstance(c, AIMessageChunk)])

    def tell(self, phase: str, error: Exception, delay: float) -> None:
        if self.ctx.listener.active:
            data = {"error": error, "delay": delay, "purpose": self.purpose}
            self.ctx.listener.record(Moment("model", phase, self.option.name, data))


def _hearing(heard: Pieces, stop: Stop, tell: Take) -> Callable[[AIMessage], Moment | None]:
    """Return what takes the pieces of a reply, and returns where the run must wait.

    So a slow reader slows the model down, and loses nothing.
    """
    message_id = ""

    def take(chunk: AIMessage) -> Moment | None:
        nonlocal message_id
        if stop.because:  # a model call that was abandoned in its thread ends here
            stop.check()
        text = heard.more(chunk)
        if text is not None:
            return tell(chunk, text, message_id) if text else None
        message_id = message_id or chunk.id or str(uuid.uuid4())
        if chunk.id != message_id:  # providers name a reply in its first piece, or never
            chunk = changed_copy(chunk, id=message_id)  # a model may keep its pieces
        heard.keep(chunk)
        if not (chunk.content or getattr(chunk, "tool_call_chunks", None)) and not (
            chunk.additional_kwargs.keys() & THOUGHT_KEYS
        ):
            return None
        return tell(chunk, None, message_id)

    return take
