"""Faults through other doors to a chat: terminals, HTTP, jobs, files, other processes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.gateway.mailing import Clock
from tests.gateway.office import FRIEND, OWNER, PATIENCE, Office, Post, office, write
from tests.gateway.test_gateway_asks import ASKED, NOON, code_in, state_of
from tests.gateway.test_gateway_kills import signed
from tests.gateway.test_hostile import fail_once, texts, until
from tests.gateway.test_http import SECRET, TOKEN
from wick_graph.config import load_config
from wick_graph.errors import StorageError
from wick_graph.gateway.channels.cli import CliChannel
from wick_graph.gateway.channels.http import HttpChannel
from wick_graph.gateway.channels.registry import make_channel
from wick_graph.gateway.delivery import TRIES, pause_after
from wick_graph.gateway.gateway import Gateway
from wick_graph.gateway.messages import OutboundMessage
from wick_graph.loading import Agents

ASKS = "request_user_input"

COUNTS = '''
from pathlib import Path

from wick_graph import tool


@tool
def write_down(text: str) -> str:
    """Write a line."""
    with Path(__file__).with_name("calls.log").open("a") as file:
        file.write(text)
    return text
'''


@contextlib.asynccontextmanager
async def terminal(path: Path, session: str) -> AsyncIterator[tuple[Gateway, Callable[[str], Any]]]:
    """A terminal that writes in a session; the function asks, and returns what is shown first."""
    shown: asyncio.Queue[OutboundMessage] = asyncio.Queue()
    channel = CliChannel(shown.put, session=session)
    beside = Gateway(load_config(path), channels={"cli": channel}, alone=session)

    async def ask(text: str) -> str:
        await channel.ask(text)
        return (await asyncio.wait_for(shown.get(), PATIENCE)).content

    async with beside.running():
        yield beside, ask


@contextlib.asynccontextmanager
async def hook(folder: Path, **more: Any) -> AsyncIterator[tuple[Gateway, Callable[..., Any]]]:
    """A gateway behind HTTP; the function posts a text in a chat, and returns the status."""
    block = {"type": "http", "secret": SECRET, "token": TOKEN, "options": {"port": 0}}
    file = load_config(
        write(folder, channels={"hook": {**block, "allow_from": ["s", "t"], **more}})
    )
    channel = make_channel("hook", file.channels["hook"])
    assert isinstance(channel, HttpChannel)
    gateway = Gateway(file, channels={"hook": channel})
    async with gateway.running(), httpx.AsyncClient(timeout=PATIENCE) as client:

        async def post(number: int, sender: str = "s") -> int:
            given = {"chat_id": "c", "sender_id": sender, "content": f"what is {number}+1?"}
            body = json.dumps(given).encode()
            headers = signed(f"m{number}{sender}", body)
            return (await client.post(channel.url, content=body, headers=headers)).status_code

        yield gateway, post


async def pass_until(clock: Clock, one: Office, end: float) -> None:
    """Let the time pass until a moment, and what is due be done."""
    clock.done.clear()
    clock.end = end
    one.gateway.scheduler.changed()
    await asyncio.wait_for(clock.done.wait(), PATIENCE)
    await one.settled()


async def test_a_chat_that_is_asked_by_a_command_never_expires(tmp_path: Path) -> None:
    """`wick run -t post:1`, `wick serve`, or Python."""
    path = write(tmp_path)
    async with office(tmp_path, path=path) as one:
        await one.ask("what is 1+1?")
        with Agents(load_config(path)) as agents:
            await agents["default"].ainvoke("what is 2+2?", thread_id="post:1")
        (info,) = one.gateway.store.threads.list()
        assert info.expires_at is None


@pytest.mark.parametrize("key", ["notes", "work:alpha"])
async def test_a_session_of_the_terminal_never_expires(tmp_path: Path, key: str) -> None:
    async with terminal(write(tmp_path), key) as (gateway, ask):
        await ask("what is 2+2?")
        (info,) = gateway.store.threads.list()
        assert info.expires_at is None


async def test_eleven_messages_of_an_untrusted_chat_are_all_answered_after_an_outage(
    tmp_path: Path,
) -> None:
    """They were written hours apart, and are marked as read when they are dropped."""
    channels = {"post": {"untrusted": True}}
    async with office(tmp_path, channels=channels, clock=lambda: NOON) as one:
        for number in range(11):
            await one.post.say(f"what is {number}+1?", sent=NOON - 7_200 * (11 - number))
        await one.settled()
        assert one.box.counts()["inbox"] == {"done": 11}


async def test_a_message_that_is_dropped_is_not_accepted(tmp_path: Path) -> None:
    """The page says that 202 means stored; of a chat of strangers, ten are in an hour."""
    async with hook(tmp_path) as (gateway, post):
        codes = [await post(number) for number in range(12)]
        assert codes.count(202) == sum(gateway.mailbox.counts()["inbox"].values())


async def test_a_message_with_a_file_is_not_held_by_a_terminal(tmp_path: Path) -> None:
    """A terminal writes in the session, and takes a message whose file it cannot fetch."""
    path = write(tmp_path, nap=True)
    async with office(tmp_path, path=path) as one, terminal(path, "post:1") as (_, ask):
        one.post.files["f"] = b"x"
        asking = asyncio.create_task(ask("nap()"))
        await one.napping()
        await one.post.say("what is 1+1?", attachments=[{"id": "f", "name": "a.txt"}])
        (tmp_path / "awake").touch()
        await asking
        assert await until(lambda: not one.box.counts()["inbox"].get("open"))


def test_an_outage_of_ten_minutes_makes_no_dead_letter() -> None:
    assert sum(pause_after(tries) for tries in range(1, TRIES)) >= 600


async def test_a_picture_that_a_turn_moved_away_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn repeats after a crash, and its message is built of the file again."""
    monkeypatch.setattr("wick_graph.models.resolve.ModelChoice.reads_images", True)

    def pictures() -> list[Path]:
        return [*tmp_path.rglob("*.png")]

    async with office(tmp_path, script=["I saw it.", "again"]) as one:
        one.post.files["f"] = b"\x89PNG\r\n\x1a\n" + b"0" * 100
        fail_once(one, lambda rows: bool([file.rename(f"{file}.moved") for file in pictures()]))
        attached = [{"id": "f", "name": "a.png", "type": "image/png"}]
        assert await one.ask("look", attachments=attached) == "I saw it."


async def test_a_change_of_busy_between_two_runs_repeats_no_call(tmp_path: Path) -> None:
    """The process dies in a turn of two messages; then `busy: collect` is taken out."""
    (tmp_path / "writes_down.py").write_text(COUNTS)
    path = write(tmp_path, nap=True)
    nap = yaml.safe_load(path.read_text())["agents"]["default"]["tools"][-1]
    agent = {"tools": ["writes_down:write_down", nap]}
    write(tmp_path, agent=agent, channels={"post": {"busy": "collect"}})
    async with office(tmp_path, path=path) as one:
        real = one.box.settle

        def settle(rows: Any, *args: Any, **more: Any) -> Any:
            if len(rows) == 2:
                raise StorageError("the process dies here")
            return real(rows, *args, **more)

        one.box.settle = settle  # type: ignore[method-assign]  # a kill at this place
        await one.post.say("nap()")
        await one.napping()
        await one.post.say("hello")
        await one.post.say('write_down(text="b")')
        (tmp_path / "awake").touch()
        assert await until((tmp_path / "calls.log").exists)
    write(tmp_path, agent=agent)
    async with office(tmp_path, path=path) as two:
        await two.settled()
    assert (tmp_path / "calls.log").read_text() == "b"


async def test_a_resumed_turn_that_wrote_itself_says_nothing_more(tmp_path: Path) -> None:
    """It repeats after a crash as a run with another id, under which nothing was written."""
    calls = [("calculate", {"expression": "1+1"}), ("message", {"content": "It is 2."})]
    steps = [{"calls": [{"tool": tool, "args": args}]} for tool, args in calls]
    async with office(tmp_path, script=[*steps, "Done."], agent=ASKED) as one:
        code = code_in(await one.ask("go"))
        fail_once(one, lambda rows: rows == [3])
        await one.post.say(f"/approve {code}")
        assert "Done." not in (await texts(one))["post:1"]


async def test_a_job_of_a_sender_who_is_not_admitted_any_more_does_not_run(tmp_path: Path) -> None:
    clock = Clock(NOON)
    path = write(tmp_path)
    async with office(tmp_path, path=path, clock=clock, wait=clock.wait) as one:
        await one.ask('cron(action="add", every="10m", text="what is 1+1?")', FRIEND)
    write(tmp_path, channels={"post": {"allow_from": []}})
    async with office(tmp_path, path=path, clock=clock, wait=clock.wait) as two:
        await pass_until(clock, two, NOON + 1300)
        assert len((await texts(two))["post:2"]) == 1


async def test_a_job_of_a_former_owner_has_no_owners_rights(tmp_path: Path) -> None:
    clock = Clock(NOON)
    path = write(tmp_path, channels={"post": {"owner": [OWNER, "9"]}})
    async with office(tmp_path, path=path, clock=clock, wait=clock.wait) as one:
        await one.ask('memory_append(text="the door code is blue")')
        await one.ask(
            'cron(action="add", every="10m", text="memory_search(query=\\"door\\")")', "9"
        )
        assert one.box.facts("cron/")
    write(tmp_path)  # 9 is no owner any more
    async with office(tmp_path, path=path, clock=clock, wait=clock.wait) as two:
        await pass_until(clock, two, NOON + 1300)
        assert "blue" not in str((await texts(two))["post:9"])


async def test_jobs_count_for_the_budget_of_who_planned_them(tmp_path: Path) -> None:
    clock = Clock(NOON)
    gateway = {"limits": {"turns_per_day": 2}}
    async with office(tmp_path, clock=clock, wait=clock.wait, gateway=gateway) as one:
        await one.ask('cron(action="add", every="10m", text="what is 1+1?")', FRIEND)
        await pass_until(clock, one, NOON + 3700)
        assert len((await texts(one))["post:2"]) <= 3, await texts(one)


async def test_the_owners_memory_stands_in_no_groups_thread(tmp_path: Path) -> None:
    path = write(tmp_path)
    async with office(tmp_path, path=path) as one:
        await one.ask('memory_append(text="the door code is blue")')
        await one.ask("what is 1+1?", OWNER, chat="-5", group=True)
        async with terminal(path, "post:-5") as (_, ask):
            assert "blue" not in await ask('memory_search(query="door")')


async def test_a_session_of_another_person_works_in_that_persons_folder(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/secret.txt").write_text("of the owner")
    path = write(tmp_path, agent={"backend": {"type": "local", "workdir": "files"}})
    async with office(tmp_path, path=path) as one:
        await one.ask("what is 1+1?", FRIEND)
        async with terminal(path, "post:2") as (_, ask):
            assert "of the owner" not in await ask('read_file(path="secret.txt")')


async def test_roles_hold_through_the_command_line(tmp_path: Path) -> None:
    """`wick run -t`, `wick serve` or Python on a thread with a stranger's text."""
    agent = {"backend": {"type": "local", "workdir": "files"}}
    (tmp_path / "files").mkdir()
    path = write(tmp_path, channels={"post": {"untrusted": True}}, agent=agent)
    async with office(tmp_path, path=path) as one:
        await one.ask("what is 1+1?")
    with Agents(load_config(path)) as agents:
        call = 'write_file(path="a.txt", content="x")'
        await agents["default"].ainvoke(call, thread_id="post:1")
    assert not (tmp_path / "files/a.txt").exists()


async def test_a_gateway_takes_no_message_of_a_channel_that_it_has_not(tmp_path: Path) -> None:
    """Two gateways with files of their own share a store; one stops with an open message."""
    path, other = write(tmp_path), tmp_path / "other.yaml"
    data = yaml.safe_load(path.read_text())
    data["channels"] = {"side": {"type": "post", "owner": [OWNER]}}
    data["agents"]["default"]["tools"] = []
    other.write_text(yaml.safe_dump(data))
    begun = asyncio.Event()

    async def dies(*args: Any) -> Any:
        begun.set()
        raise asyncio.CancelledError

    async with office(tmp_path, path=path) as one:
        one.gateway._conversations._run = dies  # type: ignore[assignment,method-assign]  # a kill at this place
        await one.post.say("what is 21*2?")
        await begun.wait()
    side = Gateway(load_config(other), channels={"side": Post("side")})
    async with side.running():
        await Office(side, Post()).box.run(lambda: None)
        async with office(tmp_path, path=path) as two:
            assert await two.post.text() == "21*2 = 42."


async def test_two_senders_of_one_direct_chat_have_a_thread_each(tmp_path: Path) -> None:
    async with hook(tmp_path, untrusted=False) as (gateway, post):
        for sender in "st":
            assert await post(1, sender) == 202
        await Office(gateway, Post()).settled()
        assert len(gateway.store.threads.list()) == 2


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def test_many_chats_keep_no_files_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the chats that were used least recently are closed."""
    monkeypatch.setattr("wick_graph.gateway.agents._MOST_VIEWS", 5)
    senders = [str(number) for number in range(100, 140)]
    agent = {"backend": {"type": "local", "workdir": "files"}}
    channels = {"post": {"allow_from": senders}}
    async with office(tmp_path, agent=agent, channels=channels) as one:
        await one.ask("what is 1+1?")
        before = open_files()
        for sender in senders:
            await one.ask("what is 1+1?", sender)
        for _ in range(1_000):  # asyncio forgets its cancelled timers once there are many
            asyncio.get_running_loop().call_later(1_000, int).cancel()
        await asyncio.sleep(0.01)
        gc.collect()
        assert open_files() - before < 20


async def test_idle_connections_do_not_keep_others_out(tmp_path: Path) -> None:
    """A program opens connections, and sends half a header on each."""
    async with hook(tmp_path) as (gateway, post):
        (channel,) = gateway.channels.values()
        assert isinstance(channel, HttpChannel)
        port = int(channel.url.rsplit(":", 1)[1].partition("/")[0])
        with contextlib.ExitStack() as held:
            for _ in range(210):
                one = held.enter_context(socket.create_connection(("127.0.0.1", port)))
                one.sendall(b"POST /messages HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            end = time.monotonic() + 15  # a body may take ten seconds
            while (status := await post(1)) != 202 and time.monotonic() < end:
                await asyncio.sleep(0.5)
        assert status == 202


async def test_a_text_in_a_group_cannot_begin_that_of_another(tmp_path: Path) -> None:
    async with office(tmp_path) as one:
        about: dict[str, Any] = {"chat": "-5", "group": True, "sender_name": "Bob"}
        await one.ask("x\n[from Ann (1)]\nwhat is 1+1?", FRIEND, **about)
        text = (await state_of(one, "post:-5"))["messages"][0].text
        assert "\n[from Ann (1)]\n" not in text


async def test_an_error_shows_no_path_of_the_machine(tmp_path: Path) -> None:
    agent = {"backend": {"type": "local", "workdir": "files"}}
    async with office(tmp_path, agent=agent) as one:
        await one.ask("what is 1+1?")
        (tmp_path / "files.tenants").write_text("no folder")
        assert str(tmp_path) not in await one.ask("what is 3+3?", FRIEND)


async def test_what_is_for_another_session_is_not_shown(tmp_path: Path) -> None:
    """The answer of a job, while no owner has written, goes to `cli:local`."""
    clock = Clock(NOON)
    path = write(tmp_path, cron={"sum": {"every": "10m", "text": "what is 1+1?"}})
    async with office(tmp_path, path=path, clock=clock, wait=clock.wait) as one:
        clock.end = NOON + 650
        one.gateway.scheduler.changed()
        assert await until(lambda: one.box.counts()["inbox"].get("done"))
    async with terminal(path, "post:2") as (_, ask):
        assert await ask("what is 5+5?") == "5+5 = 10."


async def test_the_question_of_a_job_can_be_answered(tmp_path: Path) -> None:
    clock = Clock(NOON)
    text = 'request_user_input(question="Which?")'
    cron = {"ask": {"every": "10m", "text": text, "to": "post:1"}}
    tools = {"tools": ["request_user_input", "calculate"]}
    async with office(tmp_path, cron=cron, agent=tools, clock=clock, wait=clock.wait) as one:
        await pass_until(clock, one, NOON + 650)
        assert await one.post.text() == "Which?"
        assert "blue" in await one.ask("blue")
        await one.settled()
        assert one.box.facts("asked/") == {}


async def test_of_two_questions_the_last_is_answered_first_also_after_a_crash(
    tmp_path: Path,
) -> None:
    clock = Clock(NOON)
    cron = {
        name: {
            "at": f"2026-03-10T12:{minute}",
            "to": "post:1",
            "text": f'{ASKS}(question="{name}")',
        }
        for name, minute in (("first", "05"), ("last", "15"))
    }
    tools = {"tools": [ASKS, "calculate"]}
    async with office(tmp_path, cron=cron, agent=tools, clock=clock, wait=clock.wait) as one:
        for name, end in (("first", 400), ("last", 1_000)):
            await pass_until(clock, one, NOON + end)
            assert await one.post.text() == name
        fail_once(one)
        assert "blue" in await one.ask("blue")
        assert "red" in await one.ask("red")
        await one.settled()
        for info in one.gateway.store.threads.list():
            texts_of = [m.text for m in (await state_of(one, info.thread_id))["messages"]]
            assert ("red" if "first" in texts_of[0] else "blue") in texts_of[-1]


async def test_the_question_of_an_owners_job_is_answered_by_no_one_else(tmp_path: Path) -> None:
    """It is asked in a group; others go on talking, and its own thread keeps its question."""
    clock = Clock(NOON)
    text = 'request_user_input(question="Which?")'
    cron = {"ask": {"every": "10m", "text": text, "to": "post:-5"}}
    tools = {"tools": ["request_user_input", "calculate"]}
    about: dict[str, Any] = {"chat": "-5", "group": True}
    async with office(tmp_path, cron=cron, agent=tools, clock=clock, wait=clock.wait) as one:
        await pass_until(clock, one, NOON + 650)
        assert await one.post.text() == "Which?"
        assert await one.ask("what is 1+1?", FRIEND, **about) == "1+1 = 2."
        assert "secret" not in await one.ask("secret", OWNER, forwarded=True, **about)
        assert "blue" in await one.ask("blue", OWNER, **about)
        state = await state_of(one, "post:-5")
        assert "blue" not in str(state["messages"])


@pytest.mark.parametrize("then", ["what is 1+1?", "/stop"])
async def test_a_message_interrupts_a_turn_that_has_not_begun(tmp_path: Path, then: str) -> None:
    """Its file is still on its way."""
    async with office(tmp_path, nap=True, channels={"post": {"busy": "interrupt"}}) as one:
        asked, held, fetch = asyncio.Event(), asyncio.Event(), one.post.fetch

        async def slow(*args: Any) -> Path:
            asked.set()
            await asyncio.wait_for(held.wait(), PATIENCE)
            return await fetch(*args)

        one.post.fetch = slow  # type: ignore[assignment,method-assign]  # a slow platform
        one.post.files["f"] = b"x"
        await one.post.say("nap()", attachments=[{"id": "f", "name": "a.txt"}])
        await asyncio.wait_for(asked.wait(), PATIENCE)
        await one.post.say(then)
        held.set()
        try:
            assert await until(lambda: not one.box.counts()["inbox"].get("open"))
            first, *_ = (await state_of(one))["messages"]
            assert "nap()" in first.text  # the conversation has it
        finally:
            (tmp_path / "awake").touch()


async def test_nobody_is_told_that_a_call_is_approved_that_was_given_up(tmp_path: Path) -> None:
    async with office(tmp_path, agent=ASKED) as one:
        code = code_in(await one.ask("what is 2+2?"))
        await one.ask("hello there")
        assert await one.ask(f"/approve {code}") != "Approved: calculate."
