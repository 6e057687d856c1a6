"""A mailbox on loopback: a small IMAP server, and aiosmtpd for what is sent."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import tempfile
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

USER, PASSWORD = "wick@example.org", "a-long-password-of-tests"


@dataclass
class Stored:
    """A mail in a folder."""

    raw: bytes
    flags: set[str] = field(default_factory=set)
    size: int | None = None
    """What the server says of its size."""


@dataclass
class Folder:
    """A folder, with its numbers."""

    validity: int = 17
    mails: dict[int, Stored] = field(default_factory=dict)
    next: int = 1

    def put(self, mail: Stored) -> int:
        """Add a mail; return its UID."""
        self.mails[self.next] = mail
        self.next += 1
        return self.next - 1

    def renumber(self) -> None:
        """Number all mails anew, as a server does that was restored."""
        self.validity += 1
        kept, self.mails, self.next = list(self.mails.values()), {}, 1
        for one in kept:
            self.put(one)


class FakeImap:
    """What the server knows: folders, and every command that it got."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self.tls = tls
        self.folders = {"INBOX": Folder()}
        self.said: list[str] = []
        """Commands without their tags, in order."""
        self.looked = asyncio.Event()
        """Set by each search."""
        self.hung: asyncio.Event | None = None
        """If there is one, a search is answered only when it is set."""
        self.refuses: set[str] = set()
        """Commands that are answered with NO."""
        self.cut: set[str] = set()
        """Commands at which the connection is cut, once."""
        self.broken: set[int] = set()
        """UIDs of mails that the server cannot give: it cuts the connection."""
        self.offers = "IMAP4rev1 STARTTLS AUTH=PLAIN"
        self.users = {USER: PASSWORD}
        self.open = 0
        """Connections."""

    @property
    def inbox(self) -> Folder:
        return self.folders["INBOX"]

    def put(self, mail: EmailMessage | bytes, **more: Any) -> int:
        """Let a mail come; return its UID."""
        raw = mail if isinstance(mail, bytes) else mail.as_bytes(policy=default)
        return self.inbox.put(Stored(re.sub(rb"\r?\n", b"\r\n", raw), **more))

    def seen(self, uid: int) -> bool:
        return "\\Seen" in self.inbox.mails[uid].flags

    def count(self, start: str) -> int:
        """Return how many commands began so."""
        return sum(one.startswith(start) for one in self.said)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.open += 1
        try:
            writer.write(f"* OK [CAPABILITY {self.offers}] ready\r\n".encode())
            await _Served(self, reader, writer).run()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()


class _Served:
    """One connection."""

    def __init__(self, fake: FakeImap, reader: Any, writer: Any) -> None:
        self.fake, self.reader, self.writer = fake, reader, writer
        self.folder: Folder | None = None
        self.known = False

    async def run(self) -> None:
        while line := (await self.reader.readline()).decode():
            tag, _, command = line.strip().partition(" ")
            words = command.split(" ")
            name = " ".join(words[:2]) if words[0].upper() == "UID" else words[0]
            self.fake.said.append(command if words[0] != "LOGIN" else "LOGIN …")
            name = name.upper()
            if name in self.fake.cut:
                self.fake.cut.discard(name)
                return
            if name in self.fake.refuses:
                self.say(f"{tag} NO not now")
                continue
            if not await self.answer(tag, name, command):
                return
            await self.writer.drain()

    def say(self, text: str) -> None:
        self.writer.write(f"{text}\r\n".encode())

    async def answer(self, tag: str, name: str, command: str) -> bool:
        done = f"{tag} OK done"
        if name == "CAPABILITY":
            self.say(f"* CAPABILITY {self.fake.offers}")
        elif name == "STARTTLS":
            assert self.fake.tls is not None
            self.say(done)
            await self.writer.drain()
            await self.writer.start_tls(self.fake.tls)
            return True
        elif name in ("LOGIN", "AUTHENTICATE"):
            self.known = await self.logs_in(name, command)
            done = done if self.known else f"{tag} NO [AUTHENTICATIONFAILED] no"
        elif name == "LOGOUT":
            self.say("* BYE bye")
        elif not self.known:
            done = f"{tag} BAD log in"
        elif name == "SELECT":
            self.folder = self.fake.folders.get(command[7:].strip('" '))
            if self.folder is None:
                done = f"{tag} NO [NONEXISTENT] no such folder"
            else:
                self.say(f"* {len(self.folder.mails)} EXISTS")
                self.say(f"* OK [UIDVALIDITY {self.folder.validity}] ok")
        elif name.startswith("UID "):
            assert self.folder is not None
            done = await self.uid(self.folder, name[4:], command.split(" ", 2)[2], done)
        else:
            done = f"{tag} BAD what"
        self.say(done)
        return name != "LOGOUT"

    async def logs_in(self, name: str, command: str) -> bool:
        if name == "LOGIN":
            user, word = re.findall(r'"((?:[^"\\]|\\.)*)"', command) or ("", "")
            return self.fake.users.get(user) == word
        self.say("+ ")
        _, user, word = base64.b64decode(await self.reader.readline()).decode().split("\0")
        return self.fake.users.get(user) == word

    async def uid(self, folder: Folder, name: str, rest: str, done: str) -> str:
        if name == "SEARCH":
            self.fake.looked.set()
            if self.fake.hung is not None:
                waits = asyncio.ensure_future(self.fake.hung.wait())
                gone = asyncio.ensure_future(self.reader.read(1))
                await asyncio.wait({waits, gone}, return_when=asyncio.FIRST_COMPLETED)
                waits.cancel(), gone.cancel()
            found = [uid for uid, mail in folder.mails.items() if _matches(mail, rest)]
            self.say(f"* SEARCH {' '.join(map(str, reversed(found)))}")
            return done
        numbers, _, rest = rest.partition(" ")
        for uid in map(int, numbers.split(",")):
            mail = folder.mails.get(uid)
            if mail is None:
                continue
            if name == "FETCH" and uid in self.fake.broken:
                raise ConnectionError
            if name == "FETCH":
                if "PEEK" not in rest:
                    mail.flags.add("\\Seen")
                head = "HEADER" in rest
                raw = mail.raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if head else mail.raw
                size = len(mail.raw) if mail.size is None else mail.size
                part = "BODY[HEADER]<0>" if head else "BODY[]"
                if most := re.search(r"<0\.(\d+)>", rest):
                    raw = raw[: int(most[1])]
                self.writer.write(
                    f"* {uid} FETCH (UID {uid} FLAGS ({' '.join(mail.flags)}) RFC822.SIZE {size} "
                    f"{part} {{{len(raw)}}}\r\n".encode()
                    + raw
                    + b")\r\n"
                )
            elif name == "STORE":
                mail.flags |= set(re.findall(r"\\\w+", rest))
        return done


def _matches(mail: Stored, criteria: str) -> bool:
    words = criteria.split()
    seen = "UNSEEN" in words and "\\Seen" in mail.flags
    return not (seen or ("UNDELETED" in words and "\\Deleted" in mail.flags))


@asynccontextmanager
async def fake_imap(
    tls: ssl.SSLContext | None = None, *, implicit: bool = False
) -> AsyncIterator[FakeImap]:
    """Serve a mailbox on loopback."""
    fake = FakeImap(tls)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0, ssl=tls if implicit else None)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        if fake.hung is not None:
            fake.hung.set()
        await asyncio.sleep(0)


class FakeSmtp:
    """Takes mails, or refuses them."""

    def __init__(self) -> None:
        self.port = 0
        self.got: list[tuple[Envelope, EmailMessage]] = []
        self.refusals: dict[str, list[str]] = {"MAIL": [], "RCPT": [], "DATA": []}
        """Answers by command, instead of the usual ones; each is given once."""

    @property
    def mails(self) -> list[EmailMessage]:
        return [mail for _, mail in self.got]

    def auth(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        good = isinstance(data, LoginPassword) and data.password == PASSWORD.encode()
        return AuthResult(success=good, handled=False)

    async def handle_MAIL(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        envelope.mail_from = address
        return self.refusals["MAIL"].pop(0) if self.refusals["MAIL"] else "250 OK"

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.refusals["RCPT"]:
            return self.refusals["RCPT"].pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.refusals["DATA"]:
            return self.refusals["DATA"].pop(0)
        assert isinstance(envelope.content, bytes)
        made = message_from_bytes(envelope.content, policy=default)
        assert isinstance(made, EmailMessage)
        self.got.append((envelope, made))
        return "250 OK"


@asynccontextmanager
async def fake_smtp(tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeSmtp]:
    """Take mails on loopback; with a certificate, by STARTTLS only."""
    fake = FakeSmtp()
    loop = asyncio.get_running_loop()

    def made() -> SMTP:
        with warnings.catch_warnings(action="ignore"):  # that no TLS is required
            return SMTP(
                fake, hostname="localhost", tls_context=tls, require_starttls=tls is not None,
                auth_require_tls=False, auth_required=True, authenticator=fake.auth, loop=loop,
            )  # fmt: skip

    server = await loop.create_server(made, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()


def certificates() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Make a certificate for this machine: the server's context, and one that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([
            x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost"),
        ]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    return _contexts(
        made.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _contexts(certificate: bytes, key: bytes) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        chain, secret = Path(folder) / "c.pem", Path(folder) / "k.pem"
        chain.write_bytes(certificate)
        secret.write_bytes(key)
        server.load_cert_chain(chain, secret)
    return server, ssl.create_default_context(cadata=certificate.decode())
