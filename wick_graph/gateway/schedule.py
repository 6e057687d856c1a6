"""Cron jobs and heartbeats: when they are due, and the loop that hands them over."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from wick_graph.config.gateway import CronConfig, HeartbeatConfig
from wick_graph.errors import ConfigError, WickError
from wick_graph.gateway.channels.protocol import Receive
from wick_graph.gateway.lanes import wait_for
from wick_graph.gateway.messages import FALLBACK, own_message
from wick_graph.store.mailbox import Mailbox

# --- The times of a job: pure functions over data.


ON_TIME_SECONDS: Final = 300.0
"""How late a time may be noticed by a process that runs; later, it was missed."""

MAX_MADE_UP: Final = 1_000
"""Missed times of a job that are made up for, the newest."""

MAX_EXPRESSION: Final = 100

_LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC).timestamp()

_log: Final = logging.getLogger(__name__)


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone.

    Raises:
        ConfigError: There is none of this name.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigError(
            f"there is no time zone {name!r:.80}; write one such as Europe/Berlin"
        ) from None


@dataclass(frozen=True, slots=True)
class Job:
    """A job, its times checked.

    Raises:
        ConfigError: Its zone, its time or its expression is invalid.
    """

    name: str
    config: CronConfig
    zone: ZoneInfo
    """The gateway's zone, for a job without one."""
    made: float = 0.0
    """When it was made, from which `every` counts; the epoch for a job of the configuration."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Of the chat that made it; empty for a job of the configuration."""
    point: float = field(default=0.0, init=False)
    """The time of `at`."""

    def __post_init__(self) -> None:
        if self.config.timezone is not None:
            object.__setattr__(self, "zone", zone_of(self.config.timezone))
        if self.config.at is not None:
            object.__setattr__(self, "point", _point(self.config.at, self.zone))
        elif self.config.every is not None and self.config.every < 60:
            raise ConfigError("every must be 1m or more")
        elif self.config.cron is not None:
            next(_matches(self.config.cron, self.zone, 0.0), None)

    @property
    def times(self) -> list[Any]:
        """What rules its times: a job with new ones has missed none."""
        config = self.config
        return [config.at, config.every, config.cron, self.zone.key, self.made]


def _point(text: str, zone: ZoneInfo) -> float:
    try:
        given = datetime.fromisoformat(text)
        return (given if given.tzinfo else given.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(f"{text!r:.80} is no time; write it as 2026-12-24T18:00") from None


def _matches(expression: str, zone: ZoneInfo, after: float) -> Iterator[float]:
    """Yield the times of an expression; a time that a change of the clock skips comes after it.

    The library repeats or skips times at such a change if the minute or the hour begins with a
    star, so a star that leaves something out is written as a range.
    """
    parts = expression.split()
    if len(parts) != 5 or len(expression) > MAX_EXPRESSION:
        raise ConfigError(f"{expression!r:.120} does not have the five fields of cron")
    if parts[1] not in ("*", "*/1"):
        parts[:2] = [
            re.sub(r"^\*", f"0-{most}", part) for part, most in zip(parts, (59, 23), strict=False)
        ]
    try:
        sim = CronSim(" ".join(parts), datetime.fromtimestamp(after, zone))
    except (CronSimError, ValueError) as error:
        raise ConfigError(f"{expression!r:.120} is no cron expression: {error}") from None
    last = after
    for found in sim:
        if (at := found.timestamp()) > _LATEST:
            return
        if at > last:  # two local times may be the same moment
            last = at
            yield at


def next_times(job: Job, after: float, until: float = _LATEST) -> Iterator[float]:
    """Yield the times of a job after one moment and up to another, in seconds since 1970."""
    config = job.config
    if config.at is not None:
        found: Iterator[float] = iter([job.point])
    elif config.every is not None:
        first = max(int((after - job.made) // config.every), 0) + 1
        found = (job.made + number * config.every for number in count(first))
    else:
        found = _matches(config.cron or "", job.zone, after)
    return takewhile(lambda at: at <= until, (at for at in found if at > after))


def next_time(job: Job, after: float) -> str:
    """Return the next time of a job, in its zone; empty if there is none."""
    at = next(next_times(job, after), None)
    return "" if at is None else datetime.fromtimestamp(at, job.zone).isoformat()


def due(job: Job, after: float, watched: float, now: float) -> list[float]:
    """Return the times of a job that are to be handed over now.

    Args:
        job: The job.
        after: The last time that was handed over, or when the job was first seen.
        watched: Since when this process has looked; earlier times were missed.
        now: The time.
    """
    on_time = max(watched, now - ON_TIME_SECONDS)
    grace = 0.0 if job.config.missed == "skip" else job.config.grace or 0.0
    times = deque(next_times(job, max(after, min(on_time, now - grace)), now), maxlen=MAX_MADE_UP)
    late = [at for at in times if at <= on_time]
    new = [at for at in times if at > on_time]
    if job.config.missed == "all":
        return [*late, *new]
    return new or (late[-1:] if job.config.missed == "once" else [])


# --- Heartbeats.


MAX_HEARTBEAT_CHARS: Final = 20_000

SILENT: Final = "HEARTBEAT_OK"
"""The answer to a heartbeat that is not sent."""

TEMPLATE: Final = f"""# Heartbeat

<!--
Write below what to look at regularly, one task a line. The agent reads this file at each heartbeat.
As long as there are only headings and comments, no model is called. An answer of {SILENT} is not
sent to you.
-->

-
"""

_PROMPT: Final = (
    "This is a heartbeat: no person has written. HEARTBEAT.md of the owner says:\n\n{text}\n\n"
    f"Do what is due now. If there is nothing to tell, answer {SILENT} and nothing else."
)

_FENCE: Final = re.compile(rf"(?:`{{3,}}|~{{3,}})(?!{SILENT})[^\n`]*\n")

_EMPTY_LINE: Final = re.compile(r"#.*|(?:[-*+]|\d+[.)])?\s*(?:\[[ xX]?\])?|-{3,}|\*{3,}|_{3,}|=+")


def has_tasks(text: str) -> bool:
    """Return whether HEARTBEAT.md has more than headings, comments and empty list items."""
    kept = re.sub(r"(?s)<!--.*?(?:-->|\Z)", "", text.removeprefix("\ufeff"))
    return not all(_EMPTY_LINE.fullmatch(line.strip()) for line in kept.splitlines())


def is_silent(text: str) -> bool:
    """Return whether an answer is `HEARTBEAT_OK`, however it is wrapped and marked up."""
    if len(text) > 200:
        return False
    bare = re.sub(r"<[^<>]*>|\\", "", re.sub(_FENCE, "", text))
    return {word.strip("_") for word in re.findall(r"\w+", bare)} - {""} == {SILENT}


def hours_of(text: str) -> tuple[int, int]:
    """Read `08:00-22:00` as minutes of the day.

    Raises:
        ConfigError: It is not written so.
    """
    found = re.fullmatch(r"(\d\d?):([0-5]\d)\s*-\s*(\d\d?):([0-5]\d)", text.strip(), re.ASCII)
    if found is not None:
        numbers = [int(part) for part in found.groups()]
        begin, end = numbers[0] * 60 + numbers[1], numbers[2] * 60 + numbers[3]
        if begin < 1440 and end <= 1440 and begin != end:
            return begin, end
    raise ConfigError(f"{text!r:.80} are no active hours; write them as 08:00-22:00")


def is_active(hours: tuple[int, int], zone: ZoneInfo, at: float) -> bool:
    """Return whether a moment is within the active hours, which may span midnight."""
    local, (begin, end) = datetime.fromtimestamp(at, zone), hours
    minute = local.hour * 60 + local.minute
    return (minute - begin) % 1440 < ((end - begin) % 1440 or 1440)


def read_tasks(workspace: Path) -> str:
    """Return the text of HEARTBEAT.md; empty if it has no tasks. Make the file if it is missing."""
    path = workspace / "HEARTBEAT.md"
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_HEARTBEAT_CHARS + 1)
    except FileNotFoundError:
        with suppress(OSError), path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE)
        return ""
    except OSError as error:
        _log.warning("HEARTBEAT.md cannot be read: %s", error.strerror)
        return ""
    if not has_tasks(text):
        return ""
    cut = text[:MAX_HEARTBEAT_CHARS]
    return cut if cut == text else f"{cut}\n[HEARTBEAT.md goes on; the rest is cut off]"


# --- The loop.


LOOK_SECONDS: Final = 60.0
"""Seconds after which the loop looks at the clock and at the jobs, whatever it waits for."""

LAST_CHAT: Final = "last-chat"
"""The key of the fact with the chat in which an owner wrote last, as `channel:chat_id`."""


class Scheduler:
    """Hand over cron jobs and heartbeats as messages of the channel `system`.

    Each (job, time) has one native id, so a mailbox keeps one row of it, whichever process, and
    however often, hands it over. Jobs are those of the configuration and those that chats have
    made, which the mailbox keeps.

    Raises:
        ConfigError: A job, a zone or the active hours are invalid.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        receive: Receive,
        *,
        jobs: Mapping[str, CronConfig],
        heartbeat: HeartbeatConfig | None = None,
        workspace: Path = Path(),
        timezone: str = "UTC",
        clock: Callable[[], float] = time.time,
        wait: Callable[[asyncio.Event, float], Awaitable[None]] = wait_for,
    ) -> None:
        self._mailbox, self._receive, self._clock, self._wait = mailbox, receive, clock, wait
        self._timezone, self._workspace = timezone, workspace
        self._jobs, self._heartbeat = jobs, heartbeat
        jobs_of(jobs, {}, timezone)  # its errors come now
        self._hours: Final = hours_of((heartbeat and heartbeat.active_hours) or "00:00-24:00")
        self._changed: Final = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched = self._beat = 0.0

    def changed(self) -> None:
        """Look at the jobs again; any thread may call it."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._changed.set)

    async def run(self) -> None:
        """Hand over what is due, until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            try:
                seconds = await self.look() - self._clock()
            except WickError as error:
                _log.warning("jobs wait, since the mailbox cannot be used: %s", error)
                seconds = LOOK_SECONDS
            await self._wait(self._changed, min(max(seconds, 0.0), LOOK_SECONDS))

    async def look(self) -> float:
        """Hand over what is due now, and return when the next is due."""
        now, heart = self._clock(), self._heartbeat
        if not self._watched:
            self._watched, self._beat = now, now + ((heart and heart.first) or 0.0)
        box = self._mailbox
        made, seen = [await box.run(box.facts, prefix) for prefix in ("cron/", "cron-last/")]
        jobs = jobs_of(self._jobs, made, self._timezone)
        upcoming = [
            await self._look_at(job, seen.get(f"cron-last/{job.name}"), now) for job in jobs
        ]
        if heart is not None:
            upcoming.append(await self._look_at_heart(heart, now))
        self._watched = now
        return min(upcoming, default=_LATEST)

    async def _look_at(self, job: Job, seen: Any, now: float) -> float:
        """Hand over a job's times that are due; return its next one."""
        box, key, once = self._mailbox, f"cron-last/{job.name}", job.config.at is not None
        known = seen is not None and seen["is"] == job.times
        known = known and seen["at"] <= now  # else the clock was set back
        after = seen["at"] if known else job.made or (job.point - 1 if once else now)
        fired = due(job, after, min(self._watched, now), now)
        about = {"text": job.config.text, "agent": job.config.agent, "origin": dict(job.origin)}
        for at in fired:
            stamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            name = f"{job.name}/{stamp}"
            await self._give("cron", name, at, job.config, cron=job.name, **about)
        if job.origin and once and job.point <= now:

            def left(fact: Any) -> Any:  # its chat may have made another one of its name meanwhile
                return fact if fact and fact.get("made") != job.made else None

            await box.run(box.change_fact, f"cron/{job.name}", left)
            await box.run(box.drop_fact, key)
        elif fired or not known:
            fact = {"at": fired[-1] if fired else after, "is": job.times}
            await box.run(box.put_fact, key, fact)
        return next(next_times(job, now), _LATEST)

    async def _look_at_heart(self, config: HeartbeatConfig, now: float) -> float:
        """Hand over a heartbeat if one is due; return the time of the next."""
        every = config.every or 0.0
        self._beat = min(self._beat, now + every)  # the clock may have been set back
        if now >= self._beat:
            active = is_active(self._hours, zone_of(self._timezone), now)
            if active and (text := read_tasks(self._workspace)):
                name = str(int(now // every))  # the same in two processes
                about = {"agent": config.agent, "model": config.model}
                said = _PROMPT.format(text=text)
                await self._give("heartbeat", name, now, config, text=said, **about)
            self._beat += ((now - self._beat) // every + 1) * every
        return self._beat

    async def _give(
        self, kind: str, name: str, at: float, config: CronConfig | HeartbeatConfig, **about: Any
    ) -> None:
        chat = config.to or await self._mailbox.run(self._mailbox.fact, LAST_CHAT) or FALLBACK
        key, by = f"{kind}/{name}", f"cron:{about['cron']}" if kind == "cron" else kind
        session, text = f"{kind}:{name}", about.pop("text")
        about |= {"chat": chat, "session": session, "sent": at}
        message = own_message(kind, key, text, sender=by, **about)
        await self._receive(message)


def job_of(key: str, fact: Mapping[str, Any], zone: ZoneInfo) -> Job:
    """Make a job of the fact that a chat has left."""
    config = CronConfig.model_validate(fact["job"])
    return Job(key.removeprefix("cron/"), config, zone, float(fact["made"]), fact["origin"])


def jobs_of(
    configured: Mapping[str, CronConfig], made: Mapping[str, Any], timezone: str
) -> list[Job]:
    """Return the jobs of the configuration, and of the facts of those that chats have made.

    A fact that cannot be read is logged and left out.

    Raises:
        ConfigError: A job of the configuration, or the zone, is invalid.
    """
    zone, jobs = zone_of(timezone), []
    for name, config in configured.items():
        try:
            jobs.append(Job(name, config, zone))
        except ConfigError as error:
            raise ConfigError(f"cron.{name}: {error}") from None
    for key, fact in made.items():
        try:
            jobs.append(job_of(key, fact, zone))
        except (WickError, ValueError, KeyError, TypeError) as error:
            _log.warning("the job %s cannot be read and does not run: %s", key, error)
    return jobs
