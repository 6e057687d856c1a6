"""What a configuration says of the ecosystem around an agent: middleware, servers, other agents."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from wick_graph.config.fields import (
    Block,
    Duration,
    Limit,
    Text,
    Texts,
    Variables,
    check_http_url,
    check_once,
    check_origins,
)


class MiddlewareConfig(Block):
    """A middleware of LangChain or deepagents, run as a hook."""

    use: Text
    """A class of `langchain.agents.middleware`, or `deepagents.` and one of `deepagents`."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of its constructor; a block with `use` and `args` in them is an object likewise."""


class McpServerConfig(Block):
    """An MCP server whose tools an agent has: a `command` to start, or a `url`."""

    command: Texts = ()
    """Program and arguments; it speaks MCP on its standard input and output."""
    env: Variables = Field(default_factory=dict)
    """Variables for the command, beside the few harmless ones that it inherits."""
    cwd: Text | None = None
    """Folder of the command, the YAML file's if it is left out; a relative one belongs to that."""
    data: Texts = ()
    """Files and folders that the command reads or writes and never runs, as its words name them:
    trust does not cover them, and tools may write them."""
    url: Annotated[str, AfterValidator(check_http_url)] | None = None
    """Address that speaks MCP's streamable HTTP."""
    headers: Variables = Field(default_factory=dict)
    """Sent to the address with each request."""
    timeout: Limit = 60.0
    """Seconds for one call."""
    idle: Duration = 300.0
    """Seconds after which an unused session is closed; None is never."""
    tools: Annotated[Texts, AfterValidator(check_once)] = ()
    """The server's tools to take; all of them by default."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either command or url")
        return self


class CallbacksConfig(Block):
    """Where the servers of HTTP tools may be, beside the public internet."""

    allow: Annotated[Texts, AfterValidator(check_once), AfterValidator(check_origins)] = ()
    """Origins such as `http://127.0.0.1:9100`; addresses for cloud metadata stay refused."""


class SubagentConfig(Block):
    """Another agent of the file, to which this one can give tasks."""

    description: Text
    """What it is good for, in words for the model."""
    background: bool = False
    """Whether it works while this agent goes on, which starts, awaits and cancels its tasks."""
    inherit_approvals: bool = True
    """Whether this agent's `approvals` bind it, too, beside its own; false lets it run without a
    question what this agent must ask for."""
