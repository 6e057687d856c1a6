"""The models of `gateway:`, `channels:` and `cron:` of a configuration."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    Strict,
    WithJsonSchema,
    model_validator,
)

from wick_graph.config.fields import Block, Duration, Limit, Text, Texts, check_http_url

Memory = Literal["owner", "sender", "chat"]

Busy = Literal["queue", "collect", "interrupt"]

Missed = Literal["skip", "once", "all"]


def _as_text(given: Any) -> Any:
    return str(given) if type(given) is int else given


Ids = Annotated[
    tuple[
        Annotated[
            Text,
            BeforeValidator(_as_text),
            WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer"}]}),
        ],
        ...,
    ],
    Strict(False),
]
"""Ids of a platform; numbers may stand without quotes."""

SAFE_TOOLS: Final = (
    *("add", "calculate", "glob", "grep", "internet_search", "list_skills", "ls", "message"),
    *("read_file", "request_user_input", "web_fetch", "write_todos"),
)
"""Tools that may be called while texts of untrusted senders are read."""


class RolesConfig(Block):
    """Which tools each role may call: names and patterns; one with `!` before it excludes."""

    owner: Texts = ("*",)
    """Tools of the owner."""
    user: Texts = ("*", "!execute")
    """Tools of the people in `allow_from`, and of paired ones."""
    untrusted: Texts = SAFE_TOOLS
    """Tools while a text of an untrusted sender is in the conversation."""


class LimitsConfig(Block):
    """How much one sender may use; the owner's turns are not limited."""

    turns_per_day: Annotated[int, Field(ge=1)] | None = None
    """Turns of a sender; unlimited by default."""
    tokens_per_day: Annotated[int, Field(ge=1)] | None = None
    """Tokens of a sender's turns; unlimited by default."""
    messages_per_minute: Annotated[int, Field(ge=1)] = 30
    """More of one sender are dropped, the owner's too."""
    alone: Annotated[int, Field(ge=1)] = 10
    """Messages of a chat in an hour, in a row without one of a trusted sender, that are answered:
    two machines would answer each other forever."""


class HeartbeatConfig(Block):
    """The regular look at HEARTBEAT.md."""

    every: Duration = 1800.0
    """Seconds between two beats, at least five minutes."""
    first: Duration = 60.0
    """Seconds from the start to the first beat."""
    agent: Text | None = None
    """The agent that is asked; the gateway's own by default."""
    model: Text | None = None
    """A model to use instead of the agent's."""
    active_hours: Text | None = None
    """`08:00-22:00` in the gateway's zone; no beat comes outside."""
    to: Text | None = None
    """`channel:chat_id` that gets the answer; the owner's last chat by default."""

    @model_validator(mode="after")
    def _not_too_often(self) -> Self:
        if self.every is None or self.every < 300:
            raise ValueError("every must be 5m or more")
        return self


class CompactionConfig(Block):
    """When a long conversation is summarised after a turn, and how much of it stays."""

    messages: Annotated[int, Field(ge=5)] = 20
    """More messages than this since the last summary."""
    percent: Annotated[int, Field(ge=10, le=95)] = 75
    """More of the model's window than this."""
    keep: Annotated[int, Field(ge=1, le=100)] = 4
    """Messages that stay as they are."""
    model: Text | None = None
    """The model for summaries; the agent's own by default."""


class TranscriptionConfig(Block):
    """An endpoint that turns recorded speech into text, as OpenAI's does."""

    url: Annotated[str, AfterValidator(check_http_url)]
    """With the version: `https://api.openai.com/v1`."""
    model: Text = "whisper-1"
    """The endpoint's name of the model."""
    api_key: SecretStr | None = None
    """The endpoint's key: `${OPENAI_API_KEY}`."""
    most_bytes: Annotated[int, Field(ge=1, le=100 * 2**20)] = 20 * 2**20
    """Bytes of a recording; a longer one is not sent."""
    timeout: Limit = 120.0
    """Seconds until the text must be there."""

    @model_validator(mode="after")
    def _keeps_the_key(self) -> Self:
        here = re.match(r"https://|http://(?:localhost|127\.0\.0\.1|\[::1\])(?:[:/]|$)", self.url)
        if self.api_key is not None and not here:
            raise ValueError("url would send api_key unencrypted; use https")
        return self


class GatewayConfig(Block):
    """The gateway: which agent answers, where its workspace is, what it may do by itself."""

    agent: Text | None = None
    """The agent behind all channels that name none; the file's default agent by default."""
    workspace: Text = "workspace"
    """Folder with AGENTS.md, SOUL.md, USER.md, IDENTITY.md, HEARTBEAT.md and memory/."""
    timezone: Text = "UTC"
    """Zone of dates, times, cron and active hours: `Europe/Berlin`."""
    parallel: Annotated[int, Field(ge=1, le=1000)] = 8
    """Chats that are answered at once."""
    backlog: Annotated[int, Field(ge=1)] = 100
    """Messages of one chat that wait; the sender of more gets a polite refusal."""
    memory: Memory = "owner"
    """The memory that a conversation reads and writes: the owner's, its sender's, or its own."""
    announce: Literal["wake", "log"] = "wake"
    """Whether a finished background task wakes its conversation, or is only logged."""
    heartbeat: HeartbeatConfig | None = None
    """The regular look at HEARTBEAT.md; none without this block."""
    compaction: CompactionConfig | None = Field(default_factory=CompactionConfig)
    """When a long conversation is summarised; `null` for never."""
    roles: RolesConfig = Field(default_factory=RolesConfig)
    """The tools of each role."""
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    """How much a sender may use."""
    transcription: TranscriptionConfig | None = None
    """What turns voice messages into text; without it they stay files."""
    for_user: bool = False
    """Whether a text that a tool has for the person is sent at once: `for_user` in the artifact of
    its result."""
    default_response: Text = "I've completed processing but have no response to give."
    """The answer if a turn ends without one."""
    drain: Duration = 30.0
    """Seconds that turns may go on after SIGTERM."""


class ChannelConfig(Block):
    """One channel: a platform, its credentials, and who may write."""

    type: Text | None = None
    """`telegram`, `http`, or the name of an entry point; the channel's own name by default."""
    agent: Text | None = None
    """The agent behind this channel; the gateway's by default."""
    owner: Ids = ()
    """Ids of senders with all rights."""
    allow_from: Ids = ()
    """Ids of other senders that are answered; without any, only the owner and paired people are."""
    untrusted: bool | None = None
    """Whether the texts of all its senders are data: by default those of `http` and `email`."""
    busy: Busy = "queue"
    """What happens to a message that comes during a turn: it waits, is joined with others that
    wait, or interrupts the turn."""
    send_to: Ids = ()
    """Chats of this channel that the message tool may write to beside the origin."""
    token: SecretStr | None = None
    """The platform's token."""
    secret: SecretStr | None = None
    """The secret with which webhooks are signed."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further settings of the channel's type."""


class CronConfig(Block):
    """A job: one of `at`, `every` and `cron`, and what to ask."""

    text: Text
    """What the agent is asked."""
    at: Text | None = None
    """A time, once: `2026-12-24T18:00`, in the job's zone unless it names one."""
    every: Duration = None
    """Seconds, or `30m`."""
    cron: Text | None = None
    """A cron expression with five fields."""
    timezone: Text | None = None
    """The gateway's zone by default."""
    agent: Text | None = None
    """The agent that is asked; the gateway's own by default."""
    to: Text | None = None
    """`channel:chat_id` that gets the answer; the owner's last chat by default."""
    missed: Missed = "once"
    """What happens with times at which nothing ran: no turn, one, or one for each."""
    grace: Duration = 3600.0
    """How late a missed time may be made up for."""

    @model_validator(mode="after")
    def _has_one_time(self) -> Self:
        if sum(one is not None for one in (self.at, self.every, self.cron)) != 1:
            raise ValueError("give one of at, every and cron")
        return self
