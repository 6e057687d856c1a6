"""What counts for the budget of a sender: failed turns, tasks, what a decision allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.office import FRIEND, Office, office, write
from tests.gateway.test_gateway_asks import ASKED, TASKS, code_in, state_of
from tests.gateway.test_hostile import until
from wick_graph.errors import StorageError
from wick_graph.gateway import conversations


def spent(one: Office) -> tuple[int, int]:
    """The turns and the tokens of the one sender that has a budget."""
    (used,) = (data for data in one.box.facts("spent/").values())
    return used["turns"], used["tokens"]


async def tokens_of(one: Office, thread: str) -> int:
    return int((await state_of(one, thread))["usage"]["total_tokens"])


async def test_a_provider_that_counts_nothing_uses_the_budget_all_the_same(tmp_path: Path) -> None:
    """Many endpoints report no usage in streams."""
    script = [{"text": "word " * 100, "usage": [0, 0]}] * 2
    gateway = {"limits": {"tokens_per_day": 100}}
    async with office(tmp_path, script=script, gateway=gateway) as one:
        assert (await one.ask("hello", FRIEND)).startswith("word")
        assert "tokens of today are used up" in await one.ask("again", FRIEND)


async def test_failed_turns_count(tmp_path: Path) -> None:
    gateway = {"limits": {"turns_per_day": 2}}
    channels = {"post": {"owner": [], "allow_from": [FRIEND]}}
    path = write(tmp_path, script=[{"error": "no"}] * 40, gateway=gateway, channels=channels)
    async with office(tmp_path, path=path) as one:
        for _ in range(2):
            assert (await one.ask("hello", FRIEND)).startswith("Error processing message")
        assert "messages of today are used up" in await one.ask("again", FRIEND)


async def test_a_turn_counts_once_although_the_store_refused_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"limits": {"tokens_per_day": 1_000_000}}
    monkeypatch.setattr(conversations, "_RETRY", [0])
    async with office(tmp_path, gateway=limits) as one:
        settle, refusals = one.box.settle, iter([StorageError("the disk is full")])

        def refusing(*args: Any, **more: Any) -> Any:
            for error in refusals:
                raise error
            return settle(*args, **more)

        monkeypatch.setattr(one.box, "settle", refusing)
        assert await one.ask("what is 1+1?", FRIEND) == "1+1 = 2."
        await one.settled()
        assert [*refusals] == []
        assert spent(one)[0] == 1


@pytest.mark.parametrize("waits", [False, True], ids=["told", "awaited"])
async def test_tasks_count_once_for_who_started_them(tmp_path: Path, waits: bool) -> None:
    """The conversation is told of the end, or waits for it by a tool, which counts it there."""
    agents = {"helper": {"model": "scripted:demo"}}
    limits = {"limits": {"tokens_per_day": 1_000_000}}
    path = write(tmp_path, nap=True, agents=agents, gateway=limits)
    data = yaml.safe_load(path.read_text())
    data["agents"]["default"].update(TASKS)
    data["agents"]["helper"]["tools"] = data["agents"]["default"]["tools"][-1:]
    path.write_text(yaml.safe_dump(data))
    async with office(tmp_path, path=path) as one:
        started = await one.ask('start_async_task(agent="helper", task="nap()")', FRIEND)
        found = re.search(r"task_[0-9a-f]+", started)
        assert found is not None
        await one.napping()
        if waits:
            await one.post.say(f'await_async_tasks(task_ids=["{found[0]}"])', FRIEND)
            assert await until(lambda: len(one.box.inbox("open")) == 1)
        (tmp_path / "awake").touch()
        await one.post.got()
        assert await until(lambda: not one.box.facts("task/"))
        await one.settled()
        whole = await tokens_of(one, "post:2")
        if not waits:
            whole += await tokens_of(one, found[0])
        assert spent(one) == (1 + waits, whole)


async def test_a_run_that_goes_on_after_a_decision_counts(tmp_path: Path) -> None:
    limits = {"limits": {"tokens_per_day": 1_000_000}}
    async with office(tmp_path, agent=ASKED, gateway=limits) as one:
        await one.ask("/help")  # the owner has a chat
        await one.post.say("what is 2+2?", FRIEND)
        asked = [await one.post.text(), await one.post.text()]
        before = spent(one)
        await one.post.say(f"/approve {code_in(''.join(asked))}")
        await one.post.got()
        await one.post.got()
        await one.settled()
        assert before[0] == spent(one)[0] == 1
        assert before[1] < spent(one)[1] == await tokens_of(one, "post:2")
