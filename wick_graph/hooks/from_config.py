"""What an agent's configuration names: its hooks, in order, its backend and MCP servers."""

from __future__ import annotations

import errno
import inspect
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

from wick_graph.backends import ExtraRoot, FileSystem, LocalBackend, Rules
from wick_graph.backends.docker import BoxOptions, DockerBackend
from wick_graph.backends.docker.backend import make_folder
from wick_graph.config import (
    AgentConfig,
    AgentsFile,
    BackendConfig,
    BudgetConfig,
    McpServerConfig,
    ModelConfig,
    folder_of,
    place_of,
    trust_folder,
)
from wick_graph.config.trusted import PYCACHE
from wick_graph.core.context import CHAT, ContextSchema, check_child
from wick_graph.core.moments import JournalOptions
from wick_graph.core.redaction import REDACTOR, Redactor
from wick_graph.errors import ConfigError
from wick_graph.hooks.approvals import approval_hook, misspelt
from wick_graph.hooks.budget import Budget, BudgetHook
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.hooks.guardrails import TRANSFER
from wick_graph.hooks.memory import MemoryHook
from wick_graph.hooks.protocol import BaseHook
from wick_graph.hooks.recall import Recall
from wick_graph.hooks.roles import RoleHook
from wick_graph.hooks.skills import LazySkillsHook, SkillsHook
from wick_graph.hooks.summarization import SummarizationHook
from wick_graph.hooks.todolist import TodoListHook
from wick_graph.hooks.tracing import TracingHook
from wick_graph.models.structured import Output, in_strategy
from wick_graph.tools.mcp import McpServer, Target


def added_hooks(file: AgentsFile) -> list[BaseHook]:
    """List what all agents of a file have: their rights in chats, and what a program adds."""
    chats = file.model_fields_set & {"channels", "gateway"}
    roles = [RoleHook(file.gateway.roles)] if chats else []
    return [*roles, *file.additions.hooks]


def check_context(agent_id: str, schema: ContextSchema | None, file: AgentsFile) -> None:
    """Check that an agent that answers chats needs no context that a chat does not know.

    Raises:
        ConfigError: It does.
    """
    if schema is None:
        return
    for channel in file.in_chats().get(agent_id, ()):
        chat = {**dict.fromkeys(CHAT, "1"), "channel": channel, "session": f"{channel}:1"}
        try:
            schema.of_chat(agent_id, chat)
        except ConfigError as error:
            raise file.error(("agents", agent_id, "context"), str(error)) from None


def context_of(
    agent_id: str,
    file: AgentsFile,
    loader: Callable[[str, AgentsFile], Callable[[str], Any]],
    below: bool,
) -> dict[str, Any]:
    """Return the context of an agent as arguments; check that of its sub-agents, if it gets them.

    Raises:
        ConfigError: One needs a context that the agent does not have, or code cannot be loaded.
    """
    config, made = file.agent(agent_id), dict[str, Any]()
    if config.context is not None:
        made["context_schema"] = loader(agent_id, file)(config.context.use)
        made["context_subject"] = config.context.subject
    own = ContextSchema.of(*made.values()) if made else None
    for name in config.subagents if below else ():
        if (needed := file.agent(name).context) is not None:
            child = ContextSchema.of(loader(name, file)(needed.use), needed.subject)
            try:
                check_child(name, child, own)
            except ConfigError as error:
                raise file.error(("agents", agent_id, "subagents", name), str(error)) from None
    return made


def check_approvals(agent_id: str, file: AgentsFile, tools: Sequence[str]) -> None:
    """Check that no approval rule of an agent has a misspelt name; `tools` are the right ones.

    Raises:
        ConfigError: One has, or it names a handoff that no agent of the file offers.
    """
    rules = file.agent(agent_id).approvals
    teams = {key: one.handoffs for key, one in file.agents.items() if one.handoffs}
    handoffs = [f"{TRANSFER}{name}" for name in {**teams, **dict.fromkeys(chain(*teams.values()))}]
    names = [*tools, *handoffs]
    found = misspelt(rules, names)
    wrong = f"did you mean {found[1]}?" if found else f"the handoffs are {', '.join(handoffs)}"
    for rule in rules if handoffs and not found else ():
        if rule.startswith(TRANSFER) and rule not in names and not set(rule) & set("*?["):
            found = rule, ""
    if found:
        raise file.error(
            ("agents", agent_id, "approvals", found[0]), f"there is no tool {found[0]}; {wrong}"
        )


def activate(config: AgentConfig, backend: FileSystem | None = None) -> list[BaseHook]:
    """List an agent's hooks, outermost first.

    Every agent has `tracing`, `todolist` and `summarization`. Rules enable `approvals`, a backend
    enables `filesystem`, a backend with their paths enables `skills` and `memory`, a namespace
    enables `recall`, and a budget enables `budget`, the innermost hook.

    Raises:
        ConfigError: The budget is in dollars and there are no prices.
    """
    secrets = secrets_of(config)
    redactor = Redactor(secrets)
    REDACTOR.learn(secrets)  # errors of its model may quote them
    hooks: list[BaseHook] = [TracingHook(redactor=redactor)]
    if (approvals := approval_hook(config)) is not None:
        hooks.append(approvals)
    hooks.append(TodoListHook())
    if backend is not None:
        hooks.append(FilesystemHook(backend))
        if config.skills is not None and config.skills.paths:
            kind = LazySkillsHook if config.skills.mode == "lazy" else SkillsHook
            hooks.append(kind(backend, config.skills.paths))
        if config.memory is not None and config.memory.paths:
            hooks.append(MemoryHook(backend, config.memory.paths, redactor=redactor))
    if config.recall:
        hooks.append(Recall(config.recall, redactor=redactor))
    hooks.append(SummarizationHook())  # the window is the model's, as configured
    if config.budget is not None:
        hooks.append(BudgetHook(budget_of(config.budget)))
    return hooks


def backend_of(
    config: AgentConfig, workdir: Path, rules: Rules | None = None, *, inside: bool = False
) -> LocalBackend | DockerBackend | None:
    """Open an agent's backend in a folder; return None if it has no backend.

    Args:
        config: The agent's configuration.
        workdir: The folder.
        rules: What its tools must not touch.
        inside: Whether its relative paths name nothing outside the folder, whatever links say.

    Tools can read the folders of skills and write memory files, even outside the folder if the
    configuration gives an absolute path; a relative path never leads out of it. The first command
    that needs a container launches it.

    Raises:
        ConfigError: The folder cannot be opened, or the requested sandbox does not work.
    """
    backend = config.backend
    if backend is None:
        return None
    extra = tuple(_extra_roots(config, str(workdir), inside=inside))
    if backend.type == "docker":
        return docker_backend(backend, workdir, extra, rules)
    execute = None if backend.execute == "off" else backend.execute
    readable = tuple(str(workdir / folder) for folder in backend.readable)
    return LocalBackend(workdir, execute=execute, readable=readable, extra_roots=extra, rules=rules)


def workdir_of(config: AgentConfig, base_dir: Path, to_look_at: bool) -> Path:
    """Return the folder of an agent's backend, made if it is missing and the agent shall run."""
    backend = config.backend
    if backend is None:
        return base_dir
    workdir = folder_of(backend, base_dir)
    if to_look_at and not workdir.is_dir():
        return base_dir.absolute()  # nothing is read from it
    make_folder(workdir)
    return workdir


def docker_backend(
    backend: BackendConfig,
    folder: Path,
    extra: tuple[ExtraRoot, ...] = (),
    rules: Rules | None = None,
) -> DockerBackend:
    """Open the backend of a `type: docker`.

    Raises:
        ConfigError: The folder cannot be opened, or a key is meant for another type.
    """
    if "execute" in backend.model_fields_set or backend.readable:
        raise ConfigError(
            "execute and readable are for type: local; type: docker runs commands in its container"
        )
    usual = BoxOptions()
    options = BoxOptions(
        image=backend.image or usual.image, workdir=backend.workdir or usual.workdir
    )
    host = backend.docker_host
    return DockerBackend(folder, options=options, host=host, extra_roots=extra, rules=rules)


def _extra_roots(config: AgentConfig, workdir: str, *, inside: bool = False) -> Iterator[ExtraRoot]:
    for block, writable in ((config.skills, False), (config.memory, True)):
        for path in block.paths if block is not None else ():
            if inside and not path.startswith("/"):
                continue
            absolute = place_of(config, Path(workdir), path, folder=Path(workdir))
            escapes = not path.startswith("/") and not absolute.startswith(f"{workdir}/")
            # A missing folder has nothing to read; it may appear later.
            if not escapes and Path(absolute).parent.is_dir():
                yield ExtraRoot(absolute, writable=writable)


def budget_of(budget: float | BudgetConfig) -> Budget:
    """Read a configured budget; a number means dollars per run."""
    if isinstance(budget, BudgetConfig):
        dollars = None if budget.usd is None else Decimal(str(budget.usd))
        return Budget(usd=dollars, tokens=budget.tokens, per=budget.per)
    return Budget(usd=Decimal(str(budget)))


def output_of(agent_id: str, file: AgentsFile) -> dict[str, Any]:
    """Return the arguments of an agent for its output.

    Raises:
        ConfigError: The file of the schema cannot be read, or holds no usable schema.
    """
    given = file.agent(agent_id).output
    if given is None:
        return {}
    key, form = ("agents", agent_id, "output", "schema"), given.form
    try:
        if isinstance(form, str):
            form = json.loads((file.base_dir / form).read_text("utf-8"))
        if not isinstance(form, dict):
            raise ConfigError("it holds no JSON schema; a schema is an object")
        made = in_strategy(form, given.strategy)
        Output(made)
    except OSError as error:
        raise file.error(key, f"{form} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise file.error(key, str(error)) from None
    return {"output_type": made, "output_retries": given.retries}


def journal_of(config: AgentConfig) -> JournalOptions:
    """Return an agent's recording options."""
    journal = config.journal
    if isinstance(journal, str):
        return JournalOptions(journal)
    return JournalOptions(journal.level, journal.redact)


def secrets_of(config: AgentConfig) -> list[str]:
    """List the keys that a configuration holds: of its models, fallbacks and search."""
    model = config.model
    holders = (model, *model.fallbacks) if isinstance(model, ModelConfig) else ()
    keys = (getattr(holder, "api_key", None) for holder in (*holders, config.search))
    return [key.get_secret_value() for key in keys if key is not None]


# --- The hooks and the backend of an agent that is only checked.


def close_checked(hook: Any) -> None:
    """Close a hook that was made only for a check, if it can be closed."""
    close = getattr(hook, "close", None)
    if callable(close) and not inspect.iscoroutinefunction(close):
        with suppress(Exception):  # the check does not depend on it
            close()


def checked_backend(
    config: AgentConfig, base_dir: Path, rules: Rules, stack: ExitStack
) -> LocalBackend | DockerBackend | None:
    """Open an agent's backend to check it, in a stand-in for its folder if that is missing.

    Args:
        config: The agent.
        base_dir: The folder at which relative paths start.
        rules: What its tools must not touch.
        stack: Closes the backend, and removes the stand-in.

    Raises:
        ConfigError: The backend cannot be opened, or the rules cannot be kept there.
    """
    settings = config.backend
    if settings is None:
        return None
    folder = folder_of(settings, base_dir)
    place = folder
    if not os.path.isdir(folder):  # noqa: PTH112  # a name that is too long is no error here
        place = _beside(folder)
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        readable = tuple(str(folder / one) for one in settings.readable)
        settings = settings.model_copy(update={"readable": readable})
        config = config.model_copy(update={"backend": settings})
    try:
        backend = backend_of(config, place, Rules())
        assert backend is not None
        stack.callback(backend.close)
        if isinstance(backend, LocalBackend):
            backend.must_keep(_moved(rules, str(folder), str(place)))
    except ConfigError as error:
        raise ConfigError(str(error).replace(str(place), str(folder))) from None
    return backend


def _beside(folder: Path) -> Path:
    """Make a stand-in for a missing folder, where the folder would be made.

    Only there it has the same file system, and the same way for the user of a sandbox.

    Raises:
        ConfigError: The folder could not be made.
    """
    try:
        if os.path.lexists(folder):
            raise FileExistsError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with suppress(FileNotFoundError):
            folder.lstat()  # fails for a name that no folder can have
        above = next(one for one in folder.parents if os.path.lexists(one))
        place = above / f".wick-check-{secrets.token_hex(4)}"
        make_folder(place)
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} cannot be made ({error.strerror}); name another one"
        ) from None
    return place


def _moved(rules: Rules, old: str, new: str) -> Rules:
    """Return the rules for another place of a folder."""

    def moved(path: str) -> str:
        return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path

    named = ("control", "memory", "stores", "hidden")
    return replace(rules, **{name: tuple(map(moved, getattr(rules, name))) for name in named})


def server_of(
    name: str,
    config: McpServerConfig,
    base_dir: Path,
    check: Callable[[], None] = lambda: None,
) -> McpServer:
    """Make an MCP server from its configuration without starting it.

    Args:
        name: Its name.
        config: Its configuration.
        base_dir: The folder of the file.
        check: Called before each start of its command; an exception prevents the start.
    """
    # Python runs what is in __pycache__ beside a module, but trust covers only the modules
    cache = {PYCACHE: str(trust_folder() / "pycache")} if config.command else {}
    target = Target(
        command=config.command,
        url=config.url or "",
        env={**cache, **config.env},
        check=check if config.command else None,
        cwd=str(base_dir / (config.cwd or ".")),
        headers=config.headers,
    )
    return McpServer(name, target, timeout=config.timeout, idle=config.idle, only=config.tools)
