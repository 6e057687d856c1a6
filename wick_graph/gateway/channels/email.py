"""Email: polls a mailbox by IMAP, marks a mail as read only after it is stored, sends by SMTP."""

from __future__ import annotations

import asyncio
import mimetypes
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from email import message_from_bytes
from email.message import EmailMessage, Message
from email.parser import BytesHeaderParser, BytesParser
from email.policy import SMTP as SMTP_POLICY
from email.policy import default as modern
from email.utils import formatdate, getaddresses, parsedate_to_datetime
from itertools import islice
from typing import Annotated, Any, Final, TypeVar

import aiosmtplib
import re2  # type: ignore[import-untyped]  # it has no stubs
from imap_tools import BaseMailBox, MailAttachment, MailBox, MailBoxUnencrypted, errors
from imap_tools.utils import check_command_status, decode_value
from pydantic import Field, field_validator

from wick_graph.config.fields import Block, Text
from wick_graph.errors import DeliveryError
from wick_graph.gateway.channels import connected, files
from wick_graph.gateway.channels.connected import ConnectedChannel, Post, inbound
from wick_graph.gateway.messages import InboundMessage
from wick_graph.store.mailbox import hashed
from wick_graph.web.pages import html_text

MAX_CHARS: Final = 50_000
"""Characters of a mail's text that are read, and of one that is sent."""

MAX_BYTES: Final = 30 * 2**20
"""Bytes of a mail with its files; of a larger one only the subject is read."""

SILENT: Final = 25.0
"""Seconds that a server may say nothing."""

LATE: Final = 85.0
"""Seconds of a look at the mailbox after which the channel says that it takes long."""

_BATCH: Final = 20
_MOST_PARTS: Final = 500
_MOST_FILES: Final = 100
_MOST_MARKS: Final = 10_000
_MOST_TEXT: Final = 20 * MAX_CHARS
_SERVER: Final = re.compile(
    r"((?:imap|smtp)(?:s|\+starttls)?)://([\w.-]+|\[[\da-f:]+\])(?::(\d{1,5}))?/?", re.A
)
_PORTS: Final = {"imaps": 993, "smtps": 465, "smtp+starttls": 587, "smtp": 25}
_HERE: Final = ("127.0.0.1", "[::1]", "localhost")
_ADDRESS: Final = r"(?a)(?P<chat>[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[a-z0-9.-]{1,255})"
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
_FINAL: Final = (
    *(aiosmtplib.SMTPSenderRefused, aiosmtplib.SMTPRecipientRefused, aiosmtplib.SMTPDataError),
)
"""Refusals of a mail; others are of the connection."""
_SETTINGS: Final[Mapping[type[Exception], str]] = {
    errors.MailboxLoginError: "the IMAP server refuses options.user or secret; mend them",
    errors.MailboxFolderSelectError: "the mailbox has no such folder; set options.folder",
    aiosmtplib.SMTPAuthenticationError: "the SMTP server refuses options.user or secret; mend them",
}
_POLICY: Final = SMTP_POLICY.clone(max_line_length=900, cte_type="7bit")
"""Long lines: else Python would encode a long Message-ID, and so break it."""

T = TypeVar("T")


class EmailOptions(Block):
    """The `options:` of an email channel; its password is `secret`."""

    imap: Text
    """`imaps://host`, or `imap+starttls://host`; `imap://` only on this machine."""
    smtp: Text
    """`smtps://host`, or `smtp+starttls://host`; `smtp://` only on this machine."""
    user: Text
    """The address of the mailbox, with which both servers are used."""
    folder: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")] = "INBOX"
    poll: Annotated[int, Field(ge=5, le=60)] = 20
    """Seconds between two looks at the mailbox."""

    @field_validator("imap", "smtp")
    @classmethod
    def _is_safe(cls, url: str, info: Any) -> str:
        kind, found = info.field_name, _SERVER.fullmatch(url)
        if found is None or not found[1].startswith(kind) or int(found[3] or 1) > 65535:
            raise ValueError(f"it is no address; write {kind}s://host or {kind}+starttls://host")
        if found[1] == kind and found[2] not in _HERE:
            raise ValueError(f"{kind}:// would send the password unencrypted; write {kind}s://")
        return url

    @field_validator("user")
    @classmethod
    def _is_address(cls, user: str) -> str:
        if not re.fullmatch(_ADDRESS, user):
            raise ValueError("it is no address; write name@host, the host in small letters")
        return user


def _server(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port."""
    _, scheme, host, port, _ = _SERVER.split(url)
    return scheme, host.strip("[]"), int(port or _PORTS.get(scheme, 143))


class EmailChannel(ConnectedChannel):
    """A mailbox; its `secret` is the password.

    Args:
        given: As for all channels, also `more`.
        certificates: Trusted certificates, instead of the system's.
    """

    limit = caption = MAX_CHARS
    platform = "Email"
    options = EmailOptions
    secrets = (("secret", r"[^\x00-\x1f\x7f-\x9f]+", "the password of the mailbox"),)
    chats, chat_id = _ADDRESS, "address"

    def __init__(
        self, *given: Any, certificates: ssl.SSLContext | None = None, **more: Any
    ) -> None:
        super().__init__(*given, **more)
        self._tls = certificates or ssl.create_default_context()
        self._threads = ThreadPoolExecutor(2, f"channel {self.name}")
        self._socket: socket.socket | None = None
        """Of the look at the mailbox: to shut it down ends the thread."""

    # --- The mailbox. What blocks is in a thread; each look has a connection of its own.

    async def _run(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    async def _log_in(self) -> None:
        await self._run(self._find, "0:0:none", _HEAD)  # opens the folder, and finds nothing
        async with self._smtp():
            pass

    async def _connect(self) -> None:
        """Look at the mailbox; mark as read what was stored, and wait."""
        look = asyncio.ensure_future(self._run(self._look))
        try:
            if not (await asyncio.wait({look}, timeout=LATE))[0]:
                said = f"the channel {self.name}: the mailbox has not answered for {LATE:g} s"
                self._say(f"{said}; check it")
            validity, mails = await look
        finally:
            look.cancel()
            with suppress(OSError):
                if self._socket is not None:
                    self._socket.shutdown(socket.SHUT_RDWR)
        for uid, message in mails.items():
            if message is None:
                self._log.error("%s dropped mail %s: it has not one sender", self.name, uid)
            else:
                await self._store(message)
        if mails:
            await self._run(self._mark, validity, ",".join(mails))
        self._well()
        await self._sleep(0.0 if len(mails) == _BATCH else float(self._options.poll))

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
            password = self._secrets["secret"]
            log_in = box.login if password.isascii() else box.login_utf8
            log_in(options.user, password, options.folder)
            yield box, int(box.client.response("UIDVALIDITY")[1][0] or 0)
        finally:
            with suppress(OSError):
                box.client.shutdown()

    def _look(self) -> tuple[int, dict[str, InboundMessage | None]]:
        """Return what is unread, by UID, with the UIDVALIDITY."""
        with self._opened() as (box, validity):
            self._socket = box.client.sock
            found: dict[str, InboundMessage | None] = {}
            for uid in sorted(box.uids("UNSEEN UNDELETED", None), key=int)[:_BATCH]:
                try:
                    found[uid] = self._read(box, uid, validity)
                except Exception:
                    if not found:
                        raise
                    break  # those before it are stored first
            return validity, found

    def _read(self, box: BaseMailBox, uid: str, validity: int) -> InboundMessage | None:
        """Read a mail; of a stranger's, only the header is fetched."""
        head, size = _fetched(box, uid, _HEAD)
        native, ours = f"{validity}:{uid}:{self._options.folder}", self._options.user
        message = incoming(BytesHeaderParser().parsebytes(head), self.name, native, ours)
        if message is None or message.sender_id not in self._people or message.metadata.get("bot"):
            return message
        fits = size <= MAX_BYTES
        return with_body(message, _fetched(box, uid, "BODY.PEEK[]")[0] if fits else None, size)

    def _mark(self, validity: int, uids: str) -> None:
        """Mark mails as read, unless they were numbered anew."""
        with self._opened() as (box, now):
            if now == validity:
                # the library's own methods also expunge what a person has deleted
                done = box.client.uid("STORE", uids, "+FLAGS.SILENT", r"(\Seen)")
                check_command_status(done, errors.MailboxFlagError)

    def _find(self, native: str, part: str) -> Message | None:
        """Return a mail of the folder, or its header; None if it is gone."""
        if (wanted := _NATIVE.fullmatch(native)) is None:
            return None
        with self._opened() as (box, validity):
            raw = _fetched(box, wanted[2], part)[0] if validity == int(wanted[1]) else b""
        parser = BytesHeaderParser if part == _HEAD else BytesParser
        return parser().parsebytes(raw) if raw else None

    def _failure(self, error: Exception) -> DeliveryError:
        """Say what failed; the text of a library's error may quote what was sent."""
        if isinstance(error, DeliveryError):
            return error
        if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
            error = error.recipients[0]
        about = f"the channel {self.name}:"
        if why := _SETTINGS.get(type(error)):
            return self._wrong(f"{about} {why}")
        if isinstance(error, aiosmtplib.SMTPResponseException):
            final = error.code >= 500 and isinstance(error, _FINAL)
            said = f"{about} the SMTP server refuses: {error.code} {self._clean(error.message)}"
            return DeliveryError(said, permanent=final)
        said = f"a mail server cannot be used ({type(error).__name__}); check the network"
        return DeliveryError(f"{about} {said}")

    # --- Send, fetch.

    async def _send(self, post: Post) -> str:
        """Send a mail; the same key gives the same Message-ID."""
        ours, head = self._options.user, None
        number = f"<{hashed(self.name, post.key)[:40]}@{ours.rpartition('@')[2]}>"
        with suppress(Exception):  # then the answer goes without the subject that it answers
            head = await self._run(self._find, post.reply_to, _HEAD)
        mail = await self._run(outgoing, post, head, ours, number)
        await self._call(self._give(post.chat, mail), connected.UPLOAD)
        return number

    async def _give(self, to: str, mail: bytes) -> None:
        async with self._smtp() as client:
            await client.sendmail(self._options.user, [to], mail)

    def _smtp(self) -> aiosmtplib.SMTP:
        scheme, host, port = _server(self._options.smtp)
        return aiosmtplib.SMTP(
            hostname=host,
            port=port,
            timeout=SILENT,
            use_tls=scheme == "smtps",
            start_tls=scheme == "smtp+starttls",
            local_hostname=self._options.user.rpartition("@")[2],
            tls_context=None if scheme == "smtp" else self._tls,
            username=self._options.user,
            password=self._secrets["secret"],
        )

    async def _load(self, attachment: Mapping[str, Any], most: int) -> bytes:
        """Take a file out of its mail."""
        index, _, native = str(attachment["id"]).partition("@")
        mail = await self._run(self._find, native, "BODY.PEEK[]")
        part = [*_parts(mail)][int(index)] if mail else None
        if part is None or not (data := MailAttachment(part).payload):
            raise DeliveryError("it is empty, or its mail is gone")
        return bytes(data)


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
    return (address, _line(found[0].display_name, 80)) if re.fullmatch(_ADDRESS, address) else None


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
    return inbound(
        channel,
        sender[0],
        sender[0],  # never Reply-To: a forged one would send answers to others
        _field(mail, "Subject"),
        group=False,
        native_id=native,
        sent=sent,
        sender_name=sender[1],
        bot=bot,
    )


def with_body(message: InboundMessage, raw: bytes | None, size: int) -> InboundMessage:
    """Return a message with the text of its mail; a command comes without the subject."""
    text, attached = f"[the mail is too large to be read: {size:,} bytes]", list[Any]()
    try:
        if raw is not None and (_LONG.search(raw) or raw.count(b"\n--") > _MOST_MARKS):
            raise ValueError
        if raw is not None:
            mail = message_from_bytes(raw)
            text, attached = text_of(mail), files_of(mail, message.native_id)
    except Exception as error:  # a malformed mail must not stop those behind it
        text = f"[the mail cannot be read: {type(error).__name__}]"
    if message.content and not text.startswith("/"):
        text = f"Subject: {message.content}\n\n{text}"
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}\n[truncated: the mail is longer]"
    more = {"attachments": attached} if attached else {}
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
            guess = mimetypes.guess_type(files.safe_name(file.filename))[0] or ""
            kind = guess if guess.startswith("image/") else file.content_type
            made.append(files.attachment(f"{index}@{native}", file.filename, file.size, kind))
    return made[:_MOST_FILES]


def outgoing(post: Post, head: Message | None, ours: str, number: str) -> bytes:
    """Return a mail; it answers the one with the header `head`, if that is of the chat."""
    mail, subject = EmailMessage(policy=_POLICY), "Message"
    mail["From"], mail["To"], mail["Message-ID"] = ours, post.chat, number
    mail["Date"] = formatdate()
    mail["Auto-Submitted"] = "auto-replied" if post.reply_to else "auto-generated"
    if head is not None and (sender_of(head) or ("",))[0] == post.chat:
        subject = _field(head, "Subject", 200)
        subject = subject if subject[:3].lower() == "re:" else f"Re: {subject}"
        if numbers := _NUMBER.findall(_field(head, "Message-ID"))[:1]:
            earlier = _NUMBER.findall(_field(head, "References"))[-2:]
            mail["In-Reply-To"], mail["References"] = numbers[0], " ".join(earlier + numbers)
    mail["Subject"] = subject
    codes = "".join(f"\n{label}: {code}" for label, code in post.buttons)
    mail.set_content(f"{post.text}\n{codes}".encode("utf-8", "replace").decode())
    if post.file:
        data, (main, sub) = post.file[0].read_bytes(), ("application", "octet-stream")
        mail.add_attachment(data, maintype=main, subtype=sub, filename=post.file[1])
    return mail.as_bytes()
