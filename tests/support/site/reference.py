"""The generated reference: each page from the one thing that the code itself obeys."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer.main

import wick_graph
from tests.source import MODULES, ROOT
from wick_graph.cli.app import app
from wick_graph.config import parse_config
from wick_graph.server import Service, create_app

Lines = Iterator[str]

DOORS: Final = {
    "wick_graph": "What most programs import, from agents to the store.",
    "wick_graph.hooks": "Built-in hooks, and what hooks of your own need beside `BaseHook`.",
    "wick_graph.tools": "Built-in tools, and how tools are bound and described.",
    "wick_graph.testing": "Models that play a script, recordings, and faults, for tests.",
    "wick_graph.debug": "The debugger as a library.",
    "wick_graph.client": "The client of a server.",
    "wick_graph.store": "The checkpointer, its threads and its keys.",
}
"""The packages that people import from, and what each has."""


def page(title: str, *parts: Iterable[str]) -> str:
    """Return a page; a part is its lines."""
    return "\n".join([f"# {title}", "", *(line for part in parts for line in part)]) + "\n"


def cell(text: str) -> str:
    """Return a text as it stands in a cell of a table."""
    return " ".join(text.replace("|", "\\|").split())


def code(text: str) -> str:
    """Return a text as code in a cell of a table: a bar ends no cell there."""
    return f"<code>{_escaped(text).replace('|', '&#124;')}</code>" if text else ""


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def safe(text: str) -> str:
    """Escape a prose text of the code, whose brackets and stars are no markup."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([<\[\]*_{])", r"\\\1", p) for p in parts)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Lines:
    """Yield a table, or nothing if it has no row."""
    for number, row in enumerate(rows):
        if not number:
            yield f"| {' | '.join(head)} |"
            yield "|" + "---|" * len(head)
        yield f"| {' | '.join(row)} |"
    yield ""


# --- agents.yaml and HTTP: JSON schemas ----------------------------------------------------------


def kind(
    schema: Mapping[str, Any], link: Mapping[str, str], titles: Mapping[str, str] | None = None
) -> str:
    """Say in a word or two what a schema accepts; `link` maps the shapes that have a section."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        shown = (titles or {}).get(name, name)
        return f"[{shown}](#{link[name]})" if name in link else shown
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return " or ".join(dict.fromkeys(kind(each, link, titles) for each in schema[union]))
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return ", ".join(code(str(value)) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}), link, titles)}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"mapping to {kind(schema['additionalProperties'], link, titles)}"
    return f"{schema.get('type', 'anything')}{_bounds(schema)}".replace("object", "mapping")


def _bounds(schema: Mapping[str, Any]) -> str:
    signs = {"minimum": "≥ ", "exclusiveMinimum": "> ", "maximum": "≤ ", "exclusiveMaximum": "< "}
    said = [f"{sign}{schema[key]:g}" for key, sign in signs.items() if key in schema]
    return f" {', '.join(said)}" if said else ""


def fields(
    schema: Mapping[str, Any], link: Mapping[str, str], titles: Mapping[str, str] | None = None
) -> Lines:
    """Yield the table of a shape's keys."""
    needed = schema.get("required", ())

    def row(key: str, value: Mapping[str, Any]) -> tuple[str, ...]:
        default = value.get("default")
        shown = "needed" if key in needed else "" if default in (None, "") else json.dumps(default)
        about = cell(safe(value.get("description", "")))
        return (
            code(key),
            kind(value, link, titles),
            shown if shown == "needed" else code(shown),
            about,
        )

    rows = (row(key, value) for key, value in schema.get("properties", {}).items())
    yield from table(("key", "value", "default", "what it is"), rows)


def agents_yaml() -> str:
    """Return every key of agents.yaml, from its JSON schema."""
    schema = json.loads((ROOT / "docs" / "agents.schema.json").read_text("utf-8"))["$defs"]
    first = {"AgentsFile": "The file", "AgentConfig": "An agent"}
    shapes = {**{name: schema[name] for name in first}, **schema}
    shapes.pop("SingleAgent")  # an agent and the file in one: both are described
    for value in (v for shape in shapes.values() for v in shape["properties"].values()):
        below = re.search(r"#/\$defs/(\w+)", json.dumps(value))
        if below:
            value.setdefault("description", schema[below[1]].get("description", ""))
    titles = {name: _words(name.removesuffix("Config")) for name in shapes} | first
    link = {name: title.lower().replace(" ", "-") for name, title in titles.items()}

    def sections() -> Lines:
        yield "Every key of agents.yaml, from the schema that checks it."
        yield "[The page on the file](configuration.md) says how they work together; editors read"
        yield "[the schema](../files/agents.schema.json)."
        yield ""
        for name, shape in shapes.items():
            yield from (f"## {titles[name]}", "", safe(shape.get("description", "")), "")
            yield from fields(shape, link, titles)

    return page("Keys of agents.yaml", sections())


def _words(name: str) -> str:
    """Write a class's name as words: `McpServer` is "Mcp server"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()


def described() -> dict[str, Any]:
    """Return the OpenAPI description of a server."""
    agents = "agents: {a: {model: 'scripted:demo'}}\nstore: 'sqlite://'"
    service = Service(parse_config(agents, source="agents.yaml", base_dir=Path()))
    return create_app(service).openapi()


def http() -> str:
    """Return the HTTP interface, from its OpenAPI description."""
    api = described()
    shapes = api["components"]["schemas"]
    link = {name: name.lower() for name in shapes}
    by_tag: dict[str, list[str]] = {}
    for path, operations in api["paths"].items():
        for method, operation in operations.items():
            lines = by_tag.setdefault(operation.get("tags", ["other"])[0], [])
            lines += _operation(f"{method.upper()} {path}", operation, link)

    def sections() -> Lines:
        yield "Every request that `wick serve` answers, from its OpenAPI description. A server"
        yield "gives it at `GET /openapi.json`; [here it is as a file](../files/openapi.json)."
        yield "[The server](../how-to/server.md) explains tokens, streams and tenants."
        yield ""
        for tag, lines in by_tag.items():
            yield from (f"## {tag.capitalize() if tag != 'openai' else 'OpenAI'}", "", *lines)
        yield from ("## Shapes", "")
        for name, shape in sorted(shapes.items()):
            yield from (f"### {name}", "", safe(shape.get("description", "")), "")
            yield from fields(shape, link)

    return page("HTTP", sections())


def _operation(title: str, operation: Mapping[str, Any], link: Mapping[str, str]) -> Lines:
    yield from (f"### `{title}`", "", safe(operation.get("description", "")), "")
    bodies = operation.get("requestBody", {}).get("content", {})
    for media, body in bodies.items():
        yield from (f"Body: {kind(body.get('schema', {}), link)}, as `{media}`.", "")
    rows = (
        (code(p["name"]), p["in"], kind(p["schema"], link), cell(safe(p.get("description", ""))))
        for p in operation.get("parameters", ())
    )
    yield from table(("parameter", "in", "value", "what it is"), rows)
    good, bad = list[str](), list[str]()
    for status, answer in sorted(operation["responses"].items()):
        forms = answer.get("content", {}).items()
        kinds = [kind(c["schema"], link) if c.get("schema") else code(m) for m, c in forms]
        told = f"{status}: {' or '.join(kinds) or 'nothing'}"
        (good if status < "4" else bad).append(told if status < "4" else status)
    yield f"Answers {'; '.join(good)}." + (f" Errors: {', '.join(bad)}." if bad else "")
    yield ""


# --- the command line ----------------------------------------------------------------------------


def commands() -> str:
    """Return every command with its arguments and options, from the commands themselves."""

    def sections() -> Lines:
        yield "Every command and option, as `--help` prints them. [The command `wick`](cli.md) is"
        yield "the short form, and says how commands work together."
        yield ""
        yield from _command("wick", typer.main.get_command(app), None, 1)

    return page("Commands and options", sections())


def _command(name: str, command: Any, above: Any, depth: int) -> Lines:
    with command.make_context(name, [], parent=above, resilient_parsing=True) as here:
        inner = getattr(command, "commands", {})
        if above:
            yield from (f"{'#' * min(depth, 3)} {here.command_path}", "")
            yield from ("```text", command.get_usage(here).removeprefix("Usage: "), "```", "")
            yield from (safe(command.help or ""), "")
            records = [p.get_help_record(here) for p in command.params if not p.hidden]
            rows = ((code(names), cell(safe(said))) for names, said in filter(None, records))
            yield from table(("argument or option", "what it does"), rows)
        for each in sorted(inner):
            yield from _command(each, inner[each], here, depth + 1)


# --- Python --------------------------------------------------------------------------------------


def names_of(package: str) -> list[str]:
    """Return what `__all__` of a package names, in its order, without what the door has."""
    door = set[str]() if package == "wick_graph" else {*wick_graph.__all__}
    for node in ast.walk(MODULES[package].tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == "__all__" and node.value:
                return [name for name in ast.literal_eval(node.value) if name not in door]
    return []


def python(package: str) -> str:
    """Return the page on a package; mkdocstrings fills it from the docstrings."""
    names = [name for name in names_of(package) if name not in ("__version__", "events")]
    return page(package, [DOORS[package], ""], (f"::: {package}.{name}\n" for name in names))


# --- events and errors: tables of docstrings -----------------------------------------------------


def events() -> str:
    """Return the events of a stream: the table of the module, then each class."""
    tree = MODULES["wick_graph.events"].tree
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    shown = (f"::: wick_graph.events.{name}\n" for name in classes if not name.startswith("_"))
    return page("Events", _docstring(tree), shown)


def errors() -> str:
    """Return the errors as the module draws them, then each class."""
    tree = MODULES["wick_graph.errors"].tree
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    shown = (f"::: wick_graph.errors.{name}\n" for name in classes if not name.startswith("_"))
    return page("Errors", _docstring(tree), shown)


def _docstring(tree: ast.Module) -> Lines:
    yield from (ast.get_docstring(tree) or "").splitlines()
    yield ""
