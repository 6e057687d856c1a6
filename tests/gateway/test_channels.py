"""Channels are made from their configuration; the terminal is one without a platform."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.fake_telegram import TOKEN
from wick_graph.config.gateway import ChannelConfig
from wick_graph.errors import ConfigError, StorageError
from wick_graph.gateway.channels import registry
from wick_graph.gateway.channels.cli import CliChannel
from wick_graph.gateway.channels.http import HttpChannel
from wick_graph.gateway.channels.protocol import Channel, FetchingChannel
from wick_graph.gateway.channels.registry import make_channel
from wick_graph.gateway.channels.telegram import TelegramChannel
from wick_graph.gateway.messages import InboundMessage, OutboundMessage
from wick_graph.gateway.people import check_people

ROOT = Path(__file__).resolve().parents[2]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjU"


def config(**given: Any) -> ChannelConfig:
    return ChannelConfig.model_validate(given, strict=False)


# --- The registry.


def test_a_channels_name_is_its_type_unless_it_says_another() -> None:
    made = make_channel("telegram", config(token=TOKEN))
    assert isinstance(made, TelegramChannel)
    assert isinstance(made, FetchingChannel)
    other = make_channel("ci-hook", config(type="http", secret=SECRET))
    assert isinstance(other, HttpChannel)
    assert (made.name, other.name) == ("telegram", "ci-hook")


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("telegramm", {}, "did you mean telegram"),
        ("irc", {}, "use one of discord, email, http, slack, telegram"),
        ("x", {"type": "htpp"}, "did you mean http"),
        ("cli", {"type": "http"}, "reserved"),
        ("system", {"type": "http"}, "reserved"),
        ("a:b", {"type": "http"}, "reserved"),
        ("../x", {"type": "http"}, "reserved"),
        ("", {"type": "http"}, "reserved"),
        ("telegram", {"token": TOKEN, "options": {"base_ulr": "x"}}, "did you mean base_url"),
        ("http", {"secret": SECRET, "options": {"port": 70000}}, "less than or equal to 65535"),
        ("http", {"secret": SECRET, "options": {"allow": ["x"]}}, "not a usable address"),
        ("http", {"secret": SECRET, "options": {"callback": "file:///x"}}, "not a usable address"),
    ],
)
def test_a_channel_that_cannot_be_made_says_why(
    name: str, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        make_channel(name, config(**given))
    assert "\n" not in str(caught.value)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "library", "extra"),
    [
        ("telegram", "aiogram", "telegram"),
        ("http", "uvicorn", "server"),
        ("discord", "discord", "discord"),
        ("slack", "slack_sdk", "slack"),
        ("email", "imap_tools", "email"),
        ("email", "aiosmtplib", "email"),
    ],
)
def test_a_missing_package_is_said_with_the_command_that_installs_it(
    kind: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"wick_graph.gateway.channels.{kind}", raising=False)
    hidden = [name for name in sys.modules if name.partition(".")[0] == library]
    for name in {library, *hidden}:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"needs {library}.*wick-graph\[{extra}\]"):
        make_channel(kind, config())


def test_the_libraries_are_loaded_only_with_their_channel() -> None:
    code = (
        "import sys, wick_graph.gateway.channels.registry, wick_graph.gateway.channels.cli\n"
        "names = ('aiogram', 'aiohttp', 'aiosmtplib', 'discord', 'imap_tools', 'slack_sdk')\n"
        "print([name for name in (*names, 'uvicorn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_blocks_that_the_page_shows_make_channels() -> None:
    page = (ROOT / "docs/how-to/gateway-channels.md").read_text(encoding="utf-8")
    values = {
        "TELEGRAM_TOKEN": TOKEN, "HOOK_SECRET": SECRET, "HOOK_TOKEN": "reader",
        "DISCORD_TOKEN": "a-token-of-a-bot-that-is-long", "SLACK_BOT_TOKEN": "xoxb-12345678",
        "SLACK_APP_TOKEN": "xapp-12345678",
    }  # fmt: skip
    made = set()
    for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL):
        text = re.sub(
            r"\$\{(\w+)\}", lambda found: values.get(found[1], "a-secret-of-the-page"), block
        )
        for name, given in (yaml.safe_load(text).get("channels") or {}).items():
            check_people(name, config(**given))
            made.add(make_channel(name, config(**given)).name)
    assert made >= {"telegram", "discord", "slack", "hook", "email"}


def make_cli(name: str, given: ChannelConfig) -> CliChannel:
    return CliChannel(lambda message: None)


def make_nothing(name: str, given: ChannelConfig) -> object:
    return object()


def make_noise(name: str, given: ChannelConfig) -> object:
    raise RuntimeError("out of order")


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    here = "tests.gateway.test_channels"
    found = [
        EntryPoint(kind, f"{here}:{function}", registry.GROUP)
        for kind, function in {
            "own": "make_cli", "not": "make_nothing", "bad": "make_noise", "gone": "missing",
            "http": "make_nothing",
        }.items()
    ]  # fmt: skip
    monkeypatch.setattr(registry, "entry_points", lambda group: found)


@pytest.mark.usefixtures("others")
def test_an_entry_point_makes_a_channel() -> None:
    assert isinstance(make_channel("own", config()), CliChannel)
    assert isinstance(make_channel("http", config(secret=SECRET)), HttpChannel)  # ours comes first


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize(
    ("kind", "said"),
    [("not", "makes no channel"), ("bad", "out of order"), ("gone", "cannot be made")],
)
def test_a_broken_entry_point_is_a_broken_configuration(kind: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_channel("x", config(type=kind))


# --- The terminal.


async def test_the_terminal_asks_and_shows() -> None:
    got: list[InboundMessage] = []
    shown: list[str] = []

    async def receive(message: InboundMessage) -> None:
        got.append(message)

    async def show(message: OutboundMessage) -> None:
        shown.append(message.content)

    channel = CliChannel(show, session="work:7")
    assert isinstance(channel, Channel)
    with pytest.raises(ConfigError, match="not started"):
        await channel.ask("too early")
    await channel.start(receive)
    asked = await channel.ask("hello", sender_name="me")
    assert got == [asked]
    assert (asked.channel, asked.sender_id, asked.key) == ("cli", "cli", "work:7")
    assert asked.metadata["sender_name"] == "me"
    assert asked.native_id != (await channel.ask("hello")).native_id
    await channel.send(OutboundMessage(channel="cli", chat_id="local", content="hi"), "k")
    assert shown == ["hi"]
    assert channel.healthy() == ""
    await channel.stop()
    assert "not started" in channel.healthy()


async def test_the_terminal_says_if_a_message_was_not_stored() -> None:
    async def receive(message: InboundMessage) -> None:
        raise StorageError("the disk is full")

    shown: list[OutboundMessage] = []
    channel = CliChannel(shown.append)
    await channel.start(receive)
    with pytest.raises(StorageError):
        await channel.ask("hello")
    answer = OutboundMessage(channel="cli", chat_id="local", content="hi")
    await channel.send(answer, "k")
    assert shown == [answer]
    assert (await _default(channel)).key == "cli:local"


async def _default(channel: CliChannel) -> InboundMessage:
    async def receive(message: InboundMessage) -> None: ...

    await channel.start(receive)
    return await channel.ask("x")
