"""`wick gateway` and `--session`: what people see of the gateway at the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import SECONDS, Folder, Inside
from wick_graph.config import load_config
from wick_graph.gateway.messages import InboundMessage, OutboundMessage
from wick_graph.gateway.people import admit
from wick_graph.store.mailbox import Draft

AGENTS = """\
channels:
  post: {type: http, owner: [1], secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjU, \
options: {port: 0}}
  chat: {type: telegram, owner: [1], token: "1:a"}
cron:
  tea: {every: 1h, text: Tea?, to: "post:1"}
agents:
  default: {model: "scripted:demo", tools: [calculate]}
"""


@pytest.fixture
def folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Inside:
    made = Inside(tmp_path, capfd)
    made.write(agents=AGENTS)
    return made


def out(text: str) -> dict[str, Any]:
    return OutboundMessage(channel="post", chat_id="1", content=text).to_json()


def test_the_demonstration_shows_all_and_ends(tmp_path: Path) -> None:
    ended = Folder(tmp_path).wick("gateway", "run", "--demo")
    assert ended.code == 0, ended.err
    for text in ("21*2 = 42.", "365*24 = 8760.", "60*24 = 1440.", "17*3 = 51."):
        assert text in ended.out
    assert [*tmp_path.iterdir()] == []


def test_a_file_without_channels_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = Folder(tmp_path).write(agents='agents: {a: {model: "scripted:demo"}}')
    ended = folder.wick("gateway", "run")
    assert (ended.code, ended.out) == (2, "")
    assert "add channels:" in ended.err
    assert "--demo" in ended.err


def test_sigterm_ends_an_idle_gateway_at_once(tmp_path: Path) -> None:
    text = AGENTS.replace('  chat: {type: telegram, owner: [1], token: "1:a"}\n', "")
    folder = Folder(tmp_path).write(agents=text)
    took: list[float] = []
    queue = os.getloadavg()[0] / (os.cpu_count() or 1)  # a busy machine takes that much longer
    while len(took) < 3 and min(took, default=SECONDS) > 1:
        with folder.start("gateway", "run", stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            assert b"answers on post" in process.stderr.readline()
            shown = folder.wick("gateway", "status", "--json").json
            assert shown["running"][0]["channels"] == {"post": ""}
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0
            took.append(time.monotonic() - began)
    assert min(took) <= max(1.0, queue), took
    assert folder.wick("gateway", "status").out.startswith("no gateway runs on this store\n")


def test_a_message_in_a_session_goes_on_with_its_thread(tmp_path: Path) -> None:
    folder = Folder(tmp_path).write(agents=AGENTS)
    ended = folder.wick("run", "--session", "post:1", "what is 21*2?")
    assert (ended.code, ended.out) == (0, "21*2 = 42.\n"), ended.err
    folder.wick("run", "--session", "post:1", "what is 1+1?")
    with folder.store as store:
        (info,) = store.threads.list()
    assert (info.thread_id, info.expires_at) == ("post:1", None)
    refused = folder.wick("run", "--session", "post:1", "-t", "x", "hi")
    assert (refused.code, "--session does not go with --thread" in refused.err) == (2, True)


def test_a_chat_in_a_session_takes_commands(tmp_path: Path) -> None:
    folder = Folder(tmp_path).write(agents=AGENTS)
    with folder.at_terminal("chat", "--session", "post:1") as terminal:
        terminal.wait_for("session post:1")
        terminal.press("what is 21*2?\n")
        terminal.wait_for("21*2 = 42.")
        terminal.press("/status\n")
        terminal.wait_for("thread post:1;")
        terminal.press("\x04")
        assert terminal.end()[0] == 0


def test_what_waits_is_listed_and_sent_again(folder: Inside) -> None:
    assert folder.wick("gateway", "inbox").out == "there are no messages\n"
    with folder.store as store:
        box = store.mailbox
        message = InboundMessage(channel="post", sender_id="1", chat_id="1", content="hi\x1b[31m")
        box.receive("k", "post:1", message.to_json())
        made = box.queue(Draft(key="d", chat="post:1", message=out("hello")))
        assert made is not None
        box.failed(made, "the chat is gone", None)
    inbox = folder.wick("gateway", "inbox", "--json").json
    assert [(one["state"], one["chat"]) for one in inbox] == [("open", "post:1")]
    shown = folder.wick("gateway", "inbox").out
    assert "\x1b" not in shown
    (dead,) = folder.wick("gateway", "outbox", "--state", "dead", "--json").json
    assert (dead["text"], dead["error"]) == ("hello", "the chat is gone")
    row = str(dead["row"])
    assert folder.wick("gateway", "outbox", "--resend", row).out == f"message {row} is sent again\n"
    again = folder.wick("gateway", "outbox", "--resend", row)
    assert (again.code, f"no dead message has the row {row}" in again.err) == (2, True)
    assert "1 open" in folder.wick("gateway", "status").out


def test_a_person_is_paired_by_the_code(folder: Inside) -> None:
    assert folder.wick("gateway", "pair").out == "no one asks, and no one is paired\n"
    with folder.store as store:
        channel = load_config(folder.path / "agents.yaml").channels["chat"]
        message = InboundMessage(
            channel="chat",
            sender_id="7",
            chat_id="7",
            content="hi",
            metadata={"group": False, "sender_name": "Ann\n"},
        )
        reply = admit(message, channel, store.mailbox, time.time()).reply
    code = reply.split("code: ")[1].split(".")[0]
    assert "asks" in folder.wick("gateway", "pair").out
    assert folder.wick("gateway", "pair", "AAAAAAAA").code == 2
    (person,) = folder.wick("gateway", "pair", code, "--json").json
    assert (person["state"], person["id"], person["role"]) == ("paired", "7", "user")
    assert folder.wick("gateway", "pair", "--revoke", "chat:7").code == 0
    assert folder.wick("gateway", "pair", "--revoke", "chat:7").code == 2


def test_jobs_are_listed_with_their_next_time(folder: Inside) -> None:
    (job,) = folder.wick("gateway", "cron", "--json").json
    assert (job["name"], job["to"], job["next"][:2]) == ("tea", "post:1", "20")
    assert "Tea?" in folder.wick("gateway", "cron").out
    assert folder.wick("gateway", "cron", "--remove", "tea").code == 2, "it is the file's"
