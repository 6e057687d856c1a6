"""Email: polls a mailbox by IMAP, marks a mail as read only after it is stored, sends by SMTP."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import EmailMessage, Message
from email.parser import BytesHeaderParser, BytesParser
from email.policy import SMTP as SMTP_POLICY
from email.policy import default as modern
from email.utils import formatdate, getaddresses, parsedate_to_datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import aiosmtplib
import re2  # type: ignore[import-untyped]  # it has no stubs
from imap_tools import BaseMailBox, MailAttachment, MailBox, MailBoxUnencrypted, errors
from imap_tools.consts import SHORT_MONTH_NAMES
from imap_tools.utils import check_command_status, decode_value, encode_folder
from pydantic import Field, field_validator

from wick_graph.config.fields import Block, Text
from wick_graph.config.gateway import ChannelConfig
from wick_graph.core.redaction import REDACTOR
from wick_graph.errors import ConfigError, DeliveryError, ToolError, WickError
from wick_graph.gateway.channels.files import safe_name, store
from wick_graph.gateway.channels.protocol import Receive
from wick_graph.gateway.channels.registry import read_options
from wick_graph.gateway.messages import InboundMessage, OutboundMessage
from wick_graph.store.mailbox import hashed
from wick_graph.web.pages import html_text

MAX_CHARS: Final = 50_000
"""Characters of a mail's text that are read, and of one that is sent."""

SILENT: Final = 25.0
"""Seconds that a server may say nothing."""

LATE: Final = 85.0
"""Seconds since the last look at the mailbox after which the channel says so."""

_BATCH: Final = 100
_MOST_PARTS: Final = 500
_MOST_MARKS: Final = 10_000
_MOST_TEXT: Final = 20 * MAX_CHARS
_SERVER: Final = re.compile(
    r"((?:imap|smtp)(?:s|\+starttls)?)://([\w.-]+|\[[\da-f:]+\])(?::(\d{1,5}))?/?", re.A
)
_PORTS: Final = {"imaps": 993, "smtps": 465, "smtp+starttls": 587, "smtp": 25}
_HERE: Final = ("127.0.0.1", "[::1]", "localhost")
_ADDRESS: Final = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[a-z0-9.-]{1,255}", re.ASCII)
_NUMBER: Final = re.compile(r"<[!-;=?-~]{1,250}>")
_NATIVE: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,10}):.+")
_CHARSET: Final = re.compile(r"(?:us-ascii|utf|iso|windows|koi8|big5|gb|euc|shift)[-_\w]*", re.A)
_HEAD: Final = "BODY.PEEK[HEADER]<0.65536>"
_LONG: Final = re.compile(rb"(?im)(?:^|\r)content-(?:type|disposition):(?:[^\n]|\n[ \t]){4000}")
"""A field for which Python's parser takes quadratic time."""
# RE2: linear in the mail, whatever its author does
_QUOTED: Final = re2.compile(
    r"(?im)^(?:on|am|le|el|il|op|em)\b[^\n]{5,300}(?:\n[^\n>]{1,200})?:[ \t]*\n(?:[ \t]*\n)*"
    r"(?:>[^\n]*(?:\n|\z)(?:[ \t]*\n)*)+"
    r"|^-{3,} ?(?:original message|ursprüngliche nachricht|message d'origine) ?-{3,}(?s:.*)"
)
_QUOTED_HTML: Final = re2.compile(
    r"(?is)<(?:div|blockquote)\b[^>]*(?:gmail_quote|divRplyFwdMsg|type=.?cite)[^>]*>.*"
)
_POLICY: Final = SMTP_POLICY.clone(max_line_length=900, cte_type="7bit")
"""Long lines: else Python would encode a long Message-ID, and so break it."""
_SMTP: Final = aiosmtplib.SMTPAuthenticationError
_SETTINGS: Final = (errors.MailboxLoginError, errors.MailboxFolderSelectError, _SMTP)
_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")]


class EmailOptions(Block):
    """The `options:` of an email channel; its password is `secret`."""

    imap: Text
    """`imaps://host`, or `imap+starttls://host`; `imap://` only on this machine."""
    smtp: Text
    """`smtps://host`, or `smtp+starttls://host`; `smtp://` only on this machine."""
    user: Line
    address: Line | None = None
    """The address of the mailbox; the user by default."""
    folder: Line = "INBOX"
    move_to: Line | None = None
    """A folder to which mails go that are read and a day old; without one they stay."""
    poll: Annotated[int, Field(ge=5, le=60)] = 20
    """Seconds between two looks at the mailbox."""
    most_bytes: Annotated[int, Field(ge=1024, le=100 * 2**20)] = 30 * 2**20
    """Bytes of a mail with its files; of a larger one only the subject is read."""

    @field_validator("imap", "smtp")
    @classmethod
    def _is_safe(cls, url: str, info: Any) -> str:
        kind, found = info.field_name, _SERVER.fullmatch(url)
        if found is None or not found[1].startswith(kind) or int(found[3] or 1) > 65535:
            raise ValueError(f"it is no address; write {kind}s://host or {kind}+starttls://host")
        if found[1] == kind and found[2] not in _HERE:
            raise ValueError(f"{kind}:// would send the password unencrypted; write {kind}s://")
        return url


def _server(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port."""
    _, scheme, host, port, _ = _SERVER.split(url)
    return scheme, host.strip("[]"), int(port or _PORTS.get(scheme, 143))


class EmailChannel:
    """A mailbox.

    Args:
        name: Its key under `channels:`.
        config: Its block; `secret` is the mailbox's password.
        sleep: Waits for some seconds; tests give their own, and a clock.
        clock: Returns seconds that only grow.
        certificates: Trusted certificates, instead of the system's.

    Raises:
        ConfigError: The password is missing, or an option is invalid.
    """

    limit = caption = MAX_CHARS
    idempotent = False

    def __init__(
        self,
        name: str,
        config: ChannelConfig,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        certificates: ssl.SSLContext | None = None,
    ) -> None:
        self._options = read_options(EmailOptions, name, config.options)
        self._password = config.secret.get_secret_value() if config.secret else ""
        self._address = self._options.address or self._options.user
        if not self._password or not self._password.isprintable():
            raise ConfigError(f"channels.{name}.secret: set it to the password of the mailbox")
        if not _ADDRESS.fullmatch(self._address):
            raise ConfigError(f"channels.{name}.options.address: set it to the mailbox's address")
        REDACTOR.learn([self._password])
        self.name, self._sleep, self._clock = name, sleep, clock
        self._known = frozenset((*config.owner, *config.allow_from))
        self._tls = certificates or ssl.create_default_context()
        self._trouble, self._looked = f"the channel {name} is not started", clock()
        self._polling: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(2, f"channel {name}")
        self._cuts: list[Callable[[], Any]] = []
        """What ends the thread that reads, if it waits."""

    async def start(self, receive: Receive) -> None:
        """Begin to receive, unless a server refuses the settings; a network may be down."""
        self._trouble, self._looked = "", self._clock()
        try:
            await self._run(self._look, None)
            (await self._client()).close()
        except _SETTINGS as error:
            raise ConfigError(self._said(error)) from None
        except Exception as error:
            self._say(self._said(error))
        self._polling = asyncio.create_task(self._poll(receive), name=f"channel {self.name}")

    async def stop(self) -> None:
        """Stop to receive; what is not marked as read comes again."""
        if self._polling is not None:
            self._polling.cancel()
            for cut in self._cuts:
                with suppress(OSError):
                    cut()
            await asyncio.gather(self._polling, return_exceptions=True)
        self._polling, self._trouble = None, f"the channel {self.name} is not started"

    def healthy(self) -> str:
        """Return what is wrong, as a sentence; empty if nothing is."""
        late = self._clock() - self._looked
        if self._trouble or late < LATE:
            return self._trouble
        return f"the channel {self.name}: the mailbox has not answered for {late:.0f} s; check it"

    async def catch_up(self) -> None:
        """Fetch nothing: the first look at the mailbox gets what is unread."""

    # --- The mailbox. What blocks is in a thread; each look has a connection of its own.

    async def _run(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def _poll(self, receive: Receive) -> None:
        me, loop, failed = asyncio.current_task(), asyncio.get_running_loop(), 0

        async def given(message: InboundMessage) -> None:
            task = asyncio.current_task()
            if task is None or me is None or me.cancelling():  # it was stopped meanwhile
                raise ConnectionAbortedError
            self._cuts.append(task.cancel)
            await receive(message)
            self._looked = self._clock()

        def hand(message: InboundMessage) -> None:
            asyncio.run_coroutine_threadsafe(given(message), loop).result()

        while True:
            try:
                more = await self._run(self._look, hand)
                failed, wait, said = 0, 0.0 if more else float(self._options.poll), ""
                self._looked = self._clock()
            except Exception as error:
                failed, said = failed + 1, self._said(error)
                wait = 60.0 if isinstance(error, _SETTINGS) else min(2.0**failed, 30.0)
            self._say(said)
            await self._sleep(wait)

    @contextmanager
    def _opened(self) -> Iterator[tuple[BaseMailBox, int]]:
        """Open the folder; with another UIDVALIDITY, all its UIDs name others."""
        options, (scheme, host, port) = self._options, _server(self._options.imap)
        if scheme == "imaps":
            box: BaseMailBox = MailBox(host, port, timeout=SILENT, ssl_context=self._tls)
        else:
            box = MailBoxUnencrypted(host, port, timeout=SILENT)
        try:
            if scheme == "imap+starttls":
                box.client.starttls(self._tls)
            plain = (options.user + self._password).isascii()
            (box.login if plain else box.login_utf8)(options.user, self._password, options.folder)
            yield box, int(box.client.response("UIDVALIDITY")[1][0] or 0)
        finally:
            with suppress(OSError):
                box.client.shutdown()

    def _look(self, hand: Callable[[InboundMessage], None] | None) -> bool:
        """Hand over what is unread; return whether there may be more. None is a mere try."""
        with self._opened() as (box, validity):
            self._cuts = [lambda: box.client.sock.shutdown(socket.SHUT_RDWR)]
            uids = sorted(box.uids("UNSEEN UNDELETED", None), key=int)[:_BATCH]
            for uid in uids if hand else ():
                message = self._read(box, uid, f"{validity}:{uid}:{self._options.folder}")
                if message is not None and hand is not None:
                    hand(message)
                # the library's own methods also expunge what a person has deleted
                done = box.client.uid("STORE", uid, "+FLAGS.SILENT", r"(\Seen)")
                check_command_status(done, errors.MailboxFlagError)
            day = datetime.now(UTC) - timedelta(days=1)
            before = f"{day.day}-{SHORT_MONTH_NAMES[day.month - 1]}-{day.year}"
            if (to := self._options.move_to) and (old := box.uids(f"SEEN BEFORE {before}", None)):
                moved = box.client.uid("MOVE", ",".join(old[:_BATCH]), encode_folder(to).decode())
                check_command_status(moved, errors.MailboxMoveError)
        return len(uids) == _BATCH

    def _read(self, box: BaseMailBox, uid: str, native: str) -> InboundMessage | None:
        """Read a mail; of a stranger's, only the header is fetched."""
        head, size = _fetched(box, uid, _HEAD)
        message = incoming(BytesHeaderParser().parsebytes(head), self.name, native, self._address)
        if message is None:
            _log.error("the channel %s dropped mail %s: it has not one sender", self.name, native)
            return None
        if message.sender_id not in self._known or message.metadata.get("bot"):
            return message
        fits = size <= self._options.most_bytes
        return with_body(message, _fetched(box, uid, "BODY.PEEK[]")[0] if fits else None, size)

    def _find(self, native: str, part: str) -> Message | None:
        """Return a mail of the folder, or its header; None if it is gone."""
        if (wanted := _NATIVE.fullmatch(native)) is None:
            return None
        with self._opened() as (box, validity):
            raw = _fetched(box, wanted[2], part)[0] if validity == int(wanted[1]) else b""
        parser = BytesHeaderParser if part == _HEAD else BytesParser
        return parser().parsebytes(raw) if raw else None

    def _say(self, trouble: str) -> None:
        """Log a change of health once."""
        if trouble != self._trouble:
            self._trouble = trouble
            log = _log.warning if trouble else _log.info
            log("%s", trouble or f"the channel {self.name} receives")

    def _said(self, error: Exception) -> str:
        """Say what failed; the text of a library's error may quote what was sent."""
        why = f"a mail server cannot be used ({type(error).__name__}); check the network"
        match error:
            case errors.MailboxLoginError():
                why = "the IMAP server refuses options.user or secret; set the current ones"
            case aiosmtplib.SMTPAuthenticationError():
                why = "the SMTP server refuses options.user or secret; set the current ones"
            case aiosmtplib.SMTPResponseException():
                told = _line(error.message.replace(self._password, "…"), 200)
                why = f"the SMTP server refuses: {error.code} {told}"
            case errors.MailboxFolderSelectError():
                why = "the mailbox has no such folder; set options.folder"
            case errors.MailboxMoveError():
                why = "the server moves no mails there; set or leave out options.move_to"
            case ssl.SSLCertVerificationError():
                why = "the certificate of a server is not trusted; check its name and its issuer"
            case WickError():
                why = f"a mail cannot be handed over: {error}"
        return f"the channel {self.name}: {why}"

    async def fetch(self, attachment: Mapping[str, Any], folder: Path, most: int) -> Path:
        """Take a file out of its mail into a folder, as `FetchingChannel` says."""
        index, _, native = str(attachment["id"]).partition("@")
        name = safe_name(str(attachment.get("name") or ""))

        def data() -> bytes:
            mail = self._find(native, "BODY.PEEK[]")
            return MailAttachment([*_parts(mail)][int(index)]).payload if mail else b""

        async def chunks() -> AsyncGenerator[bytes, None]:
            yield made

        try:
            made = await self._run(data)
        except Exception as error:
            _log.warning("a file of %s cannot be read: %s", native, self._said(error))
            made = b""
        if not made:
            raise ToolError(f"the file {name} is empty, or its mail is gone; ask to send it again")
        return await store(chunks(), attachment, folder, most)

    # --- Send.

    async def send(self, message: OutboundMessage, key: str) -> str:
        """Send a mail; the same key gives the same Message-ID."""
        if not _ADDRESS.fullmatch(message.chat_id):
            raise DeliveryError(f"{message.chat_id!r:.80} is no address", permanent=True)
        if not (message.content.strip() or message.media):
            raise DeliveryError("the message is blank; write a text", permanent=True)
        number = f"<{hashed(self.name, key)[:40]}@{self._address.rpartition('@')[2]}>"
        head, client = None, None
        with suppress(Exception):  # then the answer goes without the subject that it answers
            head = await self._run(self._find, message.reply_to, _HEAD)
        mail = await self._run(outgoing, message, head, self._address, number)
        try:
            client = await self._client()
            await client.sendmail(self._address, [message.chat_id], mail)
            return number
        except Exception as error:
            one: Exception = error
            if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
                one = error.recipients[0]
            final = isinstance(one, aiosmtplib.SMTPResponseException) and one.code >= 500
            failure = DeliveryError(self._said(one), permanent=final and client is not None)
        finally:
            if client is not None:
                client.close()
        raise failure

    async def _client(self) -> aiosmtplib.SMTP:
        """Return a connection that is logged in."""
        scheme, host, port = _server(self._options.smtp)
        client = aiosmtplib.SMTP(
            hostname=host,
            port=port,
            timeout=SILENT,
            use_tls=scheme == "smtps",
            start_tls=scheme == "smtp+starttls",
            local_hostname=self._address.rpartition("@")[2],
            tls_context=None if scheme == "smtp" else self._tls,
        )
        try:
            await client.connect()
            await client.ehlo()
            if scheme != "smtp" or client.supports_extension("auth"):
                await client.login(self._options.user, self._password)
        except BaseException:
            client.close()
            raise
        return client


# --- Pure: from mails to messages, from messages to mails.


def _fetched(box: BaseMailBox, uid: str, part: str) -> tuple[bytes, int]:
    """Return a mail or its header, and the size of the mail; empty if it is gone."""
    status, data = box.client.uid("FETCH", uid, f"(RFC822.SIZE {part})")
    check_command_status((status, data), errors.MailboxFetchError)
    pieces = [piece for one in data for piece in (one if isinstance(one, tuple) else (one or b"",))]
    size = re.search(rb"RFC822\.SIZE (\d+)", b" ".join(piece[:200] for piece in pieces))
    raw = next((one[1] for one in data if isinstance(one, tuple)), b"")
    return raw, int(size[1]) if size else len(raw)


def _line(text: str, most: int) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:most]


def _field(mail: Message, name: str, most: int = 500) -> str:
    """Return a field of a header, decoded, on one line; empty if it is missing or unreadable."""
    try:
        raw = re.sub(r"[\r\n]+", "", str(mail.get(name, "")))[:2000]
        return _line(str(modern.header_factory(name, raw)), most)
    except Exception:  # Python's parser fails for some malformed ones
        return ""


def sender_of(mail: Message) -> tuple[str, str] | None:
    """Return the address and the name of a mail's sender, if it has exactly one.

    Two parsers must agree: they read malformed addresses differently.
    """
    given = [re.sub(r"[\r\n]+", "", str(one)) for one in mail.get_all("From", [])]
    if len(given) != 1 or len(given[0]) > 2000:
        return None
    try:
        found, other = modern.header_factory("From", given[0]).addresses, getaddresses(given)
        if [one.addr_spec for one in found] != [one for _, one in other] or len(found) != 1:
            return None
    except Exception:
        return None
    local, _, domain = found[0].addr_spec.rpartition("@")
    address = f"{local}@{domain.lower()}"
    return (address, _line(found[0].display_name, 80)) if _ADDRESS.fullmatch(address) else None


def incoming(mail: Message, channel: str, native: str, ours: str) -> InboundMessage | None:
    """Return the message of a mail's header; None if it has not exactly one sender.

    What a program wrote is of a bot: no program may answer it.
    """
    sender = sender_of(mail)
    if sender is None:
        return None
    sent = 0.0
    with suppress(Exception):  # the date is what the sender claims
        sent = parsedate_to_datetime(_field(mail, "Date")).timestamp()
    bot = (
        sender[0].lower() == ours.lower()
        or _field(mail, "Auto-Submitted").partition(";")[0].strip().lower() not in ("", "no")
        or _field(mail, "Precedence").lower() in ("bulk", "list", "junk")
        or any(name in mail for name in ("List-Id", "X-Autoreply", "X-Autorespond"))
        or "<>" in [str(one).strip() for one in mail.get_all("Return-Path", [])]
        or mail.get_content_type() == "multipart/report"
    )
    about = {"native_id": native, "sent": sent, "sender_name": sender[1], "bot": bot}
    return InboundMessage(
        channel=channel,
        sender_id=sender[0],
        chat_id=sender[0],  # never Reply-To: a forged one would send answers to others
        content=_field(mail, "Subject"),
        metadata={"group": False} | {key: value for key, value in about.items() if value},
    )


def with_body(message: InboundMessage, raw: bytes | None, size: int) -> InboundMessage:
    """Return a message with the text of its mail; a command comes without the subject."""
    text, files = f"[the mail is too large to be read: {size:,} bytes]", list[Any]()
    try:
        if raw is not None and (_LONG.search(raw) or raw.count(b"\n--") > _MOST_MARKS):
            raise ValueError
        if raw is not None:
            mail = message_from_bytes(raw)
            text, files = text_of(mail), files_of(mail, message.native_id)
    except Exception as error:  # a malformed mail must not stop those behind it
        text = f"[the mail cannot be read: {type(error).__name__}]"
    if message.content and not text.startswith("/"):
        text = f"Subject: {message.content}\n\n{text}"
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}\n[truncated: the mail is longer]"
    more = {"attachments": files} if files else {}
    return replace(message, content=text.strip(), metadata={**message.metadata, **more})


def _parts(mail: Message) -> Iterator[Message]:
    """Yield what is no container, in order, that of attached mails too."""
    return islice((part for part in mail.walk() if not part.is_multipart()), _MOST_PARTS)


def _is_text(part: Message) -> bool:
    inline = part.get_content_disposition() != "attachment" and not part.get_filename()
    return inline and part.get_content_type() in ("text/plain", "text/html")


def text_of(mail: Message) -> str:
    """Return the text of a mail: plain text, else what its HTML says; without quoted mails."""
    found = {"text/plain": "", "text/html": ""}
    for part in filter(_is_text, _parts(mail)):
        charset = part.get_content_charset("utf-8")
        known = charset if _CHARSET.fullmatch(charset) else None  # some take quadratic time
        data: Any = part.get_payload(decode=True)
        text = decode_value(data[:_MOST_TEXT], known)
        found[part.get_content_type()] += text.replace("\r\n", "\n")
    plain, page = found["text/plain"].strip(), found["text/html"]
    reply = "In-Reply-To" in mail  # what a forwarded mail quotes is what is to be read
    new = _QUOTED.sub("", plain).strip() if reply else plain
    new_page = _QUOTED_HTML.sub("", page) if reply else page
    return new or plain or html_text(new_page) or html_text(page)


def files_of(mail: Message, native: str) -> list[dict[str, Any]]:
    """List what a mail carries; a picture is what its name says, so that its bytes are checked."""
    made = []
    for index, part in enumerate(_parts(mail)):
        if not _is_text(part):
            file = MailAttachment(part)
            name, kind = safe_name(file.filename), file.content_type
            guess = mimetypes.guess_type(name)[0] or ""
            kind = guess if guess.startswith("image/") else kind
            one = {"id": f"{index}@{native}", "kind": kind.partition("/")[0], "name": name}
            made.append({**one, "size": file.size, "type": kind})
    return made[:_BATCH]


def outgoing(message: OutboundMessage, head: Message | None, ours: str, number: str) -> bytes:
    """Return a mail; it answers the one with the header `head`, if that is of the chat."""
    mail, subject = EmailMessage(policy=_POLICY), "Message"
    mail["From"], mail["To"], mail["Message-ID"] = ours, message.chat_id, number
    mail["Date"] = formatdate()
    mail["Auto-Submitted"] = "auto-replied" if message.reply_to else "auto-generated"
    if head is not None and (sender_of(head) or ("",))[0] == message.chat_id:
        subject = _field(head, "Subject", 200)
        subject = subject if subject[:3].lower() == "re:" else f"Re: {subject}"
        if numbers := _NUMBER.findall(_field(head, "Message-ID"))[:1]:
            earlier = _NUMBER.findall(_field(head, "References"))[-2:]
            mail["In-Reply-To"], mail["References"] = numbers[0], " ".join(earlier + numbers)
    mail["Subject"] = subject
    codes = "".join(f"\n{label}: {code}" for label, code in message.buttons)
    mail.set_content(f"{message.content}\n{codes}".encode("utf-8", "replace").decode())
    for path in map(Path, message.media):
        name = safe_name(path.name)
        try:
            mail.add_attachment(
                path.read_bytes(), maintype="application", subtype="octet-stream", filename=name
            )
        except (OSError, ValueError):
            raise DeliveryError(f"the file {name} is missing", permanent=True) from None
    return mail.as_bytes()
