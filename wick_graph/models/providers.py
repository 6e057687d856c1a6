"""Providers by name: how to build their chat models, and which message forms each accepts."""

from __future__ import annotations

import importlib
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import httpx
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from pydantic import ValidationError

from wick_graph.constants import LOOP_MAX_TOKENS
from wick_graph.errors import ModelError, missing_extra
from wick_graph.messages.base import PrefixTexts, changed_copy
from wick_graph.messages.content import PICTURES, content_text, picture_of
from wick_graph.models.spec import ModelSpec, unknown_provider

# --- An Ollama server: its address, whether it answers, and its usable models.


PORT: Final = 11_434

PROBE_SECONDS: Final = 0.3
"""How long a server may take to list its models before it counts as absent."""

_MOST_BYTES: Final = 1_000_000

_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})
"""Addresses to listen on but not to call; the server is then on this host."""


def server_url(given: str | None, env: Mapping[str, str]) -> str:
    """Return the server's address: the given one, else `OLLAMA_HOST`, else this host.

    `OLLAMA_HOST` has the forms that Ollama itself reads: a host, a host and port, a port alone
    (`:11500`), or a whole address.

    Raises:
        ModelError: it has none of these forms.
    """
    if given:
        return given.rstrip("/")
    host = env.get("OLLAMA_HOST", "").strip()
    try:
        return _normalise(host)
    except ValueError:
        raise ModelError(
            f"OLLAMA_HOST is not an address: {host!r}; write it like 127.0.0.1:{PORT}."
        ) from None


def _normalise(host: str) -> str:
    whole = "://" in host
    parts = urlsplit(host if whole else f"http://{host}")
    if parts.scheme not in ("http", "https"):
        raise ValueError(host)
    name = parts.hostname or ""
    if name in _ANY_ADDRESS:
        name = "127.0.0.1"
    if ":" in name:
        name = f"[{name}]"
    port = parts.port or ({"http": 80, "https": 443}[parts.scheme] if whole else PORT)
    sign_in, at, _ = parts.netloc.rpartition("@")
    place = f"{sign_in}{at}{name}:{port}"
    return urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))


def find_model(env: Mapping[str, str]) -> str | None:
    """Ask the server for its models and choose one: the first that can call tools.

    If the server lists no such model, choose the first that is not made for embeddings.
    Returns None if no valid answer comes within a fraction of a second.
    """
    try:
        listing = json.loads(_fetch(f"{server_url(None, env)}/api/tags"))
        models = [m for m in listing["models"] if isinstance(m["name"], str)]
    except (OSError, httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return None
    able = [m for m in models if "tools" in (m.get("capabilities") or ())]
    chosen = able or [m for m in models if not _embeds(m)]
    return str(chosen[0]["name"]) if chosen else None


def _fetch(url: str) -> bytes:
    """Return the body of an answer; raise if it is not whole in time."""
    until = time.monotonic() + PROBE_SECONDS
    body = b""
    limits = httpx.Timeout(PROBE_SECONDS / 2)
    # The list of authorities takes 20 ms to read, and HTTP needs none.
    verify = url.startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with httpx.stream("GET", url, timeout=limits, trust_env=False, verify=verify) as answer:
        answer.raise_for_status()
        for piece in answer.iter_bytes():
            body += piece
            if time.monotonic() > until or len(body) > _MOST_BYTES:
                raise TimeoutError(url)
    return body


def _embeds(model: Mapping[str, Any]) -> bool:
    family = str((model.get("details") or {}).get("family", ""))
    return "bert" in family or "embed" in str(model["name"])


# --- The known providers, and how to build their models through LangChain.
#
# A provider's package is imported when one of its models is built, never before.


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """What wick_graph knows of a provider beyond LangChain."""

    langchain: str
    """Its name in `init_chat_model`."""
    module: str
    extra: str
    """Its extra in `pip install "wick-graph[…]"`."""
    keys: tuple[str, ...] = ()
    """Environment variables that hold its key, the usual one first."""
    addresses: tuple[str, ...] = ()
    """Environment variables that set another address."""
    keyless: tuple[str, ...] = ()
    """Environment variables and parameters that mean another way to sign in."""
    default_model: str = ""
    """The model that `auto` takes: small, calls tools, and is likely to exist for years."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that turn off the SDK's own retries, since the engine retries."""
    cap: str = "max_tokens"
    """The model's field for the longest reply."""
    thinks_unasked: bool = False
    """True if reasoning models think by default, and thinking counts against the cap."""


_GATEWAY: Final = "LANGSMITH_GATEWAY"

PROVIDERS: Final[Mapping[str, Provider]] = {
    "openai": Provider(
        langchain="openai",
        module="langchain_openai",
        extra="openai",
        keys=("OPENAI_API_KEY",),
        addresses=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        keyless=(_GATEWAY, "default_headers"),
        default_model="gpt-4.1-mini",
        fixed={"max_retries": 0},
        thinks_unasked=True,
    ),
    "anthropic": Provider(
        langchain="anthropic",
        module="langchain_anthropic",
        extra="anthropic",
        keys=("ANTHROPIC_API_KEY",),
        addresses=("ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL"),
        keyless=(_GATEWAY, "default_headers"),
        default_model="claude-haiku-4-5",
        fixed={"max_retries": 0},
    ),
    "google": Provider(
        langchain="google_genai",
        module="langchain_google_genai",
        extra="google",
        keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        keyless=(_GATEWAY, "GOOGLE_GENAI_USE_VERTEXAI", "vertexai", "credentials", "project"),
        default_model="gemini-2.5-flash",
        fixed={"max_retries": 1},  # attempts, not retries; its SDK reads 0 as its default of five
        cap="max_output_tokens",
        thinks_unasked=True,
    ),
    "ollama": Provider(
        langchain="ollama", module="langchain_ollama", extra="ollama", cap="num_predict"
    ),
}

_HAVE_MAX_RETRIES: Final = frozenset(
    {"azure_openai", "deepseek", "groq", "mistralai", "together", "xai"}
)
"""LangChain's other providers with classes that take `max_retries`."""

_NO_KEY: Final = "none"
"""Sent to a private server that asks for no key; the SDK requires some text."""

_NEEDS_KEY: Final = "{model} needs a key: set {names}, or give the model as a map with an api_key."


def build(spec: ModelSpec, env: Mapping[str, str]) -> tuple[BaseChatModel, int | None]:
    """Build the model that a spec names; return it with the cap on its replies in tokens, if any.

    Raises:
        ModelError: the provider is unknown, its package or its key is missing, or its class
            refuses an argument; the text names what to install or to set.
    """
    provider = PROVIDERS.get(spec.provider)
    if provider is None:
        return _create(spec, spec.provider, _common(spec)), spec.max_tokens
    load(spec.provider)
    arguments = _ollama(spec, env) if spec.provider == "ollama" else _hosted(spec, provider, env)
    cap = spec.max_tokens or LOOP_MAX_TOKENS
    model = _create(spec, provider.langchain, {provider.cap: cap} | arguments)
    if spec.max_tokens is None and provider.thinks_unasked and _reasons(model):
        setattr(model, provider.cap, None)
    return model, getattr(model, provider.cap, cap)


def load(name: str) -> None:
    """Import the package of a known provider.

    Raises:
        ModelError: it is not installed; the text holds the command that installs it.
    """
    provider = PROVIDERS[name]
    try:
        importlib.import_module(provider.module)
    except ImportError:
        package = provider.module.replace("_", "-")
        raise ModelError(missing_extra(f"a model of {name}", package, provider.extra)) from None


def key_of(provider: Provider, env: Mapping[str, str]) -> str:
    """Find the provider's key in the environment; an empty text if there is none."""
    return next((env[name] for name in provider.keys if env.get(name, "").strip()), "")


def _hosted(spec: ModelSpec, provider: Provider, env: Mapping[str, str]) -> dict[str, Any]:
    arguments = _common(spec) | dict(provider.fixed)
    moved = next((env[name] for name in provider.addresses if env.get(name, "").strip()), None)
    address = spec.base_url or moved
    if address:
        arguments["base_url"] = address
    key = spec.api_key or (key_of(provider, env) if spec.named else "")
    if not key and spec.provider == "openai" and address:
        key = _NO_KEY
    if key:
        arguments["api_key"] = key
    elif not any(env.get(name) or spec.params.get(name) for name in provider.keyless):
        raise ModelError(_NEEDS_KEY.format(model=spec.name, names=" or ".join(provider.keys)))
    if spec.provider == "openai":
        if spec.timeout:
            arguments["stream_chunk_timeout"] = spec.timeout
        if address:  # LangChain asks for token counts in streams only at OpenAI itself
            arguments["stream_usage"] = True
    return arguments | dict(spec.params)


def _common(spec: ModelSpec) -> dict[str, Any]:
    """Return the given ones of the arguments that LangChain's classes have in common."""
    given = {
        "temperature": spec.temperature,
        "max_tokens": spec.max_tokens if spec.provider not in PROVIDERS else None,
        "timeout": spec.timeout,
        "base_url": spec.base_url,
        "api_key": spec.api_key,
        "max_retries": 0 if spec.provider in _HAVE_MAX_RETRIES else None,
    }
    return {name: value for name, value in given.items() if value is not None} | dict(spec.params)


def _ollama(spec: ModelSpec, env: Mapping[str, str]) -> dict[str, Any]:
    client: dict[str, Any] = {}
    if spec.timeout:
        client["timeout"] = spec.timeout
    if spec.api_key:
        client["headers"] = {"Authorization": f"Bearer {spec.api_key}"}
    arguments: dict[str, Any] = {"base_url": server_url(spec.base_url, env)}
    if spec.temperature is not None:
        arguments["temperature"] = spec.temperature
    if spec.context_window:  # Ollama silently cuts what exceeds its own small default
        arguments["num_ctx"] = spec.context_window
    if client:
        arguments["client_kwargs"] = client
    return arguments | dict(spec.params)


def _reasons(model: BaseChatModel) -> bool:
    return bool((model.profile or {}).get("reasoning_output"))


def _create(spec: ModelSpec, langchain: str, arguments: dict[str, Any]) -> BaseChatModel:
    try:
        model: BaseChatModel = init_chat_model(spec.model, model_provider=langchain, **arguments)
    except ImportError as error:
        found = re.search(r"pip install ([\w-]+)", str(error))
        package = found[1] if found else f"langchain-{spec.provider.replace('_', '-')}"
        raise ModelError(
            f"a model of {spec.provider} needs {package}, which is not installed; "
            f"run pip install {package}"
        ) from None
    except ValidationError as error:
        raise ModelError(f"{spec.name} cannot be built: {_first(error)}.") from None
    except Exception as error:  # whatever a provider's class raises, also for a missing key
        if "Unsupported provider" in str(error):
            raise unknown_provider(spec.provider) from None
        raise ModelError(_refused(spec, error)) from None
    return model


def _first(error: ValidationError) -> str:
    """Return the first fault without the faulty value: it may be a secret."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in found["loc"])
    text = found["msg"].split("\n", 1)[0].rstrip(".")
    return f"{place}: {text}" if place else text


def _refused(spec: ModelSpec, error: Exception) -> str:
    text = str(error)
    variable = re.search(r"\b[A-Z][A-Z0-9_]*_(?:API_KEY|API_TOKEN|TOKEN)\b", text)
    if variable and not spec.api_key:
        return _NEEDS_KEY.format(model=spec.name, names=variable[0])
    line = text.split("\n", 1)[0][:200].rstrip(".") or type(error).__name__
    if spec.api_key:
        line = line.replace(spec.api_key, "…")
    return f"{spec.name} cannot be built: {line}."


# --- What one provider refuses, or its client cannot write, converted into a form that it takes.
#
# A thread may hold pictures, thoughts and blocks of any provider, since its model may change.
# `wick_graph.messages.lowering` repairs what all providers refuse; here is what differs between
# them. Models of other providers get the messages as they are.


GO_ON: Final = "(go on)"
"""Ends a turn of another model, since Anthropic would miss the thoughts of that turn."""

SHOWN_BELOW: Final = "(shown below)"
"""Replaces a result that is a picture, if the picture follows after the results."""

NO_WORDS: Final = "(nothing that this model reads)"
"""Replaces a reply of another model that was no text, or a picture alone."""

_ANY: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})

_STILL: Final = _ANY - {"image/gif"}

_THOUGHTS: Final = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageForms:
    """What a provider takes beyond texts and calls."""

    name: str = ""
    """LangChain's mark of its replies: it takes their blocks back unchanged; "" for none."""
    blocks: frozenset[str]
    """Types of blocks that a user's message may have, besides texts and pictures."""
    pictures: frozenset[str] = _ANY
    addresses: bool = True
    """A picture may be an address. Google's client would fetch it itself, from this host."""
    in_results: bool = True
    """A tool's result may hold pictures."""
    forms: frozenset[str] = frozenset()
    """The keys for a file's data that the client can write; a file needs one; empty for any."""
    texts: frozenset[str] = frozenset({"type", "text"})
    """Keys of a block of text; others are left out."""
    replies: Callable[[dict[str, Any]], bool] = lambda block: True
    """Whether it takes a block of a marked reply back; callers can forge the mark."""
    thinks: Callable[[BaseChatModel], bool] = lambda model: False
    """Whether each reply with calls must begin with a thought, in the current turn."""


_DATA: Final = frozenset({"base64", "data"})

_CHAT: Final = MessageForms(
    blocks=frozenset({"input_audio", "file", "audio"}),
    forms=_DATA | {"file", "file_id", "id"},
    in_results=False,
)

_RESPONSES: Final = MessageForms(
    name="openai",
    blocks=frozenset({"file", "input_file", "input_text", "input_image"}),
    forms=_DATA | {"file", "file_id", "id", "url"},
    replies=lambda block: block.get("type") != "reasoning" or bool(block.get("id")),
)

_ANTHROPIC: Final = MessageForms(
    name="anthropic",
    blocks=frozenset({"document", "file", "search_result", "container_upload"}),
    forms=_DATA | {"file_id", "id", "url"},
    texts=frozenset({"type", "text", "cache_control", "citations"}),
    replies=lambda block: _is_anthropics(block),
    thinks=lambda model: _thinks(model),
)

_GOOGLE: Final = MessageForms(
    name="google_genai",
    blocks=frozenset({"media", "file", "audio", "video"}),
    forms=_DATA | {"file_id"},
    pictures=_STILL,
    addresses=False,
    replies=lambda block: _is_googles(block),
)

_OLLAMA: Final = MessageForms(
    blocks=frozenset(), pictures=_STILL, addresses=False, in_results=False
)

_BY_KIND: Final = {
    "anthropic-chat": _ANTHROPIC,
    "chat-google-generative-ai": _GOOGLE,
    "chat-ollama": _OLLAMA,
}
"""By LangChain's type name; OpenAI's type has two protocols."""


def provider_of(model: BaseChatModel, tools: bool) -> MessageForms | None:
    """Return the message forms of a model's provider, or None if they are unknown."""
    kind = model._llm_type
    if kind in ("openai-chat", "azure-openai-chat"):
        choose = getattr(model, "_use_responses_api", None)
        asked = {"tools": [{"type": "function"}]} if tools else {}
        return _RESPONSES if choose is not None and choose(asked) else _CHAT
    return _BY_KIND.get(kind)


@dataclass(slots=True)
class Fitting:
    """Fit a growing chain to a model; each message is converted once."""

    model: BaseChatModel
    provider: MessageForms
    _texts: PrefixTexts = field(default_factory=PrefixTexts)
    _known: dict[int, tuple[BaseMessage, BaseMessage]] = field(default_factory=dict)

    def fit(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """Return the chain as the provider takes it; the same list if it already is."""
        closes = self.provider.thinks(self.model)
        if not closes and self._texts.hold(messages):
            return messages
        fitted = list(map(self._fitted, messages))
        if not self.provider.in_results:
            fitted = list(_pictures_behind(fitted))
        return list(_turns_closed(fitted)) if closes else fitted

    def _fitted(self, message: BaseMessage) -> BaseMessage:
        if isinstance(message.content, str):
            return message
        known = self._known.get(id(message))
        if known is None or known[0] is not message:
            if len(self._known) > 2 * _MOST:
                self._known.clear()
            known = self._known[id(message)] = (message, self._make(message))
        return known[1]

    def _make(self, message: BaseMessage) -> BaseMessage:
        content: Any = message.content
        if isinstance(message, AIMessage):
            if self._is_own(message):
                made: Any = list(filter(self.provider.replies, content))
                made = content if len(made) == len(content) else made
            else:
                made = _words(content)
            if not made and not message.tool_calls:
                made = NO_WORDS
            return changed_copy(message, content=made) if made is not content else message
        made = [self._block(block) for block in content]
        same = all(new is old for new, old in zip(made, content, strict=True))
        return message if same else changed_copy(message, content=made)

    def _is_own(self, message: AIMessage) -> bool:
        """Say whether this provider signed a reply; it refuses the thoughts of others."""
        mark = message.response_metadata.get("model_provider")
        return bool(self.provider.name) and mark == self.provider.name

    def _block(self, block: Any) -> Any:
        kind = block.get("type")
        if kind == "text":
            texts = self.provider.texts
            known = texts.issuperset(block)
            return block if known else {key: block[key] for key in block if key in texts}
        if kind in PICTURES:
            return self._picture(block)
        if kind in self.provider.blocks and self._is_written(block):
            return block
        return _note(f"a block of type {str(kind)[:40]} is left out: this model does not read it")

    def _is_written(self, block: dict[str, Any]) -> bool:
        """Say whether the client can write a file in its given form."""
        kind, forms = block["type"], self.provider.forms
        if kind == "document":
            return isinstance(block.get("source"), dict)
        if kind not in _FILES:
            return True
        found = set(block) if "source_type" in block else set(block) - _OLD_FORMS
        return not (forms if kind == "file" else forms & _DATA).isdisjoint(found)

    def _picture(self, block: dict[str, Any]) -> dict[str, Any]:
        kind, data = picture_of(block)
        if kind == "":
            address = data if len(data) <= _LONGEST else f"{data[:_LONGEST]}…"
            usual = {"type": "image_url", "image_url": {"url": data}}
            if not self.provider.addresses:
                return _note(f"a picture at {address}")
            return usual if block["type"] == "image" and "source" in block else block
        if kind not in self.provider.pictures:
            return _note(f"a picture is left out: this model does not read {kind or 'it'}"[:200])
        if block["type"] == "image" and "source" in block and self.provider is not _ANTHROPIC:
            return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
        return block


_FILES: Final = frozenset({"file", "audio", "video"})

_OLD_FORMS: Final = frozenset({"data", "id"})
"""Keys that hold a file only if `source_type` says so."""

_GOOGLE_KEYS: Final = {
    **{kind: (kind,) for kind in ("text", "thinking", "code_execution_result")},
    "executable_code": ("executable_code", "language"),
    "media": ("mime_type",),
    **dict.fromkeys(("reasoning", "server_tool_call", "server_tool_result", "non_standard"), ()),
    **dict.fromkeys(("image_url", "image", "file", "audio", "video", "file_data"), ()),
    **dict.fromkeys(("function_call", "function_call_signature", "tool_use", "tool_call"), ()),
}
"""Types of blocks that Google's client writes for its own replies, and the keys it needs."""

_MOST: Final = 10_000

_LONGEST: Final = 500


def _words(content: Any) -> str:
    """Return the words of another provider's reply, without thoughts and calls."""
    said = [
        block.get("refusal") or "" if block.get("type") == "refusal" else content_text([block])
        for block in content
        if isinstance(block, dict)
    ]
    return "".join(said)


def _is_anthropics(block: dict[str, Any]) -> bool:
    """Say whether Anthropic may have made a block of a reply: its thoughts are signed."""
    kind = block.get("type")
    if kind in _THOUGHTS:
        return bool(block.get("signature" if kind == "thinking" else "data"))
    return kind not in PICTURES


def _is_googles(block: dict[str, Any]) -> bool:
    """Say whether Google may have made a block of a reply."""
    keys = _GOOGLE_KEYS.get(block.get("type") or "")
    return keys is not None and all(block.get(key) is not None for key in keys)


def _note(text: str) -> dict[str, Any]:
    return {"type": "text", "text": f"[{text}]"}


def _pictures_behind(messages: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    """Yield the messages, with pictures of results in a user message after the last result."""
    held: list[Any] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if isinstance(message.content, list):
                content = message.content
                found = [b for b in content if isinstance(b, dict) and b.get("type") in PICTURES]
                if found:
                    held += [_note(f"from the tool {message.name}"), *found]
                words = content_text(content) or (SHOWN_BELOW if found else "")
                message = changed_copy(message, content=words)
        elif held:
            yield HumanMessage(held)
            held = []
        yield message
    if held:
        yield HumanMessage(held)


def _thinks(model: BaseChatModel) -> bool:
    thinking = getattr(model, "thinking", None)
    return isinstance(thinking, dict) and thinking.get("type") in ("enabled", "adaptive")


def _turns_closed(messages: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    """Yield the messages; a turn with calls but no thought before them ends at its results."""
    bare = False
    for message in messages:
        if bare and not isinstance(message, ToolMessage):
            yield HumanMessage(GO_ON)
            bare = False
        if isinstance(message, AIMessage) and message.tool_calls:
            first = (
                message.content[0] if isinstance(message.content, list) and message.content else ""
            )
            bare = not (isinstance(first, dict) and first.get("type") in _THOUGHTS)
        yield message
    if bare:
        yield HumanMessage(GO_ON)
