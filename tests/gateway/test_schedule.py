"""When jobs and heartbeats are due, on a clock that the tests set."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.gateway.mailing import Clock, at, receiver, taken
from wick_graph import Agent
from wick_graph.config.gateway import CronConfig, HeartbeatConfig
from wick_graph.errors import ConfigError, StorageError
from wick_graph.gateway.messages import InboundMessage
from wick_graph.gateway.schedule import (
    MAX_HEARTBEAT_CHARS,
    TEMPLATE,
    Job,
    Scheduler,
    due,
    has_tasks,
    hours_of,
    is_active,
    is_silent,
    next_times,
    read_tasks,
)
from wick_graph.store import SqlSaver
from wick_graph.testing import Lane, ScriptedModel, When, respond

BERLIN = ZoneInfo("Europe/Berlin")

NOON = at("2026-06-01T12:00:00+00:00")


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'threads.db'}") as made:
        yield made


def job(zone: Any = BERLIN, made: float = 0.0, **config: Any) -> Job:
    return Job("j", CronConfig(text="Look", **config), zone, made)


def shown(times: Any) -> list[str]:
    return [datetime.fromtimestamp(one, UTC).strftime("%m-%d %H:%M") for one in times]


# --- the times of a job


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"cron": "0 8 * * MON-FRI"}, ["06-02 06:00", "06-03 06:00"]),
        ({"cron": "0 8 * * *", "timezone": "Asia/Tokyo"}, ["06-01 23:00", "06-02 23:00"]),
        ({"every": "12h"}, ["06-02 00:00", "06-02 12:00"]),
        ({"at": "2026-06-02T08:00"}, ["06-02 06:00"]),
        ({"at": "2026-06-02T08:00Z"}, ["06-02 08:00"]),
        ({"at": "2026-05-02T08:00"}, []),
        ({"at": "9999-12-31T23:59:59-23:59"}, []),
        ({"cron": "0 0 30 2 *"}, None),
    ],
)
def test_the_times_of_a_job(config: dict[str, Any], expected: list[str] | None) -> None:
    if expected is None:
        with pytest.raises(ConfigError, match="no cron expression"):
            job(**config)
        return
    assert shown(next_times(job(**config), NOON, NOON + 47 * 3600))[:2] == expected


@pytest.mark.parametrize(
    "expression",
    [*("30 2 * * *", "0 2 * * *", "0,30 2 * * *"), *("*/15 2 * * *", "0 */2 * * *", "59 1 * * *")],
)
@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_a_day_on_which_the_clock_changes_has_each_time_once(expression: str, day: str) -> None:
    """In Berlin 02:00 to 03:00 is left out in March, and comes twice in October."""
    local = datetime.fromisoformat(day).replace(tzinfo=BERLIN)
    begin, end = local.timestamp() - 1, (local + timedelta(days=1)).timestamp() - 1
    times = [*next_times(job(cron=expression), begin, end)]
    usual = [*next_times(job(zone=ZoneInfo("UTC"), cron=expression), 86_399, 2 * 86_400 - 1)]
    clocks = [datetime.fromtimestamp(one, BERLIN).strftime("%H:%M") for one in times]
    assert len(clocks) == len(set(clocks))  # none twice
    if day == "2026-10-25":
        assert len(times) == len(usual)
    else:  # those of the hour that is left out come at its end, together
        skipped = [one for one in usual if 7200 <= one % 86_400 < 10_800]
        assert len(times) == len(usual) - len(skipped) + bool(skipped)
    for second in range(int(begin), int(end), 900):  # from wherever one looks, they are the same
        assert [*next_times(job(cron=expression), second, end)] == [t for t in times if t > second]


def test_each_job_of_a_day_in_berlin_runs_once_however_often_one_looks(saver: SqlSaver) -> None:
    jobs = {
        "night": CronConfig(text="n", cron="30 2 * * *"),
        "day": CronConfig(text="d", every=86400),
    }
    for begin in ("2026-03-28T23:30:00+01:00", "2026-10-24T23:30:00+02:00"):
        clock = Clock(at(begin))
        clock.end = clock.now + 5 * 3600
        run(saver, clock, jobs=jobs, timezone="Europe/Berlin")
    assert sorted(message.native_id for message in taken(saver)) == [
        *("cron/day/2026-03-29T00:00:00Z", "cron/day/2026-10-25T00:00:00Z"),
        *("cron/night/2026-03-29T01:00:00Z", "cron/night/2026-10-25T00:30:00Z"),
    ]


@pytest.mark.parametrize(
    "config",
    [
        *({"at": "soon"}, {"at": "2026-06-31T00:00"}),
        *({"cron": "* * * *"}, {"cron": "0 0 0 * * *"}, {"cron": "@daily"}, {"cron": "61 * * * *"}),
        *({"cron": "a b c d e"}, {"cron": f"{'1,' * 99}1 * * * *"}, {"cron": "*/0 * * * *"}),
        *(
            {"cron": "0 0 * * 1#2/3"},
            {"cron": "0 0 * * L"},
            {"cron": "٣ * * * *"},
            {"cron": "-1 * * * *"},
        ),
        *({"every": 1.0}, {"every": "1h", "timezone": "../etc/passwd"}),
        *({"every": "1h", "timezone": "Europe"}, {"every": "1h", "timezone": ""}),
    ],
)
def test_a_job_that_cannot_run_is_refused_in_one_sentence(config: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, ValueError)) as caught:
        job(**config)
    if isinstance(caught.value, ConfigError):
        assert len(str(caught.value)) < 250


def test_a_refused_job_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^cron.mine: 'soon' is no time; write it as"):
        Scheduler(None, None, jobs={"mine": CronConfig(text="x", at="soon")})  # type: ignore[arg-type]  # not used


HOURLY: dict[str, Any] = {"every": "1h", "grace": "3h"}


@pytest.mark.parametrize(
    ("missed", "expected"),
    [("skip", []), ("once", ["15:00"]), ("all", ["13:00", "14:00", "15:00"])],
)
def test_times_at_which_nothing_ran(missed: Any, expected: list[str]) -> None:
    """From 05:00 to 15:30 nothing ran; grace reaches back to 12:30."""
    now = at("2026-06-01T15:30:00+00:00")
    late = due(job(**HOURLY, missed=missed), now - 10.5 * 3600, now, now)
    assert [one[6:] for one in shown(late)] == expected


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_a_time_at_which_the_process_ran_is_not_missed(missed: Any) -> None:
    now = at("2026-06-01T15:04:00+00:00")  # the machine was busy for four minutes
    late = due(job(**HOURLY, missed=missed), now - 7200, now - 3600, now)
    assert [one[6:] for one in shown(late)][-1] == "15:00"


def test_a_suspended_machine_makes_up_for_one_time() -> None:
    now = at("2026-06-01T15:30:00+00:00")
    late = due(job(**HOURLY), now - 8 * 3600, now - 8 * 3600, now)
    assert [one[6:] for one in shown(late)] == ["15:00"]


def test_making_up_is_bounded() -> None:
    every = job(cron="* * * * *", missed="all", grace="2d")
    assert len(due(every, 0.0, NOON, NOON)) == 1_000
    assert len(due(job(every="1m", missed="all", grace="2d"), 0.0, NOON, NOON)) == 1_000


# --- the loop


def run(saver: SqlSaver, clock: Clock, **given: Any) -> None:
    async def go() -> None:
        given.setdefault("jobs", {})
        clock.done = asyncio.Event()
        receive = given.pop("receive", None) or receiver(saver)
        made = Scheduler(saver.mailbox, receive, clock=clock, wait=clock.wait, **given)
        task = asyncio.create_task(made.run())
        await asyncio.wait_for(clock.done.wait(), 60)
        task.cancel()

    asyncio.run(go())


def test_a_job_becomes_a_message_to_the_owners_last_chat(saver: SqlSaver) -> None:
    saver.mailbox.put_fact("last-chat", "telegram:7")
    clock = Clock(NOON)
    clock.end = NOON + 3 * 3600
    run(saver, clock, jobs={"j": CronConfig(text="Look", every=7200, agent="clerk")})
    (message,) = taken(saver)
    assert message.to_json() == {
        "channel": "system",
        "sender_id": "cron:j",
        "chat_id": "telegram:7",
        "content": "Look",
        "session_key": "cron:j/2026-06-01T14:00:00Z",
        "metadata": {
            "native_id": "cron/j/2026-06-01T14:00:00Z",
            "sent": NOON + 7200,
            "kind": "cron",
            "cron": "j",
            "agent": "clerk",
        },
    }


def test_two_processes_give_one_row(saver: SqlSaver) -> None:
    jobs = {"j": CronConfig(text="Look", every=600)}
    for _ in range(2):
        clock = Clock(NOON)
        clock.end = NOON + 3600
        saver.mailbox.drop_fact(
            "cron-last/j"
        )  # the second one starts before the first has noted it
        run(saver, clock, jobs=jobs)
    assert len(taken(saver)) == 6


@pytest.mark.parametrize(("missed", "count"), [("skip", 1), ("once", 2), ("all", 6)])
def test_a_process_that_comes_back_makes_up_for_what_it_missed(
    missed: Any, count: int, saver: SqlSaver
) -> None:
    jobs = {"j": CronConfig(text="Look", every=600, missed=missed)}
    clock = Clock(NOON)
    clock.end = NOON + 660
    run(saver, clock, jobs=jobs)
    assert len(taken(saver)) == 1
    clock.now = clock.end = NOON + 3900
    run(saver, clock, jobs=jobs)
    assert len(taken(saver)) == count


def test_a_job_whose_times_have_changed_has_missed_none(saver: SqlSaver) -> None:
    clock = Clock(NOON)
    run(saver, clock, jobs={"j": CronConfig(text="Look", every=86400)})
    clock.now = clock.end = NOON + 1800
    run(saver, clock, jobs={"j": CronConfig(text="Look", every=600)})
    assert taken(saver) == []


def test_a_clock_that_is_set_back_silences_no_job(saver: SqlSaver) -> None:
    jobs = {"j": CronConfig(text="Look", every=600)}
    clock = Clock(NOON + 10 * 365 * 86_400)
    clock.end = clock.now + 660
    run(saver, clock, jobs=jobs)
    clock.now, clock.end = NOON, NOON + 660
    run(saver, clock, jobs=jobs)
    assert len(taken(saver)) == 2


def test_a_store_that_fails_delays_a_job_and_loses_none(saver: SqlSaver, caplog: Any) -> None:
    good, failures = receiver(saver), [1, 2, 3]

    async def receive(message: InboundMessage) -> None:
        if failures.pop() if failures else 0:
            raise StorageError("the disk is full")
        await good(message)

    clock = Clock(NOON)
    clock.end = NOON + 1300
    run(saver, clock, receive=receive, jobs={"j": CronConfig(text="Look", every=600)})
    assert len(taken(saver)) == 2
    assert "jobs wait, since the mailbox cannot be used: the disk is full" in caplog.text


def test_a_fact_that_cannot_be_read_stops_no_other_job(saver: SqlSaver, caplog: Any) -> None:
    for number, bad in enumerate([None, 7, {}, {"job": {"text": "x"}}, {"job": {}, "made": "x"}]):
        saver.mailbox.put_fact(f"cron/bad{number}", bad)
    clock = Clock(NOON)
    clock.end = NOON + 660
    run(saver, clock, jobs={"j": CronConfig(text="Look", every=600)})
    assert len(taken(saver)) == 1
    assert "the job cron/bad3 cannot be read and does not run" in caplog.text


async def test_a_change_wakes_the_loop_from_any_thread(saver: SqlSaver) -> None:
    looked = asyncio.Event()

    async def wait(event: asyncio.Event, seconds: float) -> None:
        looked.set()
        await event.wait()

    made = Scheduler(saver.mailbox, receiver(saver), jobs={}, clock=lambda: NOON, wait=wait)
    made.changed()  # before it runs, it does nothing
    task = asyncio.create_task(made.run())
    for _ in range(3):
        await asyncio.wait_for(looked.wait(), 60)
        looked.clear()
        await asyncio.to_thread(made.changed)
    task.cancel()


def look(saver: SqlSaver, clock: Clock, times: int, receive: Any = None, **given: Any) -> None:
    """Look so many times, each when the next is due."""

    async def go() -> None:
        given.setdefault("jobs", {})
        made = Scheduler(saver.mailbox, receive or receiver(saver), clock=clock, **given)
        for _ in range(times):
            clock.now = await made.look()

    asyncio.run(go())


# --- heartbeats


@pytest.mark.parametrize(
    "text",
    [
        *(
            "HEARTBEAT_OK",
            " HEARTBEAT_OK.\n",
            "**HEARTBEAT_OK**",
            "__HEARTBEAT_OK__",
            "`HEARTBEAT_OK`",
        ),
        *(
            '"HEARTBEAT_OK"',
            "„HEARTBEAT_OK“",
            "```\nHEARTBEAT_OK\n```",
            "```text\nHEARTBEAT_OK.\n```",
        ),
        *("```HEARTBEAT_OK```", "```HEARTBEAT_OK\n```", "~~~\nHEARTBEAT_OK\n~~~", "HEARTBEAT\\_OK"),
        *(
            "# HEARTBEAT_OK",
            "> HEARTBEAT_OK",
            "- HEARTBEAT_OK",
            "<b>HEARTBEAT_OK</b>",
            "(HEARTBEAT_OK)!",
        ),
        *(
            "\u200bHEARTBEAT_OK\ufeff",
            "✅ HEARTBEAT_OK",
            "***`HEARTBEAT_OK`***.",
            "HEARTBEAT_OK\nHEARTBEAT_OK",
        ),
    ],
)
def test_an_answer_is_silent_in_any_wrapping(text: str) -> None:
    assert is_silent(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "OK", "HEARTBEAT_OK, but the disk is full", "HEARTBEAT_OK_", "NOT HEARTBEAT_OK")[
            :4
        ],
        *("The disk is full. HEARTBEAT_OK", "NOT HEARTBEAT_OK", "HEARTBEAT_OKAY", "HEARTBEAT_OK 2"),
        *("```\nall\n```", f"HEARTBEAT_OK{'!' * 300}"),
    ],
)
def test_an_answer_that_says_anything_is_sent(text: str) -> None:
    assert not is_silent(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        (TEMPLATE, False),
        ("\ufeff# Tasks\n\n## Daily\n- \n* [ ]\n1.\n---\n", False),
        ("# Tasks\n<!-- - look\nat mail -->\n", False),
        ("<!-- never ends\n- look", False),
        ("# Tasks\n- look at mail", True),
        ("look", True),
        ("- [x] done", True),
        ("<!-- a --> look <!-- b -->", True),
    ],
)
def test_a_heartbeat_file_has_tasks_or_none(text: str, expected: bool) -> None:
    assert has_tasks(text) is expected


@pytest.mark.parametrize(
    ("hours", "active"),
    [("08:00-22:00", {8, 12, 21}), ("22:00-06:00", {22, 23, 0, 5}), ("0:00-24:00", {0, 8, 23})],
)
def test_active_hours_may_span_midnight(hours: str, active: set[int]) -> None:
    read = hours_of(hours)
    for hour in (0, 5, 6, 7, 8, 12, 21, 22, 23):
        moment = at(f"2026-06-01T{hour:02}:00:00+02:00")
        assert is_active(read, BERLIN, moment) is (hour in active or hours == "0:00-24:00")


@pytest.mark.parametrize(
    "text", ["8-22", "25:00-26:00", "08:00-08:00", "08:60-09:00", "", "24:00-1:00"]
)
def test_active_hours_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write them as 08:00-22:00"):
        hours_of(text)


def test_a_missing_file_is_made_and_asks_nothing(tmp_path: Path) -> None:
    assert read_tasks(tmp_path) == ""
    assert (tmp_path / "HEARTBEAT.md").read_text(encoding="utf-8") == TEMPLATE
    assert read_tasks(tmp_path) == ""
    assert read_tasks(tmp_path / "nowhere") == ""


def test_a_file_that_cannot_be_read_asks_nothing(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "HEARTBEAT.md").mkdir()
    assert read_tasks(tmp_path) == ""
    assert "HEARTBEAT.md cannot be read" in caplog.text


def test_a_long_file_is_cut_visibly(tmp_path: Path) -> None:
    (tmp_path / "HEARTBEAT.md").write_bytes(b"\xff look " + b"x" * 10**6)
    text = read_tasks(tmp_path)
    assert len(text) < MAX_HEARTBEAT_CHARS + 100
    assert text.endswith("[HEARTBEAT.md goes on; the rest is cut off]")


def beating(saver: SqlSaver, folder: Path, hours: float, **given: Any) -> list[InboundMessage]:
    clock = Clock(given.pop("start", NOON))
    clock.end = clock.now + hours * 3600
    heart = HeartbeatConfig(**given)
    run(saver, clock, heartbeat=heart, workspace=folder, timezone="Europe/Berlin")
    return taken(saver)


def test_a_heartbeat_asks_what_the_file_says(saver: SqlSaver, tmp_path: Path) -> None:
    (tmp_path / "HEARTBEAT.md").write_text("- look at {mail}", encoding="utf-8")
    first, second = beating(saver, tmp_path, 0.6, agent="heart", model="small", to="http:x")
    assert "- look at {mail}" in first.content
    assert "HEARTBEAT_OK" in first.content
    assert (first.chat_id, first.sender_id) == ("http:x", "heartbeat")
    assert first.metadata["sent"] == NOON + 60
    assert second.metadata["sent"] == NOON + 60 + 1800
    assert first.key != second.key  # a thread of its own
    assert first.key.startswith("heartbeat:")
    assert (first.metadata["agent"], first.metadata["model"]) == ("heart", "small")


def test_an_empty_file_calls_nothing_in_a_thousand_beats(saver: SqlSaver, tmp_path: Path) -> None:
    (tmp_path / "HEARTBEAT.md").write_text("# Nothing\n<!-- yet -->\n- \n", encoding="utf-8")

    clock = Clock(NOON)
    look(saver, clock, 1_001, heartbeat=HeartbeatConfig(every=300), workspace=tmp_path)
    assert clock.now == NOON + 60 + 1_000 * 300
    assert taken(saver) == []


def test_no_beat_comes_outside_the_active_hours_and_jobs_do(
    saver: SqlSaver, tmp_path: Path
) -> None:
    (tmp_path / "HEARTBEAT.md").write_text("look", encoding="utf-8")
    look(
        saver,
        Clock(at("2026-06-01T00:00:00+02:00")),
        50,
        jobs={"j": CronConfig(text="x", every=3600)},
        heartbeat=HeartbeatConfig(every=3600, active_hours="08:00-22:00"),
        workspace=tmp_path,
        timezone="Europe/Berlin",
    )
    kinds = [message.metadata["kind"] for message in taken(saver)]
    assert (kinds.count("heartbeat"), kinds.count("cron")) == (14, 24)


def test_processes_that_start_again_and_again_beat_once(saver: SqlSaver, tmp_path: Path) -> None:
    (tmp_path / "HEARTBEAT.md").write_text("look", encoding="utf-8")
    for second in range(0, 600, 100):
        beating(saver, tmp_path, 0.02, start=NOON + second)
    assert len(taken(saver)) == 1


def test_a_chat_that_changes_gets_the_next_beat(saver: SqlSaver, tmp_path: Path) -> None:
    (tmp_path / "HEARTBEAT.md").write_text("look", encoding="utf-8")
    saver.mailbox.put_fact("last-chat", "telegram:7")
    beating(saver, tmp_path, 0.1)
    saver.mailbox.put_fact("last-chat", "discord:8")
    beats = beating(saver, tmp_path, 0.1, start=NOON + 1800)
    assert [one.chat_id for one in beats] == ["telegram:7", "discord:8"]


@pytest.mark.parametrize("beats", [100, pytest.param(1_000, marks=pytest.mark.slow)])
def test_beats_leave_prompt_and_thread_as_they_were(
    beats: int, saver: SqlSaver, tmp_path: Path
) -> None:
    (tmp_path / "HEARTBEAT.md").write_text("- look at the mail", encoding="utf-8")
    prompts: set[tuple[str, ...]] = set()

    def answer(call: Any) -> str:
        prompts.add(tuple(m.text for m in call.messages))
        return "**HEARTBEAT_OK**"

    lane = Lane("any", [respond(answer)], when=When())
    agent = Agent("a", ScriptedModel(lanes=[lane], record_calls=False), store=saver)
    threads: set[str] = set()

    async def receive(message: InboundMessage) -> None:
        thread = message.key.replace(":", "-")
        result = await agent.ainvoke(message.content, thread_id=thread)
        assert is_silent(result.text)
        assert len(result.messages) == 2
        threads.add(thread)

    heart = HeartbeatConfig(every=300)
    look(saver, Clock(NOON), beats + 1, receive, heartbeat=heart, workspace=tmp_path)
    assert (len(threads), len(prompts)) == (beats, 1)


async def test_a_reminder_that_is_made_while_one_of_its_name_is_handed_over_stays(
    saver: SqlSaver,
) -> None:
    box, give = saver.mailbox, receiver(saver)
    origin = {"channel": "telegram", "chat_id": "1"}

    def fact(when: str, made: float) -> dict[str, Any]:
        job = {"text": "Tea", "to": "telegram:1", "at": when, "grace": 600}
        return {"job": job, "origin": origin, "made": made, "call": when}

    async def receive(message: InboundMessage) -> None:
        await give(message)
        box.drop_fact("cron/c.tea")  # its chat removes it and plans another one
        box.put_fact("cron/c.tea", fact("2026-06-02T12:00:00+00:00", NOON + 1))

    box.put_fact("cron/c.tea", fact("2026-06-01T12:00:00+00:00", NOON - 60))
    await Scheduler(box, receive, jobs={}, clock=lambda: NOON).look()
    assert len(taken(saver)) == 1
    assert box.facts("cron/")["cron/c.tea"]["made"] == NOON + 1
