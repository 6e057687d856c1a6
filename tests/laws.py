"""The tables of the rules that `test_architecture.py` checks.

Allow-lists here may only shrink: an entry that is no longer needed fails its test too.
"""

from __future__ import annotations

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "types", "constants", "durations", "langgraph_config", "events", "lazy", "machine"),
    ("messages",),
    ("expressions",),
    ("core",),
    ("tracing",),
    ("web",),
    ("config",),
    ("sandbox",),
    ("backends",),
    ("store",),
    ("tools",),
    ("models",),
    ("hooks",),
    ("middleware",),
    ("runtime",),
    ("journal",),
    ("nodes",),
    ("engine",),
    ("foreign",),
    ("picture",),
    ("exports",),
    ("debug",),
    ("subagents",),
    ("loading",),
    ("targets",),
    ("testing", "pytest_plugin"),
    ("client",),
    ("service",),
    ("worker",),
    ("gateway",),
    ("protocols",),
    ("server",),
    ("cli",),
    ("__main__",),
)
"""A part may import what stands above it, and in its own row what stands to its left."""


GROUND = frozenset(LAYERS[0])


KNOWS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("messages", "sandbox", "store", "web"), GROUND),
    "backends": GROUND | {"sandbox"},
    "client": GROUND | {"core"},
    "config": GROUND | {"expressions"},
    "models.scripted": GROUND,
}
"""Parts that serve without the engine (the store: any LangGraph graph) know only these; a part of
a part knows itself too."""

OUTSIDE: dict[str, frozenset[str]] = {
    "sqlalchemy": frozenset({"store"}),
    "psycopg": frozenset({"store"}),
    "cryptography": frozenset({"store"}),
    "sqlite3": frozenset({"store", "cli", "journal"}),  # the command line tells its version
    "typer": frozenset({"cli"}),
    "rich": frozenset({"cli"}),
    "fastapi": frozenset({"server"}),
    "starlette": frozenset({"server", "gateway"}),  # the channel http
    "uvicorn": frozenset({"server", "gateway"}),
    "aiogram": frozenset({"gateway"}),
    "yaml": frozenset({"config", "models"}),
    "langchain": frozenset({"models", "middleware"}),
    "genai_prices": frozenset({"core"}),
    "opentelemetry": frozenset({"tracing"}),
    "procrastinate": frozenset({"worker"}),
}
"""Libraries that only these parts may use."""
PRIVATE = frozenset(
    {
        "langgraph._internal._config",
        "langgraph._internal._constants",
        "langgraph._internal._typing.EMPTY_SEQ",
        "langgraph.pregel._algo",
        "langgraph.pregel._executor",
        "langgraph.pregel._loop",
        "langgraph.pregel._retry",
        "langgraph.pregel._runner",
        "langchain_core.language_models.chat_models._gen_info_and_msg_metadata",
        "langchain_core.tracers.context._configure_hooks",
        "langgraph.checkpoint.serde.types._DeltaSnapshot",
    }
)
"""Private names of libraries that are used: those of LangGraph's loop on the one release that
`engine/pinned.py` checks. Of the others, the first reads what a provider says beside a reply,
the second is the only list of context handlers, which must not be passed over; the third because
checkpoints hold such values."""

MAX_MODULE_LINES = 800
MAX_FUNCTION_LINES = 60
LONG: frozenset[str] = frozenset()
"""Modules, and functions as `module:name`, that are longer all the same."""

MAX_ANCESTORS = 3
MAX_PUBLIC_METHODS = 40
TALL: frozenset[str] = frozenset()
"""Classes with more ancestors of our own, or more public methods of our own, all the same."""


LAZY_IMPORTS: frozenset[tuple[str, str]] = frozenset(
    {
        ("wick_graph.backends.search_worker", "re2"),
        ("wick_graph.config.trusted", "wick_graph.config.fields"),
        ("wick_graph.config.trusted", "wick_graph.config.yaml_reader"),
        ("wick_graph.engine.agent", "wick_graph.backends"),
        ("wick_graph.hooks.prompt_files", "wick_graph.config.yaml_reader"),
        ("wick_graph.store.saver", "wick_graph.store.mailbox"),
        ("wick_graph.store.saver", "wick_graph.store.postgres"),
        ("wick_graph.store.saver", "wick_graph.store.server_rows"),
        ("wick_graph.models.resolve", "wick_graph.models.demo"),
        ("wick_graph.models.resolve", "wick_graph.models.scripted"),
        ("wick_graph.models.structured", "jsonschema.exceptions"),
        ("wick_graph.models.structured", "jsonschema.validators"),
        ("wick_graph.tools.arguments", "jsonschema.exceptions"),
        ("wick_graph.tools.arguments", "re2"),
        ("wick_graph.tools.arguments", "jsonschema.validators"),
        ("wick_graph.tools.arguments", "referencing"),
        ("wick_graph.tools.arguments", "referencing.exceptions"),
        ("wick_graph.tools.arguments", "referencing.jsonschema"),
        ("wick_graph.debug.terminal.shell", "readline"),
        ("wick_graph.pytest_plugin", "wick_graph.debug.recording"),
        ("wick_graph.pytest_plugin", "wick_graph.testing"),
        ("wick_graph.core.usage", "genai_prices"),
        ("wick_graph.models.structured", "langchain.agents"),
        ("wick_graph.tools.mcp", "wick_graph.tools"),
        ("wick_graph.store.postgres", "psycopg"),
        ("wick_graph.worker.queue", "procrastinate"),
        ("wick_graph.store.encryption", "wick_graph.store"),
        ("wick_graph.tracing.otel", "opentelemetry"),
        ("wick_graph.tracing.otel", "opentelemetry"),
        ("wick_graph.tracing.otel", "opentelemetry.exporter.otlp.proto.http"),
        ("wick_graph.tracing.otel", "opentelemetry.sdk.resources"),
        ("wick_graph.tracing.otel", "opentelemetry.sdk.trace"),
        ("wick_graph.tracing.otel", "opentelemetry.trace.propagation"),
    }
)
"""(module, what it imports inside a function) for optional extras, and for what an agent made in
Python may never use (`tests/test_door.py`); the door and `cli` are free."""

OTHER_ERRORS = frozenset(
    {
        "wick_graph.tools.mcp._Forgotten",  # a refusal after which the call is sent again
        "wick_graph.tools.mcp_transport.TooMuch",  # ends in the error of a call
        "wick_graph.core.bridge.Late",  # a time-out, told apart from a call's own
        "wick_graph.models.chunks.BadArgumentsError",  # becomes the call's error text
        "wick_graph.models.structured.InvalidOutput",  # becomes what the model reads
        "wick_graph.service.options.Problem",  # an answer to a request
        "wick_graph.store.leases.Suspected",  # ends in the queue for a thread
        "wick_graph.hooks.protocol.Tripwire",  # ends the run, as LangGraph's interrupts do
    }
)
"""Exceptions outside of the tree."""
SCRIPTED = "wick_graph.models.scripted."
"""Its exceptions are none of ours: they fail a test, or stand for a provider's."""

NOT_OURS: dict[str, tuple[str, ...]] = {
    "backends.docker.container": ("held", "response"),
    "cli.app": ("error",),
    "cli.graph": ("tool",),
    "config.yaml_reader": ("exc",),
    "core.moments": ("listener",),
    "core.state": ("message",),
    "debug.provenance": ("message",),
    "debug.values": ("item",),
    "hooks.from_config": ("hook",),
    "hooks.onion": ("fn", "hook"),
    "hooks.protocol": ("tool",),
    "journal.value_store": ("value",),
    "loading": ("tool",),
    "middleware.adapter": ("middleware",),
    "middleware.langchain_views": ("model", "tool"),
    "models.structured": ("client",),
    "models.retry": ("error", "getattr(error, 'response', None)", "response"),
    "picture.read": (
        "branch",
        "data",
        "getattr(graph, 'builder', None)",
        "getattr(listed, '__self__', None)",
        "graph",
    ),
    "server.routes.agents": ("tool",),
    "store.allowlist": ("builder", "getattr(graph, 'builder', None)", "graph", "held"),
    "store.codec": ("value.tzinfo",),
    "store.transactions": ("self._local",),
    "debug.terminal.move_commands": ("session.agent",),
    "exports.testfile": ("agent",),
    "foreign.held": ("manager", "saver", "self._here"),
    "foreign.seams": ("chunks",),
    "testing.recorded": ("run_manager",),
    "tools.bound": ("declares",),
    "tools.mcp": ("error", "item.resource"),
    "tracing.recorder": ("recorder",),
}
"""By module: what holds an object of a library or of a user, which may have an attribute or not."""
BY_NAME: frozenset[tuple[str, str]] = frozenset(
    {
        ("cli.threads", "dialect_of(read(config).store_url).path"),
        ("debug.live", "choice.value"),
        ("debug.live", "self.agent.graph"),
        ("debug.session", "agent.graph"),
        ("debug.live", "self.terms.decide.anew"),
        ("debug.locations", "agent.spec"),
        ("debug.sources", "agent.spec"),
        ("debug.sources", "source.spec"),
        ("debug.sources", "source.store"),
        ("exports.page", "saved.checkpoint"),
        ("hooks.from_config", "holder.api_key"),
        ("journal.encode", "request.model.name"),
        ("journal.encode", "value.update"),
        ("journal.replay", "agent.graph"),
        ("picture.read", "tool.source.agents"),
        ("core.request", "messages.find"),
        ("server.schemas", "config.subagents"),
        ("service.tenants", "backend.level"),
    }
)
"""Attributes of our own objects that are asked for by name; a type or a protocol says it better."""

MAX_CHAIN = 24

MAX_PACKAGES = 14

MAX_INSIDE = {"store": 12}
"""Links of the longest chain of imports inside a part; 9 in every other one."""

ONE_IMPORTER: dict[str, tuple[str, ...]] = {
    "150 lines": (
        "backends.saved_results",
        "backends.search",
        "client.wire",
        "debug.inspector",
        "engine.compaction",
        "engine.lean_saves",
        "engine.lean_state",
        "engine.pinned",
        "gateway.conversations",
        "gateway.tools",
        "gateway.workspace",
        "journal.details",
        "middleware.langchain_views",
        "models.chunks",
        "models.demo",
        "models.fast_path",
        "models.scripted.yaml_script",
        "picture.svg",
        "server.app",
        "service.tenants",
        "store.checkpoint_write",
        "store.sessions",
        "store.worker",
    ),
    "command": (
        "cli.chat",
        "cli.config",
        "cli.debug",
        "cli.graph",
        "cli.init",
        "cli.threads",
        "cli.ui",
    ),
    "extra": ("store.postgres", "tools.mcp_transport"),
    "hook": (
        "hooks.recall",
        "hooks.todolist",
        "hooks.tracing",
    ),
    "program": ("backends.reaper", "sandbox.confine"),
}
"""By reason, the modules that a single sibling imports. Any other belongs into its importer: a
module stays apart if it has at least so many lines, is one command, one public hook or a program
that also runs by itself, needs an extra, or holds a public name of another package."""
