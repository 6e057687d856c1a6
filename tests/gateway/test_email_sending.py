"""Email: what the channel sends, how it starts, and to whom it shows its password."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import mail_desk
from tests.gateway.fake_mail import (
    PASSWORD,
    USER,
    FakeImap,
    FakeSmtp,
    certificates,
    fake_imap,
    fake_smtp,
)
from tests.gateway.mail_desk import (
    ANN,
    LONG,
    NO_TLS,
    PNG,
    Desk,
    desk_of,
    given,
    mail_of,
    raw_of,
    short,
)
from tests.source import ROOT
from wick_graph.core.redaction import REDACTOR
from wick_graph.errors import ConfigError, DeliveryError
from wick_graph.gateway.channels import email as channel_module
from wick_graph.gateway.channels.email import LATE, EmailChannel, EmailOptions
from wick_graph.gateway.channels.registry import make_channel
from wick_graph.gateway.messages import OutboundMessage
from wick_graph.gateway.people import check_people
from wick_graph.loading import load

desk, imap, smtp = mail_desk.desk, mail_desk.imap, mail_desk.smtp


# --- Send.


async def test_an_answer_stays_in_its_conversation(desk: Desk) -> None:
    await desk.read(mail_of(References="<r@example.com>"))
    number = await desk.send("Yes.\nGrüße", reply_to="17:1:INBOX")
    ((envelope, mail),) = desk.smtp.got
    assert (envelope.mail_from, envelope.rcpt_tos) == (USER, [ANN])
    assert (mail["From"], mail["To"], mail["Subject"]) == (USER, ANN, "Re: Question")
    assert mail["In-Reply-To"] == "<1@example.com>"
    assert mail["References"] == "<r@example.com> <1@example.com>"
    assert mail["Auto-Submitted"] == "auto-replied"
    assert mail["Message-ID"] == number
    assert mail["Date"]
    assert mail.get_content().split() == ["Yes.", "Grüße"]


async def test_a_repeated_send_has_the_same_message_id(desk: Desk) -> None:
    assert desk.channel.idempotent is False
    assert await desk.send("once") == await desk.send("once")
    message = OutboundMessage(channel="email", chat_id=ANN, content="other")
    assert await desk.channel.send(message, "key2") != desk.smtp.mails[0]["Message-ID"]
    assert len({str(mail["Message-ID"]) for mail in desk.smtp.mails}) == 2


async def test_a_mail_that_answers_none_was_generated(desk: Desk) -> None:
    await desk.send("good morning")
    (mail,) = desk.smtp.mails
    assert (mail["Subject"], mail["Auto-Submitted"]) == ("Message", "auto-generated")
    assert mail["In-Reply-To"] is None


async def test_the_subject_of_another_chat_is_not_told(desk: Desk) -> None:
    await desk.read(mail_of(Subject="a secret", sender="bob@example.com"))
    await desk.send("hi", reply_to="17:1:INBOX")
    assert desk.smtp.mails[0]["Subject"] == "Message"


@pytest.mark.parametrize("what", ["gone", "new numbers", "down"])
async def test_an_answer_goes_although_its_mail_cannot_be_read(desk: Desk, what: str) -> None:
    await desk.read(mail_of())
    if what == "gone":
        desk.imap.inbox.mails.clear()
    elif what == "new numbers":
        desk.imap.inbox.validity = 18
    else:
        desk.imap.cut = {"LOGIN"}
    await desk.send("hi", reply_to="17:1:INBOX")
    assert desk.smtp.mails[0]["Subject"] == "Message"


@pytest.mark.parametrize(
    "subject",
    [
        "=?utf-8?q?Hi=0D=0ABcc:_m@evil.example?=",
        "=?utf-8?b?SGkNCg0KQm9keQ==?=",
        "Hi\r\n Bcc: m@evil.example",
        "=?utf-8?q?Hi=E2=80=A8Bcc:_m@evil.example?=",
        "Hi\x0bBcc: m@evil.example",
        "Hi\x00\x85Bcc: m@evil.example",
    ],
    ids=short,
)
async def test_no_subject_adds_a_header(desk: Desk, subject: str) -> None:
    await desk.read(raw_of(f"From: {ANN}\r\nSubject: {subject}"))
    await desk.send("hi", reply_to="17:1:INBOX")
    ((envelope, mail),) = desk.smtp.got
    assert mail["Bcc"] is None
    assert envelope.rcpt_tos == [ANN]
    assert mail["Subject"].startswith("Re: Hi")
    assert mail.get_content().strip() == "hi"
    assert set(mail.keys()) <= {
        "From", "To", "Message-ID", "Date", "Auto-Submitted", "Subject", "In-Reply-To",
        "References", "MIME-Version", "Content-Type", "Content-Transfer-Encoding",
    }  # fmt: skip


@pytest.mark.parametrize(
    "number",
    ["<a@b>\r\n Bcc: m@evil.example", "<a b@c>", "none", "<a\x00@b>", f"<{'a' * 300}@b>", "<ä@b>"],
    ids=short,
)
async def test_no_message_id_adds_a_header(desk: Desk, number: str) -> None:
    await desk.read(
        raw_of(f"From: {ANN}\r\nSubject: a\r\nReferences: {number}\r\nMessage-ID: {number}")
    )
    await desk.send("hi", reply_to="17:1:INBOX")
    (mail,) = desk.smtp.mails
    assert mail["Bcc"] is None
    assert mail["In-Reply-To"] in (None, "<a@b>")


async def test_a_long_message_id_stays_whole(desk: Desk) -> None:
    number = f"<{'a' * 200}@example.com>"
    await desk.read(mail_of(Message_ID=number))
    await desk.send("hi", reply_to="17:1:INBOX")
    assert f"In-Reply-To: {number}".encode() in desk.smtp.got[0][0].content  # type: ignore[operator]


@pytest.mark.parametrize(
    "chat",
    [
        "ann@example.com\r\nRCPT TO:<m@evil.example>",
        "ann@example.com, m@evil.example",
        "<ann@example.com> SIZE=1",
        "ann@example.com\n",
        "ann",
        "",
        "änn@example.com",
        "ann@exa\0mple.com",
    ],
)
async def test_what_is_no_address_gets_no_mail(desk: Desk, chat: str) -> None:
    with pytest.raises(DeliveryError, match="is no address") as caught:
        await desk.send("hi", chat)
    assert caught.value.permanent
    assert "\n" not in str(caught.value)
    assert not desk.smtp.got


async def test_a_text_of_any_signs_is_sent_as_it_is(desk: Desk) -> None:
    text = ".\r\n.\r\nFrom x\n\ud83d " + "long " * 1000 + "\n.\nEND"
    await desk.send(text)
    got = desk.smtp.mails[0].get_content()
    assert got.split() == text.replace("\ud83d", "?").split()


async def test_buttons_are_shown_as_codes(desk: Desk) -> None:
    await desk.send("May it?", buttons=(("Approve", "/approve AB"), ("Deny", "/deny AB")))
    assert desk.smtp.mails[0].get_content().splitlines()[-2:] == [
        "Approve: /approve AB", "Deny: /deny AB",
    ]  # fmt: skip


async def test_a_file_goes_with_its_text(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a picture.png").write_bytes(PNG)
    await desk.send("here", media=(str(tmp_path / "a picture.png"),))
    (mail,) = desk.smtp.mails
    text, file = mail.iter_parts()
    assert text.get_content().strip() == "here"
    assert file.get_filename() == "a picture.png"
    assert file.get_content() == PNG


@pytest.mark.parametrize("path", ["missing", ".", "a\0b"])
async def test_a_file_that_is_missing_is_said(desk: Desk, path: str, tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match="missing") as caught:
        await desk.send("here", media=(str(tmp_path / path),))
    assert caught.value.permanent


async def test_a_blank_message_is_refused(desk: Desk) -> None:
    with pytest.raises(DeliveryError, match="blank"):
        await desk.send(" \n")


@pytest.mark.parametrize("command", ["MAIL", "RCPT", "DATA"])
@pytest.mark.parametrize(
    ("answer", "permanent"), [("451 4.3.0 try later", False), ("550 5.1.1 no such user", True)]
)
async def test_a_refused_mail_is_tried_again_only_if_that_may_help(
    desk: Desk, command: str, answer: str, permanent: bool
) -> None:
    desk.smtp.refusals[command] = [answer]
    with pytest.raises(DeliveryError, match=answer) as caught:
        await desk.send()
    assert caught.value.permanent is permanent
    assert await desk.send()


async def test_a_password_that_smtp_refuses_later_does_not_end_a_mail(
    imap: FakeImap, smtp: FakeSmtp
) -> None:
    channel = EmailChannel("email", given(imap, smtp, secret="old"), certificates=NO_TLS)
    with pytest.raises(DeliveryError, match="the SMTP server refuses options.user") as caught:
        await channel.send(OutboundMessage(channel="email", chat_id=ANN, content="hi"), "key")
    assert not caught.value.permanent


async def test_a_refusal_does_not_repeat_the_password(desk: Desk) -> None:
    desk.smtp.refusals["MAIL"] = [f"550 {PASSWORD} is bad"]
    with pytest.raises(DeliveryError) as caught:
        await desk.send()
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_server_that_is_down_is_tried_again(imap: FakeImap, smtp: FakeSmtp) -> None:
    channel = EmailChannel("email", given())
    with pytest.raises(DeliveryError, match="cannot be used") as caught:
        await channel.send(OutboundMessage(channel="email", chat_id=ANN, content="hi"), "key")
    assert not caught.value.permanent


# --- Start, health.


async def test_a_refused_password_is_said_at_the_start(imap: FakeImap, smtp: FakeSmtp) -> None:
    channel = EmailChannel("email", given(imap, smtp, secret="another-password"))
    with pytest.raises(ConfigError, match=r"the IMAP server refuses options\.user or secret") as no:
        await channel.start(Desk(imap, smtp).receive)
    assert "another-password" not in str(no.value)
    imap.users[USER] = "another-password"
    with pytest.raises(ConfigError, match=r"the SMTP server refuses options\.user or secret"):
        await channel.start(Desk(imap, smtp).receive)


async def test_a_password_with_other_letters_logs_in(imap: FakeImap, smtp: FakeSmtp) -> None:
    imap.users[USER] = "pässword-of-tests"
    with pytest.raises(ConfigError, match="the SMTP server refuses"):  # IMAP took it
        await EmailChannel("email", given(imap, smtp, secret="pässword-of-tests")).start(
            Desk(imap, smtp).receive
        )


async def test_a_missing_folder_is_said_at_the_start(imap: FakeImap, smtp: FakeSmtp) -> None:
    channel = EmailChannel("email", given(imap, smtp, options={"folder": "None"}))
    with pytest.raises(ConfigError, match=r"no such folder; set options\.folder"):
        await channel.start(Desk(imap, smtp).receive)


async def test_a_network_that_is_down_is_said_and_tried_again(
    imap: FakeImap, smtp: FakeSmtp, caplog: pytest.LogCaptureFixture
) -> None:
    imap.cut = {"LOGIN"}
    caplog.set_level(logging.INFO)
    async with desk_of(imap, smtp) as desk:
        imap.cut = {"LOGIN"}
        assert "cannot be used" in desk.channel.healthy()
        assert await desk.sleeps.end() == 2.0
        imap.put(mail_of())
        assert await desk.sleeps.look() == 20.0
        assert len(desk.got) == 1
        assert desk.channel.healthy() == ""
    said = [one for one in caplog.records if one.name.endswith("channels.email")]
    assert len(said) == 2  # once that it is down, once that it is up


async def test_a_password_that_is_refused_later_is_said(desk: Desk) -> None:
    desk.imap.users[USER] = "new"
    await desk.looked()
    assert await desk.sleeps.look() == 60.0
    assert "refuses options.user or secret" in desk.channel.healthy()


async def test_a_server_that_hangs_is_noticed(
    imap: FakeImap, smtp: FakeSmtp, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LATE <= 90
    async with desk_of(imap, smtp) as desk:
        await desk.sleeps.look()
        monkeypatch.setattr(channel_module, "SILENT", 0.05)
        imap.hung = asyncio.Event()
        await desk.looked()
        assert await desk.sleeps.look() == 2.0
        assert "TimeoutError" in desk.channel.healthy()
        monkeypatch.undo()
        imap.hung.set()
        await desk.looked()
        assert await desk.sleeps.look() == 20.0
        assert desk.channel.healthy() == ""


async def test_a_look_that_does_not_end_is_noticed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.sleeps.look()
    monkeypatch.setattr(channel_module, "LATE", 0.05)
    desk.imap.hung = asyncio.Event()
    await desk.looked()
    async with asyncio.timeout(LONG):
        while "has not answered for 0.05 s" not in desk.channel.healthy():
            await asyncio.sleep(0.001)
    desk.imap.hung.set()
    await desk.sleeps.look()
    assert desk.channel.healthy() == ""


async def test_a_hung_server_blocks_neither_the_loop_nor_the_stop(
    imap: FakeImap, smtp: FakeSmtp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "SILENT", 5 * LONG)
    async with desk_of(imap, smtp) as desk:
        await desk.sleeps.look()
        imap.hung = asyncio.Event()
        imap.looked.clear()
        await desk.looked()
        await asyncio.wait_for(imap.looked.wait(), LONG)
        await desk.send("meanwhile")
        assert desk.smtp.mails
    assert desk.channel.healthy() == "the channel email is not started"
    async with asyncio.timeout(LONG):
        while imap.open:  # the thread's connection is cut
            await asyncio.sleep(0.001)


async def test_it_starts_again_after_a_stop(desk: Desk) -> None:
    await desk.channel.stop()
    desk.imap.put(mail_of())
    await desk.channel.start(desk.receive)
    while not desk.got:
        await desk.sleeps.end()
    assert desk.imap.seen(1)
    await desk.channel.catch_up()


# --- Credentials.


def test_what_the_page_shows_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/how-to/gateway-channels.md").read_text(encoding="utf-8")
    section = page.partition("\n## Email\n")[2].partition("\n## ")[0]
    block = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)[0]
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
    file = tmp_path / "agents.yaml"
    file.write_text(f"agents:\n  default:\n    model: demo\n{block}", encoding="utf-8")
    channels = load(file).config.channels
    made = make_channel("email", channels["email"])
    assert isinstance(made, EmailChannel)
    check_people("email", channels["email"])
    shown = set(re.findall(r"^ {6}(\w+):", block, re.MULTILINE))
    assert shown == set(EmailOptions.model_fields)


@pytest.mark.parametrize("scheme", ["imaps", "imap+starttls"])
async def test_it_reads_by_tls(smtp: FakeSmtp, scheme: str) -> None:
    server, trusted = certificates()
    async with fake_imap(server, implicit=scheme == "imaps") as imap:
        config = given(imap, smtp, options={"imap": f"{scheme}://127.0.0.1:{imap.port}"})
        desk = Desk(imap, smtp)
        desk.channel = EmailChannel("email", config, sleep=desk.sleeps, certificates=trusted)
        await desk.channel.start(desk.receive)
        try:
            await desk.read(mail_of())
        finally:
            await desk.channel.stop()
        if scheme == "imap+starttls":
            assert imap.said.index("STARTTLS") < imap.said.index("LOGIN …")


@pytest.mark.parametrize("scheme", ["imaps", "imap+starttls"])
async def test_no_password_goes_to_a_server_without_a_trusted_certificate(
    smtp: FakeSmtp, scheme: str
) -> None:
    server, _ = certificates()
    async with fake_imap(server, implicit=scheme == "imaps") as imap:
        config = given(imap, smtp, options={"imap": f"{scheme}://127.0.0.1:{imap.port}"})
        desk = Desk(imap, smtp)
        desk.channel = EmailChannel("email", config, sleep=desk.sleeps)
        await desk.channel.start(desk.receive)
        await desk.channel.stop()
        assert not imap.count("LOGIN")


async def test_no_password_goes_to_a_server_that_offers_no_tls(smtp: FakeSmtp) -> None:
    async with fake_imap() as imap:
        imap.offers = "IMAP4rev1"
        desk = Desk(imap, smtp)
        config = given(imap, smtp, options={"imap": f"imap+starttls://127.0.0.1:{imap.port}"})
        desk.channel = EmailChannel("email", config, sleep=desk.sleeps)
        await desk.channel.start(desk.receive)
        assert "cannot be used" in desk.channel.healthy()
        await desk.channel.stop()
        assert not imap.count("LOGIN")


@pytest.mark.parametrize("trusts", [True, False])
async def test_it_sends_by_starttls_to_a_trusted_server(imap: FakeImap, trusts: bool) -> None:
    server, trusted = certificates()
    async with fake_smtp(server) as smtp:
        config = given(imap, smtp, options={"smtp": f"smtp+starttls://127.0.0.1:{smtp.port}"})
        channel = EmailChannel("email", config, certificates=trusted if trusts else None)
        message = OutboundMessage(channel="email", chat_id=ANN, content="hi")
        if trusts:
            assert await channel.send(message, "key")
        else:
            with pytest.raises(DeliveryError, match="certificate|cannot be used"):
                await channel.send(message, "key")
        assert len(smtp.got) == trusts


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"imap": "imap://mail.example.org"}, r"options\.imap: imap:// would send .* unencrypted"),
        ({"smtp": "smtp://mail.example.org"}, r"options\.smtp: smtp:// would send .* unencrypted"),
        ({"smtp": "imaps://mail.example.org"}, r"write smtps://host"),
        ({"imap": "mail.example.org"}, "write imaps://host"),
        ({"imap": "imaps://user:word@mail.example.org"}, "write imaps://host"),
        ({"imap": "imaps://mail.example.org/INBOX"}, "write imaps://host"),
        ({"imap": "imaps://mail.example.org:99999"}, "options.imap"),
        ({"imap": "imaps://mail\r\n.example.org"}, "write imaps://host"),
        ({"user": "a\r\nb LOGOUT"}, r"options\.user"),
        ({"folder": "INBOX\r\nx"}, r"options\.folder"),
        ({"user": "wick"}, r"options\.user"),
        ({"user": "a@b\r\nBcc: c@d"}, r"options\.user"),
        ({"poll": 600}, r"options\.poll"),
        ({"pol": 6}, "did you mean poll"),
    ],
)
def test_an_option_that_cannot_be_used_is_said(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        EmailChannel("email", given(options=options))
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("secret", [None, "", "a\r\nb"])
def test_a_missing_password_is_said(secret: str | None) -> None:
    with pytest.raises(ConfigError, match=r"channels\.email\.secret"):
        EmailChannel("email", given(secret=secret))


def test_the_password_is_a_known_secret() -> None:
    EmailChannel("email", given())
    assert PASSWORD not in REDACTOR.text(f"it is {PASSWORD}.")
