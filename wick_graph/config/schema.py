"""The models of a configuration: strict and frozen; an unknown key is an error.

    AgentsFile            store, long_term, callbacks, limits, defaults, agents
    ├── LimitsConfig      `limits:`, the quota of each tenant of a server
    ├── LongTermConfig    `long_term:`, with IndexConfig
    └── AgentConfig       one agent
        ├── ModelConfig   `model:` as a block, with fallbacks (ModelTarget)
        ├── BackendConfig
        ├── SkillsConfig
        ├── MemoryConfig
        ├── BudgetConfig  `budget:` as a block
        ├── JournalConfig `journal:` as a block
        ├── OutputConfig
        ├── RetentionConfig
        ├── OwnCode       one of `hooks:`, or `model:`
        ├── MiddlewareConfig
        ├── McpServerConfig
        ├── SubagentConfig
        ├── ContextConfig
        └── SearchConfig

`callbacks:` of the file is a CallbacksConfig, `pool:` a PoolConfig, `workers:` a WorkersConfig;
`gateway:`, `channels:` and `cron:` are described in `wick_graph.config.gateway`.

`model_fields_set` holds the keys that the file sets, in `defaults:` or in the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    PrivateAttr,
    SecretStr,
    Strict,
    Tag,
    ValidationError,
    model_validator,
)

from wick_graph.config.fields import (
    AGENT_ID,
    BLOCK_TAG,
    CODE_TAG,
    DEFAULT_STORE,
    NAME_TAG,
    ApprovalRule,
    Block,
    Duration,
    Limit,
    Reading,
    SchemaGenerator,
    Starts,
    Temperature,
    Text,
    Texts,
    Tokens,
    Variables,
    check_agent_id,
    check_args,
    check_code,
    check_http_url,
    check_keys,
    check_name,
    check_once,
    check_origins,
    check_patterns,
    check_regexes,
    check_store,
    check_tool,
    code_in,
    form_of,
    form_of_model,
    is_code,
    resolve_keys,
    resolve_store,
)
from wick_graph.config.gateway import ChannelConfig, CronConfig, GatewayConfig
from wick_graph.config.scale import LimitsConfig, PoolConfig, WorkersConfig
from wick_graph.config.trusted import misplaced
from wick_graph.config.yaml_reader import KeyPath, Places, show_key
from wick_graph.constants import (
    DEFAULT_TOOL_TIMEOUT_SECONDS,
    MAX_ITERATIONS,
    OUTPUT_RETRIES,
    THREAD_TTL_SECONDS,
    WARM_BYTES,
)
from wick_graph.errors import ConfigError, did_you_mean

# --- What surrounds an agent: middleware, servers, other agents.


class OwnCode(Block):
    """A hook or a model of one's own."""

    use: Annotated[Text, AfterValidator(check_code)]
    """`module:name`, with a module beside the file or an installed one: a class or a function that
    makes the object, or the object itself."""
    args: Annotated[dict[str, Any], AfterValidator(check_args)] = Field(default_factory=dict)
    """Arguments of the class or the function; a nested block with `use` and `args` makes an object
    too."""


class MiddlewareConfig(OwnCode):
    """A middleware of LangChain or deepagents, run as a hook."""

    use: Annotated[Text, AfterValidator(check_tool)]
    """A class of `langchain.agents.middleware`, `deepagents.` and one of `deepagents`, or your own
    as `module:name`."""
    args: Annotated[dict[str, Any], AfterValidator(check_args)] = Field(default_factory=dict)
    """Arguments of its constructor; a nested block with `use` and `args` makes an object too."""


class McpServerConfig(Block):
    """An MCP server that gives an agent tools: a `command` to start, or a `url`."""

    command: Texts = ()
    """Program and arguments; it speaks MCP on its standard input and output."""
    env: Variables = Field(default_factory=dict)
    """Variables for the command, besides the few harmless ones that it inherits."""
    cwd: Text | None = None
    """Folder of the command, by default the YAML file's; a relative path starts there."""
    data: Texts = ()
    """Files and folders that the command reads or writes but never runs, spelt as in the command:
    trust does not cover them, and tools may write them."""
    url: Annotated[str, AfterValidator(check_http_url)] | None = None
    """Address of a server that speaks MCP's streamable HTTP."""
    headers: Variables = Field(default_factory=dict)
    """Headers sent with each request."""
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
    """Where the servers of HTTP tools may be, besides the public internet."""

    allow: Annotated[Texts, AfterValidator(check_once), AfterValidator(check_origins)] = ()
    """Origins such as `http://127.0.0.1:9100`; addresses for cloud metadata stay refused."""


class SubagentConfig(Block):
    """Another agent of the file that this one can delegate tasks to."""

    description: Text
    """What the agent is good for, in words for the model."""
    background: bool = False
    """Whether it works in the background: this agent starts, awaits and cancels its tasks."""
    inherit_approvals: bool = True
    """Whether this agent's `approvals` apply to it too, besides its own; if false, it may run
    without approval what this agent must ask for."""


class ModelTarget(Block):
    """One model behind one address."""

    provider: Text | None = None
    """`openai`, `anthropic`, …; may also be part of `model`, as `provider:model`."""
    model: Text
    """The model's name, as its provider writes it."""
    base_url: Annotated[str, AfterValidator(check_http_url)] | None = None
    """Root of an OpenAI-compatible server."""
    api_key: Annotated[SecretStr, Field(min_length=1)] | None = None
    """By default the provider's variable of the environment, such as OPENAI_API_KEY."""
    temperature: Temperature | None = None
    """How freely the model words its replies; by default as the provider sets it."""
    max_tokens: Tokens | None = None
    """Most tokens of one reply."""
    timeout: Limit | None = None
    """Seconds for one request; None for the default of the provider's client."""
    context_window: Tokens | None = None
    """Tokens that the model can read; by default what is known of it."""
    retries: Annotated[int, Field(ge=0, le=20)] | None = None
    """Further attempts after a transient failure; None is the engine's default."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Further settings, passed to the model's class as they are."""

    def spec(self) -> dict[str, Any]:
        """Return the settings as plain data, with the API key in plain text."""
        found = {key: getattr(self, key) for key in type(self).model_fields}
        if self.api_key is not None:
            found["api_key"] = self.api_key.get_secret_value()
        return {key: value for key, value in found.items() if value not in (None, (), {})}


ModelOrName = Annotated[
    Annotated[Text, Tag(NAME_TAG)] | Annotated[ModelTarget, Tag(BLOCK_TAG)], Discriminator(form_of)
]


class ModelConfig(ModelTarget):
    """The model of an agent, and its fallbacks."""

    fallbacks: Annotated[tuple[ModelOrName, ...], Strict(False)] = ()
    """Tried in order after the previous model has failed for good."""

    def spec(self) -> dict[str, Any]:
        """Return the settings as plain data, with the fallbacks in the same form."""
        found = super().spec()
        if self.fallbacks:
            found["fallbacks"] = [
                target if isinstance(target, str) else target.spec() for target in self.fallbacks
            ]
        return found


class BackendConfig(Block):
    """Where an agent's files are and where its commands run."""

    type: Literal["local", "docker"]
    """`local`: a folder of this machine; `docker`: a container that mounts a folder."""
    workdir: Text | None = None
    """Local: the folder, by default `./workspace`; a relative path starts at the YAML file's
    folder. Docker: where the folder appears in the container, by default `/workspace`."""
    execute: Literal["auto", "require", "bwrap", "landlock", "local", "off"] = "auto"
    """The sandbox level of commands, if the backend is local. `auto` takes the strongest level
    that works on this host, and runs no command if none does; `require` refuses to start then.
    `local` runs commands with the rights of this process: it is not a sandbox."""
    readable: Texts = ()
    """Folders that sandboxed commands can read besides the system's own, such as a toolchain."""
    image: Text | None = None
    """Container image, by default `wick-sandbox`; docker only."""
    folder: Text | None = None
    """The folder that the container mounts, by default `./workspace`; docker only."""
    docker_host: Text | None = None
    """Address of the container engine; by default the value of DOCKER_HOST."""
    shared: bool = False
    """Whether the folder is on a mount that all machines of the store share."""


class SkillsConfig(Block):
    """Folders to search for skills."""

    paths: Texts
    """The folders; a relative path starts at the backend's folder."""
    mode: Literal["eager", "lazy"] = "eager"
    """`eager` shows the model a catalogue; `lazy` shows names only, and tools to activate one."""


class MemoryConfig(Block):
    """The memory files of an agent."""

    paths: Texts
    """The files, in the order of the prompt; a relative path starts at the backend's folder."""


class IndexConfig(Block):
    """How items of the long-term store are found by their meaning."""

    embed: Text
    """The model that makes vectors of texts, such as `openai:text-embedding-3-small`."""
    dims: Annotated[int, Field(ge=1)]
    """Numbers in each vector, as the model gives them."""
    fields: Texts = ("text",)
    """The fields with the texts, as paths such as `text` or `notes[*].text`; `$` is the whole."""


class LongTermConfig(Block):
    """What outlives threads: a store in the file's database, for all agents."""

    ttl: Duration = None
    """Seconds without a read or a write after which an item may be removed; None is never."""
    index: IndexConfig | None = None
    """Search by meaning; without it, notes are found by their words."""

    def options(self) -> dict[str, Any]:
        """Return the arguments `index` and `ttl` of a `SqlStore`."""
        minutes = None if self.ttl is None else self.ttl / 60
        index = None if self.index is None else self.index.model_dump()
        return {"index": index, "ttl": {"default_ttl": minutes}}


class BudgetConfig(Block):
    """What a run or a thread may spend; at the limit, the run ends with a text that says so."""

    usd: Annotated[float, Field(gt=0)] | None = None
    """Dollars."""
    tokens: Tokens | None = None
    """Tokens, read and written."""
    per: Literal["run", "thread"] = "run"
    """Whether each run may spend that much, or all runs of a thread together."""


class JournalConfig(Block):
    """What the journal records of runs."""

    level: Literal["off", "steps", "full"] = "steps"
    """Nothing, every moment, or the pieces of streamed replies too."""
    redact: Annotated[Texts, AfterValidator(check_regexes)] = ()
    """Regular expressions of secrets, besides the known ones."""


class OutputConfig(Block):
    """What an agent gives in place of a text."""

    form: Annotated[Text | dict[str, Any], Field(alias="schema")]
    """A JSON schema, or the path of a file with one, from the YAML file's folder."""
    strategy: Literal["auto", "tool", "native", "prompted"] = "auto"
    """How the model is asked: by a tool, by its provider's structured form, or by the prompt."""
    retries: Annotated[int, Field(ge=0, le=100)] = OUTPUT_RETRIES
    """How often a run asks its model again for a valid output."""


class RetentionConfig(Block):
    """What the store keeps of a thread's past after a run; the state always stays."""

    keep_latest: Annotated[int, Field(ge=1)]
    """Checkpoints to keep: how many steps back you can go, fork and replay."""


class SearchConfig(Block):
    """The HTTP endpoint that `internet_search` asks."""

    url: Annotated[str, AfterValidator(check_http_url)]
    """Answers a query with JSON; the query is its parameter `q`."""
    api_key: Annotated[SecretStr, Field(min_length=1)] | None = None
    """Sent as `Authorization: Bearer …`."""
    method: Literal["GET", "POST"] = "GET"
    """`POST` sends the query as JSON."""


class ContextConfig(Block):
    """The context that each caller gives beside its message; nothing stores it readable."""

    use: Annotated[Text, AfterValidator(check_code)]
    """A dataclass, a pydantic model or a TypedDict of your own, as `module:name`."""
    subject: str = ""
    """The field that the server sets to the id of the caller's token; callers cannot set it."""


class AgentConfig(Block):
    """One agent."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "default"
    """A name for people; by default the agent's id."""
    model: Annotated[
        Annotated[Text, Tag(NAME_TAG)]
        | Annotated[ModelConfig, Tag(BLOCK_TAG)]
        | Annotated[OwnCode, Tag(CODE_TAG)],
        Discriminator(form_of_model),
    ] = "auto"
    """A name, a block, or a block with `use` for a model of your own."""
    system_prompt: str = ""
    """What the model reads before every conversation."""
    tools: Annotated[
        tuple[Annotated[Text, AfterValidator(check_tool)], ...],
        Strict(False),
        AfterValidator(check_once),
    ] = ()
    """Built-in tools by name, and your own as `module:name`: a function, a LangChain tool, or a
    list of tools."""
    hooks: Annotated[tuple[OwnCode, ...], Strict(False)] = ()
    """Your own hooks, outermost first; they run inside the built-in ones and around middleware."""
    backend: BackendConfig | None = None
    skills: SkillsConfig | None = None
    memory: MemoryConfig | None = None
    recall: Texts = ()
    """Namespace of the notes that the tools `remember` and `recall` keep in the long-term store,
    with facts of the conversation: `[users, "{sender_id}"]`. Without it there are no such tools."""
    protect: Texts = ()
    """Names and patterns of files that other programs run or obey, besides the known ones. File
    tools ask before they change one, and sandboxes show them to commands as read-only."""
    writable: Texts = ()
    """Names and patterns of such files that tools may change without asking."""
    context_window: Tokens | None = None
    """Tokens that the model can read; by default what is known of it."""
    max_iterations: Annotated[int, Field(ge=1, le=1000)] = MAX_ITERATIONS
    """Model calls in one run."""
    ttl: Duration = float(THREAD_TTL_SECONDS)
    """Seconds after which an idle thread may be removed; None is never."""
    max_tokens: Tokens | None = None
    """Most tokens of one reply."""
    temperature: Temperature | None = None
    """How freely the model words its replies; by default as the provider sets it."""
    tool_timeout: Duration = DEFAULT_TOOL_TIMEOUT_SECONDS
    """Seconds for one tool call; None is no limit."""
    deadline: Duration = None
    """Seconds for a whole run; None is no limit."""
    output: OutputConfig | None = None
    """What the agent gives; by default a text."""
    retention: RetentionConfig | None = None
    """What the store keeps of a thread's past; by default everything."""
    budget: (
        Annotated[
            Annotated[float, Field(gt=0), Tag(NAME_TAG)] | Annotated[BudgetConfig, Tag(BLOCK_TAG)],
            Discriminator(form_of),
        ]
        | None
    ) = None
    """Dollars that one run may cost, or a block with `usd`, `tokens` and `per`."""
    approvals: Annotated[dict[Text, ApprovalRule], AfterValidator(check_patterns)] = Field(
        default_factory=dict
    )
    """Which calls a person must approve, by tool name or pattern: `true`, `false`, or an expression
    on the arguments such as `glob(path, '*.env')`."""
    middleware: Annotated[tuple[MiddlewareConfig, ...], Strict(False)] = ()
    """Outermost first; they run inside the other hooks, except summaries and budgets."""
    mcp_servers: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_-]{0,31}$")], McpServerConfig] = (
        Field(default_factory=dict)
    )
    """MCP servers by name; a tool is called by its server's name, `_`, and its own name."""
    subagents: dict[Annotated[str, AfterValidator(check_agent_id)], SubagentConfig] = Field(
        default_factory=dict
    )
    """The agents of the file that this one can delegate tasks to, by id."""
    handoffs: dict[Annotated[str, AfterValidator(check_agent_id)], Text] = Field(
        default_factory=dict
    )
    """The agents of the file that can take over the conversation, by id, each with the words that
    tell the model when it does."""
    search: SearchConfig | None = None
    context: ContextConfig | None = None
    journal: Annotated[
        Annotated[Literal["off", "steps", "full"], Tag(NAME_TAG)]
        | Annotated[JournalConfig, Tag(BLOCK_TAG)],
        Discriminator(form_of),
    ] = "steps"
    """What the journal records of runs: nothing, every moment, or the pieces of streamed replies
    too; or a block with `level` and `redact`."""
    allow_client_system: bool = True
    """Whether a caller's messages may have the role `system`."""

    @model_validator(mode="after")
    def _own_model(self) -> Self:
        if isinstance(self.model, OwnCode) and (self.temperature, self.max_tokens) != (None, None):
            raise ValueError(
                "has temperature or max_tokens, which a model of your own ignores; give it args:"
            )
        return self

    @property
    def others(self) -> tuple[str, ...]:
        """The ids of the agents that it works with."""
        return (*self.subagents, *self.handoffs)

    def model_spec(self) -> str | dict[str, Any]:
        """Return the model with all its settings: a name if that is enough, else a map.

        A model of one's own has its name only.

        The agent's `temperature`, `max_tokens` and `context_window` apply if the block under
        `model:` does not set its own. The map holds the API key in plain text.
        """
        beside = {
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "context_window": self.context_window,
        }
        beside = {key: value for key, value in beside.items() if value is not None}
        if isinstance(self.model, OwnCode):
            return self.model.use
        if isinstance(self.model, str):
            return {"model": self.model, **beside} if beside else self.model
        return {**beside, **self.model.spec()}


def _code_of(at: KeyPath, config: AgentConfig) -> Iterator[tuple[KeyPath, str]]:
    yield from (((*at, "tools", i), one) for i, one in enumerate(config.tools) if is_code(one))
    if config.context is not None:
        yield (*at, "context"), config.context.use
    entries: list[tuple[KeyPath, OwnCode]] = [
        *(((*at, "hooks", i), one) for i, one in enumerate(config.hooks)),
        *(((*at, "middleware", i), one) for i, one in enumerate(config.middleware)),
    ]
    if isinstance(config.model, OwnCode):
        entries.append(((*at, "model"), config.model))
    for key, entry in entries:
        yield from ((key, one) for one in code_in({"use": entry.use, "args": entry.args}))


@dataclass(frozen=True, slots=True)
class Additions:
    """What a program adds to all agents of a file."""

    hooks: tuple[Any, ...] = ()
    tools: tuple[Any, ...] = ()
    rules: Callable[[tuple[str, ...]], Any] | None = None
    """Takes the patterns under an agent's `writable:`; returns `Rules` to join with the agent's."""
    ttl: Mapping[str, Any] | None = None
    """How long idle threads are kept, by namespace, in place of the agents' `ttl:`."""


@dataclass(frozen=True, slots=True, eq=False)
class Vouched:
    """The trusted state of a file; the views of the file for tenants share it."""

    file: AgentsFile
    digest: str
    found: Mapping[str, bytes]
    """The state of each file that it covers, by relative path."""


class AgentsFile(Block):
    """A whole file; every agent has its own copy of the defaults merged in."""

    store: Annotated[Text, AfterValidator(check_store)] | None = None
    """Database URL as written; `store_url` is the one to open."""
    store_keys: Annotated[Text, AfterValidator(check_keys)] | None = None
    """Where the store's encryption keys are: `file:PATH`, or `env:NAME`."""
    store_warm_bytes: Annotated[int, Field(ge=0)] = WARM_BYTES
    """Bytes, as encoded, of the messages that the store keeps in memory between runs; 0 is none."""
    long_term: LongTermConfig | None = None
    """The long-term store; without it, agents have none."""
    callbacks: CallbacksConfig = Field(default_factory=CallbacksConfig)
    """Where HTTP tools registered with the server may be."""
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    """The quota that `wick serve` gives each tenant."""
    workers: WorkersConfig = Field(default_factory=WorkersConfig)
    """Who executes the runs of `wick serve`: the server, or processes of `wick worker`."""
    pool: PoolConfig = Field(default_factory=PoolConfig)
    """How many sessions a process has with a PostgreSQL server."""
    gateway: GatewayConfig = Field(default_factory=GatewayConfig)
    """How `wick gateway` runs the agents behind chats."""
    channels: dict[Annotated[str, AfterValidator(check_name)], ChannelConfig] = Field(
        default_factory=dict
    )
    """The channels of the gateway, by name."""
    cron: dict[Annotated[str, AfterValidator(check_name)], CronConfig] = Field(default_factory=dict)
    """The jobs of the gateway, by name."""
    defaults: AgentConfig = Field(default_factory=AgentConfig)
    """Any key of an agent; an agent's own key replaces the whole value."""
    agents: Annotated[
        dict[Annotated[str, AfterValidator(check_agent_id)], AgentConfig], Field(min_length=1)
    ]
    """The agents by id, in the order of the file."""

    _base_dir: Path = PrivateAttr(default_factory=Path.cwd)
    _places: Places = PrivateAttr(default_factory=lambda: Places(source="configuration"))
    _notices: tuple[str, ...] = PrivateAttr(default=())
    _tools_dir: Path | None = PrivateAttr(default=None)
    _path: Path | None = PrivateAttr(default=None)
    _starts: Starts = PrivateAttr(default_factory=Starts)
    _vouched: Vouched | None = PrivateAttr(default=None)
    _additions: Additions = PrivateAttr(default_factory=Additions)

    def model_post_init(self, context: Any, /) -> None:
        """Copy what the reader knows about the file."""
        if isinstance(context, Reading):
            self._base_dir = context.base_dir
            self._places = context.places
            self._notices = context.notices
            self._path, self._starts = context.path, context.starts
        for key, config in list(self.agents.items()):
            if "name" not in config.model_fields_set:
                self.agents[key] = named = config.model_copy(update={"name": key})
                named.model_fields_set.discard("name")

    @classmethod
    def of_code(cls, source: str, names: Mapping[str, str], store: str | None) -> Self:
        """Describe agents that are made in Python.

        Args:
            source: What to call them in errors.
            names: Their names by id.
            store: The database URL; None for the default.

        Raises:
            ConfigError: An id is refused.
        """
        try:
            agents = {key: {"name": name} for key, name in names.items()}
            made = cls.model_validate({"store": store, "agents": agents})
        except ValidationError as error:
            found = error.errors()[0]
            where = ".".join(map(str, found["loc"]))
            raise ConfigError(f"{source}: {where}: {found['msg']}") from None
        made._places = Places(source=source)
        return made

    def in_chats(self) -> dict[str, list[str]]:
        """Return the channels of each agent that answers chats, by its id.

        A job without a destination may speak in any of them.
        """
        heart, others = self.gateway.heartbeat, self.gateway.agent or self.default_id
        places = [(one.agent, [name]) for name, one in self.channels.items()]
        for job in (*self.cron.values(), *([heart] if heart else ())):
            named = (job.to or "").partition(":")[0]
            places.append((job.agent, [named] if named in self.channels else [*self.channels]))
        found: dict[str, list[str]] = {}
        for agent, names in places if self.channels else ():
            found.setdefault(agent or others, []).extend(names)
        return found

    @property
    def source(self) -> str:
        """The file's name in errors."""
        return self._places.source

    @property
    def path(self) -> Path | None:
        """The file's absolute path; None for a configuration without a file."""
        return self._path

    @property
    def starts(self) -> Starts:
        """The programs that the file starts, and the code that it loads."""
        return self._starts

    @property
    def additions(self) -> Additions:
        """What a program adds to all agents of the file."""
        return self._additions

    def adding(self, additions: Additions) -> Self:
        """Return the file with what a program adds to all its agents."""
        made = self.model_copy()
        made._additions = additions
        return made

    def code(self, agent_id: str | None = None) -> Iterator[tuple[KeyPath, str]]:
        """Yield each `module:name` that the agents name, or one of them, with its place."""
        for key in self.agents if agent_id is None else (agent_id,):
            yield from _code_of(("agents", key), self.agents[key])

    @property
    def vouched(self) -> Vouched | None:
        """What was trusted when the agents were made; None if a program decided."""
        return self._vouched

    def vouch(self, digest: str, found: Mapping[str, bytes]) -> None:
        """Keep the hash of what the file starts, for the file and all its views."""
        self._vouched = Vouched(self, digest, found)

    @property
    def base_dir(self) -> Path:
        """The folder at which relative paths in the file start."""
        return self._base_dir

    @property
    def tools_dir(self) -> Path:
        """The folder that the built-in tools see: the file's, unless `seeing` set another."""
        return self._tools_dir or self._base_dir

    def seeing(self, folder: Path) -> Self:
        """Return the file with another folder for the built-in tools, made when needed."""
        made = self.model_copy()
        made._tools_dir = folder
        return made

    @property
    def notices(self) -> tuple[str, ...]:
        """Warnings about the file, one sentence each."""
        loose = (
            f"agents.{agent_id}.subagents.{name}: inherit_approvals is false, so {name} runs "
            f"without approval what {agent_id} must ask for"
            for agent_id, config in self.agents.items()
            for name, one in config.subagents.items()
            if not one.inherit_approvals
        )
        lost = (misplaced(key, config, self._base_dir) for key, config in self.agents.items())
        return (*self._notices, *loose, *chain.from_iterable(lost))

    @property
    def store_url(self) -> str:
        """Database URL to open, a relative SQLite path made absolute.

        Raises:
            ConfigError: no URL can express the path.
        """
        try:
            return resolve_store(self.store or DEFAULT_STORE, self._base_dir)
        except ValueError as exc:
            raise self._places.error(("store",), str(exc)) from None

    @property
    def keys_source(self) -> str | None:
        """Where the store's keys are, a relative path made absolute; None if it has none."""
        return None if self.store_keys is None else resolve_keys(self.store_keys, self._base_dir)

    @property
    def default_id(self) -> str:
        """The id of the default agent: `default`, else the first."""
        return "default" if "default" in self.agents else next(iter(self.agents))

    def agent(self, agent_id: str | None = None) -> AgentConfig:
        """Find an agent by id; without one, the default agent.

        Raises:
            ConfigError: the file has no such agent; the text has the nearest id, or all ids.
        """
        wanted = self.default_id if agent_id is None else agent_id
        if wanted not in self.agents:
            hint = did_you_mean(wanted, self.agents) or f"; it has {', '.join(self.agents)}"
            raise self._places.error((), f"no agent {show_key(wanted)}{hint}")
        return self.agents[wanted]

    def line(self, path: KeyPath) -> int | None:
        """Return the line of a key path such as `("agents", "default", "tools", 0)`, from 1."""
        return self._places.line(path)

    def error(self, path: KeyPath, text: str) -> ConfigError:
        """Make an error about a value after loading, with its place in front."""
        return self._places.error(path, text)

    def check_tools(self, known: Iterable[str], agent_id: str | None = None) -> None:
        """Refuse unknown names under `tools:`, in one agent or in all.

        Raises:
            ConfigError: with a line for each unknown name.
        """
        names = sorted(known)
        wanted = self.agents if agent_id is None else {agent_id: self.agent(agent_id)}
        wrong = [
            self._places.sentence(
                ("agents", key, "tools", index),
                f"unknown tool {show_key(tool)}"
                + (did_you_mean(tool, names) or f"; known tools: {', '.join(names)}"),
            )
            for key, config in wanted.items()
            for index, tool in enumerate(config.tools)
            if tool not in names and not is_code(tool)
        ]
        if wrong:
            raise ConfigError("\n".join(dict.fromkeys(wrong)))


# --- The configuration as a JSON schema, for completion and checks in editors.


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


_CODE: Final = {"type": "string", "pattern": r"^[^:/\\]+:[^:/\\]+$"}
"""`module:name`."""


def json_schema(tools: Iterable[str] = ()) -> dict[str, Any]:
    """Describe a whole file in both of its forms; `tools` are the names that `tools:` may hold.

    The schema refuses no valid file. It cannot look names up: `wick validate` does.
    """
    file = AgentsFile.model_json_schema(schema_generator=SchemaGenerator)
    parts: dict[str, Any] = file.pop("$defs")
    agent = parts["AgentConfig"]
    if names := sorted(tools):
        agent["properties"]["tools"]["items"] = {"anyOf": [{"enum": names}, _CODE]}
    empty: Any = {"type": "null"}  # a key with nothing but comments below it
    agents, defaults = file["properties"]["agents"], file["properties"]["defaults"]
    agents["additionalProperties"] = {"anyOf": [agents["additionalProperties"], empty]}
    agents["propertyNames"] = {"pattern": f"^{AGENT_ID.pattern}$"}
    file["properties"]["defaults"] = {
        "anyOf": [{"$ref": defaults["$ref"]}, empty],
        "description": defaults.get("description", ""),
    }
    of_file = {
        key: file["properties"][key]
        for key in (
            "store",
            "store_keys",
            "store_warm_bytes",
            "long_term",
            "limits",
            "pool",
            "workers",
        )
    }
    single = {**agent, "properties": {**agent["properties"], **of_file}}
    single["description"] = "One agent that is a whole file."
    return {
        "$schema": DIALECT,
        "title": "agents.yaml",
        "type": "object",
        "if": {"required": ["agents"]},
        "then": {"$ref": "#/$defs/AgentsFile"},
        "else": {"$ref": "#/$defs/SingleAgent"},
        "$defs": {"AgentsFile": file, "SingleAgent": single, **parts},
    }
