"""What channels share: settings, calls, a connection that begins again, messages and files."""

from __future__ import annotations

import asyncio
import html
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import AfterValidator

from wick_graph.config.fields import Block, Text
from wick_graph.config.gateway import ChannelConfig
from wick_graph.core.redaction import REDACTOR
from wick_graph.errors import ConfigError, DeliveryError, WickError, describe
from wick_graph.gateway.channels import files
from wick_graph.gateway.channels.protocol import Receive
from wick_graph.gateway.channels.registry import read_options
from wick_graph.gateway.messages import InboundMessage, OutboundMessage
from wick_graph.web.addresses import Target

STALLED: Final = 45.0
"""Seconds after which a platform that does not answer counts as lost, and is asked again."""

CALL: Final = 30.0
"""Seconds that a call may take."""

UPLOAD: Final = 300.0
"""Seconds that a call with a file may take."""

HISTORY: Final = 24 * 3600.0
"""Seconds that a new connection looks back; the inbox remembers ids for longer."""

CHATS, MESSAGES = 40, 100
"""Chats, and messages of each, that a new connection looks at: what comes meanwhile waits."""

_MOST_WAIT: Final = 30.0  # seconds

Sleep = Callable[[float], Awaitable[None]]

T = TypeVar("T")


class ConfiguredChannel:
    """A channel with the options and the secrets of its block.

    Args:
        name: Its key under `channels:`.
        config: Its block.

    Raises:
        ConfigError: A secret is missing or has another form, or an option is invalid.
    """

    options: ClassVar[type[Block]]
    """The model of its `options:`."""
    secrets: ClassVar[tuple[tuple[str, str, str], ...]]
    """Keys of the block, each with the form of the secret, and what a person must set it to."""

    def __init__(self, name: str, config: ChannelConfig) -> None:
        self.name = name
        self._options: Any = read_options(self.options, name, config.options)
        self._people = (*config.owner, *config.allow_from)
        self._secrets: dict[str, str] = {}
        self._private: list[str] = []
        """The secrets, and parts of them that are as secret."""
        self._fault: DeliveryError | None = None
        for key, form, _ in self.secrets:
            given = getattr(config, key)
            self._secrets[key] = secret = given.get_secret_value().strip() if given else ""
            if (found := re.fullmatch(form, secret)) is None:
                raise ConfigError(str(self._refused(key)))
            self._private += filter(None, (secret, *found.groups()))
        REDACTOR.learn(self._private)

    def _clean(self, told: str) -> str:
        """Return what a platform says, on one line and without a secret."""
        for secret in self._private:
            told = told.replace(secret, "…")
        return " ".join("".join(c if c.isprintable() else " " for c in told).split())[:200]

    def _refused(self, key: str) -> DeliveryError:
        """Say that a secret cannot be used."""
        why = f"channels.{self.name}.{key} is missing, has another form, or is refused"
        right = next(what for known, _, what in self.secrets if known == key)
        return self._wrong(f"{why}; set it to {right}")

    def _wrong(self, said: str) -> DeliveryError:
        """Say what is a fault of the configuration if it shows at the start."""
        self._fault = DeliveryError(said, retry_after=60.0)
        return self._fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A message that can be sent as it is."""

    chat: str
    topic: str = ""
    text: str
    file: tuple[Path, str] | None
    """A file, and its safe name."""
    buttons: list[tuple[str, str]]
    reply_to: str
    key: str

    def answered(self, place: str) -> int | None:
        """Return the number of the message that it answers, if that one is in a place."""
        found = re.match(r"([^:]+):([0-9]+)(?::|\Z)", self.reply_to)
        return int(found[2]) if found and found[1] == place else None


class ConnectedChannel(ConfiguredChannel, ABC):
    """A connection that begins again whenever it ends, and says what is wrong once.

    Args:
        name: The channel's key under `channels:`.
        config: Its block.
        sleep: Waits for some seconds; tests give their own.
    """

    platform: ClassVar[str]
    """Its name, for errors."""
    network: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    """Errors of the library that mean that the platform cannot be reached."""
    chats: ClassVar[str]
    """The form of a chat's id, with the groups `chat` and `topic`."""
    chat_id: ClassVar[str] = "chat"
    """What such an id is, for errors."""
    most_code: ClassVar[int] = 2000
    """Bytes of a button's code."""
    idempotent: bool = False

    def __init__(self, name: str, config: ChannelConfig, *, sleep: Sleep = asyncio.sleep) -> None:
        super().__init__(name, config)
        self._sleep = sleep
        self._log: Final = logging.getLogger(type(self).__module__)
        self._receive: Receive
        self._troubles = {"": f"the channel {name} is not started"}
        self._failed = 0
        self._jobs: asyncio.Queue[Callable[[], Awaitable[Any]]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- For subclasses: what a platform does in its own way.

    @abstractmethod
    async def _log_in(self) -> None:
        """Make calls that show whether the settings are right."""

    @abstractmethod
    async def _connect(self) -> None:
        """Connect, and return when the connection has ended and the next may begin at once."""

    @abstractmethod
    async def _send(self, post: Post) -> str:
        """Send a message, and return the platform's id of it."""

    @abstractmethod
    async def _load(self, attachment: Mapping[str, Any], most: int) -> bytes:
        """Return what a file holds, at most so many bytes."""

    def _failure(self, error: Exception) -> DeliveryError:
        """Say what is wrong in a sentence without a secret; subclasses know their library."""
        match error:
            case DeliveryError():
                return error
            case TimeoutError():
                return DeliveryError(f"{self.platform} does not answer in time; check the network")
            case _ if isinstance(error, self.network):
                return DeliveryError(f"{self.platform} cannot be reached; check the network")
        return DeliveryError(f"the call to {self.platform} failed ({type(error).__name__})")

    # --- The protocol.

    async def start(self, receive: Receive) -> None:
        """Begin to receive; a network that is down does not stop it.

        Raises:
            ConfigError: The platform refuses a setting.
        """
        self._receive = receive
        self._troubles.clear()
        try:
            await self._call(self._log_in(), None)
        except DeliveryError as error:
            if error is self._fault:
                await self.stop()
                raise ConfigError(str(error)) from None
            self._say(str(error))
        self._spawn(self._keep_connected())
        self._spawn(self._work())

    async def stop(self) -> None:
        """Stop to receive; what the platform was not told to forget comes again."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._troubles = {"": f"the channel {self.name} is not started"}

    def healthy(self) -> str:
        """Return what is wrong, as a sentence; empty if nothing is."""
        return next(filter(None, self._troubles.values()), "")

    async def catch_up(self) -> None:
        """Fetch nothing more: each connection begins with what came before it."""

    async def send(self, message: OutboundMessage, key: str) -> str:
        """Send a text, a file, or one with the other; half a surrogate pair becomes `?`.

        Raises:
            DeliveryError: It was not sent, or it is unknown whether it was.
        """
        if (found := re.fullmatch(self.chats, message.chat_id)) is None:
            wrong = f"{message.chat_id!r:.80} is no {self.chat_id} of {self.platform}; use its id"
            raise DeliveryError(wrong, permanent=True)
        if not (message.content.strip() or message.media):
            raise DeliveryError("the message is blank; write a text", permanent=True)
        codes = [len(code.encode("utf-8", "replace")) for _, code in message.buttons]
        if len(codes) > 25 or not all(0 < size <= self.most_code for size in codes):
            wrong = f"more than 25 buttons, or a code of none or more than {self.most_code} bytes"
            raise DeliveryError(f"there are {wrong}; shorten them", permanent=True)
        post = Post(
            **found.groupdict(""),
            text=message.content.encode("utf-8", "replace").decode(),
            file=files.file_to_send(message.media[0]) if message.media else None,
            buttons=[(label or code, code) for label, code in message.buttons],
            reply_to=message.reply_to,
            key=key,
        )
        return await self._send(post)

    async def fetch(self, attachment: Mapping[str, Any], folder: Path, most: int) -> Path:
        """Download a file into a folder, as `FetchingChannel` says."""
        if int(attachment.get("size") or 0) > most:
            raise files.too_large(attachment, most)
        try:
            data = await self._load(attachment, most)
            return await asyncio.to_thread(files.store, data, attachment, folder)
        except DeliveryError as error:
            failure = files.not_fetched(attachment, str(error))
        except WickError:
            raise
        except Exception as error:  # it refers to the request, with the token
            failure = files.not_fetched(attachment, type(error).__name__)
        raise failure

    # --- Help for subclasses.

    def _say(self, trouble: str, about: str = "") -> None:
        """Log a change of health once."""
        if trouble != self._troubles.get(about, ""):
            self._troubles[about] = trouble
            log = self._log.warning if trouble else self._log.info
            log("%s", trouble or f"the channel {self.name} receives")

    def _well(self) -> None:
        self._failed = 0
        self._say("")

    def _answered(self, status: int, told: str, wait: object = None) -> DeliveryError:
        """Say what an HTTP status means; `told` is the platform's text, `wait` its Retry-After."""
        if status == 429:
            known = re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", str(wait))
            seconds = float(str(wait)) if known else 60.0
            said = f"{self.platform} asks to wait {seconds:g} s"
            return DeliveryError(said, retry_after=seconds)
        if status == 401:
            return self._refused("token")
        said = f"{self.platform} refuses the call: {self._clean(told)}"
        return DeliveryError(said, permanent=status < 500)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Let something run beside; it is cancelled at the end."""
        task = asyncio.create_task(work, name=f"channel {self.name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._log.info("the channel %s: %s", self.name, error)

    async def _call(self, work: Awaitable[T], seconds: float | None = CALL) -> T:
        """Await a call; no error refers to the library's, which hold the token."""
        try:
            async with asyncio.timeout(seconds):
                return await work
        except Exception as error:
            failure = self._failure(error)
        raise failure

    async def _look_back(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """Ask for what came earlier, and wait twice if the platform wants; None if it refuses."""
        for tries in range(3):
            try:
                return await self._call(call())
            except DeliveryError as error:
                failure, wait = error, error.retry_after
            if tries == 2 or wait is None or wait > _MOST_WAIT:
                break
            await self._sleep(wait)
        self._log.warning("the channel %s cannot look back: %s", self.name, failure)
        return None

    async def _take_in(
        self, read: Callable[[], InboundMessage | None], what: str = "a message"
    ) -> InboundMessage | None:
        """Hand over what a function reads from the platform's data; drop what it cannot read."""
        try:
            made = read()
        except Exception as error:  # nothing that comes may stop what is behind it
            kind = type(error).__name__
            self._log.error("the channel %s dropped %s, unreadable: %s", self.name, what, kind)
            return None
        if made is not None:
            await self._store(made)
        return made

    async def _store(self, message: InboundMessage) -> None:
        """Hand a message over; try until it is stored, so that the order stays."""
        failed = 0
        while True:
            try:
                await self._receive(message)
                return self._say("", "store")
            except Exception as error:
                what = describe(error) if isinstance(error, WickError) else type(error).__name__
                self._say(f"the channel {self.name} cannot store what comes: {what}", "store")
            failed += 1
            await self._sleep(_back_off(failed))

    # --- Loops.

    async def _keep_connected(self) -> None:
        while True:
            try:
                await self._connect()
                continue
            except Exception as error:
                failure = self._failure(error)
            self._failed += 1
            self._say(str(failure))
            wait = failure.retry_after
            await self._sleep(_back_off(self._failed) if wait is None else wait)

    async def _work(self) -> None:
        """Do one job after the other: messages are stored in the order in which they came."""
        while True:
            job = await self._jobs.get()
            try:
                await job()
            except Exception as error:  # nothing that comes may stop what is behind it
                what = str(error) if isinstance(error, WickError) else type(error).__name__
                self._log.error("the channel %s could not do some work: %s", self.name, what)


def _back_off(failed: int) -> float:
    """Return the seconds to wait after so many failures in a row."""
    return min(2.0 ** min(failed, 10), _MOST_WAIT)


# --- Pure.


def _safe_base(url: str) -> str:
    target = Target.parse(url)
    here = target.host in ("127.0.0.1", "::1", "localhost")
    if set("{}?") & set(url) or not (here or target.scheme == "https"):
        raise ValueError("it gets the token; write https://host, without braces and a query")
    return url


BaseUrl = Annotated[Text, AfterValidator(_safe_base)]
"""The address of a platform's API; `http` only on this machine."""


def inbound(
    channel: str, sender: str, chat: str, content: str, *, group: bool, **metadata: Any
) -> InboundMessage:
    """Return a message; metadata that is empty is left out, but for `group`."""
    given = {key: value for key, value in metadata.items() if value}
    return InboundMessage(
        channel=channel,
        sender_id=sender,
        chat_id=chat,
        content=content,
        metadata={"group": group, **given},
    )


_MARKS: Final = re.compile(
    r"^```([\w+#-]{0,20})\n(.*?)\n?^```[ ]*$|`([^`\n]+)`|\*\*(\S(?:[^*\n]*\S)?)\*\*",
    re.MULTILINE | re.DOTALL,
)
"""Blocks of code with their language, code, and bold text in Markdown."""


def formatted(text: str, block: Callable[[str, str], str], code: str, bold: str) -> str:
    """Return simple Markdown in a platform's marks; all of `&`, `<` and `>` is escaped.

    Args:
        text: The text.
        block: Marks a block of code, given its language and its lines.
        code: The marks of code, with `{}` for it.
        bold: The marks of bold text.
    """

    def mark(found: re.Match[str]) -> str:
        language, lines, word, strong = found.groups()
        if lines is not None:
            return block(language, lines)
        return bold.format(strong) if word is None else code.format(word)

    return _MARKS.sub(mark, html.escape(text, quote=False))
