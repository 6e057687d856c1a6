"""Where parts meet: approvals, questions, jobs, heartbeats, tasks and compaction behind chats."""

from __future__ import annotations

import asyncio
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock
from zlib import crc32

import pytest

from tests.gateway.mailing import Clock
from tests.gateway.office import FRIEND, OWNER, PATIENCE, Office, Post, by_chat, office, write
from wick_graph.config import load_config
from wick_graph.errors import ConfigError
from wick_graph.gateway.channels.cli import CliChannel
from wick_graph.gateway.gateway import Gateway
from wick_graph.gateway.messages import OutboundMessage
from wick_graph.gateway.questions import WAIT_SECONDS
from wick_graph.loading import check_agents

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp()

CHATS = int(os.environ.get("WICK_GATEWAY_CHATS", "10"))
"""Chats of two processes."""

ASKED = {"tools": ["calculate"], "approvals": {"calculate": True}}


def code_in(text: str) -> str:
    found = re.search(r"/approve ([A-Z0-9]+)", text)
    assert found is not None, text
    return found[1]


async def state_of(one: Office, thread: str = "post:1") -> dict[str, Any]:
    agent = await one.gateway.agents.get("default", {"owner": True, "group": False})
    return dict((await agent.graph.aget_state({"configurable": {"thread_id": thread}})).values)


# --- approvals


async def test_an_owner_approves_in_the_chat(tmp_path: Path) -> None:
    async with office(tmp_path, agent=ASKED) as one:
        await one.post.say("what is 21*2?")
        asked = await one.post.got()
        assert [code for _, code in asked.buttons] == [
            f"/approve {code_in(asked.content)}",
            f"/deny {code_in(asked.content)}",
        ]
        await one.post.say("Approve", button=asked.buttons[0][1])
        got = {await one.post.text() for _ in range(2)}
        assert got == {"Approved: calculate.", "21*2 = 42."}
        await one.settled()
        assert one.box.facts("ask/") == {}


async def test_a_call_for_another_person_is_asked_in_the_owner_s_chat(tmp_path: Path) -> None:
    async with office(tmp_path, agent=ASKED) as one:
        said = await one.ask("what is 1+1?", FRIEND)
        assert said == "An owner must allow this, and none has written to me yet."
        await one.post.say("/help")  # now the owner has
        await one.post.got()
        await one.post.say("what is 2+2?", FRIEND)
        asked, told = sorted([await one.post.got(), await one.post.got()], key=lambda m: m.chat_id)
        assert (asked.chat_id, told.chat_id) == (OWNER, FRIEND)
        assert told.content == "I have asked the owner, and go on when it is allowed."
        code = code_in(asked.content)
        assert await one.ask(f"/approve {code}", FRIEND) == "Only an owner can decide that."
        await one.post.say(f"/deny {code}")
        got = {(m.chat_id, m.content) for m in [await one.post.got(), await one.post.got()]}
        assert (OWNER, "Denied: calculate.") in got
        assert any(chat == FRIEND and "denied" in text for chat, text in got)
        assert "No question has this code" in await one.ask(f"/approve {code}")


async def test_a_question_without_an_answer_is_denied_after_a_day(tmp_path: Path) -> None:
    clock = Clock(NOON)
    path = write(tmp_path, agent=ASKED)
    async with office(tmp_path, path=path, clock=clock) as one:
        code = code_in(await one.ask("what is 1+1?"))
    clock.now += WAIT_SECONDS
    async with office(tmp_path, path=path, clock=clock) as two:
        assert "no owner answered within 24 hours" in await two.post.text()
        assert "more than 24 hours ago" in await two.ask(f"/approve {code}")


async def test_a_decision_survives_the_process(tmp_path: Path) -> None:
    """It was written, and the process died before its thread went on."""
    path = write(tmp_path, agent=ASKED)
    async with office(tmp_path, path=path) as one:
        code = code_in(await one.ask("what is 21*2?"))

        async def dies(message: Any) -> None:
            raise asyncio.CancelledError

        one.gateway._conversations._receive = dies
        await one.post.say(f"/approve {code}")
        async with asyncio.timeout(PATIENCE):
            while not any("decided" in fact for fact in one.box.facts("ask/").values()):
                await asyncio.sleep(0.01)
    async with office(tmp_path, path=path) as two:
        got = {await two.post.text() for _ in range(2)}
        assert got == {"Approved: calculate.", "21*2 = 42."}


@pytest.mark.parametrize("restarted", [False, True], ids=["at_once", "at_the_next_start"])
async def test_a_message_behind_an_approval_does_not_give_the_call_up(
    tmp_path: Path, restarted: bool
) -> None:
    """A platform brings what was written during an outage in one go."""
    path = write(tmp_path, agent=ASKED)
    async with office(tmp_path, path=path) as one:
        code = code_in(await one.ask("what is 21*2?"))
        await one.settled()
        if restarted:  # it dies when it has stored both
            one.gateway._queue = AsyncMock()  # type: ignore[method-assign]  # as if it hung
        await one.post.say(f"/approve {code}")
        await one.post.say("what is 1 plus 1?")
        if not restarted:
            got = [await one.post.text() for _ in range(3)]
    if restarted:
        async with office(tmp_path, path=path) as two:
            got = [await two.post.text() for _ in range(3)]
    assert got[:2] == ["Approved: calculate.", "21*2 = 42."]


async def test_the_next_message_answers_a_question_of_the_agent(tmp_path: Path) -> None:
    tools = {"tools": ["request_user_input", "calculate"]}
    path = write(tmp_path, agent=tools)
    async with office(tmp_path, path=path) as one:
        asked = await one.ask('request_user_input(question="Which?", options=["a", "b"])')
        assert asked == "Which?\n- a\n- b"
    async with office(tmp_path, path=path) as two:  # another process takes the answer
        assert "b, please" in await two.ask("b, please")
        assert two.box.facts("asked/") == {}
        assert await two.ask("what is 1+1?") == "1+1 = 2."


async def test_a_question_answered_elsewhere_takes_no_message(tmp_path: Path) -> None:
    tools = {"tools": ["request_user_input", "calculate"]}
    async with office(tmp_path, agent=tools) as one:
        await one.ask('request_user_input(question="Which?")')
        agent = await one.gateway.agents.get("default", {"owner": True, "group": False})
        await agent.aresume("post:1", "from the command line")
        assert await one.ask("what is 1+1?") == "1+1 = 2."


async def test_a_question_of_an_agent_that_is_gone_blocks_no_chat(tmp_path: Path) -> None:
    clock = Clock(NOON)
    tools = {"tools": ["request_user_input"]}
    job = {"every": "10m", "text": 'request_user_input(question="Which?")', "to": "post:1"}
    helper = {"model": "scripted:demo", **tools}
    more: dict[str, Any] = {
        "cron": {"ask": {**job, "agent": "helper"}},
        "agents": {"helper": helper},
    }
    async with office(tmp_path, **more, clock=clock, wait=clock.wait) as one:
        clock.end = NOON + 660
        one.gateway.scheduler.changed()
        assert await one.post.text() == "Which?"
        await one.settled()
    async with office(tmp_path) as two:  # another file, in which neither is
        assert await two.ask("what is 1+1?") == "1+1 = 2."
        assert two.box.facts("asked/") == {}


async def test_a_new_conversation_drops_its_own_question_and_no_job_s(tmp_path: Path) -> None:
    clock = Clock(NOON)
    asks = 'request_user_input(question="Which?")'
    tools = {"tools": ["request_user_input", "calculate"]}
    cron = {"ask": {"every": "10m", "text": asks, "to": "post:1"}}
    async with office(tmp_path, agent=tools, cron=cron, clock=clock, wait=clock.wait) as one:
        assert await one.ask(asks) == "Which?"
        clock.end = NOON + 660
        one.gateway.scheduler.changed()
        assert await one.post.text() == "Which?"
        await one.settled()
        await one.ask("/new")
        assert await one.ask("blue") == "request_user_input: blue"
        assert await one.ask("what is 1+1?") == "1+1 = 2."
        assert one.box.facts("asked/") == {}


# --- jobs, heartbeats, tasks


async def test_a_job_of_the_file_asks_and_tells_the_owner(tmp_path: Path) -> None:
    clock = Clock(NOON)
    clock.end = NOON + 3600
    cron = {"sum": {"every": "10m", "text": "what is 1+1?", "to": "post:1"}}
    async with office(tmp_path, cron=cron, clock=clock, wait=clock.wait) as one:
        await asyncio.wait_for(clock.done.wait(), PATIENCE)
        await one.settled()
        assert by_chat(one.box.outbox()) == {"post:1": ["1+1 = 2."] * 6}
        found = one.gateway.store.threads.list()
        assert len({info.thread_id for info in found}) == 6
        assert all(info.expires_at is not None for info in found)


async def test_a_job_of_a_chat_asks_there_with_its_rights(tmp_path: Path) -> None:
    clock = Clock(NOON)
    async with office(tmp_path, clock=clock, wait=clock.wait) as one:
        await one.ask('cron(action="add", every="10m", text="what is 1+1?")', FRIEND)
        clock.end = NOON + 1200
        one.gateway.scheduler.changed()
        got = [await one.post.got() for _ in range(2)]
        assert {(m.chat_id, m.content) for m in got} == {(FRIEND, "1+1 = 2.")}
        origin = (await state_of(one, one.gateway.store.threads.list()[0].thread_id))["origin"]
        assert (origin["role"], origin["sender_id"]) == ("user", FRIEND)


async def test_a_heartbeat_looks_at_its_file(tmp_path: Path) -> None:
    clock = Clock(NOON)
    clock.end = NOON + 4000
    (tmp_path / "workspace").mkdir()
    beat = tmp_path / "workspace/HEARTBEAT.md"
    beat.write_text("# Heartbeat\n\n- what is 365*24?\n")
    heart = {"every": "30m", "to": "post:1", "model": "scripted:demo"}
    more: dict[str, Any] = {"clock": clock, "wait": clock.wait, "gateway": {"heartbeat": heart}}
    async with office(tmp_path, script=["of the agent's own model"], **more) as one:
        await asyncio.wait_for(clock.done.wait(), PATIENCE)
        await one.settled()
        assert by_chat(one.box.outbox()) == {"post:1": ["365*24 = 8760."] * 3}
        found = one.gateway.store.threads.list()
        lengths = [len((await state_of(one, info.thread_id))["messages"]) for info in found]
        assert lengths == [lengths[0]] * 3, "each in a thread of its own, which does not grow"
        assert all(info.expires_at is not None for info in found)


async def test_a_heartbeat_without_tasks_calls_no_model(tmp_path: Path) -> None:
    clock = Clock(NOON)
    clock.end = NOON + 86_400
    gateway = {"heartbeat": {"every": "5m"}}
    async with office(tmp_path, gateway=gateway, clock=clock, wait=clock.wait) as one:
        await asyncio.wait_for(clock.done.wait(), PATIENCE)
        assert one.box.counts() == {"inbox": {}, "outbox": {}}
    assert "HEARTBEAT_OK" in (tmp_path / "workspace/HEARTBEAT.md").read_text()


TASKS = {"subagents": {"helper": {"description": "It helps.", "background": True}}}


async def test_a_task_reports_back(tmp_path: Path) -> None:
    agents = {"helper": {"model": "scripted:demo", "tools": ["calculate"]}}
    async with office(tmp_path, agent=TASKS, agents=agents) as one:
        started = await one.ask('start_async_task(agent="helper", task="what is 17*3?")')
        assert "task_id" in started
        assert await one.post.text() == "17*3 = 51."
        await one.settled()
        assert one.box.facts("task/") == {}
        assert (await state_of(one))["messages"][-1].text == "17*3 = 51."


async def test_a_logged_task_costs_no_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agents = {"helper": {"model": "scripted:demo", "tools": ["calculate"]}}
    gateway = {"announce": "log"}
    with caplog.at_level("INFO"):
        async with office(tmp_path, agent=TASKS, agents=agents, gateway=gateway) as one:
            await one.ask('start_async_task(agent="helper", task="what is 17*3?")')
            async with asyncio.timeout(PATIENCE):
                while one.box.facts("task/"):
                    await asyncio.sleep(0.01)
            await one.settled()
            assert one.post.sent.empty()
    assert "17*3 = 51." in caplog.text


# --- compaction


async def test_a_long_conversation_is_summarised_after_the_reply(tmp_path: Path) -> None:
    script = [f"answer {number}" for number in range(40)]
    gateway = {"compaction": {"messages": 6, "keep": 2}}
    async with office(tmp_path, script=script, gateway=gateway) as one:
        for number in range(4):
            await one.ask(f"question {number}")
        async with asyncio.timeout(PATIENCE):
            while not (await state_of(one)).get("summary"):
                await asyncio.sleep(0.01)
        assert len((await state_of(one))["messages"]) == 8, "the history stays whole"


async def test_the_terminal_writes_in_a_session_beside_a_gateway(tmp_path: Path) -> None:
    """Its own process answers it; what it leaves, the gateway goes on with."""
    path = write(tmp_path)
    async with office(tmp_path, path=path) as one:
        await one.ask("what is 1+1?")
        shown: asyncio.Queue[OutboundMessage] = asyncio.Queue()
        terminal = CliChannel(shown.put, session="post:1")
        beside = Gateway(load_config(path), channels={"cli": terminal}, alone="post:1")
        async with beside.running():
            await terminal.ask("what is 2+2?")
            assert (await asyncio.wait_for(shown.get(), PATIENCE)).content == "2+2 = 4."
        said = [m.text for m in (await state_of(one))["messages"] if m.type == "human"]
        assert said == ["what is 1+1?", "what is 2+2?"]


# --- two processes


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_two_gateways_on_one_store_answer_each_message_once(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    """Each message comes to both, as from two webhooks; a job is due in both."""
    on_file = database == "sqlite"
    url = "sqlite:///gateway.db" if on_file else str(request.getfixturevalue("postgres_url"))
    clocks = [Clock(NOON), Clock(NOON)]
    cron = {"sum": {"every": "10m", "text": "what is 100+1?", "to": "post:1"}}
    people = [str(number) for number in range(1, CHATS + 1)]
    channels = {"post": {"owner": people}}
    path = write(tmp_path, cron=cron, channels=channels, store=url)
    posts = [Post(), Post()]
    async with (
        office(tmp_path, posts[0], path=path, clock=clocks[0], wait=clocks[0].wait) as one,
        office(tmp_path, posts[1], path=path, clock=clocks[1], wait=clocks[1].wait) as two,
    ):

        async def both(sender: str, number: int) -> None:
            text, native = f"what is {number}+1?", f"n{sender}-{number}"
            await asyncio.gather(*(p.say(text, sender, native_id=native) for p in posts))

        async def talk(sender: str) -> None:
            for number in range(3):
                await both(sender, number)

        await asyncio.gather(*map(talk, people))
        for clock in clocks:
            clock.end = NOON + 1800
        for gateway in (one.gateway, two.gateway):
            gateway.scheduler.changed()
        async with asyncio.timeout(PATIENCE):
            while one.box.counts()["outbox"].get("sent", 0) < 3 * CHATS + 3:
                await asyncio.sleep(0.05)
        await one.settled()
        found = by_chat(one.box.outbox(limit=100_000))
        for sender in people:
            said = [text for text in found[f"post:{sender}"] if "100" not in text]
            assert said == ["0+1 = 1.", "1+1 = 2.", "2+1 = 3."]
        assert [t for t in found["post:1"] if "100" in t] == ["100+1 = 101."] * 3
        assert posts[0].sent.qsize() + posts[1].sent.qsize() == 3 * CHATS + 3


WHO = '''
from dataclasses import dataclass

from wick_graph import ToolContext, tool


@dataclass(frozen=True, slots=True)
class Who:
    user: str
    chat_id: str
    plan: str = "free"


@tool
def whoami(ctx: ToolContext) -> str:
    """Say who asks."""
    return f"{ctx.context.user} {ctx.context.chat_id} {ctx.context.plan}"
'''


@pytest.mark.parametrize("approvals", [{}, {"whoami": True}])
async def test_the_context_of_a_turn_is_what_the_chat_knows(
    tmp_path: Path, approvals: dict[str, bool]
) -> None:
    name = f"who_{crc32(str(tmp_path).encode())}"
    (tmp_path / f"{name}.py").write_text(WHO)
    use = {"use": f"{name}:Who", "subject": "user"}
    agent = {"tools": [f"{name}:whoami"], "context": use, "approvals": approvals}
    async with office(tmp_path, agent=agent) as one:
        await one.ask("hello")
        await one.post.say("whoami()", FRIEND)
        if approvals:
            asked, _ = sorted([await one.post.got(), await one.post.got()], key=lambda m: m.chat_id)
            await one.ask(f"/approve {code_in(asked.content)}")
        await one.settled()
        assert "post:2 2 free" in by_chat(one.box.outbox())["post:2"][-1]


@pytest.mark.parametrize(
    ("held", "fault"),
    [("secret: str", r"secret \(missing\)"), ("channel: int", r"channel \(int parsing\)")],
)
async def test_a_context_that_no_chat_knows_is_refused_at_the_start(
    tmp_path: Path, held: str, fault: str
) -> None:
    name = f"who_{crc32(str(tmp_path).encode())}"
    code = f"from dataclasses import dataclass\n\n\n@dataclass\nclass Key:\n    {held}\n"
    (tmp_path / f"{name}.py").write_text(code)
    agent = {"context": {"use": f"{name}:Key"}}
    said = rf"agents\.yaml:\d+: agents\.default\.context: .*Key: {fault}; a chat knows"
    with pytest.raises(ConfigError, match=said):
        async with office(tmp_path, agent=agent):
            pass
    with pytest.raises(ConfigError, match=said):
        check_agents(load_config(tmp_path / "agents.yaml"))
    path = write(tmp_path, agent=agent, channels={"post": {"agent": "other"}}, agents={"other": {}})
    check_agents(load_config(path))  # it answers no chat


@pytest.mark.parametrize(("agent", "jobs"), [("clerk", {}), ("", {"job": {"to": "desk:1"}})])
def test_a_context_for_one_channel_serves_the_agent_of_that_channel(
    tmp_path: Path, agent: str, jobs: Any
) -> None:
    name = f"who_{crc32(str(tmp_path).encode())}"
    code = "from dataclasses import dataclass\nfrom typing import Literal\n\n\n"
    code += "@dataclass\nclass Key:\n    channel: Literal['desk']\n"
    (tmp_path / f"{name}.py").write_text(code)
    jobs = {
        key: {**one, "every": "1h", "text": "Look.", "agent": "clerk"} for key, one in jobs.items()
    }
    others: Any = {"clerk": {"context": {"use": f"{name}:Key"}}}
    for to, says in (("desk", ""), ("post", "agents.clerk.context: .*Key: channel")):
        channels = {"post": {}, "desk": {"agent": agent} if agent else {}}
        if to == "post":
            channels["post"] = {"agent": "clerk"}
        path = write(tmp_path, agent={}, channels=channels, agents=others, cron=jobs)
        if says:
            with pytest.raises(ConfigError, match=says):
                check_agents(load_config(path))
        else:
            check_agents(load_config(path))
