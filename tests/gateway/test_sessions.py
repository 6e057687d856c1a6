"""Which thread a chat continues: no two chats share one, whatever their keys are."""

from __future__ import annotations

import itertools

import pytest

from wick_graph.engine.result import checked_thread_id
from wick_graph.gateway.messages import InboundMessage, Sessions, command_of, thread_of
from wick_graph.store import SqlSaver

ODD = [
    *("telegram:../x", "telegram:a/b", "telegram:a\0b", "telegram:" + "x" * 4096, "telegram:a:b"),
    *("telegram:a_b", "telegram:CON", "telegram:..", "telegram:", ":", "", "telegram:ä"),
    *("telegram:a\u0308", "telegram:A", "telegram:a", "telegram:a ", "telegram: a", "x:\ud800"),
    *("slack:a", "telegram:a.b", "telegram:-100", "telegram:100", "telegram:a\n", "a\nb:c"),
]


def test_each_key_has_a_legal_thread_of_its_own() -> None:
    threads = [thread_of(key) for key in ODD]
    assert len(set(threads)) == len(ODD)
    for thread in threads:
        assert checked_thread_id(thread) == thread


def test_a_plain_key_is_its_thread() -> None:
    for key in ("telegram:42", "telegram:-100:7", "hook:room-1"):
        assert thread_of(key) == key


def test_a_key_that_looks_like_the_thread_of_another_gets_its_own() -> None:
    long = "telegram:" + "x" * 200
    faked = thread_of(long)
    tagged = thread_of(long, "ab12")
    made = [thread_of(key) for key in (long, faked, tagged)]
    assert len({*made, tagged}) == 4


async def test_a_new_conversation_of_one_chat_is_of_no_other() -> None:
    """A sender may choose a chat id that looks like the renewed thread of another chat."""
    with SqlSaver.from_url("sqlite://") as saver:
        sessions, other = Sessions(saver.mailbox), Sessions(saver.mailbox)
        assert await other.thread("hook:a") == "hook:a"
        renewed = await sessions.renew("hook:a", "1")
        assert await sessions.renew("hook:a", "1") == renewed, "the same message, after a crash"
        assert await sessions.thread(renewed) != renewed
        assert await other.thread("hook:a") == renewed, "other processes see it too"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        *(("/new", "/new"), (" /NEW@my_bot ", "/new"), ("/stop now", "/stop"), ("/nope", "")),
        *(("new", ""), ("//new", ""), ("say /new", ""), ("/new\u200b", ""), ("", "")),
    ],
)
def test_a_command_begins_a_text(text: str, wanted: str) -> None:
    message = InboundMessage(channel="telegram", sender_id="1", chat_id="1", content=text)
    assert command_of(message)[0] == wanted
    system = InboundMessage(channel="system", sender_id="1", chat_id="1", content=text)
    assert command_of(system) == ("", ""), "no task and no job commands"


def test_a_key_is_kept_exactly() -> None:
    for chat, topic in itertools.product(("1", "a:b", "é"), ("", "7")):
        about = {"topic": topic} if topic else {}
        made = InboundMessage(
            channel="telegram", sender_id="1", chat_id=chat, content="x", metadata=about
        )
        assert made.key == ":".join(filter(None, ["telegram", chat, topic]))
