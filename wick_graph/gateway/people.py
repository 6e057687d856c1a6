"""Who may write, and with which rights: admission, pairing, limits, roles.

A sender is known by the platform's id alone: names can be changed. Without a configuration and
without pairing no sender is answered. Each turn has the lowest role of all senders with a
text in its thread, and `hooks.roles` holds the tools to it.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import b32encode
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, tzinfo
from typing import Any, Final, Literal

from wick_graph.config.gateway import ChannelConfig, LimitsConfig
from wick_graph.errors import ConfigError
from wick_graph.gateway.messages import INTERNAL, InboundMessage
from wick_graph.hooks.prompt_files import one_line
from wick_graph.hooks.roles import SENDER, Role, lowest
from wick_graph.store.mailbox import Change, Mailbox, hashed
from wick_graph.tracing import audit

_WEEK: Final = 7 * 86_400.0

CODE_SECONDS: Final = 3_600.0

MOST_CODES: Final = 3
"""Open codes of one channel."""

_NAME_CHARS: Final = 60

_TEXT: Final = re.compile(r"(?![@*])\S{1,128}")

_IDS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "telegram": (re.compile(r"[1-9][0-9]{0,19}"), "the number of the account"),
    "discord": (re.compile(r"[1-9][0-9]{0,19}"), "the number of the account"),
    "slack": (re.compile(r"[UW][A-Z0-9]{2,20}"), "the id of the member, such as U0123ABCD"),
    "email": (re.compile(r"[^@\s]+@[^@\sA-Z]+"), "the address, its domain in small letters"),
}
"""By type of channel: the form of a sender's id, in words too."""

_UNTRUSTED: Final = frozenset({"http", "email"})
"""Types of channels with texts that are data unless the configuration says otherwise."""


def new_code(size: int = 5) -> str:
    """Make a code of random bytes: eight letters and digits for five."""
    return b32encode(secrets.token_bytes(size)).decode().rstrip("=")


def same_code(given: str, code: str) -> bool:
    """Compare what a person typed with a code; the time tells nothing of the code."""
    typed = re.sub(r"[\s-]", "", given[:64]).upper()
    return hmac.compare_digest(typed.encode("utf-8", "replace"), code.encode())


# --- Admission.


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision about a message: it has a role, or it was refused for a reason."""

    role: Role | Literal[""] = ""
    refused: str = ""
    """The reason: `bot`, `edited`, `channel_post`, `sender`, `channel`, `unknown`."""
    reply: str = ""
    """The answer to a sender that was refused; empty for none."""
    owner: bool = False
    """Whether the sender is an owner, although the text may be of others."""


def check_people(name: str, config: ChannelConfig) -> None:
    """Check the ids of a channel's configuration.

    Raises:
        ConfigError: One is no id, or the channel cannot be trusted.
    """
    kind = config.type or name
    form, what = _IDS.get(kind, (_TEXT, "the id that the platform gives the sender"))
    for key, ids in (("owner", config.owner), ("allow_from", config.allow_from)):
        for one in ids:
            if not form.fullmatch(one):
                raise ConfigError(
                    f"channels.{name}.{key}: {one!r:.80} is no id of a sender, and names can be "
                    f"changed by anyone; give {what}"
                )
    if kind == "email" and config.untrusted is False:
        raise ConfigError(
            f"channels.{name}.untrusted: the sender of a mail can be forged; leave it out"
        )


def admit(
    message: InboundMessage, config: ChannelConfig | None, facts: Mailbox, now: float
) -> Admission:
    """Decide whether a message is answered, and with which role.

    An unknown sender of a direct chat gets a code, with which the owner can admit them. The person
    at the terminal is the owner.

    Without a configuration, it is a channel of the gateway itself.
    """
    if message.channel == "cli":
        return Admission("owner", owner=True)
    if config is None or message.channel in INTERNAL:
        return Admission(refused="channel")
    meta = message.metadata
    for reason in ("bot", "edited", "channel_post"):
        if meta.get(reason):
            return Admission(refused=reason)
    if not message.sender_id:
        return Admission(refused="sender")
    strangers = config.untrusted
    if strangers is None:
        strangers = (config.type or message.channel) in _UNTRUSTED
    role = _role_of(message, config, facts)
    if role is not None:
        low = strangers or meta.get("forwarded")
        owner = role == "owner" and not strangers
        return Admission("untrusted" if low else role, owner=owner)
    if strangers or meta.get("group") is not False:  # a code is for a person alone
        return Admission(refused="unknown")
    return Admission(refused="unknown", reply=_offered(message, facts, now))


def _role_of(message: InboundMessage, config: ChannelConfig, facts: Mailbox) -> Role | None:
    if message.sender_id in config.owner:
        return "owner"
    if message.sender_id in config.allow_from:
        return "user"
    found = _persons([facts.fact(_person_key(message.channel, message.sender_id))])
    return lowest(found[0].role) if found else None


# --- Pairing: an unknown sender gets a code, and the owner admits who has told it.


@dataclass(frozen=True, slots=True)
class Person:
    """A sender that was paired, or asks to be."""

    channel: str
    sender_id: str
    name: str
    """As the sender calls itself; anyone can take any name."""
    at: float
    """When it was paired; of one that asks: when the code ends."""
    role: Role = "user"
    code: str = ""


def _person_key(channel: str, sender: str) -> str:
    return f"person/{hashed(channel, sender)}"


def _persons(data: Any) -> list[Person]:
    """Read the facts of people; those of another version's form are left out."""
    made = []
    for one in data if isinstance(data, list) else ():
        with suppress(TypeError, ValueError):
            known = Person(**one)
            made.append(replace(known, at=float(known.at)))
    return made


def _open(data: Any, now: float) -> list[Person]:
    return [one for one in _persons(data) if one.at > now]


def _offered(message: InboundMessage, facts: Mailbox, now: float) -> str:
    """Return the text with a new code; empty if the sender has one, or there are too many."""
    key, sender, code = f"pair/{message.channel}", message.sender_id, new_code()
    name = one_line(str(message.metadata.get("sender_name") or ""), _NAME_CHARS)
    mine = Person(message.channel, sender, name, now + CODE_SECONDS, code=code)

    def with_mine(data: Any) -> list[dict[str, Any]]:
        live = _open(data, now)
        full = len(live) >= MOST_CODES or any(one.sender_id == sender for one in live)
        return [asdict(one) for one in (live if full else [*live, mine])]

    if mine not in _open(with_mine(facts.fact(key)), now):  # it needs no write
        return ""
    if mine not in _open(facts.change_fact(key, with_mine), now):
        return ""
    return (
        f"I do not know you yet. Tell the owner this code: {code}. It is valid for an hour; "
        "until then I read nothing that you send."
    )


def asking(facts: Mailbox, now: float) -> list[Person]:
    """List the senders that wait to be paired."""
    return [one for data in facts.facts("pair/").values() for one in _open(data, now)]


def paired(facts: Mailbox) -> list[Person]:
    """List the senders that were paired."""
    return _persons([*facts.facts("person/").values()])


def approve(
    code: str, facts: Mailbox, now: float, *, by: str, role: Literal["user", "owner"] = "user"
) -> Person | None:
    """Admit the sender who was given a code; return None if there is no such code any more."""
    one = next((one for one in asking(facts, now) if same_code(code, one.code)), None)
    if one is None:
        return None
    made = replace(one, at=now, role=role, code="")
    facts.put_fact(_person_key(one.channel, one.sender_id), asdict(made))
    facts.change_fact(
        f"pair/{one.channel}",
        lambda data: [asdict(other) for other in _open(data, now) if other != one] or None,
    )
    audit("pairing.approved", channel=one.channel, sender=one.sender_id, role=role, by=by)
    return made


def revoke(channel: str, sender: str, facts: Mailbox, *, by: str) -> bool:
    """Take a sender's pairing back; return whether there was one."""
    found = facts.drop_fact(_person_key(channel, sender))
    if found:
        audit("pairing.revoked", channel=channel, sender=sender, by=by)
    return found


# --- The gate: who is admitted, and how often.


class Gate:
    """Decide which messages are answered.

    What each sender but the owner uses in a day of the zone is a fact. Floods, machines that answer
    each other, and refusals are counted in memory.

    Raises:
        ConfigError: An id of a channel is no id, or a channel cannot be trusted.
    """

    def __init__(
        self,
        channels: Mapping[str, ChannelConfig],
        limits: LimitsConfig,
        facts: Mailbox,
        zone: tzinfo,
    ) -> None:
        for name, channel in channels.items():
            check_people(name, channel)
        self._channels, self._limits, self._facts, self._zone = channels, limits, facts, zone
        self._daily = {"turns": limits.turns_per_day, "tokens": limits.tokens_per_day}
        self.counts: Final = any(self._daily.values())
        """Whether there are limits for a day, so that turns are counted."""
        self._counts: OrderedDict[tuple[str, ...], tuple[float, int]] = OrderedDict()

    def admit(self, message: InboundMessage, now: float) -> Admission:
        """Decide about a message.

        A refusal is audited: of one sender once a minute for each reason, and 60 in all.
        """
        found, channel = self._decide(message, now), message.channel
        sender, chat, why = message.sender_id[:128], message.chat_id[:128], found.refused
        first = why and self._count(("audit", channel, sender, why), now) == 1
        if first and self._count(("audits",), now) <= 60:
            audit("gateway.refused", channel=channel, chat_id=chat, sender=sender, why=why)
        return found

    def _decide(self, message: InboundMessage, now: float) -> Admission:
        limits, channel, chat = self._limits, message.channel, message.chat_id
        known, alone = ("id", channel, chat, message.native_id), ("alone", channel, chat)
        again = bool(message.native_id) and known in self._counts
        mine = ("from", channel, message.sender_id)
        if not again and self._count_sent(mine, message, now, 60.0) > limits.messages_per_minute:
            return Admission(refused="flood")
        found = admit(message, self._channels.get(channel), self._facts, now)
        low = found.role == "untrusted" and not again
        if low and self._count_sent(alone, message, now, 3_600.0) > limits.alone:
            return Admission(refused="alone")
        if found.role in ("owner", "user"):  # a person breaks the row
            self._counts.pop((*alone, ""), None)
        if found.role and (why := self._used_up(message, found.role, now)):
            return Admission(refused="limit", reply=why)
        if found.role and message.native_id:  # once, also if it cannot be stored and comes again
            self._count(known, now)
        return found

    def present(self, message: InboundMessage, now: float) -> Admission:
        """Return the role that who planned a chat's job has now, but none higher than then."""
        origin = message.metadata["origin"]
        channel, sender = str(origin.get("channel")), str(origin.get("sender_id"))
        role, owner = lowest(origin.get("role")), origin.get("owner") is True
        if sender == "heartbeat" or sender.startswith("cron:"):  # a job of the owner's planned it
            return Admission(role, owner=owner)
        about = {"group": True}  # a job gets no code for pairing
        asked = InboundMessage(
            channel=channel, sender_id=sender, chat_id="", content="", metadata=about
        )
        found = admit(asked, self._channels.get(channel), self._facts, now)
        if found.role and (why := self._used_up(message, found.role, now)):
            return Admission(refused="limit", reply=why)
        present = lowest(role, found.role) if found.role else ""
        return replace(found, role=present, owner=owner and found.owner)

    def may_refuse(self, message: InboundMessage, now: float) -> bool:
        """Return whether the sender may get a polite refusal, one in a minute."""
        return self._count(("told", message.channel, message.sender_id), now) == 1

    def counted(
        self, messages: Sequence[InboundMessage], tokens: int, now: float, turns: int = 1
    ) -> dict[str, Change]:
        """Return what a turn makes of the facts about its senders, who share its tokens equally.

        An earlier day is forgotten.
        """
        keys = {_spent_key(one) for one in messages}

        def more(known: Any) -> dict[str, Any]:
            used = self._used_today(known, now)
            return {
                **used,
                "turns": used["turns"] + turns,
                "tokens": used["tokens"] - -tokens // len(keys),
            }

        return dict.fromkeys(keys, more)

    def _used_today(self, known: Any, now: float) -> dict[str, Any]:
        day = datetime.fromtimestamp(now, self._zone).date().isoformat()
        return known if known and known["day"] == day else {"day": day, "turns": 0, "tokens": 0}

    def _used_up(self, message: InboundMessage, role: Role, now: float) -> str:
        """Return why a sender gets no further turn today; empty if it does."""
        if role != "owner" and self.counts:
            used = self._used_today(self._facts.fact(_spent_key(message)), now)
            for what, said in (("turns", "messages"), ("tokens", "tokens")):
                if (most := self._daily[what]) is not None and used[what] >= most:
                    return f"Your {most:,} {said} of today are used up; write again tomorrow."
        return ""

    def _count_sent(
        self, key: tuple[str, ...], message: InboundMessage, now: float, seconds: float
    ) -> int:
        """Count a message for the time in which it was sent: an outage makes no flood.

        A sender of mails may lie about it, within a week.
        """
        sent = message.metadata.get("sent")
        if not isinstance(sent, int | float) or not now - _WEEK < sent < now - 60:
            return self._count((*key, ""), now, seconds)
        begin = sent // seconds * seconds
        return self._count((*key, str(begin)), begin, seconds)

    def _count(self, key: tuple[str, ...], now: float, seconds: float = 60.0) -> int:
        """Count an event; return how many there were since the first of this time."""
        since, count = self._counts.pop(key, (now, 0))
        if now - since >= seconds or now < since:
            since, count = now, 0
        self._counts[key] = (since, count + 1)
        while len(self._counts) > 20_000:
            self._counts.popitem(last=False)
        return count + 1


def _spent_key(message: InboundMessage) -> str:
    origin = message.metadata.get("origin") if message.channel == "system" else None
    who = origin or {"channel": message.channel, "sender_id": message.sender_id}
    return f"spent/{hashed(str(who.get('channel')), str(who.get('sender_id')))}"


def sender_facts(message: InboundMessage, role: Role) -> dict[str, Any]:
    """Return what a human message keeps of its sender, as `additional_kwargs`."""
    known = {"channel": message.channel, "id": message.sender_id, "role": role}
    sent, name = (message.metadata.get(key) for key in ("sent", "sender_name"))
    more = {"native_id": message.native_id, "sent": sent, "name": name}
    return {SENDER: {**known, **{key: value for key, value in more.items() if value}}}
