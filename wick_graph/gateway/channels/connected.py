"""What channels with a connection share: it begins again when it ends, and says what is wrong."""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Final, TypeVar

from wick_graph.errors import ConfigError, DeliveryError, WickError, describe
from wick_graph.gateway.channels.protocol import Receive
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

MARKS: Final = re.compile(
    r"^```([\w+#-]{0,20})\n(.*?)\n?^```[ ]*$|`([^`\n]+)`|\*\*(\S(?:[^*\n]*\S)?)\*\*",
    re.MULTILINE | re.DOTALL,
)
"""Blocks of code with their language, code, and bold text in Markdown."""

_MOST_WAIT: Final = 30.0  # seconds

Sleep = Callable[[float], Awaitable[None]]

T = TypeVar("T")


class ConnectedChannel(ABC):
    """A connection that begins again whenever it ends, and says what is wrong once.

    Args:
        name: The channel's key under `channels:`.
        sleep: Waits for some seconds; tests give their own.
    """

    platform = ""
    """Its name, for errors."""
    network: tuple[type[Exception], ...] = (OSError,)
    """Errors of the library that mean that the platform cannot be reached."""

    def __init__(self, name: str, sleep: Sleep) -> None:
        self.name, self._sleep = name, sleep
        self._log: Final = logging.getLogger(type(self).__module__)
        self._receive: Receive = _refuse
        self._troubles = {"": f"the channel {name} is not started"}
        self._token_fault: DeliveryError | None = None
        self._failed = 0
        self._jobs: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Any]] = set()

    @abstractmethod
    async def _log_in(self) -> None:
        """Make a call that shows whether the token is right."""

    @abstractmethod
    async def _connect(self) -> None:
        """Connect, and return when the connection has ended and the next may begin at once."""

    def _failure(self, error: Exception) -> DeliveryError:
        """Say what is wrong in a sentence without the token."""
        if isinstance(error, DeliveryError):
            return error
        if isinstance(error, TimeoutError):
            return DeliveryError(f"{self.platform} does not answer in time; check the network")
        if isinstance(error, self.network):
            return DeliveryError(f"{self.platform} cannot be reached; check the network")
        return DeliveryError(f"the call to {self.platform} failed ({type(error).__name__})")

    async def start(self, receive: Receive) -> None:
        """Begin to receive; a network that is down does not stop it.

        Raises:
            ConfigError: The platform refuses the token.
        """
        self._receive = receive
        self._troubles.clear()
        try:
            await self._log_in()
        except DeliveryError as error:
            if error is self._token_fault:
                await self.stop()
                raise ConfigError(str(error)) from None
            self._say(str(error))
        self._spawn(self._keep_connected())
        self._spawn(self._work())

    async def stop(self) -> None:
        """Stop to receive."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._troubles = {"": f"the channel {self.name} is not started"}

    def healthy(self) -> str:
        """Return what is wrong, as a sentence; empty if nothing is."""
        return next(filter(None, self._troubles.values()), "")

    async def catch_up(self) -> None:  # noqa: B027  # a choice of most channels, not a gap
        """Fetch nothing more: each connection begins with what came before it."""

    # --- For subclasses.

    def _say(self, trouble: str, about: str = "") -> None:
        """Log a change of health once."""
        if trouble != self._troubles.get(about, ""):
            self._troubles[about] = trouble
            log = self._log.warning if trouble else self._log.info
            log("%s", trouble or f"the channel {self.name} receives")

    def _token_refused(self, text: str) -> DeliveryError:
        """Return an error that is a fault of the configuration if it comes at the start."""
        self._token_fault = DeliveryError(text, retry_after=60.0)
        return self._token_fault

    def _well(self) -> None:
        self._failed = 0
        self._say("")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something run beside; it is cancelled at the end."""
        task = asyncio.create_task(work, name=f"channel {self.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, work: Awaitable[T], seconds: float | None = CALL) -> T:
        """Await a call; no error refers to the library's, which hold the token."""
        try:
            async with asyncio.timeout(seconds):
                return await work
        except Exception as error:
            failure = self._failure(error)
        raise failure

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call, and wait twice if the platform asks for it."""
        for _ in range(2):
            try:
                return await self._call(call())
            except DeliveryError as error:
                if error.retry_after is None or error.retry_after > _MOST_WAIT:
                    raise
                wait = error.retry_after
            await self._sleep(wait)
        return await self._call(call())

    async def _confirm(self, work: Awaitable[Any]) -> None:
        """Tell the platform that the press of a button came."""
        try:
            await self._call(work)
        except DeliveryError as error:
            self._log.info("the channel %s: a button was not answered: %s", self.name, error)

    async def _in_time(self, work: asyncio.Future[Any], seconds: float) -> bool:
        """Wait for something, and return whether it ended in time; else it goes on."""
        late = asyncio.ensure_future(self._sleep(seconds))
        try:
            await asyncio.wait({work, late}, return_when=asyncio.FIRST_COMPLETED)
            return work.done()
        finally:
            late.cancel()
            await asyncio.gather(late, return_exceptions=True)

    async def _store(self, message: InboundMessage) -> None:
        """Hand a message over; try until it is stored, so that the order stays."""
        failed = 0
        while True:
            try:
                await self._receive(message)
                return self._say("", "store")
            except Exception as error:
                self._say(self._not_stored(error), "store")
            failed += 1
            await self._sleep(back_off(failed))

    async def _take_in(self, read: Callable[[], InboundMessage | None]) -> InboundMessage | None:
        """Store what a function reads from the platform's data; drop what it cannot read."""
        try:
            made = read()
        except Exception as error:  # nothing that comes may stop what is behind it
            kind = type(error).__name__
            self._log.error("the channel %s dropped a message, unreadable: %s", self.name, kind)
            return None
        if made is not None:
            await self._store(made)
        return made

    # --- Loops.

    async def _keep_connected(self) -> None:
        while True:
            try:
                await self._connect()
                continue
            except DeliveryError as error:
                said, wait = str(error), error.retry_after
            except Exception as error:
                said, wait = self._not_stored(error), None
            self._failed += 1
            self._say(said)
            await self._sleep(back_off(self._failed) if wait is None else wait)

    async def _work(self) -> None:
        """Do one job after the other: messages are stored in the order in which they came."""
        while True:
            job = await self._jobs.get()
            try:
                await job()
            except Exception as error:  # nothing that comes may stop what is behind it
                what = str(error) if isinstance(error, WickError) else type(error).__name__
                self._log.error(
                    "the channel %s could not do a part of its work: %s", self.name, what
                )

    def _not_stored(self, error: Exception) -> str:
        what = describe(error) if isinstance(error, WickError) else type(error).__name__
        return f"the channel {self.name} cannot store what comes: {what}"


def back_off(failed: int) -> float:
    """Return the seconds to wait after so many failures in a row."""
    return min(2.0 ** min(failed, 10), _MOST_WAIT)


def safe_base(url: str) -> str:
    """Check an address that gets the token: https, or http on this machine.

    Raises:
        ValueError: It is neither, or has more than a host and a path.
    """
    target = Target.parse(url)
    if set("{}?") & set(url):
        raise ValueError("base_url has braces or a query; write https://host")
    if target.scheme == "http" and target.host not in ("127.0.0.1", "::1", "localhost"):
        raise ValueError("base_url would send the token unencrypted; use https")
    return url


def sendable(message: OutboundMessage) -> str:
    """Return the text of a message that shall be sent; half a surrogate pair becomes `?`.

    Raises:
        DeliveryError: There is neither text nor file.
    """
    if not (message.content.strip() or message.media):
        raise DeliveryError("the message is blank; write a text", permanent=True)
    return message.content.encode("utf-8", "replace").decode()


def check_buttons(buttons: Collection[tuple[str, str]], most: int) -> None:
    """Check that there are at most 25 buttons, with codes of so many characters.

    Raises:
        DeliveryError: There are more, or a code is empty or too long.
    """
    if len(buttons) > 25 or not all(1 <= len(code) <= most for _, code in buttons):
        why = f"there are more than 25 buttons, or a code is empty or has more than {most} signs"
        raise DeliveryError(f"{why}; shorten them", permanent=True)


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


def no_chat(chat: str, platform: str) -> DeliveryError:
    """Say that an id is of no chat."""
    said = f"{chat!r:.80} is no chat of {platform}; write its id"
    return DeliveryError(said, permanent=True)


def asks_to_wait(platform: str, seconds: float) -> DeliveryError:
    """Say that a platform wants the next try later."""
    return DeliveryError(f"{platform} asks to wait {seconds:g} s", retry_after=seconds)


async def _refuse(message: InboundMessage) -> None:
    raise ConfigError("the channel is not started")
