"""Messages become turns, and answers are sent: in order, once, whatever happens between."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.office import FRIEND, OWNER, PATIENCE, Post, by_chat, office, write
from wick_graph.config import load_config
from wick_graph.errors import ConfigError, DeliveryError, RefusedError, StorageError
from wick_graph.gateway.gateway import Gateway
from wick_graph.store.mailbox import Mailbox


def files(folder: Path) -> list[Path]:
    return [one for one in folder.rglob("*") if one.suffix in (".txt", ".md")]


async def test_a_message_is_answered_once(tmp_path: Path) -> None:
    async with office(tmp_path) as one:
        native = await one.post.say("what is 21*2?")
        answer = await one.post.got()
        assert (answer.content, answer.chat_id, answer.reply_to) == ("21*2 = 42.", OWNER, native)
        await one.post.say("what is 21*2?", native_id=native)  # the platform repeats it
        await one.settled()
        assert one.box.counts() == {"inbox": {"done": 1}, "outbox": {"sent": 1}}


async def test_a_message_is_stored_before_its_platform_is_told(tmp_path: Path) -> None:
    async with office(tmp_path) as one:

        def fail(*args: Any, **more: Any) -> Any:
            raise StorageError("the disk is full")

        good, one.box.receive = one.box.receive, fail  # type: ignore[method-assign]  # a full disk
        with pytest.raises(StorageError):  # so the channel does not confirm it
            await one.post.say("what is 1+1?", native_id="7")
        one.box.receive = good  # type: ignore[method-assign]  # it is free again
        assert await one.ask("what is 1+1?", native_id="7") == "1+1 = 2."


async def test_a_chat_is_answered_in_order_and_others_do_not_wait(tmp_path: Path) -> None:
    """The first answer of one chat is held; the other chat gets its own meanwhile."""
    async with office(tmp_path, agent={"tools": ["calculate", "request_user_input"]}) as one:
        held = asyncio.Event()
        real = one.box.settle

        async def run(work: Any, *args: Any, **more: Any) -> Any:
            if work == real and args[0] == [1]:
                await asyncio.wait_for(held.wait(), PATIENCE)
            return await Mailbox.run(one.box, work, *args, **more)

        one.box.run = run  # type: ignore[method-assign]  # the first turn ends when the test says
        await one.post.say("what is 1+1?")
        await one.post.say("what is 2+2?")
        assert await one.ask("what is 3+3?", FRIEND) == "3+3 = 6."
        held.set()
        assert [await one.post.text(), await one.post.text()] == ["1+1 = 2.", "2+2 = 4."]


async def test_a_hung_chat_delays_no_other(tmp_path: Path) -> None:
    async with office(tmp_path) as one:
        one.post.hung = {OWNER}
        await one.post.say("what is 1+1?")
        assert await one.ask("what is 3+3?", FRIEND) == "3+3 = 6."


async def test_more_than_the_backlog_is_refused_once_a_minute(tmp_path: Path) -> None:
    async with office(tmp_path, gateway={"backlog": 2, "parallel": 1}) as one:
        hold = one.hold()
        for number in range(5):
            await one.post.say(f"what is {number}+1?")
        assert "still busy" in await one.post.text()
        hold.set()
        assert [await one.post.text() for _ in range(2)] == ["0+1 = 1.", "1+1 = 2."]
        await one.settled()
        assert one.box.counts()["inbox"] == {"done": 2, "refused": 3}
        assert one.post.sent.empty()


async def test_a_failed_turn_says_so_and_the_chat_goes_on(tmp_path: Path) -> None:
    script = [{"error": {"type": "RuntimeError", "text": "secret detail"}}, "back"]
    async with office(tmp_path, script=script) as one:
        said = await one.ask("a")
        assert said.startswith("Error processing message: ")
        assert await one.ask("b") == "back"


async def test_an_empty_answer_gets_the_default_one(tmp_path: Path) -> None:
    async with office(tmp_path, script=[{"text": ""}] * 9) as one:
        assert await one.ask("a") == "I've completed processing but have no response to give."


async def test_an_answer_that_was_cut_off_says_so(tmp_path: Path) -> None:
    async with office(tmp_path, script=[{"text": "It is", "finish": "length"}, "whole"]) as one:
        cut = "It is\n\n[the model's reply was cut off at its length limit]"
        assert [await one.ask("a"), await one.ask("b")] == [cut, "whole"]


async def test_an_answer_is_left_out_if_a_tool_has_written_to_the_chat(tmp_path: Path) -> None:
    async with office(tmp_path) as one:
        assert await one.ask('message(content="now")') == "now"
        await one.settled()
        assert by_chat(one.box.outbox()) == {"post:1": ["now"]}


async def test_collected_messages_are_one_turn(tmp_path: Path) -> None:
    async with office(tmp_path, channels={"post": {"busy": "collect"}}) as one:
        hold = one.hold()
        for number in range(3):
            await one.post.say(f"what is {number}+1?")
        hold.set()
        assert [await one.post.text() for _ in range(2)] == ["0+1 = 1.", "2+1 = 3."]
        await one.settled()
        assert one.box.facts("batch/") == {}
        state: Any = (await one.gateway.store.aget({"configurable": {"thread_id": "post:1"}})) or {}
        texts = [m.text for m in state["channel_values"]["messages"] if m.type == "human"]
        assert texts == ["what is 0+1?", "what is 1+1?", "what is 2+1?"]


async def test_an_interrupting_message_ends_the_turn_before_it(tmp_path: Path) -> None:
    async with office(tmp_path, nap=True, channels={"post": {"busy": "interrupt"}}) as one:
        await one.post.say("nap()")
        await one.napping()
        assert await one.ask("what is 1+1?") == "1+1 = 2."
        await one.settled()
        assert by_chat(one.box.outbox()) == {"post:1": ["1+1 = 2."]}


# --- commands


async def test_new_begins_another_thread_and_keeps_the_old_one(tmp_path: Path) -> None:
    async with office(tmp_path) as one:
        await one.ask("what is 1+1?")
        assert await one.ask("/new") == "A new conversation begins."
        await one.ask("what is 2+2?")
        found = [info.thread_id for info in one.gateway.store.threads.list()]
        assert "post:1" in found
        assert len(found) == 2
        assert all(one.expires_at is None for one in one.gateway.store.threads.list())
        status = await one.ask("/status")
        assert "thread post:1." in status
        assert status.endswith("0 messages wait.")


async def test_stop_ends_what_goes_on_without_waiting_for_it(tmp_path: Path) -> None:
    async with office(tmp_path, nap=True) as one:
        assert await one.ask("/stop") == "Nothing is going on here."
        await one.post.say("nap()")
        await one.napping()
        assert await one.ask("/stop") == "Stopped."
        assert "/approve" in await one.ask("/help")


# --- sending


async def test_a_message_that_is_not_sent_is_tried_again(tmp_path: Path) -> None:
    async with office(tmp_path) as one:
        one.post.faults = [DeliveryError("down", retry_after=0.01), OSError("reset")]
        assert await one.ask("what is 1+1?") == "1+1 = 2."
        await one.settled()
        (row,) = one.box.outbox()
        assert (row.state, row.tries, row.native) == ("sent", 2, "sent-1")


async def test_a_message_that_cannot_be_sent_is_a_dead_letter(tmp_path: Path) -> None:
    """The owner is told in another chat, and it can be sent again."""
    async with office(tmp_path) as one:
        await one.ask("what is 1+1?")
        one.post.faults = [DeliveryError("the chat is gone", permanent=True)]
        await one.post.say("what is 2+2?", FRIEND)
        told = await one.post.got()
        assert (told.chat_id, "the chat is gone" in told.content) == (OWNER, True)
        (dead,) = one.box.outbox("dead")
        assert (dead.chat, dead.error) == ("post:2", "the chat is gone")
        assert one.box.resend(dead.row)
        assert await one.post.text() == "2+2 = 4."


async def test_what_a_stopped_gateway_leaves_another_one_ends(tmp_path: Path) -> None:
    """The first neither answers nor sends; a drain is no try."""
    path = write(tmp_path, nap=True)
    first, second = Post(), Post()
    async with office(tmp_path, first, path=path) as one:
        await one.post.say("nap()")
        first.hung = {"9"}
        await one.gateway.delivery.say("k", "post", "9", "waits")
        await one.napping()
    (tmp_path / "napping").unlink()
    (tmp_path / "awake").touch()
    async with office(tmp_path, second, path=path) as two:
        got = {(await second.got()).content for _ in range(2)}
        assert got == {"waits", "nap: awake"}
        await two.settled()
        assert {row.tries for row in two.box.outbox()} == {0}


# --- who may


async def test_a_stranger_costs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No model call, no download, no row: a code once, and an audit event."""
    async with office(tmp_path, script=[{"text": "never"}]) as one:
        one.post.files["f"] = b"x"
        with caplog.at_level("INFO", "wick_graph.audit"):
            for number in range(3):
                attached = [{"id": "f", "name": "a.txt"}]
                await one.post.say(f"hi {number}", "66", attachments=attached)
        code = await one.post.text()
        assert "Tell the owner this code" in code
        assert one.box.counts()["inbox"] == {}
        assert one.post.fetched == []
        assert caplog.text.count("gateway.refused") == 1
        assert one.gateway.store.threads.list() == []


async def test_files_come_after_admission_into_a_folder_that_tools_read(tmp_path: Path) -> None:
    agent = {"backend": {"type": "local", "workdir": "files"}}
    async with office(tmp_path, agent=agent) as one:
        one.post.files |= {"f": b"the notes", "g": RefusedError("the file g has too many bytes")}
        attached = [{"id": "f", "name": "a.txt"}, {"id": "g", "name": "g.bin"}]
        native = await one.post.say("what is 1+1?", attachments=attached)
        await one.post.got()
        (stored,) = files(tmp_path / "files/inbox")
        await one.ask(f'read_file(path="inbox/{stored.name}")')
        state: Any = (await one.gateway.store.aget({"configurable": {"thread_id": "post:1"}})) or {}
        human, *_ = state["channel_values"]["messages"]
        assert f"inbox/{stored.name}" in human.text
        assert "not read: the file g has too many bytes" in human.text
        assert "the notes" in str(state["channel_values"]["messages"])
        assert human.additional_kwargs["sender"]["native_id"] == native
        attached = [{"id": "f", "name": "b.txt"}]
        await one.ask("what is 1+1?", FRIEND, attachments=attached)
    assert len(files(tmp_path / "files/inbox")) == 1
    assert len(files(tmp_path)) == 2, "the other one is in a folder of its own"


async def test_others_work_in_folders_of_their_own(tmp_path: Path) -> None:
    agent = {"backend": {"type": "local", "workdir": "files"}}
    (tmp_path / "files").mkdir()
    (tmp_path / "files/secret.txt").write_text("of the owner")
    async with office(tmp_path, agent=agent) as one:
        read = 'read_file(path="secret.txt")'
        assert "of the owner" in await one.ask(read)
        assert "of the owner" not in await one.ask(read, FRIEND)
        group = {"chat": "-5", "group": True}
        assert "of the owner" not in await one.ask(read, OWNER, **group)


async def test_the_owner_s_memory_is_the_owner_s(tmp_path: Path) -> None:
    async with office(tmp_path) as one:
        assert "added" in await one.ask('memory_append(text="the door code is blue")')
        for about in ({"sender": FRIEND}, {"chat": "-5", "group": True}):
            assert "no memory" in await one.ask("memory_read()", **about)
        assert "blue" in await one.ask('memory_search(query="door")')


async def test_the_owner_s_forwarded_text_is_data(tmp_path: Path) -> None:
    async with office(tmp_path) as one:
        said = await one.ask('memory_append(text="x")', forwarded=True)
        assert "does not have" in said
    assert not [one for one in files(tmp_path) if "memory" in str(one)]


async def test_a_flood_costs_thirty_turns_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with office(tmp_path, clock=lambda: 1_800_000_000.0) as one:
        with caplog.at_level("INFO", "wick_graph.audit"):
            for number in range(100):
                await one.post.say(f"what is {number}+1?", FRIEND)
        assert await one.ask("what is 1+1?") is not None, "others are answered meanwhile"
        await one.settled()
        assert one.box.counts()["inbox"] == {"done": 31}
        assert caplog.text.count("gateway.refused") == 1


# --- a configuration


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"gateway": {"agent": "nobody"}}, "nobody"),
        ({"gateway": {"timezone": "Mars/Base"}}, "no time zone 'Mars/Base'"),
        ({"channels": {"post": {"owner": ["@ann"]}}}, "is no id of a sender"),
        ({"cron": {"x": {"cron": "every day", "text": "t"}}}, "cron.x: "),
    ],
)
def test_a_wrong_setting_is_said_before_the_start(
    tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    file = load_config(write(tmp_path, **more))
    with pytest.raises(ConfigError, match=said):
        Gateway(file, channels={"post": Post()})


FOR_USER = '''
from wick_graph import ToolResult, tool


@tool
def look() -> ToolResult:
    """Look."""
    artifact = {"for_user": "a picture of it"}
    return ToolResult(tool_call_id="", name="look", output="seen", artifact=artifact)
'''


@pytest.mark.parametrize("on", [True, False])
async def test_a_tool_s_text_for_the_person_is_sent_at_once_if_wanted(
    tmp_path: Path, on: bool
) -> None:
    name = f"looks_{on}"
    (tmp_path / f"{name}.py").write_text(FOR_USER)
    agent = {"tools": [f"{name}:look"]}
    async with office(tmp_path, agent=agent, gateway={"for_user": on}) as one:
        await one.post.say("look()")
        await one.post.got()
        await one.settled()
        texts = by_chat(one.box.outbox())["post:1"]
        assert texts == (["a picture of it"] * on) + ["look: seen"]
