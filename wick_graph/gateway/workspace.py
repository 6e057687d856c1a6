"""The workspace of the gateway in the prompt, and what tools must leave alone in it."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from wick_graph.backends import Root, Rules
from wick_graph.backends.guard import Patterns
from wick_graph.config import AgentsFile, folder_of
from wick_graph.config.schema import AgentConfig
from wick_graph.core.redaction import REDACTOR
from wick_graph.core.request import ModelRequest, Section, peek
from wick_graph.errors import ConfigError, ToolError
from wick_graph.gateway.memory import FOLDER, PEOPLE, TOOLS, Memories, is_owner, read_text
from wick_graph.gateway.schedule import zone_of
from wick_graph.hooks.prompt_files import as_data, cut_visibly, one_line
from wick_graph.hooks.protocol import BaseHook, HookContext, in_place
from wick_graph.hooks.skills import catalogue, skills_section
from wick_graph.messages.content import visible

BOOTSTRAP: Final = ("AGENTS.md", "SOUL.md", "USER.md", "IDENTITY.md")
"""The owner's instructions for all conversations, in this order."""

INSTEAD: Final = {"AGENTS.md": "AGENT.md"}
"""The file that is read if the other one is missing or empty."""

HEARTBEAT: Final = "HEARTBEAT.md"

SKILLS: Final = "skills"

MAX_BYTES: Final = 16 * 1024
"""Bytes of one of these files in a prompt."""

MAX_READ: Final = 1024 * 1024

CHANNEL: Final = "middleware"

KEY: Final = "gateway.workspace"
"""The field of the state's channel that keeps a turn's text."""

_RULE: Final = "---\n\n"

_log: Final = logging.getLogger(__name__)


def protected(workspace: Path, writable: tuple[str, ...] = ()) -> Rules:
    """Return the rules for a workspace, to be joined with an agent's own.

    File tools ask before they change a file with instructions, and commands never change one.
    Skills are read-only, memory and the folders of other people are hidden. `writable` has the
    names and patterns of files with instructions that agents may change.
    """
    files = (*BOOTSTRAP, *INSTEAD.values(), HEARTBEAT)
    free = Patterns(writable)
    return Rules(
        protect=files,
        memory=tuple(str(workspace / name) for name in files if not free.first_in(name)),
        control=(f"{workspace / SKILLS}/",),
        hidden=tuple(f"{workspace / name}/" for name in (FOLDER, PEOPLE)),
    )


class WorkspaceHook(BaseHook):
    """Put the workspace into the system prompt: who the agent is, its instructions, its memory.

    The text is made when a turn begins and kept in the state: all model calls of a turn get the
    same one, also after a resume. What changes from turn to turn comes last: time, chat.
    What other people may have written is framed as data. What the own hooks of an agent of the
    file show is left out, and tools that a conversation, by its origin, may not use.
    """

    name = "workspace"
    phases = ("before_agent", "modify_request")

    def __init__(
        self,
        memories: Memories,
        *,
        file: AgentsFile | None = None,
        may_use: Callable[[str, Mapping[str, Any]], bool] = lambda name, origin: True,
    ) -> None:
        self._memories = memories
        self._workspace = memories.workspace
        self._file = file
        self._may_use = may_use

    def before_agent(self, state: Mapping[str, Any], ctx: HookContext) -> Any:
        """Make the text of this turn."""
        origin = peek(state, "origin") or {}
        tools = sorted(name for name in ctx.tools_of(state) if self._may_use(name, origin))
        head = [self._identity(origin, tools, ctx), *self._bootstrap(state, ctx)]
        tail = [*self._skills(origin, tools, ctx), *self._memory(origin)]
        made = {
            "head": f"\n\n{_RULE}".join(head),
            "tail": "\n\n".join(_RULE + block for block in tail),
            "now": "\n\n".join(self._now(origin)),
        }
        return {CHANNEL: {KEY: made}}

    @in_place
    async def modify_request(self, request: ModelRequest, ctx: HookContext) -> ModelRequest:
        """Add the text: the agent's own prompt stays first, what changes comes last."""
        made = (peek(request.state, CHANNEL) or {}).get(KEY)
        if not made:
            return request
        own = [one for one in request.system if one.source == "agent"]
        last = [one for one in request.system if one.source == "limit"]
        rest = [one for one in request.system if one.source not in ("agent", "limit")]
        head, tail, now = (Section(made[name], self.name) for name in ("head", "tail", "now"))
        return request.replace_system(*own, head, *rest, tail, now, *last)

    def _identity(self, origin: Mapping[str, Any], tools: list[str], ctx: HookContext) -> str:
        name = one_line(ctx.agent, 64)
        lines = [f"# {name}", "", f"You are {name}, a helpful assistant."]
        lines += ["", "## Runtime", f"{platform.system()} {platform.machine()}, "]
        lines[-1] += f"Python {platform.python_version()}"
        lines += ["", "## Workspace"]
        if is_owner(origin):
            lines.append(f"Your workspace is {visible(str(self._workspace))}.")
        else:
            lines.append("You work in a folder of this conversation's own; paths start there.")
        if self._memories.of(origin) is not None and (mine := [t for t in TOOLS if t in tools]):
            lines.append(f"Your memory is reached by {', '.join(mine)}, and by no other tool.")
        if tools:
            lines += ["", "## Available Tools", ", ".join(tools)]
        return "\n".join(lines)

    def _bootstrap(self, state: Mapping[str, Any], ctx: HookContext) -> Iterator[str]:
        """Write the owner's instructions, without a file that the agent's `MemoryHook` shows."""
        config = self._config(ctx)
        has_hook = self._file is None or (config is not None and config.memory is not None)
        known = [one[:MAX_BYTES] for one in (peek(state, "memory") or {}).values() if has_hook]
        blocks = []
        for name in BOOTSTRAP:
            found = ((one, self._read(one)) for one in (name, INSTEAD.get(name, "")) if one)
            one, text = next(((one, text) for one, text in found if text.strip()), ("", ""))
            if text and text[:MAX_BYTES] not in known:
                plain = visible(REDACTOR.text(text))
                shown = cut_visibly(plain, MAX_BYTES, f" of {one}").strip()
                blocks.append(f"## {one}\n\n{shown}")
        if blocks:
            yield "\n\n".join(blocks)

    def _config(self, ctx: HookContext) -> AgentConfig | None:
        return None if self._file is None else self._file.agents.get(ctx.agent)

    def _read(self, name: str) -> str:
        """Return a file of the workspace; empty if it is missing or refused."""
        try:
            return read_text(self._workspace, name, MAX_READ)
        except (ToolError, ConfigError) as error:
            _log.warning("%s is left out of the prompt: %s", name, error)
            return ""

    def _skills(
        self, origin: Mapping[str, Any], tools: list[str], ctx: HookContext
    ) -> Iterator[str]:
        """List the skills of the workspace, if the agent can read them and lists none itself."""
        config = self._config(ctx)
        if self._file is None or config is None or config.backend is None or config.skills:
            return
        here = folder_of(config.backend, self._file.base_dir).resolve() == self._workspace.resolve()
        if here and is_owner(origin) and "read_file" in tools:
            with Root(self._workspace) as root:
                found = catalogue(root, [SKILLS])
            if found:
                yield f"# Skills\n\n{skills_section(found)}"

    def _memory(self, origin: Mapping[str, Any]) -> Iterator[str]:
        store, text = self._memories.of(origin), ""
        if store is not None:
            try:
                text = store.context()
            except ToolError as error:
                _log.warning("memory is left out of the prompt: %s", error)
        if text:
            said = as_data(FOLDER, text)
            yield f"# Memory\n\n{said}"

    def _now(self, origin: Mapping[str, Any]) -> Iterator[str]:
        store = self._memories
        time = datetime.fromtimestamp(store.clock(), zone_of(store.timezone))
        yield f"## Current Time\n{time:%Y-%m-%d %H:%M (%A)}, {store.timezone}"
        channel, chat = (one_line(str(origin.get(n) or ""), 200) for n in ("channel", "chat_id"))
        if channel and chat:
            said = f"## Current Session\nChannel: {channel}\nChat ID: {chat}"
            sender = one_line(str(origin.get("sender_name") or origin.get("sender_id") or ""), 80)
            if origin.get("group") and sender:
                said += f"\nSender of the last message:\n{as_data('sender', sender)}"
            yield said
